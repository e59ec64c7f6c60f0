//! The server, from outside.

mod contract;
mod grpc_client;
mod grpc_door;
mod served;
mod split;
