//! One task at a time: its parents, its policies and its handler.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::{Failure, Limit, RetryPolicy, TaskKind, TaskName, Trigger, WorkerLost};

use super::Task;
use super::builder::{Node, WorkflowBuilder};
use super::handler::{Body, Condition, Handler, Reader};
use super::reads::{Plan, Readable, Reads, ReadsNothing};
use crate::context::Ctx;

/// A task that a worker runs, under construction. It is part of the workflow once
/// `run` was called.
///
/// Its defaults: no parents, [`Trigger::AllSucceeded`],
/// [`RetryPolicy::exponential`], no timeout, the queue `default`, priority 0.
///
/// A handler is an `async fn`, a closure `async |ctx| …` without captures, or a
/// closure that clones what it captured: `move |ctx| { let client =
/// client.clone(); async move { … } }`. Its error is anything that becomes a boxed
/// error: `anyhow::Error`, an error of your own, a `String`, or a
/// [`TaskError`](crate::TaskError), which says more.
///
/// ```
/// use windlass::{Ctx, TaskError, Trigger, Workflow};
///
/// let mut visit = Workflow::<String>::builder("visit");
/// let page = visit.task("fetch").run(async |ctx: Ctx<String>| {
///     Ok::<_, TaskError>(format!("page at {}", ctx.input()))
/// });
/// let links = visit
///     .task("links")
///     .reads(&page)
///     .when(|_, page| page.contains("href"))
///     .run(async |_, page: String| Ok::<_, TaskError>(page.matches("href").count()));
/// visit
///     .task("report")
///     .reads((&page.optional(), &links.optional()))
///     .trigger(Trigger::NoneFailed)
///     .run(async |_, (page, links): (Option<String>, Option<usize>)| {
///         Ok::<_, TaskError>(format!("{page:?}: {} links", links.unwrap_or(0)))
///     });
/// visit.build()?;
/// # Ok::<(), windlass::Error>(())
/// ```
#[must_use = "the task is added by `run`"]
pub struct TaskBuilder<'w, I, R = ReadsNothing> {
    workflow: &'w mut WorkflowBuilder<I>,
    node: Node,
    read: Reader<R>,
    conditions: Vec<Condition<I, R>>,
}

impl<'w, I, R> TaskBuilder<'w, I, R> {
    /// The task waits for this parent to end, without reading its output.
    pub fn after<O>(mut self, parent: &Task<O>) -> Self {
        self.node.edges.add(parent);
        self
    }

    /// The task waits for all of these parents to end, without reading their
    /// outputs.
    pub fn after_all<'p, O: 'p>(mut self, parents: impl IntoIterator<Item = &'p Task<O>>) -> Self {
        parents.into_iter().for_each(|parent| self.node.edges.add(parent));
        self
    }

    /// Which ends of the parents let the task run. Otherwise it is skipped.
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.node.draft.trigger = trigger;
        self
    }

    /// How often the task is tried.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.node.draft.retry = policy;
        self
    }

    /// How long the task may wait in its queue until a worker claims it, each time that it comes
    /// there. One that waits longer fails with the code `timeout`, whatever attempts are left:
    /// for what is worth nothing if it is late.
    pub fn claim_timeout(mut self, timeout: Duration) -> Self {
        self.node.draft.claim_timeout = Some(timeout);
        self
    }

    /// How long one attempt may take, more than zero.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.node.draft.timeout = Some(timeout);
        self
    }

    /// How long an attempt may give no sign of life, more than zero. A handler that neither
    /// calls [`Ctx::heartbeat`] nor notes progress nor writes a checkpoint for so long counts as
    /// hung: it is cancelled, and the attempt has failed with the code `timeout`.
    pub fn heartbeat_timeout(mut self, timeout: Duration) -> Self {
        self.node.draft.heartbeat_timeout = Some(timeout);
        self
    }

    /// How long after its claim the task is given to another worker, whatever the one that has
    /// it says; more than zero. It counts as a lost worker, see
    /// [`on_worker_lost`](Self::on_worker_lost).
    ///
    /// The store watches over it, so it holds also for handlers that block a thread and cannot
    /// be cancelled. It must be longer than the longest attempt: one that is only slow is
    /// outlived, and what it returns is refused. Prefer [`timeout`](Self::timeout), which the
    /// worker watches over, where the handler can be cancelled.
    pub fn visibility_timeout(mut self, timeout: Duration) -> Self {
        self.node.draft.visibility_timeout = Some(timeout);
        self
    }

    /// What becomes of the task when the worker that runs it is lost: it is tried again, which
    /// costs an attempt, if nothing is said. A handler that decides by itself what to do then asks
    /// for [`Ctx::last_failure`].
    pub fn on_worker_lost(mut self, policy: WorkerLost) -> Self {
        self.node.draft.on_worker_lost = policy;
        self
    }

    /// How many tasks with the same key are under way at once, see [`Limit`]. It can be called
    /// several times: the task then needs a slot in its lane of each limit. Slots are taken
    /// before the task becomes ready and kept until it has ended, through retries and sleeps.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.node.draft.limits.push(limit);
        self
    }

    /// The queue the task waits in; a worker that serves it must have the handler.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.node.draft.queue = queue.into();
        self
    }

    /// What goes first within the queue, relative to the run's priority: from -100
    /// to 100, the larger number first.
    pub fn priority(mut self, priority: i16) -> Self {
        self.node.priority = priority;
        self
    }
}

impl<I, R> TaskBuilder<'_, I, R> {
    /// Its handler is one for batches.
    pub(super) fn batched(mut self, size: usize, wait: Duration) -> Self {
        self.node.batch = Some((size, wait));
        self
    }

    /// Adds the task with a handler that is made of what comes before its call.
    pub(super) fn finish<O>(
        self,
        handler: impl FnOnce(Reader<R>, Vec<Condition<I, R>>) -> Handler,
    ) -> Task<O> {
        let TaskBuilder { workflow, node, read, conditions } = self;
        workflow.add(node, Some(handler(read, conditions)))
    }
}

impl<'w, I> TaskBuilder<'w, I>
where
    I: DeserializeOwned + Send + Sync + 'static,
{
    pub(super) fn new(workflow: &'w mut WorkflowBuilder<I>, name: String) -> Self {
        let node = Node::new(workflow.id(), name, TaskKind::Handler);
        let read = Box::new(|_: &_| Ok(ReadsNothing));
        TaskBuilder { workflow, node, read, conditions: Vec::new() }
    }

    /// The task waits for these parents, and its handler gets their outputs as its
    /// second argument; [`Readable`] lists what can be read and what it becomes.
    ///
    /// It can be called once. Several parents are read as a tuple or as a vector.
    pub fn reads<P: Readable>(mut self, parents: P) -> TaskBuilder<'w, I, Reads<P::Values>> {
        let plan = parents.declare(&mut self.node.edges);
        let ignoring_values = |condition: Condition<I, ReadsNothing>| -> Condition<I, _> {
            Box::new(move |ctx, _| condition(ctx, &ReadsNothing))
        };
        TaskBuilder {
            workflow: self.workflow,
            node: self.node,
            read: Box::new(move |claimed| plan.take(claimed).map(Reads)),
            conditions: self.conditions.into_iter().map(ignoring_values).collect(),
        }
    }

    /// The task runs only if this is true of the run's input; otherwise it is
    /// skipped. Of several conditions all must be true.
    ///
    /// A worker asks when it has claimed the task, before the handler. A condition
    /// that panics is an attempt that failed.
    pub fn when(mut self, condition: impl Fn(&Ctx<I>) -> bool + Send + Sync + 'static) -> Self {
        self.conditions.push(Box::new(move |ctx, ReadsNothing| condition(ctx)));
        self
    }

    /// Adds the task with its handler to the workflow.
    pub fn run<F, Fut, O, E>(self, handler: F) -> Task<O>
    where
        F: Fn(Ctx<I>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        O: Serialize + DeserializeOwned + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let call = move |ctx, ReadsNothing| handler(ctx);
        let body = Body { read: self.read, conditions: self.conditions, call };
        self.workflow.add(self.node, Some(body.erase()))
    }
}

impl<I, V> TaskBuilder<'_, I, Reads<V>>
where
    I: DeserializeOwned + Send + Sync + 'static,
    V: 'static,
{
    /// The task runs only if this is true of the run's input and of what the task
    /// reads; otherwise it is skipped. Of several conditions all must be true.
    ///
    /// A worker asks when it has claimed the task, before the handler. A condition
    /// that panics is an attempt that failed.
    pub fn when(mut self, condition: impl Fn(&Ctx<I>, &V) -> bool + Send + Sync + 'static) -> Self {
        self.conditions.push(Box::new(move |ctx, Reads(values)| condition(ctx, values)));
        self
    }

    /// Adds the task with its handler to the workflow.
    pub fn run<F, Fut, O, E>(self, handler: F) -> Task<O>
    where
        F: Fn(Ctx<I>, V) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        O: Serialize + DeserializeOwned + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let call = move |ctx, Reads(values)| handler(ctx, values);
        let body = Body { read: self.read, conditions: self.conditions, call };
        self.workflow.add(self.node, Some(body.erase()))
    }
}

impl<I, R> fmt::Debug for TaskBuilder<'_, I, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskBuilder").field("task", &self.node.draft).finish_non_exhaustive()
    }
}

/// A task that sleeps, under construction. It is part of the workflow once
/// [`add`](SleepBuilder::add) was called.
///
/// It takes no worker and no slot, and outlives every process.
#[derive(Debug)]
#[must_use = "the sleep is added by `add`"]
pub struct SleepBuilder<'w, I> {
    workflow: &'w mut WorkflowBuilder<I>,
    node: Node,
}

impl<'w, I> SleepBuilder<'w, I> {
    pub(super) fn new(
        workflow: &'w mut WorkflowBuilder<I>,
        name: String,
        duration: Duration,
    ) -> Self {
        let node = Node::new(workflow.id(), name, TaskKind::Sleep(duration));
        SleepBuilder { workflow, node }
    }

    /// The sleep begins when this parent has ended.
    pub fn after<O>(mut self, parent: &Task<O>) -> Self {
        self.node.edges.add(parent);
        self
    }

    /// The sleep begins when all of these parents have ended.
    pub fn after_all<'p, O: 'p>(mut self, parents: impl IntoIterator<Item = &'p Task<O>>) -> Self {
        parents.into_iter().for_each(|parent| self.node.edges.add(parent));
        self
    }

    /// Which ends of the parents let the sleep begin. Otherwise it is skipped.
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.node.draft.trigger = trigger;
        self
    }

    /// Adds the sleep to the workflow.
    pub fn add(self) -> Task<()> {
        self.workflow.add(self.node, None)
    }
}

/// The task that runs when others failed, under construction. It is part of the
/// workflow once [`run`](OnFailureBuilder::run) was called.
///
/// It comes after every other task, so it has no parents and no task can wait for
/// it. The run has failed however it ends.
///
/// ```
/// use windlass::{Ctx, Failure, TaskError, TaskName, Workflow};
///
/// let mut order = Workflow::<u64>::builder("order");
/// order.task("charge").run(async |_| Err::<(), _>("no funds"));
/// order.on_failure("apologise").run(
///     async |ctx: Ctx<u64>, failures: Vec<(TaskName, Failure)>| {
///         for (task, failure) in failures {
///             println!("order {}: {task} failed: {failure}", ctx.input());
///         }
///         Ok::<_, TaskError>(())
///     },
/// );
/// order.build()?;
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the task is added by `run`"]
pub struct OnFailureBuilder<'w, I> {
    workflow: &'w mut WorkflowBuilder<I>,
    node: Node,
}

impl<'w, I> OnFailureBuilder<'w, I> {
    pub(super) fn new(workflow: &'w mut WorkflowBuilder<I>, name: String) -> Self {
        let node = Node::new(workflow.id(), name, TaskKind::OnFailure);
        OnFailureBuilder { workflow, node }
    }

    /// How often the task is tried.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.node.draft.retry = policy;
        self
    }

    /// How long one attempt may take, more than zero.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.node.draft.timeout = Some(timeout);
        self
    }

    /// How long an attempt may give no sign of life, more than zero. A handler that neither
    /// calls [`Ctx::heartbeat`] nor notes progress nor writes a checkpoint for so long counts as
    /// hung: it is cancelled, and the attempt has failed with the code `timeout`.
    pub fn heartbeat_timeout(mut self, timeout: Duration) -> Self {
        self.node.draft.heartbeat_timeout = Some(timeout);
        self
    }

    /// How long after its claim the task is given to another worker, whatever the one that has
    /// it says; more than zero. It counts as a lost worker, see
    /// [`on_worker_lost`](Self::on_worker_lost).
    ///
    /// The store watches over it, so it holds also for handlers that block a thread and cannot
    /// be cancelled. It must be longer than the longest attempt: one that is only slow is
    /// outlived, and what it returns is refused. Prefer [`timeout`](Self::timeout), which the
    /// worker watches over, where the handler can be cancelled.
    pub fn visibility_timeout(mut self, timeout: Duration) -> Self {
        self.node.draft.visibility_timeout = Some(timeout);
        self
    }

    /// What becomes of the task when the worker that runs it is lost: it is tried again, which
    /// costs an attempt, if nothing is said. A handler that decides by itself what to do then asks
    /// for [`Ctx::last_failure`].
    pub fn on_worker_lost(mut self, policy: WorkerLost) -> Self {
        self.node.draft.on_worker_lost = policy;
        self
    }

    /// How many tasks with the same key are under way at once, see [`Limit`]. It can be called
    /// several times: the task then needs a slot in its lane of each limit. Slots are taken
    /// before the task becomes ready and kept until it has ended, through retries and sleeps.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.node.draft.limits.push(limit);
        self
    }

    /// The queue the task waits in; a worker that serves it must have the handler.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.node.draft.queue = queue.into();
        self
    }

    /// What goes first within the queue, relative to the run's priority: from -100
    /// to 100, the larger number first.
    pub fn priority(mut self, priority: i16) -> Self {
        self.node.priority = priority;
        self
    }

    /// Adds the task to the workflow with its handler, which gets the tasks that
    /// failed and why.
    pub fn run<F, Fut, O, E>(self, handler: F) -> Task<O>
    where
        I: DeserializeOwned + Send + Sync + 'static,
        F: Fn(Ctx<I>, Vec<(TaskName, Failure)>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        O: Serialize + DeserializeOwned + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let read: Reader<_> = Box::new(|claimed| Ok(claimed.failures.clone()));
        let body = Body { read, conditions: Vec::new(), call: handler };
        self.workflow.add(self.node, Some(body.erase()))
    }
}
