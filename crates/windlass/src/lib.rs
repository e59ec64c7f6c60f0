//! Durable workflows on plain PostgreSQL.
//!
//! A [`Workflow`] is a typed DAG of tasks; a run of it is started with
//! [`Windlass::start`]; workers made by [`Windlass::worker`] claim its tasks, run
//! the handlers and record what came of it. Everything lives in a [`store`], and
//! every wait is a row in it: a run survives the process that works on it.
//!
//! ```
//! use windlass::{Ctx, TaskError, Windlass, Workflow};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut sum = Workflow::<Vec<u32>>::builder("sum");
//! let add = sum.task("add").run(async |ctx: Ctx<Vec<u32>>| {
//!     Ok::<u32, TaskError>(ctx.input().iter().sum())
//! });
//! let double = sum.task("double").reads(&add).run(async |_, sum: u32| {
//!     Ok::<u32, TaskError>(2 * sum)
//! });
//! let sum = sum.build()?;
//!
//! let windlass = Windlass::memory();
//! let worker = windlass.worker().register(&sum).spawn()?;
//! let run = windlass.start(&sum, vec![1, 2, 3]).await?;
//! run.wait().await?;
//! assert_eq!(run.output(&double).await?, 12);
//! worker.drain().await?;
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! - `postgres` (on if nothing is said): PostgreSQL as the home of runs
//!   ([`Windlass::connect`]).
//! - `sqlx`: starts inside the transactions of sqlx 0.9, besides those of tokio-postgres
//!   ([`Start::in_transaction`]).
//! - `health`: HTTP endpoints of a worker for probes and for drains
//!   (`WorkerBuilder::health`).
//! - `hooks`: webhooks and commands that are told of what goes wrong (`windlass::hooks`).
//! - `logs`: a log of lines, as text or JSON, that says which run and attempt each is of
//!   (`windlass::telemetry`).
//! - `otlp`: the same, and the spans of runs for a collector of OpenTelemetry.
//! - `testing`: the test kit (`windlass::testing`), with virtual time, workers that
//!   crash where you want, and assertions on histories. For dev-dependencies.
//! - `embedded`: a private PostgreSQL as a child process (`windlass::embedded`), for
//!   development, tests and single machines. Unix only.
//! - `planted-bugs`: deliberate bugs for Windlass's own simulation.

mod backoff;
pub mod clock;
mod context;
mod dead;
mod duties;
#[cfg(all(feature = "embedded", unix))]
pub mod embedded;
mod engine;
mod environment;
mod error;
pub mod function;
#[cfg(feature = "hooks")]
pub mod hooks;
mod known;
mod metrics;
#[cfg(feature = "postgres")]
mod once;
#[cfg(any(feature = "postgres", feature = "remote"))]
#[doc(hidden)]
pub mod pem;
mod planted;
mod process;
#[doc(hidden)]
pub mod random;
#[cfg(feature = "remote")]
pub mod remote;
mod run;
pub mod schedule;
pub mod secrets;
mod signal;
mod spans;
mod start_new;
mod starter;
pub mod store;
mod task_error;
#[cfg(feature = "logs")]
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "remote")]
#[doc(hidden)]
pub mod wire;
pub mod worker;
pub mod workflow;

pub use context::Ctx;
pub use dead::{DeadLetters, DiscardCall, DiscardSummary, RedriveCall, RedriveSummary};
pub use duties::{Duties, DutyCtx, DutyOptions};
pub use engine::{Start, Windlass};
pub use error::{Error, ErrorKind};
pub use function::Function;
#[cfg(feature = "postgres")]
pub use once::{HANDLED_KEPT, Once};
#[cfg(feature = "planted-bugs")]
pub use planted::PlantedBug;
pub use run::RunHandle;
pub use schedule::{Cadence, Schedule, ScheduleHandle};
pub use signal::KeySignal;
pub use store::sealed::Keyring;
pub use task_error::TaskError;
pub use windlass_core::why;
pub use windlass_core::{
    ActionId, CandidateId, Definition, DutyName, Event, EventBody, EventId, Failure, FailureCode,
    Fence, Limit, LimitScope, Operator, Payload, PayloadLimit, Priority, QueueName, RetryPolicy,
    Role, Roles, RunEvent, RunEventKind, RunId, RunState, ScheduleName, ScheduleOwner, Secret,
    SignalId, TaskEvent, TaskEventKind, TaskName, TaskState, Tenant, Term, Timestamp, Token,
    TokenId, TraceContext, Trigger, Version, WhenFull, WorkerId, WorkerLost, WorkflowName,
};
pub use worker::{WorkerBuilder, WorkerHandle};
pub use workflow::{Registration, Task, Workflow, WorkflowBuilder};
