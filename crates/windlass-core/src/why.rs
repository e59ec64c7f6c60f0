//! Why a run or a task is not moving, and what would change it.
//!
//! A store reads [`Facts`] of one moment, [`Facts::why`] judges them: by the same predicates by
//! which tasks are claimed, promoted and reaped. Nothing here is a guess: a reason that is given
//! is one that holds the task back at that moment.
//!
//! Whatever could be long is cut, by limits that both the reading and the answer keep: counts
//! stop at [`COUNT_MAX`], lists at [`SHOWN_MAX`].

mod facts;
mod form;
mod judge;
mod text;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::decide::Failure;
use crate::id::{Priority, RunId, Version, WorkerId};
use crate::name::{
    LaneKey, LimitName, QueueName, SignalKey, StepName, TaskName, Tenant, WorkflowName,
};
use crate::payload::Payload;
use crate::state::{RunState, TaskState};
use crate::step::Call;
use crate::time::Timestamp;
use crate::trace::TraceContext;

pub use facts::{
    DutyFacts, Facts, HeldFacts, LaneFacts, OpenCall, ParentFacts, QueueFacts, RunFacts, TaskFacts,
    TaskPlace, WorkerFacts,
};

/// How many tasks of a run are told of, and how many others by their names in each reason:
/// parents, children, holders of slots, queues, versions.
pub const SHOWN_MAX: usize = 10;

/// Where counts stop.
pub const COUNT_MAX: u64 = 1_000;

/// How many parents of a task are looked at for those that have not ended.
pub const PARENTS_MAX: usize = 1_000;

/// How many workers that are not dead and serve the run's tenant are looked at: first those that
/// serve its workflow, then those that were heard of last.
pub const WORKERS_MAX: usize = 1_000;

/// How long after the end of its lease a worker without tasks counts as live. An idle worker is heard
/// of every 20 seconds, and its lease may be shorter than that.
pub const SILENT_MAX: Duration = Duration::from_secs(60);

/// How many calls of a function that have no result are told of.
pub const CALLS_SHOWN_MAX: usize = SHOWN_MAX;

/// A number that was counted up to [`COUNT_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// How many there are at least.
    pub at_least: u64,
    /// Whether there are more, which nobody counted.
    pub is_more: bool,
}

impl Count {
    /// The count of what was found by a look for up to `COUNT_MAX + 1`.
    pub fn new(found: u64) -> Self {
        Count { at_least: found.min(COUNT_MAX), is_more: found > COUNT_MAX }
    }
}

/// How a run stands, and why it does not go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// The moment, by the store's clock.
    #[serde(with = "form::time")]
    pub at: Timestamp,
    /// The run.
    pub run: RunId,
    /// The workflow.
    pub workflow: WorkflowName,
    /// The version of the workflow.
    pub version: Version,
    /// Whose run it is.
    pub tenant: Tenant,
    /// Where the run is.
    pub state: RunState,
    /// When it ended, if it has.
    #[serde(with = "form::time_or_none", default)]
    pub ended_at: Option<Timestamp>,
    /// How many of its tasks have not ended.
    pub open_tasks: u32,
    /// The trace that it belongs to, if its starter said so: in JSON, its `traceparent`.
    pub trace: Option<TraceContext>,
    /// What holds the run back as a whole, before any of its tasks, or has ended it.
    pub reasons: Vec<Reason>,
    /// The task that was asked about; or those that are neither over nor behind others, up to
    /// [`SHOWN_MAX`]; or of a run that failed, those that did.
    pub tasks: Vec<TaskWhy>,
    /// Whether there are more tasks like those.
    pub has_more_tasks: bool,
}

/// How a task stands, and why it does not go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskWhy {
    /// The task.
    pub name: TaskName,
    /// Where it is.
    pub state: TaskState,
    /// How many attempts of this round were begun.
    pub attempt: u32,
    /// How many it has.
    pub max_attempts: u32,
    /// The reasons, the first one first; never none.
    pub reasons: Vec<Reason>,
}

/// A reason that a run or a task is where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// It was started inside a transaction of a user's, and the sweep that lets it into the queues
    /// has not come by.
    Staged,
    /// It waits for other tasks of its run.
    Parents {
        /// How many have not ended.
        pending: u32,
        /// The first of them.
        first: Vec<TaskName>,
    },
    /// It is the on-failure task, and everything else must have ended before.
    RestOfRun {
        /// How many tasks have not ended.
        open: u32,
    },
    /// It waits for a time.
    Time {
        /// When it goes on.
        #[serde(with = "form::time")]
        until: Timestamp,
        /// What for.
        cause: TimeCause,
    },
    /// Its time has come, and the sweep that lets it go on has not.
    Due {
        /// Since when.
        #[serde(with = "form::time")]
        since: Timestamp,
        /// What it waited for.
        cause: TimeCause,
    },
    /// Its function waits for a signal.
    Signal {
        /// The call that waits.
        call: Call,
        /// The name of the signal.
        name: StepName,
        /// The key that it is to be sent to; to the run if there is none.
        key: Option<SignalKey>,
        /// When the function goes on without it.
        #[serde(with = "form::time_or_none", default)]
        until: Option<Timestamp>,
        /// Whether one has come to the key, and the sweep that lets the function go on has not.
        has_come: bool,
    },
    /// Its function waits for runs that it started.
    Children {
        /// The call that waits.
        call: Call,
        /// What the function calls it.
        name: StepName,
        /// How many are not known to have ended.
        open: Count,
        /// It goes on when no more than so many are left.
        goes_on_at: u32,
        /// The first of them.
        first: Vec<RunId>,
    },
    /// It waits for a slot in the lane of a limit.
    Lane {
        /// The limit.
        limit: LimitName,
        /// The key; none if the limit has one lane for all.
        key: Option<LaneKey>,
        /// How many slots the lane has, by the definition of the task.
        slots: u32,
        /// How many are taken.
        held: u32,
        /// How many wait before it.
        before: Count,
        /// Who has the slots, the first of them.
        holders: Vec<LaneHolder>,
    },
    /// It waits for a token of a rate.
    Rate {
        /// The limit.
        limit: LimitName,
        /// The key; none if the limit has one lane for all.
        key: Option<LaneKey>,
        /// How many wait before it.
        before: Count,
        /// When there is a token for it, if nobody before it gives up and so many are counted.
        #[serde(with = "form::time_or_none", default)]
        until: Option<Timestamp>,
    },
    /// It waits until nobody has come behind it for a while.
    Quiet {
        /// The limit.
        limit: LimitName,
        /// The key; none if the limit has one lane for all.
        key: Option<LaneKey>,
        /// When it goes on if nobody comes.
        #[serde(with = "form::time")]
        until: Timestamp,
    },
    /// It waits because too much has failed.
    Breaker {
        /// The limit.
        limit: LimitName,
        /// The key; none if the limit has one lane for all.
        key: Option<LaneKey>,
        /// How many wait before it.
        before: Count,
        /// When the next one is let try; none while one does.
        #[serde(with = "form::time_or_none", default)]
        until: Option<Timestamp>,
    },
    /// A newer run has its place in a lane, and its own is about to be cancelled.
    Superseded {
        /// The limit.
        limit: LimitName,
        /// The key; none if the limit has one lane for all.
        key: Option<LaneKey>,
    },
    /// It can be claimed.
    Ready {
        /// The queue.
        queue: QueueName,
        /// The priority in it.
        priority: Priority,
        /// How many tasks of its tenant stand before it in the queue.
        own_before: Count,
        /// How many tasks of anyone do.
        all_before: Count,
        /// Who could claim it.
        served: Served,
    },
    /// A worker has it.
    Running {
        /// The worker.
        worker: WorkerId,
        /// What people call it.
        worker_name: String,
        /// Since when, if it can be told by the newest entries of the run's history.
        #[serde(with = "form::time_or_none", default)]
        since: Option<Timestamp>,
        /// When it is taken away from the worker if that is not heard of.
        #[serde(with = "form::time")]
        lease_until: Timestamp,
        /// What the handler last said of its progress.
        #[serde(with = "form::json_or_none", default)]
        progress: Option<Payload>,
    },
    /// A worker had it and is lost, and the sweep that takes it away has not come by.
    LeaseExpired {
        /// The worker.
        worker: WorkerId,
        /// What people call it.
        worker_name: String,
        /// Since when the lease is over.
        #[serde(with = "form::time")]
        since: Timestamp,
    },
    /// Nobody does the duty that would let it go on.
    NoLeader {
        /// The duty.
        duty: String,
        /// Who did it last.
        last: Option<String>,
        /// Until when that may have been.
        #[serde(with = "form::time_or_none", default)]
        until: Option<Timestamp>,
    },
    /// Its function is parked, and nothing is recorded that it waits for.
    Parked,
    /// It failed for good.
    Failed {
        /// Why the last attempt did.
        failure: Option<Failure>,
    },
    /// The run was cancelled.
    Cancelled {
        /// The reason that was given, if the newest entries of the run's history say so.
        why: Option<String>,
    },
    /// It has ended, and not by a failure.
    Ended,
}

/// What a task waits for a time for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TimeCause {
    /// Its run was started with a delay, or it was handed back for a while.
    Delay,
    /// It is a sleep.
    Sleep,
    /// Its last attempt failed, and it pauses before the next.
    Backoff {
        /// Why the attempt failed.
        failure: Failure,
    },
    /// A call of its function waits: a sleep, or a step that pauses before its next attempt.
    Call {
        /// The call.
        call: Call,
        /// What the function calls it.
        name: StepName,
        /// How many attempts of it failed.
        failures: u32,
        /// Why the last one did.
        failure: Option<Failure>,
    },
}

/// Who has a slot in a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneHolder {
    /// The run.
    pub run: RunId,
    /// The task.
    pub task: TaskName,
}

/// Who could claim a task that is ready. Workers that have not been heard of for their time count
/// as none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Served {
    /// Workers with free slots.
    Free {
        /// How many workers serve it and claim.
        workers: u32,
        /// How many of their slots are free.
        free_slots: u64,
    },
    /// The worker that owns its key, and no other.
    Owner {
        /// The worker.
        worker: WorkerId,
        /// What people call it.
        worker_name: String,
        /// How many of its slots are free.
        free_slots: u64,
    },
    /// Workers that are all busy or about to end.
    Busy {
        /// How many workers serve it, without a free slot.
        workers: u32,
        /// How many more serve it and are draining.
        draining: u32,
    },
    /// No live worker.
    Nobody {
        /// What the live workers do not have.
        missing: Missing,
    },
}

/// What is missing for a task to be claimed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "missing", rename_all = "snake_case")]
pub enum Missing {
    /// There is no live worker at all.
    Worker,
    /// None serves the queue.
    Queue {
        /// The first of the queues that are served.
        served: Vec<QueueName>,
    },
    /// None that serves the queue has handlers for the workflow.
    Workflow {
        /// The first of the workflows that they have handlers for.
        served: Vec<WorkflowName>,
    },
    /// None that serves the queue has handlers for the version.
    Version {
        /// The first of the versions that they have handlers for.
        served: Vec<Version>,
    },
}
