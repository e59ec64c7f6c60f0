//! The calls that a durable function makes.

use std::error::Error as StdError;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;
use windlass_core::retry::WAIT_MAX;
use windlass_core::step::UNTIL_MAX;
use windlass_core::{
    Call, Decision, Failure, FailureCode, Outcome, Payload, RetryPolicy, StepChange, StepKind,
    StepResult, Timestamp, Wait, decide,
};

use super::journal::{CallError, Made, Over};
use crate::context::{Attempt, Ctx};
use crate::store::{Held, TakeSignal};
use crate::task_error::{TaskError, failure_of, is_hand_back};

pub(super) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

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
        let begin = move |policy: Policy| -> BoxFuture<'a, Result<T, TaskError>> {
            Box::pin(async move {
                let made = made.map_err(refused)?;
                run(made, policy, work).await
            })
        };
        Step { begin: Some((Box::new(begin), Policy::default())), running: None }
    }

    /// Lets a time pass, from the moment at which the function is parked. No process is needed
    /// meanwhile, and it is never shorter, whatever is restarted.
    ///
    /// # Errors
    ///
    /// If it would last longer than a hundred years.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        let made = Made::new(self.inner(), StepKind::Sleep, "sleep");
        Sleep(Box::pin(async move {
            let made = made.map_err(refused)?;
            if duration > WAIT_MAX {
                let text = format!("a sleep of {duration:?} is over the limit of {WAIT_MAX:?}");
                return Err(TaskError::new(text).permanent());
            }
            sleep(made, Wait::For(duration)).await
        }))
    }

    /// Sleeps until a time by the store's clock; no time at all if it has passed.
    ///
    /// # Errors
    ///
    /// If it lies beyond the year 9999.
    pub fn sleep_until(&self, time: Timestamp) -> Sleep {
        let made = Made::new(self.inner(), StepKind::Sleep, "sleep");
        Sleep(Box::pin(async move {
            let made = made.map_err(refused)?;
            if time > UNTIL_MAX {
                let text = format!("a sleep until {time} lies behind the year 9999");
                return Err(TaskError::new(text).permanent());
            }
            sleep(made, Wait::Until(time)).await
        }))
    }

    /// Waits for a [signal](crate::RunHandle::signal) to the run of this name. One that was
    /// sent before is taken at once; of several the oldest. Each is taken once.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use windlass::{Ctx, TaskError};
    /// async fn approve(ctx: Ctx<u64>) -> Result<bool, TaskError> {
    ///     let week = Duration::from_secs(7 * 86_400);
    ///     let verdict = ctx.signal::<bool>("verdict").timeout(week).await?;
    ///     Ok(verdict.unwrap_or(false))
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// If what was sent is not a `T`. It is taken all the same.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have taken a signal, which is then lost to the
    /// function.
    pub fn signal<T: DeserializeOwned + Send + 'static>(&self, name: impl AsRef<str>) -> Signal<T> {
        let made = Made::new(self.inner(), StepKind::Signal, name.as_ref());
        Signal { made: Some(made), running: None }
    }

    /// Whether the function came here with the code of the change `name`: `true` for those that
    /// come here for the first time, `false` for those that had come further before the change.
    /// So a function can be changed while runs of it are under way:
    ///
    /// ```
    /// # use windlass::{Ctx, TaskError};
    /// async fn order(ctx: Ctx<u64>) -> Result<(), TaskError> {
    ///     if ctx.patched("check-fraud").await? {
    ///         ctx.step("check", async || Ok::<_, TaskError>(())).await?;
    ///     }
    ///     ctx.step("charge", async || Ok::<_, TaskError>(())).await
    /// }
    /// ```
    ///
    /// When all runs that began before have ended, the question can be left out only together
    /// with a new version of the workflow.
    pub fn patched<N: AsRef<str>>(
        &self,
        name: N,
    ) -> impl Future<Output = Result<bool, TaskError>> + Send + use<I, N> {
        let made = Made::patch(self.inner(), name.as_ref());
        async move {
            let Some(made) = made.map_err(refused)? else { return Ok(false) };
            if !made.is_done() {
                made.gate().await;
                let _busy = made.work();
                made.finish(StepResult::Value(Payload::default())).await;
            }
            read::<()>(&made).await.map(|()| true)
        }
    }

    /// The time, which stays the same when the function is run again.
    pub fn now(&self) -> impl Future<Output = Result<Timestamp, TaskError>> + Send + use<I> {
        let made = Made::new(self.inner(), StepKind::Time, "time");
        async move {
            let made = made.map_err(refused)?;
            if !made.is_done() {
                made.gate().await;
                let _busy = made.work();
                let now = made.attempt.now().as_micros();
                match Payload::encode(&now) {
                    Ok(now) => made.finish(StepResult::Value(now)).await,
                    Err(error) => return Err(TaskError::new(error.to_string())),
                }
            }
            read(&made).await.map(Timestamp::from_micros)
        }
    }

    /// A random number, which stays the same when the function is run again. Whoever knows the
    /// id of the run can compute it: it is no secret.
    pub fn random(&self) -> u64 {
        self.random_bits() as u64
    }

    /// A random UUID, which stays the same when the function is run again, such as the key of a
    /// request to another system. It is no secret, see [`random`](Ctx::random).
    pub fn uuid(&self) -> Uuid {
        uuid::Builder::from_random_bytes(self.random_bits().to_be_bytes()).into_uuid()
    }

    fn random_bits(&self) -> u128 {
        let attempt = self.inner();
        let task = attempt.claimed.task;
        let run = task.run.as_uuid().as_u128();
        let (call, place) = attempt.journal.next_random();
        let task = u128::from(task.index.0) << 32 | u128::from(call);
        let half = |salt: u128| {
            let seed = [run, run >> 64, task, u128::from(place), salt];
            seed.iter().fold(0_u64, |state, part| mix(state ^ (*part as u64)))
        };
        u128::from(half(1)) << 64 | u128::from(half(2))
    }
}

/// One round of splitmix64. Written down here because it must never change: a function that
/// is run again by a newer program must get the same numbers.
pub(super) fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// How a step is tried.
#[derive(Clone, Debug)]
struct Policy {
    retry: RetryPolicy,
    timeout: Option<Duration>,
}

impl Default for Policy {
    fn default() -> Self {
        Policy { retry: RetryPolicy::exponential(), timeout: None }
    }
}

/// The code under which it is recorded that a signal did not come in time.
const SIGNAL_TIMEOUT: &str = "signal_timeout";

type Begin<'a, T> = Box<dyn FnOnce(Policy) -> BoxFuture<'a, Result<T, TaskError>> + Send + 'a>;

/// A [step](Ctx::step) of a durable function, to be awaited.
#[must_use = "a step does nothing unless it is awaited"]
pub struct Step<'a, T> {
    begin: Option<(Begin<'a, T>, Policy)>,
    running: Option<BoxFuture<'a, Result<T, TaskError>>>,
}

impl<T> Step<'_, T> {
    /// How often the step is tried, and how long the pauses are;
    /// [`RetryPolicy::exponential`] if nothing is said.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        if let Some((_, begin)) = &mut self.begin {
            begin.retry = policy;
        }
        self
    }

    /// How long one try may take. One that takes longer is dropped, and has failed with the
    /// code `timeout`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        if let Some((_, begin)) = &mut self.begin {
            begin.timeout = Some(timeout);
        }
        self
    }
}

impl<T> Future for Step<'_, T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some((begin, policy)) = self.begin.take() {
            self.running = Some(begin(policy));
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

/// A [sleep](Ctx::sleep) of a durable function, to be awaited.
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep(BoxFuture<'static, Result<(), TaskError>>);

impl Future for Sleep {
    type Output = Result<(), TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").finish_non_exhaustive()
    }
}

/// A durable function's wait for a [signal](Ctx::signal), to be awaited.
#[must_use = "a wait does nothing unless it is awaited"]
pub struct Signal<T> {
    made: Option<Result<Made, CallError>>,
    running: Option<BoxFuture<'static, Result<Option<T>, TaskError>>>,
}

impl<T: DeserializeOwned + Send + 'static> Signal<T> {
    /// Waits no longer than this, from the moment at which the function is parked: `None` if no
    /// signal came.
    pub fn timeout(mut self, timeout: Duration) -> SignalOrTimeout<T> {
        let made = self.made.take();
        SignalOrTimeout(Box::pin(async move {
            let Some(made) = made else { return Ok(None) };
            if timeout > WAIT_MAX {
                let text = format!("a timeout of {timeout:?} is over the limit of {WAIT_MAX:?}");
                return Err(TaskError::new(text).permanent());
            }
            signal(made.map_err(refused)?, Wait::For(timeout)).await
        }))
    }
}

impl<T: DeserializeOwned + Send + 'static> Future for Signal<T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(made) = self.made.take() {
            let running = async move { signal(made.map_err(refused)?, Wait::Forever).await };
            self.running = Some(Box::pin(running));
        }
        let Some(running) = &mut self.running else { return Poll::Pending };
        running.as_mut().poll(context).map(|taken| match taken? {
            Some(value) => Ok(value),
            None => Err(TaskError::new("a wait without a timeout timed out").permanent()),
        })
    }
}

impl<T> Unpin for Signal<T> {}

impl<T> fmt::Debug for Signal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal").finish_non_exhaustive()
    }
}

/// A durable function's wait for a signal [or a time](Signal::timeout), to be awaited.
#[must_use = "a wait does nothing unless it is awaited"]
pub struct SignalOrTimeout<T>(BoxFuture<'static, Result<Option<T>, TaskError>>);

impl<T> Future for SignalOrTimeout<T> {
    type Output = Result<Option<T>, TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for SignalOrTimeout<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignalOrTimeout").finish_non_exhaustive()
    }
}

async fn run<F, Fut, T, E>(made: Made, policy: Policy, run_step: F) -> Result<T, TaskError>
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
    let work = Within { attempt: Arc::clone(&made.attempt), call: made.call, count: 0 };
    let work = work.run(run_step);
    let result = match timed(policy.timeout, work).await {
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
        Err(failure) => {
            let outcome = Outcome::Failed(failure.clone());
            match decide(&policy.retry, failures + 1, outcome, fastrand::f64()) {
                Decision::Retry { failure, delay } => {
                    drop(busy);
                    let (failures, failure) = (failures + 1, Some(failure));
                    let wait = Wait::For(delay);
                    made.wait_parked(StepChange::Open { failures, failure, wait }).await
                }
                Decision::Fail(_) | Decision::Succeed(_) | Decision::Skip | Decision::Park(_) => {
                    StepResult::Failed(failure)
                }
            }
        }
    };
    made.finish(result).await;
    drop(busy);
    read(&made).await
}

/// The work of a step while it is run.
struct Within {
    attempt: Arc<Attempt>,
    call: Call,
    /// How many random numbers it was given.
    count: u64,
}

impl Within {
    /// Runs the work: what it asks for of the function is the step's.
    async fn run<F, Fut>(mut self, work: F) -> Fut::Output
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

async fn timed<T, E>(
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

async fn sleep(made: Made, wait: Wait) -> Result<(), TaskError> {
    if !made.is_done() {
        made.gate().await;
        let (_, due) = made.open();
        let has_passed = match wait {
            Wait::Until(time) => time <= made.attempt.now(),
            Wait::For(duration) => duration.is_zero(),
            Wait::Forever | Wait::Children(_) => false,
        };
        match due {
            Some(due) if due <= made.attempt.claimed.at => {}
            Some(_) => drop(made.wait(None, false).await),
            None if has_passed => {}
            None => {
                let change = StepChange::Open { failures: 0, failure: None, wait };
                made.wait(Some(change), false).await;
            }
        }
        let _busy = made.work();
        made.finish(StepResult::Value(Payload::default())).await;
    }
    read(&made).await
}

async fn signal<T: DeserializeOwned>(made: Made, wait: Wait) -> Result<Option<T>, TaskError> {
    if !made.is_done() {
        made.gate().await;
        let (_, due) = made.open();
        let mut is_over = due.is_some_and(|due| due <= made.attempt.claimed.at);
        let mut is_known = made.is_open();
        while !take(&made).await {
            if is_over {
                let _busy = made.work();
                let code = FailureCode::Custom(SIGNAL_TIMEOUT.to_owned());
                let failure = Failure::new(code, "no signal came in time");
                made.finish(StepResult::Failed(failure)).await;
                break;
            }
            let change = StepChange::Open { failures: 0, failure: None, wait };
            is_over = made.wait((!is_known).then_some(change), true).await == Over::Due;
            // It goes on only if it was recorded.
            is_known = true;
        }
    }
    match made.result().await {
        StepResult::Failed(failure) if failure.code.word() == SIGNAL_TIMEOUT => Ok(None),
        StepResult::Failed(failure) => Err(TaskError::recorded(failure)),
        StepResult::Value(value) => value.decode().map(Some).map_err(|error| {
            let what = format!("signal {:?} to run {}", made.name, made.attempt.claimed.task.run);
            TaskError::new(format!("{what} {error}")).code(FailureCode::Payload.word()).permanent()
        }),
    }
}

/// Takes a signal, if there is one.
async fn take(made: &Made) -> bool {
    let _busy = made.work();
    let number = made.number();
    let claimed = &made.attempt.claimed;
    let held = Held { task: claimed.task, fence: claimed.fence };
    let take = TakeSignal { held, call: made.call, name: made.name.clone(), number };
    let taken = made.attempt.take_signal(take).await;
    let is_taken = taken.is_some();
    made.answer(number, taken.map(StepResult::Value));
    is_taken
}

/// The result of a call, read as a `T`.
pub(super) async fn read<T: DeserializeOwned>(made: &Made) -> Result<T, TaskError> {
    match made.result().await {
        StepResult::Failed(failure) => Err(TaskError::recorded(failure)),
        StepResult::Value(value) => match value.decode() {
            Ok(value) => Ok(value),
            Err(error) => {
                let claimed = &made.attempt.claimed;
                let text = format!(
                    "result of call {} ({:?}) of task {:?} of run {} as {}: {error}",
                    made.call,
                    made.name,
                    claimed.spec.name,
                    claimed.task.run,
                    std::any::type_name::<T>(),
                );
                made.fail(Failure::new(FailureCode::Payload, text)).await
            }
        },
    }
}

pub(super) fn refused(error: CallError) -> TaskError {
    TaskError::new(error.to_string()).permanent()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_never_change() {
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(1), 0x910a_2dec_8902_5cc1);
    }
}
