//! Workflows as data: a DAG of tasks that was checked.
//!
//! A [`DefinitionDraft`] is what someone wrote down, a [`Definition`] is what
//! passed every check and can be run. Handlers are not part of it: they belong to
//! workers, the definition belongs to the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::decide::WorkerLost;
use crate::id::{Priority, TaskIndex, Version};
use crate::lane::{Bound, LIMITS_MAX, LaneLimit, Limit};
use crate::name::{QueueName, TaskName, WorkflowName};
use crate::retry::{RetryPolicy, WAIT_MAX};

mod error;

pub use error::{DefinitionError, TaskProblem};

/// The most tasks of a workflow.
pub const TASKS_MAX: usize = 50_000;

/// The most edges between the tasks of a workflow.
pub const EDGES_MAX: usize = 500_000;

/// The most tasks that one call of a handler deals with.
pub const BATCH_SIZE_MAX: usize = 10_000;

/// How long a task waits for others to be dealt with together, at most.
pub const BATCH_WAIT_MAX: Duration = Duration::from_secs(3_600);

/// What a task does when its turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// A worker runs a handler.
    Handler,
    /// Nothing runs; the task succeeds after this time.
    Sleep(Duration),
    /// A worker runs a handler after everything else has ended, if a task failed.
    OnFailure,
}

impl TaskKind {
    /// Whether both are of one kind; how long a sleep is does not matter.
    fn is_like(self, other: TaskKind) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// Which ends of a task's parents let it run. It is judged when all of them have
/// ended; a task that does not run is skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// All parents succeeded.
    #[default]
    AllSucceeded,
    /// All parents ended, in whatever way.
    AllFinished,
    /// At least one parent failed.
    AnyFailed,
    /// No parent failed; skipped ones are fine.
    NoneFailed,
}

/// One task of a [`Definition`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// The name, unique within the workflow.
    pub name: TaskName,
    /// What it does.
    pub kind: TaskKind,
    /// The tasks that must end first, sorted.
    pub parents: Vec<TaskIndex>,
    /// Which ends of the parents let it run.
    pub trigger: Trigger,
    /// How often it is tried.
    pub retry: RetryPolicy,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// How long one attempt may give no sign of life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout: Option<Duration>,
    /// How long it may wait in its queue for a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_timeout: Option<Duration>,
    /// How long after its claim it is taken away from its worker, whatever that says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility_timeout: Option<Duration>,
    /// What becomes of it when its worker is lost.
    #[serde(default, skip_serializing_if = "WorkerLost::is_default")]
    pub on_worker_lost: WorkerLost,
    /// The queue it waits in.
    pub queue: QueueName,
    /// Its priority, relative to the run's.
    pub priority: Priority,
    /// How many tasks with the same keys may be under way at once, sorted by the names of the
    /// limits, which is the order in which slots are taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LaneLimit>,
}

impl TaskSpec {
    /// Whether it keeps its slots when it has failed for good.
    pub fn halts(&self) -> bool {
        self.limits.iter().any(|limit| limit.halts)
    }

    /// Whether its key says which worker claims it.
    pub fn is_owned(&self) -> bool {
        self.limits.iter().any(|limit| limit.is_owned)
    }

    /// Whether limits want to know how its attempts end.
    pub fn has_metered_limits(&self) -> bool {
        self.limits.iter().any(|limit| !matches!(limit.bound, Bound::Slots(_)))
    }
}

/// A workflow that passed every check.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    name: WorkflowName,
    version: Version,
    timeout: Option<Duration>,
    tasks: Vec<Arc<TaskSpec>>,
    children: Vec<Vec<TaskIndex>>,
    on_failure: Option<TaskIndex>,
    /// How many limits the tasks before each one have, if any has one.
    limits_before: Vec<usize>,
}

impl Definition {
    /// The name of the workflow.
    pub fn name(&self) -> &WorkflowName {
        &self.name
    }

    /// The version of the definition.
    pub fn version(&self) -> Version {
        self.version
    }

    /// How long a run may take.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The tasks, in the order of their indices.
    pub fn tasks(&self) -> &[Arc<TaskSpec>] {
        &self.tasks
    }

    /// The task at an index of this definition.
    pub fn task(&self, index: TaskIndex) -> &Arc<TaskSpec> {
        &self.tasks[index.as_usize()]
    }

    /// The tasks that have `index` among their parents.
    pub fn children(&self, index: TaskIndex) -> &[TaskIndex] {
        &self.children[index.as_usize()]
    }

    /// The task that runs when another failed.
    pub fn on_failure(&self) -> Option<TaskIndex> {
        self.on_failure
    }

    /// Whether the number of its tasks that are under way at once is limited.
    pub fn has_limits(&self) -> bool {
        !self.limits_before.is_empty()
    }

    /// How many limits the tasks before this one have.
    pub(crate) fn limits_before(&self, index: TaskIndex) -> usize {
        self.limits_before.get(index.as_usize()).copied().unwrap_or_default()
    }

    /// The index of the task with this name.
    pub fn index_of(&self, name: &str) -> Option<TaskIndex> {
        let position = self.tasks.iter().position(|task| task.name.as_str() == name)?;
        Some(TaskIndex::from_usize(position))
    }

    /// Every index, in order.
    pub fn indices(&self) -> impl Iterator<Item = TaskIndex> + use<> {
        (0..self.tasks.len()).map(TaskIndex::from_usize)
    }

    /// The definition as someone would write it down; built again, it is the same.
    pub fn to_draft(&self) -> DefinitionDraft {
        let name_of = |index: &TaskIndex| self.task(*index).name.as_str().to_owned();
        let draft = |task: &Arc<TaskSpec>| TaskDraft {
            name: task.name.as_str().to_owned(),
            kind: task.kind,
            parents: task.parents.iter().map(name_of).collect(),
            trigger: task.trigger,
            retry: task.retry.clone(),
            timeout: task.timeout,
            heartbeat_timeout: task.heartbeat_timeout,
            claim_timeout: task.claim_timeout,
            visibility_timeout: task.visibility_timeout,
            on_worker_lost: task.on_worker_lost,
            queue: task.queue.as_str().to_owned(),
            priority: task.priority,
            limits: task.limits.iter().map(LaneLimit::to_draft).collect(),
        };
        let tasks = self.tasks.iter().map(draft).collect();
        let name = self.name.as_str().to_owned();
        DefinitionDraft { name, version: self.version, timeout: self.timeout, tasks }
    }

    /// The first difference that would make runs of one definition wrong under
    /// the other, as a sentence; `None` if only policies differ.
    pub fn shape_difference(&self, other: &Definition) -> Option<String> {
        for (mine, theirs) in self.tasks.iter().zip(&other.tasks) {
            if mine.name != theirs.name {
                return Some(format!("task {:?} is {:?} there", mine.name, theirs.name));
            }
            if mine.parents != theirs.parents {
                return Some(format!("task {:?} has other parents there", mine.name));
            }
            if !mine.kind.is_like(theirs.kind) || mine.trigger != theirs.trigger {
                return Some(format!("task {:?} is of another kind there", mine.name));
            }
        }
        let (here, there) = (self.tasks.len(), other.tasks.len());
        (here != there).then(|| format!("it has {here} tasks here and {there} there"))
    }
}

/// A task as someone wrote it down; parents are named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskDraft {
    /// The name, to be unique within the workflow.
    pub name: String,
    /// What it does.
    pub kind: TaskKind,
    /// The names of the tasks that must end first.
    pub parents: Vec<String>,
    /// Which ends of the parents let it run.
    pub trigger: Trigger,
    /// How often it is tried.
    pub retry: RetryPolicy,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// How long one attempt may give no sign of life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout: Option<Duration>,
    /// How long it may wait in its queue for a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_timeout: Option<Duration>,
    /// How long after its claim it is taken away from its worker, whatever that says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility_timeout: Option<Duration>,
    /// What becomes of it when its worker is lost.
    #[serde(default, skip_serializing_if = "WorkerLost::is_default")]
    pub on_worker_lost: WorkerLost,
    /// The queue it waits in.
    pub queue: String,
    /// Its priority, relative to the run's.
    pub priority: Priority,
    /// How many tasks with the same keys may be under way at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
}

impl TaskDraft {
    /// A task of this kind without parents and with the default policies.
    pub fn new(name: impl Into<String>, kind: TaskKind) -> Self {
        TaskDraft {
            name: name.into(),
            kind,
            parents: Vec::new(),
            trigger: Trigger::default(),
            retry: RetryPolicy::default(),
            timeout: None,
            heartbeat_timeout: None,
            claim_timeout: None,
            visibility_timeout: None,
            on_worker_lost: WorkerLost::default(),
            queue: crate::name::DEFAULT.to_owned(),
            priority: Priority::default(),
            limits: Vec::new(),
        }
    }

    /// Adds a parent by its name.
    #[must_use]
    pub fn after(mut self, parent: impl Into<String>) -> Self {
        self.parents.push(parent.into());
        self
    }
}

/// A workflow as someone wrote it down.
///
/// ```
/// use windlass_core::definition::{DefinitionDraft, TaskDraft, TaskKind};
///
/// let draft = DefinitionDraft::new("order")
///     .task(TaskDraft::new("charge", TaskKind::Handler))
///     .task(TaskDraft::new("ship", TaskKind::Handler).after("charge"));
/// let definition = draft.build()?;
/// assert_eq!(definition.tasks().len(), 2);
///
/// let cyclic = DefinitionDraft::new("loop")
///     .task(TaskDraft::new("a", TaskKind::Handler).after("b"))
///     .task(TaskDraft::new("b", TaskKind::Handler).after("a"));
/// let error = cyclic.build().unwrap_err();
/// assert_eq!(error.to_string(), r#"workflow "loop" has a cycle: "a" → "b" → "a""#);
/// # Ok::<(), windlass_core::DefinitionError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DefinitionDraft {
    /// The name of the workflow.
    pub name: String,
    /// The version of the definition.
    pub version: Version,
    /// How long a run may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The tasks.
    pub tasks: Vec<TaskDraft>,
}

impl DefinitionDraft {
    /// A workflow of version 1 without tasks.
    pub fn new(name: impl Into<String>) -> Self {
        let (version, tasks) = (Version::FIRST, Vec::new());
        DefinitionDraft { name: name.into(), version, timeout: None, tasks }
    }

    /// Adds a task.
    #[must_use]
    pub fn task(mut self, task: TaskDraft) -> Self {
        self.tasks.push(task);
        self
    }

    /// Checks everything. The time it takes grows linearly with tasks and edges.
    pub fn build(self) -> Result<Definition, DefinitionError> {
        let name = WorkflowName::new(&self.name).map_err(DefinitionError::WorkflowName)?;
        if let Some(timeout) = self.timeout.filter(|time| time.is_zero() || *time > WAIT_MAX) {
            return Err(DefinitionError::Timeout { workflow: self.name, timeout });
        }
        self.check_sizes()?;
        let indices = self.index_names()?;
        let mut specs = Vec::with_capacity(self.tasks.len());
        let mut on_failure: Option<TaskIndex> = None;
        for (position, draft) in self.tasks.iter().enumerate() {
            let wrong = |problem| self.wrong(draft, problem);
            let spec = draft.check(&self.name, &indices, &self.tasks).map_err(wrong)?;
            if spec.kind == TaskKind::OnFailure {
                if let Some(first) = on_failure {
                    let first = self.tasks[first.as_usize()].name.clone();
                    return Err(wrong(TaskProblem::SecondOnFailure(first)));
                }
                on_failure = Some(TaskIndex::from_usize(position));
            }
            specs.push(Arc::new(spec));
        }
        let children = children_of(&specs);
        if let Some(cycle) = find_cycle(&specs, &children) {
            let path = cycle.iter().map(|i| self.tasks[i.as_usize()].name.clone()).collect();
            return Err(DefinitionError::Cycle { workflow: self.name, path });
        }
        let limits_before = limits_before(&specs);
        let DefinitionDraft { version, timeout, .. } = self;
        let tasks = specs;
        Ok(Definition { name, version, timeout, tasks, children, on_failure, limits_before })
    }

    fn check_sizes(&self) -> Result<(), DefinitionError> {
        let workflow = self.name.clone();
        if self.tasks.is_empty() {
            return Err(DefinitionError::NoTasks { workflow });
        }
        if self.tasks.iter().all(|task| task.kind == TaskKind::OnFailure) {
            return Err(DefinitionError::OnlyOnFailure { workflow });
        }
        let count = self.tasks.len();
        if count > TASKS_MAX {
            return Err(DefinitionError::TooManyTasks { workflow, count });
        }
        let count = self.tasks.iter().map(|task| task.parents.len()).sum();
        if count > EDGES_MAX {
            return Err(DefinitionError::TooManyEdges { workflow, count });
        }
        Ok(())
    }

    fn index_names(&self) -> Result<HashMap<&str, TaskIndex>, DefinitionError> {
        let mut indices = HashMap::with_capacity(self.tasks.len());
        for (position, task) in self.tasks.iter().enumerate() {
            if indices.insert(task.name.as_str(), TaskIndex::from_usize(position)).is_some() {
                return Err(self.wrong(task, TaskProblem::DuplicateName));
            }
        }
        Ok(indices)
    }

    fn wrong(&self, task: &TaskDraft, problem: TaskProblem) -> DefinitionError {
        let (workflow, task) = (self.name.clone(), task.name.clone());
        DefinitionError::Task { workflow, task, problem }
    }
}

impl TaskDraft {
    fn check(
        &self,
        workflow: &str,
        indices: &HashMap<&str, TaskIndex>,
        tasks: &[TaskDraft],
    ) -> Result<TaskSpec, TaskProblem> {
        let name = TaskName::new(&self.name).map_err(TaskProblem::Name)?;
        let queue = QueueName::new(&self.queue).map_err(TaskProblem::Name)?;
        self.retry.validate().map_err(TaskProblem::Retry)?;
        if self.timeout == Some(Duration::ZERO) {
            return Err(TaskProblem::ZeroTimeout);
        }
        if self.heartbeat_timeout == Some(Duration::ZERO) {
            return Err(TaskProblem::ZeroHeartbeatTimeout);
        }
        if let Some(time) = self.claim_timeout
            && (time.is_zero() || time > WAIT_MAX)
        {
            return Err(TaskProblem::ClaimTimeout(time));
        }
        match self.visibility_timeout {
            Some(Duration::ZERO) => return Err(TaskProblem::ZeroVisibilityTimeout),
            Some(time) if time > WAIT_MAX => {
                return Err(TaskProblem::VisibilityTimeoutTooLong(time));
            }
            Some(_) | None => {}
        }
        match self.kind {
            TaskKind::Sleep(duration) if duration > WAIT_MAX => {
                return Err(TaskProblem::SleepTooLong(duration));
            }
            TaskKind::OnFailure if !self.parents.is_empty() => {
                return Err(TaskProblem::OnFailureWithParents);
            }
            TaskKind::Handler | TaskKind::Sleep(_) | TaskKind::OnFailure => {}
        }
        let mut parents = Vec::with_capacity(self.parents.len());
        for parent in &self.parents {
            if *parent == self.name {
                return Err(TaskProblem::SelfEdge);
            }
            let index = *indices
                .get(parent.as_str())
                .ok_or_else(|| TaskProblem::UnknownParent(parent.clone()))?;
            if tasks[index.as_usize()].kind == TaskKind::OnFailure {
                return Err(TaskProblem::ChildOfOnFailure(parent.clone()));
            }
            parents.push(index);
        }
        if self.trigger == Trigger::AnyFailed && parents.is_empty() {
            return Err(TaskProblem::AnyFailedWithoutParents);
        }
        parents.sort_unstable();
        parents.dedup();
        Ok(TaskSpec {
            name,
            kind: self.kind,
            parents,
            trigger: self.trigger,
            retry: self.retry.clone(),
            timeout: self.timeout,
            heartbeat_timeout: self.heartbeat_timeout,
            claim_timeout: self.claim_timeout,
            visibility_timeout: self.visibility_timeout,
            on_worker_lost: self.on_worker_lost,
            queue,
            priority: self.priority,
            limits: self.check_limits(workflow)?,
        })
    }
}

impl TaskDraft {
    fn check_limits(&self, workflow: &str) -> Result<Vec<LaneLimit>, TaskProblem> {
        if self.limits.is_empty() {
            return Ok(Vec::new());
        }
        if matches!(self.kind, TaskKind::Sleep(_)) {
            return Err(TaskProblem::LimitedSleep);
        }
        let count = self.limits.len();
        if count > LIMITS_MAX {
            return Err(TaskProblem::TooManyLimits(count));
        }
        let limits = self.limits.iter().map(|limit| limit.check(workflow, &self.name));
        let mut limits = limits.collect::<Result<Vec<_>, _>>().map_err(TaskProblem::Limit)?;
        limits.sort_by(|one, other| one.name.cmp(&other.name));
        if limits.iter().filter(|limit| limit.is_owned).count() > 1 {
            return Err(TaskProblem::OwnedTwice);
        }
        match limits.windows(2).find(|pair| pair[0].name == pair[1].name) {
            Some(pair) => Err(TaskProblem::LimitTwice(pair[0].name.to_string())),
            None => Ok(limits),
        }
    }
}

/// How many limits the tasks before each one have; nothing if none has any.
fn limits_before(tasks: &[Arc<TaskSpec>]) -> Vec<usize> {
    if tasks.iter().all(|task| task.limits.is_empty()) {
        return Vec::new();
    }
    let count = |sum: &mut usize, task: &Arc<TaskSpec>| {
        let before = *sum;
        *sum += task.limits.len();
        Some(before)
    };
    tasks.iter().scan(0, count).collect()
}

fn children_of(tasks: &[Arc<TaskSpec>]) -> Vec<Vec<TaskIndex>> {
    let mut children = vec![Vec::new(); tasks.len()];
    for (position, task) in tasks.iter().enumerate() {
        for parent in &task.parents {
            children[parent.as_usize()].push(TaskIndex::from_usize(position));
        }
    }
    children
}

/// One cycle if there is any, in the direction of the edges, closed.
fn find_cycle(tasks: &[Arc<TaskSpec>], children: &[Vec<TaskIndex>]) -> Option<Vec<TaskIndex>> {
    let mut waiting: Vec<usize> = tasks.iter().map(|task| task.parents.len()).collect();
    let mut free: Vec<usize> = (0..tasks.len()).filter(|i| waiting[*i] == 0).collect();
    let mut sorted = 0;
    while let Some(task) = free.pop() {
        sorted += 1;
        for child in &children[task] {
            let left = &mut waiting[child.as_usize()];
            *left -= 1;
            if *left == 0 {
                free.push(child.as_usize());
            }
        }
    }
    if sorted == tasks.len() {
        return None;
    }
    // Every task that is left has a parent that is left: walking up must meet itself.
    let start = waiting.iter().position(|left| *left > 0)?;
    let mut seen_at = vec![usize::MAX; tasks.len()];
    let mut path = Vec::new();
    let mut task = start;
    while seen_at[task] == usize::MAX {
        seen_at[task] = path.len();
        path.push(TaskIndex::from_usize(task));
        task = tasks[task].parents.iter().map(|p| p.as_usize()).find(|p| waiting[*p] > 0)?;
    }
    let mut cycle = path.split_off(seen_at[task]);
    // The walk went against the edges; begin with the task that was written first.
    cycle.reverse();
    let first = cycle.iter().enumerate().min_by_key(|(_, index)| **index).map_or(0, |(at, _)| at);
    cycle.rotate_left(first);
    cycle.push(cycle[0]);
    Some(cycle)
}
