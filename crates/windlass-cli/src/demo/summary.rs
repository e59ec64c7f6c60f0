//! What came of it: a table of the runs, the totals, one history, and a check that
//! they agree.

use std::io::{self, Write};

use anyhow::ensure;
use comfy_table::{Cell, CellAlignment, Table, presets};
use windlass::store::postgres::AuditReport;
use windlass::{ErrorKind, Event, TaskState, WorkerId};
use windlass::{EventBody, RunEventKind, TaskEvent, TaskEventKind};

use super::ledger::{Ledger, Newcomer, Page, Tally};
use super::orders::{LONG_TASK, SHIP_TASK};
use super::story::{BUSY, LATE, Plan, Told};
use crate::text::{Colour, Screen, coded, count, seconds, shown, thousands};

/// Prints everything, then fails if something is not as it must be.
pub(super) fn print(
    out: &mut impl Write,
    screen: Screen,
    plan: &Plan,
    told: &Told,
    report: &AuditReport,
) -> anyhow::Result<()> {
    let ledger = &told.ledger;
    let tally = ledger.tally();
    let title = |text: &str| screen.paint(Colour::Bold, text);
    writeln!(out, "\n{}\n{}", title("runs"), run_table(ledger))?;
    writeln!(out, "\n{}", title("totals"))?;
    print_totals(out, ledger, &tally, plan)?;
    for page in ledger.pages.iter().filter(|page| was_taken_away(page, LONG_TASK)) {
        writeln!(out, "\n{}", title(&format!("history of {} {LONG_TASK}", label(page))))?;
        writeln!(out, "{}", history_table(page, |event| event.name.as_str() == LONG_TASK))?;
    }
    if let Some(page) = most_eventful(ledger) {
        writeln!(out, "\n{}", title(&format!("history of {}", label(page))))?;
        writeln!(out, "{}", history_table(page, |_| true))?;
    }
    writeln!(out, "\n{}", title("checks"))?;
    check(out, told, &tally)?;
    writeln!(out, "\n{}", title("audit"))?;
    print_audit(out, report)?;
    writeln!(out, "\n{}", title("next"))?;
    writeln!(out, "  README.md                            your first workflow")?;
    writeln!(out, "  crates/windlass/examples             programs to start from")?;
    writeln!(out, "  cargo doc --open -p windlass         every type, with examples")?;
    Ok(())
}

impl Newcomer {
    /// What happened, against the bound.
    pub(super) fn sentence(&self, bound: usize) -> String {
        let Newcomer { backlog, others_claims } = self;
        let backlog = count(*backlog, "task");
        format!(
            "{LATE}'s first claim: after {others_claims} of {BUSY}'s (backlog {backlog}, bound {bound})"
        )
    }
}

fn run_table(ledger: &Ledger) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "tenant", "order", "state", "round", "tasks", "skipped", "attempts", "retries", "took",
    ]);
    for page in &ledger.pages {
        let is_claim = |kind: &TaskEventKind| matches!(kind, TaskEventKind::Started { .. });
        let is_retry = |kind: &TaskEventKind| matches!(kind, TaskEventKind::Retrying { .. });
        let attempts = page.task_events().filter(|event| is_claim(&event.kind)).count();
        let retries = page.task_events().filter(|event| is_retry(&event.kind)).count();
        let skipped = page.tasks.iter().filter(|task| task.state == TaskState::Skipped).count();
        let record = &page.record;
        let took = record.ended_at.map(|at| seconds(at.since(record.created_at)));
        table.add_row([
            Cell::new(shown(record.tenant.as_str())),
            Cell::new(shown(page.label())),
            Cell::new(record.state.word()),
            number_cell(record.round),
            number_cell(page.tasks.len()),
            number_cell(skipped),
            number_cell(attempts),
            number_cell(retries),
            number_cell(took.unwrap_or_default()),
        ]);
    }
    table.trim_fmt()
}

fn number_cell(number: impl ToString) -> Cell {
    Cell::new(number).set_alignment(CellAlignment::Right)
}

fn print_totals(
    out: &mut impl Write,
    ledger: &Ledger,
    tally: &Tally,
    plan: &Plan,
) -> io::Result<()> {
    let Tally { tasks, attempts, retries, events, .. } = tally;
    let runs = count(ledger.pages.len(), "run");
    let (tasks, attempts) = (count(*tasks, "task"), count(*attempts, "attempt"));
    writeln!(out, "  {runs}, {tasks}, {attempts}, {retries} of them retried, {events} events")?;
    let claims = tally.claims_by_tenant.iter();
    let claims: Vec<_> = claims.map(|(t, n)| format!("{} {n}", shown(t.as_str()))).collect();
    writeln!(out, "  claims: {}, by {}", claims.join(", "), count(tally.workers.len(), "worker"))?;
    if let Some(newcomer) = ledger.newcomer(LATE) {
        writeln!(out, "  {}", newcomer.sentence(plan.fairness_bound()))?;
    }
    Ok(())
}

/// The run with the most events has the most to tell.
fn most_eventful(ledger: &Ledger) -> Option<&Page> {
    ledger.pages.iter().max_by_key(|page| page.events.len())
}

fn label(page: &Page) -> String {
    format!("{} {}", shown(page.record.tenant.as_str()), shown(page.label()))
}

/// Whether a worker lost the task with its lease.
fn was_taken_away(page: &Page, task: &str) -> bool {
    let is_loss = |event: &TaskEvent| matches!(event.kind, TaskEventKind::LeaseExpired { .. });
    page.task_events().any(|event| event.name.as_str() == task && is_loss(event))
}

/// The events of the run and those of its tasks that are wanted.
fn history_table(page: &Page, is_wanted: impl Fn(&TaskEvent) -> bool) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["  time", "task", "event", "attempt", "fence", ""]);
    for event in page.events.iter().filter(|event| event.task().is_none_or(&is_wanted)) {
        let time = event.at.since(page.record.created_at).as_secs_f64();
        let (task, attempt, fence) = match &event.body {
            EventBody::Run(_) => (String::new(), String::new(), String::new()),
            EventBody::Task(task) => {
                (task.name.to_string(), task.attempt.to_string(), task.fence.to_string())
            }
        };
        table.add_row([
            number_cell(format!("+{time:.3} s")),
            Cell::new(task),
            Cell::new(event.word()),
            number_cell(attempt),
            number_cell(fence),
            Cell::new(detail(event)),
        ]);
    }
    table.trim_fmt()
}

/// What the words of an event do not say.
fn detail(event: &Event) -> String {
    let task = match &event.body {
        EventBody::Task(task) => task,
        EventBody::Run(run) => {
            return match &run.kind {
                RunEventKind::Started => String::new(),
                RunEventKind::Ended => run.to.to_string(),
                RunEventKind::Cancelled { reason } => shown(reason.as_deref().unwrap_or_default()),
                RunEventKind::Undoing { by } => format!("by {by}"),
                RunEventKind::Continued { round } => format!("round {round}"),
                RunEventKind::Retried { round } => format!("round {round}"),
            };
        }
    };
    match &task.kind {
        TaskEventKind::Retrying { failure, until } => {
            let pause = seconds(until.since(event.at));
            format!("{}, again in {pause}", shown(&failure.to_string()))
        }
        TaskEventKind::Failed { failure } => shown(&failure.to_string()),
        TaskEventKind::Delayed { until }
        | TaskEventKind::Sleeping { until }
        | TaskEventKind::Parked { until: Some(until) } => {
            format!("for {}", seconds(until.since(event.at)))
        }
        TaskEventKind::Blocked { limit, .. } => format!("by limit {limit}"),
        TaskEventKind::Started { worker } => format!("by worker {}", short(*worker)),
        TaskEventKind::LeaseExpired { worker, .. } => format!("of worker {}", short(*worker)),
        TaskEventKind::Skipped if task.from == TaskState::Running => "condition false".to_owned(),
        TaskEventKind::Skipped => "by how others ended".to_owned(),
        TaskEventKind::Queued
        | TaskEventKind::Woken
        | TaskEventKind::Succeeded
        | TaskEventKind::Released { .. }
        | TaskEventKind::Parked { until: None }
        | TaskEventKind::Resumed
        | TaskEventKind::Continued
        | TaskEventKind::Cancelled
        | TaskEventKind::Reset => String::new(),
    }
}

/// As much of a worker's id as tells it from the others.
fn short(worker: WorkerId) -> String {
    worker.to_string().chars().take(8).collect()
}

/// What the auditor found in the database.
fn print_audit(out: &mut impl Write, report: &AuditReport) -> anyhow::Result<()> {
    let looked_at: u64 = report.checks.iter().map(|check| check.checked).sum();
    let checks = count(report.checks.len(), "check");
    let broken = report.checks.iter().filter(|check| check.is_violated()).count();
    let found = if broken == 0 { "no guarantee is".to_owned() } else { format!("{broken} are") };
    writeln!(out, "  {checks} on {} rows: {found} broken", thousands(looked_at))?;
    for check in report.checks.iter().filter(|check| check.violations > 0) {
        let how = if check.is_violated() { "broken" } else { "warning" };
        writeln!(out, "  {how}: {}: {}", check.id, check.title)?;
        for example in &check.examples {
            writeln!(out, "    {}", shown(example))?;
        }
    }
    ensure!(report.is_clean(), broken_promise("the audit found a guarantee broken".to_owned()));
    Ok(())
}

/// The error for a promise that was not kept.
fn broken_promise(what: String) -> anyhow::Error {
    coded(ErrorKind::Corrupt, what)
}

/// Compares counters that must agree whatever happened.
fn check(out: &mut impl Write, told: &Told, tally: &Tally) -> anyhow::Result<()> {
    let ledger = &told.ledger;
    let runs = ledger.pages.len();
    let ended = ledger.pages.iter().filter(|page| page.is_closed()).count();
    ensure!(ended == runs, broken_promise(format!("{ended} of {} ended", count(runs, "run"))));
    writeln!(out, "  every run ended: {ended} of {runs}")?;
    for page in &ledger.pages {
        let is_shipped = |event: &&TaskEvent| {
            event.name.as_str() == SHIP_TASK && event.kind == TaskEventKind::Succeeded
        };
        let shipped = page.task_events().filter(is_shipped).count();
        ensure!(
            shipped == 1,
            broken_promise(format!("{} was shipped {shipped} times", label(page)))
        );
    }
    writeln!(out, "  every order was shipped once: {runs} of {runs}")?;
    let Tally { tasks, resets, final_events, attempts, attempt_ends, leases_lost, .. } = tally;
    ensure!(
        *final_events == tasks + resets,
        broken_promise(format!(
            "{tasks} tasks, of which {resets} began anew, have {final_events} final events"
        ))
    );
    writeln!(out, "  every task ended once: {final_events} ends = {tasks} tasks + {resets} anew")?;
    ensure!(
        attempt_ends == attempts,
        broken_promise(format!("{attempts} attempts began and {attempt_ends} ended"))
    );
    writeln!(out, "  every attempt has one end: {attempts} began, {attempt_ends} ended")?;
    let refused = count(told.refused, "write");
    writeln!(out, "  leases that ran out: {leases_lost}; refused: {refused} of a frozen worker")?;
    Ok(())
}
