//! What undoes a run, and what lets it begin afresh, beside another verb.

use std::sync::Arc;

use windlass::store::postgres::PostgresStore;
use windlass::store::{Claimed, Completion, Held, PAGE_MAX, Recording, Store, WorkerLink};
use windlass_core::{
    Call, Decision, Failure, FailureCode, Payload, RunId, StepChange, StepKind, StepName,
    StepResult, StepWrite,
};

use super::super::driver::{success, workflow};
use super::functions::{signal, take};
use super::pairs::{claimed, got, pair, said};
use super::{Case, Explorer};

/// A step that can be undone, with its result.
fn undoable(claimed: &Claimed) -> Recording {
    let result = StepResult::Value(Payload::default());
    let change = StepChange::Done { number: 1, result };
    let name = StepName::new("charge").expect("it is a name");
    let step = StepWrite { call: Call(1), name, kind: StepKind::Undoable, key: None, change };
    let held = Held { task: claimed.task, fence: claimed.fence };
    Recording { held, steps: vec![step] }
}

async fn record(explorer: &Explorer, claimed: &Claimed) {
    explorer.plain.record(vec![undoable(claimed)]).await.expect("recording works");
}

fn decided(claimed: &Claimed, decision: Decision) -> Completion {
    Completion { decision, ..success(claimed) }
}

fn failed(code: FailureCode) -> Decision {
    Decision::Fail(Failure::new(code, "it does not work"))
}

fn afresh() -> Decision {
    Decision::Continue(Payload::from_json("2").expect("it is JSON"))
}

/// How often a run has begun to be undone, and whether there is what undoes its first round.
async fn undone(store: Arc<PostgresStore>, run: RunId) -> String {
    let events = store.list_events(run, None, PAGE_MAX).await.expect("reading works");
    let begun = events.iter().filter(|event| event.word() == "run_undoing").count();
    let by = store.get_run(RunId::of_undo(run, 1)).await.expect("reading works");
    match (begun, by.is_some()) {
        (0, false) => "not undone".to_owned(),
        (1, true) => "undone".to_owned(),
        (begun, is_there) => format!("undone {begun} times, by one that is there: {is_there}"),
    }
}

pair! {
    /// A step that can be undone is recorded while its run is cancelled: it is undone, or was
    /// never recorded.
    record_and_cancel,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let recording = undoable(&tasks[0]);
        let plain = explorer.plain.clone();
        Case::new(
            run,
            &one,
            async move { said(left.record(vec![recording]).await) },
            async move { said(right.cancel_run(run, None).await) },
        )
        .with_aftermath(undone(plain, run))
    },
    ["[Accepted] | (), then undone", "[Refused(RunCancelled)] | (), then not undone"]
}

pair! {
    /// A run fails while somebody asks to undo it: it is undone once, by itself or on demand.
    failure_and_undo,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        record(&explorer, &tasks[0]).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let end = decided(&tasks[0], failed(FailureCode::Error));
        let plain = explorer.plain.clone();
        Case::new(
            run,
            &one,
            async move { said(left.finish(vec![end]).await) },
            async move { said(right.undo_run(run).await.map(|_| "undone")) },
        )
        .with_aftermath(undone(plain, run))
    },
    ["[Accepted] | \"undone\", then undone", "[Accepted] | Conflict, then undone"]
}

pair! {
    /// A run that failed is retried while somebody asks to undo it: one of them is refused.
    retry_and_undo,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        record(&explorer, &tasks[0]).await;
        // It is not undone by itself.
        let end = decided(&tasks[0], failed(FailureCode::Divergence));
        explorer.plain.finish(vec![end]).await.expect("finishing works");
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let plain = explorer.plain.clone();
        Case::new(
            run,
            &one,
            async move { said(left.retry_run(run, 1).await) },
            async move { said(right.undo_run(run).await.map(|_| "undone")) },
        )
        .with_aftermath(undone(plain, run))
    },
    ["2 | Conflict, then not undone", "Conflict | \"undone\", then undone"]
}

pair! {
    /// Two ask to undo a run: it is undone once.
    undo_and_undo,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        record(&explorer, &tasks[0]).await;
        explorer.plain.finish(vec![success(&tasks[0])]).await.expect("finishing works");
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let plain = explorer.plain.clone();
        Case::new(
            run,
            &one,
            async move { said(left.undo_run(run).await.map(|_| "undone")) },
            async move { said(right.undo_run(run).await.map(|_| "undone")) },
        )
        .with_aftermath(undone(plain, run))
    },
    ["\"undone\" | \"undone\", then undone"]
}

/// How many steps a function remembers.
async fn remembered(store: Arc<PostgresStore>, claimed: Claimed) -> String {
    let steps = store.list_steps(claimed.task, None, PAGE_MAX).await.expect("reading works");
    format!("{} remembered", steps.len())
}

pair! {
    /// A function begins afresh while its run is cancelled: it is cancelled either way, and what
    /// it did before is undone only if it did not begin afresh.
    afresh_and_cancel,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        record(&explorer, &tasks[0]).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let again = decided(&tasks[0], afresh());
        let plain = explorer.plain.clone();
        Case::new(
            run,
            &one,
            async move { said(left.finish(vec![again]).await) },
            async move { said(right.cancel_run(run, None).await) },
        )
        .with_aftermath(undone(plain, run))
    },
    ["[Accepted] | (), then not undone", "[Refused(RunCancelled)] | (), then undone"]
}

pair! {
    /// A step is recorded while its function begins afresh: nothing of it is left.
    record_and_afresh,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let (recording, again) = (undoable(&tasks[0]), decided(&tasks[0], afresh()));
        let (plain, task) = (explorer.plain.clone(), tasks[0].clone());
        Case::new(
            run,
            &one,
            async move { said(left.record(vec![recording]).await) },
            async move { said(right.finish(vec![again]).await) },
        )
        .with_aftermath(remembered(plain, task))
    },
    ["[Accepted] | [Accepted], then 0 remembered", "[Refused(LeaseLost)] | [Accepted], then 0 remembered"]
}

pair! {
    /// A signal comes while a function begins afresh: it is the run's, and there for what comes.
    afresh_and_signal,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, worker, tasks) = claimed(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let again = decided(&tasks[0], afresh());
        let plain = explorer.plain.clone();
        Case::new(
            run,
            &one,
            async move { said(left.finish(vec![again]).await) },
            async move { said(right.signal(signal(run)).await) },
        )
        .with_aftermath(async move {
            let tasks = worker.claim(&*plain, 100).await;
            got(plain.take_signals(vec![take(&tasks[0])]).await)
        })
    },
    ["[Accepted] | (), then [Ok(Some(null))]"]
}
