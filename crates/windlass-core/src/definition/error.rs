//! What is wrong with a definition.

use std::time::Duration;

use super::{BATCH_SIZE_MAX, BATCH_WAIT_MAX, EDGES_MAX, TASKS_MAX};
use crate::id::{Priority, Version};
use crate::lane::{LIMITS_MAX, LimitError};
use crate::name::NameError;
use crate::retry::{RetryError, WAIT_MAX};
use crate::undo::UNDO_SUFFIX;

/// A workflow that cannot be run, with the culprit.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// The name belongs to the runs that undo others.
    #[error(
        "workflow {workflow:?} ends with {UNDO_SUFFIX:?}, as only what undoes runs of another does"
    )]
    UndoName {
        /// The workflow.
        workflow: String,
    },
    /// The workflow's own name cannot be used.
    #[error(transparent)]
    WorkflowName(NameError),
    /// The workflow's version is not a version.
    #[error("workflow {workflow:?} has version {version}, not within 1 to {}", Version::MAX)]
    Version {
        /// The workflow.
        workflow: String,
        /// The number that was given.
        version: u32,
    },
    /// The time that a run may take is none, or too long.
    #[error("workflow {workflow:?} has a timeout of {timeout:?}, not within 1 µs to {WAIT_MAX:?}")]
    Timeout {
        /// The workflow.
        workflow: String,
        /// The time.
        timeout: Duration,
    },
    /// There is nothing to run.
    #[error("workflow {workflow:?} has no tasks")]
    NoTasks {
        /// The workflow.
        workflow: String,
    },
    /// There is only something to run when something else failed.
    #[error("workflow {workflow:?} has no task besides its on-failure task")]
    OnlyOnFailure {
        /// The workflow.
        workflow: String,
    },
    /// There are more tasks than the limit allows.
    #[error("workflow {workflow:?} has {count} tasks, the limit is {TASKS_MAX}")]
    TooManyTasks {
        /// The workflow.
        workflow: String,
        /// How many there are.
        count: usize,
    },
    /// There are more edges than the limit allows.
    #[error("workflow {workflow:?} has {count} edges, the limit is {EDGES_MAX}")]
    TooManyEdges {
        /// The workflow.
        workflow: String,
        /// How many there are.
        count: usize,
    },
    /// One task is wrong in itself.
    #[error("workflow {workflow:?}, task {task:?}: {problem}")]
    Task {
        /// The workflow.
        workflow: String,
        /// The task.
        task: String,
        /// What is wrong with it.
        problem: TaskProblem,
    },
    /// Tasks wait for each other.
    #[error("workflow {workflow:?} has a cycle: {}", arrows(path))]
    Cycle {
        /// The workflow.
        workflow: String,
        /// The tasks of one cycle, the first one again at the end.
        path: Vec<String>,
    },
}

fn arrows(path: &[String]) -> String {
    path.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" → ")
}

/// What is wrong with one task of a definition.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskProblem {
    /// The time that it may wait for a worker is none, or too long.
    #[error("has a claim timeout of {0:?}, not within 1 µs to {WAIT_MAX:?}")]
    ClaimTimeout(Duration),
    /// A limit of it makes no sense.
    #[error(transparent)]
    Limit(LimitError),
    /// Nothing of a sleep is ever under way.
    #[error("it is a sleep, which nothing limits")]
    LimitedSleep,
    /// Two limits say to whom it goes.
    #[error("has several owned limits: a task goes to the owner of one key")]
    OwnedTwice,
    /// There are more limits than may be.
    #[error("has {0} limits, the most is {LIMITS_MAX}")]
    TooManyLimits(usize),
    /// Two limits have one name.
    #[error("has two limits with the name {0:?}")]
    LimitTwice(String),
    /// Its name or its queue's name cannot be used.
    #[error(transparent)]
    Name(NameError),
    /// Another task has the same name.
    #[error("the name is used twice")]
    DuplicateName,
    /// It waits for itself.
    #[error("it is its own parent")]
    SelfEdge,
    /// It waits for a task that is not there.
    #[error("its parent {0:?} is not a task of this workflow")]
    UnknownParent(String),
    /// Its retry policy makes no sense.
    #[error(transparent)]
    Retry(RetryError),
    /// No attempt could ever succeed.
    #[error("the timeout is zero")]
    ZeroTimeout,
    /// No attempt could ever give a sign of life in time.
    #[error("the heartbeat timeout is zero")]
    ZeroHeartbeatTimeout,
    /// It would be taken away as soon as it is claimed.
    #[error("the visibility timeout is zero")]
    ZeroVisibilityTimeout,
    /// It would be held longer than anything may wait.
    #[error("the visibility timeout is {0:?}, the limit is {WAIT_MAX:?}")]
    VisibilityTimeoutTooLong(Duration),
    /// It would sleep longer than anything may wait.
    #[error("it sleeps {0:?}, the limit is {WAIT_MAX:?}")]
    SleepTooLong(Duration),
    /// There may be one on-failure task only.
    #[error("{0:?} is the on-failure task already")]
    SecondOnFailure(String),
    /// An on-failure task comes after everything, so an edge would say less.
    #[error("an on-failure task cannot have parents")]
    OnFailureWithParents,
    /// An on-failure task comes after everything, so nothing can wait for it.
    #[error("its parent {0:?} is the on-failure task")]
    ChildOfOnFailure(String),
    /// It waits for a failure that cannot come.
    #[error("it runs when a parent failed, and has no parents")]
    AnyFailedWithoutParents,
    /// It reads an output that may not exist when it runs.
    #[error(
        "it reads the output of {0:?}, but may run when that did not succeed; read it as optional"
    )]
    ReadsUncertainParent(String),
    /// Its priority is not one.
    #[error(
        "priority {0} is not within {min} to {max}",
        min = Priority::MIN.get(),
        max = Priority::MAX.get()
    )]
    Priority(i16),
    /// Its handler is called for none at once, or for too many.
    #[error("has batches of {0}, not within 1 to {BATCH_SIZE_MAX}")]
    BatchSize(usize),
    /// Its messages wait for each other too long.
    #[error("has batches that wait for {0:?}, the limit is {BATCH_WAIT_MAX:?}")]
    BatchWait(Duration),
    /// It names a parent by the handle of another workflow.
    #[error("its parent {0:?} belongs to another workflow")]
    ForeignParent(String),
}
