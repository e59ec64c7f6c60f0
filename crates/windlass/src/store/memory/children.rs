//! Runs that functions start and wait for.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;

use windlass_core::{
    Call, RunId, RunState, StepRecord, StepResult, TaskId, TaskIndex, TaskKind, TaskState,
};

use super::state::{Ended, State};
use crate::planted::PlantedBug;
use crate::store::{Born, Child, ChildCount, ChildStart, PAGE_MAX, StoreError};

/// Who started whom.
#[derive(Default)]
pub(super) struct Family {
    children: BTreeMap<(TaskId, Call, u32), RunId>,
    parents: HashMap<RunId, (TaskId, Call)>,
    /// The children that are not known to have ended.
    open: BTreeSet<(TaskId, Call, RunId)>,
}

impl Family {
    /// Whether a function started the run and can read what became of it.
    pub(super) fn has_parent(&self, run: RunId) -> bool {
        self.parents.contains_key(&run)
    }

    /// Forgets the children of a run that is gone.
    pub(super) fn leave(&mut self, run: RunId) {
        let first = TaskId { run, index: TaskIndex(0) };
        let children = self.children.range((first, Call(0), 0)..);
        let mine = children.take_while(|((task, ..), _)| task.run == run);
        let mine: Vec<_> = mine.map(|(place, child)| (*place, *child)).collect();
        for ((task, call, place), child) in mine {
            self.children.remove(&(task, call, place));
            self.parents.remove(&child);
            self.open.remove(&(task, call, child));
        }
    }

    /// The runs that a run started and waits for.
    fn children_of(&self, run: RunId) -> impl Iterator<Item = RunId> {
        let first = TaskId { run, index: TaskIndex(0) };
        let children = self.children.range((first, Call(0), 0)..);
        children.take_while(move |((task, ..), _)| task.run == run).map(|(_, child)| *child)
    }
}

/// Something that happened to a run and that others must hear of.
#[derive(Clone, Copy)]
pub(super) enum Notice {
    /// It ended, or was retried.
    Ended(RunId),
    /// It was cancelled, and so are its children.
    Cancelled(RunId),
    /// A signal came for functions of it that wait for a key.
    Signalled(RunId),
    /// Others have the place of a task of it in a lane, and it is to be cancelled.
    Superseded(RunId),
}

impl Notice {
    fn run(self) -> RunId {
        match self {
            Notice::Ended(run)
            | Notice::Cancelled(run)
            | Notice::Signalled(run)
            | Notice::Superseded(run) => run,
        }
    }
}

impl State {
    /// Whether others are yet to hear of what happened to a run.
    pub(super) fn has_notices(&self, run: RunId) -> bool {
        self.shared.notices.iter().any(|notice| notice.run() == run)
    }

    pub(super) fn start_child(&mut self, start: ChildStart) -> Born {
        let ChildStart { held, call, place, run, definition } = start;
        if let Err(refusal) = self.holder(held) {
            return Born::Refused(refusal);
        }
        let key = (run.workflow.clone(), run.version);
        if !self.definitions.contains_key(&key)
            && let Err(error) = self.register_all(vec![definition])
        {
            return Born::Failed(error);
        }
        let started = match self.start(run) {
            Ok(started) => started,
            Err(error) => return Born::Failed(error),
        };
        // A run has one parent, and a place one child: the first.
        if let Some(place) = place
            && !self.family.parents.contains_key(&started.run)
            && let Entry::Vacant(entry) = self.family.children.entry((held.task, call, place))
        {
            entry.insert(started.run);
            self.family.parents.insert(started.run, (held.task, call));
            self.family.open.insert((held.task, call, started.run));
        }
        Born::Started(started)
    }

    pub(super) fn count_children(&self, task: TaskId, call: Call) -> ChildCount {
        let places = self.family.children.range((task, call, 0)..=(task, call, u32::MAX));
        ChildCount {
            started: u32::try_from(places.count()).unwrap_or(u32::MAX),
            open: u32::try_from(self.open_children(task, call).count()).unwrap_or(u32::MAX),
        }
    }

    fn open_children(&self, task: TaskId, call: Call) -> impl Iterator<Item = RunId> {
        let least = (task, call, RunId::from_uuid(uuid::Uuid::nil()));
        let open = self.family.open.range(least..);
        open.take_while(move |one| (one.0, one.1) == (task, call)).map(|one| one.2)
    }

    /// The children of a call that are not known to have ended, in the order of their places.
    pub(super) fn open_in_order(&self, task: TaskId, call: Call) -> impl Iterator<Item = RunId> {
        let places = self.family.children.range((task, call, 0)..=(task, call, u32::MAX));
        let is_open = move |run: &RunId| self.family.open.contains(&(task, call, *run));
        places.map(|(_, run)| *run).filter(is_open)
    }

    pub(super) fn list_children(
        &self,
        task: TaskId,
        call: Call,
        after: Option<u32>,
        limit: usize,
    ) -> Vec<Child> {
        let first = match after {
            Some(place) => Bound::Excluded((task, call, place)),
            None => Bound::Included((task, call, 0)),
        };
        let last = Bound::Included((task, call, u32::MAX));
        let places = self.family.children.range((first, last));
        let child = |((_, _, place), run): (&(TaskId, Call, u32), &RunId)| {
            let run = self.runs.get(run)?;
            let result = run.state.is_final().then(|| self.result_of(run.id)).flatten();
            Some(Child { place: *place, run: run.id, state: run.state, result })
        };
        places.filter_map(child).take(limit.min(PAGE_MAX)).collect()
    }

    /// What a run that has ended came to.
    fn result_of(&self, run: RunId) -> Option<StepResult> {
        let run = self.runs.get(&run)?;
        if run.state != RunState::Succeeded {
            let failure = run.tasks.iter().find(|task| task.state == TaskState::Failed);
            let failure = failure.and_then(|task| task.failure.clone());
            return Some(Child::failed(run.id, run.state, failure));
        }
        let is_one =
            run.tasks.len() == 1 && !matches!(run.definition.tasks()[0].kind, TaskKind::Sleep(_));
        let output = run.tasks[0].output.clone().filter(|_| is_one);
        Some(StepResult::Value(output.unwrap_or_default()))
    }

    /// Forgets the children of calls that are made once more.
    pub(super) fn forget_children(&mut self, run: RunId) {
        let Some(parent) = self.runs.get(&run) else { return };
        let is_kept = |task: &TaskId, call: &Call| {
            let steps = parent.tasks.get(task.index.as_usize()).map(|task| &task.steps);
            steps.and_then(|steps| steps.get(call)).is_some_and(|step| step.number().is_some())
        };
        let state = |task: &TaskId| parent.tasks.get(task.index.as_usize()).map(|task| task.state);
        let first = TaskId { run, index: TaskIndex(0) };
        let places = self.family.children.range((first, Call(0), 0)..);
        let mine = places.take_while(|((task, ..), _)| task.run == run);
        let forgotten: Vec<_> = mine
            .filter(|((task, call, _), _)| {
                state(task).is_some_and(|state| !state.is_final()) && !is_kept(task, call)
            })
            .map(|(place, child)| (*place, *child))
            .collect();
        for ((task, call, place), child) in forgotten {
            self.family.children.remove(&(task, call, place));
            self.family.parents.remove(&child);
            self.family.open.remove(&(task, call, child));
        }
    }

    /// A run that is retried has not ended for its parent either.
    pub(super) fn reopen_child(&mut self, run: RunId) {
        if let Some((task, call)) = self.family.parents.get(&run) {
            self.family.open.insert((*task, *call, run));
            self.shared.notices.push_back(Notice::Ended(run));
        }
    }

    /// Notes which of the runs that ended others must hear of.
    pub(super) fn note_ends(&mut self) {
        // Whoever lets old runs go is to know of them.
        self.shared.wakes.timers |= !self.shared.ended.is_empty() && !self.retention.is_empty();
        let ended = std::mem::take(&mut self.shared.ended);
        self.undo_ended(&ended);
        ended.iter().for_each(|ended| self.note_end(ended));
    }

    /// Notes that others must hear of a run that ended, if they must.
    pub(super) fn note_end(&mut self, ended: &Ended) {
        let Ended { run, state, .. } = *ended;
        if self.family.parents.contains_key(&run) {
            self.shared.notices.push_back(Notice::Ended(run));
        }
        let is_open = |child: &RunId| {
            self.family
                .parents
                .get(child)
                .is_some_and(|(task, call)| self.family.open.contains(&(*task, *call, *child)))
        };
        let forgets = self.shared.planted.has(PlantedBug::CancelForgetsChildren);
        let is_told = state == RunState::Cancelled && !forgets;
        if is_told && self.family.children_of(run).any(|id| is_open(&id)) {
            self.shared.notices.push_back(Notice::Cancelled(run));
        }
        self.shared.wakes.timers |= !self.shared.notices.is_empty();
    }

    /// Takes up to `limit` notices, the oldest first.
    pub(super) fn take_notices(&mut self, limit: usize) -> Vec<Notice> {
        let count = limit.min(self.shared.notices.len());
        self.shared.notices.drain(..count).collect()
    }

    /// Cancels the children of runs that were cancelled, and answers which it did.
    pub(super) fn cancel_children(
        &mut self,
        notices: &[Notice],
    ) -> Result<HashSet<RunId>, StoreError> {
        let mut cancelled = HashSet::new();
        for notice in notices {
            let Notice::Cancelled(run) = *notice else { continue };
            let children: Vec<RunId> = self.family.children_of(run).collect();
            for child in children {
                let state = self.runs.get(&child).map(|run| run.state);
                if state == Some(RunState::Running) {
                    let reason = format!("its parent run {run} was cancelled");
                    self.cancel_run(child, Some(reason))?;
                    cancelled.insert(child);
                }
            }
        }
        Ok(cancelled)
    }

    /// Lets functions go on that wait for children which have ended.
    pub(super) fn resume_parents(&mut self, notices: &[Notice]) -> Result<(), StoreError> {
        let mut parents = BTreeSet::new();
        for notice in notices {
            let Notice::Ended(run) = *notice else { continue };
            if let Some((task, call)) = self.family.parents.get(&run).copied() {
                // It may have been retried since.
                if self.runs.get(&run).is_none_or(|run| run.state.is_final()) {
                    self.family.open.remove(&(task, call, run));
                }
                parents.insert(task);
            }
        }
        parents.into_iter().try_for_each(|task| self.resume_parent(task))
    }

    /// Lets a function go on that waits for children of which enough have ended.
    pub(super) fn resume_parent(&mut self, task: TaskId) -> Result<(), StoreError> {
        let Some(run) = self.runs.get(&task.run) else { return Ok(()) };
        let Some(parent) = run.tasks.get(task.index.as_usize()) else { return Ok(()) };
        let has_ended = |run: &RunId| self.runs.get(run).is_none_or(|run| run.state.is_final());
        let is_met = |step: &StepRecord| {
            step.children_max().is_some_and(|most| {
                let open = self.open_children(task, step.call).filter(|run| !has_ended(run));
                open.count() <= most as usize
            })
        };
        let is_met = parent.state == TaskState::Waiting && parent.steps.values().any(is_met);
        match self.runs.get_mut(&task.run).filter(|_| is_met) {
            Some(run) => run.resume(&mut self.shared, task.index),
            None => Ok(()),
        }
    }
}
