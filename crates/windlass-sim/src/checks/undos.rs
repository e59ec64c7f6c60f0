//! What became of the steps of runs that did not succeed.

use windlass::testing::invariants::Violation;
use windlass::{Definition, EventBody, RunId, RunState};
use windlass_core::{Failure, RunEventKind, StepName, StepRecord, StepState, TaskId, TaskState};

use super::Evidence;
use crate::seed::RunFile;

const UNDONE: &str = "G14 what did not succeed is undone";
const REVERSE: &str = "G14 steps are undone once, the last one first";

/// G14: a run that failed or was cancelled, and that has steps which say how they are undone, is
/// undone by one run, which begins with its end. No other run is, unless someone wanted it.
pub(super) fn what_did_not_succeed_is_undone(
    evidence: &Evidence<'_>,
    violations: &mut Vec<Violation>,
) {
    let mut violate = |text| violations.push(Violation { promise: UNDONE, text });
    let runs = evidence.by_id();
    let ledger = evidence.world.clients.lock();
    for file in evidence.files {
        let (run, state) = (file.run.id, file.run.state);
        let by = RunId::of_undo(run, file.run.round);
        let is_undoing = |event: &&windlass::Event| match &event.body {
            EventBody::Run(body) => matches!(body.kind, RunEventKind::Undoing { .. }),
            EventBody::Task(_) => false,
        };
        let begun: Vec<_> = file.events.iter().filter(is_undoing).map(|event| event.at).collect();
        let is_wanted = match state {
            RunState::Failed => !keeps_steps(file),
            RunState::Cancelled => true,
            RunState::Running | RunState::Succeeded => false,
        };
        let has_steps = file.steps.iter().flatten().any(StepRecord::is_undoable);
        let is_asked = ledger.to_undo.contains(&run);
        let is_right = match (is_wanted && has_steps, &begun[..]) {
            (true, [at]) => Some(*at) == file.run.ended_at,
            (true, _) => false,
            (false, [_]) => is_asked && has_steps,
            (false, begun) => begun.is_empty(),
        };
        if !is_right || runs.contains_key(&by) == begun.is_empty() {
            let ended = file.run.ended_at;
            let steps = if has_steps { "steps" } else { "no steps" };
            violate(format!(
                "run {run} {state} at {ended:?} with {steps} to undo, undone by {by} from {begun:?}"
            ));
        }
    }
}

/// Whether its code is not what made its steps.
fn keeps_steps(file: &RunFile) -> bool {
    let failed = file.tasks.iter().filter(|task| task.state == TaskState::Failed);
    failed.filter_map(|task| task.failure.as_ref()).any(Failure::keeps_steps)
}

/// G14: what undoes a run undoes each of its steps that say how, the last one first, and has
/// recorded each once.
pub(super) fn steps_are_undone_once_and_in_reverse(
    evidence: &Evidence<'_>,
    violations: &mut Vec<Violation>,
) {
    let mut violate = |text| violations.push(Violation { promise: REVERSE, text });
    let runs = evidence.by_id();
    let truth = evidence.world.truth.lock();
    for file in evidence.files {
        let by = RunId::of_undo(file.run.id, file.run.round);
        let Some(undo) = runs.get(&by) else { continue };
        let Some(definition) = evidence.definition(file) else { continue };
        let due = to_undo(definition, file);
        let names: Vec<&StepName> = due.iter().map(|(_, name)| *name).collect();
        let done: Vec<&StepName> = undo.steps.iter().flatten().filter_map(done_name).collect();
        let is_right = match undo.run.state {
            RunState::Succeeded => done == names,
            RunState::Running | RunState::Failed | RunState::Cancelled => names.starts_with(&done),
        };
        if !is_right {
            let state = undo.run.state;
            violate(format!(
                "run {by} undoes run {} and {state}: {done:?}, {names:?} is right",
                file.run.id
            ));
        }
        for (task, name) in due.iter().take(done.len()) {
            if !truth.undos.contains_key(&(*task, name.as_str().to_owned())) {
                violate(format!("run {by} recorded that {name:?} of task {task} is undone"));
            }
        }
    }
}

/// The steps of a run to be undone, the first to be so first.
fn to_undo<'a>(definition: &Definition, file: &'a RunFile) -> Vec<(TaskId, &'a StepName)> {
    let mut due = Vec::new();
    for index in definition.sorted().into_iter().rev() {
        let task = TaskId { run: file.run.id, index };
        let steps = file.steps[index.as_usize()].iter().filter(|step| step.is_undoable());
        let mut steps: Vec<&StepRecord> = steps.collect();
        steps.sort_by_key(|step| std::cmp::Reverse(step.number()));
        due.extend(steps.into_iter().map(|step| (task, &step.name)));
    }
    due
}

fn done_name(step: &StepRecord) -> Option<&StepName> {
    match step.state {
        StepState::Done { .. } => Some(&step.name),
        StepState::Open { .. } => None,
    }
}
