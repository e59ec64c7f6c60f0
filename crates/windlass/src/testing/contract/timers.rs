//! Time: one mechanism for delays, sleeps and backoffs, and never early.

use windlass_core::{RunState, TaskEventKind, TaskState};

use super::bench::{Bench, TICK, names, retry_after, seconds};
use crate::store::NewRun;

pub(crate) async fn a_backoff_is_never_early(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.accept(&worker.claim_one().await, retry_after(seconds(10))).await;
    let due = bench.now().await + seconds(10);
    bench.advance(seconds(10) - TICK).await;
    let sweep = bench.store.promote_due(10).await;
    assert_eq!(sweep, bench.swept(0, Some(due)).await);
    assert!(worker.claim(1).await.is_empty());
    assert_eq!(bench.states(run).await, "scheduled");
    bench.advance(TICK).await;
    let sweep = bench.store.promote_due(10).await;
    assert_eq!(sweep, bench.swept(1, None).await);
    assert_eq!(bench.states(run).await, "ready");
}

pub(crate) async fn a_delay_is_never_early(bench: &Bench<'_>) {
    bench.register("w", "a b").await;
    let run = bench.start_run(NewRun { delay: seconds(3), ..bench.new_run("w") }).await;
    bench.advance(seconds(3) - TICK).await;
    assert_eq!(bench.promote().await, 0);
    bench.advance(TICK).await;
    assert_eq!(bench.promote().await, 2);
    assert_eq!(bench.states(run).await, "ready ready");
}

pub(crate) async fn a_sleep_ends_on_time_and_lets_its_children_run(bench: &Bench<'_>) {
    bench.register("w", "a nap~5000<a b<nap").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.advance(seconds(1)).await;
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.states(run).await, "succeeded scheduled pending");
    let due = bench.now().await + seconds(5);
    assert_eq!(bench.task(run, "nap").await.available_at, Some(due));
    bench.advance(seconds(5) - TICK).await;
    assert_eq!(bench.promote().await, 0);
    assert!(worker.claim(10).await.is_empty(), "a sleep cannot be claimed");
    bench.advance(TICK).await;
    assert_eq!(bench.promote().await, 1);
    assert_eq!(bench.states(run).await, "succeeded succeeded ready");
    assert_eq!(bench.history(run, "nap").await, "sleeping woken");
    let events = bench.events(run).await;
    let sleeping = events.iter().filter_map(|event| event.task());
    let until: Vec<_> = sleeping
        .filter_map(|event| match event.kind {
            TaskEventKind::Sleeping { until } => Some(until),
            TaskEventKind::Queued
            | TaskEventKind::Delayed { .. }
            | TaskEventKind::Blocked { .. }
            | TaskEventKind::Woken
            | TaskEventKind::Started { .. }
            | TaskEventKind::Succeeded
            | TaskEventKind::Failed { .. }
            | TaskEventKind::Retrying { .. }
            | TaskEventKind::Released { .. }
            | TaskEventKind::Parked { .. }
            | TaskEventKind::Resumed
            | TaskEventKind::Continued
            | TaskEventKind::LeaseExpired { .. }
            | TaskEventKind::Skipped
            | TaskEventKind::Cancelled
            | TaskEventKind::Reset => None,
        })
        .collect();
    assert_eq!(until, [due]);
}

pub(crate) async fn a_sleep_that_is_the_last_task_ends_its_run(bench: &Bench<'_>) {
    bench.register("w", "nap~1000").await;
    let run = bench.start("w").await;
    bench.advance(seconds(1)).await;
    assert_eq!(bench.promote().await, 1);
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
}

pub(crate) async fn sleeps_in_a_row_take_the_sum_of_their_times(bench: &Bench<'_>) {
    bench.register("w", "one~1000 two~2000<one three~3000<two").await;
    let run = bench.start("w").await;
    for (wait, states) in [
        (1, "succeeded scheduled pending"),
        (2, "succeeded succeeded scheduled"),
        (3, "succeeded succeeded succeeded"),
    ] {
        bench.advance(seconds(wait) - TICK).await;
        assert_eq!(bench.promote().await, 0);
        bench.advance(TICK).await;
        assert_eq!(bench.promote().await, 1);
        assert_eq!(bench.states(run).await, states);
    }
}

pub(crate) async fn a_sleep_of_no_time_ends_with_the_next_sweep(bench: &Bench<'_>) {
    bench.register("w", "nap~0 a<nap").await;
    let run = bench.start("w").await;
    bench.promote().await;
    assert_eq!(bench.states(run).await, "succeeded ready");
}

pub(crate) async fn a_delayed_sleep_begins_after_the_delay(bench: &Bench<'_>) {
    bench.register("w", "nap~5000 a<nap").await;
    let run = bench.start_run(NewRun { delay: seconds(10), ..bench.new_run("w") }).await;
    bench.advance(seconds(15) - TICK).await;
    bench.promote().await;
    assert_eq!(bench.states(run).await, "scheduled pending");
    bench.advance(TICK).await;
    bench.promote().await;
    assert_eq!(bench.states(run).await, "succeeded ready");
}

pub(crate) async fn a_timer_that_is_late_fires_once(bench: &Bench<'_>) {
    bench.register("w", "nap~1000 a<nap").await;
    let run = bench.start("w").await;
    bench.advance(seconds(100_000)).await;
    assert_eq!(bench.promote().await, 1);
    assert_eq!(bench.promote().await, 0);
    assert_eq!(names(&bench.worker().await.claim(10).await), ["a"]);
    assert_eq!(bench.states(run).await, "succeeded running");
}

pub(crate) async fn a_sweep_goes_on_where_its_batch_ended(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let now = bench.now().await;
    let delayed = |delay| NewRun { delay: seconds(delay), ..bench.new_run("w") };
    let mut runs = Vec::new();
    for delay in [5, 5, 5, 6, 7, 60] {
        runs.push(bench.start_run(delayed(delay)).await);
    }
    let sweep = bench.store.promote_due(2).await;
    assert_eq!(sweep, bench.swept(0, Some(now + seconds(5))).await);
    bench.advance(seconds(10)).await;
    for expected in [2, 2] {
        let sweep = bench.store.promote_due(2).await.expect("promoting works");
        assert_eq!(sweep.moved, expected);
        let next = sweep.next_at.expect("there is more to do");
        assert!(next <= now + seconds(10), "the rest is due at {next:?}");
    }
    let sweep = bench.store.promote_due(2).await;
    assert_eq!(sweep, bench.swept(1, Some(now + seconds(60))).await);
    for run in &runs[..5] {
        assert_eq!(bench.task(*run, "a").await.state, TaskState::Ready);
    }
    assert_eq!(bench.task(runs[5], "a").await.state, TaskState::Scheduled);
}

pub(crate) async fn a_sweep_takes_the_earliest_times_first(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let mut runs = Vec::new();
    for delay in [20, 10, 15] {
        let run = NewRun { delay: seconds(delay), ..bench.new_run("w") };
        runs.push(bench.start_run(run).await);
    }
    bench.advance(seconds(20)).await;
    let worker = bench.worker().await;
    for run in [runs[1], runs[2], runs[0]] {
        assert_eq!(bench.store.promote_due(1).await.map(|sweep| sweep.moved), Ok(1));
        assert_eq!(worker.claim_one().await.task.run, run);
    }
}
