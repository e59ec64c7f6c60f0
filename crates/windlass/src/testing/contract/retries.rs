//! Retrying a failed run: what failed and what depends on it, and nothing else.

use windlass_core::{Decision, Fence, RunState, TaskState};

use super::bench::{Bench, failure, hold, json, names, seconds, success};
use crate::store::{Answer, Heartbeat, ProgressNote, StoreError};

/// Fails the tasks whose name begins with `f`, and lets the others return their
/// name.
fn by_name(name: &str) -> Decision {
    match name.starts_with('f') {
        true => Decision::Fail(failure()),
        false => Decision::Succeed(json(&format!("{name:?}"))),
    }
}

fn is_conflict<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Conflict(_)))
}

pub(crate) async fn a_retry_runs_what_failed_and_what_depends_on_it(bench: &Bench<'_>) {
    bench.register("w", "a f<a b<f c<a any<f?failed !sorry").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.work(&worker, by_name).await;
    assert_eq!(bench.states(run).await, "succeeded failed skipped succeeded succeeded succeeded");
    bench.advance(seconds(1)).await;
    assert_eq!(bench.store.retry_run(run, 1).await, Ok(2));
    assert_eq!(bench.states(run).await, "succeeded ready pending succeeded pending pending");
    let record = bench.run(run).await;
    assert_eq!((record.state, record.round), (RunState::Running, 2));
    assert_eq!((record.open_tasks, record.ended_at), (3, None));
    assert_eq!(bench.task(run, "c").await.output, Some(json(r#""c""#)), "it keeps its output");
    let again = worker.claim(10).await;
    assert_eq!(names(&again), ["f"]);
    assert_eq!(again[0].parents[0].output, Some(json(r#""a""#)));
    bench.succeed(&again[0]).await;
    bench.work(&worker, by_name).await;
    assert_eq!(bench.states(run).await, "succeeded succeeded succeeded succeeded skipped skipped");
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
}

pub(crate) async fn a_new_round_counts_attempts_anew_and_fences_on(bench: &Bench<'_>) {
    bench.register("w", "f*2").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let mut fence = Fence(0);
    for round in 1..=3 {
        for attempt in 1..=2 {
            let claimed = worker.claim_one().await;
            fence = fence.next();
            assert_eq!((claimed.attempt, claimed.fence), (attempt, fence), "round {round}");
            match attempt {
                1 => bench.accept(&claimed, super::bench::retry_after(seconds(0))).await,
                _ => bench.fail(&claimed).await,
            }
            bench.promote().await;
        }
        assert_eq!(bench.store.retry_run(run, round).await, Ok(round + 1));
        let task = bench.task(run, "f").await;
        assert_eq!((task.attempt, task.fence, task.state), (0, fence, TaskState::Ready));
    }
}

pub(crate) async fn a_repeated_retry_answers_the_same_round(bench: &Bench<'_>) {
    bench.register("w", "f").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.work(&worker, by_name).await;
    assert_eq!(bench.store.retry_run(run, 1).await, Ok(2));
    let before = (bench.run(run).await, bench.events(run).await);
    assert_eq!(bench.store.retry_run(run, 1).await, Ok(2), "while the round runs");
    assert_eq!((bench.run(run).await, bench.events(run).await), before);
    bench.work(&worker, by_name).await;
    let before = (bench.run(run).await, bench.events(run).await);
    assert_eq!(bench.store.retry_run(run, 1).await, Ok(2), "after the round failed");
    assert_eq!((bench.run(run).await, bench.events(run).await), before);
    assert_eq!(bench.store.retry_run(run, 2).await, Ok(3));
}

pub(crate) async fn a_round_that_has_not_been_cannot_be_retried(bench: &Bench<'_>) {
    bench.register("w", "f").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.work(&worker, by_name).await;
    let before = (bench.run(run).await, bench.events(run).await);
    for round in [0, 2, u32::MAX] {
        let answer = bench.store.retry_run(run, round).await;
        assert!(is_conflict(&answer), "{round}: {answer:?}");
    }
    assert_eq!((bench.run(run).await, bench.events(run).await), before);
}

pub(crate) async fn only_a_failed_run_can_be_retried(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker().await;
    let succeeded = bench.start("w").await;
    bench.work(&worker, by_name).await;
    let cancelled = bench.start("w").await;
    bench.store.cancel_run(cancelled, None).await.expect("it can be cancelled");
    let running = bench.start("w").await;
    for run in [succeeded, cancelled, running] {
        let before = (bench.run(run).await, bench.events(run).await);
        let answer = bench.store.retry_run(run, 1).await;
        assert!(is_conflict(&answer), "{answer:?}");
        assert_eq!((bench.run(run).await, bench.events(run).await), before);
    }
    let answer = bench.store.retry_run(bench.run_id(), 1).await;
    assert!(matches!(answer, Err(StoreError::NotFound(_))), "{answer:?}");
}

pub(crate) async fn a_running_round_cannot_be_retried(bench: &Bench<'_>) {
    bench.register("w", "f").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.work(&worker, by_name).await;
    assert_eq!(bench.store.retry_run(run, 1).await, Ok(2));
    let answer = bench.store.retry_run(run, 2).await;
    assert!(is_conflict(&answer), "{answer:?}");
}

pub(crate) async fn a_write_of_an_earlier_round_has_no_effect(bench: &Bench<'_>) {
    bench.register("w", "f a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let old = worker.claim(2).await;
    bench.fail(&old[0]).await;
    bench.succeed(&old[1]).await;
    assert_eq!(bench.store.retry_run(run, 1).await, Ok(2));
    let before = (bench.tasks(run).await, bench.events(run).await);
    for decision in [success(), Decision::Fail(failure())] {
        assert_ne!(bench.finish(&old[0], decision).await, Answer::Accepted);
    }
    assert_ne!(bench.release(&old[0], seconds(0)).await, Answer::Accepted);
    assert_eq!((bench.tasks(run).await, bench.events(run).await), before);
    let current = worker.claim_one().await;
    assert_ne!(bench.finish(&old[0], success()).await, Answer::Accepted);
    bench.succeed(&current).await;
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
}

pub(crate) async fn a_sleep_behind_a_failed_task_is_slept_again(bench: &Bench<'_>) {
    bench.register("w", "nap~1000 f<nap rest~5000<f?finished").await;
    let run = bench.start("w").await;
    let worker = bench.worker_with_lease(seconds(600)).await;
    bench.advance(seconds(1)).await;
    bench.promote().await;
    bench.work(&worker, by_name).await;
    bench.advance(seconds(5)).await;
    bench.promote().await;
    assert_eq!(bench.states(run).await, "succeeded failed succeeded");
    assert_eq!(bench.store.retry_run(run, 1).await, Ok(2));
    assert_eq!(bench.states(run).await, "succeeded ready pending", "the first is over");
    bench.work(&worker, |_| success()).await;
    let due = bench.now().await + seconds(5);
    assert_eq!(bench.task(run, "rest").await.available_at, Some(due));
    bench.advance(seconds(5)).await;
    bench.promote().await;
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
}

pub(crate) async fn a_retried_run_can_be_cancelled(bench: &Bench<'_>) {
    bench.register("w", "a f<a !sorry").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.work(&worker, by_name).await;
    assert_eq!(bench.store.retry_run(run, 1).await, Ok(2));
    assert_eq!(bench.store.cancel_run(run, None).await, Ok(()));
    assert_eq!(bench.states(run).await, "succeeded cancelled cancelled");
    let answer = bench.store.retry_run(run, 2).await;
    assert!(is_conflict(&answer), "{answer:?}");
}

pub(crate) async fn a_retried_task_has_no_progress_of_the_round_before(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    let progress = vec![ProgressNote { held: hold(&claimed), note: json("7") }];
    let heartbeat = Heartbeat { progress, ..worker.heartbeat(&[&claimed]) };
    bench.store.extend(heartbeat).await.expect("the worker lives");
    assert_eq!(bench.task(run, "a").await.progress, Some(json("7")));
    bench.fail(&claimed).await;
    assert_eq!(bench.store.retry_run(run, 1).await, Ok(2));
    assert_eq!(bench.task(run, "a").await.progress, None);
}
