//! What a handler leaves for the next attempts of its task.

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::Payload;

use super::Ctx;
use crate::error::{Error, ErrorKind};
use crate::store::{Answer, Checkpoint, Held, Refusal};

impl<I> Ctx<I> {
    /// Keeps a value for the next attempts of the task: when this returns, it is as durable as
    /// an output. It takes the place of the one before, and is gone when the task has ended. Of those
    /// of one attempt the one that was asked for last counts, also if another reaches the store later.
    ///
    /// Checkpoints that the handlers of a worker write at the same time share one operation of
    /// the store. While the store is away, it is tried again until the attempt is
    /// [cancelled](Ctx::is_cancelled); one that was cancelled before still tries once, so that a
    /// handler can write its last checkpoint while it cleans up.
    ///
    /// ```
    /// # use windlass::{Ctx, TaskError};
    /// # async fn import_row(_: usize) -> Result<(), TaskError> { Ok(()) }
    /// async fn import(ctx: Ctx<usize>) -> Result<(), TaskError> {
    ///     let first = ctx.last_checkpoint()?.unwrap_or(0);
    ///     for row in first..*ctx.input() {
    ///         import_row(row).await?;
    ///         if row % 100 == 99 {
    ///             ctx.checkpoint(&(row + 1)).await?;
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::LeaseLost`] if the task is not this attempt's any more: another one may
    /// have begun, and what this one does has no effect. [`ErrorKind::Conflict`] if the run was
    /// cancelled, [`ErrorKind::Payload`] if the value has no JSON form or is too large, and
    /// [`ErrorKind::Unavailable`] if the store did not answer until the attempt was cancelled.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the value may be kept or not.
    pub async fn checkpoint(&self, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let what = format!("checkpoint of task {:?} of run {}", self.task(), self.run_id());
        let value = self.attempt.payload_limit.encode(value);
        let value = value.map_err(|error| Error::payload(&what, error))?;
        let held = Held { task: self.attempt.claimed.task, fence: self.attempt.claimed.fence };
        let number = self.attempt.next_checkpoint();
        let checkpoint = Checkpoint { held, number, value };
        let refusal = match self.attempt.tell(|gathers| &gathers.checkpoints, checkpoint).await? {
            Answer::Accepted | Answer::AcceptedAlready => return Ok(()),
            Answer::Refused(refusal) => refusal,
        };
        let (kind, why) = match refusal {
            Refusal::LeaseLost => (ErrorKind::LeaseLost, "the lease of this attempt is lost"),
            Refusal::RunCancelled => (ErrorKind::Conflict, "the run was cancelled"),
            Refusal::UnknownTask => (ErrorKind::NotFound, "there is no such task"),
            Refusal::Invalid => (ErrorKind::Payload, "it cannot be stored"),
        };
        Err(Error::new(kind, format!("{what} was refused: {why}")))
    }

    /// The newest value that an earlier attempt of the task [kept](Ctx::checkpoint), `None` if
    /// there is none. What this attempt keeps does not change it.
    ///
    /// It outlives failed attempts, lost workers and hand-backs. A retry of the run that
    /// resets the task begins without one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Payload`] if it is not of this type, such as one that another version of
    /// the program wrote.
    pub fn last_checkpoint<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        let value = self.attempt.claimed.checkpoint.as_ref().map(Payload::decode).transpose();
        value.map_err(|error| {
            Error::payload(format_args!("checkpoint of task {:?}", self.task()), error)
        })
    }
}
