//! What durable functions ask: to remember, to wait, for signals, for children.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::undo::UNDO_SUFFIX;
use windlass_core::{
    Call, Decision, Parking, RunId, RunState, SignalId, SignalKey, StepChange, StepKind, StepName,
    StepResult, StepWrite, Wait,
};

use super::super::dice::Dice;
use super::super::known::Known;
use super::super::verb::Verb;
use super::completions::{any_failure, batch};
use super::runs::{any_tenant, run_in};
use super::workflows::{WORKFLOWS, definition, workflow_name};
use super::{WORKING_MAX, any_delay, any_payload, any_run};
use crate::store::{
    ChildStart, Held, Mailbox, NewKeySignal, NewRun, NewSignal, PAGE_MAX, Recording, TakeSignal,
    Which,
};

/// The calls of every function: what each asks for, and what it is called.
const CALLS: [(StepKind, &str); 9] = [
    (StepKind::Step, "charge"),
    (StepKind::Sleep, "sleep"),
    (StepKind::Signal, "go"),
    (StepKind::Child, "single"),
    (StepKind::Step, "größer"),
    (StepKind::Signal, "stop"),
    (StepKind::Child, "single"),
    (StepKind::Undoable, "reserve"),
    (StepKind::Signal, "paid"),
];

/// The call that waits for a signal to a key.
const KEYED: usize = 8;

/// The key that it waits for.
const KEY: &str = "pay_1";

fn key(key: &str) -> SignalKey {
    SignalKey::new(key).expect("these are keys")
}

/// The key that a call waits for, nearly always.
fn key_of(dice: &mut Dice, place: usize) -> Option<SignalKey> {
    (place == KEYED).then(|| key(if dice.chance(2) { "pay_2" } else { KEY }))
}

fn name(name: &str) -> StepName {
    StepName::new(name).expect("these are names")
}

/// Writes about a call, which is nearly always the one that it was before.
fn write(dice: &mut Dice, place: usize, change: StepChange) -> StepWrite {
    let (mut kind, mut word) = CALLS[place];
    match dice.count(0..60) {
        // No call but these waits for anything.
        0 if matches!(change, StepChange::Done { .. }) => kind = StepKind::Time,
        1 => word = "another",
        _ => {}
    }
    let key = key_of(dice, place).filter(|_| kind == StepKind::Signal);
    StepWrite { call: Call(place as u32 + 1), name: name(word), kind, key, change }
}

fn done(dice: &mut Dice, place: usize) -> StepChange {
    // The place of a call is that of its result as well, or nearly always.
    let number = place as u32 + if dice.chance(5) { 11 } else { 1 };
    let result = match dice.chance(25) {
        true => StepResult::Failed(any_failure(dice)),
        false => StepResult::Value(any_payload(dice)),
    };
    StepChange::Done { number, result }
}

fn open(dice: &mut Dice, place: usize) -> StepChange {
    let wait = match CALLS[place].0 {
        StepKind::Child => Wait::Children(dice.count(0..=2) as u32),
        StepKind::Signal if dice.chance(50) => Wait::Forever,
        StepKind::Step
        | StepKind::Undoable
        | StepKind::Sleep
        | StepKind::Time
        | StepKind::Signal
        | StepKind::Patch
        | StepKind::Input => Wait::For(any_delay(dice)),
    };
    let is_step = matches!(CALLS[place].0, StepKind::Step | StepKind::Undoable);
    let failures = if is_step { dice.count(1..=3) as u32 } else { 0 };
    let failure = (failures > 0).then(|| any_failure(dice));
    StepChange::Open { failures, failure, wait }
}

pub(super) fn record(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let mut recordings = Vec::new();
    for held in batch(dice, known) {
        let places: Vec<usize> = (0..CALLS.len()).collect();
        let mut steps = Vec::new();
        for place in dice.some(&places, 30) {
            let change = if dice.chance(65) { done(dice, place) } else { open(dice, place) };
            steps.push(write(dice, place, change));
        }
        recordings.push(Recording { held, steps });
    }
    if dice.chance(15) {
        let place = dice.count(0..known.recorded.len().max(1));
        recordings.extend(known.recorded.get(place).cloned());
    }
    (!recordings.is_empty()).then_some(Verb::Record(recordings))
}

/// A function waits: for some calls that are new, and for some that it waited for before.
pub(super) fn park(dice: &mut Dice) -> Decision {
    let mut places: Vec<usize> = (0..CALLS.len()).collect();
    dice.shuffle(&mut places);
    let (new, old) = (dice.count(0..=2), dice.count(0..=2));
    let mut steps = Vec::new();
    for place in &places[..new] {
        let change = open(dice, *place);
        steps.push(write(dice, *place, change));
    }
    let old = &places[new..new + old];
    let waits = old.iter().map(|place| Call(*place as u32 + 1)).collect();
    let awaits = |place: &usize| matches!(CALLS[*place].0, StepKind::Signal | StepKind::Child);
    let awaits = places[..new].iter().chain(old).any(awaits);
    Decision::Park(Parking { steps, waits, awaits })
}

pub(super) fn take_signals(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let mut takes = Vec::new();
    for held in batch(dice, known) {
        let place = dice.pick(&[2, 2, 5, 0, KEYED, KEYED]);
        let call = Call(place as u32 + 1);
        let (name, key) = (name(CALLS[place].1), key_of(dice, place));
        takes.push(TakeSignal { held, call, name, key, which: Which::Newest });
        // Mostly what was told last, now and then once more what was told before.
        let back = if dice.chance(80) { 1 } else { dice.count(1..=3) };
        let told = known.told.len().checked_sub(back).map(|place| known.told[place].clone());
        takes.extend(told.filter(|_| dice.chance(70)));
    }
    (!takes.is_empty()).then_some(Verb::TakeSignals(takes))
}

pub(super) fn signal(dice: &mut Dice, known: &Known) -> Option<Verb> {
    if dice.chance(15) {
        let place = dice.count(0..known.signals.len().max(1));
        return known.signals.get(place).cloned().map(Verb::Signal);
    }
    let id = SignalId::from_random(u128::from(dice.micros(..).as_micros() as u64));
    let word = dice.pick(&["go", "go", "go", "go", "stop", "stop", "stop", "nobody"]);
    // Those at work ask for it sooner than others, and what waits must not wait for ever, or
    // the story would come to a standstill.
    let run = match dice.count(0..10) {
        0..3 => dice.pick_any(&known.held).map(|task| task.held.task.run),
        3..8 => run_in(dice, known, RunState::Running),
        _ => None,
    };
    let run = run.unwrap_or_else(|| any_run(dice, known));
    let value = any_payload(dice);
    Some(Verb::Signal(NewSignal { id, run, name: name(word), value }))
}

pub(super) fn signal_key(dice: &mut Dice, known: &Known) -> Option<Verb> {
    if dice.chance(15) {
        let place = dice.count(0..known.key_signals.len().max(1));
        return known.key_signals.get(place).cloned().map(Verb::SignalKey);
    }
    let id = SignalId::from_random(u128::from(dice.micros(..).as_micros() as u64));
    let to = Mailbox {
        tenant: any_tenant(dice),
        key: key(dice.pick(&[KEY, KEY, KEY, KEY, "pay_2"])),
        name: name(dice.pick(&["paid", "paid", "paid", "paid", "go"])),
    };
    let keep_for = dice.pick(&[0, 5, 600, 600, 86_400].map(Duration::from_secs));
    Some(Verb::SignalKey(NewKeySignal { id, to, value: any_payload(dice), keep_for }))
}

pub(super) fn undo_run(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let state = dice.pick(&[RunState::Succeeded, RunState::Failed, RunState::Cancelled]);
    let run = if dice.chance(80) { run_in(dice, known, state) } else { None };
    Some(Verb::UndoRun(run.unwrap_or_else(|| any_run(dice, known))))
}

/// Asks what to undo, as whoever holds the task that undoes, or held it.
pub(super) fn read_undo(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let is_undo = |held: &Held| {
        let run = known.run(held.task.run);
        run.is_some_and(|run| run.new.workflow.as_str().ends_with(UNDO_SUFFIX))
    };
    let held = known.held.iter().map(|task| task.held).chain(known.past.iter().copied());
    let held: Vec<Held> = held.filter(is_undo).collect();
    dice.pick_any(&held).copied().map(Verb::ReadUndo)
}

pub(super) fn start_children(dice: &mut Dice, known: &Known) -> Option<Verb> {
    if known.working() > WORKING_MAX {
        return None;
    }
    let mut starts = Vec::new();
    let place = dice.pick(&[3, 6]);
    let is_awaited = place == 3;
    // The children of a call are all of one workflow.
    let workflow = WORKFLOWS[place];
    let definition = definition(dice, workflow);
    for held in batch(dice, known).into_iter().take(2) {
        let Some(parent) = known.run(held.task.run) else { continue };
        for child in 0..dice.count(1..=3) {
            let definition = Arc::clone(&definition);
            let run = NewRun {
                id: child_id(held, parent.round, place, child),
                workflow: workflow_name(workflow.0),
                version: definition.version(),
                tenant: parent.new.tenant.clone(),
                input: if dice.chance(4) { any_payload(dice) } else { parent.new.input.clone() },
                key: None,
                delay: Duration::ZERO,
                priority: Default::default(),
                metadata: Default::default(),
            };
            let call = Call(place as u32 + 1);
            let place = is_awaited.then_some(child as u32);
            starts.push(ChildStart { held, call, place, run, definition });
        }
    }
    (!starts.is_empty()).then_some(Verb::StartChildren(starts))
}

/// The id of a child, the same whenever it is asked for in a round.
fn child_id(held: Held, round: u32, place: usize, child: usize) -> RunId {
    let run = held.task.run;
    let index = u128::from(held.task.index.0.min(99));
    let number = (index * 100 + u128::from(round.min(99))) * 100 + (place * 10 + child) as u128;
    // The last digits of a run are drawn at random, and those of its children are near them.
    RunId::of_child(run, (run.as_uuid().as_u128().wrapping_add(number)) << 48)
}

pub(super) fn list_steps(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let task = match dice.chance(70) {
        true => dice.pick_any(&known.held)?.held.task,
        false => known.past.get(dice.count(0..known.past.len().max(1)))?.task,
    };
    let after = dice.chance(30).then(|| Call(dice.count(0..5) as u32));
    Some(Verb::ListSteps(task, after, dice.pick(&[0, 1, 3, PAGE_MAX + 1])))
}
