//! Durable workflows on plain PostgreSQL.

pub mod clock;
mod error;
mod planted;
pub mod store;
mod task_error;

#[cfg(feature = "planted-bugs")]
pub use planted::PlantedBug;

pub use error::{Error, ErrorKind};
pub use task_error::TaskError;
pub use windlass_core::{Failure, FailureCode};
