//! The server as clients see it: over TCP, on a store in memory.

mod connections;
mod document;
mod hostile;
mod operators;
mod refusals;
mod runs;
mod schedules;
mod streams;
mod support;
mod workers;
