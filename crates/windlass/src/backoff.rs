//! Pauses of our own loops when the store does not answer.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const MAX: Duration = Duration::from_secs(5);

/// A pause that doubles with every failure in a row, up to five seconds.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.failures.min(10)).min(MAX);
        self.failures += 1;
        pause
    }
}
