//! Schedules, and what they start.
//!
//! Whoever decides about a schedule has locked its row, before any run. One transaction starts the
//! runs of nominal times, writes down what became of them and moves the schedule on: a nominal time
//! is either decided with its run, or not at all.

mod advance;
mod fire;
mod rows;
mod unfired;

use std::collections::BTreeSet;

use async_trait::async_trait;
use tokio_postgres::Row;
use windlass_core::{RunId, ScheduleId, ScheduleOwner, Tenant, Timestamp};

use self::advance::Advance;
pub(super) use self::rows::record_of;
use self::rows::{FireColumns, fire_of};
pub(super) use self::unfired::Unfired;
use super::PostgresStore;
use super::fault::Fault;
use super::notify::Kinds;
use super::pool::{Params, Tx};
use super::repeat::{repeat, without_unsound};
use super::statements as sql;
use super::time::At;
use super::work::sorted_ids;
use super::writes::Writes;
use crate::store::schedules::{Left, taken, too_many};
use crate::store::{
    Backfilled, FIRES_KEPT, Fire, FireBy, FireResult, NewSchedule, PAGE_MAX, SCHEDULES_MAX,
    ScheduleFilter, ScheduleKey, SchedulePage, ScheduleRecord, ScheduleStore, Started, StoreError,
    Sweep, UnreadableSchedule,
};

impl PostgresStore {
    async fn put_schedule_once(&self, schedule: &NewSchedule) -> Result<ScheduleRecord, Fault> {
        schedule.check(self.payload_limit).map_err(StoreError::Conflict)?;
        let key = (schedule.workflow.clone(), schedule.version);
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let found = lock(&tx, &schedule.key).await?;
        let is_full = found.is_none() && is_full(&tx, &schedule.key.tenant).await?;
        let (known, now) = self.newest_definitions(&tx, [key.clone()]).await?;
        if known.is_empty() {
            let what = format!("workflow {:?} version {}", key.0, key.1);
            return Err(StoreError::NotFound(what).into());
        }
        let (record, left) = match found {
            Some(mut record) => {
                let left = record.replace(schedule.clone(), now);
                (record, left)
            }
            None if is_full => return Err(too_many(&schedule.key.tenant).into()),
            None => {
                let record = ScheduleRecord::new(ScheduleId(0), schedule.clone(), now)?;
                (record, Left::default())
            }
        };
        let put = rows::Put::of(&record)?;
        let rows = tx.query(&sql::PUT_SCHEDULE, &put.params()).await?;
        let Some(row) = rows.first() else {
            let text = format!("schedule {:?} was made by another at once", schedule.key.name);
            return Err(Fault::Unavailable(text));
        };
        let id = ScheduleId(row.get::<_, i64>(0).cast_unsigned());
        drop(put);
        let record = ScheduleRecord { id, ..record };
        let mut writes = Writes::default();
        if left.missed.is_some() || left.is_dequeued {
            let mut advance = Advance::default();
            advance.change(&record, &left);
            advance.write(&mut writes, now);
        }
        tx.commit(writes).await?;
        self.notifier.notify(Kinds::TIMERS);
        Ok(record)
    }

    async fn get_schedule_once(&self, key: &ScheduleKey) -> Result<Option<ScheduleRecord>, Fault> {
        let params: Params<'_> = &[&key.tenant.as_str(), &key.name.as_str()];
        let rows = self.read(&sql::GET_SCHEDULE, params).await?;
        Ok(rows.first().map(record_of).transpose()?)
    }

    async fn list_schedules_once(&self, filter: &ScheduleFilter) -> Result<SchedulePage, Fault> {
        let limit = if filter.limit == 0 { PAGE_MAX } else { filter.limit.min(PAGE_MAX) };
        let tenant = filter.tenant.as_ref().map(|tenant| tenant.as_str());
        let after = filter.after.as_ref();
        let after_tenant = after.map(|after| after.tenant.as_str());
        let after_name = after.map(|after| after.name.as_str());
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let params: Params<'_> = &[&tenant, &after_tenant, &after_name, &most];
        let rows = self.read(&sql::LIST_SCHEDULES, params).await?;
        let mut page = SchedulePage::default();
        for row in &rows {
            match record_of(row) {
                Ok(record) => page.schedules.push(record),
                Err(error) => page.unreadable.push(UnreadableSchedule {
                    tenant: row.get("tenant"),
                    name: row.get("name"),
                    problem: error.to_string(),
                }),
            }
        }
        // One whose name is none cannot be what a page begins behind.
        let last = rows.iter().rev().find_map(|row| rows::key_of(row).ok());
        page.next = last.filter(|_| rows.len() >= limit);
        Ok(page)
    }

    /// Changes the state of a schedule.
    async fn change_schedule_once(
        &self,
        key: &ScheduleKey,
        change: fn(&mut ScheduleRecord, Timestamp) -> Left,
    ) -> Result<(), Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let mut record = lock(&tx, key).await?.ok_or_else(|| key.not_found())?;
        let now = self.now_in(&tx).await?;
        let left = change(&mut record, now);
        let (mut advance, mut writes) = (Advance::default(), Writes::default());
        advance.change(&record, &left);
        advance.write(&mut writes, now);
        tx.commit(writes).await?;
        self.notifier.notify(Kinds::TIMERS);
        Ok(())
    }

    async fn delete_schedule_once(&self, key: &ScheduleKey) -> Result<(), Fault> {
        let params: Params<'_> = &[&key.tenant.as_str(), &key.name.as_str()];
        self.read(&sql::DELETE_SCHEDULE, params).await.map(drop)
    }

    async fn disable_schedules_once(
        &self,
        owner: &ScheduleOwner,
        tenant: Option<&Tenant>,
        declared: &[ScheduleKey],
    ) -> Result<Vec<ScheduleKey>, Fault> {
        let tenants: Vec<&str> = declared.iter().map(|key| key.tenant.as_str()).collect();
        let names: Vec<&str> = declared.iter().map(|key| key.name.as_str()).collect();
        let tenant = tenant.map(Tenant::as_str);
        let params: Params<'_> = &[&owner.as_str(), &tenants, &names, &tenant];
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let rows = tx.query(&sql::LOCK_UNDECLARED, params).await?;
        let now = self.now_in(&tx).await?;
        let (mut advance, mut keys) = (Advance::default(), Vec::new());
        for row in &rows {
            match record_of(row) {
                Ok(mut record) => {
                    let left = record.disable(now);
                    advance.change(&record, &left);
                    keys.push(record.schedule.key);
                }
                // Whoever wrote it knows whether it is declared.
                Err(error) => tracing::error!(%owner, %error, "a schedule is not disabled"),
            }
        }
        let mut writes = Writes::default();
        advance.write(&mut writes, now);
        tx.commit(writes).await?;
        keys.sort();
        Ok(keys)
    }

    async fn trigger_schedule_once(&self, key: &ScheduleKey, run: RunId) -> Result<Started, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let record = lock(&tx, key).await?.ok_or_else(|| key.not_found())?;
        let now = self.now_in(&tx).await?;
        let start = record.schedule.start(run, now);
        let result = FireResult::Started(run);
        let fire = Fire { nominal: now, by: FireBy::Trigger, result, at: now };
        let write = |answers: &[Result<Started, StoreError>]| match answers.first() {
            Some(Ok(Started { is_new: true, .. })) => write_fires(&record, &[fire], now),
            Some(_) | None => Writes::default(),
        };
        let answers = self.start_in(tx, &[start], write).await?;
        let none = || StoreError::Corrupt("a start has no answer".to_owned());
        Ok(answers.into_iter().next().ok_or_else(none)??)
    }

    async fn backfill_schedule_once(
        &self,
        key: &ScheduleKey,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Backfilled, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let record = lock(&tx, key).await?.ok_or_else(|| key.not_found())?;
        let now = self.now_in(&tx).await?;
        let mut times = record.past(from, until, now)?;
        let count = times.len();
        let run = |nominal: Timestamp| RunId::of_fire(record.id, nominal);
        let nominal: Vec<At> = times.iter().copied().map(At).collect();
        let ids = sorted_ids(times.iter().copied().map(run));
        let started: Params<'_> = &[&record.id.0.cast_signed(), &nominal];
        let present: Params<'_> = &[&ids];
        let all = [
            (&sql::STARTED_FIRES, started),
            (&sql::PRESENT_RUNS, present),
            (&sql::ARCHIVED_IDS, present),
        ];
        let [started, present, archived] = tx.query_all(all).await?;
        let started: Vec<Timestamp> = started.iter().map(|row| row.get::<_, At>(0).0).collect();
        let mut there: BTreeSet<RunId> =
            archived.iter().map(|row| RunId::from_uuid(row.get("id"))).collect();
        for row in &present {
            let id = RunId::from_uuid(row.get("id"));
            if row.get::<_, &str>("tenant") != key.tenant.as_str() {
                return Err(StoreError::Conflict(taken(id)).into());
            }
            there.insert(id);
        }
        times.retain(|time| !started.contains(time) && !there.contains(&run(*time)));
        let starts: Vec<_> =
            times.iter().map(|time| record.schedule.start(run(*time), *time)).collect();
        let write = |answers: &[Result<Started, StoreError>]| {
            let fires = times.iter().zip(answers).filter(|(_, answer)| answer.is_ok());
            let line = |nominal: Timestamp| {
                let result = FireResult::Started(run(nominal));
                Fire { nominal, by: FireBy::Backfill, result, at: now }
            };
            let fires: Vec<Fire> = fires.map(|(time, _)| line(*time)).collect();
            write_fires(&record, &fires, now)
        };
        let answers = self.start_in(tx, &starts, write).await?;
        let answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(Backfilled { started: answers.len(), existing: count - answers.len() })
    }

    async fn list_fires_once(&self, key: &ScheduleKey, limit: usize) -> Result<Vec<Fire>, Fault> {
        let (tenant, name) = (key.tenant.as_str(), key.name.as_str());
        let most = i64::try_from(limit.min(FIRES_KEPT)).unwrap_or(i64::MAX);
        let rows = self.read(&sql::LIST_FIRES, &[&tenant, &name, &most]).await?;
        if rows.is_empty() && self.get_schedule_once(key).await?.is_none() {
            return Err(key.not_found().into());
        }
        Ok(rows.iter().map(|row| fire_of(row, key)).collect::<Result<_, _>>()?)
    }
}

/// Whether a tenant may have no more schedules; until the transaction ends nobody else makes one.
async fn is_full(tx: &Tx<'_>, tenant: &Tenant) -> Result<bool, Fault> {
    let params: Params<'_> = &[&tenant.as_str()];
    let [_, rows] =
        tx.query_all([(&sql::LOCK_SCHEDULES, &[]), (&sql::COUNT_SCHEDULES, params)]).await?;
    let count: i64 = rows.first().map_or(0, |row| row.get(0));
    Ok(usize::try_from(count).unwrap_or(usize::MAX) >= SCHEDULES_MAX)
}

/// Locks a schedule.
async fn lock(tx: &Tx<'_>, key: &ScheduleKey) -> Result<Option<ScheduleRecord>, Fault> {
    let params: Params<'_> = &[&key.tenant.as_str(), &key.name.as_str()];
    let rows: Vec<Row> = tx.query(&sql::LOCK_SCHEDULE, params).await?;
    Ok(rows.first().map(record_of).transpose()?)
}

/// Writes lines of the history of one schedule.
fn write_fires(record: &ScheduleRecord, fires: &[Fire], now: Timestamp) -> Writes<'static> {
    let mut columns = FireColumns::default();
    fires.iter().for_each(|fire| columns.push(record, fire));
    let mut writes = Writes::default();
    columns.write(&mut writes, now);
    writes
}

#[async_trait]
impl ScheduleStore for PostgresStore {
    async fn put_schedule(&self, schedule: NewSchedule) -> Result<ScheduleRecord, StoreError> {
        repeat!(self.put_schedule_once(&schedule))
    }

    async fn get_schedule(&self, key: ScheduleKey) -> Result<Option<ScheduleRecord>, StoreError> {
        repeat!(self.get_schedule_once(&key))
    }

    async fn list_schedules(&self, filter: ScheduleFilter) -> Result<SchedulePage, StoreError> {
        repeat!(self.list_schedules_once(&filter))
    }

    async fn pause_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        repeat!(self.change_schedule_once(&key, ScheduleRecord::pause))
    }

    async fn resume_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        repeat!(self.change_schedule_once(&key, |it, now| {
            it.resume(now);
            Left::default()
        }))
    }

    async fn delete_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        repeat!(self.delete_schedule_once(&key))
    }

    async fn disable_schedules(
        &self,
        owner: ScheduleOwner,
        tenant: Option<Tenant>,
        declared: Vec<ScheduleKey>,
    ) -> Result<Vec<ScheduleKey>, StoreError> {
        repeat!(self.disable_schedules_once(&owner, tenant.as_ref(), &declared))
    }

    async fn trigger_schedule(&self, key: ScheduleKey, run: RunId) -> Result<Started, StoreError> {
        repeat!(self.trigger_schedule_once(&key, run))
    }

    async fn backfill_schedule(
        &self,
        key: ScheduleKey,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Backfilled, StoreError> {
        repeat!(self.backfill_schedule_once(&key, from, until))
    }

    async fn list_fires(&self, key: ScheduleKey, limit: usize) -> Result<Vec<Fire>, StoreError> {
        repeat!(self.list_fires_once(&key, limit))
    }

    async fn fire_schedules(&self, limit: usize) -> Result<Sweep, StoreError> {
        without_unsound!(self, repeat!(self.fire_once(None, limit)))
    }
}
