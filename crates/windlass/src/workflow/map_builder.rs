//! Tasks that map a function over what they read.

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Reads, Task, TaskBuilder};
use crate::context::Ctx;
use crate::function::Function;
use crate::task_error::TaskError;

/// A task under construction that maps a function over a list, made by
/// [`TaskBuilder::map`].
#[must_use = "the task is added by `add`"]
pub struct MapBuilder<'w, I, J, O> {
    task: TaskBuilder<'w, I, Reads<Vec<J>>>,
    function: Function<J, O>,
    concurrency: usize,
    output: PhantomData<fn() -> O>,
}

impl<'w, I, J> TaskBuilder<'w, I, Reads<Vec<J>>>
where
    I: DeserializeOwned + Send + Sync + 'static,
    J: Serialize + Send + 'static,
{
    /// Makes the task start a run of `function` for each element of the list it reads, and give
    /// what all of them gave, in the order of the list; [`add`](MapBuilder::add) adds it. While
    /// they run, the task needs no worker. An empty list gives an empty one.
    ///
    /// If one of the runs fails, the task fails with its error, once all have ended. For more to
    /// decide, write a handler that calls [`Ctx::map`].
    ///
    /// ```
    /// # use windlass::{Ctx, Function, TaskError, Workflow};
    /// let count = Function::new("count", async |ctx: Ctx<u32>| {
    ///     Ok::<u64, TaskError>(u64::from(*ctx.input()) * 100)
    /// })?;
    /// let mut report = Workflow::<u32>::builder("report");
    /// let shops = report.task("shops").run(async |ctx: Ctx<u32>| {
    ///     Ok::<Vec<u32>, TaskError>((1..=*ctx.input()).collect())
    /// });
    /// let counts = report.task("count").reads(&shops).map(&count).concurrency(8).add();
    /// report.task("sum").reads(&counts).run(async |_: Ctx<u32>, counts: Vec<u64>| {
    ///     Ok::<u64, TaskError>(counts.iter().sum())
    /// });
    /// report.build()?;
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn map<O>(self, function: &Function<J, O>) -> MapBuilder<'w, I, J, O>
    where
        O: Serialize + DeserializeOwned + Send + 'static,
    {
        let function = function.clone();
        MapBuilder { task: self, function, concurrency: usize::MAX, output: PhantomData }
    }
}

impl<I, J, O> MapBuilder<'_, I, J, O>
where
    I: DeserializeOwned + Send + Sync + 'static,
    J: Serialize + Send + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
{
    /// How many of the runs are under way at once, at least 1; all of them if nothing is said.
    pub fn concurrency(mut self, most: usize) -> Self {
        self.concurrency = most;
        self
    }

    /// Adds the task, and gives its handle.
    pub fn add(self) -> Task<Vec<O>> {
        let MapBuilder { task, function, concurrency, .. } = self;
        task.run(move |ctx: Ctx<I>, inputs: Vec<J>| {
            let function = function.clone();
            async move {
                let results = ctx.map(&function, inputs).concurrency(concurrency).await?;
                results.into_iter().collect::<Result<Vec<O>, TaskError>>()
            }
        })
    }
}

impl<I, J, O> fmt::Debug for MapBuilder<'_, I, J, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapBuilder")
            .field("function", &self.function)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}
