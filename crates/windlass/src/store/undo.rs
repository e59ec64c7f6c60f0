//! What both stores say of runs that are undone.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_core::{
    Definition, Payload, Priority, RunId, RunState, Tenant, TraceContext, Undoing,
};

use super::{NewRun, StoreError};

/// A run whose steps are to be undone by another.
pub(crate) struct Undone {
    pub(crate) run: RunId,
    pub(crate) round: u32,
    pub(crate) tenant: Tenant,
    pub(crate) priority: Priority,
    pub(crate) trace: Option<TraceContext>,
}

impl Undone {
    /// The start of the run that undoes it, of a workflow that was derived from its own.
    pub(crate) fn start(
        self,
        definition: &Definition,
        delay: Duration,
    ) -> Result<NewRun, StoreError> {
        let Undone { run, round, tenant, priority, trace } = self;
        let wrong = |error| StoreError::Corrupt(format!("run {run} cannot be undone: {error}"));
        let mut new = NewRun {
            id: RunId::of_undo(run, round),
            workflow: definition.name().clone(),
            version: definition.version(),
            tenant,
            input: Payload::encode(&Undoing { run }).map_err(wrong)?,
            key: None,
            delay,
            priority,
            metadata: BTreeMap::new(),
        };
        new.join_trace(trace.as_ref());
        Ok(new)
    }
}

/// The workflow that undoes runs of another.
pub(crate) fn undo_definition(of: &Definition) -> Result<Definition, StoreError> {
    of.to_undo().map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// Whether a run that ended like this is undone without being asked.
pub(crate) fn is_undone_by_itself(state: RunState) -> bool {
    match state {
        RunState::Failed | RunState::Cancelled => true,
        RunState::Running | RunState::Succeeded => false,
    }
}

/// A run that was undone cannot go on.
pub(crate) fn was_undone(run: RunId, by: RunId) -> StoreError {
    let text = format!("run {run} is undone by run {by} and cannot be retried; start it anew");
    StoreError::Conflict(text)
}

/// A run has no step that says how it is undone.
pub(crate) fn nothing_to_undo(run: RunId) -> StoreError {
    StoreError::Conflict(format!("run {run} has no step that can be undone"))
}

/// What undoes a run was given up.
pub(crate) fn undo_cancelled(run: RunId, by: RunId) -> StoreError {
    StoreError::Conflict(format!("run {run} is undone by run {by}, which was cancelled"))
}

/// A run goes on, and so do its steps.
pub(crate) fn not_ended(run: RunId) -> StoreError {
    let text = format!("run {run} is running, only a run that has ended can be undone; cancel it");
    StoreError::Conflict(text)
}

/// A run that undoes names no run that there is.
pub(crate) fn names_no_run(run: RunId, why: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("run {run} undoes no run: {why}"))
}
