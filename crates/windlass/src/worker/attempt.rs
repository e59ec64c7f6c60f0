//! One attempt: a handler, its timeout, and the ways to end it from outside.

use std::any::Any;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use windlass_core::{Failure, FailureCode, Outcome};

use super::{Parts, Point};
use crate::context::Attempt;
use crate::function::Driven;
use crate::spans::Ending;
use crate::workflow::Handler;

/// Runs a handler to its outcome. A panic is not caught here: it ends the tokio
/// task, and the session reads it there.
///
/// A handler that takes longer than its timeout, that gives no sign of life for longer than its
/// heartbeat timeout, or that is cancelled from outside, has `cancel_grace` to clean up; then it
/// is dropped. After one of its timeouts, what it still returns does not count.
pub(super) async fn run(
    parts: Parts,
    handler: Handler,
    attempt: Arc<Attempt>,
    cancelled: CancellationToken,
    cancel_grace: Duration,
) -> Outcome {
    let ending = Ending::of_current();
    let spec = Arc::clone(&attempt.claimed.spec);
    let name = spec.name.as_str();
    parts.reached(Point::BeforeHandler, name).await;
    attempt.give_sign();
    attempt.end_gathering();
    let future = Driven::new(handler(Arc::clone(&attempt)), Arc::clone(&attempt));
    let handler = Watched { future, parts: &parts, name, is_begun: false };
    let mut handler = pin!(handler);
    let stopped = tokio::select! {
        biased;
        outcome = &mut handler => Stopped::Ended(outcome),
        limit = deadline(&attempt) => Stopped::Late(format!("took longer than {limit:?}")),
        limit = silence(&attempt) => {
            Stopped::Late(format!("gave no sign of life for {limit:?}"))
        }
        () = cancelled.cancelled() => Stopped::Cancelled,
    };
    let outcome = match stopped {
        Stopped::Ended(outcome) => outcome,
        Stopped::Late(message) => {
            cancelled.cancel();
            // Whether it cleaned up in time or not, it was late.
            let _ = timeout(cancel_grace, handler).await;
            Outcome::Failed(Failure::new(FailureCode::Timeout, message))
        }
        Stopped::Cancelled => match timeout(cancel_grace, handler).await {
            Ok(
                outcome @ (Outcome::Returned(_)
                | Outcome::ConditionFalse
                | Outcome::Parked(_)
                | Outcome::Continued(_)),
            ) => outcome,
            // An error now says no more than that it was cancelled.
            Ok(Outcome::Failed(_) | Outcome::Interrupted) | Err(_) => Outcome::Interrupted,
        },
    };
    ending.tell(&outcome, attempt.keyring.is_some());
    parts.reached(Point::AfterHandler, name).await;
    outcome
}

/// What ended the wait for a handler.
enum Stopped {
    Ended(Outcome),
    Late(String),
    Cancelled,
}

/// Waits until the handler has taken longer than it may; never, if it may take any time. What it
/// waits for others to be called with does not count.
async fn deadline(attempt: &Attempt) -> Duration {
    let Some(limit) = attempt.claimed.spec.timeout else {
        return std::future::pending().await;
    };
    loop {
        let until = attempt.began_at() + limit;
        if Instant::now() >= until {
            return limit;
        }
        sleep_until(until).await;
    }
}

/// Waits until the handler has given no sign of life for as long as it may; never, if it need
/// not give any.
async fn silence(attempt: &Attempt) -> Duration {
    let Some(limit) = attempt.claimed.spec.heartbeat_timeout else {
        return std::future::pending().await;
    };
    loop {
        let until = attempt.last_sign() + limit;
        if Instant::now() >= until {
            return limit;
        }
        sleep_until(until).await;
    }
}

/// A handler's future that tells the probe when it has been polled once. A handler
/// that never waits gives one turn away, so that there is a "during" for it too.
struct Watched<'a> {
    future: Driven,
    parts: &'a Parts,
    name: &'a str,
    is_begun: bool,
}

impl Future for Watched<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        if !self.is_begun
            && let Some(probe) = &self.parts.probe
        {
            probe.reached(Point::DuringHandler, self.name);
            self.is_begun = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Pin::new(&mut self.future).poll(context)
    }
}

/// The outcome of a handler that panicked.
pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> Outcome {
    let message = match payload.downcast_ref::<&str>() {
        Some(text) => (*text).to_owned(),
        None => match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => {
                // Whatever it is, its destructor is as little to be trusted.
                std::mem::forget(payload);
                "the handler panicked without a message".to_owned()
            }
        },
    };
    Outcome::Failed(Failure::new(FailureCode::Panic, message))
}
