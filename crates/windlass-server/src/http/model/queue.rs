//! What is in the queues.

use serde::Serialize;
use utoipa::ToSchema;
use windlass::store::QueueList;

use super::Time;

/// What is in all queues, as of the last rollup.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = QueueList)]
pub(crate) struct QueueListBody {
    /// The time of the look.
    at: Time,
    /// When the counts were last brought up to date; none if never.
    counted_at: Option<Time>,
    /// By queue, and then the highest priority first.
    queues: Vec<QueueBody>,
}

/// What is in one queue with one priority.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Queue)]
pub(crate) struct QueueBody {
    /// The queue.
    queue: String,
    /// The priority.
    priority: i16,
    /// How many tasks are ready.
    ready: u64,
    /// How many tasks ever became ready in it.
    came: u64,
    /// How many of them are not in it any more.
    went: u64,
    /// When that was last brought up to date because something had changed.
    changed_at: Time,
    /// Since when the task is ready that came first.
    oldest_at: Option<Time>,
}

impl From<QueueList> for QueueListBody {
    fn from(list: QueueList) -> Self {
        let body = |queue: windlass::store::QueueRecord| QueueBody {
            ready: queue.ready(),
            queue: queue.queue.to_string(),
            priority: queue.priority.get(),
            came: queue.came,
            went: queue.went,
            changed_at: queue.changed_at.into(),
            oldest_at: queue.oldest_at.map(Time),
        };
        QueueListBody {
            at: list.at.into(),
            counted_at: list.counted_at.map(Time),
            queues: list.queues.into_iter().map(body).collect(),
        }
    }
}
