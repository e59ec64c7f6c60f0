//! `windlass doctor`: what hurts in a database, and what mends it.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use windlass::Secret;
use windlass::store::postgres::{
    DoctorOptions, DoctorReport, Examined, Finding, FindingSeverity, doctor,
};

use crate::session::Session;
use crate::text::{count, parse_time, shown, thousands};

/// The exit code if something is wrong.
const UNWELL: u8 = 1;

/// The exit code if nothing could be looked at, as for arguments that are not understood.
const FAILED: u8 = 2;

/// How far what was found is moved in.
const INDENT: usize = 10;

/// What `windlass doctor` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Direct address to listen on, if the database is behind a pooler
    #[arg(long, value_name = "URL", env = "WINDLASS_LISTEN_URL", hide_env_values = true)]
    listen_url: Option<Secret>,

    /// Maximum number of connections of one of your processes
    #[arg(long, value_name = "N", value_parser = crate::text::whole_number(1..=100_000_usize))]
    pool: Option<usize>,

    /// Print the SQL of each check
    #[arg(long)]
    sql: bool,

    /// Maximum lateness of leaders, timers, leases and staged runs
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_time)]
    late_after: Duration,

    /// Maximum age of a transaction
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_time)]
    long_transaction: Duration,

    /// Maximum time of one check; 0s for no limit
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    timeout: Duration,
}

/// Looks and prints the report. What could not be looked at must not look healthy.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> ExitCode {
    match report(&arguments, session).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(UNWELL),
        Err(error) => {
            crate::failure::print(&error, session.is_json());
            ExitCode::from(FAILED)
        }
    }
}

/// Whether nothing is wrong.
async fn report(arguments: &Arguments, session: &Session) -> anyhow::Result<bool> {
    let mut database = session.database("doctor")?;
    if let Some(url) = &arguments.listen_url {
        database = database.listen_url(url.expose());
    }
    if let Some(connections) = arguments.pool {
        database = database.max_connections(connections);
    }
    let options = DoctorOptions::new()
        .late_after(arguments.late_after)
        .long_transaction(arguments.long_transaction)
        .statement_timeout(arguments.timeout);
    let report = doctor(&database, &options).await?;
    let text = if session.is_json() {
        let (is_healthy, severity) = (report.is_healthy(), report.severity());
        let judged = Judged { is_healthy, severity, report: &report };
        crate::text::document(&judged)?
    } else {
        render(&report, arguments.sql)
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever read the output has seen enough; what was found holds all the same.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other?,
    }
    Ok(report.is_healthy())
}

/// A report for programs, with what it comes to first.
#[derive(Serialize)]
struct Judged<'a> {
    is_healthy: bool,
    severity: Option<FindingSeverity>,
    #[serde(flatten)]
    report: &'a DoctorReport,
}

/// The report as text: a line for each check, and what it found below it.
fn render(report: &DoctorReport, with_sql: bool) -> String {
    let mut text = format!(
        "database {} on PostgreSQL {} at {}\n\n",
        shown(&report.database),
        shown(&report.server),
        report.at
    );
    for check in &report.checks {
        render_check(&mut text, check);
        if let Some(sql) = check.sql.as_ref().filter(|_| with_sql) {
            // Indented it could not be pasted as it is.
            text += &format!("\n{sql}\n");
        }
    }
    text += &format!("\n{}: ", count(report.checks.len(), "check"));
    let number = |severity: FindingSeverity| {
        report.findings().filter(|(_, finding)| finding.severity == severity).count()
    };
    text += &format!(
        "{} critical, {}, {}",
        number(FindingSeverity::Critical),
        count(number(FindingSeverity::Warning), "warning"),
        count(number(FindingSeverity::Notice), "notice")
    );
    match report.checks.iter().filter(|check| check.skipped.is_some()).count() {
        0 => text.push('\n'),
        skipped => text += &format!(", {skipped} skipped\n"),
    }
    text
}

fn word(check: &Examined) -> &'static str {
    match (&check.skipped, check.severity()) {
        (Some(_), _) => "skipped",
        (None, None) => "ok",
        (None, Some(FindingSeverity::Notice)) => "notice",
        (None, Some(FindingSeverity::Warning)) => "WARNING",
        (None, Some(FindingSeverity::Critical)) => "CRITICAL",
    }
}

fn render_check(text: &mut String, check: &Examined) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{:<INDENT$}{:<24}", word(check), check.id);
    let _ = writeln!(text, "{}", shown(&check.skipped.clone().unwrap_or_else(|| check.headline())));
    for finding in &check.findings {
        render_finding(text, finding);
    }
    let rest = check.found.saturating_sub(check.findings.len() as u64);
    if rest > 0 {
        let _ = writeln!(text, "{:INDENT$}and {} more", "", thousands(rest));
    }
}

fn render_finding(text: &mut String, finding: &Finding) {
    let _ = writeln!(text, "{:INDENT$}- {}", "", shown(&finding.problem));
    let _ = writeln!(text, "{:INDENT$}  cause: {}", "", shown(&finding.cause));
    let _ = writeln!(text, "{:INDENT$}  fix:   {}", "", shown(&finding.remedy));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report with a check of each kind.
    fn sample() -> DoctorReport {
        let json = r#"{"at": 1750000000000000, "database": "host:5432/shop", "server": "17.2",
            "checks": [
            {"id": "server.clock", "title": "the clocks agree", "skipped": null, "found": 0,
             "findings": [], "sql": null, "took_ms": 1},
            {"id": "server.transactions", "title": "none is open for long", "skipped": null,
             "found": 1002, "findings": [
                {"severity": "critical", "problem": "session 7 (\u001b[2J)", "cause": "kept",
                 "remedy": "select pg_terminate_backend(7)"},
                {"severity": "warning", "problem": "session 8", "cause": "kept",
                 "remedy": "select pg_terminate_backend(8)"}
             ], "sql": "select 2;\n", "took_ms": 1},
            {"id": "server.sight", "title": "it sees", "skipped": null, "found": 1, "findings": [
                {"severity": "notice", "problem": "blind", "cause": "no right", "remedy": "grant"}
             ], "sql": "select 3;\n", "took_ms": 1},
            {"id": "tables.bloat", "title": "small", "skipped": "the schema is not this program's",
             "found": 0, "findings": [], "sql": "select 4;\n", "took_ms": 0}
        ]}"#;
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_report_is_a_line_for_each_check_and_what_it_found() {
        let expected = r"database host:5432/shop on PostgreSQL 17.2 at 2025-06-15T15:06:40Z

ok        server.clock            the clocks agree
CRITICAL  server.transactions     1002 transactions are open for too long
          - session 7 (\u{1b}[2J)
            cause: kept
            fix:   select pg_terminate_backend(7)
          - session 8
            cause: kept
            fix:   select pg_terminate_backend(8)
          and 1,000 more
notice    server.sight            the role cannot see the sessions of other roles
          - blind
            cause: no right
            fix:   grant
skipped   tables.bloat            the schema is not this program's

4 checks: 1 critical, 1 warning, 1 notice, 1 skipped
";
        assert_eq!(render(&sample(), false), expected);
        assert!(!sample().is_healthy());
    }

    #[test]
    fn statements_are_printed_if_they_are_asked_for() {
        let text = render(&sample(), true);
        assert!(text.contains("grant\n\nselect 3;\n\nskipped"), "{text}");
    }
}
