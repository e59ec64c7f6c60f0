//! Workers: their lives, their leases, and what becomes of their tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;
use windlass_core::{ClaimSeq, Fence, RunId, TaskId, TaskIndex, TaskState, Timestamp, WorkerId};

use super::PostgresStore;
use super::fault::Fault;
use super::pool::Tx;
use super::statements as sql;
use super::time::At;
use super::unsound;
use super::work::{Busy, Work};
use crate::store::{
    Heartbeat, HeartbeatAnswer, Held, Hello, Lost, ProgressNote, Refusal, StoreError, Sweep,
};

/// How long after its lease a worker without tasks is remembered. It costs such a
/// worker a second introduction to have been forgotten, and nothing else.
const IDLE_WORKER_KEPT: Duration = Duration::from_secs(60 * 60);

/// A worker that this transaction has locked.
pub(super) struct Life {
    worker: WorkerId,
    state: Alive,
    pub(super) lease: Duration,
    pub(super) lease_until: Timestamp,
    pub(super) last_claim: ClaimSeq,
    /// It holds no task of an older claim.
    oldest_claim: ClaimSeq,
}

/// How alive a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alive {
    Live,
    /// Found dead, and not all of its tasks have been taken away.
    Dying,
    Dead,
}

impl Alive {
    const fn word(self) -> &'static str {
        match self {
            Alive::Live => "live",
            Alive::Dying => "dying",
            Alive::Dead => "dead",
        }
    }
}

impl Life {
    pub(super) async fn lock(tx: &Tx<'_>, worker: WorkerId) -> Result<Option<Life>, Fault> {
        let rows = tx.query(&sql::LOCK_WORKER, &[worker.as_uuid()]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let state = match row.get("state") {
            "live" => Alive::Live,
            "dying" => Alive::Dying,
            "dead" => Alive::Dead,
            other => {
                let text = format!("worker {worker} is {other:?}");
                return Err(StoreError::Corrupt(text).into());
            }
        };
        let lease = row.get::<_, i64>("lease_micros").unsigned_abs();
        Ok(Some(Life {
            worker,
            state,
            lease: Duration::from_micros(lease),
            lease_until: row.get::<_, At>("lease_until").0,
            last_claim: ClaimSeq(row.get::<_, i64>("last_claim").cast_unsigned()),
            oldest_claim: ClaimSeq(row.get::<_, i64>("oldest_claim").cast_unsigned()),
        }))
    }

    pub(super) fn is_live(&self) -> bool {
        self.state == Alive::Live
    }

    pub(super) async fn holds_tasks(&mut self, tx: &Tx<'_>) -> Result<bool, Fault> {
        let from = self.oldest_claim.0.cast_signed();
        let rows = tx.query(&sql::OLDEST_LEASE, &[self.worker.as_uuid(), &from]).await?;
        let oldest = rows.first().map(|row| ClaimSeq(row.get::<_, i64>(0).cast_unsigned()));
        self.holds_from(oldest);
        Ok(oldest.is_some())
    }

    /// Remembers the oldest claim of which the worker holds a task, to look from there on
    /// the next time: claims come in the order of their numbers.
    fn holds_from(&mut self, oldest: Option<ClaimSeq>) {
        self.oldest_claim = oldest.unwrap_or(ClaimSeq(self.last_claim.0 + 1));
    }

    pub(super) async fn write(&self, tx: &Tx<'_>) -> Result<(), Fault> {
        let (lease_until, last_claim) = (At(self.lease_until), self.last_claim.0.cast_signed());
        let (oldest_claim, state) = (self.oldest_claim.0.cast_signed(), self.state.word());
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [self.worker.as_uuid(), &lease_until, &last_claim, &oldest_claim, &state];
        tx.execute(&sql::UPDATE_WORKER, &params).await?;
        if self.state == Alive::Dead {
            tx.execute(&sql::BURY_WORKER, &[self.worker.as_uuid()]).await?;
        }
        Ok(())
    }
}

/// A task that is leased to a worker.
struct Lease {
    held: Held,
    seq: ClaimSeq,
}

async fn leases_of(tx: &Tx<'_>, life: &Life) -> Result<Vec<Lease>, Fault> {
    let from = life.oldest_claim.0.cast_signed();
    let rows = tx.query(&sql::WORKER_LEASES, &[life.worker.as_uuid(), &from]).await?;
    let lease = |row: &tokio_postgres::Row| {
        let index = TaskIndex(row.get::<_, i32>("idx").cast_unsigned());
        let task = TaskId { run: RunId::from_uuid(row.get("run_id")), index };
        let fence = Fence(row.get::<_, i64>("fence").cast_unsigned());
        let seq = ClaimSeq(row.get::<_, i64>("claim_seq").cast_unsigned());
        Lease { held: Held { task, fence }, seq }
    };
    Ok(rows.iter().map(lease).collect())
}

impl PostgresStore {
    pub(super) async fn join_once(&self, hello: &Hello) -> Result<(), Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin().await?;
        let life = Life::lock(&tx, hello.worker).await?;
        if life.is_some_and(|life| !life.is_live()) {
            return Err(StoreError::LeaseLost(hello.worker).into());
        }
        self.register_in(&tx, &hello.definitions).await?;
        let now = self.now_in(&tx).await?;
        let lease = i64::try_from(hello.lease.as_micros()).unwrap_or(i64::MAX);
        let slots = i32::try_from(hello.slots).unwrap_or(i32::MAX);
        let until = At(now + hello.lease);
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [hello.worker.as_uuid(), &hello.name, &slots, &lease, &until, &At(now)];
        tx.execute(&sql::JOIN_WORKER, &params).await?;
        tx.commit().await
    }

    pub(super) async fn extend_once(
        &self,
        heartbeat: &Heartbeat,
    ) -> Result<HeartbeatAnswer, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin().await?;
        let Some(mut life) = Life::lock(&tx, heartbeat.worker).await?.filter(Life::is_live) else {
            return Err(StoreError::LeaseLost(heartbeat.worker).into());
        };
        let now = self.now_in(&tx).await?;
        life.lease_until = now + life.lease;
        life.last_claim = life.last_claim.max(heartbeat.settled);
        let leases = leases_of(&tx, &life).await?;
        life.holds_from(leases.iter().map(|lease| lease.seq).min());
        life.write(&tx).await?;
        let held: BTreeSet<Held> = heartbeat.held.iter().copied().collect();
        let is_orphan =
            |lease: &&Lease| lease.seq <= heartbeat.settled && !held.contains(&lease.held);
        let orphans: Vec<TaskId> =
            leases.iter().filter(is_orphan).map(|lease| lease.held.task).collect();
        let orphans: Vec<TaskId> = self.sound(orphans, |task| task.run);
        let lost = lost(&tx, &leases, &heartbeat.held).await?;
        note_progress(&tx, &heartbeat.progress).await?;
        // A run that someone has locked is left to the next heartbeat: this one must not
        // wait, the worker's lease depends on it.
        let runs = orphans.iter().map(|task| task.run);
        let mut work = Work::lock(&tx, &self.names, runs, Busy::LeaveOut).await?;
        work.now = now;
        work.load(&tx, orphans.iter().copied()).await?;
        for task in orphans {
            let is_held = work.task(task).is_some_and(|task| {
                task.holder.is_some_and(|(worker, _)| worker == heartbeat.worker)
            });
            if let Some((run, moves)) = work.run(task.run).filter(|_| is_held) {
                run.hand_back(moves, task.index, None).map_err(unsound::of(task.run))?;
            }
        }
        work.flush(&tx, &self.names).await?;
        tx.commit().await?;
        self.send_hints(&work);
        Ok(HeartbeatAnswer { lost })
    }

    pub(super) async fn leave_once(&self, worker: WorkerId) -> Result<(), Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin().await?;
        let Some(mut life) = Life::lock(&tx, worker).await?.filter(|one| one.state != Alive::Dead)
        else {
            return Ok(());
        };
        let now = self.now_in(&tx).await?;
        life.lease_until = life.lease_until.min(now);
        life.state = Alive::Dying;
        let reaped = self.take_away(&tx, now, vec![life], usize::MAX).await?;
        tx.commit().await?;
        self.send_hints(&reaped.work);
        Ok(())
    }

    pub(super) async fn reap_once(&self, limit: usize) -> Result<Sweep, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin().await?;
        let now = self.now_in(&tx).await?;
        let kept = i64::try_from(IDLE_WORKER_KEPT.as_micros()).unwrap_or(i64::MAX);
        let since = At(Timestamp::from_micros(now.as_micros().saturating_sub(kept)));
        for row in tx.query(&sql::FORGOTTEN_WORKERS, &[&since]).await? {
            tx.execute(&sql::BURY_WORKER, &[&row.get::<_, Uuid>(0)]).await?;
        }
        let life = |row: &tokio_postgres::Row| Life {
            worker: WorkerId::from_uuid(row.get("id")),
            state: Alive::Dying,
            lease: Duration::ZERO,
            lease_until: row.get::<_, At>("lease_until").0,
            last_claim: ClaimSeq(row.get::<_, i64>("last_claim").cast_unsigned()),
            oldest_claim: ClaimSeq(row.get::<_, i64>("oldest_claim").cast_unsigned()),
        };
        let rows = tx.query(&sql::EXPIRED_WORKERS, &[&At(now)]).await?;
        let expired = rows.iter().map(life).collect();
        let reaped = self.take_away(&tx, now, expired, limit).await?;
        let next = tx.query(&sql::NEXT_LEASE_END, &[&At(now)]).await?;
        let next: Option<At> = next.first().and_then(|row| row.get(0));
        tx.commit().await?;
        self.send_hints(&reaped.work);
        let mut next_at = next.map(|at| at.0);
        if reaped.is_short {
            next_at = next_at.map(|at| at.max(now + self.busy_pause()));
        }
        Ok(Sweep { at: now, moved: reaped.moved, next_at })
    }

    /// Takes up to `limit` tasks away from dying workers, and buries those that have none
    /// left.
    async fn take_away(
        &self,
        tx: &Tx<'_>,
        now: Timestamp,
        lives: Vec<Life>,
        limit: usize,
    ) -> Result<Reaped, Fault> {
        let mut tasks = Vec::new();
        let mut counts = Vec::new();
        for life in &lives {
            let leases = leases_of(tx, life).await?;
            counts.push(leases.len());
            let rest = limit - tasks.len().min(limit);
            let chosen = leases.iter().take(rest);
            tasks.extend(chosen.map(|lease| (lease.held.task, life.worker, life.lease_until)));
        }
        let left_out = tasks.len();
        let tasks = self.sound(tasks, |(task, ..)| task.run);
        let left_out = left_out - tasks.len();
        let runs = tasks.iter().map(|(task, ..)| task.run);
        let mut work = Work::lock(tx, &self.names, runs, Busy::LeaveOut).await?;
        work.now = now;
        work.load(tx, tasks.iter().map(|(task, ..)| *task)).await?;
        let ends: Vec<_> = tasks.iter().map(|(task, ..)| (*task, TaskState::Failed)).collect();
        work.load_for_ends(tx, &ends).await?;
        let mut taken: BTreeMap<WorkerId, usize> = BTreeMap::new();
        let mut is_short = left_out > 0;
        let mut moved = 0;
        for (task, worker, lease_until) in tasks {
            let Some(row) = work.task(task) else {
                is_short = true;
                continue;
            };
            *taken.entry(worker).or_default() += 1;
            if row.holder.is_none_or(|(holder, _)| holder != worker) {
                // It ended between the look and the lock.
                continue;
            }
            work.load_for_ends(tx, &[(task, TaskState::Failed)]).await?;
            if let Some((run, moves)) = work.run(task.run) {
                run.expire(moves, now, task.index, worker, lease_until)
                    .map_err(unsound::of(task.run))?;
                moved += 1;
            }
        }
        work.flush(tx, &self.names).await?;
        for (mut life, count) in lives.into_iter().zip(counts) {
            if taken.get(&life.worker).copied().unwrap_or_default() == count {
                life.state = Alive::Dead;
            }
            life.write(tx).await?;
        }
        Ok(Reaped { work, moved, is_short })
    }
}

/// What was taken away from dying workers.
struct Reaped {
    work: Work,
    moved: usize,
    /// Whether runs that others have locked were left out.
    is_short: bool,
}

/// What of `held` is not the worker's any more, and why.
async fn lost(tx: &Tx<'_>, leases: &[Lease], held: &[Held]) -> Result<Vec<Lost>, Fault> {
    let kept: BTreeSet<Held> = leases.iter().map(|lease| lease.held).collect();
    let is_lost = |held: &&Held| !kept.contains(held);
    let gone: Vec<Held> = held.iter().filter(is_lost).copied().collect();
    if gone.is_empty() {
        return Ok(Vec::new());
    }
    let (runs, indices) = super::work::pairs(gone.iter().map(|held| &held.task));
    let mut refusals = BTreeMap::new();
    for row in tx.query(&sql::ENDS, &[&runs, &indices]).await? {
        let index = TaskIndex(row.get::<_, i32>("idx").cast_unsigned());
        let task = TaskId { run: RunId::from_uuid(row.get("run_id")), index };
        let refusal = match row.get("state") {
            "cancelled" => Refusal::RunCancelled,
            _ => Refusal::LeaseLost,
        };
        refusals.insert(task, refusal);
    }
    let lost = |held: Held| {
        let refusal = refusals.get(&held.task).copied().unwrap_or(Refusal::UnknownTask);
        Lost { held, refusal }
    };
    Ok(gone.into_iter().map(lost).collect())
}

/// Keeps notes on progress of tasks that are held; the newest of each.
async fn note_progress(tx: &Tx<'_>, notes: &[ProgressNote]) -> Result<(), Fault> {
    let newest: BTreeMap<TaskId, &ProgressNote> =
        notes.iter().map(|note| (note.held.task, note)).collect();
    if newest.is_empty() {
        return Ok(());
    }
    let (runs, indices) = super::work::pairs(newest.keys());
    let fences: Vec<i64> = newest.values().map(|note| note.held.fence.0.cast_signed()).collect();
    let texts: Vec<&str> = newest.values().map(|note| note.note.as_str()).collect();
    tx.execute(&sql::NOTE_PROGRESS, &[&runs, &indices, &fences, &texts]).await?;
    Ok(())
}
