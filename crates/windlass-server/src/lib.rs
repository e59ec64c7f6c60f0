//! The server of Windlass.

pub mod grpc;
