//! Numbers that only grow, and how often something was how large.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts values by their size.
#[derive(Debug)]
pub(crate) struct Histogram {
    /// The upper bounds, in ascending order.
    bounds: &'static [f64],
    /// One more than there are bounds: the last is for what is above them all.
    counts: Vec<AtomicU64>,
    /// In millionths, so that it is a number that can be added to.
    sum: AtomicU64,
}

/// What a histogram has counted, in the form in which it is shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Counted {
    /// How many values were up to each bound.
    pub(super) up_to: Vec<(f64, u64)>,
    pub(super) count: u64,
    pub(super) sum: f64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }

    pub(crate) fn observe(&self, value: f64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((value.max(0.0) * 1e6) as u64, Ordering::Relaxed);
    }

    pub(super) fn counted(&self) -> Counted {
        let mut count = 0;
        let mut up_to = Vec::with_capacity(self.bounds.len());
        for (bound, counted) in self.bounds.iter().zip(&self.counts) {
            count += counted.load(Ordering::Relaxed);
            up_to.push((*bound, count));
        }
        count += self.counts.last().map_or(0, |last| last.load(Ordering::Relaxed));
        Counted { up_to, count, sum: self.sum.load(Ordering::Relaxed) as f64 / 1e6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_at_a_bound_counts_below_it_and_one_above_all_counts_in_the_whole() {
        let histogram = Histogram::new(&[1.0, 2.0]);
        [0.5, 1.0, 1.5, 2.0, 7.25].into_iter().for_each(|value| histogram.observe(value));
        let counted = Counted { up_to: vec![(1.0, 2), (2.0, 4)], count: 5, sum: 12.25 };
        assert_eq!(histogram.counted(), counted);
    }
}
