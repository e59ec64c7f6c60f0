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
use super::super::writes::params;
use super::advance::Advance;
use super::rows::record_of;
use super::unfired::Named;
use crate::store::schedules::{FIRES_MAX, taken};
use crate::store::{BATCH_BYTES_MAX, Mandate, NewRun, ScheduleRecord, StoreError, Sweep};

/// The most schedules that one sweep looks at: of those whose time has come, and of those that wait.
const LOOK_MAX: usize = 100;

/// If so many schedules cannot be fired and no other can, they are hardly to blame: the sweep has
/// failed, though they are passed over.
const FAILED_MIN: usize = 10;

/// A run of a schedule that may not be over.
struct Open {
    seq: i64,
    run: RunId,
    /// Whether it may never have been over.
    is_open: bool,
    is_running: bool,
}

impl PostgresStore {
    pub(in super::super) async fn fire_once(
        &self,
        mandate: Option<&Mandate>,
        limit: usize,
    ) -> Result<Sweep, Fault> {
        let mut tried = Vec::new();
        match self.fire_in(mandate, None, limit, &mut tried).await {
            Err(fault) if is_of_one(&fault) && !tried.is_empty() => {
                self.fire_each(mandate, &tried, limit).await
            }
            other => other,
        }
    }

    /// Fires schedules one by one, of which at least one cannot be fired, and passes over that.
    async fn fire_each(
        &self,
        mandate: Option<&Mandate>,
        schedules: &[Named],
        limit: usize,
    ) -> Result<Sweep, Fault> {
        let (mut moved, mut failed) = (0, Vec::new());
        for schedule in schedules {
            if moved >= limit {
                break;
            }
            let mut tried = Vec::new();
            match self.fire_in(mandate, Some(schedule), limit - moved, &mut tried).await {
                Ok(sweep) => moved += sweep.moved,
                Err(fault) if is_of_one(&fault) => {
                    let error = StoreError::from(fault);
                    self.unfired.pass_over(schedule, self.now_once().await?, error.clone());
                    failed.push(error);
                }
                Err(fault) => return Err(fault),
            }
        }
        if failed.len() >= FAILED_MIN && failed.len() == schedules.len() {
            return Err(failed.swap_remove(0).into());
        }
        let at = self.now_once().await?;
        Ok(Sweep { at, moved, next_at: Some(at) })
    }

    /// Fires what is due, or one of it, in one transaction; `tried` are those that it looked at.
    async fn fire_in(
        &self,
        mandate: Option<&Mandate>,
        only: Option<&Named>,
        limit: usize,
        tried: &mut Vec<Named>,
    ) -> Result<Sweep, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let now = self.now_of_sweep(&tx, mandate).await?;
        match only {
            Some(one) => tried.push(one.clone()),
            None => {
                let most = i64::try_from(limit.min(LOOK_MAX)).unwrap_or(i64::MAX);
                let left_out = self.unfired.ids(now);
                let due: Params<'_> = &[&At(now), &most, &left_out];
                let rows = tx.query(&sql::DUE_SCHEDULES, due).await?;
                tried.extend(rows.iter().map(Named::of));
            }
        }
        let records = self.lock_due(&tx, now, tried).await?;
        let found = tried.len();
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
            let over = of_it.iter().filter(|one| one.is_open);
            let over = over.filter(|one| !one.is_running || firing.cancels);
            advance.closed.extend(over.map(|one| one.seq));
            bytes_left = bytes_left.saturating_sub(bytes * firing.starts.len());
            moved += firing.fires.len() + usize::from(firing.dequeued.is_some());
            served += 1;
            starts.extend(advance.fire(&record, firing));
        }
        starts.sort_by_key(|(nominal, _)| *nominal);
        let starts = starts.into_iter().map(|(_, start)| start).collect();
        for run in self.begin_all(&tx, &mut work, starts, &known).await? {
            advance.fires.refuse(run, &taken(run));
        }
        self.settle(&tx, &mut work).await?;
        let mut writes = work.writes(tx.names())?;
        advance.write(&mut writes, now);
        writes.push(&sql::NEXT_SCHEDULE, params![At(now), self.unfired.ids(now)]);
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

    /// Locks schedules that are due and that nobody else has, the earliest first. Those that cannot
    /// be read are passed over, and are not among `due` any more.
    async fn lock_due(
        &self,
        tx: &Tx<'_>,
        now: Timestamp,
        due: &mut Vec<Named>,
    ) -> Result<Vec<ScheduleRecord>, Fault> {
        let ids: Vec<i64> = due.iter().map(|one| one.id).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut records = Vec::new();
        for row in tx.query(&sql::LOCK_DUE_SCHEDULES, &[&At(now), &ids]).await? {
            match record_of(&row) {
                Ok(record) => records.push(record),
                Err(error) => {
                    let unreadable = Named::of(&row);
                    due.retain(|one| one.id != unreadable.id);
                    self.unfired.pass_over(&unreadable, now, error);
                }
            }
        }
        Ok(records)
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
        let mut work = Work::lock_free(tx, now, runs).await?;
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

    /// Begins runs, but for those that are there already; answers those that are another tenant's.
    async fn begin_all(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        starts: Vec<NewRun>,
        known: &Definitions,
    ) -> Result<Vec<RunId>, Fault> {
        if starts.is_empty() {
            return Ok(Vec::new());
        }
        let ids = sorted_ids(starts.iter().map(|start| start.id));
        let present = tx.query(&sql::PRESENT_RUNS, &[&ids]).await?;
        let whose = |row: &Row| (RunId::from_uuid(row.get("id")), row.get("tenant"));
        let present: BTreeMap<RunId, String> = present.iter().map(whose).collect();
        let mut taken = Vec::new();
        for start in starts {
            match present.get(&start.id) {
                Some(whose) if *whose == start.tenant.as_str() => continue,
                Some(_) => taken.push(start.id),
                None => {
                    let known = known.get(&(start.workflow.clone(), start.version));
                    let Some(known) = known else { continue };
                    begin_one(work, &start, known)?;
                    work.born.push((start, known.clone()));
                }
            }
        }
        Ok(taken)
    }
}

/// Whether a fault may be that of one schedule. A run that contradicts itself is left out instead,
/// and the sweep repeated.
fn is_of_one(fault: &Fault) -> bool {
    fault.may_be_of_one() && !matches!(fault, Fault::Unsound { .. })
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
    let minds = |record: &&ScheduleRecord| record.schedule.timing.overlap != Overlap::Allow;
    let minding: Vec<i64> =
        records.iter().filter(minds).map(|record| record.id.0.cast_signed()).collect();
    let params: Params<'_> = &[&ids, &minding];
    for row in tx.query(&sql::OPEN_FIRES, params).await? {
        open.entry(row.get("schedule_id")).or_default().push(Open {
            seq: row.get("seq"),
            run: RunId::from_uuid(row.get("run_id")),
            is_open: row.get("is_open"),
            is_running: row.get("is_running"),
        });
    }
    Ok(open)
}
