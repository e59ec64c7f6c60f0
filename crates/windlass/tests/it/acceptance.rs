//! The engine as a whole, in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass::testing::{Point, TestEngine};
use windlass::{Ctx, RetryPolicy, RunState, TaskError, TaskState, Workflow};

type Journal = Arc<Mutex<Vec<String>>>;

fn note(journal: &Journal, line: impl Into<String>) {
    journal.lock().expect("no handler panics").push(line.into());
}

fn lines(journal: &Journal) -> Vec<String> {
    journal.lock().expect("no handler panics").clone()
}

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_linear_dag_runs_in_order_and_hands_outputs_down() {
    let journal = Journal::default();
    let mut linear = Workflow::<()>::builder("linear");
    let log = journal.clone();
    let a = linear.task("a").run(move |_| {
        note(&log, "a");
        async { Ok::<_, TaskError>("result-a".to_owned()) }
    });
    let log = journal.clone();
    let b = linear.task("b").reads(&a).run(move |_, a: String| {
        note(&log, "b");
        async move { Ok::<_, TaskError>(format!("result-b-{a}")) }
    });
    let log = journal.clone();
    let c = linear.task("c").reads(&b).run(move |_, b: String| {
        note(&log, "c");
        async move { Ok::<_, TaskError>(format!("result-c-{b}")) }
    });
    let linear = linear.build().unwrap();

    let test = TestEngine::new().register(&linear);
    let run = test.start(&linear, ()).tenant("tenant-1").await.unwrap();
    test.run_until_idle().await;

    assert_eq!(lines(&journal), ["a", "b", "c"]);
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    assert_eq!(run.output(&c).await.unwrap(), "result-c-result-b-result-a");
    let history = test.history(&run).await;
    for task in ["a", "b", "c"] {
        history.assert_task(task, &["queued", "started", "succeeded"]);
    }
    history.assert_before("a succeeded", "b queued");
    history.assert_before("b succeeded", "c queued");
    assert_eq!(history.lines().last().unwrap(), "run_ended");
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_diamond_fans_out_and_in_and_its_join_sees_both_sides() {
    let journal = Journal::default();
    let mut diamond = Workflow::<()>::builder("diamond");
    let a = diamond.task("a").run(async |_| Ok::<i32, TaskError>(1));
    let log = journal.clone();
    let b = diamond.task("b").reads(&a).run(move |_, a: i32| {
        let log = log.clone();
        async move {
            note(&log, "b begins");
            tokio::time::sleep(HOUR).await;
            note(&log, "b ends");
            Ok::<_, TaskError>(a + 1)
        }
    });
    let log = journal.clone();
    let c = diamond.task("c").reads(&a).run(move |_, a: i32| {
        let log = log.clone();
        async move {
            note(&log, "c begins");
            tokio::time::sleep(2 * HOUR).await;
            note(&log, "c ends");
            Ok::<_, TaskError>(a + 2)
        }
    });
    let d = diamond.task("d").reads((&b, &c)).run(async |_, (b, c)| Ok::<i32, TaskError>(b + c));
    let diamond = diamond.build().unwrap();

    let test = TestEngine::new().register(&diamond);
    let run = test.start(&diamond, ()).await.unwrap();
    let began = test.now();
    test.run_until_idle().await;

    // Both sides were under way at the same time, and the join waited for the slower.
    let mut order = lines(&journal);
    order[..2].sort();
    assert_eq!(order, ["b begins", "c begins", "b ends", "c ends"]);
    assert_eq!(test.now().since(began).as_secs(), 2 * HOUR.as_secs());
    assert_eq!(run.output(&d).await.unwrap(), 5);
    let history = test.history(&run).await;
    history.assert_before("b succeeded", "c succeeded");
    history.assert_before("c succeeded", "d queued");
    assert_eq!(history.of("d"), ["queued", "started", "succeeded"], "the join ran once");
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_durable_sleep_needs_no_worker_and_ends_neither_early_nor_twice() {
    let journal = Journal::default();
    let mut nap = Workflow::<()>::builder("nap");
    let log = journal.clone();
    let before = nap.task("before").run(move |_| {
        note(&log, "before");
        async { Ok::<_, TaskError>(()) }
    });
    let wait = nap.sleep("wait-24h", 24 * HOUR).after(&before).add();
    let log = journal.clone();
    nap.task("after").after(&wait).run(move |_| {
        note(&log, "after");
        async { Ok::<_, TaskError>(()) }
    });
    let nap = nap.build().unwrap();

    let test = TestEngine::new().register(&nap);
    let run = test.start(&nap, ()).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(lines(&journal), ["before"]);
    let asleep = &run.tasks().await.unwrap()[1];
    assert_eq!(asleep.state, TaskState::Scheduled);
    assert_eq!(asleep.available_at, Some(test.now() + 24 * HOUR));
    assert_eq!(asleep.worker, None, "nobody is kept busy by a sleep");

    test.advance(24 * HOUR - Duration::from_millis(1)).await;
    assert_eq!(lines(&journal), ["before"], "not a millisecond early");
    test.advance(Duration::from_millis(1)).await;
    assert_eq!(lines(&journal), ["before", "after"]);
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    test.history(&run).await.assert_task("wait-24h", &["sleeping", "woken"]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_flaky_task_is_retried_with_growing_pauses() {
    let mut retry = Workflow::<()>::builder("retry");
    let flaky = retry.task("flaky").retry(RetryPolicy::exponential().attempts(3).jitter(0.0)).run(
        async |ctx: Ctx<()>| match ctx.attempt() {
            1 | 2 => Err(TaskError::new("transient")),
            attempt => Ok(attempt),
        },
    );
    let retry = retry.build().unwrap();

    let test = TestEngine::new().register(&retry);
    let run = test.start(&retry, ()).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.tasks().await.unwrap()[0].state, TaskState::Scheduled, "the backoff is a row");
    test.advance(Duration::from_millis(999)).await;
    assert_eq!(test.history(&run).await.starts().len(), 1, "not before the first pause ended");
    test.advance(Duration::from_millis(1)).await;
    assert_eq!(test.history(&run).await.starts().len(), 2);
    test.advance(Duration::from_millis(1_999)).await;
    assert_eq!(test.history(&run).await.starts().len(), 2, "the second pause is twice as long");
    test.advance(Duration::from_millis(1)).await;

    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    assert_eq!(run.output(&flaky).await.unwrap(), 3);
    test.history(&run).await.assert_task(
        "flaky",
        &[
            "queued",
            "started",
            "retrying",
            "queued",
            "started",
            "retrying",
            "queued",
            "started",
            "succeeded",
        ],
    );
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_tenant_with_one_task_waits_for_one_of_each_other_tenant_at_most() {
    let journal = Journal::default();
    let mut simple = Workflow::<()>::builder("simple");
    let log = journal.clone();
    simple.task("work").run(move |ctx: Ctx<()>| {
        note(&log, ctx.tenant().as_str());
        async { Ok::<_, TaskError>(()) }
    });
    let simple = simple.build().unwrap();

    // One slot: batch b = 1 and one claimer c = 1, so with K tenants the bound for a
    // newcomer's first claim, and between two claims of a backlogged tenant, is K + 1.
    let test = TestEngine::new().register(&simple).slots(1);
    for _ in 0..50 {
        test.start(&simple, ()).tenant("b").await.unwrap();
        test.start(&simple, ()).tenant("c").await.unwrap();
    }
    test.start(&simple, ()).tenant("a").await.unwrap();
    test.run_until_idle().await;

    let order = lines(&journal);
    assert_eq!(order.len(), 101);
    let tenants = 3;
    let first = order.iter().position(|tenant| tenant == "a").unwrap();
    assert!(first < tenants, "a is served in the first round: {order:?}");
    for tenant in ["b", "c"] {
        let places = order.iter().enumerate().filter(|(_, other)| *other == tenant);
        let places: Vec<_> = places.map(|(place, _)| place).collect();
        for pair in places.windows(2) {
            assert!(pair[1] - pair[0] <= tenants, "{tenant} waited too long: {order:?}");
        }
    }
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_worker_that_dies_at_any_point_loses_nothing() {
    for point in [
        Point::BeforeHandler,
        Point::DuringHandler,
        Point::AfterHandler,
        Point::BeforeCommit,
        Point::AfterCommit,
    ] {
        let mut order = Workflow::<u32>::builder("order");
        let charge = order.task("charge").run(async |ctx: Ctx<u32>| {
            tokio::task::yield_now().await;
            Ok::<_, TaskError>(*ctx.input())
        });
        let ship =
            order.task("ship").reads(&charge).run(async |_, paid| Ok::<u32, TaskError>(paid));
        let order = order.build().unwrap();

        let test = TestEngine::new().register(&order);
        let run = test.start(&order, 42).await.unwrap();
        test.crash_worker_at(point, "charge").await;
        test.run_until_idle().await;

        assert_eq!(run.get().await.unwrap().state, RunState::Succeeded, "{point:?}");
        assert_eq!(run.output(&ship).await.unwrap(), 42);
        let charges = test.history(&run).await.of("charge");
        if point == Point::AfterCommit {
            assert_eq!(charges, ["queued", "started", "succeeded"], "done is done");
        } else {
            assert_eq!(charges, ["queued", "started", "lease_expired", "started", "succeeded"]);
        }
        test.assert_promises_kept().await;
    }
}

#[tokio::test]
async fn a_frozen_worker_wakes_as_a_zombie_and_is_refused() {
    let mut order = Workflow::<()>::builder("order");
    let charge = order.task("charge").run(async |ctx: Ctx<()>| Ok::<_, TaskError>(ctx.fence().0));
    let order = order.build().unwrap();

    let test = TestEngine::new().register(&order);
    let run = test.start(&order, ()).await.unwrap();
    test.freeze_worker_at(Point::BeforeCommit, "charge", Duration::from_secs(60)).await;
    test.run_until_idle().await;
    assert_eq!(run.output(&charge).await.unwrap(), 2, "the second claim's result counts");
    assert!(test.refused().is_empty(), "the zombie still sleeps");

    test.advance(Duration::from_secs(60)).await;
    let refused = test.refused();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0].fence.0, 1);
    assert_eq!(run.output(&charge).await.unwrap(), 2, "the zombie changed nothing");
    test.assert_promises_kept().await;
}
