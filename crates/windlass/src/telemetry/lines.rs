//! A log of lines: one event, one line.
//!
//! A line has what its event says and what the spans around it say, so that each line within an
//! attempt has its run, task, attempt and fence. Whatever users' data hold, it stays one line:
//! control characters, those that turn the direction of writing and those that nobody sees are
//! escaped.

use std::fmt::{self, Write as _};
use std::io::Write;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use windlass_core::Timestamp;

/// The longest value or message of a line, in bytes; the rest is cut off.
pub const VALUE_BYTES_MAX: usize = 8_192;

/// What every line has, so that no field can take its place.
const RESERVED: [&str; 4] = ["timestamp", "level", "target", "message"];

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people: time, level, where from, what, and then `name=value`.
    Text,
    /// For programs: an object with the fields side by side.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            other => Err(format!("log format {other:?} is neither \"text\" nor \"json\"")),
        }
    }
}

/// Where the lines go.
pub(super) type Sink = Box<dyn Write + Send>;

/// Writes events as lines.
pub(super) struct Lines {
    format: LogFormat,
    sink: Mutex<Sink>,
}

impl Lines {
    pub(super) fn new(format: LogFormat, sink: Sink) -> Self {
        Lines { format, sink: Mutex::new(sink) }
    }
}

/// The fields of an event or of a span, each once, in the order in which they came.
#[derive(Clone, Debug, Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    fn put(&mut self, name: &'static str, value: Value) {
        // What a span says to its exporter is nothing for people.
        if name.starts_with("otel.") {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    /// Takes what is called the message out of the fields.
    fn take_message(&mut self) -> String {
        let place = self.0.iter().position(|(name, _)| *name == "message");
        match place.map(|place| self.0.remove(place).1) {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => String::new(),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field.name(), Value::String(cut(format!("{value:?}"))));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), Value::String(cut(value.to_owned())));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field.name(), Value::String(cut(value.to_string())));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        let text = || Value::String(value.to_string());
        let number = serde_json::Number::from_f64(value).map(Value::Number);
        self.put(field.name(), number.unwrap_or_else(text));
    }
}

/// No more of a text than a line may have of it.
fn cut(mut text: String) -> String {
    if text.len() > VALUE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(VALUE_BYTES_MAX));
        text.push('…');
    }
    text
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            record.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(known) = span.extensions().get::<Fields>() {
                known.0.iter().for_each(|(name, value)| fields.put(name, value.clone()));
            }
        }
        // A span's field of this name is not what the event says.
        fields.take_message();
        event.record(&mut fields);
        let message = fields.take_message();
        let at = Timestamp::from(SystemTime::now());
        let metadata = event.metadata();
        let line = Line { at, level: metadata.level(), target: metadata.target(), message, fields };
        let mut text = match self.format {
            LogFormat::Text => line.text(),
            LogFormat::Json => line.json(),
        };
        text.push('\n');
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        // There is nobody to tell that nothing can be told.
        let _ = sink.write_all(text.as_bytes()).and_then(|()| sink.flush());
    }
}

/// What a line says.
struct Line<'a> {
    at: Timestamp,
    level: &'a tracing::Level,
    target: &'a str,
    message: String,
    fields: Fields,
}

impl Line<'_> {
    fn text(self) -> String {
        let Line { at, level, target, message, fields } = self;
        let mut text = format!("{at} {level:>5} {target}: ");
        escape(&message, &mut text);
        for (name, value) in fields.0 {
            text.push(' ');
            text.push_str(name);
            text.push('=');
            match &value {
                Value::String(value) if is_plain(value) => text.push_str(value),
                Value::String(value) => {
                    text.push('"');
                    escape(&value.replace('\\', "\\\\").replace('"', "\\\""), &mut text);
                    text.push('"');
                }
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_) => {
                    // Writing to a string cannot fail.
                    let _ = write!(text, "{value}");
                }
            }
        }
        text
    }

    fn json(self) -> String {
        let Line { at, level, target, message, fields } = self;
        let known = [
            ("timestamp", at.to_string()),
            ("level", level.to_string()),
            ("target", target.to_owned()),
            ("message", message),
        ];
        let known = known.into_iter().map(|(name, text)| (name.to_owned(), Value::String(text)));
        let named = fields.0.into_iter().map(|(name, value)| match RESERVED.contains(&name) {
            true => (format!("field.{name}"), value),
            false => (name.to_owned(), value),
        });
        // An object of serde_json would forget the order, which people read by.
        let pair = |(name, value)| format!("{}:{value}", Value::String(name));
        let pairs: Vec<String> = known.chain(named).map(pair).collect();
        let object = format!("{{{}}}", pairs.join(","));
        let mut text = String::new();
        // JSON escapes what is below a space, and leaves what else may end a line or turn it.
        let mut units = [0; 2];
        for character in object.chars() {
            match is_steering(character) {
                true => {
                    for unit in character.encode_utf16(&mut units) {
                        // Writing to a string cannot fail.
                        let _ = write!(text, "\\u{unit:04x}");
                    }
                }
                false => text.push(character),
            }
        }
        text
    }
}

/// Whether a value can stand without quotes.
fn is_plain(text: &str) -> bool {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_./:+~@#%".contains(it);
    !text.is_empty() && text.chars().all(is_plain)
}

/// Whether a character may end a line, steer a terminal, turn the direction of writing, or be there
/// without being seen.
fn is_steering(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

fn escape(text: &str, to: &mut String) {
    for character in text.chars() {
        match is_steering(character) {
            true => to.extend(character.escape_default()),
            false => to.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every character that must not reach a terminal or a file as it is, with the ends of each range.
    const HOSTILE: &str = "\0\u{7}\u{8}\t\n\u{b}\u{c}\r\u{1b}[2J\u{7f}\u{80}\u{85}\u{90}\u{9b}\u{9d}\u{9f}\
        \u{ad}\u{61c}\u{180e}\u{200b}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\
        \u{2060}\u{2066}\u{2067}\u{2068}\u{2069}\u{206f}\u{feff}\u{fff9}\u{e0001}\u{e0041}\u{e007f}";

    fn line() -> Line<'static> {
        let mut fields = Fields::default();
        fields.put("tenant", Value::String(format!("a{HOSTILE}b")));
        fields.put("level", Value::String(format!("c{HOSTILE}\" level=\"ERROR")));
        let message = format!("card {HOSTILE} declined");
        let at = Timestamp::from_micros(0);
        Line { at, level: &tracing::Level::INFO, target: "shop", message, fields }
    }

    #[test]
    fn no_hostile_character_of_a_user_is_in_a_line() {
        for text in [line().text(), line().json()] {
            let raw: Vec<char> = text.chars().filter(|it| is_steering(*it)).collect();
            assert!(raw.is_empty(), "{raw:?} in {text:?}");
            let kept = HOSTILE.chars().filter(|it| !is_steering(*it)).collect::<String>();
            assert_eq!(kept, "[2J", "each of the others is escaped");
            assert!(text.is_ascii(), "{text}");
        }
    }

    #[test]
    fn a_line_for_programs_says_what_was_said_and_fields_take_no_place_of_others() {
        let read: Value = serde_json::from_str(&line().json()).expect("it is JSON");
        assert_eq!(read["message"], format!("card {HOSTILE} declined"));
        assert_eq!(read["tenant"], format!("a{HOSTILE}b"));
        assert_eq!(read["level"], "INFO");
        assert_eq!(read["field.level"], format!("c{HOSTILE}\" level=\"ERROR"));
    }

    #[test]
    fn a_value_cannot_end_its_quotes() {
        let text = line().text();
        assert!(text.ends_with("\\\" level=\\\"ERROR\""), "{text}");
    }
}
