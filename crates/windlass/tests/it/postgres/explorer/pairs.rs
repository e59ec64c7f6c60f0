//! The pairs of verbs.

use std::sync::Arc;
use std::time::Duration;

use windlass::store::{
    Checkpoint, Claimed, Completion, Heartbeat, Held, NewRun, Release, Signalled, Store, Taken,
    WorkerLink,
};
use windlass_core::{
    ClaimSeq, Decision, Definition, Failure, FailureCode, IdempotencyKey, Payload, RunId,
};

use super::super::driver::{LEASE, Worker, new_run, start, success, workflow};
use super::{Case, Explorer};

/// The answer of a verb, in a few words.
/// What functions got that asked for signals.
pub(super) fn got(answer: Result<Vec<Taken>, windlass::store::StoreError>) -> String {
    let value = |taken: Taken| {
        taken.map(|taken| {
            taken.map(|told| match told {
                Signalled::Value(value) => value,
                Signalled::Newest(_) => panic!("nobody looked"),
            })
        })
    };
    said(answer.map(|all| all.into_iter().map(value).collect::<Vec<_>>()))
}

pub(super) fn said<T: std::fmt::Debug>(answer: Result<T, windlass::store::StoreError>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(windlass::store::StoreError::Conflict(_)) => "Conflict".to_owned(),
        Err(windlass::store::StoreError::LeaseLost(_)) => "LeaseLost".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

fn decided(claimed: &Claimed, decision: Decision) -> Completion {
    Completion { decision, ..success(claimed) }
}

fn checkpoint(claimed: &Claimed) -> Checkpoint {
    let held = Held { task: claimed.task, fence: claimed.fence };
    Checkpoint { held, number: 0, value: Payload::from_json("1").expect("it is JSON") }
}

fn failed() -> Decision {
    Decision::Fail(Failure::new(FailureCode::Error, "it does not work"))
}

/// A run whose first tasks are claimed.
pub(super) async fn claimed(
    explorer: &Explorer,
    workflow: &Arc<Definition>,
) -> (RunId, Worker, Vec<Claimed>) {
    let store = &*explorer.plain;
    let run = start(store, workflow).await;
    let worker = Worker::join(store, workflow).await;
    let tasks = worker.claim(store, 100).await;
    (run, worker, tasks)
}

/// Explores a pair and compares the answers that are possible.
macro_rules! pair {
    ($(#[$doc:meta])* $name:ident, |$explorer:ident| $set_up:block, $expected:expr) => {
        $(#[$doc])*
        #[tokio::test]
        async fn $name() {
            let $explorer = Explorer::new().await;
            let answers = $explorer.explore(async || $set_up).await;
            let answers: Vec<String> =
                answers.into_keys().map(|[left, right]| format!("{left} | {right}")).collect();
            let expected: &[&str] = &$expected;
            assert_eq!(answers, expected);
        }
    };
}

pub(super) use pair;

pair! {
    /// Two parents of one child end together: the child becomes ready once.
    finish_and_finish_of_siblings,
    |explorer| {
        let join = workflow("join", &["a", "b", "c < a b"]);
        let (run, _, tasks) = claimed(&explorer, &join).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let [a, b] = [success(&tasks[0]), success(&tasks[1])];
        Case::new(
            run,
            &join,
            async move { said(left.finish(vec![a]).await) },
            async move { said(right.finish(vec![b]).await) },
        )
    },
    ["[Accepted] | [Accepted]"]
}

pair! {
    /// The last two tasks of a run end together: the run ends once.
    finish_and_finish_of_the_last_two,
    |explorer| {
        let two = workflow("two", &["a", "b"]);
        let (run, _, tasks) = claimed(&explorer, &two).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let [a, b] = [success(&tasks[0]), success(&tasks[1])];
        Case::new(
            run,
            &two,
            async move { said(left.finish(vec![a]).await) },
            async move { said(right.finish(vec![b]).await) },
        )
    },
    ["[Accepted] | [Accepted]"]
}

pair! {
    /// One parent fails while the other succeeds: what is behind them is skipped once.
    finish_and_failure_of_siblings,
    |explorer| {
        let join = workflow("join", &["a", "b", "c < a b", "d < c"]);
        let (run, _, tasks) = claimed(&explorer, &join).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let [a, b] = [success(&tasks[0]), decided(&tasks[1], failed())];
        Case::new(
            run,
            &join,
            async move { said(left.finish(vec![a]).await) },
            async move { said(right.finish(vec![b]).await) },
        )
    },
    ["[Accepted] | [Accepted]"]
}

pair! {
    /// A completion arrives twice at once: it counts once.
    finish_and_its_repetition,
    |explorer| {
        let one = workflow("one", &["a", "b < a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let [a, b] = [success(&tasks[0]), success(&tasks[0])];
        Case::new(
            run,
            &one,
            async move { said(left.finish(vec![a]).await) },
            async move { said(right.finish(vec![b]).await) },
        )
    },
    ["[AcceptedAlready] | [Accepted]", "[Accepted] | [AcceptedAlready]"]
}

pair! {
    finish_and_cancel,
    |explorer| {
        let one = workflow("one", &["a", "b < a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let a = success(&tasks[0]);
        Case::new(
            run,
            &one,
            async move { said(left.finish(vec![a]).await) },
            async move { said(right.cancel_run(run, None).await) },
        )
    },
    ["[Accepted] | ()", "[Refused(RunCancelled)] | ()"]
}

pair! {
    /// The last task ends while its run is cancelled: one of the two comes too late.
    last_finish_and_cancel,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let a = success(&tasks[0]);
        Case::new(
            run,
            &one,
            async move { said(left.finish(vec![a]).await) },
            async move { said(right.cancel_run(run, None).await) },
        )
    },
    ["[Accepted] | Conflict", "[Refused(RunCancelled)] | ()"]
}

pair! {
    /// A late completion meets the reaper: whoever comes first is right.
    finish_and_reap,
    |explorer| {
        let one = workflow("one", &["a", "b < a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        explorer.clock.advance(LEASE);
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let a = success(&tasks[0]);
        Case::new(
            run,
            &one,
            async move { said(left.finish(vec![a]).await) },
            async move { said(right.reap(100).await.map(|sweep| sweep.moved)) },
        )
    },
    ["[Accepted] | 0", "[Refused(LeaseLost)] | 1"]
}

pair! {
    /// A late checkpoint meets the reaper: it is kept for the next attempt, or refused.
    checkpoint_and_reap,
    |explorer| {
        let one = workflow("one", &["a", "b < a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        explorer.clock.advance(LEASE);
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let a = checkpoint(&tasks[0]);
        Case::new(
            run,
            &one,
            async move { said(left.checkpoint(vec![a]).await) },
            async move { said(right.reap(100).await.map(|sweep| sweep.moved)) },
        )
    },
    ["[Accepted] | 0", "[Accepted] | 1", "[Refused(LeaseLost)] | 1"]
}

pair! {
    /// A checkpoint that its handler did not wait for meets the end of its task: it is gone
    /// with it, or refused.
    checkpoint_and_finish,
    |explorer| {
        let one = workflow("one", &["a", "b < a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let (a, end) = (checkpoint(&tasks[0]), success(&tasks[0]));
        Case::new(
            run,
            &one,
            async move { said(left.checkpoint(vec![a]).await) },
            async move { said(right.finish(vec![end]).await) },
        )
    },
    ["[Accepted] | [Accepted]", "[Refused(LeaseLost)] | [Accepted]"]
}

pair! {
    finish_and_leave,
    |explorer| {
        let one = workflow("one", &["a", "b < a"]);
        let (run, worker, tasks) = claimed(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let a = success(&tasks[0]);
        Case::new(
            run,
            &one,
            async move { said(left.finish(vec![a]).await) },
            async move { said(right.leave(worker.id).await) },
        )
    },
    ["[Accepted] | ()", "[Refused(LeaseLost)] | ()"]
}

pair! {
    /// Two workers want the same task: one gets it.
    claim_and_claim,
    |explorer| {
        let one = workflow("one", &["a"]);
        let run = start(&*explorer.plain, &one).await;
        let workers =
            [Worker::join(&*explorer.plain, &one).await, Worker::join(&*explorer.plain, &one).await];
        let [left, right] = workers.map(|worker| worker.request(10));
        let stores = (explorer.left.clone(), explorer.right.clone());
        Case::new(
            run,
            &one,
            async move { said(stores.0.claim(left).await.map(|tasks| tasks.len())) },
            async move { said(stores.1.claim(right).await.map(|tasks| tasks.len())) },
        )
        .with_claims()
        .with_own_workers()
    },
    ["0 | 1", "1 | 0"]
}

pair! {
    /// One worker's claim arrives twice at once: it gives its tasks once.
    claim_and_its_repetition,
    |explorer| {
        let one = workflow("one", &["a", "b"]);
        let run = start(&*explorer.plain, &one).await;
        let worker = Worker::join(&*explorer.plain, &one).await;
        let request = worker.request(1);
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let again = request.clone();
        Case::new(
            run,
            &one,
            async move { said(left.claim(request).await.map(|tasks| tasks.len())) },
            async move { said(right.claim(again).await.map(|tasks| tasks.len())) },
        )
        .with_claims()
    },
    ["0 | 1", "1 | 0"]
}

pair! {
    /// A worker claims while another's lease is found to have run out.
    claim_and_reap,
    |explorer| {
        let two = workflow("two", &["a", "b < a"]);
        let (run, ..) = claimed(&explorer, &two).await;
        explorer.clock.advance(LEASE);
        let request = Worker::join(&*explorer.plain, &two).await.request(10);
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case::new(
            run,
            &two,
            async move { said(left.claim(request).await.map(|tasks| tasks.len())) },
            async move { said(right.reap(100).await.map(|sweep| sweep.moved)) },
        )
        .with_claims()
        .with_own_workers()
    },
    ["0 | 1", "1 | 1"]
}

pair! {
    /// A worker whose lease has run out claims while it is found dead.
    claim_and_reap_of_one_worker,
    |explorer| {
        let two = workflow("two", &["a", "b"]);
        let run = start(&*explorer.plain, &two).await;
        let worker = Worker::join(&*explorer.plain, &two).await;
        worker.claim(&*explorer.plain, 1).await;
        explorer.clock.advance(LEASE);
        let request = worker.request(10);
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case::new(
            run,
            &two,
            async move { said(left.claim(request).await.map(|tasks| tasks.len())) },
            async move { said(right.reap(100).await.map(|sweep| sweep.moved)) },
        )
        .with_claims()
    },
    ["0 | 0", "0 | 1", "LeaseLost | 1"]
}

pair! {
    claim_and_cancel,
    |explorer| {
        let two = workflow("two", &["a", "b"]);
        let run = start(&*explorer.plain, &two).await;
        let request = Worker::join(&*explorer.plain, &two).await.request(10);
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case::new(
            run,
            &two,
            async move { said(left.claim(request).await.map(|tasks| tasks.len())) },
            async move { said(right.cancel_run(run, None).await) },
        )
        .with_claims()
        .with_own_workers()
    },
    ["0 | ()", "2 | ()"]
}

pair! {
    /// A heartbeat keeps a lease while the reaper looks at it.
    extend_and_reap,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, worker, tasks) = claimed(&explorer, &one).await;
        explorer.clock.advance(LEASE);
        let held = vec![Held { task: tasks[0].task, fence: tasks[0].fence }];
        let heartbeat =
            Heartbeat { worker: worker.id, settled: ClaimSeq(1), held, progress: Vec::new() };
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case::new(
            run,
            &one,
            async move { said(left.extend(heartbeat).await.map(|answer| answer.lost.len())) },
            async move { said(right.reap(100).await.map(|sweep| sweep.moved)) },
        )
    },
    ["0 | 0", "LeaseLost | 1"]
}

pair! {
    /// A heartbeat hands back a task that its worker does not know of, while it is finished.
    extend_and_finish,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, worker, tasks) = claimed(&explorer, &one).await;
        let heartbeat = Heartbeat {
            worker: worker.id,
            settled: ClaimSeq(1),
            held: Vec::new(),
            progress: Vec::new(),
        };
        let a = success(&tasks[0]);
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case::new(
            run,
            &one,
            async move { said(left.extend(heartbeat).await.map(|answer| answer.lost.len())) },
            async move { said(right.finish(vec![a]).await) },
        )
    },
    ["0 | [Accepted]", "0 | [Refused(LeaseLost)]"]
}

pair! {
    release_and_cancel,
    |explorer| {
        let one = workflow("one", &["a", "b < a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        let (task, fence) = (tasks[0].task, tasks[0].fence);
        let release = Release { task, fence, delay: Duration::ZERO };
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case::new(
            run,
            &one,
            async move { said(left.release(vec![release]).await) },
            async move { said(right.cancel_run(run, None).await) },
        )
    },
    ["[Accepted] | ()", "[Refused(RunCancelled)] | ()"]
}

pair! {
    release_and_reap,
    |explorer| {
        let one = workflow("one", &["a", "b < a"]);
        let (run, _, tasks) = claimed(&explorer, &one).await;
        explorer.clock.advance(LEASE);
        let (task, fence) = (tasks[0].task, tasks[0].fence);
        let release = Release { task, fence, delay: Duration::ZERO };
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case::new(
            run,
            &one,
            async move { said(left.release(vec![release]).await) },
            async move { said(right.reap(100).await.map(|sweep| sweep.moved)) },
        )
    },
    ["[Accepted] | 0", "[Refused(LeaseLost)] | 1"]
}

pair! {
    reap_and_reap,
    |explorer| {
        let one = workflow("one", &["a"]);
        let (run, ..) = claimed(&explorer, &one).await;
        explorer.clock.advance(LEASE);
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case::new(
            run,
            &one,
            async move { said(left.reap(100).await.map(|sweep| sweep.moved)) },
            async move { said(right.reap(100).await.map(|sweep| sweep.moved)) },
        )
    },
    ["0 | 1", "1 | 0"]
}

/// A start with a key, and another of the same.
async fn keyed(explorer: &Explorer, inputs: [&str; 2]) -> Case {
    let one = workflow("one", &["a", "b < a"]);
    explorer.plain.register(one.clone()).await.expect("it can be registered");
    let first = new_run(&one);
    let key = IdempotencyKey::new(first.id.to_string()).expect("it is a key");
    let of = |input: &str| NewRun {
        key: Some(key.clone()),
        input: Payload::from_json(input).expect("it is JSON"),
        ..new_run(&one)
    };
    let [first, second] = inputs.map(of);
    let (left, right) = (explorer.left.clone(), explorer.right.clone());
    let runs = vec![first.id, second.id];
    let mut case = Case::new(runs[0], &one, start_one(left, first), start_one(right, second));
    case.runs = runs;
    case
}

async fn start_one(store: Arc<windlass::store::postgres::PostgresStore>, run: NewRun) -> String {
    let mut answers = store.start_runs(vec![run]).await.expect("the store is there");
    said(answers.remove(0).map(|started| started.is_new))
}

pair! {
    /// Two starts with one key: one run.
    start_and_start_with_one_key,
    |explorer| { keyed(&explorer, ["1", "1"]).await },
    ["false | true", "true | false"]
}

pair! {
    start_and_start_with_one_key_and_other_inputs,
    |explorer| { keyed(&explorer, ["1", "2"]).await },
    ["Conflict | true", "true | Conflict"]
}

/// A run that begins after a delay which is over.
async fn due(explorer: &Explorer) -> (RunId, Arc<Definition>) {
    let one = workflow("one", &["a", "b < a"]);
    explorer.plain.register(one.clone()).await.expect("it can be registered");
    let new = NewRun { delay: Duration::from_secs(1), ..new_run(&one) };
    let run = new.id;
    explorer.plain.start_runs(vec![new]).await.expect("the store is there");
    explorer.clock.advance(Duration::from_secs(1));
    (run, one)
}

pair! {
    promote_and_cancel,
    |explorer| {
        let (run, one) = due(&explorer).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case::new(
            run,
            &one,
            async move { said(left.promote_due(100).await.map(|sweep| sweep.moved)) },
            async move { said(right.cancel_run(run, None).await) },
        )
    },
    ["0 | ()", "1 | ()"]
}

pair! {
    promote_and_promote,
    |explorer| {
        let (run, one) = due(&explorer).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case::new(
            run,
            &one,
            async move { said(left.promote_due(100).await.map(|sweep| sweep.moved)) },
            async move { said(right.promote_due(100).await.map(|sweep| sweep.moved)) },
        )
    },
    ["0 | 1", "1 | 0"]
}

pair! {
    cancel_and_cancel,
    |explorer| {
        let one = workflow("one", &["a", "b < a"]);
        let (run, ..) = claimed(&explorer, &one).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case::new(
            run,
            &one,
            async move { said(left.cancel_run(run, None).await) },
            async move { said(right.cancel_run(run, None).await) },
        )
    },
    ["() | ()"]
}

/// A run that has failed.
async fn broken(explorer: &Explorer) -> (RunId, Arc<Definition>) {
    let one = workflow("one", &["a", "b < a"]);
    let (run, _, tasks) = claimed(explorer, &one).await;
    let answers = explorer.plain.finish(vec![decided(&tasks[0], failed())]).await;
    answers.expect("finishing works");
    (run, one)
}

pair! {
    retry_and_its_repetition,
    |explorer| {
        let (run, one) = broken(&explorer).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case::new(
            run,
            &one,
            async move { said(left.retry_run(run, 1).await) },
            async move { said(right.retry_run(run, 1).await) },
        )
    },
    ["2 | 2"]
}

pair! {
    retry_and_cancel,
    |explorer| {
        let (run, one) = broken(&explorer).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case::new(
            run,
            &one,
            async move { said(left.retry_run(run, 1).await) },
            async move { said(right.cancel_run(run, None).await) },
        )
    },
    ["2 | ()", "2 | Conflict"]
}
