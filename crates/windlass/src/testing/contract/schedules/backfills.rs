//! Backfills: times that are past, started once.

use std::time::Duration;

use windlass_core::schedule::Overlap;
use windlass_core::{RunId, RunState};

use super::super::bench::{Bench, seconds};
use super::key;
use crate::store::schedules::{BACKFILL_MAX, NOMINAL_METADATA};
use crate::store::{Backfilled, FIRES_KEPT, RetentionRule, StoreError};

pub(crate) async fn a_backfill_starts_what_has_no_run(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    let mut schedule = bench.every_ten("s").await;
    schedule.timing.grace = seconds(15);
    let made = bench.put(schedule).await;
    bench.advance(seconds(61)).await;
    bench.fire().await;
    bench.advance(seconds(10)).await;
    // 50 and 60 ran, 70 is left to the schedule.
    let backfill = async |first, last| {
        let (first, last) = (from + seconds(first), from + seconds(last));
        bench.store.backfill_schedule(key("s"), first, last).await
    };
    let done = backfill(20, 1_000).await;
    assert_eq!(done, Ok(Backfilled { started: 3, existing: 2 }));
    assert_eq!(backfill(20, 1_000).await, Ok(Backfilled { started: 0, existing: 5 }));
    let lines =
        ["10-40 missed 4", "50 started", "60 started", "20 started", "30 started", "40 started"];
    assert_eq!(bench.fires("s", from).await, lines);
    let run = bench.run(RunId::of_fire(made.id, from + seconds(30))).await;
    assert_eq!(run.metadata[NOMINAL_METADATA], (from + seconds(30)).to_string());
    bench.fire().await;
    assert_eq!(bench.runs_of("s").await.len(), 6);
    let backwards = backfill(20, 10).await;
    assert!(matches!(backwards, Err(StoreError::Conflict(_))), "{backwards:?}");
}

pub(crate) async fn a_backfill_leaves_alone_what_waits_for_its_turn(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    let mut schedule = bench.every_ten("s").await;
    schedule.timing.overlap = Overlap::Queue;
    bench.put(schedule).await;
    for _ in 0..2 {
        bench.advance(seconds(10)).await;
        bench.fire().await;
    }
    assert_eq!(bench.fires("s", from).await, ["10 started", "20 queued"]);
    let all = (from + seconds(5), from + seconds(25));
    let done = bench.store.backfill_schedule(key("s"), all.0, all.1).await;
    assert_eq!(done, Ok(Backfilled { started: 0, existing: 1 }));
    bench.succeed(&bench.worker().await.claim_one().await).await;
    bench.advance(seconds(1)).await;
    bench.fire().await;
    assert_eq!(bench.fires("s", from).await, ["10 started", "20 started"]);
    bench.advance(seconds(10)).await;
    bench.fire().await;
    assert_eq!(bench.runs_of("s").await.len(), 2, "the third waits");
}

pub(crate) async fn a_backfill_has_a_limit(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    bench.put(bench.every_ten("s").await).await;
    bench.store.pause_schedule(key("s")).await.expect("it is there");
    bench.advance(seconds(10) * (BACKFILL_MAX as u32 + 1)).await;
    let until = |count: usize| from + seconds(10) * (count as u32);
    let first = from + seconds(10);
    let over = bench.store.backfill_schedule(key("s"), first, until(BACKFILL_MAX + 1)).await;
    let Err(StoreError::Conflict(text)) = over else { panic!("{over:?}") };
    assert!(text.contains("more than 1000 nominal times, which is the limit"), "{text}");
    assert_eq!(bench.runs_of("s").await, [], "nothing was started");
    let within = bench.store.backfill_schedule(key("s"), first, until(BACKFILL_MAX)).await;
    assert_eq!(within, Ok(Backfilled { started: BACKFILL_MAX, existing: 0 }));
    let again = bench.store.backfill_schedule(key("s"), first, until(BACKFILL_MAX)).await;
    assert_eq!(again, Ok(Backfilled { started: 0, existing: BACKFILL_MAX }));
}

impl Bench<'_> {
    /// Lets the only run go that has succeeded.
    async fn prune_succeeded(&self, archives: bool) {
        let rule = RetentionRule::new(RunState::Succeeded, Duration::ZERO);
        let rule = RetentionRule { archives, ..rule };
        self.store.set_retention(rule).await.expect("the rule makes sense");
        self.may_prune();
        self.advance(seconds(1)).await;
        assert_eq!(self.store.prune(10).await.expect("pruning works").moved, 1);
    }
}

/// The audit behind each case looks for runs of schedules that are not there.
pub(crate) async fn a_run_that_was_pruned_is_no_fault_where_the_rule_is_gone(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.put(bench.every_ten("s").await).await;
    bench.advance(seconds(10)).await;
    bench.fire().await;
    bench.succeed(&bench.worker().await.claim_one().await).await;
    bench.prune_succeeded(false).await;
    let cleared = bench.store.clear_retention(None, RunState::Succeeded).await;
    assert_eq!(cleared, Ok(true));
    assert_eq!(bench.runs_of("s").await, []);
}

pub(crate) async fn what_is_archived_is_not_backfilled(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    let mut schedule = bench.every_ten("s").await;
    schedule.timing.grace = seconds(10_000);
    bench.put(schedule).await;
    bench.advance(seconds(10)).await;
    bench.fire().await;
    bench.succeed(&bench.worker().await.claim_one().await).await;
    bench.prune_succeeded(true).await;
    bench.store.pause_schedule(key("s")).await.expect("it is there");
    bench.advance(seconds(10) * (FIRES_KEPT as u32)).await;
    let backfill = |count: u32| {
        let until = from + seconds(10) * count;
        bench.store.backfill_schedule(key("s"), from + seconds(1), until)
    };
    // Behind these, the line of the first is forgotten.
    let done = backfill(FIRES_KEPT as u32 + 1).await;
    assert_eq!(done, Ok(Backfilled { started: FIRES_KEPT, existing: 1 }));
    let again = backfill(1).await;
    assert_eq!(again, Ok(Backfilled { started: 0, existing: 1 }));
}
