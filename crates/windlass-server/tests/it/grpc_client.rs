//! A store behind a server answers what the store answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use windlass::clock::VirtualClock;
use windlass::remote::RemoteStore;
use windlass::store::{
    Action, Author, DeadLetterFilter, Discard, DutyClaim, DutyDeclaration, DutyEnd, DutyMandate,
    DutyOutcome, DutyStore, LeaderRecord, LogFilter, Mailbox, MemoryStore, NewKeySignal, NewRun,
    NewSchedule, NewSignal, PAGE_MAX, QueueStore, Redrive, RetentionRule, RunFilter,
    ScheduleFilter, ScheduleKey, ScheduleStore, Store, StoreError, WorkerFilter,
};
use windlass::wire::write_all;
use windlass::{
    ActionId, Cadence, CandidateId, Definition, DutyName, ErrorKind, Operator, Payload, Priority,
    RetryPolicy, RunId, RunState, Schedule, ScheduleName, ScheduleOwner, SignalId, TaskError,
    TaskName, Tenant, Timestamp, Version, Windlass, Workflow, WorkflowName,
};
use windlass_core::schedule::Timing;
use windlass_core::{SignalKey, StepName, TaskId, TaskIndex, Weight};

use crate::served::Served;

/// How long something may take that happens by itself.
const SOON: Duration = Duration::from_secs(20);

fn payload(text: &str) -> Payload {
    Payload::from_json(text.to_owned()).expect("it is JSON")
}

fn new_run(number: u128, workflow: &str, input: Payload) -> NewRun {
    NewRun {
        id: RunId::from_parts(Timestamp::from_micros(1_750_000_000_000_000), number),
        workflow: WorkflowName::new(workflow).expect("it is a name"),
        version: Version::FIRST,
        tenant: Tenant::default(),
        input,
        key: None,
        delay: Duration::ZERO,
        priority: Priority::default(),
        metadata: BTreeMap::from([("region".to_owned(), "eu".to_owned())]),
    }
}

/// A workflow with a task that fails once and for all if its input says so.
fn order() -> Workflow<bool> {
    let mut order = Workflow::<bool>::builder("order");
    let charge = order.task("charge").retry(RetryPolicy::none());
    charge.run(async |ctx| match ctx.input() {
        true => Err(TaskError::new("none is left")),
        false => Ok("charged".to_owned()),
    });
    order.build().expect("it makes sense")
}

struct Both {
    near: Arc<MemoryStore>,
    far: RemoteStore,
    served: Served,
}

async fn both() -> Both {
    let clock = VirtualClock::new(Timestamp::from_micros(1_750_000_000_000_000));
    let near = Arc::new(MemoryStore::with_clock(Arc::new(clock)));
    let served = Served::new(near.clone()).await;
    Both { near, far: served.store(), served }
}

fn schedule(name: &str) -> NewSchedule {
    NewSchedule {
        key: ScheduleKey {
            tenant: Tenant::default(),
            name: ScheduleName::new(name).expect("it is a name"),
        },
        workflow: WorkflowName::new("order").expect("it is a name"),
        version: Version::FIRST,
        input: payload("false"),
        priority: Priority::default(),
        timing: Timing::new(Cadence::every(Duration::from_secs(3_600)).expect("it is one")),
        owner: Some(ScheduleOwner::new("billing").expect("it is a name")),
    }
}

#[tokio::test]
async fn a_start_keeps_no_metadata_that_only_the_engine_writes() {
    let Both { near, far, served: _served } = both().await;
    far.register(Arc::clone(order().definition())).await.expect("it is registered");
    let mut run = new_run(1, "order", payload("true"));
    let (id, honest) = (run.id, run.metadata.clone());
    for name in ["windlass.schedule", "windlass.by", "windlass.x"] {
        run.metadata.insert(name.to_owned(), "forged".to_owned());
    }
    far.start_runs(vec![run]).await.expect("it is answered").remove(0).expect("it is started");
    let record = near.get_run(id).await.expect("reading works").expect("it is there");
    assert_eq!(record.metadata, honest);
}

#[tokio::test]
async fn what_is_written_through_the_server_is_read_the_same_on_both_sides() {
    let Both { near, far, served: _served } = both().await;
    let order = order();
    let definition: Arc<Definition> = Arc::clone(order.definition());
    far.register(definition).await.expect("it is registered");
    let runs = vec![
        new_run(1, "order", payload("true")),
        new_run(2, "order", payload("false")),
        new_run(3, "nothing", payload("null")),
    ];
    let (failed, done) = (runs[0].id, runs[1].id);
    let answers = far.start_runs(runs.clone()).await.expect("they are answered");
    assert!(answers[0].as_ref().is_ok_and(|started| started.is_new), "{answers:?}");
    assert!(matches!(&answers[2], Err(StoreError::NotFound(_))), "{answers:?}");
    // A worker beside the server does the work.
    let windlass = Windlass::with_store(near.clone());
    let worker = windlass.worker().register(&order).spawn().expect("it is set up");
    for run in [failed, done] {
        timeout(SOON, windlass.run(run).wait()).await.expect("in time").expect("it ended");
    }
    worker.drain().await.expect("it ends");
    assert_eq!(near.start_runs(runs.clone()).await, far.start_runs(runs).await);

    for run in [failed, done, RunId::from_parts(Timestamp::from_micros(0), 9)] {
        assert_eq!(near.get_run(run).await, far.get_run(run).await);
        assert_eq!(near.list_tasks(run, None, 10).await, far.list_tasks(run, None, 10).await);
        let behind = Some(TaskIndex(0));
        assert_eq!(near.list_tasks(run, behind, 10).await, far.list_tasks(run, behind, 10).await);
        let name = TaskName::new("charge").expect("it is a name");
        assert_eq!(near.get_task(run, name.clone()).await, far.get_task(run, name.clone()).await);
        let events = near.list_events(run, None, PAGE_MAX).await;
        assert_eq!(events, far.list_events(run, None, PAGE_MAX).await);
        assert_eq!(near.list_events(run, None, 2).await, far.list_events(run, None, 2).await);
        assert_eq!(near.why(run, None).await, far.why(run, None).await);
        assert_eq!(near.why(run, Some(name.clone())).await, far.why(run, Some(name)).await);
        let task = TaskId { run, index: TaskIndex(0) };
        assert_eq!(near.list_steps(task, None, 5).await, far.list_steps(task, None, 5).await);
        assert_eq!(near.get_archived_run(run).await, far.get_archived_run(run).await);
    }
    assert!(near.get_run(failed).await.is_ok_and(|run| run.is_some()), "there is something");
    let filter = RunFilter { state: Some(RunState::Failed), limit: 1, ..RunFilter::default() };
    assert_eq!(near.list_runs(filter.clone()).await, far.list_runs(filter).await);
    let page = RunFilter { limit: 1, ..RunFilter::default() };
    let next = far.list_runs(page.clone()).await.expect("there are some").next;
    assert!(next.is_some(), "there are two");
    let page = RunFilter { after: next, ..page };
    assert_eq!(near.list_runs(page.clone()).await, far.list_runs(page).await);

    let letters = DeadLetterFilter::of_run(failed);
    let near_page = near.list_dead_letters(letters.clone(), None, 10).await.expect("it is read");
    assert_eq!(near_page.letters.len(), 1);
    assert_eq!(Ok(near_page), far.list_dead_letters(letters.clone(), None, 10).await);
    let by = Author::from(Operator::new("ada").expect("it is a name"));
    let redrive = Redrive {
        id: ActionId::from_random(1),
        by: by.clone(),
        filter: letters.clone(),
        after: None,
        limit: 0,
        pace: None,
    };
    let redriven = far.redrive(redrive.clone()).await.expect("it is done");
    assert_eq!(redriven.runs, [failed]);
    assert_eq!(near.redrive(redrive).await, Ok(redriven), "the same once more");
    let id = ActionId::from_random(2);
    let discard = Discard { id, by: by.clone(), filter: letters, after: None, limit: 0 };
    let discarded = far.discard(discard.clone()).await;
    assert_eq!(near.discard(discard).await, discarded);
    let log = near.list_log(LogFilter::default()).await.expect("it is read");
    let actions: Vec<Action> = log.entries.iter().map(|entry| entry.action).collect();
    let done = [Action::Discard, Action::Redrive, Action::RegisterWorkflow];
    assert_eq!(actions, done);
    assert_eq!(Ok(log), far.list_log(LogFilter::default()).await);

    far.cancel_run(failed, Some("no".to_owned())).await.expect("it runs");
    assert_eq!(near.get_run(failed).await, far.get_run(failed).await);
    let rule = RetentionRule::new(RunState::Failed, Duration::from_secs(60));
    far.set_retention(rule.clone()).await.expect("it is set");
    assert_eq!(near.list_retention().await, Ok(vec![rule]));
    assert_eq!(near.list_retention().await, far.list_retention().await);
    assert_eq!(far.clear_retention(None, RunState::Failed).await, Ok(true));
    assert_eq!(far.clear_retention(None, RunState::Failed).await, Ok(false));
    far.set_weight(Tenant::default(), Weight::MAX).await.expect("it is set");
    let all = WorkerFilter { with_dead: true, ..WorkerFilter::default() };
    let workers = near.list_workers(all.clone()).await.expect("they are read");
    assert_eq!(workers.workers.len(), 1);
    assert_eq!(Ok(workers), far.list_workers(all).await);
    // How long sweeps took is told in whole microseconds.
    let leaders = |leaders: Vec<LeaderRecord>| write_all(&leaders);
    let near_leaders = near.list_leaders().await.map(leaders);
    assert_eq!(near_leaders, far.list_leaders().await.map(leaders));
    near.roll_up(100).await.expect("it is rolled up");
    let queues = near.list_queues().await.expect("they are read");
    assert!(!queues.queues.is_empty());
    assert_eq!(Ok(queues), far.list_queues().await);
    assert_eq!(near.now().await, far.now().await);
}

#[tokio::test]
async fn schedules_and_duties_of_programs_go_through_the_server() {
    let Both { near, far, served: _served } = both().await;
    far.register(Arc::clone(order().definition())).await.expect("it is registered");
    let record = far.put_schedule(schedule("hourly")).await.expect("it is made");
    let key = record.schedule.key.clone();
    assert_eq!(near.get_schedule(key.clone()).await, Ok(Some(record)));
    let run = RunId::from_parts(Timestamp::from_micros(7), 7);
    assert!(far.trigger_schedule(key.clone(), run).await.is_ok_and(|it| it.is_new));
    let now = near.now().await.expect("it is told");
    let from = Timestamp::from_micros(now.as_micros() - 7_200_000_000);
    let filled = far.backfill_schedule(key.clone(), from, now).await.expect("it is done");
    assert_eq!(filled.started, 2);
    let fires = near.list_fires(key.clone(), 10).await.expect("they are read");
    assert_eq!(fires.len(), 3);
    assert_eq!(Ok(fires), far.list_fires(key.clone(), 10).await);
    far.pause_schedule(key.clone()).await.expect("it is there");
    assert_eq!(near.get_schedule(key.clone()).await, far.get_schedule(key.clone()).await);
    far.resume_schedule(key.clone()).await.expect("it is there");
    let owner = ScheduleOwner::new("billing").expect("it is a name");
    assert_eq!(far.disable_schedules(owner, None, Vec::new()).await, Ok(vec![key.clone()]));
    let page = near.list_schedules(ScheduleFilter::default()).await;
    assert_eq!(page, far.list_schedules(ScheduleFilter::default()).await);
    far.delete_schedule(key.clone()).await.expect("it is deleted");
    assert_eq!(near.get_schedule(key).await, Ok(None));

    let name = DutyName::new("sync").expect("it is a name");
    let candidate = CandidateId::from_random(1);
    let every = Duration::from_secs(60);
    let claim = DutyClaim {
        candidate,
        process: "a".to_owned(),
        ttl: every,
        duties: vec![DutyDeclaration { name: name.clone(), every, is_new: true }],
    };
    let standing = far.claim_duties(claim).await.expect("it is answered");
    assert!(standing.duties[0].is_held_by(candidate));
    assert_eq!(near.list_duties().await, Ok(standing.duties.clone()));
    assert_eq!(near.list_duties().await, far.list_duties().await);
    let mandate = DutyMandate { name: name.clone(), candidate, term: standing.duties[0].term };
    let renewed = far.renew_duties(vec![mandate.clone()], every).await;
    assert_eq!(renewed, Ok(vec![name.clone()]));
    let held = far.forget_duty(name.clone()).await;
    assert!(matches!(held, Err(StoreError::Conflict(_))), "someone is at it: {held:?}");
    let end = DutyEnd { mandate, took: every, outcome: DutyOutcome::Failed("no".to_owned()) };
    let ended = far.end_duty(end.clone()).await.expect("it is answered");
    assert!(ended.as_ref().is_some_and(|(_, duty)| duty.errors == 1), "{ended:?}");
    let mandate = DutyMandate { candidate: CandidateId::from_random(2), ..end.mandate.clone() };
    assert_eq!(far.end_duty(DutyEnd { mandate, ..end }).await, Ok(None), "another's");
    assert_eq!(far.forget_duty(name.clone()).await, Ok(true));
    assert_eq!(far.forget_duty(name).await, Ok(false));
}

#[tokio::test]
async fn errors_keep_their_kind_and_their_words() {
    let Both { near, far, served } = both().await;
    far.register(Arc::clone(order().definition())).await.expect("it is registered");
    let run = new_run(1, "order", payload("false"));
    let id = run.id;
    far.start_runs(vec![run.clone()]).await.expect("it is started");
    let unknown = RunId::from_parts(Timestamp::from_micros(1), 1);
    assert!(matches!(near.cancel_run(unknown, None).await, Err(StoreError::NotFound(_))));
    assert_eq!(near.cancel_run(unknown, None).await, far.cancel_run(unknown, None).await);
    assert!(matches!(near.retry_run(id, 1).await, Err(StoreError::Conflict(_))));
    assert_eq!(near.retry_run(id, 1).await, far.retry_run(id, 1).await);
    assert_eq!(near.undo_run(id).await, far.undo_run(id).await);
    let signal = NewSignal {
        id: SignalId::from_random(1),
        run: unknown,
        name: StepName::new("paid").expect("it is a name"),
        value: payload("1"),
    };
    assert_eq!(near.signal(signal.clone()).await, far.signal(signal).await);
    let to = Mailbox {
        tenant: Tenant::default(),
        key: SignalKey::new("k").expect("it is a key"),
        name: StepName::new("paid").expect("it is a name"),
    };
    let (id, value) = (SignalId::from_random(2), payload("1"));
    let kept = NewKeySignal { id, to, value, keep_for: Duration::ZERO };
    assert!(matches!(near.signal_key(kept.clone()).await, Err(StoreError::Conflict(_))));
    assert_eq!(near.signal_key(kept.clone()).await, far.signal_key(kept).await);
    let too_many =
        (0..=10_000).map(|number| NewRun { id: unknown, ..new_run(number, "order", payload("1")) });
    let too_many: Vec<NewRun> = too_many.collect();
    assert_eq!(near.start_runs(too_many.clone()).await, far.start_runs(too_many).await);
    for refused in [far.promote_due(1).await, far.reap(1).await, far.prune(1).await] {
        let Err(StoreError::Conflict(text)) = &refused else { panic!("{refused:?}") };
        assert!(text.starts_with("the server does the duties"), "{text}");
    }
    // Nobody is there any more.
    let url = served.url();
    drop((far, served));
    let gone = RemoteStore::connect(url).expect("it is an address");
    let until_gone = async {
        while gone.now().await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, until_gone).await.expect("it ends");
    let answer = gone.get_run(run.id).await;
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    let error = Windlass::connect_server("localhost:7070").expect_err("it is no address");
    assert_eq!(error.kind(), ErrorKind::Argument);
}

#[tokio::test]
async fn a_worker_behind_a_server_leaves_the_background_duties_to_it() {
    let near = Arc::new(MemoryStore::new());
    let served = Served::new(near.clone()).await;
    let store = Arc::new(served.store());
    let windlass = Windlass::with_store(store);
    let order = order();
    let (done, mut was_done) = tokio::sync::mpsc::unbounded_channel();
    let hourly = Cadence::every(Duration::from_secs(3_600)).expect("it is one");
    let worker = windlass
        .worker()
        .register(&order)
        .duty("sync", Duration::from_secs(60), move |_| {
            let done = done.clone();
            async move {
                done.send(()).ok();
                Ok::<_, TaskError>(())
            }
        })
        .schedules("billing", [Schedule::new("hourly", &order, false, hourly)])
        .spawn()
        .expect("it is set up");
    // The wait is ended by a hint that comes through the server, or by a look.
    let run = windlass.start(&order, false).await.expect("it is started");
    let record = timeout(SOON, run.wait()).await.expect("in time").expect("it ended");
    assert_eq!(record.state, RunState::Succeeded);
    timeout(SOON, was_done.recv()).await.expect("in time").expect("the duty was done");
    let declared = async {
        while near
            .list_schedules(ScheduleFilter::default())
            .await
            .is_ok_and(|it| it.schedules.is_empty())
        {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, declared).await.expect("the schedule is there");
    worker.drain().await.expect("it ends");
    let leaders = near.list_leaders().await.expect("they are read");
    assert!(leaders.iter().all(|leader| leader.holder.is_none()), "{leaders:?}");
}

#[tokio::test]
async fn lists_that_are_too_large_for_one_answer_come_in_parts() {
    let Both { near, far, served: _served } = both().await;
    let mut big = Workflow::<()>::builder("big");
    for place in 0..20 {
        big.task(format!("task-{place}")).run(async |_| Ok::<_, TaskError>("x".repeat(900_000)));
    }
    let big = big.build().expect("it makes sense");
    let windlass = Windlass::with_store(near.clone());
    let worker = windlass.worker().register(&big).spawn().expect("it is set up");
    let run = windlass.start(&big, ()).await.expect("it is started");
    timeout(SOON, run.wait()).await.expect("in time").expect("it ended");
    worker.drain().await.expect("it ends");
    let tasks = near.list_tasks(run.id(), None, PAGE_MAX).await.expect("they are read");
    assert_eq!(tasks.len(), 20);
    assert_eq!(Ok(tasks), far.list_tasks(run.id(), None, PAGE_MAX).await);
    // So many inputs would not fit into one answer: a list has none.
    near.register(Arc::clone(order().definition())).await.expect("it is registered");
    let input = payload(&format!("\"{}\"", "x".repeat(900_000)));
    let runs = (1..=20).map(|number| new_run(number, "order", input.clone())).collect();
    near.start_runs(runs).await.expect("they are started");
    let filter = RunFilter { workflow: WorkflowName::new("order").ok(), ..RunFilter::default() };
    let page = far.list_runs(filter).await.expect("it is read");
    assert_eq!((page.runs.len(), page.next), (20, None));
    assert!(page.runs.iter().all(|run| run.input.is_none()));
}
