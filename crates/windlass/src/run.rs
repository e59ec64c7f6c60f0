//! A handle on one run.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::{
    Event, RunId, SignalId, StepName, StepRecord, TaskId, TaskName, TaskState, Why,
};

use crate::error::{Error, ErrorKind};
use crate::store::{NewSignal, PAGE_MAX, RunRecord, Store, TaskRecord};
use crate::workflow::Task;

/// How soon a waiter looks again without a hint; it doubles up to the second one.
const WAIT_POLL_FIRST: Duration = Duration::from_millis(100);
const WAIT_POLL_MAX: Duration = Duration::from_secs(5);

/// A run, to be watched, waited for, cancelled and retried. Cheap to clone.
#[derive(Clone)]
pub struct RunHandle {
    store: Arc<dyn Store>,
    id: RunId,
    /// Whether it was started inside a transaction of the caller's.
    is_staged: bool,
}

impl RunHandle {
    pub(crate) fn new(store: Arc<dyn Store>, id: RunId) -> Self {
        RunHandle { store, id, is_staged: false }
    }

    /// A handle on a run that was started inside a transaction of the caller's.
    #[cfg(feature = "postgres")]
    pub(crate) fn staged(self) -> Self {
        RunHandle { is_staged: true, ..self }
    }

    /// The run's id.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// The run as it is.
    pub async fn get(&self) -> Result<RunRecord, Error> {
        let missing = || Error::new(ErrorKind::NotFound, format!("run {} does not exist", self.id));
        self.store.get_run(self.id).await?.ok_or_else(missing)
    }

    /// The run's tasks, in the order of the definition.
    pub async fn tasks(&self) -> Result<Vec<TaskRecord>, Error> {
        let mut tasks: Vec<TaskRecord> = Vec::new();
        loop {
            let after = tasks.last().map(|task| task.index);
            let page = self.store.list_tasks(self.id, after, PAGE_MAX).await?;
            let is_last = page.len() < PAGE_MAX;
            tasks.extend(page);
            if is_last {
                return Ok(tasks);
            }
        }
    }

    /// Waits until the run has ended, in whatever state, and returns it. Cancel
    /// safe. A store that cannot be reached is waited out.
    pub async fn wait(&self) -> Result<RunRecord, Error> {
        let mut hints = self.store.run_hints();
        let mut poll = WAIT_POLL_FIRST;
        if self.is_staged {
            // Whoever waits for it has committed it.
            self.store.hint_staged();
        }
        loop {
            hints.take();
            match self.get().await {
                Ok(run) if run.state.is_final() => return Ok(run),
                Err(error) if !error.is_retryable() => return Err(error),
                Ok(_) | Err(_) => {}
            }
            tokio::select! {
                biased;
                () = hints.changed() => {}
                () = tokio::time::sleep(poll) => poll = (poll * 2).min(WAIT_POLL_MAX),
            }
        }
    }

    /// Like [`wait`](RunHandle::wait), with [`ErrorKind::Timeout`] if it takes
    /// longer than `limit`.
    pub async fn wait_timeout(&self, limit: Duration) -> Result<RunRecord, Error> {
        let late = |_| {
            let text = format!("run {} has not ended within {limit:?}", self.id);
            Error::new(ErrorKind::Timeout, text)
        };
        tokio::time::timeout(limit, self.wait()).await.map_err(late)?
    }

    /// The output of a task that succeeded, read by its handle.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the task has not succeeded,
    /// [`ErrorKind::NotFound`] if the run has no such task,
    /// [`ErrorKind::Payload`] if the output is not of the handle's type.
    pub async fn output<O: DeserializeOwned>(&self, task: &Task<O>) -> Result<O, Error> {
        let name = task.name();
        let record = self.task(name).await?;
        let Some(output) = record.output.filter(|_| record.state == TaskState::Succeeded) else {
            let state = record.state;
            let text = format!("task {name:?} of run {} is {state} and has no output", self.id);
            return Err(Error::new(ErrorKind::Conflict, text));
        };
        let what = format_args!("output of task {name:?} of run {}", self.id).to_string();
        output.decode().map_err(|error| Error::payload(what, error))
    }

    async fn task(&self, name: &str) -> Result<TaskRecord, Error> {
        let record = match TaskName::new(name) {
            Ok(name) => self.store.get_task(self.id, name).await?,
            Err(_) => None,
        };
        let missing = || format!("task {name:?} of run {} does not exist", self.id);
        record.ok_or_else(|| Error::new(ErrorKind::NotFound, missing()))
    }

    /// What is known of the calls of a task that is a [durable function](crate::function), in
    /// the order in which it makes them: their results, and what those wait for that have none.
    /// None of a task that has made no calls. At most as many as a function may make, which is
    /// 50,000, with their results.
    ///
    /// ```
    /// # use windlass::function::{StepResult, StepState};
    /// # use windlass::{Ctx, Function, TaskError, Windlass};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let greet = Function::new("greet", async |ctx: Ctx<()>| {
    ///     ctx.step("write", async || Ok::<_, TaskError>("Hello!".to_owned())).await
    /// })?;
    /// let windlass = Windlass::memory();
    /// let worker = windlass.worker().register(&greet).spawn()?;
    /// let run = windlass.start(&greet, ()).await?;
    /// run.wait().await?;
    /// let steps = run.steps("greet").await?;
    /// assert_eq!(steps[0].name.as_str(), "write");
    /// let StepState::Done { result: StepResult::Value(value), .. } = &steps[0].state else {
    ///     return Err("it has no result".into());
    /// };
    /// assert_eq!(value.decode::<String>()?, "Hello!");
    /// # worker.drain().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the run has no such task.
    pub async fn steps(&self, task: impl AsRef<str>) -> Result<Vec<StepRecord>, Error> {
        let index = self.task(task.as_ref()).await?.index;
        let task = TaskId { run: self.id, index };
        let mut steps: Vec<StepRecord> = Vec::new();
        loop {
            let after = steps.last().map(|step| step.call);
            let page = self.store.list_steps(task, after, PAGE_MAX).await?;
            let is_last = page.len() < PAGE_MAX;
            steps.extend(page);
            if is_last {
                return Ok(steps);
            }
        }
    }

    /// Everything that happened to the run, the oldest first.
    pub async fn history(&self) -> Result<Vec<Event>, Error> {
        let mut events: Vec<Event> = Vec::new();
        loop {
            let after = events.last().map(|event| event.id);
            let page = self.store.list_events(self.id, after, PAGE_MAX).await?;
            let is_last = page.len() < PAGE_MAX;
            events.extend(page);
            if is_last {
                return Ok(events);
            }
        }
    }

    /// Why the run does not go on: how each of its tasks that are under way stands, what it waits
    /// for and what would change it; `docs/why.md` has all reasons.
    ///
    /// A look at one moment, which costs about as much for a large run as for a small one: counts
    /// and lists are cut by the limits of [`why`](crate::why).
    ///
    /// ```
    /// # use windlass::{TaskError, Windlass, Workflow};
    /// # use windlass::why::{Missing, Reason, Served};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut order = Workflow::<()>::builder("order");
    /// order.task("charge").run(async |_| Ok::<_, TaskError>(()));
    /// let order = order.build()?;
    /// let windlass = Windlass::memory();
    /// let run = windlass.start(&order, ()).await?;
    /// let why = run.why().await?;
    /// let Reason::Ready { served, .. } = &why.tasks[0].reasons[0] else { panic!("{why:?}") };
    /// assert_eq!(*served, Served::Nobody { missing: Missing::Worker });
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such run.
    pub async fn why(&self) -> Result<Why, Error> {
        let missing = || Error::new(ErrorKind::NotFound, format!("run {} does not exist", self.id));
        self.store.why(self.id, None).await?.ok_or_else(missing)
    }

    /// Why one task of the run does not go on, also if it has ended or waits for others.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such run, or if it has no such task.
    pub async fn why_task(&self, task: impl AsRef<str>) -> Result<Why, Error> {
        let name = task.as_ref();
        let why = match TaskName::new(name) {
            Ok(name) => self.store.why(self.id, Some(name)).await?,
            Err(_) => None,
        };
        if let Some(why) = why {
            return Ok(why);
        }
        // Of a run that does not exist no task is missing.
        self.get().await?;
        let text = format!("task {name:?} of run {} does not exist", self.id);
        Err(Error::new(ErrorKind::NotFound, text))
    }

    /// Sends a signal to the run: a function of it that [waits](crate::Ctx::signal) for this
    /// name goes on with `value`. If none waits, it is kept until one does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the run has ended, or if too many signals wait already;
    /// [`ErrorKind::Payload`] if the value has no JSON form or is too large. One whose answer
    /// is [lost](Error::is_retryable) may have been sent.
    pub async fn signal(
        &self,
        name: impl AsRef<str>,
        value: &(impl Serialize + ?Sized),
    ) -> Result<(), Error> {
        let name = name.as_ref();
        let what = format!("signal {name:?} to run {}", self.id);
        let value = self.store.payload_limit().encode(value);
        let value = value.map_err(|error| Error::payload(&what, error))?;
        let name = StepName::new(name)
            .map_err(|error| Error::new(ErrorKind::Conflict, format!("{what}: {error}")))?;
        let id = SignalId::from_random(fastrand::u128(..));
        let signal = NewSignal { id, run: self.id, name, value };
        Ok(self.store.signal(signal).await?)
    }

    /// Cancels the run: its tasks that have not ended are cancelled, running
    /// handlers are told. A run that was cancelled stays so; one that ended
    /// otherwise is a [`ErrorKind::Conflict`].
    pub async fn cancel(&self, reason: impl Into<String>) -> Result<(), Error> {
        Ok(self.store.cancel_run(self.id, Some(reason.into())).await?)
    }

    /// Lets a failed run go on: its failed tasks, and all that depends on them,
    /// run again; what succeeded beside them is kept. Answers the number of the
    /// round that begins.
    pub async fn retry(&self) -> Result<u32, Error> {
        let round = self.get().await?.round;
        Ok(self.store.retry_run(self.id, round).await?)
    }
}

impl RunHandle {
    /// Undoes what the run did: every step that says [how](crate::function::Step::compensate), the
    /// last one first. Answers the run that does it, the same if it is there already.
    ///
    /// A run that fails or is cancelled is undone without this. Once it is, it cannot be
    /// retried.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the run has not ended, or has no step that can be undone.
    pub async fn undo(&self) -> Result<RunHandle, Error> {
        let id = self.store.undo_run(self.id).await?;
        Ok(RunHandle::new(Arc::clone(&self.store), id))
    }

    /// The run that undoes this one, if there is one.
    pub async fn undone_by(&self) -> Result<Option<RunHandle>, Error> {
        let id = RunId::of_undo(self.id, self.get().await?.round);
        let by = self.store.get_run(id).await?;
        Ok(by.map(|_| RunHandle::new(Arc::clone(&self.store), id)))
    }
}

impl std::fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RunHandle({})", self.id)
    }
}
