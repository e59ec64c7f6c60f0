//! Runs an attempt, and sees when its function has nothing to do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use tokio::time::{Instant, Sleep, sleep_until};
use windlass_core::{Failure, FailureCode, Outcome, StepWrite};

use super::journal::{PATIENCE, Rest};
use super::undo::Undo;
use crate::context::Attempt;
use crate::worker::panicked;
use crate::workflow::HandlerFuture;

/// How often a function is run before others of the same thread have their turn.
const TURNS_MAX: usize = 128;

/// What is being recorded, and the call that does it.
type Recording = (Vec<StepWrite>, Pin<Box<dyn Future<Output = ()> + Send>>);

/// Where a function was, and how long it may stay there.
type Patience = ((u32, usize), Pin<Box<Sleep>>);

/// A handler with the memory of its function. A handler that makes no call is run as it is.
pub(crate) struct Driven {
    handler: HandlerFuture,
    attempt: Arc<Attempt>,
    alarm: Arc<Alarm>,
    /// Records what waits while other calls are at work.
    recording: Option<Recording>,
    /// When the first wait ends that the function need not be parked for.
    timer: Option<Pin<Box<Sleep>>>,
    /// How far a function was that makes no progress, and how long that may last.
    patience: Option<Patience>,
}

/// Wakes the task that runs a function, and remembers that it did.
#[derive(Default)]
struct Alarm {
    is_set: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.is_set.store(true, Ordering::Release);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// How far a function came.
enum Turn {
    Ended(Outcome),
    /// It cannot go on by itself.
    Resting,
    /// It could go on, and others come first.
    Unfinished,
}

impl Driven {
    pub(crate) fn new(handler: HandlerFuture, attempt: Arc<Attempt>) -> Self {
        let alarm = Arc::default();
        Driven { handler, attempt, alarm, recording: None, timer: None, patience: None }
    }

    /// Runs the function until it cannot go on by itself.
    fn turn(&mut self, context: &mut Context<'_>) -> Turn {
        if !self.attempt.journal.is_used() {
            // Its first call may be made by another task of the runtime.
            self.attempt.journal.drive(context.waker());
            match self.handler.as_mut().poll(context) {
                Poll::Ready(outcome) => return Turn::Ended(outcome),
                Poll::Pending if !self.attempt.journal.is_used() => return Turn::Unfinished,
                Poll::Pending => {}
            }
        }
        let task = context.waker().clone();
        *self.alarm.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        let waker = Waker::from(Arc::clone(&self.alarm));
        self.attempt.journal.drive(&waker);
        let mut turns = 0;
        loop {
            self.alarm.is_set.store(false, Ordering::Release);
            let polled = self.handler.as_mut().poll(&mut Context::from_waker(&waker));
            let journal = &self.attempt.journal;
            if let Some(outcome) = journal.stopped(&self.attempt) {
                return Turn::Ended(outcome);
            }
            if let Poll::Ready(outcome) = polled {
                return Turn::Ended(journal.end(&self.attempt, outcome));
            }
            turns += 1;
            if turns == TURNS_MAX {
                context.waker().wake_by_ref();
                return Turn::Unfinished;
            }
            let is_awake = self.alarm.is_set.load(Ordering::Acquire);
            if !is_awake && !journal.release_next(self.attempt.planted) {
                return Turn::Resting;
            }
        }
    }

    /// Sees to the waits of a function that also has calls at work: they are recorded as if it
    /// were parked, and end when their time has come.
    fn poll_waits(&mut self, context: &mut Context<'_>) {
        if self.recording.is_none() {
            let writes = self.attempt.journal.unrecorded();
            if !writes.is_empty() {
                let attempt = Arc::clone(&self.attempt);
                let steps = writes.clone();
                let record = Box::pin(async move { attempt.record(steps).await });
                self.recording = Some((writes, record));
            }
        }
        if let Some((writes, record)) = &mut self.recording
            && record.as_mut().poll(context).is_ready()
        {
            self.attempt.journal.recorded(writes);
            self.recording = None;
        }
        let Some(end) = self.attempt.journal.next_end() else { return };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if timer.deadline() != end {
            timer.as_mut().reset(end);
        }
        if timer.as_mut().poll(context).is_ready() {
            self.timer = None;
            self.attempt.journal.end_waits(Instant::now());
        }
    }

    /// Runs the function until it cannot go on by itself; a panic ends it as an error does.
    fn caught_turn(&mut self, context: &mut Context<'_>) -> Turn {
        // It is not run again after a panic, and what it told the journal is whole.
        catch_unwind(AssertUnwindSafe(|| self.turn(context)))
            .unwrap_or_else(|payload| Turn::Ended(panicked(payload)))
    }

    /// Runs a function as far as its record goes, and answers what undoes its steps, in the
    /// order of their results.
    pub(super) async fn collect(mut self) -> Result<Vec<Undo>, Failure> {
        let ended = std::future::poll_fn(|context| match self.caught_turn(context) {
            Turn::Ended(outcome) => Poll::Ready(Some(outcome)),
            Turn::Unfinished => Poll::Pending,
            Turn::Resting if self.attempt.journal.is_replayed() => Poll::Ready(None),
            Turn::Resting => self.poll_patience(context).map(Some),
        });
        let ended = ended.await;
        let undos = self.attempt.journal.take_undos(&self.attempt);
        match ended {
            // What keeps it from getting there says more than that it did not.
            Some(Outcome::Failed(failure))
                if undos.is_err() || failure.code == FailureCode::Divergence =>
            {
                Err(failure)
            }
            Some(_) | None => undos,
        }
    }

    /// Waits for a function that does not move until it is plain that it never will.
    fn poll_patience(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let place = self.attempt.journal.place();
        let new = || (place, Box::pin(sleep_until(Instant::now() + PATIENCE)));
        let mut patience = match self.patience.take() {
            Some(patience) if patience.0 == place => patience,
            Some(_) | None => new(),
        };
        let polled = patience.1.as_mut().poll(context);
        self.patience = Some(patience);
        ready!(polled);
        Poll::Ready(self.attempt.journal.give_up(&self.attempt))
    }
}

impl Future for Driven {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        loop {
            match self.turn(context) {
                Turn::Ended(outcome) => return Poll::Ready(outcome),
                Turn::Unfinished => return Poll::Pending,
                Turn::Resting => {}
            }
            match self.attempt.journal.rest(self.attempt.is_draining()) {
                Rest::Busy => {
                    self.poll_waits(context);
                    return match self.attempt.journal.stopped(&self.attempt) {
                        Some(outcome) => Poll::Ready(outcome),
                        None => Poll::Pending,
                    };
                }
                Rest::Stalled => match self.attempt.journal.stopped(&self.attempt) {
                    Some(outcome) => return Poll::Ready(outcome),
                    None => return self.poll_patience(context),
                },
                Rest::Parked(parking) if self.recording.is_none() => {
                    return Poll::Ready(Outcome::Parked(parking));
                }
                Rest::Parked(_) => {
                    self.poll_waits(context);
                    if let Some(outcome) = self.attempt.journal.stopped(&self.attempt) {
                        return Poll::Ready(outcome);
                    }
                    if self.recording.is_some() {
                        return Poll::Pending;
                    }
                }
                Rest::Elsewhere => return Poll::Pending,
            }
        }
    }
}
