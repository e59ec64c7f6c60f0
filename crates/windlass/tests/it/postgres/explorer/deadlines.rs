//! What has missed its deadline, beside another verb.

use std::sync::Arc;
use std::time::Duration;

use windlass::clock::Clock;
use windlass::store::postgres::PostgresStore;
use windlass::store::{Completion, Store, WorkerLink};
use windlass_core::{Decision, Definition, Failure, FailureCode, RunId, Timestamp};

use super::super::driver::{Worker, start, success, workflow};
use super::pairs::{claimed, pair, said};
use super::{Case, Explorer};

/// How long a run may take.
const RUN: Duration = Duration::from_secs(10);

/// How long a task may wait for a worker.
const CLAIM: Duration = Duration::from_secs(5);

/// A workflow of one task with deadlines.
fn limited(run: Option<Duration>, claim: Option<Duration>) -> Arc<Definition> {
    let mut draft = workflow("limited", &["a"]).to_draft();
    draft.timeout = run;
    for task in &mut draft.tasks {
        task.claim_timeout = claim;
    }
    Arc::new(draft.build().expect("the workflow is right"))
}

/// The state of a run.
async fn state_of(store: Arc<PostgresStore>, run: RunId) -> String {
    let run = store.get_run(run).await.expect("reading works").expect("it is there");
    run.state.to_string()
}

pair! {
    /// A task is claimed while its time to be claimed is over: it runs, or has failed.
    claim_and_deadline,
    |explorer| {
        let limited = limited(None, Some(CLAIM));
        let store = &*explorer.plain;
        let run = start(store, &limited).await;
        let worker = Worker::join(store, &limited).await;
        explorer.clock.advance(CLAIM);
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let plain = explorer.plain.clone();
        let request = worker.request(1);
        Case::new(
            run,
            &limited,
            async move { said(left.claim(request).await.map(|tasks| tasks.len())) },
            async move { said(right.promote_due(100).await.map(|sweep| sweep.moved)) },
        )
        .with_claims()
        .with_aftermath(state_of(plain, run))
    },
    ["0 | 1, then failed", "1 | 0, then running"]
}

pair! {
    /// The last task of a run ends while the run has taken too long: it has succeeded, or was
    /// cancelled.
    finish_and_deadline,
    |explorer| {
        let limited = limited(Some(RUN), None);
        let (run, _, tasks) = claimed(&explorer, &limited).await;
        explorer.clock.advance(RUN);
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let plain = explorer.plain.clone();
        let end = success(&tasks[0]);
        Case::new(
            run,
            &limited,
            async move { said(left.finish(vec![end]).await) },
            async move { said(right.promote_due(100).await.map(|sweep| sweep.moved)) },
        )
        .with_aftermath(async move {
            // Whoever finds the run locked comes again.
            plain.promote_due(100).await.expect("promoting works");
            state_of(plain, run).await
        })
    },
    ["[Accepted] | 0, then succeeded", "[Refused(RunCancelled)] | 1, then cancelled"]
}

/// The state of a run, and whether it is still to be seen to at this time.
async fn left_until(store: Arc<PostgresStore>, run: RunId, due: Timestamp) -> String {
    let sweep = store.promote_due(100).await.expect("promoting works");
    let state = state_of(store, run).await;
    match sweep.next_at == Some(due) {
        true => format!("{state} until its time is over"),
        false => format!("{state} until {:?}", sweep.next_at),
    }
}

/// What takes too long for every day; `cargo xtask test` runs it by name.
mod long {
    use super::*;

    pair! {
        /// A run is retried while what it had until its failure has passed: it has its time again.
        #[ignore = "long"]
        retry_and_deadline,
        |explorer| {
            let limited = limited(Some(RUN), None);
            let (run, _, tasks) = claimed(&explorer, &limited).await;
            let failed = Decision::Fail(Failure::new(FailureCode::Error, "it does not work"));
            let end = Completion { decision: failed, ..success(&tasks[0]) };
            explorer.plain.finish(vec![end]).await.expect("finishing works");
            explorer.clock.advance(RUN);
            let (left, right) = (explorer.left.clone(), explorer.right.clone());
            let (plain, due) = (explorer.plain.clone(), explorer.clock.now() + RUN);
            Case::new(
                run,
                &limited,
                async move { said(left.retry_run(run, 1).await) },
                async move { said(right.promote_due(100).await.map(|sweep| sweep.moved)) },
            )
            .with_aftermath(left_until(plain, run, due))
        },
        ["2 | 0, then running until its time is over"]
    }
}
