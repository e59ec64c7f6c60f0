//! Random workflows.

use std::fmt;
use std::time::Duration;

use windlass::{RetryPolicy, Trigger};

use super::limits::LimitPlan;
use super::programs::{Program, show};
use super::{BACKOFF_MAX, SLEEP_MAX};
use crate::dice::Dice;

/// What a task of a plan does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// A handler runs.
    Handler,
    /// Nothing runs for this time.
    Sleep(Duration),
    /// A handler runs at the end if a task failed.
    OnFailure,
}

/// One task of a plan. Its name is its place in the plan.
#[derive(Clone, Debug)]
pub(crate) struct TaskPlan {
    /// What it does.
    pub(crate) kind: WorkKind,
    /// The places of its parents.
    pub(crate) parents: Vec<usize>,
    /// Whether it reads the output of its first parent, which has a handler.
    pub(crate) is_reading: bool,
    /// Whether it has a condition.
    pub(crate) is_conditional: bool,
    /// Which ends of the parents let it run.
    pub(crate) trigger: Trigger,
    /// How often it is tried.
    pub(crate) retry: RetryPolicy,
    /// How long one attempt may take.
    pub(crate) timeout: Option<Duration>,
    /// The queue it waits in.
    pub(crate) queue: &'static str,
    /// Its priority, relative to the run's.
    pub(crate) priority: i16,
    /// What it does if it is a durable function.
    pub(crate) program: Program,
    /// How often it begins afresh then.
    pub(crate) rounds: u64,
    /// How long it may wait for a worker.
    pub(crate) claim_timeout: Option<Duration>,
    /// How many are under way at once.
    pub(crate) limits: Vec<LimitPlan>,
}

/// One version of a workflow.
#[derive(Clone, Debug)]
pub(crate) struct WorkflowPlan {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: u32,
    /// Its tasks; parents come before children.
    pub(crate) tasks: Vec<TaskPlan>,
    /// Whether it is a function that others start.
    pub(crate) is_leaf: bool,
    /// How long a run of it may take.
    pub(crate) run_timeout: Option<Duration>,
}

impl WorkflowPlan {
    /// A workflow that nobody else starts and that may take for ever.
    pub(super) fn new(name: String, version: u32, tasks: Vec<TaskPlan>) -> Self {
        WorkflowPlan { name, version, tasks, is_leaf: false, run_timeout: None }
    }
}

/// How the edges of a workflow lie.
#[derive(Clone, Copy)]
enum Shape {
    /// Each task has some of the earlier ones as parents.
    Random,
    /// One after the other.
    Chain,
    /// One, then many, then one.
    Wide,
}

/// One to four workflows, some in two versions.
pub(super) fn mixed(dice: &mut Dice) -> Vec<WorkflowPlan> {
    let mut workflows = Vec::new();
    for number in 0..dice.count(1..=4) {
        for version in 1..=dice.pick(&[1, 1, 1, 2]) {
            let tasks = tasks(dice);
            workflows.push(WorkflowPlan::new(format!("flow-{number}"), version, tasks));
        }
    }
    workflows
}

/// The workflow of a backlog: one short task.
pub(super) fn single_task() -> WorkflowPlan {
    let retry = RetryPolicy::fixed(Duration::from_millis(500)).attempts(4);
    let task = TaskPlan { retry, ..plain_task() };
    WorkflowPlan::new("single".to_owned(), 1, vec![task])
}

pub(super) fn plain_task() -> TaskPlan {
    TaskPlan {
        kind: WorkKind::Handler,
        parents: Vec::new(),
        is_reading: false,
        is_conditional: false,
        trigger: Trigger::AllSucceeded,
        retry: RetryPolicy::none(),
        timeout: None,
        queue: "red",
        priority: 0,
        program: Vec::new(),
        rounds: 0,
        claim_timeout: None,
        limits: Vec::new(),
    }
}

/// Sets deadlines for some of the workflows.
pub(super) fn set_deadlines(dice: &mut Dice, workflows: &mut [WorkflowPlan]) {
    for workflow in workflows {
        workflow.run_timeout = dice.chance(0.4).then(|| dice.millis(1_000..=20_000));
        for task in workflow.tasks.iter_mut().filter(|task| task.kind == WorkKind::Handler) {
            task.claim_timeout = dice.chance(0.3).then(|| dice.millis(300..=15_000));
        }
    }
}

fn tasks(dice: &mut Dice) -> Vec<TaskPlan> {
    let shape =
        dice.pick(&[Shape::Random, Shape::Random, Shape::Random, Shape::Chain, Shape::Wide]);
    let count = match shape {
        Shape::Random => dice.count(1..=12),
        Shape::Chain => dice.count(2..=8),
        Shape::Wide => dice.count(5..=22),
    };
    let has_routes = dice.chance(0.3);
    let mut tasks: Vec<TaskPlan> = Vec::new();
    for place in 0..count {
        let parents = match shape {
            Shape::Random => some_earlier(dice, place),
            Shape::Chain => place.checked_sub(1).into_iter().collect(),
            Shape::Wide if place == 0 => Vec::new(),
            Shape::Wide if place + 1 == count => (1..place).collect(),
            Shape::Wide => vec![0],
        };
        let mut task = task(dice, parents, &tasks);
        if has_routes {
            task.queue = dice.pick(&["red", "red", "blue"]);
            task.priority = dice.pick(&[0, 0, 10]);
        }
        tasks.push(task);
    }
    if dice.chance(0.3) {
        tasks.push(TaskPlan { kind: WorkKind::OnFailure, retry: retry(dice), ..plain_task() });
    }
    tasks
}

fn some_earlier(dice: &mut Dice, place: usize) -> Vec<usize> {
    let mut parents: Vec<usize> = Vec::new();
    if place == 0 {
        return parents;
    }
    for _ in 0..dice.pick(&[0, 1, 1, 2, 2, 3]) {
        let parent = dice.count(0..=place - 1);
        if !parents.contains(&parent) {
            parents.push(parent);
        }
    }
    parents
}

fn task(dice: &mut Dice, parents: Vec<usize>, earlier: &[TaskPlan]) -> TaskPlan {
    let trigger = if parents.is_empty() || dice.chance(0.75) {
        Trigger::AllSucceeded
    } else {
        dice.pick(&[Trigger::AllFinished, Trigger::AnyFailed, Trigger::NoneFailed])
    };
    if dice.chance(0.12) {
        let longest = dice.pick(&[Duration::from_secs(2), SLEEP_MAX]);
        let kind = WorkKind::Sleep(dice.up_to(longest) + Duration::from_millis(1));
        return TaskPlan { kind, parents, trigger, ..plain_task() };
    }
    let reads = parents.first().is_some_and(|first| earlier[*first].kind == WorkKind::Handler)
        && trigger == Trigger::AllSucceeded;
    TaskPlan {
        is_reading: reads && dice.chance(0.5),
        is_conditional: dice.chance(0.1),
        timeout: dice.chance(0.3).then(|| dice.millis(500..=8_000)),
        retry: retry(dice),
        trigger,
        parents,
        ..plain_task()
    }
}

fn retry(dice: &mut Dice) -> RetryPolicy {
    let policy = match dice.count(0..=4) {
        0 => RetryPolicy::fixed(Duration::from_millis(20)),
        1 => RetryPolicy::fixed(dice.up_to(BACKOFF_MAX)),
        _ => RetryPolicy::exponential().delay_max(Duration::from_secs(4)),
    };
    policy.attempts(dice.pick(&[1, 2, 3, 4]))
}

impl fmt::Display for WorkflowPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "workflow {} version {}", self.name, self.version)?;
        if let Some(timeout) = self.run_timeout {
            writeln!(f, "  timeout {timeout:?}")?;
        }
        for (place, task) in self.tasks.iter().enumerate() {
            write!(f, "  t{place} {:?} after {:?} {:?}", task.kind, task.parents, task.trigger)?;
            write!(f, ", {} attempts", task.retry.max_attempts())?;
            if let Some(timeout) = task.timeout {
                write!(f, ", timeout {timeout:?}")?;
            }
            if let Some(timeout) = task.claim_timeout {
                write!(f, ", to be claimed within {timeout:?}")?;
            }
            for limit in &task.limits {
                write!(f, ", {limit:?}")?;
            }
            if task.rounds > 0 {
                write!(f, ", {} times afresh", task.rounds)?;
            }
            if task.is_conditional {
                write!(f, ", conditional")?;
            }
            writeln!(f, ", queue {} priority {}", task.queue, task.priority)?;
            if !task.program.is_empty() {
                writeln!(f, "    {}", show(&task.program))?;
            }
        }
        Ok(())
    }
}
