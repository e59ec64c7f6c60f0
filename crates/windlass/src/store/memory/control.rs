//! What people do to runs.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::decide::{MESSAGE_BYTES_MAX, storable};
use windlass_core::{
    Fence, Progress, RunCommand, RunEventKind, RunId, RunState, TaskCommand, TaskEventKind,
    TaskState,
};

use super::run::Run;
use super::state::{Shared, State};
use crate::planted::PlantedBug;
use crate::store::undo::was_undone;
use crate::store::{StoreError, wrong_state};

impl State {
    pub(super) fn run(&mut self, id: RunId) -> Result<(&mut Run, &mut Shared), StoreError> {
        match self.runs.get_mut(&id) {
            Some(run) => Ok((run, &mut self.shared)),
            None => Err(StoreError::NotFound(format!("run {id}"))),
        }
    }

    pub(super) fn cancel_run(
        &mut self,
        id: RunId,
        reason: Option<String>,
    ) -> Result<(), StoreError> {
        let (run, shared) = self.run(id)?;
        match run.state {
            RunState::Cancelled => Ok(()),
            RunState::Running => run.cancel(shared, reason),
            RunState::Succeeded | RunState::Failed => {
                Err(wrong_state(id, run.state, "running", "cancelled"))
            }
        }
    }

    pub(super) fn retry_run(&mut self, id: RunId, round: u32) -> Result<u32, StoreError> {
        let (run, _) = self.run(id)?;
        if round > 0 && Some(run.round) == round.checked_add(1) {
            return Ok(run.round);
        }
        if run.round != round {
            let text = format!("run {id} is in round {}, not in round {round}", run.round);
            return Err(StoreError::Conflict(text));
        }
        let round = self.begin_round(id, Duration::ZERO)?;
        self.reopen_child(id);
        Ok(round)
    }

    /// Begins the next round of a failed run, after a delay. The caller reopens it for its parent
    /// once no run is retried any more that may forget it.
    pub(super) fn begin_round(&mut self, id: RunId, delay: Duration) -> Result<u32, StoreError> {
        let (run, _) = self.run(id)?;
        match run.state {
            RunState::Failed => {
                let by = RunId::of_undo(id, run.round);
                if self.runs.contains_key(&by) {
                    return Err(was_undone(id, by));
                }
                let (run, shared) = self.run(id)?;
                let round = run.retry(shared, delay)?;
                self.forget_children(id);
                Ok(round)
            }
            RunState::Running | RunState::Succeeded | RunState::Cancelled => {
                Err(wrong_state(id, run.state, "failed", "retried"))
            }
        }
    }
}

impl Run {
    fn cancel(&mut self, shared: &mut Shared, reason: Option<String>) -> Result<(), StoreError> {
        shared.letters.forget(self.id);
        let definition = Arc::clone(&self.definition);
        let mut delay = Duration::ZERO;
        for index in definition.indices() {
            let id = self.task_id(index);
            let task = self.task(index);
            if task.state.is_final() {
                // One that failed and halts its stream has slots.
                if task.state == TaskState::Failed {
                    shared.vacated.push(id);
                }
                continue;
            }
            if let Some(worker) = task.holder.take() {
                let lease = shared.workers.get(&worker).map(|worker| worker.lease);
                delay = delay.max(lease.unwrap_or_default());
                shared.unlease(worker, id);
            }
            if task.state == TaskState::Ready
                && let Some(place) = task.place.take()
            {
                shared.ready.withdraw(&place);
            }
            if let Some(due) = task.due.take()
                && !shared.planted.has(PlantedBug::CancelForgetsTimers)
            {
                shared.unschedule(due);
            }
            self.move_task(shared, index, TaskCommand::Cancel, TaskEventKind::Cancelled)?;
        }
        let reason = reason.map(|reason| storable(reason, MESSAGE_BYTES_MAX));
        self.progress = Progress::recompute(&definition, &self.states());
        self.move_run(shared, RunCommand::Cancel, RunEventKind::Cancelled { reason })?;
        if let Some(ended) = shared.ended.last_mut() {
            ended.delay = delay;
        }
        Ok(())
    }

    fn retry(&mut self, shared: &mut Shared, delay: Duration) -> Result<u32, StoreError> {
        shared.letters.forget(self.id);
        self.round += 1;
        let round = self.round;
        self.move_run(shared, RunCommand::Retry, RunEventKind::Retried { round })?;
        let definition = Arc::clone(&self.definition);
        let reset = Progress::to_reset(&definition, &self.states());
        for index in reset.iter().copied() {
            let is_behind = Progress::is_behind(&definition, &reset, index);
            if definition.task(index).halts() && is_behind {
                shared.vacated.push(self.task_id(index));
            }
            let task = self.task(index);
            task.forget_steps();
            task.attempt = 0;
            task.output = None;
            task.failure = None;
            task.note = None;
            if shared.planted.has(PlantedBug::RetryResetsFence) {
                task.fence = Fence(0);
            }
            if shared.planted.has(PlantedBug::RedriveLosesPlace) {
                shared.vacated.push(self.task_id(index));
            }
            self.move_task(shared, index, TaskCommand::Reset, TaskEventKind::Reset)?;
        }
        let (progress, effects) = Progress::restart(&definition, &self.states());
        self.progress = progress;
        if !shared.planted.has(PlantedBug::RetryForgetsDeadline) {
            self.limit(shared, delay);
        }
        self.apply_effects(shared, effects, delay)?;
        Ok(round)
    }
}
