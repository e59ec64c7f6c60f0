//! What is seen while the story goes on: rows that change in place on a terminal,
//! lines elsewhere.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use windlass::store::TaskRecord;
use windlass::{Event, RunState, TaskState, Timestamp};
use windlass::{EventBody, RunEvent, RunEventKind, TaskEvent, TaskEventKind};

use super::ledger::{Ledger, Page};
use crate::text::{Colour, Screen, count, seconds, shown};

/// The most rows of runs; with the two lines below them and the newest lines of the
/// story above they fit a terminal of 24 lines.
const ROWS_MAX: usize = 16;

/// The view of a story.
pub(super) struct View {
    screen: Screen,
    began: Timestamp,
    live: Option<Live>,
}

impl View {
    /// A view whose clock begins at `began`.
    pub(super) fn new(screen: Screen, began: Timestamp) -> Self {
        View { screen, began, live: screen.is_live.then(|| Live::new(screen)) }
    }

    fn line(&self, at: Timestamp, line: &str) -> io::Result<()> {
        let line = format!("{:>7.3} s  {line}", at.since(self.began).as_secs_f64());
        match &self.live {
            Some(live) => live.all.println(line),
            None => writeln!(io::stdout(), "{line}"),
        }
    }

    /// Shows a turn of the story.
    pub(super) fn say(&self, at: Timestamp, line: &str) -> io::Result<()> {
        self.line(at, &self.screen.paint(Colour::Bold, &format!("* {line}")))
    }

    /// Shows an event that a reader of lines wants to know of; rows show it by
    /// themselves.
    pub(super) fn event(&self, page: &Page, event: &Event) -> io::Result<()> {
        if self.live.is_some() {
            return Ok(());
        }
        let what = match &event.body {
            EventBody::Run(run) => run_line(page, event.at, run),
            EventBody::Task(task) => task_line(event.at, task),
        };
        let Some(what) = what else { return Ok(()) };
        let (tenant, label) = (shown(page.record.tenant.as_str()), shown(page.label()));
        self.line(event.at, &format!("  {tenant} {label}  {what}"))
    }

    /// Draws the rows anew.
    pub(super) fn update(&mut self, ledger: &Ledger) {
        if let Some(live) = &mut self.live {
            live.update(ledger);
        }
    }

    /// Takes the rows away; the lines stay.
    pub(super) fn close(&mut self) -> io::Result<()> {
        match &self.live {
            Some(live) => live.all.clear(),
            None => Ok(()),
        }
    }
}

fn run_line(page: &Page, at: Timestamp, run: &RunEvent) -> Option<String> {
    match &run.kind {
        RunEventKind::Started => None,
        RunEventKind::Ended => {
            let took = seconds(at.since(page.record.created_at));
            Some(format!("{} after {took}", run.to))
        }
        RunEventKind::Cancelled { reason } => {
            Some(format!("cancelled: {}", shown(reason.as_deref().unwrap_or("no reason given"))))
        }
        RunEventKind::Continued { round } => Some(format!("began afresh, round {round}")),
        RunEventKind::Undoing { by } => Some(format!("being undone by run {by}")),
        RunEventKind::Retried { round } => Some(format!("retried, round {round}")),
    }
}

fn task_line(at: Timestamp, task: &TaskEvent) -> Option<String> {
    let (name, attempt) = (&task.name, task.attempt);
    match &task.kind {
        TaskEventKind::Retrying { failure, until } => {
            let (why, pause) = (shown(&failure.to_string()), seconds(until.since(at)));
            Some(format!("{name}: attempt {attempt} failed ({why}), the next in {pause}"))
        }
        TaskEventKind::Failed { failure } => {
            Some(format!("{name}: failed for good ({})", shown(&failure.to_string())))
        }
        // Claimed and then skipped: a worker asked the task's condition.
        TaskEventKind::Skipped if task.from == TaskState::Running => {
            Some(format!("{name}: skipped, its condition is false"))
        }
        TaskEventKind::LeaseExpired { .. } => Some(format!("{name}: the worker's lease ran out")),
        TaskEventKind::Released { .. } => Some(format!("{name}: handed back")),
        TaskEventKind::Queued
        | TaskEventKind::Delayed { .. }
        | TaskEventKind::Blocked { .. }
        | TaskEventKind::Sleeping { .. }
        | TaskEventKind::Woken
        | TaskEventKind::Started { .. }
        | TaskEventKind::Parked { .. }
        | TaskEventKind::Resumed
        | TaskEventKind::Continued
        | TaskEventKind::Succeeded
        | TaskEventKind::Skipped
        | TaskEventKind::Cancelled
        | TaskEventKind::Reset => None,
    }
}

/// Rows that change in place.
struct Live {
    screen: Screen,
    all: MultiProgress,
    rows: Vec<ProgressBar>,
    legend: ProgressBar,
    total: ProgressBar,
}

impl Live {
    fn new(screen: Screen) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stdout());
        let legend = all.add(text_row());
        // Nobody cancels anything here, and without that word the legend fits 80 columns.
        let states = TaskState::ALL.into_iter().filter(|state| *state != TaskState::Cancelled);
        let entries: Vec<_> = states.map(|state| legend_entry(screen, state)).collect();
        legend.set_message(entries.join("  "));
        let bar = if screen.has_colours { "{bar:16.green/dim}" } else { "{bar:16}" };
        let style = ProgressStyle::with_template(&format!("{bar} {{pos}}/{{len}} {{wide_msg}}"));
        let total = all.add(ProgressBar::new(0));
        total.set_style(style.expect("the template is constant").progress_chars("━━─"));
        Live { screen, all, rows: Vec::new(), legend, total }
    }

    fn update(&mut self, ledger: &Ledger) {
        let mut places: Vec<usize> = (0..ledger.pages.len()).collect();
        // With more runs than rows, those that go on are the ones to watch.
        places.sort_by_key(|place| ledger.pages[*place].is_closed());
        places.truncate(ROWS_MAX);
        places.sort_unstable();
        while self.rows.len() < places.len() {
            let row = self.all.insert_before(&self.legend, text_row());
            self.rows.push(row);
        }
        for (row, place) in self.rows.iter().zip(&places) {
            row.set_message(self.run_row(&ledger.pages[*place]));
        }
        let tally = ledger.tally();
        self.total.set_length(tally.tasks as u64);
        self.total.set_position(tally.ended_tasks as u64);
        let (attempts, retries) = (tally.attempts, tally.retries);
        let mut message = format!("tasks, {attempts} attempts, {retries} retries");
        let hidden = ledger.pages.len() - places.len();
        if hidden > 0 {
            // Writing to a string cannot fail.
            let _ = write!(message, ", {} hidden", count(hidden, "run"));
        }
        self.total.set_message(message);
    }

    fn run_row(&self, page: &Page) -> String {
        let mut row =
            format!("{:<5} {:<9} ", shown(page.record.tenant.as_str()), shown(page.label()));
        for task in &page.tasks {
            let (glyph, colour) = glyph(task.state);
            row.push_str(&self.screen.paint(colour, glyph));
        }
        // Writing to a string cannot fail.
        let _ = write!(row, "  {}", self.run_note(page));
        row
    }

    /// What the run is at, in words.
    fn run_note(&self, page: &Page) -> String {
        let colour = match page.record.state {
            RunState::Running => {
                let going_on = page.tasks.iter().filter_map(task_note);
                return self.screen.paint(Colour::Dim, &going_on.collect::<Vec<_>>().join(", "));
            }
            RunState::Succeeded => Colour::Green,
            RunState::Failed | RunState::Cancelled => Colour::Red,
        };
        self.screen.paint(colour, page.record.state.word())
    }
}

/// What a task is at, if something is going on with it.
fn task_note(task: &TaskRecord) -> Option<String> {
    match task.state {
        TaskState::Running if task.attempt > 1 => {
            Some(format!("{} (attempt {})", task.name, task.attempt))
        }
        TaskState::Running => Some(task.name.to_string()),
        TaskState::Scheduled if task.failure.is_some() => {
            Some(format!("{} (again after {})", task.name, count(task.attempt as usize, "attempt")))
        }
        TaskState::Scheduled => Some(format!("{} (asleep)", task.name)),
        TaskState::Waiting => Some(format!("{} (waiting)", task.name)),
        TaskState::Pending
        | TaskState::Ready
        | TaskState::Succeeded
        | TaskState::Failed
        | TaskState::Cancelled
        | TaskState::Skipped => None,
    }
}

fn glyph(state: TaskState) -> (&'static str, Colour) {
    match state {
        TaskState::Pending => ("·", Colour::Dim),
        TaskState::Scheduled => ("◷", Colour::Yellow),
        TaskState::Waiting => ("◌", Colour::Yellow),
        TaskState::Ready => ("○", Colour::Yellow),
        TaskState::Running => ("◐", Colour::Cyan),
        TaskState::Succeeded => ("●", Colour::Green),
        TaskState::Failed => ("✗", Colour::Red),
        TaskState::Cancelled => ("⊘", Colour::Red),
        TaskState::Skipped => ("–", Colour::Dim),
    }
}

fn legend_entry(screen: Screen, state: TaskState) -> String {
    let (glyph, colour) = glyph(state);
    format!("{} {state}", screen.paint(colour, glyph))
}

fn text_row() -> ProgressBar {
    let row = ProgressBar::new_spinner();
    row.set_style(ProgressStyle::with_template("{wide_msg}").expect("the template is constant"));
    row
}
