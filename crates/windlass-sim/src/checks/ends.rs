//! What clients were told, against what there is.

use std::collections::{BTreeMap, BTreeSet};

use windlass::store::SCHEDULE_METADATA;
use windlass::testing::invariants::Violation;
use windlass::{RunId, RunState};

use super::Evidence;
use crate::input::Input;
use crate::ledger::{Reply, StartEntry};
use crate::scenario::StartPlan;
use crate::seed::RunFile;

const LOST: &str = "G1 nothing acknowledged is lost";
const KEYS: &str = "G12 one run per idempotency key";

/// Whether a run has the input that was planned.
fn has_input(file: &RunFile, plan: &StartPlan) -> bool {
    file.input.decode::<Input>().is_ok_and(|input| input == Input(plan.input))
}

/// G1: what was acknowledged exists as it was asked for, what was refused does not
/// exist, and nothing exists that nobody asked for.
pub(super) fn acknowledged_starts_exist(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let mut violate = |text| violations.push(Violation { promise: LOST, text });
    let runs = evidence.by_id();
    let ledger = evidence.world.clients.lock();
    for StartEntry { plan, reply } in &ledger.starts {
        match reply {
            Reply::Acknowledged(run) => match runs.get(run) {
                None => violate(format!("run {run} was acknowledged and does not exist")),
                Some(file) => {
                    let tenant = &evidence.world.scenario.tenants[plan.tenant].name;
                    let is_same = file.run.tenant.as_str() == tenant
                        && has_input(file, plan)
                        && file.run.workflow == *evidence.workflows[plan.workflow].name();
                    if !is_same || (plan.key.is_none() && *run != plan.id) {
                        violate(format!("start {plan} was answered with {:?}", file.run));
                    }
                }
            },
            Reply::Refused => {
                if runs.contains_key(&plan.id) {
                    violate(format!("run {} was refused and exists", plan.id));
                }
            }
            Reply::Unknown => {}
        }
    }
    let truth = evidence.world.truth.lock();
    let children: BTreeSet<RunId> = truth.functions.children().map(|(_, run, _)| run).collect();
    let undo = |file: &RunFile| RunId::of_undo(file.run.id, file.run.round);
    let undos: BTreeSet<RunId> = evidence.files.iter().map(undo).collect();
    for run in runs.keys().filter(|run| !undos.contains(run)) {
        let is_started = ledger.starts.iter().any(|entry| entry.plan.id == *run);
        let is_scheduled = runs[run].run.metadata.contains_key(SCHEDULE_METADATA);
        if !is_started && !is_scheduled && !children.contains(run) {
            violate(format!("run {run} exists, nobody started it"));
        }
    }
}

/// G1: once faults have stopped, every run ends.
pub(super) fn every_run_has_ended(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    for file in evidence.files {
        let open: Vec<String> = file
            .tasks
            .iter()
            .filter(|task| !task.state.is_final())
            .map(|task| format!("{} is {}", task.name, task.state))
            .collect();
        if file.run.state.is_final() && open.is_empty() {
            continue;
        }
        let text = format!("run {} is {}: {}", file.run.id, file.run.state, open.join(", "));
        violations.push(Violation { promise: "G1 every run ends", text });
    }
}

/// G12: every answer to a key names the same run, and another input is refused.
pub(super) fn one_run_per_key(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let mut violate = |text| violations.push(Violation { promise: KEYS, text });
    let mut by_key = BTreeMap::new();
    for file in evidence.files {
        let Some(key) = &file.run.key else { continue };
        let name = (file.run.tenant.as_str(), file.run.workflow.as_str(), key.as_str());
        if let Some(other) = by_key.insert(name, file) {
            violate(format!("{name:?} has runs {} and {}", other.run.id, file.run.id));
        }
    }
    let ledger = evidence.world.clients.lock();
    for StartEntry { plan, reply } in &ledger.starts {
        let Some(key) = &plan.key else {
            if *reply == Reply::Refused {
                violate(format!("{plan} was refused, it has no key"));
            }
            continue;
        };
        let tenant = evidence.world.scenario.tenants[plan.tenant].name.as_str();
        let name = (tenant, evidence.workflows[plan.workflow].name().as_str(), key.as_str());
        let Some(file) = by_key.get(&name) else { continue };
        let is_same_input = has_input(file, plan);
        let is_right = match reply {
            Reply::Acknowledged(run) => *run == file.run.id && is_same_input,
            Reply::Refused => !is_same_input,
            Reply::Unknown => true,
        };
        if !is_right {
            let (id, input) = (file.run.id, &file.run.input);
            violate(format!("{plan} was answered {reply:?}, the run is {id} with input {input:?}"));
        }
    }
}

/// G1: a cancellation or a retry that was acknowledged has happened.
pub(super) fn acknowledged_commands_hold(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let mut violate = |text| violations.push(Violation { promise: LOST, text });
    let runs = evidence.by_id();
    let ledger = evidence.world.clients.lock();
    for run in &ledger.cancelled {
        let state = runs.get(run).map(|file| file.run.state);
        if state != Some(RunState::Cancelled) {
            violate(format!("run {run} was cancelled and is {state:?}"));
        }
    }
    for (run, by) in &ledger.undone {
        if !runs.contains_key(by) {
            violate(format!("run {run} is undone by run {by}, which does not exist"));
        }
    }
    for (run, round) in &ledger.retried {
        let reached = runs.get(run).map(|file| file.run.round);
        if reached.is_none_or(|reached| reached < *round) {
            violate(format!("round {round} of run {run} was acknowledged, it is in {reached:?}"));
        }
    }
}
