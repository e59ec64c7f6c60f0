//! `windlass events`: what happened to a run, in the order in which it did.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use windlass::store::{PAGE_MAX, Store, WorkerFilter};
use windlass::{
    ErrorKind, Event, EventBody, EventId, RunEventKind, RunId, TaskEventKind, Windlass, WorkerId,
};

use crate::choice::RunChoice;
use crate::session::Session;
use crate::text::{json_line, listing, shown};

/// What `windlass events` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    run: RunChoice,

    /// Print new events until the run ends; with --json, one per line
    #[arg(long, conflicts_with = "limit")]
    follow: bool,

    /// Maximum number of events, the oldest
    #[arg(long, value_name = "N", default_value = "1000", value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    limit: u32,

    /// Only events after this number
    #[arg(long, value_name = "NUMBER", value_parser = crate::text::whole_number(0..=u64::MAX))]
    after: Option<u64>,
}

/// How long to wait before looking again whether something has happened, at first and at most.
const LOOK_FIRST: Duration = Duration::from_millis(100);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Prints the events.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    let (windlass, store) = session.connect().await?;
    let id = arguments.run.resolve(&windlass).await?;
    // Of a run that does not exist no event is missing.
    windlass.run(id).get().await?;
    let mut workers = Workers::default();
    let after = arguments.after.map(EventId);
    if arguments.follow {
        return follow(&windlass, &*store, id, after, session).await;
    }
    let most = arguments.limit as usize;
    let (mut events, mut after) = (Vec::<Event>::new(), after);
    let has_more = loop {
        let wanted = (most + 1 - events.len()).min(PAGE_MAX);
        let page = store.list_events(id, after, wanted).await?;
        let is_last = page.len() < wanted;
        after = page.last().map(|event| event.id);
        events.extend(page);
        if is_last || events.len() > most {
            break events.len() > most;
        }
    };
    events.truncate(most);
    if !session.is_json() {
        workers.learn(&windlass, &events).await?;
    }
    let document = || {
        let all: Vec<Value> = events.iter().map(json).collect();
        json!({ "events": all, "has_more": has_more })
    };
    session.tell(document, || {
        let last = events.last().filter(|_| has_more);
        let more = last.map(|last| format!("and more: --after {}\n", last.id.0));
        table(&events, &workers) + &more.unwrap_or_default()
    })
}

/// Prints events as they happen, until the run has ended.
async fn follow(
    windlass: &Windlass,
    store: &dyn Store,
    run: RunId,
    mut after: Option<EventId>,
    session: &Session,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let mut pause = LOOK_FIRST;
    let mut workers = Workers::default();
    if !session.is_json() {
        writeln!(out, "{}", line(HEADER.map(str::to_owned)))?;
    }
    loop {
        // Looked at first: what happened before the end is then among the events.
        let record = store.get_run(run).await?;
        let has_ended = record.is_none_or(|record| record.state.is_final());
        loop {
            let page = store.list_events(run, after, PAGE_MAX).await?;
            if !session.is_json() {
                workers.learn(windlass, &page).await?;
            }
            for event in &page {
                let line = match session.is_json() {
                    true => json_line(&json(event)),
                    false => line(columns(event, &workers)),
                };
                writeln!(out, "{line}")?;
                pause = LOOK_FIRST;
            }
            after = page.last().map(|event| event.id).or(after);
            if page.len() < PAGE_MAX {
                break;
            }
        }
        out.flush()?;
        if has_ended {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK_MAX);
    }
}

/// What an event says besides its states.
fn detail(event: &Event) -> Value {
    let kind = match &event.body {
        EventBody::Run(event) => serde_json::to_value(&event.kind),
        EventBody::Task(event) => serde_json::to_value(&event.kind),
    };
    // A kind with nothing to say is a word, and one with something an object under its word.
    match kind {
        Ok(Value::Object(fields)) => fields.into_iter().next().map_or(Value::Null, |(_, it)| it),
        Ok(_) | Err(_) => Value::Null,
    }
}

fn json(event: &Event) -> Value {
    let (task, from, to) = match &event.body {
        EventBody::Run(event) => (None, event.from.map(|it| it.word()), event.to.word()),
        EventBody::Task(event) => (Some(event), Some(event.from.word()), event.to.word()),
    };
    json!({
        "event": event.id.0,
        "at": event.at.to_string(),
        "kind": event.word(),
        "task": task.map(|task| &task.name),
        "from": from,
        "to": to,
        "attempt": task.map(|task| task.attempt),
        "fence": task.map(|task| task.fence.0),
        "detail": detail(event),
    })
}

/// What an event says besides its states, as people read it.
fn said(event: &Event, workers: &Workers) -> String {
    let until = |at: &windlass::Timestamp| format!("until {at}");
    match &event.body {
        EventBody::Run(event) => match &event.kind {
            RunEventKind::Started | RunEventKind::Ended => String::new(),
            RunEventKind::Cancelled { reason } => shown(reason.as_deref().unwrap_or_default()),
            RunEventKind::Retried { round } | RunEventKind::Continued { round } => {
                format!("round {round}")
            }
            RunEventKind::Undoing { by } => format!("by run {by}"),
        },
        EventBody::Task(event) => match &event.kind {
            TaskEventKind::Queued
            | TaskEventKind::Woken
            | TaskEventKind::Succeeded
            | TaskEventKind::Resumed
            | TaskEventKind::Continued
            | TaskEventKind::Skipped
            | TaskEventKind::Cancelled
            | TaskEventKind::Reset => String::new(),
            TaskEventKind::Delayed { until: at } | TaskEventKind::Sleeping { until: at } => {
                until(at)
            }
            TaskEventKind::Blocked { limit, key } => match key {
                Some(key) => format!("limit {} key {}", shown(limit.as_str()), shown(key.as_str())),
                None => format!("limit {}", shown(limit.as_str())),
            },
            TaskEventKind::Started { worker } => format!("by worker {}", workers.name(*worker)),
            TaskEventKind::Failed { failure } => failed(failure),
            TaskEventKind::Retrying { failure, until: at } => {
                format!("{}; {}", failed(failure), until(at))
            }
            TaskEventKind::Released { until: at } | TaskEventKind::Parked { until: at } => {
                at.as_ref().map(until).unwrap_or_default()
            }
            TaskEventKind::LeaseExpired { worker, .. } => {
                format!("of worker {}", workers.name(*worker))
            }
        },
    }
}

fn failed(failure: &windlass::Failure) -> String {
    let first = failure.message.lines().next().unwrap_or_default();
    format!("{}: {}", shown(failure.code.word()), shown(first))
}

/// What the columns of an event say.
fn columns(event: &Event, workers: &Workers) -> [String; 6] {
    let dash = || "-".to_owned();
    let task = event.task();
    [
        event.id.0.to_string(),
        event.at.to_string(),
        task.map_or_else(dash, |task| shown(task.name.as_str())),
        event.word().to_owned(),
        task.map_or_else(dash, |task| task.attempt.to_string()),
        said(event, workers),
    ]
}

const HEADER: [&str; 6] = ["event", "at", "task", "kind", "attempt", "detail"];

/// The widths of the columns of events that are followed: what comes next is not known.
const WIDTHS: [usize; 6] = [7, 27, 20, 14, 7, 0];

fn line(cells: [String; 6]) -> String {
    let cells = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:<width$}"));
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// The names of workers, as far as they are known.
#[derive(Debug, Default)]
struct Workers {
    names: HashMap<WorkerId, String>,
}

impl Workers {
    /// Looks up the workers of events, if some are not known yet. A caller that may not list workers
    /// sees their ids.
    async fn learn(&mut self, windlass: &Windlass, events: &[Event]) -> anyhow::Result<()> {
        if events.iter().filter_map(worker_of).all(|id| self.names.contains_key(&id)) {
            return Ok(());
        }
        let filter = WorkerFilter { with_dead: true, limit: PAGE_MAX, ..WorkerFilter::default() };
        let workers = match windlass.workers(filter).await {
            Err(error) if error.kind() == ErrorKind::Forbidden => Vec::new(),
            page => page?.workers,
        };
        self.names.extend(workers.into_iter().map(|worker| (worker.id, worker.name)));
        for id in events.iter().filter_map(worker_of) {
            self.names.entry(id).or_insert_with(|| id.to_string());
        }
        Ok(())
    }

    fn name(&self, id: WorkerId) -> String {
        self.names.get(&id).map_or_else(|| id.to_string(), |name| shown(name))
    }
}

/// The worker of an event, if it names one.
fn worker_of(event: &Event) -> Option<WorkerId> {
    match &event.task()?.kind {
        TaskEventKind::Started { worker } | TaskEventKind::LeaseExpired { worker, .. } => {
            Some(*worker)
        }
        TaskEventKind::Queued
        | TaskEventKind::Woken
        | TaskEventKind::Succeeded
        | TaskEventKind::Resumed
        | TaskEventKind::Continued
        | TaskEventKind::Skipped
        | TaskEventKind::Cancelled
        | TaskEventKind::Reset
        | TaskEventKind::Delayed { .. }
        | TaskEventKind::Sleeping { .. }
        | TaskEventKind::Blocked { .. }
        | TaskEventKind::Failed { .. }
        | TaskEventKind::Retrying { .. }
        | TaskEventKind::Released { .. }
        | TaskEventKind::Parked { .. } => None,
    }
}

fn table(events: &[Event], workers: &Workers) -> String {
    if events.is_empty() {
        return "no events\n".to_owned();
    }
    listing(&HEADER, &[0, 4], events.iter().map(|event| columns(event, workers).into()))
}
