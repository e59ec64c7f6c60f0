//! How a workflow is tested: a day passes in microseconds, and a worker dies in the
//! middle of a charge.
//!
//! In a program of yours, each of the functions below is a `#[tokio::test]`, and
//! `windlass` with the feature `testing` is among the dev-dependencies.

use std::time::Duration;

use windlass::testing::{Point, TestEngine};
use windlass::{Ctx, Error, RetryPolicy, RunState, Task, TaskError, TaskState, Workflow};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What is tested: charge, wait a day, ship.
fn order() -> Result<(Workflow<u64>, Task<String>), Error> {
    let mut order = Workflow::<u64>::builder("order");
    let charge = order
        .task("charge")
        .retry(RetryPolicy::exponential().attempts(3).jitter(0.0))
        .run(async |ctx: Ctx<u64>| match ctx.input() {
            0 => Err(TaskError::new("nothing to charge").code("empty").permanent()),
            cents => Ok(*cents),
        });
    let window = order.sleep("fraud-window", DAY).after(&charge).add();
    let ship = order
        .task("ship")
        .reads(&charge)
        .after(&window)
        .run(async |_, cents: u64| Ok::<_, TaskError>(format!("shipped for {cents} cents")));
    Ok((order.build()?, ship))
}

async fn an_order_is_shipped_after_a_day_and_not_before() -> anyhow::Result<()> {
    let (order, ship) = order()?;
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 4_200).tenant("acme").key("order-9182").await?;

    // Only time is missing now: nothing is ready and nothing runs.
    test.run_until_idle().await;
    assert_eq!(run.tasks().await?[1].state, TaskState::Scheduled);
    test.advance(DAY - Duration::from_millis(1)).await;
    test.history(&run).await.assert_never("ship queued");
    test.advance(Duration::from_millis(1)).await;

    assert_eq!(run.get().await?.state, RunState::Succeeded);
    assert_eq!(run.output(&ship).await?, "shipped for 4200 cents");
    let history = test.history(&run).await;
    history.assert_task("fraud-window", &["sleeping", "woken"]);
    history.assert_before("charge succeeded", "fraud-window sleeping");
    history.assert_before("fraud-window woken", "ship queued");
    test.assert_promises_kept().await;
    Ok(())
}

async fn a_worker_that_dies_while_charging_loses_nothing() -> anyhow::Result<()> {
    let (order, ship) = order()?;
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 4_200).await?;
    test.crash_worker_during("charge").await;

    // Its lease runs out, and another worker gets the task with the next fence.
    test.advance(2 * DAY).await;
    assert_eq!(run.output(&ship).await?, "shipped for 4200 cents");
    let history = test.history(&run).await;
    history.assert_task("charge", &["queued", "started", "lease_expired", "started", "succeeded"]);
    let fences: Vec<_> = history.fences("charge").iter().map(|fence| fence.0).collect();
    assert_eq!(fences, [1, 2]);
    test.assert_promises_kept().await;
    Ok(())
}

async fn a_worker_that_hangs_and_wakes_too_late_changes_nothing() -> anyhow::Result<()> {
    let (order, ship) = order()?;
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 4_200).await?;
    let hangs = Duration::from_secs(10 * 60);
    test.freeze_worker_at(Point::BeforeCommit, "charge", hangs).await;
    test.advance(2 * DAY).await;

    // The charge was done twice, which a handler must allow for, and recorded once.
    assert_eq!(test.refused().len(), 1, "the late answer is refused");
    assert_eq!(run.output(&ship).await?, "shipped for 4200 cents");
    test.assert_promises_kept().await;
    Ok(())
}

async fn an_empty_order_fails_at_once() -> anyhow::Result<()> {
    let (order, _) = order()?;
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 0).await?;
    test.run_until_idle().await;

    assert_eq!(run.get().await?.state, RunState::Failed);
    let history = test.history(&run).await;
    history.assert_task("charge", &["queued", "started", "failed"]);
    history.assert_task("ship", &["skipped"]);
    test.assert_promises_kept().await;
    Ok(())
}

// A test engine runs on the runtime that `#[tokio::test]` gives too.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let began = std::time::Instant::now();
    an_order_is_shipped_after_a_day_and_not_before().await?;
    a_worker_that_dies_while_charging_loses_nothing().await?;
    a_worker_that_hangs_and_wakes_too_late_changes_nothing().await?;
    an_empty_order_fails_at_once().await?;
    println!("four tests, five days, {:?}", began.elapsed());
    Ok(())
}
