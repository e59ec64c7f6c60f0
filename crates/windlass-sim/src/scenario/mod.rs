//! What a seed stands for: workflows, tenants, starts, workers and how bad the
//! world is to them.
//!
//! A scenario is only a plan. Faults are drawn as the simulation goes, from
//! another stream of the same seed.

mod duties;
mod limits;
mod programs;
mod schedules;
mod shapes;
mod starts;

use std::fmt;
use std::time::Duration;

pub(crate) use duties::{DUTY_TAKES_MAX, DutyPlan};
pub(crate) use limits::{LIMIT_WAIT_MAX, LimitPlan};
pub(crate) use programs::{
    DEFERRED, KEY_SIGNAL, KeySignalPlan, Part, RESULT_BITS, SignalPlan, child_input, key_answer,
    label, step_value, undoable_name, value,
};
pub(crate) use schedules::SchedulePlan;
pub(crate) use shapes::{TaskPlan, WorkKind, WorkflowPlan};
pub(crate) use starts::{OperatorPlan, StartPlan};

use crate::dice::Dice;
use crate::faults::{FaultPlan, Verb};

/// The longest lease of a worker.
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(6);
/// The longest time between two sweeps of the background duties.
pub(crate) const DUTY_INTERVAL_MAX: Duration = Duration::from_secs(3);
/// The longest time to live of a leader of the background duties.
pub(crate) const LEADER_TTL_MAX: Duration = Duration::from_secs(5);
/// The longest time between two looks of an idle worker.
pub(crate) const POLL_MAX: Duration = Duration::from_secs(5);
/// The longest pause between two attempts.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(15);
/// The longest sleep of a workflow.
pub(crate) const SLEEP_MAX: Duration = Duration::from_secs(20);
/// The longest delay of a start.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(15);
/// The longest time a handler takes: several leases.
pub(crate) const HANDLER_MAX: Duration = Duration::from_secs(18);

/// The share of the scenarios with durable functions in them.
const FUNCTIONS: f64 = 0.6;

/// The share of the scenarios in which some tasks have limits.
const LIMITS: f64 = 0.45;

/// The share of the scenarios with schedules.
const SCHEDULES: f64 = 0.3;

/// The share of the scenarios with duties of the program.
const DUTIES: f64 = 0.3;

/// The share of the scenarios in which some workflows have deadlines.
const DEADLINES: f64 = 0.3;

/// How long at most nothing may happen once the faults have stopped and a run is
/// not over (G1): every wait of the design at its longest, one after the other.
pub(crate) fn quiet_max() -> Duration {
    let waits = [LEASE_MAX, DUTY_INTERVAL_MAX, POLL_MAX, BACKOFF_MAX, SLEEP_MAX, HANDLER_MAX];
    let others = DELAY_MAX + LEADER_TTL_MAX + LIMIT_WAIT_MAX;
    waits.iter().sum::<Duration>() + others + Duration::from_secs(10)
}

/// What a scenario is made to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// A little of everything.
    Mixed,
    /// One tenant has a long backlog when others arrive, and there are few slots.
    Backlog,
    /// Processes die all the time, within milliseconds of their start and of each
    /// other.
    Storm,
}

/// Each style as often as it is drawn.
const STYLES: [Style; 8] = [
    Style::Mixed,
    Style::Mixed,
    Style::Mixed,
    Style::Mixed,
    Style::Mixed,
    Style::Backlog,
    Style::Backlog,
    Style::Storm,
];

/// Whose runs there are, and with which share.
#[derive(Clone, Debug)]
pub(crate) struct TenantPlan {
    /// The tenant's name.
    pub(crate) name: String,
    /// Its share relative to the others'.
    pub(crate) weight: u16,
}

/// How handlers behave: the probabilities of what an attempt does, the rest is
/// success.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Temper {
    /// Returns an error that is worth another attempt.
    pub(crate) fails: f64,
    /// Returns an error that is not.
    pub(crate) fails_for_good: f64,
    /// Panics.
    pub(crate) panics: f64,
    /// Takes seconds, up to several leases.
    pub(crate) is_slow: f64,
    /// Takes longer than its timeout, if it has one.
    pub(crate) overstays: f64,
    /// Waits until it is cancelled, if it has a timeout.
    pub(crate) awaits_cancel: f64,
}

/// Everything that is decided before the simulation begins.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// Where it comes from.
    pub(crate) seed: u64,
    /// What it is made to show.
    pub(crate) style: Style,
    /// When the faults stop, and the clients with them.
    pub(crate) horizon: Duration,
    /// Every version of every workflow.
    pub(crate) workflows: Vec<WorkflowPlan>,
    /// The tenants.
    pub(crate) tenants: Vec<TenantPlan>,
    /// What the clients do.
    pub(crate) starts: Vec<StartPlan>,
    /// What is sent to keys.
    pub(crate) key_signals: Vec<KeySignalPlan>,
    /// What is done about dead letters.
    pub(crate) operators: Vec<OperatorPlan>,
    /// What starts runs by itself.
    pub(crate) schedules: Vec<SchedulePlan>,
    /// What processes do by turns.
    pub(crate) duties: Vec<DutyPlan>,
    /// How many worker processes there are at a time.
    pub(crate) posts: usize,
    /// The most slots of a worker.
    pub(crate) slots_max: usize,
    /// Whether some workers know only some of the workflows.
    pub(crate) is_rolling: bool,
    /// How often a worker process meets with violence: the mean time between.
    pub(crate) peace: Duration,
    /// How the handlers behave.
    pub(crate) temper: Temper,
    /// What happens on the way to the store.
    pub(crate) faults: FaultPlan,
}

impl Scenario {
    /// The scenario of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "scenario");
        let style = dice.pick(&STYLES);
        let horizon = match style {
            Style::Mixed if dice.chance(0.15) => dice.millis(60_000..=180_000),
            Style::Mixed | Style::Backlog | Style::Storm => dice.millis(15_000..=60_000),
        };
        let mut workflows = match style {
            Style::Mixed | Style::Storm => shapes::mixed(&mut dice),
            Style::Backlog => vec![shapes::single_task()],
        };
        let tenants = tenants(&mut dice);
        let mut starts = match style {
            Style::Mixed | Style::Storm => {
                starts::mixed(&mut dice, &workflows, tenants.len(), horizon)
            }
            Style::Backlog => starts::backlog(&mut dice, tenants.len(), horizon),
        };
        let mut functions = Dice::new(seed, "functions");
        let has_functions = style != Style::Backlog && functions.chance(FUNCTIONS);
        let mut key_signals = Vec::new();
        if has_functions {
            key_signals = programs::key_signals(&mut functions, tenants.len(), horizon);
            programs::draw(&mut functions, &mut workflows);
            let calls = starts::of_functions(&mut functions, &workflows, tenants.len(), horizon);
            starts.extend(calls);
        }
        let mut deadlines = Dice::new(seed, "deadlines");
        if style != Style::Backlog && deadlines.chance(DEADLINES) {
            shapes::set_deadlines(&mut deadlines, &mut workflows);
        }
        let mut limits = Dice::new(seed, "limits");
        let mut operators = Vec::new();
        if limits.chance(LIMITS) {
            limits::set(&mut limits, &mut workflows);
            operators = starts::operators(&mut limits, horizon);
        }
        let mut times = Dice::new(seed, "schedules");
        let schedules = match style != Style::Backlog && times.chance(SCHEDULES) {
            true => schedules::draw(&mut times, &workflows, tenants.len(), horizon),
            false => Vec::new(),
        };
        let mut turns = Dice::new(seed, "duties");
        let duties = if turns.chance(DUTIES) { duties::draw(&mut turns) } else { Vec::new() };
        let (posts_max, slots_max, peace) = match style {
            Style::Mixed => (5, dice.pick(&[1, 3, 5, 20]), dice.pick(&[4_000, 10_000, 25_000])),
            Style::Backlog => (2, 2, dice.pick(&[4_000, 10_000, 25_000])),
            Style::Storm => (5, 5, dice.pick(&[50, 300, 1_000])),
        };
        let mut scenario = Scenario {
            seed,
            style,
            horizon,
            posts: dice.count(1..=posts_max),
            slots_max: dice.count(1..=slots_max),
            is_rolling: style != Style::Backlog && dice.chance(0.4),
            peace: Duration::from_millis(peace),
            temper: Temper::draw(&mut dice, style),
            faults: FaultPlan::draw(&mut dice, horizon),
            workflows,
            tenants,
            starts,
            key_signals,
            operators,
            schedules,
            duties,
        };
        if has_functions && functions.chance(0.5) {
            let verbs = [Verb::Record, Verb::Signal, Verb::Finish, Verb::Finish, Verb::Start];
            scenario.faults.focus = Some(functions.pick(&verbs));
        }
        scenario
    }
}

fn tenants(dice: &mut Dice) -> Vec<TenantPlan> {
    let is_weighted = dice.chance(0.3);
    let count = dice.count(2..=5);
    let tenant = |number| {
        let weight = if is_weighted { dice.pick(&[1, 1, 2, 3, 5]) } else { 1 };
        TenantPlan { name: format!("tenant-{number}"), weight }
    };
    (0..count).map(tenant).collect()
}

impl Temper {
    fn draw(dice: &mut Dice, style: Style) -> Self {
        let mut some = |choices: &[f64]| dice.pick(choices);
        match style {
            Style::Mixed | Style::Storm => Temper {
                fails: some(&[0.0, 0.05, 0.2, 0.4]),
                fails_for_good: some(&[0.0, 0.02, 0.1]),
                panics: some(&[0.0, 0.02, 0.1]),
                is_slow: some(&[0.02, 0.1, 0.25]),
                overstays: some(&[0.0, 0.1]),
                awaits_cancel: some(&[0.0, 0.1]),
            },
            Style::Backlog => Temper {
                fails: some(&[0.0, 0.1]),
                fails_for_good: 0.0,
                panics: 0.0,
                is_slow: 0.0,
                overstays: 0.0,
                awaits_cancel: 0.0,
            },
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {:?}, faults stop at {:?}", self.seed, self.style, self.horizon)?;
        writeln!(
            f,
            "{} worker processes of up to {} slots, trouble about every {:?}, {}",
            self.posts,
            self.slots_max,
            self.peace,
            if self.is_rolling { "some know only some workflows" } else { "all know everything" }
        )?;
        writeln!(f, "handlers: {:?}", self.temper)?;
        writeln!(f, "links: {:?}", self.faults)?;
        for tenant in &self.tenants {
            writeln!(f, "{} with weight {}", tenant.name, tenant.weight)?;
        }
        for workflow in &self.workflows {
            write!(f, "{workflow}")?;
        }
        for start in &self.starts {
            writeln!(f, "{start}")?;
        }
        for schedule in &self.schedules {
            writeln!(f, "{schedule:?}")?;
        }
        for duty in &self.duties {
            writeln!(f, "{duty:?}")?;
        }
        for signal in &self.key_signals {
            writeln!(f, "{signal:?}")?;
        }
        for operator in &self.operators {
            writeln!(f, "{operator:?}")?;
        }
        Ok(())
    }
}
