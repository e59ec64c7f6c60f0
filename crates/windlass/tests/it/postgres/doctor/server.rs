//! Settings, connections, slots, prepared transactions and notifications of a server.

use std::time::Instant;

use windlass::store::postgres::migrate;
use windlass::{Ctx, TaskError, Windlass, Workflow};

use super::super::server::Server;
use super::*;

/// What makes a server of a test one that nothing is wrong with.
const SOUND: [(&str, &str); 5] = [
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "on"),
    ("max_connections", "40"),
    ("max_prepared_transactions", "3"),
];

async fn server(settings: &[(&'static str, &str)]) -> (Server, PostgresOptions) {
    let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let server = Server::start_with(settings).await;
    let options = PostgresOptions::new(server.url());
    migrate(&options).await.expect("it can be migrated");
    (server, options)
}

#[tokio::test]
async fn a_sound_server_at_work_is_healthy_and_what_holds_it_back_is_named() {
    let (server, database) = server(&SOUND).await;
    let options = DoctorOptions::new();
    let engine = Windlass::connect(database.clone()).await.expect("the database is there");
    let mut one = Workflow::<()>::builder("one");
    one.task("a").run(async |_: Ctx<()>| Ok::<_, TaskError>(()));
    let one = one.build().expect("it is right");
    let worker = engine.worker().register(&one).spawn().expect("it is set up right");
    engine.start(&one, ()).await.expect("it can be started").wait().await.expect("it ends");
    let report = examine(&database, &options).await;
    assert!(report.is_healthy(), "{:#?}", report.findings().collect::<Vec<_>>());
    assert!(report.checks.iter().all(|check| check.skipped.is_none()), "{report:#?}");
    // The default of PostgreSQL is good to know of, and nothing is wrong.
    let words = ["idle_in_transaction_session_timeout is 0"];
    assert_one(findings(&report, "server.settings"), FindingSeverity::Notice, &words);
    assert_eq!(report.severity(), Some(FindingSeverity::Notice));

    let client = server.client().await;
    let execute = async |sql: &str| client.batch_execute(sql).await.expect("it is right");
    execute("select pg_create_physical_replication_slot('forgotten', true)").await;
    let report = examine(&database, &options).await;
    let words =
        ["replication slot forgotten has no consumer", "of WAL", "pg_drop_replication_slot("];
    let finding = assert_one(findings(&report, "server.slots"), FindingSeverity::Warning, &words);
    let (_, drop) = finding.remedy.split_once(", or ").expect("it can be dropped");
    execute(drop).await;
    assert_eq!(findings(&examine(&database, &options).await, "server.slots"), []);

    let at_once = DoctorOptions::new().long_transaction(Duration::from_micros(1));
    execute("begin; create table kept (); prepare transaction 'kept'").await;
    assert_eq!(findings(&examine(&database, &options).await, "server.prepared"), [], "not long");
    let report = examine(&database, &at_once).await;
    let words = ["transaction 'kept' of role windlass", "rollback prepared 'kept'"];
    assert_one(findings(&report, "server.prepared"), FindingSeverity::Critical, &words);
    execute("rollback prepared 'kept'").await;
    assert_eq!(findings(&examine(&database, &at_once).await, "server.prepared"), []);

    notifications_that_nobody_reads(&server, &database).await;
    connections_that_are_all_in_use(&server, &database).await;
    worker.drain().await.expect("it has no reason to give up");
}

async fn notifications_that_nobody_reads(server: &Server, database: &PostgresOptions) {
    let strict = DoctorOptions::new().notify_queue_max(0.0);
    assert_eq!(findings(&examine(database, &strict).await, "server.notify"), [], "before");
    let deaf = server.client().await;
    deaf.batch_execute("listen anything").await.expect("it listens");
    deaf.batch_execute("begin; select 1").await.expect("it does not read");
    let pid: i32 = deaf.query_one("select pg_backend_pid()", &[]).await.expect("one").get(0);
    let client = server.client().await;
    let say = "select pg_notify('anything', repeat('x', 7000) || n) from generate_series(1, 20) n";
    client.batch_execute(say).await.expect("it is said");
    let report = examine(database, &strict).await;
    let words = ["of the notification queue is in use", &pid.to_string()];
    assert_one(findings(&report, "server.notify"), FindingSeverity::Critical, &words);
    let patient = examine(database, &DoctorOptions::new()).await;
    assert_eq!(findings(&patient, "server.notify"), [], "it is far from full");
    deaf.batch_execute("rollback").await.expect("it reads");
    let began = Instant::now();
    while !findings(&examine(database, &strict).await, "server.notify").is_empty() {
        assert!(began.elapsed() < WAIT_MAX, "the queue is not emptied");
    }
}

async fn connections_that_are_all_in_use(server: &Server, database: &PostgresOptions) {
    let options = DoctorOptions::new();
    // 37 are for those who are not superusers.
    let large = database.clone().max_connections(37);
    let report = examine(&large, &options).await;
    let words = ["of 37 connections of the server are in use", "a pool of 37", "max_connections ="];
    assert_one(findings(&report, "server.connections"), FindingSeverity::Warning, &words);
    let mut others = Vec::new();
    let url = format!("{}?application_name=crowd", server.url());
    for _ in 0..25 {
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("there is room");
        tokio::spawn(connection);
        others.push(client);
    }
    let report = examine(database, &options).await;
    let words = ["a pool of 10", "crowd (25)"];
    assert_one(findings(&report, "server.connections"), FindingSeverity::Warning, &words);
    drop(others);
    let began = Instant::now();
    while !findings(&examine(database, &options).await, "server.connections").is_empty() {
        assert!(began.elapsed() < WAIT_MAX, "the connections are not closed");
    }
}

#[tokio::test]
async fn settings_that_hurt_are_found_each_by_its_name() {
    // What is not said here is off already: tests need no durable servers.
    let (_server, database) = server(&[
        ("autovacuum", "off"),
        ("track_counts", "off"),
        ("shared_buffers", "16MB"),
        ("max_wal_size", "64MB"),
        ("max_locks_per_transaction", "20"),
        ("idle_session_timeout", "10min"),
    ])
    .await;
    let report = examine(&database, &DoctorOptions::new()).await;
    let found = findings(&report, "server.settings");
    for (severity, problem, remedy) in [
        (FindingSeverity::Critical, "fsync is off", "alter system set fsync = 'on'; select"),
        (FindingSeverity::Critical, "full_page_writes is off", "full_page_writes = 'on'"),
        (FindingSeverity::Critical, "synchronous_commit is off", "synchronous_commit = 'on'"),
        (FindingSeverity::Critical, "autovacuum is off", "autovacuum = 'on'"),
        (FindingSeverity::Critical, "track_counts is off", "track_counts = 'on'"),
        (FindingSeverity::Warning, "shared_buffers is 16MB", "= '128MB', then restart the server"),
        (FindingSeverity::Warning, "max_wal_size is 64MB", "max_wal_size = '1GB'"),
        (FindingSeverity::Warning, "max_locks_per_transaction is 20", "= '64', then restart"),
        (FindingSeverity::Warning, "idle_session_timeout is 600000 ms", "= '0'"),
    ] {
        let one = found.iter().filter(|finding| finding.problem == problem).cloned().collect();
        assert_one(one, severity, &[remedy]);
    }
    assert_eq!(found.len(), 10, "{found:#?}");
}

#[tokio::test]
async fn a_setting_is_mended_where_it_was_made() {
    let patient = Patient::new().await;
    let name = patient.database.name().to_owned();
    let found = async || {
        let found = patient.findings("server.settings").await;
        let is_it = |finding: &Finding| finding.problem.starts_with("statement_timeout");
        found.into_iter().filter(is_it).collect::<Vec<_>>()
    };
    assert_eq!(found().await, []);
    patient.execute(&format!("alter database {name} set statement_timeout = '900ms'")).await;
    let remedy = format!("alter database {name} set statement_timeout = '30s'");
    let words = ["statement_timeout is 900 ms", &remedy];
    let finding = assert_one(found().await, FindingSeverity::Warning, &words);
    patient.execute(&finding.remedy).await;
    assert_eq!(found().await, []);
}

#[tokio::test]
async fn a_role_that_does_not_see_others_is_told() {
    let patient = Patient::new().await;
    let role = Role::new(&patient.database, "blind").await;
    patient
        .execute(&format!(
            "grant usage on schema windlass to {0};
             grant select, insert, update, delete on all tables in schema windlass to {0};
             grant usage on all sequences in schema windlass to {0}",
            role.name()
        ))
        .await;
    let blind = PostgresOptions::new(role.url(&patient.database));
    let report = examine(&blind, &DoctorOptions::new()).await;
    assert_eq!(findings(&report, "server.suitable"), []);
    let words = ["cannot see the sessions of other roles"];
    let finding = assert_one(findings(&report, "server.sight"), FindingSeverity::Notice, &words);
    patient.execute(&finding.remedy).await;
    assert_eq!(findings(&examine(&blind, &DoctorOptions::new()).await, "server.sight"), []);
}
