//! The server, through its doors.

mod fuzz;
mod grpc_worker;
mod place;
