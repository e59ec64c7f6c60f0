//! Schedules that fire while the faults last.

use std::time::Duration;

use windlass::schedule::{Missed, Overlap};
use windlass_core::schedule::MISSED_MAX;

use super::WorkflowPlan;
use crate::dice::Dice;

/// The longest interval of a schedule.
const INTERVAL_MAX: Duration = Duration::from_secs(9);

/// The longest of one that a cron expression says: up to here, all divide a minute.
const CRON_MAX: Duration = Duration::from_secs(6);

/// A schedule of a workflow that ends by itself.
#[derive(Clone, Debug)]
pub(crate) struct SchedulePlan {
    /// What it is called.
    pub(crate) name: String,
    /// The workflow, as a place in the scenario.
    pub(crate) workflow: usize,
    /// Whose it is, as a place in the scenario.
    pub(crate) tenant: usize,
    /// How often it fires, at multiples of that since 1970.
    pub(crate) interval: Duration,
    /// Whether a cron expression says so.
    pub(crate) is_cron: bool,
    /// What is done with times that were missed.
    pub(crate) missed: Missed,
    /// What is done while a run is not over.
    pub(crate) overlap: Overlap,
    /// How long after it was made it is paused, and for how long.
    pub(crate) rest: Option<(Duration, Duration)>,
    /// How often someone starts a run of it by hand.
    pub(crate) triggers: usize,
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
        let lasts = (horizon - at).mul_f64(0.8);
        let is_cron = dice.chance(0.5);
        let most = if is_cron { CRON_MAX } else { INTERVAL_MAX };
        let missed = match dice.chance(0.6) {
            true => Missed::All(MISSED_MAX),
            false => dice.pick(&[Missed::Skip, Missed::Once]),
        };
        let overlap = match dice.chance(0.5) {
            true => Overlap::Allow,
            false => dice.pick(&[Overlap::Skip, Overlap::Queue, Overlap::CancelRunning]),
        };
        let rests = dice.chance(0.3);
        SchedulePlan {
            name: format!("schedule-{number}"),
            workflow: dice.pick(&simple),
            tenant: dice.count(0..=tenants - 1),
            interval: Duration::from_secs(dice.count(1..=most.as_secs() as usize) as u64),
            is_cron,
            missed,
            overlap,
            rest: rests.then(|| (dice.up_to(lasts / 2), dice.up_to(lasts / 4))),
            triggers: if dice.chance(0.3) { dice.count(1..=2) } else { 0 },
            jitter: if dice.chance(0.3) { dice.millis(1..=3_000) } else { Duration::ZERO },
            input: dice.count(0..=1_000_000) as u64,
            at,
            lasts,
        }
    };
    let count = if horizon > Duration::from_secs(60) { 1 } else { 2 };
    (0..count).map(&mut plan).collect()
}
