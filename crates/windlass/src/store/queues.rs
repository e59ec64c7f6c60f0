//! What is in the queues, as people and monitors see it.
//!
//! Nobody counts tasks for it: whatever changes a queue leaves a note of how much, and the duty
//! [`Duty::Rollup`](super::Duty::Rollup) adds the notes up. What is told is therefore as old as
//! the last rollup, whatever there is in the queues.

use async_trait::async_trait;
use windlass_core::{Priority, QueueName, Timestamp};

use super::{StoreError, Sweep};

/// The most queues and priorities that are listed.
pub const QUEUES_LISTED_MAX: usize = 1_000;

/// The verbs of whoever watches queues.
#[async_trait]
pub trait QueueStore: Send + Sync {
    /// Adds up what came into the queues and what left them, at most `limit` changes: the duty
    /// [`Duty::Rollup`](super::Duty::Rollup) by hand, whoever leads it.
    async fn roll_up(&self, limit: usize) -> Result<Sweep, StoreError>;

    /// What is in the queues.
    async fn list_queues(&self) -> Result<QueueList, StoreError>;

    /// The connections of the store, if it has any.
    fn connections(&self) -> Option<Connections> {
        None
    }
}

/// What is in all queues, as of the last rollup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueList {
    /// The time of the look.
    pub at: Timestamp,
    /// When the counts were last brought up to date by a leader; `None` if never.
    pub counted_at: Option<Timestamp>,
    /// By queue, and then the highest priority first; at most [`QUEUES_LISTED_MAX`].
    pub queues: Vec<QueueRecord>,
}

/// What is in one queue with one priority. Those that never had a task are not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRecord {
    /// The queue.
    pub queue: QueueName,
    /// The priority.
    pub priority: Priority,
    /// How many tasks ever became ready in it.
    pub came: u64,
    /// How many of them are not in it any more: claimed, or cancelled.
    pub went: u64,
    /// When that was last brought up to date because something had changed.
    pub changed_at: Timestamp,
    /// Since when the task is ready that is so for the longest time, of the first 1,000 tenants
    /// that have one; `None` if there is none.
    pub oldest_at: Option<Timestamp>,
}

impl QueueRecord {
    /// How many tasks are ready.
    pub fn ready(&self) -> u64 {
        self.came.saturating_sub(self.went)
    }
}

/// How many connections to its database a store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// The most that there may be.
    pub most: usize,
    /// Those that are open.
    pub open: usize,
    /// Those of them that nobody uses.
    pub idle: usize,
    /// How many callers wait for one.
    pub waiting: usize,
}
