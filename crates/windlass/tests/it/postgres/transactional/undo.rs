//! Runs that end while a transaction of a user's records a step of theirs.

use std::sync::Arc;
use std::time::Duration;

use windlass::store::Store;
use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass::{RunId, RunState};

use crate::database::TestDatabase;
use crate::postgres::driver::{Worker, start, workflow};

async fn store(database: &TestDatabase) -> PostgresStore {
    let options = PostgresOptions::new(database.url()).max_connections(2);
    PostgresStore::connect(options).await.expect("it is migrated")
}

/// Records a step that can be undone, in a transaction that goes on.
fn record(run: RunId) -> String {
    format!("begin; select windlass.record_step('{run}', 0, 1, 1, 1, 'undoable', 'reserve', '7')")
}

#[tokio::test]
async fn a_cancel_beside_the_record_of_a_step_undoes_it() {
    let database = TestDatabase::new().await;
    let store = store(&database).await;
    let order = workflow("order", &["charge"]);
    let run = start(&store, &order).await;
    Worker::join(&store, &order).await.claim(&store, 1).await;
    let [user, observer] = [database.client().await, database.client().await];
    user.batch_execute(&record(run)).await.expect("it is held");
    let committed = async {
        // The cancel waits for the lease, whoever asks for it first.
        let waits = "select exists (select from pg_locks where not granted)";
        while !observer.query_one(waits, &[]).await.expect("it is told").get::<_, bool>(0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        user.batch_execute("commit").await.expect("it is committed");
    };
    let (cancelled, ()) = tokio::join!(store.cancel_run(run, None), committed);
    cancelled.expect("it ran");
    let by = store.get_run(RunId::of_undo(run, 1)).await.expect("reading works");
    assert_eq!(by.expect("it is undone").state, RunState::Running);
}

#[tokio::test]
async fn a_sweep_does_not_wait_for_a_transaction_to_cancel_a_run_that_took_too_long() {
    let database = TestDatabase::new().await;
    let store = store(&database).await;
    let mut draft = workflow("order", &["charge"]).to_draft();
    draft.timeout = Some(Duration::from_millis(1));
    let order = Arc::new(draft.build().expect("it can be run"));
    let run = start(&store, &order).await;
    Worker::join(&store, &order).await.claim(&store, 1).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let user = database.client().await;
    user.batch_execute(&record(run)).await.expect("it is held");
    let state = async || {
        let sweep = store.promote_due(100).await.expect("it does not wait");
        let run = store.get_run(run).await.expect("reading works").expect("it is there");
        (run.state, sweep.next_at.is_some())
    };
    assert_eq!(state().await, (RunState::Running, true), "it comes again");
    user.batch_execute("commit").await.expect("it is committed");
    assert_eq!(state().await.0, RunState::Cancelled);
}
