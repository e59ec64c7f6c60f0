//! `windlass tokens`: who may use a server.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use windlass::store::{Action, NewToken, TokenFilter, TokenRecord};
use windlass::{Operator, Role, Roles, Tenant, Timestamp, Token, TokenId};
use windlass_server::token::{mint, tag_of};

use crate::operator::OperatorArguments;
use crate::session::Session;
use crate::text::{ago, listing, parse_time, shown};

/// The shortest and the longest time that a token is made for. One that is to hold longer than a
/// hundred years has no end.
const EXPIRY_MIN: Duration = Duration::from_secs(1);
const EXPIRY_MAX: Duration = Duration::from_secs(36_500 * 86_400);

/// What `windlass tokens` can be told.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    list: List,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Create a token and print it once
    Create(Create),

    /// List tokens, newest first, without secrets (default)
    List(List),

    /// Revoke a token (takes effect within 5 seconds)
    Revoke(Revoke),
}

#[derive(Clone, Debug, clap::Args)]
struct Create {
    /// Name of the token, used in the log
    #[arg(value_name = "NAME")]
    name: String,

    /// Role: metrics, viewer, worker, operator or admin; may be repeated
    #[arg(long, value_name = "ROLE", required = true)]
    role: Vec<Role>,

    /// Tenant that it is limited to [default: all tenants]
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,

    /// Lifetime, e.g. 90d, from 1s to 36500d [default: never expires]
    #[arg(long, value_name = "TIME", value_parser = parse_expiry)]
    expires_in: Option<Duration>,

    /// Write the token to this new file instead of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    operator: OperatorArguments,
}

#[derive(Clone, Debug, clap::Args)]
struct List {
    /// Only tokens of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,

    /// Include expired and revoked tokens
    #[arg(long)]
    all: bool,
}

#[derive(Clone, Debug, clap::Args)]
struct Revoke {
    /// Id of the token: its middle part, and in the list
    #[arg(value_name = "ID")]
    id: TokenId,

    #[command(flatten)]
    operator: OperatorArguments,
}

/// A time for which a token may hold.
fn parse_expiry(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    match (EXPIRY_MIN..=EXPIRY_MAX).contains(&time) {
        true => Ok(time),
        false => Err("not within 1s and 36500d".to_owned()),
    }
}

/// Does what the command says.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    match arguments.command {
        Some(Command::Create(arguments)) => create(arguments, session).await,
        None => list(arguments.list, session).await,
        Some(Command::List(arguments)) => list(arguments, session).await,
        Some(Command::Revoke(arguments)) => revoke(arguments, session).await,
    }
}

async fn create(arguments: Create, session: &Session) -> anyhow::Result<()> {
    let (windlass, store) = session.connect().await?;
    let name = Operator::new(&arguments.name)?;
    let tenant = arguments.tenant.map(Tenant::new).transpose()?;
    let roles = Roles::of(arguments.role).context("a token has at least one role")?;
    let expires_at = match arguments.expires_in {
        Some(time) => Some(store.now().await.map_err(windlass::Error::from)? + time),
        None => None,
    };
    let token = mint(roles)?;
    if let Some(path) = &arguments.out {
        // Before anyone knows it: a token that nobody has is no use.
        write_secret(path, &token)?;
    }
    let detail = detail(token.id(), &name, roles);
    let operator = &arguments.operator;
    let noted =
        operator.note(&windlass, Action::CreateToken, tenant.clone(), Some(&detail)).await?;
    let new = NewToken { id: token.id(), tag: tag_of(&token), name, roles, tenant, expires_at };
    let made = store.create_token(new).await.map_err(windlass::Error::from);
    let made = noted.settle(made).await;
    if let (Err(_), Some(path)) = (&made, &arguments.out) {
        std::fs::remove_file(path).with_context(|| format!("{} is left over", path.display()))?;
    }
    let made = made?;
    let text = token.text();
    let document = || {
        let mut document = json(&made);
        match &arguments.out {
            Some(path) => document["file"] = Value::from(path.display().to_string()),
            None => document["token"] = Value::from(text.expose()),
        }
        document
    };
    session.tell(document, || match &arguments.out {
        Some(path) => format!("token {} is in {}\n", made.id, shown(&path.to_string_lossy())),
        None => format!("{}\n", text.expose()),
    })?;
    if arguments.out.is_none() && !session.is_json() {
        eprintln!(
            "this is the only time that it is shown; revoke it with: windlass tokens revoke {}",
            made.id
        );
    }
    Ok(())
}

/// Writes a token where only its owner reads it.
pub(crate) fn write_secret(path: &Path, token: &Token) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path);
    let mut file = file.with_context(|| format!("{} cannot be made", path.display()))?;
    writeln!(file, "{}", token.text().expose())
        .with_context(|| format!("{} cannot be written", path.display()))
}

async fn list(arguments: List, session: &Session) -> anyhow::Result<()> {
    let (_, store) = session.connect().await?;
    let now = store.now().await.map_err(windlass::Error::from)?;
    let tenant = arguments.tenant.map(Tenant::new).transpose()?;
    let mut filter = TokenFilter { tenant, ..TokenFilter::default() };
    let mut tokens = Vec::new();
    loop {
        let page = store.list_tokens(filter.clone()).await.map_err(windlass::Error::from)?;
        tokens.extend(page.tokens.into_iter().filter(|it| arguments.all || it.holds_at(now)));
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    let document = || Value::from(tokens.iter().map(json).collect::<Vec<_>>());
    session.tell(document, || table(&tokens, now))
}

async fn revoke(arguments: Revoke, session: &Session) -> anyhow::Result<()> {
    let (windlass, store) = session.connect().await?;
    let mut noted = None;
    // A server keeps the log itself. A token that does not exist is not logged.
    if !store.keeps_log() {
        let found = store.find_tokens(vec![arguments.id]).await.map_err(windlass::Error::from)?;
        if let Some(token) = found.into_iter().next() {
            let TokenRecord { id, name, roles, tenant, .. } = token.record;
            let detail = detail(id, &name, roles);
            let operator = &arguments.operator;
            let entry = operator.note(&windlass, Action::RevokeToken, tenant, Some(&detail));
            noted = Some(entry.await?);
        }
    }
    let token = store.revoke_token(arguments.id).await.map_err(windlass::Error::from);
    let token = match noted {
        Some(noted) => noted.settle(token).await?,
        None => token?,
    };
    session.tell(
        || json(&token),
        || format!("token {} ({}) is revoked\n", token.id, shown(token.name.as_str())),
    )
}

/// What the log says of a token.
fn detail(id: TokenId, name: &Operator, roles: Roles) -> Value {
    json!({ "token": id.as_str(), "name": name, "roles": roles.to_string() })
}

fn json(token: &TokenRecord) -> Value {
    let roles: Vec<&str> = token.roles.iter().map(Role::word).collect();
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    json!({
        "id": token.id.as_str(),
        "name": token.name,
        "roles": roles,
        "tenant": token.tenant,
        "created_at": token.created_at.to_string(),
        "expires_at": time(token.expires_at),
        "last_used_at": time(token.last_used_at),
        "revoked_at": time(token.revoked_at),
    })
}

fn table(tokens: &[TokenRecord], now: Timestamp) -> String {
    if tokens.is_empty() {
        return "there are no tokens\n".to_owned();
    }
    let header = ["id", "name", "roles", "tenant", "made", "used", "holds"];
    let row = |token: &TokenRecord| {
        let tenant = token.tenant.as_ref();
        let holds = match (token.revoked_at, token.expires_at) {
            (Some(at), _) => format!("revoked {at}"),
            (None, Some(at)) if at <= now => format!("expired {at}"),
            (None, Some(at)) => format!("until {at}"),
            (None, None) => "yes".to_owned(),
        };
        vec![
            token.id.to_string(),
            shown(token.name.as_str()),
            token.roles.to_string(),
            tenant.map_or_else(|| "all".to_owned(), |tenant| shown(tenant.as_str())),
            ago(Some(token.created_at), now),
            ago(token.last_used_at, now),
            holds,
        ]
    };
    listing(&header, &[], tokens.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_holds_for_a_time_that_people_live() {
        for (text, is_right) in [
            ("0s", false),
            ("999ms", false),
            ("1s", true),
            ("36500d", true),
            ("36501d", false),
            ("99999999999d", false),
            ("soon", false),
        ] {
            assert_eq!(parse_expiry(text).is_ok(), is_right, "{text}");
        }
    }
}
