//! What tenants may ask for, held against what they ask.
//!
//! Everyone who lets a request in that makes work asks here first: HTTP and gRPC alike. Quotas are
//! rows of the store and are read again every few seconds. Rates are counted in this process: with
//! several servers, a tenant has its rate at each of them. Whoever is over its rate costs no query.
//!
//! Who asks for whom is looked at before anything is counted: nobody pays for what another asks.
//!
//! What workers do is not held back: children, outputs and steps of runs that have begun, and runs
//! of schedules.

mod bucket;
mod meter;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use windlass::ErrorKind;
use windlass::store::{NewRun, NewSchedule, Quota, Started, Store, StoreError, find_workflow};
use windlass::{Payload, Tenant, Version, WorkflowName};
use windlass_core::Definition;

use crate::identity::Identity;
use crate::problem::Problem;
pub(crate) use meter::Admitted;
use meter::Meter;

/// How old the quotas may be that are held against requests.
const QUOTAS_AGE_MAX: Duration = Duration::from_secs(5);

/// The most tenants of which a server remembers what they asked for.
const METERS_MAX: usize = 10_000;

/// The most workflows of which a server remembers how many tasks they have.
const WORKFLOWS_MAX: usize = 10_000;

/// When to come again if only a person can make room.
const PERSON_PAUSE: Duration = Duration::from_secs(60);

/// Why a request is beyond a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// For now.
    Limited {
        /// Which quota, and how it stands.
        why: String,
        /// When there may be room.
        retry_after: Duration,
    },
    /// For good: a value is too large.
    Value(String),
    /// For good: a workflow has too many tasks.
    Definition(String),
    /// It is not known.
    Store(StoreError),
}

impl From<StoreError> for Excess {
    fn from(error: StoreError) -> Self {
        Excess::Store(error)
    }
}

impl From<Excess> for StoreError {
    fn from(excess: Excess) -> Self {
        match excess {
            Excess::Limited { why, retry_after } => StoreError::Limited { why, retry_after },
            Excess::Value(why) | Excess::Definition(why) => StoreError::Conflict(why),
            Excess::Store(error) => error,
        }
    }
}

impl From<Excess> for Problem {
    fn from(excess: Excess) -> Self {
        match excess {
            Excess::Value(why) => {
                let status = axum::http::StatusCode::PAYLOAD_TOO_LARGE;
                Problem::with_status(status, ErrorKind::Payload, why)
            }
            Excess::Definition(why) => Problem::new(ErrorKind::Definition, why),
            excess @ (Excess::Limited { .. } | Excess::Store(_)) => StoreError::from(excess).into(),
        }
    }
}

/// The quotas as they were read.
#[derive(Default)]
struct Known {
    /// When, if they may be used still.
    read_at: Option<Instant>,
    quotas: HashMap<Option<Tenant>, Arc<Quota>>,
}

impl Known {
    fn is_fresh(&self) -> bool {
        self.read_at.is_some_and(|at| at.elapsed() < QUOTAS_AGE_MAX)
    }

    fn of(&self, tenant: &Tenant) -> Option<Arc<Quota>> {
        if self.quotas.is_empty() {
            return None;
        }
        let own = self.quotas.get(&Some(tenant.clone()));
        own.or_else(|| self.quotas.get(&None)).cloned()
    }
}

/// Starts that came together, each judged alone.
#[derive(Default)]
pub(crate) struct Batch {
    runs: Vec<NewRun>,
    admitted: Vec<Admitted>,
    /// One for each that came.
    refused: Vec<Option<StoreError>>,
}

impl Batch {
    /// Those that were let in.
    pub(crate) fn take_runs(&mut self) -> Vec<NewRun> {
        std::mem::take(&mut self.runs)
    }

    /// Whether some were not.
    pub(crate) fn has_refused(&self) -> bool {
        self.refused.iter().any(Option::is_some)
    }

    /// The answers to all, by those to the ones that were let in.
    pub(crate) fn answers(
        self,
        started: Vec<Result<Started, StoreError>>,
    ) -> Vec<Result<Started, StoreError>> {
        let mut started = started.into_iter();
        let answer = |refused: Option<StoreError>| match refused {
            Some(error) => Some(Err(error)),
            None => started.next(),
        };
        self.refused.into_iter().map_while(answer).collect()
    }
}

/// What tenants may ask for, and what they asked for lately.
pub(crate) struct Quotas {
    store: Arc<dyn Store>,
    known: Mutex<Known>,
    /// Held by whoever reads the quotas: once is enough.
    reading: tokio::sync::Mutex<()>,
    meters: Mutex<HashMap<Tenant, Arc<Meter>>>,
    /// How many tasks workflows have, which never changes.
    tasks: Mutex<HashMap<(WorkflowName, Version), usize>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Quotas {
    /// Those of a store.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Quotas {
            store,
            known: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            meters: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    /// A quota was changed here: it is to hold at once.
    pub(crate) fn forget(&self) {
        locked(&self.known).read_at = None;
    }

    /// The quota of a tenant, if it has one.
    async fn of(&self, tenant: &Tenant) -> Result<Option<Arc<Quota>>, StoreError> {
        let (is_fresh, was_read) = {
            let known = locked(&self.known);
            (known.is_fresh(), known.read_at.is_some())
        };
        if !is_fresh {
            // Those that are old are better than waiting for who reads them again.
            let reading = match was_read {
                true => self.reading.try_lock().ok(),
                false => Some(self.reading.lock().await),
            };
            if reading.is_some() && !locked(&self.known).is_fresh() {
                self.read(was_read).await?;
            }
        }
        Ok(locked(&self.known).of(tenant))
    }

    async fn read(&self, was_read: bool) -> Result<(), StoreError> {
        match self.store.list_quotas().await {
            Ok(quotas) => {
                let by_tenant = |quota: Quota| (quota.tenant.clone(), Arc::new(quota));
                let quotas = quotas.into_iter().map(by_tenant).collect();
                *locked(&self.known) = Known { read_at: Some(Instant::now()), quotas };
                Ok(())
            }
            // The old ones hold until it answers again.
            Err(error) if was_read => {
                tracing::warn!(%error, "quotas cannot be read again");
                locked(&self.known).read_at = Some(Instant::now());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn meter(&self, tenant: &Tenant) -> Arc<Meter> {
        let mut meters = locked(&self.meters);
        if let Some(meter) = meters.get(tenant) {
            return Arc::clone(meter);
        }
        if meters.len() >= METERS_MAX {
            meters.retain(|_, meter| !meter.is_quiet());
        }
        if meters.len() >= METERS_MAX {
            // All are busy: one that is forgotten begins with a full rate.
            let any = meters.keys().next().cloned();
            any.and_then(|any| meters.remove(&any));
        }
        Arc::clone(meters.entry(tenant.clone()).or_insert_with(|| Arc::new(Meter::new(tenant))))
    }

    /// Lets a run be started, or not. What is given back is kept until the store has answered.
    pub(crate) async fn admit_start(
        &self,
        by: &Identity,
        run: &NewRun,
    ) -> Result<Option<Admitted>, Excess> {
        check_own(by, &run.tenant)?;
        let Some(quota) = self.of(&run.tenant).await? else { return Ok(None) };
        check_value(&quota, &run.tenant, "the input", &run.input)?;
        self.check_workflow(&quota, &run.tenant, &run.workflow, run.version).await?;
        let bytes = run.input.as_str().len();
        self.meter(&run.tenant).admit(&*self.store, &quota, 1, bytes).await.map(Some)
    }

    /// Refuses a workflow with more tasks than the tenant may have.
    async fn check_workflow(
        &self,
        quota: &Quota,
        tenant: &Tenant,
        name: &WorkflowName,
        version: Version,
    ) -> Result<(), Excess> {
        let Some(most) = quota.tasks_max else { return Ok(()) };
        let tasks = self.tasks_of(name, version).await?;
        check_tasks(tenant, name, tasks, most)
    }

    /// Lets each of these be started, or not.
    pub(crate) async fn admit_starts(&self, by: &Identity, runs: Vec<NewRun>) -> Batch {
        let mut batch = Batch::default();
        for run in runs {
            match self.admit_start(by, &run).await {
                Ok(admitted) => {
                    batch.admitted.extend(admitted);
                    batch.refused.push(None);
                    batch.runs.push(run);
                }
                Err(excess) => batch.refused.push(Some(excess.into())),
            }
        }
        batch
    }

    /// Refuses whoever is over the rate of starts, before anything is looked up.
    pub(crate) async fn check(&self, tenant: &Tenant) -> Result<(), Excess> {
        match self.of(tenant).await? {
            Some(quota) => self.meter(tenant).check(&quota),
            None => Ok(()),
        }
    }

    /// Lets so many runs of a schedule be started by hand, or none.
    pub(crate) async fn admit_fires(
        &self,
        by: &Identity,
        schedule: &NewSchedule,
        count: usize,
    ) -> Result<Option<Admitted>, Excess> {
        let tenant = &schedule.key.tenant;
        check_own(by, tenant)?;
        let Some(quota) = self.of(tenant).await? else { return Ok(None) };
        check_value(&quota, tenant, "the input", &schedule.input)?;
        self.check_workflow(&quota, tenant, &schedule.workflow, schedule.version).await?;
        let bytes = schedule.input.as_str().len().saturating_mul(count);
        self.meter(tenant).admit(&*self.store, &quota, count, bytes).await.map(Some)
    }

    /// Lets a signal be sent, or not.
    pub(crate) async fn admit_signal(
        &self,
        by: &Identity,
        tenant: &Tenant,
        value: &Payload,
    ) -> Result<(), Excess> {
        check_own(by, tenant)?;
        let Some(quota) = self.of(tenant).await? else { return Ok(()) };
        check_value(&quota, tenant, "the signal", value)?;
        self.meter(tenant).admit_bytes(&quota, value.as_str().len())
    }

    /// Lets a schedule be put, or not: one that is there may always be changed. What is given back
    /// is kept until it was put, so that no other of the tenant is looked at meanwhile.
    pub(crate) async fn admit_schedule(
        &self,
        by: &Identity,
        schedule: &NewSchedule,
    ) -> Result<Option<tokio::sync::OwnedMutexGuard<()>>, Excess> {
        let key = &schedule.key;
        let tenant = &key.tenant;
        check_own(by, tenant)?;
        let Some(quota) = self.of(tenant).await? else { return Ok(None) };
        check_value(&quota, tenant, "the input", &schedule.input)?;
        self.check_workflow(&quota, tenant, &schedule.workflow, schedule.version).await?;
        let Some(most) = quota.schedules_max else { return Ok(None) };
        let turn = self.meter(tenant).schedule_turn().await;
        let has = self.store.get_usage(tenant.clone(), most).await?.schedules;
        if has >= most && self.store.get_schedule(key.clone()).await?.is_none() {
            let why = format!("tenant {tenant:?} has {has} schedules, its quota is {most}");
            return Err(Excess::Limited { why, retry_after: PERSON_PAUSE });
        }
        Ok(Some(turn))
    }

    /// Lets a workflow be made known by someone who has one tenant, or not.
    pub(crate) async fn admit_definition(
        &self,
        tenant: Option<&Tenant>,
        definition: &Definition,
    ) -> Result<(), Excess> {
        let Some(tenant) = tenant else { return Ok(()) };
        let quota = self.of(tenant).await?;
        let Some(most) = quota.and_then(|quota| quota.tasks_max) else { return Ok(()) };
        check_tasks(tenant, definition.name(), definition.tasks().len(), most)
    }

    /// How many tasks a workflow has; none if it is not known, which the store says better.
    async fn tasks_of(&self, name: &WorkflowName, version: Version) -> Result<usize, StoreError> {
        let key = (name.clone(), version);
        if let Some(tasks) = locked(&self.tasks).get(&key) {
            return Ok(*tasks);
        }
        let Some(found) = find_workflow(&*self.store, name, version).await? else { return Ok(0) };
        let count = found.tasks().len();
        let mut tasks = locked(&self.tasks);
        if tasks.len() >= WORKFLOWS_MAX {
            tasks.clear();
        }
        tasks.insert(key, count);
        Ok(count)
    }
}

/// Refuses what is another tenant's.
fn check_own(by: &Identity, tenant: &Tenant) -> Result<(), Excess> {
    let acts = by.acts_for(Some(tenant.clone()));
    acts.map(drop).map_err(|problem| StoreError::Forbidden(problem.detail().to_owned()).into())
}

fn check_value(quota: &Quota, tenant: &Tenant, what: &str, value: &Payload) -> Result<(), Excess> {
    let bytes = value.as_str().len();
    match quota.payload_bytes_max {
        Some(most) if bytes > most as usize => Err(Excess::Value(format!(
            "{what} has {bytes} bytes, the quota of tenant {tenant:?} is {most}"
        ))),
        Some(_) | None => Ok(()),
    }
}

fn check_tasks(
    tenant: &Tenant,
    workflow: &WorkflowName,
    tasks: usize,
    most: u32,
) -> Result<(), Excess> {
    if tasks > most as usize {
        return Err(Excess::Definition(format!(
            "workflow {workflow:?} has {tasks} tasks, the quota of tenant {tenant:?} is {most}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workflow_may_have_as_many_tasks_as_the_quota_says_and_no_more() {
        let tenant = Tenant::default();
        let workflow = WorkflowName::new("order").expect("it is a name");
        let check = |tasks| check_tasks(&tenant, &workflow, tasks, 3);
        assert!(check(3).is_ok());
        assert!(matches!(check(4), Err(Excess::Definition(text)) if text.contains("has 4 tasks")));
    }
}
