//! What an engine counts of what it does, for Prometheus.
//!
//! A closed list: whatever is counted has a field in [`Metrics`], and every label has few values
//! by its kind, except for queues, of which the first [`QUEUES_MAX`] have labels of their own.
//! Tenants, workflows and runs are no labels. Counting is a few atomic additions, whether
//! anybody asks or not; [`text`] puts it into words.
//!
//! What a whole fleet has in its queues is not counted here but kept by the store
//! ([`QueueStore`](crate::store::QueueStore)).

mod instruments;
mod link;
mod scrape;
mod text;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use windlass_core::{Decision, QueueName};

pub(crate) use self::instruments::{Counter, Histogram};
pub(crate) use self::link::Metered;
#[cfg(feature = "health")]
pub(crate) use self::scrape::Scraper;
pub(crate) use self::text::{Text, WorkerGauges};
use crate::store::{Duty, Refusal};

/// The most queues that have labels of their own; the tasks of all others are counted together.
pub(crate) const QUEUES_MAX: usize = 100;

/// The upper bounds of times, in seconds: from a write on a fast disk to a lease.
const SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The upper bounds of how late something is, in seconds: from what nobody notices to an hour.
const LATENESS: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 600.0, 3600.0];

/// The upper bounds of batches.
const SIZES: &[f64] = &[0.0, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];

/// A verb of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Join,
    Claim,
    Finish,
    Release,
    Checkpoint,
    Record,
    TakeSignals,
    StartChildren,
    Extend,
}

impl Verb {
    const ALL: [Verb; 9] = [
        Verb::Join,
        Verb::Claim,
        Verb::Finish,
        Verb::Release,
        Verb::Checkpoint,
        Verb::Record,
        Verb::TakeSignals,
        Verb::StartChildren,
        Verb::Extend,
    ];

    const fn word(self) -> &'static str {
        match self {
            Verb::Join => "join",
            Verb::Claim => "claim",
            Verb::Finish => "finish",
            Verb::Release => "release",
            Verb::Checkpoint => "checkpoint",
            Verb::Record => "record",
            Verb::TakeSignals => "take_signals",
            Verb::StartChildren => "start_children",
            Verb::Extend => "extend",
        }
    }
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Succeeded,
    Failed,
    Retried,
    Skipped,
    Parked,
    Continued,
    HandedBack,
}

impl Outcome {
    const ALL: [Outcome; 7] = [
        Outcome::Succeeded,
        Outcome::Failed,
        Outcome::Retried,
        Outcome::Skipped,
        Outcome::Parked,
        Outcome::Continued,
        Outcome::HandedBack,
    ];

    const fn word(self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "failed",
            Outcome::Retried => "retried",
            Outcome::Skipped => "skipped",
            Outcome::Parked => "parked",
            Outcome::Continued => "continued",
            Outcome::HandedBack => "handed_back",
        }
    }

    fn of(decision: &Decision) -> Self {
        match decision {
            Decision::Succeed(_) => Outcome::Succeeded,
            Decision::Fail(_) => Outcome::Failed,
            Decision::Retry { .. } => Outcome::Retried,
            Decision::Skip => Outcome::Skipped,
            Decision::Park(_) => Outcome::Parked,
            Decision::Continue(_) => Outcome::Continued,
        }
    }
}

/// The words of refusals, in the order in which they are counted.
const REFUSALS: [(Refusal, &str); 4] = [
    (Refusal::LeaseLost, "stale_fence"),
    (Refusal::RunCancelled, "run_cancelled"),
    (Refusal::UnknownTask, "unknown_task"),
    (Refusal::Invalid, "invalid"),
];

/// What one verb took.
#[derive(Debug)]
struct VerbMetrics {
    seconds: Histogram,
    errors: Counter,
}

/// What this process does for one duty.
#[derive(Debug)]
pub(crate) struct DutyMetrics {
    pub(crate) seconds: Histogram,
    pub(crate) items: Counter,
    pub(crate) errors: Counter,
    /// Terms that this process began.
    pub(crate) terms: Counter,
    /// Those of them that it lost or gave up.
    pub(crate) leads_no_more: Counter,
    /// Sweeps that it did for a leader that was behind.
    pub(crate) helped: Counter,
}

/// What the workers and the background duties of one engine have done since it was made.
#[derive(Debug)]
pub(crate) struct Metrics {
    verbs: [VerbMetrics; Verb::ALL.len()],
    claim_sizes: Histogram,
    finish_sizes: Histogram,
    claimed: Mutex<BTreeMap<QueueName, u64>>,
    claimed_elsewhere: Counter,
    outcomes: [Counter; Outcome::ALL.len()],
    refusals: [Counter; REFUSALS.len()],
    leases_lost: Counter,
    tasks_lost: Counter,
    pub(crate) runs_started: Counter,
    duties: [DutyMetrics; Duty::ALL.len()],
    /// How late what was due first was, of each sweep that moved something.
    pub(crate) timer_lateness: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        let verb = |_| VerbMetrics { seconds: Histogram::new(SECONDS), errors: Counter::default() };
        let duty = |_| DutyMetrics {
            seconds: Histogram::new(SECONDS),
            items: Counter::default(),
            errors: Counter::default(),
            terms: Counter::default(),
            leads_no_more: Counter::default(),
            helped: Counter::default(),
        };
        Metrics {
            verbs: Verb::ALL.map(verb),
            claim_sizes: Histogram::new(SIZES),
            finish_sizes: Histogram::new(SIZES),
            claimed: Mutex::default(),
            claimed_elsewhere: Counter::default(),
            outcomes: Outcome::ALL.map(|_| Counter::default()),
            refusals: REFUSALS.map(|_| Counter::default()),
            leases_lost: Counter::default(),
            tasks_lost: Counter::default(),
            runs_started: Counter::default(),
            duties: Duty::ALL.map(duty),
            timer_lateness: Histogram::new(LATENESS),
        }
    }
}

impl Metrics {
    fn verb(&self, verb: Verb) -> &VerbMetrics {
        &self.verbs[verb as usize]
    }

    /// What is counted of a duty.
    pub(crate) fn duty(&self, duty: Duty) -> &DutyMetrics {
        &self.duties[duty as usize]
    }

    fn note_outcome(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].add(1);
    }

    fn note_refusal(&self, refusal: Refusal) {
        let place = REFUSALS.iter().position(|(one, _)| *one == refusal);
        if let Some(counter) = place.and_then(|place| self.refusals.get(place)) {
            counter.add(1);
        }
    }

    fn note_claimed<'a>(&self, queues: impl Iterator<Item = &'a QueueName>) {
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        for queue in queues {
            if let Some(count) = claimed.get_mut(queue) {
                *count += 1;
            } else if claimed.len() < QUEUES_MAX {
                claimed.insert(queue.clone(), 1);
            } else {
                self.claimed_elsewhere.add(1);
            }
        }
    }

    /// Sweeps that found something due count how late it was.
    pub(crate) fn note_lateness(&self, late: Duration) {
        self.timer_lateness.observe(late.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_beyond_the_limit_are_counted_together() {
        let metrics = Metrics::default();
        let names = |range: std::ops::Range<usize>| -> Vec<QueueName> {
            range.map(|n| QueueName::new(format!("q{n}")).unwrap()).collect()
        };
        metrics.note_claimed(names(0..QUEUES_MAX + 5).iter());
        metrics.note_claimed(names(0..2).iter());
        assert_eq!(metrics.claimed.lock().unwrap().len(), QUEUES_MAX);
        assert_eq!(metrics.claimed.lock().unwrap()[&names(0..1)[0]], 2);
        assert_eq!(metrics.claimed_elsewhere.get(), 5);
    }

    #[test]
    fn verbs_and_outcomes_are_counted_at_their_own_places() {
        for (place, verb) in Verb::ALL.into_iter().enumerate() {
            assert_eq!(verb as usize, place, "{verb:?}");
        }
        for (place, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, place, "{outcome:?}");
        }
        for (place, duty) in Duty::ALL.into_iter().enumerate() {
            assert_eq!(duty as usize, place, "{duty:?}");
        }
    }
}
