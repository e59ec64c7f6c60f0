//! Runs that are over go when their rules say so, and nothing else does.

use std::sync::Arc;

use windlass_core::{
    ActionId, Call, Decision, Limit, Operator, RunId, RunState, SignalId, StepChange, StepKind,
    StepName, StepResult, StepWrite,
};

use super::bench::{
    Bench, TICK, Worker, definition, failure, hold, json, key, seconds, success, tenant,
    workflow_name,
};
use crate::store::{
    ChildStart, DeadLetterFilter, Discard, NewRun, NewSignal, PAGE_MAX, PRUNE_MAX,
    RETENTION_RULES_MAX, Recording, RetentionRule, RunFilter, Started, StoreError, TakeSignal,
    Which,
};

fn rule(state: RunState, keep: u64) -> RetentionRule {
    RetentionRule::new(state, seconds(keep))
}

impl Bench<'_> {
    async fn keep(&self, rule: RetentionRule) {
        self.store.set_retention(rule).await.expect("the rule makes sense");
    }

    /// Prunes until there is nothing more to prune; answers how many runs went.
    async fn prune(&self) -> usize {
        self.may_prune();
        let mut gone = 0;
        loop {
            let sweep = self.store.prune(1_000).await.expect("pruning works");
            gone += sweep.moved;
            if sweep.moved == 0 {
                return gone;
            }
        }
    }

    async fn is_there(&self, run: RunId) -> bool {
        self.store.get_run(run).await.expect("reading works").is_some()
    }

    /// A run that ended like this.
    async fn ended(&self, worker: &Worker<'_>, workflow: &str, state: RunState) -> RunId {
        let run = self.start(workflow).await;
        match state {
            RunState::Cancelled => self.store.cancel_run(run, None).await.expect("it runs"),
            RunState::Failed => self.fail(&worker.claim_one().await).await,
            RunState::Succeeded => self.succeed(&worker.claim_one().await).await,
            RunState::Running => {}
        }
        run
    }
}

pub(crate) async fn nothing_goes_unless_a_rule_says_so(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker().await;
    let run = bench.ended(&worker, "w", RunState::Succeeded).await;
    bench.advance(seconds(365 * 86_400)).await;
    assert_eq!(bench.prune().await, 0);
    assert!(bench.is_there(run).await);
    assert_eq!(bench.store.list_retention().await, Ok(Vec::new()));
}

pub(crate) async fn a_run_goes_when_it_has_been_over_for_its_time(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    let worker = bench.worker_with_lease(seconds(600)).await;
    bench.keep(rule(RunState::Succeeded, 10)).await;
    let run = bench.start("w").await;
    bench.advance(seconds(60)).await;
    assert_eq!(bench.prune().await, 0, "it is not over");
    bench.work(&worker, |_| success()).await;
    bench.advance(seconds(10) - TICK).await;
    assert_eq!(bench.prune().await, 0, "not yet");
    bench.advance(TICK).await;
    assert_eq!(bench.prune().await, 1);
    assert!(!bench.is_there(run).await);
    assert_eq!(bench.tasks(run).await, []);
    assert_eq!(bench.store.list_events(run, None, PAGE_MAX).await, Ok(Vec::new()));
    let page = bench.store.list_runs(RunFilter::default()).await.expect("listing works");
    assert_eq!(page.runs, []);
    let retried = bench.store.retry_run(run, 1).await;
    assert!(matches!(retried, Err(StoreError::NotFound(_))), "{retried:?}");
    assert_eq!(bench.prune().await, 0, "once");
}

pub(crate) async fn rules_are_by_state_and_by_workflow(bench: &Bench<'_>) {
    for workflow in ["v", "w"] {
        bench.register(workflow, "a").await;
    }
    let worker = bench.worker_with_lease(seconds(600)).await;
    bench.keep(rule(RunState::Succeeded, 10)).await;
    bench.keep(rule(RunState::Cancelled, 20)).await;
    let own = RetentionRule { workflow: Some(workflow_name("w")), ..rule(RunState::Succeeded, 30) };
    bench.keep(own.clone()).await;
    let mut runs = Vec::new();
    for workflow in ["v", "w"] {
        for state in [RunState::Succeeded, RunState::Cancelled, RunState::Failed] {
            runs.push(bench.ended(&worker, workflow, state).await);
        }
    }
    let left = async || {
        let mut left = Vec::new();
        for (number, run) in runs.iter().enumerate() {
            left.extend(bench.is_there(*run).await.then_some(number));
        }
        left
    };
    bench.advance(seconds(10)).await;
    bench.prune().await;
    assert_eq!(left().await, [1, 2, 3, 4, 5], "one workflow has a rule of its own");
    bench.advance(seconds(10)).await;
    bench.prune().await;
    assert_eq!(left().await, [2, 3, 5]);
    bench.advance(seconds(10)).await;
    bench.prune().await;
    assert_eq!(left().await, [2, 5], "what failed has no rule");
    let rules = bench.store.list_retention().await.expect("listing works");
    assert_eq!(rules, [rule(RunState::Cancelled, 20), rule(RunState::Succeeded, 10), own.clone()]);
    let changed = RetentionRule { keep_for: seconds(40), ..own };
    bench.keep(changed.clone()).await;
    let cleared = bench.store.clear_retention(None, RunState::Succeeded).await;
    assert_eq!(cleared, Ok(true));
    assert_eq!(bench.store.clear_retention(None, RunState::Succeeded).await, Ok(false));
    let rules = bench.store.list_retention().await.expect("listing works");
    assert_eq!(rules, [rule(RunState::Cancelled, 20), changed]);
}

pub(crate) async fn rules_have_limits(bench: &Bench<'_>) {
    let running = bench.store.set_retention(rule(RunState::Running, 1)).await;
    assert!(matches!(running, Err(StoreError::Conflict(_))), "{running:?}");
    for number in 0..RETENTION_RULES_MAX {
        let workflow = Some(workflow_name(&format!("w{number}")));
        bench.keep(RetentionRule { workflow, ..rule(RunState::Failed, 1) }).await;
    }
    let more = bench.store.set_retention(rule(RunState::Failed, 1)).await;
    assert!(matches!(more, Err(StoreError::Conflict(_))), "{more:?}");
    let workflow = Some(workflow_name("w7"));
    bench.keep(RetentionRule { workflow, ..rule(RunState::Failed, 2) }).await;
}

pub(crate) async fn a_sweep_of_old_runs_has_a_limit(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker().await;
    for _ in 0..PRUNE_MAX + 3 {
        bench.start("w").await;
    }
    bench.work(&worker, |_| success()).await;
    bench.keep(rule(RunState::Succeeded, 0)).await;
    let sweep = bench.store.prune(2).await.expect("pruning works");
    assert_eq!(sweep.moved, 2);
    assert!(sweep.next_at.is_some(), "there are more");
    let sweep = bench.store.prune(10_000).await.expect("pruning works");
    assert_eq!(sweep.moved, PRUNE_MAX);
    assert_eq!(bench.prune().await, 1);
}

pub(crate) async fn a_failed_run_stays_while_it_has_dead_letters(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker_with_lease(seconds(600)).await;
    bench.keep(rule(RunState::Failed, 10)).await;
    let [first, second] = [
        bench.ended(&worker, "w", RunState::Failed).await,
        bench.ended(&worker, "w", RunState::Failed).await,
    ];
    bench.advance(seconds(10)).await;
    assert_eq!(bench.prune().await, 0);
    let discard = Discard {
        id: ActionId::from_random(1),
        by: Operator::new("anna").expect("it is a name").into(),
        filter: DeadLetterFilter::of_run(first),
        after: None,
        limit: 0,
    };
    bench.store.discard(discard).await.expect("discarding works");
    assert_eq!(bench.prune().await, 1);
    assert!(!bench.is_there(first).await && bench.is_there(second).await);
    bench.keep(RetentionRule { with_dead_letters: true, ..rule(RunState::Failed, 10) }).await;
    assert_eq!(bench.prune().await, 1);
    let page = bench.store.list_dead_letters(DeadLetterFilter::default(), None, 10).await;
    assert_eq!(page.expect("listing works").letters, []);
}

pub(crate) async fn a_run_that_is_retried_is_not_over(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker_with_lease(seconds(600)).await;
    bench.keep(RetentionRule { with_dead_letters: true, ..rule(RunState::Failed, 10) }).await;
    let run = bench.ended(&worker, "w", RunState::Failed).await;
    bench.advance(seconds(9)).await;
    assert_eq!(bench.store.retry_run(run, 1).await, Ok(2));
    bench.advance(seconds(9)).await;
    assert_eq!(bench.prune().await, 0);
    bench.fail(&worker.claim_one().await).await;
    bench.advance(seconds(9)).await;
    assert_eq!(bench.prune().await, 0, "its time begins with its last end");
    bench.advance(seconds(1)).await;
    assert_eq!(bench.prune().await, 1);
}

pub(crate) async fn a_child_stays_for_as_long_as_its_parent(bench: &Bench<'_>) {
    bench.register("parent", "f").await;
    bench.register("child", "c").await;
    let worker = bench.worker_with_lease(seconds(600)).await;
    bench.keep(rule(RunState::Succeeded, 10)).await;
    let parent = bench.start("parent").await;
    let function = worker.claim_one().await;
    let run = bench.new_run("child");
    let child = run.id;
    let start = ChildStart {
        held: hold(&function),
        call: Call(1),
        place: Some(0),
        run,
        definition: definition("child", 1, "c"),
    };
    bench.store.start_children(vec![start]).await.expect("starting works");
    bench.succeed(&worker.claim_one().await).await;
    bench.promote().await;
    bench.advance(seconds(60)).await;
    assert_eq!(bench.prune().await, 0, "the function may read it again");
    bench.succeed(&function).await;
    bench.advance(seconds(10)).await;
    bench.prune().await;
    bench.prune().await;
    assert!(!bench.is_there(parent).await && !bench.is_there(child).await);
}

pub(crate) async fn a_run_that_halts_its_stream_stays(bench: &Bench<'_>) {
    let mut draft = definition("w", 1, "a").to_draft();
    draft.tasks[0].limits = vec![Limit::of(1).halt()];
    let definition = Arc::new(draft.build().expect("the workflow is valid"));
    bench.try_register(definition).await.expect("registering works");
    let worker = bench.worker().await;
    bench.keep(RetentionRule { with_dead_letters: true, ..rule(RunState::Failed, 0) }).await;
    let halting = bench.ended(&worker, "w", RunState::Failed).await;
    bench.start("w").await;
    assert_eq!(worker.claim(1).await.len(), 0, "the stream is halted");
    assert_eq!(bench.prune().await, 0, "its slot could not be freed any more");
    assert_eq!(bench.store.retry_run(halting, 1).await, Ok(2));
    bench.succeed(&worker.claim_one().await).await;
    bench.promote().await;
    bench.succeed(&worker.claim_one().await).await;
}

pub(crate) async fn nothing_is_left_of_a_run_that_is_gone(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker_with_lease(seconds(600)).await;
    bench.keep(rule(RunState::Succeeded, 10)).await;
    let new = bench.new_run("w");
    let run = bench.start_run(new.clone()).await;
    let signal = NewSignal {
        id: SignalId::from_random(1),
        run,
        name: StepName::new("paid").expect("the name is fine"),
        value: json("1"),
    };
    bench.store.signal(signal.clone()).await.expect("sending works");
    bench.succeed(&worker.claim_one().await).await;
    bench.advance(seconds(10)).await;
    assert_eq!(bench.prune().await, 1);
    // Its id is free again, and neither its history nor its signals are those of the next run.
    assert_eq!(bench.start_run(new).await, run);
    assert_eq!(bench.history(run, "a").await, "queued");
    let claimed = worker.claim_one().await;
    let (held, call, name) = (hold(&claimed), Call(1), signal.name.clone());
    let take = TakeSignal { held, call, name, key: None, which: Which::Newest };
    assert_eq!(bench.take(take.clone()).await, Ok(None));
    bench.store.signal(signal).await.expect("sending works");
    assert_eq!(bench.take(take).await, Ok(Some(json("1"))));
}

pub(crate) async fn what_is_undone_and_what_undoes_go_in_their_order(bench: &Bench<'_>) {
    bench.register("w", "f").await;
    let undo = definition("w", 1, "f").to_undo().expect("it can be derived");
    bench.try_register(Arc::new(undo)).await.expect("it is new");
    let worker = bench.worker_with_lease(seconds(600)).await;
    let any = |state| RetentionRule { with_dead_letters: true, ..rule(state, 10) };
    bench.keep(any(RunState::Succeeded)).await;
    let run = bench.start("w").await;
    let claimed = worker.claim_one().await;
    let change = StepChange::Done { number: 1, result: StepResult::Value(json("1")) };
    let name = StepName::new("s").expect("it is a name");
    let write = StepWrite { call: Call(1), name, kind: StepKind::Undoable, key: None, change };
    let recording = Recording { held: hold(&claimed), steps: vec![write] };
    bench.store.record(vec![recording]).await.expect("recording works");
    bench.accept(&claimed, Decision::Fail(failure())).await;
    let by = RunId::of_undo(run, 1);
    bench.keep(any(RunState::Failed)).await;
    bench.advance(seconds(60)).await;
    assert_eq!(bench.prune().await, 0, "what undoes it reads its steps");
    bench.store.clear_retention(None, RunState::Failed).await.expect("clearing works");
    bench.succeed(&worker.claim_one().await).await;
    bench.advance(seconds(60)).await;
    assert_eq!(bench.prune().await, 0, "that it was undone is to be known for as long as it is");
    assert!(bench.is_there(by).await);
    bench.keep(any(RunState::Failed)).await;
    bench.prune().await;
    bench.prune().await;
    assert!(!bench.is_there(run).await && !bench.is_there(by).await);
}

pub(crate) async fn a_key_outlives_its_run_as_its_rule_says(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker_with_lease(seconds(600)).await;
    let kept = RetentionRule { keep_key_for: seconds(60), ..rule(RunState::Succeeded, 10) };
    bench.keep(kept).await;
    let first = NewRun { key: key("k"), tenant: tenant("acme"), ..bench.new_run("w") };
    let run = bench.start_run(first.clone()).await;
    bench.succeed(&worker.claim_one().await).await;
    bench.advance(seconds(10)).await;
    assert_eq!(bench.prune().await, 1);
    let again = || NewRun { id: bench.run_id(), ..first.clone() };
    let there = Ok(Started { run, is_new: false });
    assert_eq!(bench.try_start(again()).await, there);
    assert_eq!(bench.try_start(first.clone()).await, there, "with its id as well");
    assert!(!bench.is_there(run).await, "it is not made anew");
    let other = NewRun { input: json("\"other\""), ..again() };
    let conflict = bench.try_start(other).await;
    let text = format!(
        "idempotency key \"k\" was used for run {run} with another start (different: input)"
    );
    assert_eq!(conflict, Err(StoreError::Conflict(text)));
    // Of another tenant it is another key, and a batch is judged one by one.
    let elsewhere = NewRun { tenant: tenant("bolt"), ..again() };
    let batch = vec![again(), elsewhere.clone(), again()];
    let answers = bench.start_all(batch).await;
    let new = Ok(Started { run: elsewhere.id, is_new: true });
    assert_eq!(answers, [there.clone(), new, there.clone()]);
    bench.advance(seconds(50) - TICK).await;
    assert_eq!(bench.try_start(again()).await, there);
    bench.advance(TICK).await;
    let next = again();
    let started = bench.try_start(next.clone()).await;
    assert_eq!(started, Ok(Started { run: next.id, is_new: true }), "its time is over");
    bench.prune().await;
}

pub(crate) async fn kept_keys_of_one_name_answer_each_to_its_own_tenant(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker_with_lease(seconds(600)).await;
    bench.keep(RetentionRule { keep_key_for: seconds(60), ..rule(RunState::Succeeded, 10) }).await;
    let of = |name: &str| NewRun { key: key("k"), tenant: tenant(name), ..bench.new_run("w") };
    let mut runs = Vec::new();
    for name in ["acme", "bolt", "crag"] {
        runs.push((name, bench.start_run(of(name)).await));
    }
    bench.work(&worker, |_| success()).await;
    bench.advance(seconds(10)).await;
    assert_eq!(bench.prune().await, 3);
    for (name, run) in runs {
        let answer = bench.try_start(of(name)).await;
        assert_eq!(answer, Ok(Started { run, is_new: false }), "{name}");
    }
}

pub(crate) async fn a_key_goes_with_its_run_if_nothing_is_said(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker_with_lease(seconds(600)).await;
    bench.keep(rule(RunState::Succeeded, 10)).await;
    let first = NewRun { key: key("k"), ..bench.new_run("w") };
    bench.start_run(first.clone()).await;
    bench.succeed(&worker.claim_one().await).await;
    bench.advance(seconds(10)).await;
    assert_eq!(bench.prune().await, 1);
    let next = NewRun { id: bench.run_id(), input: json("7"), ..first };
    let started = bench.try_start(next.clone()).await;
    assert_eq!(started, Ok(Started { run: next.id, is_new: true }));
}

pub(crate) async fn what_goes_to_the_archive_is_told_there(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    let worker = bench.worker_with_lease(seconds(600)).await;
    bench.keep(RetentionRule { archives: true, ..rule(RunState::Succeeded, 10) }).await;
    let new = NewRun { key: key("k"), input: json("{\"n\":1}"), ..bench.new_run("w") };
    let run = bench.start_run(new).await;
    bench.work(&worker, |_| success()).await;
    let record = bench.run(run).await;
    let events = bench.events(run).await.len();
    assert_eq!(bench.store.get_archived_run(run).await, Ok(None));
    bench.advance(seconds(10)).await;
    assert_eq!(bench.prune().await, 1);
    let archived = bench.store.get_archived_run(run).await.expect("reading works");
    let archived = archived.expect("it was archived");
    assert_eq!((archived.id, archived.state), (run, RunState::Succeeded));
    assert_eq!((&archived.workflow, &archived.tenant), (&record.workflow, &record.tenant));
    assert_eq!(Some(archived.ended_at), record.ended_at);
    assert_eq!(archived.archived_at, bench.now().await);
    let body: serde_json::Value = archived.body.decode().expect("it is JSON");
    assert_eq!((&body["input"]["n"], &body["key"]), (&1.into(), &"k".into()));
    assert_eq!((&body["round"], &body["tasks"][1]["name"]), (&1.into(), &"b".into()));
    assert_eq!(body["tasks"][1]["output"], "done");
    assert_eq!(body["history"].as_array().map(Vec::len), Some(events));
}

pub(crate) async fn a_cancelled_run_stays_until_its_children_are_cancelled(bench: &Bench<'_>) {
    bench.register("parent", "f").await;
    bench.register("child", "c").await;
    let worker = bench.worker().await;
    bench.keep(rule(RunState::Cancelled, 0)).await;
    let parent = bench.start("parent").await;
    let function = worker.claim_one().await;
    let run = bench.new_run("child");
    let child = run.id;
    let (held, definition) = (hold(&function), definition("child", 1, "c"));
    let start = ChildStart { held, call: Call(1), place: Some(0), run, definition };
    bench.store.start_children(vec![start]).await.expect("starting works");
    bench.store.cancel_run(parent, None).await.expect("it runs");
    assert_eq!(bench.prune().await, 0, "its children are yet to be cancelled");
    bench.promote().await;
    assert_eq!(bench.run_state(child).await, RunState::Cancelled);
    while bench.promote().await > 0 {}
    bench.prune().await;
    bench.prune().await;
    assert!(!bench.is_there(parent).await && !bench.is_there(child).await);
}
