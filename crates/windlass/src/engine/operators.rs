//! What operators ask of an engine: the log, how long runs are kept, quotas, who works.

use serde::Serialize;
use windlass_core::{ActionId, Operator, Payload, RunId, RunState, Tenant, WorkflowName};

use super::Windlass;
use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::store::{
    Action, ArchivedRun, LeaderRecord, LogFilter, LogPage, NewLogEntry, Quota, RetentionRule,
    WorkerFilter, WorkerPage,
};

impl Windlass {
    /// Writes down what an operator is about to do by hand, to a run or otherwise, so that it is
    /// never done without a line in the log.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if nobody can be called so.
    pub async fn note_action(
        &self,
        by: &str,
        action: Action,
        run: Option<RunId>,
        detail: Option<&impl Serialize>,
    ) -> Result<(), Error> {
        self.note_action_for(None, by, action, run, detail).await.map(drop)
    }

    /// Writes the same with the tenant that it concerns, so that the tenant's own log has it. Returns
    /// the id of the entry, or `None` if the store keeps the log itself, as a server does.
    ///
    /// # Errors
    ///
    /// As [`Windlass::note_action`].
    pub async fn note_action_for(
        &self,
        tenant: Option<Tenant>,
        by: &str,
        action: Action,
        run: Option<RunId>,
        detail: Option<&impl Serialize>,
    ) -> Result<Option<ActionId>, Error> {
        let by = Operator::new(by)?;
        if self.store.keeps_log() {
            return Ok(None);
        }
        let id = ActionId::from_random(self.shared().rng.u128(..));
        let detail = detail.map(Payload::encode).transpose();
        let detail = detail.map_err(|error| Error::payload("detail of an action", error))?;
        let entry = NewLogEntry { id, by: by.into(), action, tenant, run, detail };
        Ok(Some(self.store.log(entry).await?))
    }

    /// A page of what operators did by hand, the newest first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the store does not answer.
    pub async fn log(&self, filter: LogFilter) -> Result<LogPage, Error> {
        Ok(self.store.list_log(filter).await?)
    }

    /// Sets how long runs are kept that ended in a state; all are kept for ever if nothing is said.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] for a rule that makes no sense.
    pub async fn set_retention(&self, rule: RetentionRule) -> Result<(), Error> {
        Ok(self.store.set_retention(rule).await?)
    }

    /// Deletes a rule of how long runs are kept; answers whether there was one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the store does not answer.
    pub async fn clear_retention(
        &self,
        workflow: Option<WorkflowName>,
        state: RunState,
    ) -> Result<bool, Error> {
        Ok(self.store.clear_retention(workflow, state).await?)
    }

    /// How long runs are kept.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the store does not answer.
    pub async fn retention(&self) -> Result<Vec<RetentionRule>, Error> {
        Ok(self.store.list_retention().await?)
    }

    /// Sets how much a tenant may ask of the servers, or all that have no quota of their own;
    /// nothing is limited if nothing is said.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] for a quota that makes no sense.
    pub async fn set_quota(&self, quota: Quota) -> Result<(), Error> {
        Ok(self.store.set_quota(quota).await?)
    }

    /// Deletes a quota; answers whether there was one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the store does not answer.
    pub async fn clear_quota(&self, tenant: Option<Tenant>) -> Result<bool, Error> {
        Ok(self.store.clear_quota(tenant).await?)
    }

    /// All quotas: first that of all tenants that have none of their own.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the store does not answer.
    pub async fn quotas(&self) -> Result<Vec<Quota>, Error> {
        Ok(self.store.list_quotas().await?)
    }

    /// What is known of a run that is gone, if it was archived.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the store does not answer.
    pub async fn archived_run(&self, run: RunId) -> Result<Option<ArchivedRun>, Error> {
        Ok(self.store.get_archived_run(run).await?)
    }

    /// A page of workers, the newest first: who works, where, and what it is at.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the store does not answer.
    pub async fn workers(&self, filter: WorkerFilter) -> Result<WorkerPage, Error> {
        Ok(self.store.list_workers(filter).await?)
    }

    /// Who does which background duty, and how it goes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the store does not answer.
    pub async fn leaders(&self) -> Result<Vec<LeaderRecord>, Error> {
        Ok(self.store.list_leaders().await?)
    }
}
