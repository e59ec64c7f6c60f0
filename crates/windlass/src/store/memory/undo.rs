//! Runs that undo what others did.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::{
    RunCommand, RunEvent, RunEventKind, RunId, RunState, TaskIndex, TaskState, Undoing,
};

use super::run::Run;
use super::state::{Ended, State};
use crate::store::undo::{
    Undone, is_undone_by_itself, names_no_run, not_ended, nothing_to_undo, undo_cancelled,
    undo_definition,
};
use crate::store::{Held, StoreError, ToUndo};

impl State {
    /// Begins to undo a run that ended in the verb under way, if it is to be.
    pub(super) fn undo_ended(&mut self, ended: &Ended) {
        let Ended { run, state, delay } = ended;
        let is_wanted = self.runs.get(run).is_some_and(|run| {
            let failed = run.tasks.iter().filter(|task| task.state == TaskState::Failed);
            let mut failures = failed.filter_map(|task| task.failure.as_ref());
            let keeps_steps = failures.any(windlass_core::Failure::keeps_steps);
            is_undone_by_itself(*state)
                && run.has_undoable()
                && (*state == RunState::Cancelled || !keeps_steps)
        });
        if is_wanted && let Err(error) = self.start_undo(*run, *delay) {
            tracing::error!(%run, %error, "a run is not undone");
        }
    }

    pub(super) fn undo_run(&mut self, id: RunId) -> Result<RunId, StoreError> {
        let Some(run) = self.runs.get(&id) else {
            return Err(StoreError::NotFound(format!("run {id}")));
        };
        match run.state {
            RunState::Running => Err(not_ended(id)),
            RunState::Succeeded | RunState::Failed | RunState::Cancelled => {
                if !run.has_undoable() {
                    return Err(nothing_to_undo(id));
                }
                let by = RunId::of_undo(id, run.round);
                match self.runs.get(&by).map(|by| by.state) {
                    Some(RunState::Cancelled) => Err(undo_cancelled(id, by)),
                    Some(RunState::Running | RunState::Succeeded | RunState::Failed) | None => {
                        self.start_undo(id, Duration::ZERO)
                    }
                }
            }
        }
    }

    fn start_undo(&mut self, id: RunId, delay: Duration) -> Result<RunId, StoreError> {
        let Some(run) = self.runs.get_mut(&id) else {
            return Err(StoreError::NotFound(format!("run {id}")));
        };
        let by = RunId::of_undo(id, run.round);
        let undone = Undone {
            run: id,
            round: run.round,
            tenant: run.tenant.clone(),
            priority: run.priority,
        };
        let definition = undo_definition(&run.definition)?;
        let start = undone.start(&definition, delay)?;
        self.register_all(vec![Arc::new(definition)])?;
        let is_new = self.start(start)?.is_new;
        if is_new && let Some(run) = self.runs.get_mut(&id) {
            run.note_undo(&mut self.shared, by)?;
        }
        Ok(by)
    }

    pub(super) fn read_undo(&mut self, held: Held) -> Result<ToUndo, StoreError> {
        let by = match self.holder(held) {
            Ok(by) => by,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let undoing = by.input.decode::<Undoing>();
        let undoing = undoing.map_err(|error| names_no_run(by.id, error))?;
        let Some(run) = self.runs.get(&undoing.run) else { return Ok(Ok(Vec::new())) };
        let indices = run.definition.indices().filter(|index| run.is_undoable(*index));
        Ok(Ok(indices.map(|index| run.claimed(index, self.shared.now)).collect()))
    }
}

impl Run {
    fn is_undoable(&self, index: TaskIndex) -> bool {
        self.tasks[index.as_usize()].steps.values().any(|step| step.is_undoable())
    }

    fn has_undoable(&self) -> bool {
        self.definition.indices().any(|index| self.is_undoable(index))
    }

    /// Writes down that it is being undone; it stays as it ended.
    fn note_undo(
        &mut self,
        shared: &mut super::state::Shared,
        by: RunId,
    ) -> Result<(), StoreError> {
        let from = self.state;
        let to = from
            .apply(RunCommand::Undo)
            .map_err(|error| StoreError::Corrupt(format!("run {}: {error}", self.id)))?;
        let event = RunEvent { kind: RunEventKind::Undoing { by }, from: Some(from), to };
        self.push_event(shared, windlass_core::EventBody::Run(event));
        Ok(())
    }
}
