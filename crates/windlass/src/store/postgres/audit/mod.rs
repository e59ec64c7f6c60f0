//! The auditor: what Windlass promises, checked on a live database.
//!
//! Each check is one statement in a file of its own under `sql/`, with a header that says
//! what is promised and why the statement finds a breach. It gives one row for each thing
//! it looked at, with a `problem` if something is wrong. [`audit`] runs them all in one
//! repeatable read, read only transaction: every verb of the store is one transaction, so
//! whatever a snapshot shows must be consistent, however busy the database is.
//!
//! The auditor mends nothing, and it does not see what leaves no trace: whether an answer
//! was given, or whether a handler ran.

mod checks;
mod functions;
mod legal;
mod report;
mod sample;
mod schema;
mod template;

use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, IsolationLevel, Transaction};
use windlass_core::Timestamp;

use checks::CHECKS;
use functions::Expected;
use template::Template;

pub(super) use checks::Check;
pub use report::{AuditReport, CheckResult, Severity, Verdict};
#[cfg(test)]
pub(super) use schema::INDEXES;
pub(super) use template::{body, header, interval};

use super::address::Target;
use super::check::{SCHEMA_VERSION, SchemaVersion, lacking, refused};
use super::fault::{Fault, Remedy, Retries};
use super::options::PostgresOptions;
use super::time::At;
use crate::{Error, ErrorKind};

/// The most examples that are kept of what one check found.
pub const EXAMPLES_MAX: usize = 20;

/// The longest example, in characters; the rest is cut off.
pub const EXAMPLE_CHARS_MAX: usize = 1_000;

/// How long the auditor waits for a lock, such as that of a migration under way.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// How much memory one step of a statement may take before it goes to disk.
const SORT_MEMORY: &str = "64MB";

/// What to audit, and how long it may take.
///
/// ```
/// use std::time::Duration;
/// use windlass::store::postgres::AuditOptions;
///
/// let options = AuditOptions::new().newest_runs(10_000).late_after(Duration::from_secs(300));
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is audited until `audit` is awaited"]
pub struct AuditOptions {
    newest_runs: Option<u32>,
    started_within: Option<Duration>,
    now: Option<Timestamp>,
    late_after: Duration,
    statement_timeout: Duration,
}

impl Default for AuditOptions {
    fn default() -> Self {
        AuditOptions::new()
    }
}

impl AuditOptions {
    /// Everything is checked; what is late by more than a minute is warned about; a check
    /// may take ten minutes.
    pub fn new() -> Self {
        AuditOptions {
            newest_runs: None,
            started_within: None,
            now: None,
            late_after: Duration::from_secs(60),
            statement_timeout: Duration::from_secs(600),
        }
    }

    /// Only the newest runs are checked, this many and those started at the same moment as
    /// the last of them.
    pub fn newest_runs(mut self, count: u32) -> Self {
        self.newest_runs = Some(count);
        self
    }

    /// Only runs that were started within this time before the audit are checked.
    pub fn started_within(mut self, time: Duration) -> Self {
        self.started_within = Some(time);
        self
    }

    /// The time by which things are late; that of the database if not said. For stores on
    /// a clock of their own.
    pub fn now(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }

    /// How late a timer, an ended lease or a staged run may be before it is warned about; a
    /// minute if not said.
    pub fn late_after(mut self, late_after: Duration) -> Self {
        self.late_after = late_after;
        self
    }

    /// How long one check may take before the audit gives up; ten minutes if not said, zero
    /// for no limit.
    pub fn statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = timeout;
        self
    }

    /// Whether only some of the runs are to be checked.
    fn is_narrow(&self) -> bool {
        self.newest_runs.is_some() || self.started_within.is_some()
    }
}

/// Checks on a live database what can be checked of the guarantees there.
///
/// The role needs no more than to read the schema `windlass`, and the server may be a
/// standby. A call that is dropped leaves nothing behind.
///
/// # Errors
///
/// What is found wrong is not an error but in the report. `Argument` for an address that
/// cannot be read, `Schema` if the schema is missing or of another version than this
/// program's, `Database` if the role lacks a right, `Unavailable` if the database cannot be
/// reached or a check took too long, and `Corrupt` if what is stored cannot even be read.
pub async fn audit(
    database: &PostgresOptions,
    options: &AuditOptions,
) -> Result<AuditReport, Error> {
    audit_target(&database.target()?, options).await
}

async fn audit_target(target: &Target, options: &AuditOptions) -> Result<AuditReport, Error> {
    let mut client = connect(target).await?;
    audit_session(&mut client, &target.name(), options).await
}

/// The same on a connection that is there, to a database of this name. It must not be within
/// a transaction.
pub(crate) async fn audit_session(
    client: &mut Client,
    name: &str,
    options: &AuditOptions,
) -> Result<AuditReport, Error> {
    let snapshot = client.build_transaction();
    let snapshot = snapshot.isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    let snapshot = snapshot.start().await.map_err(|error| explain(name, error))?;
    let version =
        prepare(&snapshot, name, options).await.map_err(|error| explain(name, error))??;
    let scope = read_scope(&snapshot, options).await;
    let (at, since) = scope.map_err(|error| explain(name, error))?;
    let expected = Expected::look_up(&snapshot).await.map_err(|error| explain(name, error))?;
    let template = Template::new(options, since, expected, version);
    let mut checks = Vec::with_capacity(CHECKS.len());
    for check in CHECKS {
        let result = run(&snapshot, check, &template).await;
        checks.push(result.map_err(|error| explain(&format!("{name}, {}", check.id()), error))?);
    }
    Ok(AuditReport { at, since, checks })
}

async fn connect(target: &Target) -> Result<Client, Error> {
    let mut retries = Retries::new("audit");
    loop {
        match target.config.connect(target.tls.0.clone()).await {
            Ok((client, connection)) => {
                // It ends with the client, and what goes wrong with it goes wrong for the
                // client too.
                tokio::spawn(connection);
                return Ok(client);
            }
            Err(error) => {
                let fault = Fault::from(error);
                if !retries.again(&fault).await {
                    return Err(refused(target, fault));
                }
            }
        }
    }
}

/// Sets what holds for the transaction: its limits, and how values are written.
///
/// Statements are not compiled, which takes longer than most of them, and have one process,
/// so that an audit takes no more than one core from those who work. Sorts get more memory
/// than is usual.
async fn prepare(
    snapshot: &Transaction<'_>,
    name: &str,
    options: &AuditOptions,
) -> Result<Result<SchemaVersion, Error>, tokio_postgres::Error> {
    let mut settings = format!(
        "set local statement_timeout = {}; set local lock_timeout = {}; \
         set local search_path = pg_catalog; set local timezone = 'UTC'; \
         set local jit = off; set local max_parallel_workers_per_gather = 0; \
         set local work_mem = '{SORT_MEMORY}'",
        millis(options.statement_timeout),
        millis(LOCK_TIMEOUT),
    );
    if !options.is_narrow() {
        // Everything is read anyway. Where statistics are old, a loop that was thought to be
        // short would take for ever.
        settings += "; set local enable_nestloop = off";
    }
    snapshot.batch_execute(&settings).await?;
    let row = snapshot.query_typed_one(include_str!("../sql/look_to_audit.sql"), &[]).await?;
    if let Some(right) = row.get::<_, Option<&str>>("lacks") {
        return Ok(Err(lacking(row.get("role"), name, right)));
    }
    if !row.get::<_, bool>("has_migrations") {
        let none = SchemaVersion::default();
        return Ok(none.check(name).map(|()| none));
    }
    let version = SchemaVersion::read(&snapshot.query_typed_one(SCHEMA_VERSION.text, &[]).await?);
    Ok(version.check(name).map(|()| version))
}

/// The checks that look at the schema and at no row.
pub(super) fn schema_checks() -> impl Iterator<Item = &'static Check> {
    CHECKS.iter().filter(|check| check.is_of_schema())
}

/// Makes one of them, in a transaction that is there.
pub(super) async fn check_schema(
    tx: &Transaction<'_>,
    check: &Check,
    version: SchemaVersion,
) -> Result<CheckResult, tokio_postgres::Error> {
    let expected = Expected::look_up(tx).await?;
    let template = Template::new(&AuditOptions::new(), None, expected, version);
    run(tx, check, &template).await
}

/// A timeout as PostgreSQL is told it, where 0 is none.
pub(super) fn millis(timeout: Duration) -> i32 {
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    if timeout.is_zero() { 0 } else { millis.max(1) }
}

/// The time of the snapshot, and from when on runs are checked.
async fn read_scope(
    snapshot: &Transaction<'_>,
    options: &AuditOptions,
) -> Result<(Timestamp, Option<Timestamp>), tokio_postgres::Error> {
    let row = snapshot.query_typed_one("select now()", &[]).await?;
    let at = options.now.unwrap_or(row.get::<_, At>(0).0);
    let earlier = |time: Duration| {
        let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(at.as_micros().saturating_sub(micros).max(0))
    };
    let since = options.started_within.map(earlier);
    let Some(count) = options.newest_runs else {
        return Ok((at, since));
    };
    let sql = format!(
        "select r.created_at from windlass.runs r order by r.created_at desc, r.id desc \
         limit 1 offset {}",
        count.saturating_sub(1)
    );
    let rows = snapshot.query_typed(&sql, &[]).await?;
    let oldest = rows.first().map(|row| row.get::<_, At>(0).0);
    Ok((at, since.max(oldest)))
}

async fn run(
    snapshot: &Transaction<'_>,
    check: &Check,
    template: &Template,
) -> Result<CheckResult, tokio_postgres::Error> {
    let began = Instant::now();
    let query = template.fill(check.text);
    let body = template::body(&query);
    let found = format!(
        "select left(c.problem, {EXAMPLE_CHARS_MAX}) as problem\nfrom (\n{body}\n) c\n\
         where c.problem is not null\norder by 1\nlimit {EXAMPLES_MAX}"
    );
    let mut result = CheckResult {
        id: check.id().to_owned(),
        guarantee: check.guarantee().to_owned(),
        title: check.title().to_owned(),
        severity: check.severity,
        is_skipped: template.skips(check),
        checked: 0,
        violations: 0,
        examples: Vec::new(),
        sql: format!("{}{found};\n", template::header(&query)),
        took_ms: 0,
    };
    if result.is_skipped {
        return Ok(result);
    }
    let counted = format!("select count(1), count(c.problem) from (\n{body}\n) c");
    let row = snapshot.query_typed_one(&counted, &[]).await?;
    result.checked = u64::try_from(row.get::<_, i64>(0)).unwrap_or(0);
    result.violations = u64::try_from(row.get::<_, i64>(1)).unwrap_or(0);
    if result.violations > 0 {
        let rows = snapshot.query_typed(&found, &[]).await?;
        result.examples = rows.iter().map(|row| row.get(0)).collect();
    }
    result.took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(result)
}

/// Why the audit came to no end, and where.
fn explain(place: &str, error: tokio_postgres::Error) -> Error {
    let hint = match error.code() {
        Some(code) if *code == SqlState::QUERY_CANCELED => {
            "; give it more time, or check fewer runs"
        }
        Some(_) | None => "",
    };
    let fault = Fault::from(error);
    let kind = match fault.remedy() {
        Remedy::Conflict | Remedy::Outage | Remedy::None => ErrorKind::Unavailable,
        Remedy::Schema => ErrorKind::Schema,
        Remedy::Permission => ErrorKind::Database,
        Remedy::Data | Remedy::Corrupt => ErrorKind::Corrupt,
    };
    Error::new(kind, format!("the audit of database {place} failed: {fault}{hint}"))
}
