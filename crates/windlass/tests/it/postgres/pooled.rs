//! Behind a pooler that keeps no session.

use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass::ErrorKind;
use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass::store::{Store, StoreError, WorkerLink};
use windlass_core::RunState;

use super::driver::{Worker, new_run, start, success, workflow};
use super::pooler::Pooler;
use crate::database::TestDatabase;

async fn connect(pooler: &Pooler) -> PostgresStore {
    let options = PostgresOptions::new(pooler.url()).pooled(true);
    PostgresStore::connect(options).await.expect("the pooler is there")
}

#[tokio::test]
async fn every_verb_works_without_a_session() {
    let database = TestDatabase::new().await;
    let pooler = Pooler::start(&database.url()).await;
    let store = Arc::new(connect(&pooler).await);
    let two = workflow("two", &["a", "b < a"]);
    start(&*store, &two).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (store, two) = (Arc::clone(&store), Arc::clone(&two));
        tasks.spawn(async move {
            let runs: Vec<_> = (0..25).map(|_| new_run(&two)).collect();
            let answers = store.start_runs(runs).await.expect("starting works");
            let worker = Worker::join(&*store, &two).await;
            loop {
                let claimed = worker.claim(&*store, 10).await;
                if claimed.is_empty() {
                    break;
                }
                let done: Vec<_> = claimed.iter().map(success).collect();
                store.finish(done).await.expect("finishing works");
            }
            store.leave(worker.id).await.expect("leaving works");
            answers.len()
        });
    }
    assert_eq!(tasks.join_all().await.iter().sum::<usize>(), 100);
    let page = store.list_runs(Default::default()).await.expect("listing works");
    assert_eq!(page.runs.len(), 101);
    // The last to claim may have missed what another was about to make ready.
    let worker = Worker::join(&*store, &two).await;
    loop {
        let claimed = worker.claim(&*store, 100).await;
        if claimed.is_empty() {
            break;
        }
        store.finish(claimed.iter().map(success).collect()).await.expect("finishing works");
    }
    let page = store.list_runs(Default::default()).await.expect("listing works");
    assert!(page.runs.iter().all(|run| run.state == RunState::Succeeded));

    // What was set or prepared would be found by the next user of the connection.
    let (probe, connection) =
        tokio_postgres::connect(&pooler.url(), tokio_postgres::NoTls).await.expect("it is there");
    tokio::spawn(connection);
    for _ in 0..3 {
        let sql = "select (select count(*) from pg_prepared_statements) as prepared,
                   current_setting('statement_timeout') as timeout";
        let rows = probe.simple_query(sql).await.expect("the pooler is there");
        let row = rows.iter().find_map(|row| match row {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some([row.get(0), row.get(1)]),
            tokio_postgres::SimpleQueryMessage::CommandComplete(_) | _ => None,
        });
        assert_eq!(row, Some([Some("0"), Some("0")]));
    }
}

#[tokio::test]
async fn timeouts_come_with_every_transaction() {
    let database = TestDatabase::new().await;
    let pooler = Pooler::start(&database.url()).await;
    let options = PostgresOptions::new(pooler.url()).pooled(true);
    let options = options.lock_timeout(Duration::from_millis(50));
    let store = PostgresStore::connect(options).await.expect("the pooler is there");
    let run = start(&store, &workflow("one", &["a"])).await;
    let mut client = database.client().await;
    let tx = client.transaction().await.expect("a transaction");
    tx.batch_execute("lock table windlass.runs").await.expect("the test may do that");
    let error = store.cancel_run(run, None).await.expect_err("the runs are locked");
    let StoreError::Unavailable(text) = &error else { panic!("{error}") };
    assert!(text.contains("(55P03)"), "{text}");
    tx.rollback().await.expect("it can be given up");
    store.cancel_run(run, None).await.expect("the runs are free");
}

#[tokio::test]
async fn a_pooler_that_was_not_announced_is_recognised() {
    let database = TestDatabase::new().await;
    let pooler = Pooler::start(&database.url()).await;
    for ignores_options in [false, true] {
        if ignores_options {
            pooler.ignore_options();
        }
        let options = PostgresOptions::new(pooler.url());
        let error = PostgresStore::connect(options).await.expect_err("it is a pooler");
        assert_eq!(error.kind(), ErrorKind::Database);
        assert!(error.to_string().contains("`PostgresOptions::pooled`"), "{error}");
    }
}

#[tokio::test]
async fn a_database_that_does_not_answer_any_more_is_given_up() {
    let database = TestDatabase::new().await;
    let pooler = Pooler::start(&database.url()).await;
    let options = PostgresOptions::new(pooler.url())
        .pooled(true)
        .statement_timeout(Duration::from_millis(100))
        .connect_timeout(Duration::from_millis(100));
    let store = PostgresStore::connect(options).await.expect("the pooler is there");
    pooler.freeze(true);
    let began = Instant::now();
    let error = store.now().await.expect_err("nothing is passed on");
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("no connection was opened within 200ms"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    pooler.freeze(false);
    store.now().await.expect("the next one has a connection that works");
}
