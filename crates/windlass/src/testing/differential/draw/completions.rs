//! What workers say of the tasks they ran or did not run.

use windlass_core::{Decision, Failure, FailureCode, Fence};

use super::super::dice::Dice;
use super::super::known::Known;
use super::super::verb::Verb;
use super::functions::park;
use super::workers::stray;
use super::{any_delay, any_payload};
use crate::store::{Checkpoint, Completion, Held, Release};

/// The most tasks of one batch.
const BATCH: usize = 8;

/// The tasks a batch is about: held ones, now and then one that is not, or one twice.
pub(super) fn batch(dice: &mut Dice, known: &Known) -> Vec<Held> {
    let count = if dice.chance(50) { dice.count(1..=2) } else { dice.count(1..=BATCH) };
    let held: Vec<Held> = known.held.iter().map(|task| task.held).collect();
    let mut batch = Vec::new();
    for held in dice.some(&held, 100).into_iter().take(count) {
        batch.push(held);
        match dice.count(0..30) {
            0..2 => batch.push(held),
            2..4 => batch.extend(stray(dice, known)),
            4 => {
                let fence = Fence(held.fence.0.saturating_sub(1));
                batch.push(Held { fence: dice.pick(&[fence, held.fence.next()]), ..held });
            }
            _ => {}
        }
    }
    batch
}

pub(super) fn finish(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let mut completions: Vec<Completion> = Vec::new();
    for Held { task, fence } in batch(dice, known) {
        let decision = any_decision(dice);
        completions.push(Completion { task, fence, decision });
    }
    if dice.chance(15) {
        let place = dice.count(0..known.sent.len().max(1));
        completions.extend(known.sent.get(place).cloned());
    }
    (!completions.is_empty() || dice.chance(1)).then_some(Verb::Finish(completions))
}

pub(super) fn release(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let mut releases = Vec::new();
    for Held { task, fence } in batch(dice, known) {
        releases.push(Release { task, fence, delay: any_delay(dice) });
    }
    (!releases.is_empty()).then_some(Verb::Release(releases))
}

pub(super) fn checkpoint(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let mut checkpoints = Vec::new();
    for held in batch(dice, known) {
        let value = any_payload(dice);
        // Those of one fence are counted, or not; the number is any.
        let number = if held.fence.0 % 3 == 0 { 0 } else { 1 + value.as_str().len() as u32 % 3 };
        checkpoints.push(Checkpoint { held, number, value });
    }
    (!checkpoints.is_empty()).then_some(Verb::Checkpoint(checkpoints))
}

fn any_decision(dice: &mut Dice) -> Decision {
    match dice.count(0..20) {
        0..7 => Decision::Succeed(any_payload(dice)),
        7..11 => park(dice),
        11..14 => Decision::Fail(any_failure(dice)),
        14..18 => Decision::Retry { failure: any_failure(dice), delay: any_delay(dice) },
        18 => Decision::Continue(any_payload(dice)),
        _ => Decision::Skip,
    }
}

pub(super) fn any_failure(dice: &mut Dice) -> Failure {
    let code = match dice.count(0..5) {
        0..2 => FailureCode::Error,
        2 => FailureCode::Timeout,
        3 => FailureCode::Panic,
        _ => FailureCode::Custom("declined".to_owned()),
    };
    let message = dice.pick(&["it did not work", "", "a \"quote\" and\na line", "größer"]);
    let failure = Failure::new(code, message);
    if dice.chance(30) { failure.permanent() } else { failure }
}
