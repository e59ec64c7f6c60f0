//! The test kit: a whole engine on virtual time.
//!
//! [`TestEngine`] is the everyday part: it runs workflows on a store in memory,
//! lets days pass in microseconds, crashes and freezes workers at points of your
//! choice, and hands out histories to make assertions on. [`crash_everywhere`] runs a
//! workflow once for every place where its worker could die. [`Process`] and
//! [`invariants`] are what simulations are made of. [`contract`] holds a store to
//! what the doc comments of [`Store`](crate::store::Store) and
//! [`WorkerLink`](crate::store::WorkerLink) promise, and [`differential`] two stores to
//! each other.

pub mod contract;
mod crash;
pub mod differential;
mod engine;
mod history;
pub mod invariants;
mod process;
mod script;

pub use crash::{CrashEverywhere, CrashPlace, CrashReport, LinkCall, crash_everywhere};
pub use engine::TestEngine;
pub use history::History;
pub use process::Process;
pub use script::Refused;

pub use crate::worker::Point;
