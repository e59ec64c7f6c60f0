//! Why a run does not go on, where only PostgreSQL has a say.

use windlass::store::Store;
use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass_core::{Reason, RunId, RunState, TaskName};

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
