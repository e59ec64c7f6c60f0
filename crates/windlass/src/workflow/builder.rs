//! Collects the tasks of a workflow and checks them.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use windlass_core::definition::{
    BATCH_SIZE_MAX, BATCH_WAIT_MAX, DefinitionDraft, TaskDraft, TaskProblem,
};
use windlass_core::undo::UNDO_SUFFIX;
use windlass_core::{
    DefinitionError, Priority, TaskIndex, TaskKind, Trigger, Version, WorkflowName,
};

use super::handler::Handler;
use super::reads::Edges;
use super::{BuilderId, OnFailureBuilder, Registration, SleepBuilder, Task, TaskBuilder, Workflow};
use crate::error::Error;

/// Collects the tasks of a [`Workflow`].
///
/// No method of it fails: what is wrong with a task is reported by
/// [`build`](WorkflowBuilder::build), with the name of the task.
///
/// ```
/// use windlass::{Ctx, TaskError, Workflow};
///
/// let mut sums = Workflow::<Vec<u64>>::builder("sums");
/// let parts: Vec<_> = (0..3)
///     .map(|part| {
///         sums.task(format!("part-{part}")).run(move |ctx: Ctx<Vec<u64>>| async move {
///             Ok::<_, TaskError>(ctx.input().iter().skip(part).step_by(3).sum::<u64>())
///         })
///     })
///     .collect();
/// sums.task("sum").reads(&parts).run(async |_, parts: Vec<u64>| {
///     Ok::<_, TaskError>(parts.iter().sum::<u64>())
/// });
/// let sums = sums.build()?;
/// assert_eq!(sums.definition().tasks().len(), 4);
/// # Ok::<(), windlass::Error>(())
/// ```
pub struct WorkflowBuilder<I> {
    id: BuilderId,
    version: u32,
    draft: DefinitionDraft,
    handlers: Vec<Option<Handler>>,
    names: HashSet<Arc<str>>,
    /// The first task that is wrong in a way the draft cannot show, or that has the
    /// name of an earlier one, which the draft would report before anything else.
    problem: Option<(TaskIndex, TaskProblem)>,
    input: PhantomData<fn(I)>,
}

impl<I> Workflow<I>
where
    I: DeserializeOwned + Send + Sync + 'static,
{
    /// Begins a workflow of version 1 with this name.
    pub fn builder(name: impl Into<String>) -> WorkflowBuilder<I> {
        WorkflowBuilder {
            id: BuilderId::next(),
            version: Version::FIRST.get(),
            draft: DefinitionDraft::new(name),
            handlers: Vec::new(),
            names: HashSet::new(),
            problem: None,
            input: PhantomData,
        }
    }
}

impl<I> WorkflowBuilder<I>
where
    I: DeserializeOwned + Send + Sync + 'static,
{
    /// Sets the version, 1 or larger; the default is 1. Runs stay with the version
    /// they were started with, so tasks and edges change together with it.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// How long a run may take, from its start or its last retry, whatever its tasks do. One that
    /// takes longer is cancelled, with that as the reason.
    #[must_use]
    pub fn run_timeout(mut self, timeout: Duration) -> Self {
        self.draft.timeout = Some(timeout);
        self
    }

    /// Begins a task that a worker runs; [`run`](TaskBuilder::run) adds it.
    pub fn task(&mut self, name: impl Into<String>) -> TaskBuilder<'_, I> {
        TaskBuilder::new(self, name.into())
    }

    /// Begins a task that succeeds after a time without a worker;
    /// [`add`](SleepBuilder::add) adds it. The time begins when its parents have
    /// ended.
    pub fn sleep(&mut self, name: impl Into<String>, duration: Duration) -> SleepBuilder<'_, I> {
        SleepBuilder::new(self, name.into(), duration)
    }

    /// Begins the task that runs after all others have ended if one of them
    /// failed; [`run`](OnFailureBuilder::run) adds it. A workflow can have one.
    pub fn on_failure(&mut self, name: impl Into<String>) -> OnFailureBuilder<'_, I> {
        OnFailureBuilder::new(self, name.into())
    }

    /// Checks everything, in time linear in tasks and edges.
    ///
    /// An error of kind [`Definition`](crate::ErrorKind::Definition) names the
    /// first task that is wrong, in the order of their declaration, and what is
    /// wrong with it.
    ///
    /// ```
    /// use windlass::{TaskError, Trigger, Workflow};
    ///
    /// let mut order = Workflow::<u64>::builder("order");
    /// let charge = order.task("charge").run(async |_| Ok::<_, TaskError>(1));
    /// order
    ///     .task("report")
    ///     .reads(&charge)
    ///     .trigger(Trigger::AllFinished)
    ///     .run(async |_, _cents: i32| Ok::<_, TaskError>(()));
    /// let error = order.build().unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "workflow \"order\", task \"report\": it reads the output of \"charge\", but may run \
    ///      when that did not succeed; read it as optional [WL-0001]",
    /// );
    /// ```
    pub fn build(mut self) -> Result<Workflow<I>, Error> {
        WorkflowName::new(&self.draft.name).map_err(DefinitionError::WorkflowName)?;
        if self.draft.name.ends_with(UNDO_SUFFIX) {
            return Err(DefinitionError::UndoName { workflow: self.draft.name }.into());
        }
        self.draft.version = Version::new(self.version).ok_or_else(|| {
            let (workflow, version) = (self.draft.name.clone(), self.version);
            DefinitionError::Version { workflow, version }
        })?;
        if let Some((index, problem)) = self.problem {
            return Err(first_error(self.draft, index, problem).into());
        }
        let definition = Arc::new(self.draft.build()?);
        let handlers = self.handlers.into();
        Ok(Workflow { registration: Registration { definition, handlers }, input: PhantomData })
    }
}

impl<I> WorkflowBuilder<I> {
    pub(super) fn id(&self) -> BuilderId {
        self.id
    }

    /// Adds a task that is complete.
    pub(super) fn add<O>(&mut self, node: Node, handler: Option<Handler>) -> Task<O> {
        let index = TaskIndex::from_usize(self.draft.tasks.len());
        let (draft, problem) = node.close();
        let name: Arc<str> = draft.name.as_str().into();
        let is_new = self.names.insert(Arc::clone(&name));
        let problem = if is_new { problem } else { Some(TaskProblem::DuplicateName) };
        if self.problem.is_none() {
            self.problem = problem.map(|problem| (index, problem));
        }
        self.draft.tasks.push(draft);
        self.handlers.push(handler);
        Task { builder: self.id, index, name, output: PhantomData }
    }
}

impl<I> fmt::Debug for WorkflowBuilder<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowBuilder")
            .field("name", &self.draft.name)
            .field("version", &self.version)
            .field("tasks", &self.draft.tasks.len())
            .finish_non_exhaustive()
    }
}

/// What is wrong with the tasks before the one at `index` if anything is,
/// otherwise what is wrong with that one.
fn first_error(
    mut draft: DefinitionDraft,
    index: TaskIndex,
    problem: TaskProblem,
) -> DefinitionError {
    let (workflow, task) = (draft.name.clone(), draft.tasks[index.as_usize()].name.clone());
    let own = DefinitionError::Task { workflow, task, problem };
    draft.tasks.truncate(index.as_usize());
    if draft.tasks.is_empty() {
        return own;
    }
    match draft.build() {
        // The tasks that were cut off are what it lacks.
        Ok(_) | Err(DefinitionError::OnlyOnFailure { .. }) => own,
        Err(earlier) => earlier,
    }
}

/// A task under construction.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) draft: TaskDraft,
    pub(super) edges: Edges,
    pub(super) priority: i16,
    /// How many tasks its handler is called for at once, and how long they wait for each other.
    pub(super) batch: Option<(usize, Duration)>,
}

impl Node {
    pub(super) fn new(builder: BuilderId, name: String, kind: TaskKind) -> Self {
        let draft = TaskDraft::new(name, kind);
        let priority = Priority::default().get();
        Node { draft, edges: Edges::new(builder), priority, batch: None }
    }

    /// The complete draft, and what is wrong with the task beyond what the draft
    /// shows.
    fn close(self) -> (TaskDraft, Option<TaskProblem>) {
        let Node { mut draft, edges, priority, batch } = self;
        draft.parents = edges.parents;
        let uncertain = edges.required.filter(|_| draft.trigger != Trigger::AllSucceeded);
        let problem = if let Some(parent) = edges.foreign {
            Some(TaskProblem::ForeignParent(parent.to_string()))
        } else if let Some(parent) = uncertain {
            Some(TaskProblem::ReadsUncertainParent(parent.to_string()))
        } else if let Some((size, _)) =
            batch.filter(|(size, _)| !(1..=BATCH_SIZE_MAX).contains(size))
        {
            Some(TaskProblem::BatchSize(size))
        } else if let Some((_, wait)) = batch.filter(|(_, wait)| *wait > BATCH_WAIT_MAX) {
            Some(TaskProblem::BatchWait(wait))
        } else {
            match Priority::new(priority) {
                Some(priority) => {
                    draft.priority = priority;
                    None
                }
                None => Some(TaskProblem::Priority(priority)),
            }
        };
        (draft, problem)
    }
}
