//! Handlers without their types, as a worker calls them.
//!
//! A typed handler and what it reads become one function from an attempt to its
//! outcome. Everything that can go wrong with a value on the way in or out is an
//! outcome too. Panics are not caught here: the worker does that, for decoding,
//! conditions and handlers alike.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::{Failure, FailureCode, Outcome, PayloadLimit, TaskName};

use crate::context::{Attempt, Ctx};
use crate::store::Claimed;
use crate::task_error::{failure_of, is_hand_back, new_input};

/// One attempt on its way to an outcome. Nothing happens before it is polled.
pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Runs one attempt of a task.
pub(crate) type Handler = Arc<dyn Fn(Arc<Attempt>) -> HandlerFuture + Send + Sync>;

/// Finds and decodes what a handler reads.
pub(super) type Reader<R> = Box<dyn Fn(&Claimed) -> Result<R, Failure> + Send + Sync>;

/// Says whether a task runs.
pub(super) type Condition<I, R> = Box<dyn Fn(&Ctx<I>, &R) -> bool + Send + Sync>;

/// A typed handler with everything that comes before its call.
pub(super) struct Body<I, R, F> {
    pub(super) read: Reader<R>,
    pub(super) conditions: Vec<Condition<I, R>>,
    pub(super) call: F,
}

impl<I, R, F> Body<I, R, F>
where
    I: DeserializeOwned + Send + Sync + 'static,
    R: 'static,
{
    /// Forgets the types.
    pub(super) fn erase<Fut, O, E>(self) -> Handler
    where
        F: Fn(Ctx<I>, R) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        O: Serialize,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let body = Arc::new(self);
        Arc::new(move |attempt| {
            let body = Arc::clone(&body);
            Box::pin(async move {
                let spec = Arc::clone(&attempt.claimed.spec);
                let limit = attempt.payload_limit;
                let running = match body.begin(Arc::clone(&attempt)) {
                    Ok(running) => running,
                    Err(outcome) => return outcome,
                };
                match running.await.map_err(Into::into) {
                    Ok(output) => outcome_of(&spec.name, limit, &output),
                    Err(error) => failed(&attempt, &*error),
                }
            })
        })
    }

    /// The handler's future, or the outcome if it does not come to that.
    fn begin<Fut>(&self, attempt: Arc<Attempt>) -> Result<Fut, Outcome>
    where
        F: Fn(Ctx<I>, R) -> Fut,
    {
        let (ctx, values) = self.ready(attempt)?;
        Ok((self.call)(ctx, values))
    }

    /// What the handler is called with, or the outcome if it does not come to that.
    pub(super) fn ready(&self, attempt: Arc<Attempt>) -> Result<(Ctx<I>, R), Outcome> {
        let input = attempt.claimed.input.decode().map_err(|error| {
            let what = format_args!("input of task {:?}", attempt.claimed.spec.name);
            Outcome::Failed(payload_failure(what, error))
        })?;
        let values = (self.read)(&attempt.claimed).map_err(Outcome::Failed)?;
        let ctx = Ctx::new(attempt, input);
        if !self.conditions.iter().all(|condition| condition(&ctx, &values)) {
            return Err(Outcome::ConditionFalse);
        }
        Ok((ctx, values))
    }
}

pub(super) fn outcome_of(task: &TaskName, limit: PayloadLimit, output: &impl Serialize) -> Outcome {
    match limit.encode(output) {
        Ok(payload) => Outcome::Returned(payload),
        Err(error) => {
            let what = format_args!("output of task {task:?}");
            Outcome::Failed(payload_failure(what, error))
        }
    }
}

pub(super) fn failed(attempt: &Attempt, error: &(dyn StdError + 'static)) -> Outcome {
    if is_hand_back(error) {
        attempt.hand_back();
        return Outcome::Interrupted;
    }
    match new_input(error) {
        Some(input) => Outcome::Continued(input),
        None => Outcome::Failed(failure_of(error)),
    }
}

/// The failure for a value that cannot be read or written: the next attempt would
/// meet the same value, or the same code that made it.
pub(super) fn payload_failure(what: impl fmt::Display, problem: impl fmt::Display) -> Failure {
    Failure::new(FailureCode::Payload, format!("{what} {problem}")).permanent()
}
