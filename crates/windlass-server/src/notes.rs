//! The lines of the log: written before what they are about is done, so that nothing is done
//! without one. Only which schedules a program declares no more is known when it is done.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass::random::secure_bits;
use windlass::store::{
    Action, NewLogEntry, NewSchedule, Quota, RetentionRule, RunRecord, ScheduleKey, ScheduleRecord,
    find_workflow,
};
use windlass::{ActionId, Payload, Role, RunId, Tenant};
use windlass_core::{Definition, LimitScope, ScheduleOwner, SignalId, StepName, Timestamp};

use crate::identity::Identity;
use crate::problem::Problem;

/// What something is done to.
#[derive(Debug, Default)]
pub(crate) struct About {
    tenant: Option<Tenant>,
    run: Option<RunId>,
}

impl About {
    /// What all tenants share.
    pub(crate) fn all() -> Self {
        About::default()
    }

    /// A tenant's run.
    pub(crate) fn run(tenant: Tenant, run: RunId) -> Self {
        About { tenant: Some(tenant), run: Some(run) }
    }
}

impl From<Tenant> for About {
    fn from(tenant: Tenant) -> Self {
        About { tenant: Some(tenant), run: None }
    }
}

impl From<Option<Tenant>> for About {
    fn from(tenant: Option<Tenant>) -> Self {
        About { tenant, run: None }
    }
}

impl Identity {
    /// Writes down what it is about to do.
    pub(crate) async fn note(
        &self,
        action: Action,
        about: impl Into<About>,
        detail: Option<Value>,
    ) -> Result<(), Problem> {
        let About { tenant, run } = about.into();
        let id = ActionId::from_random(secure_bits());
        let detail = detail.map(|detail| Payload::encode(&detail)).transpose();
        let detail = detail.map_err(|error| Problem::payload("detail", &error))?;
        let by = self.author();
        self.store().log(NewLogEntry { id, by, action, tenant, run, detail }).await?;
        Ok(())
    }

    /// Writes down which of these workflows it is about to make known, or known as others than they
    /// were. Programs name theirs whenever they start, and nearly always that changes nothing.
    pub(crate) async fn note_workflows(&self, all: &[Arc<Definition>]) -> Result<(), Problem> {
        // Whoever has one tenant names what is there, and can make nothing known to all.
        if self.tenant().is_some() {
            return Ok(());
        }
        for definition in all {
            let (name, version) = (definition.name(), definition.version());
            let known = find_workflow(&**self.store(), name, version).await?;
            if known.is_none_or(|known| known != *definition) {
                self.check_reach(definition)?;
                let detail = json!({ "workflow": name, "version": version.get() });
                self.note(Action::RegisterWorkflow, About::all(), Some(detail)).await?;
            }
        }
        Ok(())
    }

    /// Refuses a new or changed workflow with a limit that all tenants share, unless an admin
    /// registers it: its keys can hold up the tasks of every tenant.
    fn check_reach(&self, definition: &Definition) -> Result<(), Problem> {
        if self.roles().has(Role::Admin) {
            return Ok(());
        }
        let mut limits = definition.tasks().iter().flat_map(|task| task.limits.iter());
        let Some(limit) = limits.find(|limit| limit.scope == LimitScope::Everyone) else {
            return Ok(());
        };
        let (name, version, limit) = (definition.name(), definition.version(), &limit.name);
        let why = format!(
            "workflow {name:?} version {version} has the limit {limit:?}, which reaches across \
             tenants: registering or changing it needs the role admin; start its worker once with \
             an admin token, then workers may bring it as it is"
        );
        Err(Problem::forbidden(why))
    }

    /// Whether signals that it sends are written down. Programs send signals as often as they like,
    /// and a line is kept for ever: of those who have the role worker alone there is none.
    pub(crate) fn notes_signals(&self) -> bool {
        self.roles().has(Role::Operator) || self.roles().has(Role::Admin)
    }

    /// Refuses to replace a schedule that an operator created, unless the caller is one. A schedule
    /// that a program creates is owned by the program, or by the name of its token.
    ///
    /// # Errors
    ///
    /// A problem that names the owner.
    pub(crate) async fn own_schedule(&self, schedule: &mut NewSchedule) -> Result<(), Problem> {
        if self.notes_signals() {
            return Ok(());
        }
        if schedule.owner.is_none() {
            schedule.owner = ScheduleOwner::new(self.name().as_str()).ok();
        }
        let there = self.store().get_schedule(schedule.key.clone()).await?;
        match there {
            Some(there) if there.schedule.owner.is_none() => {
                let name = &schedule.key.name;
                let why = format!(
                    "schedule {name:?} was created by an operator, and a worker token may not \
                     replace it: use a token with the role operator, or another name"
                );
                Err(Problem::forbidden(why))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Writes down that it is about to send a signal to a run. One that is over takes none.
    pub(crate) async fn note_signal(
        &self,
        run: &RunRecord,
        signal: SignalId,
        name: &StepName,
    ) -> Result<(), Problem> {
        if run.state.is_final() || !self.notes_signals() {
            return Ok(());
        }
        let detail = json!({ "signal": signal.to_string(), "name": name });
        self.note(Action::SignalRun, About::run(run.tenant.clone(), run.id), Some(detail)).await
    }

    /// Writes down what it is about to do to a schedule.
    pub(crate) async fn note_schedule(
        &self,
        action: Action,
        key: &ScheduleKey,
    ) -> Result<(), Problem> {
        let detail = json!({ "schedule": &key.name });
        self.note(action, key.tenant.clone(), Some(detail)).await
    }

    /// Writes down that it is about to make a schedule, or to make one another. Programs declare
    /// theirs whenever they start.
    pub(crate) async fn note_put(&self, schedule: &NewSchedule) -> Result<(), Problem> {
        let there = self.store().get_schedule(schedule.key.clone()).await?;
        if there.is_some_and(|there| there.schedule == *schedule) {
            return Ok(());
        }
        let detail = json!({
            "schedule": &schedule.key.name,
            "workflow": &schedule.workflow,
            "version": schedule.version.get(),
            "cadence": schedule.timing.cadence.to_string(),
        });
        self.note(Action::PutSchedule, schedule.key.tenant.clone(), Some(detail)).await
    }

    /// Writes down that it is about to start the runs of a schedule of a range that is past.
    pub(crate) async fn note_backfill(
        &self,
        key: &ScheduleKey,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<(), Problem> {
        let (from, until) = (from.to_string(), until.to_string());
        let detail = json!({ "schedule": &key.name, "from": from, "until": until });
        self.note(Action::BackfillSchedule, key.tenant.clone(), Some(detail)).await
    }

    /// A schedule that it may see, to do something to.
    pub(crate) async fn find_schedule(&self, key: &ScheduleKey) -> Result<ScheduleRecord, Problem> {
        let record = self.store().get_schedule(key.clone()).await?;
        let missing = || format!("schedule {:?} of tenant {:?}", key.name, key.tenant);
        record.ok_or_else(|| Problem::not_found(missing()))
    }

    /// Writes down how long runs are to be kept.
    pub(crate) async fn note_retention(&self, rule: &RetentionRule) -> Result<(), Problem> {
        let (state, seconds) = (rule.state.word(), rule.keep_for.as_secs());
        let detail = json!({ "workflow": &rule.workflow, "state": state, "keep_for_s": seconds });
        self.note(Action::SetRetention, About::all(), Some(detail)).await
    }

    /// Writes down what a tenant may ask for from now.
    pub(crate) async fn note_quota(&self, quota: &Quota) -> Result<(), Problem> {
        let limits = quota.limits().into_iter();
        let limits = limits.filter_map(|(name, limit)| Some((name.to_owned(), limit?.into())));
        let detail = Value::Object(limits.collect());
        self.note(Action::SetQuota, quota.tenant.clone(), Some(detail)).await
    }
}
