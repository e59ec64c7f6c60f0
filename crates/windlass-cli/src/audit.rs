//! `windlass audit`: what is promised, checked on a live database.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use windlass::store::postgres::{
    AuditOptions, AuditReport, CheckResult, StaleSlot, Verdict, audit, repair,
};

use crate::session::Session;
use crate::text::{count, parse_time, shown, thousands};

/// The exit code if a guarantee is broken.
const VIOLATED: u8 = 1;

/// The exit code if the audit could not be made, as for arguments that are not understood.
const FAILED: u8 = 2;

/// What `windlass audit` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print the SQL of each check
    #[arg(long)]
    sql: bool,

    /// Check only the newest N runs
    #[arg(long, value_name = "N", value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    newest: Option<u32>,

    /// Check only runs started within this time, e.g. 2h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<Duration>,

    /// Maximum lateness before a warning
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_time)]
    late_after: Duration,

    /// Maximum time of one check; 0s for no limit
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_time)]
    timeout: Duration,

    /// Treat warnings as violations
    #[arg(long)]
    strict: bool,

    /// Release limit slots that ended tasks still hold, then audit
    #[arg(long)]
    repair: bool,

    /// With --repair: list the slots and release nothing
    #[arg(long, requires = "repair")]
    dry_run: bool,
}

impl Arguments {
    fn options(&self) -> AuditOptions {
        let mut options =
            AuditOptions::new().late_after(self.late_after).statement_timeout(self.timeout);
        if let Some(count) = self.newest {
            options = options.newest_runs(count);
        }
        if let Some(time) = self.since {
            options = options.started_within(time);
        }
        options
    }
}

/// Audits and prints the report. An audit that cannot be made, or printed, must not look
/// like one that found something.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> ExitCode {
    match report(&arguments, session).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(VIOLATED),
        Err(error) => {
            crate::failure::print(&error, session.is_json());
            ExitCode::from(FAILED)
        }
    }
}

/// Whether everything is as promised.
async fn report(arguments: &Arguments, session: &Session) -> anyhow::Result<bool> {
    let database = session.database("audit")?;
    let released = match arguments.repair {
        true => Some(repair(&database, arguments.dry_run).await?),
        false => None,
    };
    let report = audit(&database, &arguments.options()).await?;
    let text = if session.is_json() {
        let verdict = report.verdict();
        let (released, is_dry_run) = (released.as_deref(), arguments.dry_run);
        crate::text::document(&Judged { verdict, released, is_dry_run, report: &report })?
    } else {
        let released = released.map(|slots| render_released(&slots, arguments.dry_run));
        released.unwrap_or_default() + &render(&report, arguments.sql)
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever read the output has seen enough; what was found holds all the same.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other?,
    }
    Ok(report.is_clean() && !(arguments.strict && report.has_warnings()))
}

/// A report for programs, with what it comes to first.
#[derive(Serialize)]
struct Judged<'a> {
    verdict: Verdict,
    /// The slots that `--repair` released, or would release.
    #[serde(skip_serializing_if = "Option::is_none")]
    released: Option<&'a [StaleSlot]>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_dry_run: bool,
    #[serde(flatten)]
    report: &'a AuditReport,
}

/// The slots that a repair released, or would release.
fn render_released(slots: &[StaleSlot], is_dry_run: bool) -> String {
    if slots.is_empty() {
        return "no limit slot is held by a task that has ended\n\n".to_owned();
    }
    let verb = if is_dry_run { "would release" } else { "released" };
    let mut text = format!("{verb} {}:\n", count(slots.len(), "limit slot"));
    for StaleSlot { run, task, tenant, state, limit, key } in slots {
        let (task, tenant, limit, key) = (shown(task), shown(tenant), shown(limit), shown(key));
        let _ = writeln!(
            text,
            "  limit {limit}, key {key}: held by {state} task {task} of run {run} (tenant {tenant})"
        );
    }
    text.push('\n');
    text
}

/// The report as text: a line for each check, and what it found below it.
pub(crate) fn render(report: &AuditReport, with_sql: bool) -> String {
    let mut text = format!("the database at {}", report.at);
    match report.since {
        Some(since) => text += &format!(", runs started since {since}\n\n"),
        None => text += ", all runs\n\n",
    }
    for check in &report.checks {
        render_check(&mut text, check);
        if with_sql {
            // Indented it could not be pasted as it is.
            text += &format!("\n{}\n", check.sql);
        }
    }
    let number = |is: fn(&CheckResult) -> bool| report.checks.iter().filter(|one| is(one)).count();
    let checked = report.checks.iter().map(|check| check.checked).sum();
    let (violated, warned) = (number(CheckResult::is_violated), number(CheckResult::is_warned));
    let checks = count(report.checks.len(), "check");
    text += &format!(
        "\n{checks} of {} rows: {violated} violated, {}",
        thousands(checked),
        count(warned, "warning")
    );
    match number(|check| check.is_skipped) {
        0 => text.push('\n'),
        skipped => text += &format!(", {skipped} skipped\n"),
    }
    text
}

fn render_check(text: &mut String, check: &CheckResult) {
    let (checked, wrong) = (thousands(check.checked), thousands(check.violations));
    let word = if check.is_skipped {
        "skipped"
    } else if check.is_violated() {
        "VIOLATED"
    } else if check.is_warned() {
        "WARNING"
    } else {
        "ok"
    };
    // Writing to a string cannot fail.
    let _ = write!(text, "{word:<9} {:<24}", check.id);
    if check.is_skipped {
        let why = match check.guarantee.as_str() {
            "schema" => "needs the program that made the schema\n",
            _ => "needs all runs\n",
        };
        *text += why;
        return;
    }
    let _ = write!(text, "{checked} checked");
    if check.violations == 0 {
        text.push('\n');
        return;
    }
    let _ = writeln!(text, ", {wrong} wrong\n          {}", check.title);
    for example in &check.examples {
        let _ = writeln!(text, "          - {}", shown(example));
    }
    let rest = check.violations.saturating_sub(check.examples.len() as u64);
    if rest > 0 {
        let _ = writeln!(text, "          and {} more", thousands(rest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report with a check of each kind.
    fn sample() -> AuditReport {
        let json = r#"{"at": 1750000000000000, "since": null, "checks": [
            {"id": "G8.open-tasks", "guarantee": "G8", "title": "counted", "severity": "violation",
             "is_skipped": false, "checked": 1234, "violations": 0, "examples": [],
             "sql": "select 1;\n", "took_ms": 1},
            {"id": "G12.keys", "guarantee": "G12", "title": "one run per key",
             "severity": "violation", "is_skipped": false, "checked": 9, "violations": 1002,
             "examples": ["key \"\u001b[2J\" of \u202eacme", "other"], "sql": "select 2;\n",
             "took_ms": 1},
            {"id": "G11.timers-late", "guarantee": "G11", "title": "soon", "severity": "warning",
             "is_skipped": false, "checked": 3, "violations": 1, "examples": ["late"],
             "sql": "select 3;\n", "took_ms": 1},
            {"id": "rows.without-run", "guarantee": "rows", "title": "belongs",
             "severity": "violation", "is_skipped": true, "checked": 0, "violations": 0,
             "examples": [], "sql": "select 4;\n", "took_ms": 0}
        ]}"#;
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_report_is_a_line_for_each_check_and_what_it_found() {
        let text = render(&sample(), false);
        let expected = r#"the database at 2025-06-15T15:06:40Z, all runs

ok        G8.open-tasks           1,234 checked
VIOLATED  G12.keys                9 checked, 1,002 wrong
          one run per key
          - key "\u{1b}[2J" of \u{202e}acme
          - other
          and 1,000 more
WARNING   G11.timers-late         3 checked, 1 wrong
          soon
          - late
skipped   rows.without-run        needs all runs

4 checks of 1,246 rows: 1 violated, 1 warning, 1 skipped
"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn statements_are_printed_if_they_are_asked_for() {
        let text = render(&sample(), true);
        assert!(text.contains("1,234 checked\n\nselect 1;\n\nVIOLATED"), "{text}");
    }
}
