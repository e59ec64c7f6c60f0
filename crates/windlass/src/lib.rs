//! Durable workflows on plain PostgreSQL.

pub mod clock;
mod context;
mod error;
mod planted;
pub mod store;
mod task_error;
pub mod workflow;

#[cfg(feature = "planted-bugs")]
pub use planted::PlantedBug;

pub use context::Ctx;
pub use error::{Error, ErrorKind};
pub use task_error::TaskError;
pub use windlass_core::{
    Definition, Failure, FailureCode, Fence, RetryPolicy, RunId, TaskName, Tenant, Trigger,
    Version, WorkflowName,
};
pub use workflow::{Registration, Task, Workflow, WorkflowBuilder};
