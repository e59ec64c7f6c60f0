//! The promises, checked on everything that is known at the end of a seed.
//!
//! One function per promise. What a single history can show (G2 to G4, G7 to G9,
//! G11) is checked by `windlass::testing::invariants`; here histories are compared
//! with each other and with what handlers, clients and the store's own gate wrote
//! down.

mod breakers;
mod ends;
mod fairness;
mod functions;
mod lanes;
mod ledgers;
mod meters;
mod schedules;
mod times;
mod undos;

use std::collections::BTreeMap;

use windlass::testing::invariants::{Violation, check_run};
use windlass::{Definition, Event, RunId, Timestamp, Workflow};
use windlass_core::{TaskEvent, TaskIndex};

use crate::input::Input;
use crate::scenario::WorkflowPlan;
use crate::seed::{MadeSchedule, RunFile};
use crate::world::World;

/// All that is known at the end.
pub(crate) struct Evidence<'a> {
    /// The notes of everyone.
    pub(crate) world: &'a World,
    /// The workflows, in the order of the scenario.
    pub(crate) workflows: &'a [Workflow<Input>],
    /// The workflows that undo them, in the same order.
    pub(crate) undos: &'a [Definition],
    /// Every run.
    pub(crate) files: &'a [RunFile],
    /// The schedules that were made.
    pub(crate) schedules: &'a [MadeSchedule],
    /// When the faults had stopped and every workflow had a worker and every duty
    /// someone to do it.
    pub(crate) staffed_at: Timestamp,
}

impl Evidence<'_> {
    /// Checks every promise.
    pub(crate) fn check(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        let checks: [fn(&Evidence<'_>, &mut Vec<Violation>); 26] = [
            ends::acknowledged_starts_exist,
            ends::every_run_has_ended,
            ends::one_run_per_key,
            ends::acknowledged_commands_hold,
            histories,
            ledgers::completions_are_handlers_own,
            ledgers::handlers_are_called_once_per_fence,
            ledgers::what_is_handed_back_was_not_run,
            ledgers::attempts_are_used_up_before_a_task_fails,
            ledgers::unknown_work_is_left_alone,
            times::recovery_is_bounded,
            times::unheard_claims_come_back,
            times::retries_keep_their_pause,
            times::duties_go_on,
            times::timers_are_not_late,
            times::drained_workers_keep_their_leases,
            fairness::turns_are_bounded,
            functions::children_exist,
            functions::cancelled_runs_leave_no_child,
            lanes::slots_are_kept_and_given_in_order,
            meters::limits_in_a_time_are_kept,
            times::deadlines_are_kept,
            undos::what_did_not_succeed_is_undone,
            undos::steps_are_undone_once_and_in_reverse,
            schedules::each_nominal_time_has_one_run,
            schedules::runs_overlap_as_it_is_said,
        ];
        for check in checks {
            check(self, &mut violations);
        }
        violations
    }

    /// The definition of a run.
    fn definition(&self, file: &RunFile) -> Option<&Definition> {
        let workflows = self.workflows.iter().map(|workflow| &**workflow.definition());
        let is_same = |definition: &&Definition| {
            *definition.name() == file.run.workflow && definition.version() == file.run.version
        };
        workflows.chain(self.undos).find(is_same)
    }

    /// Whether a task is a durable function.
    fn is_function(&self, file: &RunFile, task: TaskIndex) -> bool {
        let plans = self.world.scenario.workflows.iter();
        let is_same = |plan: &&WorkflowPlan| {
            *plan.name == *file.run.workflow.as_str() && plan.version == file.run.version.get()
        };
        let plan = plans.into_iter().find(is_same);
        plan.is_some_and(|plan| !plan.tasks[task.as_usize()].program.is_empty())
    }

    /// Every event of a task, with its run.
    fn task_events(&self) -> impl Iterator<Item = (&RunFile, &Event, &TaskEvent)> {
        let events = self.files.iter().flat_map(|file| file.events.iter().map(move |e| (file, e)));
        events.filter_map(|(file, event)| Some((file, event, event.task()?)))
    }

    fn by_id(&self) -> BTreeMap<RunId, &RunFile> {
        self.files.iter().map(|file| (file.run.id, file)).collect()
    }
}

/// G2 to G4, G7 to G9 and G11, run by run.
fn histories(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    for file in evidence.files {
        let Some(definition) = evidence.definition(file) else {
            let text = format!("run {} is of {:?}, unknown", file.run.id, file.run.workflow);
            violations.push(Violation { promise: "G1 nothing is made up", text });
            continue;
        };
        violations.extend(check_run(definition, &file.run, &file.tasks, &file.events));
    }
}
