//! What is in the queues, as whoever watches them is told.

use std::time::Duration;

use windlass_core::{Priority, Timestamp};

use super::bench::{Bench, queue, seconds, tenant, tenants};
use crate::store::{Duty, NewRun, QueueRecord};

/// Adds up what has changed, as the duty does, and says what is in the queues.
async fn queues(bench: &Bench<'_>) -> Vec<QueueRecord> {
    bench.store.roll_up(Duty::Rollup.batch()).await.expect("adding up works");
    let list = bench.store.list_queues().await.expect("reading works");
    assert_eq!(list.at, bench.now().await);
    list.queues
}

/// What is in the queue of a bench, with the priority of most runs.
async fn counts(bench: &Bench<'_>) -> (u64, u64, u64, Option<Timestamp>) {
    let all = queues(bench).await;
    let it = all.iter().find(|it| it.priority == Priority::default());
    it.map_or((0, 0, 0, None), |it| (it.came, it.went, it.ready(), it.oldest_at))
}

pub(crate) async fn queues_count_what_comes_and_goes(bench: &Bench<'_>) {
    assert_eq!(queues(bench).await, []);
    bench.register("w", "a b<a").await;
    let first = bench.now().await;
    bench.start("w").await;
    bench.advance(seconds(1)).await;
    let second = bench.now().await;
    let cancelled = bench.start("w").await;
    assert_eq!(counts(bench).await, (2, 0, 2, Some(first)));
    let worker = bench.worker().await;
    let one = worker.claim_one().await;
    assert_eq!(counts(bench).await, (2, 1, 1, Some(second)), "it is as old as the oldest");
    bench.advance(seconds(1)).await;
    let third = bench.now().await;
    bench.succeed(&one).await;
    assert_eq!(counts(bench).await, (3, 1, 2, Some(second)), "what follows has come");
    bench.store.cancel_run(cancelled, None).await.expect("cancelling works");
    assert_eq!(counts(bench).await, (3, 2, 1, Some(third)), "what was cancelled is gone");
    let two = worker.claim_one().await;
    assert_eq!(counts(bench).await, (3, 3, 0, None));
    bench.advance(seconds(1)).await;
    let fourth = bench.now().await;
    bench.release(&two, Duration::ZERO).await;
    assert_eq!(counts(bench).await, (4, 3, 1, Some(fourth)), "what was handed back comes again");
}

pub(crate) async fn queues_are_listed_by_name_and_priority(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let low = Priority::new(-3).expect("it is one");
    for (name, priority) in [("x", Priority::default()), ("y", low), ("x", low)] {
        let run = NewRun { tenant: tenant(name), priority, ..bench.new_run("w") };
        bench.start_run(run).await;
    }
    let all = queues(bench).await;
    let shown: Vec<_> = all.iter().map(|it| (it.queue.clone(), it.priority, it.ready())).collect();
    let name = queue("default");
    assert_eq!(shown, [(name.clone(), Priority::default(), 1), (name, low, 2)]);
}

pub(crate) async fn the_oldest_task_of_a_queue_may_be_of_any_tenant(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let mut times = Vec::new();
    for name in ["z", "y", "x"] {
        times.push(bench.now().await);
        bench.start_for("w", name, 2).await;
        bench.advance(seconds(1)).await;
    }
    let worker = bench.worker().await;
    for (claimed, oldest) in [(0, Some(times[0])), (6, None)] {
        worker.claim(claimed).await;
        assert_eq!(counts(bench).await.3, oldest);
    }
}

pub(crate) async fn the_oldest_task_of_a_queue_may_stand_behind_newer_ones(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let first = bench.now().await;
    bench.start_for("w", "x", 3).await;
    bench.advance(seconds(1)).await;
    bench.start_for("w", "y", 1).await;
    let worker = bench.worker().await;
    assert_eq!(tenants(&worker.claim(1).await), ["x"]);
    assert_eq!(counts(bench).await.3, Some(first));
    assert_eq!(tenants(&worker.claim(1).await), ["y"], "it stands before the older ones");
}
