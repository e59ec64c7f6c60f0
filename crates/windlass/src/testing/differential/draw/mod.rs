//! What is asked next: sometimes what a sound client or worker would ask, and
//! sometimes what comes of lost answers, lost leases and mistakes.

mod completions;
mod dead;
mod functions;
mod leaders;
mod runs;
mod workers;
mod workflows;

use std::time::Duration;

use windlass_core::retry::WAIT_MAX;
use windlass_core::{Payload, RunId, RunState, TaskIndex, TaskName, Timestamp};

use super::dice::Dice;
use super::known::Known;
use super::verb::Verb;
use crate::store::{PAGE_MAX, RunFilter};

/// How many runs are at work before no more are started.
const WORKING_MAX: usize = 40;

/// How a verb is drawn; none if it makes no sense at this time.
type Draw = fn(&mut Dice, &Known) -> Option<Verb>;

/// The verbs, each with how often it is drawn. Together they work off about as many
/// tasks as they make, so that queues are sometimes full and sometimes empty.
const VERBS: [(usize, Draw); 32] = [
    (15, advance),
    (18, workers::claim),
    (21, completions::finish),
    (5, completions::release),
    (4, completions::checkpoint),
    (7, functions::record),
    (4, functions::take_signals),
    (10, functions::signal),
    (5, functions::signal_key),
    (2, functions::undo_run),
    (2, functions::read_undo),
    (7, functions::start_children),
    (2, functions::list_steps),
    (8, workers::extend),
    (4, workers::join),
    (1, workers::leave),
    (7, promote_due),
    (4, reap),
    (3, leaders::lead),
    (1, leaders::resign),
    (6, leaders::sweep),
    (10, runs::start),
    (3, runs::start_again),
    (3, runs::cancel),
    (4, runs::retry),
    (2, dead::redrive),
    (1, dead::discard),
    (1, dead::list),
    (2, runs::register),
    (1, runs::set_weight),
    (4, list_runs),
    (1, read_task),
];

/// Draws the next verb.
pub(super) fn draw(dice: &mut Dice, known: &Known) -> Verb {
    if let Some(first) = runs::introduce(dice, known) {
        return first;
    }
    let total: usize = VERBS.iter().map(|(often, _)| often).sum();
    loop {
        let mut place = dice.count(0..total);
        for (often, draw) in VERBS {
            if place < often {
                match draw(dice, known) {
                    Some(verb) => return verb,
                    None => break,
                }
            }
            place -= often;
        }
    }
}

fn advance(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let by = match dice.count(0..100) {
        0..5 => Duration::ZERO,
        5..10 => Duration::from_micros(1),
        10..40 => until_due(dice, known).unwrap_or(Duration::ZERO),
        40..65 => dice.micros(..2_000_000),
        65..85 => dice.micros(..10_000_000),
        85..99 => dice.micros(..60_000_000),
        // Longer than a worker without tasks is remembered.
        _ => dice.micros(..3 * 60 * 60 * 1_000_000),
    };
    Some(Verb::Advance(by))
}

/// The time to when a sweep said that something is due, or to right before it. Not
/// what is due in years.
fn until_due(dice: &mut Dice, known: &Known) -> Option<Duration> {
    let due: Vec<Timestamp> = known.due.values().copied().collect();
    let wait = dice.pick_any(&due)?.since(known.now?);
    let early = Duration::from_micros(dice.pick(&[0, 0, 1]));
    (wait < Duration::from_secs(60 * 60)).then(|| wait.saturating_sub(early))
}

fn promote_due(dice: &mut Dice, known: &Known) -> Option<Verb> {
    Some(Verb::PromoteDue(promote_limit(dice, known)))
}

/// How much of what is due is promoted. Which of what runs must hear of each other comes first,
/// if not all does, is a store's own matter, and so is whether deadlines that were kept count.
fn promote_limit(dice: &mut Dice, known: &Known) -> usize {
    if known.has_news || dice.has_deadlines() {
        10_000
    } else {
        dice.pick(&[0, 1, 2, 5, 100, 100, 10_000])
    }
}

fn reap(dice: &mut Dice, _: &Known) -> Option<Verb> {
    Some(Verb::Reap(dice.pick(&[0, 1, 2, 3, 100, 100, 10_000])))
}

fn list_runs(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let state = dice.chance(30).then(|| dice.pick(&RunState::ALL));
    Some(Verb::ListRuns(RunFilter {
        workflow: dice.chance(25).then(|| workflows::any_name(dice)),
        tenant: dice.chance(25).then(|| runs::any_tenant(dice)),
        state,
        metadata: dice.chance(15).then(|| runs::any_metadata(dice)),
        after: if dice.chance(50) { known.cursor } else { None },
        limit: dice.pick(&[0, 1, 3, 10, 50, PAGE_MAX + 1]),
    }))
}

fn read_task(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let run = any_run(dice, known);
    if dice.chance(50) {
        let after = dice.chance(50).then(|| TaskIndex(dice.count(0..8) as u32));
        return Some(Verb::ListTasks(run, after, dice.pick(&[0, 1, 3, PAGE_MAX + 1])));
    }
    let name = dice.pick(&["a", "b", "join", "nap", "sorry", "nowhere"]);
    Some(Verb::GetTask(run, TaskName::new(name).expect("these are names")))
}

/// A run that exists, nearly always; the newer ones more often.
fn any_run(dice: &mut Dice, known: &Known) -> RunId {
    let newest = known.runs.len().saturating_sub(WORKING_MAX);
    let from = if dice.chance(70) { newest } else { 0 };
    let run = dice.pick_any(&known.runs[from..]).map(|run| run.new.id);
    if dice.chance(8) { dice.run_id() } else { run.unwrap_or_else(|| dice.run_id()) }
}

/// A pause before something is tried again or begins.
fn any_delay(dice: &mut Dice) -> Duration {
    match dice.count(0..100) {
        0..30 => Duration::ZERO,
        // Below what the clock can tell, and yet not nothing.
        30..32 => Duration::from_nanos(300),
        32..40 => Duration::from_micros(1),
        40..80 => dice.micros(..5_000_000),
        80..98 => dice.micros(..60_000_000),
        _ => WAIT_MAX,
    }
}

/// JSON that is stored as it is written, or not stored well.
const PAYLOADS: [&str; 12] = [
    "null",
    "1",
    "-0.0",
    "1e308",
    "\"\"",
    "\"done\"",
    "\"größer\"",
    r#""a\u0000b""#,
    r#"{ "b" : 1, "a" : [ ] }"#,
    r#"{"a":1,"a":2}"#,
    "[[[[[[[[]]]]]]]]",
    "123456789012345678901234567890",
];

fn any_payload(dice: &mut Dice) -> Payload {
    Payload::from_json(dice.pick(&PAYLOADS)).expect("these are JSON")
}
