//! Steps: work of a durable function that is done once, and what undoes it.

use std::error::Error as StdError;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::Instrument as _;
use windlass_core::{
    Call, Decision, Failure, FailureCode, Outcome, Payload, RetryPolicy, StepChange, StepKind,
    StepResult, Wait, decide,
};

use super::calls::{BoxFuture, mix, read, refused};
use super::journal::{CallError, Made};
use super::undo::UndoWork;
use crate::context::{Attempt, Ctx};
use crate::spans;
use crate::task_error::{TaskError, failure_of, is_hand_back};

impl<I> Ctx<I> {
    /// Runs `work` once and remembers its result: when the function is run again, this gives
    /// the result without running it.
    ///
    /// The result is as durable as an output when this returns. `work` may be run more than
    /// once only if its worker is lost between its end and the record of it. A step is known by
    /// its place among the calls of the function and by its name, so a loop may use one name
    /// for many steps.
    ///
    /// If `work` fails, the [retry policy of the step](Step::retry) says when it is tried
    /// again. The function is parked until then and holds no slot. When no attempt is left, the
    /// error is the result of the step: the function may go on with something else.
    ///
    /// ```
    /// # use windlass::{Ctx, TaskError};
    /// # struct Api;
    /// # impl Api { async fn create(&self, _: &str) -> Result<u64, TaskError> { Ok(7) } }
    /// # const API: Api = Api;
    /// async fn onboard(ctx: Ctx<String>) -> Result<u64, TaskError> {
    ///     let account = ctx.step("create", || API.create(ctx.input())).await?;
    ///     for place in 0..3 {
    ///         ctx.step("greet", async || Ok::<_, TaskError>(place)).await?;
    ///     }
    ///     Ok(account)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// The last error of `work`, as it was recorded: code and message are kept, its type is
    /// not. It is [permanent](TaskError::permanent), as another attempt of the function would
    /// meet the same result.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, `work` is dropped with it, and its result may be recorded or
    /// not.
    pub fn step<'a, F, Fut, T, E>(&self, name: impl AsRef<str>, work: F) -> Step<'a, T>
    where
        F: FnOnce() -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, E>> + Send + 'a,
        T: Serialize + DeserializeOwned + Send + 'a,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let made = Made::new(self.inner(), StepKind::Step, name.as_ref());
        Step::new(made, move |made, policy| Box::pin(async move { run(made, policy, work).await }))
    }

    /// Says what is to be done if the run does not succeed, whatever else becomes of it: it
    /// fails, it is cancelled while it works, sleeps or waits, or somebody asks to
    /// [undo](crate::RunHandle::undo) it. For what [compensates](Step::compensate) a step that
    /// may have done something and has no result, say it before that step.
    ///
    /// ```
    /// # use windlass::{Ctx, TaskError};
    /// # async fn reserve(_: u64) -> Result<(), TaskError> { Ok(()) }
    /// # async fn release(_: u64) -> Result<(), TaskError> { Ok(()) }
    /// async fn book(ctx: Ctx<u64>) -> Result<(), TaskError> {
    ///     let seat = *ctx.input();
    ///     ctx.defer("release", move || release(seat)).await?;
    ///     ctx.step("reserve", || reserve(seat)).await?;
    ///     ctx.step("pay", async || Err::<(), _>(TaskError::new("no funds").permanent())).await
    /// }
    /// ```
    pub fn defer<F, Fut, E>(&self, name: impl AsRef<str>, undo: F) -> Step<'static, ()>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let nothing = async || Ok::<_, TaskError>(());
        self.step(name, nothing).compensate(move |()| undo())
    }
}

/// How a step is tried.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) retry: RetryPolicy,
    pub(super) timeout: Option<Duration>,
}

impl Default for Policy {
    fn default() -> Self {
        Policy { retry: RetryPolicy::exponential(), timeout: None }
    }
}

/// How often what undoes a step is tried if nothing is said.
const UNDO_ATTEMPTS: u32 = 20;

type Begin<'a, T> =
    Box<dyn FnOnce(Made, Policy) -> BoxFuture<'a, Result<T, TaskError>> + Send + 'a>;

/// A [step](Ctx::step) of a durable function, to be awaited.
#[must_use = "a step does nothing unless it is awaited"]
pub struct Step<'a, T> {
    begin: Option<(Result<Made, CallError>, Begin<'a, T>, Policy)>,
    undo: Option<UndoWork>,
    undo_retry: RetryPolicy,
    running: Option<BoxFuture<'a, Result<T, TaskError>>>,
}

impl<'a, T> Step<'a, T> {
    pub(super) fn new(
        made: Result<Made, CallError>,
        begin: impl FnOnce(Made, Policy) -> BoxFuture<'a, Result<T, TaskError>> + Send + 'a,
    ) -> Self {
        let begin: Begin<'a, T> = Box::new(begin);
        Step {
            begin: Some((made, begin, Policy::default())),
            undo: None,
            undo_retry: RetryPolicy::exponential().attempts(UNDO_ATTEMPTS),
            running: None,
        }
    }

    /// How often the step is tried, and how long the pauses are;
    /// [`RetryPolicy::exponential`] if nothing is said.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        if let Some((_, _, begin)) = &mut self.begin {
            begin.retry = policy;
        }
        self
    }

    /// How long one try may take. One that takes longer is dropped, and has failed with the
    /// code `timeout`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        if let Some((_, _, begin)) = &mut self.begin {
            begin.timeout = Some(timeout);
        }
        self
    }

    /// What undoes the step, given its result. It is done if the run fails, is cancelled, or if
    /// somebody asks to [undo](crate::RunHandle::undo) it, after what undoes the later steps: by
    /// a run of its own, each once, tried again by [its own policy](Step::undo_retry).
    ///
    /// It belongs to the record: a step that was done stays one that can be undone, and code
    /// that does not say any more how fails to undo it. One that failed, or whose worker was
    /// lost with no attempt left, has no result and is not undone; see [`defer`](Ctx::defer).
    ///
    /// ```
    /// # use windlass::{Ctx, TaskError};
    /// # async fn charge(_: u64) -> Result<String, TaskError> { Ok("c1".into()) }
    /// # async fn refund(_: String) -> Result<(), TaskError> { Ok(()) }
    /// async fn order(ctx: Ctx<u64>) -> Result<(), TaskError> {
    ///     ctx.step("charge", || charge(*ctx.input())).compensate(refund).await?;
    ///     ctx.step("ship", async || Err::<(), _>(TaskError::new("sold out").permanent())).await
    /// }
    /// ```
    pub fn compensate<F, Fut, E>(mut self, undo: F) -> Self
    where
        T: DeserializeOwned,
        F: FnOnce(T) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let undo = move |value: Payload| -> BoxFuture<'static, _> {
            let undoing = value.decode().map(undo);
            Box::pin(async move {
                match undoing {
                    Ok(undoing) => undoing.await.map_err(Into::into),
                    Err(error) => {
                        let type_name = std::any::type_name::<T>();
                        let text = format!("its result as {type_name}: {error}");
                        let code = FailureCode::Payload;
                        Err(TaskError::new(text).code(code.word()).permanent().into())
                    }
                }
            })
        };
        if let Some((Ok(made), _, _)) = &mut self.begin {
            made.make_undoable();
        }
        self.undo = Some(Box::new(undo));
        self
    }

    /// How often what [undoes](Step::compensate) the step is tried, and how long the pauses are;
    /// [`RetryPolicy::exponential`] with twenty attempts if nothing is said. When none is left,
    /// the run that undoes has failed, and goes on when it is retried.
    pub fn undo_retry(mut self, policy: RetryPolicy) -> Self {
        self.undo_retry = policy;
        self
    }
}

impl<T> Future for Step<'_, T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some((made, begin, policy)) = self.begin.take() {
            let made = match made {
                Ok(made) => made,
                Err(error) => return Poll::Ready(Err(refused(error))),
            };
            if let Some(work) = self.undo.take() {
                made.keep_undo(work, self.undo_retry.clone());
            }
            self.running = Some(begin(made, policy));
        }
        match &mut self.running {
            Some(running) => running.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for Step<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").finish_non_exhaustive()
    }
}

pub(super) async fn run<F, Fut, T, E>(
    made: Made,
    policy: Policy,
    run_step: F,
) -> Result<T, TaskError>
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = Result<T, E>>,
    T: Serialize + DeserializeOwned,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    if made.is_done() {
        return read(&made).await;
    }
    made.gate().await;
    let (failures, due) = made.open();
    if due.is_some_and(|due| due > made.attempt.claimed.at) {
        made.wait(None, false).await;
    }
    let busy = made.work();
    let work = Within::new(&made.attempt, made.call).run(run_step);
    let span = spans::step(made.name.as_str(), made.call.0, failures + 1);
    let worked = timed(policy.timeout, work).instrument(span.clone()).await;
    spans::end_step(&span, worked.is_ok());
    drop(span);
    let result = match worked {
        Ok(value) => made.attempt.payload_limit.encode(&value).map_err(|error| {
            let text = format!("result of step {:?} {error}", made.name);
            Failure::new(FailureCode::Payload, text).permanent()
        }),
        Err(error) if is_hand_back(&*error) => {
            drop(busy);
            made.hand_back().await
        }
        Err(error) => Err(failure_of(&*error)),
    };
    let result = match result {
        Ok(value) => StepResult::Value(value),
        Err(failure) => match after_failure(&made, &policy, failures, failure) {
            Ok(result) => result,
            Err(again) => {
                drop(busy);
                made.wait_parked(again).await
            }
        },
    };
    made.finish(result).await;
    drop(busy);
    read(&made).await
}

/// What follows when a try failed after so many others: the result of the step, or what it waits
/// for before it is tried again.
pub(super) fn after_failure(
    made: &Made,
    policy: &Policy,
    failures: u32,
    failure: Failure,
) -> Result<StepResult, StepChange> {
    let outcome = Outcome::Failed(failure.clone());
    match decide(&policy.retry, failures + 1, outcome, jitter(made, failures)) {
        Decision::Retry { failure, delay } => {
            let (failures, failure) = (failures + 1, Some(failure));
            Err(StepChange::Open { failures, failure, wait: Wait::For(delay) })
        }
        Decision::Fail(_)
        | Decision::Succeed(_)
        | Decision::Skip
        | Decision::Park(_)
        | Decision::Continue(_) => Ok(StepResult::Failed(failure)),
    }
}

/// The jitter of the pause behind a failure, from 0 to 1: another one for every run and call,
/// and the same whenever it is asked for, as everything is that a function depends on.
fn jitter(made: &Made, failures: u32) -> f64 {
    let task = made.attempt.claimed.task;
    let run = task.run.as_uuid().as_u128();
    let place = u64::from(task.index.0) << 32 | u64::from(made.call.0);
    let seed = [run as u64, (run >> 64) as u64, place, u64::from(failures)];
    let bits = seed.iter().fold(5, |state, part| mix(state ^ part));
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// The work of a step while it is run.
pub(super) struct Within {
    attempt: Arc<Attempt>,
    call: Call,
    /// How many random numbers it was given.
    count: u64,
}

impl Within {
    /// Work that belongs to a call of an attempt.
    pub(super) fn new(attempt: &Arc<Attempt>, call: Call) -> Self {
        Within { attempt: Arc::clone(attempt), call, count: 0 }
    }

    /// Runs the work: what it asks for of the function is the step's.
    pub(super) async fn run<F, Fut>(mut self, work: F) -> Fut::Output
    where
        F: FnOnce() -> Fut,
        Fut: Future,
    {
        let Within { attempt, call, count } = &mut self;
        let mut work = pin!(attempt.journal.within(*call, count, work));
        std::future::poll_fn(|context| {
            attempt.journal.within(*call, count, || work.as_mut().poll(context))
        })
        .await
    }
}

pub(super) async fn timed<T, E>(
    timeout: Option<Duration>,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Box<dyn StdError + Send + Sync>>
where
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    let Some(timeout) = timeout else { return work.await.map_err(Into::into) };
    match tokio::time::timeout(timeout, work).await {
        Ok(result) => result.map_err(Into::into),
        Err(_) => {
            let text = format!("took longer than {timeout:?}");
            Err(TaskError::new(text).code(FailureCode::Timeout.word()).into())
        }
    }
}
