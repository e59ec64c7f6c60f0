//! Durable workflows on plain PostgreSQL.

mod error;
pub mod store;

pub use error::{Error, ErrorKind};
