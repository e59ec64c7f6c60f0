//! Undoing what a run did.
//!
//! What undoes the steps of a run is done by a run of its own, of a workflow with one task that
//! is derived from that of the run. So it is claimed, tried again, recorded and shown like any
//! other, while the run that it undoes has ended.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::decide::{Failure, FailureCode};
use crate::definition::{Definition, DefinitionDraft, DefinitionError, TaskDraft, TaskKind};
use crate::id::{RunId, TaskIndex};
use crate::name::{NAME_BYTES_MAX, WorkflowName};
use crate::retry::RetryPolicy;

/// What the names of workflows that undo others end with.
pub const UNDO_SUFFIX: &str = "~undo";

/// The name of the task of a workflow that undoes another.
pub const UNDO_TASK: &str = "undo";

/// How often the undoing of a run is tried between two rests. What each step is undone by has a
/// policy of its own.
const UNDO_ATTEMPTS: u32 = 20;

/// The input of a run that undoes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undoing {
    /// The run whose steps are undone.
    pub run: RunId,
}

impl RunId {
    /// The id of the run that undoes what `run` did up to the end of a round: the same whenever
    /// it is computed.
    pub fn of_undo(run: RunId, round: u32) -> Self {
        // Any odd number will do that does not lead back from what undoes a child to the child.
        const UNDO: u128 = 0x9e37_5d1e_9a37_c4b9;
        let hash = run.as_uuid().as_u128() ^ (u128::from(round) << 48);
        RunId::of_child(run, hash.wrapping_mul(UNDO) << 48)
    }
}

impl WorkflowName {
    /// The name of the workflow that undoes runs of this one. A long name is cut, and ends with
    /// a number that stands for all of it.
    pub fn of_undo(&self) -> String {
        let name = self.as_str();
        if name.len() + UNDO_SUFFIX.len() <= NAME_BYTES_MAX {
            return format!("{name}{UNDO_SUFFIX}");
        }
        // FNV-1a: stable for ever, which is all that is asked of it.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let start = &name[..name.floor_char_boundary(NAME_BYTES_MAX / 2)];
        format!("{start}~{hash:016x}{UNDO_SUFFIX}")
    }
}

impl Definition {
    /// The workflow that undoes runs of this one. Its task waits in the queue of the first task
    /// that has a handler.
    pub fn to_undo(&self) -> Result<Definition, DefinitionError> {
        let mut task = TaskDraft::new(UNDO_TASK, TaskKind::Handler);
        let has_handler = |task: &&Arc<crate::TaskSpec>| match task.kind {
            TaskKind::Handler | TaskKind::OnFailure => true,
            TaskKind::Sleep(_) => false,
        };
        if let Some(first) = self.tasks().iter().find(has_handler) {
            task.queue = first.queue.as_str().to_owned();
        }
        task.retry = RetryPolicy::exponential().attempts(UNDO_ATTEMPTS);
        let mut draft = DefinitionDraft::new(self.name().of_undo());
        draft.version = self.version();
        draft.task(task).build()
    }

    /// Whether it is one that undoes runs of another.
    pub fn is_undo(&self) -> bool {
        self.name().as_str().ends_with(UNDO_SUFFIX)
    }

    /// All tasks, each behind its parents.
    pub fn sorted(&self) -> Vec<TaskIndex> {
        let mut pending: Vec<usize> = self.tasks().iter().map(|task| task.parents.len()).collect();
        let mut sorted: Vec<TaskIndex> =
            self.indices().filter(|index| pending[index.as_usize()] == 0).collect();
        let mut next = 0;
        while let Some(parent) = sorted.get(next).copied() {
            next += 1;
            for child in self.children(parent) {
                pending[child.as_usize()] -= 1;
                if pending[child.as_usize()] == 0 {
                    sorted.push(*child);
                }
            }
        }
        sorted
    }
}

impl Failure {
    /// Whether a run that failed with it is left as it is: its code is not the one that its
    /// steps were made by, and could not undo them either.
    pub fn keeps_steps(&self) -> bool {
        match self.code {
            FailureCode::Divergence => true,
            // That of a value is permanent; that of a result which the code cannot read is not.
            FailureCode::Payload => self.is_retryable,
            FailureCode::Error
            | FailureCode::Panic
            | FailureCode::Timeout
            | FailureCode::LeaseExpired
            | FailureCode::Interrupted
            | FailureCode::Custom(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use uuid::Uuid;

    use super::*;

    #[test]
    fn each_round_of_each_run_has_an_id_for_its_undoing() {
        let run = |n| RunId::from_uuid(Uuid::from_u128(n));
        let ids = (0..4).flat_map(|n| (1..4).map(move |round| (n, round)));
        let ids: HashSet<RunId> =
            ids.map(|(n, round)| RunId::of_undo(run(n << 64 | 7), round)).collect();
        assert_eq!(ids.len(), 12);
        assert_eq!(RunId::of_undo(run(5), 1), RunId::of_undo(run(5), 1));
        let child = RunId::of_child(run(5), 7 << 64);
        assert_ne!(RunId::of_undo(RunId::of_undo(child, 1), 1), child, "it does not lead back");
    }

    fn definition(name: &str) -> Definition {
        let mut first = TaskDraft::new("first", TaskKind::Handler).after("second");
        first.queue = "slow".to_owned();
        let second = TaskDraft::new("second", TaskKind::Handler);
        DefinitionDraft::new(name).task(first).task(second).build().unwrap()
    }

    #[test]
    fn a_name_has_one_for_its_undoing_however_long_it_is() {
        let undo = definition("order").to_undo().unwrap();
        assert_eq!(undo.name().as_str(), "order~undo");
        assert_eq!(undo.task(TaskIndex(0)).queue.as_str(), "slow");
        assert!(undo.is_undo());
        let long = |end: char| format!("{}{end}", "é".repeat(99));
        let names = ['a', 'b'].map(|end| definition(&long(end)).to_undo().unwrap());
        assert_ne!(names[0].name(), names[1].name());
        assert!(names[0].is_undo());
    }

    #[test]
    fn an_undoing_waits_in_the_queue_of_a_handler_and_not_of_a_sleep() {
        let mut nap = TaskDraft::new("nap", TaskKind::Sleep(std::time::Duration::from_secs(1)));
        nap.queue = "naps".to_owned();
        let mut work = TaskDraft::new("work", TaskKind::Handler);
        work.queue = "slow".to_owned();
        let definition = DefinitionDraft::new("order").task(nap).task(work).build().unwrap();
        let undo = definition.to_undo().unwrap();
        assert_eq!(undo.task(TaskIndex(0)).queue.as_str(), "slow");
    }

    #[test]
    fn tasks_are_sorted_behind_their_parents() {
        assert_eq!(definition("order").sorted(), [TaskIndex(1), TaskIndex(0)]);
    }

    #[test]
    fn the_longest_name_with_room_for_the_suffix_is_not_cut() {
        let name = "x".repeat(NAME_BYTES_MAX - UNDO_SUFFIX.len());
        let undo = definition(&name).to_undo().unwrap();
        assert_eq!(undo.name().as_str(), format!("{name}{UNDO_SUFFIX}"));
    }
}
