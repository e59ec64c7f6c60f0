//! `windlass audit` on a real server.

use std::process::{Command, Output};

use tokio_postgres::NoTls;
use windlass::embedded::{EmbeddedOptions, EmbeddedPostgres};
use windlass::store::postgres::{AuditReport, PostgresOptions, migrate};

use super::{assert_line, text};
use crate::place::Place;

fn audit(url: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.arg("audit").args(more).env("DATABASE_URL", url);
    command.output().expect("the binary was built")
}

async fn start(place: &Place) -> EmbeddedPostgres {
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    options.start().await.expect("PostgreSQL is installed")
}

async fn execute(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it runs");
    tokio::spawn(connection);
    client.batch_execute(sql).await.expect("the statement is right");
}

#[tokio::test]
async fn an_audit_says_what_it_checked_and_exits_by_what_it_found() {
    let place = Place::new();
    let server = start(&place).await;
    let url = server.url();
    let output = audit(&url, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_line(&text(&output.stderr), &["error: ", "has no schema of Windlass", "[WL-0010]"]);

    migrate(&PostgresOptions::new(&url)).await.expect("the database is empty");
    let output = audit(&url, &[]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}");
    assert_line(&out, &["ok ", "schema.constraints"]);
    assert_line(&out, &["0 violated, 0 warnings"]);
    let output = audit(&url, &["--newest", "5", "--sql"]);
    assert_eq!(output.status.code(), Some(0));
    assert_line(&text(&output.stdout), &["-- G8.verdict: a run that has ended"]);

    let verdict = |output: &Output| -> String {
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        report["verdict"].as_str().expect("it is there").to_owned()
    };
    assert_eq!(verdict(&audit(&url, &["--json"])), "clean");

    execute(&url, "create role guest login").await;
    let guest = url.replace("windlass@", "guest@");
    for (lacks, grant) in [
        ("usage of schema windlass", "grant usage on schema windlass to guest"),
        ("select on windlass.", "grant select on all tables in schema windlass to guest"),
    ] {
        let output = audit(&guest, &[]);
        assert_eq!(output.status.code(), Some(2));
        let complaint = "role \"guest\" lacks a right in database";
        assert_line(&text(&output.stderr), &[complaint, lacks, "[WL-0011]"]);
        execute(&url, grant).await;
    }
    assert_eq!(audit(&guest, &[]).status.code(), Some(0));

    // Two runs with one key, which cannot be without having lost the index.
    execute(
        &url,
        "drop index windlass.runs_key;
         insert into windlass.runs
             (id, definition_id, workflow, version, tenant, open_tasks, created_at, key, input)
         select gen_random_uuid(), 1, 'order', 1, 'acme', 1, now(), e'red \\x1b[31m', '1'
         from generate_series(1, 2)",
    )
    .await;
    let output = audit(&url, &[]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert_line(&out, &["VIOLATED", "G12.keys", "1 checked, 1 wrong"]);
    assert_line(&out, &["key \"red \\u{1b}[31m\" of tenant \"acme\"", "names 2 runs"]);
    assert!(!out.contains('\u{1b}'), "{out:?}");

    let output = audit(&url, &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: AuditReport = serde_json::from_slice(&output.stdout).expect("it is a report");
    assert!(!report.is_clean());
    assert_eq!(verdict(&output), "violated");
    drop(server);
}

#[test]
fn an_audit_that_cannot_be_made_exits_with_2() {
    let output = audit("postgres://windlass@127.0.0.1:1/shop", &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_line(&text(&output.stderr), &["127.0.0.1:1/shop cannot be reached", "[WL-0007]"]);
    for (more, complaint) in [
        (["--newest", "0"], "expected a whole number from 1 to 4294967295"),
        (["--since", "yesterday"], "expected a whole number with a unit: ms, s, m, h or d"),
    ] {
        let output = audit("postgres://localhost/shop", &more);
        assert_eq!(output.status.code(), Some(2));
        assert_line(&text(&output.stderr), &[complaint]);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    let output = command.arg("audit").env_remove("DATABASE_URL").output().expect("it was built");
    assert_eq!(output.status.code(), Some(2));
    assert_line(&text(&output.stderr), &["--database-url <URL>"]);
}
