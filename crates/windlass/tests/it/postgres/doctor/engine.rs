//! Leaders, leases, timers, staged runs, and tasks that nobody serves.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass::schedule::{Cadence, Timing};
use windlass::store::postgres::PostgresStore;
use windlass::store::{
    Hello, NewSchedule, ScheduleKey, ScheduleStore, Store, WorkerInfo, WorkerLink,
};
use windlass::{Ctx, TaskError, Windlass, Workflow};
use windlass_core::{Definition, Payload, Priority, QueueName, ScheduleName, Tenant, WorkerId};

use super::super::driver::LEASE;
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
        let gave_up = format!("gave up the duty {duty} and nobody has taken it");
        assert_one(vec![finding.clone()], FindingSeverity::Critical, &["lone", &gave_up]);
    }
    // As if it had been killed.
    patient.execute("update windlass.leaders set is_given_up = false, until = now()").await;
    let found = patient.findings("engine.leaders").await;
    assert!(found[0].problem.contains("was last heard of at"), "{found:#?}");
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
    let words = [&id, "it still has tasks"].map(|word| word as &str);
    let finding = patient.assert_found("engine.leases", FindingSeverity::Critical, &words).await;
    assert!(!finding.problem.contains(&idle.id.to_string()), "one that has none: {finding:#?}");

    patient.assert_well("engine.workers", "while nobody is dying").await;
    let dying = format!("update windlass.workers set state = 'dying' where id = '{}'", worker.id);
    patient.execute(&dying).await;
    let words = ["is dying since about", &worker.id.to_string(), "windlass audit"];
    patient.assert_found("engine.workers", FindingSeverity::Warning, &words).await;
    store.reap(100).await.expect("it can be reaped");
    patient.assert_well("engine.leases", "after").await;
    patient.assert_well("engine.workers", "after").await;

    let worker = Worker::join(&store, &one).await;
    assert_eq!(worker.claim(&store, 1).await.len(), 1);
    patient.assert_well("engine.leases", "with a new lease").await;
    patient.execute("update windlass.leases set take_back_at = now() - interval '1 hour'").await;
    let words = ["was to be taken away from worker", &worker.id.to_string()];
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
    let words = ["word of the end of a child of run"];
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
    let words = ["word of a signal to a key for run", &run];
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
        "tasks of workflow \"one\" version 1 wait in queue \"default\"",
        "no worker that is there has a handler",
    ];
    patient.assert_found(id, FindingSeverity::Warning, &words).await;
    serve(&store, 1, &workflow("two", &["a"]), "default").await;
    patient.assert_found(id, FindingSeverity::Warning, &words).await;
    serve(&store, 2, &one, "other").await;
    let words = ["that serve other queues"];
    patient.assert_found(id, FindingSeverity::Warning, &words).await;
    serve(&store, 3, &one, "default").await;
    patient.assert_well(id, "with a worker").await;
    patient.execute("update windlass.pulses set lease_until = now() - interval '61 s'").await;
    patient.assert_found(id, FindingSeverity::Warning, &["no live worker serves them"]).await;
    patient.execute("update windlass.pulses set lease_until = now()").await;
    patient.execute("update windlass.workers set is_draining = true").await;
    patient.assert_found(id, FindingSeverity::Warning, &["no live worker serves them"]).await;
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
        "put it",
    ];
    patient.assert_found(id, FindingSeverity::Critical, &words).await;
    patient.execute(&set("state = 'paused'")).await;
    patient.assert_well(id, "for one that rests").await;
    patient.execute(&set("state = 'active', next_at = null, due_at = null")).await;
    patient.assert_found(id, FindingSeverity::Critical, &["fires never"]).await;
    patient.execute(&set("cadence = '{\"moon\":1}'")).await;
    patient.assert_found(id, FindingSeverity::Warning, &["hourly", "moon", "newer version"]).await;
}
