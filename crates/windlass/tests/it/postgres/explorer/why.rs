//! Whoever asks why a run does not go on sees one moment, whatever happens meanwhile.

use std::sync::Arc;

use windlass::store::postgres::PostgresStore;
use windlass::store::{Store, WorkerLink};
use windlass_core::RunId;

use super::super::driver::{Worker, start, success, workflow};
use super::pairs::{claimed, pair, said};
use super::{Case, Explorer};

/// The state of a run, and the first reason of each task that is told of.
async fn why(store: Arc<PostgresStore>, run: RunId) -> String {
    let why = match store.why(run, None).await {
        Ok(Some(why)) => why,
        other => return format!("{other:?}"),
    };
    let first = why.reasons.iter().map(|reason| reason.word().to_owned());
    let tasks = why.tasks.iter().map(|task| format!("{} {}", task.name, task.reasons[0].word()));
    let words: Vec<String> = first.chain(tasks).collect();
    format!("{}, {} open: {}", why.state, why.open_tasks, words.join(", "))
}

pair! {
    /// A task is claimed: it is ready or running, and never nowhere.
    why_and_claim,
    |explorer| {
        let one = workflow("one", &["a", "b < a"]);
        let run = start(&*explorer.plain, &one).await;
        let worker = Worker::join(&*explorer.plain, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let case = Case::new(
            run,
            &one,
            async move { why(left, run).await },
            async move { worker.claim(&*right, 1).await.len().to_string() },
        );
        case.with_claims()
    },
    ["running, 2 open: a ready | 1", "running, 2 open: a running | 1"]
}

pair! {
    /// A task ends and lets the next go on: one of the two is told of.
    why_and_finish,
    |explorer| {
        let one = workflow("one", &["a", "b < a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let a = success(&tasks[0]);
        Case::new(
            run,
            &one,
            async move { why(left, run).await },
            async move { said(right.finish(vec![a]).await) },
        )
    },
    ["running, 1 open: b ready | [Accepted]", "running, 2 open: a running | [Accepted]"]
}

pair! {
    /// The last task ends: the run has ended, or the task has not.
    why_and_the_last_finish,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let a = success(&tasks[0]);
        Case::new(
            run,
            &one,
            async move { why(left, run).await },
            async move { said(right.finish(vec![a]).await) },
        )
    },
    ["running, 1 open: a running | [Accepted]", "succeeded, 0 open:  | [Accepted]"]
}
