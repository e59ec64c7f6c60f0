//! The two faults of the story: a worker that is killed in the middle of a task, and one
//! that is frozen until its task is another's.
//!
//! They happen beside the story, which may be busy with reading: a task does not wait.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use windlass::store::{Store, StoreError};
use windlass::{Fence, TaskEvent, TaskEventKind, TaskState, Timestamp};

use super::ledger::Page;
use super::report::Try;
use super::staff::Members;

/// How long a task has been running when something is done to its worker: long enough
/// for the worker to have told the store everything about the task before.
const INTO_TASK: Duration = Duration::from_millis(300);

/// How long a thawed worker may take to say that its write was refused.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(5);

/// What is done to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Blow {
    Kill,
    Freeze,
}

/// A worker to which something was done, and what it was doing.
#[derive(Clone, Debug)]
pub(super) struct Victim {
    pub(super) worker: String,
    pub(super) tried: Try,
    /// When it was struck, by the store's clock.
    pub(super) struck_at: Timestamp,
}

/// Whoever strikes the workers, each blow once.
pub(super) struct Striker {
    store: Arc<dyn Store>,
    members: Arc<Members>,
    taken: Mutex<Vec<Blow>>,
}

impl Striker {
    pub(super) fn new(store: Arc<dyn Store>, members: Arc<Members>) -> Self {
        Striker { store, members, taken: Mutex::new(Vec::new()) }
    }

    /// A worker began a task for which a blow is meant. Strikes in the middle of it, and
    /// answers whom, unless that was done before or the task has ended meanwhile.
    pub(super) async fn strike(&self, worker: String, tried: Try, blow: Blow) -> Option<Victim> {
        if !self.take(blow) {
            return None;
        }
        tokio::time::sleep(INTO_TASK).await;
        let struck_at = match self.is_running(&tried).await {
            Ok(true) => self.store.now().await.ok(),
            Ok(false) | Err(_) => None,
        };
        let struck_at = struck_at.filter(|_| self.members.strike(&worker, blow));
        if struck_at.is_none() {
            self.give_back(blow);
        }
        Some(Victim { worker, tried, struck_at: struck_at? })
    }

    fn take(&self, blow: Blow) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = !taken.contains(&blow);
        if is_free {
            taken.push(blow);
        }
        is_free
    }

    fn give_back(&self, blow: Blow) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|it| *it != blow);
    }

    /// Whether the store says that this try is under way.
    async fn is_running(&self, tried: &Try) -> Result<bool, StoreError> {
        let task = self.store.get_task(tried.run, tried.task.clone()).await?;
        let is_it = |state, fence| state == TaskState::Running && fence == tried.fence;
        Ok(task.is_some_and(|task| is_it(task.state, task.fence)))
    }
}

/// Where a fault is, for those who watch.
#[derive(Debug)]
pub(super) enum Stage {
    /// It has not happened.
    Awaited,
    /// It happened, and nobody was told yet.
    Happened(Victim),
    /// The task is to be taken away and given to another worker.
    Told(Victim),
    /// The frozen worker was thawed, and is to be refused.
    Thawed(Victim, Instant),
    /// It is over, or cannot happen any more.
    Over,
}

impl Stage {
    /// Whether it may still happen.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self, Stage::Awaited)
    }

    /// The worker to which it happened, as long as something is still to follow.
    pub(super) fn victim(&self) -> Option<&Victim> {
        match self {
            Stage::Happened(victim) | Stage::Told(victim) | Stage::Thawed(victim, _) => {
                Some(victim)
            }
            Stage::Awaited | Stage::Over => None,
        }
    }

    /// The worker that was thawed and should have been refused long ago.
    pub(super) fn overdue(&self) -> Option<&Victim> {
        match self {
            Stage::Thawed(victim, at) if at.elapsed() > REFUSAL_TIME_MAX => Some(victim),
            Stage::Thawed(..)
            | Stage::Awaited
            | Stage::Happened(_)
            | Stage::Told(_)
            | Stage::Over => None,
        }
    }
}

/// How a task went from a worker that was struck to another.
pub(super) struct Recovery {
    /// When its lease was found to have run out.
    pub(super) expired_at: Timestamp,
    /// When the other worker claimed it.
    pub(super) claimed_at: Timestamp,
    pub(super) attempt: u32,
    pub(super) fence: Fence,
}

impl Recovery {
    /// Reads it from the history, if it is there.
    pub(super) fn find(page: &Page, tried: &Try) -> Option<Recovery> {
        let of_task = page.events.iter().filter_map(|event| Some((event.at, event.task()?)));
        let of_task: Vec<_> = of_task.filter(|(_, task)| task.name == tried.task).collect();
        let find = |is_it: &dyn Fn(&TaskEvent) -> bool| {
            of_task.iter().find(|(_, task)| is_it(task)).copied()
        };
        let is_claim = |task: &TaskEvent| matches!(task.kind, TaskEventKind::Started { .. });
        let is_expiry = |task: &TaskEvent| matches!(task.kind, TaskEventKind::LeaseExpired { .. });
        let (expired_at, _) = find(&|task| is_expiry(task) && task.fence == tried.fence)?;
        let (claimed_at, claim) = find(&|task| is_claim(task) && task.fence > tried.fence)?;
        let (attempt, fence) = (claim.attempt, claim.fence);
        Some(Recovery { expired_at, claimed_at, attempt, fence })
    }
}
