//! What is printed, made safe and readable.

use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use windlass::Timestamp;
use windlass::store::sealed::describe;

pub(crate) use crate::table::listing;

/// Whether a character could steer a terminal or deceive whoever reads: control characters, those
/// that break lines or turn the direction of writing, and those that nobody sees.
fn is_hostile(character: char) -> bool {
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

/// Text of users as it is shown: what could steer a terminal is escaped.
///
/// What is sealed, and cannot be opened for want of a key, is told by its key and its size.
pub(crate) fn shown(text: &str) -> String {
    if let Some(sealed) = describe(text) {
        return sealed;
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_hostile(character) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "{}", character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Text of users that is yet to be cut: as it is, or what is told of it if it is sealed.
pub(crate) fn readable(text: &str) -> String {
    describe(text).unwrap_or_else(|| text.to_owned())
}

/// A value as JSON for people and programs: over several lines, and without what could steer a
/// terminal, which is escaped in the texts.
pub(crate) fn document(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(escaped(&serde_json::to_string_pretty(value)?) + "\n")
}

/// A value as JSON in one line, as above.
pub(crate) fn json_line(value: &serde_json::Value) -> String {
    escaped(&value.to_string())
}

/// JSON in which what could steer a terminal is escaped. Outside of texts there is none of it but
/// line feeds.
fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    let mut units = [0; 2];
    for character in json.chars() {
        if character != '\n' && is_hostile(character) {
            for unit in character.encode_utf16(&mut units) {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Text of several lines as it is shown: each line as above, and those after the first
/// moved in, so that none of them looks like something that was said by itself.
pub(crate) fn shown_lines(text: &str) -> String {
    text.lines().map(shown).collect::<Vec<_>>().join("\n  ")
}

/// The error of a command, with the code of its kind as the library's errors have it.
#[cfg(unix)]
pub(crate) fn coded(kind: windlass::ErrorKind, text: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("{text} [{}]", kind.code())
}

/// A time as people read it: `12 ms` below a second, `1.25 s` from there.
pub(crate) fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        return format!("{} ms", time.as_millis());
    }
    format!("{:.2} s", time.as_secs_f64())
}

/// How long ago something was, as people read it: its two largest units, such as `2m 5s`.
pub(crate) fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let first = units.iter().position(|(size, _)| seconds >= *size).unwrap_or(units.len() - 1);
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (size, unit) in units.iter().skip(first).take(2) {
        if rest >= *size || parts.is_empty() {
            parts.push(format!("{}{unit}", rest / size));
        }
        rest %= size;
    }
    parts.join(" ")
}

/// How long before `now` something was; a dash if it never was.
pub(crate) fn ago(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| "-".to_owned(), |at| age(now.since(at)))
}

/// How many columns standard output has, if it is a terminal that says so.
pub(crate) fn terminal_width() -> Option<u16> {
    #[cfg(unix)]
    if io::stdout().is_terminal() {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        return (size.ws_col > 0).then_some(size.ws_col);
    }
    None
}

/// How wide a line is where standard output is no terminal.
const COLUMNS_ELSEWHERE: usize = 200;

/// The least space for a payload, however narrow the terminal is.
const PAYLOAD_CHARS_MIN: usize = 20;

/// Outputs of tasks for people: a line each, cut to the width of the terminal.
pub(crate) fn outputs<'a>(tasks: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let columns = terminal_width().map_or(COLUMNS_ELSEWHERE, usize::from);
    let (mut text, mut is_cut) = (String::new(), false);
    for (task, output) in tasks {
        let label = format!("output of {}: ", shown(task));
        let room = columns.saturating_sub(label.chars().count()).max(PAYLOAD_CHARS_MIN);
        let (output, is_short) = shortened(output, room);
        text += &format!("{label}{output}\n");
        is_cut |= is_short;
    }
    if is_cut {
        text += "outputs are shortened; use --json to see all of them\n";
    }
    text
}

/// Shortens a payload for a table; returns the text and whether it was cut.
fn shortened(payload: &str, most: usize) -> (String, bool) {
    let whole = shown(&readable(payload));
    if whole.chars().count() <= most {
        return (whole, false);
    }
    let cut: String = whole.chars().take(most.saturating_sub(1)).collect();
    (cut + "…", true)
}

/// A number with its noun: `1 task`, `2 tasks`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// A number with its thousands apart: `12,345`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Returns a parser of whole numbers in a range.
pub(crate) fn whole_number<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let (least, most) = (range.start(), range.end());
        number.ok_or_else(|| format!("expected a whole number from {least} to {most}"))
    }
}

/// A time as people write it: `500ms`, `90s`, `15m`, `2h` or `3d`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(TIME_EXPECTED.to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| TIME_EXPECTED.to_owned())?;
    let millis = number.checked_mul(millis).ok_or_else(|| "too long".to_owned())?;
    Ok(Duration::from_millis(millis))
}

const TIME_EXPECTED: &str = "expected a whole number with a unit: ms, s, m, h or d, e.g. 90s";

/// A key and a value, as people write them: `order=42`.
pub(crate) fn parse_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or_else(|| "not of the form KEY=VALUE".to_owned())?;
    Ok((key.to_owned(), value.to_owned()))
}

/// What standard output can show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// Lines can be written over.
    pub(crate) is_live: bool,
    /// Colours are wanted.
    pub(crate) has_colours: bool,
}

impl Screen {
    /// Asks the terminal and the environment (`TERM`, `NO_COLOR`). `is_plain` rules
    /// out everything but text.
    pub(crate) fn detect(is_plain: bool) -> Self {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_live = !is_plain && !is_dumb && io::stdout().is_terminal();
        Screen { is_live, has_colours: is_live && !is_set("NO_COLOR") }
    }

    /// The text in a colour, if there are colours.
    pub(crate) fn paint(self, colour: Colour, text: &str) -> String {
        if !self.has_colours {
            return text.to_owned();
        }
        format!("\u{1b}[{}m{text}\u{1b}[0m", colour.code())
    }
}

/// The colours that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Colour {
    /// The number of the terminal's "select graphic rendition" sequence.
    const fn code(self) -> u8 {
        match self {
            Colour::Bold => 1,
            Colour::Dim => 2,
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
            Colour::Cyan => 36,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_steer_a_terminal_is_escaped() {
        assert_eq!(shown("a\u{1b}[2Jb\r\n\u{9b}"), r"a\u{1b}[2Jb\r\n\u{9b}");
        assert_eq!(shown("abc\u{202e}def"), r"abc\u{202e}def");
        assert_eq!(shown("déjà vu 東京"), "déjà vu 東京");
    }

    #[test]
    fn json_has_nothing_raw_that_could_steer_a_terminal_and_says_the_same() {
        let hostile = "a\u{1b}[2J\u{9b}\u{7f}\0\u{202e}\u{2028}\u{2061}\u{e0041}é東";
        let value = serde_json::json!({ "text": hostile });
        for text in [document(&value).expect("it has a JSON form"), json_line(&value)] {
            let raw = ['\u{1b}', '\u{9b}', '\u{7f}', '\0', '\u{202e}', '\u{2028}', '\u{2061}'];
            assert!(!text.contains(raw) && !text.contains('\u{e0041}'), "{text:?}");
            let read: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
            assert_eq!(read, value);
        }
    }

    #[test]
    fn lines_stay_lines_and_cannot_pass_for_others() {
        let text = "initdb failed:\nerror: \u{1b}[2Jno room\n[WL-0007]";
        assert_eq!(shown_lines(text), "initdb failed:\n  error: \\u{1b}[2Jno room\n  [WL-0007]");
    }

    #[test]
    fn times_are_shown_in_the_unit_that_fits() {
        assert_eq!(seconds(Duration::from_millis(999)), "999 ms");
        assert_eq!(seconds(Duration::from_millis(1_250)), "1.25 s");
    }

    #[test]
    fn ages_are_shown_in_their_two_largest_units() {
        let shown = |seconds| age(Duration::from_secs(seconds));
        let cases = [(0, "0s"), (59, "59s"), (125, "2m 5s"), (3_600, "1h"), (90_061, "1d 1h")];
        for (seconds, wanted) in cases {
            assert_eq!(shown(seconds), wanted);
        }
    }

    #[test]
    fn nouns_follow_their_number() {
        assert_eq!(count(0, "task"), "0 tasks");
        assert_eq!(count(1, "task"), "1 task");
    }

    #[test]
    fn thousands_are_kept_apart() {
        for (number, shown) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")]
        {
            assert_eq!(thousands(number), shown);
        }
    }

    #[test]
    fn a_number_outside_its_range_is_refused_with_the_range() {
        let percent = whole_number::<u8>(1..=100);
        assert_eq!(percent("100"), Ok(100));
        for wrong in ["", "0", "101", "300", "-1", "1.5", "x"] {
            let error = percent(wrong).expect_err(wrong);
            assert_eq!(error, "expected a whole number from 1 to 100", "{wrong}");
        }
    }

    #[test]
    fn payloads_are_cut_to_the_line() {
        assert_eq!(shortened(r#"{"a":1}"#, 7), (r#"{"a":1}"#.to_owned(), false));
        assert_eq!(shortened(r#"{"a":12}"#, 7), ("{\"a\":1…".to_owned(), true));
        assert_eq!(shortened("é\u{1b}", 9), ("é\\u{1b}".to_owned(), false));
    }

    #[test]
    fn times_are_understood_with_their_unit() {
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("2h"), Ok(Duration::from_secs(7_200)));
        for wrong in ["", "2", "h", "-1s", "1.5h", "2 h", "1w", "99999999999999999999s"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_time("999999999999999999d"), Err("too long".to_owned()));
    }

    #[test]
    fn without_colours_there_are_no_escape_codes() {
        let screen = Screen { is_live: true, has_colours: false };
        assert_eq!(screen.paint(Colour::Red, "failed"), "failed");
        let screen = Screen { has_colours: true, ..screen };
        assert_eq!(screen.paint(Colour::Red, "failed"), "\u{1b}[31mfailed\u{1b}[0m");
    }
}
