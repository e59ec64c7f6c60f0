//! Runs that are over and go.

use std::collections::{BTreeMap, HashMap};

use serde_json::json;
use windlass_core::{
    IdempotencyKey, Payload, RunId, RunState, Tenant, Timestamp, Undoing, WorkflowName,
};

use super::run::Run;
use super::state::State;
use crate::store::retention::rule_for;
use crate::store::{
    ArchivedRun, PRUNE_MAX, PRUNE_TASKS_MAX, RETENTION_RULES_MAX, RetentionRule, StoreError, Sweep,
};

/// What is known of how long runs are kept, and of those that are gone.
#[derive(Default)]
pub(super) struct Retention {
    rules: Vec<RetentionRule>,
    /// The keys of runs that are gone.
    pub(super) keys: HashMap<(Tenant, WorkflowName, IdempotencyKey), KeptKey>,
    archive: BTreeMap<RunId, ArchivedRun>,
}

/// The key of a run that is gone.
pub(super) struct KeptKey {
    pub(super) run: RunId,
    pub(super) input: Payload,
    pub(super) expires_at: Timestamp,
}

impl Retention {
    pub(super) fn set(&mut self, rule: RetentionRule) -> Result<(), StoreError> {
        rule.check().map_err(StoreError::Conflict)?;
        let is_it = |it: &RetentionRule| (&it.workflow, it.state) == (&rule.workflow, rule.state);
        match self.rules.iter().position(is_it) {
            Some(place) => self.rules[place] = rule,
            None if self.rules.len() >= RETENTION_RULES_MAX => {
                return Err(crate::store::retention::too_many());
            }
            None => self.rules.push(rule),
        }
        self.rules
            .sort_by(|a, b| (&a.workflow, a.state.word()).cmp(&(&b.workflow, b.state.word())));
        Ok(())
    }

    pub(super) fn clear(&mut self, workflow: Option<&WorkflowName>, state: RunState) -> bool {
        let before = self.rules.len();
        self.rules.retain(|it| (it.workflow.as_ref(), it.state) != (workflow, state));
        self.rules.len() < before
    }

    /// Whether all runs are kept.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub(super) fn rules(&self) -> Vec<RetentionRule> {
        self.rules.clone()
    }

    pub(super) fn archived(&self, run: RunId) -> Option<ArchivedRun> {
        self.archive.get(&run).cloned()
    }
}

impl State {
    /// Deletes runs that are over and older than their rules say.
    pub(super) fn prune(&mut self, limit: usize) -> Sweep {
        let now = self.shared.now;
        self.retention.keys.retain(|_, kept| kept.expires_at > now);
        let (mut gone, mut tasks, mut is_cut) = (Vec::new(), 0, false);
        for (_, id) in &self.by_age {
            let Some(run) = self.runs.get(id).filter(|run| self.is_to_go(run)) else { continue };
            let is_full = tasks + run.tasks.len() > PRUNE_TASKS_MAX && !gone.is_empty();
            if gone.len() >= limit.min(PRUNE_MAX) || is_full {
                is_cut = true;
                break;
            }
            tasks += run.tasks.len();
            gone.push(*id);
        }
        for id in &gone {
            self.remove(*id);
        }
        let next_at = if is_cut { Some(now) } else { self.next_old() };
        Sweep { at: now, moved: gone.len(), next_at }
    }

    /// When the next run is old enough, if any will be.
    fn next_old(&self) -> Option<Timestamp> {
        let old_at = |run: &Run| {
            let rule = rule_for(&self.retention.rules, run.definition.name(), run.state)?;
            Some(run.ended_at? + rule.keep_for).filter(|at| *at > self.shared.now)
        };
        self.runs.values().filter_map(old_at).min()
    }

    fn is_to_go(&self, run: &Run) -> bool {
        let rule = rule_for(&self.retention.rules, run.definition.name(), run.state);
        let (Some(rule), Some(ended_at)) = (rule, run.ended_at) else { return false };
        let undoes = run.definition.is_undo().then(|| run.input.decode::<Undoing>().ok()).flatten();
        let by = RunId::of_undo(run.id, run.round);
        let letters = &self.shared.letters;
        ended_at + rule.keep_for <= self.shared.now
            && !self.family.has_parent(run.id)
            && !self.has_notices(run.id)
            // One that halts its stream has slots, which nobody could free.
            && !run.definition.indices().any(|index| {
                self.shared.lanes.entrants.contains_key(&run.task_id(index))
            })
            && (rule.with_dead_letters || ![run.id, by].iter().any(|id| letters.has(*id)))
            && !undoes.is_some_and(|undoing| self.runs.contains_key(&undoing.run))
            && self.runs.get(&by).is_none_or(|by| by.state.is_final())
    }

    fn remove(&mut self, id: RunId) {
        let now = self.shared.now;
        let Some(run) = self.runs.remove(&id) else { return };
        let rule = rule_for(&self.retention.rules, run.definition.name(), run.state).cloned();
        let (Some(rule), Some(ended_at)) = (rule, run.ended_at) else { return };
        self.by_age.remove(&(run.created_at, id));
        self.shared.letters.forget(id);
        self.family.leave(id);
        if let Some(key) = run.key.clone() {
            let key = (run.tenant.clone(), run.definition.name().clone(), key);
            self.keys.remove(&key);
            let expires_at = ended_at + rule.keep_key_for;
            if expires_at > now {
                let input = run.input.clone();
                self.retention.keys.insert(key, KeptKey { run: id, input, expires_at });
            }
        }
        if rule.archives {
            self.retention.archive.insert(id, run.archived(ended_at, now));
        }
    }
}

impl Run {
    fn archived(&self, ended_at: Timestamp, archived_at: Timestamp) -> ArchivedRun {
        let value = |payload: &Payload| payload.decode::<serde_json::Value>().unwrap_or_default();
        let tasks = self.definition.indices().map(|index| {
            let task = self.task_record(index);
            json!({
                "name": task.name,
                "state": task.state.word(),
                "attempt": task.attempt,
                "output": task.output.as_ref().map(value),
                "failure": task.failure,
            })
        });
        let history = self.events.iter().map(|event| {
            let mut body = serde_json::to_value(&event.body).unwrap_or_default();
            if let Some(fields) = body.as_object_mut() {
                fields.insert("at".to_owned(), event.at.as_micros().into());
            }
            body
        });
        let body = json!({
            "input": value(&self.input),
            "key": self.key,
            "metadata": self.metadata,
            "round": self.round,
            "tasks": tasks.collect::<Vec<_>>(),
            "history": history.collect::<Vec<_>>(),
        });
        ArchivedRun {
            id: self.id,
            workflow: self.definition.name().clone(),
            version: self.definition.version(),
            tenant: self.tenant.clone(),
            state: self.state,
            created_at: self.created_at,
            ended_at,
            archived_at,
            body: Payload::encode(&body).unwrap_or_default(),
        }
    }
}
