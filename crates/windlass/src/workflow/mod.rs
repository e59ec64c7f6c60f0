//! Workflows in Rust: a typed DAG of tasks and the handlers that run them.
//!
//! A [`WorkflowBuilder`] collects tasks, each given with its policies and its
//! handler, and hands out a [`Task`] handle for each, by which later tasks name
//! their parents. A task can only name what was declared before it, so there is
//! no way to write a cycle. [`WorkflowBuilder::build`] checks the rest and gives
//! the [`Workflow`].
//!
//! This module runs nothing and stores nothing: the definition goes to a store,
//! the handlers to workers.
//!
//! # Mistakes that the compiler finds
//!
//! This compiles; the others, with one mistake each, do not.
//!
//! ```
//! # use std::sync::Arc;
//! # use windlass::{TaskError, Workflow};
//! # let mut order = Workflow::<u64>::builder("order");
//! let charge = order.task("charge").run(async |_| {
//!     let cents = Arc::new(100);
//!     tokio::task::yield_now().await;
//!     Ok::<u64, TaskError>(*cents)
//! });
//! let pack = order.task("pack").run(async |_| Ok::<String, TaskError>("box".into()));
//! order.task("ship").reads(&charge).run(async |_, cents: u64| Ok::<_, TaskError>(cents));
//! ```
//!
//! A read of the wrong type, here a `String` as a `u64`:
//!
//! ```compile_fail,E0631
//! # use windlass::{TaskError, Workflow};
//! # let mut order = Workflow::<u64>::builder("order");
//! let pack = order.task("pack").run(async |_| Ok::<String, TaskError>("box".into()));
//! order.task("ship").reads(&pack).run(async |_, cents: u64| Ok::<_, TaskError>(cents));
//! ```
//!
//! A second `reads`, where a tuple is meant:
//!
//! ```compile_fail,E0599
//! # use windlass::{TaskError, Workflow};
//! # let mut order = Workflow::<u64>::builder("order");
//! let charge = order.task("charge").run(async |_| Ok::<u64, TaskError>(100));
//! let pack = order.task("pack").run(async |_| Ok::<String, TaskError>("box".into()));
//! order.task("ship").reads(&pack).reads(&charge).run(async |_, cents: u64| {
//!     Ok::<_, TaskError>(cents)
//! });
//! ```
//!
//! A read of what is not the handle of a task:
//!
//! ```compile_fail,E0277
//! # use windlass::{TaskError, Workflow};
//! # let mut order = Workflow::<u64>::builder("order");
//! order.task("charge").run(async |_| Ok::<u64, TaskError>(100));
//! order.task("ship").reads("charge").run(async |_, cents: u64| Ok::<_, TaskError>(cents));
//! ```
//!
//! A handler that cannot move between threads, here because of an `Rc`:
//!
//! ```compile_fail
//! # use std::rc::Rc;
//! # use windlass::{TaskError, Workflow};
//! # let mut order = Workflow::<u64>::builder("order");
//! order.task("charge").run(async |_| {
//!     let cents = Rc::new(100);
//!     tokio::task::yield_now().await;
//!     Ok::<u64, TaskError>(*cents)
//! });
//! ```

mod batch;
mod batch_builder;
mod builder;
mod handler;
mod map_builder;
mod reads;
mod task_builder;
#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use windlass_core::{Definition, TaskIndex, Version, WorkflowName};

use crate::error::Error;
use crate::function::undo_handler;

pub use batch_builder::BatchBuilder;
pub use builder::WorkflowBuilder;
pub(crate) use handler::{Handler, HandlerFuture};
pub use map_builder::MapBuilder;
pub use reads::{Optional, Readable, Reads, ReadsNothing};
pub use task_builder::{OnFailureBuilder, SleepBuilder, TaskBuilder};

/// Tells the builders of a process apart, so that a handle of one is not taken for
/// a handle of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BuilderId(u64);

impl BuilderId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Only the numbers' being different matters, not their order.
        BuilderId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A workflow whose runs have an input of type `I`: the checked definition and the
/// handlers. Cheap to clone.
///
/// ```
/// use std::time::Duration;
/// use serde::{Deserialize, Serialize};
/// use windlass::{Ctx, RetryPolicy, TaskError, Workflow};
///
/// #[derive(Serialize, Deserialize)]
/// struct Order { id: u64, cents: u64 }
///
/// #[derive(Serialize, Deserialize)]
/// struct Receipt { cents: u64 }
///
/// async fn charge_card(ctx: Ctx<Order>) -> Result<Receipt, TaskError> {
///     if ctx.input().cents == 0 {
///         return Err(TaskError::new("nothing to charge").permanent());
///     }
///     Ok(Receipt { cents: ctx.input().cents })
/// }
///
/// let mut order = Workflow::<Order>::builder("order").version(2);
/// let charge = order
///     .task("charge")
///     .retry(RetryPolicy::exponential().attempts(3))
///     .timeout(Duration::from_secs(30))
///     .run(charge_card);
/// let window = order.sleep("fraud-window", Duration::from_secs(86_400)).after(&charge).add();
/// order
///     .task("ship")
///     .reads(&charge)
///     .after(&window)
///     .when(|_, receipt| receipt.cents > 100)
///     .run(async |ctx: Ctx<Order>, receipt: Receipt| {
///         Ok::<_, TaskError>(format!("order {} for {}", ctx.input().id, receipt.cents))
///     });
/// let order = order.build()?;
///
/// assert_eq!(order.name().as_str(), "order");
/// assert_eq!(order.definition().tasks().len(), 3);
/// # Ok::<(), windlass::Error>(())
/// ```
pub struct Workflow<I> {
    registration: Registration,
    input: PhantomData<fn(I)>,
}

impl<I> Workflow<I> {
    /// The name.
    pub fn name(&self) -> &WorkflowName {
        self.registration.definition.name()
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.registration.definition.version()
    }

    /// The tasks and their edges, without the handlers.
    pub fn definition(&self) -> &Arc<Definition> {
        &self.registration.definition
    }

    /// What a worker needs to run the tasks.
    pub fn registration(&self) -> Registration {
        self.registration.clone()
    }
}

impl<I> Clone for Workflow<I> {
    fn clone(&self) -> Self {
        Workflow { registration: self.registration.clone(), input: PhantomData }
    }
}

impl<I> fmt::Debug for Workflow<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workflow")
            .field("name", self.name())
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

/// A workflow as a worker takes it, whatever the type of its input. Cheap to
/// clone.
#[derive(Clone)]
pub struct Registration {
    pub(crate) definition: Arc<Definition>,
    /// By task index; none for a sleep.
    pub(crate) handlers: Arc<[Option<Handler>]>,
}

impl Registration {
    /// What a worker needs to undo runs of the workflow.
    pub(crate) fn to_undo(&self) -> Result<Registration, Error> {
        let definition = Arc::new(self.definition.to_undo()?);
        let handlers = Arc::new([Some(undo_handler(self.clone()))]);
        Ok(Registration { definition, handlers })
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("name", self.definition.name())
            .field("version", &self.definition.version())
            .finish_non_exhaustive()
    }
}

impl<I> From<&Workflow<I>> for Registration {
    fn from(workflow: &Workflow<I>) -> Self {
        workflow.registration()
    }
}

/// The handle of a task whose output is an `O`. Later tasks name their parents by
/// it, and the output of a run's task is read by it. Cheap to clone.
pub struct Task<O> {
    builder: BuilderId,
    index: TaskIndex,
    name: Arc<str>,
    output: PhantomData<fn() -> O>,
}

impl<O> Task<O> {
    /// The name of the task.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<O> Clone for Task<O> {
    fn clone(&self) -> Self {
        Task {
            builder: self.builder,
            index: self.index,
            name: Arc::clone(&self.name),
            output: PhantomData,
        }
    }
}

impl<O> fmt::Debug for Task<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Task").field(&self.name).finish()
    }
}
