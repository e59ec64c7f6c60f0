//! Reads for people: their time limit, and the connections that they leave to others.

use std::sync::Arc;
use std::time::Duration;

use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass::store::{LogFilter, RunFilter, Store, StoreError};

use super::driver::{start, workflow};
use crate::database::TestDatabase;

async fn connect(options: PostgresOptions) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::connect(options).await.expect("the database is there"))
}

#[tokio::test]
async fn a_list_that_takes_too_long_is_stopped_and_says_what_to_filter_by() {
    let database = TestDatabase::new().await;
    let options = PostgresOptions::new(database.url()).listen(false);
    let store = connect(options.read_timeout(Duration::from_millis(200))).await;
    let run = start(&*store, &workflow("one", &["a"])).await;
    // To prepare a statement takes a lock as well, and has another limit.
    store.list_runs(RunFilter::default()).await.expect("it is quick");
    store.why(run, None).await.expect("it is quick");
    let client = database.client().await;
    client.batch_execute("begin; lock table windlass.runs").await.expect("the test may do that");
    let list = store.list_runs(RunFilter::default()).await.map(drop);
    let why = store.why(run, None).await.map(drop);
    for (what, answer) in [("the list of runs", list), ("why", why)] {
        let Err(StoreError::Limited { why, retry_after }) = answer else {
            panic!("{what}: {answer:?}");
        };
        assert!(why.starts_with(&format!("{what} took longer than 200ms")), "{why}");
        assert!(why.contains("filter by tenant"), "{why}");
        assert_eq!(retry_after, Duration::from_millis(200));
    }
    client.batch_execute("rollback").await.expect("it was open");
    let page = store.list_runs(RunFilter::default()).await.expect("it is quick again");
    assert_eq!(page.runs.len(), 1);
}

#[tokio::test]
async fn a_flood_of_lists_leaves_connections_to_starts() {
    let database = TestDatabase::new().await;
    let options = PostgresOptions::new(database.url()).listen(false).max_connections(4);
    let store = connect(options.acquire_timeout(Duration::from_secs(3))).await;
    let one = workflow("one", &["a"]);
    start(&*store, &one).await;
    let client = database.client().await;
    let lock = "begin; lock table windlass.operator_log";
    client.batch_execute(lock).await.expect("the test may do that");
    let lists: Vec<_> = (0..20)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.list_log(LogFilter::default()).await })
        })
        .collect();
    let watch = database.client().await;
    let waiting = "select count(*) from pg_stat_activity where datname = current_database()
        and application_name = 'windlass' and wait_event_type = 'Lock'";
    let both_wait = async {
        while watch.query_one(waiting, &[]).await.expect("it is read").get::<_, i64>(0) < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), both_wait).await.expect("lists begin");
    for _ in 0..5 {
        start(&*store, &one).await;
    }
    let count: i64 = watch.query_one(waiting, &[]).await.expect("it is read").get(0);
    assert_eq!(count, 2, "half of the connections are used for lists");
    client.batch_execute("rollback").await.expect("it was open");
    for list in lists {
        let answer = list.await.expect("no panic");
        // Those that waited for their turn for longer than they may are told so.
        assert!(matches!(answer, Ok(_) | Err(StoreError::Limited { .. })), "{answer:?}");
    }
}
