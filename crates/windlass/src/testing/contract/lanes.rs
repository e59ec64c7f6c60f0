//! Limits: how many tasks with the same key are under way at once, and in which order.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_core::definition::TaskDraft;
use windlass_core::{
    Call, Decision, Definition, DefinitionDraft, Limit, Parking, RunId, RunState, StepChange,
    StepKind, StepName, StepWrite, TaskKind, Version, Wait, WhenFull,
};

use super::bench::{
    Bench, LEASE, TICK, Worker, failure, hold, json, names, retry_after, seconds, success, tenant,
};
use crate::store::{Answer, ChildStart, Claimed, NewRun, Started, StoreError};

/// A workflow of tasks with these limits, each after the one before.
pub(super) fn limited(
    workflow: &str,
    version: u32,
    tasks: &[(&str, Vec<Limit>)],
) -> Arc<Definition> {
    let mut draft = DefinitionDraft::new(workflow);
    draft.version = Version::new(version).expect("the case gives a version");
    for (name, limits) in tasks {
        let mut task = TaskDraft::new(*name, TaskKind::Handler);
        task.parents = draft.tasks.last().map(|last| last.name.clone()).into_iter().collect();
        task.limits = limits.clone();
        draft = draft.task(task);
    }
    Arc::new(draft.build().unwrap_or_else(|error| panic!("{error}")))
}

impl Bench<'_> {
    pub(super) async fn register_limited(&self, workflow: &str, limit: Limit) {
        let definition = limited(workflow, 1, &[("a", vec![limit])]);
        self.try_register(definition).await.expect("the definition can be registered");
    }

    fn keyed(&self, workflow: &str, key: &str) -> NewRun {
        NewRun { input: json(&format!("{{\"key\":\"{key}\"}}")), ..self.new_run(workflow) }
    }

    pub(super) async fn start_keyed(&self, workflow: &str, key: &str) -> RunId {
        self.start_run(self.keyed(workflow, key)).await
    }

    pub(super) async fn start_keyed_for(&self, workflow: &str, name: &str, key: &str) -> RunId {
        self.start_run(NewRun { tenant: tenant(name), ..self.keyed(workflow, key) }).await
    }

    /// The states of the first tasks of runs.
    pub(super) async fn firsts(&self, runs: &[RunId]) -> String {
        let mut words = Vec::new();
        for run in runs {
            words.push(self.tasks(*run).await[0].state.word());
        }
        words.join(" ")
    }
}

/// The runs of claimed tasks, in order.
pub(super) fn runs(claimed: &[Claimed]) -> Vec<RunId> {
    claimed.iter().map(|one| one.task.run).collect()
}

async fn claim_all(worker: &Worker<'_>) -> BTreeMap<RunId, Claimed> {
    worker.claim(100).await.into_iter().map(|one| (one.task.run, one)).collect()
}

pub(crate) async fn no_more_tasks_with_one_key_are_under_way_than_slots(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 2)).await;
    let mut started = Vec::new();
    for _ in 0..5 {
        started.push(bench.start_keyed("w", "x").await);
    }
    let other = bench.start_keyed("w", "y").await;
    assert_eq!(bench.firsts(&started).await, "ready ready waiting waiting waiting");
    let worker = bench.worker().await;
    let claimed = worker.claim(10).await;
    assert_eq!(runs(&claimed), [started[0], started[1], other]);
    bench.succeed(&claimed[1]).await;
    assert_eq!(bench.firsts(&started).await, "running succeeded ready waiting waiting");
    bench.succeed(&claimed[2]).await;
    assert_eq!(bench.firsts(&started).await, "running succeeded ready waiting waiting");
    assert_eq!(bench.history(started[2], "a").await, "blocked resumed");
    bench.work(&worker, |_| success()).await;
    bench.succeed(&claimed[0]).await;
    bench.work(&worker, |_| success()).await;
    assert_eq!(bench.firsts(&started).await, "succeeded succeeded succeeded succeeded succeeded");
}

pub(crate) async fn who_waits_in_a_lane_goes_on_in_the_order_of_coming(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1)).await;
    let mut started = Vec::new();
    for _ in 0..6 {
        started.push(bench.start_keyed("w", "x").await);
    }
    let worker = bench.worker().await;
    let mut order = Vec::new();
    loop {
        let claimed = worker.claim(10).await;
        assert!(claimed.len() <= 1, "one at a time");
        let Some(one) = claimed.first() else { break };
        order.push(one.task.run);
        bench.succeed(one).await;
    }
    assert_eq!(order, started);
}

pub(crate) async fn a_retry_keeps_its_slot_and_its_place(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1)).await;
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    bench.accept(&worker.claim_one().await, retry_after(seconds(60))).await;
    assert_eq!(bench.firsts(&[first, second]).await, "scheduled waiting");
    assert!(worker.claim(10).await.is_empty());
    bench.advance(seconds(60)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second]).await, "ready waiting");
    let again = worker.claim_one().await;
    assert_eq!((again.task.run, again.attempt), (first, 2));
    bench.succeed(&again).await;
    assert_eq!(worker.claim_one().await.task.run, second);
}

pub(crate) async fn a_slot_is_free_when_its_task_fails(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1)).await;
    bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    bench.fail(&worker.claim_one().await).await;
    assert_eq!(worker.claim_one().await.task.run, second);
}

pub(crate) async fn a_slot_is_free_when_its_run_is_cancelled(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1)).await;
    let [ready, running, third] = [
        bench.start_keyed("w", "x").await,
        bench.start_keyed("w", "x").await,
        bench.start_keyed("w", "x").await,
    ];
    let worker = bench.worker().await;
    bench.store.cancel_run(ready, None).await.expect("it can be cancelled");
    assert_eq!(bench.firsts(&[ready, running, third]).await, "cancelled ready waiting");
    let claimed = worker.claim_one().await;
    bench.store.cancel_run(running, None).await.expect("it can be cancelled");
    assert_eq!(bench.firsts(&[ready, running, third]).await, "cancelled cancelled ready");
    let late = bench.finish(&claimed, success()).await;
    assert!(matches!(late, Answer::Refused(_)), "{late:?}");
    let last = bench.start_keyed("w", "x").await;
    assert_eq!(bench.firsts(&[third, last]).await, "ready waiting", "nothing is freed twice");
}

pub(crate) async fn who_waits_in_a_lane_can_be_cancelled(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1)).await;
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    let third = bench.start_keyed("w", "x").await;
    bench.store.cancel_run(second, None).await.expect("it can be cancelled");
    assert_eq!(bench.firsts(&[first, second, third]).await, "ready cancelled waiting");
    assert_eq!(bench.history(second, "a").await, "blocked cancelled");
    let worker = bench.worker().await;
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(worker.claim_one().await.task.run, third);
}

pub(crate) async fn a_lost_worker_keeps_the_slots_of_its_tasks(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1)).await;
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    let lost = bench.worker().await;
    lost.claim_one().await;
    bench.advance(LEASE + TICK).await;
    bench.reap().await;
    assert_eq!(bench.firsts(&[first, second]).await, "ready waiting");
    let worker = bench.worker().await;
    let again = worker.claim(10).await;
    assert_eq!(runs(&again), [first]);
    bench.succeed(&again[0]).await;
    assert_eq!(worker.claim_one().await.task.run, second);
}

pub(crate) async fn a_slot_is_free_when_no_attempt_is_left_after_a_lost_worker(bench: &Bench<'_>) {
    let mut draft = limited("w", 1, &[("a", vec![Limit::per("key", 1)])]).to_draft();
    draft.tasks[0].retry = draft.tasks[0].retry.clone().attempts(1);
    let definition = Arc::new(draft.build().expect("it is a workflow"));
    bench.try_register(definition).await.expect("it can be registered");
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    let lost = bench.worker().await;
    lost.claim_one().await;
    bench.advance(LEASE + TICK).await;
    bench.reap().await;
    assert_eq!(bench.firsts(&[first, second]).await, "failed ready");
}

pub(crate) async fn a_task_handed_back_keeps_its_slot(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1)).await;
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    assert_eq!(bench.release(&claimed, seconds(0)).await, Answer::Accepted);
    assert_eq!(bench.firsts(&[first, second]).await, "ready waiting");
    let claimed = worker.claim_one().await;
    assert_eq!(bench.release(&claimed, seconds(5)).await, Answer::Accepted);
    assert_eq!(bench.firsts(&[first, second]).await, "scheduled waiting");
    bench.advance(seconds(5)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second]).await, "ready waiting");
}

pub(crate) async fn a_parked_function_keeps_its_slot(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1)).await;
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    let sleep = StepWrite {
        call: Call(1),
        name: StepName::new("nap").expect("it is a name"),
        kind: StepKind::Sleep,
        key: None,
        change: StepChange::Open { failures: 0, failure: None, wait: Wait::For(seconds(60)) },
    };
    let parking = Parking { steps: vec![sleep], waits: Vec::new(), awaits: false };
    bench.accept(&claimed, Decision::Park(parking)).await;
    assert_eq!(bench.firsts(&[first, second]).await, "scheduled waiting");
    bench.advance(seconds(60)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second]).await, "ready waiting");
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.firsts(&[first, second]).await, "succeeded ready");
}

pub(crate) async fn a_limited_function_whose_child_ends_when_it_is_due_goes_on_once(
    bench: &Bench<'_>,
) {
    bench.register_limited("w", Limit::per("key", 1)).await;
    let run = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    bench.register("c", "x").await;
    let definition = super::bench::definition("c", 1, "x");
    let child = NewRun { id: RunId::of_child(run, 1 << 64), ..bench.new_run("c") };
    let (held, call) = (hold(&claimed), Call(1));
    let start = ChildStart { held, call, place: Some(0), run: child, definition };
    bench.store.start_children(vec![start]).await.expect("starting works");
    let open = |call, kind, wait| StepWrite {
        call: Call(call),
        name: StepName::new("c").expect("it is a name"),
        kind,
        key: None,
        change: StepChange::Open { failures: 0, failure: None, wait },
    };
    let steps = vec![
        open(1, StepKind::Child, Wait::Children(0)),
        open(2, StepKind::Sleep, Wait::For(seconds(5))),
    ];
    let parking = Parking { steps, waits: Vec::new(), awaits: true };
    bench.accept(&claimed, Decision::Park(parking)).await;
    bench.succeed(&worker.claim_one().await).await;
    bench.advance(seconds(5)).await;
    bench.promote().await;
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.history(run, "a").await, "queued started parked queued started succeeded");
}

pub(crate) async fn a_slot_is_free_when_nobody_claims_its_task_in_time(bench: &Bench<'_>) {
    let mut draft = limited("w", 1, &[("a", vec![Limit::per("key", 1)])]).to_draft();
    draft.tasks[0].claim_timeout = Some(seconds(10));
    let definition = Arc::new(draft.build().expect("it is a workflow"));
    bench.try_register(definition).await.expect("it can be registered");
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    bench.advance(seconds(10)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second]).await, "failed ready");
    bench.advance(seconds(10)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second]).await, "failed failed");
}

pub(crate) async fn tenants_have_lanes_of_their_own(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1)).await;
    let one = bench.start_keyed_for("w", "one", "x").await;
    let other = bench.start_keyed_for("w", "other", "x").await;
    let more = bench.start_keyed_for("w", "other", "x").await;
    assert_eq!(bench.firsts(&[one, other, more]).await, "ready ready waiting");
}

pub(crate) async fn a_limit_across_tenants_is_shared(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1).across_tenants()).await;
    let one = bench.start_keyed_for("w", "one", "x").await;
    let other = bench.start_keyed_for("w", "other", "x").await;
    assert_eq!(bench.firsts(&[one, other]).await, "ready waiting");
    let worker = bench.worker().await;
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.firsts(&[one, other]).await, "succeeded ready");
}

pub(crate) async fn a_limit_of_one_name_is_shared_by_workflows(bench: &Bench<'_>) {
    bench.register_limited("v", Limit::per("key", 1).named("shared")).await;
    bench.register_limited("w", Limit::per("key", 1).named("shared")).await;
    bench.register_limited("alone", Limit::per("key", 1)).await;
    let one = bench.start_keyed("v", "x").await;
    let other = bench.start_keyed("w", "x").await;
    let alone = bench.start_keyed("alone", "x").await;
    assert_eq!(bench.firsts(&[one, other, alone]).await, "ready waiting ready");
    let worker = bench.worker().await;
    let mut claimed = claim_all(&worker).await;
    bench.succeed(&claimed.remove(&one).expect("it was ready")).await;
    assert_eq!(bench.firsts(&[one, other]).await, "succeeded ready");
}

pub(crate) async fn what_has_no_key_is_not_limited(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("deep.key", 1)).await;
    bench.register_limited("all", Limit::of(1)).await;
    let with =
        |workflow: &str, input: &str| NewRun { input: json(input), ..bench.new_run(workflow) };
    let mut started = Vec::new();
    for input in ["null", "7", "{}", r#"{"deep":{"key":null}}"#, r#"{"deep":{"key":[1]}}"#] {
        started.push(bench.start_run(with("w", input)).await);
    }
    assert_eq!(bench.firsts(&started).await, "ready ready ready ready ready");
    let mut started = Vec::new();
    for input in [r#"{"deep":{"key":7}}"#, r#"{"deep":{"key":"7"}}"#, r#"{"deep":{"key":true}}"#] {
        started.push(bench.start_run(with("w", input)).await);
    }
    assert_eq!(bench.firsts(&started).await, "ready waiting ready", "a number is its text");
    let one = bench.start_run(with("all", "1")).await;
    let other = bench.start_run(with("all", "2")).await;
    assert_eq!(bench.firsts(&[one, other]).await, "ready waiting", "one lane for all");
}

pub(crate) async fn a_task_takes_slots_in_all_its_lanes(bench: &Bench<'_>) {
    let limits = vec![Limit::per("key", 2).named("few"), Limit::of(3).named("all")];
    let definition = limited("w", 1, &[("a", limits)]);
    bench.try_register(definition).await.expect("it can be registered");
    let mut started = Vec::new();
    for key in ["x", "x", "x", "y", "y"] {
        started.push(bench.start_keyed("w", key).await);
    }
    // `all` comes before `few`: the third has a slot there while it waits for another.
    assert_eq!(bench.firsts(&started).await, "ready ready waiting waiting waiting");
    let worker = bench.worker().await;
    let mut claimed = claim_all(&worker).await;
    bench.succeed(&claimed.remove(&started[0]).expect("it was ready")).await;
    assert_eq!(bench.firsts(&started).await, "succeeded running ready ready waiting");
    bench.work(&worker, |_| success()).await;
    bench.succeed(&claimed.remove(&started[1]).expect("it was ready")).await;
    bench.promote().await;
    bench.work(&worker, |_| success()).await;
    assert_eq!(bench.firsts(&started).await, "succeeded succeeded succeeded succeeded succeeded");
}

pub(crate) async fn tasks_with_several_limits_never_wait_for_each_other(bench: &Bench<'_>) {
    let by = |name: &str| Limit::of(1).named(name);
    let one = limited("one", 1, &[("a", vec![by("first"), by("second")])]);
    let other = limited("other", 1, &[("a", vec![by("second"), by("first")])]);
    bench.try_register(one).await.expect("it can be registered");
    bench.try_register(other).await.expect("it can be registered");
    let mut started = Vec::new();
    for _ in 0..5 {
        started.push(bench.start("one").await);
        started.push(bench.start("other").await);
    }
    let worker = bench.worker().await;
    for _ in 0..started.len() {
        let claimed = worker.claim(10).await;
        assert_eq!(claimed.len(), 1, "one at a time");
        bench.succeed(&claimed[0]).await;
        bench.promote().await;
    }
    for run in started {
        assert_eq!(bench.run_state(run).await, RunState::Succeeded);
    }
}

pub(crate) async fn who_finds_a_lane_full_is_skipped_if_it_says_so(bench: &Bench<'_>) {
    let limit = Limit::per("key", 1).when_full(WhenFull::Skip);
    let definition = limited("w", 1, &[("a", vec![limit]), ("b", Vec::new())]);
    bench.try_register(definition).await.expect("it can be registered");
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    assert_eq!(bench.states(first).await, "ready pending");
    assert_eq!(bench.states(second).await, "skipped skipped");
    assert_eq!(bench.run_state(second).await, RunState::Succeeded);
    assert_eq!(bench.history(second, "a").await, "blocked skipped");
    let worker = bench.worker().await;
    bench.succeed(&worker.claim_one().await).await;
    let third = bench.start_keyed("w", "x").await;
    assert_eq!(bench.states(third).await, "ready pending");
}

pub(crate) async fn a_delayed_task_takes_its_slot_when_it_is_due(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1)).await;
    let late = NewRun { delay: seconds(10), ..bench.keyed("w", "x") };
    let late = bench.start_run(late).await;
    let later = NewRun { delay: seconds(10), ..bench.keyed("w", "x") };
    let later = bench.start_run(later).await;
    let first = bench.start_keyed("w", "x").await;
    assert_eq!(bench.firsts(&[late, later, first]).await, "scheduled scheduled ready");
    bench.advance(seconds(10)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[late, later, first]).await, "waiting waiting ready");
    let worker = bench.worker().await;
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.firsts(&[late, later, first]).await, "ready waiting succeeded");
    bench.store.cancel_run(late, None).await.expect("it can be cancelled");
    assert_eq!(bench.firsts(&[late, later]).await, "cancelled ready");
}

pub(crate) async fn a_child_of_a_task_takes_its_slot_when_its_turn_comes(bench: &Bench<'_>) {
    let definition = limited("w", 1, &[("a", Vec::new()), ("b", vec![Limit::per("key", 1)])]);
    bench.try_register(definition).await.expect("it can be registered");
    let one = bench.start_keyed("w", "x").await;
    let other = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    let claimed = worker.claim(10).await;
    assert_eq!(names(&claimed), ["a", "a"]);
    bench.succeed(&claimed[1]).await;
    bench.succeed(&claimed[0]).await;
    assert_eq!(bench.states(one).await, "succeeded waiting");
    assert_eq!(bench.states(other).await, "succeeded ready");
    bench.work(&worker, |_| success()).await;
    assert_eq!(bench.run_state(one).await, RunState::Succeeded);
}

pub(crate) async fn what_is_let_go_on_comes_with_the_answer_to_what_ended(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1)).await;
    let mut started = Vec::new();
    for _ in 0..3 {
        started.push(bench.start_keyed("w", "x").await);
    }
    let worker = bench.worker().await;
    let mut held = worker.claim_one().await;
    for run in &started[1..] {
        let completion = super::bench::completion(&held, success());
        let next = worker.request(1);
        let finished = bench.store.finish_and_claim(vec![completion], next).await;
        let mut finished = finished.expect("finishing works");
        assert_eq!(runs(&finished.claimed), [*run]);
        held = finished.claimed.remove(0);
    }
    bench.succeed(&held).await;
}

pub(crate) async fn a_retried_run_takes_its_slot_again(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1)).await;
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    let worker = bench.worker().await;
    bench.accept(&worker.claim_one().await, Decision::Fail(failure())).await;
    bench.store.retry_run(first, 1).await.expect("it can be retried");
    assert_eq!(bench.firsts(&[first, second]).await, "waiting ready");
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.firsts(&[first, second]).await, "ready succeeded");
    bench.succeed(&worker.claim_one().await).await;
}

pub(crate) async fn a_key_that_cannot_be_one_is_refused_and_spoils_nothing(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1)).await;
    let long = "k".repeat(401);
    let batch = vec![
        bench.keyed("w", "x"),
        bench.keyed("w", &long),
        bench.keyed("w", ""),
        bench.keyed("w", "y"),
    ];
    let answers = bench.start_all(batch).await;
    let refused = |answer: &Result<_, StoreError>| match answer {
        Err(StoreError::Conflict(text)) => text.clone(),
        other => panic!("{other:?}"),
    };
    assert!(answers[0].is_ok() && answers[3].is_ok(), "{answers:?}");
    let text = refused(&answers[1]);
    assert!(text.contains("w/a/key") && text.contains("401 bytes"), "{text}");
    assert!(refused(&answers[2]).contains("empty"));
    bench.start_keyed("w", &"k".repeat(400)).await;
}

pub(crate) async fn a_batch_of_starts_takes_slots_in_its_order(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 2)).await;
    let batch: Vec<NewRun> =
        ["x", "y", "x", "x", "y", "y", "x"].iter().map(|key| bench.keyed("w", key)).collect();
    let started: Vec<RunId> = batch.iter().map(|run| run.id).collect();
    bench.start_all(batch).await.into_iter().for_each(|answer| {
        answer.expect("it can be started");
    });
    let states = "ready ready ready waiting ready waiting waiting";
    assert_eq!(bench.firsts(&started).await, states);
    let worker = bench.worker().await;
    let mut claimed = claim_all(&worker).await;
    let ended: Vec<_> = [0, 2].map(|at| claimed.remove(&started[at]).expect("ready")).into();
    let batch = ended.iter().map(|one| super::bench::completion(one, success())).collect();
    bench.store.finish(batch).await.expect("finishing works");
    let states = "succeeded running succeeded ready running waiting ready";
    assert_eq!(bench.firsts(&started).await, states);
}

pub(crate) async fn other_slots_hold_for_runs_started_from_then_on(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1)).await;
    let mut started = vec![bench.start_keyed("w", "x").await];
    bench.register_limited("w", Limit::per("key", 3)).await;
    for _ in 0..3 {
        started.push(bench.start_keyed("w", "x").await);
    }
    assert_eq!(bench.firsts(&started).await, "ready ready ready waiting");
}

pub(crate) async fn many_tasks_of_one_run_share_a_lane(bench: &Bench<'_>) {
    let mut draft = DefinitionDraft::new("w");
    for number in 0..20 {
        let mut task = TaskDraft::new(format!("t{number:02}"), TaskKind::Handler);
        task.limits = vec![Limit::of(3).named("pool")];
        draft = draft.task(task);
    }
    let definition = Arc::new(draft.build().expect("it is a workflow"));
    bench.try_register(definition).await.expect("it can be registered");
    let run = bench.start("w").await;
    let other = bench.start("w").await;
    let worker = bench.worker().await;
    let mut ended = 0;
    loop {
        let claimed = worker.claim(100).await;
        assert!(claimed.len() <= 3, "{} at once", claimed.len());
        let Some(first) = claimed.first() else { break };
        bench.succeed(first).await;
        ended += 1;
        for one in &claimed[1..] {
            assert_eq!(bench.release(one, seconds(0)).await, Answer::Accepted);
        }
    }
    assert_eq!(ended, 40);
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
    assert_eq!(bench.run_state(other).await, RunState::Succeeded);
}

pub(crate) async fn an_id_that_waits_in_a_lane_is_refused_for_another_start(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::of(1)).await;
    bench.register("v", "a").await;
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    let other = NewRun { id: second, ..bench.new_run("v") };
    let third = bench.keyed("w", "x");
    let id = third.id;
    let answers = bench.start_all(vec![third, other]).await;
    assert_eq!(answers[0], Ok(Started { run: id, is_new: true }));
    assert!(matches!(answers[1], Err(StoreError::Conflict(_))), "{answers:?}");
    assert_eq!(bench.firsts(&[first, second, id]).await, "ready waiting waiting");
}
