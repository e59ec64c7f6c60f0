//! Handing tasks back: no attempt is spent, no place is lost.

use std::time::Duration;

use windlass_core::{Fence, TaskState};

use super::bench::{Bench, seconds, success};
use crate::store::{Answer, Refusal};

const LEASE_LOST: Answer = Answer::Refused(Refusal::LeaseLost);

pub(crate) async fn a_release_gives_the_attempt_back(bench: &Bench<'_>) {
    bench.register("w", "a*1").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    for number in 1..=5 {
        let claimed = worker.claim_one().await;
        assert_eq!((claimed.attempt, claimed.fence), (1, Fence(number)));
        assert_eq!(bench.release(&claimed, Duration::ZERO).await, Answer::Accepted);
        let task = bench.task(run, "a").await;
        assert_eq!((task.state, task.attempt), (TaskState::Ready, 0));
    }
    bench.succeed(&worker.claim_one().await).await;
    let released = "queued started released started released";
    assert!(bench.history(run, "a").await.starts_with(released));
}

pub(crate) async fn a_released_task_keeps_its_place(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let runs = bench.start_for("w", "t", 4).await;
    let worker = bench.worker().await;
    let claimed = worker.claim(2).await;
    for task in &claimed {
        assert_eq!(bench.release(task, Duration::ZERO).await, Answer::Accepted);
    }
    let order: Vec<_> = worker.claim(10).await.iter().map(|c| c.task.run).collect();
    assert_eq!(order, runs);
}

pub(crate) async fn a_deferred_release_waits_for_its_time(bench: &Bench<'_>) {
    bench.register("w", "a*1").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    assert_eq!(bench.release(&claimed, seconds(10)).await, Answer::Accepted);
    let task = bench.task(run, "a").await;
    assert_eq!((task.state, task.attempt), (TaskState::Scheduled, 0));
    assert_eq!(task.available_at, Some(bench.now().await + seconds(10)));
    assert_eq!(bench.promote().await, 0);
    assert!(worker.claim(1).await.is_empty());
    bench.advance(seconds(10)).await;
    assert_eq!(bench.promote().await, 1);
    let again = worker.claim_one().await;
    assert_eq!((again.attempt, again.fence), (1, Fence(2)));
}

pub(crate) async fn a_repeated_release_is_accepted_already(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    assert_eq!(bench.release(&claimed, Duration::ZERO).await, Answer::Accepted);
    let before = (bench.tasks(run).await, bench.events(run).await);
    assert_eq!(bench.release(&claimed, Duration::ZERO).await, Answer::AcceptedAlready);
    assert_eq!((bench.tasks(run).await, bench.events(run).await), before);
    let again = worker.claim_one().await;
    assert_ne!(bench.release(&claimed, Duration::ZERO).await, Answer::Accepted);
    bench.succeed(&again).await;
}

pub(crate) async fn a_released_task_cannot_be_finished_by_who_released_it(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    assert_eq!(bench.release(&claimed, Duration::ZERO).await, Answer::Accepted);
    assert_eq!(bench.finish(&claimed, success()).await, LEASE_LOST);
    assert_eq!(bench.task(run, "a").await.state, TaskState::Ready);
}

pub(crate) async fn a_finished_task_cannot_be_released(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    bench.succeed(&claimed).await;
    assert_ne!(bench.release(&claimed, Duration::ZERO).await, Answer::Accepted);
    let task = bench.task(run, "a").await;
    assert_eq!((task.state, task.attempt), (TaskState::Succeeded, 1));
}
