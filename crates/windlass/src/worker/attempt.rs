//! One attempt: a handler, its timeout, and the ways to end it from outside.

use std::any::Any;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass_core::{Failure, FailureCode, Outcome};

use super::{Parts, Point};
use crate::context::Attempt;
use crate::workflow::{Handler, HandlerFuture};

/// Runs a handler to its outcome. A panic is not caught here: it ends the tokio
/// task, and the session reads it there.
///
/// When `cancelled` fires, the handler has `cancel_grace` to end; then it is
/// dropped, which counts as interrupted.
pub(super) async fn run(
    parts: Parts,
    handler: Handler,
    attempt: Arc<Attempt>,
    cancelled: CancellationToken,
    cancel_grace: Duration,
) -> Outcome {
    let spec = Arc::clone(&attempt.claimed.spec);
    let name = spec.name.as_str();
    parts.reached(Point::BeforeHandler, name).await;
    let handler = Watched { future: handler(attempt), parts: &parts, name, is_begun: false };
    let deadline = async {
        match spec.timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    let interrupted = async {
        cancelled.cancelled().await;
        tokio::time::sleep(cancel_grace).await;
    };
    let outcome = tokio::select! {
        biased;
        outcome = pin!(handler) => outcome,
        () = deadline => {
            cancelled.cancel();
            let message = format!("took longer than {:?}", spec.timeout.unwrap_or_default());
            Outcome::Failed(Failure::new(FailureCode::Timeout, message))
        }
        () = interrupted => {
            let message = "the worker was drained before the attempt ended";
            Outcome::Failed(Failure::new(FailureCode::Interrupted, message))
        }
    };
    parts.reached(Point::AfterHandler, name).await;
    outcome
}

/// A handler's future that tells the probe when it has been polled once. A handler
/// that never waits gives one turn away, so that there is a "during" for it too.
struct Watched<'a> {
    future: HandlerFuture,
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
        self.future.as_mut().poll(context)
    }
}

/// The outcome of a handler that panicked.
pub(super) fn panicked(payload: Box<dyn Any + Send>) -> Outcome {
    let message = match payload.downcast_ref::<&str>() {
        Some(text) => (*text).to_owned(),
        None => match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(_) => "the handler panicked without a message".to_owned(),
        },
    };
    Outcome::Failed(Failure::new(FailureCode::Panic, message))
}
