//! Schedules and their histories as rows.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;
use windlass_core::decide::{MESSAGE_BYTES_MAX, storable};
use windlass_core::schedule::Timing;
use windlass_core::{
    Overlap, Payload, Priority, RunId, ScheduleId, ScheduleName, ScheduleOwner, Tenant, Timestamp,
    Version, WorkflowName,
};

use super::super::statements as sql;
use super::super::time::At;
use super::super::writes::{Writes, params};
use crate::store::{
    FIRES_KEPT, Fire, FireBy, FireResult, NewSchedule, ScheduleKey, ScheduleRecord, ScheduleState,
    StoreError,
};

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// What names the schedule of a row.
pub(super) fn key_of(row: &Row) -> Result<ScheduleKey, StoreError> {
    let wrong =
        |error: windlass_core::NameError| StoreError::Corrupt(format!("a schedule: {error}"));
    Ok(ScheduleKey {
        tenant: Tenant::new(row.get::<_, &str>("tenant")).map_err(wrong)?,
        name: ScheduleName::new(row.get::<_, &str>("name")).map_err(wrong)?,
    })
}

/// The schedule of a row.
pub(in super::super) fn record_of(row: &Row) -> Result<ScheduleRecord, StoreError> {
    let key = key_of(row)?;
    let name = key.name.clone();
    let wrong = |error: String| StoreError::Corrupt(format!("schedule {name:?}: {error}"));
    let owner = row.get::<_, Option<&str>>("owner").map(ScheduleOwner::new).transpose();
    let version = Version::new(row.get::<_, i32>("version").cast_unsigned());
    let priority = Priority::new(row.get("priority"));
    let word: &str = row.get("state");
    let state = ScheduleState::ALL.into_iter().find(|state| state.word() == word);
    let time = |column| row.get::<_, Option<At>>(column).map(|at| at.0);
    let length = |column| Duration::from_micros(row.get::<_, i64>(column).unsigned_abs());
    let timing = Timing {
        cadence: serde_json::from_str(row.get("cadence"))
            .map_err(|error| wrong(error.to_string()))?,
        starts_at: time("starts_at"),
        ends_at: time("ends_at"),
        jitter: length("jitter_micros"),
        grace: length("grace_micros"),
        missed: row.get::<_, &str>("missed").parse().map_err(wrong)?,
        overlap: row.get::<_, &str>("overlap").parse().map_err(wrong)?,
    };
    Ok(ScheduleRecord {
        id: ScheduleId(row.get::<_, i64>("id").cast_unsigned()),
        schedule: NewSchedule {
            key,
            workflow: WorkflowName::new(row.get::<_, &str>("workflow"))
                .map_err(|error| wrong(error.to_string()))?,
            version: version.ok_or_else(|| wrong("its version is 0".to_owned()))?,
            input: Payload::from_json(row.get::<_, &str>("input"))
                .map_err(|error| wrong(format!("its input {error}")))?,
            priority: priority.ok_or_else(|| wrong("its priority is none".to_owned()))?,
            timing,
            owner: owner.map_err(|error| wrong(error.to_string()))?,
        },
        state: state.ok_or_else(|| wrong(format!("{word:?} is not a state")))?,
        next_at: time("next_at"),
        last_at: time("last_at"),
        queued_at: time("queued_at"),
        created_at: row.get::<_, At>("created_at").0,
    })
}

/// One line of the history of a schedule.
pub(super) fn fire_of(row: &Row, key: &ScheduleKey) -> Result<Fire, StoreError> {
    let wrong = |what: &str| {
        StoreError::Corrupt(format!("schedule {:?}: a line of its history {what}", key.name))
    };
    let word: &str = row.get("by");
    let by = FireBy::ALL.into_iter().find(|by| by.word() == word);
    let nominal = row.get::<_, At>("nominal_at").0;
    let result = match row.get::<_, &str>("result") {
        "started" => {
            let run: Option<Uuid> = row.get("run_id");
            FireResult::Started(RunId::from_uuid(run.ok_or_else(|| wrong("has no run"))?))
        }
        "missed" => FireResult::Missed {
            first: row.get::<_, Option<At>>("first_at").map_or(nominal, |at| at.0),
            count: usize::try_from(row.get::<_, Option<i32>>("count").unwrap_or(1)).unwrap_or(1),
        },
        "overlapped" => FireResult::Overlapped,
        "queued" => FireResult::Queued,
        "refused" => {
            FireResult::Refused(row.get::<_, Option<String>>("reason").unwrap_or_default())
        }
        other => return Err(wrong(&format!("says {other:?}"))),
    };
    let by = by.ok_or_else(|| wrong(&format!("is by {word:?}")))?;
    Ok(Fire { nominal, by, result, at: row.get::<_, At>("at").0 })
}

/// The parameters of [`sql::PUT_SCHEDULE`].
pub(super) struct Put<'a> {
    tenant: &'a str,
    name: &'a str,
    workflow: &'a str,
    version: i32,
    priority: i16,
    state: &'static str,
    owner: Option<&'a str>,
    cadence: String,
    missed: String,
    overlap: &'static str,
    lengths: (i64, i64),
    bounds: (Option<At>, Option<At>),
    created_at: At,
    times: [Option<At>; 4],
    input: &'a str,
}

impl<'a> Put<'a> {
    pub(super) fn of(record: &'a ScheduleRecord) -> Result<Self, StoreError> {
        let NewSchedule { key, workflow, version, input, priority, timing, owner } =
            &record.schedule;
        let wrong = |error| StoreError::Corrupt(format!("schedule {:?}: {error}", key.name));
        let times = [record.next_at, record.due_at(), record.last_at, record.queued_at];
        Ok(Put {
            tenant: key.tenant.as_str(),
            name: key.name.as_str(),
            workflow: workflow.as_str(),
            version: version.get().cast_signed(),
            priority: priority.get(),
            state: record.state.word(),
            owner: owner.as_ref().map(ScheduleOwner::as_str),
            cadence: serde_json::to_string(&timing.cadence).map_err(wrong)?,
            missed: timing.missed.to_string(),
            overlap: timing.overlap.word(),
            lengths: (micros(timing.jitter), micros(timing.grace)),
            bounds: (timing.starts_at.map(At), timing.ends_at.map(At)),
            created_at: At(record.created_at),
            times: times.map(|time| time.map(At)),
            input: input.as_str(),
        })
    }

    pub(super) fn params(&self) -> [&(dyn ToSql + Sync); 20] {
        let [next, due, last, queued] = &self.times;
        [
            &self.tenant,
            &self.name,
            &self.workflow,
            &self.version,
            &self.priority,
            &self.state,
            &self.owner,
            &self.cadence,
            &self.missed,
            &self.overlap,
            &self.lengths.0,
            &self.lengths.1,
            &self.bounds.0,
            &self.bounds.1,
            &self.created_at,
            next,
            due,
            last,
            queued,
            &self.input,
        ]
    }
}

/// The columns of lines of histories.
#[derive(Default)]
pub(super) struct FireColumns {
    schedules: Vec<i64>,
    nominals: Vec<At>,
    bys: Vec<&'static str>,
    results: Vec<&'static str>,
    runs: Vec<Option<Uuid>>,
    opens: Vec<bool>,
    firsts: Vec<Option<At>>,
    counts: Vec<Option<i32>>,
    reasons: Vec<Option<String>>,
}

impl FireColumns {
    pub(super) fn push(&mut self, record: &ScheduleRecord, fire: &Fire) {
        let run = fire.result.run();
        let (first, count) = match &fire.result {
            FireResult::Missed { first, count } => (Some(At(*first)), Some(*count)),
            FireResult::Started(_)
            | FireResult::Overlapped
            | FireResult::Queued
            | FireResult::Refused(_) => (None, None),
        };
        let reason = match &fire.result {
            FireResult::Refused(reason) => Some(storable(reason, MESSAGE_BYTES_MAX)),
            FireResult::Started(_)
            | FireResult::Missed { .. }
            | FireResult::Overlapped
            | FireResult::Queued => None,
        };
        let is_free = record.schedule.timing.overlap == Overlap::Allow;
        self.schedules.push(record.id.0.cast_signed());
        self.nominals.push(At(fire.nominal));
        self.bys.push(fire.by.word());
        self.results.push(fire.result.word());
        self.runs.push(run.map(|run| *run.as_uuid()));
        self.opens.push(run.is_some() && !is_free);
        self.firsts.push(first);
        self.counts.push(count.map(|count| i32::try_from(count).unwrap_or(i32::MAX)));
        self.reasons.push(reason);
    }

    /// Notes that a run was not started after all.
    pub(super) fn refuse(&mut self, run: RunId, reason: &str) {
        for place in 0..self.runs.len() {
            if self.runs[place] == Some(*run.as_uuid()) {
                self.results[place] = FireResult::Refused(String::new()).word();
                (self.runs[place], self.opens[place]) = (None, false);
                self.reasons[place] = Some(storable(reason, MESSAGE_BYTES_MAX));
            }
        }
    }

    /// Writes the lines, and forgets the oldest of the same schedules.
    pub(super) fn write(self, writes: &mut Writes<'_>, now: Timestamp) {
        if self.schedules.is_empty() {
            return;
        }
        let mut schedules = self.schedules.clone();
        schedules.dedup();
        writes.push(
            &sql::INSERT_FIRES,
            params![
                self.schedules,
                self.nominals,
                At(now),
                self.bys,
                self.results,
                self.runs,
                self.opens,
                self.firsts,
                self.counts,
                self.reasons,
            ],
        );
        let kept = i64::try_from(FIRES_KEPT).unwrap_or(i64::MAX);
        writes.push(&sql::FORGET_FIRES, params![schedules, kept]);
    }
}
