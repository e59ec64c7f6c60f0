//! Limits on how many tasks are under way at once.

use windlass::{Limit, WhenFull};

use super::shapes::{TaskPlan, WorkKind, WorkflowPlan};
use crate::dice::Dice;
use crate::input::Input;

/// A limit of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitPlan {
    /// Its name, if it is shared with other tasks.
    name: Option<&'static str>,
    /// How many at once.
    pub(crate) slots: u32,
    /// Whether each key of inputs has a lane of its own.
    has_keys: bool,
    /// Whether all tenants share the lanes.
    is_shared: bool,
    /// Whether who finds no slot is skipped.
    is_skipped: bool,
}

impl LimitPlan {
    const fn named(name: &'static str, slots: u32, has_keys: bool, is_shared: bool) -> Self {
        LimitPlan { name: Some(name), slots, has_keys, is_shared, is_skipped: false }
    }

    const fn own(has_keys: bool) -> Self {
        LimitPlan { name: None, slots: 1, has_keys, is_shared: false, is_skipped: false }
    }

    /// As the builders take it.
    pub(crate) fn limit(self) -> Limit {
        let limit = match self.has_keys {
            true => Limit::per("key", self.slots),
            false => Limit::of(self.slots),
        };
        let limit = if self.is_shared { limit.across_tenants() } else { limit };
        let when_full = if self.is_skipped { WhenFull::Skip } else { WhenFull::Wait };
        let limit = limit.when_full(when_full);
        match self.name {
            Some(name) => limit.named(name),
            None => limit,
        }
    }

    /// The lane of a task with this name and input.
    pub(crate) fn lane(self, task: &str, tenant: &str, input: Input) -> String {
        let tenant = if self.is_shared { "" } else { tenant };
        let key = if self.has_keys { input.key().to_string() } else { String::new() };
        format!("{}/{tenant}/{key}", self.name.unwrap_or(task))
    }
}

/// Who waits for others must not have what they wait for: functions that start others, those
/// that they start, and tasks have limits of their own.
const OF_FUNCTIONS: [LimitPlan; 4] = [
    LimitPlan::named("callers by key", 1, true, false),
    LimitPlan::named("all callers", 2, false, true),
    LimitPlan::own(true),
    LimitPlan::own(false),
];
const OF_LEAVES: [LimitPlan; 3] = [
    LimitPlan::named("leaves by key", 1, true, true),
    LimitPlan::named("all leaves", 3, false, true),
    LimitPlan::own(true),
];
const OF_TASKS: [LimitPlan; 5] = [
    LimitPlan::named("tasks by key", 1, true, false),
    LimitPlan::named("tasks of all by key", 1, true, true),
    LimitPlan::named("all tasks", 2, false, true),
    LimitPlan::own(true),
    LimitPlan::own(false),
];

/// Limits some of the tasks.
pub(super) fn set(dice: &mut Dice, workflows: &mut [WorkflowPlan]) {
    let often = dice.pick(&[0.2, 0.6, 1.0]);
    for workflow in workflows {
        let is_leaf = workflow.is_leaf;
        for task in workflow.tasks.iter_mut().filter(|task| has_handler(task)) {
            let choices: &[LimitPlan] = match (is_leaf, task.program.is_empty()) {
                (true, _) => &OF_LEAVES,
                (false, false) => &OF_FUNCTIONS,
                (false, true) => &OF_TASKS,
            };
            if !dice.chance(often) {
                continue;
            }
            task.limits.push(dice.pick(choices));
            let other = dice.pick(choices);
            if dice.chance(0.15) && task.limits.iter().all(|limit| limit.name != other.name) {
                task.limits.push(other);
            }
            for limit in &mut task.limits {
                // Who waits for a function wants what it gives.
                limit.is_skipped = dice.chance(0.12) && !is_leaf;
            }
        }
    }
}

fn has_handler(task: &TaskPlan) -> bool {
    match task.kind {
        WorkKind::Handler => true,
        WorkKind::Sleep(_) | WorkKind::OnFailure => false,
    }
}
