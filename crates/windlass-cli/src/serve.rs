//! `windlass serve`: one door for workers in any language, for people and for programs.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use windlass::pem::{PemFile, Privacy};
use windlass::store::NewToken;
use windlass::telemetry::{LOG_VARIABLE, Telemetry, TelemetryGuard};
use windlass::{Operator, Role, Roles, Token, Windlass};
use windlass_server::token::{mint, tag_of};
use windlass_server::{Access, Listener, ServeError, Server, ServerOptions};

use crate::certificates::{TlsArguments, ended};
use crate::session::Session;
use crate::signals::Signals;

/// Where a server listens if nothing is said.
pub(crate) const ADDRESS: &str = "127.0.0.1:7600";

/// How often the duties look without a hint.
const DUTY_INTERVAL: Duration = Duration::from_secs(1);

/// What `windlass serve` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Address to listen on, or a unix socket such as unix:/run/windlass.sock; port 0 for any free
    /// port; may be repeated
    #[arg(long, value_name = "ADDRESS", default_value = ADDRESS)]
    listen: Vec<String>,

    /// Require no tokens; only on loopback addresses and unix sockets
    #[arg(long)]
    insecure_dev: bool,

    /// File with the first admin token; only its owner and group may read it
    ///
    /// Without it, a server that finds no tokens creates one and prints it once, on standard error.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure_dev")]
    admin_token_file: Option<PathBuf>,

    /// Host name of the server, besides localhost; may be repeated
    #[arg(long, value_name = "NAME")]
    host_name: Vec<String>,

    #[command(flatten)]
    tls: TlsArguments,

    /// Maximum number of database connections
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = crate::text::whole_number::<u16>(2..=u16::MAX))]
    connections: u16,

    /// Share of requests and memory for one client address, in percent; 100 behind a proxy
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = crate::text::whole_number::<u8>(1..=100))]
    address_share: u8,

    /// Maximum number of live workers of one token
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = crate::text::whole_number::<usize>(1..=1_000_000))]
    workers_per_token: usize,

    /// Maximum number of live workers of one tenant's tokens
    #[arg(long, value_name = "N", default_value_t = 4_000, value_parser = crate::text::whole_number::<usize>(1..=1_000_000))]
    workers_per_tenant: usize,

    /// Database role for reads of a tenant, restricted by row-level security; `windlass migrate
    /// --grants` creates it [default: no row-level security]
    #[arg(long, value_name = "ROLE")]
    api_role: Option<String>,

    /// Leave maintenance jobs to other processes
    #[arg(long)]
    no_duties: bool,
}

/// Serves until it is told to end.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<ExitCode> {
    let _telemetry = log_as("windlass-server")?;
    let mut signals = Signals::new()?;
    let mut database = session.database("serve")?.max_connections(arguments.connections.into());
    if let Some(role) = arguments.api_role {
        database = database.api_role(role);
    }
    let access = match arguments.insecure_dev {
        true => Access::insecure_dev(),
        false => Access::tokens(),
    };
    let mut options = ServerOptions::new(access);
    options.host_names = arguments.host_name;
    options.address_share_percent = arguments.address_share;
    options.workers_per_token_max = arguments.workers_per_token;
    options.workers_per_tenant_max = arguments.workers_per_tenant;
    let tls = arguments.tls.apply(&mut options)?;
    let windlass = Windlass::connect(database).await?;
    if !arguments.insecure_dev {
        make_first_token(&windlass, arguments.admin_token_file.as_deref()).await?;
    }
    let server = Server::new(windlass.clone(), options);
    let listener = bind(&server, &arguments.listen).await?;
    let duties = match arguments.no_duties {
        true => None,
        false => Some(windlass.duties(DUTY_INTERVAL)?),
    };
    let mut out = io::stdout();
    writeln!(out, "WINDLASS_SERVER={}", listener.urls())?;
    out.flush()?;
    server.serve(listener, ended(&mut signals, tls.as_ref())).await?;
    if let Some(duties) = duties {
        duties.stop().await;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the token with which all others are made, if there is none: the one of the file, or one
/// that is shown.
async fn make_first_token(windlass: &Windlass, file: Option<&Path>) -> anyhow::Result<()> {
    let roles = Roles::from(Role::Admin);
    let token = match file {
        Some(path) => admin_token(path)?,
        None => mint(roles)?,
    };
    let name = Operator::new("first admin")?;
    let (id, tag) = (token.id(), tag_of(&token));
    let new = NewToken { id, tag, name, roles, tenant: None, expires_at: None };
    let is_made = windlass.store().create_first_token(new).await.map_err(windlass::Error::from)?;
    match (is_made, file) {
        (true, None) => eprintln!(
            "there were no tokens; this one may do everything, and is shown only now:\n{}",
            token.text().expose()
        ),
        (true, Some(path)) => eprintln!("the token in {} may do everything", path.display()),
        (false, None) => {}
        (false, Some(path)) => {
            let found = windlass.store().find_tokens(vec![id]).await;
            let is_known = found.map_err(windlass::Error::from)?.iter().any(|it| it.tag == tag);
            anyhow::ensure!(
                is_known,
                "there are tokens already, and the one in {} is none of them: make it with another \
                 one, or with windlass tokens create at the database",
                path.display()
            );
        }
    }
    Ok(())
}

/// The token in a file, which may do everything: it must say so itself, and be read by nobody else.
fn admin_token(path: &Path) -> anyhow::Result<Token> {
    let file = PemFile::read_private(path, Privacy::Group)?;
    let token = Token::parse(file.text()?.expose());
    let token = token.map_err(|why| file.refuse(format!("it has no token: {why}")))?;
    match token.kind() {
        Role::Admin => Ok(token),
        kind @ (Role::Metrics | Role::Viewer | Role::Worker | Role::Operator) => {
            let why = format!("its token is one of a {kind}, and one of an admin is needed");
            Err(file.refuse(why).into())
        }
    }
}

/// Listens at all of these addresses, or at [`ADDRESS`] if there are none.
pub(crate) async fn bind(server: &Server, addresses: &[String]) -> Result<Listener, ServeError> {
    let mut addresses = addresses.iter().map(String::as_str);
    let mut listener = server.bind(addresses.next().unwrap_or(ADDRESS)).await?;
    for address in addresses {
        listener = listener.and(server.bind(address).await?);
    }
    Ok(listener)
}

/// Logs to standard error what people should see, or what the environment asks for.
pub(crate) fn log_as(service: &str) -> anyhow::Result<TelemetryGuard> {
    let telemetry = Telemetry::from_env()?.service(service);
    let telemetry = match std::env::var_os(LOG_VARIABLE) {
        Some(_) => telemetry,
        None => telemetry.log_levels("warn")?,
    };
    Ok(telemetry.install()?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Serve {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn the_default_limits_of_live_workers_are_the_documented_ones() {
        let Serve { arguments } = Serve::parse_from(["serve"]);
        let options = ServerOptions::new(Access::tokens());
        let of_cli = [arguments.workers_per_token, arguments.workers_per_tenant];
        let of_server = [options.workers_per_token_max, options.workers_per_tenant_max];
        assert_eq!((of_cli, of_server), ([2_000, 4_000], [2_000, 4_000]));
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/server.md");
        let page = std::fs::read_to_string(path).expect("it is in the repository");
        for row in [
            "| live workers of one token | 2,000 (`windlass serve --workers-per-token`)",
            "| live workers of one tenant's tokens | 4,000 (`windlass serve --workers-per-tenant`)",
        ] {
            assert!(page.contains(row), "docs/server.md has no row {row:?}");
        }
    }

    #[test]
    fn the_first_token_is_one_of_an_admin_in_a_file_that_others_may_not_open() {
        let path = std::env::temp_dir().join(format!("windlass-admin-{}", std::process::id()));
        let read = |text: &str, mode: u32| {
            std::fs::write(&path, text).expect("it can be written");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("it is ours");
            admin_token(&path).map_err(|error| error.to_string())
        };
        let text = |role| mint(Roles::from(role)).expect("there are random bytes").text();
        let admin = text(Role::Admin);
        let token = read(&format!("{}\n", admin.expose()), 0o640).expect("it is one");
        assert_eq!(token.text().expose(), admin.expose());
        let error = read(admin.expose(), 0o644).expect_err("everyone may read it");
        assert!(error.contains("(mode 0644): change that to 0640"), "{error}");
        for role in [Role::Metrics, Role::Viewer, Role::Worker, Role::Operator] {
            let error = read(text(role).expose(), 0o600).expect_err("it may do less");
            assert!(error.contains(&format!("one of a {role}, and one of an admin")), "{error}");
        }
        let error = read("wl_admin_none", 0o600).expect_err("it is none");
        assert!(error.contains("it has no token: it is not of the form"), "{error}");
        std::fs::remove_file(&path).expect("it is there");
    }
}
