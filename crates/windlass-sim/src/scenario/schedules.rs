//! Schedules that fire while the faults last.

use std::time::Duration;

use super::WorkflowPlan;
use crate::dice::Dice;

/// The longest interval of a schedule.
const INTERVAL_MAX: Duration = Duration::from_secs(9);

/// A schedule of a workflow that ends by itself.
#[derive(Clone, Debug)]
pub(crate) struct SchedulePlan {
    /// What it is called.
    pub(crate) name: String,
    /// The workflow, as a place in the scenario.
    pub(crate) workflow: usize,
    /// Whose it is, as a place in the scenario.
    pub(crate) tenant: usize,
    /// How often it fires.
    pub(crate) interval: Duration,
    /// Up to how much later each time is served.
    pub(crate) jitter: Duration,
    /// The input of its runs.
    pub(crate) input: u64,
    /// When it is made.
    pub(crate) at: Duration,
    /// How long after that it ends.
    pub(crate) lasts: Duration,
}

/// Draws schedules of workflows that wait for nobody.
pub(super) fn draw(
    dice: &mut Dice,
    workflows: &[WorkflowPlan],
    tenants: usize,
    horizon: Duration,
) -> Vec<SchedulePlan> {
    let is_simple = |plan: &WorkflowPlan| plan.tasks.iter().all(|task| task.program.is_empty());
    let simple: Vec<usize> =
        (0..workflows.len()).filter(|place| is_simple(&workflows[*place])).collect();
    if simple.is_empty() {
        return Vec::new();
    }
    let mut plan = |number: usize| {
        let at = dice.up_to(horizon / 4);
        SchedulePlan {
            name: format!("schedule-{number}"),
            workflow: dice.pick(&simple),
            tenant: dice.count(0..=tenants - 1),
            interval: Duration::from_secs(dice.count(1..=INTERVAL_MAX.as_secs() as usize) as u64),
            jitter: if dice.chance(0.3) { dice.millis(1..=3_000) } else { Duration::ZERO },
            input: dice.count(0..=1_000_000) as u64,
            at,
            lasts: (horizon - at).mul_f64(0.8),
        }
    };
    let count = if horizon > Duration::from_secs(60) { 1 } else { 2 };
    (0..count).map(&mut plan).collect()
}
