//! Chance, drawn from a seed and from nothing else.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A stream of random choices.
///
/// What is drawn for one purpose must not shift what is drawn for another, or a
/// changed scenario would also change every fault in it: each purpose has its own
/// stream, named by a salt.
#[derive(Clone, Debug)]
pub(crate) struct Dice(fastrand::Rng);

impl Dice {
    /// The stream with this salt of a seed.
    pub(crate) fn new(seed: u64, salt: &str) -> Self {
        let salt = salt.bytes().fold(0, |sum, byte| mix(sum, u64::from(byte)));
        Dice::from_number(mix(seed, salt))
    }

    /// The stream that belongs to a number.
    pub(crate) fn from_number(number: u64) -> Self {
        Dice(fastrand::Rng::with_seed(number))
    }

    /// A stream of its own, drawn from this one.
    pub(crate) fn fork(&mut self) -> Self {
        Dice::from_number(self.number())
    }

    /// Any number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Any large number.
    pub(crate) fn large_number(&mut self) -> u128 {
        self.0.u128(..)
    }

    /// Whether something happens that has this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.0.f64() < probability
    }

    /// A count within the range.
    pub(crate) fn count(&mut self, range: RangeInclusive<usize>) -> usize {
        self.0.usize(range)
    }

    /// A time within the range of milliseconds.
    pub(crate) fn millis(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.0.u64(range))
    }

    /// A time up to `max`, to the millisecond.
    pub(crate) fn up_to(&mut self, max: Duration) -> Duration {
        self.millis(0..=u64::try_from(max.as_millis()).unwrap_or(u64::MAX))
    }

    /// One of the choices.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.0.usize(0..choices.len())]
    }
}

/// Folds one number into another so that each bit of both counts (the finalizer
/// of splitmix64).
pub(crate) fn mix(sum: u64, number: u64) -> u64 {
    let mut bits =
        sum.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Folds a large number into another.
pub(crate) fn mix_large(sum: u64, number: u128) -> u64 {
    mix(mix(sum, number as u64), (number >> 64) as u64)
}
