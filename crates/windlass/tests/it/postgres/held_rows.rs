//! Claims and sweeps pass over rows that another transaction holds, and take the others.

use std::time::Duration;

use windlass::store::Store;
use windlass::store::postgres::{PostgresOptions, PostgresStore};

use super::driver::{Worker, new_run, start, workflow};
use crate::database::TestDatabase;

/// Less than the time for which a statement waits for a lock.
const AT_ONCE: Duration = Duration::from_secs(3);

async fn connect(database: &TestDatabase) -> PostgresStore {
    let options = PostgresOptions::new(database.url()).listen(false);
    PostgresStore::connect(options).await.expect("the database is there")
}

/// Begins a transaction that holds the first row of a table.
async fn hold(database: &TestDatabase, table: &str, order: &str) -> tokio_postgres::Client {
    let client = database.client().await;
    let sql = format!(
        "begin; select from windlass.{table} where ctid =
            (select t.ctid from windlass.{table} t order by {order} limit 1) for update"
    );
    client.batch_execute(&sql).await.expect("the test may do that");
    client
}

#[tokio::test]
async fn a_claim_passes_over_a_ready_task_that_another_transaction_holds() {
    let database = TestDatabase::new().await;
    let store = connect(&database).await;
    let one = workflow("one", &["a"]);
    start(&store, &one).await;
    let second = start(&store, &one).await;
    let worker = Worker::join(&store, &one).await;
    let holder = hold(&database, "ready", "t.tag, t.seq").await;
    let claimed = tokio::time::timeout(AT_ONCE, worker.claim(&store, 2)).await;
    let claimed = claimed.expect("it does not wait");
    let runs: Vec<_> = claimed.iter().map(|one| one.task.run).collect();
    assert_eq!(runs, [second]);
    holder.batch_execute("rollback").await.expect("it was open");
    // The next claims look behind it for a moment.
    let claimed_later = async { while worker.claim(&store, 2).await.is_empty() {} };
    tokio::time::timeout(AT_ONCE, claimed_later).await.expect("it is claimed later");
}

#[tokio::test]
async fn a_sweep_passes_over_a_timer_that_another_transaction_holds() {
    let database = TestDatabase::new().await;
    let store = connect(&database).await;
    let one = workflow("one", &["a"]);
    store.register(one.clone()).await.expect("it can be registered");
    for _ in 0..2 {
        let mut run = new_run(&one);
        run.delay = Duration::from_micros(1);
        store.start_runs(vec![run]).await.expect("the store is there");
    }
    let client = database.client().await;
    let timers = "select count(*) from windlass.timers";
    let count = async || client.query_one(timers, &[]).await.expect("it is read").get::<_, i64>(0);
    assert_eq!(count().await, 2, "both wait for their time, which has come");
    let holder = hold(&database, "timers", "t.due, t.seq").await;
    let sweep = tokio::time::timeout(AT_ONCE, store.promote_due(100)).await;
    assert_eq!(sweep.expect("it does not wait").expect("it works").moved, 1);
    assert_eq!(count().await, 1);
    holder.batch_execute("rollback").await.expect("it was open");
    assert_eq!(store.promote_due(100).await.expect("it works").moved, 1);
}

#[tokio::test]
async fn a_sweep_passes_over_a_staged_run_that_another_transaction_holds() {
    let database = TestDatabase::new().await;
    let store = connect(&database).await;
    store.register(workflow("one", &["a"])).await.expect("it can be registered");
    let client = database.client().await;
    for _ in 0..2 {
        client.query_one("select windlass.start_run('one')", &[]).await.expect("it starts");
    }
    let staged = "select count(*) from windlass.staged";
    let count = async || client.query_one(staged, &[]).await.expect("it is read").get::<_, i64>(0);
    assert_eq!(count().await, 2);
    let holder = hold(&database, "staged", "t.seq").await;
    let sweep = tokio::time::timeout(AT_ONCE, store.promote_due(100)).await;
    sweep.expect("it does not wait").expect("it works");
    assert_eq!(count().await, 1, "the other one is admitted");
    holder.batch_execute("rollback").await.expect("it was open");
    store.promote_due(100).await.expect("it works");
    assert_eq!(count().await, 0);
}
