//! Runs that durable functions start and wait for.

use windlass_core::{
    Call, Decision, Fence, Parking, RunId, RunState, StepChange, StepKind, StepName, StepResult,
    StepWrite, TaskState, Wait,
};

use super::bench::{Bench, LEASE, Worker, definition, failure, hold, json, retry_after, seconds};
use crate::store::{Born, ChildCount, ChildStart, Claimed, Refusal, Started, StoreError};

/// The start of a child of the workflow `c`.
fn child(bench: &Bench<'_>, parent: &Claimed, call: u32, place: Option<u32>) -> ChildStart {
    let hash = u128::from(call) << 96 | u128::from(place.unwrap_or(99)) << 64;
    let parent_bits = parent.task.run.as_uuid().as_u128().wrapping_mul(0x1_0001);
    let hash = hash ^ parent_bits << 52;
    let mut run = bench.new_run("c");
    run.id = RunId::of_child(parent.task.run, hash);
    let definition = definition("c", 1, "x*2");
    ChildStart { held: hold(parent), call: Call(call), place, run, definition }
}

async fn start(bench: &Bench<'_>, starts: Vec<ChildStart>) -> Vec<Born> {
    bench.store.start_children(starts).await.expect("starting works")
}

/// Starts children of call 1 and answers their ids.
async fn start_many(bench: &Bench<'_>, parent: &Claimed, count: u32) -> Vec<RunId> {
    let starts: Vec<_> = (0..count).map(|place| child(bench, parent, 1, Some(place))).collect();
    let ids: Vec<RunId> = starts.iter().map(|start| start.run.id).collect();
    for (born, id) in start(bench, starts).await.into_iter().zip(&ids) {
        assert_eq!(born, Born::Started(Started { run: *id, is_new: true }));
    }
    ids
}

/// Parks a function until no more than so many of the children of its first call run.
async fn park(bench: &Bench<'_>, parent: &Claimed, most: u32) {
    let wait = Wait::Children(most);
    let change = StepChange::Open { failures: 0, failure: None, wait };
    let name = StepName::new("c").expect("the name is fine");
    let steps = vec![StepWrite { call: Call(1), name, kind: StepKind::Child, key: None, change }];
    let parking = Parking { steps, waits: Vec::new(), awaits: true };
    bench.accept(parent, Decision::Park(parking)).await;
}

async fn count(bench: &Bench<'_>, parent: &Claimed) -> (u32, u32) {
    let count = bench.store.count_children(parent.task, Call(1)).await.expect("counting works");
    let ChildCount { started, open } = count;
    (started, open)
}

/// Claims the children that are ready, and the parent if it is.
async fn claim_children(worker: &Worker<'_>) -> Vec<Claimed> {
    worker.claim(100).await.into_iter().filter(|one| one.workflow.as_str() == "c").collect()
}

pub(crate) async fn a_child_is_started_once_however_often_it_is_asked_for(bench: &Bench<'_>) {
    bench.register("p", "a*3").await;
    bench.start("p").await;
    let worker = bench.worker().await;
    let parent = worker.claim_one().await;
    let ids = start_many(bench, &parent, 2).await;
    assert!(ids.iter().all(|id| id.may_be_child()));
    let again = vec![child(bench, &parent, 1, Some(1)), child(bench, &parent, 1, Some(2))];
    let third = again[1].run.id;
    let born = start(bench, again).await;
    let known = |run, is_new| Born::Started(Started { run, is_new });
    assert_eq!(born, [known(ids[1], false), known(third, true)]);
    assert_eq!(count(bench, &parent).await, (3, 3));
    let mut other = child(bench, &parent, 1, Some(0));
    other.run.input = json("[7]");
    let born = start(bench, vec![other]).await;
    assert!(matches!(&born[..], [Born::Failed(StoreError::Conflict(_))]), "{born:?}");
    // A run that nobody waits for is no child.
    let forgotten = child(bench, &parent, 2, None);
    let id = forgotten.run.id;
    assert_eq!(start(bench, vec![forgotten]).await, [known(id, true)]);
    let children = bench.store.list_children(parent.task, Call(2), None, 10).await;
    assert_eq!(children, Ok(Vec::new()));
    assert_eq!(bench.run_state(id).await, RunState::Running);
}

pub(crate) async fn a_stale_fence_cannot_start_a_child(bench: &Bench<'_>) {
    bench.register("p", "a*3").await;
    bench.register("c", "x*2").await;
    let run = bench.start("p").await;
    let stale = bench.worker().await.claim_one().await;
    bench.advance(LEASE).await;
    assert_eq!(bench.reap().await, 1);
    let refused = [Born::Refused(Refusal::LeaseLost)];
    assert_eq!(start(bench, vec![child(bench, &stale, 1, Some(0))]).await, refused);
    let current = bench.worker().await.claim_one().await;
    let both = vec![child(bench, &stale, 1, Some(0)), child(bench, &current, 1, Some(1))];
    let (first, second) = (both[0].run.id, both[1].run.id);
    let born = start(bench, both).await;
    assert_eq!(born[0], refused[0]);
    assert_eq!(born[1], Born::Started(Started { run: second, is_new: true }));
    assert_eq!(bench.store.get_run(first).await, Ok(None));
    bench.store.cancel_run(run, None).await.expect("cancelling works");
    let late = start(bench, vec![child(bench, &current, 1, Some(2))]).await;
    assert_eq!(late, [Born::Refused(Refusal::RunCancelled)]);
}

pub(crate) async fn a_function_goes_on_when_enough_of_its_children_have_ended(bench: &Bench<'_>) {
    bench.register("p", "a*3").await;
    bench.register("c", "x*2").await;
    let run = bench.start("p").await;
    let worker = bench.worker().await;
    let parent = worker.claim_one().await;
    start_many(bench, &parent, 3).await;
    park(bench, &parent, 1).await;
    assert_eq!(bench.task(run, "a").await.state, TaskState::Waiting);
    let children = claim_children(&worker).await;
    assert_eq!(children.len(), 3);
    bench.succeed(&children[0]).await;
    assert_eq!(bench.promote().await, 1);
    assert_eq!(bench.task(run, "a").await.state, TaskState::Waiting);
    assert_eq!(count(bench, &parent).await, (3, 2));
    bench.accept(&children[2], Decision::Fail(failure())).await;
    assert_eq!(bench.promote().await, 1);
    assert_eq!(bench.task(run, "a").await.state, TaskState::Ready);
    assert_eq!(bench.promote().await, 0);
    let again = worker.claim_one().await;
    assert_eq!((again.fence, again.attempt, again.round), (Fence(2), 1, 1));
    let ends =
        bench.store.list_children(again.task, Call(1), None, 10).await.expect("listing works");
    let states: Vec<_> = ends.iter().map(|child| (child.place, child.state)).collect();
    let expected = [(0, RunState::Succeeded), (1, RunState::Running), (2, RunState::Failed)];
    assert_eq!(states, expected);
    assert!(matches!(&ends[0].result, Some(StepResult::Value(_))));
    assert_eq!(ends[1].result, None);
    assert_eq!(ends[2].result, Some(StepResult::Failed(failure().permanent())));
    let page = bench.store.list_children(again.task, Call(1), Some(1), 1).await;
    assert_eq!(page.expect("listing works"), ends[2..]);
    assert_eq!(bench.history(run, "a").await, "queued started parked resumed started");
}

pub(crate) async fn a_function_does_not_wait_for_children_that_have_ended(bench: &Bench<'_>) {
    bench.register("p", "a*3").await;
    bench.register("c", "x*2").await;
    let run = bench.start("p").await;
    let worker = bench.worker().await;
    let parent = worker.claim_one().await;
    start_many(bench, &parent, 2).await;
    for child in claim_children(&worker).await {
        bench.succeed(&child).await;
    }
    // Nobody has swept: it looks itself.
    park(bench, &parent, 0).await;
    assert_eq!(bench.task(run, "a").await.state, TaskState::Ready);
    let again = worker.claim_one().await;
    bench.promote().await;
    bench.succeed(&again).await;
}

pub(crate) async fn the_end_of_a_child_while_its_parent_runs_is_not_lost(bench: &Bench<'_>) {
    bench.register("p", "a*3").await;
    bench.register("c", "x*2").await;
    let run = bench.start("p").await;
    let worker = bench.worker().await;
    let parent = worker.claim_one().await;
    start_many(bench, &parent, 1).await;
    for child in claim_children(&worker).await {
        bench.succeed(&child).await;
    }
    assert_eq!(bench.promote().await, 1);
    assert_eq!(bench.task(run, "a").await.state, TaskState::Running);
    bench.accept(&parent, retry_after(seconds(1))).await;
    bench.advance(seconds(1)).await;
    bench.promote().await;
    let second = worker.claim_one().await;
    assert_eq!(count(bench, &second).await, (1, 0));
    park(bench, &second, 0).await;
    assert_eq!(bench.task(run, "a").await.state, TaskState::Ready);
}

pub(crate) async fn cancelling_a_run_cancels_its_children_and_theirs(bench: &Bench<'_>) {
    bench.register("p", "a*3").await;
    bench.register("c", "x*2").await;
    let run = bench.start("p").await;
    let worker = bench.worker().await;
    let parent = worker.claim_one().await;
    let ids = start_many(bench, &parent, 3).await;
    park(bench, &parent, 0).await;
    let children = claim_children(&worker).await;
    bench.succeed(&children[0]).await;
    bench.promote().await;
    let grandchildren = start_many(bench, &children[1], 1).await;
    bench.store.cancel_run(run, None).await.expect("cancelling works");
    while bench.promote().await > 0 {}
    assert_eq!(bench.run_state(children[0].task.run).await, RunState::Succeeded);
    let rest = ids.iter().filter(|id| **id != children[0].task.run).chain(&grandchildren);
    for id in rest {
        assert_eq!(bench.run_state(*id).await, RunState::Cancelled, "{id}");
    }
    let held = bench.finish(&children[2], retry_after(seconds(1))).await;
    assert_eq!(held, crate::store::Answer::Refused(Refusal::RunCancelled));
}

pub(crate) async fn a_child_that_is_due_when_it_is_cancelled_is_not_claimed(bench: &Bench<'_>) {
    bench.register("p", "a*3").await;
    bench.register("c", "x*2").await;
    let run = bench.start("p").await;
    let worker = bench.worker().await;
    let parent = worker.claim_one().await;
    let ids = start_many(bench, &parent, 1).await;
    let child = claim_children(&worker).await.remove(0);
    bench.accept(&child, retry_after(seconds(1))).await;
    park(bench, &parent, 0).await;
    bench.store.cancel_run(run, None).await.expect("cancelling works");
    bench.advance(seconds(1)).await;
    // The same sweep finds that the child is due and that it is to be cancelled.
    bench.promote().await;
    assert_eq!(bench.run_state(ids[0]).await, RunState::Cancelled);
    assert_eq!(worker.claim(100).await.len(), 0, "nothing of it is left to do");
}

pub(crate) async fn a_retried_function_starts_its_children_anew(bench: &Bench<'_>) {
    bench.register("p", "a").await;
    bench.register("c", "x*2").await;
    let run = bench.start("p").await;
    let worker = bench.worker().await;
    let parent = worker.claim_one().await;
    start_many(bench, &parent, 2).await;
    bench.accept(&parent, Decision::Fail(failure())).await;
    assert_eq!(bench.store.retry_run(run, 1).await, Ok(2));
    let again = worker.claim_from("default", 10).await;
    let again = again.into_iter().find(|one| one.task.run == run).expect("it is ready");
    assert_eq!(again.round, 2);
    assert_eq!(count(bench, &again).await, (0, 0), "those of the last round are not its");
}

pub(crate) async fn a_child_that_is_retried_is_waited_for_again(bench: &Bench<'_>) {
    bench.register("p", "a*3").await;
    bench.register("c", "x").await;
    let run = bench.start("p").await;
    let worker = bench.worker().await;
    let parent = worker.claim_one().await;
    let mut start = child(bench, &parent, 1, Some(0));
    start.definition = definition("c", 1, "x");
    let id = start.run.id;
    bench.store.start_children(vec![start]).await.expect("starting works");
    let born = claim_children(&worker).await;
    bench.accept(&born[0], Decision::Fail(failure())).await;
    bench.promote().await;
    assert_eq!(count(bench, &parent).await, (1, 0));
    assert_eq!(bench.store.retry_run(id, 1).await, Ok(2));
    assert_eq!(count(bench, &parent).await, (1, 1));
    park(bench, &parent, 0).await;
    assert_eq!(bench.task(run, "a").await.state, TaskState::Waiting);
    let again = claim_children(&worker).await;
    bench.succeed(&again[0]).await;
    bench.promote().await;
    assert_eq!(bench.task(run, "a").await.state, TaskState::Ready);
}

pub(crate) async fn a_child_that_is_retried_before_its_end_is_heard_of_has_not_ended(
    bench: &Bench<'_>,
) {
    bench.register("p", "a*3").await;
    bench.register("c", "x").await;
    let run = bench.start("p").await;
    let worker = bench.worker().await;
    let parent = worker.claim_one().await;
    let mut start = child(bench, &parent, 1, Some(0));
    start.definition = definition("c", 1, "x");
    let id = start.run.id;
    bench.store.start_children(vec![start]).await.expect("starting works");
    let born = claim_children(&worker).await;
    bench.accept(&born[0], Decision::Fail(failure())).await;
    assert_eq!(bench.store.retry_run(id, 1).await, Ok(2));
    // Its parent is told of an end that was taken back.
    while bench.promote().await > 0 {}
    assert_eq!(count(bench, &parent).await, (1, 1));
    bench.store.cancel_run(run, None).await.expect("cancelling works");
    while bench.promote().await > 0 {}
    assert_eq!(bench.run_state(id).await, RunState::Cancelled);
}

pub(crate) async fn many_children_are_started_and_counted(bench: &Bench<'_>) {
    bench.register("p", "a*3").await;
    bench.register("c", "x*2").await;
    let run = bench.start("p").await;
    let worker = bench.worker().await;
    let parent = worker.claim_one().await;
    start_many(bench, &parent, 300).await;
    park(bench, &parent, 0).await;
    let mut ended = 0;
    loop {
        let batch = claim_children(&worker).await;
        if batch.is_empty() {
            break;
        }
        for child in batch {
            bench.succeed(&child).await;
            ended += 1;
        }
        let before = bench.task(run, "a").await.state;
        while bench.promote().await > 0 {}
        let state = bench.task(run, "a").await.state;
        let expected = if ended == 300 { TaskState::Ready } else { TaskState::Waiting };
        assert_eq!((before, state), (TaskState::Waiting, expected), "{ended}");
    }
    assert_eq!(ended, 300);
}

pub(crate) async fn a_run_has_one_parent_the_first(bench: &Bench<'_>) {
    bench.register("p", "a*3").await;
    bench.register("c", "x*2").await;
    let worker = bench.worker().await;
    bench.start("p").await;
    bench.start("p").await;
    let parents = worker.claim(2).await;
    let first = child(bench, &parents[0], 1, Some(0));
    let id = first.run.id;
    let second = ChildStart { held: hold(&parents[1]), ..first.clone() };
    let born = start(bench, vec![first, second]).await;
    let known = |is_new| Born::Started(Started { run: id, is_new });
    assert_eq!(born, [known(true), known(false)]);
    assert_eq!(count(bench, &parents[0]).await, (1, 1));
    assert_eq!(count(bench, &parents[1]).await, (0, 0));
}

pub(crate) async fn a_retry_keeps_the_children_of_tasks_that_stay(bench: &Bench<'_>) {
    bench.register("p", "a b").await;
    bench.register("c", "x*2").await;
    let run = bench.start("p").await;
    let worker = bench.worker().await;
    let parents = worker.claim(2).await;
    start_many(bench, &parents[0], 2).await;
    bench.succeed(&parents[0]).await;
    bench.fail(&parents[1]).await;
    assert_eq!(bench.store.retry_run(run, 1).await, Ok(2));
    assert_eq!(count(bench, &parents[0]).await, (2, 2));
}
