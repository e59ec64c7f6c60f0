//! What came of it: a table of the runs, the totals, one history, and a check that
//! they agree.

use std::io::{self, Write};

use anyhow::ensure;
use comfy_table::{Cell, CellAlignment, Table, presets};
use windlass::{Event, TaskState};
use windlass::{EventBody, RunEventKind, TaskEventKind};

use super::ledger::{Ledger, Newcomer, Page, Tally};
use super::story::{BUSY, LATE, Plan};
use crate::text::{Colour, Screen, count, seconds, shown};

/// Prints everything, then fails if the counters do not agree.
pub(super) fn print(
    out: &mut impl Write,
    screen: Screen,
    ledger: &Ledger,
    plan: &Plan,
) -> anyhow::Result<()> {
    let tally = ledger.tally();
    let title = |text: &str| screen.paint(Colour::Bold, text);
    writeln!(out, "\n{}\n{}", title("runs"), run_table(ledger))?;
    writeln!(out, "\n{}", title("totals"))?;
    print_totals(out, ledger, &tally, plan)?;
    if let Some(page) = most_eventful(ledger) {
        let (tenant, label) = (shown(page.record.tenant.as_str()), shown(page.label()));
        writeln!(out, "\n{}", title(&format!("history of {tenant} {label}")))?;
        writeln!(out, "{}", history_table(page))?;
    }
    writeln!(out, "\n{}", title("checks"))?;
    check(out, ledger, &tally)?;
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

fn history_table(page: &Page) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["  time", "task", "event", "attempt", "fence", ""]);
    for event in &page.events {
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
        TaskEventKind::Delayed { until } | TaskEventKind::Sleeping { until } => {
            format!("for {}", seconds(until.since(event.at)))
        }
        TaskEventKind::Started { worker } => {
            let worker = worker.to_string();
            format!("by worker {}", worker.get(..8).unwrap_or(&worker))
        }
        TaskEventKind::Skipped if task.from == TaskState::Running => "condition false".to_owned(),
        TaskEventKind::Skipped => "by how others ended".to_owned(),
        TaskEventKind::Queued
        | TaskEventKind::Woken
        | TaskEventKind::Succeeded
        | TaskEventKind::Released { .. }
        | TaskEventKind::LeaseExpired { .. }
        | TaskEventKind::Cancelled
        | TaskEventKind::Reset => String::new(),
    }
}

/// Compares counters that must agree whatever happened.
fn check(out: &mut impl Write, ledger: &Ledger, tally: &Tally) -> anyhow::Result<()> {
    let runs = ledger.pages.len();
    let ended = ledger.pages.iter().filter(|page| page.is_closed()).count();
    ensure!(ended == runs, "{ended} of {} ended", count(runs, "run"));
    writeln!(out, "  every run ended: {ended} of {runs}")?;
    let Tally { tasks, resets, final_events, attempts, attempt_ends, leases_lost, .. } = tally;
    ensure!(
        *final_events == tasks + resets,
        "{tasks} tasks, of which {resets} began anew, have {final_events} final events"
    );
    writeln!(out, "  every task ended once: {final_events} ends = {tasks} tasks + {resets} anew")?;
    ensure!(attempt_ends == attempts, "{attempts} attempts began and {attempt_ends} ended");
    writeln!(out, "  every attempt has one end: {attempts} began, {attempt_ends} ended")?;
    // Not a failure: a machine that was put to sleep meanwhile loses leases rightly.
    writeln!(out, "  leases that ran out, though a worker was drained: {leases_lost}")?;
    Ok(())
}
