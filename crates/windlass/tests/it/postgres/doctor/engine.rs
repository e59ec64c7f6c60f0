//! Leaders, leases, timers, staged runs, and tasks that nobody serves.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass::schedule::{Cadence, Timing};
use windlass::store::postgres::{PostgresStore, repair};
use windlass::store::{
    Answer, Completion, Hello, NewRun, NewSchedule, Refusal, ScheduleKey, ScheduleStore, Store,
    WorkerInfo, WorkerLink,
};
use windlass::{Ctx, TaskError, Windlass, Workflow};
use windlass_core::definition::TaskDraft;
use windlass_core::{
    Decision, Definition, DefinitionDraft, Failure, FailureCode, Limit, Payload, Priority,
    QueueName, RunId, ScheduleName, TaskKind, TaskState, Tenant, WorkerId,
};

use super::super::driver::{LEASE, Worker, new_run, success};
use super::super::found_by_audit;
use super::*;

/// Whatever is late at all.
fn at_once() -> DoctorOptions {
    DoctorOptions::new().late_after(Duration::ZERO)
}

async fn store(patient: &Patient) -> PostgresStore {
    let options = PostgresOptions::new(patient.database.url());
    PostgresStore::connect(options).await.expect("the database is there")
}

#[tokio::test]
async fn duties_that_nobody_does_are_found() {
    let patient = Patient::with(at_once()).await;
    patient.assert_well("engine.leaders", "in a database where nothing waits").await;
    let options = PostgresOptions::new(patient.database.url());
    let engine = Windlass::connect(options).await.expect("the database is there");
    let mut one = Workflow::<()>::builder("one");
    one.task("a").run(async |_: Ctx<()>| Ok::<_, TaskError>(()));
    let one = one.build().expect("it is right");
    let worker = engine.worker().register(&one).name("lone").spawn().expect("it is right");
    // Its first run ends when it leads: the start of it is staged until then, or ready.
    engine.start(&one, ()).await.expect("it can be").wait().await.expect("it ends");
    let delay = Duration::from_secs(3_600);
    engine.start(&one, ()).delay(delay).await.expect("it can be started");
    patient.until_led().await;
    patient.assert_well("engine.leaders", "while somebody leads").await;

    worker.drain().await.expect("it has no reason to give up");
    let found = patient.findings("engine.leaders").await;
    assert_eq!(found.len(), 2, "{found:#?}");
    for (finding, duty) in found.iter().zip(["promote_due", "reap"]) {
        let gave_up = format!("gave up {duty}, and no other process leads it");
        assert_one(vec![finding.clone()], FindingSeverity::Critical, &["lone", &gave_up]);
    }
    // As if it had been killed.
    patient.execute("update windlass.leaders set is_given_up = false, until = now()").await;
    let found = patient.findings("engine.leaders").await;
    assert!(found[0].problem.contains("was last seen at"), "{found:#?}");
    let patient = Patient { options: DoctorOptions::new(), ..patient };
    patient.assert_well("engine.leaders", "while that may be a pause").await;
    let patient = Patient { options: at_once(), ..patient };
    let duties = engine.duties(Duration::from_millis(50)).expect("it is right");
    patient.until_led().await;
    patient.assert_well("engine.leaders", "after").await;
    drop(duties);
}

impl Patient {
    /// Waits until all duties have a leader.
    async fn until_led(&self) {
        let sql = "select count(*) from windlass.leaders where not is_given_up and until > now()";
        let began = std::time::Instant::now();
        while self.client.query_one(sql, &[]).await.expect("they are there").get::<_, i64>(0) < 3 {
            assert!(began.elapsed() < WAIT_MAX, "nobody leads");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn leases_and_workers_that_nobody_reaps_are_found() {
    let patient = Patient::new().await;
    let store = store(&patient).await;
    let one = workflow("one", &["a"]);
    start(&store, &one).await;
    let worker = Worker::join(&store, &one).await;
    let idle = Worker::join(&store, &one).await;
    assert_eq!(worker.claim(&store, 1).await.len(), 1);
    patient.assert_well("engine.leases", "while the lease holds").await;
    patient.execute("update windlass.pulses set lease_until = now() - interval '1 hour'").await;
    let id = format!("the lease of worker {}", worker.id);
    let words = [&id, "it still holds tasks"].map(|word| word as &str);
    let finding = patient.assert_found("engine.leases", FindingSeverity::Critical, &words).await;
    assert!(!finding.problem.contains(&idle.id.to_string()), "one that has none: {finding:#?}");

    patient.assert_well("engine.workers", "while nobody is dying").await;
    let dying = format!("update windlass.workers set state = 'dying' where id = '{}'", worker.id);
    patient.execute(&dying).await;
    let words = ["has been dying since about", &worker.id.to_string(), "windlass audit"];
    patient.assert_found("engine.workers", FindingSeverity::Warning, &words).await;
    store.reap(100).await.expect("it can be reaped");
    patient.assert_well("engine.leases", "after").await;
    patient.assert_well("engine.workers", "after").await;

    let worker = Worker::join(&store, &one).await;
    assert_eq!(worker.claim(&store, 1).await.len(), 1);
    patient.assert_well("engine.leases", "with a new lease").await;
    patient.execute("update windlass.leases set take_back_at = now() - interval '1 hour'").await;
    let words = ["should have been reclaimed from worker", &worker.id.to_string()];
    patient.assert_found("engine.leases", FindingSeverity::Critical, &words).await;
    store.reap(100).await.expect("it can be reaped");
    patient.assert_well("engine.leases", "after that").await;
}

#[tokio::test]
async fn timers_deadlines_and_staged_runs_that_are_late_are_found() {
    let patient = Patient::new().await;
    let store = store(&patient).await;
    let one = workflow("one", &["a"]);
    let run = start(&store, &one).await.to_string();
    let due = |what: &str, when: &str| match what {
        "timers" => format!(
            "insert into windlass.timers (run_id, idx, due, seq, fence, attempt, max_attempts)
             values ('{run}', 0, {when}, 1, 0, 0, 1)"
        ),
        _ => format!(
            "insert into windlass.deadlines (run_id, idx, fence, due)
             values ('{run}', -1, 0, {when})"
        ),
    };
    for (what, said) in [("timers", "was due at"), ("deadlines", "a deadline of run")] {
        let id = "engine.timers";
        patient.execute(&due(what, "now() + interval '1 hour'")).await;
        patient.assert_well(id, "before it is due").await;
        patient.execute(&format!("delete from windlass.{what}")).await;
        patient.execute(&due(what, "now() - interval '1 hour'")).await;
        let words = [said, &run, "Windlass::duties"];
        patient.assert_found(id, FindingSeverity::Critical, &words).await;
        patient.execute(&format!("delete from windlass.{what}")).await;
        patient.assert_well(id, "after").await;
    }

    let id = "engine.staged";
    patient.assert_well(id, "before").await;
    patient.execute("insert into windlass.staged (run_id) select id from windlass.runs").await;
    patient.assert_well(id, "for a moment").await;
    patient.execute("update windlass.runs set created_at = now() - interval '1 hour'").await;
    let words = ["the start of run", &run];
    patient.assert_found(id, FindingSeverity::Critical, &words).await;
    patient.execute("delete from windlass.staged").await;
    let word = "insert into windlass.staged (run_id, purpose, child_id)
                select gen_random_uuid(), 'child_ended', id from windlass.runs";
    patient
        .execute("update windlass.runs set state = 'failed', open_tasks = 0, ended_at = now()")
        .await;
    patient.execute(word).await;
    patient.assert_well(id, "for a moment").await;
    patient.execute("update windlass.runs set ended_at = now() - interval '1 hour'").await;
    let words = ["the end of a child of run"];
    patient.assert_found(id, FindingSeverity::Critical, &words).await;
    patient.execute("delete from windlass.staged").await;
    let told = "insert into windlass.key_waiters (run_id, idx, call, is_told, tenant, key, name)
                select id, 0, 1, true, 'default', 'pay_1', 'paid' from windlass.runs;
                insert into windlass.key_signals (tenant, key, name, id, at, expires_at, value)
                values ('default', 'pay_1', 'paid', gen_random_uuid(), now(), 'infinity', '1');
                insert into windlass.staged (run_id, purpose)
                select id, 'signalled' from windlass.runs";
    patient.execute(told).await;
    patient.assert_well(id, "for a moment").await;
    patient.execute("update windlass.key_signals set at = now() - interval '1 hour'").await;
    let words = ["a signal to a key for run", &run];
    patient.assert_found(id, FindingSeverity::Critical, &words).await;
    patient.execute("delete from windlass.staged").await;
    patient.assert_well(id, "after").await;
}

/// Lets a worker join that says what it serves.
async fn serve(store: &PostgresStore, number: u128, workflow: &Arc<Definition>, queue: &str) {
    let queue = QueueName::new(queue).expect("it is a name");
    let metadata = BTreeMap::new();
    let info = WorkerInfo { queues: vec![queue], metadata, ..WorkerInfo::default() };
    let hello = Hello {
        worker: WorkerId::from_random(number),
        name: "server".to_owned(),
        slots: 1,
        lease: LEASE,
        definitions: vec![Arc::clone(workflow)],
        info,
    };
    store.join(hello).await.expect("a new worker can join");
}

#[tokio::test]
async fn tasks_that_no_worker_can_run_are_found() {
    let patient = Patient::new().await;
    let store = store(&patient).await;
    let id = "engine.unserved";
    let one = workflow("one", &["a"]);
    patient.assert_well(id, "before").await;
    start(&store, &one).await;
    let words = [
        "workflow \"one\" version 1 has ready tasks in queue \"default\"",
        "no live worker is registered for this workflow",
    ];
    patient.assert_found(id, FindingSeverity::Warning, &words).await;
    serve(&store, 1, &workflow("two", &["a"]), "default").await;
    patient.assert_found(id, FindingSeverity::Warning, &words).await;
    serve(&store, 2, &one, "other").await;
    let words = ["or serve other queues"];
    patient.assert_found(id, FindingSeverity::Warning, &words).await;
    serve(&store, 3, &one, "default").await;
    patient.assert_well(id, "with a worker").await;
    patient.execute("update windlass.pulses set lease_until = now() - interval '61 s'").await;
    patient
        .assert_found(id, FindingSeverity::Warning, &["no live worker is registered for them"])
        .await;
    patient.execute("update windlass.pulses set lease_until = now()").await;
    patient.execute("update windlass.workers set is_draining = true").await;
    patient
        .assert_found(id, FindingSeverity::Warning, &["no live worker is registered for them"])
        .await;
}

/// Registers a workflow with one slot per key. Returns it and two runs of one key.
async fn two_of_a_key(store: &PostgresStore) -> (Arc<Definition>, [NewRun; 2]) {
    let mut task = TaskDraft::new("a", TaskKind::Handler);
    task.limits = vec![Limit::per("key", 1)];
    let limited =
        Arc::new(DefinitionDraft::new("limited").task(task).build().expect("it is right"));
    let input = Payload::from_json("{\"key\":\"acme\"}").expect("it is JSON");
    store.register(Arc::clone(&limited)).await.expect("it can be registered");
    let runs = [(); 2].map(|()| NewRun { input: input.clone(), ..new_run(&limited) });
    (limited, runs)
}

/// Starts runs of a key with one slot and finishes the first of them, whose slot is then taken
/// back by hand, as if it had not been released. Returns the run that waits.
async fn block_a_key(patient: &Patient, store: &PostgresStore) -> RunId {
    let (limited, [first, second]) = two_of_a_key(store).await;
    let waiting = second.id;
    store.start_runs(vec![first]).await.expect("the store is there");
    let worker = Worker::join(store, &limited).await;
    let tasks = worker.claim(store, 1).await;
    finish_and_keep_slot(patient, store, success(&tasks[0])).await;
    store.start_runs(vec![second]).await.expect("the store is there");
    waiting
}

/// Finishes a task, whose slot is then taken back by hand, as if it had not been released.
async fn finish_and_keep_slot(patient: &Patient, store: &PostgresStore, completion: Completion) {
    patient.execute("create table public.kept as select * from windlass.lanes").await;
    patient.execute("create table public.places as select * from windlass.lane_places").await;
    let answers = store.finish(vec![completion]).await.expect("finishing works");
    assert_eq!(answers, [Answer::Accepted]);
    patient
        .execute(
            "delete from windlass.lanes;
             insert into windlass.lanes select * from public.kept;
             insert into windlass.lane_places select * from public.places",
        )
        .await;
}

#[tokio::test]
async fn a_limit_key_that_an_ended_task_blocks_is_found_and_repaired() {
    let patient = Patient::new().await;
    let store = store(&patient).await;
    let id = "engine.limits";
    patient.assert_well(id, "before").await;
    let waiting = block_a_key(&patient, &store).await;
    let state = async || {
        let tasks = store.list_tasks(waiting, None, 1).await.expect("reading works");
        tasks[0].state
    };
    assert_eq!(state().await, TaskState::Waiting);
    let words = ["succeeded and still holds a slot, which other tasks wait for", "audit --repair"];
    patient.assert_found(id, FindingSeverity::Critical, &words).await;

    let options = PostgresOptions::new(patient.database.url());
    let listed = repair(&options, true).await.expect("the database is there");
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!((listed[0].key.as_str(), listed[0].state.as_str()), ("acme", "succeeded"));
    assert_eq!(state().await, TaskState::Waiting, "a dry run changes nothing");
    assert_eq!(repair(&options, false).await.expect("the database is there"), listed);
    assert_eq!(state().await, TaskState::Ready);
    assert_eq!(repair(&options, false).await.expect("the database is there"), []);
    patient.assert_well(id, "after the repair").await;
    let now = store.now().await.expect("the database is there");
    let found = found_by_audit(&patient.database, now).await;
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test]
async fn a_slot_that_a_skipped_task_holds_is_repaired() {
    let patient = Patient::new().await;
    let store = store(&patient).await;
    let (limited, [run, _]) = two_of_a_key(&store).await;
    store.start_runs(vec![run]).await.expect("the store is there");
    let worker = Worker::join(&store, &limited).await;
    let tasks = worker.claim(&store, 1).await;
    let skipped = Completion { decision: Decision::Skip, ..success(&tasks[0]) };
    finish_and_keep_slot(&patient, &store, skipped).await;
    let options = PostgresOptions::new(patient.database.url());
    let repaired = repair(&options, false).await.expect("the database is there");
    let states: Vec<&str> = repaired.iter().map(|slot| slot.state.as_str()).collect();
    assert_eq!(states, ["skipped"]);
    assert_eq!(repair(&options, false).await.expect("the database is there"), []);
}

#[tokio::test]
async fn a_waiting_task_without_a_row_fails_the_write_and_no_process() {
    let patient = Patient::new().await;
    let store = store(&patient).await;
    let (limited, runs) = two_of_a_key(&store).await;
    let waiting = runs[1].id;
    store.start_runs(runs.into()).await.expect("the store is there");
    let worker = Worker::join(&store, &limited).await;
    let tasks = worker.claim(&store, 1).await;
    patient.execute(&format!("delete from windlass.timers where run_id = '{waiting}'")).await;
    let answers = store.finish(vec![success(&tasks[0])]).await.expect("the database is there");
    assert_eq!(answers, [Answer::Refused(Refusal::Invalid)]);
}

#[tokio::test]
async fn a_halted_stream_is_neither_found_nor_repaired() {
    let patient = Patient::new().await;
    let store = store(&patient).await;
    let mut task = TaskDraft::new("a", TaskKind::Handler);
    task.limits = vec![Limit::per("key", 1).halt()];
    let halting =
        Arc::new(DefinitionDraft::new("halting").task(task).build().expect("it is right"));
    let input = Payload::from_json("{\"key\":1}").expect("it is JSON");
    store.register(Arc::clone(&halting)).await.expect("it can be registered");
    let run = NewRun { input, ..new_run(&halting) };
    store.start_runs(vec![run]).await.expect("the store is there");
    let worker = Worker::join(&store, &halting).await;
    let tasks = worker.claim(&store, 1).await;
    let decision = Decision::Fail(Failure::new(FailureCode::Error, "it never works"));
    let failed = Completion { decision, ..success(&tasks[0]) };
    assert_eq!(store.finish(vec![failed]).await.expect("finishing works"), [Answer::Accepted]);
    patient.assert_well("engine.limits", "a halted stream").await;
    let options = PostgresOptions::new(patient.database.url());
    assert_eq!(repair(&options, false).await.expect("the database is there"), []);
    let count = "select count(*) from windlass.lane_places";
    let row = patient.client.query_one(count, &[]).await.expect("the database is there");
    assert_eq!(row.get::<_, i64>(0), 1, "its slot is kept");
}

#[tokio::test]
async fn a_schedule_that_a_clock_ahead_has_silenced_is_found() {
    let patient = Patient::new().await;
    let store = store(&patient).await;
    let one = workflow("one", &["a"]);
    store.register(Arc::clone(&one)).await.expect("it can be registered");
    let hourly = Cadence::cron("0 * * * *", "Europe/Berlin").expect("it is a cadence");
    let schedule = NewSchedule {
        key: ScheduleKey {
            tenant: Tenant::new("acme").expect("it is a name"),
            name: ScheduleName::new("hourly").expect("it is a name"),
        },
        workflow: one.name().clone(),
        version: one.version(),
        input: Payload::default(),
        priority: Priority::default(),
        timing: Timing::new(hourly),
        owner: None,
    };
    store.put_schedule(schedule).await.expect("it makes sense");
    let id = "engine.schedules";
    patient.assert_well(id, "for a schedule that was just made").await;
    let set = |times: &str| format!("update windlass.schedules set {times}");
    patient
        .execute(&set("next_at = next_at - interval '2 h', due_at = due_at - interval '2 h'"))
        .await;
    patient.assert_well(id, "for one that is late, which others say").await;
    let year = "next_at = next_at + interval '1 year', due_at = due_at + interval '1 year'";
    patient.execute(&set(year)).await;
    let words = [
        "schedule hourly",
        "was ahead",
        "windlass schedules delete hourly --tenant acme",
        "create it",
    ];
    patient.assert_found(id, FindingSeverity::Critical, &words).await;
    patient.execute(&set("state = 'paused'")).await;
    patient.assert_well(id, "for one that rests").await;
    patient.execute(&set("state = 'active', next_at = null, due_at = null")).await;
    patient.assert_found(id, FindingSeverity::Critical, &["fires never"]).await;
    patient.execute(&set("cadence = '{\"moon\":1}'")).await;
    patient.assert_found(id, FindingSeverity::Warning, &["hourly", "moon", "newer version"]).await;
}
