//! The schema of the database, brought up to date step by step.
//!
//! Migrations only go forward, each in a transaction of its own that also notes it in
//! `windlass.migrations`. Whoever migrates holds an advisory lock meanwhile, so that
//! several programs may do so at once and one does the work.
//!
//! Programs of different versions work on one schema while they are exchanged one by one. So a
//! migration that has landed is never edited, and says which programs may go on beside it; what
//! it may do is in CONTRIBUTING.md.

use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Transaction};

use super::address::Target;
use super::check::{self, Refusal, SchemaVersion};
use super::fault::{Fault, Remedy, Retries, describe, remedy};
use super::options::PostgresOptions;
use super::plan::{Plan, PlannedMigration, PlannedStatement};
use super::pool::open;
use super::split::statements;
use crate::{Error, ErrorKind};

/// How long a migration may do nothing, as one does whose process is frozen: others wait for
/// it to end.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Taken while migrations are applied: the bytes of `windlass`.
const LOCK: i64 = 0x7769_6e64_6c61_7373;

/// The version of the schema that this program works with.
pub(super) const VERSION: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// A step of the schema.
#[derive(Debug)]
pub(super) struct Migration {
    pub(super) version: i32,
    /// Programs that know this version or a newer one may use the schema that it leaves.
    pub(super) works_from: i32,
    pub(super) name: &'static str,
    pub(super) sql: &'static str,
}

/// All steps, the oldest first.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        works_from: 1,
        name: "windlass",
        sql: include_str!("migrations/0001_windlass.sql"),
    },
    Migration {
        version: 2,
        works_from: 2,
        name: "start_run",
        sql: include_str!("migrations/0002_start_run.sql"),
    },
    Migration {
        version: 3,
        works_from: 2,
        name: "checkpoint_numbers",
        sql: include_str!("migrations/0003_checkpoint_numbers.sql"),
    },
    Migration {
        version: 4,
        works_from: 2,
        name: "tokens",
        sql: include_str!("migrations/0004_tokens.sql"),
    },
    Migration {
        version: 5,
        works_from: 2,
        name: "quotas",
        sql: include_str!("migrations/0005_quotas.sql"),
    },
    Migration {
        version: 6,
        works_from: 2,
        name: "runs_by_tenant",
        sql: include_str!("migrations/0006_runs_by_tenant.sql"),
    },
    Migration {
        version: 7,
        works_from: 2,
        name: "metrics_role",
        sql: include_str!("migrations/0007_metrics_role.sql"),
    },
    Migration {
        version: 8,
        works_from: 2,
        name: "silent_workers",
        sql: include_str!("migrations/0008_silent_workers.sql"),
    },
];

/// What a migration did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The version of the schema before; 0 if there was none.
    pub from: u32,
    /// The version of the schema now. It is newer than `known` where a newer program has
    /// migrated to a schema that lets this one work on.
    pub to: u32,
    /// The version that this program knows.
    pub known: u32,
    /// The migrations that this call applied, the oldest first. Others that migrate at the
    /// same time may have applied the rest of those between the two versions.
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
/// reached or a lock is not to be had, `Schema` if the schema is newer and does not work with this
/// program, or was made by other migrations, `Database` if the server is too old or the role lacks
/// a right.
pub async fn migrate(options: &PostgresOptions) -> Result<Migrated, Error> {
    let target = options.target()?;
    let mut retries = Retries::new("migrate");
    let mut applied = Applied::default();
    loop {
        match migrate_once(options, &target, &mut applied).await {
            Ok(version) => return Ok(applied.until(version)),
            Err(Refusal::Error(error)) => return Err(error),
            Err(Refusal::Fault(fault)) if retries.again(&fault).await => continue,
            Err(Refusal::Fault(fault)) => return Err(check::refused(&target, fault)),
        }
    }
}

/// What [`migrate`] would do, without doing it: each statement, and the locks it takes on
/// tables that are in use.
///
/// # Errors
///
/// As [`migrate`].
pub async fn plan(options: &PostgresOptions) -> Result<Plan, Error> {
    let target = options.target()?;
    let mut retries = Retries::new("plan");
    loop {
        match plan_once(options, &target).await {
            Ok(plan) => return Ok(plan),
            Err(Refusal::Error(error)) => return Err(error),
            Err(Refusal::Fault(fault)) if retries.again(&fault).await => continue,
            Err(Refusal::Fault(fault)) => return Err(check::refused(&target, fault)),
        }
    }
}

async fn plan_once(options: &PostgresOptions, target: &Target) -> Result<Plan, Refusal> {
    let mut client = connect(options, target).await?;
    let tx = client.transaction().await.map_err(Fault::from)?;
    let scene = Scene::look(&tx, target).await?;
    // Nothing is to be made, so the right to read is enough, and the first to be named.
    scene.check_rights([&scene.cannot_read, &None])?;
    scene.check_owner()?;
    let found = if scene.has_list { found_version(&tx, target).await? } else { 0 };
    let mut migrations = Vec::new();
    for migration in MIGRATIONS.iter().filter(|it| it.version > found) {
        let before = if migrations.is_empty() { scene.missing() } else { Vec::new() };
        let mut statements: Vec<PlannedStatement> =
            before.into_iter().flat_map(PlannedStatement::all).collect();
        statements.extend(PlannedStatement::all(migration.sql));
        let (version, name) = (migration.version.cast_unsigned(), migration.name.to_owned());
        migrations.push(PlannedMigration { version, name, statements });
    }
    let to = VERSION.max(found).cast_unsigned();
    Ok(Plan { from: found.cast_unsigned(), to, known: VERSION.cast_unsigned(), migrations })
}

/// What one call has applied, however often it had to begin again.
#[derive(Debug, Default)]
struct Applied {
    /// The version that it found at first.
    from: Option<i32>,
    names: Vec<String>,
}

impl Applied {
    fn until(self, version: i32) -> Migrated {
        let from = self.from.unwrap_or(version).cast_unsigned();
        let (to, known) = (version.cast_unsigned(), VERSION.cast_unsigned());
        Migrated { from, to, known, applied: self.names }
    }
}

/// Applies what is missing; answers the version that the schema has then.
async fn migrate_once(
    options: &PostgresOptions,
    target: &Target,
    applied: &mut Applied,
) -> Result<i32, Refusal> {
    let mut client = connect(options, target).await?;
    loop {
        let tx = client.transaction().await.map_err(Fault::from)?;
        let found = prepare(&tx, options, target).await?;
        applied.from.get_or_insert(found);
        let Some(next) = MIGRATIONS.iter().find(|it| it.version > found) else {
            tx.commit().await.map_err(Fault::from)?;
            return Ok(found);
        };
        apply(&tx, next, target).await?;
        tx.commit().await.map_err(Fault::from)?;
        applied.names.push(format!("{:04}_{}", next.version, next.name));
    }
}

/// A session of its own; it ends when it is dropped.
async fn connect(options: &PostgresOptions, target: &Target) -> Result<Client, Fault> {
    let (client, driver) = open(target, options.open_max()).await?;
    tokio::spawn(driver);
    Ok(client)
}

/// Takes the lock, makes the list of migrations if there is none, and answers the version
/// that the schema has.
async fn prepare(
    tx: &Transaction<'_>,
    options: &PostgresOptions,
    target: &Target,
) -> Result<i32, Refusal> {
    // For this lock one waits as long as another migration takes. For those of tables one
    // does not: whoever comes after would wait as well.
    let limit = options.lock_timeout.as_millis();
    let idle = IDLE_MAX.as_millis();
    let begin = format!(
        "set local search_path = pg_catalog; set local standard_conforming_strings = on;
         set local statement_timeout = 0; set local idle_in_transaction_session_timeout = {idle};
         set local lock_timeout = 0; select pg_advisory_xact_lock({LOCK});
         set local lock_timeout = {limit}"
    );
    tx.batch_execute(&begin).await.map_err(Fault::from)?;
    let scene = Scene::look(tx, target).await?;
    check::check_writable(scene.is_standby, scene.is_read_only, &scene.name)
        .map_err(Refusal::Error)?;
    scene.check_owner()?;
    scene.check_rights([&scene.cannot_read, &scene.cannot_make])?;
    for sql in scene.missing() {
        tx.batch_execute(sql).await.map_err(Fault::from)?;
    }
    if scene.has_list { found_version(tx, target).await } else { Ok(0) }
}

/// What is there before anything is done.
struct Scene {
    /// The name of the database.
    name: String,
    role: String,
    /// A role to which part of the schema belongs that is neither ours nor above us.
    stranger: Option<String>,
    /// The right that reading what is there takes, if the role does not have it.
    cannot_read: Option<String>,
    has_schema: bool,
    has_list: bool,
    is_standby: bool,
    is_read_only: bool,
    /// The right that making what is missing takes, if the role does not have it.
    cannot_make: Option<String>,
}

impl Scene {
    async fn look(tx: &Transaction<'_>, target: &Target) -> Result<Scene, Refusal> {
        let sql = include_str!("sql/look_at_schema.sql");
        let row = tx.query_typed_one(sql, &[]).await.map_err(Fault::from)?;
        let (version, encoding) = (row.get("version"), row.get("encoding"));
        check::check_server(version, encoding, &target.name()).map_err(Refusal::Error)?;
        let role: String = row.get("role");
        Ok(Scene {
            name: target.name(),
            role,
            stranger: row.get("stranger"),
            cannot_read: row.get("cannot_read"),
            has_schema: row.get("has_schema"),
            has_list: row.get("has_list"),
            is_standby: row.get("is_standby"),
            is_read_only: row.get("is_read_only"),
            cannot_make: row.get("cannot_make"),
        })
    }

    /// Refuses a role without one of these rights.
    fn check_rights(&self, lacking: [&Option<String>; 2]) -> Result<(), Refusal> {
        match lacking.into_iter().flatten().next() {
            Some(right) => Err(Refusal::Error(check::lacking(&self.role, &self.name, right))),
            None => Ok(()),
        }
    }

    fn check_owner(&self) -> Result<(), Refusal> {
        let Some(stranger) = &self.stranger else { return Ok(()) };
        let Scene { name, role, .. } = self;
        let text = format!(
            "schema windlass of database {name} or its list of migrations belongs to role \
             {stranger:?}: migrate as that role, or let {role:?} own them"
        );
        Err(Refusal::Error(Error::new(ErrorKind::Database, text)))
    }

    /// What is to be made before the first migration.
    fn missing(&self) -> Vec<&'static str> {
        let parts = [(self.has_schema, CREATE_SCHEMA), (self.has_list, CREATE_LIST)];
        parts.into_iter().filter(|(is_there, _)| !is_there).map(|(_, sql)| sql).collect()
    }
}

const CREATE_SCHEMA: &str = "create schema windlass";

const CREATE_LIST: &str = "create table windlass.migrations (
    version integer primary key check (version >= 1),
    -- Programs that know this version or a newer one may use the schema.
    works_from integer not null check (works_from between 1 and version),
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp()
)";

/// The version of the schema, once it is found to come from our migrations.
async fn found_version(tx: &Transaction<'_>, target: &Target) -> Result<i32, Refusal> {
    let refuse = |text| Err(Refusal::Error(Error::new(ErrorKind::Schema, text)));
    let name = target.name();
    let sql = include_str!("sql/schema_version.sql");
    let row = tx.query_typed_one(sql, &[]).await.map_err(Fault::from)?;
    let found = SchemaVersion::read(&row);
    if found.is_newer() {
        found.check(&name).map_err(Refusal::Error)?;
    }
    let newest = found.version;
    let sql = "select m.version, m.checksum from windlass.migrations m order by m.version";
    let rows = tx.query_typed(sql, &[]).await.map_err(Fault::from)?;
    let applied: Vec<(i32, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    for known in MIGRATIONS.iter().filter(|known| known.version <= newest) {
        let version = known.version;
        let Some((_, checksum)) = applied.iter().find(|(it, _)| *it == version) else {
            return refuse(format!(
                "migration {version} of database {name} was left out, and {newest} applied"
            ));
        };
        if *checksum != known.checksum(tx).await? {
            return refuse(format!(
                "migration {version} of database {name} was applied with another text than \
                 this program has for it"
            ));
        }
    }
    Ok(newest)
}

async fn apply(
    tx: &Transaction<'_>,
    migration: &Migration,
    target: &Target,
) -> Result<(), Refusal> {
    for statement in statements(migration.sql) {
        if let Err(error) = tx.batch_execute(statement).await {
            return Err(refused(target, migration, statement, error));
        }
    }
    let checksum = migration.checksum(tx).await?;
    let note = "insert into windlass.migrations (version, works_from, name, checksum)
        values ($1, $2, $3, $4)";
    let params: [(&(dyn ToSql + Sync), Type); 4] = [
        (&migration.version, Type::INT4),
        (&migration.works_from, Type::INT4),
        (&migration.name, Type::TEXT),
        (&checksum, Type::TEXT),
    ];
    tx.execute_typed(note, &params).await.map_err(Fault::from)?;
    Ok(())
}

/// Names the statement that failed, unless it is to be tried again.
fn refused(
    target: &Target,
    migration: &Migration,
    statement: &str,
    error: tokio_postgres::Error,
) -> Refusal {
    let kind = match remedy(&error) {
        Remedy::Conflict | Remedy::Outage => return Refusal::Fault(error.into()),
        Remedy::Permission => ErrorKind::Database,
        Remedy::Data | Remedy::Schema | Remedy::Corrupt | Remedy::None => ErrorKind::Schema,
    };
    let (name, version) = (target.name(), migration.version);
    let line = statement.lines().next().unwrap_or_default();
    let why = describe(&error);
    let text = format!("migration {version} of database {name} failed at `{line}`: {why}");
    Refusal::Error(Error::new(kind, text))
}

impl Migration {
    /// Its text: a checkout on another system may have other ends of lines.
    pub(super) fn text(&self) -> String {
        self.sql.replace("\r\n", "\n")
    }

    /// What its text is known by; the server computes it.
    async fn checksum(&self, tx: &Transaction<'_>) -> Result<String, Fault> {
        let text = self.text();
        let sql = "select encode(sha256(convert_to($1, 'UTF8')), 'hex')";
        Ok(tx.query_typed_one(sql, &[(&text, Type::TEXT)]).await?.get(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_migration_of_its_number_and_name() {
        let place = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/postgres/migrations");
        let mut files: Vec<String> = std::fs::read_dir(place)
            .expect("the migrations are there")
            .map(|file| file.expect("it can be read").file_name().to_string_lossy().into_owned())
            .collect();
        files.sort();
        let known: Vec<String> =
            MIGRATIONS.iter().map(|it| format!("{:04}_{}.sql", it.version, it.name)).collect();
        assert_eq!(files, known);
        for (index, migration) in MIGRATIONS.iter().enumerate() {
            assert_eq!(migration.version, i32::try_from(index + 1).expect("few"));
        }
    }

    /// What has landed, as `sha256sum` shows it.
    const LANDED: &[&str] = &[
        "d3b0b6f003a38e01056b50b90efa0963c4bdae17596cb17fafb4894d653feadd",
        "b878037e8e288ed42f550132a8ad4ab7daafadad54b8139df82f909ed24b8a8f",
        "64859905670949671f89844b9ac47fda6c08582927bd54879daf957f873d7cdf",
        "91fca81df5f48b5b13d9187957b35cb9c0480bc4ca501f89c98df3e9935db08d",
        "cad33e92c1ef7f3d74edc4b5853df444fc120c74a8a2e40e673505afc9bef9ca",
        "ea8787df85850cfa0e2d401ba8b7af5fe00c02abb536de98be1c6f264dc503bc",
        "0c80a302d06df7c5254f45cb80a8eb4223548010db481503ce88d6f27fd0ca61",
        "df5b0c016ceb94f29f73dbb2bdfef3b7afb3736309d70e1853e8d89160fb01d6",
    ];

    #[test]
    fn a_migration_that_has_landed_is_never_edited() {
        assert_eq!(MIGRATIONS.len(), LANDED.len(), "pin the text of each migration here");
        for (migration, landed) in MIGRATIONS.iter().zip(LANDED) {
            let digest = ring::digest::digest(&ring::digest::SHA256, migration.text().as_bytes());
            let hash: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(
                hash, *landed,
                "the text of migration {} has changed: databases that applied it would be refused \
                 with WL-0010; write a new migration instead (CONTRIBUTING.md, Migrations)",
                migration.version
            );
        }
    }

    #[test]
    fn what_a_migration_works_from_never_falls() {
        for migration in MIGRATIONS {
            assert!((1..=migration.version).contains(&migration.works_from), "{migration:?}");
        }
        assert!(MIGRATIONS.is_sorted_by_key(|it| it.works_from));
    }

    #[test]
    fn the_locks_of_every_statement_are_known() {
        for sql in MIGRATIONS.iter().map(|it| it.sql).chain([CREATE_SCHEMA, CREATE_LIST]) {
            for statement in PlannedStatement::all(sql) {
                assert!(statement.locks.is_some(), "{}", statement.sql);
            }
        }
    }
}
