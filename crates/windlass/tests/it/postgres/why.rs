//! Why a run does not go on, where only PostgreSQL has a say.

use std::time::Duration;

use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass::store::{Hello, Store, WorkerInfo, WorkerLink as _};
use windlass_core::why::Served;
use windlass_core::{QueueName, Reason, RunId, RunState, TaskName, WorkerId};

use super::driver::{start, workflow};
use crate::database::TestDatabase;

#[tokio::test]
async fn a_run_that_is_committed_and_not_in_the_queues_yet_says_so() {
    let database = TestDatabase::new().await;
    let store =
        PostgresStore::connect(PostgresOptions::new(database.url())).await.expect("it is there");
    let order = workflow("order", &["charge", "ship < charge"]);
    store.register(order).await.expect("it can be registered");
    let user = database.client().await;
    let sql = "select windlass.start_run('order')";
    let run = RunId::from_uuid(user.query_one(sql, &[]).await.expect("it starts").get(0));
    let why = async |task: Option<&str>| {
        let name = task.map(|task| TaskName::new(task).expect("a name"));
        store.why(run, name).await.expect("reading works").expect("it is there")
    };
    let vacant = Reason::NoLeader { duty: "promote_due".to_owned(), last: None, until: None };
    let staged = why(None).await;
    assert_eq!((staged.state, staged.open_tasks), (RunState::Running, 2));
    assert_eq!(staged.reasons, [Reason::Staged, vacant.clone()]);
    assert!(staged.tasks.is_empty());
    for task in ["charge", "ship"] {
        assert_eq!(why(Some(task)).await.tasks[0].reasons, [Reason::Staged, vacant.clone()]);
    }
    store.promote_due(100).await.expect("promoting works");
    let admitted = why(None).await;
    assert!(admitted.reasons.is_empty());
    assert!(matches!(admitted.tasks[0].reasons[..], [Reason::Ready { .. }]));
    assert!(matches!(why(Some("ship")).await.tasks[0].reasons[..], [Reason::Parents { .. }]));
}

#[tokio::test]
async fn it_is_a_few_statements_and_waits_for_nobody() {
    let database = TestDatabase::new().await;
    let store =
        PostgresStore::connect(PostgresOptions::new(database.url())).await.expect("it is there");
    let run = start(&store, &workflow("order", &["charge"])).await;
    // Whoever has locked everything keeps nobody from looking.
    let other = database.client().await;
    let lock = "begin; select from windlass.runs for update; select from windlass.ready for update";
    other.batch_execute(lock).await.expect("the test may do that");
    let began = store.statements();
    let why = store.why(run, None).await.expect("reading works").expect("it is there");
    assert!(matches!(why.tasks[0].reasons[..], [Reason::Ready { .. }]), "{why:?}");
    let sent = store.statements() - began;
    assert!(sent <= 12, "{sent} statements");
    other.batch_execute("rollback").await.expect("it ends");
}

#[tokio::test]
async fn no_number_of_other_workers_displaces_those_that_serve_the_run() {
    let database = TestDatabase::new().await;
    let store =
        PostgresStore::connect(PostgresOptions::new(database.url())).await.expect("it is there");
    let order = workflow("order", &["charge"]);
    let run = start(&store, &order).await;
    let client = database.client().await;
    let flood = "
        insert into windlass.workers (id, name, slots, lease, joined_at, queues)
        select ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'other', 1, '1 hour',
            now() + interval '1 hour', '{default}'
        from generate_series(1, 1500) n;
        insert into windlass.pulses (worker_id, number, lease_until, last_claim, oldest_claim)
        select w.id, 1, now() + interval '2 hours', 0, 0 from windlass.workers w";
    client.batch_execute(flood).await.expect("the test may do that");
    let info = WorkerInfo { queues: vec![QueueName::default()], ..WorkerInfo::default() };
    let hello = Hello {
        worker: WorkerId::from_random(u128::MAX),
        name: "serves it".to_owned(),
        slots: 1,
        lease: Duration::from_secs(30),
        definitions: vec![order],
        info,
    };
    store.join(hello).await.expect("it can join");
    let why = store.why(run, None).await.expect("reading works").expect("it is there");
    let Some(Reason::Ready { served, .. }) = why.tasks[0].reasons.first() else {
        panic!("it is not ready: {why:?}");
    };
    assert_eq!(*served, Served::Free { workers: 1, free_slots: 1 });
}
