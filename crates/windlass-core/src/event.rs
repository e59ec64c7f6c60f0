//! The history of a run: what happened, one event a line, never changed.

use serde::{Deserialize, Serialize};

use crate::decide::Failure;
use crate::id::{EventId, Fence, RunId, TaskIndex, WorkerId};
use crate::name::{LaneKey, LimitName, TaskName};
use crate::state::{RunState, TaskState};
use crate::time::Timestamp;

/// One line of a run's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its place in the order of the store.
    pub id: EventId,
    /// The run it belongs to.
    pub run: RunId,
    /// When it was recorded, by the store's clock.
    pub at: Timestamp,
    /// What happened.
    pub body: EventBody,
}

impl Event {
    /// The task event inside, if it is one.
    pub fn task(&self) -> Option<&TaskEvent> {
        match &self.body {
            EventBody::Task(event) => Some(event),
            EventBody::Run(_) => None,
        }
    }

    /// The word of the event's kind, the run's ones behind `run_`.
    pub fn word(&self) -> &'static str {
        match &self.body {
            EventBody::Task(event) => event.kind.word(),
            EventBody::Run(event) => event.kind.word(),
        }
    }
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventBody {
    /// The run as a whole changed its state.
    Run(RunEvent),
    /// A task changed its state.
    Task(TaskEvent),
}

/// A change of a run's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEvent {
    /// What happened.
    pub kind: RunEventKind,
    /// The state before, none for the first event.
    pub from: Option<RunState>,
    /// The state after.
    pub to: RunState,
}

/// What happened to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEventKind {
    /// It was started.
    Started,
    /// Its last task ended; see the state for how.
    Ended,
    /// It was cancelled, for this reason.
    Cancelled {
        /// The reason that was given.
        reason: Option<String>,
    },
    /// It goes on from its failed tasks, for the round with this number (the
    /// first is round 1).
    Retried {
        /// The round that begins.
        round: u32,
    },
    /// Its function begins afresh with another input, for the round with this number.
    Continued {
        /// The round that begins.
        round: u32,
    },
    /// It has ended, and what its steps did is being undone.
    Undoing {
        /// By this run.
        by: RunId,
    },
}

impl RunEventKind {
    /// The word that is stored and shown.
    pub const fn word(&self) -> &'static str {
        match self {
            RunEventKind::Started => "run_started",
            RunEventKind::Ended => "run_ended",
            RunEventKind::Cancelled { .. } => "run_cancelled",
            RunEventKind::Retried { .. } => "run_retried",
            RunEventKind::Continued { .. } => "run_continued",
            RunEventKind::Undoing { .. } => "run_undoing",
        }
    }
}

/// A change of a task's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskEvent {
    /// The task.
    pub task: TaskIndex,
    /// Its name.
    pub name: TaskName,
    /// What happened.
    pub kind: TaskEventKind,
    /// The state before.
    pub from: TaskState,
    /// The state after.
    pub to: TaskState,
    /// The task's fence after it.
    pub fence: Fence,
    /// The number of attempts of this round after it.
    pub attempt: u32,
}

/// What happened to a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEventKind {
    /// It can be claimed.
    Queued,
    /// It can be claimed, but not before a time: the run was started with a delay.
    Delayed {
        /// When it will be queued.
        until: Timestamp,
    },
    /// Its turn came, but the lane is full: it waits there for a slot, or is skipped.
    Blocked {
        /// The limit.
        limit: LimitName,
        /// The lane of it.
        key: Option<LaneKey>,
    },
    /// A sleep began.
    Sleeping {
        /// When it ends.
        until: Timestamp,
    },
    /// A sleep ended.
    Woken,
    /// A worker claimed it.
    Started {
        /// The worker.
        worker: WorkerId,
    },
    /// An attempt gave an output.
    Succeeded,
    /// An attempt failed, and it was the last.
    Failed {
        /// Why.
        failure: Failure,
    },
    /// An attempt failed, and there will be another.
    Retrying {
        /// Why.
        failure: Failure,
        /// When the next attempt may begin.
        until: Timestamp,
    },
    /// A worker handed it back without having run it; the attempt does not count.
    Released {
        /// When it may be claimed again, if not at once.
        until: Option<Timestamp>,
    },
    /// The function waits, and needs no worker until then. Attempts count anew.
    Parked {
        /// When it goes on by itself, if it does.
        until: Option<Timestamp>,
    },
    /// What it waited for has come: a signal, the end of a child, a slot in a lane.
    Resumed,
    /// The function begins afresh, with another input. Attempts count anew.
    Continued,
    /// The lease of its worker ran out.
    LeaseExpired {
        /// The worker.
        worker: WorkerId,
        /// When the lease ended.
        lease_until: Timestamp,
        /// Why the task failed, if no attempt was left.
        failure: Option<Failure>,
    },
    /// It does not run, by its trigger, its condition or a limit.
    Skipped,
    /// Its run was cancelled.
    Cancelled,
    /// It begins anew because its run is retried.
    Reset,
}

impl TaskEventKind {
    /// The word that is stored and shown.
    pub const fn word(&self) -> &'static str {
        match self {
            TaskEventKind::Queued => "queued",
            TaskEventKind::Delayed { .. } => "delayed",
            TaskEventKind::Blocked { .. } => "blocked",
            TaskEventKind::Sleeping { .. } => "sleeping",
            TaskEventKind::Woken => "woken",
            TaskEventKind::Started { .. } => "started",
            TaskEventKind::Succeeded => "succeeded",
            TaskEventKind::Failed { .. } => "failed",
            TaskEventKind::Retrying { .. } => "retrying",
            TaskEventKind::Released { .. } => "released",
            TaskEventKind::Parked { .. } => "parked",
            TaskEventKind::Resumed => "resumed",
            TaskEventKind::Continued => "continued",
            TaskEventKind::LeaseExpired { .. } => "lease_expired",
            TaskEventKind::Skipped => "skipped",
            TaskEventKind::Cancelled => "cancelled",
            TaskEventKind::Reset => "reset",
        }
    }
}
