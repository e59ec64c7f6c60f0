//! The place of a run in the trace of whoever started it, as W3C Trace Context writes it.
//!
//! Nothing here makes ids: a context comes from outside and is handed on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The metadata of a run that holds its `traceparent`.
pub const TRACEPARENT: &str = "traceparent";

/// The metadata of a run that holds its `tracestate`.
pub const TRACESTATE: &str = "tracestate";

/// The length of a `traceparent`: version, trace id, parent id and flags, with dashes between.
pub const TRACEPARENT_BYTES: usize = 55;

/// The longest `tracestate`, in bytes: what everyone who hands it on must be able to.
pub const TRACESTATE_BYTES_MAX: usize = 512;

/// Where the dashes of a `traceparent` are.
const DASHES: [usize; 3] = [2, 35, 52];
const TRACE_ID: std::ops::Range<usize> = 3..35;
const PARENT_ID: std::ops::Range<usize> = 36..52;

/// What is shown of a text that is none, in characters.
const SHOWN_CHARS_MAX: usize = 64;

/// A text that is no trace context, with the place that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// It is too short or too long.
    #[error("traceparent {text:?} has {bytes} bytes, not {TRACEPARENT_BYTES}")]
    Length {
        /// How it begins.
        text: String,
        /// The length it has.
        bytes: usize,
    },
    /// A character is not the one that belongs there.
    #[error("traceparent {text:?} has {found:?} at byte {position}, not {wanted}")]
    Character {
        /// The whole text.
        text: String,
        /// The character.
        found: char,
        /// Where it is.
        position: usize,
        /// What belongs there.
        wanted: &'static str,
    },
    /// The version `ff` is none.
    #[error("traceparent {text:?} has the version ff at byte 0, which is none")]
    Version {
        /// The whole text.
        text: String,
    },
    /// An id of zeros is none.
    #[error("traceparent {text:?} has a {what} of zeros at byte {position}")]
    Zeros {
        /// The whole text.
        text: String,
        /// Which id.
        what: &'static str,
        /// Where it begins.
        position: usize,
    },
    /// The `tracestate` is too long.
    #[error("tracestate has {bytes} bytes, the limit is {TRACESTATE_BYTES_MAX}")]
    StateLength {
        /// The length it has.
        bytes: usize,
    },
    /// The `tracestate` has a character that no header may have.
    #[error("tracestate has {found:?} at byte {position}, not a printable character of ASCII")]
    StateCharacter {
        /// The character.
        found: char,
        /// Where it is.
        position: usize,
    },
}

/// A trace and the span in it that caused a run.
///
/// ```
/// use windlass_core::TraceContext;
///
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let context = TraceContext::parse(text, None)?;
/// assert!(context.is_sampled());
/// assert_eq!(context.to_string(), text);
///
/// let wrong = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e473G-00f067aa0ba902b7-01", None);
/// assert!(wrong.unwrap_err().to_string().contains("has 'G' at byte 34"));
/// # Ok::<(), windlass_core::trace::TraceError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: u128,
    parent_id: u64,
    flags: u8,
    state: Option<Arc<str>>,
}

impl TraceContext {
    /// A context of ids that exist already; `None` if one of them is zero.
    pub fn from_parts(trace_id: u128, parent_id: u64, flags: u8) -> Option<Self> {
        let is_some = trace_id != 0 && parent_id != 0;
        is_some.then_some(TraceContext { trace_id, parent_id, flags, state: None })
    }

    /// Reads a `traceparent` and, if there is one, its `tracestate`. A version that is not known
    /// is read as what is known of it, and handed on as version `00`, as the standard says.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Result<Self, TraceError> {
        let text = || traceparent.chars().take(SHOWN_CHARS_MAX).collect::<String>();
        let bytes = traceparent.len();
        if bytes != TRACEPARENT_BYTES {
            return Err(TraceError::Length { text: text(), bytes });
        }
        for (position, found) in traceparent.char_indices() {
            let is_dash = DASHES.contains(&position);
            let is_right = match is_dash {
                true => found == '-',
                false => matches!(found, '0'..='9' | 'a'..='f'),
            };
            if !is_right {
                let wanted = if is_dash { "a dash" } else { "a digit of 0-9a-f" };
                return Err(TraceError::Character { text: text(), found, position, wanted });
            }
        }
        if traceparent.starts_with("ff") {
            return Err(TraceError::Version { text: text() });
        }
        let number = |range: std::ops::Range<usize>| {
            u128::from_str_radix(&traceparent[range], 16).unwrap_or_default()
        };
        let (trace_id, parent_id) = (number(TRACE_ID), number(PARENT_ID) as u64);
        for (id, what, range) in
            [(trace_id, "trace id", TRACE_ID), (parent_id.into(), "parent id", PARENT_ID)]
        {
            if id == 0 {
                return Err(TraceError::Zeros { text: text(), what, position: range.start });
            }
        }
        let flags = number(TRACEPARENT_BYTES - 2..TRACEPARENT_BYTES) as u8;
        TraceContext { trace_id, parent_id, flags, state: None }.with_state(tracestate)
    }

    /// The same with another `tracestate`. An empty one is none.
    pub fn with_state(self, tracestate: Option<&str>) -> Result<Self, TraceError> {
        let state = tracestate.map(check_state).transpose()?;
        Ok(TraceContext { state: state.filter(|text| !text.is_empty()).map(Arc::from), ..self })
    }

    /// The context that the metadata of a run hold; none if there is none, or if it is wrong: what
    /// a run does must not depend on who traces it.
    pub fn of_metadata(metadata: &BTreeMap<String, String>) -> Option<Self> {
        let tracestate = metadata.get(TRACESTATE).map(String::as_str);
        TraceContext::parse(metadata.get(TRACEPARENT)?, tracestate).ok()
    }

    /// Checks what the metadata of a run say of its context, if they do.
    pub fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<(), TraceError> {
        if let Some(traceparent) = metadata.get(TRACEPARENT) {
            TraceContext::parse(traceparent, None)?;
        }
        metadata.get(TRACESTATE).map_or(Ok(()), |tracestate| check_state(tracestate).map(drop))
    }

    /// Puts the context into the metadata of a run.
    pub fn put_into(&self, metadata: &mut BTreeMap<String, String>) {
        metadata.insert(TRACEPARENT.to_owned(), self.to_string());
        match self.state() {
            Some(state) => metadata.insert(TRACESTATE.to_owned(), state.to_owned()),
            None => metadata.remove(TRACESTATE),
        };
    }

    /// The id of the trace.
    pub fn trace_id(&self) -> u128 {
        self.trace_id
    }

    /// The id of the span.
    pub fn parent_id(&self) -> u64 {
        self.parent_id
    }

    /// The flags; the lowest bit says whether it is recorded.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether whoever made it records it.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }

    /// What vendors have to say of it: the `tracestate`.
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

fn check_state(tracestate: &str) -> Result<&str, TraceError> {
    let bytes = tracestate.len();
    if bytes > TRACESTATE_BYTES_MAX {
        return Err(TraceError::StateLength { bytes });
    }
    match tracestate.char_indices().find(|(_, it)| !matches!(it, ' '..='~')) {
        Some((position, found)) => Err(TraceError::StateCharacter { found, position }),
        None => Ok(tracestate),
    }
}

/// The `traceparent`, without the `tracestate`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.parent_id, self.flags)
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        self.state().map_or(Ok(()), |state| write!(f, " {state:?}"))
    }
}

/// As its `traceparent`.
impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// From its `traceparent`.
impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let traceparent = String::deserialize(from)?;
        TraceContext::parse(&traceparent, None).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn with(position: usize, text: &str) -> String {
        let mut wrong = GOOD.to_owned();
        wrong.replace_range(position..position + text.len(), text);
        wrong
    }

    fn refusal(text: &str) -> String {
        TraceContext::parse(text, None).expect_err(text).to_string()
    }

    #[test]
    fn a_context_is_written_as_it_was_read() {
        for (flags, is_sampled) in [("00", false), ("01", true), ("fe", false)] {
            let text = with(53, flags);
            let context = TraceContext::parse(&text, Some("a=1,b=2")).unwrap();
            assert_eq!(context.to_string(), text);
            assert_eq!(context.is_sampled(), is_sampled);
            let mut metadata = BTreeMap::new();
            context.put_into(&mut metadata);
            assert_eq!(TraceContext::of_metadata(&metadata), Some(context));
        }
    }

    #[test]
    fn a_later_version_is_handed_on_as_the_known_one() {
        assert_eq!(TraceContext::parse(&with(0, "cc"), None).unwrap().to_string(), GOOD);
    }

    #[test]
    fn every_wrong_character_is_named_with_its_place() {
        for position in 0..TRACEPARENT_BYTES {
            let is_dash = DASHES.contains(&position);
            for wrong in ["G", "A", " ", if is_dash { "0" } else { "-" }] {
                let said = refusal(&with(position, wrong));
                let place = format!("has '{wrong}' at byte {position}, not a ");
                assert!(said.contains(&place), "{said}");
            }
        }
        let said = refusal(&with(4, "é"));
        assert!(said.contains("has 'é' at byte 4, not a digit of 0-9a-f"), "{said}");
    }

    #[test]
    fn a_wrong_length_a_wrong_version_and_zeros_are_refused() {
        assert!(refusal("").ends_with("\"\" has 0 bytes, not 55"));
        assert!(refusal(&GOOD[..54]).ends_with("has 54 bytes, not 55"));
        assert!(refusal(&format!("{GOOD}-")).ends_with("has 56 bytes, not 55"));
        assert!(refusal(&with(0, "ff")).ends_with("has the version ff at byte 0, which is none"));
        let said = refusal(&with(3, &"0".repeat(32)));
        assert!(said.ends_with("has a trace id of zeros at byte 3"), "{said}");
        let said = refusal(&with(36, &"0".repeat(16)));
        assert!(said.ends_with("has a parent id of zeros at byte 36"), "{said}");
        assert!(refusal(&"x".repeat(1_000)).len() < 200);
    }

    #[test]
    fn a_state_has_a_limit_and_only_what_headers_may_have() {
        let parse = |state: &str| TraceContext::parse(GOOD, Some(state));
        assert!(parse(&"x".repeat(TRACESTATE_BYTES_MAX)).is_ok());
        let said = parse(&"x".repeat(TRACESTATE_BYTES_MAX + 1)).unwrap_err().to_string();
        assert_eq!(said, "tracestate has 513 bytes, the limit is 512");
        let said = parse("a=1\n").unwrap_err().to_string();
        assert_eq!(said, "tracestate has '\\n' at byte 3, not a printable character of ASCII");
        assert_eq!(parse("").unwrap().state(), None);
    }

    #[test]
    fn metadata_without_a_context_or_with_a_wrong_one_have_none() {
        let mut metadata = BTreeMap::from([("region".to_owned(), "north".to_owned())]);
        assert_eq!(TraceContext::check_metadata(&metadata), Ok(()));
        metadata.insert(TRACEPARENT.to_owned(), "00".to_owned());
        assert_eq!(TraceContext::of_metadata(&metadata), None);
        assert!(TraceContext::check_metadata(&metadata).is_err());
        metadata.insert(TRACEPARENT.to_owned(), GOOD.to_owned());
        metadata.insert(TRACESTATE.to_owned(), "\0".to_owned());
        assert!(TraceContext::check_metadata(&metadata).is_err());
    }

    #[test]
    fn ids_of_zero_make_no_context() {
        assert_eq!(TraceContext::from_parts(0, 1, 1), None);
        assert_eq!(TraceContext::from_parts(1, 0, 1), None);
        assert!(TraceContext::from_parts(1, 1, 0).is_some());
    }
}
