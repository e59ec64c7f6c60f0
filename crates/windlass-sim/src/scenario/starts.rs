//! What the clients of a scenario do.

use std::fmt;
use std::time::Duration;

use windlass::RunId;

use super::programs::{SignalPlan, signals};
use super::{DELAY_MAX, WorkflowPlan};
use crate::dice::Dice;
use crate::world::EPOCH;

/// A run to start, and what is done to it afterwards.
#[derive(Clone, Debug)]
pub(crate) struct StartPlan {
    /// The id the client chose for it.
    pub(crate) id: RunId,
    /// When it is started.
    pub(crate) at: Duration,
    /// The place of the workflow in the scenario.
    pub(crate) workflow: usize,
    /// The place of the tenant in the scenario.
    pub(crate) tenant: usize,
    /// The input.
    pub(crate) input: u64,
    /// The idempotency key, if it has one.
    pub(crate) key: Option<String>,
    /// How long its first tasks wait.
    pub(crate) delay: Duration,
    /// Its priority.
    pub(crate) priority: i16,
    /// How often the client repeats the start when the outcome is unknown.
    pub(crate) tries: usize,
    /// How long after the start it is cancelled, if at all.
    pub(crate) cancel_after: Option<Duration>,
    /// How long after the start its client begins to retry it if it failed, if at
    /// all.
    pub(crate) retry_after: Option<Duration>,
    /// How long after the start it is undone if it has ended, if at all.
    pub(crate) undo_after: Option<Duration>,
    /// The signals that it is sent.
    pub(crate) signals: Vec<SignalPlan>,
}

/// Someone who sees to all dead letters that there are at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperatorPlan {
    /// What the action is called by.
    pub(crate) id: u128,
    /// When.
    pub(crate) at: Duration,
    /// Whether their runs go on; otherwise they are discarded.
    pub(crate) redrives: bool,
    /// How many runs begin in a second, if that matters.
    pub(crate) per_second: Option<u32>,
}

/// Someone who sees to dead letters now and then.
pub(super) fn operators(dice: &mut Dice, horizon: Duration) -> Vec<OperatorPlan> {
    let count = dice.count(0..=6);
    let plan = |_| OperatorPlan {
        id: dice.large_number(),
        at: dice.up_to(horizon),
        redrives: dice.chance(0.7),
        per_second: dice.chance(0.4).then(|| dice.pick(&[1, 5, 50])),
    };
    (0..count).map(plan).collect()
}

fn plain(dice: &mut Dice, at: Duration) -> StartPlan {
    StartPlan {
        id: RunId::from_parts(EPOCH + at, dice.large_number()),
        at,
        workflow: 0,
        tenant: 0,
        input: dice.number() % 1_000,
        key: None,
        delay: Duration::ZERO,
        priority: 0,
        tries: dice.count(2..=8),
        cancel_after: None,
        retry_after: None,
        undo_after: None,
        signals: Vec::new(),
    }
}

/// Starts of all workflows by all tenants over most of the time until `horizon`.
pub(super) fn mixed(
    dice: &mut Dice,
    workflows: &[WorkflowPlan],
    tenants: usize,
    horizon: Duration,
) -> Vec<StartPlan> {
    let mut starts = Vec::new();
    let has_priorities = dice.chance(0.3);
    let count = if dice.chance(0.1) { dice.count(25..=60) } else { dice.count(3..=25) };
    for _ in 0..count {
        let at = dice.up_to(horizon * 3 / 4);
        let mut start = plain(dice, at);
        start.workflow = dice.count(0..=workflows.len() - 1);
        start.tenant = dice.count(0..=tenants - 1);
        start.delay = if dice.chance(0.2) { dice.up_to(DELAY_MAX) } else { Duration::ZERO };
        start.priority = if has_priorities { dice.pick(&[-5, 0, 0, 5]) } else { 0 };
        start.cancel_after = dice.chance(0.12).then(|| dice.millis(0..=15_000));
        start.retry_after = dice.chance(0.4).then(|| dice.millis(1_000..=20_000));
        if dice.chance(0.2) {
            start.key = Some(format!("key-{}", dice.count(0..=999)));
            starts.extend(competitors(dice, &start, horizon));
        }
        starts.push(start);
    }
    starts
}

/// Other clients that start the same thing under the same key, some of them
/// believing it to be something else.
fn competitors(dice: &mut Dice, start: &StartPlan, horizon: Duration) -> Vec<StartPlan> {
    let mut others = Vec::new();
    for _ in 0..dice.count(0..=3) {
        let pause = if dice.chance(0.5) { Duration::ZERO } else { dice.millis(1..=10_000) };
        let at = (start.at + pause).min(horizon);
        let input = if dice.chance(0.3) { start.input + 1 } else { start.input };
        let id = if input == start.input && dice.chance(0.3) {
            start.id
        } else {
            RunId::from_parts(EPOCH + at, dice.large_number())
        };
        others.push(StartPlan { id, at, input, cancel_after: None, ..start.clone() });
    }
    others
}

/// Starts of durable functions, with the signals that they are sent.
pub(super) fn of_functions(
    dice: &mut Dice,
    workflows: &[WorkflowPlan],
    tenants: usize,
    horizon: Duration,
) -> Vec<StartPlan> {
    let is_function = |plan: &WorkflowPlan| plan.tasks.iter().any(|t| !t.program.is_empty());
    let functions: Vec<usize> =
        (0..workflows.len()).filter(|place| is_function(&workflows[*place])).collect();
    // Sometimes many of one kind come together, and wait for the same keys at once.
    let crowd = dice.chance(0.25).then(|| (dice.up_to(horizon / 2), dice.pick(&functions)));
    let count = if crowd.is_some() { dice.count(4..=9) } else { dice.count(1..=6) };
    let start = |_| {
        let alone = (dice.up_to(horizon * 2 / 3), dice.pick(&functions));
        let (at, workflow) = crowd.map_or(alone, |(at, it)| (at + dice.millis(0..=500), it));
        // Most of one, so that they wait for the same keys.
        let is_of_one = crowd.is_some() || dice.chance(0.6);
        StartPlan {
            workflow,
            tenant: if is_of_one { 0 } else { dice.count(0..=tenants - 1) },
            cancel_after: dice.chance(0.15).then(|| dice.millis(0..=15_000)),
            retry_after: dice.chance(0.8).then(|| dice.millis(1_000..=10_000)),
            undo_after: dice.chance(0.15).then(|| dice.millis(5_000..=40_000)),
            signals: signals(dice),
            ..plain(dice, at)
        }
    };
    (0..count).map(start).collect()
}

/// One tenant starts much at once; the others come while it waits.
pub(super) fn backlog(dice: &mut Dice, tenants: usize, horizon: Duration) -> Vec<StartPlan> {
    let backlog = dice.count(25..=50);
    let mut starts: Vec<StartPlan> = (0..backlog).map(|_| plain(dice, Duration::ZERO)).collect();
    for tenant in 1..tenants {
        let at = dice.up_to(horizon.min(Duration::from_secs(8)));
        for _ in 0..dice.count(1..=8) {
            starts.push(StartPlan { tenant, ..plain(dice, at) });
        }
    }
    starts
}

impl fmt::Display for StartPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StartPlan { id, at, workflow, tenant, input, .. } = self;
        write!(f, "at {at:?} start {id}: workflow {workflow} tenant {tenant} input {input}")?;
        if let Some(key) = &self.key {
            write!(f, " key {key}")?;
        }
        if !self.delay.is_zero() {
            write!(f, " delay {:?}", self.delay)?;
        }
        if let Some(after) = self.cancel_after {
            write!(f, ", cancel after {after:?}")?;
        }
        if let Some(after) = self.retry_after {
            write!(f, ", retry after {after:?}")?;
        }
        if let Some(after) = self.undo_after {
            write!(f, ", undo after {after:?}")?;
        }
        Ok(())
    }
}
