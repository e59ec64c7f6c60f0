//! Verbs whose caller goes away midway: each is done or not done, never half.
//!
//! A caller that is dropped does not know how far its verb came, so every case
//! does what a caller would: it repeats the verb, or says that it gave up.

use std::pin::pin;
use std::task::Poll;

use windlass_core::{RunState, TaskState};

use super::bench::{Bench, LEASE, completion, is_within_deadline, seconds, success};
use crate::store::{Answer, NewRun};

/// How far the verbs are let to come before their callers go away, in polls.
const POLLS: std::ops::Range<usize> = 1..6;

/// Polls a future so many times and drops it.
async fn abandon<F: Future>(future: F, polls: usize) {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        if future.as_mut().poll(context).is_pending() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

pub(crate) async fn a_start_given_up_midway_can_be_repeated(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    for polls in POLLS {
        let new = NewRun { key: super::bench::key(&format!("k{polls}")), ..bench.new_run("w") };
        abandon(bench.store.start_runs(vec![new.clone()]), polls).await;
        let started = bench.try_start(new.clone()).await.expect("it can be started");
        assert_eq!(started.run, new.id);
        assert_eq!(bench.states(new.id).await, "ready pending");
    }
    assert_eq!(bench.worker().await.claim(100).await.len(), POLLS.len());
}

pub(crate) async fn a_claim_given_up_midway_loses_no_task(bench: &Bench<'_>) {
    bench.register("w", "a*1").await;
    let worker = bench.worker().await;
    let other = bench.worker().await;
    for polls in POLLS {
        let run = bench.start("w").await;
        abandon(bench.store.claim(worker.request(1)), polls).await;
        // The heartbeat says that the worker waits for no answer any more.
        worker.extend(&[]).await;
        let claimed = other.claim_one().await;
        assert_eq!((claimed.task.run, claimed.attempt), (run, 1));
        bench.succeed(&claimed).await;
    }
}

pub(crate) async fn a_finish_given_up_midway_can_be_repeated(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    let worker = bench.worker().await;
    for polls in POLLS {
        let run = bench.start("w").await;
        for name in ["a", "b"] {
            let claimed = worker.claim_one().await;
            assert_eq!(claimed.spec.name.as_str(), name);
            abandon(bench.store.finish(vec![completion(&claimed, success())]), polls).await;
            let answer = bench.finish(&claimed, success()).await;
            assert!(matches!(answer, Answer::Accepted | Answer::AcceptedAlready), "{answer:?}");
        }
        assert_eq!(bench.run_state(run).await, RunState::Succeeded);
    }
}

pub(crate) async fn a_sweep_given_up_midway_loses_no_timer(bench: &Bench<'_>) {
    bench.register("w", "nap~1000 a").await;
    for polls in POLLS {
        let new = NewRun { delay: seconds(1), ..bench.new_run("w") };
        let run = bench.start_run(new).await;
        bench.advance(seconds(2)).await;
        abandon(bench.store.promote_due(10), polls).await;
        let is_over = || async {
            bench.promote().await;
            bench.states(run).await == "succeeded ready"
        };
        assert!(is_within_deadline(is_over).await, "{}", bench.states(run).await);
    }
}

pub(crate) async fn a_reaper_given_up_midway_loses_no_task(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    for polls in POLLS {
        let run = bench.start("w").await;
        let worker = bench.worker().await;
        worker.claim_one().await;
        bench.advance(LEASE).await;
        abandon(bench.store.reap(10), polls).await;
        let is_back = || async {
            bench.reap().await;
            bench.task(run, "a").await.state == TaskState::Ready
        };
        assert!(is_within_deadline(is_back).await, "{}", bench.states(run).await);
        bench.store.cancel_run(run, None).await.expect("it can be cancelled");
    }
}
