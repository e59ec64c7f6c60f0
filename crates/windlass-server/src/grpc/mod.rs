//! What is asked for over gRPC.

mod client;

pub use client::ClientApi;
