//! What a worker's loop says of itself, for those who watch it from outside.
//!
//! The loop writes, health endpoints and signals read. Real time is used, not tokio's: it
//! must pass also when the runtime does not turn. Nothing that a worker does depends on it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use windlass_core::WorkerId;

use crate::store::StoreError;

/// After how many leases without a turn a loop counts as stuck. Its tasks are others' by then.
const STUCK_LEASES: u32 = 3;

/// What is added to them: the longest pause of a loop that cannot join.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The signs of life of one worker.
#[derive(Debug)]
pub(crate) struct Pulse {
    name: String,
    lease: Duration,
    is_watched: bool,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// `None` until it has joined.
    worker: Option<WorkerId>,
    running: usize,
    turned_at: Instant,
    /// Since when the store cannot be reached, and what it said last.
    unreachable: Option<(Instant, String)>,
}

/// How a worker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It has not joined, for this reason if one is known.
    Joining(Option<String>),
    /// It works.
    Ready,
    /// It claims no more.
    Draining,
    /// It works, and the store did not answer for longer than a lease, for this reason.
    Unreachable(String),
    /// Its loop has not turned for this long.
    Stuck(Duration),
}

impl Pulse {
    pub(crate) fn new(name: &str, lease: Duration, is_watched: bool) -> Self {
        let seen = Seen { worker: None, running: 0, turned_at: Instant::now(), unreachable: None };
        Pulse { name: name.to_owned(), lease, is_watched, seen: Mutex::new(seen) }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody asks: then the loop turns once per lease even if nothing happens.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// The loop turns, with so many tasks in hand.
    pub(crate) fn turn(&self, running: usize) {
        let mut seen = self.seen();
        seen.turned_at = Instant::now();
        seen.running = running;
    }

    /// The worker has no id, or none that lives.
    pub(crate) fn joins(&self) {
        self.seen().worker = None;
    }

    /// The worker lives under this id.
    pub(crate) fn joined(&self, worker: WorkerId) {
        let mut seen = self.seen();
        seen.worker = Some(worker);
        seen.turned_at = Instant::now();
    }

    /// A call to the store has ended. Any answer shows that there is a store, also a refusal.
    pub(crate) fn heard<T>(&self, answer: &Result<T, StoreError>) {
        let mut seen = self.seen();
        match answer {
            Err(StoreError::Unavailable(reason)) => {
                let since = seen.unreachable.take().map(|(since, _)| since);
                let since = since.unwrap_or_else(Instant::now);
                seen.unreachable = Some((since, reason.clone()));
            }
            Ok(_)
            | Err(
                StoreError::NotFound(_)
                | StoreError::Conflict(_)
                | StoreError::LeaseLost(_)
                | StoreError::Forbidden(_)
                | StoreError::Unauthenticated(_)
                | StoreError::Limited { .. }
                | StoreError::TermOver { .. }
                | StoreError::Unreadable(_)
                | StoreError::Corrupt(_),
            ) => seen.unreachable = None,
        }
    }

    /// How many tasks the worker had in hand when its loop last turned.
    pub(crate) fn running(&self) -> usize {
        self.seen().running
    }
}

#[cfg_attr(not(feature = "health"), expect(dead_code))]
impl Pulse {
    /// What people call the worker.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its id, if it has joined.
    pub(crate) fn worker(&self) -> Option<WorkerId> {
        self.seen().worker
    }

    /// How it is, where the worst counts: a loop that does not turn neither drains nor works.
    pub(crate) fn condition(&self, now: Instant, is_draining: bool) -> Condition {
        let seen = self.seen();
        let still = now.saturating_duration_since(seen.turned_at);
        if still > self.lease.saturating_mul(STUCK_LEASES).saturating_add(PAUSE_MAX) {
            return Condition::Stuck(still);
        }
        if is_draining {
            return Condition::Draining;
        }
        match &seen.unreachable {
            unreachable if seen.worker.is_none() => {
                Condition::Joining(unreachable.as_ref().map(|(_, reason)| reason.clone()))
            }
            Some((since, reason)) if now.saturating_duration_since(*since) > self.lease => {
                Condition::Unreachable(reason.clone())
            }
            Some(_) | None => Condition::Ready,
        }
    }
}

#[cfg(test)]
#[cfg(feature = "health")]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(2);

    fn joined() -> Pulse {
        let pulse = Pulse::new("w", LEASE, true);
        pulse.joined(WorkerId::from_random(1));
        pulse
    }

    fn away() -> Result<(), StoreError> {
        Err(StoreError::Unavailable("connection refused".to_owned()))
    }

    #[test]
    fn a_worker_is_ready_from_its_join_to_its_drain() {
        let pulse = Pulse::new("w", LEASE, true);
        let now = Instant::now();
        assert_eq!(pulse.condition(now, false), Condition::Joining(None));
        pulse.joined(WorkerId::from_random(1));
        assert_eq!(pulse.condition(now, false), Condition::Ready);
        assert_eq!(pulse.condition(now, true), Condition::Draining);
        pulse.joins();
        pulse.heard(&away());
        let reason = Some("connection refused".to_owned());
        assert_eq!(pulse.condition(now, false), Condition::Joining(reason));
    }

    #[test]
    fn a_store_that_is_away_counts_after_a_lease_and_until_it_answers_whatever() {
        let pulse = joined();
        pulse.heard(&away());
        std::thread::sleep(Duration::from_millis(2));
        pulse.heard(&away());
        let later = Instant::now() + LEASE;
        let reason = "connection refused".to_owned();
        assert_eq!(pulse.condition(Instant::now(), false), Condition::Ready);
        assert_eq!(pulse.condition(later, false), Condition::Unreachable(reason));
        assert_eq!(pulse.condition(later, true), Condition::Draining);
        pulse.heard::<()>(&Err(StoreError::LeaseLost(WorkerId::from_random(1))));
        assert_eq!(pulse.condition(later, false), Condition::Ready);
    }

    #[test]
    fn a_loop_that_does_not_turn_is_stuck_also_while_it_drains() {
        let pulse = joined();
        pulse.turn(1);
        let now = Instant::now();
        let limit = LEASE * STUCK_LEASES + PAUSE_MAX;
        assert_eq!(pulse.condition(now + limit - Duration::from_secs(1), false), Condition::Ready);
        for is_draining in [false, true] {
            let later = pulse.condition(now + limit + Duration::from_millis(1), is_draining);
            assert!(matches!(later, Condition::Stuck(_)), "{later:?}");
        }
        pulse.turn(0);
        assert_eq!(pulse.condition(Instant::now(), false), Condition::Ready);
    }
}
