//! What a store reads of a run that someone asks about.

use std::sync::Arc;

use crate::decide::Failure;
use crate::definition::TaskSpec;
use crate::id::{Priority, RunId, TaskIndex, Version, WorkerId};
use crate::lane::{Bound, Meter};
use crate::name::{LaneKey, LimitName, QueueName, TaskName, Tenant, WorkflowName};
use crate::payload::Payload;
use crate::ring::Bucket;
use crate::state::{RunState, TaskState};
use crate::step::StepRecord;
use crate::time::Timestamp;
use crate::trace::TraceContext;

use super::{Count, LaneHolder};

/// All that is known of a run at one moment, as far as it says why the run does not go on.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The moment, by the store's clock.
    pub at: Timestamp,
    /// The run.
    pub run: RunFacts,
    /// The tasks that are asked about.
    pub tasks: Vec<TaskFacts>,
    /// Whether there are more like those.
    pub has_more_tasks: bool,
    /// Workers that are not dead, up to [`WORKERS_MAX`](super::WORKERS_MAX). Only needed if a task
    /// is ready.
    pub workers: Vec<WorkerFacts>,
    /// The duty that lets go on what is due.
    pub promote: DutyFacts,
    /// The duty that takes tasks away from dead workers.
    pub reap: DutyFacts,
}

/// A run.
#[derive(Clone, Debug)]
pub struct RunFacts {
    /// The run.
    pub id: RunId,
    /// The workflow.
    pub workflow: WorkflowName,
    /// The version of the workflow.
    pub version: Version,
    /// Whose run it is.
    pub tenant: Tenant,
    /// Where it is.
    pub state: RunState,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
    /// How many of its tasks have not ended.
    pub open_tasks: u32,
    /// The reason that was given for its cancellation, if it was cancelled.
    pub cancelled_for: Option<String>,
    /// Whether none of its tasks has been let into the queues yet.
    pub is_staged: bool,
    /// The trace that it belongs to, if its starter said so.
    pub trace: Option<TraceContext>,
}

/// A task.
#[derive(Clone, Debug)]
pub struct TaskFacts {
    /// The task.
    pub index: TaskIndex,
    /// Its name and policies.
    pub spec: Arc<TaskSpec>,
    /// Where it is.
    pub state: TaskState,
    /// How many attempts of this round were begun.
    pub attempt: u32,
    /// Why its newest failed attempt failed.
    pub failure: Option<Failure>,
    /// Where it stands, which goes with its state.
    pub place: TaskPlace,
}

/// Where a task stands.
#[derive(Clone, Debug)]
pub enum TaskPlace {
    /// It has ended.
    Ended,
    /// It waits for a time. If it is a parked function, for a call of those that have no result;
    /// if it is not, there may be some that waited before.
    Until(Timestamp, Vec<OpenCall>),
    /// Behind other tasks of its run.
    Behind(ParentFacts),
    /// In a queue.
    Queue(QueueFacts),
    /// In a lane.
    Lane(LaneFacts),
    /// Parked, with the calls of its function that have no result: up to
    /// [`CALLS_SHOWN_MAX`](super::CALLS_SHOWN_MAX), the first that are due first.
    Parked(Vec<OpenCall>),
    /// With a worker.
    Held(HeldFacts),
}

/// The tasks that a task waits for.
#[derive(Clone, Debug, Default)]
pub struct ParentFacts {
    /// How many have not ended.
    pub pending: u32,
    /// The first of them, of the first [`PARENTS_MAX`](super::PARENTS_MAX).
    pub first: Vec<TaskName>,
}

/// A place in a queue.
#[derive(Clone, Debug)]
pub struct QueueFacts {
    /// The priority of the task in its queue.
    pub priority: Priority,
    /// How many of its tenant stand before it.
    pub own_before: Count,
    /// How many of anyone do.
    pub all_before: Count,
    /// The bucket that a worker must own to be given it, if its key has an owner.
    pub bucket: Option<Bucket>,
}

/// A place in a lane.
#[derive(Clone, Debug)]
pub struct LaneFacts {
    /// The limit.
    pub limit: LimitName,
    /// The key.
    pub key: Option<LaneKey>,
    /// What the lane bounds by the definition of the task.
    pub bound: Bound,
    /// What it remembers.
    pub meter: Option<Meter>,
    /// Whether someone else has its place.
    pub is_out: bool,
    /// How many are under way.
    pub held: u32,
    /// How many wait before it.
    pub before: Count,
    /// Who has the slots, the first of them.
    pub holders: Vec<LaneHolder>,
}

/// A call of a function that has no result.
#[derive(Clone, Debug)]
pub struct OpenCall {
    /// What is known of it.
    pub step: StepRecord,
    /// Whether a signal came to the key that it waits for.
    pub has_signal: bool,
    /// How many of its children are not known to have ended.
    pub open_children: Count,
    /// The first of them.
    pub first_children: Vec<RunId>,
}

/// A worker that has a task.
#[derive(Clone, Debug)]
pub struct HeldFacts {
    /// The worker.
    pub worker: WorkerId,
    /// What people call it.
    pub worker_name: String,
    /// Since when it has the task, if that is known.
    pub since: Option<Timestamp>,
    /// When the lease ends.
    pub lease_until: Timestamp,
    /// Whether the worker was found dead.
    pub is_dying: bool,
    /// What the handler last said of its progress.
    pub progress: Option<Payload>,
}

/// A worker that is not dead.
#[derive(Clone, Debug)]
pub struct WorkerFacts {
    /// The worker.
    pub id: WorkerId,
    /// What people call it.
    pub name: String,
    /// Whether it was found dead, and not all of its tasks have been taken away.
    pub is_dying: bool,
    /// Whether it claims nothing any more.
    pub is_draining: bool,
    /// How many tasks it runs at once.
    pub slots: u32,
    /// How many it has.
    pub tasks: u64,
    /// When its lease ends, or ended: a worker without tasks need not keep it.
    pub lease_until: Timestamp,
    /// The queues that it serves.
    pub queues: Vec<QueueName>,
    /// The workflows and versions that it has handlers for.
    pub workflows: Vec<(WorkflowName, Version)>,
}

/// Who does a background duty.
#[derive(Clone, Debug)]
pub struct DutyFacts {
    /// The name of the duty.
    pub duty: String,
    /// Who does it, or did it last, and until when.
    pub leader: Option<(String, Timestamp)>,
    /// Whether that one gave it up.
    pub is_given_up: bool,
}
