//! Starts through the drivers: the caller's transaction decides.

use std::sync::Arc;
use std::time::Duration;

use windlass::store::Store;
use windlass::{Ctx, ErrorKind, RunState, TaskError, Windlass, Workflow};

use super::{PATIENCE, Shop};

fn order() -> Workflow<u64> {
    let mut order = Workflow::<u64>::builder("paid order");
    order.task("charge").run(async |ctx: Ctx<u64>| Ok::<_, TaskError>(ctx.input() * 2));
    order.build().expect("the workflow is right")
}

fn windlass(shop: &Shop) -> Windlass {
    Windlass::with_store(Arc::clone(&shop.store) as Arc<dyn Store>)
}

#[tokio::test]
async fn a_run_exists_once_the_transaction_is_committed_and_not_before() {
    let mut shop = Shop::open().await;
    let (windlass, order) = (windlass(&shop), order());
    shop.run("create table orders (id bigint)").await;
    let mut transaction = shop.user.transaction().await.expect("a transaction begins");
    transaction.execute("insert into orders values (1)", &[]).await.expect("it is written");
    let start = windlass.start(&order, 1).tenant("acme").key("order-1").priority(5);
    let start = start.metadata("region", "north").delay(Duration::from_nanos(1_500));
    let run = start.in_transaction(&mut transaction).await.expect("it is started");
    let error = run.get().await.expect_err("nobody else sees it");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    transaction.commit().await.expect("it is committed");
    let record = run.get().await.expect("it is there");
    assert_eq!((record.tenant.as_str(), record.input.as_ref().unwrap().as_str()), ("acme", "1"));
    assert_eq!(record.key.expect("it has one").as_str(), "order-1");
    assert_eq!(record.priority.get(), 5);
    assert_eq!(record.metadata.get("region").map(String::as_str), Some("north"));
    let delay = "windlass.staged where delay = interval '2 microseconds'";
    assert_eq!(shop.count(delay).await, 1, "a delay is rounded up");

    let mut transaction = shop.user.transaction().await.expect("a transaction begins");
    let gone = windlass.start(&order, 2).in_transaction(&mut transaction).await;
    let gone = gone.expect("it is started");
    transaction.rollback().await.expect("it is rolled back");
    assert_eq!(gone.get().await.expect_err("it never was").kind(), ErrorKind::NotFound);
    assert_eq!(shop.rows().await, [1; 3]);
}

#[tokio::test]
async fn a_client_that_begins_and_commits_by_statements_can_start_too() {
    let mut shop = Shop::open().await;
    let (windlass, order) = (windlass(&shop), order());
    for (end, rows) in [("rollback", 0), ("commit", 1)] {
        shop.run("begin").await;
        windlass.start(&order, 1).in_transaction(&mut shop.user).await.expect("it is started");
        shop.run(end).await;
        assert_eq!(shop.rows().await, [rows; 3], "{end}");
    }
}

#[tokio::test]
async fn a_run_that_was_started_in_a_transaction_is_worked_on_after_the_commit() {
    let mut shop = Shop::open().await;
    let (windlass, order) = (windlass(&shop), order());
    let pause = Duration::from_millis(20);
    let worker = windlass.worker().register(&order).poll(pause).duties(Some(pause));
    let worker = worker.spawn().expect("it starts");
    let mut transaction = shop.user.transaction().await.expect("a transaction begins");
    let starts = (0..30).map(|id| windlass.start(&order, id));
    let runs = windlass.start_all_in(&mut transaction, starts).await.expect("they are started");
    transaction.commit().await.expect("it is committed");
    for run in runs {
        let record = run.wait_timeout(PATIENCE).await.expect("it ends");
        assert_eq!(record.state, RunState::Succeeded);
    }
    worker.drain().await.expect("it drains");
    assert_eq!(shop.count("windlass.staged").await, 0);
}

#[tokio::test]
async fn a_hint_after_the_commit_spares_the_wait_for_the_sweep() {
    let mut shop = Shop::open().await;
    let (windlass, order) = (windlass(&shop), order());
    let never = 100 * PATIENCE;
    let worker = windlass.worker().register(&order).duties(Some(never)).spawn();
    let worker = worker.expect("it starts");
    let run = windlass.start(&order, 1).in_transaction(&mut shop.user).await;
    let run = run.expect("it is started");
    let ended = tokio::time::timeout(PATIENCE, async {
        // The worker may not listen yet when the first hint is sent.
        loop {
            shop.run("notify windlass, 't'").await;
            if run.wait_timeout(Duration::from_millis(100)).await.is_ok() {
                return;
            }
        }
    });
    ended.await.expect("it is admitted");
    worker.drain().await.expect("it drains");
}

#[tokio::test]
async fn more_runs_than_a_statement_takes_are_started_in_order_or_not_at_all() {
    let mut shop = Shop::open().await;
    let (windlass, order) = (windlass(&shop), order());
    let mut transaction = shop.user.transaction().await.expect("a transaction begins");
    let starts = (0..10_001).map(|id| windlass.start(&order, id).key(format!("order-{id}")));
    let runs = windlass.start_all_in(&mut transaction, starts).await.expect("they are started");
    let starts = (0..2).map(|id| windlass.start(&order, id).key(format!("order-{id}")));
    let again = windlass.start_all_in(&mut transaction, starts).await.expect("they were started");
    transaction.commit().await.expect("it is committed");
    assert_eq!(shop.rows().await, [10_001; 3]);
    let ids: Vec<_> = runs.iter().map(|run| run.id()).collect();
    assert!(ids.is_sorted());
    assert_eq!([again[0].id(), again[1].id()], ids[..2]);
    let last = runs.last().expect("there are many").get().await.expect("it is there");
    assert_eq!(last.input.as_ref().unwrap().as_str(), "10000");

    let mut transaction = shop.user.transaction().await.expect("a transaction begins");
    let starts = [(20_000, "order-20000"), (7, "order-8")];
    let starts = starts.map(|(id, key)| windlass.start(&order, id).key(key));
    let error = windlass.start_all_in(&mut transaction, starts).await.expect_err("a key is taken");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    transaction.commit().await.expect("the commit of an aborted transaction rolls it back");
    assert_eq!(shop.rows().await, [10_001; 3]);
}

#[tokio::test]
async fn refusals_say_what_is_wrong_and_that_the_transaction_is_aborted() {
    let mut shop = Shop::open().await;
    let (windlass, order) = (windlass(&shop), order());
    let first = windlass.start(&order, 1).key("k").await.expect("it is started");
    let mut transaction = shop.user.transaction().await.expect("a transaction begins");

    // What is wrong in itself does not touch the transaction.
    let wrong = windlass.start(&order, 1).priority(101).in_transaction(&mut transaction).await;
    assert_eq!(wrong.expect_err("out of its limits").kind(), ErrorKind::Argument);
    windlass.start(&order, 3).in_transaction(&mut transaction).await.expect("it goes on");

    let conflict = windlass.start(&order, 2).key("k").in_transaction(&mut transaction).await;
    let conflict = conflict.expect_err("the key is taken");
    assert_eq!(conflict.kind(), ErrorKind::Conflict);
    assert_eq!(
        conflict.to_string(),
        format!(
            "idempotency key \"k\" was used for run {} with another start; \
             the transaction is aborted [WL-0005]",
            first.id()
        )
    );
    let aborted = windlass.start(&order, 4).in_transaction(&mut transaction).await;
    let aborted = aborted.expect_err("the transaction is aborted");
    assert_eq!(aborted.kind(), ErrorKind::Conflict);
    assert!(aborted.to_string().contains("(25P02)"), "{aborted}");
    transaction.rollback().await.expect("it is rolled back");
}

#[tokio::test]
async fn what_the_database_cannot_do_is_told_apart() {
    let mut shop = Shop::open().await;
    let (windlass, order) = (windlass(&shop), order());
    shop.store.register(Arc::clone(order.definition())).await.expect("it can be registered");
    shop.run("set default_transaction_read_only = on").await;
    let read_only = windlass.start(&order, 5).in_transaction(&mut shop.user).await;
    assert_eq!(read_only.expect_err("nothing can be written").kind(), ErrorKind::Conflict);
    shop.run("set default_transaction_read_only = off; set lock_timeout = '10ms'").await;
    let other = shop.database.client().await;
    let key = "begin; select windlass.start_run('paid order', '5', key => 'busy')";
    other.batch_execute(key).await.expect("it is started");
    let busy = windlass.start(&order, 5).key("busy").in_transaction(&mut shop.user).await;
    let busy = busy.expect_err("someone else has the key");
    assert_eq!(busy.kind(), ErrorKind::Unavailable);
    assert!(busy.is_retryable());

    other.batch_execute("rollback").await.expect("it is rolled back");
    shop.run("set lock_timeout = 0; truncate windlass.definitions cascade").await;
    let unknown = windlass.start(&order, 5).in_transaction(&mut shop.user).await;
    let unknown = unknown.expect_err("the workflow is gone");
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    shop.run(
        "alter function windlass.start_runs(uuid[], text[], integer[], text[], json[],
        text[], interval[], integer[], jsonb[]) rename to gone",
    )
    .await;
    let unknown = windlass.start(&order, 5).in_transaction(&mut shop.user).await;
    let unknown = unknown.expect_err("the function is gone");
    assert_eq!(unknown.kind(), ErrorKind::Schema);
    assert!(unknown.to_string().contains("see `windlass migrate`"), "{unknown}");
}

#[tokio::test]
async fn a_lost_connection_asks_to_repeat_the_transaction() {
    let mut shop = Shop::open().await;
    let (windlass, order) = (windlass(&shop), order());
    let pid = super::pid_of(&shop.user).await;
    let mut transaction = shop.user.transaction().await.expect("a transaction begins");
    windlass.start(&order, 1).in_transaction(&mut transaction).await.expect("it is started");
    let admin = shop.database.client().await;
    admin.execute("select pg_terminate_backend($1)", &[&pid]).await.expect("it is terminated");
    let lost = windlass.start(&order, 2).in_transaction(&mut transaction).await;
    let lost = lost.expect_err("the connection is gone");
    assert_eq!(lost.kind(), ErrorKind::Unavailable, "{lost}");
    drop(transaction);
    shop.user = admin;
    assert_eq!(shop.rows().await, [0; 3]);
}

#[tokio::test]
async fn an_input_with_an_escaped_nul_is_kept_as_it_is() {
    let mut shop = Shop::open().await;
    let mut text = Workflow::<String>::builder("text");
    text.task("read").run(async |_: Ctx<String>| Ok::<_, TaskError>(()));
    let text = text.build().expect("the workflow is right");
    let start = windlass(&shop).start(&text, "a\0ü\u{1f6a2}'\\".to_owned());
    let run = start.in_transaction(&mut shop.user).await.expect("it is started");
    let record = run.get().await.expect("it is there");
    assert_eq!(
        record.input.as_ref().unwrap().decode::<String>().as_deref(),
        Ok("a\0ü\u{1f6a2}'\\")
    );
}

#[cfg(feature = "sqlx")]
mod with_sqlx {
    use sqlx::{Connection, PgConnection};

    use super::*;

    #[tokio::test]
    async fn a_transaction_of_sqlx_decides_too() {
        let shop = Shop::open().await;
        let (windlass, order) = (windlass(&shop), order());
        let mut connection = PgConnection::connect(&shop.database.url()).await.expect("it is up");
        let mut transaction = connection.begin().await.expect("a transaction begins");
        let start = windlass.start(&order, 1).tenant("acme").key("order-1").metadata("m", "x");
        let first = start.in_transaction(&mut transaction).await.expect("it is started");
        let starts = (0..50).map(|id| windlass.start(&order, id));
        let runs = windlass.start_all_in(&mut *transaction, starts).await.expect("they are");
        assert_eq!(shop.rows().await, [0; 3]);
        transaction.commit().await.expect("it is committed");
        assert_eq!(shop.rows().await, [51; 3]);
        let record = first.get().await.expect("it is there");
        assert_eq!(
            (record.tenant.as_str(), record.input.as_ref().unwrap().as_str()),
            ("acme", "1")
        );
        let record = runs[49].get().await.expect("it is there");
        assert_eq!((record.input.as_ref().unwrap().as_str(), record.metadata.len()), ("49", 0));

        let mut transaction = connection.begin().await.expect("a transaction begins");
        windlass.start(&order, 2).in_transaction(&mut transaction).await.expect("it is started");
        let conflict = windlass.start(&order, 2).tenant("acme").key("order-1");
        let conflict = conflict.in_transaction(&mut transaction).await;
        let conflict = conflict.expect_err("the key is taken");
        assert_eq!(conflict.kind(), ErrorKind::Conflict);
        assert!(conflict.to_string().contains(&first.id().to_string()), "{conflict}");
        transaction.rollback().await.expect("it is rolled back");
        assert_eq!(shop.rows().await, [51; 3]);
    }

    #[tokio::test]
    async fn a_connection_that_sqlx_lost_asks_to_repeat_the_transaction() {
        let shop = Shop::open().await;
        let (windlass, order) = (windlass(&shop), order());
        let mut connection = PgConnection::connect(&shop.database.url()).await.expect("it is up");
        let mut transaction = connection.begin().await.expect("a transaction begins");
        windlass.start(&order, 1).in_transaction(&mut transaction).await.expect("it is started");
        let others = "select pg_terminate_backend(pid) from pg_stat_activity
            where datname = current_database() and query ~ 'start_runs'
            and pid <> pg_backend_pid()";
        shop.run(others).await;
        let lost = windlass.start(&order, 2).in_transaction(&mut transaction).await;
        assert_eq!(lost.expect_err("the connection is gone").kind(), ErrorKind::Unavailable);
        assert_eq!(shop.rows().await, [0; 3]);
    }
}
