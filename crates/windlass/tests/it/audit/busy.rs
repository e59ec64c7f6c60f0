//! A database that is audited while others work on it.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass::store::postgres::PostgresStore;
use windlass::store::{
    ClaimRequest, Claimed, Completion, HandlerKey, Hello, Release, RunFilter, Store, StoreError,
    WorkerLink,
};
use windlass_core::{
    ClaimSeq, Decision, Failure, FailureCode, Payload, QueueName, RunId, RunState, Version,
    WorkerId, WorkflowName,
};

use super::story::{Story, fan};

const RUNS: usize = 30;
const WORKERS: u128 = 3;

/// Claims and ends tasks in every way until told to stop. A worker whose lease is short
/// forgets every task it claims.
async fn work(store: Arc<PostgresStore>, number: u128, lease: Duration, stop: Arc<AtomicBool>) {
    let mut dice = fastrand::Rng::with_seed(u64::try_from(number).unwrap());
    let (mut lives, mut seq) = (number << 64, 0);
    let handler =
        HandlerKey { workflow: WorkflowName::new("busy").unwrap(), version: Version::FIRST };
    let mut worker = WorkerId::from_random(lives);
    while !stop.load(Ordering::Relaxed) {
        seq += 1;
        let request = ClaimRequest {
            worker,
            seq: ClaimSeq(seq),
            queues: [QueueName::new("default").unwrap()].into(),
            handlers: [handler.clone()].into(),
            limit: dice.usize(1..6),
            ending: 0,
            is_poll: dice.bool(),
            tenant: None,
        };
        let claimed = match store.claim(request).await {
            Ok(claimed) => claimed,
            Err(StoreError::LeaseLost(_)) => {
                lives += 1;
                worker = WorkerId::from_random(lives);
                let name = format!("worker-{number}");
                let hello = Hello {
                    worker,
                    name,
                    slots: 5,
                    lease,
                    definitions: Vec::new(),
                    info: Default::default(),
                };
                store.join(hello).await.unwrap();
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        if lease > Duration::from_secs(1) {
            for task in claimed {
                end(&store, &mut dice, task).await;
            }
        }
        tokio::task::yield_now().await;
    }
}

async fn end(store: &PostgresStore, dice: &mut fastrand::Rng, claimed: Claimed) {
    let (task, fence) = (claimed.task, claimed.fence);
    let failure = Failure::new(FailureCode::Error, "by chance");
    let delay = Duration::from_millis(dice.u64(0..20));
    let decision = match dice.u8(0..10) {
        0 => {
            store.release(vec![Release { task, fence, delay }]).await.unwrap();
            return;
        }
        1 => Decision::Fail(failure),
        2 => Decision::Retry { failure, delay },
        3 => Decision::Skip,
        _ => Decision::Succeed(Payload::encode(&1).unwrap()),
    };
    // It may be cancelled by now; the answer does not matter.
    store.finish(vec![Completion { task, fence, decision }]).await.unwrap();
}

async fn open_runs(store: &PostgresStore) -> usize {
    let filter = RunFilter { state: Some(RunState::Running), ..RunFilter::default() };
    store.list_runs(filter).await.unwrap().runs.len()
}

/// Cancels one run in ten and retries one in three that failed, once.
async fn steer(store: &PostgresStore, runs: &[RunId]) {
    for (number, run) in runs.iter().enumerate() {
        let Some(record) = store.get_run(*run).await.unwrap() else { continue };
        match record.state {
            RunState::Running if number % 10 == 3 => {
                // It may have ended in between.
                let _ = store.cancel_run(*run, None).await;
            }
            RunState::Failed if number % 3 == 0 && record.round == 1 => {
                store.retry_run(*run, 1).await.unwrap();
            }
            RunState::Running | RunState::Failed | RunState::Succeeded | RunState::Cancelled => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_at_work_is_clean_at_every_moment() {
    let mut story = Story::on_the_databases_clock().await;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(story.start(&fan("busy"), Duration::ZERO).await);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let is_forgetful = number == 0;
        let lease = Duration::from_millis(if is_forgetful { 1 } else { 60_000 });
        workers.push(tokio::spawn(work(story.store.clone(), number, lease, stop.clone())));
    }
    let (store, stopped) = (story.store.clone(), stop.clone());
    let duties = tokio::spawn(async move {
        while !stopped.load(Ordering::Relaxed) {
            store.promote_due(100).await.unwrap();
            store.reap(100).await.unwrap();
            steer(&store, &runs).await;
        }
    });
    let mut audits = 0;
    while open_runs(&story.store).await > 0 || audits < 3 {
        let report = story.audit().await;
        let violated: Vec<_> = report.checks.iter().filter(|check| check.is_violated()).collect();
        assert!(violated.is_empty(), "{violated:#?}");
        audits += 1;
    }
    stop.store(true, Ordering::Relaxed);
    for task in workers.into_iter().chain([duties]) {
        task.await.unwrap();
    }
    assert!(story.audit().await.is_clean());
}
