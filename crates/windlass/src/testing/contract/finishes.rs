//! Finishing: a fence judges every write, and each write counts once.

use std::time::Duration;

use windlass_core::{Decision, Fence, RunState, TaskId, TaskIndex, TaskState};

use super::bench::{
    Bench, completion, failure, json, names, payload_of, retry_after, seconds, success,
};
use crate::store::{Answer, BATCH_MAX, Claimed, Completion, Refusal, StoreError};

const LEASE_LOST: Answer = Answer::Refused(Refusal::LeaseLost);
const UNKNOWN_TASK: Answer = Answer::Refused(Refusal::UnknownTask);

pub(crate) async fn a_success_records_its_output_and_lets_the_children_run(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let a = worker.claim_one().await;
    bench.accept(&a, Decision::Succeed(json("7"))).await;
    assert_eq!(bench.task(run, "a").await.output, Some(json("7")));
    assert_eq!(bench.states(run).await, "succeeded ready");
    let record = bench.run(run).await;
    assert_eq!((record.state, record.open_tasks), (RunState::Running, 1));
    bench.advance(seconds(2)).await;
    bench.succeed(&worker.claim_one().await).await;
    let record = bench.run(run).await;
    assert_eq!((record.state, record.open_tasks), (RunState::Succeeded, 0));
    assert_eq!(record.ended_at, Some(bench.now().await));
    assert_eq!(bench.history(run, "a").await, "queued started succeeded");
}

pub(crate) async fn an_output_over_the_limit_is_refused_and_spoils_nothing(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let runs = [bench.start("w").await, bench.start("w").await];
    let claimed = bench.worker().await.claim(2).await;
    let limit = bench.store.payload_limit().get();
    let succeed = |one: usize, bytes| {
        let decision = Decision::Succeed(payload_of(bytes));
        completion(&claimed[one], decision)
    };
    let answers = bench.store.finish(vec![succeed(0, limit + 1), succeed(1, limit)]).await;
    assert_eq!(answers, Ok(vec![Answer::Refused(Refusal::Invalid), Answer::Accepted]));
    assert_eq!(bench.states(runs[0]).await, "running");
    assert_eq!(bench.task(runs[1], "a").await.output, Some(payload_of(limit)));
    bench.succeed(&claimed[0]).await;
}

pub(crate) async fn a_failure_is_recorded_and_fails_the_run(bench: &Bench<'_>) {
    bench.register("w", "a*5 b<a").await;
    let run = bench.start("w").await;
    bench.fail(&bench.worker().await.claim_one().await).await;
    assert_eq!(bench.states(run).await, "failed skipped", "attempts left do not matter");
    assert_eq!(bench.task(run, "a").await.failure, Some(failure()));
    assert_eq!(bench.run_state(run).await, RunState::Failed);
    assert_eq!(bench.history(run, "a").await, "queued started failed");
}

pub(crate) async fn a_retry_waits_for_its_time_and_is_another_attempt(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    bench.accept(&first, retry_after(seconds(10))).await;
    let task = bench.task(run, "a").await;
    assert_eq!(task.state, TaskState::Scheduled);
    assert_eq!(task.available_at, Some(bench.now().await + seconds(10)));
    assert_eq!(task.failure, Some(failure()));
    assert!(worker.claim(1).await.is_empty());
    bench.advance(seconds(10)).await;
    assert_eq!(bench.promote().await, 1);
    let second = worker.claim_one().await;
    assert_eq!((second.attempt, second.fence), (2, Fence(2)));
    bench.succeed(&second).await;
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
    assert_eq!(bench.history(run, "a").await, "queued started retrying queued started succeeded");
}

pub(crate) async fn a_retry_without_a_pause_can_be_claimed_after_the_next_sweep(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    bench.accept(&worker.claim_one().await, retry_after(Duration::ZERO)).await;
    bench.promote().await;
    assert_eq!(worker.claim_one().await.attempt, 2);
}

pub(crate) async fn a_retry_after_the_last_attempt_is_a_failure(bench: &Bench<'_>) {
    bench.register("w", "a*2 b<a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.accept(&worker.claim_one().await, retry_after(Duration::ZERO)).await;
    bench.promote().await;
    // Whoever decided may have known another policy; the run's own one holds.
    bench.accept(&worker.claim_one().await, retry_after(Duration::ZERO)).await;
    assert_eq!(bench.promote().await, 0);
    assert_eq!(bench.states(run).await, "failed skipped");
    assert_eq!(bench.run_state(run).await, RunState::Failed);
}

pub(crate) async fn a_task_that_skips_itself_skips_what_needs_its_success(bench: &Bench<'_>) {
    bench.register("w", "a b<a c<b?unfailed").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.accept(&worker.claim_one().await, Decision::Skip).await;
    assert_eq!(bench.states(run).await, "skipped skipped ready");
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
}

/// A task that one worker lost and another has, with both claims.
async fn lost_and_taken(bench: &Bench<'_>) -> (Claimed, Claimed) {
    bench.register("w", "a b<a").await;
    bench.start("w").await;
    let zombie = bench.worker_with_lease(seconds(10)).await;
    let stale = zombie.claim_one().await;
    bench.advance(seconds(10)).await;
    assert_eq!(bench.reap().await, 1);
    let owner = bench.worker().await;
    let current = owner.claim_one().await;
    assert_eq!((stale.task, stale.fence.next()), (current.task, current.fence));
    (stale, current)
}

pub(crate) async fn a_stale_fence_cannot_finish_a_task(bench: &Bench<'_>) {
    let (stale, current) = lost_and_taken(bench).await;
    let run = stale.task.run;
    let (record, events) = (bench.tasks(run).await, bench.events(run).await);
    let decisions = [success(), Decision::Fail(failure()), retry_after(seconds(1)), Decision::Skip];
    for decision in decisions.clone() {
        assert_eq!(bench.finish(&stale, decision.clone()).await, LEASE_LOST, "{decision:?}");
    }
    assert_eq!(bench.tasks(run).await, record);
    assert_eq!(bench.events(run).await, events);
    bench.accept(&current, Decision::Succeed(json("2"))).await;
    for decision in decisions {
        assert_eq!(bench.finish(&stale, decision.clone()).await, LEASE_LOST, "{decision:?}");
    }
    assert_eq!(bench.task(run, "a").await.output, Some(json("2")));
}

pub(crate) async fn a_stale_fence_cannot_release_a_task(bench: &Bench<'_>) {
    let (stale, current) = lost_and_taken(bench).await;
    assert_eq!(bench.release(&stale, Duration::ZERO).await, LEASE_LOST);
    assert_eq!(bench.release(&stale, seconds(5)).await, LEASE_LOST);
    let task = bench.task(stale.task.run, "a").await;
    assert_eq!((task.state, task.fence), (TaskState::Running, current.fence));
    bench.succeed(&current).await;
}

pub(crate) async fn a_fence_from_the_future_is_refused(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    let future = Claimed { fence: claimed.fence.next(), ..claimed.clone() };
    assert_eq!(bench.finish(&future, success()).await, LEASE_LOST);
    assert_eq!(bench.release(&future, Duration::ZERO).await, LEASE_LOST);
    bench.succeed(&claimed).await;
}

pub(crate) async fn a_repeated_finish_is_accepted_already_and_has_no_second_effect(
    bench: &Bench<'_>,
) {
    bench.register("w", "a b<a c<a,b").await;
    let worker = bench.worker().await;
    for decision in [success(), Decision::Fail(failure()), Decision::Skip, retry_after(seconds(5))]
    {
        let run = bench.start("w").await;
        let claimed = worker.claim_one().await;
        bench.accept(&claimed, decision.clone()).await;
        let before = (bench.run(run).await, bench.tasks(run).await, bench.events(run).await);
        bench.advance(seconds(1)).await;
        for _ in 0..2 {
            let again = bench.finish(&claimed, decision.clone()).await;
            assert_eq!(again, Answer::AcceptedAlready, "{decision:?}");
        }
        let after = (bench.run(run).await, bench.tasks(run).await, bench.events(run).await);
        assert_eq!(after, before, "{decision:?}");
        if bench.run_state(run).await == RunState::Running {
            bench.store.cancel_run(run, None).await.expect("it can be cancelled");
        }
    }
}

pub(crate) async fn a_repeated_finish_cannot_change_its_mind(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    bench.accept(&claimed, Decision::Succeed(json("1"))).await;
    for decision in [Decision::Succeed(json("2")), Decision::Fail(failure())] {
        assert_eq!(bench.finish(&claimed, decision).await, Answer::AcceptedAlready);
    }
    assert_eq!(bench.task(run, "a").await.output, Some(json("1")));
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
}

pub(crate) async fn a_retry_repeated_after_the_next_claim_has_no_effect(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    bench.accept(&first, retry_after(Duration::ZERO)).await;
    bench.promote().await;
    let second = worker.claim_one().await;
    let events = bench.events(run).await;
    let again = bench.finish(&first, retry_after(Duration::ZERO)).await;
    assert_ne!(again, Answer::Accepted);
    assert_eq!(bench.events(run).await, events);
    bench.succeed(&second).await;
}

pub(crate) async fn a_finish_repeated_within_its_batch_counts_once(bench: &Bench<'_>) {
    bench.register("w", "a b").await;
    let run = bench.start("w").await;
    let claimed = bench.worker().await.claim(2).await;
    let one = completion(&claimed[0], success());
    let answers = bench.store.finish(vec![one.clone(), one]).await;
    assert_eq!(answers, Ok(vec![Answer::Accepted, Answer::AcceptedAlready]));
    assert_eq!(bench.run(run).await.open_tasks, 1);
}

pub(crate) async fn a_task_that_does_not_exist_is_unknown(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    let other_run = TaskId { run: bench.run_id(), index: TaskIndex(0) };
    let other_index = TaskId { run, index: TaskIndex(1) };
    for task in [other_run, other_index, TaskId { run, index: TaskIndex(u32::MAX) }] {
        let unknown = Claimed { task, ..claimed.clone() };
        assert_eq!(bench.finish(&unknown, success()).await, UNKNOWN_TASK);
        assert_eq!(bench.release(&unknown, Duration::ZERO).await, UNKNOWN_TASK);
    }
}

pub(crate) async fn a_task_nobody_claimed_cannot_be_finished(bench: &Bench<'_>) {
    bench.register("w", "claimed ready pending<ready nap~1000 !sorry").await;
    let run = bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    let before = bench.tasks(run).await;
    for index in [1, 2, 3, 4].map(TaskIndex) {
        for fence in [Fence(0), Fence(1)] {
            let forged = Claimed { task: TaskId { run, index }, fence, ..claimed.clone() };
            assert_eq!(bench.finish(&forged, success()).await, LEASE_LOST, "{index:?} {fence}");
            assert_eq!(bench.release(&forged, Duration::ZERO).await, LEASE_LOST, "{index:?}");
        }
    }
    assert_eq!(bench.tasks(run).await, before);
}

pub(crate) async fn a_batch_is_judged_one_by_one_in_its_order(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let runs = bench.start_for("w", "t", 4).await;
    let claimed = bench.worker().await.claim(4).await;
    bench.succeed(&claimed[1]).await;
    bench.store.cancel_run(runs[2], None).await.expect("it can be cancelled");
    let of = |run| claimed.iter().find(|c| c.task.run == run).expect("it was claimed");
    let cancelled = completion(of(runs[2]), success());
    let stale = Completion { fence: Fence(0), ..completion(of(runs[3]), success()) };
    let task = TaskId { run: bench.run_id(), index: TaskIndex(0) };
    let unknown = Completion { task, ..stale.clone() };
    let batch = vec![
        stale,
        completion(&claimed[0], success()),
        unknown,
        completion(&claimed[1], success()),
        cancelled,
        completion(of(runs[3]), success()),
    ];
    let answers = bench.store.finish(batch).await;
    assert_eq!(
        answers,
        Ok(vec![
            LEASE_LOST,
            Answer::Accepted,
            UNKNOWN_TASK,
            Answer::AcceptedAlready,
            Answer::Refused(Refusal::RunCancelled),
            Answer::Accepted,
        ])
    );
}

pub(crate) async fn the_last_two_siblings_in_one_batch_end_the_run(bench: &Bench<'_>) {
    bench.register("w", "a b").await;
    let run = bench.start("w").await;
    let claimed = bench.worker().await.claim(2).await;
    let batch = claimed.iter().map(|task| completion(task, success())).collect();
    let answers = bench.store.finish(batch).await;
    assert_eq!(answers, Ok(vec![Answer::Accepted, Answer::Accepted]));
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
}

pub(crate) async fn the_last_two_siblings_finished_at_once_end_the_run(bench: &Bench<'_>) {
    bench.register("w", "a b c<a,b").await;
    let worker = bench.worker().await;
    for _ in 0..10 {
        let run = bench.start("w").await;
        let claimed = worker.claim(2).await;
        tokio::join!(bench.succeed(&claimed[0]), bench.succeed(&claimed[1]));
        let joined = worker.claim(10).await;
        assert_eq!(names(&joined), ["c"], "the join runs once");
        bench.succeed(&joined[0]).await;
        assert_eq!(bench.run_state(run).await, RunState::Succeeded);
    }
}

pub(crate) async fn a_batch_of_completions_has_a_limit(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    let batch = vec![completion(&claimed, success()); BATCH_MAX + 1];
    let answer = bench.store.finish(batch).await;
    assert!(matches!(answer, Err(StoreError::Conflict(_))), "one over the limit");
    bench.succeed(&claimed).await;
}

pub(crate) async fn a_finish_counts_while_nobody_took_the_task_away(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker_with_lease(seconds(10)).await;
    let claimed = worker.claim_one().await;
    bench.advance(seconds(60)).await;
    bench.succeed(&claimed).await;
    assert_eq!(bench.reap().await, 0);
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
}
