//! `windlass migrate`, on a server of its own.

use std::process::Output;

use tokio_postgres::{Client, NoTls};
use windlass::embedded::{EmbeddedOptions, EmbeddedPostgres};

use crate::place::Place;
use crate::{assert_line, text, windlass};

async fn start(place: &Place) -> EmbeddedPostgres {
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    options.start().await.unwrap()
}

async fn connect(server: &EmbeddedPostgres) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn migrate(url: &str, more: &[&str]) -> Output {
    windlass(&[&["migrate", "--database-url", url], more].concat())
}

#[track_caller]
fn assert_refused(output: &Output, parts: &[&str]) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(text(&output.stdout), "");
    assert_line(&text(&output.stderr), &[&["error: "], parts].concat());
}

#[tokio::test]
async fn a_database_is_migrated_once_and_its_errors_have_codes() {
    let place = Place::new();
    let server = start(&place).await;
    let client = connect(&server).await;
    let url = server.url();

    let planned = migrate(&url, &["--plan"]);
    assert!(planned.status.success(), "{planned:?}");
    let plan = text(&planned.stdout);
    assert_line(&plan, &["-- the schema would go from version 0 to "]);
    assert_line(&plan, &["-- migration 0001_windlass, one transaction"]);
    assert_line(&plan, &["create table windlass.runs ("]);
    assert_line(&plan, &["-- locks: share on windlass.runs"]);
    let has_schema = "select 1 from pg_namespace where nspname = 'windlass'";
    assert!(client.query_opt(has_schema, &[]).await.unwrap().is_none());

    let first = migrate(&url, &[]);
    assert!(first.status.success(), "{first:?}");
    let out = text(&first.stdout);
    assert_line(&out, &["applied 0001_windlass"]);
    assert_line(&out, &["the schema went from version 0 to "]);
    let second = migrate(&url, &[]);
    assert!(second.status.success(), "{second:?}");
    assert_line(&text(&second.stdout), &["the schema is up to date: version "]);

    let planned = migrate(&url, &["--plan"]);
    assert!(planned.status.success(), "{planned:?}");
    assert_line(&text(&planned.stdout), &["-- the schema is up to date: version "]);

    client.batch_execute("create role guest login").await.unwrap();
    client.batch_execute("create database bare").await.unwrap();
    let bare = url.replace("/postgres", "/bare");
    let guest = bare.replace("windlass@", "guest@");
    assert_refused(&migrate(&guest, &[]), &["[WL-0011]"]);
    let nobody = url.replace("windlass@", "nobody-of-that-name@");
    assert_refused(&migrate(&nobody, &[]), &["nobody-of-that-name", "[WL-0011]"]);

    // Each right is named until it is there; a plan needs no others.
    let guest = url.replace("windlass@", "guest@");
    for (lacks, grant) in [
        ("usage of schema windlass", "grant usage on schema windlass to guest"),
        ("select on windlass.migrations", "grant select on windlass.migrations to guest"),
    ] {
        let complaint = "role \"guest\" lacks a right in database";
        assert_refused(&migrate(&guest, &["--plan"]), &[complaint, lacks, "[WL-0011]"]);
        client.batch_execute(grant).await.unwrap();
    }
    assert!(migrate(&guest, &["--plan"]).status.success());

    let read_only = "alter database bare set default_transaction_read_only = on";
    client.batch_execute(read_only).await.unwrap();
    let complaint = "is read-only: default_transaction_read_only is on";
    assert_refused(&migrate(&bare, &[]), &["/bare", complaint, "[WL-0011]"]);
    assert!(migrate(&bare, &["--plan"]).status.success());

    let newer = "insert into windlass.migrations (version, works_from, name, checksum)
                 values (9998, 1, 'x', '')";
    client.batch_execute(newer).await.unwrap();
    for more in [&[][..], &["--plan"]] {
        let output = migrate(&url, more);
        assert!(output.status.success(), "{output:?}");
        let parts = ["the schema is version 9998, newer than this program", "nothing to do"];
        assert_line(&text(&output.stdout), &parts);
    }
    let newer = "insert into windlass.migrations (version, works_from, name, checksum)
                 values (9999, 9999, 'x', '')";
    client.batch_execute(newer).await.unwrap();
    for more in [&[][..], &["--plan"]] {
        assert_refused(&migrate(&url, more), &["version 9999", "[WL-0010]"]);
    }
}

#[tokio::test]
async fn what_is_printed_makes_roles_that_work_and_none_of_them_is_more_than_it_must_be() {
    let place = Place::new();
    let server = start(&place).await;
    let client = connect(&server).await;
    let printed = windlass(&["migrate", "--grants", "--engine-role", "shop_engine"]);
    assert!(printed.status.success(), "{printed:?}");
    let sql = text(&printed.stdout);
    // Before there is a schema, and after.
    client.batch_execute(&sql).await.unwrap();
    let as_role = |role: &str| server.url().replacen("windlass@", &format!("{role}@"), 1);
    let migrated = migrate(&as_role("windlass_owner"), &[]);
    assert!(migrated.status.success(), "{migrated:?}");
    client.batch_execute(&sql).await.unwrap();
    client.batch_execute(&sql).await.unwrap();
    let runs = windlass(&["runs", "--database-url", &as_role("shop_engine")]);
    assert!(runs.status.success(), "{runs:?}");
    // The engine changes no schema.
    let refused = migrate(&as_role("shop_engine"), &[]);
    assert_refused(&refused, &["belongs to role \"windlass_owner\"", "[WL-0011]"]);
    let roles = "select count(*) from pg_roles where rolname in
        ('windlass_owner', 'shop_engine', 'windlass_api')
        and not (rolsuper or rolcreaterole or rolcreatedb or rolbypassrls)";
    assert_eq!(client.query_one(roles, &[]).await.unwrap().get::<_, i64>(0), 3);
    let wrong = windlass(&["migrate", "--grants", "--api-role", "x; drop"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    assert_line(&text(&wrong.stderr), &["\"x; drop\"", "API role"]);
}

#[tokio::test]
async fn a_standby_is_called_that_and_can_be_planned_for_and_audited() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false);
    let server = options.clone().start().await.unwrap();
    assert!(migrate(&server.url(), &[]).status.success());
    server.stop().await.unwrap();
    std::fs::write(place.directory().join("data/standby.signal"), "").unwrap();
    let server = options.start().await.unwrap();
    let url = server.url();
    assert_refused(&migrate(&url, &[]), &["is on a standby", "[WL-0011]"]);
    let connected = windlass::Windlass::connect(url.as_str()).await.map(drop);
    let error = connected.unwrap_err().to_string();
    assert!(error.contains("is on a standby, which only replays another server"), "{error}");
    assert!(migrate(&url, &["--plan"]).status.success());
    assert!(windlass(&["audit", "--database-url", &url]).status.success());
    server.stop().await.unwrap();
}

#[test]
fn a_database_that_cannot_be_reached_is_named_without_its_password() {
    // Port 1 is nobody's.
    let output = migrate("postgres://app:secret@127.0.0.1:1/app?sslmode=disable", &[]);
    assert_refused(&output, &["127.0.0.1:1/app", "cannot be reached", "[WL-0007]"]);
    assert!(!text(&output.stderr).contains("secret"));
    let output = migrate("mysql://app:secret@127.0.0.1/app", &[]);
    assert_refused(&output, &["does not begin with postgres://", "[WL-0002]"]);
    assert!(!text(&output.stderr).contains("secret"));
}
