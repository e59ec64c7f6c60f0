//! Chance, drawn from a seed and from nothing else.

use std::ops::RangeBounds;
use std::time::Duration;

use windlass_core::{RunId, Timestamp, WorkerId};

/// A stream of random choices.
pub(super) struct Dice(fastrand::Rng, u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Dice(fastrand::Rng::with_seed(seed), seed)
    }

    /// Whether the workflows of this story have deadlines: those with even seeds.
    pub(super) fn has_deadlines(&self) -> bool {
        self.1.is_multiple_of(2)
    }

    /// Whether something happens that happens so often in a hundred times.
    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.0.u32(0..100) < percent
    }

    pub(super) fn count(&mut self, range: impl RangeBounds<usize>) -> usize {
        self.0.usize(range)
    }

    pub(super) fn micros(&mut self, range: impl RangeBounds<u64>) -> Duration {
        Duration::from_micros(self.0.u64(range))
    }

    /// One of the choices.
    pub(super) fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.0.usize(0..choices.len())].clone()
    }

    /// One of the choices, if there are any.
    pub(super) fn pick_any<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        if choices.is_empty() {
            return None;
        }
        choices.get(self.0.usize(0..choices.len()))
    }

    /// Some of the choices, each with this probability, in any order.
    pub(super) fn some<T: Clone>(&mut self, choices: &[T], percent: u32) -> Vec<T> {
        let mut some: Vec<T> =
            choices.iter().filter(|_| self.0.u32(0..100) < percent).cloned().collect();
        self.0.shuffle(&mut some);
        some
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        self.0.shuffle(items);
    }

    /// An id that nobody has. Its last eight digits are enough to tell it by.
    pub(super) fn run_id(&mut self) -> RunId {
        RunId::from_parts(Timestamp::from_micros(0), u128::from(self.0.u32(..)))
    }

    /// An id that nobody has, like that of a run.
    pub(super) fn worker_id(&mut self) -> WorkerId {
        WorkerId::from_random(u128::from(self.0.u32(..)))
    }
}
