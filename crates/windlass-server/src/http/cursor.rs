//! Where a page of a list ended, as a text that callers give back and do not read.
//!
//! A cursor says of which list it is and in which version it is written, so that one of another
//! list, or of a later version, is refused instead of misread.

use std::str::FromStr;

use windlass::store::{
    DeadLetterCursor, RunCursor, ScheduleKey, TokenCursor, WorkerCursor, WorkflowCursor,
};
use windlass::{RunId, ScheduleName, Tenant, Timestamp, TokenId, Version, WorkerId, WorkflowName};
use windlass_core::{TaskId, TaskIndex};

use crate::problem::Problem;

/// A place in a list that can be written as a cursor.
pub(crate) trait Cursor: Sized {
    /// What a cursor of this list begins with.
    const PREFIX: &'static str;

    /// What stands behind that.
    fn write(&self) -> String;

    /// The place that this text stands for.
    fn read(text: &str) -> Option<Self>;

    /// The cursor.
    fn to_text(&self) -> String {
        format!("{}.{}", Self::PREFIX, self.write())
    }

    /// The place that a request names.
    fn parse(cursor: Option<&str>) -> Result<Option<Self>, Problem> {
        let Some(cursor) = cursor else { return Ok(None) };
        let rest = cursor.strip_prefix(Self::PREFIX).and_then(|rest| rest.strip_prefix('.'));
        let place = rest.and_then(Self::read);
        let wrong = || Problem::field("cursor", format_args!("{cursor:?} is none of this list"));
        place.map(Some).ok_or_else(wrong)
    }
}

fn pair<A: FromStr, B: FromStr>(text: &str) -> Option<(A, B)> {
    let (one, other) = text.split_once('.')?;
    Some((one.parse().ok()?, other.parse().ok()?))
}

/// A time as it is, to the microsecond.
fn micros(text: &str) -> Option<Timestamp> {
    text.parse().ok().map(Timestamp::from_micros)
}

impl Cursor for RunCursor {
    const PREFIX: &'static str = "r1";

    fn write(&self) -> String {
        format!("{}.{}", self.created_at.as_micros(), self.id)
    }

    fn read(text: &str) -> Option<Self> {
        let (at, id): (i64, RunId) = pair(text)?;
        Some(RunCursor { created_at: Timestamp::from_micros(at), id })
    }
}

impl Cursor for WorkerCursor {
    const PREFIX: &'static str = "w1";

    fn write(&self) -> String {
        format!("{}.{}", self.joined_at.as_micros(), self.id)
    }

    fn read(text: &str) -> Option<Self> {
        let (at, id): (i64, WorkerId) = pair(text)?;
        Some(WorkerCursor { joined_at: Timestamp::from_micros(at), id })
    }
}

impl Cursor for TokenCursor {
    const PREFIX: &'static str = "k1";

    fn write(&self) -> String {
        format!("{}.{}", self.created_at.as_micros(), self.id)
    }

    fn read(text: &str) -> Option<Self> {
        let (at, id): (i64, TokenId) = pair(text)?;
        Some(TokenCursor { created_at: Timestamp::from_micros(at), id })
    }
}

impl Cursor for DeadLetterCursor {
    const PREFIX: &'static str = "d1";

    fn write(&self) -> String {
        let TaskId { run, index } = self.task;
        format!("{}.{run}.{}", self.failed_at.as_micros(), index.0)
    }

    fn read(text: &str) -> Option<Self> {
        let (at, rest) = text.split_once('.')?;
        let (run, index): (RunId, u32) = pair(rest)?;
        let task = TaskId { run, index: TaskIndex(index) };
        Some(DeadLetterCursor { failed_at: micros(at)?, task })
    }
}

/// Names may have any letter, and a cursor none that an address has to escape.
impl Cursor for ScheduleKey {
    const PREFIX: &'static str = "s1";

    fn write(&self) -> String {
        let ScheduleKey { tenant, name } = self;
        format!("{}.{}", to_hex(tenant.as_str().as_bytes()), to_hex(name.as_str().as_bytes()))
    }

    fn read(text: &str) -> Option<Self> {
        let (tenant, name) = text.split_once('.')?;
        let text = |hex: &str| String::from_utf8(from_hex(hex)?).ok();
        let tenant = Tenant::new(text(tenant)?).ok()?;
        Some(ScheduleKey { tenant, name: ScheduleName::new(text(name)?).ok()? })
    }
}

impl Cursor for WorkflowCursor {
    const PREFIX: &'static str = "f1";

    fn write(&self) -> String {
        format!("{}.{}", self.version.get(), to_hex(self.name.as_str().as_bytes()))
    }

    fn read(text: &str) -> Option<Self> {
        let (version, name) = text.split_once('.')?;
        let name = WorkflowName::new(String::from_utf8(from_hex(name)?).ok()?).ok()?;
        Some(WorkflowCursor { name, version: Version::new(version.parse().ok()?)? })
    }
}

/// A place in a list that is a number: of the log, of tasks, of events, of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) u64);

impl Cursor for Number {
    const PREFIX: &'static str = "n1";

    fn write(&self) -> String {
        self.0.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().filter(|number| i64::try_from(*number).is_ok()).map(Number)
    }
}

/// Bytes as text that needs no escaping anywhere.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// The bytes, `None` if the text is not of pairs of digits.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survives<C: Cursor + PartialEq + std::fmt::Debug>(place: C) {
        let text = place.to_text();
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte)));
        assert_eq!(C::parse(Some(&text)).unwrap(), Some(place));
        for wrong in ["", "r1", "x9.1.2", &text[..text.len() - 1], &format!("{text}!")] {
            let read = C::parse(Some(wrong));
            assert!(read.is_err() || *wrong == text[..text.len() - 1], "{wrong}");
        }
    }

    #[test]
    fn places_survive_their_text_and_others_are_refused() {
        let run = RunId::from_parts(Timestamp::from_micros(5), 7);
        let at = Timestamp::from_micros(-3);
        survives(RunCursor { created_at: at, id: run });
        survives(WorkerCursor { joined_at: at, id: WorkerId::from_random(9) });
        let task = TaskId { run, index: TaskIndex(3) };
        survives(DeadLetterCursor { failed_at: at, task });
        let tenant = Tenant::new("ac.me/é").unwrap();
        survives(ScheduleKey { tenant, name: ScheduleName::new("..%2f").unwrap() });
        survives(Number(12));
        assert!(Number::parse(Some("r1.5")).is_err(), "a cursor of another list");
        assert!(Number::parse(Some("n1.18446744073709551615")).is_err());
    }
}
