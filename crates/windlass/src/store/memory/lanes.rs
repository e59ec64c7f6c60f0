//! Slots in the lanes of limits: given up by tasks that ended, given to those who wait.

use windlass_core::lane::Verdict;
use windlass_core::{LaneId, TaskCommand, TaskEventKind, TaskId, TaskState};

use super::run::Run;
use super::state::{Shared, State};
use crate::store::StoreError;

impl State {
    /// Does for lanes what follows from the verb under way: first slots that are free go to
    /// those who wait, then tasks whose turn came ask for theirs.
    pub(super) fn settle_lanes(&mut self) {
        loop {
            for task in std::mem::take(&mut self.shared.vacated) {
                self.shared.lanes.vacate(task);
            }
            let admitted = self.shared.lanes.admit(self.shared.now);
            self.shared.lanes.take_changes();
            for task in admitted.ready {
                self.go_on(task, |run, shared| {
                    run.begin_turn(shared, task, TaskCommand::Resume, TaskEventKind::Resumed)
                });
            }
            match self.shared.requests.pop_front() {
                Some(task) => self.request_slots(task),
                None if self.shared.vacated.is_empty() => return,
                None => {}
            }
        }
    }

    fn request_slots(&mut self, task: TaskId) {
        let Some(run) = self.runs.get(&task.run) else { return };
        // The same verb may have ended it.
        if run.tasks[task.index.as_usize()].state.is_final() {
            return;
        }
        let needs = run.lane_keys.needs(&run.definition, &run.tenant, task.index);
        let verdict = self.shared.lanes.request(task, needs, self.shared.now);
        self.go_on(task, |run, shared| match verdict {
            Verdict::Ready => {
                let is_pending = run.task(task.index).state == TaskState::Pending;
                let command = if is_pending { TaskCommand::Queue } else { TaskCommand::Promote };
                run.begin_turn(shared, task, command, TaskEventKind::Queued)
            }
            Verdict::Wait(lane) => run.block(shared, task, lane),
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
        self.move_task(shared, task.index, command, kind)?;
        self.enqueue(shared, task.index);
        Ok(())
    }

    fn block(&mut self, shared: &mut Shared, task: TaskId, lane: LaneId) -> Result<(), StoreError> {
        let kind = TaskEventKind::Blocked { limit: lane.limit, key: lane.key };
        self.move_task(shared, task.index, TaskCommand::Block, kind)
    }
}
