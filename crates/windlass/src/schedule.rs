//! Schedules, for programs: what starts runs by itself, and what is done to it by hand.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
pub use windlass_core::schedule::{
    Cadence, CadenceError, Cron, CronError, Missed, Overlap, Shift, Timing, Zone, ZoneError,
};
use windlass_core::{
    Definition, Payload, Priority, ScheduleName, ScheduleOwner, Tenant, Timestamp,
};

use crate::engine::Windlass;
use crate::error::{Error, ErrorKind};
use crate::run::RunHandle;
use crate::store::{
    Backfilled, Fire, NewSchedule, ScheduleFilter, ScheduleKey, SchedulePage, ScheduleRecord, Store,
};
use crate::workflow::Workflow;

/// A schedule as it is to be: when which workflow is started, with which input.
///
/// It is given to [`Windlass::schedule`], or declared by workers
/// ([`WorkerBuilder::schedules`](crate::WorkerBuilder::schedules)). Each nominal time starts one
/// run, whose metadata say which schedule and which nominal time it is of
/// ([`SCHEDULE_METADATA`](crate::store::SCHEDULE_METADATA),
/// [`NOMINAL_METADATA`](crate::store::NOMINAL_METADATA)).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use windlass::schedule::{Cadence, Missed, Overlap, Schedule};
/// use windlass::{Ctx, TaskError, Windlass, Workflow};
///
/// let mut report = Workflow::<String>::builder("report");
/// report.task("write").run(async |_: Ctx<String>| Ok::<_, TaskError>(()));
/// let report = report.build()?;
///
/// let windlass = Windlass::memory();
/// let nightly = Cadence::cron("0 2 * * MON-FRI", "Europe/Berlin")?;
/// let schedule = Schedule::new("nightly", &report, "sales".to_owned(), nightly)
///     .tenant("acme")
///     .jitter(Duration::from_secs(300))
///     .missed(Missed::Once)
///     .overlap(Overlap::Skip);
/// let record = windlass.schedule(schedule).await?;
/// assert!(record.next_at.is_some());
/// let run = windlass.scheduled("acme", "nightly")?.trigger().await?;
/// assert_eq!(run.get().await?.metadata["windlass.schedule"], "nightly");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a schedule does nothing until it is given to an engine or a worker"]
pub struct Schedule {
    name: String,
    tenant: String,
    definition: Arc<Definition>,
    input: Result<Payload, windlass_core::PayloadError>,
    priority: i16,
    timing: Timing,
}

impl Schedule {
    /// Starts a workflow with an input at the times of a cadence, for the default tenant.
    pub fn new<I: Serialize>(
        name: impl Into<String>,
        workflow: &Workflow<I>,
        input: I,
        cadence: Cadence,
    ) -> Self {
        Schedule {
            name: name.into(),
            tenant: windlass_core::name::DEFAULT.to_owned(),
            definition: Arc::clone(workflow.definition()),
            input: Payload::encode(&input),
            priority: 0,
            timing: Timing::new(cadence),
        }
    }

    /// Whose it is, and whose its runs are.
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// The priority of its runs, from -100 to 100; 0 if not said.
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// No nominal time before this one counts.
    pub fn starts_at(mut self, at: impl Into<Timestamp>) -> Self {
        self.timing.starts_at = Some(at.into());
        self
    }

    /// No nominal time behind this one counts.
    pub fn ends_at(mut self, at: impl Into<Timestamp>) -> Self {
        self.timing.ends_at = Some(at.into());
        self
    }

    /// Up to how much later than its nominal time each is served, up to a day; not at all if not
    /// said. How much is the same whoever computes it.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.timing.jitter = jitter;
        self
    }

    /// How late a nominal time may be served and is not missed, at least a second; a minute if not
    /// said.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.timing.grace = grace;
        self
    }

    /// What is done with nominal times that were missed; they are skipped if not said.
    pub fn missed(mut self, missed: Missed) -> Self {
        self.timing.missed = missed;
        self
    }

    /// What is done while a run is not over; the next one starts beside it if not said.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.timing.overlap = overlap;
        self
    }

    /// What a store is told of it.
    pub(crate) fn build(self, owner: Option<ScheduleOwner>) -> Result<NewSchedule, Error> {
        let what = || format!("input of schedule {:?}", self.name);
        let priority = Priority::new(self.priority).ok_or_else(|| {
            let text = format!("priority {} is not within -100 to 100", self.priority);
            Error::new(ErrorKind::Argument, text)
        })?;
        Ok(NewSchedule {
            key: ScheduleKey {
                tenant: Tenant::new(&self.tenant)?,
                name: ScheduleName::new(&self.name)?,
            },
            workflow: self.definition.name().clone(),
            version: self.definition.version(),
            input: self.input.clone().map_err(|error| Error::payload(what(), error))?,
            priority,
            timing: self.timing,
            owner,
        })
    }
}

impl From<CadenceError> for Error {
    fn from(error: CadenceError) -> Self {
        Error::new(ErrorKind::Argument, error.to_string())
    }
}

/// What a program declares: all its schedules, under its name.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    schedules: Vec<(Arc<Definition>, NewSchedule)>,
    owner: ScheduleOwner,
}

impl Declared {
    pub(crate) fn new(owner: &str, schedules: Vec<Schedule>) -> Result<Self, Error> {
        let owner = ScheduleOwner::new(owner)?;
        let mut names = BTreeSet::new();
        let mut all = Vec::new();
        for schedule in schedules {
            let definition = Arc::clone(&schedule.definition);
            let schedule = schedule.build(Some(owner.clone()))?;
            let ScheduleKey { tenant, name } = &schedule.key;
            if !names.insert(schedule.key.clone()) {
                let text =
                    format!("{owner:?} declares schedule {name:?} of tenant {tenant:?} twice");
                return Err(Error::new(ErrorKind::Argument, text));
            }
            all.push((definition, schedule));
        }
        Ok(Declared { schedules: all, owner })
    }

    /// Makes the schedules, and disables those that are declared no more. One that cannot be made
    /// stays what it was and stops no other.
    pub(crate) async fn declare(&self, store: &dyn Store) -> Result<(), Error> {
        for (definition, schedule) in &self.schedules {
            match declare_one(store, definition, schedule).await {
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => {
                    let (ScheduleKey { tenant, name }, owner) = (&schedule.key, &self.owner);
                    tracing::error!(%tenant, %name, %owner, %error, "a schedule is not declared");
                }
                Ok(()) => {}
            }
        }
        let keys = self.schedules.iter().map(|(_, schedule)| schedule.key.clone()).collect();
        for key in store.disable_schedules(self.owner.clone(), None, keys).await? {
            let (tenant, name, owner) = (&key.tenant, &key.name, &self.owner);
            tracing::info!(%tenant, %name, %owner, "a schedule is declared no more and disabled");
        }
        Ok(())
    }
}

async fn declare_one(
    store: &dyn Store,
    definition: &Arc<Definition>,
    schedule: &NewSchedule,
) -> Result<(), Error> {
    store.register(Arc::clone(definition)).await?;
    store.put_schedule(schedule.clone()).await?;
    Ok(())
}

impl Windlass {
    /// Makes a schedule, or makes the one of its tenant and name another. Nominal times that stay
    /// the same keep their place.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for a name or a priority outside its limits, [`ErrorKind::Conflict`]
    /// for a schedule that makes no sense.
    pub async fn schedule(&self, schedule: Schedule) -> Result<ScheduleRecord, Error> {
        let definition = Arc::clone(&schedule.definition);
        let schedule = schedule.build(None)?;
        self.store().register(definition).await?;
        Ok(self.store().put_schedule(schedule).await?)
    }

    /// A page of schedules, by tenant and name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the store does not answer.
    pub async fn schedules(&self, filter: ScheduleFilter) -> Result<SchedulePage, Error> {
        Ok(self.store().list_schedules(filter).await?)
    }

    /// A schedule of a tenant, whether it is there or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for a name that cannot be one.
    pub fn scheduled(&self, tenant: &str, name: &str) -> Result<ScheduleHandle, Error> {
        let key = ScheduleKey { tenant: Tenant::new(tenant)?, name: ScheduleName::new(name)? };
        Ok(ScheduleHandle { windlass: self.clone(), key })
    }
}

/// A schedule that may be there, to be looked at and steered.
///
/// Each of its verbs but [`get`](ScheduleHandle::get) and [`delete`](ScheduleHandle::delete) is an
/// error of the kind [`ErrorKind::NotFound`] where there is none.
#[derive(Clone, Debug)]
pub struct ScheduleHandle {
    windlass: Windlass,
    key: ScheduleKey,
}

impl ScheduleHandle {
    /// How it is, with its last and its next time; none if it is not there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the store does not answer.
    pub async fn get(&self) -> Result<Option<ScheduleRecord>, Error> {
        Ok(self.windlass.store().get_schedule(self.key.clone()).await?)
    }

    /// What became of its nominal times, the newest first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if it is not there.
    pub async fn fires(&self, limit: usize) -> Result<Vec<Fire>, Error> {
        Ok(self.windlass.store().list_fires(self.key.clone(), limit).await?)
    }

    /// Lets it rest until it is resumed. Times that had come and were not served yet are missed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if it is not there.
    pub async fn pause(&self) -> Result<(), Error> {
        Ok(self.windlass.store().pause_schedule(self.key.clone()).await?)
    }

    /// Lets it fire from now on; what came meanwhile is neither missed nor run.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if it is not there.
    pub async fn resume(&self) -> Result<(), Error> {
        Ok(self.windlass.store().resume_schedule(self.key.clone()).await?)
    }

    /// Starts a run of it now, whatever is under way.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if it is not there.
    pub async fn trigger(&self) -> Result<RunHandle, Error> {
        let run = self.windlass.new_run_id();
        let started = self.windlass.store().trigger_schedule(self.key.clone(), run).await?;
        Ok(self.windlass.run(started.run))
    }

    /// Starts runs for the nominal times from one time to another that are past and have none, at
    /// most [`BACKFILL_MAX`](crate::store::BACKFILL_MAX).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if there are more, [`ErrorKind::NotFound`] if it is not there.
    pub async fn backfill(
        &self,
        from: impl Into<Timestamp>,
        until: impl Into<Timestamp>,
    ) -> Result<Backfilled, Error> {
        let (from, until) = (from.into(), until.into());
        Ok(self.windlass.store().backfill_schedule(self.key.clone(), from, until).await?)
    }

    /// Deletes it with its history; its runs stay. One that is not there stays so.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the store does not answer.
    pub async fn delete(&self) -> Result<(), Error> {
        Ok(self.windlass.store().delete_schedule(self.key.clone()).await?)
    }
}
