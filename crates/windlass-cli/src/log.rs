//! `windlass log`: what was changed, by whom and from where.

use std::io::Write as _;

use serde_json::{Value, json};
use windlass::store::{Action, LogEntry, LogFilter};
use windlass::{Operator, RunId, Tenant, Timestamp};

use crate::session::Session;
use crate::text::{ago, count, listing, shown};

/// What `windlass log` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only what was done to this run.
    #[arg(long, value_name = "RUN")]
    run: Option<RunId>,

    /// Only what this operator did.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,

    /// Only what was done to this tenant's things.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,

    /// Only this action, such as redrive, discard or undo_run.
    #[arg(long, value_name = "ACTION")]
    action: Option<Action>,

    /// At most so many, the newest.
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

/// Prints the entries, the newest first.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    let (windlass, store) = session.connect().await?;
    let most = arguments.limit as usize;
    let by = arguments.by.as_ref().map(Operator::new).transpose()?;
    let (run, action) = (arguments.run, arguments.action);
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
        let entries: Vec<Value> = entries.iter().map(json).collect();
        crate::text::document(&entries)?
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

fn table(entries: &[LogEntry], now: Timestamp) -> String {
    if entries.is_empty() {
        return "nothing was done by hand\n".to_owned();
    }
    let header = ["at", "ago", "by", "from", "action", "to"];
    let row = |entry: &LogEntry| {
        let to = match entry.runs.as_slice() {
            [run] => format!("run {run}"),
            [] => entry.tenant.as_ref().map_or_else(
                || "no run".to_owned(),
                |tenant| format!("tenant {}", shown(tenant.as_str())),
            ),
            runs => count(runs.len(), "run"),
        };
        vec![
            entry.at.to_string(),
            ago(Some(entry.at), now),
            shown(entry.by.name.as_str()),
            entry.by.origin.as_deref().map_or_else(|| "-".to_owned(), shown),
            entry.action.to_string(),
            to,
        ]
    };
    listing(&header, &[], entries.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::ActionId;

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
        assert_eq!(table(&[], at), "nothing was done by hand\n");
        assert_eq!(json(&entry)["action"], "redrive");
    }
}
