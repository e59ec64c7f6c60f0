//! Pairs of a completion that claims and something else.

use windlass::store::{Finished, Heartbeat, Store, StoreError, WorkerLink};
use windlass_core::ClaimSeq;

use super::super::driver::{Worker, success, workflow};
use super::pairs::{claimed, pair, said};
use super::{Case, Explorer};

/// The answers, and how many tasks were claimed.
fn told(finished: Result<Finished, StoreError>) -> String {
    said(finished.map(|one| (one.answers, one.claimed.len())))
}

pair! {
    /// What a completion makes ready is its worker's before another can see it.
    onward_and_claim,
    |explorer| {
        let chain = workflow("chain", &["a", "b < a"]);
        let (run, worker, tasks) = claimed(&explorer, &chain).await;
        let other = Worker::join(&*explorer.plain, &chain).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let (a, next, claim) = (success(&tasks[0]), worker.request(10), other.request(10));
        Case::new(
            run,
            &chain,
            async move { told(left.finish_and_claim(vec![a], next).await) },
            async move { said(right.claim(claim).await.map(|tasks| tasks.len())) },
        )
        .with_claims()
    },
    ["([Accepted], 1) | 0"]
}

pair! {
    /// A worker that gives the claim up while it is under way is left with nothing of it.
    onward_and_extend,
    |explorer| {
        let chain = workflow("chain", &["a", "b < a"]);
        let (run, worker, tasks) = claimed(&explorer, &chain).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let (a, next) = (success(&tasks[0]), worker.request(10));
        let heartbeat = Heartbeat {
            worker: worker.id,
            settled: ClaimSeq(2),
            held: Vec::new(),
            progress: Vec::new(),
        };
        Case::new(
            run,
            &chain,
            async move { told(left.finish_and_claim(vec![a], next).await) },
            async move { said(right.extend(heartbeat).await.map(|answer| answer.lost.len())) },
        )
        .with_claims()
    },
    ["([Accepted], 0) | 0", "([Accepted], 1) | 0", "([Refused(LeaseLost)], 0) | 0"]
}

pair! {
    /// A worker that leaves keeps nothing of what its completion claims.
    onward_and_leave,
    |explorer| {
        let chain = workflow("chain", &["a", "b < a"]);
        let (run, worker, tasks) = claimed(&explorer, &chain).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let (a, next) = (success(&tasks[0]), worker.request(10));
        Case::new(
            run,
            &chain,
            async move { told(left.finish_and_claim(vec![a], next).await) },
            async move { said(right.leave(worker.id).await) },
        )
        .with_claims()
    },
    ["([Accepted], 0) | ()", "([Accepted], 1) | ()", "([Refused(LeaseLost)], 0) | ()"]
}

pair! {
    onward_and_cancel,
    |explorer| {
        let chain = workflow("chain", &["a", "b < a"]);
        let (run, worker, tasks) = claimed(&explorer, &chain).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let (a, next) = (success(&tasks[0]), worker.request(10));
        Case::new(
            run,
            &chain,
            async move { told(left.finish_and_claim(vec![a], next).await) },
            async move { said(right.cancel_run(run, None).await) },
        )
        .with_claims()
    },
    ["([Accepted], 1) | ()", "([Refused(RunCancelled)], 0) | ()"]
}
