//! `windlass doctor`, as people run it.

use std::process::Output;

use tokio_postgres::NoTls;
use windlass::embedded::{EmbeddedOptions, EmbeddedPostgres};
use windlass::store::postgres::{DoctorReport, PostgresOptions, migrate};

use super::place::Place;
use super::{assert_line, command, text};

fn doctor(url: &str, more: &[&str]) -> Output {
    let mut command = command(&["doctor"]);
    command.args(more).env("DATABASE_URL", url);
    command.output().expect("the binary was built")
}

async fn start(place: &Place) -> EmbeddedPostgres {
    // As durable as it is by itself: anything less is a finding.
    let options = EmbeddedOptions::new(place.directory()).temporary(true);
    options.start().await.expect("PostgreSQL is installed")
}

#[tokio::test]
async fn the_doctor_exits_by_what_it_found() {
    let place = Place::new();
    let server = start(&place).await;
    let url = server.url();
    let output = doctor(&url, &[]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert_line(&out, &["CRITICAL", "schema.version"]);
    assert_line(&out, &["fix:", "windlass migrate"]);
    assert_line(&out, &["skipped", "engine.timers"]);

    migrate(&PostgresOptions::new(&url)).await.expect("the database is empty");
    let output = doctor(&url, &[]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}");
    assert_line(&out, &["ok ", "schema.indexes"]);
    assert_line(&out, &["notice ", "server.settings"]);
    assert_line(&out, &["0 critical, 0 warnings, 2 notices"]);

    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("it runs");
    tokio::spawn(connection);
    let pid: i32 = client.query_one("select pg_backend_pid()", &[]).await.expect("one").get(0);
    client.batch_execute("begin; select txid_current()").await.expect("it is opened");
    let output = doctor(&url, &["--long-transaction", "1ms", "--sql"]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert_line(&out, &["CRITICAL", "server.transactions"]);
    assert_line(&out, &[&format!("- session {pid} ("), "role windlass, idle in transaction"]);
    assert_line(&out, &["fix:", &format!("select pg_terminate_backend({pid})")]);
    assert_line(&out, &["-- server.transactions: no transaction in this database"]);
    assert_eq!(doctor(&url, &[]).status.code(), Some(0), "it is not open for long");

    let output = doctor(&url, &["--long-transaction", "1ms", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["is_healthy"], &report["severity"]), (&false.into(), &"critical".into()));
    let report: DoctorReport = serde_json::from_slice(&output.stdout).expect("it is a report");
    assert!(!report.is_healthy());

    client.batch_execute("rollback").await.expect("it can be given up");
    let output = doctor(&url, &["--pool", "200"]);
    assert_eq!(output.status.code(), Some(1));
    assert_line(&text(&output.stdout), &["a pool of 200 and a listener gets too few connections"]);
    drop(server);
}

#[test]
fn a_doctor_that_cannot_look_exits_with_2() {
    let output = doctor("postgres://windlass@127.0.0.1:1/shop", &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_line(&text(&output.stderr), &["127.0.0.1:1/shop cannot be reached", "[WL-0007]"]);
    let output = doctor("postgres://localhost/shop", &["--late-after", "soon"]);
    assert_eq!(output.status.code(), Some(2));
    assert_line(&text(&output.stderr), &["expected a whole number with a unit"]);
}
