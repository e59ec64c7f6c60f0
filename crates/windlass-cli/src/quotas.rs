//! `windlass quotas`: how much tenants may ask of the servers.

use std::io::Write as _;

use anyhow::anyhow;
use serde_json::{Value, json};
use windlass::Tenant;
use windlass::store::{Action, QUOTA_MAX, Quota};

use crate::failure::usage;
use crate::operator::OperatorArguments;
use crate::session::Session;
use crate::text::{listing, shown};

/// What `windlass quotas` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List quotas (default); tenants without a quota are not limited
    List,

    /// Set or replace the quota of a tenant
    ///
    /// Limits that are not given are not limited. Give at least one limit, or --unlimited.
    Set(Set),

    /// Delete a quota.
    Clear(Clear),
}

/// Whose quota.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Whose {
    /// Tenant
    tenant: Option<String>,

    /// All tenants without a quota of their own
    #[arg(long)]
    all_others: bool,
}

impl Whose {
    fn tenant(self) -> anyhow::Result<Option<Tenant>> {
        Ok(self.tenant.map(Tenant::new).transpose()?)
    }
}

#[derive(Clone, Debug, clap::Args)]
struct Set {
    #[command(flatten)]
    whose: Whose,

    /// Maximum number of starts per second, at each server
    #[arg(long, value_name = "N", value_parser = within())]
    starts_per_second: Option<u32>,

    /// Maximum number of ready tasks; further starts are refused
    #[arg(long, value_name = "N", value_parser = within())]
    backlog: Option<u32>,

    /// Maximum size of an input or a signal
    #[arg(long, value_name = "BYTES", value_parser = within())]
    payload_bytes: Option<u32>,

    /// Maximum bytes of inputs and signals per second, at each server
    #[arg(long, value_name = "BYTES", value_parser = within())]
    payload_bytes_per_second: Option<u32>,

    /// Maximum number of schedules
    #[arg(long, value_name = "N", value_parser = within())]
    schedules: Option<u32>,

    /// Maximum number of tasks of a workflow
    #[arg(long, value_name = "N", value_parser = within())]
    tasks: Option<u32>,

    /// No limits, also not those of --all-others
    #[arg(long)]
    unlimited: bool,

    #[command(flatten)]
    operator: OperatorArguments,
}

#[derive(Clone, Debug, clap::Args)]
struct Clear {
    #[command(flatten)]
    whose: Whose,

    #[command(flatten)]
    operator: OperatorArguments,
}

fn within() -> impl Fn(&str) -> Result<u32, String> + Clone {
    crate::text::whole_number(1..=QUOTA_MAX)
}

/// Does what the command says.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    match arguments.command {
        None | Some(Command::List) => list(session).await,
        Some(Command::Set(arguments)) => set(arguments, session).await,
        Some(Command::Clear(arguments)) => clear(arguments, session).await,
    }
}

async fn list(session: &Session) -> anyhow::Result<()> {
    let (windlass, _) = session.connect().await?;
    let quotas = windlass.quotas().await?;
    let text = if session.is_json() {
        let quotas: Vec<Value> = quotas.iter().map(json).collect();
        crate::text::document(&quotas)?
    } else {
        table(&quotas)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

async fn set(arguments: Set, session: &Session) -> anyhow::Result<()> {
    let Set { whose, operator, .. } = arguments;
    let quota = Quota {
        tenant: whose.tenant()?,
        starts_per_second: arguments.starts_per_second,
        backlog_max: arguments.backlog,
        payload_bytes_max: arguments.payload_bytes,
        payload_bytes_per_second: arguments.payload_bytes_per_second,
        schedules_max: arguments.schedules,
        tasks_max: arguments.tasks,
    };
    let has_limit = quota.limits().iter().any(|(_, limit)| limit.is_some());
    match (has_limit, arguments.unlimited) {
        (true, false) | (false, true) => {}
        (false, false) => {
            return Err(usage(
                "no limit is said: give at least one, or --unlimited; windlass quotas clear takes \
                 a quota away",
            ));
        }
        (true, true) => return Err(usage("--unlimited is said, and a limit as well")),
    }
    let (windlass, _) = session.connect().await?;
    let detail = json(&quota);
    let noted =
        operator.note(&windlass, Action::SetQuota, quota.tenant.clone(), Some(&detail)).await?;
    let text = format!("{} has this quota now\n{}", named(quota.tenant.as_ref()), row(&quota));
    noted.settle(windlass.set_quota(quota).await).await?;
    session.tell(|| detail.clone(), || text.clone())
}

async fn clear(arguments: Clear, session: &Session) -> anyhow::Result<()> {
    let Clear { whose, operator } = arguments;
    let tenant = whose.tenant()?;
    let (windlass, _) = session.connect().await?;
    let detail = json!({ "tenant": tenant });
    let noted = operator.note(&windlass, Action::ClearQuota, tenant.clone(), Some(&detail)).await?;
    let named = named(tenant.as_ref());
    let cleared = match windlass.clear_quota(tenant).await {
        Ok(false) => Err(anyhow!("{named} has no quota")),
        cleared => cleared.map_err(Into::into),
    };
    noted.settle(cleared).await?;
    session.tell(|| detail.clone(), || format!("{named} has no quota any more\n"))
}

fn named(tenant: Option<&Tenant>) -> String {
    match tenant {
        Some(tenant) => format!("tenant {}", shown(tenant.as_str())),
        None => "every tenant without one of its own".to_owned(),
    }
}

fn json(quota: &Quota) -> Value {
    let mut value = json!({ "tenant": quota.tenant });
    for (name, limit) in quota.limits() {
        value[name] = json!(limit);
    }
    value
}

fn row(quota: &Quota) -> String {
    table(std::slice::from_ref(quota))
}

fn table(quotas: &[Quota]) -> String {
    if quotas.is_empty() {
        return "nothing is limited\n".to_owned();
    }
    let header =
        ["tenant", "starts/s", "backlog", "payload bytes", "payload bytes/s", "schedules", "tasks"];
    let row = |quota: &Quota| {
        let tenant = quota.tenant.as_ref();
        let tenant = tenant.map_or_else(|| "all others".to_owned(), |it| shown(it.as_str()));
        let limit =
            |(_, limit): (_, Option<u32>)| limit.map_or("-".to_owned(), |it| it.to_string());
        [tenant].into_iter().chain(quota.limits().map(limit)).collect()
    };
    listing(&header, &[1, 2, 3, 4, 5, 6], quotas.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_is_limited() {
        let all = Quota { starts_per_second: Some(7), ..Quota::default() };
        let tenant = Tenant::new("acme\u{202e}").expect("it is a name");
        let own = Quota { tasks_max: Some(9), ..Quota::of(Some(tenant)) };
        let text = table(&[all, own.clone()]);
        let rows: Vec<Vec<&str>> =
            text.lines().skip(1).map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["all", "others", "7", "-", "-", "-", "-", "-"]);
        assert_eq!(rows[1], [r"acme\u{202e}", "-", "-", "-", "-", "-", "9"]);
        assert_eq!(table(&[]), "nothing is limited\n");
        assert_eq!(json(&own)["tasks_max"], 9);
        assert_eq!(json(&own)["backlog_max"], Value::Null);
    }
}
