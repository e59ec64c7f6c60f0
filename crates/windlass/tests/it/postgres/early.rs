//! What is sent before it is known whether it holds: with the beginning of a transaction, or
//! before the run is seen.

use windlass::store::{Answer, Completion, Refusal, Store, WorkerLink};
use windlass_core::{Decision, Failure, FailureCode, RunState};

use super::driver::{Worker, start, succeed, success, workflow};
use super::plans::prepare_all;
use super::{found_by_audit, postgres};

/// A beginning can be lost while what was sent behind it is done: when the server was told to
/// stop something else, or by a pooler.
#[tokio::test]
async fn what_is_sent_with_the_beginning_of_a_transaction_does_nothing_without_one() {
    let subject = postgres().await;
    let store = subject.store.clone();
    let one = workflow("one", &["a"]);
    let leased = start(&*store, &one).await;
    let worker = Worker::join(&*store, &one).await;
    assert_eq!(worker.claim(&*store, 1).await.len(), 1);
    start(&*store, &one).await;
    let client = subject.database.client().await;
    prepare_all(&client).await;
    let route: i32 = client.query_one("select id from windlass.routes", &[]).await.unwrap().get(0);
    let front = i64::MIN;
    let calls = [
        format!(
            "claim('{{{route}}}', '{{{front}}}', '{{10}}', '{{{}}}', '{{9}}', null)",
            worker.id
        ),
        format!("take_leases('{{{leased}}}', '{{0}}', '{{1}}')"),
        format!("count_ends('{{{leased}}}', null)"),
    ];
    let seen = "select (select count(*) from windlass.ready) || ' ' ||
        (select count(*) from windlass.leases) || ' ' ||
        (select count(*) from windlass.runs where state = 'running')";
    let look = async || client.query_one(seen, &[]).await.unwrap().get::<_, String>(0);
    for (call, done) in calls.iter().zip(["0 2 2", "1 0 2", "1 1 1"]) {
        client.batch_execute(&format!("execute {call}")).await.expect("it is answered");
        assert_eq!(look().await, "1 1 2", "{call}");
        let inside = format!("begin deferrable; execute {call}");
        client.batch_execute(&inside).await.expect("it is answered");
        assert_eq!(look().await, done, "{call}");
        client.batch_execute("rollback").await.expect("it is answered");
    }
}

/// A task of the second round may be claimed for the first time and have a row nevertheless.
#[tokio::test]
async fn a_first_claim_in_a_later_round_is_finished_with_what_its_row_says() {
    let subject = postgres().await;
    let store = subject.store.clone();
    let chain = workflow("chain", &["first", "last < first"]);
    let run = start(&*store, &chain).await;
    let worker = Worker::join(&*store, &chain).await;
    let first = worker.claim(&*store, 1).await.remove(0);
    let failure = Failure::new(FailureCode::Error, "it broke");
    let failed = Completion { decision: Decision::Fail(failure), ..success(&first) };
    store.finish(vec![failed]).await.expect("the store is there");
    store.retry_run(run, 1).await.expect("it failed");
    for _ in 0..2 {
        let next = worker.claim(&*store, 1).await.remove(0);
        succeed(&*store, &next).await;
    }
    let record = store.get_run(run).await.expect("reading works").expect("it is there");
    assert_eq!((record.state, record.open_tasks), (RunState::Succeeded, 0));
    assert_eq!(found_by_audit(&subject.database, record.created_at).await, Vec::<String>::new());
}

/// Runs are written as if all tasks of a batch were still the worker's. One that is not must not
/// be counted, nor keep the others from it.
#[tokio::test]
async fn a_success_that_is_refused_changes_no_run_and_hinders_no_other() {
    let subject = postgres().await;
    let store = subject.store.clone();
    let wide = workflow("wide", &["a", "b"]);
    let runs =
        [start(&*store, &wide).await, start(&*store, &wide).await, start(&*store, &wide).await];
    let worker = Worker::join(&*store, &wide).await;
    let mut claimed = worker.claim(&*store, 6).await;
    claimed.sort_by_key(|one| one.task);
    let [cancelled, broken, sound] = runs;
    store.cancel_run(cancelled, None).await.expect("the store is there");
    let failure = Failure::new(FailureCode::Error, "it broke");
    let failed = Completion { decision: Decision::Fail(failure), ..success(&claimed[2]) };
    store.finish(vec![failed]).await.expect("the store is there");
    let ends = [0, 3, 4].map(|number| success(&claimed[number]));
    let answers = store.finish(ends.to_vec()).await.expect("the store is there");
    let refused = Answer::Refused(Refusal::RunCancelled);
    assert_eq!(answers, [refused, Answer::Accepted, Answer::Accepted]);
    let state = async |run| {
        let record = store.get_run(run).await.expect("reading works").expect("it is there");
        (record.state, record.open_tasks)
    };
    assert_eq!(state(cancelled).await, (RunState::Cancelled, 0));
    assert_eq!(state(broken).await, (RunState::Failed, 0));
    assert_eq!(state(sound).await, (RunState::Running, 1));
    let again = store.finish(ends[2..].to_vec()).await.expect("the store is there");
    assert_eq!(again, [Answer::AcceptedAlready]);
    assert_eq!(state(sound).await, (RunState::Running, 1), "it is counted once");
    succeed(&*store, &claimed[5]).await;
    assert_eq!(state(sound).await, (RunState::Succeeded, 0));
    let now = windlass::clock::Clock::now(&*subject.clock);
    assert_eq!(found_by_audit(&subject.database, now).await, Vec::<String>::new());
}
