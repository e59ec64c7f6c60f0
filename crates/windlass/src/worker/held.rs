//! The tasks a worker holds, from the answer to a claim to the answer to a finish.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use windlass_core::{Fence, TaskId};

use crate::context::Attempt;
use crate::store::{Held, Lost, ProgressNote};

/// One task that is held.
pub(super) struct HeldTask {
    pub(super) attempt: Arc<Attempt>,
    pub(super) cancelled: CancellationToken,
}

/// All tasks that are held. The same task may be held twice for a moment, under
/// two fences: retried and claimed again before the first answer came.
#[derive(Default)]
pub(super) struct HeldTasks(BTreeMap<(TaskId, Fence), HeldTask>);

impl HeldTasks {
    pub(super) fn insert(&mut self, task: HeldTask) {
        let claimed = &task.attempt.claimed;
        self.0.insert((claimed.task, claimed.fence), task);
    }

    pub(super) fn get(&self, held: Held) -> Option<&HeldTask> {
        self.0.get(&(held.task, held.fence))
    }

    pub(super) fn remove(&mut self, held: Held) -> Option<HeldTask> {
        self.0.remove(&(held.task, held.fence))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn list(&self) -> Vec<Held> {
        self.0.keys().map(|(task, fence)| Held { task: *task, fence: *fence }).collect()
    }

    /// The notes that handlers left since the last time.
    pub(super) fn take_progress(&self) -> Vec<ProgressNote> {
        let note = |((task, fence), held): (&(TaskId, Fence), &HeldTask)| {
            let note = held.attempt.take_progress()?;
            Some(ProgressNote { held: Held { task: *task, fence: *fence }, note })
        };
        self.0.iter().filter_map(note).collect()
    }

    /// Puts notes back that could not be sent, unless there are newer ones.
    pub(super) fn put_back(&self, notes: Vec<ProgressNote>) {
        for ProgressNote { held, note } in notes {
            if let Some(task) = self.get(held) {
                task.attempt.put_back_progress(note);
            }
        }
    }

    /// Tells the handlers of lost tasks to stop, and forgets the tasks.
    pub(super) fn lose(&mut self, lost: &[Lost]) {
        for Lost { held, refusal } in lost {
            if let Some(task) = self.remove(*held) {
                tracing::warn!(task = %held.task, fence = held.fence.0, ?refusal, "task lost");
                task.cancelled.cancel();
            }
        }
    }

    /// Tells all handlers to stop, and forgets their tasks.
    pub(super) fn lose_all(&mut self) {
        for (_, task) in std::mem::take(&mut self.0) {
            task.cancelled.cancel();
        }
    }

    /// Tells all handlers to stop; their tasks are still held.
    pub(super) fn cancel_all(&self) {
        self.0.values().for_each(|task| task.cancelled.cancel());
    }
}
