//! The history of a run, and why it does not go on, as messages.

use windlass_core::event::{EventBody, RunEvent, RunEventKind, TaskEvent, TaskEventKind};
use windlass_core::{
    Event, EventId, Fence, LaneKey, LimitName, RunState, TaskIndex, TaskName, TaskState, Why,
};

use super::records::state_some;
use super::{Wire, WireError, name, name_some, parse, read, read_some, required, time, v1};

impl Wire for Event {
    type Message = v1::Event;

    fn to_wire(&self) -> v1::Event {
        let body = match &self.body {
            EventBody::Run(event) => v1::event::Body::OfRun(event.to_wire()),
            EventBody::Task(event) => v1::event::Body::OfTask(event.to_wire()),
        };
        v1::Event {
            id: self.id.0,
            run: self.run.to_string(),
            at_us: self.at.as_micros(),
            body: Some(body),
        }
    }

    fn from_wire(message: v1::Event) -> Result<Self, WireError> {
        let body = match required("body", message.body)? {
            v1::event::Body::OfRun(event) => EventBody::Run(read("of_run", Some(event))?),
            v1::event::Body::OfTask(event) => EventBody::Task(read("of_task", Some(event))?),
        };
        Ok(Event {
            id: EventId(message.id),
            run: parse("run", &message.run)?,
            at: time(message.at_us),
            body,
        })
    }
}

impl Wire for RunEvent {
    type Message = v1::RunEvent;

    fn to_wire(&self) -> v1::RunEvent {
        use v1::run_event::Kind;
        let kind = match &self.kind {
            RunEventKind::Started => Kind::Started(v1::Done {}),
            RunEventKind::Ended => Kind::Ended(v1::Done {}),
            RunEventKind::Cancelled { reason } => {
                Kind::Cancelled(v1::RunCancelled { reason: reason.clone() })
            }
            RunEventKind::Retried { round } => Kind::Retried(*round),
            RunEventKind::Continued { round } => Kind::Continued(*round),
            RunEventKind::Undoing { by } => Kind::Undoing(by.to_string()),
        };
        v1::RunEvent {
            from: self.from.map_or(v1::RunState::Unspecified.into(), |from| from.to_wire()),
            to: self.to.to_wire(),
            kind: Some(kind),
        }
    }

    fn from_wire(message: v1::RunEvent) -> Result<Self, WireError> {
        use v1::run_event::Kind;
        let kind = match required("kind", message.kind)? {
            Kind::Started(v1::Done {}) => RunEventKind::Started,
            Kind::Ended(v1::Done {}) => RunEventKind::Ended,
            Kind::Cancelled(v1::RunCancelled { reason }) => RunEventKind::Cancelled { reason },
            Kind::Retried(round) => RunEventKind::Retried { round },
            Kind::Continued(round) => RunEventKind::Continued { round },
            Kind::Undoing(by) => RunEventKind::Undoing { by: parse("undoing", &by)? },
        };
        Ok(RunEvent {
            kind,
            from: state_some(message.from).map_err(|error| error.within("from"))?,
            to: RunState::from_wire(message.to).map_err(|error| error.within("to"))?,
        })
    }
}

impl Wire for TaskEvent {
    type Message = v1::TaskEvent;

    fn to_wire(&self) -> v1::TaskEvent {
        v1::TaskEvent {
            task: self.task.0,
            name: self.name.to_string(),
            from: self.from.to_wire(),
            to: self.to.to_wire(),
            fence: self.fence.0,
            attempt: self.attempt,
            kind: Some(write_kind(&self.kind)),
        }
    }

    fn from_wire(message: v1::TaskEvent) -> Result<Self, WireError> {
        Ok(TaskEvent {
            task: TaskIndex(message.task),
            name: name("name", TaskName::new(&message.name))?,
            kind: read_kind(required("kind", message.kind)?)?,
            from: TaskState::from_wire(message.from).map_err(|error| error.within("from"))?,
            to: TaskState::from_wire(message.to).map_err(|error| error.within("to"))?,
            fence: Fence(message.fence),
            attempt: message.attempt,
        })
    }
}

fn write_kind(kind: &TaskEventKind) -> v1::task_event::Kind {
    use v1::task_event::Kind;
    match kind {
        TaskEventKind::Queued => Kind::Queued(v1::Done {}),
        TaskEventKind::Delayed { until } => Kind::DelayedUntilUs(until.as_micros()),
        TaskEventKind::Blocked { limit, key } => Kind::Blocked(v1::TaskBlocked {
            limit: limit.to_string(),
            key: key.as_ref().map(ToString::to_string),
        }),
        TaskEventKind::Sleeping { until } => Kind::SleepingUntilUs(until.as_micros()),
        TaskEventKind::Woken => Kind::Woken(v1::Done {}),
        TaskEventKind::Started { worker } => Kind::StartedBy(worker.to_string()),
        TaskEventKind::Succeeded => Kind::Succeeded(v1::Done {}),
        TaskEventKind::Failed { failure } => Kind::Failed(failure.to_wire()),
        TaskEventKind::Retrying { failure, until } => Kind::Retrying(v1::TaskRetrying {
            failure: Some(failure.to_wire()),
            until_us: until.as_micros(),
        }),
        TaskEventKind::Released { until } => {
            Kind::Released(v1::TaskUntil { until_us: until.map(|until| until.as_micros()) })
        }
        TaskEventKind::Parked { until } => {
            Kind::Parked(v1::TaskUntil { until_us: until.map(|until| until.as_micros()) })
        }
        TaskEventKind::Resumed => Kind::Resumed(v1::Done {}),
        TaskEventKind::Continued => Kind::Continued(v1::Done {}),
        TaskEventKind::LeaseExpired { worker, lease_until, failure } => {
            Kind::LeaseExpired(v1::TaskLeaseExpired {
                worker: worker.to_string(),
                lease_until_us: lease_until.as_micros(),
                failure: failure.as_ref().map(Wire::to_wire),
            })
        }
        TaskEventKind::Skipped => Kind::Skipped(v1::Done {}),
        TaskEventKind::Cancelled => Kind::Cancelled(v1::Done {}),
        TaskEventKind::Reset => Kind::Reset(v1::Done {}),
    }
}

fn read_kind(kind: v1::task_event::Kind) -> Result<TaskEventKind, WireError> {
    use v1::task_event::Kind;
    Ok(match kind {
        Kind::Queued(v1::Done {}) => TaskEventKind::Queued,
        Kind::DelayedUntilUs(until) => TaskEventKind::Delayed { until: time(until) },
        Kind::Blocked(v1::TaskBlocked { limit, key }) => TaskEventKind::Blocked {
            limit: name("blocked.limit", LimitName::new(limit))?,
            key: name_some("blocked.key", key, LaneKey::new)?,
        },
        Kind::SleepingUntilUs(until) => TaskEventKind::Sleeping { until: time(until) },
        Kind::Woken(v1::Done {}) => TaskEventKind::Woken,
        Kind::StartedBy(worker) => TaskEventKind::Started { worker: parse("started_by", &worker)? },
        Kind::Succeeded(v1::Done {}) => TaskEventKind::Succeeded,
        Kind::Failed(failure) => TaskEventKind::Failed { failure: read("failed", Some(failure))? },
        Kind::Retrying(v1::TaskRetrying { failure, until_us }) => TaskEventKind::Retrying {
            failure: read("retrying.failure", failure)?,
            until: time(until_us),
        },
        Kind::Released(v1::TaskUntil { until_us }) => {
            TaskEventKind::Released { until: until_us.map(time) }
        }
        Kind::Parked(v1::TaskUntil { until_us }) => {
            TaskEventKind::Parked { until: until_us.map(time) }
        }
        Kind::Resumed(v1::Done {}) => TaskEventKind::Resumed,
        Kind::Continued(v1::Done {}) => TaskEventKind::Continued,
        Kind::LeaseExpired(v1::TaskLeaseExpired { worker, lease_until_us, failure }) => {
            TaskEventKind::LeaseExpired {
                worker: parse("lease_expired.worker", &worker)?,
                lease_until: time(lease_until_us),
                failure: read_some("lease_expired.failure", failure)?,
            }
        }
        Kind::Skipped(v1::Done {}) => TaskEventKind::Skipped,
        Kind::Cancelled(v1::Done {}) => TaskEventKind::Cancelled,
        Kind::Reset(v1::Done {}) => TaskEventKind::Reset,
    })
}

/// Why a run does not go on.
///
/// # Errors
///
/// What is said has no JSON form.
pub fn write_why(why: Option<&Why>) -> Result<v1::WhyReply, WireError> {
    let Some(why) = why else { return Ok(v1::WhyReply::default()) };
    let text = serde_json::to_string(why).map_err(|error| WireError::new("why", error))?;
    let tracestate = why.trace.as_ref().and_then(|trace| trace.state());
    Ok(v1::WhyReply { why: Some(text), tracestate: tracestate.map(ToOwned::to_owned) })
}

/// Why a run does not go on.
///
/// # Errors
///
/// As [`Wire::from_wire`].
pub fn read_why(message: v1::WhyReply) -> Result<Option<Why>, WireError> {
    let Some(text) = message.why else { return Ok(None) };
    let mut why: Why = serde_json::from_str(&text).map_err(|error| WireError::new("why", error))?;
    if let Some(trace) = why.trace.take() {
        let trace = trace.with_state(message.tracestate.as_deref());
        why.trace = Some(name("tracestate", trace)?);
    }
    Ok(Some(why))
}
