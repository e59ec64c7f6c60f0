//! What the simulation found, each as the shortest story that shows it.

use std::sync::Arc;
use std::time::Duration;

use windlass::clock::VirtualClock;
use windlass::store::{
    ClaimRequest, HandlerKey, Hello, MemoryStore, Store, WorkerInfo, WorkerLink,
};
use windlass::testing::History;
use windlass::{RetryPolicy, TaskError, TaskState, Timestamp, Windlass, Workflow};
use windlass_core::{ClaimSeq, QueueName, WorkerId};

fn single(handler_takes: Duration) -> Workflow<()> {
    let mut single = Workflow::<()>::builder("single");
    let retry = RetryPolicy::fixed(Duration::ZERO).attempts(2);
    single.task("only").retry(retry).run(move |_| async move {
        tokio::time::sleep(handler_takes).await;
        Ok::<_, TaskError>(())
    });
    single.build().expect("one task is a workflow")
}

#[tokio::test]
async fn claims_that_give_nothing_do_not_keep_tasks_the_worker_does_not_know_of() {
    let clock = Arc::new(VirtualClock::new(Timestamp::from_micros(0)));
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let windlass = Windlass::with_store(store.clone());
    let workflow = single(Duration::ZERO);
    let run = windlass.start(&workflow, ()).await.unwrap();
    let worker = WorkerId::from_random(1);
    let lease = Duration::from_secs(10);
    let definitions = vec![workflow.definition().clone()];
    let name = "worker".to_owned();
    store
        .join(Hello { worker, name, slots: 1, lease, definitions, info: WorkerInfo::default() })
        .await
        .unwrap();
    let claim = |seq| {
        let (workflow, version) = (workflow.name().clone(), workflow.version());
        store.claim(ClaimRequest {
            worker,
            seq: ClaimSeq(seq),
            queues: [QueueName::default()].into(),
            handlers: [HandlerKey { workflow, version }].into(),
            limit: 1,
            ending: 0,
            is_poll: false,
            tenant: None,
        })
    };

    // The request arrives twice, and the worker sees the second answer.
    assert_eq!(claim(1).await.unwrap().len(), 1);
    assert_eq!(claim(1).await.unwrap().len(), 0);
    for seq in 2..8 {
        clock.advance(Duration::from_secs(2));
        store.reap(100).await.unwrap();
        // Holding nothing that it knows of, the worker sends no heartbeat.
        let _ = claim(seq).await;
    }

    let history = History::new(run.history().await.unwrap());
    history.assert_task("only", &["queued", "started", "lease_expired"]);
    assert_eq!(run.tasks().await.unwrap()[0].state, TaskState::Ready);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_a_drain_has_to_drop_is_reported_before_the_worker_leaves() {
    let windlass = Windlass::memory();
    let workflow = single(Duration::from_secs(60 * 60));
    let grace = Duration::from_secs(20);
    let worker = windlass.worker().register(&workflow).grace(grace).spawn().unwrap();
    let run = windlass.start(&workflow, ()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;

    let told_at = tokio::time::Instant::now();
    worker.drain().await.unwrap();

    assert!(told_at.elapsed() <= grace);
    let history = History::new(run.history().await.unwrap());
    history.assert_task("only", &["queued", "started", "retrying"]);
}
