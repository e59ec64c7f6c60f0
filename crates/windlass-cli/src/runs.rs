//! `windlass runs`: which runs there are.

use std::str::FromStr;

use serde_json::{Value, json};
use windlass::store::{RunCursor, RunFilter, RunRecord};
use windlass::{RunState, Tenant, Timestamp, WorkflowName};

use crate::session::Session;
use crate::text::{age, ago, listing, parse_pair, shown};

/// What `windlass runs` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only runs of this workflow
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,

    /// Only runs of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,

    /// Only runs in this state: running, succeeded, failed or cancelled
    #[arg(long, value_name = "STATE", value_parser = parse_state)]
    state: Option<RunState>,

    /// Only runs with this metadata
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    metadata: Option<(String, String)>,

    /// Maximum number of runs
    #[arg(long, value_name = "N", default_value = "100", value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    limit: u32,

    /// Cursor returned by the previous page
    #[arg(long, value_name = "CURSOR")]
    after: Option<Cursor>,
}

/// Where a list ended, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor(RunCursor);

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}_{}", self.0.created_at.as_micros(), self.0.id)
    }
}

impl FromStr for Cursor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('_').and_then(|(micros, id)| {
            let created_at = Timestamp::from_micros(micros.parse().ok()?);
            Some(Cursor(RunCursor { created_at, id: id.parse().ok()? }))
        });
        parsed.ok_or("invalid cursor: use the one that the previous page printed")
    }
}

fn parse_state(word: &str) -> Result<RunState, String> {
    let state = RunState::ALL.into_iter().find(|state| state.word() == word);
    state.ok_or_else(|| "expected one of running, succeeded, failed, cancelled".to_owned())
}

/// Prints the runs, the newest first.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    let Arguments { workflow, tenant, state, metadata, limit, after } = arguments;
    let mut filter = RunFilter {
        workflow: workflow.map(WorkflowName::new).transpose().map_err(windlass::Error::from)?,
        tenant: tenant.map(Tenant::new).transpose().map_err(windlass::Error::from)?,
        state,
        metadata,
        after: after.map(|cursor| cursor.0),
        limit: 0,
    };
    let (windlass, store) = session.connect().await?;
    let most = limit as usize;
    let mut runs = Vec::new();
    let next = loop {
        filter.limit = most - runs.len();
        let page = windlass.list(filter.clone()).await?;
        runs.extend(page.runs);
        match page.next {
            Some(next) if runs.len() < most => filter.after = Some(next),
            next => break next.map(Cursor),
        }
    };
    let now = store.now().await?;
    let document = || {
        let runs: Vec<Value> = runs.iter().map(json).collect();
        json!({ "runs": runs, "next": next.map(|next| next.to_string()) })
    };
    session.tell(document, || {
        let more = next.map(|next| format!("and more: --after {next}\n"));
        table(&runs, now) + &more.unwrap_or_default()
    })
}

/// A run for programs, without its input.
pub(crate) fn json(run: &RunRecord) -> Value {
    json!({
        "run": run.id.to_string(),
        "workflow": run.workflow,
        "version": run.version,
        "tenant": run.tenant,
        "state": run.state.word(),
        "key": run.key,
        "priority": run.priority.get(),
        "metadata": run.metadata,
        "round": run.round,
        "open_tasks": run.open_tasks,
        "created_at": run.created_at.to_string(),
        "ended_at": run.ended_at.map(|at| at.to_string()),
    })
}

fn table(runs: &[RunRecord], now: Timestamp) -> String {
    if runs.is_empty() {
        return "no runs\n".to_owned();
    }
    let header = ["run", "workflow", "version", "tenant", "state", "open", "started", "took"];
    let row = |run: &RunRecord| {
        vec![
            run.id.to_string(),
            shown(run.workflow.as_str()),
            run.version.to_string(),
            shown(run.tenant.as_str()),
            run.state.to_string(),
            run.open_tasks.to_string(),
            ago(Some(run.created_at), now),
            run.ended_at.map_or_else(|| "-".to_owned(), |at| age(at.since(run.created_at))),
        ]
    };
    listing(&header, &[2, 5], runs.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::RunId;

    #[test]
    fn a_cursor_is_read_as_it_is_written() {
        let id: RunId = "01981c2e-7a40-7c1f-9d57-0242ac120002".parse().expect("it is an id");
        let created_at = Timestamp::from_micros(1_750_000_000_000_001);
        let cursor = Cursor(RunCursor { created_at, id });
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for wrong in ["", "1", "1_2", "x_01981c2e-7a40-7c1f-9d57-0242ac120002"] {
            assert!(wrong.parse::<Cursor>().is_err(), "{wrong}");
        }
    }
}
