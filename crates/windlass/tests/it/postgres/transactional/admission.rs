//! Runs are let into the queues soon after the commit of whoever started them.

use std::sync::Arc;
use std::time::Duration;

use windlass::store::Store;
use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass::{Ctx, RunHandle, TaskError, Windlass, Workflow};

use super::{PATIENCE, Shop};

/// So rarely do the duties look by themselves here that what comes in time was hinted.
const RARELY: Duration = Duration::from_secs(600);

/// As where transactions may be prepared for a two-phase commit: a start tells nobody.
async fn keep_starts_quiet(shop: &Shop) {
    let quiet = "create or replace function windlass.tell_of_starts() returns void
        language sql as ''";
    shop.run(quiet).await;
}

fn order() -> Workflow<u64> {
    let mut order = Workflow::<u64>::builder("paid order");
    order.task("charge").run(async |ctx: Ctx<u64>| Ok::<_, TaskError>(ctx.input() * 2));
    order.build().expect("the workflow is right")
}

/// Waits until a run has ended, without a hint of the waiting.
async fn ended(windlass: &Windlass, run: &RunHandle) {
    let wait = windlass.run(run.id()).wait_timeout(PATIENCE).await;
    wait.expect("it ends without a sweep that comes by itself");
}

#[tokio::test]
async fn a_sweep_that_leaves_staged_runs_behind_asks_for_the_next_at_once() {
    let shop = Shop::open().await;
    let sql = "select windlass.start_run('order') from generate_series(1, 5)";
    shop.run(sql).await;
    let mut left = 5;
    while left > 0 {
        let sweep = shop.store.promote_due(2).await.expect("the store is there");
        assert_eq!(sweep.moved, left.min(2));
        left -= sweep.moved;
        let is_at_once = sweep.next_at.is_some_and(|at| at <= sweep.at);
        assert_eq!(is_at_once, left > 0, "{left} are left: {sweep:?}");
    }
    // Also if what is due fills a sweep, and staged runs are not even looked at.
    shop.run("select windlass.start_run('order', delay => '1 microsecond')").await;
    assert_eq!(shop.store.promote_due(2).await.expect("the store is there").moved, 1);
    shop.run(sql).await;
    let sweep = shop.store.promote_due(2).await.expect("the store is there");
    assert_eq!(sweep.moved, 2, "both of its first tasks were due");
    assert!(sweep.next_at.is_some_and(|at| at <= sweep.at), "{sweep:?}");
}

#[tokio::test]
async fn a_hint_after_the_commit_lets_runs_in_at_once_in_this_process_and_in_others() {
    let mut shop = Shop::open().await;
    keep_starts_quiet(&shop).await;
    let order = order();
    let options = PostgresOptions::new(shop.database.url());
    let store = PostgresStore::connect(options).await.expect("the database is there");
    let elsewhere = Windlass::with_store(Arc::new(store));
    let here = Windlass::with_store(Arc::clone(&shop.store) as Arc<dyn Store>);
    let serve = |windlass: &Windlass| {
        windlass.worker().register(&order).duties(Some(RARELY)).spawn().expect("it can be spawned")
    };
    // Whoever starts has no duties at first, so that it is the other process that is told.
    let mut worker = serve(&elsewhere);
    for number in 0..2 {
        for waits in [false, true] {
            let mut transaction = shop.user.transaction().await.expect("a transaction begins");
            let run = here.start(&order, number).in_transaction(&mut transaction).await;
            let run = run.expect("it is started");
            transaction.commit().await.expect("it is committed");
            if waits {
                run.wait_timeout(PATIENCE).await.expect("it ends");
            } else {
                here.admit();
                ended(&here, &run).await;
            }
        }
        worker.drain().await.expect("it ends");
        worker = serve(&here);
    }
    worker.drain().await.expect("it ends");
}

#[tokio::test]
async fn a_process_that_starts_runs_and_serves_them_needs_no_hint_after_the_commit() {
    let mut shop = Shop::open().await;
    keep_starts_quiet(&shop).await;
    let order = order();
    let windlass = Windlass::with_store(Arc::clone(&shop.store) as Arc<dyn Store>);
    let worker = windlass.worker().register(&order).duties(Some(RARELY)).spawn();
    let worker = worker.expect("it can be spawned");
    let mut transaction = shop.user.transaction().await.expect("a transaction begins");
    let run = windlass.start(&order, 1).in_transaction(&mut transaction).await;
    let run = run.expect("it is started");
    transaction.commit().await.expect("it is committed");
    ended(&windlass, &run).await;
    worker.drain().await.expect("it ends");
}

#[tokio::test]
async fn a_start_in_sql_is_told_of_once_it_is_committed() {
    let shop = Shop::open().await;
    let order = order();
    let windlass = Windlass::with_store(Arc::clone(&shop.store) as Arc<dyn Store>);
    let worker = windlass.worker().register(&order).duties(Some(RARELY)).spawn();
    let worker = worker.expect("it can be spawned");
    shop.store.register(Arc::clone(order.definition())).await.expect("it can be registered");
    for number in 0..3 {
        shop.run("begin").await;
        // A batch that starts many is told of once, and all of it is found.
        shop.run("select windlass.start_run('paid order', '1') from generate_series(1, 20)").await;
        let run = shop.start(&format!("'paid order', '{number}'")).await;
        shop.run("commit").await;
        ended(&windlass, &windlass.run(run)).await;
    }
    worker.drain().await.expect("it ends");
}

#[tokio::test]
async fn a_start_notifies_a_second_after_the_last_notification() {
    let shop = Shop::open().await;
    let second_ago = "select setval('windlass.told_at',
        (extract(epoch from clock_timestamp()) * 1000)::bigint - 1000)";
    shop.run(second_ago).await;
    let told_at = async || {
        let sql = "select last_value from windlass.told_at";
        shop.user.query_one(sql, &[]).await.expect("reading works").get::<_, i64>(0)
    };
    let before = told_at().await;
    shop.start("'order'").await;
    assert!(told_at().await >= before + 1_000, "it is set with the notification");
}
