//! The schema is made and brought up to date, by whoever comes, once.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::Client;
use windlass::ErrorKind;
use windlass::store::postgres::{
    AuditOptions, DoctorOptions, LockMode, PostgresOptions, PostgresStore, audit, doctor, migrate,
    plan,
};

use super::driver::{start, workflow};
use super::role::Role;
use crate::database::TestDatabase;

fn options(database: &TestDatabase) -> PostgresOptions {
    PostgresOptions::new(database.url())
}

/// Every relation and function of the schema, to see that nothing changed.
async fn things(client: &Client) -> Vec<String> {
    let sql = "select c.relname::text from pg_class c
               join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'windlass'
               union all select p.proname::text from pg_proc p
               join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'windlass'
               union all select nspname::text from pg_namespace where nspname = 'windlass'
               order by 1";
    let rows = client.query(sql, &[]).await.expect("the catalogs can be read");
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn an_empty_database_is_migrated_and_then_left_alone() {
    let database = TestDatabase::bare().await;
    let first = migrate(&options(&database)).await.expect("it can be migrated");
    assert_eq!(first.from, 0);
    assert!(first.to >= 1);
    assert_eq!(first.applied[0], "0001_windlass");
    let client = database.client().await;
    let before = things(&client).await;
    let second = migrate(&options(&database)).await.expect("again is no error");
    assert_eq!((second.from, second.to, second.applied.len()), (first.to, first.to, 0));
    assert_eq!(things(&client).await, before);
    let store = PostgresStore::connect(options(&database)).await.expect("it is migrated");
    start(&store, &workflow("one", &["a"])).await;
}

#[tokio::test]
async fn programs_that_migrate_at_the_same_time_do_it_once() {
    let database = TestDatabase::bare().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let options = options(&database);
        tasks.spawn(async move { migrate(&options).await });
    }
    let mut applied = Vec::new();
    for done in tasks.join_all().await {
        let done = done.expect("everyone finds it migrated");
        assert!(done.applied.len() <= (done.to - done.from) as usize, "{done:?}");
        applied.extend(done.applied);
    }
    let client = database.client().await;
    let sql = "select count(*), max(version)::bigint from windlass.migrations";
    let row = client.query_one(sql, &[]).await.expect("the list is there");
    assert_eq!(row.get::<_, i64>(0), row.get::<_, i64>(1));
    // Each says only what it has applied itself.
    assert_eq!(applied.len() as i64, row.get::<_, i64>(0), "{applied:?}");
}

#[tokio::test]
async fn programs_that_connect_at_the_same_time_migrate_once() {
    let database = TestDatabase::bare().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let options = options(&database).migrate(true);
        tasks.spawn(async move { PostgresStore::connect(options).await.map(drop) });
    }
    for done in tasks.join_all().await {
        done.expect("everyone finds it migrated");
    }
}

#[tokio::test]
async fn a_database_that_is_read_only_is_called_that() {
    let database = TestDatabase::new().await;
    let sql = format!("alter database {} set default_transaction_read_only = on", database.name());
    database.client().await.batch_execute(&sql).await.expect("it can be set");
    let migrated = migrate(&options(&database)).await.map(drop);
    let connected = PostgresStore::connect(options(&database)).await.map(drop);
    for refused in [migrated, connected] {
        let error = refused.expect_err("nothing can be written");
        assert_eq!(error.kind(), ErrorKind::Database);
        let text = error.to_string();
        assert!(text.contains("is read-only: default_transaction_read_only is on"), "{text}");
        assert!(text.contains(database.name()), "{text}");
    }
    assert!(plan(&options(&database)).await.is_ok());
}

#[tokio::test]
async fn a_plan_changes_nothing_and_says_everything() {
    let database = TestDatabase::bare().await;
    let client = database.client().await;
    let wanted = plan(&options(&database)).await.expect("it can be planned");
    assert_eq!(things(&client).await, [""; 0], "nothing was made");
    assert_eq!(wanted.from, 0);
    let first = &wanted.migrations[0];
    assert_eq!((first.version, first.name.as_str()), (1, "windlass"));
    assert_eq!(first.statements[0].sql, "create schema windlass");
    let done = migrate(&options(&database)).await.expect("it can be migrated");
    assert_eq!(done.applied.len(), wanted.migrations.len());
    assert_eq!(done.to, wanted.to);
    let nothing = plan(&options(&database)).await.expect("it can be planned");
    assert_eq!((nothing.from, nothing.to), (done.to, done.to));
    assert!(nothing.migrations.is_empty());
}

/// Runs each statement in a transaction of its own and compares with what the server
/// shows, for everything that was there before the statement.
#[tokio::test]
async fn a_plan_names_the_locks_that_the_server_shows() {
    let database = TestDatabase::bare().await;
    let mut client = database.client().await;
    let wanted = plan(&options(&database)).await.expect("it can be planned");
    for statement in wanted.migrations.iter().flat_map(|it| &it.statements) {
        let before: BTreeSet<String> = things(&client).await.into_iter().collect();
        let tx = client.transaction().await.expect("a transaction");
        tx.batch_execute(&statement.sql).await.expect(&statement.sql);
        let sql = "select c.relname::text, l.mode from pg_locks l
                   join pg_class c on c.oid = l.relation
                   join pg_namespace n on n.oid = c.relnamespace
                   where l.pid = pg_backend_pid() and n.nspname = 'windlass'
                   and c.relkind in ('r', 'p', 'v')";
        let mut shown = BTreeMap::new();
        for row in tx.query(sql, &[]).await.expect("locks can be read") {
            let (table, mode) = (row.get::<_, String>(0), mode(row.get(1)));
            if before.contains(&table) {
                let strongest = shown.entry(format!("windlass.{table}")).or_insert(mode);
                *strongest = mode.max(*strongest);
            }
        }
        tx.commit().await.expect(&statement.sql);
        let locks = statement.locks.as_ref().expect("the kind of statement is known");
        let planned: BTreeMap<_, _> =
            locks.iter().map(|lock| (lock.table.clone(), lock.mode)).collect();
        assert_eq!(planned, shown, "{}", statement.sql);
    }
}

fn mode(name: &str) -> LockMode {
    let all = [
        LockMode::AccessShare,
        LockMode::RowShare,
        LockMode::RowExclusive,
        LockMode::ShareUpdateExclusive,
        LockMode::Share,
        LockMode::ShareRowExclusive,
        LockMode::Exclusive,
        LockMode::AccessExclusive,
    ];
    let found = all.into_iter().find(|mode| format!("{mode:?}Lock") == name);
    found.unwrap_or_else(|| panic!("{name} is no lock"))
}

#[tokio::test]
async fn a_database_without_a_schema_says_how_to_make_it() {
    let database = TestDatabase::bare().await;
    let error = PostgresStore::connect(options(&database)).await.expect_err("it is empty");
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("`windlass migrate`"), "{error}");
    assert!(!error.is_retryable());
    // A schema of that name that Windlass did not make is no better.
    let client = database.client().await;
    client.batch_execute("create schema windlass").await.expect("the test may do that");
    let error = PostgresStore::connect(options(&database)).await.expect_err("it is empty");
    assert_eq!(error.kind(), ErrorKind::Schema);
}

#[tokio::test]
async fn a_schema_that_is_newer_is_refused_with_both_versions() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let known = plan(&options(&database)).await.expect("it can be planned").to;
    let newer = "insert into windlass.migrations (version, works_from, name, checksum)
                 values (4711, 4710, 'later', '')";
    client.batch_execute(newer).await.expect("the test may do that");
    let errors = [
        PostgresStore::connect(options(&database)).await.map(drop).expect_err("it is newer"),
        migrate(&options(&database)).await.map(drop).expect_err("it is newer"),
        plan(&options(&database)).await.map(drop).expect_err("it is newer"),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Schema);
        let text = error.to_string();
        assert!(text.contains("is version 4711, which works with"), "{text}");
        assert!(text.contains("version 4710 or newer"), "{text}");
        assert!(text.contains(&format!("versions up to {known};")), "{text}");
    }
}

/// What a newer program may do to a schema that this one works on with: a column and a table more,
/// a function with another setting, an index less.
const EXPANDED: &str = "
    insert into windlass.migrations (version, works_from, name, checksum)
        values (4711, 2, 'later', '');
    alter table windlass.checkpoints add column later integer not null default 0;
    create table windlass.later (id integer primary key);
    alter function windlass.refuse(integer, text, text) set jit = off;
    drop index windlass.operator_log_by_run";

#[tokio::test]
async fn a_newer_schema_that_lets_this_program_work_on_is_used_and_left_alone() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let known = plan(&options(&database)).await.expect("it can be planned").to;
    client.batch_execute(EXPANDED).await.expect("the test may do that");
    let before = things(&client).await;
    let done = migrate(&options(&database)).await.expect("it is no error");
    assert_eq!((done.from, done.to, done.known, done.applied.len()), (4711, 4711, known, 0));
    let planned = plan(&options(&database)).await.expect("it can be planned");
    assert_eq!((planned.from, planned.to, planned.known), (4711, 4711, known));
    assert!(planned.migrations.is_empty());
    assert_eq!(things(&client).await, before);
    let store = PostgresStore::connect(options(&database).migrate(true)).await.expect("it works");
    start(&store, &workflow("one", &["a"])).await;

    // What only the newer program knows is not called wrong, and nothing else is left out.
    let report = audit(&options(&database), &AuditOptions::new()).await.expect("it is audited");
    assert!(report.is_clean(), "{report:#?}");
    let skipped: Vec<&str> =
        report.checks.iter().filter(|it| it.is_skipped).map(|it| it.id.as_str()).collect();
    assert_eq!(skipped, ["schema.constraints", "schema.indexes", "schema.functions"]);
    let report = doctor(&options(&database), &DoctorOptions::new()).await.expect("it is there");
    let found: Vec<&str> = report.findings().map(|(check, _)| check.id.as_str()).collect();
    assert!(found.iter().all(|id| !id.starts_with("schema.")), "{found:?}");
    let skipped = report.checks.iter().filter(|it| it.skipped.is_some()).map(|it| it.id.as_str());
    let skipped: Vec<&str> = skipped.filter(|id| id.starts_with("schema.")).collect();
    assert_eq!(skipped, ["schema.constraints", "schema.indexes", "schema.functions"]);
}

#[tokio::test]
async fn a_migration_whose_text_was_another_is_refused() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let other = "update windlass.migrations set checksum = md5('other') where version = 1";
    client.batch_execute(other).await.expect("the test may do that");
    let error = migrate(&options(&database)).await.expect_err("it is another");
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("migration 1 of database"), "{error}");
    assert!(error.to_string().contains("another text"), "{error}");
}

#[tokio::test]
async fn a_migration_that_fails_names_its_statement_and_leaves_nothing_behind() {
    let database = TestDatabase::bare().await;
    let client = database.client().await;
    let clash = "create schema windlass; create table windlass.runs (mine int)";
    client.batch_execute(clash).await.expect("the test may do that");
    let error = migrate(&options(&database)).await.expect_err("a table is in the way");
    assert_eq!(error.kind(), ErrorKind::Schema);
    let text = error.to_string();
    assert!(text.contains("at `create table windlass.runs ("), "{text}");
    assert!(text.contains("already exists"), "{text}");
    assert_eq!(things(&client).await, ["runs", "windlass"]);
}

#[tokio::test]
async fn a_role_needs_only_the_right_to_create_a_schema_and_is_told_so() {
    let database = TestDatabase::bare().await;
    let client = database.client().await;
    let role = Role::new(&database, "deployer").await;
    let options = PostgresOptions::new(role.url(&database));
    let error = migrate(&options).await.expect_err("it may not");
    assert_eq!(error.kind(), ErrorKind::Database);
    let text = error.to_string();
    assert!(text.contains(&format!("role {:?} lacks a right", role.name())), "{text}");
    assert!(text.contains(": create on database test_"), "{text}");
    assert_eq!(things(&client).await, [""; 0]);

    let grant = format!("grant create on database {} to {}", database.name(), role.name());
    client.batch_execute(&grant).await.expect("the test may do that");
    migrate(&options).await.expect("it may now");
    PostgresStore::connect(options).await.expect("its owner may use it");
}

/// A trigger on the list of migrations would run with the rights of whoever migrates.
#[tokio::test]
async fn a_schema_that_a_stranger_has_prepared_is_not_migrated() {
    let database = TestDatabase::bare().await;
    let client = database.client().await;
    let role = Role::new(&database, "stranger").await;
    let prepare = format!(
        "create schema windlass; create table windlass.migrations (version int, checksum text);
         alter table windlass.migrations owner to {}",
        role.name()
    );
    client.batch_execute(&prepare).await.expect("the test may do that");
    let options = PostgresOptions::new(database.url());
    for error in [
        migrate(&options).await.expect_err("it is not ours"),
        plan(&options).await.expect_err("it is not ours"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Database);
        assert!(
            error.to_string().contains(&format!("belongs to role {:?}", role.name())),
            "{error}"
        );
    }
    assert_eq!(things(&client).await, ["migrations", "windlass"], "nothing was made");
}

#[tokio::test]
async fn a_role_that_lacks_a_right_is_told_which() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let role = Role::new(&database, "app").await;
    let name = role.name();
    let steps = [
        ("select 1".to_owned(), ": usage of schema windlass"),
        (format!("grant usage on schema windlass to {name}"), ": delete on windlass.archived_runs"),
        (
            format!("grant select, update, delete on all tables in schema windlass to {name}"),
            ": insert on windlass.archived_runs",
        ),
        (
            format!("grant insert on all tables in schema windlass to {name}"),
            ": usage of windlass.ready_seq",
        ),
    ];
    for (grant, wanted) in steps {
        client.batch_execute(&grant).await.expect("the test may do that");
        let options = PostgresOptions::new(role.url(&database));
        let error = PostgresStore::connect(options).await.expect_err("a right is missing");
        assert_eq!(error.kind(), ErrorKind::Database);
        let text = error.to_string();
        assert!(text.contains(&format!("role {name:?} lacks a right")), "{text}");
        assert!(text.contains(wanted), "{text}");
    }
    let grant = format!("grant usage on all sequences in schema windlass to {name}");
    client.batch_execute(&grant).await.expect("the test may do that");
    let options = PostgresOptions::new(role.url(&database));
    let store = PostgresStore::connect(options).await.expect("it has all rights");
    start(&store, &workflow("one", &["a"])).await;
}
