//! `windlass log`: what was changed, by whom and from where.

use std::collections::HashMap;
use std::io::Write as _;

use serde_json::{Value, json};
use windlass::store::{Action, LogEntry, LogFilter, Quota, REFUSED, REFUSED_ENTRY};
use windlass::{Operator, Tenant, Timestamp};

use crate::choice::{RunPrefix, newest};
use crate::session::Session;
use crate::text::{ago, count, listing, shown};

/// What `windlass log` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only actions on this run, by its id or a unique prefix
    #[arg(long, value_name = "RUN")]
    run: Option<RunPrefix>,

    /// Only actions on the newest run
    #[arg(long, conflicts_with = "run")]
    last: bool,

    /// Only actions of this operator
    #[arg(long, value_name = "NAME")]
    by: Option<String>,

    /// Only actions on this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,

    /// Only this action, e.g. redrive, discard or undo_run
    #[arg(long, value_name = "ACTION")]
    action: Option<Action>,

    /// Maximum number of entries, the newest
    #[arg(long, value_name = "N", default_value = "100", value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    limit: u32,
}

/// Prints the entries, the newest first.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    let (windlass, store) = session.connect().await?;
    let most = arguments.limit as usize;
    let by = arguments.by.as_ref().map(Operator::new).transpose()?;
    let run = match &arguments.run {
        Some(run) => Some(run.resolve(&windlass).await?),
        None if arguments.last => Some(newest(&windlass).await?),
        None => None,
    };
    let action = arguments.action;
    let tenant = arguments.tenant.as_ref().map(Tenant::new).transpose()?;
    let mut filter = LogFilter { run, action, by, tenant, ..LogFilter::default() };
    let mut entries = Vec::new();
    let has_more = loop {
        filter.limit = most - entries.len();
        let page = windlass.log(filter.clone()).await?;
        entries.extend(page.entries);
        match page.next {
            Some(next) if entries.len() < most => filter.before = Some(next),
            next => break next.is_some(),
        }
    };
    let text = if session.is_json() {
        let refused = refusals(&entries);
        let entry = |entry: &LogEntry| {
            let mut value = json(entry);
            value[REFUSED] = refused.get(&entry.id.to_string()).cloned().into();
            value
        };
        crate::text::document(&entries.iter().map(entry).collect::<Vec<_>>())?
    } else {
        let more = if has_more { "and more, see --limit\n" } else { "" };
        table(&entries, store.now().await.map_err(windlass::Error::from)?) + more
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn detail(entry: &LogEntry) -> Value {
    let detail = entry.detail.as_ref().and_then(|detail| detail.decode().ok());
    detail.unwrap_or(Value::Null)
}

/// The reasons of refused actions, by the ids of the entries that were written before them.
fn refusals(entries: &[LogEntry]) -> HashMap<String, String> {
    let refusal = |entry: &LogEntry| {
        let detail = detail(entry);
        let text = |name: &str| detail.get(name)?.as_str().map(str::to_owned);
        Some((text(REFUSED_ENTRY)?, text(REFUSED)?))
    };
    entries.iter().filter_map(refusal).collect()
}

fn json(entry: &LogEntry) -> Value {
    let runs: Vec<String> = entry.runs.iter().map(ToString::to_string).collect();
    json!({
        "number": entry.number,
        "id": entry.id.to_string(),
        "at": entry.at.to_string(),
        "by": entry.by.name,
        "token": entry.by.token.map(|token| token.to_string()),
        "origin": entry.by.origin,
        "action": entry.action.word(),
        "tenant": entry.tenant,
        "runs": runs,
        "detail": detail(entry),
    })
}

/// What it was done to, as the detail says it.
fn done_to(entry: &LogEntry) -> String {
    let detail = detail(entry);
    // Texts are shown as they are, and everything else as JSON.
    let value = |name: &str| match detail.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(shown(text)),
        Some(other) => Some(shown(&other.to_string())),
    };
    let named = |what: &str, name: &str| value(name).map(|it| format!("{what} {it}"));
    let version = named(" version", "version").unwrap_or_default();
    let workflow = named("workflow", "workflow").map(|workflow| workflow + &version);
    let others = entry.tenant.is_none().then(|| "all other tenants".to_owned());
    let said = match entry.action {
        Action::Redrive | Action::Discard | Action::RetryRun | Action::UndoRun => None,
        Action::CancelRun => named("because", "reason"),
        Action::SignalRun => named("signal", "name"),
        Action::SignalKey => joined([named("signal", "name"), named("to key", "key")]),
        Action::SetWeight => named("weight", "weight"),
        Action::SetRetention | Action::ClearRetention => {
            joined([workflow.or_else(|| Some("all workflows".to_owned())), value("state")])
        }
        Action::PutSchedule => joined([named("schedule", "schedule"), workflow, value("cadence")]),
        Action::PauseSchedule
        | Action::ResumeSchedule
        | Action::TriggerSchedule
        | Action::BackfillSchedule
        | Action::DeleteSchedule => named("schedule", "schedule"),
        Action::DisableSchedules => named("schedules of", "owner"),
        Action::RegisterWorkflow => workflow,
        Action::ForgetDuty => named("duty", "duty"),
        Action::CreateToken | Action::RevokeToken => {
            let name = value("name").map_or_else(String::new, |name| format!(" ({name})"));
            joined([named("token", "token").map(|token| token + &name), value("roles")])
        }
        Action::SetQuota => joined([Some(limits(&detail)), others]),
        Action::ClearQuota => others,
    };
    let runs = match entry.runs.as_slice() {
        [] => None,
        [run] => Some(format!("run {run}")),
        runs => Some(count(runs.len(), "run")),
    };
    let tenant = entry.tenant.as_ref().map(|tenant| format!("tenant {}", shown(tenant.as_str())));
    joined([runs, said, tenant]).unwrap_or_else(|| "-".to_owned())
}

/// Those that are said, with commas between them.
fn joined<const N: usize>(parts: [Option<String>; N]) -> Option<String> {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The limits of a quota.
fn limits(detail: &Value) -> String {
    let names = Quota::default().limits().map(|(name, _)| name);
    let said =
        names.iter().filter_map(|name| Some(format!("{name} {}", detail.get(name)?.as_u64()?)));
    let said: Vec<String> = said.collect();
    if said.is_empty() { "nothing is limited".to_owned() } else { said.join(", ") }
}

fn table(entries: &[LogEntry], now: Timestamp) -> String {
    if entries.is_empty() {
        return "no actions\n".to_owned();
    }
    let header = ["at", "ago", "by", "from", "action", "to"];
    let refused = refusals(entries);
    let is_listed = |id: &str| entries.iter().any(|entry| entry.id.to_string() == id);
    // A refusal is shown in the row of the action that it is about.
    let is_shown = |entry: &&LogEntry| {
        let detail = detail(entry);
        !detail.get(REFUSED_ENTRY).and_then(Value::as_str).is_some_and(is_listed)
    };
    let row = |entry: &LogEntry| {
        let to = done_to(entry);
        let (action, to) = match refused.get(&entry.id.to_string()) {
            Some(reason) => {
                (format!("{} (refused)", entry.action), format!("{to}: {}", shown(reason)))
            }
            None => (entry.action.to_string(), to),
        };
        vec![
            entry.at.to_string(),
            ago(Some(entry.at), now),
            shown(entry.by.name.as_str()),
            entry.by.origin.as_deref().map_or_else(|| "-".to_owned(), shown),
            action,
            to,
        ]
    };
    listing(&header, &[], entries.iter().filter(is_shown).map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::{ActionId, Payload, RunId};

    #[test]
    fn an_entry_says_who_did_what_to_what() {
        let at = Timestamp::from_micros(1_750_000_000_000_000);
        let run: RunId = "01981c2e-7a40-7c1f-9d57-0242ac120002".parse().expect("it is an id");
        let entry = LogEntry {
            number: 1,
            id: ActionId::from_random(1),
            at,
            by: Operator::new("anna@ops").expect("it is a name").into(),
            action: Action::Redrive,
            tenant: None,
            runs: vec![run],
            detail: None,
        };
        let text = table(std::slice::from_ref(&entry), at + std::time::Duration::from_secs(5));
        let line = text.lines().nth(1).expect("one entry");
        for word in ["5s", "anna@ops", "redrive", &run.to_string()] {
            assert!(line.contains(word), "{line}");
        }
        assert_eq!(table(&[], at), "no actions\n");
        let detail = json!({ REFUSED: "is running", REFUSED_ENTRY: entry.id.to_string() });
        let refusal = LogEntry {
            number: 2,
            id: ActionId::from_random(2),
            detail: Some(Payload::encode(&detail).expect("it fits")),
            ..entry.clone()
        };
        let text = table(&[refusal, entry.clone()], at);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("redrive (refused)") && text.contains(": is running"), "{text}");
        assert_eq!(json(&entry)["action"], "redrive");
        let runs = vec![run, run];
        assert_eq!(done_to(&LogEntry { runs, ..entry.clone() }), "2 runs");
    }

    #[test]
    fn an_entry_says_what_else_it_was_done_to() {
        let tenant = Tenant::new("acme").expect("it is a name");
        let entry = |action, tenant, detail: Value| LogEntry {
            number: 1,
            id: ActionId::from_random(1),
            at: Timestamp::from_micros(0),
            by: Operator::new("anna@ops").expect("it is a name").into(),
            action,
            tenant,
            runs: Vec::new(),
            detail: (!detail.is_null()).then(|| Payload::encode(&detail).expect("it fits")),
        };
        let acme = || Some(tenant.clone());
        let token = json!({ "token": "aaaabbbbccccdddd", "name": "ci\u{1b}", "roles": "worker" });
        let quota = json!({ "tenant": null, "starts_per_second": 7, "backlog_max": null });
        let put = json!({ "schedule": "daily", "workflow": "mail", "version": 2, "cadence": "1h" });
        for (entry, wanted) in [
            (
                entry(Action::CreateToken, acme(), token),
                r"token aaaabbbbccccdddd (ci\u{1b}), worker, tenant acme",
            ),
            (entry(Action::SetQuota, None, quota), "starts_per_second 7, all other tenants"),
            (entry(Action::SetQuota, acme(), json!({})), "nothing is limited, tenant acme"),
            (entry(Action::ClearQuota, acme(), Value::Null), "tenant acme"),
            (
                entry(Action::PutSchedule, acme(), put),
                "schedule daily, workflow mail version 2, 1h, tenant acme",
            ),
            (
                entry(Action::RegisterWorkflow, None, json!({ "workflow": "mail", "version": 2 })),
                "workflow mail version 2",
            ),
            (entry(Action::SetWeight, acme(), json!({ "weight": 3 })), "weight 3, tenant acme"),
            (entry(Action::ForgetDuty, None, json!({ "duty": "sweep" })), "duty sweep"),
            (
                entry(Action::SetRetention, None, json!({ "workflow": null, "state": "failed" })),
                "all workflows, failed",
            ),
            (entry(Action::Redrive, None, Value::Null), "-"),
        ] {
            assert_eq!(done_to(&entry), wanted);
        }
    }
}
