//! What must have happened until a time.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::{EventBody, FailureCode, RunEventKind, RunId, RunState, TaskState};

use super::bench::{Bench, definition, retry_after, seconds};
use crate::store::Answer;

/// A workflow whose runs may take ten seconds, and whose tasks may wait for five.
async fn register(bench: &Bench<'_>, tasks: &str, run: Option<u64>, claim: Option<u64>) {
    let mut draft = definition("w", 1, tasks).to_draft();
    draft.timeout = run.map(Duration::from_secs);
    for task in &mut draft.tasks {
        task.claim_timeout = claim.map(Duration::from_secs);
    }
    let definition = draft.build().expect("it can be run");
    bench.try_register(Arc::new(definition)).await.expect("it is new");
}

/// Why a run was cancelled.
async fn reason(bench: &Bench<'_>, run: RunId) -> Option<String> {
    let events = bench.events(run).await;
    events.into_iter().find_map(|event| match event.body {
        EventBody::Run(event) => match event.kind {
            RunEventKind::Cancelled { reason } => reason,
            RunEventKind::Started
            | RunEventKind::Ended
            | RunEventKind::Retried { .. }
            | RunEventKind::Continued { .. }
            | RunEventKind::Undoing { .. } => None,
        },
        EventBody::Task(_) => None,
    })
}

pub(crate) async fn a_run_that_takes_too_long_is_cancelled_and_says_why(bench: &Bench<'_>) {
    register(bench, "a b<a", Some(10), None).await;
    let [waits, works] = [bench.start("w").await, bench.start("w").await];
    let worker = bench.worker_with_lease(seconds(60)).await;
    let claimed = worker.claim_one().await;
    assert_eq!(claimed.task.run, waits, "the older one");
    bench.succeed(&claimed).await;
    let outlook = bench.store.outlook().await.expect("looking works");
    assert_eq!(outlook.promote_at, Some(bench.run(waits).await.created_at + seconds(10)));
    bench.advance(seconds(10) - Duration::from_millis(1)).await;
    assert_eq!(bench.promote().await, 0, "not before its time");
    bench.advance(Duration::from_millis(1)).await;
    assert_eq!(bench.promote().await, 2);
    for run in [waits, works] {
        assert_eq!(bench.run_state(run).await, RunState::Cancelled);
        let reason = reason(bench, run).await;
        assert_eq!(reason.as_deref(), Some("took longer than its timeout of 10s"));
    }
    assert!(worker.claim(9).await.is_empty());
}

pub(crate) async fn a_run_that_ended_in_time_is_left_alone(bench: &Bench<'_>) {
    register(bench, "a", Some(10), None).await;
    let run = bench.start("w").await;
    bench.succeed(&bench.worker().await.claim_one().await).await;
    let before = bench.events(run).await;
    bench.advance(seconds(60)).await;
    assert_eq!(bench.promote().await, 0, "nothing has moved");
    assert_eq!(bench.events(run).await, before);
}

pub(crate) async fn what_is_due_when_its_run_has_taken_too_long_is_not_claimed(bench: &Bench<'_>) {
    register(bench, "a*3", Some(10), None).await;
    let run = bench.start("w").await;
    let worker = bench.worker_with_lease(seconds(60)).await;
    bench.accept(&worker.claim_one().await, retry_after(seconds(9))).await;
    bench.advance(seconds(10)).await;
    let before = bench.events(run).await.len();
    bench.promote().await;
    assert_eq!(bench.run_state(run).await, RunState::Cancelled);
    assert!(worker.claim(9).await.is_empty());
    let events = bench.events(run).await;
    let words: Vec<&str> = events[before..].iter().map(|event| event.word()).collect();
    assert_eq!(words, ["cancelled", "run_cancelled"], "it was not ready before");
}

pub(crate) async fn of_deadlines_that_pass_together_that_of_the_run_comes_first(bench: &Bench<'_>) {
    register(bench, "a b c", Some(5), Some(5)).await;
    let run = bench.start("w").await;
    bench.advance(seconds(5)).await;
    assert_eq!(bench.promote().await, 1);
    assert_eq!(bench.run_state(run).await, RunState::Cancelled);
    for task in ["a", "b", "c"] {
        assert_eq!(bench.task(run, task).await.state, TaskState::Cancelled);
    }
}

pub(crate) async fn a_retry_gives_a_run_its_time_again(bench: &Bench<'_>) {
    register(bench, "a", Some(10), None).await;
    let run = bench.start("w").await;
    let worker = bench.worker_with_lease(seconds(60)).await;
    bench.fail(&worker.claim_one().await).await;
    bench.advance(seconds(6)).await;
    bench.store.retry_run(run, 1).await.expect("it failed");
    bench.advance(seconds(6)).await;
    bench.promote().await;
    assert_eq!(bench.run_state(run).await, RunState::Running);
    bench.advance(seconds(4)).await;
    bench.promote().await;
    assert_eq!(bench.run_state(run).await, RunState::Cancelled);
}

pub(crate) async fn a_task_that_nobody_claims_in_time_fails_with_all_that_follows(
    bench: &Bench<'_>,
) {
    register(bench, "a b<a c !d", None, Some(5)).await;
    let run = bench.start("w").await;
    let worker = bench.worker_with_lease(seconds(60)).await;
    let claimed = worker.claim(2).await;
    for one in &claimed {
        bench.succeed(one).await;
    }
    // `a` and `c` were claimed; `b` came behind, and nobody takes it.
    bench.advance(seconds(5)).await;
    assert!(bench.promote().await >= 1);
    let failed = bench.task(run, "b").await;
    assert_eq!(failed.state, TaskState::Failed);
    let failure = failed.failure.expect("it says why");
    assert_eq!((failure.code, failure.is_retryable), (FailureCode::Timeout, false));
    assert_eq!(failure.message, "was not claimed within 5s");
    let on_failure = worker.claim_one().await;
    assert_eq!(on_failure.spec.name.as_str(), "d");
    bench.succeed(&on_failure).await;
    assert_eq!(bench.run_state(run).await, RunState::Failed);
}

pub(crate) async fn a_task_that_was_claimed_in_time_is_left_alone(bench: &Bench<'_>) {
    register(bench, "a", None, Some(5)).await;
    let run = bench.start("w").await;
    bench.advance(seconds(4)).await;
    let claimed = bench.worker_with_lease(seconds(60)).await.claim_one().await;
    bench.advance(seconds(9)).await;
    bench.promote().await;
    assert_eq!(bench.task(run, "a").await.state, TaskState::Running);
    bench.succeed(&claimed).await;
}

pub(crate) async fn a_task_that_comes_back_to_its_queue_has_its_time_again(bench: &Bench<'_>) {
    register(bench, "a*3", None, Some(5)).await;
    let run = bench.start("w").await;
    let worker = bench.worker_with_lease(seconds(60)).await;
    let first = worker.claim_one().await;
    bench.accept(&first, retry_after(seconds(20))).await;
    bench.advance(seconds(20)).await;
    bench.promote().await;
    assert_eq!(bench.task(run, "a").await.state, TaskState::Ready, "its pause does not count");
    bench.advance(seconds(5)).await;
    bench.promote().await;
    assert_eq!(bench.task(run, "a").await.state, TaskState::Failed);
    assert_eq!(bench.run_state(run).await, RunState::Failed);
}

pub(crate) async fn a_task_that_is_handed_back_has_its_time_again(bench: &Bench<'_>) {
    register(bench, "a*3", None, Some(5)).await;
    let run = bench.start("w").await;
    let worker = bench.worker_with_lease(seconds(60)).await;
    let claimed = worker.claim_one().await;
    bench.advance(seconds(9)).await;
    assert_eq!(bench.release(&claimed, Duration::ZERO).await, Answer::Accepted);
    bench.promote().await;
    assert_eq!(bench.task(run, "a").await.state, TaskState::Ready);
    bench.advance(seconds(5)).await;
    bench.promote().await;
    assert_eq!(bench.task(run, "a").await.state, TaskState::Failed);
}
