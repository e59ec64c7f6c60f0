//! Writes the operator log. A line is written before its action, so that no action is without one;
//! a refused action gets a second line with the reason. Exception: schedules that a program stops
//! declaring are logged after they are disabled.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use serde_json::{Value, json};
use windlass::random::secure_bits;
use windlass::store::{
    Action, Mailbox, NewKeySignal, NewLogEntry, NewSchedule, Quota, RetentionRule, RunRecord,
    ScheduleKey, ScheduleRecord, Store, StoreError, find_workflow, refusal,
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

/// An action that is in the log and was not performed yet: one line, or none if nothing is to be
/// logged, or one for each workflow of a worker.
#[must_use = "perform the action with it, so that a refusal is logged"]
pub(crate) struct Noted {
    store: Arc<dyn Store>,
    lines: Vec<NewLogEntry>,
}

impl Noted {
    /// Performs the action, and logs why if it was refused. An action whose outcome is unknown stays
    /// as it was logged.
    pub(crate) async fn perform<T, E>(
        self,
        action: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E>
    where
        E: Clone,
        Problem: From<E>,
    {
        let done = action.await;
        if let Err(error) = &done {
            self.log_refusal(error.clone().into()).await;
        }
        done
    }

    /// Performs a deletion. Returns whether there was something to delete; if not, that is logged as
    /// a refusal.
    pub(crate) async fn delete(
        self,
        what: impl fmt::Display,
        deletion: impl Future<Output = Result<bool, StoreError>>,
    ) -> Result<bool, StoreError> {
        let missing = StoreError::NotFound(what.to_string());
        let deleted = self.perform(async {
            match deletion.await? {
                true => Ok(()),
                false => Err(missing.clone()),
            }
        });
        match deleted.await {
            Ok(()) => Ok(true),
            Err(error) if error == missing => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Logs that the action was refused, unless it may have been performed. The caller is told of the
    /// refusal even if this fails.
    async fn log_refusal(self, problem: Problem) {
        if !problem.kind().is_definite() {
            return;
        }
        let why = format!("{} [{}]", problem.detail(), problem.kind().code());
        for line in self.lines {
            let (id, action) = (ActionId::from_random(secure_bits()), line.action);
            let detail = Payload::encode(&refusal(line.id, &why)).ok();
            if let Err(error) = self.store.log(NewLogEntry { id, detail, ..line }).await {
                tracing::warn!(%action, "the refusal of an action was not logged: {error}");
            }
        }
    }
}

impl Identity {
    /// Logs an action before it is performed.
    pub(crate) async fn note(
        &self,
        action: Action,
        about: impl Into<About>,
        detail: Option<Value>,
    ) -> Result<Noted, Problem> {
        let line = self.log(action, about.into(), detail).await?;
        Ok(Noted { store: Arc::clone(self.store()), lines: vec![line] })
    }

    /// An action that is not logged.
    fn note_nothing(&self) -> Noted {
        Noted { store: Arc::clone(self.store()), lines: Vec::new() }
    }

    /// Writes a line of the log. Returns it with the id that it has there.
    async fn log(
        &self,
        action: Action,
        about: About,
        detail: Option<Value>,
    ) -> Result<NewLogEntry, Problem> {
        let About { tenant, run } = about;
        let id = ActionId::from_random(secure_bits());
        let detail = detail.map(|detail| Payload::encode(&detail)).transpose();
        let detail = detail.map_err(|error| Problem::payload("detail", &error))?;
        let mut line = NewLogEntry { id, by: self.author(), action, tenant, run, detail };
        line.id = self.store().log(line.clone()).await?;
        Ok(line)
    }

    /// Writes down which of these workflows it is about to make known, or known as others than they
    /// were. Programs name theirs whenever they start, and nearly always that changes nothing.
    pub(crate) async fn note_workflows(&self, all: &[Arc<Definition>]) -> Result<Noted, Problem> {
        let mut noted = self.note_nothing();
        // Whoever has one tenant names what is there, and can make nothing known to all.
        if self.tenant().is_some() {
            return Ok(noted);
        }
        let mut changed = Vec::new();
        for definition in all {
            let (name, version) = (definition.name(), definition.version());
            let known = find_workflow(&**self.store(), name, version).await?;
            if known.is_none_or(|known| known != *definition) {
                self.check_reach(definition)?;
                changed.push(json!({ "workflow": name, "version": version.get() }));
            }
        }
        for detail in changed {
            let line = self.log(Action::RegisterWorkflow, About::all(), Some(detail)).await?;
            noted.lines.push(line);
        }
        Ok(noted)
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
    ) -> Result<Noted, Problem> {
        if run.state.is_final() || !self.notes_signals() {
            return Ok(self.note_nothing());
        }
        let detail = json!({ "signal": signal.to_string(), "name": name });
        self.note(Action::SignalRun, About::run(run.tenant.clone(), run.id), Some(detail)).await
    }

    /// Writes down that it is about to send a signal to a key.
    pub(crate) async fn note_key_signal(&self, signal: &NewKeySignal) -> Result<Noted, Problem> {
        if !self.notes_signals() {
            return Ok(self.note_nothing());
        }
        let Mailbox { tenant, key, name } = &signal.to;
        let detail = json!({ "signal": signal.id.to_string(), "key": key, "name": name });
        self.note(Action::SignalKey, tenant.clone(), Some(detail)).await
    }

    /// Writes down what it is about to do to a schedule.
    pub(crate) async fn note_schedule(
        &self,
        action: Action,
        key: &ScheduleKey,
    ) -> Result<Noted, Problem> {
        let detail = json!({ "schedule": &key.name });
        self.note(action, key.tenant.clone(), Some(detail)).await
    }

    /// Writes down that it is about to make a schedule, or to make one another. Programs declare
    /// theirs whenever they start.
    pub(crate) async fn note_put(&self, schedule: &NewSchedule) -> Result<Noted, Problem> {
        let there = self.store().get_schedule(schedule.key.clone()).await?;
        if there.is_some_and(|there| there.schedule == *schedule) {
            return Ok(self.note_nothing());
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
    ) -> Result<Noted, Problem> {
        let (from, until) = (from.to_string(), until.to_string());
        let detail = json!({ "schedule": &key.name, "from": from, "until": until });
        self.note(Action::BackfillSchedule, key.tenant.clone(), Some(detail)).await
    }

    /// Writes down which schedules were disabled because their owner declares them no more.
    pub(crate) async fn note_disabled(
        &self,
        owner: &ScheduleOwner,
        tenant: Option<Tenant>,
        disabled: &[ScheduleKey],
    ) -> Result<(), Problem> {
        // Programs ask for it whenever they start, and nearly always there is nothing to do.
        if disabled.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = disabled.iter().map(|key| &key.name).collect();
        let detail = json!({ "owner": owner, "schedules": names });
        self.log(Action::DisableSchedules, tenant.into(), Some(detail)).await.map(drop)
    }

    /// A schedule that it may see, to do something to.
    pub(crate) async fn find_schedule(&self, key: &ScheduleKey) -> Result<ScheduleRecord, Problem> {
        let record = self.store().get_schedule(key.clone()).await?;
        let missing = || format!("schedule {:?} of tenant {:?}", key.name, key.tenant);
        record.ok_or_else(|| Problem::not_found(missing()))
    }

    /// Writes down how long runs are to be kept.
    pub(crate) async fn note_retention(&self, rule: &RetentionRule) -> Result<Noted, Problem> {
        let (state, seconds) = (rule.state.word(), rule.keep_for.as_secs());
        let detail = json!({ "workflow": &rule.workflow, "state": state, "keep_for_s": seconds });
        self.note(Action::SetRetention, About::all(), Some(detail)).await
    }

    /// Writes down what a tenant may ask for from now.
    pub(crate) async fn note_quota(&self, quota: &Quota) -> Result<Noted, Problem> {
        let limits = quota.limits().into_iter();
        let limits = limits.filter_map(|(name, limit)| Some((name.to_owned(), limit?.into())));
        let detail = Value::Object(limits.collect());
        self.note(Action::SetQuota, quota.tenant.clone(), Some(detail)).await
    }
}

/// The quota of a tenant, or of all that have none, as texts name it.
pub(crate) fn quota_of(tenant: Option<&Tenant>) -> String {
    match tenant {
        Some(tenant) => format!("a quota of tenant {tenant:?}"),
        None => "a quota of all tenants that have none of their own".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use windlass::Operator;
    use windlass::store::{LogFilter, MemoryStore};

    use super::*;

    #[tokio::test]
    async fn only_a_refusal_is_logged_a_second_time() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let perform = async |done: Result<(), StoreError>| {
            let line = NewLogEntry {
                id: ActionId::from_random(7),
                by: Operator::new("anna").expect("it is a name").into(),
                action: Action::SetWeight,
                tenant: None,
                run: None,
                detail: None,
            };
            let noted = Noted { store: Arc::clone(&store), lines: vec![line] };
            let answer = noted.perform(std::future::ready(done.clone())).await;
            assert_eq!(answer, done);
            store.list_log(LogFilter::default()).await.expect("it is read").entries
        };
        assert!(perform(Ok(())).await.is_empty());
        let lost = StoreError::Unavailable("the connection was lost".to_owned());
        assert!(perform(Err(lost)).await.is_empty(), "it may have been performed");
        assert!(perform(Err(StoreError::Corrupt("no".to_owned()))).await.is_empty());
        let entries = perform(Err(StoreError::Conflict("no".repeat(900)))).await;
        let [entry] = entries.as_slice() else { panic!("{entries:?}") };
        assert_eq!(entry.action, Action::SetWeight);
        let detail: Value = entry.detail.as_ref().expect("it has one").decode().expect("JSON");
        assert_eq!(detail, refusal(ActionId::from_random(7), &"no".repeat(900)));
    }
}
