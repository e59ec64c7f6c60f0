//! The history of a run.

use serde::Serialize;
use utoipa::ToSchema;
use windlass::{Event, EventBody, RunEventKind, TaskEventKind};

use super::{FailureBody, Time};

/// One line of a run's history. What a kind of event does not have is left out.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Event)]
pub(crate) struct EventLine {
    /// Its place in the order of the store.
    id: String,
    /// When it was recorded.
    at: Option<Time>,
    /// What happened, such as `run_started`, `queued`, `started` or `succeeded`.
    kind: &'static str,
    /// The state before; none for the first event of a run.
    from: Option<&'static str>,
    /// The state after.
    to: &'static str,
    /// The name of the task, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    /// The place of the task in the definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u32>,
    /// The number of attempts of this round after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// The fence of the task after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<String>,
    /// The worker that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    /// When it goes on, or when a lease ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Time>,
    /// Why an attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<FailureBody>,
    /// Why the run was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The round that begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<u32>,
    /// The run that undoes this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    /// The limit whose lane is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
    /// The lane of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl From<&Event> for EventLine {
    fn from(event: &Event) -> Self {
        let mut line = EventLine {
            id: event.id.to_string(),
            at: Some(event.at.into()),
            kind: event.word(),
            ..EventLine::default()
        };
        match &event.body {
            EventBody::Run(event) => {
                line.from = event.from.map(|state| state.word());
                line.to = event.to.word();
                line.add_run(&event.kind);
            }
            EventBody::Task(event) => {
                line.from = Some(event.from.word());
                line.to = event.to.word();
                line.task = Some(event.name.to_string());
                line.index = Some(event.task.0);
                line.attempt = Some(event.attempt);
                line.fence = Some(event.fence.to_string());
                line.add_task(&event.kind);
            }
        }
        line
    }
}

impl EventLine {
    fn add_run(&mut self, kind: &RunEventKind) {
        match kind {
            RunEventKind::Started | RunEventKind::Ended => {}
            RunEventKind::Cancelled { reason } => self.reason.clone_from(reason),
            RunEventKind::Retried { round } | RunEventKind::Continued { round } => {
                self.round = Some(*round);
            }
            RunEventKind::Undoing { by } => self.by = Some(by.to_string()),
        }
    }

    fn add_task(&mut self, kind: &TaskEventKind) {
        match kind {
            TaskEventKind::Queued
            | TaskEventKind::Woken
            | TaskEventKind::Succeeded
            | TaskEventKind::Resumed
            | TaskEventKind::Continued
            | TaskEventKind::Skipped
            | TaskEventKind::Cancelled
            | TaskEventKind::Reset => {}
            TaskEventKind::Delayed { until } | TaskEventKind::Sleeping { until } => {
                self.until = Some(Time(*until));
            }
            TaskEventKind::Released { until } | TaskEventKind::Parked { until } => {
                self.until = until.map(Time);
            }
            TaskEventKind::Blocked { limit, key } => {
                self.limit = Some(limit.to_string());
                self.key = key.as_ref().map(ToString::to_string);
            }
            TaskEventKind::Started { worker } => self.worker = Some(worker.to_string()),
            TaskEventKind::Failed { failure } => self.failure = Some(failure.into()),
            TaskEventKind::Retrying { failure, until } => {
                self.failure = Some(failure.into());
                self.until = Some(Time(*until));
            }
            TaskEventKind::LeaseExpired { worker, lease_until, failure } => {
                self.worker = Some(worker.to_string());
                self.until = Some(Time(*lease_until));
                self.failure = failure.as_ref().map(FailureBody::from);
            }
        }
    }
}

/// A page of a run's history, the oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventPage {
    /// The events.
    pub(crate) events: Vec<EventLine>,
    /// The cursor of the next page; none if there is nothing more yet.
    pub(crate) next: Option<String>,
}
