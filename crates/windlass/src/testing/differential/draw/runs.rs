//! What clients ask: registrations, starts, cancels, retries, weights.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_core::{IdempotencyKey, Payload, Priority, RunId, RunState, Tenant, Version, Weight};

use super::super::dice::Dice;
use super::super::known::{Known, KnownRun};
use super::super::verb::Verb;
use super::workflows::{WORKFLOWS, any_name, any_priority, definition, other_shape, workflow_name};
use super::{WORKING_MAX, any_delay, any_payload, any_run};
use crate::store::{METADATA_BYTES_MAX, METADATA_PAIRS_MAX, NewRun};

/// A workflow that is not known yet, while there are any: a story about unknown
/// workflows is short of surprises. Some starts come too early all the same.
pub(super) fn introduce(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let is_missing = |(name, version): &&(&str, u32)| {
        let is_it = |(known, number): &(_, Version)| {
            *known == workflow_name(name) && number.get() == *version
        };
        !known.registered.iter().any(is_it)
    };
    let missing: Vec<_> = WORKFLOWS.iter().filter(is_missing).copied().collect();
    let workflow = *dice.pick_any(&missing)?;
    dice.chance(20).then(|| Verb::Register(definition(dice, workflow)))
}

pub(super) fn register(dice: &mut Dice, _: &Known) -> Option<Verb> {
    let workflow = dice.pick(&WORKFLOWS);
    let is_other = dice.chance(30);
    let definition =
        if is_other { other_shape(dice, workflow) } else { definition(dice, workflow) };
    Some(Verb::Register(definition))
}

pub(super) fn set_weight(dice: &mut Dice, _: &Known) -> Option<Verb> {
    let weight = Weight::new(dice.pick(&[1, 1, 2, 3, 7, 1000])).expect("within the limits");
    Some(Verb::SetWeight(any_tenant(dice), weight))
}

/// Runs that are new, nearly all.
pub(super) fn start(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let room = WORKING_MAX.saturating_sub(known.working());
    if room == 0 {
        return None;
    }
    let count = match dice.count(0..10) {
        0..6 => 1,
        6..9 => dice.count(2..=5),
        _ => dice.count(6..=20),
    };
    let mut batch: Vec<NewRun> = Vec::new();
    for _ in 0..count.min(room) {
        let new = match batch.last() {
            Some(last) if dice.chance(4) => repeat(dice, last),
            Some(_) | None => new_run(dice),
        };
        batch.push(new);
    }
    Some(Verb::StartRuns(batch))
}

/// Starts that were there before, whole or in part, or that cannot be.
pub(super) fn start_again(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let mut batch = Vec::new();
    for _ in 0..dice.count(1..=3) {
        let old = &dice.pick_any(&known.runs)?.new;
        batch.push(match dice.count(0..10) {
            0..7 => of_known_tenant(repeat(dice, old), old, known),
            7 => NewRun { metadata: bad_metadata(dice), ..new_run(dice) },
            8 => NewRun { version: Version::new(9)?, ..new_run(dice) },
            _ => {
                let new = of_known_tenant(repeat(dice, old), old, known);
                NewRun { workflow: any_name(dice), ..new }
            }
        });
    }
    if dice.chance(5) {
        batch.clear();
    }
    Some(Verb::StartRuns(batch))
}

/// Leaves a repeated start with its tenant if no run of the other one is known. PostgreSQL gives a
/// tenant its turn among others before it knows that the id of its first run is taken; the store in
/// memory does so when the first run exists.
fn of_known_tenant(new: NewRun, old: &NewRun, known: &Known) -> NewRun {
    let is_known = known.runs.iter().any(|run| run.new.tenant == new.tenant);
    let tenant = if is_known { new.tenant } else { old.tenant.clone() };
    NewRun { tenant, ..new }
}

fn new_run(dice: &mut Dice) -> NewRun {
    let (workflow, version) = dice.pick(&WORKFLOWS);
    let delay = if dice.chance(15) { any_delay(dice) } else { Duration::ZERO };
    NewRun {
        id: dice.run_id(),
        workflow: workflow_name(workflow),
        version: Version::new(version).expect("versions begin at 1"),
        tenant: any_tenant(dice),
        input: any_payload(dice),
        key: dice.chance(25).then(|| any_key(dice)),
        delay,
        priority: if dice.chance(20) { any_priority(dice) } else { Priority::default() },
        metadata: if dice.chance(30) { some_metadata(dice) } else { BTreeMap::new() },
    }
}

/// The same start once more: with the same id, the same key or both, and perhaps with
/// something changed that makes it another start, or with something that does not.
fn repeat(dice: &mut Dice, old: &NewRun) -> NewRun {
    let mut new = old.clone();
    if old.key.is_some() && dice.chance(50) {
        new.id = dice.run_id();
    }
    match dice.count(0..10) {
        0 => new.input = Payload::from_json("\"another\"").expect("it is JSON"),
        1 => new.tenant = any_tenant(dice),
        2 => new.key = Some(any_key(dice)),
        3 => new.key = None,
        4 => new.delay = any_delay(dice),
        5 => new.metadata = some_metadata(dice),
        6 => new.priority = any_priority(dice),
        _ => {}
    }
    new
}

pub(super) fn any_tenant(dice: &mut Dice) -> Tenant {
    let name = dice.pick(&["default", "acme", "acme", "bolt", "Über & Söhne"]);
    Tenant::new(name).expect("these are names")
}

/// One of so many keys that some are used twice.
fn any_key(dice: &mut Dice) -> IdempotencyKey {
    IdempotencyKey::new(format!("key {}", dice.count(0..100))).expect("these are keys")
}

pub(super) fn any_metadata(dice: &mut Dice) -> (String, String) {
    let key = dice.pick(&["region", "größe", "", "a\"b"]);
    (key.to_owned(), dice.pick(&["north", "south", ""]).to_owned())
}

fn some_metadata(dice: &mut Dice) -> BTreeMap<String, String> {
    (0..dice.count(1..=3)).map(|_| any_metadata(dice)).collect()
}

/// Metadata that is over one of its limits.
fn bad_metadata(dice: &mut Dice) -> BTreeMap<String, String> {
    match dice.count(0..3) {
        0 => (0..=METADATA_PAIRS_MAX).map(|i| (i.to_string(), String::new())).collect(),
        1 => BTreeMap::from([("long".to_owned(), "x".repeat(METADATA_BYTES_MAX + 1))]),
        _ => BTreeMap::from([("nul".to_owned(), "a\0b".to_owned())]),
    }
}

pub(super) fn cancel(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let run = if dice.chance(60) {
        run_in(dice, known, RunState::Running)?
    } else {
        any_run(dice, known)
    };
    let reason = match dice.count(0..10) {
        0..5 => None,
        5..8 => Some("not wanted any more".to_owned()),
        8 => Some("a\0b".to_owned()),
        _ => Some("é".repeat(5_000)),
    };
    Some(Verb::CancelRun(run, reason))
}

pub(super) fn retry(dice: &mut Dice, known: &Known) -> Option<Verb> {
    if dice.chance(15) {
        return Some(Verb::RetryRun(any_run(dice, known), dice.pick(&[1, 1, 2, 3])));
    }
    let run = run_in(dice, known, RunState::Failed)?;
    let round = known.runs.iter().find(|known| known.new.id == run)?.round;
    let round = match dice.count(0..20) {
        0..14 => round,
        // As if the answer to the retry that began this round had been lost.
        14..17 => round - 1,
        17 => round + 1,
        18 => 0,
        _ => u32::MAX,
    };
    Some(Verb::RetryRun(run, round))
}

pub(super) fn run_in(dice: &mut Dice, known: &Known, state: RunState) -> Option<RunId> {
    let runs: Vec<&KnownRun> = known.runs.iter().filter(|run| run.state == state).collect();
    let newest = runs.len().saturating_sub(WORKING_MAX);
    dice.pick_any(&runs[newest..]).map(|run| run.new.id)
}
