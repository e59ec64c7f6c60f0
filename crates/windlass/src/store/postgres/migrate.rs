//! The schema of the database, brought up to date step by step.
//!
//! Migrations only go forward, each in a transaction of its own that also notes it in
//! `windlass.migrations`. Whoever migrates holds an advisory lock meanwhile, so that
//! several programs may do so at once and one does the work.

use tokio_postgres::Transaction;

use super::check::{self, Refusal};
use super::fault::{Fault, Retries};
use super::options::{PostgresOptions, Target};
use crate::{Error, ErrorKind};

/// Taken while migrations are applied: the bytes of `windlass`.
const LOCK: i64 = 0x7769_6e64_6c61_7373;

/// The version of the schema that this program works with.
pub(super) const VERSION: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// A step of the schema.
#[derive(Debug)]
pub(super) struct Migration {
    pub(super) version: i32,
    pub(super) name: &'static str,
    pub(super) sql: &'static str,
}

/// All steps, the oldest first.
pub(super) const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "windlass",
    sql: include_str!("migrations/0001_windlass.sql"),
}];

/// What a migration did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The version of the schema before; 0 if there was none.
    pub from: u32,
    /// The version of the schema now.
    pub to: u32,
    /// The migrations that were applied, the oldest first; none if another had done it.
    pub applied: Vec<String>,
}

/// Brings the schema of a database up to date. To do so again, or in several programs at
/// the same time, does no harm.
///
/// The role needs the right to create a schema in the database, and becomes the owner of
/// the schema `windlass` and of what is in it. Later migrations must be done by that
/// role.
///
/// # Errors
///
/// `Argument` for an address that cannot be read, `Unavailable` if the database cannot be
/// reached or a lock is not to be had, `Schema` if the schema is newer than this program
/// or was made by other migrations, `Database` if the server is too old or the role lacks
/// a right.
pub async fn migrate(options: &PostgresOptions) -> Result<Migrated, Error> {
    let target = options.target()?;
    let mut retries = Retries::new("migrate");
    loop {
        match migrate_once(options, &target).await {
            Ok(migrated) => return Ok(migrated),
            Err(Refusal::Error(error)) => return Err(error),
            Err(Refusal::Fault(fault)) if retries.again(&fault).await => continue,
            Err(Refusal::Fault(fault)) => return Err(check::refused(&target, fault)),
        }
    }
}

async fn migrate_once(options: &PostgresOptions, target: &Target) -> Result<Migrated, Refusal> {
    let connected = target.config.connect(target.tls.0.clone()).await;
    let (mut client, connection) = connected.map_err(Fault::from)?;
    let connection = tokio::spawn(connection);
    let mut migrated = Migrated { from: 0, to: 0, applied: Vec::new() };
    let mut is_first = true;
    loop {
        let tx = client.transaction().await.map_err(Fault::from)?;
        let found = prepare(&tx, options, target).await?;
        if is_first {
            migrated.from = found.cast_unsigned();
            is_first = false;
        }
        migrated.to = found.cast_unsigned();
        let Some(next) = MIGRATIONS.iter().find(|it| it.version > found) else {
            tx.commit().await.map_err(Fault::from)?;
            break;
        };
        apply(&tx, next).await?;
        tx.commit().await.map_err(Fault::from)?;
        migrated.applied.push(format!("{:04}_{}", next.version, next.name));
    }
    connection.abort();
    Ok(migrated)
}

/// Takes the lock, makes the list of migrations if there is none, and answers the version
/// that the schema has.
async fn prepare(
    tx: &Transaction<'_>,
    options: &PostgresOptions,
    target: &Target,
) -> Result<i32, Refusal> {
    // For the lock one waits as long as another migration takes.
    let unlimited = "set local statement_timeout = 0; set local lock_timeout = 0;
                     set local idle_in_transaction_session_timeout = 0";
    tx.batch_execute(unlimited).await.map_err(Fault::from)?;
    let lock = format!("select pg_advisory_xact_lock({LOCK})");
    tx.batch_execute(&lock).await.map_err(Fault::from)?;
    // For the locks of tables one does not: everyone else would queue up behind.
    let limit = format!("set local lock_timeout = {}", options.lock_timeout.as_millis());
    tx.batch_execute(&limit).await.map_err(Fault::from)?;
    let has = "select
        exists (select from pg_namespace where nspname = 'windlass'),
        exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                where n.nspname = 'windlass' and c.relname = 'migrations'),
        current_setting('server_version_num')::integer,
        current_setting('server_encoding')";
    let row = tx.query_typed_one(has, &[]).await.map_err(Fault::from)?;
    check::check_server(row.get(2), row.get(3), &target.name()).map_err(Refusal::Error)?;
    if !row.get::<_, bool>(0) {
        tx.batch_execute("create schema windlass").await.map_err(Fault::from)?;
    }
    if !row.get::<_, bool>(1) {
        tx.batch_execute(
            "create table windlass.migrations (
                version integer primary key check (version >= 1),
                name text not null,
                checksum text not null,
                applied_at timestamptz not null default clock_timestamp()
            )",
        )
        .await
        .map_err(Fault::from)?;
        return Ok(0);
    }
    found_version(tx, target).await
}

/// The version of the schema, once it is found to come from our migrations.
async fn found_version(tx: &Transaction<'_>, target: &Target) -> Result<i32, Refusal> {
    let sql = "select m.version, m.name, m.checksum from windlass.migrations m order by m.version";
    let rows = tx.query_typed(sql, &[]).await.map_err(Fault::from)?;
    let mut found = 0;
    for row in &rows {
        found = row.get(0);
        let Some(known) = MIGRATIONS.iter().find(|it| it.version == found) else {
            let text = check::newer(found, &target.name());
            return Err(Refusal::Error(Error::new(ErrorKind::Schema, text)));
        };
        if row.get::<_, &str>(2) != checksum(tx, known).await? {
            let name = target.name();
            let text = format!(
                "migration {found} of database {name} was applied with another text than this \
                 program has for it"
            );
            return Err(Refusal::Error(Error::new(ErrorKind::Schema, text)));
        }
    }
    Ok(found)
}

async fn apply(tx: &Transaction<'_>, migration: &Migration) -> Result<(), Fault> {
    tx.batch_execute(migration.sql).await?;
    let checksum = checksum(tx, migration).await?;
    let note = "insert into windlass.migrations (version, name, checksum) values ($1, $2, $3)";
    let types = tokio_postgres::types::Type::INT4;
    let text = tokio_postgres::types::Type::TEXT;
    let params: [(&(dyn tokio_postgres::types::ToSql + Sync), _); 3] =
        [(&migration.version, types), (&migration.name, text.clone()), (&checksum, text)];
    tx.execute_typed(note, &params).await?;
    Ok(())
}

/// What a migration's text is known by; the server computes it.
async fn checksum(tx: &Transaction<'_>, migration: &Migration) -> Result<String, Fault> {
    // A checkout on another system may have other ends of lines.
    let text = migration.sql.replace("\r\n", "\n");
    let sql = "select encode(sha256(convert_to($1, 'UTF8')), 'hex')";
    let row = tx.query_typed_one(sql, &[(&text, tokio_postgres::types::Type::TEXT)]).await?;
    Ok(row.get(0))
}
