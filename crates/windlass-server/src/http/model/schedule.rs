//! Schedules: what starts runs by itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass::store::{
    Fire, FireResult, NewSchedule, ScheduleKey, ScheduleRecord, UnreadableSchedule,
};
use windlass::{Cadence, PayloadLimit, Priority, RunId, Tenant, Timestamp, Version, WorkflowName};
use windlass_core::{Missed, Overlap, Timing};

use super::{IdText, Json, MissedCount, NameText, Time, millis};
use crate::problem::Problem;

/// Whose schedule.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantQuery {
    /// Whose it is; your own tenant if nothing is said.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    pub(crate) tenant: Option<Tenant>,
}

/// Which schedules to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleQuery {
    /// Only those of this tenant.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    pub(crate) tenant: Option<Tenant>,
    /// Where the previous page ended: its `next`.
    #[param(max_length = 2000)]
    pub(crate) cursor: Option<String>,
    /// The most schedules of the page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub(crate) limit: Option<u32>,
}

/// Whose schedule, and how many lines of its history.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct FireQuery {
    /// Whose it is; your own tenant if nothing is said.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    pub(crate) tenant: Option<Tenant>,
    /// The most lines.
    #[param(minimum = 1, maximum = 100, default = 100)]
    pub(crate) limit: Option<u32>,
}

/// The times at which a schedule fires: exactly one of the three.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
#[schema(as = Cadence)]
pub(crate) enum CadenceBody {
    /// When the clocks of a zone show what a cron expression names.
    Cron(CronBody),
    /// At every multiple of an interval.
    Every(EveryBody),
    /// Once, at this time.
    Once(Time),
}

/// A cron expression in a time zone.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CronCadence)]
pub(crate) struct CronBody {
    /// The expression, of five or six fields.
    #[schema(min_length = 1, max_length = 500, example = "0 2 * * *")]
    expression: String,
    /// The time zone, such as `Europe/Berlin`.
    #[serde(default = "utc")]
    #[schema(min_length = 1, max_length = 100, default = "UTC")]
    zone: String,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// An interval.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = EveryCadence)]
pub(crate) struct EveryBody {
    /// The interval.
    #[schema(minimum = 1000, maximum = 3_153_600_000_000u64)]
    interval_ms: u64,
    /// A time from which the multiples are counted; 1970 if nothing is said.
    #[serde(default)]
    anchor: Option<Time>,
}

impl CadenceBody {
    fn build(self) -> Result<Cadence, Problem> {
        let built = match self {
            CadenceBody::Cron(CronBody { expression, zone }) => Cadence::cron(&expression, &zone),
            CadenceBody::Every(EveryBody { interval_ms, anchor }) => {
                let anchor = anchor.map_or(Timestamp::from_micros(0), |time| time.0);
                Cadence::every_from(Duration::from_millis(interval_ms), anchor)
            }
            CadenceBody::Once(at) => Ok(Cadence::Once(at.0)),
        };
        built.map_err(|error| Problem::field("cadence", error))
    }
}

impl From<&Cadence> for CadenceBody {
    fn from(cadence: &Cadence) -> Self {
        match cadence {
            Cadence::Cron { cron, zone } => CadenceBody::Cron(CronBody {
                expression: cron.as_str().to_owned(),
                zone: zone.name().to_owned(),
            }),
            Cadence::Every { interval, anchor } => CadenceBody::Every(EveryBody {
                interval_ms: millis(*interval),
                anchor: Some(Time(*anchor)),
            }),
            Cadence::Once(at) => CadenceBody::Once(Time(*at)),
        }
    }
}

/// What is done with times that nobody served.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Missed)]
pub(crate) enum MissedWord {
    /// They are skipped.
    #[default]
    Skip,
    /// The last of them runs.
    Once,
    /// The last so many of them run, up to 1,000.
    Last(MissedCount),
}

/// What is done at a time while a run of the schedule is not over.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Overlap)]
pub(crate) enum OverlapWord {
    /// The next one starts beside it.
    #[default]
    Allow,
    /// The time is skipped.
    Skip,
    /// It waits for that run to end, if none waits already.
    Queue,
    /// The run that is not over is cancelled.
    CancelRunning,
}

/// A schedule as it is to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutSchedule {
    /// The workflow that it starts.
    #[schema(value_type = NameText)]
    pub(crate) workflow: WorkflowName,
    /// The version of the workflow. Default: the newest that is registered.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 2_147_483_647)]
    pub(crate) version: Option<Version>,
    /// The input of every run; null if nothing is said.
    #[serde(default)]
    input: Json,
    /// The priority of every run.
    #[serde(default)]
    #[schema(value_type = i16, minimum = -100, maximum = 100)]
    priority: Priority,
    /// When it fires.
    cadence: CadenceBody,
    /// None before this counts.
    #[serde(default)]
    starts_at: Option<Time>,
    /// None behind this counts.
    #[serde(default)]
    ends_at: Option<Time>,
    /// Up to how much later than its time each is served.
    #[serde(default)]
    #[schema(maximum = 86_400_000)]
    jitter_ms: u64,
    /// How late a time may be served and is not missed; a minute if nothing is said.
    #[serde(default)]
    #[schema(minimum = 1000, maximum = 3_153_600_000_000u64)]
    grace_ms: Option<u64>,
    /// What is done with those that are missed.
    #[serde(default)]
    missed: MissedWord,
    /// What is done while a run is not over.
    #[serde(default)]
    overlap: OverlapWord,
}

impl PutSchedule {
    /// The schedule that it asks for.
    pub(crate) fn build(
        self,
        key: ScheduleKey,
        version: Version,
        limit: PayloadLimit,
    ) -> Result<NewSchedule, Problem> {
        let mut timing = Timing::new(self.cadence.build()?);
        timing.starts_at = self.starts_at.map(|time| time.0);
        timing.ends_at = self.ends_at.map(|time| time.0);
        timing.jitter = Duration::from_millis(self.jitter_ms);
        if let Some(grace_ms) = self.grace_ms {
            timing.grace = Duration::from_millis(grace_ms);
        }
        timing.missed = match self.missed {
            MissedWord::Skip => Missed::Skip,
            MissedWord::Once => Missed::Once,
            MissedWord::Last(MissedCount(count)) => Missed::All(count),
        };
        timing.overlap = match self.overlap {
            OverlapWord::Allow => Overlap::Allow,
            OverlapWord::Skip => Overlap::Skip,
            OverlapWord::Queue => Overlap::Queue,
            OverlapWord::CancelRunning => Overlap::CancelRunning,
        };
        let schedule = NewSchedule {
            key,
            workflow: self.workflow,
            version,
            input: self.input.to_payload("input", limit)?,
            priority: self.priority,
            timing,
            owner: None,
        };
        let wrong = |why| Problem::new(windlass::ErrorKind::Argument, why);
        schedule.check(limit).map_err(wrong)?;
        Ok(schedule)
    }
}

/// A schedule as it is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Schedule)]
pub(crate) struct ScheduleBody {
    /// Whose it is.
    tenant: String,
    /// Its name.
    name: String,
    /// Whether it fires: active, paused or disabled.
    #[schema(value_type = String)]
    state: &'static str,
    /// The workflow that it starts.
    workflow: String,
    /// The version of the workflow.
    version: u32,
    /// The input of every run.
    input: Json,
    /// The priority of every run.
    priority: i16,
    /// When it fires.
    cadence: CadenceBody,
    /// None before this counts.
    starts_at: Option<Time>,
    /// None behind this counts.
    ends_at: Option<Time>,
    /// Up to how much later than its time each is served.
    jitter_ms: u64,
    /// How late a time may be served and is not missed.
    grace_ms: u64,
    /// What is done with those that are missed.
    missed: MissedWord,
    /// What is done while a run is not over.
    overlap: OverlapWord,
    /// The program that declares it, if one does.
    owner: Option<String>,
    /// The next time; none if it is over.
    next_at: Option<Time>,
    /// The last time that was decided.
    last_at: Option<Time>,
    /// The time that waits for a run to end.
    queued_at: Option<Time>,
    /// When it was made.
    created_at: Time,
}

impl From<ScheduleRecord> for ScheduleBody {
    fn from(record: ScheduleRecord) -> Self {
        let NewSchedule { key, workflow, version, input, priority, timing, owner } =
            record.schedule;
        ScheduleBody {
            tenant: key.tenant.to_string(),
            name: key.name.to_string(),
            state: record.state.word(),
            workflow: workflow.to_string(),
            version: version.get(),
            input: Json::of(&input),
            priority: priority.get(),
            cadence: CadenceBody::from(&timing.cadence),
            starts_at: timing.starts_at.map(Time),
            ends_at: timing.ends_at.map(Time),
            jitter_ms: millis(timing.jitter),
            grace_ms: millis(timing.grace),
            missed: match timing.missed {
                Missed::Skip => MissedWord::Skip,
                Missed::Once => MissedWord::Once,
                Missed::All(count) => MissedWord::Last(MissedCount(count)),
            },
            overlap: match timing.overlap {
                Overlap::Allow => OverlapWord::Allow,
                Overlap::Skip => OverlapWord::Skip,
                Overlap::Queue => OverlapWord::Queue,
                Overlap::CancelRunning => OverlapWord::CancelRunning,
            },
            owner: owner.as_ref().map(ToString::to_string),
            next_at: record.next_at.map(Time),
            last_at: record.last_at.map(Time),
            queued_at: record.queued_at.map(Time),
            created_at: record.created_at.into(),
        }
    }
}

/// A page of schedules, by tenant and name.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SchedulePage)]
pub(crate) struct SchedulePageBody {
    /// Those that can be read.
    pub(crate) schedules: Vec<ScheduleBody>,
    /// Those that cannot, as a newer version may have written them.
    pub(crate) unreadable: Vec<UnreadableBody>,
    /// The cursor of the next page; none if this is the last.
    pub(crate) next: Option<String>,
}

/// A schedule that is there and cannot be read.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UnreadableSchedule)]
pub(crate) struct UnreadableBody {
    /// Whose it is.
    tenant: String,
    /// Its name.
    name: String,
    /// Why it cannot be read.
    problem: String,
}

impl From<UnreadableSchedule> for UnreadableBody {
    fn from(schedule: UnreadableSchedule) -> Self {
        let UnreadableSchedule { tenant, name, problem } = schedule;
        UnreadableBody { tenant, name, problem }
    }
}

/// From when to when runs are started for times that are past.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackfillSchedule {
    /// The first time, within.
    pub(crate) from: Time,
    /// The last time, within.
    pub(crate) until: Time,
}

/// What a backfill did.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Backfilled)]
pub(crate) struct BackfilledBody {
    /// How many runs it started.
    pub(crate) started: usize,
    /// For how many times there was a run already.
    pub(crate) existing: usize,
}

/// What became of the times of a schedule.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FireList {
    /// The newest first.
    pub(crate) fires: Vec<FireBody>,
}

/// What became of a time of a schedule.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Fire)]
pub(crate) struct FireBody {
    /// The nominal time; of several that were missed, the last.
    nominal: Time,
    /// What let it come: time, backfill or trigger.
    #[schema(value_type = String)]
    by: &'static str,
    /// What became of it: started, missed, overlapped, queued or refused.
    #[schema(value_type = String)]
    result: &'static str,
    /// The run that was started.
    #[schema(value_type = Option<IdText>)]
    run: Option<RunId>,
    /// The first of those that were missed.
    first_missed: Option<Time>,
    /// How many were missed.
    missed: Option<usize>,
    /// Why its run could not be started.
    why: Option<String>,
    /// When that was decided.
    at: Time,
}

impl From<Fire> for FireBody {
    fn from(fire: Fire) -> Self {
        let (first_missed, missed) = match &fire.result {
            FireResult::Missed { first, count } => (Some(Time(*first)), Some(*count)),
            FireResult::Started(_)
            | FireResult::Overlapped
            | FireResult::Queued
            | FireResult::Refused(_) => (None, None),
        };
        FireBody {
            nominal: fire.nominal.into(),
            by: fire.by.word(),
            result: fire.result.word(),
            run: fire.result.run(),
            first_missed,
            missed,
            at: fire.at.into(),
            why: match fire.result {
                FireResult::Refused(why) => Some(why),
                FireResult::Started(_)
                | FireResult::Missed { .. }
                | FireResult::Overlapped
                | FireResult::Queued => None,
            },
        }
    }
}
