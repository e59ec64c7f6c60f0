//! `windlass audit` on a real server.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use tokio_postgres::NoTls;
use windlass::embedded::{EmbeddedOptions, EmbeddedPostgres};
use windlass::store::postgres::{AuditReport, PostgresOptions, migrate};
use windlass::{Ctx, Limit, TaskError, Windlass, Workflow};

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

/// Lets a run that has succeeded keep the only slot of its key, and another run of the key wait.
async fn block_a_key(url: &str) {
    let mut order = Workflow::<BTreeMap<String, String>>::builder("order");
    let database = url.to_owned();
    let pay = order.task("pay").limit(Limit::per("key", 1));
    pay.run(move |_: Ctx<BTreeMap<String, String>>| {
        let database = database.clone();
        async move {
            let save = "create table public.lanes as select * from windlass.lanes;
                create table public.places as select * from windlass.lane_places";
            execute(&database, save).await;
            Ok::<_, TaskError>(())
        }
    });
    let order = order.build().expect("the workflow is right");
    let windlass = Windlass::connect(PostgresOptions::new(url).migrate(true)).await;
    let windlass = windlass.expect("the database is there");
    let input = BTreeMap::from([("key".to_owned(), "acme".to_owned())]);
    let worker = windlass.worker().register(&order).spawn().expect("it is set up");
    let first = windlass.start(&order, input.clone()).await.expect("it is started");
    first.wait().await.expect("it ends");
    worker.drain().await.expect("nothing is left to do");
    let block = "delete from windlass.lanes;
        insert into windlass.lanes select * from public.lanes;
        insert into windlass.lane_places select * from public.places";
    execute(url, block).await;
    windlass.start(&order, input).await.expect("it is started");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_releases_blocked_slots_and_a_dry_run_only_lists_them() {
    let place = Place::new();
    let server = start(&place).await;
    let url = server.url();
    block_a_key(&url).await;
    let state = async || {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("it runs");
        tokio::spawn(connection);
        let sql = "select (select json_agg(l)::text from windlass.lanes l),
            (select json_agg(p)::text from windlass.lane_places p),
            (select count(*) from windlass.ready)";
        let row = client.query_one(sql, &[]).await.expect("it answers");
        (row.get::<_, Option<String>>(0), row.get::<_, Option<String>>(1), row.get::<_, i64>(2))
    };
    let json = |output: &Output| -> serde_json::Value {
        serde_json::from_slice(&output.stdout).expect("it is JSON")
    };
    let blocked = state().await;
    assert_eq!(blocked.2, 0, "the second run waits");
    let plain = json(&audit(&url, &["--json"]));
    assert_eq!(plain["verdict"], "violated");
    assert!(plain.get("released").is_none(), "nothing was repaired: {plain}");

    let output = audit(&url, &["--repair", "--dry-run"]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "it is violated still: {out}");
    assert!(out.starts_with("would release 1 limit slot:\n"), "{out}");
    let slot = ["key acme: held by succeeded task pay of run ", "(tenant default)"];
    assert_line(&out, &slot);
    let output = audit(&url, &["--repair", "--dry-run", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let listed = json(&output);
    assert_eq!((&listed["verdict"], &listed["is_dry_run"]), (&"violated".into(), &true.into()));
    let slots = listed["released"].as_array().expect("it is a list");
    assert_eq!((slots.len(), &slots[0]["key"]), (1, &"acme".into()), "{listed}");
    assert_eq!(state().await, blocked, "a dry run changes nothing");

    let output = audit(&url, &["--repair"]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}");
    assert!(out.starts_with("released 1 limit slot:\n"), "{out}");
    assert_line(&out, &slot);
    assert_line(&out, &["0 violated"]);
    assert_eq!(state().await.2, 1, "the second run can be claimed");
    let output = audit(&url, &["--repair"]);
    assert_eq!(output.status.code(), Some(0));
    assert_line(&text(&output.stdout), &["no limit slot is held by a task that has ended"]);
    let output = audit(&url, &["--repair", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let report = json(&output);
    let found = (&report["verdict"], &report["released"], report.get("is_dry_run"));
    assert_eq!(found, (&"clean".into(), &serde_json::json!([]), None));

    let output = audit(&url, &["--dry-run"]);
    assert_eq!(output.status.code(), Some(2));
    assert_line(&text(&output.stderr), &["--repair"]);
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
