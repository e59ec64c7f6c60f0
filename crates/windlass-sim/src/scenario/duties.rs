//! Duties of the program that every process declares.

use std::time::Duration;

use crate::dice::Dice;

/// The longest interval of a duty.
const EVERY_MAX: Duration = Duration::from_secs(9);

/// The longest time that a handler of a duty takes: more than a lease, and than most intervals.
pub(crate) const DUTY_TAKES_MAX: Duration = Duration::from_secs(8);

/// A duty of the program.
#[derive(Clone, Debug)]
pub(crate) struct DutyPlan {
    /// What it is called.
    pub(crate) name: String,
    /// How often it is to be done.
    pub(crate) every: Duration,
    /// How long its handler takes at most.
    pub(crate) takes: Duration,
    /// The probability that its handler fails.
    pub(crate) fails: f64,
    /// The probability that its handler ends when it is told to.
    pub(crate) obeys: f64,
}

/// Draws a duty or two.
pub(super) fn draw(dice: &mut Dice) -> Vec<DutyPlan> {
    let mut plan = |number: usize| DutyPlan {
        name: format!("duty-{number}"),
        every: Duration::from_secs(dice.count(1..=EVERY_MAX.as_secs() as usize) as u64),
        takes: dice.pick(&[Duration::ZERO, Duration::from_millis(400), DUTY_TAKES_MAX]),
        fails: dice.pick(&[0.0, 0.1, 0.4]),
        obeys: dice.pick(&[0.0, 0.5, 1.0]),
    };
    (0..2).map(&mut plan).collect()
}
