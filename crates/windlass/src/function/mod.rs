//! Durable functions: ordinary async Rust whose steps are remembered.
//!
//! A handler that calls [`Ctx::step`](crate::Ctx::step), [`Ctx::sleep`](crate::Ctx::sleep) or
//! [`Ctx::signal`](crate::Ctx::signal) is a durable function. After a crash, a deploy or a sleep
//! of a month it is run again from its beginning, and every call that has a result gives that
//! result at once, so that it goes on where it was. A [`Function`] is a workflow of one such
//! task; a task of a DAG can be one as well.
//!
//! # What a function may do
//!
//! Between its steps a function decides by what it knows: its input and the results of its
//! calls. What depends on anything else (the time, chance, a file, the network) belongs into a
//! step, or is asked of the context ([`Ctx::now`](crate::Ctx::now),
//! [`Ctx::random`](crate::Ctx::random)). Several calls may be under way at once, joined or
//! selected in any way that needs no other task or thread.
//!
//! A function that does otherwise makes other calls when it is run again. That is found out
//! before it does anything, and the attempt fails with the code `divergence`.
//!
//! While a function waits and nothing of it is at work, it is parked: it is dropped, its slot
//! goes to others, and no process is needed until it goes on.

mod any;
mod calls;
mod children;
mod driver;
mod journal;
mod step;
#[cfg(feature = "postgres")]
mod transaction;
mod undo;
mod workflow;

pub use any::{OneOf2, OneOf3, OneOf4, WaitAny};
pub use calls::{Signal, SignalOrTimeout, Sleep};
pub use children::{CHILDREN_MAX, Map, Run};
pub(crate) use driver::Driven;
pub(crate) use journal::{Journal, never};
pub use step::Step;
pub(crate) use undo::undo_handler;
pub use windlass_core::{Call, StepKind, StepRecord, StepResult, StepState};
pub use workflow::{Function, FunctionBuilder};
