//! Workflows that are one durable function.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::{Limit, RetryPolicy, WorkerLost};

use crate::context::Ctx;
use crate::error::Error;
use crate::workflow::{Registration, Task, TaskBuilder, Workflow, WorkflowBuilder};

/// A workflow of one task, which is a durable function from an `I` to an `O`. It can be used
/// wherever a [`Workflow`] can. Cheap to clone.
///
/// ```
/// use std::time::Duration;
/// use windlass::{Ctx, Function, TaskError, Windlass};
///
/// async fn greet(ctx: Ctx<String>) -> Result<String, TaskError> {
///     let greeting = ctx.step("write", async || {
///         Ok::<_, TaskError>(format!("Hello, {}!", ctx.input()))
///     });
///     let greeting = greeting.await?;
///     ctx.sleep(Duration::from_millis(10)).await?;
///     Ok(greeting)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let greet = Function::new("greet", greet)?;
/// let windlass = Windlass::memory();
/// let worker = windlass.worker().register(&greet).spawn()?;
/// let run = windlass.start(&greet, "Ada".to_owned()).await?;
/// run.wait().await?;
/// assert_eq!(run.output(greet.output()).await?, "Hello, Ada!");
/// worker.drain().await?;
/// # Ok(()) }
/// ```
pub struct Function<I, O> {
    workflow: Workflow<I>,
    output: Task<O>,
}

impl<I, O> Function<I, O>
where
    I: DeserializeOwned + Send + Sync + 'static,
    O: Serialize + DeserializeOwned + 'static,
{
    /// A function of version 1 with this name and the defaults of a
    /// [task](crate::workflow::TaskBuilder).
    ///
    /// # Errors
    ///
    /// [`Definition`](crate::ErrorKind::Definition) if the name cannot be used.
    pub fn new<F, Fut, E>(name: impl Into<String>, handler: F) -> Result<Self, Error>
    where
        F: Fn(Ctx<I>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Function::<I, O>::builder(name).run(handler)
    }

    /// Begins a function with this name; [`run`](FunctionBuilder::run) makes it.
    pub fn builder(name: impl Into<String>) -> FunctionBuilder<I> {
        FunctionBuilder { name: name.into(), version: 1, run_timeout: None, policies: Vec::new() }
    }
}

impl<I, O> Function<I, O> {
    /// The handle of its output.
    pub fn output(&self) -> &Task<O> {
        &self.output
    }

    /// The workflow that it is.
    pub fn workflow(&self) -> &Workflow<I> {
        &self.workflow
    }
}

impl<I, O> Deref for Function<I, O> {
    type Target = Workflow<I>;

    fn deref(&self) -> &Workflow<I> {
        &self.workflow
    }
}

impl<I, O> Clone for Function<I, O> {
    fn clone(&self) -> Self {
        Function { workflow: self.workflow.clone(), output: self.output.clone() }
    }
}

impl<I, O> fmt::Debug for Function<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function")
            .field("name", self.workflow.name())
            .field("version", &self.workflow.version())
            .finish_non_exhaustive()
    }
}

impl<I, O> From<&Function<I, O>> for Registration {
    fn from(function: &Function<I, O>) -> Self {
        function.workflow.registration()
    }
}

type Policy<I> = Box<dyn for<'w> FnOnce(TaskBuilder<'w, I>) -> TaskBuilder<'w, I> + Send>;

/// A [`Function`] under construction.
#[must_use = "the function is made by `run`"]
pub struct FunctionBuilder<I> {
    name: String,
    version: u32,
    run_timeout: Option<Duration>,
    policies: Vec<Policy<I>>,
}

impl<I> FunctionBuilder<I>
where
    I: DeserializeOwned + Send + Sync + 'static,
{
    fn policy(
        mut self,
        policy: impl for<'w> FnOnce(TaskBuilder<'w, I>) -> TaskBuilder<'w, I> + Send + 'static,
    ) -> Self {
        self.policies.push(Box::new(policy));
        self
    }

    /// Sets the version, 1 or larger; the default is 1. Runs stay with the version they were
    /// started with.
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// How often the function is tried between two rests; what its steps do is up to
    /// [their own policies](crate::function::Step::retry).
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.policy(move |task| task.retry(policy))
    }

    /// How many runs with the same key are under way at once, see [`Limit`]; it can be called
    /// several times. A function keeps its slots while it sleeps and waits.
    pub fn limit(self, limit: Limit) -> Self {
        self.policy(move |task| task.limit(limit))
    }

    /// How long the function may be at work between two rests.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.policy(move |task| task.timeout(timeout))
    }

    /// How long a run of it may take, from its start or its last retry. One that takes longer is
    /// cancelled, with that as the reason, and its steps are
    /// [undone](crate::function::Step::compensate).
    pub fn run_timeout(mut self, timeout: Duration) -> Self {
        self.run_timeout = Some(timeout);
        self
    }

    /// How long it may wait in its queue until a worker claims it, each time that it comes there,
    /// see [`TaskBuilder::claim_timeout`].
    pub fn claim_timeout(self, timeout: Duration) -> Self {
        self.policy(move |task| task.claim_timeout(timeout))
    }

    /// What becomes of the function when the worker that runs it is lost.
    pub fn on_worker_lost(self, policy: WorkerLost) -> Self {
        self.policy(move |task| task.on_worker_lost(policy))
    }

    /// The queue it waits in.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        let queue = queue.into();
        self.policy(move |task| task.queue(queue))
    }

    /// What goes first within the queue, from -100 to 100.
    pub fn priority(self, priority: i16) -> Self {
        self.policy(move |task| task.priority(priority))
    }

    /// Makes the function. An error of kind [`Definition`](crate::ErrorKind::Definition) says
    /// what is wrong with it.
    pub fn run<F, Fut, O, E>(self, handler: F) -> Result<Function<I, O>, Error>
    where
        F: Fn(Ctx<I>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        O: Serialize + DeserializeOwned + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let FunctionBuilder { name, version, run_timeout, policies } = self;
        let mut workflow: WorkflowBuilder<I> = Workflow::builder(name.clone()).version(version);
        if let Some(timeout) = run_timeout {
            workflow = workflow.run_timeout(timeout);
        }
        let task = workflow.task(name);
        let task = policies.into_iter().fold(task, |task, policy| policy(task));
        let output = task.run(handler);
        Ok(Function { workflow: workflow.build()?, output })
    }
}

impl<I> fmt::Debug for FunctionBuilder<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
