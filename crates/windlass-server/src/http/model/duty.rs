//! Who does what by itself.

use serde::Serialize;
use utoipa::ToSchema;
use windlass::store::{DutyRecord, LeaderRecord};

use super::{IdText, Time, millis};

/// Who leads the background duties.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeaderList {
    /// Each duty, with its leader.
    pub(crate) leaders: Vec<LeaderBody>,
}

/// A background duty of the engine.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Leader)]
pub(crate) struct LeaderBody {
    /// The duty, such as `promote_due` or `reap`.
    #[schema(value_type = String)]
    duty: &'static str,
    /// The number of the present term; 0 if nobody ever led.
    term: u64,
    /// Who leads, or led last.
    holder: Option<HolderBody>,
    /// How many sweeps there were.
    runs: u64,
    /// How many items they moved.
    items: u64,
    /// How many sweeps failed.
    errors: u64,
    /// When the last sweep was.
    last_run_at: Option<Time>,
    /// How long all sweeps took, together.
    busy_ms: u64,
    /// How long the last sweep took.
    last_took_ms: Option<u64>,
    /// Why the last sweep that failed did.
    last_error: Option<String>,
}

/// The process that has a duty.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DutyHolder)]
pub(crate) struct HolderBody {
    /// Who it is.
    #[schema(value_type = IdText)]
    candidate: windlass::CandidateId,
    /// What people call it.
    name: String,
    /// Since when.
    since: Time,
    /// From when on it may be replaced; none if it has ended.
    until: Option<Time>,
    /// Whether it gave the duty up.
    is_given_up: bool,
}

impl From<LeaderRecord> for LeaderBody {
    fn from(leader: LeaderRecord) -> Self {
        let holder = |holder: windlass::store::Holder| HolderBody {
            candidate: holder.candidate,
            name: holder.name,
            since: holder.since.into(),
            until: Some(holder.until.into()),
            is_given_up: holder.is_given_up,
        };
        LeaderBody {
            duty: leader.duty.word(),
            term: leader.term.0,
            holder: leader.holder.map(holder),
            runs: leader.runs,
            items: leader.items,
            errors: leader.errors,
            last_run_at: leader.last_run_at.map(Time),
            busy_ms: millis(leader.busy),
            last_took_ms: leader.last_took.map(millis),
            last_error: leader.last_error,
        }
    }
}

/// The duties of programs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DutyList {
    /// By name.
    pub(crate) duties: Vec<DutyBody>,
}

/// A duty of a program.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Duty)]
pub(crate) struct DutyBody {
    /// Its name.
    name: String,
    /// How often it is done.
    every_ms: u64,
    /// The nominal time that is served next.
    next_at: Time,
    /// The number of the present term, or of the last.
    term: u64,
    /// Who is at it, or was last.
    holder: Option<HolderBody>,
    /// How many times a handler ended.
    runs: u64,
    /// How many of them failed.
    errors: u64,
    /// When the handler that ended last had begun.
    last_run_at: Option<Time>,
    /// How long it took.
    last_took_ms: Option<u64>,
    /// What the last error was.
    last_error: Option<String>,
}

impl From<DutyRecord> for DutyBody {
    fn from(duty: DutyRecord) -> Self {
        let holder = |holder: windlass::store::DutyHolder| HolderBody {
            candidate: holder.candidate,
            name: holder.process,
            since: holder.since.into(),
            is_given_up: holder.until.is_none(),
            until: holder.until.map(Time),
        };
        DutyBody {
            name: duty.name.to_string(),
            every_ms: millis(duty.every),
            next_at: duty.next_at.into(),
            term: duty.term.0,
            holder: duty.holder.map(holder),
            runs: duty.runs,
            errors: duty.errors,
            last_run_at: duty.last_run.map(|(at, _)| Time(at)),
            last_took_ms: duty.last_run.map(|(_, took)| millis(took)),
            last_error: duty.last_error,
        }
    }
}
