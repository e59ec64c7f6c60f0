//! Starts inside the transactions of users: from SQL, and through the drivers.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Client;
use uuid::Uuid;
use windlass::store::Store;
use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass_core::RunId;

use super::driver::workflow;
use crate::database::TestDatabase;

mod admission;
mod drivers;
mod keys;
mod ledger;
mod limits;
mod once;
mod sql;
mod steps;
mod undo;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// A database in which the workflow `order` is registered, and a session of a user's.
struct Shop {
    user: Client,
    store: Arc<PostgresStore>,
    /// Dropped last: the database goes with it.
    database: TestDatabase,
}

impl Shop {
    async fn open() -> Self {
        let database = TestDatabase::new().await;
        let options = PostgresOptions::new(database.url());
        let store = PostgresStore::connect(options).await.expect("the database is there");
        let order = workflow("order", &["charge", "reserve", "ship < charge reserve"]);
        store.register(order).await.expect("it can be registered");
        let user = database.client().await;
        Shop { user, store: Arc::new(store), database }
    }

    /// Runs statements of the user's.
    async fn run(&self, sql: &str) {
        self.user.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// The SQLSTATE and the message of a statement that must fail.
    async fn refusal(&self, sql: &str) -> (String, String) {
        refusal(&self.user, sql).await
    }

    /// Starts a run by a call of `windlass.start_run`.
    async fn start(&self, arguments: &str) -> RunId {
        start(&self.user, arguments).await
    }

    async fn count(&self, from: &str) -> i64 {
        let sql = format!("select count(*) from {from}");
        self.user.query_one(&sql, &[]).await.expect("counting works").get(0)
    }

    /// How many rows of runs there are in the tables that starts write to.
    async fn rows(&self) -> [i64; 3] {
        [
            self.count("windlass.runs").await,
            self.count("windlass.history").await,
            self.count("windlass.staged").await,
        ]
    }
}

async fn start(session: &Client, arguments: &str) -> RunId {
    let sql = format!("select windlass.start_run({arguments})");
    let row = session.query_one(&sql, &[]).await;
    row.map(|row| RunId::from_uuid(row.get::<_, Uuid>(0)))
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
}

async fn refusal(session: &Client, sql: &str) -> (String, String) {
    let error = session.simple_query(sql).await.expect_err("it must be refused");
    let error = error.as_db_error().expect("the database refused it");
    (error.code().code().to_owned(), error.message().to_owned())
}

/// Waits until a session waits for a lock.
async fn wait_until_blocked(observer: &Client, session: i32) {
    let sql = format!("select from pg_locks where pid = {session} and not granted");
    wait_until_there_is(observer, &sql).await;
}

/// Waits until any session in the database waits for a lock.
async fn wait_until_someone_is_blocked(observer: &Client) {
    let sql = "select from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'";
    wait_until_there_is(observer, sql).await;
}

async fn wait_until_there_is(observer: &Client, sql: &str) {
    let rows = async {
        while observer.query(sql, &[]).await.expect("looking works").is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, rows).await.expect("a session comes to wait for a lock");
}

async fn pid_of(session: &Client) -> i32 {
    session.query_one("select pg_backend_pid()", &[]).await.expect("a session has one").get(0)
}
