//! What a handler knows about the attempt it runs in.

mod checkpoints;
mod traces;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_core::{
    Call, Failure, FailureCode, Fence, Payload, PayloadLimit, RunId, StepWrite, TaskName, Tenant,
    Timestamp, Version, WorkflowName,
};

use crate::backoff::Backoff;
use crate::error::Error;
use crate::function::{Journal, never};
use crate::planted::Planted;
use crate::store::sealed::Keyring;
use crate::store::{
    Answer, Born, CHECKPOINT_NUMBER_MAX, Child, ChildCount, ChildStart, Claimed, Held, Recording,
    Refusal, Signalled, StoreError, TakeSignal, WorkerLink,
};
use crate::worker::{Gather, Gathers, Parcel};

/// One attempt of a task, shared between the worker that runs it and the context
/// its handler holds.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) claimed: Claimed,
    pub(crate) payload_limit: PayloadLimit,
    /// What its values are sealed with, if they are.
    pub(crate) keyring: Option<Arc<Keyring>>,
    cancelled: CancellationToken,
    draining: CancellationToken,
    progress: Mutex<Option<Payload>>,
    /// What its function remembers.
    pub(crate) journal: Journal,
    /// The mistake that its worker makes.
    pub(crate) planted: Planted,
    /// When the worker learned of it.
    received: Instant,
    /// Where what handlers say goes; `None` if no worker runs the attempt.
    gathers: Option<Arc<Gathers>>,
    is_handed_back: AtomicBool,
    /// How many checkpoints its handler has asked for.
    checkpoints: AtomicU32,
    /// Whether its run has no other task.
    is_alone: bool,
    /// When the handler last gave a sign of life.
    last_sign: Mutex<Instant>,
    /// How many of its calls wait for the store.
    waits: AtomicUsize,
    /// When its handler was called; `None` while it waits for others to be called with.
    began: Mutex<Option<Instant>>,
    /// Whether its handler is called for others as well.
    is_batched: AtomicBool,
}

impl Attempt {
    /// An attempt that ends when `cancelled` is and should hurry when `draining` is.
    pub(crate) fn new(
        mut claimed: Claimed,
        cancelled: CancellationToken,
        draining: CancellationToken,
    ) -> Self {
        let steps = std::mem::take(&mut claimed.steps);
        let payload_limit = PayloadLimit::default();
        let progress = Mutex::new(None);
        let is_handed_back = AtomicBool::new(false);
        Attempt {
            claimed,
            payload_limit,
            keyring: None,
            cancelled,
            draining,
            progress,
            journal: Journal::new(&steps),
            planted: Planted::default(),
            received: Instant::now(),
            gathers: None,
            is_handed_back,
            checkpoints: AtomicU32::new(0),
            is_alone: false,
            last_sign: Mutex::new(Instant::now()),
            waits: AtomicUsize::new(0),
            began: Mutex::new(Some(Instant::now())),
            is_batched: AtomicBool::new(false),
        }
    }

    /// The number of the next checkpoint.
    fn next_checkpoint(&self) -> u32 {
        let before = self.checkpoints.fetch_add(1, Ordering::Relaxed);
        before.saturating_add(1).min(CHECKPOINT_NUMBER_MAX)
    }

    /// The attempt waits for others that its handler is called with.
    pub(crate) fn begin_gathering(&self) {
        self.is_batched.store(true, Ordering::Relaxed);
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Its handler is called.
    pub(crate) fn end_gathering(&self) {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether its handler is called for others as well.
    pub(crate) fn is_batched(&self) -> bool {
        self.is_batched.load(Ordering::Relaxed)
    }

    /// When its handler was called: not before now, if it was not.
    pub(crate) fn began_at(&self) -> Instant {
        let began = *self.began.lock().unwrap_or_else(PoisonError::into_inner);
        began.unwrap_or_else(Instant::now)
    }

    /// Tells the attempts of one worker from those of others while any of them is there.
    pub(crate) fn worker_key(&self) -> usize {
        self.gathers.as_ref().map_or(0, |gathers| Arc::as_ptr(gathers).addr())
    }

    /// Waits until the attempt is to end.
    pub(crate) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Waits until its worker is shutting down.
    pub(crate) async fn drained(&self) {
        self.draining.cancelled().await;
    }

    /// An attempt that runs a function as far as its record goes, on behalf of this one.
    pub(crate) fn replay(&self, mut claimed: Claimed) -> Self {
        let steps = std::mem::take(&mut claimed.steps);
        let (cancelled, draining) = (self.cancelled.clone(), self.draining.clone());
        let journal = Journal::replay(&steps);
        Attempt { journal, ..Attempt::new(claimed, cancelled, draining) }
            .payloads(self.payload_limit, self.keyring.clone())
    }

    /// The handler lives.
    pub(crate) fn give_sign(&self) {
        *self.last_sign.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// When the handler last gave a sign of life: now, if it waits for the store.
    pub(crate) fn last_sign(&self) -> Instant {
        if self.waits.load(Ordering::Relaxed) > 0 {
            self.give_sign();
        }
        *self.last_sign.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handler waits for the store until this is dropped.
    pub(crate) fn wait_for_store(&self) -> Waiting<'_> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// The handler gave the task back.
    pub(crate) fn hand_back(&self) {
        self.is_handed_back.store(true, Ordering::Relaxed);
    }

    /// Whether the handler gave the task back.
    pub(crate) fn is_handed_back(&self) -> bool {
        self.is_handed_back.load(Ordering::Relaxed)
    }

    /// The same attempt with a place for what its handler says.
    pub(crate) fn gathers(self, gathers: Arc<Gathers>) -> Self {
        Attempt { gathers: Some(gathers), ..self }
    }

    /// The same attempt of a task that is the only one of its run, or is not.
    pub(crate) fn alone(self, is_alone: bool) -> Self {
        Attempt { is_alone, ..self }
    }

    /// Whether its run has no other task.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// The same attempt with the mistake of its worker.
    pub(crate) fn planted(self, planted: Planted) -> Self {
        Attempt { planted, ..self }
    }

    /// Whether its worker is shutting down.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// The time by the store's clock, or a little earlier.
    pub(crate) fn now(&self) -> Timestamp {
        self.claimed.at + self.received.elapsed()
    }

    /// When it is surely not before this time by the store's clock; `None` if that is too far
    /// away to say.
    pub(crate) fn instant_of(&self, time: Timestamp) -> Option<Instant> {
        self.received.checked_add(time.since(self.claimed.at))
    }

    /// Tells the store something. While that is away, or refuses the worker, it is tried again until
    /// the attempt is cancelled; one that was cancelled before still tries once.
    async fn tell<P: Parcel>(
        &self,
        gather: impl Fn(&Gathers) -> &Arc<Gather<P>>,
        parcel: P,
    ) -> Result<P::Answer, StoreError> {
        let Some(gathers) = &self.gathers else {
            return Err(StoreError::Unavailable("no worker runs the attempt".to_owned()));
        };
        // Whoever waits for the store is not silent.
        let _waiting = self.wait_for_store();
        let mut backoff = Backoff::default();
        loop {
            match gather(gathers).tell(parcel.clone()).await {
                Err(error) if error.may_pass() && !self.cancelled.is_cancelled() => {
                    let pause = backoff.next_pause();
                    let (run, task) = (self.claimed.task.run, &self.claimed.spec.name);
                    tracing::warn!(%run, %task, %error, ?pause, "a {} was not kept", P::WHAT);
                    tokio::select! {
                        biased;
                        () = self.cancelled.cancelled() => {}
                        () = tokio::time::sleep(pause) => {}
                    }
                }
                told => return told,
            }
        }
    }

    /// Records what became of calls. Ends the attempt if it cannot be.
    pub(crate) async fn record(&self, steps: Vec<StepWrite>) {
        let held = Held { task: self.claimed.task, fence: self.claimed.fence };
        let told = self.tell(|gathers| &gathers.recordings, Recording { held, steps }).await;
        match told {
            Ok(Answer::Accepted | Answer::AcceptedAlready) => {}
            Ok(Answer::Refused(refusal)) => self.stop(refusal).await,
            Err(error) => self.cut_off(&error).await,
        }
    }

    /// Asks for a signal. Ends the attempt if the task is not its any more.
    pub(crate) async fn take_signal(&self, take: TakeSignal) -> Option<Signalled> {
        match self.tell(|gathers| &gathers.takes, take).await {
            Ok(Ok(taken)) => taken,
            Ok(Err(refusal)) => self.stop(refusal).await,
            Err(error) => self.cut_off(&error).await,
        }
    }

    /// Starts runs. Ends the attempt if the store cannot be reached.
    pub(crate) async fn start_children(&self, starts: Vec<ChildStart>) -> Vec<Born> {
        self.ask(|link| {
            let starts = starts.clone();
            async move { link.start_children(starts).await }
        })
        .await
    }

    /// How many runs a call has started.
    pub(crate) async fn count_children(&self, call: Call) -> ChildCount {
        let task = self.claimed.task;
        self.ask(|link| async move { link.count_children(task, call).await }).await
    }

    /// Runs that a call has started.
    pub(crate) async fn list_children(
        &self,
        call: Call,
        after: Option<u32>,
        limit: usize,
    ) -> Vec<Child> {
        let task = self.claimed.task;
        self.ask(|link| async move { link.list_children(task, call, after, limit).await }).await
    }

    /// The tasks that the run of this attempt is to undo. Ends the attempt if the task is not its
    /// any more.
    pub(crate) async fn read_undo(&self) -> Vec<Claimed> {
        let held = Held { task: self.claimed.task, fence: self.claimed.fence };
        match self.ask(|link| async move { link.read_undo(held).await }).await {
            Ok(tasks) => tasks,
            Err(refusal) => self.stop(refusal).await,
        }
    }

    /// Asks the store, until it answers or the attempt is cancelled.
    async fn ask<T, Fut>(&self, question: impl Fn(Arc<dyn WorkerLink>) -> Fut) -> T
    where
        T: 'static,
        Fut: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let Some(gathers) = &self.gathers else {
            let text = "no worker runs the attempt".to_owned();
            self.cut_off(&StoreError::Unavailable(text)).await;
        };
        self.insist(|| gathers.limited(question(gathers.link()))).await
    }

    /// Asks until there is an answer or the attempt is cancelled, which it ends then.
    pub(crate) async fn insist<T, Fut>(&self, question: impl Fn() -> Fut) -> T
    where
        Fut: Future<Output = Result<T, StoreError>>,
    {
        let _waiting = self.wait_for_store();
        let mut backoff = Backoff::default();
        loop {
            let error = match question().await {
                Ok(answer) => return answer,
                Err(error) if error.may_pass() && !self.cancelled.is_cancelled() => error,
                // The next attempt could not read it either: it would end the same way for ever.
                Err(StoreError::Unreadable(why)) => self.journal.end_unread(why).await,
                Err(error) => self.cut_off(&error).await,
            };
            let pause = backoff.next_pause();
            let (run, task) = (self.claimed.task.run, &self.claimed.spec.name);
            tracing::warn!(%run, %task, %error, ?pause, "no answer");
            tokio::select! {
                biased;
                () = self.cancelled.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Ends an attempt that the store did not listen to.
    pub(crate) async fn stop(&self, refusal: Refusal) -> ! {
        match refusal {
            Refusal::LeaseLost | Refusal::RunCancelled | Refusal::UnknownTask => {
                self.journal.lose();
            }
            Refusal::Invalid => {
                let (task, run) = (&self.claimed.spec.name, self.claimed.task.run);
                let text = format!("a call of task {task:?} of run {run} has another result");
                self.journal.fail(Failure::new(FailureCode::Divergence, text));
            }
        }
        never().await
    }

    /// Ends an attempt that does not reach the store.
    async fn cut_off(&self, error: &StoreError) -> ! {
        let (run, task) = (self.claimed.task.run, &self.claimed.spec.name);
        tracing::warn!(%run, %task, %error, "cut off");
        self.journal.lose();
        never().await
    }

    /// The same attempt with another limit on what its handler may return and note, and with what
    /// seals it, if anything does.
    pub(crate) fn payloads(self, limit: PayloadLimit, keyring: Option<Arc<Keyring>>) -> Self {
        Attempt { payload_limit: limit, keyring, ..self }
    }

    /// The newest note of the handler that was not taken yet.
    pub(crate) fn take_progress(&self) -> Option<Payload> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives a note back that was taken, unless there is a newer one.
    pub(crate) fn put_back_progress(&self, note: Payload) {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(note);
    }

    fn note_progress(&self, note: Payload) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(note);
    }
}

/// A call of a handler's that waits for the store.
pub(crate) struct Waiting<'a>(&'a Attempt);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.give_sign();
        self.0.waits.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a handler is handed: the run's input, and what it needs to know about the
/// attempt. Cheap to clone.
///
/// # Handlers may run more than once
///
/// A task that succeeded is never run again, but an attempt may be cut off after
/// its effects and before its end is recorded, and is then tried again. A worker
/// that lost its lease without noticing may even still run an attempt while
/// another worker runs the next one. The record is safe, because every write of a
/// worker carries the [`fence`](Ctx::fence) and an older one is refused. A
/// handler that writes to a system of its own can be as safe by doing the same:
/// store the fence with the data, and write only if the stored one is not larger.
///
/// ```
/// use windlass::{Ctx, TaskError};
/// # struct Order { id: u64 }
/// # struct Database;
/// # impl Database { async fn execute(&self, _: &str, _: (u64, u64)) -> Result<(), TaskError> { Ok(()) } }
///
/// async fn reserve(ctx: Ctx<Order>, database: &Database) -> Result<(), TaskError> {
///     let sql = "insert into reservations (id, fence) values ($1, $2)
///         on conflict (id) do update set fence = excluded.fence
///         where reservations.fence <= excluded.fence";
///     database.execute(sql, (ctx.input().id, ctx.fence().0)).await
/// }
/// ```
pub struct Ctx<I> {
    attempt: Arc<Attempt>,
    input: Arc<I>,
}

impl<I> Ctx<I> {
    pub(crate) fn new(attempt: Arc<Attempt>, input: I) -> Self {
        Ctx { attempt, input: Arc::new(input) }
    }

    pub(crate) fn inner(&self) -> &Arc<Attempt> {
        &self.attempt
    }

    /// The input of the run.
    pub fn input(&self) -> &I {
        &self.input
    }

    /// The run the task belongs to.
    pub fn run_id(&self) -> RunId {
        self.attempt.claimed.task.run
    }

    /// The name of the workflow.
    pub fn workflow(&self) -> &WorkflowName {
        &self.attempt.claimed.workflow
    }

    /// The version of the workflow the run was started with.
    pub fn version(&self) -> Version {
        self.attempt.claimed.version
    }

    /// The name of the task.
    pub fn task(&self) -> &TaskName {
        &self.attempt.claimed.spec.name
    }

    /// Whose run it is.
    pub fn tenant(&self) -> &Tenant {
        &self.attempt.claimed.tenant
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt.claimed.attempt
    }

    /// The number of attempts the retry policy allows, the first one included.
    pub fn max_attempts(&self) -> u32 {
        self.attempt.claimed.spec.retry.max_attempts()
    }

    /// Whether no attempt follows if this one fails.
    pub fn is_last_attempt(&self) -> bool {
        self.attempt() >= self.max_attempts()
    }

    /// Why the attempt before this one failed; `None` if this is the first, or the first since its
    /// function rested.
    ///
    /// A handler that must know whether the last one may still be at work, or how far it came, looks
    /// for [`FailureCode::LeaseExpired`]: its worker was lost, and nobody knows.
    ///
    /// ```
    /// # use windlass::{Ctx, FailureCode, TaskError};
    /// # async fn is_paid(_: u64) -> Result<bool, TaskError> { Ok(true) }
    /// # async fn pay(_: u64) -> Result<(), TaskError> { Ok(()) }
    /// async fn charge(ctx: Ctx<u64>) -> Result<(), TaskError> {
    ///     let lost = ctx.last_failure().is_some_and(|last| last.code == FailureCode::LeaseExpired);
    ///     if lost && is_paid(*ctx.input()).await? {
    ///         return Ok(());
    ///     }
    ///     pay(*ctx.input()).await
    /// }
    /// ```
    pub fn last_failure(&self) -> Option<&Failure> {
        self.attempt.claimed.last_failure.as_ref().filter(|_| self.attempt() > 1)
    }

    /// The fence of this attempt, larger than that of every earlier attempt of the
    /// task. Write it with your own data to keep an outlived attempt from
    /// overwriting what its successor wrote, as shown [above](Ctx).
    pub fn fence(&self) -> Fence {
        self.attempt.claimed.fence
    }

    /// Whether the handler should end: its run was cancelled, it took longer than its
    /// timeout, its lease is lost or may be, or the worker's grace period ends. It
    /// has a little time to clean up
    /// ([`cancel_grace`](crate::WorkerBuilder::cancel_grace)), then it is dropped.
    ///
    /// A result that it still returns counts if the lease is held and the timeout
    /// has not passed; an error counts as an interruption, and the task is tried
    /// again at once as far as attempts last.
    pub fn is_cancelled(&self) -> bool {
        self.attempt.cancelled.is_cancelled()
    }

    /// Whether the function is only run to say how its steps are undone, and no call of it is
    /// begun: for tests that count how often handlers are called.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn is_undoing(&self) -> bool {
        self.attempt.journal.is_undoing()
    }

    /// Waits until the handler should end, see [`is_cancelled`](Ctx::is_cancelled).
    /// Cancel safe.
    ///
    /// ```
    /// # use windlass::{Ctx, TaskError};
    /// # async fn download(_: &str) -> Result<u64, TaskError> { Ok(7) }
    /// # async fn remove_partial_file() {}
    /// async fn fetch(ctx: Ctx<String>) -> Result<u64, TaskError> {
    ///     tokio::select! {
    ///         bytes = download(ctx.input()) => bytes,
    ///         () = ctx.cancelled() => {
    ///             remove_partial_file().await;
    ///             Err(TaskError::new("cancelled"))
    ///         }
    ///     }
    /// }
    /// ```
    pub async fn cancelled(&self) {
        self.attempt.cancelled.cancelled().await;
    }

    /// Whether the worker is shutting down: it waits for this attempt, but not
    /// longer than its grace period.
    pub fn is_draining(&self) -> bool {
        self.attempt.draining.is_cancelled()
    }

    /// Waits until the worker is shutting down. Cancel safe.
    pub async fn draining(&self) {
        self.attempt.draining.cancelled().await;
    }

    /// Says how far the attempt is. The worker's next heartbeat passes it on; of
    /// several notes between two heartbeats the last one counts.
    ///
    /// An error of kind [`Payload`](crate::ErrorKind::Payload) if the note has no
    /// JSON form or is too large.
    pub fn progress(&self, note: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let payload = self.attempt.payload_limit.encode(note).map_err(|error| {
            Error::payload(format_args!("progress of task {:?}", self.task()), error)
        })?;
        self.attempt.note_progress(payload);
        self.attempt.give_sign();
        Ok(())
    }

    /// Says that the attempt is alive, for a task with a
    /// [heartbeat timeout](crate::workflow::TaskBuilder::heartbeat_timeout). It costs next to
    /// nothing: it does not leave the process.
    ///
    /// [`progress`](Ctx::progress) and [`checkpoint`](Ctx::checkpoint) say so as well. None of
    /// them has to do with the lease, which the worker keeps by itself.
    pub fn heartbeat(&self) {
        self.attempt.give_sign();
    }
}

impl<I> Clone for Ctx<I> {
    fn clone(&self) -> Self {
        Ctx { attempt: Arc::clone(&self.attempt), input: Arc::clone(&self.input) }
    }
}

impl<I> fmt::Debug for Ctx<I> {
    /// Names the attempt. The input is left out: it may hold what no log should.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx")
            .field("run", &self.run_id())
            .field("task", self.task())
            .field("attempt", &self.attempt())
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}
