//! What follows for the rest of a run when a task ends.
//!
//! [`Progress`] holds the counters of a run: how many tasks are open, and for
//! each task how its parents ended so far. When a task ends, [`Progress::end`]
//! says which tasks may run now, which are skipped, and whether the run is over.
//! The counters can be recomputed from the states at any time
//! ([`Progress::recompute`]), which is how an auditor checks them.

use crate::definition::{Definition, TaskKind, Trigger};
use crate::id::TaskIndex;
use crate::state::{RunState, TaskState};

/// How the parents of a task ended so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParentTally {
    /// Parents that have not ended.
    pub pending: u32,
    /// Parents that failed.
    pub failed: u32,
    /// Parents that were skipped.
    pub skipped: u32,
    /// Parents that were cancelled.
    pub cancelled: u32,
}

impl ParentTally {
    fn count(&mut self, state: TaskState) {
        match state {
            TaskState::Succeeded => {}
            TaskState::Failed => self.failed += 1,
            TaskState::Skipped => self.skipped += 1,
            TaskState::Cancelled => self.cancelled += 1,
            TaskState::Pending | TaskState::Scheduled | TaskState::Ready | TaskState::Running => {
                self.pending += 1;
            }
        }
    }
}

impl Trigger {
    /// Whether a task whose parents have all ended like this runs.
    pub fn is_met_by(self, parents: ParentTally) -> bool {
        match self {
            Trigger::AllSucceeded => {
                parents.failed == 0 && parents.skipped == 0 && parents.cancelled == 0
            }
            Trigger::AllFinished => true,
            Trigger::AnyFailed => parents.failed > 0,
            Trigger::NoneFailed => parents.failed == 0 && parents.cancelled == 0,
        }
    }
}

/// One consequence of a task's end, to be applied in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A pending task may run now: queue it, or schedule it if it is a sleep.
    Unblock(TaskIndex),
    /// A pending task will not run.
    Skip(TaskIndex),
    /// The last task has ended, and with it the run, in this state.
    EndRun(RunState),
}

/// The counters of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    open: u32,
    failed: u32,
    cancelled: u32,
    on_failure_waits: bool,
    parents: Vec<ParentTally>,
}

impl Progress {
    /// The counters of a run that begins, and the tasks that may run at once.
    pub fn start(definition: &Definition) -> (Progress, Vec<Effect>) {
        let states = vec![TaskState::Pending; definition.tasks().len()];
        let progress = Progress::recompute(definition, &states);
        let effects = progress.unblocked(definition, &states);
        (progress, effects)
    }

    /// The counters that belong to these states.
    pub fn recompute(definition: &Definition, states: &[TaskState]) -> Progress {
        let count = |wanted| states.iter().filter(|state| **state == wanted).count() as u32;
        let mut progress = Progress {
            open: states.iter().filter(|state| !state.is_final()).count() as u32,
            failed: count(TaskState::Failed),
            cancelled: count(TaskState::Cancelled),
            on_failure_waits: false,
            parents: vec![ParentTally::default(); states.len()],
        };
        if let Some(on_failure) = definition.on_failure()
            && states[on_failure.as_usize()] == TaskState::Pending
        {
            progress.open -= 1;
            progress.on_failure_waits = true;
        }
        for (task, tally) in definition.tasks().iter().zip(&mut progress.parents) {
            for parent in &task.parents {
                tally.count(states[parent.as_usize()]);
            }
        }
        progress
    }

    /// The pending tasks whose parents have all ended. At a start they have none,
    /// at a restart they ran before and their parents have not changed: both times
    /// the triggers are met.
    fn unblocked(&self, definition: &Definition, states: &[TaskState]) -> Vec<Effect> {
        let waits = |index: &TaskIndex| {
            states[index.as_usize()] == TaskState::Pending
                && definition.task(*index).kind != TaskKind::OnFailure
                && self.parents[index.as_usize()].pending == 0
        };
        definition.indices().filter(waits).map(Effect::Unblock).collect()
    }

    /// The number of tasks that have not ended. An on-failure task counts from the
    /// moment it may run.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// How the parents of a task ended so far.
    pub fn parents(&self, task: TaskIndex) -> ParentTally {
        self.parents[task.as_usize()]
    }

    /// Counts the end of a task and says what follows from it.
    ///
    /// The time it takes grows with the edges out of the tasks that end, each of
    /// which is followed once in the life of a run.
    pub fn end(
        &mut self,
        definition: &Definition,
        task: TaskIndex,
        state: TaskState,
    ) -> Vec<Effect> {
        debug_assert!(state.is_final());
        let mut effects = Vec::new();
        let mut ended = vec![(task, state)];
        while let Some((task, state)) = ended.pop() {
            self.open -= 1;
            self.failed += u32::from(state == TaskState::Failed);
            self.cancelled += u32::from(state == TaskState::Cancelled);
            for child in definition.children(task) {
                let tally = &mut self.parents[child.as_usize()];
                tally.pending -= 1;
                tally.count(state);
                if tally.pending > 0 {
                    continue;
                }
                if definition.task(*child).trigger.is_met_by(*tally) {
                    effects.push(Effect::Unblock(*child));
                } else {
                    effects.push(Effect::Skip(*child));
                    ended.push((*child, TaskState::Skipped));
                }
            }
        }
        if self.open == 0 {
            self.close(definition, &mut effects);
        }
        effects
    }

    /// Nothing is open: it is the on-failure task's turn, or the run is over.
    fn close(&mut self, definition: &Definition, effects: &mut Vec<Effect>) {
        if self.on_failure_waits
            && let Some(on_failure) = definition.on_failure()
        {
            self.on_failure_waits = false;
            if self.failed > 0 {
                self.open = 1;
                effects.push(Effect::Unblock(on_failure));
                return;
            }
            effects.push(Effect::Skip(on_failure));
        }
        effects.push(Effect::EndRun(self.verdict()));
    }

    /// How the run ends if nothing more happens.
    pub fn verdict(&self) -> RunState {
        if self.cancelled > 0 {
            RunState::Cancelled
        } else if self.failed > 0 {
            RunState::Failed
        } else {
            RunState::Succeeded
        }
    }

    /// The tasks a retry of a failed run begins anew: the failed ones, everything
    /// that depends on them, and the on-failure task.
    pub fn to_reset(definition: &Definition, states: &[TaskState]) -> Vec<TaskIndex> {
        let mut reset = vec![false; states.len()];
        let mut next: Vec<TaskIndex> = definition
            .indices()
            .filter(|index| states[index.as_usize()] == TaskState::Failed)
            .chain(definition.on_failure())
            .collect();
        while let Some(task) = next.pop() {
            if !std::mem::replace(&mut reset[task.as_usize()], true) {
                next.extend(definition.children(task));
            }
        }
        definition.indices().filter(|index| reset[index.as_usize()]).collect()
    }

    /// The counters after a reset, and the tasks that may run at once. `states`
    /// are those after the reset.
    pub fn restart(definition: &Definition, states: &[TaskState]) -> (Progress, Vec<Effect>) {
        let progress = Progress::recompute(definition, states);
        let effects = progress.unblocked(definition, states);
        (progress, effects)
    }
}
