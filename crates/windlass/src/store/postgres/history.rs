//! History as it is written: what a verb did to one run is one row, an event a line.
//!
//! The format is explained where the table is made; the view `windlass.events` reads it.

use std::collections::HashMap;
use std::fmt::{Display, Write as _};

use serde::Serialize;
use uuid::Uuid;
use windlass_core::{EventBody, RunId, RunState, TaskEventKind, TaskState, Timestamp};

use super::fault::Fault;
use super::flush::alike;
use super::statements as sql;
use super::time::At;
use super::writes::{Writes, params};
use crate::store::StoreError;

/// The most events of one row: the ids of events are that of their row and a number below
/// this.
const LINES_MAX: usize = 4096;

/// What most lines say, and the characters that stand for it: JSON has none of them unescaped,
/// and the view puts the words in their place.
const QUEUED: &str = "\u{1}";
const STARTED: &str = "\u{2}";
const SUCCEEDED: &str = "\u{3}";
const RUN_STARTED: &str = "\u{4}";
const RUN_SUCCEEDED: &str = "\u{5}";
const BY_WORKER: &str = "\u{6}";

/// Writes history, in the order given.
pub(super) fn write_history(
    writes: &mut Writes<'_>,
    now: Timestamp,
    events: &[(RunId, EventBody)],
) -> Result<(), Fault> {
    if events.is_empty() {
        return Ok(());
    }
    let Entries { runs, mut lines } = Entries::of(events)?;
    if alike(&lines).is_some() {
        let line = lines.swap_remove(0);
        writes.push(&sql::INSERT_HISTORY_ALIKE, params![runs, At(now), line]);
    } else {
        writes.push(&sql::INSERT_HISTORY, params![runs, At(now), lines]);
    }
    Ok(())
}

/// The rows of some events.
#[derive(Debug, Default)]
struct Entries {
    runs: Vec<Uuid>,
    lines: Vec<String>,
}

impl Entries {
    fn of(events: &[(RunId, EventBody)]) -> Result<Entries, Fault> {
        let mut entries = Entries::default();
        // The newest row of each run, and how many lines it has.
        let mut newest: HashMap<RunId, (usize, usize)> = HashMap::new();
        for (run, body) in events {
            let (row, count) = newest.entry(*run).or_insert((usize::MAX, LINES_MAX));
            if *count == LINES_MAX {
                (*row, *count) = (entries.runs.len(), 0);
                entries.runs.push(*run.as_uuid());
                entries.lines.push(String::new());
            }
            let lines = &mut entries.lines[*row];
            if *count > 0 {
                lines.push('\n');
            }
            *count += 1;
            write_line(lines, body)?;
        }
        Ok(entries)
    }
}

fn write_line(line: &mut String, body: &EventBody) -> Result<(), Fault> {
    match body {
        EventBody::Task(event) => {
            let (index, fence, attempt) = (event.task.0, event.fence.0, event.attempt);
            match (event.kind.word(), event.from, event.to) {
                ("queued", TaskState::Pending, TaskState::Ready) => {
                    write(line, format_args!("{index}{QUEUED}{fence} {attempt}"));
                }
                ("started", TaskState::Ready, TaskState::Running) => {
                    write(line, format_args!("{index}{STARTED}{fence} {attempt}"));
                }
                ("succeeded", TaskState::Running, TaskState::Succeeded) => {
                    write(line, format_args!("{index}{SUCCEEDED}{fence} {attempt}"));
                }
                (kind, from, to) => {
                    let (from, to) = (from.word(), to.word());
                    write(line, format_args!("{index} {kind} {from} {to} {fence} {attempt}"));
                }
            }
            if let TaskEventKind::Started { worker } = &event.kind {
                write(line, format_args!("{BY_WORKER}{}\"}}", worker.as_uuid().simple()));
                return Ok(());
            }
            write_detail(line, &event.kind)
        }
        EventBody::Run(event) => {
            match (event.kind.word(), event.from, event.to) {
                ("run_started", None, RunState::Running) => line.push_str(RUN_STARTED),
                ("run_ended", Some(RunState::Running), RunState::Succeeded) => {
                    line.push_str(RUN_SUCCEEDED);
                }
                (kind, from, to) => {
                    let (from, to) = (from.map_or("-", |state| state.word()), to.word());
                    write(line, format_args!("- {kind} {from} {to} - -"));
                }
            }
            write_detail(line, &event.kind)
        }
    }
}

fn write(line: &mut String, text: impl Display) {
    // Writing to a string cannot fail.
    let _ = write!(line, "{text}");
}

/// What an event's kind says besides its word: serde writes a kind that says no more as
/// `"word"`, and others as `{"word":{…}}`.
fn write_detail(line: &mut String, kind: &impl Serialize) -> Result<(), Fault> {
    let wrong = |error: String| StoreError::Corrupt(format!("an event cannot be written: {error}"));
    let text = serde_json::to_string(kind).map_err(|error| wrong(error.to_string()))?;
    if text.starts_with('"') {
        return Ok(());
    }
    let detail = text.split_once(':').and_then(|(_, rest)| rest.strip_suffix('}'));
    match detail {
        Some(detail) => {
            write(line, format_args!("\t{detail}"));
            Ok(())
        }
        None => Err(wrong(text).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::{Fence, RunEvent, RunEventKind, TaskEvent, TaskIndex, TaskName, WorkerId};

    fn started() -> EventBody {
        EventBody::Task(TaskEvent {
            task: TaskIndex(3),
            name: TaskName::new("ship").unwrap(),
            kind: TaskEventKind::Started { worker: WorkerId::from_random(7) },
            from: TaskState::Ready,
            to: TaskState::Running,
            fence: Fence(2),
            attempt: 1,
        })
    }

    fn cancelled(reason: &str) -> EventBody {
        let kind = RunEventKind::Cancelled { reason: Some(reason.to_owned()) };
        let (from, to) = (Some(RunState::Running), RunState::Cancelled);
        EventBody::Run(RunEvent { kind, from, to })
    }

    #[test]
    fn what_happened_to_a_run_is_one_row_whatever_came_in_between() {
        let [one, other] = [1, 2].map(|n| RunId::from_uuid(Uuid::from_u128(n)));
        let begun = RunEvent { kind: RunEventKind::Started, from: None, to: RunState::Running };
        let events = [
            (one, EventBody::Run(begun.clone())),
            (other, EventBody::Run(begun)),
            (one, started()),
        ];
        let entries = Entries::of(&events).unwrap();
        assert_eq!(entries.runs, [*one.as_uuid(), *other.as_uuid()]);
        let lines: Vec<&str> = entries.lines[0].lines().collect();
        assert_eq!(lines[0], RUN_STARTED);
        assert!(lines[1].starts_with("3\u{2}2 1\u{6}"), "{lines:?}");
        assert!(lines[1].ends_with("\"}"), "{lines:?}");
        assert_eq!(entries.lines[1], RUN_STARTED);
    }

    #[test]
    fn what_people_write_does_not_end_a_line() {
        let run = RunId::from_uuid(Uuid::from_u128(1));
        let entries = Entries::of(&[(run, cancelled("one\ntwo\tthree: }"))]).unwrap();
        let expected = "- run_cancelled running cancelled - -\t\
                        {\"reason\":\"one\\ntwo\\tthree: }\"}";
        assert_eq!(entries.lines, [expected]);
    }

    #[test]
    fn a_row_has_no_more_events_than_their_ids_have_room_for() {
        let run = RunId::from_uuid(Uuid::from_u128(1));
        let events = vec![(run, started()); LINES_MAX + 1];
        let entries = Entries::of(&events).unwrap();
        let counts: Vec<usize> = entries.lines.iter().map(|lines| lines.lines().count()).collect();
        assert_eq!(counts, [LINES_MAX, 1]);
    }
}
