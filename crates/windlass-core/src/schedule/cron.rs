//! Cron expressions: which local times they name, and what is wrong with those that name none.
//!
//! The parser is our own because its errors say where the mistake is. Time zones are not known
//! here: a cron expression is about what a clock on the wall shows.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, DateTime};

/// The longest cron expression, in bytes.
pub const CRON_BYTES_MAX: usize = 400;

/// The farthest that two matching days are apart, in years: 29 February on one day of the week,
/// where 2100 or the like is between.
const SEARCH_YEARS: i16 = 40;

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// What is wrong with a cron expression, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cron {expression:?}: {problem} at character {position}")]
pub struct CronError {
    /// The whole expression, or its beginning if it is too long.
    pub expression: String,
    /// The place of the mistake, the first character being 1.
    pub position: usize,
    /// What it is.
    pub problem: CronProblem,
}

/// A mistake in a cron expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CronProblem {
    /// It is longer than [`CRON_BYTES_MAX`].
    #[error("{0} bytes are over the limit of {CRON_BYTES_MAX}, which ends")]
    TooLong(usize),
    /// It has neither five nor six fields.
    #[error("there are {0} fields instead of five, or six with seconds first; the last is")]
    Fields(usize),
    /// There is no such word behind an `@`.
    #[error("{0:?} is not @hourly, @daily, @weekly, @monthly or @yearly")]
    Word(String),
    /// Neither a number nor a name that the field knows.
    #[error("{text:?} is not a {field}")]
    Value {
        /// Which field.
        field: &'static str,
        /// What stands there.
        text: String,
    },
    /// A number outside the field's values.
    #[error("{field} {value} is not within {least} to {most}")]
    Range {
        /// Which field.
        field: &'static str,
        /// The number.
        value: u32,
        /// The field's least value.
        least: u32,
        /// The field's greatest value.
        most: u32,
    },
    /// A range whose end is before its beginning.
    #[error("the range of {field} from {first} to {last} runs backwards")]
    Backwards {
        /// Which field.
        field: &'static str,
        /// Its beginning.
        first: u32,
        /// Its end.
        last: u32,
    },
    /// A step that is zero or none.
    #[error("the step {0:?} is not a number from 1 on")]
    Step(String),
    /// A step behind one value.
    #[error("a step of one value, where a range or * is needed,")]
    StepOfValue,
    /// No month has a day that it names.
    #[error("it never comes, because no month that it names has the day named")]
    Never,
}

/// The values of one field.
struct Kind {
    name: &'static str,
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const SECOND: Kind = Kind { name: "second", least: 0, most: 59, names: &[] };
const MINUTE: Kind = Kind { name: "minute", least: 0, most: 59, names: &[] };
const HOUR: Kind = Kind { name: "hour", least: 0, most: 23, names: &[] };
const DAY: Kind = Kind { name: "day of the month", least: 1, most: 31, names: &[] };
const MONTH: Kind = Kind { name: "month", least: 1, most: 12, names: &MONTHS };
/// 7 is Sunday as well.
const WEEKDAY: Kind = Kind { name: "day of the week", least: 0, most: 7, names: &DAYS };

/// A cron expression of five fields (minute, hour, day of the month, month, day of the week) or
/// six (second first), with lists, ranges, steps, and names of months and days; or `@hourly`,
/// `@daily`, `@weekly`, `@monthly`, `@yearly`.
///
/// If neither field of days begins with `*`, a day matches that either of them names; otherwise
/// one that both name.
///
/// ```
/// use windlass_core::schedule::Cron;
///
/// assert!("0 2 * * MON-FRI".parse::<Cron>().is_ok());
/// let error = "0 25 * * *".parse::<Cron>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"cron "0 25 * * *": hour 25 is not within 0 to 23 at character 3"#
/// );
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Cron {
    expression: String,
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether a day that one of the two fields of days names is enough.
    either_day: bool,
}

impl Cron {
    /// The expression as it was written.
    pub fn as_str(&self) -> &str {
        &self.expression
    }

    /// The first matching local time that is not before this one, which has no fraction of a
    /// second; none if the calendar ends before.
    pub(super) fn first_from(&self, from: DateTime) -> Option<DateTime> {
        let last_year = from.year().saturating_add(SEARCH_YEARS);
        let mut date = from.date();
        let mut earliest = Some((from.hour(), from.minute(), from.second()));
        while date.year() <= last_year {
            if !has(self.months, date.month()) {
                date = first_of_next_month(date)?;
                earliest = None;
                continue;
            }
            if self.is_day(date)
                && let Some((hour, minute, second)) = self.first_time(earliest)
            {
                return Some(date.at(hour, minute, second, 0));
            }
            earliest = None;
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn is_day(&self, date: Date) -> bool {
        let by_month = has(self.days, date.day());
        let by_week = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.either_day { by_month || by_week } else { by_month && by_week }
    }

    /// The first time of a day, not before `earliest`; of the whole day if there is none.
    fn first_time(&self, earliest: Option<(i8, i8, i8)>) -> Option<(i8, i8, i8)> {
        let first = |set: u64| next_in(set, 0).unwrap_or_default();
        let (first_minute, first_second) = (first(self.minutes), first(self.seconds));
        let Some((hour, minute, second)) = earliest else {
            return Some((first(self.hours), first_minute, first_second));
        };
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = next_in(self.seconds, second)
            {
                return Some((hour, minute, second));
            }
            if let Some(minute) = next_in(self.minutes, minute + 1) {
                return Some((hour, minute, first_second));
            }
        }
        next_in(self.hours, hour + 1).map(|hour| (hour, first_minute, first_second))
    }
}

/// Whether a set has a value.
fn has(set: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| set & (1 << value) != 0)
}

/// The first value of a set from this one on.
fn next_in(set: u64, from: i8) -> Option<i8> {
    let from = u32::try_from(from).ok().filter(|from| *from < u64::BITS)?;
    let rest = set & (u64::MAX << from);
    (rest != 0).then(|| i8::try_from(rest.trailing_zeros()).ok()).flatten()
}

fn first_of_next_month(date: Date) -> Option<Date> {
    date.last_of_month().tomorrow().ok()
}

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(expression: &str) -> Result<Self, CronError> {
        let wrong = |(position, problem)| {
            let expression = expression.chars().take(CRON_BYTES_MAX).collect();
            CronError { expression, position, problem }
        };
        parse(expression).map_err(wrong)
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.expression)
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.expression, f)
    }
}

/// A mistake and its place.
type Mistake = (usize, CronProblem);

/// A piece of the expression and where it begins, the first character being 1.
#[derive(Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Piece<'a> {
    /// The pieces between separators, empty ones as well.
    fn split(self, separator: char) -> impl Iterator<Item = Piece<'a>> {
        let mut position = self.position;
        self.text.split(separator).map(move |text| {
            let piece = Piece { text, position };
            position += text.chars().count() + 1;
            piece
        })
    }

    /// What is before and behind the first separator.
    fn split_once(self, separator: char) -> Option<(Piece<'a>, Piece<'a>)> {
        let (text, rest) = self.text.split_once(separator)?;
        let position = self.position + text.chars().count() + 1;
        Some((Piece { text, ..self }, Piece { text: rest, position }))
    }
}

fn parse(expression: &str) -> Result<Cron, Mistake> {
    if expression.len() > CRON_BYTES_MAX {
        return Err((CRON_BYTES_MAX, CronProblem::TooLong(expression.len())));
    }
    let whole = Piece { text: expression, position: 1 };
    let mut pieces = Vec::new();
    for piece in whole.split(' ') {
        pieces.extend(piece.split('\t').filter(|piece| !piece.text.is_empty()));
    }
    let long = match pieces.first() {
        Some(word) if word.text.starts_with('@') => {
            if let Some(second) = pieces.get(1) {
                return Err((second.position, CronProblem::Fields(pieces.len())));
            }
            let long = match word.text {
                "@hourly" => "0 * * * *",
                "@daily" | "@midnight" => "0 0 * * *",
                "@weekly" => "0 0 * * 0",
                "@monthly" => "0 0 1 * *",
                "@yearly" | "@annually" => "0 0 1 1 *",
                other => return Err((word.position, CronProblem::Word(other.to_owned()))),
            };
            Some(long)
        }
        Some(_) | None => None,
    };
    if let Some(long) = long {
        return Ok(Cron { expression: expression.trim().to_owned(), ..parse(long)? });
    }
    let (second, rest) = match pieces.as_slice() {
        [second, rest @ ..] if rest.len() == 5 => (Some(*second), rest),
        rest => (None, rest),
    };
    let [minute, hour, day, month, weekday] = rest else {
        let end = pieces.last().map_or(1, |last| last.position);
        return Err((end, CronProblem::Fields(pieces.len())));
    };
    let weekdays = field(&WEEKDAY, *weekday)?;
    let cron = Cron {
        expression: expression.trim().to_owned(),
        seconds: second.map_or(Ok(1), |second| field(&SECOND, second))?,
        minutes: field(&MINUTE, *minute)?,
        hours: field(&HOUR, *hour)?,
        days: field(&DAY, *day)?,
        months: field(&MONTH, *month)?,
        weekdays: (weekdays | weekdays >> 7) & 0x7f,
        either_day: !day.text.starts_with('*') && !weekday.text.starts_with('*'),
    };
    // Every day that there is comes on every day of the week in 400 years.
    let is_there = |month: i8| {
        let longest = Date::new(2_000, month, 1).map_or(0, Date::days_in_month);
        has(cron.months, month) && next_in(cron.days, 1).is_some_and(|first| first <= longest)
    };
    if !cron.either_day && !(1..=12).any(is_there) {
        return Err((day.position, CronProblem::Never));
    }
    Ok(cron)
}

/// The set of values that a field names.
fn field(kind: &Kind, piece: Piece<'_>) -> Result<u64, Mistake> {
    piece.split(',').try_fold(0, |set, item| Ok(set | item_set(kind, item)?))
}

fn item_set(kind: &Kind, item: Piece<'_>) -> Result<u64, Mistake> {
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (item, None),
    };
    let most = if kind.least == 0 && kind.most == 7 { 6 } else { kind.most };
    let (first, last) = if range.text == "*" {
        (kind.least, most)
    } else if let Some((first, last)) = range.split_once('-') {
        let (from, to) = (value(kind, first)?, value(kind, last)?);
        // A week may end with its Sunday.
        let to = if kind.most == 7 && to == 0 && from > 0 { 7 } else { to };
        if from > to {
            let problem = CronProblem::Backwards { field: kind.name, first: from, last: to };
            return Err((range.position, problem));
        }
        (from, to)
    } else {
        let value = value(kind, range)?;
        if let Some(step) = step {
            return Err((step.position, CronProblem::StepOfValue));
        }
        (value, value)
    };
    let step = match step {
        None => 1,
        Some(step) => match step.text.parse::<usize>() {
            Ok(number) if number > 0 && step.text.len() < 4 => number,
            Ok(_) | Err(_) => {
                return Err((step.position, CronProblem::Step(step.text.to_owned())));
            }
        },
    };
    Ok((first..=last).step_by(step).fold(0, |set, value| set | 1 << value))
}

fn value(kind: &Kind, piece: Piece<'_>) -> Result<u32, Mistake> {
    let Piece { text, position } = piece;
    let named = kind.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    if let Some(place) = named {
        return Ok(kind.least + u32::try_from(place).unwrap_or_default());
    }
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(value) = text.parse::<u32>().ok().filter(|_| is_number) else {
        let problem = CronProblem::Value { field: kind.name, text: text.to_owned() };
        return Err((position, problem));
    };
    let (least, most) = (kind.least, kind.most);
    if !(least..=most).contains(&value) {
        return Err((position, CronProblem::Range { field: kind.name, value, least, most }));
    }
    Ok(value)
}

#[cfg(test)]
mod tests;
