//! The declaration of a worker, and the claims that it allows.
//!
//! A worker declares its slots and workflows when it joins. An empty list of workflows allows all of
//! them.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::nearest::nearest;
use windlass_core::undo::UNDO_SUFFIX;
use windlass_core::{Version, WorkflowName};

use super::{ClaimRequest, HandlerKey, StoreError};

/// The most names and versions that are searched for those like an unknown one.
pub(super) const SEARCHED_MAX: usize = 1_000;

/// What a worker declared when it joined.
#[derive(Debug)]
pub(super) struct Declared {
    slots: usize,
    workflows: BTreeSet<HandlerKey>,
}

impl Declared {
    pub(super) fn new(slots: u32, workflows: Vec<HandlerKey>) -> Self {
        let slots = usize::try_from(slots).unwrap_or(usize::MAX);
        Declared { slots, workflows: workflows.into_iter().collect() }
    }

    /// Returns the workflow of the request that the worker did not declare.
    fn undeclared<'a>(&self, request: &'a ClaimRequest) -> Option<&'a HandlerKey> {
        let is_undone = |one: &HandlerKey| {
            let undoes = |it: &&HandlerKey| {
                it.version == one.version && it.workflow.of_undo() == one.workflow.as_str()
            };
            is_undo(one) && self.workflows.iter().any(|it| undoes(&it))
        };
        let is_declared = |one: &HandlerKey| self.workflows.contains(one) || is_undone(one);
        let stray = request.handlers.iter().find(|one| !is_declared(one));
        stray.filter(|_| !self.workflows.is_empty())
    }

    /// Returns the workflows of the request that must be registered for it to be of use: those
    /// that the worker did not declare. Declared ones were registered by the join.
    pub(super) fn to_look_up<'a>(&self, request: &'a ClaimRequest) -> Vec<&'a HandlerKey> {
        match self.workflows.is_empty() {
            true => request.handlers.iter().filter(|one| !is_undo(one)).collect(),
            false => self.undeclared(request).into_iter().collect(),
        }
    }

    /// Fails with `Conflict` if the request is for a workflow that the worker did not declare.
    pub(super) fn check(&self, request: &ClaimRequest) -> Result<(), StoreError> {
        match self.undeclared(request) {
            None => Ok(()),
            Some(HandlerKey { workflow, version }) => Err(StoreError::Conflict(format!(
                "the worker did not join with workflow {workflow:?} version {version}: join again \
                 with it"
            ))),
        }
    }

    /// Returns the most tasks that the request may be given by a worker that holds `held` tasks.
    /// Fails with `Conflict` if all of its slots are taken.
    pub(super) fn room(&self, request: &ClaimRequest, held: usize) -> Result<usize, StoreError> {
        let room = (self.slots + request.ending).saturating_sub(held);
        if room == 0 && request.limit > 0 {
            let slots = self.slots;
            return Err(StoreError::Conflict(format!(
                "the worker has no free slot, it holds {held} of at most {slots} tasks: finish or \
                 release some before the next claim, or join again with more slots"
            )));
        }
        Ok(room.min(request.limit))
    }

    /// Returns the most tasks that the request may be given if the worker holds none.
    pub(super) fn room_max(&self, request: &ClaimRequest) -> usize {
        request.limit.min(self.slots + request.ending)
    }
}

/// Whether it undoes another workflow: it is known with that, and registered when a run needs it.
fn is_undo(key: &HandlerKey) -> bool {
    key.workflow.as_str().ends_with(UNDO_SUFFIX)
}

/// Returns the error of a claim for a workflow that is not among the registered ones.
pub(super) fn unregistered(
    key: &HandlerKey,
    known: impl IntoIterator<Item = (WorkflowName, Version)>,
) -> StoreError {
    let HandlerKey { workflow, version } = key;
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, version) in known {
        versions.entry(name.to_string()).or_default().push(version.to_string());
    }
    let remedy = "register it, or join with its definition";
    let near = match versions.get(workflow.as_str()) {
        Some(others) => format!("; the registered versions: {}", others.join(", ")),
        None => match nearest(workflow.as_str(), versions.keys().map(String::as_str)).as_slice() {
            [] => String::new(),
            names => {
                let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
                format!("; the nearest: {}", names.join(", "))
            }
        },
    };
    StoreError::NotFound(format!("workflow {workflow:?} version {version} ({remedy}{near})"))
}
