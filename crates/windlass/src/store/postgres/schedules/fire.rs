//! The duty of schedules: what is due is started.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::Row;
use windlass_core::{LaneKeys, Overlap, RunId, Timestamp};

use super::super::PostgresStore;
use super::super::fault::Fault;
use super::super::pool::{Params, Tx};
use super::super::start::{Definitions, begin_one};
use super::super::statements as sql;
use super::super::time::At;
use super::super::work::{Work, sorted_ids};
use super::super::writes::{Writes, params};
use super::rows::{FireColumns, record_of};
use crate::store::schedules::{FIRES_MAX, Firing};
use crate::store::{BATCH_BYTES_MAX, Mandate, NewRun, ScheduleRecord, Sweep};

/// The most schedules that one sweep looks at.
const LOOK_MAX: usize = 100;

/// A run of a schedule that may not be over.
struct Open {
    seq: i64,
    run: RunId,
    is_running: bool,
}

/// What a sweep writes of schedules.
#[derive(Default)]
struct Advance {
    ids: Vec<i64>,
    nexts: Vec<Option<At>>,
    dues: Vec<Option<At>>,
    lasts: Vec<Option<At>>,
    queued: Vec<Option<At>>,
    fires: FireColumns,
    dequeued: (Vec<i64>, Vec<At>),
    closed: Vec<i64>,
}

impl PostgresStore {
    pub(in super::super) async fn fire_once(
        &self,
        mandate: Option<&Mandate>,
        limit: usize,
    ) -> Result<Sweep, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let now = self.now_of_sweep(&tx, mandate).await?;
        let most = i64::try_from(limit.min(LOOK_MAX)).unwrap_or(i64::MAX);
        let rows = tx.query(&sql::DUE_SCHEDULES, &[&At(now), &most]).await?;
        let found = rows.len();
        let records: Vec<ScheduleRecord> = rows.iter().filter_map(readable).collect();
        let mut open = open_of(&tx, &records).await?;
        let keys: BTreeSet<_> = records
            .iter()
            .map(|record| (record.schedule.workflow.clone(), record.schedule.version))
            .collect();
        let known = match keys.is_empty() {
            true => Definitions::default(),
            false => self.newest_definitions(&tx, keys).await?.0,
        };
        let mut work = self.lock_to_cancel(&tx, now, &records, &mut open).await?;
        let (mut advance, mut starts) = (Advance::default(), Vec::new());
        let (mut moved, mut served, mut bytes_left) = (0, 0, BATCH_BYTES_MAX);
        for mut record in records {
            let of_it = open.remove(&record.id.0.cast_signed()).unwrap_or_default();
            let running: Vec<RunId> =
                of_it.iter().filter(|one| one.is_running).map(|one| one.run).collect();
            let cancels = record.schedule.timing.overlap == Overlap::CancelRunning;
            let is_full = moved >= limit || bytes_left == 0;
            if cancels && running.iter().any(|run| !work.runs.contains_key(run)) || is_full {
                // Others have them; the next sweep looks again.
                continue;
            }
            let refusal = self.start_refusal(&record, &known, now);
            let bytes = record.schedule.input.as_str().len().max(1);
            let most = (limit - moved).min(FIRES_MAX).min(bytes_left.div_ceil(bytes));
            let firing = record.fire(now, most, !running.is_empty(), refusal.as_deref());
            if firing.cancels {
                let reason = format!("schedule {:?} fired again", record.schedule.key.name);
                for run in &running {
                    self.cancel_in(&tx, &mut work, *run, Some(&reason)).await?;
                }
            }
            let over = of_it.iter().filter(|one| !one.is_running || firing.cancels);
            advance.closed.extend(over.map(|one| one.seq));
            bytes_left = bytes_left.saturating_sub(bytes * firing.starts.len());
            moved += firing.fires.len() + usize::from(firing.dequeued.is_some());
            served += 1;
            starts.extend(advance.add(&record, firing));
        }
        self.begin_all(&tx, &mut work, starts, &known).await?;
        self.settle(&tx, &mut work).await?;
        let mut writes = work.writes(&self.names)?;
        advance.write(&mut writes, now);
        writes.push(&sql::NEXT_SCHEDULE, params![At(now)]);
        let rows = self.conclude_with(tx, &work, writes).await?;
        let next = rows.last().map(Vec::as_slice).unwrap_or_default();
        let next_at = next.first().and_then(|row| row.get::<_, Option<At>>(0)).map(|at| at.0);
        let is_stuck = served == 0 || served < found && moved < limit && bytes_left > 0;
        let next_at = next_at.map(|at| match at <= now && is_stuck {
            // What is due and was not served is in the hands of others.
            true => now + self.busy_pause(),
            false => at,
        });
        Ok(Sweep { at: now, moved, next_at })
    }

    /// Locks the runs that schedules may cancel, as far as nobody else has them. What is over by
    /// then is not running.
    async fn lock_to_cancel(
        &self,
        tx: &Tx<'_>,
        now: Timestamp,
        records: &[ScheduleRecord],
        open: &mut BTreeMap<i64, Vec<Open>>,
    ) -> Result<Work, Fault> {
        let cancels =
            |record: &&ScheduleRecord| record.schedule.timing.overlap == Overlap::CancelRunning;
        let ids: Vec<i64> =
            records.iter().filter(cancels).map(|record| record.id.0.cast_signed()).collect();
        for one in open.values_mut().flatten() {
            // What contradicts itself cannot be cancelled, and stops nothing.
            one.is_running &= !self.unsound.has(one.run);
        }
        let of_them = ids.iter().filter_map(|id| open.get(id)).flatten();
        let runs: Vec<RunId> = of_them.filter(|one| one.is_running).map(|one| one.run).collect();
        let mut work = Work::lock_free(tx, &self.names, now, runs).await?;
        self.lock_free_lanes_of_runs(tx, &mut work).await?;
        for one in open.values_mut().flatten() {
            one.is_running &= work.runs.get(&one.run).is_none_or(|run| !run.state.is_final());
        }
        Ok(work)
    }

    /// Why no run of a schedule can be started, if none can.
    fn start_refusal(
        &self,
        record: &ScheduleRecord,
        known: &Definitions,
        now: Timestamp,
    ) -> Option<String> {
        let schedule = &record.schedule;
        let key = (schedule.workflow.clone(), schedule.version);
        let Some(known) = known.get(&key) else {
            return Some(format!("workflow {:?} version {} is not registered", key.0, key.1));
        };
        let start = schedule.start(RunId::of_fire(record.id, now), now);
        let lanes = LaneKeys::of(&known.definition, &start.input).err();
        start.check(self.payload_limit).err().or(lanes.map(|error| error.to_string()))
    }

    /// Begins runs, but for those that are there already.
    async fn begin_all(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        starts: Vec<NewRun>,
        known: &Definitions,
    ) -> Result<(), Fault> {
        if starts.is_empty() {
            return Ok(());
        }
        let ids = sorted_ids(starts.iter().map(|start| start.id));
        let present = tx.query(&sql::PRESENT_RUNS, &[&ids]).await?;
        let present: BTreeSet<RunId> =
            present.iter().map(|row| RunId::from_uuid(row.get(0))).collect();
        for start in starts.into_iter().filter(|start| !present.contains(&start.id)) {
            let Some(known) = known.get(&(start.workflow.clone(), start.version)) else { continue };
            begin_one(work, &start, known)?;
            work.born.push((start, known.clone()));
        }
        Ok(())
    }
}

/// The schedule of a row, if it can be read: one that cannot must not stop the others.
fn readable(row: &Row) -> Option<ScheduleRecord> {
    match record_of(row) {
        Ok(record) => Some(record),
        Err(error) => {
            tracing::error!(%error, "a schedule does not fire");
            None
        }
    }
}

/// The runs of schedules that may not be over, by the numbers of the schedules.
async fn open_of(
    tx: &Tx<'_>,
    records: &[ScheduleRecord],
) -> Result<BTreeMap<i64, Vec<Open>>, Fault> {
    let ids: Vec<i64> = records.iter().map(|record| record.id.0.cast_signed()).collect();
    let mut open: BTreeMap<i64, Vec<Open>> = BTreeMap::new();
    if ids.is_empty() {
        return Ok(open);
    }
    let params: Params<'_> = &[&ids];
    for row in tx.query(&sql::OPEN_FIRES, params).await? {
        open.entry(row.get("schedule_id")).or_default().push(Open {
            seq: row.get("seq"),
            run: RunId::from_uuid(row.get("run_id")),
            is_running: row.get("is_running"),
        });
    }
    Ok(open)
}

impl Advance {
    /// Notes what was decided for a schedule; answers the runs that start.
    fn add(&mut self, record: &ScheduleRecord, firing: Firing) -> Vec<NewRun> {
        let id = record.id.0.cast_signed();
        self.ids.push(id);
        self.nexts.push(record.next_at.map(At));
        self.dues.push(record.due_at().map(At));
        self.lasts.push(record.last_at.map(At));
        self.queued.push(record.queued_at.map(At));
        if let Some(fire) = &firing.dequeued {
            self.dequeued.0.push(id);
            self.dequeued.1.push(At(fire.nominal));
        }
        for fire in firing.dequeued.iter().chain(&firing.fires) {
            self.fires.push(record, fire);
        }
        firing.starts
    }

    fn write(self, writes: &mut Writes<'_>, now: Timestamp) {
        if self.ids.is_empty() {
            return;
        }
        let times = params![self.ids, self.nexts, self.dues, self.lasts, self.queued];
        writes.push(&sql::ADVANCE_SCHEDULES, times);
        if !self.dequeued.0.is_empty() {
            writes.push(&sql::DEQUEUE_FIRES, params![self.dequeued.0, self.dequeued.1]);
        }
        if !self.closed.is_empty() {
            writes.push(&sql::CLOSE_FIRES, params![self.closed]);
        }
        self.fires.write(writes, now);
    }
}
