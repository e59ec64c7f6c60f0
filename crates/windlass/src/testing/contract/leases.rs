//! Leases: kept by heartbeats alone, and what happens when they are not kept.

use std::sync::Arc;

use windlass_core::{
    ClaimSeq, Decision, FailureCode, Fence, RunState, TaskEventKind, TaskId, TaskIndex, TaskState,
    WorkerLost,
};

use super::bench::{
    Bench, LEASE, TICK, Worker, definition, hold, json, payload_of, retry_after, seconds, success,
};
use crate::store::{Answer, Claimed, Heartbeat, Hello, Lost, ProgressNote, Refusal, StoreError};

const LEASE_LOST: Answer = Answer::Refused(Refusal::LeaseLost);

pub(crate) async fn a_lease_is_not_reaped_before_it_ends(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    // The lease begins with the claim, not when the worker joined.
    bench.advance(seconds(7)).await;
    worker.claim_one().await;
    let until = bench.now().await + LEASE;
    bench.advance(LEASE - TICK).await;
    assert_eq!(bench.store.reap(10).await, bench.swept(0, Some(until)).await);
    bench.advance(TICK).await;
    let sweep = bench.store.reap(10).await.expect("reaping works");
    assert_eq!(sweep.moved, 1, "what a sweep announced is due then");
    let task = bench.task(run, "a").await;
    assert_eq!((task.state, task.fence, task.attempt), (TaskState::Ready, Fence(1), 1));
    assert_eq!(bench.history(run, "a").await, "queued started lease_expired");
}

pub(crate) async fn a_reaped_task_tells_whose_lease_ended_and_when(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let until = bench.now().await + LEASE;
    worker.claim_one().await;
    bench.advance(LEASE + seconds(7)).await;
    bench.reap().await;
    let events = bench.events(run).await;
    let last = events.last().and_then(|event| event.task()).expect("a task event is last");
    let expected =
        TaskEventKind::LeaseExpired { worker: worker.id, lease_until: until, failure: None };
    assert_eq!(last.kind, expected);
}

pub(crate) async fn a_heartbeat_keeps_every_task_of_its_worker(bench: &Bench<'_>) {
    bench.register("w", "a b c").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim(3).await;
    let held: Vec<&Claimed> = claimed.iter().collect();
    for _ in 0..5 {
        bench.advance(LEASE - TICK).await;
        let answer = worker.extend(&held).await;
        assert_eq!(answer.lost, []);
        assert_eq!(bench.reap().await, 0);
    }
    for task in &claimed {
        bench.succeed(task).await;
    }
}

pub(crate) async fn a_heartbeat_keeps_nobody_elses_tasks(bench: &Bench<'_>) {
    bench.register("w", "a b").await;
    let run = bench.start("w").await;
    let (alive, silent) = (bench.worker().await, bench.worker().await);
    let kept = alive.claim_one().await;
    let lost = silent.claim_one().await;
    bench.advance(LEASE - TICK).await;
    alive.extend(&[&kept]).await;
    bench.advance(TICK).await;
    assert_eq!(bench.reap().await, 1);
    assert_eq!(bench.states(run).await, "running ready");
    assert_eq!(bench.finish(&lost, success()).await, LEASE_LOST);
    bench.succeed(&kept).await;
}

pub(crate) async fn each_worker_has_the_lease_it_asked_for(bench: &Bench<'_>) {
    bench.register("w", "a b").await;
    let run = bench.start("w").await;
    let short = bench.worker_with_lease(seconds(10)).await;
    let long = bench.worker_with_lease(seconds(50)).await;
    short.claim_one().await;
    long.claim_one().await;
    let begin = bench.now().await;
    let sweep = bench.store.reap(10).await;
    assert_eq!(sweep, bench.swept(0, Some(begin + seconds(10))).await);
    bench.advance(seconds(10)).await;
    let sweep = bench.store.reap(10).await;
    assert_eq!(sweep, bench.swept(1, Some(begin + seconds(50))).await);
    assert_eq!(bench.states(run).await, "ready running");
    bench.advance(seconds(40)).await;
    assert_eq!(bench.store.reap(10).await.map(|sweep| sweep.moved), Ok(1));
}

pub(crate) async fn neither_a_claim_nor_a_finish_keeps_a_lease(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "t", 3).await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    bench.advance(LEASE - TICK).await;
    let second = worker.claim_one().await;
    bench.succeed(&first).await;
    assert_eq!(bench.reap().await, 0);
    bench.advance(TICK).await;
    assert_eq!(bench.reap().await, 1);
    assert_eq!(bench.finish(&second, success()).await, LEASE_LOST);
}

pub(crate) async fn a_lease_begins_anew_when_a_worker_without_tasks_claims(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "t", 2).await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    bench.advance(LEASE - TICK).await;
    bench.succeed(&first).await;
    let second = worker.claim_one().await;
    bench.advance(LEASE - TICK).await;
    assert_eq!(bench.reap().await, 0);
    bench.succeed(&second).await;
}

pub(crate) async fn a_dead_worker_learns_it_from_its_heartbeat(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    bench.advance(LEASE).await;
    bench.reap().await;
    let left = bench.worker().await;
    left.leave().await;
    for dead in [&worker, &left, &bench.stranger()] {
        let answer = bench.store.extend(dead.heartbeat(&[&claimed])).await;
        assert_eq!(answer, Err(StoreError::LeaseLost(dead.id)));
    }
}

pub(crate) async fn a_worker_without_tasks_need_not_say_anything(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let (fresh, finished) = (bench.worker().await, bench.worker().await);
    bench.start("w").await;
    bench.succeed(&finished.claim_one().await).await;
    bench.advance(LEASE * 10).await;
    assert_eq!(bench.reap().await, 0);
    let runs = bench.start_for("w", "t", 2).await;
    for (worker, run) in [fresh, finished].iter().zip(runs) {
        let claimed = worker.claim_one().await;
        assert_eq!(claimed.task.run, run);
        assert_eq!(worker.extend(&[&claimed]).await.lost, []);
        bench.succeed(&claimed).await;
    }
}

pub(crate) async fn a_first_heartbeat_that_never_came_does_not_keep_a_lease(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    bench.advance(LEASE * 10).await;
    worker.claim_one().await;
    bench.advance(LEASE).await;
    assert_eq!(bench.reap().await, 1);
    assert_eq!(bench.worker().await.claim(1).await.len(), 1);
}

pub(crate) async fn a_worker_that_joins_again_while_it_lives_is_fine(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    assert_eq!(bench.store.join(worker.hello(LEASE)).await, Ok(()), "its answer was lost");
    bench.succeed(&claimed).await;
}

pub(crate) async fn a_dead_id_never_lives_again(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let (silent, left) = (bench.worker().await, bench.worker().await);
    silent.claim_one().await;
    left.leave().await;
    bench.advance(LEASE).await;
    assert_eq!(bench.reap().await, 1);
    for worker in [silent, left] {
        let answer = bench.store.join(worker.hello(LEASE)).await;
        assert_eq!(answer, Err(StoreError::LeaseLost(worker.id)));
    }
}

pub(crate) async fn a_worker_makes_its_workflows_known_when_it_joins(bench: &Bench<'_>) {
    let hello = |worker: &Worker<'_>, tasks| Hello {
        definitions: vec![definition("w", 1, tasks)],
        ..worker.hello(LEASE)
    };
    let worker = bench.stranger();
    assert_eq!(bench.store.join(hello(&worker, "a b<a")).await, Ok(()));
    bench.register("w", "a b<a").await;
    bench.start("w").await;
    assert_eq!(worker.claim(10).await.len(), 1);
    let other = bench.stranger();
    let answer = bench.store.join(hello(&other, "a b")).await;
    assert!(matches!(answer, Err(StoreError::Conflict(_))), "{answer:?}");
    let answer = other.try_claim(1).await.map(|claimed| claimed.len());
    assert_eq!(answer, Err(StoreError::LeaseLost(other.id)), "it has not joined");
}

pub(crate) async fn a_worker_that_cannot_join_makes_nothing_known(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    let worker = bench.stranger();
    let definitions = vec![definition("new", 1, "a"), definition("w", 1, "a b")];
    let answer = bench.store.join(Hello { definitions, ..worker.hello(LEASE) }).await;
    assert!(matches!(answer, Err(StoreError::Conflict(_))), "{answer:?}");
    let answers = bench.store.start_runs(vec![bench.new_run("new")]).await;
    let answers = answers.expect("the batch is within its limit");
    assert!(matches!(answers[..], [Err(StoreError::NotFound(_))]), "{answers:?}");
}

pub(crate) async fn a_zombie_cannot_finish_what_was_reaped(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    let zombie = bench.worker().await;
    let stale = zombie.claim_one().await;
    bench.advance(LEASE).await;
    assert_eq!(bench.reap().await, 1);
    assert_eq!(bench.finish(&stale, success()).await, LEASE_LOST, "it is back in its queue");
    assert_eq!(bench.release(&stale, seconds(0)).await, LEASE_LOST);
    let current = bench.worker().await.claim_one().await;
    assert_eq!((current.fence, current.attempt), (Fence(2), 2));
    assert_eq!(bench.finish(&stale, success()).await, LEASE_LOST);
    bench.succeed(&current).await;
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
}

pub(crate) async fn a_task_that_must_not_be_begun_twice_fails_with_its_worker(bench: &Bench<'_>) {
    let mut draft = definition("w", 1, "a*3 b<a c*3").to_draft();
    draft.tasks[0].on_worker_lost = WorkerLost::Fail;
    let definition = Arc::new(draft.build().expect("the workflow is valid"));
    bench.try_register(definition).await.expect("registering works");
    let run = bench.start("w").await;
    assert_eq!(bench.worker().await.claim(2).await.len(), 2);
    bench.advance(LEASE).await;
    assert_eq!(bench.reap().await, 2);
    assert_eq!(bench.states(run).await, "failed skipped ready", "each by its own policy");
    let failure = bench.task(run, "a").await.failure.expect("it failed");
    assert_eq!((failure.code, failure.is_retryable), (FailureCode::LeaseExpired, false));
    assert_eq!(bench.history(run, "a").await, "queued started lease_expired");
    // What is not lost is tried again as the retry policy says.
    let worker = bench.worker().await;
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.run_state(run).await, RunState::Failed);
    assert_eq!(bench.store.retry_run(run, 1).await, Ok(2));
    let again = worker.claim_one().await;
    bench.accept(&again, retry_after(seconds(1))).await;
    assert_eq!(bench.states(run).await, "scheduled pending succeeded");
}

/// A workflow whose task `a` is taken away twenty seconds after its claim; `b` is not.
async fn register_limited(bench: &Bench<'_>) {
    let mut draft = definition("w", 1, "a*2 b*2").to_draft();
    draft.tasks[0].visibility_timeout = Some(seconds(20));
    let definition = Arc::new(draft.build().expect("the workflow is valid"));
    bench.try_register(definition).await.expect("registering works");
}

pub(crate) async fn a_visibility_timeout_ends_a_lease_whatever_its_worker_says(bench: &Bench<'_>) {
    register_limited(bench).await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim(2).await;
    let [a, b] = [&claimed[0], &claimed[1]];
    let until = bench.now().await + seconds(20);
    let sweep = bench.store.reap(100).await.expect("reaping works");
    assert_eq!((sweep.moved, sweep.next_at), (0, Some(until)), "the duty knows when");
    bench.advance(seconds(20) - TICK).await;
    worker.extend(&[a, b]).await;
    assert_eq!(bench.reap().await, 0, "not early");
    bench.advance(TICK).await;
    assert_eq!(bench.reap().await, 1);
    assert_eq!(bench.states(run).await, "ready running");
    assert_eq!(bench.history(run, "a").await, "queued started lease_expired");
    // The worker lives on with what is its own, and learns what is not.
    let answer = worker.extend(&[a, b]).await;
    assert_eq!(answer.lost, [Lost { held: hold(a), refusal: Refusal::LeaseLost }]);
    assert_eq!(bench.finish(a, success()).await, LEASE_LOST);
    let again = worker.claim_one().await;
    assert_eq!((again.attempt, again.fence), (2, a.fence.next()));
    bench.succeed(b).await;
    // Its last attempt: it fails with all that follows.
    bench.advance(seconds(20)).await;
    worker.extend(&[&again]).await;
    assert_eq!(bench.reap().await, 1);
    assert_eq!(bench.run_state(run).await, RunState::Failed);
    let sweep = bench.store.reap(100).await.expect("reaping works");
    assert_eq!((sweep.moved, sweep.next_at), (0, None));
}

pub(crate) async fn a_visibility_timeout_counts_from_each_claim_and_for_its_task_alone(
    bench: &Bench<'_>,
) {
    register_limited(bench).await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim(2).await;
    bench.release(&claimed[0], seconds(0)).await;
    bench.advance(seconds(15)).await;
    worker.extend(&[&claimed[1]]).await;
    let again = worker.claim_one().await;
    bench.advance(seconds(15)).await;
    worker.extend(&[&again, &claimed[1]]).await;
    assert_eq!(bench.reap().await, 0, "that of the claim before is over");
    bench.succeed(&again).await;
    bench.advance(seconds(15)).await;
    worker.extend(&[&claimed[1]]).await;
    assert_eq!(bench.reap().await, 0);
    bench.succeed(&claimed[1]).await;
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
}

pub(crate) async fn a_task_whose_last_attempt_is_lost_fails_with_all_that_follows(
    bench: &Bench<'_>,
) {
    bench.register("w", "a*2 b<a c<b d<a?failed").await;
    let run = bench.start("w").await;
    let mut stale = Vec::new();
    for _ in 0..2 {
        stale.push(bench.worker().await.claim_one().await);
        bench.advance(LEASE).await;
        assert_eq!(bench.reap().await, 1);
    }
    assert_eq!(bench.states(run).await, "failed skipped skipped ready");
    let failure = bench.task(run, "a").await.failure.expect("it failed");
    assert_eq!(failure.code, FailureCode::LeaseExpired);
    assert_eq!(failure.message, "the worker of attempt 2 of 2 was lost");
    for claimed in &stale {
        assert_eq!(bench.finish(claimed, success()).await, LEASE_LOST, "not accepted already");
    }
    let worker = bench.worker().await;
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.run_state(run).await, RunState::Failed);
}

pub(crate) async fn a_lost_last_task_ends_its_run(bench: &Bench<'_>) {
    bench.register("w", "a*1").await;
    let run = bench.start("w").await;
    bench.worker().await.claim_one().await;
    bench.advance(LEASE).await;
    assert_eq!(bench.reap().await, 1);
    assert_eq!(bench.run_state(run).await, RunState::Failed);
    assert_eq!(bench.run(run).await.ended_at, Some(bench.now().await));
}

pub(crate) async fn tasks_of_a_lost_answer_go_back_without_costing_an_attempt(bench: &Bench<'_>) {
    bench.register("w", "a*1").await;
    let runs = bench.start_for("w", "t", 3).await;
    let worker = bench.worker().await;
    let kept = worker.claim_one().await;
    // The answer of this claim never arrives: the worker does not hold the task.
    worker.claim_one().await;
    let answer = worker.extend(&[&kept]).await;
    assert_eq!(answer.lost, []);
    let task = bench.task(runs[1], "a").await;
    assert_eq!((task.state, task.attempt, task.fence), (TaskState::Ready, 0, Fence(1)));
    assert_eq!(bench.task(runs[0], "a").await.state, TaskState::Running);
    let again = bench.worker().await.claim_one().await;
    assert_eq!((again.task.run, again.attempt, again.fence), (runs[1], 1, Fence(2)));
}

pub(crate) async fn tasks_of_a_claim_that_is_not_settled_stay(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let runs = bench.start_for("w", "t", 2).await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    let on_its_way = worker.claim_one().await;
    let heartbeat = Heartbeat { settled: ClaimSeq(1), ..worker.heartbeat(&[&first]) };
    let answer = bench.store.extend(heartbeat).await.expect("the worker lives");
    assert_eq!(answer.lost, []);
    assert_eq!(bench.task(runs[1], "a").await.state, TaskState::Running);
    bench.succeed(&on_its_way).await;
}

pub(crate) async fn a_heartbeat_names_what_is_lost_and_why(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let runs = bench.start_for("w", "t", 3).await;
    let worker = bench.worker().await;
    let claimed = worker.claim(3).await;
    bench.store.cancel_run(runs[1], None).await.expect("it can be cancelled");
    assert_eq!(bench.release(&claimed[2], seconds(0)).await, Answer::Accepted);
    let task = TaskId { run: bench.run_id(), index: TaskIndex(0) };
    let unknown = Claimed { task, ..claimed[0].clone() };
    let answer = worker.extend(&[&claimed[0], &claimed[1], &claimed[2], &unknown]).await;
    let lost = |claimed: &Claimed, refusal| Lost { held: hold(claimed), refusal };
    let mut found = answer.lost;
    found.sort_by_key(|lost| lost.held.task);
    let mut expected = [
        lost(&claimed[1], Refusal::RunCancelled),
        lost(&claimed[2], Refusal::LeaseLost),
        lost(&unknown, Refusal::UnknownTask),
    ];
    expected.sort_by_key(|lost| lost.held.task);
    assert_eq!(found, expected);
}

pub(crate) async fn a_heartbeat_with_a_stale_fence_holds_nothing(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    bench.accept(&first, retry_after(seconds(0))).await;
    bench.promote().await;
    let second = bench.worker().await.claim_one().await;
    let answer = worker.extend(&[&first]).await;
    let refusal = Refusal::LeaseLost;
    assert_eq!(answer.lost, [Lost { held: hold(&first), refusal }]);
    assert_eq!(bench.task(run, "a").await.fence, second.fence);
    assert_eq!(bench.task(run, "a").await.state, TaskState::Running);
    bench.succeed(&second).await;
}

pub(crate) async fn a_heartbeat_may_name_a_task_by_an_old_fence_as_well(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    bench.accept(&first, retry_after(seconds(0))).await;
    bench.promote().await;
    let second = worker.claim_one().await;
    let refusal = Refusal::LeaseLost;
    for held in [[&second, &first], [&first, &second]] {
        let answer = worker.extend(&held).await;
        assert_eq!(answer.lost, [Lost { held: hold(&first), refusal }]);
        assert_eq!(bench.task(run, "a").await.state, TaskState::Running);
    }
    bench.succeed(&second).await;
}

pub(crate) async fn a_progress_note_is_kept_and_one_with_a_stale_fence_is_not(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let note =
        |claimed: &Claimed, text: &str| ProgressNote { held: hold(claimed), note: json(text) };
    let zombie = bench.worker().await;
    let stale = zombie.claim_one().await;
    let progress = vec![note(&stale, "10")];
    let heartbeat = Heartbeat { progress, ..zombie.heartbeat(&[&stale]) };
    bench.store.extend(heartbeat).await.expect("the worker lives");
    assert_eq!(bench.task(run, "a").await.progress, Some(json("10")));
    bench.accept(&stale, retry_after(seconds(0))).await;
    bench.promote().await;
    let owner = bench.worker().await;
    let current = owner.claim_one().await;
    let progress = vec![note(&current, "20")];
    let heartbeat = Heartbeat { progress, ..owner.heartbeat(&[&current]) };
    bench.store.extend(heartbeat).await.expect("the worker lives");
    let progress = vec![note(&stale, "99")];
    let heartbeat = Heartbeat { progress, ..zombie.heartbeat(&[]) };
    bench.store.extend(heartbeat).await.expect("the worker lives");
    assert_eq!(bench.task(run, "a").await.progress, Some(json("20")));
}

pub(crate) async fn a_note_on_a_task_that_is_given_up_with_it_is_not_kept(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    let progress = vec![ProgressNote { held: hold(&claimed), note: json("10") }];
    let heartbeat = Heartbeat { progress, ..worker.heartbeat(&[]) };
    bench.store.extend(heartbeat).await.expect("it lives");
    let task = bench.task(run, "a").await;
    assert_eq!((task.state, task.progress), (TaskState::Ready, None));
}

pub(crate) async fn a_progress_note_over_the_limit_is_dropped(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    let limit = bench.store.payload_limit().get();
    for bytes in [limit, limit + 1] {
        let progress = vec![ProgressNote { held: hold(&claimed), note: payload_of(bytes) }];
        let heartbeat = Heartbeat { progress, ..worker.heartbeat(&[&claimed]) };
        let answer = bench.store.extend(heartbeat).await.expect("the worker lives");
        assert!(answer.lost.is_empty(), "{answer:?}");
        assert_eq!(bench.task(run, "a").await.progress, Some(payload_of(limit)));
    }
}

pub(crate) async fn a_worker_that_leaves_gives_its_tasks_back_at_the_cost_of_an_attempt(
    bench: &Bench<'_>,
) {
    bench.register("w", "a*2 last*1").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim(2).await;
    worker.leave().await;
    assert_eq!(bench.states(run).await, "ready failed");
    assert_eq!(bench.task(run, "a").await.attempt, 1);
    for task in &claimed {
        assert_eq!(bench.finish(task, success()).await, LEASE_LOST);
    }
    worker.leave().await;
    let again = bench.worker().await.claim_one().await;
    assert_eq!((again.attempt, again.fence), (2, Fence(2)));
    bench.accept(&again, Decision::Skip).await;
    assert_eq!(bench.run_state(run).await, RunState::Failed);
}

pub(crate) async fn a_reaper_goes_on_where_its_batch_ended(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "t", 5).await;
    let dead = bench.worker().await;
    dead.claim(3).await;
    let also_dead = bench.worker().await;
    also_dead.claim(2).await;
    bench.advance(LEASE).await;
    let now = bench.now().await;
    for expected in [2, 2, 1] {
        let sweep = bench.store.reap(2).await.expect("reaping works");
        assert_eq!(sweep.moved, expected);
        if expected == 2 {
            let next = sweep.next_at.expect("there is more to do");
            assert!(next <= now, "the rest is due at {next:?}, it is {now:?}");
        }
        for worker in [&dead, &also_dead] {
            let claim = worker.try_claim(1).await.map(|claimed| claimed.len());
            assert_eq!(claim, Err(StoreError::LeaseLost(worker.id)));
        }
    }
    assert_eq!(bench.store.reap(2).await, bench.swept(0, None).await);
    assert_eq!(bench.worker().await.claim(10).await.len(), 5);
}

pub(crate) async fn nothing_is_due_when_no_task_is_held(bench: &Bench<'_>) {
    assert_eq!(bench.store.reap(10).await, bench.swept(0, None).await);
    assert_eq!(bench.store.promote_due(10).await, bench.swept(0, None).await);
}

pub(crate) async fn the_next_attempt_is_told_why_the_last_one_failed(bench: &Bench<'_>) {
    bench.register("w", "a*3").await;
    let run = bench.start("w").await;
    let lost = bench.worker().await;
    let first = lost.claim_one().await;
    assert_eq!(first.last_failure, None);
    bench.advance(LEASE + TICK).await;
    assert_eq!(bench.reap().await, 1);
    let worker = bench.worker().await;
    let second = worker.claim_one().await;
    let failure = second.last_failure.clone().expect("its worker was lost");
    assert_eq!(failure.code, FailureCode::LeaseExpired);
    assert_eq!(failure.message, "the worker of attempt 1 of 3 was lost");
    assert_eq!(bench.task(run, "a").await.failure, Some(failure));
    bench.accept(&second, retry_after(seconds(1))).await;
    bench.advance(seconds(1)).await;
    bench.promote().await;
    let third = worker.claim_one().await;
    assert_eq!(third.last_failure, Some(super::bench::failure()));
    bench.succeed(&third).await;
}

pub(crate) async fn a_worker_that_was_silent_for_hours_loses_its_tasks(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    bench.worker().await.claim_one().await;
    // A worker without tasks is removed after an hour, and this one has a task.
    bench.advance(seconds(3 * 3_600)).await;
    assert_eq!(bench.reap().await, 1);
    assert_eq!(bench.history(run, "a").await, "queued started lease_expired");
    assert_eq!(bench.worker().await.claim(1).await.len(), 1);
}

pub(crate) async fn a_repeated_join_does_not_renew_a_lease(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    bench.advance(LEASE - TICK).await;
    assert_eq!(bench.store.join(worker.hello(LEASE)).await, Ok(()));
    bench.advance(TICK).await;
    assert_eq!(bench.reap().await, 1);
    assert_eq!(bench.finish(&claimed, success()).await, LEASE_LOST);
}

pub(crate) async fn a_reaper_counts_lost_workers_and_visibility_timeouts_together(
    bench: &Bench<'_>,
) {
    bench.register("plain", "a").await;
    bench.start_for("plain", "t", 2).await;
    let lost = bench.worker_with_lease(seconds(20)).await;
    assert_eq!(lost.claim(2).await.len(), 2);
    register_limited(bench).await;
    bench.start_for("w", "t", 2).await;
    let alive = bench.worker().await;
    assert_eq!(alive.claim(4).await.len(), 4, "two of them have a visibility timeout");
    bench.advance(seconds(20)).await;
    for expected in [3, 1, 0] {
        let sweep = bench.store.reap(3).await.expect("reaping works");
        assert_eq!(sweep.moved, expected);
    }
}
