//! Signals to keys, beside another verb.

use std::sync::Arc;

use windlass::store::postgres::PostgresStore;
use windlass::store::{
    Claimed, Completion, Held, Mailbox, NewKeySignal, SIGNAL_KEPT, Store, TakeSignal, Which,
    WorkerLink,
};
use windlass_core::{
    Call, Decision, Parking, Payload, RunId, SignalId, SignalKey, StepChange, StepKind, StepName,
    StepWrite, Tenant, Wait,
};

use super::super::driver::{success, workflow};
use super::pairs::{claimed, got, pair, said};
use super::{Case, Explorer};

fn name() -> StepName {
    StepName::new("paid").expect("it is a name")
}

/// A key that is one run's, so that no order leaves anything to the next.
fn key(run: RunId) -> SignalKey {
    SignalKey::new(run.to_string()).expect("it is a key")
}

fn signal(run: RunId) -> NewKeySignal {
    let id = SignalId::from_random(run.as_uuid().as_u128());
    let to = Mailbox { tenant: Tenant::default(), key: key(run), name: name() };
    NewKeySignal { id, to, value: Payload::default(), keep_for: SIGNAL_KEPT }
}

/// A function is parked until a signal to the key comes.
fn park(claimed: &Claimed, run: RunId, wait: Wait) -> Completion {
    let change = StepChange::Open { failures: 0, failure: None, wait };
    let (kind, key) = (StepKind::Signal, Some(key(run)));
    let steps = vec![StepWrite { call: Call(1), name: name(), kind, key, change }];
    let decision = Decision::Park(Parking { steps, waits: Vec::new(), awaits: true });
    Completion { decision, ..success(claimed) }
}

fn take(claimed: &Claimed, run: RunId) -> TakeSignal {
    let held = Held { task: claimed.task, fence: claimed.fence };
    let which = Which::UpTo(signal(run).id, 1);
    TakeSignal { held, call: Call(1), name: name(), key: Some(key(run)), which }
}

/// A function that is parked until a signal to a key comes.
async fn parked(explorer: &Explorer, wait: Wait) -> RunId {
    let (run, _, tasks) = claimed(explorer, &workflow("one", &["a"])).await;
    let park = park(&tasks[0], run, wait);
    explorer.plain.finish(vec![park]).await.expect("parking works");
    run
}

/// The state of the only task of a run once all have heard of each other.
async fn state_after_sweep(store: Arc<PostgresStore>, run: RunId) -> String {
    store.promote_due(100).await.expect("promoting works");
    let tasks = store.list_tasks(run, None, 1).await.expect("reading works");
    tasks[0].state.to_string()
}

pair! {
    /// A signal comes while the function that waits for its key is parked: it goes on.
    park_and_signal_key,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let park = park(&tasks[0], run, Wait::Forever);
        let plain = explorer.plain.clone();
        Case::new(
            run,
            &one,
            async move { said(left.finish(vec![park]).await) },
            async move { said(right.signal_key(signal(run)).await) },
        )
        .with_aftermath(state_after_sweep(plain, run))
    },
    ["[Accepted] | (), then ready"]
}

pair! {
    /// Two functions ask for one signal to a key: one of them gets it.
    take_and_take_of_one_key,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (other, _, firsts) = claimed(&explorer, &one).await;
        let (run, _, seconds) = claimed(&explorer, &one).await;
        explorer.plain.signal_key(signal(run)).await.expect("sending works");
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let (first, second) = (take(&firsts[0], run), take(&seconds[0], run));
        let case = Case::new(
            run,
            &one,
            async move { got(left.take_signals(vec![first]).await) },
            async move { got(right.take_signals(vec![second]).await) },
        );
        Case { runs: vec![other, run], ..case }
    },
    ["[Ok(None)] | [Ok(Some(null))]", "[Ok(Some(null))] | [Ok(None)]"]
}

pair! {
    /// A signal is sent twice at once: it is one.
    signal_key_and_signal_key,
    |explorer| {
        let run = parked(&explorer, Wait::Forever).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let plain = explorer.plain.clone();
        Case::new(
            run,
            &workflow("one", &["a"]),
            async move { said(left.signal_key(signal(run)).await) },
            async move { said(right.signal_key(signal(run)).await) },
        )
        .with_aftermath(async move { said(plain.promote_due(100).await.map(|sweep| sweep.moved)) })
    },
    ["() | (), then 1"]
}

pair! {
    /// A signal comes while the wait for its key is over: the function goes on once.
    signal_key_and_promote,
    |explorer| {
        let run = parked(&explorer, Wait::For(std::time::Duration::ZERO)).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let plain = explorer.plain.clone();
        Case::new(
            run,
            &workflow("one", &["a"]),
            async move { said(left.signal_key(signal(run)).await) },
            async move { said(right.promote_due(100).await.map(drop)) },
        )
        .with_aftermath(state_after_sweep(plain, run))
    },
    ["() | (), then ready"]
}

pair! {
    /// A signal comes while the run that waits for its key is cancelled.
    signal_key_and_cancel,
    |explorer| {
        let run = parked(&explorer, Wait::Forever).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let plain = explorer.plain.clone();
        Case::new(
            run,
            &workflow("one", &["a"]),
            async move { said(left.signal_key(signal(run)).await) },
            async move { said(right.cancel_run(run, None).await) },
        )
        .with_aftermath(state_after_sweep(plain, run))
    },
    ["() | (), then cancelled"]
}
