//! Runs that a durable function starts and waits for.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::{
    Definition, Failure, FailureCode, Payload, Priority, RunId, StepChange, StepKind, StepResult,
    Wait,
};

use super::Function;
use super::calls::{BoxFuture, mix, read, refused};
use super::journal::{CallError, Made};
use crate::context::Ctx;
use crate::planted::PlantedBug;
use crate::store::{Born, Child, ChildStart, Held, NewRun, PAGE_MAX, batch_len};
use crate::task_error::TaskError;
use crate::workflow::Workflow;

/// The most children of one call.
pub const CHILDREN_MAX: usize = 100_000;

/// How many children are started by one operation.
const START_BATCH: usize = 1_000;

impl<I> Ctx<I> {
    /// Starts a run of another function and waits for what it gives. The function is parked
    /// meanwhile.
    ///
    /// The run belongs to this one: if this one is cancelled, it is as well.
    ///
    /// ```
    /// # use windlass::{Ctx, Function, TaskError};
    /// async fn order(ctx: Ctx<u64>, charge: Function<u64, String>) -> Result<String, TaskError> {
    ///     let receipt = ctx.run(&charge, *ctx.input()).await?;
    ///     Ok(format!("paid: {receipt}"))
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Why the other run failed, or that it was cancelled. The error is
    /// [permanent](TaskError::permanent), as it stays the same when the function is run again.
    pub fn run<J, O>(&self, function: &Function<J, O>, input: J) -> Run<O>
    where
        J: Serialize,
        O: DeserializeOwned + Send + 'static,
    {
        let call = Children::new(self, function.workflow(), [&input]);
        Run(Box::pin(async move {
            let made = call?.wait_for_one().await?;
            read(&made).await
        }))
    }

    /// Starts a run of a workflow and waits until it has succeeded, like [`run`](Ctx::run). What
    /// its tasks gave can be asked for in a step, by its id.
    ///
    /// # Errors
    ///
    /// Why one of its tasks failed, or that it was cancelled.
    pub fn run_workflow<J: Serialize>(&self, workflow: &Workflow<J>, input: J) -> Run<RunId> {
        let call = Children::new(self, workflow, [&input]);
        Run(Box::pin(async move {
            let call = call?;
            let id = call.id_of(0);
            let made = call.wait_for_one().await?;
            read::<serde::de::IgnoredAny>(&made).await.map(|_| id)
        }))
    }

    /// Starts a run of a workflow and does not wait for it. It is started once, however often
    /// the function is run again, and goes on whatever becomes of this one.
    pub fn start<J: Serialize>(&self, workflow: &Workflow<J>, input: J) -> Run<RunId> {
        let call = Children::new(self, workflow, [&input]);
        Run(Box::pin(async move {
            let made = call?.start_and_forget().await?;
            read(&made).await
        }))
    }

    /// Starts a run of a function for each input and waits for what all of them give, in the
    /// order of the inputs. No inputs give no results.
    ///
    /// ```
    /// # use windlass::{Ctx, Function, TaskError};
    /// async fn report(
    ///     ctx: Ctx<Vec<u64>>,
    ///     fetch: Function<u64, u64>,
    /// ) -> Result<u64, TaskError> {
    ///     let rows = ctx.map(&fetch, ctx.input().clone()).concurrency(20).await?;
    ///     rows.into_iter().sum::<Result<u64, TaskError>>()
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// That there are more than [`CHILDREN_MAX`] inputs, or that the results together are over
    /// the limit of a payload. The failures of single runs are among the results.
    pub fn map<J, O>(
        &self,
        function: &Function<J, O>,
        inputs: impl IntoIterator<Item = J>,
    ) -> Map<O>
    where
        J: Serialize,
        O: DeserializeOwned + Send + 'static,
    {
        let inputs: Vec<J> = inputs.into_iter().collect();
        Map {
            call: Some(Children::new(self, function.workflow(), &inputs)),
            concurrency: usize::MAX,
            running: None,
        }
    }
}

/// A durable function's [start](Ctx::start) of a run, or [wait](Ctx::run) for one, to be
/// awaited.
#[must_use = "a run is not started unless it is awaited"]
pub struct Run<O>(BoxFuture<'static, Result<O, TaskError>>);

impl<O> Future for Run<O> {
    type Output = Result<O, TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<O> fmt::Debug for Run<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").finish_non_exhaustive()
    }
}

type Results<O> = Result<Vec<Result<O, TaskError>>, TaskError>;

/// A durable function's wait for [many runs](Ctx::map), to be awaited.
#[must_use = "no run is started unless it is awaited"]
pub struct Map<O> {
    call: Option<Result<Children, TaskError>>,
    concurrency: usize,
    running: Option<BoxFuture<'static, Results<O>>>,
}

impl<O> Map<O> {
    /// How many of the runs are under way at once, at least 1; all of them if nothing is said.
    pub fn concurrency(mut self, most: usize) -> Self {
        self.concurrency = most.max(1);
        self
    }
}

impl<O> Unpin for Map<O> {}

impl<O: DeserializeOwned + Send + 'static> Future for Map<O> {
    type Output = Results<O>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(call) = self.call.take() {
            let most = self.concurrency;
            self.running = Some(Box::pin(async move {
                let made = call?.wait_for_all(most).await?;
                let ends: Vec<StepResult> = read(&made).await?;
                ends.into_iter().map(|end| Ok(read_end(end))).collect()
            }));
        }
        match &mut self.running {
            Some(running) => running.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

impl<O> fmt::Debug for Map<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").finish_non_exhaustive()
    }
}

fn read_end<O: DeserializeOwned>(end: StepResult) -> Result<O, TaskError> {
    match end {
        StepResult::Failed(failure) => Err(TaskError::recorded(failure)),
        StepResult::Value(value) => value.decode().map_err(|error| {
            let text = format!("the output of a run as {}: {error}", std::any::type_name::<O>());
            TaskError::new(text).code(FailureCode::Payload.word()).permanent()
        }),
    }
}

/// A call that starts runs.
struct Children {
    made: Made,
    definition: Arc<Definition>,
    inputs: Vec<Payload>,
}

impl Children {
    fn new<'j, I, J: Serialize + 'j>(
        ctx: &Ctx<I>,
        workflow: &Workflow<J>,
        inputs: impl IntoIterator<Item = &'j J>,
    ) -> Result<Self, TaskError> {
        let attempt = ctx.inner();
        let name = workflow.name().as_str();
        let made = Made::new(attempt, StepKind::Child, name);
        let made = made.map_err(|error: CallError| refused(error))?;
        let encode = |input: &J| {
            attempt.payload_limit.encode(input).map_err(|error| {
                TaskError::new(format!("input of workflow {name:?} {error}")).permanent()
            })
        };
        let inputs: Vec<Payload> =
            inputs.into_iter().map(encode).collect::<Result<_, TaskError>>()?;
        if inputs.len() > CHILDREN_MAX {
            let text = format!("{} runs at once, the limit is {CHILDREN_MAX}", inputs.len());
            return Err(TaskError::new(text).permanent());
        }
        Ok(Children { made, definition: Arc::clone(workflow.definition()), inputs })
    }

    /// The id of the run at a place, which is the same in every attempt of a round.
    fn id_of(&self, place: usize) -> RunId {
        let claimed = &self.made.attempt.claimed;
        let parent = claimed.task.run.as_uuid().as_u128();
        let is_reused = self.made.attempt.planted.has(PlantedBug::RetriedChildReused);
        let round = if is_reused { 0 } else { claimed.round };
        let half = |salt: u64| {
            let seed = [
                parent as u64,
                (parent >> 64) as u64,
                u64::from(claimed.task.index.0),
                u64::from(round),
                u64::from(self.made.call.0),
                place as u64,
                salt,
            ];
            u128::from(seed.iter().fold(0, |state, part| mix(state ^ part)))
        };
        RunId::of_child(claimed.task.run, half(3) << 64 | half(4))
    }

    /// Starts the runs from a place on, as many as there are but no more than `count`.
    async fn start(&self, first: usize, count: usize, is_awaited: bool) {
        let attempt = &self.made.attempt;
        let claimed = &attempt.claimed;
        let held = Held { task: claimed.task, fence: claimed.fence };
        let places = (first..self.inputs.len()).take(count);
        let trace = attempt.trace();
        let new_run = |place: usize| {
            let mut run = NewRun {
                id: self.id_of(place),
                workflow: self.definition.name().clone(),
                version: self.definition.version(),
                tenant: claimed.tenant.clone(),
                input: self.inputs[place].clone(),
                key: None,
                delay: std::time::Duration::ZERO,
                priority: Priority::default(),
                metadata: std::collections::BTreeMap::new(),
            };
            run.join_trace(trace.as_ref());
            run
        };
        let start = |place: usize| ChildStart {
            held,
            call: self.made.call,
            place: is_awaited.then_some(place as u32),
            run: new_run(place),
            definition: Arc::clone(&self.definition),
        };
        let starts: Vec<ChildStart> = places.map(start).collect();
        let mut rest = starts.as_slice();
        while !rest.is_empty() {
            let bytes = rest.iter().map(|start| start.run.input.as_str().len());
            let (batch, later) = rest.split_at(batch_len(bytes, START_BATCH));
            rest = later;
            for born in attempt.start_children(batch.to_vec()).await {
                match born {
                    Born::Started(_) => {}
                    Born::Refused(refusal) => attempt.stop(refusal).await,
                    Born::Failed(error) => {
                        let (task, run) = (&claimed.spec.name, claimed.task.run);
                        let text = format!(
                            "call {} of task {task:?} of run {run} starts {:?}: {error}",
                            self.made.call,
                            self.definition.name(),
                        );
                        self.made.fail(Failure::new(FailureCode::Error, text)).await;
                    }
                }
            }
        }
    }

    async fn start_and_forget(self) -> Result<Made, TaskError> {
        if !self.made.is_done() {
            self.made.gate().await;
            let _busy = self.made.work();
            self.start(0, 1, false).await;
            let id = self.id_of(0);
            let value = Payload::encode(&id).map_err(|error| TaskError::new(error.to_string()))?;
            self.made.finish(StepResult::Value(value)).await;
        }
        Ok(self.made)
    }

    /// Waits for the only run.
    async fn wait_for_one(self) -> Result<Made, TaskError> {
        let missing = || {
            let failure = Failure::new(FailureCode::Error, "the run has no end");
            StepResult::Failed(failure.permanent())
        };
        self.wait_for(1, |mut ends| ends.pop().unwrap_or_else(missing)).await
    }

    /// Waits for all runs.
    async fn wait_for_all(self, most: usize) -> Result<Made, TaskError> {
        let (limit, name) = (self.made.attempt.payload_limit, self.made.name.clone());
        self.wait_for(most, move |ends| match limit.encode(&ends) {
            Ok(value) => StepResult::Value(value),
            Err(error) => {
                let text = format!("the results of {} runs of {name:?} {error}", ends.len());
                StepResult::Failed(Failure::new(FailureCode::Payload, text).permanent())
            }
        })
        .await
    }

    async fn wait_for(
        self,
        most: usize,
        result: impl FnOnce(Vec<StepResult>) -> StepResult,
    ) -> Result<Made, TaskError> {
        let made = &self.made;
        if made.is_done() {
            return Ok(self.made);
        }
        made.gate().await;
        let total = self.inputs.len();
        loop {
            let busy = made.work();
            let count = made.attempt.count_children(made.call).await;
            let (started, open) = (count.started as usize, count.open as usize);
            self.start(started, most.saturating_sub(open), true).await;
            let new = most.saturating_sub(open).min(total.saturating_sub(started));
            let left = total.saturating_sub(started + new);
            // Their ends are read once, when all of them can have ended.
            let may_be_done = left == 0 && open + new == 0;
            if may_be_done && let Some(ends) = self.ends(total).await {
                made.finish(result(ends)).await;
                drop(busy);
                return Ok(self.made);
            }
            drop(busy);
            // While some are not started, half of them may still run.
            let open_max = if left > 0 { most / 2 } else { 0 };
            let wait = Wait::Children(u32::try_from(open_max).unwrap_or(u32::MAX));
            let change = StepChange::Open { failures: 0, failure: None, wait };
            made.wait(Some(change), true).await;
        }
    }

    /// Fails the attempt if what the store says of a place is not the run that was started for it.
    /// Otherwise the store could pass off what any run gave as what this one did.
    async fn check(&self, place: usize, child: &Child) {
        if (child.place as usize, child.run) == (place, self.id_of(place)) {
            return;
        }
        let claimed = &self.made.attempt.claimed;
        let text = format!(
            "call {} of task {:?} of run {} did not start run {}, which the store says has place {} \
             of it",
            self.made.call, claimed.spec.name, claimed.task.run, child.run, child.place,
        );
        self.made.fail(Failure::new(FailureCode::Payload, text).permanent()).await
    }

    /// What the runs came to, if all of them have ended.
    async fn ends(&self, total: usize) -> Option<Vec<StepResult>> {
        let mut ends = Vec::new();
        let mut after = None;
        while ends.len() < total {
            let page = self.made.attempt.list_children(self.made.call, after, PAGE_MAX).await;
            after = page.last().map(|child| child.place);
            let is_last = page.is_empty();
            for child in page {
                self.check(ends.len(), &child).await;
                ends.push(child.result?);
            }
            // A page may be short because of its bytes.
            if is_last {
                return None;
            }
        }
        Some(ends)
    }
}
