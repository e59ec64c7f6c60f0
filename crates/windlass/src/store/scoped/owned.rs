//! Which runs are the tenant's, as far as was seen.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use windlass_core::RunId;

/// The most runs that are remembered before all are forgotten.
const OWNED_MAX: usize = 10_000;

/// How long a run is remembered. Whose it is never changes; but one that was pruned leaves its id to
/// whoever starts another with it.
const OWNED_KEPT: Duration = Duration::from_secs(30);

/// Runs that were seen to be the tenant's. That one is not is never remembered: it may be started.
#[derive(Default)]
pub(super) struct Owned(Mutex<HashMap<RunId, Instant>>);

impl Owned {
    fn all(&self) -> MutexGuard<'_, HashMap<RunId, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has(&self, run: RunId) -> bool {
        self.all().get(&run).is_some_and(|seen| seen.elapsed() < OWNED_KEPT)
    }

    pub(super) fn remember(&self, run: RunId) {
        let mut all = self.all();
        if all.len() >= OWNED_MAX {
            all.clear();
        }
        all.insert(run, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::Timestamp;

    #[test]
    fn what_is_remembered_is_bounded() {
        let owned = Owned::default();
        let run = |number: usize| RunId::from_parts(Timestamp::from_micros(0), number as u128);
        for number in 0..=OWNED_MAX {
            owned.remember(run(number));
        }
        assert!(owned.has(run(OWNED_MAX)) && !owned.has(run(0)));
        assert!(owned.all().len() <= OWNED_MAX);
    }
}
