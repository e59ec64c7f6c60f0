//! A process that can be killed and frozen, for workers and duties under test.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::duties::{self, OwnDuty, OwnSettings};
use crate::process::{Gate, ProcessState};
use crate::store::{Store, WorkerLink};
use crate::worker::WorkerBuilder;

/// The futures of one simulated operating-system process.
///
/// Everything that is wrapped in it is polled only while the process runs: a
/// frozen process stands still while the clock goes on, a killed one drops all it
/// was doing at the await where it was.
#[derive(Clone, Debug)]
pub struct Process(Gate);

impl Process {
    /// A process that runs.
    pub fn new() -> Self {
        Process(Gate::controlled())
    }

    /// Makes a future part of the process. Its output is `None` if the process was
    /// killed first.
    pub fn wrap<F: Future>(&self, future: F) -> impl Future<Output = Option<F::Output>> + use<F> {
        self.0.wrap(future)
    }

    /// Kills the process, for ever.
    pub fn kill(&self) {
        self.0.set(ProcessState::Dead);
    }

    /// Stops the process until it is thawed.
    pub fn freeze(&self) {
        self.0.set(ProcessState::Frozen);
    }

    /// Lets a frozen process go on.
    pub fn thaw(&self) {
        self.0.set(ProcessState::Running);
    }

    /// Whether the process was killed.
    pub fn is_dead(&self) -> bool {
        self.0.state() == ProcessState::Dead
    }

    /// Kills the process after its futures have been polled this often: at any
    /// await, by trying the numbers.
    pub fn die_after_polls(&self, polls: u64) {
        self.0.die_after_polls(polls);
    }

    /// Does the background duties in this process until it is killed.
    pub async fn run_duties(&self, store: Arc<dyn Store>, interval: Duration) {
        let never = tokio_util::sync::CancellationToken::new();
        self.0.wrap(duties::run(store, interval.into(), never)).await;
    }
}

impl Process {
    /// Does the duties of a program in this process until it is killed.
    pub(super) fn run_own(
        &self,
        store: Arc<dyn Store>,
        settings: OwnSettings,
        own: Vec<OwnDuty>,
    ) -> impl Future<Output = Option<()>> + Send + use<> {
        let never = tokio_util::sync::CancellationToken::new();
        let link = (store, self.0.clone());
        self.0.wrap(duties::run_own(link, "test".to_owned(), settings, own, never))
    }
}

impl Default for Process {
    fn default() -> Self {
        Process::new()
    }
}

impl WorkerBuilder {
    /// Makes the worker part of a process that can be killed and frozen. Its
    /// background duties belong to the process too.
    pub fn in_process(self, process: &Process) -> Self {
        self.gate(process.0.clone())
    }

    /// Lets the worker talk to Windlass through `link`, such as one that fails now
    /// and then.
    pub fn through(self, link: Arc<dyn WorkerLink>) -> Self {
        self.link(link)
    }

    /// Makes the worker's ids and jitter repeatable.
    pub fn seeded(self, seed: u64) -> Self {
        self.seed(seed)
    }
}
