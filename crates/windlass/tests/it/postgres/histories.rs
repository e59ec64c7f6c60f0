//! Histories are read without gaps, whatever commits late.

use std::sync::Arc;

use tokio_postgres::Client;
use windlass::store::postgres::{PostgresOptions, PostgresStore, Stepper};
use windlass::store::{Store, WorkerLink};
use windlass_core::{Event, RunId};

use super::driver::{Worker, start, succeed, workflow};
use super::postgres;
use crate::database::TestDatabase;

/// Reads a history while a transaction with an event of it is under way, which ends only
/// once the reader waits for it.
async fn read_while_open(
    store: &Arc<PostgresStore>,
    run: RunId,
    open: &Client,
    end: &str,
) -> Vec<Event> {
    let reader = Arc::clone(store);
    let read = tokio::spawn(async move { reader.list_events(run, None, 100).await });
    // It must still wait when others have been served meanwhile.
    for _ in 0..20 {
        store.get_run(run).await.expect("reading works");
    }
    assert!(!read.is_finished(), "the page would end behind the missing event");
    open.batch_execute(end).await.expect("the transaction comes to its end");
    read.await.expect("no panic").expect("reading works")
}

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
            insert into windlass.history (run_id, at, lines)
            select run_id, now(), E'1 started ready running 1 1\\t' || detail
            from windlass.events where kind = 'started'";
        claim.batch_execute(open).await.expect("the claim is under way");
        succeed(&*store, &first).await;
        let page = read_while_open(&store, run, &claim, end).await;
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
            insert into windlass.history (run_id, at, lines)
            select run_id, now(), '0 succeeded running succeeded 1 1'
            from windlass.events where kind = 'started'";
        finish.batch_execute(open).await.expect("the finish is under way");
        worker.claim(&*store, 1).await;
        let page = read_while_open(&store, run, &finish, end).await;
        let read: Vec<_> = page.iter().map(|event| event.word()).collect();
        assert_eq!(read.join(" "), words, "{end}");
    }
}

/// The claim's transaction is newer than any that has ended when the reader looks.
#[tokio::test]
async fn a_claim_that_is_newer_than_every_commit_is_waited_for() {
    let subject = postgres().await;
    let store = subject.store.clone();
    let two = workflow("two", &["a", "b"]);
    let run = start(&*store, &two).await;
    let worker = Worker::join(&*store, &two).await;
    worker.claim(&*store, 1).await;
    let [finish, claim] = [subject.database.client().await, subject.database.client().await];
    let number = "select pg_current_xact_id()";
    let started = |idx: i32| {
        format!(
            "insert into windlass.history (run_id, at, lines)
            select run_id, now(), E'{idx} started ready running 1 1\\t' || detail
            from windlass.events where kind = 'started' limit 1"
        )
    };
    finish.batch_execute(&format!("begin; {number}")).await.expect("it begins");
    let open = format!("begin; {number}; delete from windlass.ready; {}", started(1));
    claim.batch_execute(&open).await.expect("the claim is under way");
    finish.batch_execute(&format!("{}; commit", started(0))).await.expect("it commits");
    let page = read_while_open(&store, run, &claim, "commit").await;
    assert_eq!(page.len(), 6, "{page:?}");
}

/// There is always a claim under way in a wide run; the reader waits for those it saw.
#[tokio::test]
async fn a_reader_does_not_wait_for_claims_that_begin_after_it() {
    let subject = postgres().await;
    let store = subject.store.clone();
    let two = workflow("two", &["a", "b"]);
    let run = start(&*store, &two).await;
    let [first, second] = [subject.database.client().await, subject.database.client().await];
    first.batch_execute("begin; delete from windlass.ready where idx = 0").await.expect("ok");
    let reader = store.clone();
    let read = tokio::spawn(async move { reader.list_events(run, None, 100).await });
    let is_seen = "select exists (select from pg_stat_activity
        where datname = current_database() and query like '%in progress%' and query not like '%pid%')";
    let watch = subject.database.client().await;
    while !watch.query_one(is_seen, &[]).await.expect("it answers").get::<_, bool>(0) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    second.batch_execute("begin; delete from windlass.ready where idx = 1").await.expect("ok");
    first.batch_execute("commit").await.expect("ok");
    let page = read.await.expect("no panic").expect("reading works");
    assert_eq!(page.len(), 3, "{page:?}");
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
