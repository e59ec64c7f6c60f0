//! Slots in the lanes of limits: given up by tasks that ended, given to those who wait.

use std::collections::{BTreeSet, HashSet};

use windlass_core::lane::{Changes, Verdict};
use windlass_core::{
    Fence, LaneId, RunId, RunState, TaskCommand, TaskEventKind, TaskId, TaskIndex, TaskState,
    Timestamp,
};

use super::children::Notice;
use super::run::Run;
use super::state::{AttemptEnd, Shared, State};
use crate::store::{SUPERSEDED, StoreError};

impl State {
    /// Does for lanes what follows from the verb under way: first slots that are free go to
    /// those who wait, then tasks whose turn came ask for theirs.
    pub(super) fn settle_lanes(&mut self) {
        let now = self.shared.now;
        loop {
            self.open_lanes();
            for end in std::mem::take(&mut self.shared.attempts) {
                let AttemptEnd { task, is_failure, is_retried } = end;
                let before = self.shared.meters();
                self.shared.lanes.report(task, is_failure, now);
                self.shared.mistake_reports(&before);
                if is_retried {
                    self.shared.lanes.end_attempt(task);
                }
            }
            // What is given for one attempt is not kept with the slots.
            for task in std::mem::take(&mut self.shared.halted) {
                self.shared.lanes.end_attempt(task);
            }
            for task in std::mem::take(&mut self.shared.vacated) {
                self.shared.release_twice(task);
                if !self.shared.forgets_places(task) {
                    self.shared.lanes.vacate(task);
                }
                self.shared.superseded.remove(&task);
            }
            self.shared.line_up_by_id();
            let before = self.shared.meters();
            let mut admitted = self.shared.lanes.admit(now);
            self.shared.mistake_turns(&before, true);
            self.shared.lanes.line_up(&mut admitted.ready);
            for task in admitted.ready {
                self.go_on(task, |run, shared| {
                    run.begin_turn(shared, task, TaskCommand::Resume, TaskEventKind::Resumed)
                });
            }
            match self.shared.requests.pop_front() {
                Some(task) => self.request_slots(task),
                None if self.shared.vacated.is_empty() && !self.shared.lanes.is_open() => break,
                None => {}
            }
        }
        let mut changes = self.shared.lanes.take_changes();
        self.shared.keep_first(&mut changes);
        let Changes { silenced, alarms, superseded, .. } = changes;
        for task in silenced {
            self.put_off(task, None);
        }
        self.shared.lanes.forget(now);
        let mut runs = BTreeSet::new();
        for (task, _, _) in superseded {
            self.shared.superseded.insert(task);
            runs.insert(task.run);
        }
        // A run is noted once by each verb.
        runs.retain(|run| self.shared.noted.insert(*run));
        self.shared.wakes.timers |= !runs.is_empty();
        self.shared.notices.extend(runs.into_iter().map(Notice::Superseded));
        for (task, due) in alarms {
            self.put_off(task, Some(due));
        }
    }

    /// Someone who waits in a lane is looked at again at another time, or not at all.
    fn put_off(&mut self, id: TaskId, due: Option<Timestamp>) {
        let Some(run) = self.runs.get_mut(&id.run) else { return };
        if run.task(id.index).state != TaskState::Waiting {
            return;
        }
        if let Some(due) = run.task(id.index).due.take() {
            self.shared.unschedule(due);
        }
        if let Some(due) = due {
            run.schedule(&mut self.shared, id.index, due);
        }
    }

    /// Cancels runs whose place in a lane others have, and answers which it did.
    pub(super) fn cancel_superseded(
        &mut self,
        notices: &[Notice],
    ) -> Result<HashSet<RunId>, StoreError> {
        let mut cancelled = HashSet::new();
        for notice in notices {
            let Notice::Superseded(id) = *notice else { continue };
            let first = TaskId { run: id, index: TaskIndex(0) };
            let last = TaskId { run: id, index: TaskIndex(u32::MAX) };
            // Its task may have ended by itself, and the rest of its run goes on.
            let has_any = self.shared.superseded.range(first..=last).next().is_some();
            let state = self.runs.get(&id).map(|run| run.state);
            if self.overlooks_superseded(first..=last) {
                continue;
            }
            if has_any && state == Some(RunState::Running) {
                self.cancel_run(id, Some(SUPERSEDED.to_owned()))?;
                cancelled.insert(id);
            }
        }
        Ok(cancelled)
    }

    /// Whoever has to do with a lane lets those go on there whose time has come.
    fn open_lanes(&mut self) {
        let Shared { attempts, vacated, requests, .. } = &self.shared;
        let attempts = attempts.iter().map(|end| end.task);
        let tasks: Vec<TaskId> =
            attempts.chain(vacated.iter().copied()).chain(requests.iter().copied()).collect();
        for task in tasks {
            let Some(run) = self.runs.get(&task.run) else { continue };
            for need in run.lane_keys.needs(&run.definition, &run.tenant, task.index) {
                self.shared.lanes.reopen(need.lane);
            }
        }
    }

    fn request_slots(&mut self, task: TaskId) {
        let Some(run) = self.runs.get(&task.run) else { return };
        // The same verb may have ended it.
        let state = run.tasks[task.index.as_usize()].state;
        // Or it was let go on by whoever looked at its lane.
        if state.is_final() || state == TaskState::Ready {
            return;
        }
        let needs = run.lane_keys.needs(&run.definition, &run.tenant, task.index);
        let is_new = run.tasks[task.index.as_usize()].fence == Fence(0);
        let verdict = self.shared.request(task, needs, is_new);
        self.go_on(task, |run, shared| match verdict {
            Verdict::Ready => {
                let is_pending = run.task(task.index).state == TaskState::Pending;
                let command = if is_pending { TaskCommand::Queue } else { TaskCommand::Promote };
                run.begin_turn(shared, task, command, TaskEventKind::Queued)
            }
            Verdict::Wait(lane) => run.block(shared, task, lane),
            Verdict::Still => Ok(()),
            Verdict::Skip(lane) => {
                run.block(shared, task, lane)?;
                run.end_task(shared, task.index, TaskCommand::Skip, TaskEventKind::Skipped)
            }
        });
    }

    fn go_on(
        &mut self,
        task: TaskId,
        step: impl FnOnce(&mut Run, &mut Shared) -> Result<(), StoreError>,
    ) {
        let Some(run) = self.runs.get_mut(&task.run) else { return };
        if let Err(error) = step(run, &mut self.shared) {
            tracing::error!(%task, %error, "a task does not get its slots");
        }
    }
}

impl Run {
    /// A task has all the slots that it needs.
    fn begin_turn(
        &mut self,
        shared: &mut Shared,
        task: TaskId,
        command: TaskCommand,
        kind: TaskEventKind,
    ) -> Result<(), StoreError> {
        if let Some(due) = self.task(task.index).due.take() {
            shared.unschedule(due);
        }
        self.move_task(shared, task.index, command, kind)?;
        self.enqueue(shared, task.index);
        Ok(())
    }

    fn block(&mut self, shared: &mut Shared, task: TaskId, lane: LaneId) -> Result<(), StoreError> {
        let kind = TaskEventKind::Blocked { limit: lane.limit, key: lane.key };
        self.move_task(shared, task.index, TaskCommand::Block, kind)
    }
}
