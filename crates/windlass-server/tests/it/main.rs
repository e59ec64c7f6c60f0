//! The server, through its doors.

mod contract;
mod fuzz;
mod grpc_client;
mod grpc_door;
mod grpc_worker;
mod served;
