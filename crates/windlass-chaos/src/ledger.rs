//! The ledger: one append-only file in which the handlers of all workers note their side effects.
//!
//! Windlass neither reads nor writes it, so it can contradict the database. Every note is one
//! `write` to a file opened for appending: the order of the lines is the order of the effects,
//! across processes, and a killed process loses nothing that it noted.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use windlass::{Ctx, TaskError};

use crate::workload::Item;

/// The kind of a side effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mark {
    /// An attempt of a task begins.
    Begin,
    /// The attempt is about to return.
    End,
    /// A step of a function ran and returns this token.
    Step {
        /// The step.
        name: String,
        /// A new random number for every execution.
        token: u64,
    },
    /// A step was compensated.
    Undo {
        /// The step.
        name: String,
        /// The token that the compensation received.
        token: u64,
    },
}

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// Microseconds since 1970 by the clock of the machine.
    pub(crate) at_us: u64,
    pub(crate) mark: Mark,
    pub(crate) workflow: String,
    pub(crate) run: Uuid,
    pub(crate) task: String,
    pub(crate) fence: u64,
    pub(crate) item: Item,
}

/// The ledger, opened for appending.
#[derive(Debug)]
pub(crate) struct Ledger(File);

impl Ledger {
    /// Opens the ledger and creates it if it does not exist.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.map(Ledger).with_context(|| format!("cannot open the ledger {}", path.display()))
    }

    /// Appends a note about an attempt.
    pub(crate) fn note(&self, ctx: &Ctx<Item>, mark: Mark) -> Result<(), TaskError> {
        let note = Note {
            at_us: now_us(),
            mark,
            workflow: ctx.workflow().to_string(),
            run: *ctx.run_id().as_uuid(),
            task: ctx.task().to_string(),
            fence: ctx.fence().0,
            item: *ctx.input(),
        };
        let line = serde_json::to_string(&note).map_err(TaskError::new)?;
        // A process killed inside `write` can leave half a line. The line break in front keeps the
        // next note readable.
        (&self.0).write_all(format!("\n{line}\n").as_bytes()).map_err(TaskError::new)
    }
}

/// Reads all notes in order. Returns the number of torn lines as well.
pub(crate) fn read(path: &Path) -> anyhow::Result<(Vec<Note>, usize)> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the ledger {}", path.display()))?;
    Ok(parse(&text))
}

fn parse(text: &str) -> (Vec<Note>, usize) {
    let (mut notes, mut torn) = (Vec::new(), 0);
    for line in text.lines().filter(|line| !line.is_empty()) {
        match serde_json::from_str(line) {
            Ok(note) => notes.push(note),
            Err(_) => torn += 1,
        }
    }
    (notes, torn)
}

/// The time of the machine in microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_counted_and_hides_no_other() {
        let note = Note {
            at_us: 1,
            mark: Mark::Begin,
            workflow: "stream".into(),
            run: Uuid::nil(),
            task: "handle".into(),
            fence: 1,
            item: Item { key: 1, number: 2 },
        };
        let line = serde_json::to_string(&note).unwrap();
        let text = format!("\n{line}\n\n{}\n{line}\n", &line[..20]);
        assert_eq!(parse(&text), (vec![note.clone(), note], 1));
    }
}
