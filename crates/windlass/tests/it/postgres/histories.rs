//! Histories are read without gaps, whatever commits late.

use std::sync::Arc;

use tokio_postgres::IsolationLevel;
use windlass::store::postgres::{PostgresOptions, PostgresStore, Stepper};
use windlass::store::{Store, WorkerLink};

use super::driver::{Worker, start, succeed, workflow};
use super::postgres;
use crate::database::TestDatabase;

/// A claim writes its event without the lock of the run: one that commits late has a number
/// below those that a reader has seen by then.
#[tokio::test]
async fn an_event_that_is_committed_late_is_not_skipped_by_a_reader() {
    for (end, words) in [
        ("commit", "run_started queued queued started started succeeded"),
        ("rollback", "run_started queued queued started succeeded"),
    ] {
        let subject = postgres().await;
        let store = subject.store.clone();
        let two = workflow("two", &["a", "b"]);
        let run = start(&*store, &two).await;
        let worker = Worker::join(&*store, &two).await;
        let first = worker.claim(&*store, 1).await.remove(0);
        // The claim of the other task is under way: its event has its number.
        let claim = subject.database.client().await;
        let open = "begin; delete from windlass.ready;
            insert into windlass.events
                (run_id, at, kind, idx, from_state, to_state, fence, attempt, detail)
            select run_id, now(), 'started', 1, 'ready', 'running', 1, 1, detail
            from windlass.events where kind = 'started'";
        claim.batch_execute(open).await.expect("the claim is under way");
        succeed(&*store, &first).await;
        let reader = store.clone();
        let read = tokio::spawn(async move { reader.list_events(run, None, 100).await });
        // It must still wait when others have been served meanwhile.
        for _ in 0..20 {
            store.get_run(run).await.expect("reading works");
        }
        assert!(!read.is_finished(), "the page would end behind the missing event");
        claim.batch_execute(end).await.expect("the claim comes to its end");
        let page = read.await.expect("no panic").expect("reading works");
        let read: Vec<_> = page.iter().map(|event| event.word()).collect();
        assert_eq!(read.join(" "), words, "{end}");
    }
}

/// A finish holds the run and has its numbers; a claim of another task needs no lock of the
/// run, takes numbers behind them, and commits first.
#[tokio::test]
async fn the_events_of_a_finish_that_a_claim_overtakes_are_not_skipped_by_a_reader() {
    for (end, words) in [
        ("commit", "run_started queued queued started succeeded started"),
        ("rollback", "run_started queued queued started started"),
    ] {
        let subject = postgres().await;
        let store = subject.store.clone();
        let two = workflow("two", &["a", "b"]);
        let run = start(&*store, &two).await;
        let worker = Worker::join(&*store, &two).await;
        worker.claim(&*store, 1).await;
        let finish = subject.database.client().await;
        let open = "begin; select from windlass.runs for no key update;
            insert into windlass.events
                (run_id, at, kind, idx, from_state, to_state, fence, attempt)
            select run_id, now(), 'succeeded', 0, 'running', 'succeeded', 1, 1
            from windlass.events where kind = 'started'";
        finish.batch_execute(open).await.expect("the finish is under way");
        worker.claim(&*store, 1).await;
        let reader = store.clone();
        let read = tokio::spawn(async move { reader.list_events(run, None, 100).await });
        // It must still wait when others have been served meanwhile.
        for _ in 0..20 {
            store.get_run(run).await.expect("reading works");
        }
        assert!(!read.is_finished(), "the page would end behind the missing event");
        finish.batch_execute(end).await.expect("the finish comes to its end");
        let page = read.await.expect("no panic").expect("reading works");
        let read: Vec<_> = page.iter().map(|event| event.word()).collect();
        assert_eq!(read.join(" "), words, "{end}");
    }
}

/// Nothing is missed without it, and it is not known to the reader's view of the database.
#[tokio::test]
async fn a_claim_that_began_after_a_reader_is_no_obstacle_to_it() {
    let sql = include_str!("../../../src/store/postgres/sql/list_events.sql");
    let subject = postgres().await;
    let store = subject.store.clone();
    let run = start(&*store, &workflow("one", &["a"])).await;
    let mut reader = subject.database.client().await;
    let begin = reader.build_transaction();
    let reader = begin.isolation_level(IsolationLevel::RepeatableRead).start().await.unwrap();
    reader.query("select 1", &[]).await.unwrap();
    let claim = subject.database.client().await;
    claim.batch_execute("begin; delete from windlass.ready").await.unwrap();
    let rows = reader.query(sql, &[run.as_uuid(), &0_i64, &100_i64]).await.unwrap();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| !row.get::<_, bool>("is_claim_under_way")));
}

/// The clock is that of the server, and goes on while a claim is on its way.
#[tokio::test]
async fn a_task_starts_after_it_was_queued_even_if_its_claim_began_before() {
    let database = TestDatabase::new().await;
    let stepper = Stepper::new();
    stepper.set_free("claim", true);
    let options = PostgresOptions::new(database.url());
    let stepped = options.clone().steps(stepper.session("claim"));
    let claimer = Arc::new(PostgresStore::connect(stepped).await.expect("it is there"));
    let store = PostgresStore::connect(options).await.expect("it is there");
    let one = workflow("one", &["a"]);
    let first = start(&store, &one).await;
    let worker = Worker::join(&*claimer, &one).await;
    succeed(&store, &worker.claim(&*claimer, 1).await[0]).await;
    stepper.set_free("claim", false);
    let request = worker.request(1);
    let claim = tokio::spawn(async move { claimer.claim(request).await });
    while stepper.asked("claim").await != "claim" {
        stepper.allow("claim");
    }
    let run = start(&store, &one).await;
    assert_ne!(run, first);
    stepper.set_free("claim", true);
    let claimed = claim.await.expect("no panic").expect("claiming works");
    assert_eq!(claimed[0].task.run, run, "what came meanwhile is taken");
    let events = store.list_events(run, None, 10).await.expect("reading works");
    let words: Vec<_> = events.iter().map(|event| event.word()).collect();
    assert_eq!(words, ["run_started", "queued", "started"]);
    assert!(events.is_sorted_by_key(|event| event.at), "{events:?}");
}
