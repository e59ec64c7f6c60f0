//! The server, through its doors.

mod grpc_worker;
