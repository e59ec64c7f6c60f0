//! What follows for the rest of a run when a task ends.
//!
//! [`Progress`] holds the counters of a run: how many tasks are open, and for
//! each task how its parents ended so far. When a task ends, [`Progress::end`]
//! says which tasks may run now, which are skipped, and whether the run is over.
//! The counters can be recomputed from the states at any time
//! ([`Progress::recompute`]), which is how an auditor checks them.

use std::collections::BTreeSet;

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
            TaskState::Pending
            | TaskState::Scheduled
            | TaskState::Waiting
            | TaskState::Ready
            | TaskState::Running => self.pending += 1,
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
    /// `None` for a task whose tally has not been loaded.
    parents: Vec<Option<ParentTally>>,
}

/// What a store keeps of the counters of a run that goes on, apart from the tallies of
/// its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCounters {
    /// Tasks that have not ended.
    pub open: u32,
    /// Tasks that failed.
    pub failed: u32,
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
            parents: vec![None; states.len()],
        };
        if let Some(on_failure) = definition.on_failure()
            && states[on_failure.as_usize()] == TaskState::Pending
        {
            progress.open -= 1;
            progress.on_failure_waits = true;
        }
        for (task, tally) in definition.tasks().iter().zip(&mut progress.parents) {
            let tally = tally.insert(ParentTally::default());
            for parent in &task.parents {
                tally.count(states[parent.as_usize()]);
            }
        }
        progress
    }

    /// The counters of a run that goes on, before the tallies of its tasks are
    /// [loaded](Progress::load) and its [on-failure task](Progress::on_failure_waits) was
    /// looked at.
    pub fn partial(definition: &Definition, counters: RunCounters) -> Progress {
        let RunCounters { open, failed } = counters;
        let parents = vec![None; definition.tasks().len()];
        Progress { open, failed, cancelled: 0, on_failure_waits: false, parents }
    }

    /// Says how the parents of a task ended so far.
    pub fn load(&mut self, task: TaskIndex, tally: ParentTally) {
        self.parents[task.as_usize()] = Some(tally);
    }

    /// Says whether there is an on-failure task whose turn has not come.
    pub fn on_failure_waits(&mut self, waits: bool) {
        self.on_failure_waits = waits;
    }

    /// The tasks whose tallies must be loaded before [`end`](Progress::end) is told of
    /// this task's end. More may be missing once these are there.
    pub fn missing(
        &self,
        definition: &Definition,
        task: TaskIndex,
        state: TaskState,
    ) -> Vec<TaskIndex> {
        let mut missing = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut ended = vec![(task, state)];
        while let Some((parent, state)) = ended.pop() {
            for child in definition.children(parent) {
                let Some(mut tally) = self.parents[child.as_usize()] else {
                    missing.insert(*child);
                    continue;
                };
                tally.pending = tally.pending.saturating_sub(1);
                tally.count(state);
                // Of what lies behind a skipped task, several parents may end together:
                // all of it is followed.
                let is_skipped =
                    tally.pending == 0 && !definition.task(*child).trigger.is_met_by(tally);
                if (is_skipped || parent != task) && seen.insert(*child) {
                    ended.push((*child, TaskState::Skipped));
                }
            }
        }
        missing.into_iter().collect()
    }

    /// The pending tasks whose parents have all ended. At a start they have none,
    /// at a restart they ran before and their parents have not changed: both times
    /// the triggers are met.
    fn unblocked(&self, definition: &Definition, states: &[TaskState]) -> Vec<Effect> {
        let waits = |index: &TaskIndex| {
            states[index.as_usize()] == TaskState::Pending
                && definition.task(*index).kind != TaskKind::OnFailure
                && self.parents(*index).pending == 0
        };
        definition.indices().filter(waits).map(Effect::Unblock).collect()
    }

    /// The number of tasks that have not ended. An on-failure task counts from the
    /// moment it may run.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// The number of tasks that failed.
    pub fn failed(&self) -> u32 {
        self.failed
    }

    /// How the parents of a task ended so far.
    ///
    /// # Panics
    ///
    /// If the tally has not been loaded.
    pub fn parents(&self, task: TaskIndex) -> ParentTally {
        self.parents[task.as_usize()].expect("its tally was loaded")
    }

    /// Counts the end of a task and says what follows from it.
    ///
    /// The time it takes grows with the edges out of the tasks that end, each of
    /// which is followed once in the life of a run.
    ///
    /// # Panics
    ///
    /// If a tally is [missing](Progress::missing).
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
                let tally = self.parents[child.as_usize()].as_mut();
                let tally = tally.expect("its tally was loaded");
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

    /// Whether a task that a retry begins anew waits for others that it does as well. What it kept
    /// until then, such as slots of limits, those others may need.
    pub fn is_behind(definition: &Definition, reset: &[TaskIndex], task: TaskIndex) -> bool {
        let spec = definition.task(task);
        spec.kind == TaskKind::OnFailure || spec.parents.iter().any(|it| reset.contains(it))
    }

    /// The counters after a reset, and the tasks that may run at once. `states`
    /// are those after the reset.
    pub fn restart(definition: &Definition, states: &[TaskState]) -> (Progress, Vec<Effect>) {
        let progress = Progress::recompute(definition, states);
        let effects = progress.unblocked(definition, states);
        (progress, effects)
    }
}
