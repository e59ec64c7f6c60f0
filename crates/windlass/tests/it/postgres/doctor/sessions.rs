//! Transactions, poolers, listeners and clocks.

use std::sync::Arc;

use windlass::clock::VirtualClock;
use windlass_core::Timestamp;

use super::super::pooler::Pooler;
use super::*;

#[tokio::test]
async fn a_transaction_that_is_open_for_long_is_named_by_its_session() {
    let patient =
        Patient::with(DoctorOptions::new().long_transaction(Duration::from_micros(1))).await;
    patient.assert_well("server.transactions", "before").await;
    let url = patient.database.url();
    let sign = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{sign}application_name=report");
    let (other, connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("it is there");
    tokio::spawn(connection);
    let pid: i32 = other.query_one("select pg_backend_pid()", &[]).await.expect("one").get(0);
    let open = "begin isolation level repeatable read; select count(*) from windlass.runs";
    other.batch_execute(open).await.expect("it is opened");

    let session = format!("session {pid} (report, role windlass, idle in transaction)");
    let remedy = format!("select pg_terminate_backend({pid})");
    let words = [&session, "vacuum cannot remove the dead rows", &remedy];
    let words = words.map(|word| word as &str);
    patient.assert_found("server.transactions", FindingSeverity::Critical, &words).await;

    // Without a snapshot it keeps no dead rows.
    other.batch_execute("rollback; begin; select 1").await.expect("it is opened");
    let words = [&session, "its locks and its connection"];
    let words = words.map(|word| word as &str);
    patient.assert_found("server.transactions", FindingSeverity::Critical, &words).await;

    let patient = Patient { options: DoctorOptions::new(), ..patient };
    patient.assert_well("server.transactions", "while it is not open for long").await;
    let hour = Duration::from_secs(3_600);
    let patient = Patient { options: DoctorOptions::new().long_transaction(hour), ..patient };
    patient.assert_well("server.transactions", "while an hour is not long").await;
    other.batch_execute("rollback").await.expect("it can be given up");
    let at_once = DoctorOptions::new().long_transaction(Duration::from_micros(1));
    let patient = Patient { options: at_once, ..patient };
    patient.assert_well("server.transactions", "after").await;
}

#[tokio::test]
async fn a_pooler_is_seen_by_what_it_does_to_sessions() {
    let database = TestDatabase::new().await;
    let options = DoctorOptions::new();
    let direct = PostgresOptions::new(database.url());
    let report = examine(&direct, &options).await;
    assert_eq!(findings(&report, "server.pooler"), []);
    assert_eq!(findings(&report, "server.listening"), []);

    let pooler = Pooler::start(&database.url()).await;
    let pooled = PostgresOptions::new(pooler.url());
    let found = async |words: &[&str]| {
        let report = examine(&pooled, &options).await;
        assert_one(findings(&report, "server.pooler"), FindingSeverity::Critical, words);
        let words = ["do not pass the unannounced pooler", "PostgresOptions::listen_url"];
        assert_one(findings(&report, "server.listening"), FindingSeverity::Warning, &words);
    };
    found(&["it rejects session settings", "--pooled"]).await;
    pooler.ignore_options();
    found(&["it drops session settings"]).await;
    // What would tell that is set for everyone.
    let client = database.client().await;
    let name = database.name();
    let set = "idle_in_transaction_session_timeout = '5s'";
    client.batch_execute(&format!("alter database {name} set {set}")).await.expect("it can be");
    let pooler = Pooler::start(&database.url()).await;
    pooler.ignore_options();
    let pooled = PostgresOptions::new(pooler.url());
    let report = examine(&pooled, &options).await;
    let words = ["a session changes its server connection"];
    assert_one(findings(&report, "server.pooler"), FindingSeverity::Critical, &words);

    // Known, it is none; and whoever listens elsewhere hears.
    let announced = pooled.pooled(true);
    let report = examine(&announced, &options).await;
    assert_eq!(findings(&report, "server.pooler"), []);
    let words = ["notifications do not pass the pooler"];
    assert_one(findings(&report, "server.listening"), FindingSeverity::Notice, &words);
    let report = examine(&announced.listen_url(database.url()), &options).await;
    assert_eq!(findings(&report, "server.listening"), []);
}

#[tokio::test]
async fn an_address_where_nothing_is_heard_is_found() {
    let (database, elsewhere) = (TestDatabase::new().await, TestDatabase::bare().await);
    let deaf = PostgresOptions::new(database.url()).listen_url(elsewhere.url());
    let report = examine(&deaf, &DoctorOptions::new()).await;
    let words = ["notifications are not received on", elsewhere.name(), "did not arrive within 2s"];
    assert_one(findings(&report, "server.listening"), FindingSeverity::Warning, &words);
}

#[tokio::test]
async fn clocks_that_are_apart_are_found() {
    let patient = Patient::new().await;
    patient.assert_well("server.clock", "on one machine").await;
    let later = Timestamp::from(std::time::SystemTime::now()) + Duration::from_secs(90);
    let options = DoctorOptions::new().clock(Arc::new(VirtualClock::new(later)));
    let patient = Patient { options, ..patient };
    let words = ["behind the clock of this machine", "timedatectl"];
    patient.assert_found("server.clock", FindingSeverity::Warning, &words).await;
}
