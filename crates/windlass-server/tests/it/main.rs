//! The server, from outside.

mod contract;
mod grpc_client;
mod served;
mod split;
