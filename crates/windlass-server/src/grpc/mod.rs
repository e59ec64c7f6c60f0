//! gRPC: the door for workers and programs.
//!
//! Thin over a store: messages are read and checked, verbs are said to the store, answers are
//! written. What many workers say is said to the store together ([`gather`]), and workers that
//! have nothing to do are watched for ([`idle`]) instead of asking again and again.

mod gather;
mod idle;
mod worker;

pub use worker::WorkerApi;
