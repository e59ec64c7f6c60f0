//! Runs that undo what others did.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::{
    RunCommand, RunEvent, RunEventKind, RunId, RunState, TaskIndex, TaskState, TraceContext,
    Undoing,
};

use super::run::Run;
use super::state::{Ended, State};
use crate::store::undo::{
    Undone, is_undone_by_itself, names_no_run, not_ended, nothing_to_undo, undo_cancelled,
    undo_definition,
};
use crate::store::{Held, StoreError, ToUndo};

impl State {
    /// Begins to undo those of the runs that ended in the verb under way that are to be, in the
    /// order of their workflows, when none of the workers that were at work can be so any more.
    pub(super) fn undo_ended(&mut self, ended: &[Ended]) {
        let delay = ended.iter().map(|ended| ended.delay).max().unwrap_or_default();
        let ended = ended.iter().filter(|ended| self.is_to_undo(ended));
        let name = |ended: &Ended| Some(self.runs.get(&ended.run)?.definition.name().clone());
        let mut ended: Vec<_> = ended.map(|ended| (name(ended), ended.run)).collect();
        ended.sort();
        for (_, run) in ended {
            if let Err(error) = self.start_undo(run, delay) {
                tracing::error!(%run, %error, "a run is not undone");
            }
        }
    }

    /// Whether a run that ended is undone without being asked.
    pub(super) fn is_to_undo(&self, ended: &Ended) -> bool {
        let Ended { run, state, .. } = ended;
        self.runs.get(run).is_some_and(|run| {
            let failed = run.tasks.iter().filter(|task| task.state == TaskState::Failed);
            let mut failures = failed.filter_map(|task| task.failure.as_ref());
            let keeps_steps = failures.any(windlass_core::Failure::keeps_steps);
            is_undone_by_itself(*state)
                && run.has_undoable()
                && !run.definition.is_undo()
                && (*state == RunState::Cancelled || !keeps_steps)
        })
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
            trace: TraceContext::of_metadata(&run.metadata),
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
