//! Workers: they claim tasks for their free slots, run the handlers, and say what
//! came of it.
//!
//! A worker knows nothing of where it is: it talks to a [`WorkerLink`], which is a
//! store or, later, a connection to a server. This module does not decide what
//! follows from an outcome (that is `windlass_core::decide`) and does not watch
//! over other workers (that is a background duty).

mod attempt;
mod builder;
mod call;
mod drain;
mod duties;
mod gather;
#[cfg(feature = "health")]
mod health;
mod held;
#[cfg(feature = "hooks")]
mod hooks;
mod host;
mod outbox;
mod pulse;
mod refusals;
mod session;
#[cfg(unix)]
mod signals;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::QueueName;

pub(crate) use attempt::panicked;
pub use builder::{LEASE_MIN, SETTING_MAX, SLOTS_MAX, WorkerBuilder, WorkerHandle};
pub(crate) use gather::{Gather, Gathers, Parcel};
pub(crate) use pulse::Pulse;
pub(crate) use session::Session;

use crate::planted::Planted;
use crate::process::Gate;
use crate::store::{HandlerKey, WorkerInfo, WorkerLink};
use crate::workflow::Registration;

/// Where a worker is with a task, for test kits that want to crash it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// The claim is committed, the handler has not been called.
    BeforeHandler,
    /// The handler was called and has not returned.
    DuringHandler,
    /// The handler returned, nobody knows it yet.
    AfterHandler,
    /// The outcome is decided and about to be sent.
    BeforeCommit,
    /// The outcome is committed, the worker does not know it yet.
    AfterCommit,
}

/// Someone who is told where a worker is.
pub(crate) trait Probe: Send + Sync {
    /// The worker is at a point with a task. The worker yields after this.
    fn reached(&self, point: Point, task: &str);
}

/// What a worker was told to be.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) slots: usize,
    pub(crate) queues: Arc<[QueueName]>,
    pub(crate) lease: Duration,
    pub(crate) poll: Duration,
    pub(crate) grace: Duration,
    pub(crate) cancel_grace: Duration,
    pub(crate) seed: u64,
    /// What it says of itself; the queues are filled in when it is spawned.
    pub(crate) info: WorkerInfo,
}

/// What a worker works with.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) link: Arc<dyn WorkerLink>,
    pub(crate) registrations: Arc<BTreeMap<HandlerKey, Registration>>,
    pub(crate) gate: Gate,
    pub(crate) probe: Option<Arc<dyn Probe>>,
    pub(crate) planted: Planted,
    pub(crate) pulse: Arc<Pulse>,
}

impl Parts {
    /// Tells the probe, if there is one, and gives it the chance to act.
    pub(crate) async fn reached(&self, point: Point, task: &str) {
        if let Some(probe) = &self.probe {
            probe.reached(point, task);
            tokio::task::yield_now().await;
        }
    }
}
