//! Limits on how many tasks are under way at once, and on how many in a time.

use std::time::Duration;

use windlass::{Limit, WhenFull};

use super::shapes::{TaskPlan, WorkKind, WorkflowPlan};
use crate::dice::Dice;
use crate::input::Input;

/// The longest time that a limit lets who is first wait, if nothing else happens.
pub(crate) const LIMIT_WAIT_MAX: Duration = Duration::from_secs(8);

/// What a limit bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// So many at once.
    Slots(u32),
    /// So many a second, and so many at once after a pause.
    Rate(u32, u32),
    /// The last one, once there was quiet for so many milliseconds, or put off for so many.
    Debounce(u64, u64),
    /// Nothing for so many milliseconds once so many attempts have ended and half of them failed.
    Breaker(u64, u32),
}

/// A limit of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitPlan {
    /// Its name, if it is shared with other tasks.
    name: Option<&'static str>,
    /// What it bounds.
    kind: Kind,
    /// Whether each key of inputs has a lane of its own.
    has_keys: bool,
    /// Whether all tenants share the lanes.
    is_shared: bool,
    /// What becomes of who finds no room.
    when_full: WhenFull,
    /// Whether a task that failed for good keeps its slots.
    halts: bool,
}

impl LimitPlan {
    const fn new(name: Option<&'static str>, kind: Kind, has_keys: bool, is_shared: bool) -> Self {
        let when_full = WhenFull::Wait;
        LimitPlan { name, kind, has_keys, is_shared, when_full, halts: false }
    }

    const fn named(name: &'static str, slots: u32, has_keys: bool, is_shared: bool) -> Self {
        LimitPlan::new(Some(name), Kind::Slots(slots), has_keys, is_shared)
    }

    const fn own(has_keys: bool) -> Self {
        LimitPlan::new(None, Kind::Slots(1), has_keys, false)
    }

    const fn metered(name: &'static str, kind: Kind, has_keys: bool) -> Self {
        LimitPlan::new(Some(name), kind, has_keys, true)
    }

    /// Of which the newest stay.
    const fn newest(name: &'static str, slots: u32) -> Self {
        let limit = LimitPlan::named(name, slots, true, true);
        LimitPlan { when_full: WhenFull::CancelOldest, ..limit }
    }

    /// A stream that what fails halts.
    const fn halted(name: Option<&'static str>) -> Self {
        LimitPlan { halts: true, ..LimitPlan::new(name, Kind::Slots(1), true, true) }
    }

    /// Whether who finds no room may be skipped.
    fn may_skip(self) -> bool {
        match self.kind {
            Kind::Slots(_) => self.when_full == WhenFull::Wait,
            Kind::Rate(..) | Kind::Breaker(..) => true,
            Kind::Debounce(..) => false,
        }
    }

    /// How many are at work at once.
    pub(crate) fn slots(self) -> Option<usize> {
        match self.kind {
            Kind::Slots(slots) => Some(slots as usize),
            Kind::Rate(..) | Kind::Debounce(..) | Kind::Breaker(..) => None,
        }
    }

    /// As the builders take it.
    pub(crate) fn limit(self) -> Limit {
        let limit = match self.kind {
            Kind::Slots(slots) => Limit::of(slots),
            Kind::Rate(count, burst) => Limit::rate(count, Duration::from_secs(1)).burst(burst),
            Kind::Debounce(quiet, at_most) => {
                let quiet = Limit::debounce(Duration::from_millis(quiet));
                quiet.at_most(Duration::from_millis(at_most))
            }
            Kind::Breaker(pause, calls) => Limit::breaker(50)
                .calls(calls)
                .window(BREAKER_WINDOW)
                .pause(Duration::from_millis(pause)),
        };
        let limit = if self.has_keys { limit.by("key") } else { limit };
        let limit = if self.is_shared { limit.across_tenants() } else { limit };
        let limit = if self.halts { limit.halt() } else { limit };
        let limit = limit.when_full(self.when_full);
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

/// How long attempts are counted together.
const BREAKER_WINDOW: Duration = Duration::from_secs(20);

/// The share of the scenarios with limits in which some are of time, or cancel or halt.
const OF_TIME: f64 = 0.6;

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

const RATES: [LimitPlan; 4] = [
    LimitPlan::metered("two a second", Kind::Rate(2, 1), false),
    LimitPlan::metered("five at once by key", Kind::Rate(1, 5), true),
    LimitPlan::metered("ten a second", Kind::Rate(10, 3), false),
    LimitPlan::new(None, Kind::Rate(1, 2), true, false),
];
const BREAKERS: [LimitPlan; 3] = [
    LimitPlan::metered("breaker", Kind::Breaker(3_000, 3), false),
    LimitPlan::metered("breaker by key", Kind::Breaker(800, 1), true),
    OWN_BREAKER,
];
/// The others wait until the one that tries has ended: it must not wait for one of them.
const OWN_BREAKER: LimitPlan = LimitPlan::new(None, Kind::Breaker(6_000, 2), false, true);
/// Whoever is put off by others, or halted, must not be waited for by others.
const ONLY_OF_TASKS: [LimitPlan; 6] = [
    LimitPlan::metered("quiet by key", Kind::Debounce(900, 4_000), true),
    LimitPlan::metered("long quiet", Kind::Debounce(3_000, 8_000), false),
    LimitPlan::newest("the newest", 1),
    LimitPlan::newest("the newest two", 2),
    LimitPlan::halted(Some("halted by key")),
    LimitPlan::halted(None),
];

/// Limits some of the tasks.
pub(super) fn set(dice: &mut Dice, workflows: &mut [WorkflowPlan]) {
    let often = dice.pick(&[0.2, 0.6, 1.0]);
    let of_time = if dice.chance(OF_TIME) { dice.pick(&[0.3, 0.7, 1.0]) } else { 0.0 };
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
            let is_plain = !is_leaf && task.program.is_empty();
            let mut draw = || match dice.count(0..=3) {
                _ if !dice.chance(of_time) => dice.pick(choices),
                0 => dice.pick(&RATES),
                1 if is_plain => dice.pick(&BREAKERS),
                1 => OWN_BREAKER,
                _ if is_plain => dice.pick(&ONLY_OF_TASKS),
                _ => dice.pick(choices),
            };
            let (first, other) = (draw(), draw());
            task.limits.push(first);
            if dice.chance(0.15) && first.name != other.name {
                task.limits.push(other);
            }
            for limit in &mut task.limits {
                // Who waits for a function wants what it gives.
                if dice.chance(0.12) && !is_leaf && limit.may_skip() {
                    limit.when_full = WhenFull::Skip;
                }
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
