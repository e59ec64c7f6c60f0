//! What must have happened until a time: a run have ended, a task have been claimed.
//!
//! A deadline is not taken back when its run ends or its task is claimed: most are kept, and
//! whoever finds one that has passed looks whether it still means something.

use std::collections::BTreeSet;

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::decide::{not_claimed, took_too_long};
use windlass_core::{
    Fence, RunId, RunState, TaskCommand, TaskEventKind, TaskId, TaskIndex, TaskState, Timestamp,
};

use super::PostgresStore;
use super::fault::Fault;
use super::pool::Tx;
use super::statements as sql;
use super::time::At;
use super::unsound;
use super::work::{Work, sorted_ids};
use super::writes::{Writes, params};

/// Stands for the run itself among its tasks.
const WHOLE_RUN: i32 = -1;

/// A deadline that has passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) run: RunId,
    /// The task that must have been claimed, by its fence until then; `None` for the run.
    task: Option<(TaskIndex, Fence)>,
}

impl Passed {
    /// What a row of [`sql::DUE_DEADLINES`] says.
    pub(super) fn of(row: &Row) -> Self {
        let index: i32 = row.get("idx");
        let fence = Fence(row.get::<_, i64>("fence").cast_unsigned());
        let task = (index != WHOLE_RUN).then_some((TaskIndex(index.cast_unsigned()), fence));
        Passed { run: RunId::from_uuid(row.get("run_id")), task }
    }

    fn index(&self) -> i32 {
        self.task.map_or(WHOLE_RUN, |(index, _)| index.0.cast_signed())
    }
}

impl PostgresStore {
    /// Ends what has missed its deadline: cancels runs that take too long, and fails tasks that
    /// nobody has claimed in time. Answers the deadlines that are done with, and how many of them
    /// had been missed; those of runs that others have locked are not done with.
    pub(super) async fn expire(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        passed: &[Passed],
    ) -> Result<(Vec<Passed>, usize), Fault> {
        let (mut done, mut missed) = (Vec::new(), 0);
        let late = passed.iter().filter(|one| one.task.is_none()).map(|one| one.run);
        let busy = busy_runs(tx, work, late).await?;
        let still = still_passed(tx, work, passed).await?;
        for one in passed {
            let Some(run) = work.runs.get(&one.run) else { continue };
            if one.task.is_none() && busy.contains(&one.run) {
                continue;
            }
            done.push(*one);
            if run.state != RunState::Running || !still.contains(&(one.run, one.index())) {
                continue;
            }
            match (one.task, run.definition.timeout()) {
                (None, Some(timeout)) => {
                    let reason = took_too_long(timeout);
                    self.cancel_in(tx, work, one.run, Some(&reason)).await?;
                    missed += 1;
                }
                (None, None) => {}
                (Some((index, fence)), _) => {
                    let task = TaskId { run: one.run, index };
                    missed += usize::from(self.fail_unclaimed(tx, work, task, fence).await?);
                }
            }
        }
        Ok((done, missed))
    }

    /// Answers whether the task waited for a worker, and has failed.
    async fn fail_unclaimed(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        id: TaskId,
        fence: Fence,
    ) -> Result<bool, Fault> {
        // A claim does not lock the run, so what it takes is looked at behind it.
        tx.query(&sql::LOCK_READY, &[id.run.as_uuid()]).await?;
        work.load(tx, [id]).await?;
        let is_waiting =
            work.task(id).is_some_and(|task| task.state == TaskState::Ready && task.fence == fence);
        if !is_waiting {
            return Ok(false);
        }
        work.load_for_ends(tx, &[(id, TaskState::Failed)]).await?;
        let now = work.now;
        let Some((run, moves)) = work.run(id.run) else { return Ok(false) };
        let timeout = run.definition.task(id.index).claim_timeout.unwrap_or_default();
        let failure = not_claimed(timeout);
        let unsound = unsound::of(id.run);
        run.task(id.index).map_err(&unsound)?.failure = Some(failure.clone());
        let kind = TaskEventKind::Failed { failure };
        run.end_task(moves, now, id.index, TaskCommand::Fail, kind).map_err(&unsound)?;
        Ok(true)
    }
}

/// What some deadlines of locked runs were for that have still passed: before the lock, a run may
/// have been retried and given others.
async fn still_passed(
    tx: &Tx<'_>,
    work: &Work,
    passed: &[Passed],
) -> Result<BTreeSet<(RunId, i32)>, Fault> {
    let locked = passed.iter().filter(|one| work.runs.contains_key(&one.run));
    let (runs, indices): (Vec<Uuid>, Vec<i32>) =
        locked.map(|one| (*one.run.as_uuid(), one.index())).unzip();
    if runs.is_empty() {
        return Ok(BTreeSet::new());
    }
    let rows = tx.query(&sql::PASSED_DEADLINES, &[&runs, &indices, &At(work.now)]).await?;
    Ok(rows.iter().map(|row| (RunId::from_uuid(row.get("run_id")), row.get("idx"))).collect())
}

/// Those of some runs that are locked and cannot be cancelled without waiting for a transaction of
/// a user's. The leases of the others are locked from now on.
pub(super) async fn busy_runs(
    tx: &Tx<'_>,
    work: &Work,
    runs: impl IntoIterator<Item = RunId>,
) -> Result<BTreeSet<RunId>, Fault> {
    let ids = sorted_ids(runs.into_iter().filter(|run| work.runs.contains_key(run)));
    if ids.is_empty() {
        return Ok(BTreeSet::new());
    }
    let rows = tx.query(&sql::BUSY_RUNS, &[&ids]).await?;
    Ok(rows.iter().map(|row| RunId::from_uuid(row.get("run_id"))).collect())
}

/// Forgets deadlines that have passed.
pub(super) fn forget(writes: &mut Writes<'_>, now: Timestamp, done: &[Passed]) {
    if !done.is_empty() {
        let runs: Vec<Uuid> = done.iter().map(|one| *one.run.as_uuid()).collect();
        let indices: Vec<i32> = done.iter().map(Passed::index).collect();
        writes.push(&sql::DELETE_DEADLINES, params![runs, indices, At(now)]);
    }
}

impl Work {
    /// Sets the deadlines of runs that begin, and of tasks that wait for a worker.
    pub(super) fn write_deadlines(&self, writes: &mut Writes<'_>) {
        let (mut runs, mut indices) = (Vec::<Uuid>::new(), Vec::<i32>::new());
        let (mut fences, mut dues) = (Vec::<i64>::new(), Vec::<At>::new());
        for run in &self.moves.begun {
            if let Some(timeout) = self.runs.get(run).and_then(|run| run.definition.timeout()) {
                runs.push(*run.as_uuid());
                indices.push(WHOLE_RUN);
                fences.push(0);
                let delay = self.moves.delays.get(run).copied().unwrap_or_default();
                dues.push(At(self.now + delay + timeout));
            }
        }
        for id in self.moves.enqueued.iter().chain(&self.moves.put_back) {
            let Some(run) = self.runs.get(&id.run) else { continue };
            let Some(timeout) = run.definition.task(id.index).claim_timeout else { continue };
            let Some(task) = run.tasks.get(&id.index) else { continue };
            runs.push(*id.run.as_uuid());
            indices.push(id.index.0.cast_signed());
            fences.push(task.fence.0.cast_signed());
            dues.push(At(self.now + timeout));
        }
        if !runs.is_empty() {
            writes.push(&sql::SET_DEADLINES, params![runs, indices, fences, dues]);
        }
    }

    /// Whether deadlines are set.
    pub(super) fn has_deadlines(&self) -> bool {
        let has_timeout =
            |run: &RunId| self.runs.get(run).is_some_and(|run| run.definition.timeout().is_some());
        let is_limited = |id: &TaskId| {
            let run = self.runs.get(&id.run);
            run.is_some_and(|run| run.definition.task(id.index).claim_timeout.is_some())
        };
        let mut waiting = self.moves.enqueued.iter().chain(&self.moves.put_back);
        self.moves.begun.iter().any(has_timeout) || waiting.any(is_limited)
    }
}
