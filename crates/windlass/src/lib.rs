//! Durable workflows on plain PostgreSQL.

pub mod clock;
mod error;
mod planted;
pub mod store;

#[cfg(feature = "planted-bugs")]
pub use planted::PlantedBug;

pub use error::{Error, ErrorKind};
