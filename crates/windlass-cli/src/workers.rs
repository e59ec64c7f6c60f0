//! `windlass workers`: who works, where, and what it is at.

use std::io::Write as _;

use serde_json::{Value, json};
use windlass::store::{WorkerFilter, WorkerRecord};
use windlass::{Timestamp, WorkerId};

use crate::session::Session;
use crate::text::{ago, listing, shown};

/// What `windlass workers` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Include workers that have ended
    #[arg(long)]
    all: bool,

    /// Maximum number of workers, the newest
    #[arg(long, value_name = "N", default_value = "100", value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    limit: u32,

    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Drain a worker: it claims nothing more, finishes what it holds and exits
    Drain {
        /// ID of the worker, as `windlass workers --json` shows it
        worker: WorkerId,
    },
}

/// Drains a worker, which hears of it with its next heartbeat.
async fn drain(worker: WorkerId, session: &Session) -> anyhow::Result<()> {
    let (windlass, store) = session.connect().await?;
    let mut filter = WorkerFilter::default();
    let found = loop {
        let page = windlass.workers(filter.clone()).await?;
        if let Some(found) = page.workers.into_iter().find(|one| one.id == worker) {
            break found;
        }
        filter.after = page.next;
        anyhow::ensure!(
            page.next.is_some(),
            "worker \"{worker}\" not found among the workers that are alive; `windlass workers` lists them"
        );
    };
    store.begin_drain(worker).await?;
    let document = || json!({ "worker": worker.to_string(), "is_draining": true });
    let text = || {
        let (name, tasks) = (shown(&found.name), found.tasks);
        let tasks = if tasks == 1 { "1 task".to_owned() } else { format!("{tasks} tasks") };
        format!("Draining worker {name}: it finishes {tasks} and exits.\n")
    };
    session.tell(document, text)
}

/// Prints the workers, the newest first.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    if let Some(Action::Drain { worker }) = arguments.action {
        return drain(worker, session).await;
    }
    let (windlass, store) = session.connect().await?;
    let most = arguments.limit as usize;
    let mut filter = WorkerFilter { with_dead: arguments.all, ..WorkerFilter::default() };
    let mut workers = Vec::new();
    let has_more = loop {
        filter.limit = most - workers.len();
        let page = windlass.workers(filter.clone()).await?;
        workers.extend(page.workers);
        match page.next {
            Some(next) if workers.len() < most => filter.after = Some(next),
            next => break next.is_some(),
        }
    };
    let text = if session.is_json() {
        let workers: Vec<Value> = workers.iter().map(json).collect();
        crate::text::document(&workers)?
    } else {
        let more = if has_more { "and more, see --limit\n" } else { "" };
        table(&workers, store.now().await?) + more
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

pub(crate) fn json(worker: &WorkerRecord) -> Value {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let workflows = worker.workflows.iter();
    let workflows = workflows.map(|it| json!({ "name": it.workflow, "version": it.version }));
    json!({
        "id": worker.id.to_string(),
        "name": worker.name,
        "state": worker.state.word(),
        "host": worker.info.host,
        "pid": worker.info.pid,
        "version": worker.info.version,
        "slots": worker.slots,
        "tasks": worker.tasks,
        "lease_ms": u64::try_from(worker.lease.as_millis()).unwrap_or(u64::MAX),
        "queues": worker.info.queues,
        "workflows": workflows.collect::<Vec<_>>(),
        "metadata": worker.info.metadata,
        "joined_at": worker.joined_at.to_string(),
        "seen_at": time(worker.seen_at),
        "ended_at": time(worker.ended_at),
    })
}

fn table(workers: &[WorkerRecord], now: Timestamp) -> String {
    if workers.is_empty() {
        return "no workers\n".to_owned();
    }
    let header = ["name", "state", "host", "pid", "version", "queues", "tasks", "joined", "seen"];
    let row = |worker: &WorkerRecord| {
        let info = &worker.info;
        let queues: Vec<String> = info.queues.iter().map(|it| shown(it.as_str())).collect();
        vec![
            shown(&worker.name),
            worker.state.to_string(),
            shown(&info.host),
            info.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            shown(&info.version),
            queues.join(", "),
            format!("{}/{}", worker.tasks, worker.slots),
            ago(Some(worker.joined_at), now),
            ago(worker.seen_at.or(worker.ended_at), now),
        ]
    };
    listing(&header, &[3, 6], workers.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use windlass::WorkerId;
    use windlass::store::{WorkerInfo, WorkerState};

    #[test]
    fn the_table_shows_what_each_is_at_and_nothing_that_steers_a_terminal() {
        let at = Timestamp::from_micros(1_750_000_000_000_000);
        let worker = WorkerRecord {
            id: WorkerId::from_random(1),
            name: "mail-\u{1b}[2J".to_owned(),
            state: WorkerState::Draining,
            slots: 10,
            lease: Duration::from_secs(15),
            workflows: Vec::new(),
            info: WorkerInfo {
                host: "node\n1".to_owned(),
                pid: Some(42),
                version: "1.2.3".to_owned(),
                ..WorkerInfo::default()
            },
            joined_at: at,
            seen_at: Some(at + Duration::from_secs(60)),
            ended_at: None,
            tasks: 3,
        };
        let text = table(std::slice::from_ref(&worker), at + Duration::from_secs(65));
        let row: Vec<&str> = text.lines().nth(1).expect("one worker").split_whitespace().collect();
        let expected =
            [r"mail-\u{1b}[2J", "draining", r"node\n1", "42", "1.2.3", "3/10", "1m", "5s", "5s"];
        assert_eq!(row, expected, "{text}");
        assert_eq!(table(&[], at), "no workers\n");
        assert_eq!(json(&worker)["lease_ms"], 15_000);
    }
}
