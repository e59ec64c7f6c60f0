//! The calls that a durable function makes.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::de::DeserializeOwned;
use uuid::Uuid;
use windlass_core::retry::WAIT_MAX;
use windlass_core::step::UNTIL_MAX;
use windlass_core::{
    Failure, FailureCode, Payload, SignalKey, StepChange, StepKind, StepResult, Timestamp, Wait,
};

use super::journal::{CallError, Made, Over};
use crate::context::Ctx;
use crate::planted::PlantedBug;
use crate::store::{Held, Signalled, TakeSignal, Which};
use crate::task_error::TaskError;

pub(super) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl<I> Ctx<I> {
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

    /// Lets the function begin afresh with another input, as the same run: what this gives is to
    /// be returned as its error. Its steps are forgotten, so that a function that goes on for ever
    /// has no record that grows for ever; signals that nobody took are kept.
    ///
    /// What was done before is not [undone](crate::function::Step::compensate) any more. The
    /// input that the run was started with is still what [its record](crate::store::RunRecord)
    /// shows.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use windlass::{Ctx, TaskError};
    /// # async fn measure() -> Result<u64, TaskError> { Ok(7) }
    /// async fn watch(ctx: Ctx<u64>) -> Result<(), TaskError> {
    ///     let mut total = *ctx.input();
    ///     for _ in 0..1_000 {
    ///         total += ctx.step("measure", measure).await?;
    ///         ctx.sleep(Duration::from_secs(60)).await?;
    ///     }
    ///     Err(ctx.continue_with(&total))
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// What it gives is a failure if the function is not the only task of its workflow, or if the
    /// input has no JSON form or is too large.
    pub fn continue_with(&self, input: &I) -> TaskError
    where
        I: serde::Serialize,
    {
        let attempt = self.inner();
        let what = format!("input that task {:?} begins afresh with", self.task());
        if !attempt.is_alone() {
            let text = format!("{what}: only a workflow of one task can begin afresh");
            return TaskError::new(text).permanent();
        }
        match attempt.payload_limit.encode(input) {
            Ok(input) => TaskError::begin_afresh(input),
            Err(error) => {
                let code = FailureCode::Payload;
                TaskError::new(format!("{what} {error}")).code(code.word()).permanent()
            }
        }
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
            // A function that begins afresh asks others for something else.
            let afresh = Some(u128::from(attempt.claimed.afresh)).filter(|round| *round > 0);
            seed.iter().chain(&afresh).fold(0_u64, |state, part| mix(state ^ (*part as u64)))
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

/// The code under which it is recorded that a signal did not come in time.
const SIGNAL_TIMEOUT: &str = "signal_timeout";

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
    /// Waits for a [signal to a key](crate::Windlass::signal_key) of the run's tenant instead of
    /// one to the run: for senders that know an order or a payment, and not the run. One that was
    /// sent before is taken at once; of several the oldest. If several functions wait for the same
    /// key and name, each signal goes to one of them.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use windlass::{Ctx, Function, TaskError, Windlass};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// async fn settle(ctx: Ctx<String>) -> Result<u64, TaskError> {
    ///     ctx.signal::<u64>("paid").key(ctx.input()).await
    /// }
    ///
    /// let settle = Function::new("settle", settle)?;
    /// let windlass = Windlass::memory();
    /// let worker = windlass.worker().register(&settle).spawn()?;
    /// let run = windlass.start(&settle, "pay_123".to_owned()).tenant("acme").await?;
    /// // What a payment provider says knows the payment, not the run.
    /// windlass.signal_key("pay_123", "paid", &4_200).tenant("acme").await?;
    /// run.wait().await?;
    /// assert_eq!(run.output(settle.output()).await?, 4_200);
    /// # worker.drain().await?;
    /// # Ok(()) }
    /// ```
    pub fn key(mut self, key: impl AsRef<str>) -> Self {
        let made = self.made.take();
        self.made = made.map(|made| made?.of_key(key.as_ref()));
        self
    }

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
            Some(_) if made.attempt.planted.has(PlantedBug::WokenSleepsAreOver) => {}
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
    let key = made.key().await;
    if !made.is_done() {
        made.gate().await;
        let (_, due) = made.open();
        let mut is_over = due.is_some_and(|due| due <= made.attempt.claimed.at);
        let mut is_known = made.is_open();
        while !take(&made, key.as_ref()).await {
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
            let what = match &key {
                Some(key) => format!("signal {:?} to key {key:?}", made.name),
                None => format!("signal {:?} to run {}", made.name, made.attempt.claimed.task.run),
            };
            TaskError::new(format!("{what} {error}")).code(FailureCode::Payload.word()).permanent()
        }),
    }
}

/// Takes a signal, if there is one.
///
/// It is looked for before it is taken: a number that was asked for in vain and is forgotten must
/// never be that of a result, however late the question is heard once more.
async fn take(made: &Made, key: Option<&SignalKey>) -> bool {
    let _busy = made.work();
    let claimed = &made.attempt.claimed;
    let held = Held { task: claimed.task, fence: claimed.fence };
    let ask = |which| {
        let (name, key) = (made.name.clone(), key.cloned());
        made.attempt.take_signal(TakeSignal { held, call: made.call, name, key, which })
    };
    while let Some(Signalled::Newest(newest)) = ask(Which::Newest).await {
        let number = made.number();
        if let Some(Signalled::Value(value)) = ask(Which::UpTo(newest, number)).await {
            made.answer(number, Some(StepResult::Value(value)));
            return true;
        }
        made.answer(number, None);
    }
    false
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
