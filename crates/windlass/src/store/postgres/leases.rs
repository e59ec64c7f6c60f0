//! Workers: their lives, their leases, and what becomes of their tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{ClaimSeq, Fence, TaskId, TaskState, Timestamp, WorkerId};

use super::PostgresStore;
use super::fault::Fault;
use super::names::Names;
use super::pool::{Ask, Params, Sql, Tx};
use super::run::Task;
use super::statements as sql;
use super::time::At;
use super::unsound;
use super::work::{Work, task_id};
use super::workers::Words;
use super::writes::{Writes, params};
use crate::duties::LOOK_PAUSE_MAX;
use crate::store::{
    Heartbeat, HeartbeatAnswer, Held, Hello, Lost, Mandate, ProgressNote, Refusal, StoreError,
    Sweep,
};

/// How long after its lease a worker without tasks is remembered. It costs such a
/// worker a second introduction to have been forgotten, and nothing else.
const IDLE_WORKER_KEPT: Duration = Duration::from_secs(60 * 60);

/// A worker that this transaction has locked, with its last sign of life.
pub(super) struct Life {
    pub(super) worker: WorkerId,
    state: Alive,
    /// Whether it was told to drain, by itself or by an operator.
    is_draining: bool,
    pub(super) lease: Duration,
    pulse: i64,
    pub(super) lease_until: Timestamp,
    pub(super) last_claim: ClaimSeq,
    /// It holds no task of an older claim.
    oldest_claim: ClaimSeq,
    /// How many tasks it holds.
    pub(super) held: usize,
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
    fn of(worker: WorkerId, word: &str) -> Result<Alive, Fault> {
        let all = [Alive::Live, Alive::Dying, Alive::Dead];
        all.into_iter()
            .find(|state| state.word() == word)
            .ok_or_else(|| StoreError::Corrupt(format!("worker {worker} is {word:?}")).into())
    }

    const fn word(self) -> &'static str {
        match self {
            Alive::Live => "live",
            Alive::Dying => "dying",
            Alive::Dead => "dead",
        }
    }
}

impl Life {
    /// A locked worker, of the rows of [`sql::LOCK_WORKER`] and [`sql::PULSES`].
    pub(super) fn of(
        worker: WorkerId,
        rows: &[Row],
        pulses: &[Row],
    ) -> Result<Option<Life>, Fault> {
        let Some(row) = rows.first() else { return Ok(None) };
        let state = Alive::of(worker, row.get("state"))?;
        let life = Life::read(&BTreeMap::from([(worker, state)]), pulses).pop();
        Life::whole(worker, state, row, life).map(Some)
    }

    /// Locked workers, of the rows of [`sql::LOCK_WORKERS`] and [`sql::PULSES`].
    pub(super) fn of_all(rows: &[Row], pulses: &[Row]) -> Result<BTreeMap<WorkerId, Life>, Fault> {
        let id = |row: &Row| WorkerId::from_uuid(row.get("id"));
        let state = |row: &Row| Ok((id(row), Alive::of(id(row), row.get("state"))?));
        let states = rows.iter().map(state).collect::<Result<BTreeMap<_, _>, Fault>>()?;
        let read = Life::read(&states, pulses).into_iter().map(|life| (life.worker, life));
        let mut read: BTreeMap<WorkerId, Life> = read.collect();
        // One that was not locked may have given signs as well, which say nothing.
        let life = |row: &Row| {
            let worker = id(row);
            Ok((worker, Life::whole(worker, states[&worker], row, read.remove(&worker))?))
        };
        rows.iter().map(life).collect()
    }

    /// A life by the row of its worker and its last sign.
    fn whole(worker: WorkerId, state: Alive, row: &Row, life: Option<Life>) -> Result<Life, Fault> {
        let lease = Duration::from_micros(row.get::<_, i64>("lease_micros").unsigned_abs());
        match life {
            Some(life) => Ok(Life { lease, is_draining: row.get("is_draining"), ..life }),
            None if state == Alive::Dead => Ok(Life::dead(worker)),
            None => {
                let text = format!("worker {worker} is alive and has given no sign of it");
                Err(StoreError::Corrupt(text).into())
            }
        }
    }

    /// The last signs of life of workers that were locked before.
    fn read(workers: &BTreeMap<WorkerId, Alive>, pulses: &[Row]) -> Vec<Life> {
        let claim = |number: i64| ClaimSeq(number.cast_unsigned());
        let life = |row: &Row| {
            let worker = WorkerId::from_uuid(row.get("worker_id"));
            let last_claim = claim(row.get("last_claim"));
            let oldest_lease: Option<i64> = row.get("oldest_lease");
            Life {
                state: workers.get(&worker).copied().unwrap_or(Alive::Dead),
                pulse: row.get("number"),
                lease_until: row.get::<_, At>("lease_until").0,
                last_claim,
                // To look from there on the next time: claims come in the order of their
                // numbers.
                oldest_claim: oldest_lease.map_or(ClaimSeq(last_claim.0 + 1), claim),
                held: usize::try_from(row.get::<_, i64>("held")).unwrap_or(usize::MAX),
                ..Life::dead(worker)
            }
        };
        pulses.iter().map(life).collect()
    }

    fn dead(worker: WorkerId) -> Life {
        Life {
            worker,
            state: Alive::Dead,
            is_draining: false,
            lease: Duration::ZERO,
            pulse: 0,
            lease_until: Timestamp::from_micros(0),
            last_claim: ClaimSeq(0),
            oldest_claim: ClaimSeq(0),
            held: 0,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.state == Alive::Live
    }

    pub(super) fn holds_tasks(&self) -> bool {
        self.held > 0
    }

    /// Whether its tasks may be taken away, and more of them are not given to it.
    pub(super) fn is_late(&self, now: Timestamp) -> bool {
        self.holds_tasks() && self.lease_until <= now
    }

    /// Writes a sign of life.
    pub(super) fn beat(&self, writes: &mut Writes<'_>) {
        let (lease_until, last_claim) = (At(self.lease_until), self.last_claim.0.cast_signed());
        let (worker, oldest_claim) = (*self.worker.as_uuid(), self.oldest_claim.0.cast_signed());
        writes.push(&sql::BEAT, params![worker, self.pulse, lease_until, last_claim, oldest_claim]);
    }

    /// Ends the life, or leaves it to be ended once its tasks are taken away.
    fn end(&self, writes: &mut Writes<'_>, state: Alive, now: Timestamp) {
        let worker = *self.worker.as_uuid();
        if state != self.state {
            let ended_at = (state == Alive::Dead).then_some(At(now));
            writes.push(&sql::SET_WORKER_STATE, params![worker, state.word(), ended_at]);
        }
        match state {
            Alive::Dead => writes.push(&sql::BURY_WORKER, params![worker]),
            Alive::Live | Alive::Dying => self.beat(writes),
        }
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
        let task = task_id(row);
        let fence = Fence(row.get::<_, i64>("fence").cast_unsigned());
        let seq = ClaimSeq(row.get::<_, i64>("claim_seq").cast_unsigned());
        Lease { held: Held { task, fence }, seq }
    };
    Ok(rows.iter().map(lease).collect())
}

impl PostgresStore {
    pub(super) async fn join_once(&self, hello: &Hello) -> Result<(), Fault> {
        hello.info.check().map_err(StoreError::Conflict)?;
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let (life, _) = self.lock_worker(&tx, hello.worker).await?;
        if life.is_some_and(|life| !life.is_live()) {
            return Err(StoreError::LeaseLost(hello.worker).into());
        }
        self.register_in(&tx, &hello.definitions).await?;
        let now = self.now_in(&tx).await?;
        let lease = i64::try_from(hello.lease.as_micros()).unwrap_or(i64::MAX);
        let slots = i32::try_from(hello.slots).unwrap_or(i32::MAX);
        let until = At(now + hello.lease);
        let mut writes = Writes::default();
        let words = Words::of(hello);
        let params = params![
            *hello.worker.as_uuid(),
            hello.name.as_str(),
            slots,
            lease,
            until,
            At(now),
            &hello.info.host,
            words.pid,
            &hello.info.version,
            words.queues,
            words.workflows,
            words.versions,
            words.metadata,
        ];
        writes.push(&sql::JOIN_WORKER, params);
        tx.commit(writes).await.map(drop)
    }

    /// Locks a worker, and reads the time once it has it.
    async fn lock_worker(
        &self,
        tx: &Tx<'_>,
        worker: WorkerId,
    ) -> Result<(Option<Life>, Timestamp), Fault> {
        let (life, now, _) = self.lock_worker_and(tx, worker, &[]).await?;
        Ok((life, now))
    }

    /// Locks a worker, reads the time once it has it, and asks something else at once.
    pub(super) async fn lock_worker_and(
        &self,
        tx: &Tx<'_>,
        worker: WorkerId,
        also: &[Ask<'_>],
    ) -> Result<(Option<Life>, Timestamp, Vec<Vec<Row>>), Fault> {
        let id = worker.as_uuid();
        let ids = vec![*id];
        let (lock, pulses): (Params<'_>, Params<'_>) = (&[id], &[&ids]);
        let mut asks: Vec<Ask<'_>> =
            vec![(&sql::LOCK_WORKER, lock), (&sql::PULSES, pulses), (&sql::CLOCK, &[])];
        asks.extend(also);
        let mut rows = tx.query_each(&asks).await?;
        let others = rows.split_off(3);
        Ok((Life::of(worker, &rows[0], &rows[1])?, self.now_of(&rows[2])?, others))
    }

    pub(super) async fn extend_once(
        &self,
        heartbeat: &Heartbeat,
    ) -> Result<HeartbeatAnswer, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let (life, now) = self.lock_worker(&tx, heartbeat.worker).await?;
        let Some(mut life) = life.filter(Life::is_live) else {
            return Err(StoreError::LeaseLost(heartbeat.worker).into());
        };
        life.lease_until = now + life.lease;
        life.last_claim = life.last_claim.max(heartbeat.settled);
        let leases = leases_of(&tx, &life).await?;
        let held: BTreeSet<Held> = heartbeat.held.iter().copied().collect();
        let is_orphan =
            |lease: &&Lease| lease.seq <= heartbeat.settled && !held.contains(&lease.held);
        let orphans: Vec<TaskId> =
            leases.iter().filter(is_orphan).map(|lease| lease.held.task).collect();
        let orphans: Vec<TaskId> = self.sound(orphans, |task| task.run);
        let lost = lost(&tx, &leases, &heartbeat.held).await?;
        // A run that someone has locked is left to the next heartbeat: this one must not
        // wait, the worker's lease depends on it.
        let runs = orphans.iter().map(|task| task.run);
        let mut work = Work::lock_free(&tx, now, runs).await?;
        work.load(&tx, orphans.iter().copied()).await?;
        for task in orphans {
            let is_held = work.task(task).is_some_and(|task| {
                task.holder.is_some_and(|(worker, _)| worker == heartbeat.worker)
            });
            if let Some((run, moves)) = work.run(task.run).filter(|_| is_held) {
                run.hand_back(moves, task.index, None).map_err(unsound::of(task.run))?;
            }
        }
        let mut writes = work.writes(tx.names())?;
        life.beat(&mut writes);
        note_progress(&mut writes, &heartbeat.progress);
        self.conclude_with(tx, &work, writes).await?;
        Ok(HeartbeatAnswer { lost, should_drain: life.is_draining })
    }

    pub(super) async fn leave_once(&self, worker: WorkerId) -> Result<(), Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let (life, now) = self.lock_worker(&tx, worker).await?;
        let Some(mut life) = life.filter(|one| one.state != Alive::Dead) else { return Ok(()) };
        life.lease_until = life.lease_until.min(now);
        let mut reaped = self.take_away(&tx, now, vec![life], Vec::new(), usize::MAX).await?;
        self.settle(&tx, &mut reaped.work).await?;
        let writes = reaped.writes(tx.names())?;
        self.conclude_with(tx, &reaped.work, writes).await?;
        Ok(())
    }

    pub(super) async fn reap_once(
        &self,
        mandate: Option<&Mandate>,
        limit: usize,
    ) -> Result<Sweep, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let now = self.now_of_sweep(&tx, mandate).await?;
        let kept = i64::try_from(IDLE_WORKER_KEPT.as_micros()).unwrap_or(i64::MAX);
        let since = At(Timestamp::from_micros(now.as_micros().saturating_sub(kept)));
        let forgotten = locked(&tx, &sql::FORGOTTEN_WORKERS, since).await?;
        let is_forgotten = |life: &&Life| life.lease_until < since.0 && !life.holds_tasks();
        let is_expired = |life: &Life| match life.state {
            Alive::Live => life.lease_until <= now && life.holds_tasks(),
            Alive::Dying => true,
            Alive::Dead => false,
        };
        let expired = locked(&tx, &sql::EXPIRED_WORKERS, At(now)).await?;
        let expired = expired.into_iter().filter(is_expired).collect();
        let overdue = overdue(&tx, now, limit).await?;
        let mut reaped = self.take_away(&tx, now, expired, overdue, limit).await?;
        self.settle(&tx, &mut reaped.work).await?;
        let mut writes = reaped.writes(tx.names())?;
        for life in forgotten.iter().filter(is_forgotten) {
            life.end(&mut writes, Alive::Dead, now);
        }
        writes.push(&sql::NEXT_LEASE_END, params![At(now)]);
        let rows = self.conclude_with(tx, &reaped.work, writes).await?;
        let next = rows.last().map(Vec::as_slice).unwrap_or_default();
        let next: Option<At> = next.first().and_then(|row| row.get(0));
        let mut next_at = next.map(|at| at.0);
        if reaped.is_short || reaped.moved < limit {
            // What has ended and was not taken away is in the hands of others.
            next_at = next_at.map(|at| if at <= now { now + self.busy_pause() } else { at });
        }
        Ok(Sweep { at: now, moved: reaped.moved, next_at })
    }

    /// Takes up to `limit` tasks away: those that are overdue, and those of dying workers, of
    /// whom it buries those that have none left.
    async fn take_away(
        &self,
        tx: &Tx<'_>,
        now: Timestamp,
        lives: Vec<Life>,
        overdue: Vec<Due>,
        limit: usize,
    ) -> Result<Reaped, Fault> {
        let mut tasks: Vec<Due> = Vec::new();
        let mut counts = Vec::new();
        for life in &lives {
            let leases = leases_of(tx, life).await?;
            counts.push(leases.len());
            let rest = limit - tasks.len().min(limit);
            let chosen = leases.iter().take(rest);
            tasks.extend(chosen.map(|lease| Due {
                held: lease.held,
                worker: life.worker,
                lease_until: life.lease_until,
            }));
        }
        // Those of the dying workers are taken away as theirs.
        let is_dying = |worker: &WorkerId| lives.iter().any(|life| life.worker == *worker);
        let overdue = overdue.into_iter().filter(|due| !is_dying(&due.worker));
        tasks.extend(overdue.take(limit - tasks.len().min(limit)));
        let left_out = tasks.len();
        let tasks = self.sound(tasks, |due| due.held.task.run);
        let left_out = left_out - tasks.len();
        let runs = tasks.iter().map(|due| due.held.task.run);
        let mut work = Work::lock_free(tx, now, runs).await?;
        work.load(tx, tasks.iter().map(|due| due.held.task)).await?;
        let is_held = |due: &&Due| work.task(due.held.task).is_some_and(|task| due.is_of(task));
        let ends = tasks.iter().filter(is_held).map(|due| (due.held.task, TaskState::Failed));
        let ends: Vec<_> = ends.collect();
        let held: BTreeSet<Held> = tasks.iter().filter(is_held).map(|due| due.held).collect();
        let free = free_leases(tx, &held).await?;
        work.load_for_ends(tx, &ends).await?;
        let mut taken: BTreeMap<WorkerId, usize> = BTreeMap::new();
        let mut is_short = left_out > 0;
        let mut moved = 0;
        for due in tasks {
            let Due { held: Held { task, .. }, worker, lease_until } = due;
            let Some(row) = work.task(task) else {
                is_short = true;
                continue;
            };
            if due.is_of(row) && !free.contains(&task) {
                // A transaction of a user's counts on it.
                is_short = true;
                continue;
            }
            *taken.entry(worker).or_default() += 1;
            if !due.is_of(row) {
                // It ended between the look and the lock, and may have begun again.
                continue;
            }
            work.load_for_ends(tx, &[(task, TaskState::Failed)]).await?;
            if let Some((run, moves)) = work.run(task.run) {
                run.expire(moves, now, task.index, worker, lease_until)
                    .map_err(unsound::of(task.run))?;
                moved += 1;
            }
        }
        let end = |(life, count): (Life, usize)| {
            let is_over = taken.get(&life.worker).copied().unwrap_or_default() == count;
            (life, if is_over { Alive::Dead } else { Alive::Dying })
        };
        let lives = lives.into_iter().zip(counts).map(end).collect();
        Ok(Reaped { work, lives, moved, is_short })
    }
}

/// Workers that a statement finds and locks, as they are once they are locked.
async fn locked(tx: &Tx<'_>, find: &Sql, time: At) -> Result<Vec<Life>, Fault> {
    let mut workers = BTreeMap::new();
    for row in tx.query(find, &[&time]).await? {
        let worker = WorkerId::from_uuid(row.get("id"));
        workers.insert(worker, Alive::of(worker, row.get("state"))?);
    }
    if workers.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = workers.keys().map(|worker| *worker.as_uuid()).collect();
    Ok(Life::read(&workers, &tx.query(&sql::PULSES, &[&ids]).await?))
}

/// The tasks whose leases no transaction of a user's counts on. They are locked from now on.
async fn free_leases(tx: &Tx<'_>, held: &BTreeSet<Held>) -> Result<BTreeSet<TaskId>, Fault> {
    if held.is_empty() {
        return Ok(BTreeSet::new());
    }
    let (runs, indices) = super::work::pairs(held.iter().map(|held| &held.task));
    let fences: Vec<i64> = held.iter().map(|held| held.fence.0.cast_signed()).collect();
    let rows = tx.query(&sql::LOCK_FREE_LEASES, &[&runs, &indices, &fences]).await?;
    Ok(rows.iter().map(task_id).collect())
}

/// The leases whose visibility timeout has passed, whose they are and since when.
async fn overdue(tx: &Tx<'_>, now: Timestamp, limit: usize) -> Result<Vec<Due>, Fault> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = tx.query(&sql::OVERDUE_LEASES, &[&At(now), &limit]).await?;
    let due = |row: &Row| {
        let fence = Fence(row.get::<_, i64>("fence").cast_unsigned());
        Due {
            held: Held { task: task_id(row), fence },
            worker: WorkerId::from_uuid(row.get("worker_id")),
            lease_until: row.get::<_, At>("take_back_at").0,
        }
    };
    Ok(rows.iter().map(due).collect())
}

/// Notes when leases end that this transaction has begun at a time, of tasks with a visibility
/// timeout. Answers whether one ends so soon that whoever reaps must be told.
pub(super) fn limit_leases(
    writes: &mut Writes<'_>,
    at: Timestamp,
    limited: &[(TaskId, Duration)],
) -> bool {
    if limited.is_empty() {
        return false;
    }
    let (runs, indices) = super::work::pairs(limited.iter().map(|(task, _)| task));
    let times: Vec<At> = limited.iter().map(|(_, timeout)| At(at + *timeout)).collect();
    writes.push(&sql::LIMIT_LEASES, params![runs, indices, times]);
    limited.iter().any(|(_, timeout)| *timeout < LOOK_PAUSE_MAX)
}

/// A lease that has ended, as a look saw it.
struct Due {
    held: Held,
    worker: WorkerId,
    lease_until: Timestamp,
}

impl Due {
    /// Whether a task is still leased by it, and not again.
    fn is_of(&self, task: &Task) -> bool {
        task.holder.is_some() && task.fence == self.held.fence
    }
}

/// What was taken away from dying workers.
struct Reaped {
    work: Work,
    /// The workers, and what becomes of them.
    lives: Vec<(Life, Alive)>,
    moved: usize,
    /// Whether runs that others have locked were left out.
    is_short: bool,
}

impl Reaped {
    fn writes(&self, names: &Names) -> Result<Writes<'_>, Fault> {
        let mut writes = self.work.writes(names)?;
        for (life, state) in &self.lives {
            life.end(&mut writes, *state, self.work.now);
        }
        Ok(writes)
    }
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
    for row in tx.query(&sql::WHEREABOUTS, &[&runs, &indices]).await? {
        let is_cancelled: bool = row.get("is_cancelled");
        let refusal = if is_cancelled { Refusal::RunCancelled } else { Refusal::LeaseLost };
        refusals.insert(task_id(&row), refusal);
    }
    let lost = |held: Held| {
        let refusal = refusals.get(&held.task).copied().unwrap_or(Refusal::UnknownTask);
        Lost { held, refusal }
    };
    Ok(gone.into_iter().map(lost).collect())
}

/// Keeps notes on progress of tasks that are held; the newest of each.
fn note_progress<'a>(writes: &mut Writes<'a>, notes: &'a [ProgressNote]) {
    let newest: BTreeMap<TaskId, &ProgressNote> =
        notes.iter().map(|note| (note.held.task, note)).collect();
    if newest.is_empty() {
        return;
    }
    let (runs, indices) = super::work::pairs(newest.keys());
    let fences: Vec<i64> = newest.values().map(|note| note.held.fence.0.cast_signed()).collect();
    let texts: Vec<&str> = newest.values().map(|note| note.note.as_str()).collect();
    writes.push(&sql::NOTE_PROGRESS, params![runs, indices, fences, texts]);
}
