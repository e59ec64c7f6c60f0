//! Definitions and starts.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_core::{Definition, RunId};

use super::run::Run;
use super::state::State;
use crate::planted::PlantedBug;
use crate::store::records::{another_start, differing_parts};
use crate::store::{NewRun, Started, StoreError, WorkflowRecord};

impl State {
    pub(super) fn register_all(
        &mut self,
        definitions: Vec<Arc<Definition>>,
    ) -> Result<(), StoreError> {
        let registered_at = self.shared.now;
        let mut accepted = BTreeMap::<_, WorkflowRecord>::new();
        for definition in definitions {
            let key = (definition.name().clone(), definition.version());
            if let Some(known) = accepted.get(&key).or_else(|| self.definitions.get(&key)) {
                if known.definition == definition {
                    continue;
                }
                if let Some(difference) = definition.shape_difference(&known.definition) {
                    let (name, version) = key;
                    return Err(StoreError::Conflict(format!(
                        "workflow {name:?} version {version} is registered with another shape: \
                         {difference}; give the new one another version"
                    )));
                }
            }
            accepted.insert(key, WorkflowRecord { definition, registered_at });
        }
        self.definitions.extend(accepted);
        Ok(())
    }

    pub(super) fn start(&mut self, new: NewRun) -> Result<Started, StoreError> {
        new.check(self.shared.payload_limit).map_err(StoreError::Conflict)?;
        if let Some(existing) = self.find_existing(&new)? {
            return Ok(Started { run: existing, is_new: false });
        }
        let name = (new.workflow.clone(), new.version);
        let Some(known) = self.definitions.get(&name) else {
            let what = format!("workflow {:?} version {}", new.workflow, new.version);
            return Err(StoreError::NotFound(what));
        };
        let definition = Arc::clone(&known.definition);
        let run = Run::start(new, definition, &mut self.shared)?;
        // Tenants take their turns in the order of their first starts.
        self.shared.ready.see(&run.tenant);
        let id = run.id;
        self.by_age.insert((run.created_at, id));
        if let Some(key) = run.key.clone() {
            let workflow = run.definition.name().clone();
            self.keys.insert((run.tenant.clone(), workflow, key), id);
        }
        self.runs.insert(id, run);
        Ok(Started { run: id, is_new: true })
    }

    /// The run that is gone and whose key this start has.
    fn find_gone(&self, new: &NewRun) -> Result<Option<RunId>, StoreError> {
        let Some(key) = &new.key else { return Ok(None) };
        let place = (new.tenant.clone(), new.workflow.clone(), key.clone());
        let kept = self.retention.keys.get(&place);
        let Some(kept) = kept.filter(|kept| kept.expires_at > self.shared.now) else {
            return Ok(None);
        };
        if kept.input == new.input {
            return Ok(Some(kept.run));
        }
        Err(another_start(new, kept.run, false, &["input"]))
    }

    /// The run that this start names already, by its id or by its key.
    fn find_existing(&self, new: &NewRun) -> Result<Option<RunId>, StoreError> {
        let is_blind = self.shared.planted.has(PlantedBug::KeysNotUnique);
        let by_key = new.key.as_ref().filter(|_| !is_blind).and_then(|key| {
            let key = (new.tenant.clone(), new.workflow.clone(), key.clone());
            self.keys.get(&key)
        });
        let named = self.runs.get(&new.id).map(|run| run.id);
        let Some(run) = named.or(by_key.copied()).and_then(|id| self.runs.get(&id)) else {
            return self.find_gone(new);
        };
        let is_same = run.tenant == new.tenant
            && *run.definition.name() == new.workflow
            && run.input == new.input
            && run.key == new.key;
        if is_same {
            return Ok(Some(run.id));
        }
        let differing = match run.tenant == new.tenant {
            true => differing_parts([
                ("workflow", *run.definition.name() == new.workflow),
                ("input", run.input == new.input),
                ("key", run.key == new.key),
            ]),
            false => Vec::new(),
        };
        Err(another_start(new, run.id, named.is_some(), &differing))
    }
}
