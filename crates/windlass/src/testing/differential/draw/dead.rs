//! What operators ask: redrives, discards, lists of dead letters.

use std::num::NonZeroU32;

use windlass_core::{ActionId, FailureCode, Operator, RunState, TaskName, Timestamp};

use super::super::dice::Dice;
use super::super::known::Known;
use super::super::verb::Verb;
use super::any_run;
use super::runs::{any_tenant, run_in};
use super::workflows::any_name;
use crate::store::{DeadLetterFilter, Discard, PAGE_MAX, Pace, Redrive};

pub(super) fn redrive(dice: &mut Dice, known: &Known) -> Option<Verb> {
    if let Some(Verb::Redrive(redrive)) = repeated(dice, known) {
        return Some(Verb::Redrive(redrive));
    }
    let per_second = NonZeroU32::new(dice.pick(&[1, 3, 100]))?;
    let from = dice.chance(50).then(|| any_time(dice, known));
    Some(Verb::Redrive(Redrive {
        id: any_action(dice, known),
        by: any_operator(dice).into(),
        filter: any_filter(dice, known),
        after: if dice.chance(20) { known.dead_cursor } else { None },
        limit: dice.pick(&[0, 1, 2, 5, 1_000]),
        pace: dice.chance(40).then_some(Pace { per_second, from }),
    }))
}

pub(super) fn discard(dice: &mut Dice, known: &Known) -> Option<Verb> {
    if let Some(Verb::Discard(discard)) = repeated(dice, known) {
        return Some(Verb::Discard(discard));
    }
    Some(Verb::Discard(Discard {
        id: any_action(dice, known),
        by: any_operator(dice).into(),
        filter: any_filter(dice, known),
        after: if dice.chance(20) { known.dead_cursor } else { None },
        limit: dice.pick(&[1, 1, 2, 5]),
    }))
}

pub(super) fn list(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let after = if dice.chance(50) { known.dead_cursor } else { None };
    let limit = dice.pick(&[0, 1, 3, 10, PAGE_MAX + 1]);
    Some(Verb::ListDead(any_filter(dice, known), after, limit))
}

/// As if the answer had been lost.
fn repeated(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let actions: Vec<&Verb> = known.actions.iter().collect();
    let verb = dice.pick_any(&actions)?;
    dice.chance(15).then(|| (*verb).clone())
}

/// One that is new, nearly always.
fn any_action(dice: &mut Dice, known: &Known) -> ActionId {
    let used = known.actions.iter().last().filter(|_| dice.chance(5));
    match used {
        Some(Verb::Redrive(redrive)) => redrive.id,
        Some(Verb::Discard(discard)) => discard.id,
        Some(_) | None => ActionId::from_random(dice.run_id().as_uuid().as_u128()),
    }
}

fn any_operator(dice: &mut Dice) -> Operator {
    Operator::new(dice.pick(&["anna@ops", "Übergabe"])).expect("these are names")
}

fn any_time(dice: &mut Dice, known: &Known) -> Timestamp {
    let now = known.now.unwrap_or(Timestamp::from_micros(0));
    let apart = i64::try_from(dice.micros(..60_000_000).as_micros()).unwrap_or(0);
    let later = now.as_micros() + apart;
    let earlier = now.as_micros() - apart;
    Timestamp::from_micros(if dice.chance(50) { later } else { earlier })
}

fn any_filter(dice: &mut Dice, known: &Known) -> DeadLetterFilter {
    let run = match dice.count(0..10) {
        0..4 => run_in(dice, known, RunState::Failed),
        4 => Some(any_run(dice, known)),
        _ => None,
    };
    let task = dice.pick(&["a", "b", "join", "sorry"]);
    let reason = dice.pick(&["error", "lease_expired", "timeout", "a\0b"]);
    DeadLetterFilter {
        run,
        tenant: dice.chance(15).then(|| any_tenant(dice)),
        workflow: dice.chance(15).then(|| any_name(dice)),
        task: dice.chance(10).then(|| TaskName::new(task).expect("these are names")),
        reason: dice.chance(10).then(|| FailureCode::from(reason.to_owned())),
        since: dice.chance(10).then(|| any_time(dice, known)),
        until: dice.chance(10).then(|| any_time(dice, known)),
    }
}
