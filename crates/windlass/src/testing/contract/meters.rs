//! Limits on what happens in a time: rates, debounces, breakers; newcomers that take the place of
//! the oldest; streams that a failure halts.

use std::sync::Arc;

use windlass_core::definition::TaskDraft;
use windlass_core::{
    Call, Decision, DefinitionDraft, Limit, LimitName, Parking, Reason, RunState, StepChange,
    StepKind, StepName, StepWrite, TaskKind, Trigger, Wait, WhenFull,
};

use super::bench::{Bench, TICK, failure, retry_after, seconds, success};
use super::lanes::{limited, runs};
use super::steps::send;
use super::why::count;
use crate::store::Answer;

pub(crate) async fn a_rate_lets_tasks_become_ready_one_after_the_other(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::rate(1, seconds(10)).by("key")).await;
    let mut started = Vec::new();
    for _ in 0..3 {
        started.push(bench.start_keyed("w", "x").await);
    }
    let other = bench.start_keyed("w", "y").await;
    assert_eq!(bench.firsts(&started).await, "ready waiting waiting");
    assert_eq!(bench.firsts(&[other]).await, "ready", "another key has tokens of its own");
    let worker = bench.worker().await;
    bench.work(&worker, |_| success()).await;
    assert_eq!(bench.firsts(&started).await, "succeeded waiting waiting", "its end gives no token");
    bench.advance(seconds(10) - TICK).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&started).await, "succeeded waiting waiting", "never early");
    bench.advance(TICK).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&started).await, "succeeded ready waiting");
    assert_eq!(bench.history(started[1], "a").await, "blocked resumed");
    bench.advance(seconds(10)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&started).await, "succeeded ready ready", "whoever works on them");
    bench.advance(seconds(10)).await;
    let last = bench.start_keyed("w", "x").await;
    assert_eq!(bench.firsts(&[last]).await, "ready");
}

pub(crate) async fn a_burst_lets_several_begin_at_once(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::rate(2, seconds(10)).burst(3)).await;
    let mut started = Vec::new();
    for _ in 0..5 {
        started.push(bench.start_keyed("w", "x").await);
    }
    assert_eq!(bench.firsts(&started).await, "ready ready ready waiting waiting");
    bench.advance(seconds(10)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&started[3..]).await, "ready ready", "a late sweep loses no token");
    bench.advance(seconds(1_000)).await;
    let mut started = Vec::new();
    for _ in 0..4 {
        started.push(bench.start_keyed("w", "x").await);
    }
    assert_eq!(bench.firsts(&started).await, "ready ready ready waiting", "no more are saved up");
}

pub(crate) async fn who_waits_for_a_token_and_is_cancelled_takes_none(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::rate(1, seconds(10))).await;
    let mut started = Vec::new();
    for _ in 0..4 {
        started.push(bench.start_keyed("w", "x").await);
    }
    for run in &started[1..3] {
        bench.store.cancel_run(*run, None).await.expect("it can be cancelled");
    }
    bench.advance(seconds(10)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&started).await, "ready cancelled cancelled ready");
}

pub(crate) async fn each_attempt_takes_a_token(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::rate(1, seconds(10))).await;
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    bench.accept(&worker.claim_one().await, retry_after(seconds(1))).await;
    bench.advance(seconds(1)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second]).await, "waiting waiting");
    bench.advance(seconds(9)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second]).await, "waiting ready", "it came before");
    bench.advance(seconds(10)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second]).await, "ready ready");
    bench.work(&worker, |_| success()).await;
    assert_eq!(bench.run(first).await.state, RunState::Succeeded);
}

fn open(call: u32, kind: StepKind, wait: Wait) -> StepWrite {
    StepWrite {
        call: Call(call),
        name: StepName::new("s").expect("it is a name"),
        kind,
        key: None,
        change: StepChange::Open { failures: 0, failure: None, wait },
    }
}

pub(crate) async fn what_slept_needs_no_token(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::rate(1, seconds(1_000))).await;
    let run = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    let steps = vec![open(1, StepKind::Sleep, Wait::For(seconds(5)))];
    let parking = Parking { steps, waits: Vec::new(), awaits: false };
    bench.accept(&worker.claim_one().await, Decision::Park(parking)).await;
    bench.advance(seconds(5)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[run]).await, "ready");
}

pub(crate) async fn a_rate_that_skips_drops_what_comes_too_soon(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::rate(1, seconds(10)).when_full(WhenFull::Skip)).await;
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    bench.advance(seconds(10)).await;
    let third = bench.start_keyed("w", "x").await;
    assert_eq!(bench.firsts(&[first, second, third]).await, "ready skipped ready");
}

pub(crate) async fn a_task_waits_for_its_slot_before_it_takes_a_token(bench: &Bench<'_>) {
    let limits = vec![Limit::of(1), Limit::rate(1, seconds(10))];
    bench.try_register(limited("w", 1, &[("a", limits)])).await.expect("it can be registered");
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    let third = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    bench.advance(seconds(10)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second, third]).await, "ready waiting waiting");
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.firsts(&[second, third]).await, "ready waiting", "nobody had its token");
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.firsts(&[second, third]).await, "succeeded waiting", "it has a slot");
    bench.advance(seconds(10)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[third]).await, "ready");
}

pub(crate) async fn a_debounce_lets_the_last_go_on_and_cancels_the_others(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::debounce(seconds(5)).by("key")).await;
    let first = bench.start_keyed("w", "x").await;
    let other = bench.start_keyed("w", "y").await;
    bench.advance(seconds(4)).await;
    let second = bench.start_keyed("w", "x").await;
    bench.advance(seconds(4)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second, other]).await, "cancelled waiting ready");
    bench.advance(seconds(1)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[second]).await, "ready");
    let worker = bench.worker().await;
    bench.work(&worker, |_| success()).await;
    let third = bench.start_keyed("w", "x").await;
    assert_eq!(bench.firsts(&[second, third]).await, "succeeded waiting");
    bench.advance(seconds(5)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[third]).await, "ready");
}

pub(crate) async fn a_debounce_puts_off_no_longer_than_it_may(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::debounce(seconds(5)).at_most(seconds(12))).await;
    let mut started = Vec::new();
    for _ in 0..4 {
        started.push(bench.start_keyed("w", "x").await);
        bench.advance(seconds(3)).await;
        bench.promote().await;
    }
    assert_eq!(bench.firsts(&started).await, "cancelled cancelled cancelled ready");
}

pub(crate) async fn what_was_put_off_never_runs_though_its_time_has_come(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::debounce(seconds(5))).await;
    let first = bench.start_keyed("w", "x").await;
    bench.advance(seconds(4)).await;
    let second = bench.start_keyed("w", "x").await;
    bench.advance(seconds(1)).await;
    // The first would have been due, and no sweep has come that cancels it.
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second]).await, "cancelled waiting");
    assert_eq!(bench.history(first, "a").await, "blocked cancelled");
}

pub(crate) async fn whose_time_has_come_goes_on_though_someone_comes_before_the_sweep(
    bench: &Bench<'_>,
) {
    bench.register_limited("w", Limit::debounce(seconds(5))).await;
    let first = bench.start_keyed("w", "x").await;
    bench.advance(seconds(5)).await;
    let second = bench.start_keyed("w", "x").await;
    assert_eq!(bench.firsts(&[first, second]).await, "ready waiting");
}

pub(crate) async fn a_newcomer_takes_the_place_of_the_oldest(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1).when_full(WhenFull::CancelOldest)).await;
    let first = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    let second = bench.start_keyed("w", "x").await;
    assert_eq!(bench.firsts(&[first, second]).await, "running waiting", "never two at once");
    let third = bench.start_keyed("w", "x").await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second, third]).await, "cancelled cancelled ready");
    let late = bench.finish(&claimed, success()).await;
    assert!(matches!(late, Answer::Refused(_)), "{late:?}");
    let again = worker.claim(10).await;
    assert_eq!(runs(&again), [third]);
    let last = bench.start_keyed("w", "x").await;
    assert_eq!(bench.firsts(&[third, last]).await, "running waiting", "nothing was freed twice");
}

pub(crate) async fn a_run_whose_place_was_taken_may_end_before_it_is_cancelled(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::of(1).when_full(WhenFull::CancelOldest)).await;
    let first = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    let second = bench.start_keyed("w", "x").await;
    bench.succeed(&claimed).await;
    assert_eq!(bench.firsts(&[first, second]).await, "succeeded ready");
    bench.promote().await;
    assert_eq!(bench.run(first).await.state, RunState::Succeeded);
    assert_eq!(bench.firsts(&[second]).await, "ready");
}

pub(crate) async fn a_free_slot_is_not_for_who_lost_its_place_while_it_waited(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::of(1).when_full(WhenFull::CancelOldest)).await;
    let first = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    let second = bench.start_keyed("w", "x").await;
    let third = bench.start_keyed("w", "x").await;
    // No sweep has cancelled the second one yet.
    bench.succeed(&claimed).await;
    assert_eq!(bench.firsts(&[first, second, third]).await, "succeeded waiting ready");
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second, third]).await, "succeeded cancelled ready");
}

pub(crate) async fn of_many_newcomers_the_last_ones_stay(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::of(2).when_full(WhenFull::CancelOldest)).await;
    let new: Vec<_> = (0..6).map(|_| bench.new_run("w")).collect();
    let started: Vec<_> = new.iter().map(|run| run.id).collect();
    for answer in bench.store.start_runs(new).await.expect("starting works") {
        answer.expect("it is started");
    }
    bench.promote().await;
    assert_eq!(bench.firsts(&started).await, "cancelled cancelled cancelled cancelled ready ready");
}

pub(crate) async fn who_is_skipped_and_who_waits_do_not_wait_for_each_other(bench: &Bench<'_>) {
    let (a, b) = (Limit::of(1).named("a"), Limit::of(1).named("b"));
    let both = vec![a.clone(), b.clone()];
    let skipped = vec![a.clone(), b.when_full(WhenFull::Skip)];
    for (workflow, limits) in [("one", vec![a]), ("both", both), ("skipped", skipped)] {
        let definition = limited(workflow, 1, &[("a", limits)]);
        bench.try_register(definition).await.expect("it can be registered");
    }
    let first = bench.start_keyed("one", "x").await;
    let second = bench.start_keyed("both", "x").await;
    let third = bench.start_keyed("skipped", "x").await;
    let worker = bench.worker().await;
    for (run, states) in [
        (first, "ready waiting waiting"),
        (second, "succeeded ready waiting"),
        (third, "succeeded succeeded ready"),
    ] {
        assert_eq!(bench.firsts(&[first, second, third]).await, states);
        let claimed = worker.claim_one().await;
        assert_eq!(claimed.task.run, run);
        bench.succeed(&claimed).await;
    }
}

fn breaker() -> Limit {
    Limit::breaker(100).calls(2).window(seconds(60)).pause(seconds(30))
}

pub(crate) async fn a_breaker_holds_tasks_lets_one_try_and_then_all(bench: &Bench<'_>) {
    bench.register_limited("w", breaker().by("key")).await;
    let worker = bench.worker().await;
    for _ in 0..2 {
        bench.start_keyed("w", "x").await;
        bench.fail(&worker.claim_one().await).await;
    }
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(bench.start_keyed("w", "x").await);
    }
    let other = bench.start_keyed("w", "y").await;
    assert_eq!(bench.firsts(&held).await, "waiting waiting waiting");
    assert_eq!(bench.firsts(&[other]).await, "ready", "another key has a breaker of its own");
    bench.succeed(&worker.claim_one().await).await;
    bench.advance(seconds(30)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&held).await, "ready waiting waiting", "one tries");
    bench.fail(&worker.claim_one().await).await;
    bench.advance(seconds(29)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&held).await, "failed waiting waiting");
    bench.advance(seconds(1)).await;
    bench.promote().await;
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.firsts(&held).await, "failed succeeded ready");
    let next = bench.start_keyed("w", "x").await;
    assert_eq!(bench.firsts(&[next]).await, "ready");
}

pub(crate) async fn a_task_behind_an_open_breaker_says_that_nobody_promotes(bench: &Bench<'_>) {
    bench.register_limited("w", breaker().by("key")).await;
    let worker = bench.worker().await;
    for _ in 0..2 {
        bench.start_keyed("w", "x").await;
        bench.fail(&worker.claim_one().await).await;
    }
    let held = bench.start_keyed("w", "x").await;
    let why = bench.store.why(held, None).await.expect("reading works").expect("it is there");
    let reasons = &why.tasks[0].reasons;
    assert!(
        matches!(&reasons[..], [Reason::Breaker { .. }, Reason::NoLeader { duty, .. }]
            if duty == "promote_due"),
        "{reasons:?}"
    );
}

pub(crate) async fn a_retry_behind_an_open_breaker_waits(bench: &Bench<'_>) {
    bench.register_limited("w", breaker()).await;
    let worker = bench.worker().await;
    let first = bench.start_keyed("w", "x").await;
    for _ in 0..2 {
        bench.accept(&worker.claim_one().await, retry_after(seconds(1))).await;
        bench.advance(seconds(1)).await;
        bench.promote().await;
    }
    assert_eq!(bench.firsts(&[first]).await, "waiting");
    bench.advance(seconds(29)).await;
    bench.promote().await;
    let probe = worker.claim_one().await;
    assert_eq!(probe.attempt, 3);
    bench.succeed(&probe).await;
    assert_eq!(bench.run(first).await.state, RunState::Succeeded);
}

pub(crate) async fn who_tries_for_a_breaker_and_is_cancelled_leaves_it_to_the_next(
    bench: &Bench<'_>,
) {
    bench.register_limited("w", breaker()).await;
    let worker = bench.worker().await;
    for _ in 0..2 {
        bench.start_keyed("w", "x").await;
        bench.fail(&worker.claim_one().await).await;
    }
    let probe = bench.start_keyed("w", "x").await;
    let next = bench.start_keyed("w", "x").await;
    bench.advance(seconds(30)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[probe, next]).await, "ready waiting");
    bench.store.cancel_run(probe, None).await.expect("it can be cancelled");
    bench.promote().await;
    assert_eq!(bench.firsts(&[probe, next]).await, "cancelled ready");
}

pub(crate) async fn a_failed_task_halts_its_stream_until_its_run_is_retried(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1).halt()).await;
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    bench.fail(&worker.claim_one().await).await;
    assert_eq!(bench.firsts(&[first, second]).await, "failed waiting");
    assert!(worker.claim(10).await.is_empty());
    bench.store.retry_run(first, 1).await.expect("it can be retried");
    assert_eq!(bench.firsts(&[first, second]).await, "ready waiting", "it has its place");
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.firsts(&[first, second]).await, "succeeded ready");
}

pub(crate) async fn a_signal_does_not_wake_who_waits_for_a_token(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::rate(1, seconds(10))).await;
    let run = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    let steps = vec![
        open(1, StepKind::Signal, Wait::Forever),
        open(2, StepKind::Sleep, Wait::For(seconds(1))),
    ];
    let parking = Parking { steps, waits: Vec::new(), awaits: true };
    bench.accept(&worker.claim_one().await, Decision::Park(parking)).await;
    bench.advance(seconds(1)).await;
    bench.promote().await;
    let claimed = worker.claim_one().await;
    bench.accept(&claimed, Decision::Retry { failure: failure(), delay: seconds(1) }).await;
    bench.advance(seconds(1)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[run]).await, "waiting", "it waits for its next attempt");
    send(bench, 1, run, "s", "1").await;
    assert_eq!(bench.firsts(&[run]).await, "waiting", "and for nothing else");
    bench.advance(seconds(8)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[run]).await, "ready");
}

pub(crate) async fn what_a_lane_remembers_is_forgotten_in_time(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::rate(1, seconds(10)).by("key")).await;
    let worker = bench.worker().await;
    for key in ["x", "y"] {
        bench.start_keyed("w", key).await;
    }
    bench.work(&worker, |_| success()).await;
    bench.advance(seconds(9)).await;
    bench.promote().await;
    let early = bench.start_keyed("w", "x").await;
    assert_eq!(bench.firsts(&[early]).await, "waiting", "it is remembered");
    bench.advance(seconds(1)).await;
    bench.promote().await;
    let late = bench.start_keyed("w", "y").await;
    assert_eq!(bench.firsts(&[early, late]).await, "ready ready");
}

pub(crate) async fn many_who_wait_for_tokens_are_cancelled_at_once(bench: &Bench<'_>) {
    let limit = || Limit::rate(1, seconds(10)).named("rate");
    bench.register_limited("w", limit()).await;
    let mut draft = limited("many", 1, &[("a", vec![limit()])]).to_draft();
    for number in 0..40 {
        let task = TaskDraft { name: format!("t{number}"), ..draft.tasks[0].clone() };
        draft.tasks.push(task);
    }
    let many = Arc::new(draft.build().expect("it is a workflow"));
    bench.try_register(many).await.expect("it can be registered");
    let first = bench.start_keyed("many", "x").await;
    let last = bench.start_keyed("w", "x").await;
    bench.store.cancel_run(first, None).await.expect("it can be cancelled");
    assert_eq!(bench.firsts(&[last]).await, "waiting");
    bench.advance(seconds(10)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[last]).await, "ready");
}

pub(crate) async fn who_goes_from_one_lane_to_the_next_waits_there_without_a_time(
    bench: &Bench<'_>,
) {
    let limits = vec![Limit::debounce(seconds(5)).by("key"), Limit::of(1)];
    bench.try_register(limited("w", 1, &[("a", limits)])).await.expect("it can be registered");
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "y").await;
    bench.advance(seconds(5)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second]).await, "ready waiting");
    assert_eq!(bench.tasks(second).await[0].available_at, None, "it waits for a slot");
    let sweep = bench.store.promote_due(100).await.expect("promoting works");
    assert_eq!(sweep.moved, 0);
    let worker = bench.worker().await;
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.firsts(&[first, second]).await, "succeeded ready");
}

pub(crate) async fn the_next_attempt_of_a_throttled_task_waits(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::rate(1, seconds(10)).when_full(WhenFull::Skip)).await;
    let run = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    bench.accept(&worker.claim_one().await, retry_after(seconds(1))).await;
    bench.advance(seconds(1)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[run]).await, "waiting");
    bench.advance(seconds(9)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[run]).await, "ready");
}

pub(crate) async fn a_halted_slot_is_free_when_its_run_is_cancelled(bench: &Bench<'_>) {
    let mut draft = limited("w", 1, &[("a", vec![Limit::per("key", 1).halt()])]).to_draft();
    let other = TaskDraft { name: "b".to_owned(), limits: Vec::new(), ..draft.tasks[0].clone() };
    draft.tasks.push(other);
    let both = Arc::new(draft.build().expect("it is a workflow"));
    bench.try_register(both).await.expect("it can be registered");
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    let claimed = worker.claim(10).await;
    let failed = claimed.iter().find(|one| one.task.run == first && one.spec.name.as_str() == "a");
    bench.fail(failed.expect("it was ready")).await;
    assert_eq!(bench.firsts(&[first, second]).await, "failed waiting");
    bench.store.cancel_run(first, None).await.expect("it can be cancelled");
    assert_eq!(bench.firsts(&[first, second]).await, "failed ready");
}

pub(crate) async fn a_signal_does_not_wake_who_waits_for_its_slot_again(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::of(1)).await;
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    let steps = vec![
        open(1, StepKind::Signal, Wait::Forever),
        open(2, StepKind::Sleep, Wait::For(seconds(1))),
    ];
    let parking = Parking { steps, waits: Vec::new(), awaits: true };
    bench.accept(&worker.claim_one().await, Decision::Park(parking)).await;
    bench.advance(seconds(1)).await;
    bench.promote().await;
    bench.accept(&worker.claim_one().await, Decision::Fail(failure())).await;
    assert_eq!(bench.store.retry_run(first, 1).await, Ok(2));
    assert_eq!(bench.firsts(&[first, second]).await, "waiting ready");
    send(bench, 1, first, "s", "1").await;
    assert_eq!(bench.firsts(&[first, second]).await, "waiting ready");
    bench.work(&worker, |_| success()).await;
    assert_eq!(bench.run(first).await.state, RunState::Succeeded);
}

pub(crate) async fn a_task_waits_for_time_to_pass_in_a_lane_and_says_how_long(bench: &Bench<'_>) {
    let limit = LimitName::new("l").expect("a name");
    let begin = bench.now().await;
    let register = async |workflow: &str, limit: Limit| {
        bench.register_limited(workflow, limit.named("l").across_tenants()).await;
    };
    register("rate", Limit::rate(1, seconds(10))).await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(bench.start_keyed("rate", "x").await);
    }
    let (before, until) = (count(1), Some(begin + seconds(20)));
    let rate = Reason::Rate { limit: limit.clone(), key: None, before, until };
    assert_eq!(bench.reason(runs[2], "a").await, rate);
    for run in runs {
        bench.store.cancel_run(run, None).await.expect("it can be cancelled");
    }
    bench.advance(seconds(10)).await;
    bench.promote().await;
    register("debounce", Limit::debounce(seconds(5))).await;
    let first = bench.start_keyed("debounce", "x").await;
    let second = bench.start_keyed("debounce", "x").await;
    let superseded = Reason::Superseded { limit: limit.clone(), key: None };
    assert_eq!(bench.reason(first, "a").await, superseded);
    let until = begin + seconds(15);
    let quiet = Reason::Quiet { limit: limit.clone(), key: None, until };
    assert_eq!(bench.reason(second, "a").await, quiet);
    bench.promote().await;
    bench.store.cancel_run(second, None).await.expect("it can be cancelled");
    bench.advance(seconds(60)).await;
    bench.promote().await;
    register("breaker", Limit::breaker(1).calls(1).pause(seconds(30))).await;
    let worker = bench.worker().await;
    bench.start_keyed("breaker", "x").await;
    bench.fail(&worker.claim_one().await).await;
    let held = bench.start_keyed("breaker", "x").await;
    let next = bench.start_keyed("breaker", "x").await;
    let open = |before, until| Reason::Breaker {
        limit: limit.clone(),
        key: None,
        before: count(before),
        until,
    };
    assert_eq!(bench.reason(next, "a").await, open(1, Some(begin + seconds(100))));
    bench.advance(seconds(30)).await;
    bench.promote().await;
    assert!(matches!(bench.reason(held, "a").await, Reason::Ready { .. }));
    assert_eq!(bench.reason(next, "a").await, open(0, None));
}

pub(crate) async fn a_retried_task_that_waits_for_others_halts_nothing(bench: &Bench<'_>) {
    let stream = || Limit::per("key", 1).named("stream").halt();
    let task = |name: &str, parents: &[&str], limits: Vec<Limit>| {
        let mut task = TaskDraft::new(name, TaskKind::Handler);
        task.parents = parents.iter().map(|parent| (*parent).to_owned()).collect();
        TaskDraft { trigger: Trigger::AllFinished, limits, ..task }
    };
    let draft = DefinitionDraft::new("w")
        .task(TaskDraft::new("a", TaskKind::Handler))
        .task(task("b", &["a"], vec![stream()]))
        .task(task("c", &["b"], vec![stream()]));
    let definition = Arc::new(draft.build().expect("it is a workflow"));
    bench.try_register(definition).await.expect("the definition can be registered");
    let run = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    bench.fail(&worker.claim_one().await).await;
    bench.succeed(&worker.claim_one().await).await;
    bench.fail(&worker.claim_one().await).await;
    assert_eq!(bench.run_state(run).await, RunState::Failed);
    bench.store.retry_run(run, 1).await.expect("it can be retried");
    // The last one failed and comes behind the others, of which one needs its slot.
    for name in ["a", "b", "c"] {
        let claimed = worker.claim_one().await;
        assert_eq!(claimed.spec.name.as_str(), name);
        bench.succeed(&claimed).await;
    }
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
}
