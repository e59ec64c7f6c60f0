//! The doctor: diagnoses a live database and suggests fixes.
//!
//! The auditor verifies guarantees; the doctor checks what the engine depends on: server settings,
//! connections, long transactions, vacuum, bloat, poolers, clocks, leaders, leases and workers. Most
//! checks are one SQL file under `sql/` that returns a row for each finding.
//!
//! It is cheap on a large database: it reads catalogs, statistics and a few rows by an index. Each check
//! is a transaction with a timeout, so it holds back no vacuum. It changes nothing.

mod checks;
mod headline;
mod remedies;
mod report;
mod schedules;
mod session;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row};
use windlass_core::Timestamp;

use checks::{CHECKS, Check, Limits, Needs};
use headline::UNCHECKED;

pub use report::{DoctorReport, Examined, Finding, FindingSeverity};

use super::address::Target;
use super::audit::{self, body, header, millis};
use super::check::{
    CHECK_SERVER, SCHEMA_VERSION, SchemaVersion, check_server, check_writable, lacking, refused,
};
use super::fault::{Fault, Retries};
use super::options::PostgresOptions;
use super::time::At;
use crate::Error;
use crate::clock::Clock;

/// The maximum number of findings of one check.
pub const FINDINGS_MAX: usize = 20;

/// The maximum length of a text of a finding, in characters.
const TEXT_CHARS_MAX: usize = 1_000;

/// How long a check waits for a lock, such as that of a running migration.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Thresholds and time limits of the doctor.
///
/// ```
/// use std::time::Duration;
/// use windlass::store::postgres::DoctorOptions;
///
/// let options = DoctorOptions::new().long_transaction(Duration::from_secs(60));
/// ```
#[derive(Clone)]
#[must_use = "nothing is checked until `doctor` is awaited"]
pub struct DoctorOptions {
    late_after: Duration,
    long_transaction: Duration,
    bloat_min_bytes: u64,
    notify_queue_max: f64,
    statement_timeout: Duration,
    clock: Option<Arc<dyn Clock>>,
}

impl Default for DoctorOptions {
    fn default() -> Self {
        DoctorOptions::new()
    }
}

impl std::fmt::Debug for DoctorOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DoctorOptions")
            .field("late_after", &self.late_after)
            .field("long_transaction", &self.long_transaction)
            .finish_non_exhaustive()
    }
}

impl DoctorOptions {
    /// Returns the defaults: late after 1 min, long transactions from 5 min, bloat from 64 MB, a
    /// notification queue that is 10 % full, and 5 s per check.
    pub fn new() -> Self {
        DoctorOptions {
            late_after: Duration::from_secs(60),
            long_transaction: Duration::from_secs(300),
            bloat_min_bytes: 64 << 20,
            notify_queue_max: 0.1,
            statement_timeout: Duration::from_secs(5),
            clock: None,
        }
    }

    /// Sets the maximum lateness of leaders, timers, expired leases and staged runs. Default: 1 min.
    pub fn late_after(mut self, late_after: Duration) -> Self {
        self.late_after = late_after;
        self
    }

    /// Sets the maximum age of a transaction. Default: 5 min. Twelve times as long is critical.
    pub fn long_transaction(mut self, time: Duration) -> Self {
        self.long_transaction = time;
        self
    }

    /// Sets the minimum size of a bloated table or index. Default: 64 MB.
    pub fn bloat_min_bytes(mut self, bytes: u64) -> Self {
        self.bloat_min_bytes = bytes;
        self
    }

    /// Sets how full the notification queue may be. Default: 0.1. Range: 0 to 1.
    pub fn notify_queue_max(mut self, part: f64) -> Self {
        self.notify_queue_max = part.clamp(0.0, 1.0);
        self
    }

    /// Sets the time limit of one check. Default: 5 s; zero for no limit. A check that takes longer is
    /// a finding.
    pub fn statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = timeout;
        self
    }

    /// Sets the clock that the server's is compared with. Default: the clock of this machine.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }
}

/// Diagnoses a live database.
///
/// `database` is how the engine connects: its pool must fit into the server, and its listen address is
/// tried. The role must be able to read the schema `windlass`; with `pg_read_all_stats` it sees the
/// transactions of other roles. A dropped call leaves nothing behind.
///
/// # Errors
///
/// Findings are in the report, also a missing schema. Fails with `Argument` if the address is invalid,
/// and with `Unavailable` or `Database` if the database cannot be reached.
pub async fn doctor(
    database: &PostgresOptions,
    options: &DoctorOptions,
) -> Result<DoctorReport, Error> {
    // Without settings of ours, which a pooler may refuse, and which would hide those of the
    // server.
    let target = database.clone().pooled(true).target()?;
    let mut client = connect(&target).await?;
    let name = target.name();
    let lost = |error: tokio_postgres::Error| refused(&target, Fault::from(error));
    let began = Instant::now();
    let scene = Scene::look(&mut client, options).await.map_err(lost)?;
    let mut checks = vec![
        made("server.suitable", "the server and the role can be used", began, {
            scene.suitable(&name)
        }),
        made("schema.version", "the schema matches this program", began, scene.schema(&name)),
    ];
    let began = Instant::now();
    let pooler = session::look_for_pooler(database, &target).await?;
    let finding = session::judge_pooler(&pooler, database.is_pooled);
    checks.push(made("server.pooler", "a pooler is announced", began, finding));
    let began = Instant::now();
    let finding = session::listening(database, &client, &pooler).await?;
    checks.push(made(
        "server.listening",
        "notifications of other processes are received",
        began,
        finding,
    ));
    let began = Instant::now();
    let finding = session::clock(&client, options).await.map_err(lost)?;
    checks.push(made(
        "server.clock",
        "the clocks of the server and of this machine agree",
        began,
        finding,
    ));
    let limits = Limits::new(database, options);
    let mut is_schema_looked_at = false;
    for check in CHECKS {
        if check.needs == Needs::Schema && !is_schema_looked_at {
            is_schema_looked_at = true;
            for check in audit::schema_checks() {
                let looked = look_at_schema(&mut client, check, options, &scene).await;
                checks.push(looked.map_err(lost)?);
            }
        }
        checks.push(run(&mut client, check, &limits, options, &scene).await.map_err(lost)?);
    }
    checks.push(schedules::look(&mut client, options, &scene).await.map_err(lost)?);
    Ok(DoctorReport { at: scene.at, database: name, server: scene.server, checks })
}

async fn connect(target: &Target) -> Result<Client, Error> {
    let mut retries = Retries::new("doctor");
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

/// What can be said of a database before anything is read from it.
struct Scene {
    at: Timestamp,
    server: String,
    facts: Row,
    /// The version of the schema; `None` if it cannot be read.
    version: Option<SchemaVersion>,
}

impl Scene {
    async fn look(
        client: &mut Client,
        options: &DoctorOptions,
    ) -> Result<Scene, tokio_postgres::Error> {
        let tx = client.build_transaction().start().await?;
        tx.batch_execute(&settings(options)).await?;
        let sql = "select clock_timestamp(), current_setting('server_version')";
        let now = tx.query_typed_one(sql, &[]).await?;
        let facts = tx.query_typed_one(CHECK_SERVER.text, &[]).await?;
        let has_list = facts.get::<_, bool>("has_schema") && facts.get("has_migrations");
        let version = match (has_list, facts.get::<_, Option<&str>>("lacks")) {
            (false, _) => Some(SchemaVersion::default()),
            (true, None) => {
                let row = tx.query_typed_one(SCHEMA_VERSION.text, &[]).await?;
                Some(SchemaVersion::read(&row))
            }
            (true, Some(_)) => None,
        };
        Ok(Scene { at: now.get::<_, At>(0).0, server: now.get(1), facts, version })
    }

    /// What keeps the engine from working here at all, if anything does.
    fn suitable(&self, name: &str) -> Option<Finding> {
        let server = check_server(self.facts.get("version"), self.facts.get("encoding"), name);
        let (is_standby, is_read_only) =
            (self.facts.get("is_standby"), self.facts.get("is_read_only"));
        let writable = check_writable(is_standby, is_read_only, name);
        let lacks = self.facts.get::<_, Option<&str>>("lacks");
        let (error, remedy) = match (server, writable, lacks) {
            (Err(error), _, _) => (
                error,
                "use PostgreSQL 14 or newer and a database with the encoding UTF8".to_owned(),
            ),
            (Ok(()), Err(error), _) => (
                error,
                match is_standby {
                    true => "give the address of the primary".to_owned(),
                    false => "alter database or alter role … reset default_transaction_read_only"
                        .to_owned(),
                },
            ),
            (Ok(()), Ok(()), Some(right)) => {
                let role = self.facts.get::<_, &str>("role");
                let remedy = format!("grant {right} to {role}").replacen(" of ", " on ", 1);
                (lacking(role, name, right), remedy)
            }
            (Ok(()), Ok(()), None) => return None,
        };
        Some(Finding {
            severity: FindingSeverity::Critical,
            problem: error.message().to_owned(),
            cause: "the engine refuses to use it".to_owned(),
            remedy,
        })
    }

    /// What is wrong with the version of the schema, if anything is.
    fn schema(&self, name: &str) -> Option<Finding> {
        let version = self.version?;
        let error = version.check(name).err()?;
        let remedy = if version.is_newer() { "upgrade this program" } else { "windlass migrate" };
        Some(Finding {
            severity: FindingSeverity::Critical,
            problem: error.message().to_owned(),
            cause: "the engine refuses to use it".to_owned(),
            remedy: remedy.to_owned(),
        })
    }

    /// Why checks of the schema cannot be made, if they cannot.
    fn skips(&self, needs: Needs) -> Option<&'static str> {
        match (needs, self.version) {
            (Needs::Server, _) => None,
            (Needs::Schema, None) => Some("the role cannot read the schema"),
            (Needs::Schema, Some(version)) => {
                version.check("").is_err().then_some("the schema does not match this program")
            }
        }
    }
}

/// What holds for the transaction of a check: its limits, and how values are written. What is
/// looked for in a table is found by an index, whatever the statistics say.
fn settings(options: &DoctorOptions) -> String {
    format!(
        "set local statement_timeout = {}; set local lock_timeout = {}; \
         set local search_path = pg_catalog; set local timezone = 'UTC'; \
         set local enable_seqscan = off; set local enable_bitmapscan = off; \
         set local jit = off; set local max_parallel_workers_per_gather = 0",
        millis(options.statement_timeout),
        millis(LOCK_TIMEOUT),
    )
}

/// A check that found one thing or nothing.
fn made(id: &str, title: &str, began: Instant, finding: Option<Finding>) -> Examined {
    Examined {
        id: id.to_owned(),
        title: title.to_owned(),
        skipped: None,
        found: u64::from(finding.is_some()),
        findings: finding.into_iter().collect(),
        sql: None,
        took_ms: elapsed(began),
    }
}

fn elapsed(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

async fn run(
    client: &mut Client,
    check: &Check,
    limits: &Limits,
    options: &DoctorOptions,
    scene: &Scene,
) -> Result<Examined, tokio_postgres::Error> {
    let began = Instant::now();
    let (id, title) = check.names();
    let query = limits.fill(check.text);
    let sql = format!(
        "select c.severity, left(c.problem, {TEXT_CHARS_MAX}) as problem, \
         left(c.cause, {TEXT_CHARS_MAX}) as cause, left(c.remedy, {TEXT_CHARS_MAX}) as remedy, \
         count(*) over () as found\nfrom (\n{}\n) c\n\
         order by case c.severity when 'critical' then 0 when 'warning' then 1 else 2 end, \
         c.problem\nlimit {FINDINGS_MAX}",
        body(&query)
    );
    let mut examined = made(id, title, began, None);
    examined.sql = Some(format!("{}{sql};\n", header(&query)));
    if let Some(reason) = scene.skips(check.needs) {
        examined.skipped = Some(reason.to_owned());
        return Ok(examined);
    }
    match ask(client, &sql, options).await {
        Ok(rows) => {
            let found = rows.first().map_or(0, |row| row.get::<_, i64>("found"));
            examined.found = u64::try_from(found).unwrap_or(0);
            examined.findings = rows.iter().map(finding).collect();
        }
        Err(error) => {
            examined.found = 1;
            examined.findings = vec![unchecked(error)?];
        }
    }
    examined.took_ms = elapsed(began);
    Ok(examined)
}

async fn ask(
    client: &mut Client,
    sql: &str,
    options: &DoctorOptions,
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let tx = client.build_transaction().read_only(true).start().await?;
    tx.batch_execute(&settings(options)).await?;
    tx.query_typed(sql, &[]).await
}

fn finding(row: &Row) -> Finding {
    let severity = FindingSeverity::ALL
        .into_iter()
        .find(|severity| severity.word() == row.get::<_, &str>("severity"))
        // A statement of ours with another word: rather too loud than not heard.
        .unwrap_or(FindingSeverity::Critical);
    let text = |column| row.get::<_, Option<String>>(column).unwrap_or_default();
    Finding { severity, problem: text("problem"), cause: text("cause"), remedy: text("remedy") }
}

/// That something was not seen is no sign of health. Without an answer of the server nothing
/// more can be looked at.
fn unchecked(error: tokio_postgres::Error) -> Result<Finding, tokio_postgres::Error> {
    let Some(answer) = error.as_db_error() else {
        return Err(error);
    };
    let is_slow = *answer.code() == SqlState::QUERY_CANCELED;
    Ok(Finding {
        severity: FindingSeverity::Warning,
        problem: format!("{UNCHECKED}{} ({})", answer.message(), answer.code().code()),
        cause: match is_slow {
            true => "the server is overloaded, or a table is full of dead rows".to_owned(),
            false => "the server rejected the statement".to_owned(),
        },
        remedy: match is_slow {
            true => "fix the other findings first, or raise --timeout".to_owned(),
            false => "fix the cause that the message names, and run the doctor again".to_owned(),
        },
    })
}

/// A check of the auditor that looks at the schema only.
async fn look_at_schema(
    client: &mut Client,
    check: &audit::Check,
    options: &DoctorOptions,
    scene: &Scene,
) -> Result<Examined, tokio_postgres::Error> {
    let mut examined = made(check.id(), check.title(), Instant::now(), None);
    if let Some(reason) = scene.skips(Needs::Schema) {
        examined.skipped = Some(reason.to_owned());
        return Ok(examined);
    }
    let tx = client.build_transaction().read_only(true).start().await?;
    tx.batch_execute(&settings(options)).await?;
    let version = scene.version.unwrap_or_default();
    match audit::check_schema(&tx, check, version).await {
        Ok(result) => Ok(remedies::examined(result)),
        Err(error) => {
            examined.found = 1;
            examined.findings = vec![unchecked(error)?];
            Ok(examined)
        }
    }
}
