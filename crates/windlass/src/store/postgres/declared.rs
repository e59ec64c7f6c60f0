//! What workers declared when they joined, as this process has read it.
//!
//! A declaration never changes, so it is read once per worker. A claim costs no statement more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_core::{Version, WorkerId, WorkflowName};

use super::PostgresStore;
use super::fault::Fault;
use super::names::corrupt;
use super::statements as sql;
use super::workers::handlers_of;
use crate::store::declared::{Declared, SEARCHED_MAX, unregistered};
use crate::store::{ClaimRequest, HandlerKey};

/// The most workers whose declarations are remembered; then it starts over.
const DECLARED_MAX: usize = 100_000;

/// The declarations of workers that have claimed here.
#[derive(Default)]
pub(super) struct Declarations(Mutex<HashMap<WorkerId, Arc<Declared>>>);

impl Declarations {
    fn all(&self) -> MutexGuard<'_, HashMap<WorkerId, Arc<Declared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, worker: WorkerId) -> Option<Arc<Declared>> {
        self.all().get(&worker).map(Arc::clone)
    }

    fn remember(&self, worker: WorkerId, declared: &Arc<Declared>) {
        let mut all = self.all();
        if all.len() >= DECLARED_MAX {
            all.clear();
        }
        all.insert(worker, Arc::clone(declared));
    }

    /// Forgets a worker that has ended.
    pub(super) fn forget(&self, worker: WorkerId) {
        self.all().remove(&worker);
    }
}

impl PostgresStore {
    /// Returns what the worker of a claim declared, if the claim is for that and all of it is
    /// registered; `None` if there is no such worker. For a call before a transaction.
    pub(super) async fn check_claim(
        &self,
        request: &ClaimRequest,
    ) -> Result<Option<Arc<Declared>>, Fault> {
        let Some(declared) = self.declared(request.worker).await? else { return Ok(None) };
        match self.check_declared(&declared, request).await {
            Ok(()) => Ok(Some(declared)),
            Err(fault) => {
                // The worker may have ended since its declaration was read.
                self.declarations.forget(request.worker);
                let is_alive = self.declared(request.worker).await?.is_some();
                if is_alive { Err(fault) } else { Ok(None) }
            }
        }
    }

    async fn check_declared(
        &self,
        declared: &Declared,
        request: &ClaimRequest,
    ) -> Result<(), Fault> {
        self.check_registered(&declared.to_look_up(request)).await?;
        Ok(declared.check(request)?)
    }

    async fn declared(&self, worker: WorkerId) -> Result<Option<Arc<Declared>>, Fault> {
        if let Some(declared) = self.declarations.get(worker) {
            return Ok(Some(declared));
        }
        let rows = self.read(&sql::DECLARED, &[worker.as_uuid()]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let slots = row.get::<_, i32>("slots").cast_unsigned();
        let declared = Arc::new(Declared::new(slots, handlers_of(row)?));
        self.declarations.remember(worker, &declared);
        Ok(Some(declared))
    }

    /// Fails with `NotFound` if one of these is not registered. One that was found is not looked up
    /// again: definitions are never deleted.
    async fn check_registered(&self, keys: &[&HandlerKey]) -> Result<(), Fault> {
        let names = self.pool.names().current();
        let new: Vec<&HandlerKey> =
            keys.iter().copied().filter(|key| !names.is_registered(key)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let workflows: Vec<&str> = new.iter().map(|key| key.workflow.as_str()).collect();
        let versions: Vec<i32> = new.iter().map(|key| key.version.get().cast_signed()).collect();
        let rows = self.read(&sql::NEWEST_DEFINITIONS, &[&workflows, &versions]).await?;
        let is_found = |key: &HandlerKey| {
            rows.iter().any(|row| {
                let version = row.get::<_, i32>("version").cast_unsigned();
                row.get::<_, &str>("workflow") == key.workflow.as_str()
                    && version == key.version.get()
            })
        };
        let Some(missing) = new.iter().find(|key| !is_found(key)) else {
            names.remember_registered(new.into_iter().cloned());
            return Ok(());
        };
        let most = i64::try_from(SEARCHED_MAX).unwrap_or(i64::MAX);
        let mut known = Vec::new();
        for row in self.read(&sql::WORKFLOW_NAMES, &[&most]).await? {
            let (name, version): (&str, i32) = (row.get("workflow"), row.get("version"));
            let wrong = |error: String| corrupt("workflow", version, error);
            let name = WorkflowName::new(name).map_err(|error| wrong(error.to_string()))?;
            let version = Version::new(version.cast_unsigned());
            known.push((name, version.ok_or_else(|| wrong("its version is 0".to_owned()))?));
        }
        Err(unregistered(missing, known).into())
    }
}
