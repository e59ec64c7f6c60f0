//! What durable functions ask, beside another verb.

use std::sync::Arc;

use windlass::store::postgres::PostgresStore;
use windlass::store::{
    ChildStart, Claimed, Completion, Held, NewRun, NewSignal, PAGE_MAX, Recording, Store,
    TakeSignal, Which, WorkerLink,
};
use windlass_core::{
    Call, Decision, Definition, Parking, Payload, RunId, SignalId, StepChange, StepKind, StepName,
    StepResult, StepWrite, Wait,
};

use super::super::driver::{LEASE, new_run, succeed, success, workflow};
use super::pairs::{claimed, got, pair, said};
use super::{Case, Explorer};

fn name(name: &str) -> StepName {
    StepName::new(name).expect("it is a name")
}

fn held(claimed: &Claimed) -> Held {
    Held { task: claimed.task, fence: claimed.fence }
}

/// A step with its result.
fn recording(claimed: &Claimed) -> Recording {
    let result = StepResult::Value(Payload::default());
    let change = StepChange::Done { number: 1, result };
    let step =
        StepWrite { call: Call(1), name: name("step"), kind: StepKind::Step, key: None, change };
    Recording { held: held(claimed), steps: vec![step] }
}

/// A function waits for a call.
fn park(claimed: &Claimed, kind: StepKind, wait: Wait) -> Completion {
    let change = StepChange::Open { failures: 0, failure: None, wait };
    let steps = vec![StepWrite { call: Call(1), name: name("go"), kind, key: None, change }];
    let decision = Decision::Park(Parking { steps, waits: Vec::new(), awaits: true });
    Completion { decision, ..success(claimed) }
}

pub(super) fn signal(run: RunId) -> NewSignal {
    let id = SignalId::from_random(run.as_uuid().as_u128());
    NewSignal { id, run, name: name("go"), value: Payload::default() }
}

pub(super) fn take(claimed: &Claimed) -> TakeSignal {
    let which = Which::UpTo(signal(claimed.task.run).id, 1);
    TakeSignal { held: held(claimed), call: Call(1), name: name("go"), key: None, which }
}

/// A child of a function that is its only one.
fn child(claimed: &Claimed, definition: &Arc<Definition>) -> ChildStart {
    let id = RunId::of_child(claimed.task.run, claimed.task.run.as_uuid().as_u128() << 48);
    let run = NewRun { id, ..new_run(definition) };
    let definition = Arc::clone(definition);
    ChildStart { held: held(claimed), call: Call(1), place: Some(0), run, definition }
}

/// A function that has started a child, and the child at work.
async fn family(explorer: &Explorer, one: &Arc<Definition>) -> (Claimed, Claimed) {
    let store = &*explorer.plain;
    let (_, worker, parents) = claimed(explorer, one).await;
    let start = child(&parents[0], one);
    store.start_children(vec![start]).await.expect("starting works");
    let children = worker.claim(store, 100).await;
    (parents[0].clone(), children[0].clone())
}

/// The state of the only task of a run, if the run is there.
async fn state_of(store: Arc<PostgresStore>, run: RunId) -> String {
    let tasks = store.list_tasks(run, None, 1).await.expect("reading works");
    tasks.first().map_or("none".to_owned(), |task| task.state.to_string())
}

/// The same once all have heard of each other.
async fn state_after_sweep(store: Arc<PostgresStore>, run: RunId) -> String {
    store.promote_due(100).await.expect("promoting works");
    state_of(store, run).await
}

pair! {
    /// A step is recorded while its worker is found dead: the next attempt is handed it, or it
    /// is refused.
    record_and_reap,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        explorer.clock.advance(LEASE);
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let recording = recording(&tasks[0]);
        let (plain, task) = (explorer.plain.clone(), tasks[0].task);
        Case::new(
            run,
            &one,
            async move { said(left.record(vec![recording]).await) },
            async move { said(right.reap(100).await.map(|sweep| sweep.moved)) },
        )
        .with_aftermath(async move {
            let steps = plain.list_steps(task, None, PAGE_MAX).await.expect("reading works");
            format!("{} recorded", steps.len())
        })
    },
    ["[Accepted] | 1, then 1 recorded", "[Refused(LeaseLost)] | 1, then 0 recorded"]
}

pair! {
    /// A signal comes while the function that waits for it is parked: it goes on.
    park_and_signal,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let park = park(&tasks[0], StepKind::Signal, Wait::Forever);
        let plain = explorer.plain.clone();
        Case::new(
            run,
            &one,
            async move { said(left.finish(vec![park]).await) },
            async move { said(right.signal(signal(run)).await) },
        )
        .with_aftermath(state_of(plain, run))
    },
    ["[Accepted] | (), then ready"]
}

pair! {
    /// A function that takes a signal while its run is cancelled takes it or does not.
    take_and_cancel,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        explorer.plain.signal(signal(run)).await.expect("sending works");
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let take = take(&tasks[0]);
        Case::new(
            run,
            &one,
            async move { got(left.take_signals(vec![take]).await) },
            async move { said(right.cancel_run(run, None).await) },
        )
    },
    ["[Err(RunCancelled)] | ()", "[Ok(Some(null))] | ()"]
}

pair! {
    /// A signal comes while a function looks for it: it gets it now, or the next time.
    take_and_signal,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let (first, again) = (take(&tasks[0]), take(&tasks[0]));
        let plain = explorer.plain.clone();
        Case::new(
            run,
            &one,
            async move { got(left.take_signals(vec![first]).await) },
            async move { said(right.signal(signal(run)).await) },
        )
        .with_aftermath(async move { got(plain.take_signals(vec![again]).await) })
    },
    ["[Ok(None)] | (), then [Ok(Some(null))]", "[Ok(Some(null))] | (), then [Ok(Some(null))]"]
}

pair! {
    /// A child ends while its parent is parked: the parent goes on.
    end_of_child_and_park_of_parent,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (parent, child) = family(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let (end, run) = (success(&child), parent.task.run);
        let park = park(&parent, StepKind::Child, Wait::Children(0));
        let plain = explorer.plain.clone();
        Case::new(
            run,
            &one,
            async move { said(left.finish(vec![end]).await) },
            async move { said(right.finish(vec![park]).await) },
        )
        .with_aftermath(state_after_sweep(plain, run))
    },
    ["[Accepted] | [Accepted], then ready"]
}

pair! {
    /// A child ends while others are told of what ended before: its parent goes on, now or
    /// with the next sweep.
    end_of_child_and_promote,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (parent, child) = family(&explorer, &one).await;
        let park = park(&parent, StepKind::Child, Wait::Children(0));
        explorer.plain.finish(vec![park]).await.expect("parking works");
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let (end, run) = (success(&child), parent.task.run);
        let plain = explorer.plain.clone();
        Case::new(
            run,
            &one,
            async move { said(left.finish(vec![end]).await) },
            async move { said(right.promote_due(100).await.map(|sweep| sweep.moved)) },
        )
        .with_aftermath(state_after_sweep(plain, run))
    },
    ["[Accepted] | 0, then ready", "[Accepted] | 1, then ready"]
}

pair! {
    /// A function starts a child while its run is cancelled: the child never comes to be, or is
    /// cancelled as well.
    start_of_child_and_cancel_of_parent,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let start = child(&tasks[0], &one);
        let (plain, born) = (explorer.plain.clone(), start.run.id);
        let is_born = |born: &windlass::store::Born| {
            matches!(born, windlass::store::Born::Started(_))
        };
        Case::new(
            run,
            &one,
            async move {
                let answers = left.start_children(vec![start]).await;
                said(answers.map(|answers| answers.iter().map(is_born).collect::<Vec<_>>()))
            },
            async move { said(right.cancel_run(run, None).await) },
        )
        .with_aftermath(state_after_sweep(plain, born))
    },
    ["[false] | (), then none", "[true] | (), then cancelled"]
}

pair! {
    /// A parent is cancelled while its child ends: whichever comes first, both have ended.
    end_of_child_and_cancel_of_parent,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (parent, child) = family(&explorer, &one).await;
        let park = park(&parent, StepKind::Child, Wait::Children(0));
        explorer.plain.finish(vec![park]).await.expect("parking works");
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let (end, run) = (success(&child), parent.task.run);
        let (plain, child) = (explorer.plain.clone(), child.task.run);
        Case::new(
            run,
            &one,
            async move { said(left.finish(vec![end]).await) },
            async move { said(right.cancel_run(run, None).await) },
        )
        .with_aftermath(state_after_sweep(plain, child))
    },
    ["[Accepted] | (), then succeeded"]
}

/// What takes too long for every day; `cargo xtask test` runs it by name.
mod long {
    use super::*;

    pair! {
        /// A parent is parked while it is told that its child has ended: it goes on.
        #[ignore = "long"]
        park_of_parent_and_promote,
        |explorer| {
            let one = workflow("one", &["a"]);
            let (parent, child) = family(&explorer, &one).await;
            succeed(&*explorer.plain, &child).await;
            let (left, right) = (explorer.left.clone(), explorer.right.clone());
            let park = park(&parent, StepKind::Child, Wait::Children(0));
            let (plain, run) = (explorer.plain.clone(), parent.task.run);
            Case::new(
                run,
                &one,
                async move { said(left.finish(vec![park]).await) },
                async move { said(right.promote_due(100).await.map(|sweep| sweep.moved)) },
            )
            .with_aftermath(state_after_sweep(plain, run))
        },
        ["[Accepted] | 0, then ready", "[Accepted] | 1, then ready"]
    }
}
