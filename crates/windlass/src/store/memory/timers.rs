//! What was scheduled and is due.

use std::collections::HashSet;
use std::time::Duration;

use windlass_core::decide::{not_claimed, took_too_long};
use windlass_core::{RunId, TaskCommand, TaskEventKind, TaskId, TaskIndex, TaskKind};

use super::run::Run;
use super::state::{Shared, State};
use crate::planted::PlantedBug;
use crate::store::{StoreError, Sweep};

impl State {
    /// Takes tasks whose time has come, the earliest first.
    pub(super) fn take_due(&mut self, limit: usize) -> Vec<TaskId> {
        let mut horizon = self.shared.now;
        if self.shared.planted.has(PlantedBug::EarlyTimers) {
            horizon = horizon + Duration::from_millis(50);
        }
        std::iter::from_fn(|| self.shared.pop_due(horizon)).take(limit).collect()
    }

    /// Makes the tasks that were taken ready, or ends them if they were sleeps.
    pub(super) fn promote(&mut self, due: Vec<TaskId>, limit: usize) -> Result<Sweep, StoreError> {
        let notices = self.take_notices(limit.saturating_sub(due.len()));
        let mut cancelled = HashSet::new();
        let mut moved = notices.len();
        moved += self.expire(limit.saturating_sub(due.len() + moved), &mut cancelled)?;
        cancelled.extend(self.cancel_children(&notices)?);
        cancelled.extend(self.cancel_superseded(&notices)?);
        for id in due {
            let Some(run) = self.runs.get_mut(&id.run) else {
                return Err(StoreError::Corrupt(format!("task {id} is scheduled without a run")));
            };
            // What is cancelled by this very sweep does not become ready before.
            if !cancelled.contains(&id.run) {
                run.promote(&mut self.shared, id)?;
                moved += 1;
            }
        }
        self.resume_parents(&notices)?;
        self.resume_told(&notices)?;
        self.shared.mailboxes.expire(self.shared.now, limit);
        let notices = (!self.shared.notices.is_empty()).then_some(self.shared.now);
        // What undoes runs that it cancelled may be due later.
        self.settle_lanes();
        self.note_ends();
        let next_at = [self.shared.next_due(), notices].into_iter().flatten().min();
        Ok(Sweep { at: self.shared.now, moved, next_at })
    }
}

impl State {
    /// Ends what has missed its deadline: cancels runs that take too long, which are added to
    /// those, and fails tasks that nobody has claimed in time.
    fn expire(
        &mut self,
        limit: usize,
        cancelled: &mut HashSet<RunId>,
    ) -> Result<usize, StoreError> {
        let mut moved = 0;
        while moved < limit
            && let Some((at, id, index)) = self.shared.deadlines.first().copied()
            && at <= self.shared.now
        {
            self.shared.deadlines.remove(&(at, id, index));
            moved += 1;
            let Some(run) = self.runs.get_mut(&id) else { continue };
            match (index, run.definition.timeout()) {
                (Some(index), _) => run.fail_unclaimed(&mut self.shared, index)?,
                (None, Some(timeout)) => {
                    self.cancel_run(id, Some(took_too_long(timeout)))?;
                    cancelled.insert(id);
                }
                (None, None) => {}
            }
        }
        Ok(moved)
    }
}

impl Run {
    fn fail_unclaimed(&mut self, shared: &mut Shared, index: TaskIndex) -> Result<(), StoreError> {
        let timeout = self.definition.task(index).claim_timeout.unwrap_or_default();
        let failure = not_claimed(timeout);
        let task = self.task(index);
        task.failure = Some(failure.clone());
        if let Some(place) = task.place.take() {
            shared.ready.withdraw(&place);
        }
        let kind = TaskEventKind::Failed { failure };
        self.end_task(shared, index, TaskCommand::Fail, kind)
    }

    fn promote(&mut self, shared: &mut Shared, id: TaskId) -> Result<(), StoreError> {
        self.task(id.index).due = None;
        match self.definition.task(id.index).kind {
            TaskKind::Sleep(_) => {
                self.end_task(shared, id.index, TaskCommand::Wake, TaskEventKind::Woken)
            }
            TaskKind::Handler | TaskKind::OnFailure => {
                self.queue(shared, id.index, TaskCommand::Promote)
            }
        }
    }
}
