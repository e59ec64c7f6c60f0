//! The simulation itself, on a few seeds.

use windlass::PlantedBug;

use crate::commands::hunt;
use crate::seed::{Options, simulate};

#[test]
fn the_same_seed_gives_the_same_histories() {
    let options = Options { has_fingerprint: true, ..Options::default() };
    let mut fingerprints = Vec::new();
    for seed in 100..108 {
        let fingerprint = simulate(seed, options).fingerprint;
        assert_eq!(simulate(seed, options).fingerprint, fingerprint, "seed {seed}");
        fingerprints.push(fingerprint);
    }
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), 8, "seeds differ");
}

#[test]
fn twenty_seeds_keep_every_promise() {
    let mut attempts = 0;
    for seed in 1..=20 {
        let outcome = simulate(seed, Options::default());
        assert_eq!(outcome.violations, [], "seed {seed}");
        attempts += outcome.attempts;
    }
    assert!(attempts > 500, "only {attempts} attempts: the seeds show nothing");
}

#[test]
fn planted_bugs_are_caught() {
    for bug in [
        PlantedBug::FinishWithoutFence,
        PlantedBug::FailureWithoutCascade,
        PlantedBug::HintsWithoutPolling,
        PlantedBug::SweepWithoutTerm,
        PlantedBug::RecordWithoutFence,
        PlantedBug::WokenSleepsAreOver,
        PlantedBug::ResultsByCall,
        PlantedBug::FireInTwoSteps,
        PlantedBug::FireSkipsToNow,
        PlantedBug::FireDrifts,
        PlantedBug::DutyClaimedTwice,
        PlantedBug::DutyEndedWithoutTerm,
        PlantedBug::DutyDrifts,
    ] {
        assert!(hunt(bug, 120).is_some(), "{bug:?} was not caught within 120 seeds");
    }
}
