//! Claims of several workers in one transaction.

use std::sync::Arc;
use std::time::Duration;

use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass::store::{Claimed, StoreError, WorkerLink};

use super::driver::{Worker, start, workflow};
use crate::database::TestDatabase;

async fn store(database: &TestDatabase) -> Arc<PostgresStore> {
    let options = PostgresOptions::new(database.url()).listen(false);
    Arc::new(PostgresStore::connect(options).await.expect("the database is there"))
}

fn counts(told: Vec<Result<Vec<Claimed>, StoreError>>) -> Vec<usize> {
    told.into_iter().map(|told| told.expect("claiming works").len()).collect()
}

/// Which routes there are is read when a claim finds too little: what is found there is for those
/// who serve it, not for all who asked together while neither had anything to look at.
#[tokio::test]
async fn what_another_process_has_made_is_for_those_who_serve_it() {
    let database = TestDatabase::new().await;
    let (starter, there) = (store(&database).await, store(&database).await);
    let [x, y] = ["x", "y"].map(|name| workflow(name, &["a"]));
    let (for_x, for_y) = (Worker::join(&*there, &x).await, Worker::join(&*there, &y).await);
    for _ in 0..4 {
        start(&*starter, &x).await;
    }
    let told = there.claim_many(vec![for_x.request(9), for_y.request(9)]).await;
    assert_eq!(counts(told), [4, 0]);
    start(&*starter, &y).await;
    start(&*starter, &x).await;
    // Longer than the routes that were read are taken for all there are.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let told = there.claim_many(vec![for_x.request(9), for_y.request(9)]).await;
    assert_eq!(counts(told), [1, 1]);
}

/// A heartbeat, or a process that stands still, has locked one of those who ask together.
#[tokio::test]
async fn a_worker_that_someone_has_locked_is_not_waited_for_by_the_others() {
    let database = TestDatabase::new().await;
    let store = store(&database).await;
    let one = workflow("one", &["a"]);
    let [locked, free, other] = [
        Worker::join(&*store, &one).await,
        Worker::join(&*store, &one).await,
        Worker::join(&*store, &one).await,
    ];
    for _ in 0..6 {
        start(&*store, &one).await;
    }
    let client = database.client().await;
    let lock = format!("begin; select from windlass.workers where id = '{}' for update", locked.id);
    client.batch_execute(&lock).await.expect("it can be locked");
    let asking = [&locked, &free, &other].map(|worker| worker.request(2)).to_vec();
    let claiming = tokio::spawn(async move { counts(store.claim_many(asking).await) });
    let looker = database.client().await;
    let look = "select count(*) from windlass.leases";
    while looker.query_one(look, &[]).await.expect("it is answered").get::<_, i64>(0) < 4 {
        assert!(!claiming.is_finished(), "all waited for the one");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    client.batch_execute("commit").await.expect("it can be let go");
    assert_eq!(claiming.await.expect("it ends"), [2, 2, 2]);
}
