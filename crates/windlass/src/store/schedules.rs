//! Schedules: what starts runs by itself, as stores keep it.
//!
//! What fires is decided by [`windlass_core::schedule`]; here is what a store is told of schedules,
//! what it answers, and what both stores make of a decision. The duty
//! [`Duty::Schedules`](super::Duty) applies it: the runs, the lines of the history and the next
//! nominal time in one transaction.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::schedule::{Due, JitterSeed, Skipped, Timing, Verdict};
use windlass_core::{
    Overlap, Payload, PayloadLimit, Priority, RunId, ScheduleId, ScheduleName, ScheduleOwner,
    Tenant, Timestamp, Version, WorkflowName,
};

use super::{NewRun, Started, StoreError, Sweep};

/// The most schedules of a store.
pub const SCHEDULES_MAX: usize = 10_000;

/// How many lines of the history of a schedule are kept.
pub const FIRES_KEPT: usize = 100;

/// The most nominal times of one backfill.
pub const BACKFILL_MAX: usize = 1_000;

/// The most nominal times that one sweep starts runs for, of one schedule.
pub(crate) const FIRES_MAX: usize = 100;

/// How often it is looked whether a run is over that another one waits for.
pub(crate) const QUEUE_PAUSE: Duration = Duration::from_secs(1);

/// The metadata of a run that says which schedule started it.
pub const SCHEDULE_METADATA: &str = "windlass.schedule";

/// The metadata of a run that says for which nominal time it was started.
pub const NOMINAL_METADATA: &str = "windlass.nominal";

/// What names a schedule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleKey {
    /// Whose it is.
    pub tenant: Tenant,
    /// Its name among those of the tenant.
    pub name: ScheduleName,
}

/// A schedule as it is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSchedule {
    /// Whose it is, and its name. Its runs are that tenant's.
    pub key: ScheduleKey,
    /// The workflow that it starts.
    pub workflow: WorkflowName,
    /// The version of the workflow.
    pub version: Version,
    /// The input of every run.
    pub input: Payload,
    /// The priority of every run.
    pub priority: Priority,
    /// When it fires.
    pub timing: Timing,
    /// The program that declares it, if one does.
    pub owner: Option<ScheduleOwner>,
}

/// Whether a schedule fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleState {
    /// It does.
    Active,
    /// An operator paused it.
    Paused,
    /// Its owner does not declare it any more.
    Disabled,
}

impl ScheduleState {
    /// Every state.
    pub const ALL: [ScheduleState; 3] =
        [ScheduleState::Active, ScheduleState::Paused, ScheduleState::Disabled];

    /// Its name in stored data and in what people see.
    pub const fn word(self) -> &'static str {
        match self {
            ScheduleState::Active => "active",
            ScheduleState::Paused => "paused",
            ScheduleState::Disabled => "disabled",
        }
    }
}

impl std::fmt::Display for ScheduleState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.word())
    }
}

/// A schedule as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleRecord {
    /// Its number, from which the ids of its runs follow.
    pub id: ScheduleId,
    /// What it is to do.
    pub schedule: NewSchedule,
    /// Whether it fires.
    pub state: ScheduleState,
    /// The next nominal time; none if it is over.
    pub next_at: Option<Timestamp>,
    /// The last nominal time that was decided.
    pub last_at: Option<Timestamp>,
    /// The nominal time that waits for a run to end.
    pub queued_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// What let a nominal time come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FireBy {
    /// The time.
    Time,
    /// Someone who asked for times that are past.
    Backfill,
    /// Someone who asked for a run now.
    Trigger,
}

impl FireBy {
    /// Every one.
    pub const ALL: [FireBy; 3] = [FireBy::Time, FireBy::Backfill, FireBy::Trigger];

    /// Its name in stored data and in what people see.
    pub const fn word(self) -> &'static str {
        match self {
            FireBy::Time => "time",
            FireBy::Backfill => "backfill",
            FireBy::Trigger => "trigger",
        }
    }
}

/// What became of a nominal time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FireResult {
    /// Its run was started.
    Started(RunId),
    /// It was missed, with all since the first, so many.
    Missed {
        /// The first of them.
        first: Timestamp,
        /// How many they are.
        count: usize,
    },
    /// It was skipped because a run was not over.
    Overlapped,
    /// It waits for a run to end.
    Queued,
    /// Its run could not be started, for this reason.
    Refused(String),
}

impl FireResult {
    /// Its name in stored data and in what people see.
    pub const fn word(&self) -> &'static str {
        match self {
            FireResult::Started(_) => "started",
            FireResult::Missed { .. } => "missed",
            FireResult::Overlapped => "overlapped",
            FireResult::Queued => "queued",
            FireResult::Refused(_) => "refused",
        }
    }

    /// The run that was started.
    pub fn run(&self) -> Option<RunId> {
        match self {
            FireResult::Started(run) => Some(*run),
            FireResult::Missed { .. }
            | FireResult::Overlapped
            | FireResult::Queued
            | FireResult::Refused(_) => None,
        }
    }
}

/// One line of the history of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fire {
    /// The nominal time; of several that were missed, the last.
    pub nominal: Timestamp,
    /// What let it come.
    pub by: FireBy,
    /// What became of it.
    pub result: FireResult,
    /// When that was decided.
    pub at: Timestamp,
}

/// Which schedules to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleFilter {
    /// Only those of this tenant.
    pub tenant: Option<Tenant>,
    /// Only those behind this one.
    pub after: Option<ScheduleKey>,
    /// The most of the page, up to [`PAGE_MAX`](super::PAGE_MAX); 0 is that limit.
    pub limit: usize,
}

/// A page of schedules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulePage {
    /// Those that can be read, by tenant and name.
    pub schedules: Vec<ScheduleRecord>,
    /// Those that cannot, as a newer version may have written them. They do not fire here.
    pub unreadable: Vec<UnreadableSchedule>,
    /// Behind which one the next page begins, if there may be one.
    pub next: Option<ScheduleKey>,
}

/// A schedule that is there and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableSchedule {
    /// Whose it is, as it is stored.
    pub tenant: String,
    /// Its name, as it is stored.
    pub name: String,
    /// Why it cannot be read.
    pub problem: String,
}

/// What a backfill did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backfilled {
    /// How many runs it started.
    pub started: usize,
    /// For how many nominal times there was a run already.
    pub existing: usize,
}

/// The verbs of schedules.
///
/// Every verb is atomic, and safe to repeat when its answer was lost.
#[async_trait]
pub trait ScheduleStore {
    /// Makes a schedule, or makes one of this name another. Nominal times that stay the same keep
    /// their place; others begin now. One that makes no sense, or that is new, has no owner and
    /// never fires again, is a [`StoreError::Conflict`], as is more than [`SCHEDULES_MAX`]; a
    /// workflow that nobody registered is [`StoreError::NotFound`].
    async fn put_schedule(&self, schedule: NewSchedule) -> Result<ScheduleRecord, StoreError>;

    /// One schedule.
    async fn get_schedule(&self, key: ScheduleKey) -> Result<Option<ScheduleRecord>, StoreError>;

    /// A page of schedules, by tenant and name.
    async fn list_schedules(&self, filter: ScheduleFilter) -> Result<SchedulePage, StoreError>;

    /// Lets a schedule not fire until it is resumed. One that is paused stays so. Times that had
    /// come and were not served yet are missed.
    async fn pause_schedule(&self, key: ScheduleKey) -> Result<(), StoreError>;

    /// Lets a schedule fire again, from now on: what came meanwhile is neither missed nor run.
    /// One that is active stays so.
    async fn resume_schedule(&self, key: ScheduleKey) -> Result<(), StoreError>;

    /// Deletes a schedule with its history; its runs stay. One that is not there stays so.
    async fn delete_schedule(&self, key: ScheduleKey) -> Result<(), StoreError>;

    /// Disables those active schedules of an owner that are not among these, of one tenant or of
    /// all, and answers which. One that is paused stays so, and is paused still when it is declared again. Times that had come
    /// and were not served yet are missed, and one that waited is skipped.
    async fn disable_schedules(
        &self,
        owner: ScheduleOwner,
        tenant: Option<Tenant>,
        declared: Vec<ScheduleKey>,
    ) -> Result<Vec<ScheduleKey>, StoreError>;

    /// Starts a run of a schedule now, with this id, whatever is under way.
    async fn trigger_schedule(&self, key: ScheduleKey, run: RunId) -> Result<Started, StoreError>;

    /// Starts runs for the nominal times from one time to another, both within, that have none,
    /// whatever is under way. Times that are not past are left to the schedule; more than
    /// [`BACKFILL_MAX`] are a [`StoreError::Conflict`].
    async fn backfill_schedule(
        &self,
        key: ScheduleKey,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Backfilled, StoreError>;

    /// What became of the nominal times of a schedule, the newest first, at most `limit` of the
    /// [`FIRES_KEPT`] that are kept.
    async fn list_fires(&self, key: ScheduleKey, limit: usize) -> Result<Vec<Fire>, StoreError>;

    /// Starts the runs of schedules whose time has come, at most for `limit` nominal times, in the
    /// order of those: the duty [`Duty::Schedules`](super::Duty::Schedules) by hand, whoever leads
    /// it.
    async fn fire_schedules(&self, limit: usize) -> Result<Sweep, StoreError>;
}

impl ScheduleKey {
    /// There is no such schedule.
    pub(crate) fn not_found(&self) -> StoreError {
        StoreError::NotFound(format!("schedule {:?} of tenant {:?}", self.name, self.tenant))
    }

    /// By what its times are served later.
    pub(crate) fn jitter_seed(&self) -> JitterSeed {
        JitterSeed::of(&self.tenant, &self.name)
    }
}

impl NewSchedule {
    /// Checks what the types do not. The error is a sentence.
    pub fn check(&self, limit: PayloadLimit) -> Result<(), String> {
        let name = &self.key.name;
        self.timing.check().map_err(|error| format!("schedule {name:?}: {error}"))?;
        limit.check(&self.input).map_err(|error| format!("input of schedule {name:?} {error}"))
    }

    /// The start of its run for a nominal time.
    pub(crate) fn start(&self, id: RunId, nominal: Timestamp) -> NewRun {
        let metadata = BTreeMap::from([
            (SCHEDULE_METADATA.to_owned(), self.key.name.to_string()),
            (NOMINAL_METADATA.to_owned(), nominal.to_string()),
        ]);
        NewRun {
            id,
            workflow: self.workflow.clone(),
            version: self.version,
            tenant: self.key.tenant.clone(),
            input: self.input.clone(),
            key: None,
            delay: Duration::ZERO,
            priority: self.priority,
            metadata,
        }
    }

    /// Never again.
    pub(crate) fn is_over(&self) -> StoreError {
        let (name, cadence) = (&self.key.name, &self.timing.cadence);
        StoreError::Conflict(format!("schedule {name:?} never fires: {cadence} is past"))
    }
}

/// A tenant has as many schedules as it may have.
pub(crate) fn too_many(tenant: &Tenant) -> StoreError {
    let text = format!("tenant {tenant:?} has {SCHEDULES_MAX} schedules, which is the limit");
    StoreError::Conflict(text)
}

/// Why a run is not started whose id another one took that is not of the schedule.
pub(crate) fn taken(run: RunId) -> String {
    format!("run {run} is there already, and is another's")
}

/// What is to be done for a schedule at one time.
pub(crate) struct Firing {
    /// The runs that start with their nominal times, in order.
    pub(crate) starts: Vec<(Timestamp, NewRun)>,
    /// Whether what is under way is cancelled first.
    pub(crate) cancels: bool,
    /// What became of the nominal time that waited.
    pub(crate) dequeued: Option<Fire>,
    /// The new lines of the history.
    pub(crate) fires: Vec<Fire>,
}

/// What is left of times that a schedule does not serve any more when it is changed.
#[derive(Default)]
pub(crate) struct Left {
    /// The line of those that had come.
    pub(crate) missed: Option<Fire>,
    /// Whether the one that waited is skipped.
    pub(crate) is_dequeued: bool,
}

impl ScheduleRecord {
    /// A new schedule.
    pub(crate) fn new(
        id: ScheduleId,
        schedule: NewSchedule,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let next_at = schedule.timing.next_after(now);
        if next_at.is_none() && schedule.owner.is_none() {
            return Err(schedule.is_over());
        }
        let state = ScheduleState::Active;
        let (last_at, queued_at) = (None, None);
        Ok(ScheduleRecord { id, schedule, state, next_at, last_at, queued_at, created_at: now })
    }

    /// Makes it another, at a time.
    pub(crate) fn replace(&mut self, schedule: NewSchedule, now: Timestamp) -> Left {
        let has_place = schedule.timing.has_times_of(&self.schedule.timing);
        let mut left = Left::default();
        match self.state {
            ScheduleState::Active if !has_place => left.missed = self.pass_over(now),
            ScheduleState::Active | ScheduleState::Paused | ScheduleState::Disabled => {}
        }
        if schedule.timing.overlap != Overlap::Queue {
            left.is_dequeued = self.queued_at.take().is_some();
        }
        self.schedule = schedule;
        match self.state {
            ScheduleState::Disabled => self.resume(now),
            ScheduleState::Active | ScheduleState::Paused if has_place => {}
            ScheduleState::Active | ScheduleState::Paused => self.begin(now),
        }
        left
    }

    /// Lets it rest until it is resumed.
    pub(crate) fn pause(&mut self, now: Timestamp) -> Left {
        let missed = match self.state {
            ScheduleState::Active => self.pass_over(now),
            ScheduleState::Paused | ScheduleState::Disabled => None,
        };
        self.state = ScheduleState::Paused;
        Left { missed, is_dequeued: false }
    }

    /// Lets it rest until it is declared again. One that is paused rests already, and stays so.
    pub(crate) fn disable(&mut self, now: Timestamp) -> Left {
        match self.state {
            ScheduleState::Paused | ScheduleState::Disabled => Left::default(),
            ScheduleState::Active => {
                self.state = ScheduleState::Disabled;
                let missed = self.pass_over(now);
                Left { missed, is_dequeued: self.queued_at.take().is_some() }
            }
        }
    }

    /// Lets it fire again.
    pub(crate) fn resume(&mut self, now: Timestamp) {
        match self.state {
            ScheduleState::Active => {}
            ScheduleState::Paused | ScheduleState::Disabled => {
                self.state = ScheduleState::Active;
                self.begin(now);
            }
        }
    }

    /// Goes on behind a time, and never back.
    fn begin(&mut self, now: Timestamp) {
        let after = self.last_at.map_or(now, |last| last.max(now));
        self.next_at = self.schedule.timing.next_after(after);
    }

    /// Passes over what has come and was not served, which the history says.
    fn pass_over(&mut self, now: Timestamp) -> Option<Fire> {
        let timing = &self.schedule.timing;
        let Skipped { first, last, count } = timing.come(self.next_at?, now)?;
        self.last_at = Some(last);
        self.next_at = timing.next_after(last);
        let result = FireResult::Missed { first, count };
        Some(Fire { nominal: last, by: FireBy::Time, result, at: now })
    }

    /// When its next nominal time is served.
    pub(crate) fn due_at(&self) -> Option<Timestamp> {
        let NewSchedule { key, timing, .. } = &self.schedule;
        self.next_at.map(|next| timing.due_at(key.jitter_seed(), next))
    }

    /// What is to be done for it at a time, of which no more than `limit` nominal times start runs,
    /// and what it is then. `refusal` says why no run of it can be started.
    pub(crate) fn fire(
        &mut self,
        now: Timestamp,
        limit: usize,
        mut is_under_way: bool,
        refusal: Option<&str>,
    ) -> Firing {
        let mut firing =
            Firing { starts: Vec::new(), cancels: false, dequeued: None, fires: Vec::new() };
        let (schedule, id) = (&self.schedule, self.id);
        let mut start = |nominal| match refusal {
            Some(reason) => FireResult::Refused(reason.to_owned()),
            None => {
                let run = RunId::of_fire(id, nominal);
                firing.starts.push((nominal, schedule.start(run, nominal)));
                FireResult::Started(run)
            }
        };
        let line = |nominal, result| Fire { nominal, by: FireBy::Time, result, at: now };
        if let Some(nominal) = self.queued_at.filter(|_| !is_under_way) {
            self.queued_at = None;
            let result = start(nominal);
            is_under_way = result.run().is_some();
            firing.dequeued = Some(line(nominal, result));
        }
        let Some(next) = self.next_at else { return firing };
        let timing = &schedule.timing;
        let Due { skipped, fires, next } = timing.due(schedule.key.jitter_seed(), next, now, limit);
        if let Some(skipped) = skipped {
            let result = FireResult::Missed { first: skipped.first, count: skipped.count };
            firing.fires.push(line(skipped.last, result));
        }
        let last = fires.last().copied();
        for nominal in fires {
            // Of several that are due at once the last would cancel the others.
            let is_replaced = timing.overlap == Overlap::CancelRunning && Some(nominal) != last;
            let result = match timing.overlap.verdict(is_under_way, self.queued_at.is_some()) {
                _ if is_replaced => FireResult::Overlapped,
                Verdict::Start => start(nominal),
                Verdict::Skip => FireResult::Overlapped,
                Verdict::Queue => {
                    self.queued_at = Some(nominal);
                    FireResult::Queued
                }
                Verdict::CancelAndStart => {
                    let result = start(nominal);
                    // What runs is worth more than a run that cannot be started.
                    firing.cancels |= result.run().is_some();
                    result
                }
            };
            is_under_way |= result.run().is_some();
            firing.fires.push(line(nominal, result));
        }
        self.last_at = firing.fires.last().map(|fire| fire.nominal).or(self.last_at);
        self.next_at = next;
        firing
    }

    /// The nominal times of a range that are past and that it does not serve itself: those that a
    /// backfill serves, if it did not before.
    ///
    /// # Errors
    ///
    /// A conflict if the range ends before it begins, or has more than [`BACKFILL_MAX`] of them.
    pub fn past(
        &self,
        from: Timestamp,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Vec<Timestamp>, StoreError> {
        let name = &self.schedule.key.name;
        if until < from {
            let text = format!("backfill of schedule {name:?}: {until} is before {from}");
            return Err(StoreError::Conflict(text));
        }
        let is_past = |at: &Timestamp| match self.state {
            ScheduleState::Active => *at <= now && self.next_at.is_none_or(|next| *at < next),
            ScheduleState::Paused | ScheduleState::Disabled => *at <= now,
        };
        let timing = &self.schedule.timing;
        let just_before = Timestamp::from_micros(from.as_micros().saturating_sub(1));
        let first = timing.next_after(just_before);
        let all = std::iter::successors(first, |at| timing.next_after(*at));
        let all = all.take_while(|at| *at <= until && is_past(at));
        // One that waits for its turn is the schedule's own still.
        let all = all.filter(|at| Some(*at) != self.queued_at);
        let times: Vec<Timestamp> = all.take(BACKFILL_MAX + 1).collect();
        if times.len() > BACKFILL_MAX {
            return Err(StoreError::Conflict(format!(
                "backfill of schedule {name:?} from {from} to {until} has more than \
                 {BACKFILL_MAX} nominal times, which is the limit"
            )));
        }
        Ok(times)
    }
}
