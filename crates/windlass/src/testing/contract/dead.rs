//! Tasks that failed for good, until someone redrives or discards them.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::definition::TaskDraft;
use windlass_core::{
    ActionId, Call, Decision, DefinitionDraft, Failure, FailureCode, Limit, Operator, RetryPolicy,
    RunId, RunState, StepChange, StepKind, StepName, StepResult, StepWrite, TaskKind, TaskName,
    TaskState,
};

use super::bench::{
    Bench, LEASE, TICK, Worker, definition, failure, hold, json, retry_after, seconds, success,
    tenant, workflow_name,
};
use super::lanes::limited;
use crate::store::{
    Action, DeadLetter, DeadLetterFilter, Discard, Discarded, LogFilter, NewLogEntry, NewRun,
    PAGE_MAX, Pace, REDRIVE_MAX, Recording, Redrive, Redriven, StoreError,
};

fn operator(name: &str) -> Operator {
    Operator::new(name).expect("the case names an operator")
}

fn action(number: u128) -> ActionId {
    ActionId::from_random(number)
}

fn redrive(number: u128, filter: DeadLetterFilter) -> Redrive {
    let (id, by) = (action(number), operator("anna@ops").into());
    Redrive { id, by, filter, after: None, limit: 0, pace: None }
}

fn discard(number: u128, filter: DeadLetterFilter) -> Discard {
    let (id, by) = (action(number), operator("anna@ops").into());
    Discard { id, by, filter, after: None, limit: 0 }
}

fn any() -> DeadLetterFilter {
    DeadLetterFilter::default()
}

fn pace(per_second: u32) -> Option<Pace> {
    let per_second = NonZeroU32::new(per_second).expect("the case gives a pace");
    Some(Pace { per_second, from: None })
}

impl Bench<'_> {
    /// The dead letters of a filter, the newest first.
    async fn dead(&self, filter: DeadLetterFilter) -> Vec<DeadLetter> {
        let page = self.store.list_dead_letters(filter, None, PAGE_MAX).await;
        page.expect("listing works").letters
    }

    /// Their runs and tasks.
    async fn dead_tasks(&self, filter: DeadLetterFilter) -> Vec<(RunId, String)> {
        let letters = self.dead(filter).await;
        letters.iter().map(|one| (one.task.run, one.name.to_string())).collect()
    }

    async fn redriven(&self, redrive: Redrive) -> Redriven {
        self.store.redrive(redrive).await.expect("redriving works")
    }

    async fn discarded(&self, discard: Discard) -> Discarded {
        self.store.discard(discard).await.expect("discarding works")
    }

    /// A run of a workflow whose first task has failed.
    async fn dead_run(&self, worker: &Worker<'_>, workflow: &str) -> RunId {
        let run = self.start(workflow).await;
        self.fail(&worker.claim_one().await).await;
        run
    }
}

pub(crate) async fn a_task_that_failed_for_good_is_a_dead_letter(bench: &Bench<'_>) {
    bench.register("w", "a f@mail*2<a b<f !sorry").await;
    let run = bench.start_run(NewRun { tenant: tenant("acme"), ..bench.new_run("w") }).await;
    let worker = bench.worker().await;
    bench.succeed(&worker.claim_one().await).await;
    let mail = worker.claim_from("mail", 1).await;
    bench.accept(&mail[0], retry_after(seconds(0))).await;
    assert_eq!(bench.dead(any()).await, [], "another attempt is to come");
    bench.promote().await;
    bench.advance(seconds(3)).await;
    let mail = worker.claim_from("mail", 1).await;
    let failure = Failure::new(FailureCode::Custom("bounced".into()), "no such mailbox");
    bench.accept(&mail[0], Decision::Fail(failure.clone())).await;
    let failed_at = bench.now().await;
    let expected = DeadLetter {
        task: mail[0].task,
        name: TaskName::new("f").expect("it is a name"),
        round: 1,
        tenant: tenant("acme"),
        workflow: workflow_name("w"),
        version: bench.run(run).await.version,
        queue: super::bench::queue("mail"),
        failure,
        attempts: 2,
        lanes: Vec::new(),
        failed_at,
    };
    let only = std::slice::from_ref(&expected);
    assert_eq!(bench.dead(any()).await, only, "and not what was skipped");
    // The task that runs on failure changes nothing about it.
    bench.work(&worker, |_| success()).await;
    assert_eq!(bench.run_state(run).await, RunState::Failed);
    assert_eq!(bench.dead(any()).await, only);
}

pub(crate) async fn whoever_fails_is_a_dead_letter_of_its_own(bench: &Bench<'_>) {
    bench.register("w", "f g !sorry").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.work(&worker, |_| Decision::Fail(failure())).await;
    let names: Vec<String> =
        bench.dead_tasks(any()).await.into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["sorry", "g", "f"]);
    assert_eq!(bench.store.retry_run(run, 1).await, Ok(2));
    assert_eq!(bench.dead(any()).await, [], "all of them run again");
}

pub(crate) async fn a_lost_worker_with_no_attempt_left_leaves_a_dead_letter(bench: &Bench<'_>) {
    bench.register("w", "a*1").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    worker.claim_one().await;
    bench.advance(LEASE + TICK).await;
    bench.reap().await;
    assert_eq!(bench.run_state(run).await, RunState::Failed);
    let dead = bench.dead(any()).await;
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].task.run, dead[0].attempts), (run, 1));
    assert_eq!(dead[0].failure.code, FailureCode::LeaseExpired);
}

pub(crate) async fn a_task_that_nobody_claims_in_time_is_a_dead_letter(bench: &Bench<'_>) {
    let mut draft = definition("w", 1, "a").to_draft();
    draft.tasks[0].claim_timeout = Some(seconds(5));
    let definition = draft.build().expect("it can be run");
    bench.try_register(Arc::new(definition)).await.expect("it is new");
    let run = bench.start("w").await;
    bench.advance(seconds(5)).await;
    bench.promote().await;
    let dead = bench.dead(any()).await;
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].task.run, dead[0].attempts), (run, 0));
    assert_eq!(dead[0].failure.code, FailureCode::Timeout);
}

pub(crate) async fn a_dead_letter_names_the_lanes_of_its_task(bench: &Bench<'_>) {
    let mut task = TaskDraft::new("a", TaskKind::Handler);
    task.limits = vec![
        Limit::per("customer", 1),
        Limit::of(9).named("all").across_tenants(),
        Limit::per("nothing", 3),
    ];
    let definition = DefinitionDraft::new("w").task(task).build().expect("it can be run");
    bench.try_register(Arc::new(definition)).await.expect("it is new");
    let input = json(r#"{"customer":"ä 1"}"#);
    bench.start_run(NewRun { input, tenant: tenant("acme"), ..bench.new_run("w") }).await;
    let worker = bench.worker().await;
    bench.fail(&worker.claim_one().await).await;
    let dead = bench.dead(any()).await;
    let lane = |lane: &windlass_core::LaneId| {
        let key = lane.key.as_ref().map(ToString::to_string);
        (lane.limit.to_string(), lane.tenant.as_ref().map(ToString::to_string), key)
    };
    let lanes: Vec<_> = dead[0].lanes.iter().map(lane).collect();
    let text = |text: &str| Some(text.to_owned());
    let expected =
        [("all".to_owned(), None, None), ("w/a/customer".to_owned(), text("acme"), text("ä 1"))];
    assert_eq!(lanes.len(), 2, "{lanes:?}");
    assert!(expected.iter().all(|one| lanes.contains(one)), "{lanes:?}");
}

pub(crate) async fn a_run_that_is_cancelled_has_no_dead_letters(bench: &Bench<'_>) {
    bench.register("w", "f a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim(2).await;
    bench.fail(&claimed[0]).await;
    assert_eq!(bench.dead_tasks(any()).await, [(run, "f".to_owned())], "while the run goes on");
    bench.store.cancel_run(run, None).await.expect("it runs");
    assert_eq!(bench.dead(any()).await, []);
}

pub(crate) async fn dead_letters_are_found_by_each_field_and_by_all(bench: &Bench<'_>) {
    bench.register("w", "f").await;
    bench.register("v", "g").await;
    let worker = bench.worker_with_lease(seconds(600)).await;
    let first = bench.dead_run(&worker, "w").await;
    bench.advance(seconds(1)).await;
    let second = bench.start_run(NewRun { tenant: tenant("bolt"), ..bench.new_run("v") }).await;
    let timeout = Failure::new(FailureCode::Timeout, "after 5s");
    bench.accept(&worker.claim_one().await, Decision::Fail(timeout)).await;
    let at = bench.now().await;
    let name = |name: &str| Some(TaskName::new(name).expect("it is a name"));
    let is = |run: RunId, task: &str| vec![(run, task.to_owned())];
    let (older, newer) = (is(first, "f"), is(second, "g"));
    for (filter, expected) in [
        (any(), [newer.clone(), older.clone()].concat()),
        (DeadLetterFilter::of_run(first), older.clone()),
        (DeadLetterFilter { tenant: Some(tenant("bolt")), ..any() }, newer.clone()),
        (DeadLetterFilter { workflow: Some(workflow_name("w")), ..any() }, older.clone()),
        (DeadLetterFilter { task: name("g"), ..any() }, newer.clone()),
        (DeadLetterFilter { reason: Some(FailureCode::Timeout), ..any() }, newer.clone()),
        (DeadLetterFilter { since: Some(at), ..any() }, newer.clone()),
        (DeadLetterFilter { until: Some(at), ..any() }, older.clone()),
        (DeadLetterFilter { task: name("g"), run: Some(first), ..any() }, Vec::new()),
        (DeadLetterFilter { task: name("g"), until: Some(at), ..any() }, Vec::new()),
        (DeadLetterFilter { reason: Some(FailureCode::from("\0".to_owned())), ..any() }, vec![]),
    ] {
        assert_eq!(bench.dead_tasks(filter.clone()).await, expected, "{filter:?}");
    }
}

pub(crate) async fn pages_of_dead_letters_have_neither_gaps_nor_repetitions(bench: &Bench<'_>) {
    bench.register("w", "f g").await;
    let worker = bench.worker_with_lease(seconds(600)).await;
    for round in 0..4 {
        for _ in 0..2 {
            bench.start("w").await;
        }
        bench.work(&worker, |_| Decision::Fail(failure())).await;
        if round % 2 == 0 {
            bench.advance(TICK).await;
        }
    }
    let all = bench.dead(any()).await;
    assert_eq!(all.len(), 16);
    assert!(all.is_sorted_by(|one, next| one.cursor() > next.cursor()), "the newest first");
    let one_run = DeadLetterFilter::of_run(all[5].task.run);
    for (filter, expected) in [(any(), all.clone()), (one_run.clone(), bench.dead(one_run).await)] {
        for limit in [1, 3, 16, 17] {
            let (mut read, mut after) = (Vec::new(), None);
            loop {
                let page = bench.store.list_dead_letters(filter.clone(), after, limit).await;
                let page = page.expect("listing works");
                assert!(page.letters.len() <= limit);
                read.extend(page.letters);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(read, expected, "in pages of {limit}");
        }
    }
}

pub(crate) async fn a_redriven_run_goes_on_with_its_next_round(bench: &Bench<'_>) {
    bench.register("w", "a f<a b<f").await;
    let worker = bench.worker().await;
    let run = bench.start("w").await;
    bench.succeed(&worker.claim_one().await).await;
    bench.fail(&worker.claim_one().await).await;
    let answer = bench.redriven(redrive(1, DeadLetterFilter::of_run(run))).await;
    assert_eq!(answer, Redriven { runs: vec![run], ..Redriven::default() });
    assert_eq!(bench.states(run).await, "succeeded ready pending");
    assert_eq!(bench.run(run).await.round, 2);
    assert_eq!(bench.dead(any()).await, []);
    bench.fail(&worker.claim_one().await).await;
    assert_eq!(bench.dead(any()).await[0].round, 2, "it failed again");
    bench.redriven(redrive(2, any())).await;
    bench.work(&worker, |_| success()).await;
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
    assert_eq!(bench.dead(any()).await, []);
}

pub(crate) async fn a_redrive_that_is_repeated_answers_the_same(bench: &Bench<'_>) {
    bench.register("w", "f").await;
    let worker = bench.worker().await;
    let first = bench.dead_run(&worker, "w").await;
    let second = bench.dead_run(&worker, "w").await;
    let batch = Redrive { limit: 1, pace: pace(1), ..redrive(1, any()) };
    let answer = bench.redriven(batch.clone()).await;
    assert_eq!(answer.runs, [first]);
    assert!(answer.next.is_some() && answer.due.is_some(), "{answer:?}");
    bench.advance(seconds(1)).await;
    assert_eq!(bench.redriven(batch.clone()).await, answer);
    assert_eq!(bench.run_state(second).await, RunState::Failed, "not the next one");
    let conflict = bench.store.discard(discard(1, any())).await;
    assert!(matches!(conflict, Err(StoreError::Conflict(_))), "{conflict:?}");
    let redrives = LogFilter { action: Some(Action::Redrive), ..LogFilter::default() };
    let log = bench.store.list_log(redrives).await.expect("listing works");
    assert_eq!(log.entries.len(), 1, "and is written down once");
}

pub(crate) async fn batches_of_a_redrive_take_the_oldest_first(bench: &Bench<'_>) {
    bench.register("w", "f").await;
    let worker = bench.worker_with_lease(seconds(600)).await;
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(bench.dead_run(&worker, "w").await);
        bench.advance(TICK).await;
    }
    let mut after = None;
    for (number, expected) in [&runs[..2], &runs[2..4], &runs[4..]].into_iter().enumerate() {
        let batch = Redrive { limit: 2, after, ..redrive(number as u128, any()) };
        let answer = bench.redriven(batch).await;
        assert_eq!(answer.runs, expected);
        after = answer.next;
    }
    assert_eq!(after, None, "nothing is left");
    assert_eq!(bench.dead(any()).await, []);
}

pub(crate) async fn a_redrive_takes_the_dead_letters_that_its_filter_lists(bench: &Bench<'_>) {
    bench.register("w", "f").await;
    let worker = bench.worker_with_lease(seconds(600)).await;
    let mut runs = Vec::new();
    let since = bench.now().await;
    for _ in 0..2 {
        runs.push(bench.dead_run(&worker, "w").await);
        bench.advance(TICK).await;
    }
    let filter = DeadLetterFilter { since: Some(since), until: Some(since + TICK), ..any() };
    let listed: Vec<RunId> =
        bench.dead(filter.clone()).await.iter().map(|letter| letter.task.run).collect();
    assert_eq!(listed, runs[..1], "from its beginning on, and not up to its end");
    assert_eq!(bench.redriven(redrive(1, filter)).await.runs, listed);
}

pub(crate) async fn redriven_runs_begin_at_their_pace(bench: &Bench<'_>) {
    let mut draft = definition("w", 1, "f").to_draft();
    draft.timeout = Some(seconds(2));
    let definition = draft.build().expect("it can be run");
    bench.try_register(Arc::new(definition)).await.expect("it is new");
    let worker = bench.worker_with_lease(seconds(600)).await;
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(bench.dead_run(&worker, "w").await);
    }
    let begin = bench.now().await;
    let first = Redrive { limit: 3, pace: pace(2), ..redrive(1, any()) };
    let answer = bench.redriven(first).await;
    assert_eq!(answer.due, Some(begin + Duration::from_millis(1_500)));
    let pace = pace(2).map(|pace| Pace { from: answer.due, ..pace });
    bench.advance(Duration::from_millis(100)).await;
    bench.redriven(Redrive { after: answer.next, pace, ..redrive(2, any()) }).await;
    let mut dues = Vec::new();
    for run in &runs {
        let task = bench.task(*run, "f").await;
        dues.push(task.available_at.map(|at| at.since(begin).as_millis()));
        let is_first = run == &runs[0];
        assert_eq!(task.state == TaskState::Ready, is_first, "{}", task.state);
    }
    assert_eq!(dues, [None, Some(500), Some(1_000), Some(1_500), Some(2_000)]);
    // Each has its time from when it is due.
    bench.succeed(&worker.claim_one().await).await;
    for run in &runs[1..] {
        bench.advance(Duration::from_millis(500)).await;
        bench.promote().await;
        let claimed = worker.claim_one().await;
        assert_eq!(claimed.task.run, *run);
        bench.succeed(&claimed).await;
        assert_eq!(bench.run_state(*run).await, RunState::Succeeded);
    }
}

pub(crate) async fn what_cannot_be_redriven_is_refused_and_spoils_nothing(bench: &Bench<'_>) {
    bench.register("w", "f a").await;
    bench.register("u", "f").await;
    let undo = definition("u", 1, "f").to_undo().expect("it can be derived");
    bench.try_register(Arc::new(undo)).await.expect("it is new");
    let worker = bench.worker().await;
    // One that goes on, one that was undone and one that failed.
    let running = bench.start("w").await;
    let claimed = worker.claim(2).await;
    bench.fail(&claimed[0]).await;
    let undone = bench.start("u").await;
    let function = worker.claim_one().await;
    let change = StepChange::Done { number: 1, result: StepResult::Value(json("1")) };
    let name = StepName::new("s").expect("it is a name");
    let write = StepWrite { call: Call(1), name, kind: StepKind::Undoable, key: None, change };
    let recording = Recording { held: hold(&function), steps: vec![write] };
    bench.store.record(vec![recording]).await.expect("recording works");
    bench.fail(&function).await;
    let by = worker.claim_one().await;
    assert_eq!(by.task.run, RunId::of_undo(undone, 1));
    bench.succeed(&by).await;
    let failed = bench.start("w").await;
    bench.work(&worker, |_| Decision::Fail(failure())).await;
    let before = (bench.run(running).await, bench.run(undone).await);
    let answer = bench.redriven(redrive(1, any())).await;
    assert_eq!(answer.runs, [failed], "once, although two tasks of it failed");
    let refused: Vec<RunId> = answer.refused.iter().map(|one| one.run).collect();
    assert_eq!(refused, [running, undone]);
    assert!(answer.refused[0].why.contains("is running"), "{answer:?}");
    assert!(answer.refused[1].why.contains("undone by run"), "{answer:?}");
    assert_eq!((bench.run(running).await, bench.run(undone).await), before);
    let mut left: Vec<RunId> = bench.dead_tasks(any()).await.into_iter().map(|one| one.0).collect();
    left.sort();
    let mut expected = [running, undone];
    expected.sort();
    assert_eq!(left, expected);
    bench.succeed(&claimed[1]).await;
}

pub(crate) async fn a_discarded_dead_letter_is_gone_and_its_run_stays_failed(bench: &Bench<'_>) {
    bench.register("w", "f g").await;
    let worker = bench.worker().await;
    let run = bench.start("w").await;
    bench.work(&worker, |_| Decision::Fail(failure())).await;
    let before = (bench.run(run).await, bench.tasks(run).await, bench.events(run).await);
    let name = Some(TaskName::new("f").expect("it is a name"));
    let one = discard(1, DeadLetterFilter { task: name, ..any() });
    let answer = bench.discarded(one.clone()).await;
    assert_eq!((answer.letters, answer.runs.as_slice()), (1, &[run][..]));
    assert_eq!(bench.dead_tasks(any()).await, [(run, "g".to_owned())]);
    assert_eq!(bench.discarded(one).await, answer, "repeated");
    assert_eq!(bench.discarded(discard(2, any())).await.letters, 1);
    assert_eq!(bench.discarded(discard(3, any())).await, Discarded::default());
    let after = (bench.run(run).await, bench.tasks(run).await, bench.events(run).await);
    assert_eq!(after, before);
    // It can still be retried, and fails anew.
    assert_eq!(bench.store.retry_run(run, 1).await, Ok(2));
    bench.work(&worker, |_| Decision::Fail(failure())).await;
    assert_eq!(bench.dead(any()).await.len(), 2);
}

pub(crate) async fn a_halted_stream_goes_on_when_its_dead_letter_is_discarded(bench: &Bench<'_>) {
    bench.register_limited("w", Limit::per("key", 1).halt()).await;
    let worker = bench.worker().await;
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    bench.fail(&worker.claim_one().await).await;
    assert_eq!(bench.firsts(&[first, second]).await, "failed waiting");
    assert_eq!(bench.discarded(discard(1, any())).await.runs, [first]);
    assert_eq!(bench.firsts(&[first, second]).await, "failed ready");
    // Whoever comes back afterwards comes last.
    assert_eq!(bench.store.retry_run(first, 1).await, Ok(2));
    assert_eq!(bench.firsts(&[first, second]).await, "waiting ready");
}

pub(crate) async fn a_redriven_task_takes_a_token_though_it_kept_its_slot(bench: &Bench<'_>) {
    let limits = vec![Limit::per("key", 1).halt(), Limit::rate(1, seconds(10))];
    let definition = limited("w", 1, &[("a", limits)]);
    bench.try_register(definition).await.expect("it can be registered");
    let worker = bench.worker().await;
    let first = bench.start_keyed("w", "x").await;
    let second = bench.start_keyed("w", "x").await;
    bench.fail(&worker.claim_one().await).await;
    bench.advance(seconds(1)).await;
    assert_eq!(bench.redriven(redrive(1, any())).await.runs, [first]);
    assert_eq!(bench.firsts(&[first, second]).await, "waiting waiting");
    bench.advance(seconds(9) - TICK).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second]).await, "waiting waiting", "never early");
    bench.advance(TICK).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second]).await, "ready waiting", "it kept its slot");
}

pub(crate) async fn a_breaker_does_not_wait_for_a_dead_letter(bench: &Bench<'_>) {
    let breaker = Limit::breaker(50).calls(1).pause(seconds(10));
    let limits = vec![Limit::per("key", 1).halt(), breaker];
    let mut draft = limited("w", 1, &[("a", limits)]).to_draft();
    draft.tasks[0].retry = RetryPolicy::none();
    let definition = Arc::new(draft.build().expect("it is a workflow"));
    bench.try_register(definition).await.expect("it can be registered");
    let worker = bench.worker_with_lease(seconds(5)).await;
    let first = bench.start_keyed("w", "x").await;
    bench.fail(&worker.claim_one().await).await;
    let second = bench.start_keyed("w", "y").await;
    let third = bench.start_keyed("w", "z").await;
    bench.advance(seconds(10)).await;
    bench.promote().await;
    assert_eq!(bench.firsts(&[first, second, third]).await, "failed ready waiting");
    // The one that tries is lost with its worker, and says nothing of whether it works.
    let lost = bench.worker_with_lease(seconds(5)).await;
    lost.claim_one().await;
    bench.advance(seconds(6)).await;
    bench.reap().await;
    assert_eq!(bench.firsts(&[first, second, third]).await, "failed failed ready");
}

pub(crate) async fn dead_letters_of_a_run_that_goes_on_are_not_discarded(bench: &Bench<'_>) {
    bench.register("w", "f a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim(2).await;
    bench.fail(&claimed[0]).await;
    let answer = bench.discarded(discard(1, any())).await;
    assert_eq!((answer.letters, answer.refused[0].run), (0, run));
    assert!(answer.refused[0].why.contains("is running"), "{answer:?}");
    bench.succeed(&claimed[1]).await;
    assert_eq!(bench.discarded(discard(2, any())).await.letters, 1);
}

pub(crate) async fn a_batch_of_dead_letters_has_a_limit(bench: &Bench<'_>) {
    bench.register("w", "f*1").await;
    let worker = bench.worker().await;
    for _ in 0..=REDRIVE_MAX {
        bench.start("w").await;
    }
    bench.work(&worker, |_| Decision::Fail(failure())).await;
    let all = Redrive { limit: usize::MAX, ..redrive(1, any()) };
    let answer = bench.redriven(all).await;
    assert_eq!(answer.runs.len(), REDRIVE_MAX);
    assert!(answer.next.is_some());
    bench.work(&worker, |_| Decision::Fail(failure())).await;
    let answer = bench.discarded(discard(2, any())).await;
    assert_eq!(answer.letters, REDRIVE_MAX);
    let rest = Discard { after: answer.next, ..discard(3, any()) };
    assert_eq!(bench.discarded(rest).await.letters, 1);
}

pub(crate) async fn what_operators_do_is_written_down(bench: &Bench<'_>) {
    bench.register("w", "f").await;
    let worker = bench.worker_with_lease(seconds(600)).await;
    let run = bench.dead_run(&worker, "w").await;
    bench.redriven(redrive(1, DeadLetterFilter::of_run(run))).await;
    bench.advance(seconds(1)).await;
    let entry = NewLogEntry {
        id: action(2),
        by: operator("otto@ops").into(),
        action: Action::CancelRun,
        tenant: None,
        run: Some(run),
        detail: Some(json(r#"{"why":"too late"}"#)),
    };
    for _ in 0..2 {
        bench.store.log(entry.clone()).await.expect("writing works");
    }
    if bench.store.keeps_log() {
        let all = bench.store.list_log(LogFilter::default()).await.expect("listing works");
        let actions: Vec<Action> = all.entries.iter().map(|entry| entry.action).collect();
        assert_eq!(actions, [Action::Redrive, Action::RegisterWorkflow], "what it did itself");
        return;
    }
    let other = NewLogEntry { action: Action::SetWeight, ..entry.clone() };
    let conflict = bench.store.log(other).await;
    assert!(matches!(conflict, Err(StoreError::Conflict(_))), "{conflict:?}");
    let list = async |filter: LogFilter| {
        let page = bench.store.list_log(filter).await.expect("listing works");
        page.entries
    };
    let all = list(LogFilter::default()).await;
    assert_eq!(all.len(), 2);
    assert!(all[0].number > all[1].number, "the newest first");
    assert_eq!((all[0].id, all[0].action), (action(2), Action::CancelRun));
    assert_eq!((all[0].at, all[0].detail.clone()), (bench.now().await, entry.detail));
    assert_eq!((all[1].action, all[1].runs.as_slice()), (Action::Redrive, &[run][..]));
    assert_eq!(all[1].by, operator("anna@ops").into());
    let by = LogFilter { by: Some(operator("otto@ops")), ..LogFilter::default() };
    assert_eq!(list(by).await, all[..1]);
    assert_eq!(list(LogFilter { run: Some(run), ..LogFilter::default() }).await, all);
    let nobody = LogFilter { run: Some(bench.run_id()), ..LogFilter::default() };
    assert_eq!(list(nobody).await, []);
    let redrives = LogFilter { action: Some(Action::Redrive), ..LogFilter::default() };
    assert_eq!(list(redrives).await, all[1..]);
    let page = bench.store.list_log(LogFilter { limit: 1, ..LogFilter::default() }).await;
    let page = page.expect("listing works");
    assert_eq!((page.entries.as_slice(), page.next), (&all[..1], Some(all[0].number)));
    let rest = LogFilter { before: page.next, ..LogFilter::default() };
    assert_eq!(list(rest).await, all[1..]);
}

pub(crate) async fn the_log_of_a_run_shows_a_tenant_its_own_lines(bench: &Bench<'_>) {
    if bench.store.keeps_log() {
        // It writes the log by itself.
        return;
    }
    bench.register("w", "f").await;
    let run = bench.start("w").await;
    let tenant = |name: &str| Some(super::bench::tenant(name));
    let entry = NewLogEntry {
        id: action(1),
        by: operator("anna@ops").into(),
        action: Action::CancelRun,
        tenant: tenant("acme"),
        run: Some(run),
        detail: None,
    };
    bench.store.log(entry).await.expect("it is written down");
    let lines = async |whose: &str| {
        let filter = LogFilter { run: Some(run), tenant: tenant(whose), ..LogFilter::default() };
        bench.store.list_log(filter).await.expect("listing works").entries.len()
    };
    assert_eq!((lines("acme").await, lines("bolt").await), (1, 0));
}
