//! How large tasks are: those of a stream, and those that are too large to be told to anyone.
//!
//! A store is asked for so many tasks and not for so many bytes. So fewer are claimed at once when
//! those before were large, and what there is no memory for is handed back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prost::Message as _;
use windlass::remote::MESSAGE_BYTES_MAX;
use windlass::store::{Claimed, Completion, Release, Store};
use windlass::wire::{v1, write_tasks};
use windlass_core::{Decision, Failure, FailureCode};

use super::budget::{Memory, StreamBudget};

/// The most bytes of a task, beside which there is room for its specification.
const TASK_BYTES_MAX: usize = MESSAGE_BYTES_MAX - (1 << 20);

/// What the parts of an answer have besides tasks and specifications, at most.
const PARTS_SLACK_BYTES: usize = 1 << 10;

/// The most bytes of tasks that one claim brings, but for one task that is larger alone.
const CLAIM_BYTES_MAX: usize = 16 << 20;

/// How large a task is taken to be before the first was seen.
const UNKNOWN_BYTES: usize = 4 << 10;

/// The least memory that is taken for an answer before it is there.
const EXPECTED_BYTES_MIN: usize = 4 << 10;

/// How large the tasks of a stream are.
#[derive(Debug, Default)]
pub(super) struct Sizes(
    /// What is expected of the next; 0 before the first.
    AtomicUsize,
);

impl Sizes {
    fn each(&self) -> usize {
        match self.0.load(Ordering::Relaxed) {
            0 => UNKNOWN_BYTES,
            bytes => bytes,
        }
    }

    /// How many of so many tasks are claimed at once, as their sizes seem to be.
    pub(super) fn limit(&self, asked: usize) -> usize {
        match self.0.load(Ordering::Relaxed) {
            0 => asked,
            each => asked.min((CLAIM_BYTES_MAX / each).max(1)),
        }
    }

    /// How much memory so many of them take, as it seems.
    pub(super) fn expected(&self, tasks: usize) -> usize {
        let each = self.each();
        each.saturating_mul(tasks).min(each.max(CLAIM_BYTES_MAX)).max(EXPECTED_BYTES_MIN)
    }

    /// Tasks of this size were seen. Larger ones are believed at once, smaller ones by and by.
    fn note(&self, each: usize) {
        let known = self.0.load(Ordering::Relaxed);
        self.0.store(each.max(known - known / 8).max(1), Ordering::Relaxed);
    }
}

/// What a worker is told of the tasks it claimed.
pub(super) struct Told {
    pub(super) tasks: v1::Tasks,
    /// Whether some were handed back for want of memory, and it is to claim again.
    pub(super) is_cut: bool,
}

/// Says which tasks a worker has claimed: as many as there is memory for, which is in `memory`. The
/// others are handed back at once, to keep their places: nothing waits here with more than it has
/// taken, and no more than `bytes_max` but for one task. One that fits into no message would be claimed again and again and told to nobody: it
/// fails, saying so.
pub(super) async fn tell_tasks(
    store: &Arc<dyn Store>,
    claimed: &[Claimed],
    (sizes, budget): (&Sizes, &StreamBudget),
    bytes_max: usize,
    memory: &mut Memory,
) -> Told {
    let mut message = write_tasks(claimed);
    let bytes: Vec<usize> = message.tasks.iter().map(prost::Message::encoded_len).collect();
    let total: usize = bytes.iter().filter(|bytes| **bytes <= TASK_BYTES_MAX).sum();
    // Its parts have heads of their own.
    let slack = message.encoded_len() - bytes.iter().sum::<usize>() + PARTS_SLACK_BYTES;
    let has_memory = budget.grow(memory, total.min(CLAIM_BYTES_MAX) + slack);
    let room = if has_memory { CLAIM_BYTES_MAX } else { memory.bytes().saturating_sub(slack) };
    let room = room.min(bytes_max.saturating_sub(slack));
    let (mut told, mut first_left) = (0, None);
    let (mut too_large, mut handed_back) = (Vec::new(), Vec::new());
    let mut places = claimed.iter().zip(&bytes);
    message.tasks.retain(|_| {
        let Some((claimed, bytes)) = places.next() else { return false };
        if *bytes > TASK_BYTES_MAX {
            too_large.push(failed(claimed, *bytes));
            return false;
        }
        // The first one has all the memory that there is for a stream, if it needs it.
        let fits = first_left.is_none()
            && (told + bytes <= room || (told == 0 && budget.grow(memory, bytes + slack)));
        if fits {
            told += bytes;
        } else {
            first_left.get_or_insert(*bytes);
            handed_back.push(released(claimed));
        }
        fits
    });
    if let Some(each) = total.checked_div(bytes.len()) {
        // Nothing of it could be told: the next claim takes memory for that one before.
        let alone = first_left.filter(|_| message.tasks.is_empty());
        sizes.note(alone.map_or(each, |bytes| bytes + slack));
    }
    if !too_large.is_empty() {
        // Otherwise it is claimed once more when its lease has run out.
        if let Err(error) = store.finish(too_large).await {
            tracing::warn!(%error, "tasks too large to be told cannot be failed");
        }
    }
    let is_cut = !handed_back.is_empty();
    if is_cut && let Err(error) = store.release(handed_back).await {
        // Then they come back when the worker says what it has.
        tracing::warn!(%error, "tasks that there is no memory for cannot be handed back");
    }
    Told { tasks: message, is_cut }
}

fn released(claimed: &Claimed) -> Release {
    let Claimed { task, fence, .. } = *claimed;
    Release { task, fence, delay: Duration::ZERO }
}

fn failed(claimed: &Claimed, bytes: usize) -> Completion {
    let text = format!(
        "with its input, the outputs of its parents and its steps the task has {bytes} bytes, more \
         than the {TASK_BYTES_MAX} that a server can tell a worker"
    );
    let failure = Failure::new(FailureCode::Payload, text).permanent();
    let Claimed { task, fence, .. } = *claimed;
    Completion { task, fence, decision: Decision::Fail(failure) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_cut_by_the_size_of_the_tasks_before_and_brings_at_least_one() {
        let sizes = Sizes::default();
        assert_eq!(sizes.limit(10_000), 10_000, "nobody knows");
        assert_eq!((sizes.limit(0), sizes.limit(1)), (0, 1));
        assert_eq!(sizes.expected(10), 10 * UNKNOWN_BYTES);
        sizes.note(100);
        assert_eq!(sizes.limit(10_000), 10_000);
        assert_eq!(sizes.expected(1), EXPECTED_BYTES_MIN);
        sizes.note(1 << 20);
        assert_eq!(sizes.limit(10_000), 16);
        assert_eq!(sizes.expected(1_000), CLAIM_BYTES_MAX);
        sizes.note(60 << 20);
        assert_eq!((sizes.limit(10_000), sizes.expected(1)), (1, 60 << 20));
        for _ in 0..200 {
            sizes.note(100);
        }
        assert_eq!(sizes.limit(10_000), 10_000);
    }
}
