//! The server, from outside.

mod grpc_client;
