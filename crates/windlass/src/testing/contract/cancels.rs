//! Cancelling: everything that has not ended ends, and nothing comes after.

use std::time::Duration;

use windlass_core::{EventBody, RunEventKind, RunId, RunState};

use super::bench::{Bench, LEASE, hold, retry_after, seconds, success};
use crate::store::{Answer, Claimed, Lost, NewRun, Refusal, StoreError};

const RUN_CANCELLED: Answer = Answer::Refused(Refusal::RunCancelled);

async fn cancel(bench: &Bench<'_>, run: RunId) {
    bench.store.cancel_run(run, None).await.expect("a running run can be cancelled");
}

pub(crate) async fn a_cancel_ends_tasks_in_every_state(bench: &Bench<'_>) {
    bench.register("w", "done^9 again^8 run^7 ready^6 nap~5000 child<run !sorry").await;
    let run = bench.start("w").await;
    let claimed = bench.worker().await.claim(3).await;
    bench.succeed(&claimed[0]).await;
    bench.accept(&claimed[1], retry_after(seconds(5))).await;
    assert_eq!(
        bench.states(run).await,
        "succeeded scheduled running ready scheduled pending pending"
    );
    bench.advance(seconds(1)).await;
    bench.store.cancel_run(run, Some("typo".into())).await.expect("it can be cancelled");
    assert_eq!(
        bench.states(run).await,
        "succeeded cancelled cancelled cancelled cancelled cancelled cancelled"
    );
    let record = bench.run(run).await;
    assert_eq!((record.state, record.open_tasks), (RunState::Cancelled, 0));
    assert_eq!(record.ended_at, Some(bench.now().await));
    let events = bench.events(run).await;
    let reasons: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::Run(event) => Some(event),
            EventBody::Task(_) => None,
        })
        .filter(|event| event.to == RunState::Cancelled)
        .collect();
    assert_eq!(reasons.len(), 1);
    assert_eq!(reasons[0].kind, RunEventKind::Cancelled { reason: Some("typo".into()) });
}

pub(crate) async fn a_cancelled_run_stays_cancelled(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    cancel(bench, run).await;
    let before = (bench.run(run).await, bench.events(run).await);
    bench.advance(seconds(1)).await;
    assert_eq!(bench.store.cancel_run(run, Some("again".into())).await, Ok(()));
    assert_eq!((bench.run(run).await, bench.events(run).await), before);
}

pub(crate) async fn a_run_that_ended_otherwise_cannot_be_cancelled(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker().await;
    let succeeded = bench.start("w").await;
    bench.succeed(&worker.claim_one().await).await;
    let failed = bench.start("w").await;
    bench.fail(&worker.claim_one().await).await;
    for run in [succeeded, failed] {
        let before = (bench.run(run).await, bench.events(run).await);
        let answer = bench.store.cancel_run(run, None).await;
        assert!(matches!(answer, Err(StoreError::Conflict(_))), "{answer:?}");
        assert_eq!((bench.run(run).await, bench.events(run).await), before);
    }
}

pub(crate) async fn an_unknown_run_cannot_be_cancelled(bench: &Bench<'_>) {
    let answer = bench.store.cancel_run(bench.run_id(), None).await;
    assert!(matches!(answer, Err(StoreError::NotFound(_))), "{answer:?}");
}

pub(crate) async fn a_cancelled_task_cannot_be_claimed(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let runs = bench.start_for("w", "t", 3).await;
    cancel(bench, runs[0]).await;
    cancel(bench, runs[2]).await;
    let claimed = bench.worker().await.claim(10).await;
    assert_eq!(claimed.iter().map(|c| c.task.run).collect::<Vec<_>>(), [runs[1]]);
}

pub(crate) async fn cancelled_timers_do_not_fire(bench: &Bench<'_>) {
    bench.register("w", "a nap~2000").await;
    let sleeping = bench.start("w").await;
    let delayed = bench.start_run(NewRun { delay: seconds(2), ..bench.new_run("w") }).await;
    let claimed = bench.worker().await.claim_one().await;
    bench.accept(&claimed, retry_after(seconds(2))).await;
    cancel(bench, sleeping).await;
    cancel(bench, delayed).await;
    assert_eq!(bench.store.promote_due(10).await, bench.swept(0, None).await);
    bench.advance(seconds(10)).await;
    assert_eq!(bench.store.promote_due(10).await, bench.swept(0, None).await);
    assert_eq!(bench.states(sleeping).await, "cancelled cancelled");
    assert_eq!(bench.states(delayed).await, "cancelled cancelled");
}

pub(crate) async fn a_worker_is_told_that_its_run_was_cancelled(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    cancel(bench, run).await;
    let answer = worker.extend(&[&claimed]).await;
    let refusal = Refusal::RunCancelled;
    assert_eq!(answer.lost, [Lost { held: hold(&claimed), refusal }]);
    let events = bench.events(run).await;
    assert_eq!(bench.finish(&claimed, success()).await, RUN_CANCELLED);
    assert_eq!(bench.finish(&claimed, retry_after(seconds(1))).await, RUN_CANCELLED);
    assert_eq!(bench.release(&claimed, Duration::ZERO).await, RUN_CANCELLED);
    assert_eq!(bench.release(&claimed, seconds(1)).await, RUN_CANCELLED);
    assert_eq!(bench.events(run).await, events);
}

pub(crate) async fn a_finish_that_was_accepted_stays_so_when_its_run_is_cancelled(
    bench: &Bench<'_>,
) {
    bench.register("w", "a b").await;
    let run = bench.start("w").await;
    let claimed: Vec<Claimed> = bench.worker().await.claim(2).await;
    bench.succeed(&claimed[0]).await;
    cancel(bench, run).await;
    assert_eq!(bench.finish(&claimed[0], success()).await, Answer::AcceptedAlready);
    assert_eq!(bench.finish(&claimed[1], success()).await, RUN_CANCELLED);
    assert_eq!(bench.states(run).await, "succeeded cancelled");
}

pub(crate) async fn a_cancelled_task_is_not_reaped(bench: &Bench<'_>) {
    bench.register("w", "a*1").await;
    let run = bench.start("w").await;
    bench.worker().await.claim_one().await;
    cancel(bench, run).await;
    bench.advance(LEASE).await;
    assert_eq!(bench.reap().await, 0);
    assert_eq!(bench.states(run).await, "cancelled");
}

pub(crate) async fn a_worker_that_leaves_after_a_cancel_changes_nothing(bench: &Bench<'_>) {
    bench.register("w", "a*1").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    worker.claim_one().await;
    cancel(bench, run).await;
    // The worker does not name the task any more: it must not go back to its queue.
    worker.extend(&[]).await;
    worker.leave().await;
    assert_eq!(bench.states(run).await, "cancelled");
    assert!(bench.worker().await.claim(10).await.is_empty());
}

pub(crate) async fn a_cancelled_failure_does_not_call_the_on_failure_task(bench: &Bench<'_>) {
    bench.register("w", "a b !sorry").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.fail(&worker.claim_one().await).await;
    cancel(bench, run).await;
    assert_eq!(bench.states(run).await, "failed cancelled cancelled");
    assert_eq!(bench.run_state(run).await, RunState::Cancelled);
    assert!(worker.claim(10).await.is_empty());
}
