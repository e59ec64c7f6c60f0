//! The second wall between tenants, as PostgreSQL keeps it.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::sync::Arc;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use windlass::store::postgres::{
    DoctorOptions, FindingSeverity, PostgresOptions, PostgresStore, Roles, WALLED_TABLES, doctor,
};
use windlass::store::{NewRun, Store, WorkerLink};
use windlass_core::{RunId, Tenant};

use super::driver::{Worker, new_run, workflow};
use super::{Postgres, postgres};
use crate::database::TestDatabase;

/// The tables that are not walled: the API's role has no right to any but the first. A new table
/// belongs here, or in `WALLED_TABLES` with a policy, and somebody has to say which.
const OTHER_TABLES: &[&str] = &[
    "definition_tasks",
    "checkpoints",
    "children",
    "deadlines",
    "definitions",
    "duties",
    "handled",
    "kept_keys",
    "key_signals",
    "key_waiters",
    "lane_places",
    "lanes",
    "leaders",
    "levels",
    "limits",
    "marks",
    "migrations",
    "pulses",
    "queue_changes",
    "queue_counts",
    "quotas",
    "retention",
    "routes",
    "settings",
    "signals",
    "staged",
    "tenants",
    "tokens",
    "workers",
];

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

async fn start(store: &dyn Store, whose: &str, name: &str) -> RunId {
    let workflow = workflow(name, &["a"]);
    store.register(Arc::clone(&workflow)).await.unwrap();
    let run = NewRun { tenant: tenant(whose), ..new_run(&workflow) };
    store.start_runs(vec![run]).await.unwrap().remove(0).unwrap().run
}

/// A session as the API's role, in a transaction that names a tenant or none.
async fn enter(client: &Client, whose: Option<&str>) {
    client.batch_execute("begin; set local role windlass_api").await.unwrap();
    if let Some(whose) = whose {
        let set = "select set_config('windlass.tenant', $1, true)";
        client.query_one(set, &[&whose]).await.unwrap();
    }
}

async fn count(client: &Client, table: &str) -> i64 {
    let sql = format!("select count(*) from windlass.{table}");
    client.query_one(&sql, &[]).await.unwrap().get(0)
}

async fn filled() -> (Postgres, [RunId; 2]) {
    let subject = postgres().await;
    let store = &*subject.store;
    let mut held = Vec::new();
    for whose in ["acme", "zenith"] {
        held.push(start(store, whose, "held").await);
        start(store, whose, "ready").await;
    }
    let worker = Worker::join(store, &workflow("held", &["a"])).await;
    assert_eq!(store.claim(worker.request(9)).await.unwrap().len(), 2);
    (subject, [held[0], held[1]])
}

#[tokio::test]
async fn every_table_is_walled_or_closed_and_every_view_reads_as_whoever_asks() {
    let database = TestDatabase::granted().await;
    let client = database.client().await;
    let sql = "select c.relname::text, c.relrowsecurity,
            has_table_privilege('windlass_api', c.oid, 'select'),
            has_table_privilege('windlass_api', c.oid, 'insert, update, delete, truncate')
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'windlass' and c.relkind in ('r', 'p') order by 1";
    for row in client.query(sql, &[]).await.unwrap() {
        let (name, is_walled, is_seen, is_written): (String, bool, bool, bool) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        let name = name.as_str();
        let walled = WALLED_TABLES.contains(&name);
        let other = OTHER_TABLES.contains(&name);
        assert!(walled != other, "{name}: say whether the API may see it");
        assert_eq!(is_walled, walled, "{name}");
        assert_eq!(is_seen, walled || name == "definition_tasks", "{name}");
        assert!(!is_written, "{name}");
    }
    let views = "select c.relname::text from pg_class c
        join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'windlass' and c.relkind in ('v', 'm')
            and has_table_privilege('windlass_api', c.oid, 'select')
            and not coalesce('security_invoker=true' = any(c.reloptions), false)";
    assert!(client.query(views, &[]).await.unwrap().is_empty());
    let functions = "select p.oid::regprocedure::text from pg_proc p
        join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = 'windlass' and p.prosecdef
            and has_function_privilege('windlass_api', p.oid, 'execute')";
    let functions = client.query(functions, &[]).await.unwrap();
    assert!(functions.is_empty(), "{functions:?}");
}

#[tokio::test]
async fn whoever_sends_sql_as_the_role_of_the_api_sees_one_tenant_and_writes_nothing() {
    let (subject, [own, other]) = filled().await;
    let roles = Roles::default();
    let url = subject.database.url_as(&roles.engine);
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    for (whose, runs) in [(Some("acme"), 2), (Some("zenith"), 2), (Some("nobody"), 0), (None, 0)] {
        enter(&client, whose).await;
        assert_eq!(count(&client, "runs").await, runs, "{whose:?}");
        assert_eq!(count(&client, "ready").await, runs / 2, "{whose:?}");
        assert_eq!(count(&client, "leases").await, runs / 2, "{whose:?}");
        assert_eq!(count(&client, "history").await > 0, runs > 0, "{whose:?}");
        assert_eq!(count(&client, "task_states").await, runs, "{whose:?}");
        client.batch_execute("commit").await.unwrap();
    }
    // For every table: nothing without a tenant.
    for table in WALLED_TABLES {
        enter(&client, None).await;
        assert_eq!(count(&client, table).await, 0, "{table}");
        client.batch_execute("rollback").await.unwrap();
    }
    for table in OTHER_TABLES.iter().skip(1) {
        enter(&client, Some("acme")).await;
        let error = client.query(&format!("select from windlass.{table}"), &[]).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{table}");
        client.batch_execute("rollback").await.unwrap();
    }
    // Asked for by its key, it is not there, and a filter that tells by failing is not asked.
    enter(&client, Some("acme")).await;
    let by_id = "select from windlass.runs r where r.id = $1";
    assert_eq!(client.query(by_id, &[own.as_uuid()]).await.unwrap().len(), 1);
    assert_eq!(client.query(by_id, &[other.as_uuid()]).await.unwrap().len(), 0);
    let leaky = "select from windlass.runs r
        where case when r.tenant = 'zenith' then 1 / (r.round - 1) else 0 end = 0";
    assert_eq!(client.query(leaky, &[]).await.unwrap().len(), 2);
    client.batch_execute("commit").await.unwrap();
    let writes = [
        "update windlass.runs set tenant = 'acme'",
        "delete from windlass.runs",
        "insert into windlass.notes values (gen_random_uuid(), 0, 1, '1')",
        "select from windlass.runs for update",
        "truncate windlass.runs",
        "select windlass.prune_handled(1)",
        "select nextval('windlass.ready_seq')",
        "create table windlass.mine ()",
        "set local session authorization windlass",
    ];
    for write in writes {
        enter(&client, Some("zenith")).await;
        let error = client.batch_execute(write).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{write}: {error}");
        client.batch_execute("rollback").await.unwrap();
    }
    // Nothing of it outlives its transaction.
    let left = "select current_user::text, coalesce(current_setting('windlass.tenant', true), '')";
    let row = client.query_one(left, &[]).await.unwrap();
    assert_eq!((row.get(0), row.get(1)), (roles.engine.as_str(), ""));
    // Whoever sends SQL of its own as the engine is beyond this wall.
    enter(&client, Some("acme")).await;
    client.batch_execute("reset role").await.unwrap();
    assert_eq!(count(&client, "runs").await, 4);
}

#[tokio::test]
async fn a_role_of_a_program_sees_rows_once_it_is_a_member_of_the_engine() {
    let (subject, _) = filled().await;
    let database = &subject.database;
    let admin = database.client().await;
    let role = format!("program_{}", database.name());
    let sql = format!(
        "create role {role} login; grant usage on schema windlass to {role};
         grant select, update on all tables in schema windlass to {role}"
    );
    admin.batch_execute(&sql).await.unwrap();
    let url = database.url_as(&role);
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(count(&client, "workers").await, 1, "it has the rights on the tables");
    for table in WALLED_TABLES {
        assert_eq!(count(&client, table).await, 0, "{table}");
    }
    let update = "update windlass.runs set round = round";
    assert_eq!(client.execute(update, &[]).await.unwrap(), 0);
    // To name a tenant helps no more.
    client.batch_execute("set windlass.tenant = 'acme'").await.unwrap();
    assert_eq!(count(&client, "runs").await, 0);
    admin.batch_execute(&format!("grant windlass_engine to {role}")).await.unwrap();
    assert_eq!(count(&client, "runs").await, 4);
    assert_eq!(client.execute(update, &[]).await.unwrap(), 4);
}

#[tokio::test]
async fn the_engine_is_no_owner_and_changes_no_schema() {
    let database = TestDatabase::granted().await;
    let url = database.url_as(&Roles::default().engine);
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    for sql in [
        "create table windlass.mine ()",
        "alter table windlass.runs disable row level security",
        "drop policy windlass_api on windlass.runs",
        "drop table windlass.notes",
        "insert into windlass.migrations default values",
        "create role mine",
        "alter role windlass_api bypassrls",
        "grant select on windlass.settings to windlass_api",
    ] {
        let refused = client.batch_execute(sql).await;
        let is_refused = refused
            .as_ref()
            .is_err_and(|error| error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE));
        let granted = "select has_table_privilege('windlass_api', 'windlass.settings', 'select')";
        let is_seen: bool = client.query_one(granted, &[]).await.unwrap().get(0);
        // To grant what one may not grant is a warning.
        assert!(is_refused || (refused.is_ok() && sql.starts_with("grant")), "{sql}: {refused:?}");
        assert!(!is_seen, "{sql}");
    }
}

#[tokio::test]
async fn a_wall_that_does_not_stand_is_refused_and_said_to_be_why() {
    let database = TestDatabase::granted().await;
    let admin = database.client().await;
    let engine = database.url_as(&Roles::default().engine);
    let connect = async |url: &str, role: &str| {
        let options = PostgresOptions::new(url).api_role(role).listen(false);
        PostgresStore::connect(options).await.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(connect(&engine, "windlass_api").await, Ok(()));
    let error = connect(&engine, "nobody").await.unwrap_err();
    assert!(error.contains("\"nobody\"") && error.contains("does not exist"), "{error}");
    assert!(error.contains("windlass migrate --grants"), "{error}");
    let stranger = format!("stranger_{}", database.name());
    admin.batch_execute(&format!("create role {stranger}")).await.unwrap();
    let error = connect(&engine, &stranger).await.unwrap_err();
    assert!(error.contains("has no policy for it"), "{error}");
    for (breaks, mends, why) in [
        (
            "alter table windlass.runs disable row level security",
            "alter table windlass.runs enable row level security",
            "sees windlass.runs whole",
        ),
        (
            "alter view windlass.events set (security_invoker = false)",
            "alter view windlass.events set (security_invoker = true)",
            "sees windlass.events whole",
        ),
        (
            "grant select on windlass.tokens to windlass_api",
            "revoke select on windlass.tokens from windlass_api",
            "sees windlass.tokens whole",
        ),
        (
            "grant update on windlass.runs to windlass_api",
            "revoke update on windlass.runs from windlass_api",
            "may write windlass.runs",
        ),
        (
            "revoke select on windlass.steps from windlass_api",
            "grant select on windlass.steps to windlass_api",
            "cannot read windlass.steps",
        ),
    ] {
        admin.batch_execute(breaks).await.unwrap();
        let error = connect(&engine, "windlass_api").await.unwrap_err();
        assert!(error.contains(why), "{error}");
        admin.batch_execute(mends).await.unwrap();
        assert_eq!(connect(&engine, "windlass_api").await, Ok(()), "{mends}");
    }
    // A role that may not take it on.
    let plain = format!("plain_{}", database.name());
    let sql = format!(
        "create role {plain} login; grant windlass_engine to {plain};
         grant usage on schema windlass to {plain}"
    );
    admin.batch_execute(&sql).await.unwrap();
    admin.batch_execute(&format!("revoke windlass_engine from {plain}")).await.unwrap();
    admin
        .batch_execute(&format!(
            "grant select, insert, update, delete on all tables in schema windlass to {plain};
             grant usage on all sequences in schema windlass to {plain}"
        ))
        .await
        .unwrap();
    let error = connect(&database.url_as(&plain), "windlass_api").await.unwrap_err();
    assert!(error.contains("permission denied to set role"), "{error}");
}

#[tokio::test]
async fn the_doctor_says_whether_the_second_wall_stands() {
    let found = async |url: &str| {
        let report = doctor(&PostgresOptions::new(url), &DoctorOptions::new()).await.unwrap();
        let check = report.checks.iter().find(|check| check.id == "tables.walls").unwrap();
        check.findings.iter().map(|one| (one.severity, one.problem.clone())).collect::<Vec<_>>()
    };
    let none = TestDatabase::new().await;
    let told = found(&none.url()).await;
    let absent = "row-level security is not set up".to_owned();
    assert_eq!(told, [(FindingSeverity::Notice, absent)]);
    let database = TestDatabase::granted().await;
    let engine = database.url_as(&Roles::default().engine);
    assert_eq!(found(&engine).await, []);
    let owner = found(&database.url_as(&Roles::default().migration)).await;
    assert!(owner.len() == 1 && owner[0].1.contains("cannot become"), "{owner:?}");
    let off = "alter table windlass.runs disable row level security";
    database.client().await.batch_execute(off).await.unwrap();
    let told = found(&engine).await;
    let open = "row-level security of windlass.runs is disabled".to_owned();
    assert_eq!(told, [(FindingSeverity::Critical, open)]);
}

#[tokio::test]
async fn tenants_with_every_character_are_told_apart_behind_the_wall() {
    let subject = postgres().await;
    let names = ["o'hara", "a\\b", "\"; reset role; --", "Über & Söhne", "a"];
    for name in names {
        start(&*subject.store, name, "w").await;
    }
    for name in names {
        let walled = subject.store.walled(&tenant(name)).unwrap();
        let runs = walled.list_runs(Default::default()).await.unwrap().runs;
        assert_eq!(runs.len(), 1, "{name}");
        assert_eq!(runs[0].tenant, tenant(name));
        assert!(walled.cancel_run(runs[0].id, None).await.is_err(), "it only reads");
    }
}
