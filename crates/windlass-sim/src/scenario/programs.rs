//! What durable functions of a scenario do.

use std::fmt;
use std::time::Duration;

use windlass::RetryPolicy;

use super::shapes::{TaskPlan, WorkKind, WorkflowPlan, plain_task};
use super::{BACKOFF_MAX, SLEEP_MAX};
use crate::dice::{Dice, mix};

/// The bits of a step's result that say what it must be; the others say which attempt gave it.
pub(crate) const RESULT_BITS: u64 = !0xffff;

/// The names of signals.
const SIGNALS: [&str; 2] = ["go", "more"];

/// The keys that signals are sent to: few, so that functions meet there.
const KEYS: [&str; 3] = ["here", "here", "there"];

/// The name of all of those.
pub(crate) const KEY_SIGNAL: &str = "paid";

/// What a part gives that only says what undoes others.
pub(crate) const DEFERRED: u64 = 4;

/// How often a function begins afresh, as often as it is drawn.
const ROUNDS: [u64; 6] = [0, 0, 0, 0, 1, 2];

/// The name of the step with a label that says how it is undone.
pub(crate) fn undoable_name(label: u64) -> String {
    format!("undoable {label:x}")
}

/// One thing after the other.
pub(crate) type Program = Vec<Part>;

/// A part of a function.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// A step that may fail and is tried again.
    Step(RetryPolicy),
    /// A step that says how it is undone.
    Undoable(RetryPolicy),
    /// Says what is done if the run does not succeed.
    Defer,
    /// So many steps of one name.
    Loop(usize),
    /// Time passes.
    Sleep(Duration),
    /// Waits for a signal.
    Signal {
        /// Its name.
        name: &'static str,
        /// How long.
        timeout: Option<Duration>,
    },
    /// Waits for a signal to a key.
    KeySignal {
        /// The key.
        key: &'static str,
        /// How long.
        timeout: Option<Duration>,
    },
    /// A step asks someone who answers with a signal at once, and the function waits for it.
    Ask(&'static str),
    /// The same with a signal to a key, which others may take.
    AskKey(&'static str),
    /// Asks for the time.
    Time,
    /// Starts a run of the workflow at this place and waits for it.
    Run(usize),
    /// Starts runs and waits for all.
    Map {
        /// The place of the workflow.
        leaf: usize,
        /// How many.
        count: usize,
        /// How many at once.
        most: usize,
    },
    /// Starts a run and does not wait for it.
    Start(usize),
    /// All of these at once.
    Join([Program; 3]),
    /// Whichever comes first.
    Race(Box<Part>, Box<Part>),
}

/// The label of the part at a place behind a path.
pub(crate) fn label(path: u64, place: usize) -> u64 {
    mix(path, place as u64 + 1)
}

/// What the step with a label must give for an input, as far as [`RESULT_BITS`] go.
pub(crate) fn step_value(input: u64, label: u64) -> u64 {
    mix(input, label) & RESULT_BITS
}

/// The input of a child for the input of its parent.
pub(crate) fn child_input(input: u64, label: u64, place: usize) -> u64 {
    mix(mix(input, label), place as u64) % 1_000
}

/// What a program gives if nothing of it fails; `None` if that depends on more than its input.
pub(crate) fn value(program: &[Part], input: u64, path: u64) -> Option<u64> {
    program.iter().enumerate().try_fold(0, |sum, (place, part)| {
        let label = label(path, place);
        let value = match part {
            Part::Step(_) | Part::Undoable(_) => step_value(input, label),
            Part::Defer => DEFERRED,
            Part::Loop(count) => (0..*count)
                .fold(0, |sum, turn| mix(sum, step_value(input, mix(label, turn as u64)))),
            Part::Sleep(_) => 1,
            Part::Join(branches) => {
                let values = branches.iter().enumerate();
                let mut values =
                    values.map(|(one, branch)| value(branch, input, mix(label, one as u64)));
                values.try_fold(0, |sum, value| Some(mix(sum, value?)))?
            }
            Part::Signal { .. }
            | Part::KeySignal { .. }
            | Part::Ask(_)
            | Part::AskKey(_)
            | Part::Time
            | Part::Run(_)
            | Part::Map { .. }
            | Part::Start(_)
            | Part::Race(..) => return None,
        };
        Some(mix(sum, value))
    })
}

/// Functions that are added to the workflows: first those that others start, then the others.
pub(super) fn draw(dice: &mut Dice, workflows: &mut Vec<WorkflowPlan>) {
    let first = workflows.len();
    for number in 0..dice.count(1..=2) {
        // Some are over before whoever started them can wait for them.
        let program = match dice.chance(0.4) {
            true => vec![Part::Step(RetryPolicy::none())],
            false => (0..dice.count(1..=2)).map(|_| simple(dice, true)).collect(),
        };
        let task = TaskPlan { program, rounds: dice.pick(&ROUNDS), ..function(dice) };
        let name = format!("leaf-{number}");
        workflows.push(WorkflowPlan { is_leaf: true, ..WorkflowPlan::new(name, 1, vec![task]) });
    }
    let leaves: Vec<usize> = (first..workflows.len()).collect();
    for number in 0..dice.count(1..=2) {
        let count: usize = dice.pick(&[1, 1, 1, 2]);
        // Only a workflow of one task can begin afresh.
        let rounds = if count == 1 { dice.pick(&ROUNDS) } else { 0 };
        let mut tasks: Vec<TaskPlan> = Vec::new();
        for place in 0..count {
            let parts = dice.count(2..=6);
            let program = (0..parts).map(|_| part(dice, &leaves)).collect();
            let parents = place.checked_sub(1).into_iter().collect();
            tasks.push(TaskPlan { program, parents, rounds, ..function(dice) });
        }
        workflows.push(WorkflowPlan::new(format!("function-{number}"), 1, tasks));
    }
}

fn function(dice: &mut Dice) -> TaskPlan {
    let retry = RetryPolicy::fixed(dice.millis(20..=3_000)).attempts(dice.pick(&[2, 4, 6]));
    let timeout = dice.chance(0.15).then(|| dice.millis(4_000..=12_000));
    TaskPlan { kind: WorkKind::Handler, retry, timeout, ..plain_task() }
}

fn sleep(dice: &mut Dice) -> Part {
    let longest = dice.pick(&[Duration::from_millis(300), Duration::from_secs(4), SLEEP_MAX]);
    Part::Sleep(dice.up_to(longest) + Duration::from_millis(1))
}

/// A part whose result depends on the input alone.
fn simple(dice: &mut Dice, may_join: bool) -> Part {
    match dice.count(0..=9) {
        0..=4 => {
            let pause = dice.pick(&[Duration::from_millis(50), BACKOFF_MAX / 4]);
            let retry = RetryPolicy::fixed(dice.up_to(pause)).attempts(dice.pick(&[1, 2, 3]));
            match dice.count(0..=9) {
                0..=3 => Part::Undoable(retry),
                4 => Part::Defer,
                _ => Part::Step(retry),
            }
        }
        // Now and then one that is at work for long, so that others can be late.
        5..=6 => Part::Loop(dice.pick(&[2, 3, 4, 4, 25])),
        7 | 8 if may_join => {
            let mut branch = || (0..dice.count(0..=2)).map(|_| simple(dice, false)).collect();
            Part::Join([branch(), branch(), branch()])
        }
        _ => sleep(dice),
    }
}

fn signal(dice: &mut Dice) -> Part {
    let timeout = dice.chance(0.4).then(|| dice.millis(1..=15_000));
    if dice.chance(0.3) {
        return Part::KeySignal { key: dice.pick(&KEYS), timeout };
    }
    Part::Signal { name: dice.pick(&SIGNALS), timeout }
}

fn part(dice: &mut Dice, leaves: &[usize]) -> Part {
    let leaf = dice.pick(leaves);
    match dice.count(0..=22) {
        0..=6 => simple(dice, true),
        7..=8 => signal(dice),
        9 | 20..=22 => Part::Ask(dice.pick(&SIGNALS)),
        15 => Part::AskKey(dice.pick(&KEYS)),
        10..=11 => Part::Run(leaf),
        12..=13 => {
            let count = dice.pick(&[0, 1, 2, 4, 6]);
            Part::Map { leaf, count, most: dice.pick(&[1, 2, 3, 100]) }
        }
        14 if dice.chance(0.5) => Part::Time,
        14 => Part::Start(leaf),
        16..=17 => {
            let one = match dice.count(0..=2) {
                0 => signal(dice),
                1 => Part::Run(leaf),
                _ => simple(dice, false),
            };
            Part::Race(Box::new(one), Box::new(sleep(dice)))
        }
        _ => {
            let one = vec![sleep(dice), simple(dice, false)];
            let other = vec![signal(dice)];
            let third = if dice.chance(0.5) { vec![Part::Run(leaf)] } else { Vec::new() };
            Part::Join([one, other, third])
        }
    }
}

/// A signal that a client sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignalPlan {
    /// How long after the one before.
    pub(crate) pause: Duration,
    /// Its name.
    pub(crate) name: &'static str,
    /// What it says.
    pub(crate) value: u64,
    /// What it is known by.
    pub(crate) id: u128,
}

/// The signals that a client sends to a function.
pub(super) fn signals(dice: &mut Dice) -> Vec<SignalPlan> {
    let (longest, count) = (dice.pick(&[0, 500, 10_000]), dice.pick(&[0, 1, 3, 5]));
    let signal = |number: usize| SignalPlan {
        pause: dice.millis(0..=longest),
        name: dice.pick(&SIGNALS),
        value: number as u64 + 1,
        id: dice.large_number(),
    };
    (0..count).map(signal).collect()
}

/// A signal that someone sends to a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySignalPlan {
    /// When.
    pub(crate) at: Duration,
    /// The place of the tenant in the scenario.
    pub(crate) tenant: usize,
    /// The key.
    pub(crate) key: &'static str,
    /// Its name.
    pub(crate) name: &'static str,
    /// What it says.
    pub(crate) value: u64,
    /// What it is known by.
    pub(crate) id: u128,
}

/// What the functions' step asks for that is answered with a signal to a key.
pub(crate) fn key_answer(tenant: usize, key: &'static str, dice: &mut Dice) -> KeySignalPlan {
    let (at, value, id) = (dice.millis(0..=8), dice.number() % 1_000, dice.large_number());
    KeySignalPlan { at, tenant, key, name: KEY_SIGNAL, value, id }
}

/// The signals that are sent to keys until `horizon`.
pub(super) fn key_signals(
    dice: &mut Dice,
    tenants: usize,
    horizon: Duration,
) -> Vec<KeySignalPlan> {
    let mut signals: Vec<KeySignalPlan> = Vec::new();
    for _ in 0..dice.pick(&[0, 4, 12]) {
        // Several at once to one key, for those who wait there.
        let at = dice.up_to(horizon);
        let tenant = if dice.chance(0.6) { 0 } else { dice.count(0..=tenants - 1) };
        let key = dice.pick(&KEYS);
        for _ in 0..dice.count(1..=3) {
            let (value, id) = (signals.len() as u64 + 1, dice.large_number());
            signals.push(KeySignalPlan { at, tenant, key, name: KEY_SIGNAL, value, id });
        }
    }
    signals
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Step(retry) => write!(f, "step*{}", retry.max_attempts()),
            Part::Undoable(retry) => write!(f, "undoable*{}", retry.max_attempts()),
            Part::Defer => f.write_str("defer"),
            Part::Loop(count) => write!(f, "{count} steps"),
            Part::Sleep(time) => write!(f, "sleep {time:?}"),
            Part::Signal { name, timeout: None } => write!(f, "signal {name}"),
            Part::Signal { name, timeout: Some(time) } => write!(f, "signal {name} in {time:?}"),
            Part::KeySignal { key, timeout } => write!(f, "signal to {key} in {timeout:?}"),
            Part::Ask(name) => write!(f, "ask for {name}"),
            Part::AskKey(key) => write!(f, "ask for one to {key}"),
            Part::Time => f.write_str("time"),
            Part::Run(leaf) => write!(f, "run {leaf}"),
            Part::Map { leaf, count, most } => write!(f, "map {count} of {leaf} by {most}"),
            Part::Start(leaf) => write!(f, "start {leaf}"),
            Part::Join(branches) => {
                let texts: Vec<String> = branches.iter().map(|one| show(one)).collect();
                write!(f, "({})", texts.join(" & "))
            }
            Part::Race(one, other) => write!(f, "({one} | {other})"),
        }
    }
}

/// A program in words.
pub(super) fn show(program: &[Part]) -> String {
    program.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
