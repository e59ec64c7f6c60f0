//! Stores that are asked the same say and hold the same.

use std::sync::Arc;
use std::time::Duration;

use windlass::Timestamp;
use windlass::clock::VirtualClock;
use windlass::store::{MemoryStore, Store};
use windlass::testing::contract::Subject;
use windlass::testing::differential::{self, Statistics};

struct Memory {
    clock: Arc<VirtualClock>,
    store: Arc<MemoryStore>,
}

#[async_trait::async_trait]
impl Subject for Memory {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Timestamp::from_micros(1_750_000_000_000_000)))
}

async fn memory() -> Memory {
    let clock = clock();
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    Memory { clock, store }
}

/// Tells the same story to a memory store and to another store.
async fn agree(other: &dyn Subject, seed: u64, steps: usize) -> Statistics {
    println!("seed {seed}");
    let compared = differential::run(&memory().await, other, seed, steps).await;
    compared.unwrap_or_else(|mismatch| panic!("{mismatch}"))
}

/// What a story must have met to be worth telling.
const INTERESTING: [&str; 90] = [
    "cancel_run: conflict of a cancel with a state",
    "cancel_run: done",
    "cancel_run: not found",
    "checkpoint: accepted",
    "checkpoint: refused, lease lost",
    "claim: conflict with a limit of batches",
    "claim: further attempt",
    "claim: lease lost",
    "claim: nothing",
    "claim: task with a checkpoint",
    "claim: task with failures",
    "claim: task with parents",
    "claim: task with steps",
    "discard: done",
    "event: blocked",
    "event: cancelled",
    "event: delayed",
    "event: failed",
    "event: lease_expired",
    "event: lease_expired for the last time",
    "event: parked",
    "event: released",
    "event: reset",
    "event: resumed",
    "event: retrying",
    "event: run_continued",
    "event: run_ended",
    "event: run_retried",
    "event: run_undoing",
    "event: skipped",
    "event: sleeping",
    "event: woken",
    "extend: all kept",
    "extend: lease lost",
    "extend: lost, lease lost",
    "extend: lost, run cancelled",
    "extend: lost, unknown task",
    "finish: accepted",
    "finish: accepted already",
    "finish: refused, invalid",
    "finish: refused, lease lost",
    "finish: refused, run cancelled",
    "finish: refused, unknown task",
    "get_task: done",
    "get_task: none",
    "join: conflict of shapes",
    "join: done",
    "join: lease lost",
    "lead: done",
    "leave: done",
    "list_dead_letters: done",
    "list_runs: page with more behind it",
    "list_steps: done",
    "list_tasks: done",
    "promote_due: moved, more to do",
    "read_undo: done",
    "reap: moved",
    "reap: moved, more to do",
    "record: accepted",
    "record: refused, invalid",
    "record: refused, lease lost",
    "record: refused, run cancelled",
    "redrive: more to do",
    "redrive: refused",
    "redrive: run",
    "register: conflict of shapes",
    "release: accepted already",
    "release: refused, lease lost",
    "resign: done",
    "retry_run: conflict of a retry with a state",
    "retry_run: conflict of rounds",
    "retry_run: done",
    "retry_run: not found",
    "signal: conflict of a signal with a state",
    "signal: done",
    "signal_key: done",
    "start_children: new",
    "start_children: refused, lease lost",
    "start_children: there already",
    "start_runs: conflict of a key",
    "start_runs: conflict of an id",
    "start_runs: conflict with a limit of metadata",
    "start_runs: not found",
    "start_runs: there already",
    "sweep: moved",
    "sweep: term over",
    "take_signals: none there",
    "take_signals: refused, lease lost",
    "take_signals: taken",
    "undo_run: done",
];

/// What the stories together must have been told of why runs do not go on.
const WHY: [&str; 15] = [
    "why: due",
    "why: ended",
    "why: failed",
    "why: lane",
    "why: lease_expired",
    "why: no_leader",
    "why: parents",
    "why: parked",
    "why: ready, without a worker",
    "why: ready, without its queue",
    "why: ready, without its workflow",
    "why: rest_of_run",
    "why: running",
    "why: signal",
    "why: time",
];

#[tokio::test]
async fn two_memory_stores_agree_whatever_the_seed() {
    for seed in 100..115 {
        agree(&memory().await, seed, 300).await;
    }
}

/// The stories that are told to the store in PostgreSQL: four, so that all cores have a part in
/// them. Few others are as eventful: of 400 seeds 4 miss no more in so few steps.
const STORIES: [u64; 4] = [51, 257, 359, 175];

/// How many of the interesting kinds one of them may miss.
const MISSED_MAX: usize = 2;

/// How many steps each of them has.
const STEPS: usize = 1_200;

#[tokio::test]
async fn the_stories_meet_everything_that_is_interesting() {
    let mut missing = [&INTERESTING[..], &WHY].concat();
    for seed in STORIES {
        let statistics = agree(&memory().await, seed, STEPS).await;
        let missed = INTERESTING.iter().filter(|kind| statistics.count(kind) == 0).count();
        assert!(missed <= MISSED_MAX, "story {seed} misses {missed} kinds:\n{statistics}");
        missing.retain(|kind| statistics.count(kind) == 0);
    }
    assert!(missing.is_empty(), "never met: {missing:?}");
}

/// Another choice of verbs makes other stories: this prints which ones are eventful.
#[tokio::test]
#[ignore = "prints seeds to choose stories from, and tests nothing"]
async fn eventful_stories() {
    for seed in 1..=400 {
        let statistics = agree(&memory().await, seed, STEPS).await;
        let all = INTERESTING.iter().chain(&WHY);
        let missed: Vec<_> = all.filter(|kind| statistics.count(kind) == 0).collect();
        if missed.len() <= MISSED_MAX + 3 {
            println!("{seed} misses {missed:?}");
        }
    }
}

#[cfg(all(feature = "embedded", feature = "postgres", unix))]
mod the_store_in_postgresql_agrees_with_that_in_memory {
    use super::*;

    async fn agree_over(story: usize) {
        let postgres = crate::postgres::postgres_with_one_connection().await;
        agree(&postgres, STORIES[story], STEPS).await;
    }

    #[tokio::test]
    async fn over_the_first_story() {
        agree_over(0).await;
    }

    #[tokio::test]
    async fn over_the_second_story() {
        agree_over(1).await;
    }

    /// What takes too long for every day; `cargo xtask test` runs it by name.
    mod long {
        use super::*;

        /// Ten thousand steps, in four parts.
        async fn agree_for_long(seed: u64) {
            let postgres = crate::postgres::postgres_with_one_connection().await;
            agree(&postgres, seed, 2_500).await;
        }

        #[tokio::test]
        #[ignore = "long"]
        async fn over_the_third_story() {
            agree_over(2).await;
        }

        #[tokio::test]
        #[ignore = "long"]
        async fn over_the_last_story() {
            agree_over(3).await;
        }

        #[tokio::test]
        #[ignore = "long"]
        async fn over_the_first_of_ten_thousand_steps() {
            agree_for_long(4).await;
        }

        #[tokio::test]
        #[ignore = "long"]
        async fn over_more_of_ten_thousand_steps() {
            agree_for_long(6).await;
        }

        #[tokio::test]
        #[ignore = "long"]
        async fn over_yet_more_of_ten_thousand_steps() {
            agree_for_long(7).await;
        }

        #[tokio::test]
        #[ignore = "long"]
        async fn over_the_last_of_ten_thousand_steps() {
            agree_for_long(8).await;
        }
    }
}

#[tokio::test]
async fn the_same_seed_tells_the_same_story() {
    let first = agree(&memory().await, 7, 1_000).await;
    assert_eq!(agree(&memory().await, 7, 1_000).await, first);
    assert_ne!(agree(&memory().await, 8, 1_000).await, first, "seeds differ");
}

#[tokio::test]
async fn clocks_that_differ_are_a_mismatch_before_anything_happens() {
    let late = memory().await;
    late.advance(Duration::from_micros(1)).await;
    let compared = differential::run(&memory().await, &late, 3, 10).await;
    let mismatch = compared.expect_err("one clock is ahead");
    assert_eq!((mismatch.seed, mismatch.step, mismatch.what()), (3, 0, "the answer"));
    let text = mismatch.to_string();
    for part in
        ["after step 0 of seed 3", "left:  Now(", "15:06:40Z", "40.000001Z", "0 advance 0ns"]
    {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// Stores with a mistake do not agree with one that has none.
#[cfg(feature = "planted-bugs")]
mod planted {
    use windlass::PlantedBug;

    use super::*;

    /// Within how many steps a mistake must show.
    const STEPS: usize = 4_000;

    /// Whether a mistake shows in what a store says, with one verb after the other.
    fn can_show(bug: PlantedBug) -> bool {
        match bug {
            PlantedBug::FinishWithoutFence
            | PlantedBug::FailureWithoutCascade
            | PlantedBug::ReapWithoutCascade
            | PlantedBug::HeartbeatWithoutFence
            | PlantedBug::LostClaimsForgotten
            | PlantedBug::BackoffInMemory
            | PlantedBug::FirstHeartbeatNeverExpires
            | PlantedBug::ReapWithoutAttemptLimit
            | PlantedBug::ReleaseCostsAttempt
            | PlantedBug::RetryResetsFence
            | PlantedBug::EarlyTimers
            | PlantedBug::TagFromUnclaimedMaximum
            | PlantedBug::RepeatedFinishCounts
            | PlantedBug::ReadyAfterFirstParent
            | PlantedBug::CancelForgetsTimers
            | PlantedBug::ClaimsKeepLease
            | PlantedBug::KeysNotUnique
            | PlantedBug::SweepWithoutTerm
            | PlantedBug::RecordWithoutFence
            | PlantedBug::ParkWithoutFence
            | PlantedBug::SignalMissedAtPark
            | PlantedBug::ChildMissedAtPark
            | PlantedBug::WaitBegunAnew
            | PlantedBug::CancelForgetsChildren
            | PlantedBug::StepsKeptWhenContinued
            | PlantedBug::KeySignalMissedAtPark
            | PlantedBug::KeySignalTakenTwice
            | PlantedBug::KeySignalTellsOne
            | PlantedBug::SlotReleasedTwice
            | PlantedBug::LimitForgottenWhileFinishing
            | PlantedBug::CancelKeepsSlots
            | PlantedBug::LaneCheckedWithoutLock
            | PlantedBug::LaneByTaskId
            | PlantedBug::TokenNotCounted
            | PlantedBug::TokensRefilledTwice
            | PlantedBug::HaltedStreamGoesOn
            | PlantedBug::RedriveLosesPlace => true,
            // Half of the stories have deadlines, and few of those meet these; the simulation does.
            PlantedBug::ClaimTimeoutOfClaimed | PlantedBug::RetryForgetsDeadline => false,
            // Few stories meet such limits often enough; the simulation does.
            PlantedBug::DebounceKeepsFirst
            | PlantedBug::BreakerNeverOpens
            | PlantedBug::BreakerNeverCloses
            | PlantedBug::ProbeLetsTwoThrough
            | PlantedBug::SupersededStillRuns
            | PlantedBug::DiscardKeepsSlots => false,
            // The stories have no schedules.
            PlantedBug::FireInTwoSteps | PlantedBug::FireSkipsToNow | PlantedBug::FireDrifts => {
                false
            }
            // Nor have they duties of programs.
            PlantedBug::DutyClaimedTwice
            | PlantedBug::DutyEndedWithoutTerm
            | PlantedBug::DutyDrifts => false,
            // A crash between two steps of the store shows these.
            PlantedBug::ClaimInTwoSteps
            | PlantedBug::TimerConsumedEffectLost
            | PlantedBug::TakeInTwoSteps
            | PlantedBug::UndoInAnotherStep => false,
            // These are mistakes of workers.
            PlantedBug::DrainStopsHeartbeat
            | PlantedBug::DrainKeepsClaiming
            | PlantedBug::HintsWithoutPolling
            | PlantedBug::ClaimsOverSlots
            | PlantedBug::WokenSleepsAreOver
            | PlantedBug::ResultsByCall
            | PlantedBug::RetriedChildReused
            | PlantedBug::UndoInOrder => false,
        }
    }

    /// How a mistake shows, if it does.
    async fn hunt(bug: PlantedBug, seed: u64) -> Option<String> {
        let clock = clock();
        let store = Arc::new(MemoryStore::with_bug(clock.clone(), Some(bug)));
        let wrong = Memory { clock, store };
        let story =
            async move { differential::run(&memory().await, &wrong, seed, STEPS).await.err() };
        // A store may be so wrong that it panics, which shows as well.
        match tokio::spawn(story).await {
            Ok(mismatch) => {
                mismatch.map(|found| format!("at step {}: {}", found.step, found.what()))
            }
            Err(panic) => Some(panic.to_string()),
        }
    }

    /// Mistakes that few stories meet, of which one in so many must.
    const RARE: [PlantedBug; 15] = [
        PlantedBug::CancelForgetsChildren,
        PlantedBug::StepsKeptWhenContinued,
        PlantedBug::KeySignalMissedAtPark,
        PlantedBug::KeySignalTakenTwice,
        PlantedBug::KeySignalTellsOne,
        PlantedBug::SlotReleasedTwice,
        PlantedBug::LimitForgottenWhileFinishing,
        PlantedBug::CancelKeepsSlots,
        PlantedBug::LaneCheckedWithoutLock,
        PlantedBug::LaneByTaskId,
        PlantedBug::TokenNotCounted,
        PlantedBug::TokensRefilledTwice,
        PlantedBug::HaltedStreamGoesOn,
        PlantedBug::RedriveLosesPlace,
        PlantedBug::ParkWithoutFence,
    ];
    const RARE_SEEDS: u64 = 30;

    #[tokio::test]
    async fn every_mistake_that_can_show_in_few_stories_is_found() {
        for bug in RARE {
            let mut found = None;
            for seed in 1..=RARE_SEEDS {
                if let Some(shown) = hunt(bug, seed).await {
                    found = Some((seed, shown));
                    break;
                }
            }
            let (seed, shown) = found.unwrap_or_else(|| panic!("{bug:?} does not show"));
            println!("{bug:?} shows with seed {seed} {shown}");
        }
    }

    #[tokio::test]
    async fn every_mistake_that_can_show_is_found() {
        let is_common = |bug: &PlantedBug| can_show(*bug) && !RARE.contains(bug);
        for bug in PlantedBug::ALL.into_iter().filter(is_common) {
            for seed in 1..=3 {
                let shown = hunt(bug, seed).await;
                let shown = shown.unwrap_or_else(|| panic!("{bug:?} does not show, seed {seed}"));
                println!("{bug:?} shows with seed {seed} {shown}");
            }
        }
    }
}
