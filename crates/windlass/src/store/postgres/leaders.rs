//! Who does the background duties: the rows of leaders.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_postgres::Row;
use windlass_core::{CandidateId, Term, Timestamp};

use super::PostgresStore;
use super::fault::Fault;
use super::floors::{Found, Front};
use super::notify::Kinds;
use super::pool::Tx;
use super::statements as sql;
use super::time::At;
use crate::store::{
    Candidacy, Duty, Holder, LeaderRecord, Mandate, Outlook, Standing, StoreError, Tallies,
};

/// The columns of what was done for each duty.
struct Columns<'a> {
    duties: Vec<&'static str>,
    runs: Vec<i64>,
    items: Vec<i64>,
    errors: Vec<i64>,
    last_runs: Vec<Option<At>>,
    busy: Vec<i64>,
    last_took: Vec<Option<i64>>,
    last_errors: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    fn of(tallies: &'a Tallies) -> Columns<'a> {
        let tally = |duty: &Duty| tallies.get(duty);
        let count = |number: Option<u64>| i64::try_from(number.unwrap_or(0)).unwrap_or(i64::MAX);
        let duties = Duty::ALL.iter();
        Columns {
            duties: duties.clone().map(|duty| duty.word()).collect(),
            runs: duties.clone().map(|duty| count(tally(duty).map(|it| it.runs))).collect(),
            items: duties.clone().map(|duty| count(tally(duty).map(|it| it.items))).collect(),
            errors: duties.clone().map(|duty| count(tally(duty).map(|it| it.errors))).collect(),
            last_runs: duties.clone().map(|duty| tally(duty)?.last_run_at.map(At)).collect(),
            busy: duties.clone().map(|duty| tally(duty).map_or(0, |it| micros(it.busy))).collect(),
            last_took: duties.clone().map(|duty| tally(duty)?.last_took.map(micros)).collect(),
            last_errors: duties.map(|duty| tally(duty)?.last_error.as_deref()).collect(),
        }
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl PostgresStore {
    pub(super) async fn lead_once(&self, candidacy: &Candidacy) -> Result<Standing, Fault> {
        let seats = self.election.seats(candidacy).await?;
        let words = |duties: &BTreeSet<Duty>| duties.iter().map(|it| it.word()).collect();
        let held: Option<Vec<&str>> = seats.held.as_ref().map(words);
        let gained: Vec<&str> = words(&seats.gained);
        let (now, timers, staged) = self.look_from();
        let (ttl, rotation) = (micros(candidacy.ttl), candidacy.rotation.map(micros));
        let did = Columns::of(&candidacy.tallies);
        let rows = self
            .read(
                &sql::LEAD,
                &[
                    &now,
                    &timers,
                    &staged,
                    candidacy.candidate.as_uuid(),
                    &candidacy.name,
                    &ttl,
                    &did.duties,
                    &did.runs,
                    &did.items,
                    &did.errors,
                    &did.last_runs,
                    &did.last_errors,
                    &held,
                    &gained,
                    &rotation,
                    &did.busy,
                    &did.last_took,
                ],
            )
            .await?;
        let outlook = rows.first().map(|row| self.outlook_of(row)).ok_or_else(no_duties)?;
        let leaders = leaders(&rows)?;
        let is_over = |it: &&LeaderRecord| it.makes_room(candidacy.candidate, outlook.at);
        let over: BTreeSet<Duty> = leaders.iter().filter(is_over).map(|it| it.duty).collect();
        if !over.is_empty() {
            self.election.make_room(candidacy, &over).await;
        }
        Ok(Standing { leaders, outlook })
    }

    pub(super) async fn resign_once(
        &self,
        candidate: CandidateId,
        tallies: &Tallies,
    ) -> Result<(), Fault> {
        let did = Columns::of(tallies);
        let rows = self
            .read(
                &sql::RESIGN,
                &[
                    candidate.as_uuid(),
                    &did.duties,
                    &did.runs,
                    &did.items,
                    &did.errors,
                    &did.last_runs,
                    &did.last_errors,
                    &did.busy,
                    &did.last_took,
                ],
            )
            .await?;
        self.election.release(candidate).await;
        if !rows.is_empty() {
            self.notifier.notify_here(Kinds::LEADERS);
        }
        Ok(())
    }

    pub(super) async fn outlook_once(&self) -> Result<Outlook, Fault> {
        let (now, timers, staged) = self.look_from();
        let rows = self.read(&sql::OUTLOOK, &[&now, &timers, &staged]).await?;
        rows.first().map(|row| self.outlook_of(row)).ok_or_else(no_duties)
    }

    pub(super) async fn list_leaders_once(&self) -> Result<Vec<LeaderRecord>, Fault> {
        leaders(&self.read(&sql::LIST_LEADERS, &[]).await?)
    }

    /// The time that a test has set, and from where on to look for timers and staged runs.
    fn look_from(&self) -> (Option<At>, At, i64) {
        let timers = self.floors.get(Front::Timers, Found::TooLittle);
        let staged = self.floors.get(Front::Staged, Found::TooLittle);
        let now = self.clock.as_ref().map(|clock| At(clock.now()));
        (now, At(Timestamp::from_micros(timers)), staged)
    }

    fn outlook_of(&self, row: &Row) -> Outlook {
        self.may_prepare.store(row.get("may_prepare"), Ordering::Relaxed);
        let time = |column| row.get::<_, Option<At>>(column).map(|at| at.0);
        Outlook {
            at: row.get::<_, At>("at").0,
            promote_at: time("promote_at"),
            reap_at: time("reap_at"),
            fire_at: time("fire_at"),
        }
    }

    /// The time of a sweep, which has the row of its leader locked for share from now on;
    /// without a mandate, anyone's.
    pub(super) async fn now_of_sweep(
        &self,
        tx: &Tx<'_>,
        mandate: Option<&Mandate>,
    ) -> Result<Timestamp, Fault> {
        let Some(Mandate { duty, candidate, term }) = mandate.copied() else {
            return self.now_in(tx).await;
        };
        let number = term.0.cast_signed();
        let rows =
            tx.query(&sql::LEADER_CLOCK, &[&duty.word(), candidate.as_uuid(), &number]).await?;
        let Some(row) = rows.first() else {
            return Err(StoreError::TermOver { duty, term }.into());
        };
        Ok(self.clock.as_ref().map_or_else(|| row.get::<_, At>(0).0, |clock| clock.now()))
    }
}

fn no_duties() -> Fault {
    StoreError::Corrupt("no duty has a row in windlass.leaders".to_owned()).into()
}

/// The records of rows, in the order of [`Duty::ALL`].
pub(super) fn leaders(rows: &[Row]) -> Result<Vec<LeaderRecord>, Fault> {
    let record = |duty: Duty| {
        let row = rows.iter().find(|row| row.get::<_, &str>("duty") == duty.word());
        row.map(|row| leader(duty, row)).ok_or_else(|| {
            StoreError::Corrupt(format!("the duty {duty} has no row in windlass.leaders")).into()
        })
    };
    Duty::ALL.into_iter().map(record).collect()
}

fn leader(duty: Duty, row: &Row) -> LeaderRecord {
    let number = |column| row.get::<_, i64>(column).cast_unsigned();
    let span = |micros: i64| Duration::from_micros(micros.cast_unsigned());
    let time = |column| row.get::<_, Option<At>>(column).map(|at| at.0);
    let holder = || {
        Some(Holder {
            candidate: CandidateId::from_uuid(row.get::<_, Option<_>>("holder")?),
            name: row.get::<_, Option<_>>("holder_name")?,
            since: time("since")?,
            renewed_at: time("renewed_at")?,
            until: time("until")?,
            rotates_at: time("rotates_at"),
            is_given_up: row.get("is_given_up"),
        })
    };
    LeaderRecord {
        duty,
        term: Term(number("term")),
        holder: holder(),
        runs: number("runs"),
        items: number("items"),
        errors: number("errors"),
        last_run_at: time("last_run_at"),
        busy: span(row.get("busy")),
        last_took: row.get::<_, Option<i64>>("last_took").map(span),
        last_error: row.get("last_error"),
    }
}
