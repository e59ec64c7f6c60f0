//! The server as clients and workers see it: over TCP and unix sockets.

mod bodies;
mod certificates;
mod connections;
mod contract;
mod document;
mod functions;
mod fuzz;
mod grpc_bodies;
mod grpc_client;
mod grpc_door;
mod grpc_gate;
mod grpc_stream;
mod grpc_worker;
mod hostile;
mod http2;
mod operators;
mod page;
mod permissions;
mod quotas;
mod refusals;
mod rights;
mod runs;
mod schedules;
mod sealed;
mod served;
mod shares;
#[cfg(unix)]
mod sockets;
mod streams;
mod support;
mod tenancy;
mod tls;
mod tokens;
mod wording;
mod words;
mod workers;
