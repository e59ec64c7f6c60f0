//! Pairs of verbs that meet at a dead letter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use windlass::store::postgres::PostgresStore;
use windlass::store::{
    Completion, DeadLetterFilter, Discard, Redrive, Redriven, Store, StoreError, WorkerLink,
};
use windlass_core::{ActionId, Decision, Failure, FailureCode, Operator, RunId};

use super::super::driver::{success, workflow};
use super::pairs::{claimed, pair, said};
use super::{Case, Explorer};

fn action() -> ActionId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ActionId::from_random(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)))
}

fn redrive(id: ActionId, run: RunId) -> Redrive {
    let by = Operator::new("anna@ops").expect("it is a name").into();
    let filter = DeadLetterFilter::of_run(run);
    Redrive { id, by, filter, after: None, limit: 0, pace: None }
}

fn discard(run: RunId) -> Discard {
    let Redrive { id, by, filter, after, limit, .. } = redrive(action(), run);
    Discard { id, by, filter, after, limit }
}

/// How many runs go on, and how many were refused.
fn told(answer: Result<Redriven, StoreError>) -> String {
    let answer = answer.expect("redriving works");
    format!("{} redriven, {} refused", answer.runs.len(), answer.refused.len())
}

async fn left_over(store: Arc<PostgresStore>, run: RunId) -> String {
    let page = store.list_dead_letters(DeadLetterFilter::of_run(run), None, 10).await;
    let record = store.get_run(run).await.expect("reading works").expect("it is there");
    let letters = page.expect("reading works").letters.len();
    format!("round {} {}, {letters} dead", record.round, record.state)
}

fn failure(claimed: &windlass::store::Claimed) -> Completion {
    let decision = Decision::Fail(Failure::new(FailureCode::Error, "it does not work"));
    Completion { decision, ..success(claimed) }
}

/// A run that has failed.
async fn dead(explorer: &Explorer) -> RunId {
    let one = workflow("one", &["a"]);
    let (run, _, tasks) = claimed(explorer, &one).await;
    explorer.plain.finish(vec![failure(&tasks[0])]).await.expect("finishing works");
    run
}

pair! {
    /// A run is redriven and retried at once: one round begins, and the letter is gone.
    redrive_and_retry_of_a_run,
    |explorer| {
        let run = dead(&explorer).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let after = left_over(explorer.plain.clone(), run);
        Case::new(
            run,
            &workflow("one", &["a"]),
            async move { told(left.redrive(redrive(action(), run)).await) },
            async move { said(right.retry_run(run, 1).await) },
        )
        .with_aftermath(after)
    },
    [
        "0 redriven, 0 refused | 2, then round 2 running, 0 dead",
        "1 redriven, 0 refused | 2, then round 2 running, 0 dead",
    ]
}

pair! {
    /// The same redrive is asked for twice at once: it is done once and answered twice.
    redrive_and_its_repetition,
    |explorer| {
        let (run, id) = (dead(&explorer).await, action());
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let after = left_over(explorer.plain.clone(), run);
        Case::new(
            run,
            &workflow("one", &["a"]),
            async move { told(left.redrive(redrive(id, run)).await) },
            async move { told(right.redrive(redrive(id, run)).await) },
        )
        .with_aftermath(after)
    },
    ["1 redriven, 0 refused | 1 redriven, 0 refused, then round 2 running, 0 dead"]
}

pair! {
    /// A dead letter is redriven and discarded at once: the run goes on, or the letter is gone
    /// before anybody can redrive it.
    redrive_and_discard,
    |explorer| {
        let run = dead(&explorer).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let after = left_over(explorer.plain.clone(), run);
        Case::new(
            run,
            &workflow("one", &["a"]),
            async move { told(left.redrive(redrive(action(), run)).await) },
            async move {
                let answer = right.discard(discard(run)).await.expect("discarding works");
                format!("{} discarded, {} refused", answer.letters, answer.refused.len())
            },
        )
        .with_aftermath(after)
    },
    [
        "0 redriven, 0 refused | 1 discarded, 0 refused, then round 1 failed, 0 dead",
        "1 redriven, 0 refused | 0 discarded, 0 refused, then round 2 running, 0 dead",
    ]
}

pair! {
    /// The last task fails while its run is cancelled: there is a dead letter if it failed first
    /// and the cancel came too late, and none otherwise.
    failure_and_cancel,
    |explorer| {
        let two = workflow("two", &["a", "b"]);
        let (run, _, tasks) = claimed(&explorer, &two).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let fails = failure(&tasks[0]);
        let after = left_over(explorer.plain.clone(), run);
        Case::new(
            run,
            &two,
            async move { said(left.finish(vec![fails]).await) },
            async move { said(right.cancel_run(run, None).await) },
        )
        .with_aftermath(after)
    },
    [
        "[Accepted] | (), then round 1 cancelled, 0 dead",
        "[Refused(RunCancelled)] | (), then round 1 cancelled, 0 dead",
    ]
}
