//! Messages that one call of a handler deals with together.
//!
//! Each message is a task of its own, with its own claim, slot and lease, and runs an attempt like
//! any other. That attempt does not call the handler by itself: it takes a seat in the batch that
//! is open at its worker, and waits until the batch is full or the oldest seat has waited long
//! enough. Then the handler is called once with all of them, and each attempt ends with its own
//! outcome.
//!
//! The call belongs to no attempt: whichever of them is polled polls it, so it goes on when the
//! others have been cancelled or were too late, and dies with its process.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use windlass_core::{Failure, FailureCode, Outcome};

use super::handler::{Body, Handler, failed, outcome_of};
use crate::context::{Attempt, Ctx};
use crate::worker::panicked;

/// When a batch is complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// How many messages it has at most.
    pub(super) size: usize,
    /// How long the oldest of them waits for others.
    pub(super) wait: Duration,
}

/// The batches of one task that are open.
struct Batches<I, R> {
    shape: Shape,
    open: Mutex<Open<I, R>>,
}

struct Open<I, R> {
    /// By the worker, whose attempts do not mix with those of others.
    batches: HashMap<usize, Gathering<I, R>>,
    last_seat: u64,
}

/// A batch that others may still join.
struct Gathering<I, R> {
    batch: Arc<Batch>,
    seats: Vec<(u64, Ctx<I>, R)>,
}

/// A batch, as those who are in it see it.
struct Batch {
    /// When its handler is called, however few they are.
    due: Instant,
    /// Told when it is complete.
    complete: CancellationToken,
    call: OnceLock<Call>,
}

impl<I, R, F> Body<I, R, F>
where
    I: DeserializeOwned + Send + Sync + 'static,
    R: Send + 'static,
{
    /// Forgets the types of a handler of batches.
    pub(super) fn erase_batch<Fut, O, E>(self, shape: Shape) -> Handler
    where
        F: Fn(Vec<(Ctx<I>, R)>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Vec<Result<O, E>>> + Send + 'static,
        O: Serialize,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let open = Mutex::new(Open { batches: HashMap::new(), last_seat: 0 });
        let (body, batches) = (Arc::new(self), Arc::new(Batches { shape, open }));
        Arc::new(move |attempt| {
            let (body, batches) = (Arc::clone(&body), Arc::clone(&batches));
            Box::pin(async move {
                attempt.begin_gathering();
                let (ctx, values) = match body.ready(Arc::clone(&attempt)) {
                    Ok(ready) => ready,
                    Err(outcome) => return outcome,
                };
                let call = |seats| Call::new(Arc::clone(&body), seats);
                let seat = batches.sit_down(&attempt, ctx, values, &call);
                if let Some(outcome) = seat.wait(&call).await {
                    return outcome;
                }
                // Whoever completes it may be about to say so.
                seat.batch.complete.cancelled().await;
                attempt.end_gathering();
                match seat.batch.call.get() {
                    Some(call) => call.outcome(seat.number).await,
                    None => Outcome::Interrupted,
                }
            })
        })
    }
}

impl<I, R> Batches<I, R> {
    fn open(&self) -> MutexGuard<'_, Open<I, R>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat in the open batch of a worker. Who takes the last one completes it.
    fn sit_down<'a>(
        &'a self,
        attempt: &'a Attempt,
        ctx: Ctx<I>,
        values: R,
        call: &impl Fn(Vec<(u64, Ctx<I>, R)>) -> Call,
    ) -> Seat<'a, I, R> {
        let worker = attempt.worker_key();
        let mut open = self.open();
        open.last_seat += 1;
        let number = open.last_seat;
        let gathering = open.batches.entry(worker).or_insert_with(|| {
            let (due, complete) = (Instant::now() + self.shape.wait, CancellationToken::new());
            let batch = Arc::new(Batch { due, complete, call: OnceLock::new() });
            Gathering { batch, seats: Vec::new() }
        });
        gathering.seats.push((number, ctx, values));
        let batch = Arc::clone(&gathering.batch);
        let is_full = gathering.seats.len() >= self.shape.size;
        let full = if is_full { open.batches.remove(&worker) } else { None };
        drop(open);
        if let Some(full) = full {
            full.begin(call);
        }
        Seat { batches: self, attempt, worker, number, batch }
    }
}

impl<I, R> Gathering<I, R> {
    /// Nobody joins it any more: lets those who are in it know their call.
    fn begin(self, call: &impl Fn(Vec<(u64, Ctx<I>, R)>) -> Call) {
        let Gathering { batch, seats } = self;
        batch.call.get_or_init(|| call(seats));
        batch.complete.cancel();
    }
}

/// A place in a batch. Dropped before the batch is complete, it is free again.
struct Seat<'a, I, R> {
    batches: &'a Batches<I, R>,
    attempt: &'a Attempt,
    worker: usize,
    number: u64,
    batch: Arc<Batch>,
}

impl<I, R> Seat<'_, I, R> {
    /// Waits until the batch is complete; the outcome is that of an attempt that leaves before.
    async fn wait(&self, call: &impl Fn(Vec<(u64, Ctx<I>, R)>) -> Call) -> Option<Outcome> {
        // Whoever waits for others is not silent.
        let _waiting = self.attempt.wait_for_store();
        tokio::select! {
            biased;
            () = self.batch.complete.cancelled() => None,
            () = self.attempt.cancelled() => self.leave().then_some(Outcome::Interrupted),
            () = self.attempt.drained() => self.leave().then(|| {
                // It was not begun: whoever has it next has all its attempts.
                self.attempt.hand_back();
                Outcome::Interrupted
            }),
            () = sleep_until(self.batch.due) => {
                self.complete(call);
                None
            }
        }
    }

    /// Completes the batch, if nobody has.
    fn complete(&self, call: &impl Fn(Vec<(u64, Ctx<I>, R)>) -> Call) {
        let mut open = self.batches.open();
        let is_open = |one: &Gathering<I, R>| Arc::ptr_eq(&one.batch, &self.batch);
        if !open.batches.get(&self.worker).is_some_and(is_open) {
            return;
        }
        let Some(gathering) = open.batches.remove(&self.worker) else { return };
        drop(open);
        gathering.begin(call);
    }

    /// Gives the seat up; answers whether it could.
    fn leave(&self) -> bool {
        let mut open = self.batches.open();
        let is_open = |one: &&mut Gathering<I, R>| Arc::ptr_eq(&one.batch, &self.batch);
        let Some(gathering) = open.batches.get_mut(&self.worker).filter(is_open) else {
            return false;
        };
        let place = gathering.seats.iter().position(|(number, ..)| *number == self.number);
        let left = place.map(|place| gathering.seats.remove(place));
        if gathering.seats.is_empty() {
            open.batches.remove(&self.worker);
        }
        drop(open);
        // Without the lock: it is a value of the user's.
        left.is_some()
    }
}

impl<I, R> Drop for Seat<'_, I, R> {
    fn drop(&mut self) {
        self.leave();
    }
}

type Outcomes = Pin<Box<dyn Future<Output = Vec<Outcome>> + Send>>;

/// A call of the handler, which everyone in the batch polls.
struct Call {
    /// Who is in it, in the order in which the handler is given them.
    seats: Vec<u64>,
    /// `None` once it is over.
    work: Mutex<Option<Outcomes>>,
    /// What came of it for each; `None` until it is over.
    outcomes: Mutex<Option<Vec<Outcome>>>,
    bell: Arc<Bell>,
}

/// Wakes all who are in a batch.
#[derive(Default)]
struct Bell(Mutex<HashMap<u64, Waker>>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let sleepers = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        sleepers.into_values().for_each(Waker::wake);
    }
}

impl Call {
    fn new<I, R, F, Fut, O, E>(body: Arc<Body<I, R, F>>, seats: Vec<(u64, Ctx<I>, R)>) -> Call
    where
        I: Send + Sync + 'static,
        R: Send + 'static,
        F: Fn(Vec<(Ctx<I>, R)>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Vec<Result<O, E>>> + Send + 'static,
        O: Serialize,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let numbers = seats.iter().map(|(number, ..)| *number).collect();
        let attempts: Vec<Arc<Attempt>> =
            seats.iter().map(|(_, ctx, _)| Arc::clone(ctx.inner())).collect();
        let messages = seats.into_iter().map(|(_, ctx, values)| (ctx, values)).collect();
        let work = async move {
            let results = (body.call)(messages).await;
            let (given, wanted) = (results.len(), attempts.len());
            if given != wanted {
                let text =
                    format!("the handler gave {given} outcomes for a batch of {wanted} messages");
                let failure = Failure::new(FailureCode::Error, text);
                return vec![Outcome::Failed(failure); wanted];
            }
            let outcome = |(attempt, result): (&Arc<Attempt>, Result<O, E>)| match result {
                Ok(output) => {
                    outcome_of(&attempt.claimed.spec.name, attempt.payload_limit, &output)
                }
                Err(error) => failed(attempt, &*error.into()),
            };
            attempts.iter().zip(results).map(outcome).collect()
        };
        Call {
            seats: numbers,
            work: Mutex::new(Some(Box::pin(work))),
            outcomes: Mutex::new(None),
            bell: Arc::default(),
        }
    }

    /// What came of it for one who is in it.
    async fn outcome(&self, seat: u64) -> Outcome {
        poll_fn(|context| self.poll(seat, context)).await
    }

    fn poll(&self, seat: u64, context: &mut Context<'_>) -> Poll<Outcome> {
        let sleepers = || self.bell.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Before anyone looks: whatever happens from here on is heard.
        sleepers().insert(seat, context.waker().clone());
        if let Some(outcome) = self.ended(seat) {
            return Poll::Ready(outcome);
        }
        // Whoever is at it wakes the others when it is over, and so does what it waits for.
        let mut work = match self.work.try_lock() {
            Ok(work) => work,
            Err(TryLockError::Poisoned(work)) => work.into_inner(),
            Err(TryLockError::WouldBlock) => return Poll::Pending,
        };
        let Some(running) = work.as_mut() else {
            drop(work);
            return self.ended(seat).map_or(Poll::Pending, Poll::Ready);
        };
        let waker = Waker::from(Arc::clone(&self.bell));
        let polled = catch_unwind(AssertUnwindSafe(|| {
            running.as_mut().poll(&mut Context::from_waker(&waker))
        }));
        let outcomes = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(outcomes)) => outcomes,
            Err(payload) => vec![panicked(payload); self.seats.len()],
        };
        *self.outcomes.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcomes);
        *work = None;
        drop(work);
        Arc::clone(&self.bell).wake();
        self.ended(seat).map_or(Poll::Pending, Poll::Ready)
    }

    /// The outcome of one who is in it, once it is over.
    fn ended(&self, seat: u64) -> Option<Outcome> {
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let place = self.seats.iter().position(|one| *one == seat)?;
        outcomes.as_ref()?.get(place).cloned()
    }
}
