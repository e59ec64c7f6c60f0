//! The server of Windlass.

pub mod grpc;
pub mod identity;
