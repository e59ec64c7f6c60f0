//! Checkpoints: what an attempt leaves for the next one.

use std::time::Duration;

use windlass_core::{Decision, Fence, RunId, RunState, TaskId, TaskIndex};

use super::bench::{Bench, LEASE, failure, hold, json, payload_of, retry_after, seconds};
use crate::store::{Answer, BATCH_MAX, Checkpoint, Claimed, Refusal, StoreError};

const LEASE_LOST: Answer = Answer::Refused(Refusal::LeaseLost);

pub(crate) async fn a_checkpoint_is_handed_to_the_next_attempt(bench: &Bench<'_>) {
    bench.register("w", "a*3").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    assert_eq!(first.checkpoint, None);
    let before = (bench.tasks(run).await, bench.events(run).await);
    assert_eq!(bench.checkpoint(&first, "[1, 2]").await, Answer::Accepted);
    assert_eq!((bench.tasks(run).await, bench.events(run).await), before, "nothing else changes");
    bench.accept(&first, retry_after(seconds(1))).await;
    bench.advance(seconds(1)).await;
    assert_eq!(bench.promote().await, 1);
    let second = worker.claim_one().await;
    assert_eq!((second.attempt, second.checkpoint.clone()), (2, Some(json("[1, 2]"))));
    // It stays although this attempt leaves none of its own.
    bench.accept(&second, retry_after(Duration::ZERO)).await;
    bench.promote().await;
    let third = worker.claim_one().await;
    assert_eq!(third.checkpoint, Some(json("[1, 2]")));
    bench.succeed(&third).await;
}

pub(crate) async fn a_checkpoint_outlives_the_worker_that_wrote_it(bench: &Bench<'_>) {
    bench.register("w", "a*3").await;
    bench.start("w").await;
    let first = bench.worker().await.claim_one().await;
    assert_eq!(bench.checkpoint(&first, "1").await, Answer::Accepted);
    bench.advance(LEASE).await;
    assert_eq!(bench.reap().await, 1);
    let worker = bench.worker().await;
    let second = worker.claim_one().await;
    assert_eq!((second.attempt, second.checkpoint.clone()), (2, Some(json("1"))));
    assert_eq!(bench.checkpoint(&second, "2").await, Answer::Accepted);
    worker.leave().await;
    let third = bench.worker().await.claim_one().await;
    assert_eq!((third.attempt, third.checkpoint.clone()), (3, Some(json("2"))));
    bench.succeed(&third).await;
}

pub(crate) async fn a_checkpoint_outlives_a_release(bench: &Bench<'_>) {
    bench.register("w", "a*1").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    assert_eq!(bench.checkpoint(&first, "1").await, Answer::Accepted);
    assert_eq!(bench.release(&first, Duration::ZERO).await, Answer::Accepted);
    let second = worker.claim_one().await;
    assert_eq!((second.attempt, second.checkpoint.clone()), (1, Some(json("1"))));
    assert_eq!(bench.release(&second, seconds(1)).await, Answer::Accepted);
    bench.advance(seconds(1)).await;
    bench.promote().await;
    let third = worker.claim_one().await;
    assert_eq!(third.checkpoint, Some(json("1")));
    bench.succeed(&third).await;
}

pub(crate) async fn a_later_checkpoint_takes_the_place_of_an_earlier_one(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    let values = ["1", "2", "3"];
    for value in values {
        assert_eq!(bench.checkpoint(&first, value).await, Answer::Accepted);
    }
    // Repeated, because its answer was lost, it is there all the same.
    assert_eq!(bench.checkpoint(&first, "3").await, Answer::Accepted);
    bench.release(&first, Duration::ZERO).await;
    let second = worker.claim_one().await;
    assert_eq!(second.checkpoint, Some(json("3")));
    let batch =
        values.map(|value| Checkpoint { held: hold(&second), number: 0, value: json(value) });
    let answers = bench.store.checkpoint(batch.to_vec()).await;
    assert_eq!(answers, Ok(vec![Answer::Accepted; 3]));
    bench.release(&second, Duration::ZERO).await;
    assert_eq!(worker.claim_one().await.checkpoint, Some(json("3")), "the last of the batch");
}

/// As when the answer to the first was lost, the worker repeated it elsewhere, went on, and the
/// first one arrives after all.
pub(crate) async fn a_checkpoint_that_comes_late_does_not_replace_a_newer_one(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let keep = async |batch: &[(&Claimed, u32, &str)]| {
        let checkpoint = |&(claimed, number, value): &(&Claimed, u32, &str)| Checkpoint {
            held: hold(claimed),
            number,
            value: json(value),
        };
        let answers = bench.store.checkpoint(batch.iter().map(checkpoint).collect()).await;
        assert_eq!(answers, Ok(vec![Answer::Accepted; batch.len()]), "the newer one stands");
    };
    let next = async |claimed: &Claimed| {
        bench.release(claimed, Duration::ZERO).await;
        worker.claim_one().await
    };
    let first = worker.claim_one().await;
    keep(&[(&first, 1, "1")]).await;
    keep(&[(&first, 2, "2")]).await;
    keep(&[(&first, 1, "1")]).await;
    let second = next(&first).await;
    assert_eq!(second.checkpoint, Some(json("2")));
    // Each fence counts anew, and its first one is newer than all of an earlier fence.
    keep(&[(&second, 1, "3")]).await;
    let third = next(&second).await;
    assert_eq!(third.checkpoint, Some(json("3")));
    keep(&[(&third, 2, "5"), (&third, 1, "4"), (&third, 2, "6")]).await;
    let fourth = next(&third).await;
    assert_eq!(fourth.checkpoint, Some(json("5")), "in one batch as well");
    // Who does not count them has what comes last, and who does goes on from there.
    keep(&[(&fourth, 7, "7")]).await;
    keep(&[(&fourth, 0, "8")]).await;
    let fifth = next(&fourth).await;
    assert_eq!(fifth.checkpoint, Some(json("8")));
    keep(&[(&fifth, 0, "9")]).await;
    keep(&[(&fifth, 1, "10")]).await;
    assert_eq!(next(&fifth).await.checkpoint, Some(json("10")));
}

pub(crate) async fn a_checkpoint_of_the_same_number_replaces_nothing(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    for value in ["1", "2"] {
        let checkpoint = Checkpoint { held: hold(&claimed), number: 5, value: json(value) };
        let answers = bench.store.checkpoint(vec![checkpoint]).await;
        assert_eq!(answers, Ok(vec![Answer::Accepted]));
    }
    bench.release(&claimed, Duration::ZERO).await;
    assert_eq!(worker.claim_one().await.checkpoint, Some(json("1")));
}

pub(crate) async fn a_stale_fence_cannot_write_a_checkpoint(bench: &Bench<'_>) {
    bench.register("w", "a*3").await;
    bench.start("w").await;
    let stale = bench.worker().await.claim_one().await;
    bench.advance(LEASE).await;
    assert_eq!(bench.reap().await, 1);
    assert_eq!(bench.checkpoint(&stale, "1").await, LEASE_LOST, "it is back in its queue");
    let worker = bench.worker().await;
    let current = worker.claim_one().await;
    assert_eq!(current.checkpoint, None);
    assert_eq!(bench.checkpoint(&current, "2").await, Answer::Accepted);
    assert_eq!(bench.checkpoint(&stale, "3").await, LEASE_LOST);
    let future = Claimed { fence: current.fence.next(), ..current.clone() };
    assert_eq!(bench.checkpoint(&future, "4").await, LEASE_LOST);
    bench.release(&current, Duration::ZERO).await;
    assert_eq!(worker.claim_one().await.checkpoint, Some(json("2")));
}

pub(crate) async fn a_checkpoint_of_a_task_nobody_holds_is_refused(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    let other = |run: RunId, index, fence| {
        let task = TaskId { run, index: TaskIndex(index) };
        Claimed { task, fence: Fence(fence), ..claimed.clone() }
    };
    let unknown = Answer::Refused(Refusal::UnknownTask);
    assert_eq!(bench.checkpoint(&other(bench.run_id(), 0, 1), "1").await, unknown);
    assert_eq!(bench.checkpoint(&other(run, 9, 1), "1").await, unknown);
    assert_eq!(bench.checkpoint(&other(run, 1, 0), "1").await, LEASE_LOST, "it waits");
    bench.store.cancel_run(run, None).await.expect("cancelling works");
    let cancelled = Answer::Refused(Refusal::RunCancelled);
    assert_eq!(bench.checkpoint(&claimed, "1").await, cancelled);
}

pub(crate) async fn a_checkpoint_over_the_limit_is_refused_and_spoils_nothing(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let _runs = [bench.start("w").await, bench.start("w").await];
    let worker = bench.worker().await;
    let claimed = worker.claim(2).await;
    let limit = bench.store.payload_limit().get();
    let checkpoint = |one: usize, bytes| Checkpoint {
        held: hold(&claimed[one]),
        number: 0,
        value: payload_of(bytes),
    };
    let batch = vec![checkpoint(0, limit + 1), checkpoint(1, limit)];
    let answers = bench.store.checkpoint(batch).await;
    assert_eq!(answers, Ok(vec![Answer::Refused(Refusal::Invalid), Answer::Accepted]));
    for one in &claimed {
        bench.release(one, Duration::ZERO).await;
    }
    for again in worker.claim(2).await {
        let is_kept = again.task == claimed[1].task;
        assert_eq!(again.checkpoint, is_kept.then(|| payload_of(limit)));
    }
}

pub(crate) async fn a_checkpoint_goes_when_its_task_ends(bench: &Bench<'_>) {
    bench.register("w", "a*1").await;
    let worker = bench.worker().await;
    // By the worker's word, in its first claim and in a later one, and by its loss.
    for is_first in [true, false] {
        let run = bench.start("w").await;
        let mut claimed = worker.claim_one().await;
        assert_eq!(bench.checkpoint(&claimed, "1").await, Answer::Accepted);
        if !is_first {
            bench.release(&claimed, Duration::ZERO).await;
            claimed = worker.claim_one().await;
            assert_eq!(claimed.checkpoint, Some(json("1")));
        }
        bench.accept(&claimed, Decision::Fail(failure())).await;
        assert_eq!(bench.checkpoint(&claimed, "2").await, LEASE_LOST);
        bench.store.retry_run(run, 1).await.expect("retrying works");
        let next = worker.claim_one().await;
        assert_eq!(next.checkpoint, None, "another round begins from the beginning");
        bench.succeed(&next).await;
    }
    let run = bench.start("w").await;
    let lost = bench.worker().await;
    let claimed = lost.claim_one().await;
    assert_eq!(bench.checkpoint(&claimed, "1").await, Answer::Accepted);
    lost.leave().await;
    assert_eq!(bench.run_state(run).await, RunState::Failed);
    bench.store.retry_run(run, 1).await.expect("retrying works");
    assert_eq!(worker.claim_one().await.checkpoint, None);
    // And when its run is cancelled, while the task waits for its next attempt.
    bench.register("v", "a*2").await;
    let run = bench.start("v").await;
    let claimed = worker.claim_one().await;
    assert_eq!(bench.checkpoint(&claimed, "1").await, Answer::Accepted);
    bench.accept(&claimed, retry_after(seconds(9))).await;
    bench.store.cancel_run(run, None).await.expect("cancelling works");
}

pub(crate) async fn a_checkpoint_belongs_to_one_task(bench: &Bench<'_>) {
    bench.register("w", "a b").await;
    bench.start("w").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim(4).await;
    let value = |number: usize| json(&number.to_string());
    let batch = claimed.iter().enumerate().skip(1).rev();
    let batch =
        batch.map(|(number, one)| Checkpoint { held: hold(one), number: 0, value: value(number) });
    let answers = bench.store.checkpoint(batch.collect()).await;
    assert_eq!(answers, Ok(vec![Answer::Accepted; 3]));
    for one in &claimed {
        bench.release(one, Duration::ZERO).await;
    }
    for again in worker.claim(4).await {
        let number = claimed.iter().position(|one| one.task == again.task);
        let expected = number.filter(|number| *number > 0).map(value);
        assert_eq!(again.checkpoint, expected);
        bench.accept(&again, Decision::Skip).await;
    }
}

pub(crate) async fn a_batch_of_checkpoints_has_a_limit(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    let one = Checkpoint { held: hold(&claimed), number: 0, value: json("1") };
    let answer = bench.store.checkpoint(vec![one; BATCH_MAX + 1]).await;
    assert!(matches!(answer, Err(StoreError::Conflict(_))), "one over the limit");
    assert_eq!(bench.store.checkpoint(Vec::new()).await, Ok(Vec::new()));
}
