//! Pairs of verbs of which one deletes a run that is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use windlass::store::postgres::PostgresStore;
use windlass::store::{Completion, NewRun, RetentionRule, Started, Store, StoreError, WorkerLink};
use windlass_core::{Decision, Definition, Failure, FailureCode, IdempotencyKey, RunId, RunState};

use super::super::driver::{Worker, new_run, succeed, success, workflow};
use super::pairs::{claimed, pair};
use super::{Case, Explorer};

async fn keep(explorer: &Explorer, rule: RetentionRule) {
    explorer.plain.set_retention(rule).await.expect("the rule makes sense");
}

async fn pruned(store: Arc<PostgresStore>) -> String {
    let sweep = store.prune(100).await.expect("pruning works");
    format!("{} pruned", sweep.moved)
}

/// A start with a key that no other order of the pair has.
fn keyed(definition: &Arc<Definition>) -> NewRun {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let key = IdempotencyKey::new(format!("key {number}")).expect("it is a key");
    NewRun { key: Some(key), ..new_run(definition) }
}

async fn is_there(store: Arc<PostgresStore>, run: RunId) -> String {
    let record = store.get_run(run).await.expect("reading works");
    record.map_or("gone".to_owned(), |record| record.state.to_string())
}

pair! {
    /// A failed run goes while it is retried: it is gone, or it goes on, and nothing between.
    prune_and_retry_of_a_run,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        let decision = Decision::Fail(Failure::new(FailureCode::Error, "it does not work"));
        let failed = Completion { decision, ..success(&tasks[0]) };
        explorer.plain.finish(vec![failed]).await.expect("finishing works");
        let rule = RetentionRule::new(RunState::Failed, Duration::ZERO);
        keep(&explorer, RetentionRule { with_dead_letters: true, ..rule }).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let after = is_there(explorer.plain.clone(), run);
        Case::new(
            run,
            &one,
            async move { pruned(left).await },
            async move {
                match right.retry_run(run, 1).await {
                    Ok(round) => format!("round {round}"),
                    Err(StoreError::NotFound(_)) => "not found".to_owned(),
                    Err(error) => error.to_string(),
                }
            },
        )
        .with_aftermath(after)
    },
    ["0 pruned | round 2, then running", "1 pruned | not found, then gone"]
}

pair! {
    /// A run goes while it is started again with its key: the answer is that run, however the two
    /// meet, and there is no second one.
    prune_and_start_with_the_same_key,
    |explorer| {
        let one = workflow("one", &["a"]);
        let store = &*explorer.plain;
        store.register(Arc::clone(&one)).await.expect("it can be registered");
        let first = keyed(&one);
        let run = first.id;
        store.start_runs(vec![first.clone()]).await.expect("the store is there");
        let worker = Worker::join(store, &one).await;
        for task in worker.claim(store, 100).await {
            succeed(store, &task).await;
        }
        store.leave(worker.id).await.expect("leaving works");
        let rule = RetentionRule::new(RunState::Succeeded, Duration::ZERO);
        let keep_key_for = Duration::from_secs(3_600);
        keep(&explorer, RetentionRule { keep_key_for, ..rule }).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let again = NewRun { id: new_run(&one).id, ..first };
        let second = again.id;
        let after = is_there(explorer.plain.clone(), second);
        Case::new(
            second,
            &one,
            async move { pruned(left).await },
            async move {
                let mut answers = right.start_runs(vec![again]).await.expect("starting works");
                match answers.pop() {
                    Some(Ok(Started { run: found, is_new: false })) if found == run => {
                        "there already".to_owned()
                    }
                    other => format!("{other:?}"),
                }
            },
        )
        .with_aftermath(after)
    },
    ["1 pruned | there already, then gone"]
}
