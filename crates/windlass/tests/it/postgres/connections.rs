//! Connections that are lost, given up, used up or refused.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::Client;
use windlass::ErrorKind;
use windlass::store::postgres::{PostgresOptions, PostgresStore, Stepper, migrate};
use windlass::store::{Store, StoreError};
use windlass_core::RunId;

use super::driver::{start, workflow};
use super::role::Role;
use super::server::Server;
use crate::database::TestDatabase;

/// How long a test waits for something that must come.
const WAIT_MAX: Duration = Duration::from_secs(30);

fn options(database: &TestDatabase) -> PostgresOptions {
    PostgresOptions::new(database.url()).listen(false)
}

async fn connect(options: PostgresOptions) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::connect(options).await.expect("the database is there"))
}

async fn until<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let waited = tokio::time::timeout(WAIT_MAX, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("not within {WAIT_MAX:?}: {what}"));
}

/// How many sessions of the store are in a state, or wait for a lock.
async fn sessions(client: &Client, condition: &str) -> i64 {
    let sql = format!(
        "select count(*) from pg_stat_activity where datname = current_database()
         and application_name in ('windlass', 'stepped') and {condition}"
    );
    client.query_one(&sql, &[]).await.expect("the activity can be read").get(0)
}

async fn terminate(client: &Client, condition: &str) {
    let sql = format!(
        "select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and application_name = 'windlass' and {condition}"
    );
    client.batch_execute(&sql).await.expect("the test may do that");
}

/// A database with a run that nobody else can write to, until the client says `rollback`.
async fn locked_run(database: &TestDatabase, store: &PostgresStore) -> (Client, RunId) {
    let run = start(store, &workflow("one", &["a"])).await;
    let client = database.client().await;
    client.batch_execute("begin; lock table windlass.runs").await.expect("the test may do that");
    (client, run)
}

#[tokio::test]
async fn a_verb_that_is_given_up_while_it_waits_leaves_neither_session_nor_lock() {
    let database = TestDatabase::new().await;
    let store = connect(options(&database)).await;
    let (client, run) = locked_run(&database, &store).await;
    let verb = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.cancel_run(run, None).await }
    });
    let watch = database.client().await;
    until("it waits", async || sessions(&watch, "wait_event_type = 'Lock'").await == 1).await;
    verb.abort();
    let _ = verb.await;
    // The lock timeout, which would end it as well, is five seconds away.
    let began = std::time::Instant::now();
    until("it waits no more", async || sessions(&watch, "wait_event_type = 'Lock'").await == 0)
        .await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    client.batch_execute("rollback").await.expect("it can be given up");
    store.cancel_run(run, None).await.expect("the store goes on");
}

#[tokio::test]
async fn a_verb_that_is_given_up_between_two_statements_is_rolled_back() {
    let database = TestDatabase::new().await;
    let plain = connect(options(&database)).await;
    let run = start(&*plain, &workflow("one", &["a"])).await;
    let stepper = Stepper::new();
    let store = connect(options(&database).max_connections(1).steps(stepper.session("stepped")));
    let store = {
        stepper.set_free("stepped", true);
        let store = store.await;
        stepper.set_free("stepped", false);
        store
    };
    let verb = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.cancel_run(run, None).await }
    });
    let mut statements = Vec::new();
    loop {
        let statement = stepper.asked("stepped").await;
        if statement == "commit" {
            break;
        }
        statements.push(statement);
        stepper.allow("stepped");
    }
    assert!(statements.len() > 1, "{statements:?}");
    let watch = database.client().await;
    let pid = "select pid from pg_stat_activity where application_name = 'stepped'
               and datname = current_database()";
    let before: i32 = watch.query_one(pid, &[]).await.expect("one session").get(0);
    verb.abort();
    let _ = verb.await;
    until("nothing is open", async || sessions(&watch, "state like 'idle in%'").await == 0).await;
    let record = plain.get_run(run).await.expect("reading works").expect("it is there");
    assert_eq!(record.state, windlass_core::RunState::Running);
    // Nothing was under way, so the connection is as good as new.
    stepper.set_free("stepped", true);
    store.cancel_run(run, None).await.expect("the store goes on");
    let after: i32 = watch.query_one(pid, &[]).await.expect("one session").get(0);
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_lock_that_is_not_to_be_had_ends_a_verb_in_time() {
    let database = TestDatabase::new().await;
    let store = connect(options(&database).lock_timeout(Duration::from_millis(50))).await;
    let (client, run) = locked_run(&database, &store).await;
    let error = store.cancel_run(run, None).await.expect_err("the runs are locked");
    let StoreError::Unavailable(text) = &error else { panic!("{error}") };
    assert!(text.contains("(55P03)"), "{text}");
    client.batch_execute("rollback").await.expect("it can be given up");
    store.cancel_run(run, None).await.expect("the runs are free");
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_stopped() {
    let database = TestDatabase::new().await;
    let options = options(&database).lock_timeout(Duration::ZERO);
    let store = connect(options.statement_timeout(Duration::from_millis(50))).await;
    let (client, run) = locked_run(&database, &store).await;
    let error = store.cancel_run(run, None).await.expect_err("the runs are locked");
    let StoreError::Unavailable(text) = &error else { panic!("{error}") };
    assert!(text.contains("(57014)"), "{text}");
    client.batch_execute("rollback").await.expect("it can be given up");
    store.cancel_run(run, None).await.expect("the runs are free");
}

#[tokio::test]
async fn a_transaction_in_which_nothing_happens_is_ended_and_its_verb_repeated() {
    let database = TestDatabase::new().await;
    let plain = connect(options(&database)).await;
    let run = start(&*plain, &workflow("one", &["a"])).await;
    let stepper = Stepper::new();
    stepper.set_free("stepped", true);
    let options = options(&database).idle_in_transaction_timeout(Duration::from_millis(100));
    let store = connect(options.steps(stepper.session("stepped"))).await;
    stepper.set_free("stepped", false);
    let verb = tokio::spawn(async move { store.cancel_run(run, None).await });
    stepper.asked("stepped").await;
    stepper.allow("stepped");
    stepper.asked("stepped").await;
    let watch = database.client().await;
    until("the server has ended it", async || {
        sessions(&watch, "application_name = 'stepped'").await == 0
    })
    .await;
    stepper.set_free("stepped", true);
    verb.await.expect("no panic").expect("it was repeated on another connection");
}

#[tokio::test]
async fn sessions_that_were_killed_while_idle_are_replaced_unnoticed() {
    let database = TestDatabase::new().await;
    let store = connect(options(&database)).await;
    let watch = database.client().await;
    let all: Vec<_> = (0..5).map(|_| store.now()).collect();
    futures_util::future::join_all(all).await;
    for _ in 0..5 {
        terminate(&watch, "state = 'idle'").await;
        store.now().await.expect("another connection takes over");
    }
}

#[tokio::test]
async fn a_verb_whose_session_was_killed_at_work_is_repeated() {
    let database = TestDatabase::new().await;
    let store = connect(options(&database)).await;
    let (client, run) = locked_run(&database, &store).await;
    let verb = tokio::spawn(async move { store.cancel_run(run, None).await });
    let watch = database.client().await;
    until("it waits", async || sessions(&watch, "wait_event_type = 'Lock'").await == 1).await;
    terminate(&watch, "wait_event_type = 'Lock'").await;
    until("it waits again", async || sessions(&watch, "wait_event_type = 'Lock'").await == 1).await;
    client.batch_execute("rollback").await.expect("it can be given up");
    verb.await.expect("no panic").expect("it was repeated");
}

#[tokio::test]
async fn a_server_without_a_free_connection_is_asked_again() {
    let database = TestDatabase::new().await;
    let role = Role::new(&database, "few").await;
    let client = database.client().await;
    let name = role.name();
    for sql in [
        format!("alter role {name} connection limit 1"),
        format!("grant all on schema windlass to {name}"),
        format!("grant all on all tables in schema windlass to {name}"),
        format!("grant all on all sequences in schema windlass to {name}"),
    ] {
        client.batch_execute(&sql).await.expect("the test may do that");
    }
    let options = || PostgresOptions::new(role.url(&database)).listen(false);
    let first = connect(options().max_connections(1)).await;
    let error = PostgresStore::connect(options()).await.expect_err("there is no other");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("(53300)"), "{error}");
    let second = tokio::spawn(PostgresStore::connect(options()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(first);
    second.await.expect("no panic").expect("it got the connection of the first");
}

#[tokio::test]
async fn a_pool_that_is_used_up_is_waited_for_and_then_reported() {
    let database = TestDatabase::new().await;
    let options = options(&database).max_connections(1);
    let store = connect(options.acquire_timeout(Duration::from_millis(50))).await;
    let (client, run) = locked_run(&database, &store).await;
    let busy = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.cancel_run(run, None).await }
    });
    let watch = database.client().await;
    until("it waits", async || sessions(&watch, "wait_event_type = 'Lock'").await == 1).await;
    let error = store.now().await.expect_err("the only connection is in use");
    assert!(error.is_retryable());
    assert!(error.to_string().contains("all 1 connections were in use for 50ms"), "{error}");
    let waiting = tokio::spawn(async move { store.now().await });
    client.batch_execute("rollback").await.expect("it can be given up");
    busy.await.expect("no panic").expect("the runs are free");
    waiting.await.expect("no panic").expect("the connection is free");
}

#[tokio::test]
async fn a_store_survives_a_restart_of_its_server() {
    let mut server = Server::start().await;
    migrate(&server.url().into()).await.expect("it can be migrated");
    let store = connect(server.url().into()).await;
    let one = workflow("one", &["a"]);
    let run = start(&*store, &one).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let calls = tokio::spawn({
        let (store, is_over) = (Arc::clone(&store), Arc::clone(&is_over));
        async move {
            let (mut answered, mut refused) = (0, 0);
            while !is_over.load(Ordering::SeqCst) {
                match store.get_run(run).await {
                    Ok(record) => assert!(record.is_some()),
                    Err(error) => {
                        assert!(error.is_retryable(), "{error}");
                        refused += 1;
                    }
                }
                answered += 1;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            (answered, refused)
        }
    });
    for _ in 0..2 {
        server.stop().await;
        server.run().await;
        store.now().await.expect("the store is back as soon as its server is");
    }
    is_over.store(true, Ordering::SeqCst);
    let (answered, refused) = calls.await.expect("nothing but outages");
    println!("{refused} of {answered} reads were refused during two restarts");
    // While it is away, a verb says so, and soon.
    let place = server.place().display().to_string();
    server.stop().await;
    let error = store.now().await.expect_err("the server is away");
    assert!(error.is_retryable(), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("database {place}")), "{error}");
    assert!(text.contains("/postgres cannot be reached: "), "{error}");
    server.run().await;
    store.now().await.expect("the store is back");
}

#[tokio::test]
async fn an_address_where_nobody_is_says_so() {
    let url = "postgres://u:SECRET@127.0.0.1:1/d";
    let error = PostgresStore::connect(url.into()).await.expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("database 127.0.0.1:1/d cannot be reached"), "{text}");
    assert!(text.contains("Connection refused"), "{text}");
    assert!(!text.contains("SECRET"), "{text}");
}

#[tokio::test]
async fn a_database_or_role_that_does_not_exist_is_named() {
    let database = TestDatabase::new().await;
    let url = database.url().replace(database.name(), "nowhere");
    let error = PostgresStore::connect(url.into()).await.expect_err("it is not there");
    assert_eq!(error.kind(), ErrorKind::Database);
    assert!(error.to_string().contains("database \"nowhere\" does not exist"), "{error}");
    let url = database.url().replacen("windlass@", "nobody@", 1);
    let error = PostgresStore::connect(url.into()).await.expect_err("it is not there");
    assert_eq!(error.kind(), ErrorKind::Database);
    assert!(error.to_string().contains("role \"nobody\" does not exist"), "{error}");
}

#[tokio::test]
async fn a_database_with_another_encoding_is_refused() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let name = format!("{}_ascii", database.name());
    let sql = format!("create database {name} encoding 'SQL_ASCII' template template0");
    client.batch_execute(&sql).await.expect("the test may do that");
    let url = database.url().replace(database.name(), &name);
    for error in [
        PostgresStore::connect(url.clone().into()).await.map(drop).expect_err("it is no UTF8"),
        migrate(&url.into()).await.map(drop).expect_err("it is no UTF8"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Database);
        assert!(error.to_string().contains("the encoding SQL_ASCII"), "{error}");
    }
    let sql = format!("drop database {name} with (force)");
    client.batch_execute(&sql).await.expect("the test may do that");
}

#[tokio::test]
async fn of_several_hosts_the_one_that_accepts_writes_is_used() {
    let read_only = vec![("default_transaction_read_only", "on".to_owned())];
    let standby = Server::start_with(read_only).await;
    let primary = Server::start().await;
    let (one, other) = (standby.url(), primary.url());
    // postgres://USER@HOST:PORT/DATABASE
    let (scheme, first) = one.split_once('@').expect("it has a user");
    let (first, _) = first.split_once('/').expect("it has a database");
    let (_, second) = other.split_once('@').expect("it has a user");
    let url = format!("{scheme}@{first},{second}");

    let any = PostgresOptions::new(&url).listen(false).migrate(true);
    let error = PostgresStore::connect(any).await.expect_err("the first host is read-only");
    assert!(error.to_string().contains("read-only"), "{error}");
    let url = format!("{url}?target_session_attrs=read-write");
    let store = connect(PostgresOptions::new(&url).listen(false).migrate(true)).await;
    let run = start(&*store, &workflow("one", &["a"])).await;
    let sql = "select count(*) from windlass.runs where id = $1";
    let count = primary.client().await.query_one(sql, &[run.as_uuid()]).await;
    assert_eq!(count.expect("the schema is there").get::<_, i64>(0), 1);
}
