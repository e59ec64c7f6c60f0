//! Runs that undo what others did.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::{
    Call, Decision, Event, EventBody, Failure, FailureCode, Parking, RunEventKind, RunId, RunState,
    StepChange, StepKind, StepName, StepResult, StepWrite, TaskState, Undoing, Wait,
};

use super::bench::{Bench, LEASE, Worker, definition, failure, hold, json, retry_after, seconds};
use crate::store::{Answer, Born, ChildStart, Claimed, Held, Recording, Refusal, StoreError};

fn step(call: u32, number: u32, kind: StepKind, result: StepResult) -> StepWrite {
    let name = StepName::new(format!("step-{call}")).expect("the name is fine");
    let change = StepChange::Done { number, result };
    StepWrite { call: Call(call), name, kind, key: None, change }
}

fn undoable(call: u32, number: u32) -> StepWrite {
    step(call, number, StepKind::Undoable, StepResult::Value(json("1")))
}

async fn record(bench: &Bench<'_>, claimed: &Claimed, steps: Vec<StepWrite>) {
    let recordings = vec![Recording { held: hold(claimed), steps }];
    let answers = bench.store.record(recordings).await.expect("recording works");
    assert_eq!(answers, [Answer::Accepted]);
}

/// Makes workflows known, and those that undo their runs, so that workers claim both.
async fn register(bench: &Bench<'_>, workflow: &str, tasks: &str) {
    bench.register(workflow, tasks).await;
    let undo = definition(workflow, 1, tasks).to_undo().expect("it can be derived");
    bench.try_register(Arc::new(undo)).await.expect("it is new");
}

/// A run that has done one step which can be undone, and its claim.
async fn begun(bench: &Bench<'_>, worker: &Worker<'_>, workflow: &str) -> (RunId, Claimed) {
    let run = bench.start(workflow).await;
    let claimed = worker.claim_one().await;
    record(bench, &claimed, vec![undoable(1, 1)]).await;
    (run, claimed)
}

/// The run that undoes the first round of another, if there is one.
async fn undone_by(bench: &Bench<'_>, run: RunId) -> Option<RunId> {
    let by = RunId::of_undo(run, 1);
    let found = bench.store.get_run(by).await.expect("reading works");
    let told = |event: &Event| match &event.body {
        EventBody::Run(event) => match event.kind {
            RunEventKind::Undoing { by } => Some(by),
            RunEventKind::Started
            | RunEventKind::Ended
            | RunEventKind::Cancelled { .. }
            | RunEventKind::Retried { .. }
            | RunEventKind::Continued { .. } => None,
        },
        EventBody::Task(_) => None,
    };
    let told: Vec<RunId> = bench.events(run).await.iter().filter_map(told).collect();
    assert_eq!(told, Vec::from_iter(found.as_ref().map(|by| by.id)), "the history says so, once");
    let found = found?;
    let input = bench.run(found.id).await.input.expect("a run has an input");
    assert_eq!(input.decode::<Undoing>().expect("it is told"), Undoing { run });
    assert_eq!(found.tenant, bench.run(run).await.tenant);
    Some(found.id)
}

async fn read_undo(bench: &Bench<'_>, held: Held) -> Result<Vec<Claimed>, Refusal> {
    bench.store.read_undo(held).await.expect("reading works")
}

fn is_conflict<T: std::fmt::Debug>(answer: Result<T, StoreError>, wanted: &str) {
    match answer {
        Err(StoreError::Conflict(text)) => assert!(text.contains(wanted), "{text}"),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn a_failed_run_with_steps_that_can_be_undone_is_undone(bench: &Bench<'_>) {
    register(bench, "w", "a").await;
    let worker = bench.worker().await;
    let (run, claimed) = begun(bench, &worker, "w").await;
    assert_eq!(undone_by(bench, run).await, None);
    bench.fail(&claimed).await;
    assert_eq!(bench.run_state(run).await, RunState::Failed);
    let by = undone_by(bench, run).await.expect("it is undone");
    let undo = worker.claim_one().await;
    assert_eq!((undo.task.run, undo.workflow.as_str()), (by, "w~undo"));
    bench.succeed(&undo).await;
    assert_eq!(bench.run_state(by).await, RunState::Succeeded);
    assert_eq!(bench.run_state(run).await, RunState::Failed, "it stays as it ended");
}

pub(crate) async fn a_cancelled_run_is_undone_and_waits_for_the_worker_that_was_at_work(
    bench: &Bench<'_>,
) {
    register(bench, "w", "a").await;
    let worker = bench.worker().await;
    let (run, _) = begun(bench, &worker, "w").await;
    bench.store.cancel_run(run, None).await.expect("it runs");
    let by = undone_by(bench, run).await.expect("it is undone");
    assert_eq!(bench.task(by, "undo").await.state, TaskState::Scheduled, "the worker may not know");
    bench.advance(LEASE).await;
    bench.promote().await;
    assert_eq!(worker.claim_one().await.task.run, by);
    // One that sleeps is not at work.
    let (run, claimed) = begun(bench, &worker, "w").await;
    let change = StepChange::Open { failures: 0, failure: None, wait: Wait::For(seconds(9)) };
    let name = StepName::new("sleep").expect("the name is fine");
    let steps = vec![StepWrite { call: Call(2), name, kind: StepKind::Sleep, key: None, change }];
    let parking = Parking { steps, waits: Vec::new(), awaits: false };
    bench.accept(&claimed, Decision::Park(parking)).await;
    bench.store.cancel_run(run, None).await.expect("it sleeps");
    let by = undone_by(bench, run).await.expect("it is undone");
    assert_eq!(worker.claim_one().await.task.run, by);
}

pub(crate) async fn what_undoes_a_child_can_be_retried(bench: &Bench<'_>) {
    register(bench, "w", "a").await;
    let worker = bench.worker().await;
    let parent = bench.start("w").await;
    let claimed = worker.claim_one().await;
    let mut run = bench.new_run("w");
    run.id = RunId::of_child(parent, 5 << 64);
    let (child, definition) = (run.id, definition("w", 1, "a"));
    let (held, call) = (hold(&claimed), Call(1));
    let start = ChildStart { held, call, place: Some(0), run, definition };
    bench.store.start_children(vec![start]).await.expect("starting works");
    let claimed = worker.claim_one().await;
    assert_eq!(claimed.task.run, child);
    record(bench, &claimed, vec![undoable(1, 1)]).await;
    bench.fail(&claimed).await;
    let by = undone_by(bench, child).await.expect("it is undone");
    let undo = worker.claim_one().await;
    bench.accept(&undo, Decision::Fail(failure())).await;
    assert_eq!(bench.run_state(by).await, RunState::Failed);
    assert_eq!(bench.store.retry_run(by, 1).await, Ok(2));
    assert_eq!(worker.claim_one().await.task.run, by);
}

pub(crate) async fn what_has_nothing_to_undo_is_not_undone(bench: &Bench<'_>) {
    register(bench, "w", "a").await;
    let worker = bench.worker().await;
    let (run, claimed) = begun(bench, &worker, "w").await;
    bench.succeed(&claimed).await;
    assert_eq!(undone_by(bench, run).await, None, "it succeeded");
    let nothing = [
        step(1, 1, StepKind::Step, StepResult::Value(json("1"))),
        step(2, 2, StepKind::Undoable, StepResult::Failed(failure())),
    ];
    let run = bench.start("w").await;
    let claimed = worker.claim_one().await;
    record(bench, &claimed, nothing.to_vec()).await;
    bench.fail(&claimed).await;
    assert_eq!(undone_by(bench, run).await, None, "no step of it was done that can be undone");
    is_conflict(bench.store.undo_run(run).await, "no step that can be undone");
}

pub(crate) async fn a_run_that_failed_because_its_code_is_another_is_not_undone_by_itself(
    bench: &Bench<'_>,
) {
    register(bench, "w", "a").await;
    let worker = bench.worker().await;
    // A value that cannot be kept, say, is a failure like others.
    let (run, claimed) = begun(bench, &worker, "w").await;
    let permanent = Failure::new(FailureCode::Payload, "too large").permanent();
    bench.accept(&claimed, Decision::Fail(permanent)).await;
    assert!(undone_by(bench, run).await.is_some());
    bench.succeed(&worker.claim_one().await).await;
    for code in [FailureCode::Divergence, FailureCode::Payload] {
        let (run, claimed) = begun(bench, &worker, "w").await;
        bench.accept(&claimed, Decision::Fail(Failure::new(code, "other code"))).await;
        assert_eq!(undone_by(bench, run).await, None);
        let round = bench.store.retry_run(run, 1).await.expect("it goes on with the right code");
        assert_eq!(round, 2);
        let again = worker.claim_one().await;
        assert_eq!(again.steps.len(), 1, "what is done is kept");
        bench.succeed(&again).await;
    }
}

pub(crate) async fn a_lost_worker_with_no_attempt_left_lets_the_run_be_undone(bench: &Bench<'_>) {
    register(bench, "w", "a*1").await;
    let lost = bench.worker().await;
    let (run, _) = begun(bench, &lost, "w").await;
    bench.advance(LEASE + Duration::from_millis(1)).await;
    assert_eq!(bench.reap().await, 1);
    assert_eq!(bench.run_state(run).await, RunState::Failed);
    let by = undone_by(bench, run).await.expect("it is undone");
    assert_eq!(bench.worker().await.claim_one().await.task.run, by);
}

pub(crate) async fn a_child_that_is_cancelled_with_its_parent_is_undone(bench: &Bench<'_>) {
    register(bench, "p", "a").await;
    register(bench, "c", "x").await;
    let parent = bench.start("p").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    let mut run = bench.new_run("c");
    run.id = RunId::of_child(parent, 7 << 64);
    let child = run.id;
    let definition = definition("c", 1, "x");
    let held = hold(&claimed);
    let start = ChildStart { held, call: Call(1), place: Some(0), run, definition };
    let born = bench.store.start_children(vec![start]).await.expect("starting works");
    assert!(matches!(born[..], [Born::Started(_)]), "{born:?}");
    let at_work = worker.claim_one().await;
    record(bench, &at_work, vec![undoable(1, 1)]).await;
    bench.store.cancel_run(parent, None).await.expect("it runs");
    bench.promote().await;
    assert_eq!(bench.run_state(child).await, RunState::Cancelled);
    assert!(undone_by(bench, child).await.is_some());
    assert_eq!(undone_by(bench, parent).await, None, "it has nothing to undo");
}

pub(crate) async fn anyone_may_ask_to_undo_a_run_that_has_ended(bench: &Bench<'_>) {
    register(bench, "w", "a").await;
    let worker = bench.worker().await;
    let (run, claimed) = begun(bench, &worker, "w").await;
    is_conflict(bench.store.undo_run(run).await, "running");
    let missing = bench.store.undo_run(bench.run_id()).await;
    assert!(matches!(missing, Err(StoreError::NotFound(_))), "{missing:?}");
    bench.succeed(&claimed).await;
    let by = bench.store.undo_run(run).await.expect("it has succeeded");
    assert_eq!(undone_by(bench, run).await, Some(by));
    assert_eq!(bench.store.undo_run(run).await, Ok(by), "repeated");
    assert_eq!(undone_by(bench, run).await, Some(by), "once");
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
    assert_eq!(worker.claim_one().await.task.run, by);
}

pub(crate) async fn a_run_that_was_undone_cannot_be_retried(bench: &Bench<'_>) {
    register(bench, "w", "a").await;
    let worker = bench.worker().await;
    let (run, claimed) = begun(bench, &worker, "w").await;
    bench.fail(&claimed).await;
    let by = undone_by(bench, run).await.expect("it is undone");
    is_conflict(bench.store.retry_run(run, 1).await, &by.to_string());
    assert_eq!(bench.run_state(run).await, RunState::Failed);
}

pub(crate) async fn only_the_holder_of_the_lease_is_told_what_to_undo(bench: &Bench<'_>) {
    register(bench, "w", "a").await;
    let worker = bench.worker().await;
    let (run, claimed) = begun(bench, &worker, "w").await;
    bench.fail(&claimed).await;
    let undo = worker.claim_one().await;
    assert_eq!(read_undo(bench, hold(&undo)).await.expect("it is held")[0].task.run, run);
    let older = Held { fence: windlass_core::Fence(0), ..hold(&undo) };
    assert_eq!(read_undo(bench, older).await.err(), Some(Refusal::LeaseLost));
    bench.store.cancel_run(undo.task.run, None).await.expect("it runs");
    assert_eq!(read_undo(bench, hold(&undo)).await.err(), Some(Refusal::RunCancelled));
}

pub(crate) async fn what_undoes_is_told_the_tasks_that_have_something_to_undo(bench: &Bench<'_>) {
    register(bench, "w", "a b<a c<b").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    record(bench, &first, vec![undoable(1, 2), undoable(2, 1)]).await;
    bench.accept(&first, Decision::Succeed(json("[1]"))).await;
    bench.succeed(&worker.claim_one().await).await;
    let last = worker.claim_one().await;
    record(bench, &last, vec![undoable(1, 1)]).await;
    bench.fail(&last).await;
    let undo = worker.claim_one().await;
    let tasks = read_undo(bench, hold(&undo)).await.expect("it is held");
    let told: Vec<_> = tasks
        .iter()
        .map(|task| (task.task.run, task.spec.name.as_str(), task.fence, task.steps.len()))
        .collect();
    assert_eq!(told, [(run, "a", first.fence, 2), (run, "c", last.fence, 1)]);
    assert_eq!(Some(&tasks[0].input), bench.run(run).await.input.as_ref());
    assert_eq!(tasks[1].parents.len(), 1);
    assert_eq!(tasks[1].parents[0].state, TaskState::Succeeded);
}

pub(crate) async fn what_undoes_is_told_the_attempt_that_a_task_ended_with(bench: &Bench<'_>) {
    register(bench, "w", "a*2").await;
    let worker = bench.worker().await;
    let (_, claimed) = begun(bench, &worker, "w").await;
    bench.accept(&claimed, retry_after(seconds(0))).await;
    bench.promote().await;
    let last = worker.claim_one().await;
    bench.fail(&last).await;
    let undo = worker.claim_one().await;
    let tasks = read_undo(bench, hold(&undo)).await.expect("it is held");
    assert_eq!((tasks[0].fence, tasks[0].attempt), (last.fence, 2));
}

pub(crate) async fn an_undoing_that_was_given_up_is_not_begun_again(bench: &Bench<'_>) {
    register(bench, "w", "a").await;
    let worker = bench.worker().await;
    let (run, claimed) = begun(bench, &worker, "w").await;
    bench.fail(&claimed).await;
    let by = undone_by(bench, run).await.expect("it is undone");
    bench.store.cancel_run(by, None).await.expect("it runs");
    is_conflict(bench.store.undo_run(run).await, "which was cancelled");
}

pub(crate) async fn what_undoes_waits_where_the_newest_definition_says(bench: &Bench<'_>) {
    register(bench, "w", "a").await;
    let worker = bench.worker().await;
    let (_, claimed) = begun(bench, &worker, "w").await;
    bench.fail(&claimed).await;
    bench.succeed(&worker.claim_one().await).await;
    bench.register("w", "a@other").await;
    bench.start("w").await;
    let claimed = worker.claim_from("other", 1).await.remove(0);
    record(bench, &claimed, vec![undoable(1, 1)]).await;
    bench.fail(&claimed).await;
    assert_eq!(worker.claim_from("other", 1).await.len(), 1);
}
