//! What people do to runs.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::decide::{MESSAGE_BYTES_MAX, storable};
use windlass_core::{
    Progress, RunCommand, RunEventKind, RunId, RunState, TaskCommand, TaskEventKind, TaskId,
    TaskIndex, TaskState,
};

use super::PostgresStore;
use super::fault::Fault;
use super::pool::Tx;
use super::statements as sql;
use super::work::Work;
use super::writes::params;
use crate::store::undo::was_undone;
use crate::store::{StoreError, wrong_state};

impl PostgresStore {
    /// Locks one run.
    pub(super) async fn lock_run(&self, tx: &Tx<'_>, id: RunId) -> Result<Work, Fault> {
        let work = self.lock_runs(tx, [id]).await?;
        if work.runs.is_empty() {
            return Err(StoreError::NotFound(format!("run {id}")).into());
        }
        Ok(work)
    }

    pub(super) async fn cancel_once(&self, id: RunId, reason: Option<&str>) -> Result<(), Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let mut work = self.lock_run(&tx, id).await?;
        let state = work.runs[&id].state;
        match state {
            RunState::Cancelled => return Ok(()),
            RunState::Running => {}
            RunState::Succeeded | RunState::Failed => {
                return Err(wrong_state(id, state, "running", "cancelled").into());
            }
        }
        self.cancel_in(&tx, &mut work, id, reason).await?;
        self.conclude(tx, &mut work).await?;
        Ok(())
    }

    /// Cancels a run that is locked and has not ended.
    pub(super) async fn cancel_in(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        id: RunId,
        reason: Option<&str>,
    ) -> Result<(), Fault> {
        self.lock_lanes(tx, work, [id]).await?;
        tx.query(&sql::LOCK_READY, &[id.as_uuid()]).await?;
        work.load_all(tx, id).await?;
        let now = work.now;
        if let Some((run, moves)) = work.run(id) {
            let failed = run.tasks.iter().filter(|(_, task)| task.state == TaskState::Failed);
            moves.revived.extend(failed.map(|(index, _)| TaskId { run: id, index: *index }));
            let open: Vec<TaskIndex> = run
                .tasks
                .iter()
                .filter(|(_, task)| !task.state.is_final())
                .map(|(index, _)| *index)
                .collect();
            // What failed and halts its stream has slots.
            let halting = run.tasks.iter().filter(|(_, task)| task.state == TaskState::Failed);
            let halting: Vec<TaskIndex> = halting.map(|(index, _)| *index).collect();
            moves.vacated.extend(
                halting.into_iter().filter(|it| run.is_limited(*it)).map(|it| run.task_id(it)),
            );
            for index in open {
                let holder = run.task(index)?.holder.take();
                moves.interrupted.extend(holder.map(|(worker, _)| *worker.as_uuid()));
                run.move_task(moves, index, TaskCommand::Cancel, TaskEventKind::Cancelled)?;
            }
            let definition = Arc::clone(&run.definition);
            run.progress = Progress::recompute(&definition, &run.states()?);
            let reason = reason.map(|reason| storable(reason, MESSAGE_BYTES_MAX));
            run.move_run(moves, now, RunCommand::Cancel, RunEventKind::Cancelled { reason })?;
        }
        Ok(())
    }

    pub(super) async fn retry_once(&self, id: RunId, round: u32) -> Result<u32, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let mut work = self.lock_run(&tx, id).await?;
        let (state, present) = (work.runs[&id].state, work.runs[&id].round);
        if round > 0 && Some(present) == round.checked_add(1) {
            return Ok(present);
        }
        if present != round {
            let text = format!("run {id} is in round {present}, not in round {round}");
            return Err(StoreError::Conflict(text).into());
        }
        match state {
            RunState::Failed => {}
            RunState::Running | RunState::Succeeded | RunState::Cancelled => {
                return Err(wrong_state(id, state, "failed", "retried").into());
            }
        }
        let by = RunId::of_undo(id, round);
        if !tx.query(&sql::GET_RUN, &[by.as_uuid()]).await?.is_empty() {
            return Err(was_undone(id, by).into());
        }
        work.load_all(&tx, id).await?;
        work.begin_round(id, Duration::ZERO)?;
        self.settle_lanes(&tx, &mut work).await?;
        let mut writes = work.writes(tx.names())?;
        if id.may_be_child() {
            writes.push(&sql::REOPEN_CHILD, params![*id.as_uuid()]);
            // A sweep beside this may take it for ended after all, and the next one looks again.
            writes.push(&sql::NOTE_ENDS, params![vec![*id.as_uuid()]]);
        }
        self.conclude_with(tx, &work, writes).await?;
        Ok(round + 1)
    }
}

impl Work {
    /// Begins the next round of a failed run, all of whose tasks are loaded, after a delay.
    pub(super) fn begin_round(&mut self, id: RunId, delay: Duration) -> Result<(), StoreError> {
        let now = self.now;
        let Some((run, moves)) = self.run(id) else { return Ok(()) };
        run.round += 1;
        let round = run.round;
        run.move_run(moves, now, RunCommand::Retry, RunEventKind::Retried { round })?;
        moves.begun.push(id);
        moves.delays.insert(id, delay);
        let definition = Arc::clone(&run.definition);
        let reset = Progress::to_reset(&definition, &run.states()?);
        for index in reset.iter().copied() {
            let id = run.task_id(index);
            let is_behind = Progress::is_behind(&definition, &reset, index);
            if definition.task(index).halts() && is_behind {
                moves.vacated.push(id);
            }
            let task = run.task(index)?;
            let is_failed = task.state == TaskState::Failed;
            let failure = task.failure.clone().filter(|_| is_failed);
            task.attempt = 0;
            task.failure = None;
            task.output = None;
            task.is_changed = true;
            moves.reset.push((id, failure));
            moves.revived.extend(is_failed.then_some(id));
            run.move_task(moves, index, TaskCommand::Reset, TaskEventKind::Reset)?;
        }
        let (progress, effects) = Progress::restart(&definition, &run.states()?);
        run.progress = progress;
        run.apply_effects(moves, now, effects, delay)
    }
}
