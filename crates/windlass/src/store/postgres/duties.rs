//! Duties of programs as rows.
//!
//! Whoever asks reads first, and locks only what may be its own. What follows from a claim or an
//! end is decided by [`DutyRecord`], under the lock of its row.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{CandidateId, DutyName, Term, Timestamp};

use super::PostgresStore;
use super::fault::Fault;
use super::notify::Kinds;
use super::pool::{Ask, Params};
use super::repeat::repeat;
use super::statements as sql;
use super::time::At;
use super::writes::{Writes, params};
use crate::store::duties::too_many;
use crate::store::{
    DUTIES_MAX, DutyClaim, DutyDeclaration, DutyEnd, DutyHolder, DutyMandate, DutyOutcome,
    DutyRecord, DutyStanding, DutyStore, StoreError,
};

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Duties by their names.
type Records = BTreeMap<DutyName, DutyRecord>;

fn records_of(rows: &[Row]) -> Result<Records, StoreError> {
    let pair = |row| record_of(row).map(|record| (record.name.clone(), record));
    rows.iter().map(pair).collect()
}

fn record_of(row: &Row) -> Result<DutyRecord, StoreError> {
    let number = |column| row.get::<_, i64>(column).cast_unsigned();
    let time = |column| row.get::<_, Option<At>>(column).map(|at| at.0);
    let holder = || {
        Some(DutyHolder {
            candidate: CandidateId::from_uuid(row.get::<_, Option<_>>("holder")?),
            process: row.get::<_, Option<_>>("holder_name")?,
            since: time("since")?,
            until: time("until"),
        })
    };
    let took = row.get::<_, Option<i64>>("last_took_micros").map(i64::cast_unsigned);
    let name = DutyName::new(row.get::<_, &str>("name"));
    Ok(DutyRecord {
        name: name.map_err(|error| StoreError::Corrupt(format!("a duty: {error}")))?,
        every: Duration::from_micros(number("every_micros")),
        next_at: row.get::<_, At>("next_at").0,
        term: Term(number("term")),
        holder: holder(),
        runs: number("runs"),
        errors: number("errors"),
        last_run: time("last_run_at").zip(took.map(Duration::from_micros)),
        last_error: row.get("last_error"),
    })
}

/// Writes a duty that is locked.
fn put(writes: &mut Writes<'static>, record: &DutyRecord) {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let holder = record.holder.as_ref();
    writes.push(
        &sql::PUT_DUTY,
        params![
            record.name.as_str().to_owned(),
            micros(record.every),
            At(record.next_at),
            number(record.term.0),
            holder.map(|holder| *holder.candidate.as_uuid()),
            holder.map(|holder| holder.process.clone()),
            holder.map(|holder| At(holder.since)),
            holder.and_then(|holder| holder.until).map(At),
            number(record.runs),
            number(record.errors),
            record.last_run.map(|(at, _)| At(at)),
            record.last_run.map(|(_, took)| micros(took)),
            record.last_error.clone(),
        ],
    );
}

impl PostgresStore {
    async fn claim_duties_once(&self, claim: &DutyClaim) -> Result<DutyStanding, Fault> {
        claim.check()?;
        if claim.duties.is_empty() {
            return Ok(DutyStanding { at: self.now_once().await?, duties: Vec::new() });
        }
        let (mut at, mut found) = self.read_duties(&claim.duties).await?;
        let is_new = |it: &&DutyDeclaration| !found.contains_key(&it.name);
        let new: Vec<&DutyDeclaration> = claim.duties.iter().filter(is_new).collect();
        if !new.is_empty() {
            self.make_duties(&new).await?;
            (at, found) = self.read_duties(&claim.duties).await?;
        }
        let is_changed = |it: &&DutyDeclaration| {
            found.get(&it.name).is_some_and(|record| record.is_changed_by(claim, it, at))
        };
        let changed: Vec<&DutyDeclaration> = claim.duties.iter().filter(is_changed).collect();
        if !changed.is_empty() {
            let locked;
            (at, locked) = self.take_duties(claim, &changed).await?;
            found.extend(locked);
        }
        let gone =
            |name: &DutyName| Fault::Unavailable(format!("duty {name:?} was forgotten just now"));
        let record = |it: &DutyDeclaration| found.remove(&it.name).ok_or_else(|| gone(&it.name));
        let duties = claim.duties.iter().map(record).collect::<Result<_, _>>()?;
        Ok(DutyStanding { at, duties })
    }

    async fn read_duties(
        &self,
        declared: &[DutyDeclaration],
    ) -> Result<(Timestamp, Records), Fault> {
        let names: Vec<&str> = declared.iter().map(|it| it.name.as_str()).collect();
        let rows = self.read(&sql::READ_DUTIES, &[&names]).await?;
        let read_at = || rows.first().map(|row| row.get::<_, At>("at").0);
        let at = match &self.clock {
            Some(clock) => clock.now(),
            // Without a row it is asked again once there is one.
            None => read_at().unwrap_or(Timestamp::from_micros(0)),
        };
        Ok((at, records_of(&rows)?))
    }

    /// Makes duties known, if there is room for them. Processes that do so at once may make a few
    /// more.
    async fn make_duties(&self, new: &[&DutyDeclaration]) -> Result<(), Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let asks: [Ask<'_>; 2] = [(&sql::COUNT_DUTIES, &[]), (&sql::CLOCK, &[])];
        let [count, clock] = tx.query_all(asks).await?;
        let count: i64 = count.first().map_or(0, |row| row.get(0));
        let room = DUTIES_MAX.saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
        if let Some(over) = new.get(room) {
            return Err(too_many(&over.name).into());
        }
        let now = self.now_of(&clock)?;
        let names: Vec<String> = new.iter().map(|it| it.name.to_string()).collect();
        let every: Vec<i64> = new.iter().map(|it| micros(it.every)).collect();
        let mut writes = Writes::default();
        writes.push(&sql::INSERT_DUTIES, params![names, every, At(now)]);
        tx.commit(writes).await?;
        Ok(())
    }

    /// Does what a claim says to those of its duties that it may change, but for those that others
    /// have locked.
    async fn take_duties(
        &self,
        claim: &DutyClaim,
        declared: &[&DutyDeclaration],
    ) -> Result<(Timestamp, Records), Fault> {
        let names: Vec<&str> = declared.iter().map(|it| it.name.as_str()).collect();
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let lock: Params<'_> = &[&names];
        let [rows, clock] = tx.query_all([(&sql::LOCK_DUTIES, lock), (&sql::CLOCK, &[])]).await?;
        let now = self.now_of(&clock)?;
        let mut locked = records_of(&rows)?;
        let mut writes = Writes::default();
        for it in declared {
            let Some(record) = locked.get_mut(&it.name) else { continue };
            if record.is_changed_by(claim, it, now) {
                record.claim(claim, it, now);
                put(&mut writes, record);
            }
        }
        tx.commit(writes).await?;
        Ok((now, locked))
    }

    async fn renew_duties_once(
        &self,
        mandates: &[DutyMandate],
        ttl: Duration,
    ) -> Result<Vec<DutyName>, Fault> {
        let names: Vec<&str> = mandates.iter().map(|it| it.name.as_str()).collect();
        let candidates: Vec<Uuid> = mandates.iter().map(|it| *it.candidate.as_uuid()).collect();
        let terms: Vec<i64> = mandates.iter().map(|it| it.term.0.cast_signed()).collect();
        let now = self.clock.as_ref().map(|clock| At(clock.now()));
        let params: Params<'_> = &[&names, &candidates, &terms, &now, &micros(ttl)];
        let rows = self.read(&sql::RENEW_DUTIES, params).await?;
        let is_renewed =
            |it: &&DutyMandate| rows.iter().any(|row| row.get::<_, &str>(0) == it.name.as_str());
        Ok(mandates.iter().filter(is_renewed).map(|it| it.name.clone()).collect())
    }

    async fn end_duty_once(&self, end: &DutyEnd) -> Result<Option<(Timestamp, DutyRecord)>, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let name = end.mandate.name.as_str();
        let lock: Params<'_> = &[&name];
        let [rows, clock] = tx.query_all([(&sql::LOCK_DUTY, lock), (&sql::CLOCK, &[])]).await?;
        let now = self.now_of(&clock)?;
        let Some(mut record) = rows.first().map(record_of).transpose()? else { return Ok(None) };
        if !record.end(end, now) {
            return Ok(None);
        }
        let mut writes = Writes::default();
        put(&mut writes, &record);
        tx.commit(writes).await?;
        match end.outcome {
            DutyOutcome::GivenUp => self.notifier.notify(Kinds::LEADERS),
            DutyOutcome::Succeeded | DutyOutcome::Failed(_) => {}
        }
        Ok(Some((now, record)))
    }

    async fn list_duties_once(&self) -> Result<Vec<DutyRecord>, Fault> {
        let rows = self.read(&sql::LIST_DUTIES, &[]).await?;
        Ok(records_of(&rows)?.into_values().collect())
    }

    async fn forget_duty_once(&self, name: &DutyName) -> Result<bool, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let text = name.as_str();
        let lock: Params<'_> = &[&text];
        let [rows, clock] = tx.query_all([(&sql::LOCK_DUTY, lock), (&sql::CLOCK, &[])]).await?;
        let Some(record) = rows.first().map(record_of).transpose()? else { return Ok(false) };
        record.check_forgettable(self.now_of(&clock)?)?;
        let mut writes = Writes::default();
        writes.push(&sql::FORGET_DUTY, params![text.to_owned()]);
        tx.commit(writes).await?;
        Ok(true)
    }
}

#[async_trait]
impl DutyStore for PostgresStore {
    async fn claim_duties(&self, claim: DutyClaim) -> Result<DutyStanding, StoreError> {
        repeat!(self.claim_duties_once(&claim))
    }

    async fn renew_duties(
        &self,
        mandates: Vec<DutyMandate>,
        ttl: Duration,
    ) -> Result<Vec<DutyName>, StoreError> {
        repeat!(self.renew_duties_once(&mandates, ttl))
    }

    async fn end_duty(&self, end: DutyEnd) -> Result<Option<(Timestamp, DutyRecord)>, StoreError> {
        repeat!(self.end_duty_once(&end))
    }

    async fn list_duties(&self) -> Result<Vec<DutyRecord>, StoreError> {
        repeat!(self.list_duties_once())
    }

    async fn forget_duty(&self, name: DutyName) -> Result<bool, StoreError> {
        repeat!(self.forget_duty_once(&name))
    }
}
