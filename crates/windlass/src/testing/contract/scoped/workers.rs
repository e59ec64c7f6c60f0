//! Working.

use std::sync::Arc;

use windlass_core::why::{Missing, Served};
use windlass_core::{Call, ClaimSeq, QueueName, Reason, RunId};

use super::super::bench::{
    Bench, LEASE, completion, definition, hold, json, names, retry_after, seconds, success, tenant,
    tenants,
};
use super::{acme, step, two};
use crate::store::{
    Answer, Born, Checkpoint, ChildCount, ChildStart, ClaimRequest, Claimed, Heartbeat, Hello,
    Lost, NewRun, ProgressNote, Recording, Refusal, Release, RunFilter, ScopedStore, Store as _,
    StoreError, TakeSignal, Which, WorkerFilter, WorkerLink, WorkerState,
};

fn is_forbidden<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Forbidden(_)))
}

pub(crate) async fn a_worker_of_a_tenant_works_for_it_alone(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    bench.start_for("w", "zenith", 2).await;
    bench.start_for("w", "acme", 2).await;
    let (scope, worker) = (acme(bench), bench.stranger());
    let unknown = Hello { definitions: vec![definition("v", 1, "a")], ..worker.hello(LEASE) };
    assert!(is_forbidden(&scope.join(unknown).await), "it brings no workflow that nobody has");
    let hello = Hello { definitions: vec![definition("w", 1, "a b<a")], ..worker.hello(LEASE) };
    scope.join(hello).await.expect("it brings what is known");
    let claimed = scope.claim(worker.request(1)).await.expect("it lives");
    assert_eq!(tenants(&claimed), ["acme"]);
    let named = ClaimRequest { tenant: Some(tenant("zenith")), ..worker.request(9) };
    assert!(is_forbidden(&scope.claim(named).await));
    let many = scope.claim_many(vec![worker.request(9)]).await.remove(0).expect("it lives");
    assert_eq!(tenants(&many), ["acme"]);
    let done = vec![completion(&claimed[0], success())];
    let finished = scope.finish_and_claim(done, worker.request(9)).await.expect("it lives");
    assert_eq!(finished.answers, [Answer::Accepted]);
    let mut next = finished.claimed;
    next.extend(scope.claim(worker.request(9)).await.expect("it lives"));
    assert_eq!((names(&next), tenants(&next)), (vec!["b"], vec!["acme"]));
    let held: Vec<&Claimed> = many.iter().chain(&next).collect();
    let beat = worker.heartbeat(&held);
    assert_eq!(scope.extend(beat).await.expect("it lives").lost, []);
    let mark = Checkpoint { held: hold(&next[0]), number: 1, value: json("1") };
    assert_eq!(scope.checkpoint(vec![mark]).await, Ok(vec![Answer::Accepted]));
    let steps = vec![step("1")];
    let record = Recording { held: hold(&next[0]), steps };
    assert_eq!(scope.record(vec![record]).await, Ok(vec![Answer::Accepted]));
    let release = Release { task: many[0].task, fence: many[0].fence, delay: seconds(0) };
    assert_eq!(scope.release(vec![release]).await, Ok(vec![Answer::Accepted]));
    let done = vec![completion(&next[0], success())];
    assert_eq!(scope.finish(done).await, Ok(vec![Answer::Accepted]));
    scope.begin_drain(worker.id).await.expect("it is there");
    let workers = bench.store.list_workers(WorkerFilter::default()).await.expect("reading works");
    let states: Vec<_> = workers.workers.iter().map(|one| one.state).collect();
    assert_eq!(states, [WorkerState::Draining]);
    scope.leave(worker.id).await.expect("it can leave");
    let all = bench.worker().await;
    assert_eq!(tenants(&all.claim(9).await).iter().filter(|one| **one == "zenith").count(), 2);
}

pub(crate) async fn why_tells_a_tenant_nothing_of_the_workers_of_others(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "acme", 1).await;
    let scope = acme(bench);
    let run = scope.list_runs(RunFilter::default()).await.expect("reading works").runs[0].id;
    let served = async || {
        let why = scope.why(run, None).await.expect("reading works").expect("it is there");
        match why.tasks[0].reasons.first() {
            Some(Reason::Ready { served, .. }) => served.clone(),
            other => panic!("it is not ready: {other:?}"),
        }
    };
    let join = async |store: &dyn WorkerLink, queue: &str| {
        let queues = vec![QueueName::new(queue).expect("it is a name")];
        let worker = bench.stranger();
        let mut hello = Hello { slots: 1, ..worker.hello(LEASE) };
        hello.definitions = vec![definition("w", 1, "a")];
        hello.info.queues = queues;
        store.join(hello).await.expect("it can join");
    };
    let theirs = ScopedStore::new(Arc::clone(&bench.store), tenant("zenith"));
    join(&theirs, "zenith-secret").await;
    join(&theirs, "default").await;
    assert_eq!(served().await, Served::Nobody { missing: Missing::Worker });
    join(&*scope, "own").await;
    let own = vec![QueueName::new("own").expect("it is a name")];
    assert_eq!(served().await, Served::Nobody { missing: Missing::Queue { served: own } });
    join(&*scope, "default").await;
    assert_eq!(served().await, Served::Free { workers: 1, free_slots: 1 });
    join(&*bench.store, "default").await;
    assert_eq!(served().await, Served::Free { workers: 2, free_slots: 2 }, "it serves everyone");
}

/// A worker that others can see: whoever has its id can do nothing in its name.
pub(crate) async fn a_worker_of_a_tenant_is_no_other_worker(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "zenith", 2).await;
    bench.start_for("w", "acme", 1).await;
    let (scope, victim) = (acme(bench), bench.worker().await);
    let held = victim.claim_one().await;
    assert_eq!(held.tenant, tenant("zenith"));

    // It has not joined here.
    let lost = StoreError::LeaseLost(victim.id);
    let far = ClaimRequest { seq: ClaimSeq(1_000), ..victim.request(9) };
    assert_eq!(scope.claim(far.clone()).await.err(), Some(lost.clone()));
    let beat = Heartbeat { settled: ClaimSeq(1_000), ..victim.heartbeat(&[]) };
    assert_eq!(scope.extend(beat.clone()).await, Err(lost));
    // And if it joins, it is another.
    scope.join(victim.hello(LEASE)).await.expect("it is new");
    assert_eq!(tenants(&scope.claim(far).await.expect("it lives")), ["acme"]);
    assert_eq!(scope.extend(beat).await.expect("it lives").lost, []);
    scope.begin_drain(victim.id).await.expect("it is there");
    scope.leave(victim.id).await.expect("it can leave");
    let ended = StoreError::NotFound(format!("live worker {}", victim.id));
    assert_eq!(scope.begin_drain(victim.id).await, Err(ended), "under the id that it was given");

    assert_eq!(victim.extend(&[&held]).await.lost, [], "it has what it had");
    assert!(!victim.claim(9).await.is_empty(), "claims as before");
    let workers = bench.store.list_workers(WorkerFilter::default()).await.expect("reading works");
    let states: Vec<_> = workers.workers.iter().map(|one| (one.id, one.state)).collect();
    assert_eq!(states, [(victim.id, WorkerState::Live)], "and neither drains nor is gone");
    bench.succeed(&held).await;
}

pub(crate) async fn what_a_worker_says_of_others_tasks_is_of_none(bench: &Bench<'_>) {
    let (_, other) = two(bench).await;
    let (scope, worker) = (acme(bench), bench.stranger());
    scope.join(worker.hello(LEASE)).await.expect("it is new");
    let (theirs, unknown) = (&other.held, Answer::Refused(Refusal::UnknownTask));
    let mut nowhere = theirs.clone();
    nowhere.task.run = bench.run_id();
    for claimed in [theirs, &nowhere] {
        let held = hold(claimed);
        let all = vec![unknown];
        let decisions = [success(), retry_after(seconds(1))];
        for decision in decisions {
            assert_eq!(scope.finish(vec![completion(claimed, decision)]).await, Ok(all.clone()));
        }
        let done = vec![completion(claimed, success())];
        let finished = scope.finish_and_claim(done, worker.request(0)).await.expect("it lives");
        assert_eq!(finished.answers, all);
        let release = Release { task: claimed.task, fence: claimed.fence, delay: seconds(0) };
        assert_eq!(scope.release(vec![release]).await, Ok(all.clone()));
        let mark = Checkpoint { held, number: 1, value: json("1") };
        assert_eq!(scope.checkpoint(vec![mark]).await, Ok(all.clone()));
        let record = Recording { held, steps: vec![step("1")] };
        assert_eq!(scope.record(vec![record]).await, Ok(all));
        let name = windlass_core::StepName::new("go").expect("it is a name");
        let take = TakeSignal { held, call: Call(1), name, key: None, which: Which::Newest };
        assert_eq!(scope.take_signals(vec![take]).await, Ok(vec![Err(Refusal::UnknownTask)]));
        assert_eq!(
            scope.read_undo(held).await.expect("it works").err(),
            Some(Refusal::UnknownTask)
        );
        let counted = scope.count_children(claimed.task, Call(1)).await;
        assert_eq!(counted, Ok(ChildCount::default()));
        assert_eq!(scope.list_children(claimed.task, Call(1), None, 9).await, Ok(Vec::new()));
        let run = NewRun { tenant: tenant("acme"), ..bench.new_run("w") };
        let run = NewRun { id: RunId::of_child(claimed.task.run, 7), ..run };
        let definition = definition("w", 1, "a");
        let child = ChildStart { held, call: Call(1), place: None, run, definition };
        let born = scope.start_children(vec![child]).await;
        assert_eq!(born, Ok(vec![Born::Refused(Refusal::UnknownTask)]));
        let note = ProgressNote { held, note: json("\"mine\"") };
        let beat = Heartbeat { held: vec![held], progress: vec![note], ..worker.heartbeat(&[]) };
        let lost = Lost { held, refusal: Refusal::UnknownTask };
        assert_eq!(scope.extend(beat).await.expect("it lives").lost, [lost]);
    }
    let task = bench.task(theirs.task.run, "a").await;
    assert_eq!((task.state.word(), task.progress), ("running", None), "nothing came of it");
    // A child of its own is its own, and of a workflow that is there.
    let own = scope.claim(worker.request(1)).await.expect("it lives").remove(0);
    let child = |whose: &str, workflow: &str| {
        let run = NewRun { tenant: tenant(whose), ..bench.new_run(workflow) };
        let run = NewRun { id: RunId::of_child(own.task.run, 7), ..run };
        let definition = definition(workflow, 1, "a");
        ChildStart { held: hold(&own), call: Call(1), place: None, run, definition }
    };
    for strange in [child("zenith", "w"), child("acme", "unheard-of")] {
        let born = scope.start_children(vec![strange]).await.expect("it works").remove(0);
        assert!(matches!(born, Born::Failed(StoreError::Forbidden(_))), "{born:?}");
    }
    let born = scope.start_children(vec![child("acme", "w")]).await.expect("it works").remove(0);
    assert!(matches!(born, Born::Started(_)), "{born:?}");
}
