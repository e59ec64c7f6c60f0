//! Tasks whose handler deals with many messages at once.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::batch::Shape;
use super::handler::Body;
use super::{Reads, ReadsNothing, Task, TaskBuilder};
use crate::context::Ctx;

/// A task under construction whose handler is called for many messages at once, made by
/// [`TaskBuilder::batch`].
#[must_use = "the task is added by `run`"]
pub struct BatchBuilder<'w, I, R = ReadsNothing> {
    task: TaskBuilder<'w, I, R>,
    shape: Shape,
}

impl<'w, I, R> TaskBuilder<'w, I, R> {
    /// Makes the handler one for many messages: it is called once for up to `size` tasks of this
    /// kind, of whatever runs, or for as many as there are when the oldest of them has waited for
    /// `wait`; [`run`](BatchBuilder::run) adds the task. For what is cheaper done together: rows
    /// to insert, documents to index, an interface that takes lists.
    ///
    /// Each message is a task as any other, with its own attempts, lease and outcome. A worker
    /// gathers what it has claimed, and each message takes a slot from its claim to its end: give
    /// the worker at least as many slots as a batch is to have. While messages are gathered, no
    /// [timeout](TaskBuilder::timeout) passes, and a worker that drains hands them back, which costs
    /// no attempt.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{Ctx, TaskError, Windlass, Workflow};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut index = Workflow::<String>::builder("index");
    /// let add = index.task("add").batch(100, Duration::from_millis(5)).run(
    ///     async |messages: Vec<Ctx<String>>| {
    ///         let length = |message: &Ctx<String>| match message.input().as_str() {
    ///             "" => Err(TaskError::new("nothing to index").permanent()),
    ///             text => Ok(text.len()),
    ///         };
    ///         messages.iter().map(length).collect()
    ///     },
    /// );
    /// let index = index.build()?;
    /// let windlass = Windlass::memory();
    /// let worker = windlass.worker().register(&index).slots(100).spawn()?;
    /// let runs = [
    ///     windlass.start(&index, "a word".to_owned()).await?,
    ///     windlass.start(&index, String::new()).await?,
    /// ];
    /// runs[1].wait().await?;
    /// runs[0].wait().await?;
    /// assert_eq!(runs[0].output(&add).await?, 6);
    /// # worker.drain().await?;
    /// # Ok(()) }
    /// ```
    pub fn batch(self, size: usize, wait: Duration) -> BatchBuilder<'w, I, R> {
        BatchBuilder { task: self.batched(size, wait), shape: Shape { size, wait } }
    }
}

impl<I> BatchBuilder<'_, I>
where
    I: DeserializeOwned + Send + Sync + 'static,
{
    /// Adds the task with its handler, which gives an outcome for each message, in the order in
    /// which it is given them; which that is is not said.
    ///
    /// If it panics, or gives another number of outcomes than there are messages, the attempts of
    /// all of them have failed. A message that is cancelled, late or lost while the handler has it
    /// [says so](Ctx::is_cancelled), and ends alone: what the handler gives for it does not count.
    /// The handler goes on for the others, and is dropped when nobody is left. It has no
    /// [steps](crate::function): a call of one is an error.
    pub fn run<F, Fut, O, E>(self, handler: F) -> Task<O>
    where
        F: Fn(Vec<Ctx<I>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Vec<Result<O, E>>> + Send + 'static,
        O: Serialize + DeserializeOwned + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let call = move |messages: Vec<(Ctx<I>, ReadsNothing)>| {
            handler(messages.into_iter().map(|(ctx, ReadsNothing)| ctx).collect())
        };
        let BatchBuilder { task, shape } = self;
        task.finish(|read, conditions| Body { read, conditions, call }.erase_batch(shape))
    }
}

impl<I, V> BatchBuilder<'_, I, Reads<V>>
where
    I: DeserializeOwned + Send + Sync + 'static,
    V: Send + 'static,
{
    /// Adds the task with its handler, which is given what each message reads beside it, and gives
    /// an outcome for each, in their order; all else is as [without](BatchBuilder::run) reads.
    pub fn run<F, Fut, O, E>(self, handler: F) -> Task<O>
    where
        F: Fn(Vec<(Ctx<I>, V)>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Vec<Result<O, E>>> + Send + 'static,
        O: Serialize + DeserializeOwned + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let call = move |messages: Vec<(Ctx<I>, Reads<V>)>| {
            handler(messages.into_iter().map(|(ctx, Reads(values))| (ctx, values)).collect())
        };
        let BatchBuilder { task, shape } = self;
        task.finish(|read, conditions| Body { read, conditions, call }.erase_batch(shape))
    }
}

impl<I, R> fmt::Debug for BatchBuilder<'_, I, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchBuilder")
            .field("task", &self.task)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}
