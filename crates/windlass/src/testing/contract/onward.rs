//! Completions that claim: what follows a task comes with the answer to it.

use windlass_core::{ClaimSeq, Decision, Fence, RunState, TaskState};

use super::bench::{
    Bench, LEASE, TICK, Worker, completion, failure, json, names, queue, seconds, success, tenants,
};
use crate::store::{Answer, ClaimRequest, Claimed, Finished};

impl Worker<'_> {
    /// Finishes tasks well and claims.
    async fn finish_and_claim(&self, claimed: &[&Claimed], limit: usize) -> Finished {
        self.send(claimed, self.request(limit)).await
    }

    async fn send(&self, claimed: &[&Claimed], next: ClaimRequest) -> Finished {
        let batch: Vec<_> = claimed.iter().map(|one| completion(one, success())).collect();
        let count = batch.len();
        let store = &self.bench().store;
        let finished = store.finish_and_claim(batch, next).await.expect("finishing works");
        assert_eq!(finished.answers.len(), count, "each completion has an answer");
        finished
    }
}

pub(crate) async fn what_follows_a_task_comes_with_the_answer_to_it(bench: &Bench<'_>) {
    bench.register("w", "a b<a c<a d<b,c").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let a = worker.claim_one().await;
    let Finished { answers, claimed } = worker.finish_and_claim(&[&a], 10).await;
    assert_eq!((answers.as_slice(), names(&claimed)), (&[Answer::Accepted][..], vec!["b", "c"]));
    let b = &claimed[0];
    assert_eq!((b.fence, b.attempt), (Fence(1), 1));
    assert_eq!(b.parents[0].output, Some(json(r#""done""#)), "with all the facts of a claim");
    assert_eq!(bench.states(run).await, "succeeded running running pending");
    assert_eq!(bench.history(run, "b").await, "queued started");
    let Finished { claimed, .. } = worker.finish_and_claim(&[&claimed[0], &claimed[1]], 10).await;
    assert_eq!(names(&claimed), ["d"]);
    let Finished { claimed, .. } = worker.finish_and_claim(&[&claimed[0]], 10).await;
    assert!(claimed.is_empty());
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
}

pub(crate) async fn where_nothing_becomes_ready_nothing_is_claimed(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.register("v", "x y@other<x").await;
    bench.start("w").await;
    bench.start("v").await;
    let waiting = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim(2).await;
    assert_eq!(names(&claimed), ["a", "x"]);
    let finished = worker.finish_and_claim(&[&claimed[0]], 10).await;
    assert!(finished.claimed.is_empty(), "that is for a claim");
    let finished = worker.finish_and_claim(&[&claimed[1]], 10).await;
    assert!(finished.claimed.is_empty(), "it does not serve the queue of what became ready");
    assert_eq!(bench.task(waiting, "a").await.state, TaskState::Ready);
    assert_eq!(names(&worker.claim_from("other", 10).await), ["y"]);
}

pub(crate) async fn what_stands_before_it_is_claimed_before_it(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    bench.start_for("w", "old", 1).await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    bench.start_for("w", "old", 1).await;
    bench.start_for("w", "new", 1).await;
    let next = worker.finish_and_claim(&[&first], 1).await.claimed;
    assert_eq!((names(&next), tenants(&next)), (vec!["a"], vec!["new"]), "it is its turn");
    let next = worker.finish_and_claim(&[&next[0]], 1).await.claimed;
    assert_eq!((names(&next), tenants(&next)), (vec!["a"], vec!["old"]), "it is older");
    let rest = worker.claim(10).await;
    assert_eq!((names(&rest), tenants(&rest)), (vec!["b", "b"], vec!["new", "old"]));
}

pub(crate) async fn completions_count_where_the_claim_does_not(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    let worker = bench.worker().await;
    let mut held = Vec::new();
    for _ in 0..4 {
        bench.start("w").await;
        held.push(worker.claim_one().await);
    }
    let used = ClaimRequest { seq: ClaimSeq(1), ..worker.request(10) };
    let stranger = bench.stranger().request(10);
    let none = worker.request(0);
    let elsewhere = ClaimRequest { queues: [queue("other")].into(), ..worker.request(10) };
    for (task, next) in held.iter().zip([used, stranger, none, elsewhere]) {
        let finished = worker.send(&[task], next.clone()).await;
        assert_eq!(finished.answers, [Answer::Accepted], "{next:?}");
        assert!(finished.claimed.is_empty(), "{next:?}");
        assert_eq!(bench.states(task.task.run).await, "succeeded ready");
    }
    assert_eq!(names(&worker.claim(10).await), ["b"; 4]);
}

pub(crate) async fn one_that_comes_twice_finishes_and_claims_once(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let a = worker.claim_one().await;
    let next = worker.request(10);
    let first = worker.send(&[&a], next.clone()).await;
    assert_eq!(names(&first.claimed), ["b"]);
    let again = worker.send(&[&a], next).await;
    assert_eq!(again.answers, [Answer::AcceptedAlready]);
    assert!(again.claimed.is_empty());
    // It did not hear of the first answer, and says so.
    worker.extend(&[]).await;
    assert_eq!(bench.task(run, "b").await.state, TaskState::Ready);
    assert_eq!(worker.claim_one().await.attempt, 1, "it was not to blame");
}

pub(crate) async fn what_a_refused_completion_would_have_led_to_is_not_claimed(bench: &Bench<'_>) {
    bench.register("w", "a*2 b<a").await;
    let run = bench.start("w").await;
    let (worker, other) = (bench.worker().await, bench.worker().await);
    let stale = worker.claim_one().await;
    bench.release(&stale, seconds(0)).await;
    let newer = other.claim_one().await;
    let finished = worker.finish_and_claim(&[&stale], 10).await;
    assert!(matches!(finished.answers[0], Answer::Refused(_)), "{:?}", finished.answers);
    assert!(finished.claimed.is_empty());
    let failed = vec![completion(&newer, Decision::Fail(failure()))];
    let failed = bench.store.finish_and_claim(failed, other.request(10)).await;
    assert!(failed.expect("finishing works").claimed.is_empty());
    assert_eq!(bench.states(run).await, "failed skipped");
}

pub(crate) async fn a_lease_begins_with_what_follows_if_nothing_else_is_held(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let a = worker.claim_one().await;
    bench.advance(LEASE - TICK).await;
    assert_eq!(names(&worker.finish_and_claim(&[&a], 10).await.claimed), ["b"]);
    bench.advance(LEASE - TICK).await;
    assert_eq!(bench.reap().await, 0);
    bench.advance(TICK).await;
    assert_eq!(bench.reap().await, 1);
    assert_eq!(bench.task(run, "b").await.state, TaskState::Ready);
}

pub(crate) async fn a_worker_that_is_late_is_given_nothing_more(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    bench.start("w").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let held = worker.claim(2).await;
    bench.advance(LEASE).await;
    let finished = worker.finish_and_claim(&[&held[0]], 10).await;
    assert_eq!(finished.answers, [Answer::Accepted], "nobody took it away");
    assert!(finished.claimed.is_empty(), "it still holds one that may be taken away");
    assert_eq!(bench.reap().await, 1);
}
