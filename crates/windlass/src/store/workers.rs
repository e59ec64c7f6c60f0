//! Who works: the registry of workers, as people see it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use windlass_core::{QueueName, Tenant, Timestamp, WorkerId};

use super::HandlerKey;

/// The most pairs of a worker's metadata.
pub const WORKER_METADATA_PAIRS_MAX: usize = 32;

/// The most bytes of a key or a value of a worker's metadata, and of its host and version.
pub const WORKER_TEXT_BYTES_MAX: usize = 256;

/// The metadata of a worker that claims for one tenant alone, which says for which. Whoever gives a
/// worker its store writes it, so that of tasks whose keys have owners it owns none of the others'.
pub const TENANT_METADATA: &str = "windlass.tenant";

/// What a worker says of itself. Nothing depends on it but who owns keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerInfo {
    /// The machine or container it runs on.
    pub host: String,
    /// The number of its operating-system process.
    pub pid: Option<u32>,
    /// The version of the program.
    pub version: String,
    /// The queues it serves.
    pub queues: Vec<QueueName>,
    /// What else there is to say.
    pub metadata: BTreeMap<String, String>,
}

impl WorkerInfo {
    /// The tenant whose tasks alone it claims, if it says so.
    pub(crate) fn tenant(&self) -> Option<Tenant> {
        self.metadata.get(TENANT_METADATA).and_then(|name| Tenant::new(name).ok())
    }

    /// Checks what the types do not. The error is a sentence.
    pub fn check(&self) -> Result<(), String> {
        let pairs = self.metadata.len();
        if pairs > WORKER_METADATA_PAIRS_MAX {
            let max = WORKER_METADATA_PAIRS_MAX;
            return Err(format!("a worker has {pairs} metadata pairs, the limit is {max}"));
        }
        let words = [("host", &self.host), ("version", &self.version)].into_iter();
        let pairs =
            self.metadata.iter().flat_map(|(key, value)| [("metadata", key), ("metadata", value)]);
        for (what, text) in words.chain(pairs) {
            let (bytes, max) = (text.len(), WORKER_TEXT_BYTES_MAX);
            if bytes > max {
                let start: String = text.chars().take(24).collect();
                return Err(format!(
                    "{what} {start:?} of a worker has {bytes} bytes, the limit is {max}"
                ));
            }
            if let Some(position) = text.find('\0') {
                return Err(format!("{what} {text:?} of a worker has a NUL at byte {position}"));
            }
        }
        Ok(())
    }
}

/// What a worker is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerState {
    /// It works, or waits for work.
    Live,
    /// It was told to end and claims nothing any more.
    Draining,
    /// It was found dead, and not all of its tasks have been taken away; or it has not been heard of
    /// since the end of its lease and for [`SILENT_MAX`](windlass_core::why::SILENT_MAX) (60 s) more.
    Dying,
    /// It is no more; its id is not used again.
    Dead,
}

impl WorkerState {
    /// Every state.
    pub const ALL: [WorkerState; 4] =
        [WorkerState::Live, WorkerState::Draining, WorkerState::Dying, WorkerState::Dead];

    /// Its name in what people see.
    pub const fn word(self) -> &'static str {
        match self {
            WorkerState::Live => "live",
            WorkerState::Draining => "draining",
            WorkerState::Dying => "dying",
            WorkerState::Dead => "dead",
        }
    }
}

impl fmt::Display for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// One life of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRecord {
    /// Its id.
    pub id: WorkerId,
    /// What people call it.
    pub name: String,
    /// What it is at.
    pub state: WorkerState,
    /// How many tasks it runs at once.
    pub slots: u32,
    /// How long after its last heartbeat its tasks are taken away.
    pub lease: Duration,
    /// The workflows and versions it has handlers for.
    pub workflows: Vec<HandlerKey>,
    /// What it says of itself.
    pub info: WorkerInfo,
    /// When it came.
    pub joined_at: Timestamp,
    /// When it last took tasks or said that it lives; a worker without tasks says so once a
    /// minute. None of a dead one.
    pub seen_at: Option<Timestamp>,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
    /// How many tasks it has.
    pub tasks: u64,
}

/// Which workers to list.
#[derive(Clone, Debug, Default)]
pub struct WorkerFilter {
    /// Also those that are dead.
    pub with_dead: bool,
    /// Behind the end of the previous page.
    pub after: Option<WorkerCursor>,
    /// How many, up to [`PAGE_MAX`](super::PAGE_MAX); 0 for as many.
    pub limit: usize,
}

/// Where a page of workers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerCursor {
    /// When its last worker came.
    pub joined_at: Timestamp,
    /// That worker.
    pub id: WorkerId,
}

/// A page of workers, the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerPage {
    /// The workers.
    pub workers: Vec<WorkerRecord>,
    /// Where the next page begins, if there is one.
    pub next: Option<WorkerCursor>,
}
