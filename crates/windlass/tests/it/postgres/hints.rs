//! What one process changed is heard in another, and nothing depends on it.

use std::future::Future;
use std::time::Duration;

use tokio_postgres::Client;
use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass::store::{Hints, Store, WorkerLink};

use super::driver::{Worker, start, succeed, workflow};
use super::warnings::Warnings;
use crate::database::TestDatabase;

/// How long a test waits for something that must come.
const WAIT_MAX: Duration = Duration::from_secs(20);

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(WAIT_MAX, future).await;
    waited.unwrap_or_else(|_| panic!("not within {WAIT_MAX:?}: {what}"))
}

async fn connect(database: &TestDatabase) -> PostgresStore {
    let options = PostgresOptions::new(database.url());
    PostgresStore::connect(options).await.expect("the database is there")
}

/// The hints of a kind, from when the store listens.
async fn listening(store: &PostgresStore, hints: impl Fn(&PostgresStore) -> Hints) -> Hints {
    let mut hints = hints(store);
    in_time("a listener makes everyone look when it begins", hints.changed()).await;
    hints
}

/// How many sessions listen.
async fn listeners(client: &Client) -> i64 {
    let sql = "select count(*) from pg_stat_activity
               where datname = current_database() and query = 'listen windlass'";
    client.query_one(sql, &[]).await.expect("the activity can be read").get(0)
}

async fn until_listeners(client: &Client, count: i64) {
    in_time("the listeners are as many as they should be", async {
        while listeners(client).await != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_one_store_changes_is_heard_by_another() {
    let database = TestDatabase::new().await;
    let here = connect(&database).await;
    let there = connect(&database).await;
    let mut work = listening(&there, PostgresStore::work_hints).await;
    let mut runs = there.run_hints();
    let one = workflow("one", &["a"]);
    start(&here, &one).await;
    in_time("a run was started", work.changed()).await;
    let worker = Worker::join(&here, &one).await;
    let claimed = worker.claim(&here, 1).await.remove(0);
    runs.take();
    succeed(&here, &claimed).await;
    in_time("a run has ended", runs.changed()).await;
}

#[tokio::test]
async fn a_listener_that_lost_its_connection_listens_again_and_makes_everyone_look() {
    let database = TestDatabase::new().await;
    let store = connect(&database).await;
    let mut work = listening(&store, PostgresStore::work_hints).await;
    let client = database.client().await;
    let sql = "select pg_terminate_backend(pid) from pg_stat_activity
               where datname = current_database() and application_name = 'windlass'";
    // Also what tries whether it hears, which comes right after.
    until_listeners(&client, 1).await;
    client.query(sql, &[]).await.expect("the test may do that");
    in_time("it listens again", work.changed()).await;
    until_listeners(&client, 1).await;
}

#[tokio::test]
async fn a_store_that_does_not_listen_tells_others_all_the_same() {
    let database = TestDatabase::new().await;
    let there = connect(&database).await;
    let mut work = listening(&there, PostgresStore::work_hints).await;
    let options = PostgresOptions::new(database.url()).listen(false);
    let quiet = PostgresStore::connect(options).await.expect("the database is there");
    let mut own = quiet.work_hints();
    start(&quiet, &workflow("one", &["a"])).await;
    in_time("its own hints come without the database", own.changed()).await;
    in_time("others hear of it", work.changed()).await;
    assert_eq!(listeners(&database.client().await).await, 1);
}

#[tokio::test]
async fn a_store_that_is_dropped_leaves_no_session_behind() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let store = connect(&database).await;
    listening(&store, PostgresStore::work_hints).await;
    until_listeners(&client, 1).await;
    drop(store);
    let sql = "select count(*) from pg_stat_activity
               where datname = current_database() and application_name = 'windlass'";
    in_time("all sessions are gone", async {
        while client.query_one(sql, &[]).await.expect("it can be read").get::<_, i64>(0) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A listener that hears nothing, as through a pooler in transaction mode: here it
/// listens in another database.
#[tokio::test]
async fn a_listener_that_hears_nothing_is_reported_once() {
    let database = TestDatabase::new().await;
    let elsewhere = TestDatabase::bare().await;
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let options = PostgresOptions::new(database.url()).listen_url(elsewhere.url());
    let store = PostgresStore::connect(options).await.expect("the database is there");
    in_time("it is reported", async {
        while warnings.texts().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let texts = warnings.texts();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains("not listening for changes"), "{texts:?}");
    assert!(texts[0].contains("was not heard"), "{texts:?}");
    // Everything works, by polling.
    start(&store, &workflow("one", &["a"])).await;
}

#[tokio::test]
async fn an_address_to_listen_on_that_does_not_exist_keeps_nobody_from_working() {
    let database = TestDatabase::new().await;
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let nowhere = "postgres://nobody:secret@127.0.0.1:1/nothing";
    let options = PostgresOptions::new(database.url()).listen_url(nowhere);
    let store = PostgresStore::connect(options).await.expect("the database is there");
    start(&store, &workflow("one", &["a"])).await;
    in_time("it is reported", async {
        while warnings.texts().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let texts = warnings.texts();
    assert!(texts[0].contains("Connection refused"), "{texts:?}");
    assert!(!texts[0].contains("secret"), "{texts:?}");
}
