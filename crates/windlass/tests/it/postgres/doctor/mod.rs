//! What the doctor finds, with the fault and without it.

mod engine;
mod server;
mod sessions;
mod tables;

use std::path::Path;
use std::time::Duration;

use tokio_postgres::Client;
use windlass::ErrorKind;
use windlass::store::postgres::{
    DoctorOptions, DoctorReport, Examined, FINDINGS_MAX, Finding, FindingSeverity, PostgresOptions,
    doctor,
};

use super::driver::{Worker, start, workflow};
use super::explain::{buffers, explain};
use super::fill::Fill;
use super::role::Role;
use crate::database::TestDatabase;

/// How long a test waits for something that must come.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// A database that is looked at.
struct Patient {
    database: TestDatabase,
    client: Client,
    options: DoctorOptions,
}

impl Patient {
    async fn new() -> Self {
        Patient::with(DoctorOptions::new()).await
    }

    async fn with(options: DoctorOptions) -> Self {
        let database = TestDatabase::new().await;
        let client = database.client().await;
        Patient { database, client, options }
    }

    async fn execute(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    async fn report(&self) -> DoctorReport {
        examine(&PostgresOptions::new(self.database.url()), &self.options).await
    }

    /// What one check finds.
    async fn findings(&self, id: &str) -> Vec<Finding> {
        findings(&self.report().await, id)
    }

    /// Asserts that a check finds nothing, and says after what.
    async fn assert_well(&self, id: &str, when: &str) {
        let findings = self.findings(id).await;
        assert_eq!(findings, [], "{id} {when}");
    }

    /// The only finding of a check, which must have these words.
    async fn assert_found(&self, id: &str, severity: FindingSeverity, words: &[&str]) -> Finding {
        assert_one(self.findings(id).await, severity, words)
    }
}

async fn examine(database: &PostgresOptions, options: &DoctorOptions) -> DoctorReport {
    doctor(database, options).await.expect("the database is there")
}

fn check<'a>(report: &'a DoctorReport, id: &str) -> &'a Examined {
    report.checks.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("no check {id}"))
}

fn findings(report: &DoctorReport, id: &str) -> Vec<Finding> {
    let check = check(report, id);
    assert_eq!(check.skipped, None, "{id}");
    check.findings.clone()
}

#[track_caller]
fn assert_one(findings: Vec<Finding>, severity: FindingSeverity, words: &[&str]) -> Finding {
    let [finding] = &findings[..] else { panic!("not one with {words:?}: {findings:#?}") };
    assert_eq!(finding.severity, severity, "{finding:#?}");
    for word in words {
        let is_said = [&finding.problem, &finding.cause, &finding.remedy]
            .into_iter()
            .any(|text| text.contains(word));
        assert!(is_said, "no {word:?} in {finding:#?}");
    }
    finding.clone()
}

#[tokio::test]
async fn the_page_of_the_doctor_lists_every_check() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let page = std::fs::read_to_string(page).expect("there is one");
    for check in Patient::new().await.report().await.checks {
        let row = format!("| `{}` | {} |", check.id, check.title);
        assert!(page.contains(&row), "docs/doctor.md lacks\n{row}");
    }
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_is_an_error() {
    let looked = async |url: &str| {
        doctor(&PostgresOptions::new(url), &DoctorOptions::new()).await.expect_err("it is not")
    };
    let error = looked("postgres://localhost:port/x").await;
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    let error = looked("postgres://windlass:secret@127.0.0.1:1/x").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn a_database_without_a_schema_is_found_and_its_server_is_looked_at() {
    let database = TestDatabase::bare().await;
    let report = examine(&PostgresOptions::new(database.url()), &DoctorOptions::new()).await;
    assert!(!report.is_healthy());
    let words = ["no schema of Windlass", "windlass migrate"];
    assert_one(findings(&report, "schema.version"), FindingSeverity::Critical, &words);
    assert_eq!(findings(&report, "server.transactions"), []);
    let skipped = check(&report, "engine.timers").skipped.as_deref();
    assert_eq!(skipped, Some("the schema does not match this program"));
    let whole = Patient::new().await;
    whole.assert_well("schema.version", "of this program").await;
    let names = |report: &DoctorReport| {
        report.checks.iter().map(|check| check.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&report), names(&whole.report().await), "always in the same order");
}

#[tokio::test]
async fn a_role_and_a_database_that_cannot_be_worked_with_are_found() {
    let patient = Patient::new().await;
    patient.assert_well("server.suitable", "before").await;
    let role = Role::new(&patient.database, "guest").await;
    let guest = PostgresOptions::new(role.url(&patient.database));
    let report = examine(&guest, &DoctorOptions::new()).await;
    let words = ["usage of schema windlass", "grant usage on schema windlass to guest"];
    assert_one(findings(&report, "server.suitable"), FindingSeverity::Critical, &words);
    let skipped = check(&report, "engine.timers").skipped.as_deref();
    assert_eq!(skipped, Some("the role cannot read the schema"));

    let name = patient.database.name();
    patient.execute(&format!("alter database {name} set default_transaction_read_only = on")).await;
    let words = ["is read-only", "reset default_transaction_read_only"];
    patient.assert_found("server.suitable", FindingSeverity::Critical, &words).await;
    patient.execute(&format!("alter database {name} reset default_transaction_read_only")).await;
}

#[tokio::test]
async fn a_check_that_cannot_be_made_is_a_finding() {
    let patient = Patient::new().await;
    patient.assert_well("engine.timers", "before").await;
    let other = patient.database.client().await;
    let lock = "begin; lock table windlass.timers in access exclusive mode";
    other.batch_execute(lock).await.expect("it can be locked");
    let words = ["could not be checked", "55P03"];
    patient.assert_found("engine.timers", FindingSeverity::Warning, &words).await;
    other.batch_execute("rollback").await.expect("it can be given up");
    patient.assert_well("engine.timers", "after").await;
}

#[tokio::test]
async fn many_findings_are_counted_and_a_few_are_shown() {
    let patient = Patient::new().await;
    let many = FINDINGS_MAX + 3;
    patient
        .execute(&format!(
            "insert into windlass.levels (queue, priority)
             select 'queue ' || n, 0 from generate_series(1, {many}) n;
             insert into windlass.routes (level_id, workflow, version)
             select v.id, 'one', 1 from windlass.levels v;
             insert into windlass.ready (run_id, idx, definition_id, route_id, level_id,
                 tenant_id, tag, seq, fence, attempt, max_attempts)
             select gen_random_uuid(), 0, 1, r.id, r.level_id, 1, 1, r.id, 0, 0, 1
             from windlass.routes r"
        ))
        .await;
    let report = patient.report().await;
    let unserved = check(&report, "engine.unserved");
    assert_eq!(unserved.found, many as u64);
    assert_eq!(unserved.findings.len(), FINDINGS_MAX);
    let sql = unserved.sql.as_deref().expect("it is a statement");
    let rows = patient.client.query(sql, &[]).await.expect("it can be pasted");
    assert_eq!(rows.len(), FINDINGS_MAX);
}

/// On a large database it costs what it costs on a small one.
#[tokio::test]
async fn no_check_reads_more_where_there_is_more() {
    let mut looks = Vec::new();
    for (finished, ready) in [(500, 500), (10_000, 10_000)] {
        let patient = Patient::new().await;
        let store = super::PostgresStore::connect(PostgresOptions::new(patient.database.url()));
        let store = store.await.expect("the database is there");
        let one = workflow("one", &["a"]);
        start(&store, &one).await;
        let worker = Worker::join(&store, &one).await;
        let fill = Fill { finished, ready, tenants: 50 };
        fill.write(&patient.client).await.expect("it can be filled");
        // So that each of the narrow tables has half of them.
        let claimed = worker.claim(&store, ready as usize / 2).await;
        assert!(!claimed.is_empty());
        let wait = "insert into windlass.timers (run_id, idx, due, seq, fence, attempt,
                        max_attempts)
                    select q.run_id, q.idx + 1, now() + interval '1 day', q.seq, 0, 0, 1
                    from windlass.ready q;
                    insert into windlass.deadlines (run_id, idx, fence, due)
                    select q.run_id, -1, 0, now() + interval '1 day' from windlass.ready q;
                    insert into windlass.staged (run_id) select q.run_id from windlass.ready q;
                    vacuum analyze";
        for statement in wait.split(';') {
            patient.execute(statement).await;
        }
        let mut costs = Vec::new();
        for check in patient.report().await.checks {
            // Those of the server read what it has of all its databases.
            let Some(sql) = check.sql.filter(|_| !check.id.starts_with("server.")) else {
                continue;
            };
            let sql = sql.trim_end().trim_end_matches(';');
            let sql = format!(
                "set enable_seqscan = off; set enable_bitmapscan = off; set jit = off;
                 explain (analyze, buffers, format json) {sql}"
            );
            let explained = explain(&patient.client, &sql).await.expect("it can be explained");
            costs.push((check.id, buffers(&explained)));
        }
        looks.push(costs);
    }
    let few = std::mem::take(&mut looks[0]);
    for ((id, small), (_, large)) in few.into_iter().zip(looks.remove(1)) {
        // An index may have one more level.
        assert!(large <= small + 10, "{id} reads {large} buffers, {small} on a small database");
    }
}
