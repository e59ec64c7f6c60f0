//! Candidates for the background duties, some of whom were replaced and do not know it.

use std::time::Duration;

use windlass_core::{CandidateId, Term};

use super::super::dice::Dice;
use super::super::known::Known;
use super::super::verb::Verb;
use super::promote_limit;
use crate::store::{Candidacy, Duty, Mandate, Tallies, Tally};

fn candidate(dice: &mut Dice) -> CandidateId {
    CandidateId::from_random(dice.pick(&[1, 2, 3]))
}

/// The duties that stories tell of: what is pruned is gone, and nothing is left to compare.
const TOLD: [Duty; 2] = [Duty::PromoteDue, Duty::Reap];

fn tallies(dice: &mut Dice, known: &Known) -> Tallies {
    let tally = |dice: &mut Dice| {
        let runs = dice.count(0..4) as u64;
        Tally {
            runs,
            items: dice.count(0..100) as u64,
            busy: Duration::from_micros(7 * runs),
            last_took: (runs > 0).then_some(Duration::from_micros(7)),
            errors: dice.count(0..2) as u64,
            last_run_at: known.now.filter(|_| dice.chance(50)),
            last_error: dice.chance(20).then(|| "größer".to_owned()),
        }
    };
    let duties = dice.some(&TOLD, 60);
    duties.into_iter().map(|duty| (duty, tally(dice))).collect()
}

pub(super) fn lead(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let candidate = candidate(dice);
    let name = dice.pick(&["one", "größer", ""]).to_owned();
    let (ttl, rotation) = dice.pick(&[(2, None), (10, None), (10, Some(20)), (60, Some(60))]);
    Some(Verb::Lead(Candidacy {
        candidate,
        name,
        ttl: Duration::from_secs(ttl),
        rotation: rotation.map(Duration::from_secs),
        tallies: tallies(dice, known),
    }))
}

pub(super) fn resign(dice: &mut Dice, known: &Known) -> Option<Verb> {
    Some(Verb::Resign(candidate(dice), tallies(dice, known)))
}

pub(super) fn sweep(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let mandates: Vec<Mandate> = known.mandates.iter().rev().copied().collect();
    let newest = mandates.len().min(2);
    let among = if dice.chance(70) { &mandates[..newest] } else { &mandates[..] };
    let mut mandate = *dice.pick_any(among)?;
    if dice.chance(5) {
        mandate.term = Term(mandate.term.0 + 1);
    }
    let limit = match mandate.duty {
        Duty::PromoteDue => promote_limit(dice, known),
        Duty::Reap | Duty::Prune | Duty::Schedules | Duty::Rollup | Duty::Audit => {
            dice.pick(&[0, 1, 2, 100, 100])
        }
    };
    Some(Verb::Sweep(mandate, limit))
}
