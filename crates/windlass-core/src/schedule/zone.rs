//! Time zones by their IANA names.
//!
//! The zones are those that are built in, never those of the machine: all processes agree on
//! when 02:00 is in Berlin, and nothing is read from a disk.

use std::fmt;
use std::str::FromStr;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

use crate::time::Timestamp;

/// The longest name of a zone that is looked for, in bytes.
pub const ZONE_BYTES_MAX: usize = 100;

/// How many names are suggested for one that is not known.
const NEAREST_MAX: usize = 3;

/// A zone that is not known, with the names that are nearest to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("time zone {name:?} is not known{}", suggestion(.nearest))]
pub struct ZoneError {
    /// The name, or the beginning of one that is too long.
    pub name: String,
    /// The nearest names there are, the nearest first.
    pub nearest: Vec<String>,
}

fn suggestion(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        names => format!("; the nearest names are {}", names.join(", ")),
    }
}

/// A time zone.
///
/// ```
/// use windlass_core::schedule::Zone;
///
/// let zone: Zone = "europe/berlin".parse().unwrap();
/// assert_eq!(zone.name(), "Europe/Berlin");
/// let error = "Europe/Berln".parse::<Zone>().unwrap_err();
/// assert!(error.to_string().contains("the nearest names are Europe/Berlin"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Zone {
    name: String,
    rules: TimeZone,
}

/// What the clocks of a zone do with a local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// They show it once.
    None,
    /// They are put forward over it: it runs at the shift.
    Skipped,
    /// They show it twice: it runs the first time.
    Repeated,
}

impl Zone {
    /// Coordinated universal time, whose clocks are never shifted.
    pub fn utc() -> Self {
        Zone { name: "UTC".to_owned(), rules: TimeZone::UTC }
    }

    /// Its IANA name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its clocks show at this time, without fractions of a second; none outside the
    /// calendar.
    pub(super) fn local(&self, at: Timestamp) -> Option<DateTime> {
        let seconds = at.as_micros().div_euclid(1_000_000);
        let at = jiff::Timestamp::from_second(seconds).ok()?;
        Some(self.rules.to_datetime(at))
    }

    /// What its clocks show, and how far from universal time that is, such as
    /// `Sun 2026-03-29 03:00:00 +02:00`.
    pub fn shown(&self, at: Timestamp) -> String {
        match jiff::Timestamp::from_microsecond(at.as_micros()) {
            Ok(at) => {
                at.to_zoned(self.rules.clone()).strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string()
            }
            Err(_) => at.to_string(),
        }
    }

    /// When a local time is: where the clocks skip it, at the shift; where they show it twice,
    /// the first time.
    pub(super) fn instant(&self, local: DateTime) -> Option<(Timestamp, Shift)> {
        let ambiguous = self.rules.to_ambiguous_timestamp(local);
        let (at, shift) = match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } => (ambiguous.compatible().ok()?, Shift::None),
            AmbiguousOffset::Fold { .. } => (ambiguous.earlier().ok()?, Shift::Repeated),
            AmbiguousOffset::Gap { .. } => {
                // As if the clocks had not been put forward yet: the shift was just before.
                let behind = ambiguous.later().ok()?;
                let just_behind = jiff::Timestamp::from_second(behind.as_second() + 1).ok()?;
                let shift = self.rules.preceding(just_behind).next()?;
                (shift.timestamp(), Shift::Skipped)
            }
        };
        Some((Timestamp::from_micros(at.as_microsecond()), shift))
    }
}

impl FromStr for Zone {
    type Err = ZoneError;

    fn from_str(name: &str) -> Result<Self, ZoneError> {
        let zones = TimeZoneDatabase::bundled();
        let found = Some(name).filter(|name| name.len() <= ZONE_BYTES_MAX);
        let found = found.and_then(|name| zones.get(name).ok());
        let named = found.and_then(|rules| Some((rules.iana_name()?.to_owned(), rules)));
        match named {
            Some((name, rules)) => Ok(Zone { name, rules }),
            None => {
                let name: String = name.chars().take(ZONE_BYTES_MAX).collect();
                let nearest = nearest(&zones, &name);
                Err(ZoneError { name, nearest })
            }
        }
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}

/// The names that need the fewest changes to become this one, or whose city does.
fn nearest(zones: &TimeZoneDatabase, name: &str) -> Vec<String> {
    let wanted: Vec<char> = name.to_lowercase().chars().collect();
    let distance = |zone: &str| {
        let zone = zone.to_lowercase();
        let city = zone.rsplit('/').next().unwrap_or_default();
        changes(&wanted, &zone).min(changes(&wanted, city))
    };
    let mut names: Vec<(usize, String)> = zones
        .available()
        .map(|zone| (distance(zone.as_str()), zone.as_str().to_owned()))
        // One that shares less than half of it helps nobody.
        .filter(|(changes, _)| *changes * 2 <= wanted.len())
        .collect();
    names.sort();
    names.into_iter().take(NEAREST_MAX).map(|(_, name)| name).collect()
}

/// How many letters must be put in, taken out or changed to make one text of the other.
fn changes(wanted: &[char], text: &str) -> usize {
    let mut row: Vec<usize> = (0..=wanted.len()).collect();
    for (line, letter) in text.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], line + 1);
        for (place, other) in wanted.iter().enumerate() {
            let kept = corner + usize::from(*other != letter);
            corner = row[place + 1];
            row[place + 1] = kept.min(row[place] + 1).min(corner + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nearest_to(name: &str) -> Vec<String> {
        name.parse::<Zone>().expect_err("it is not known").nearest
    }

    #[test]
    fn a_zone_that_is_not_known_is_answered_with_the_nearest_names() {
        assert_eq!(nearest_to("Europe/Berln")[0], "Europe/Berlin");
        assert_eq!(nearest_to("Kolkatta")[0], "Asia/Kolkata");
        assert_eq!(nearest_to("New York")[0], "America/New_York");
        assert!(nearest_to("xxxxxxxxxxxxxxxxxxxxxxx").is_empty());
        let error = "Berlin".parse::<Zone>().expect_err("it has no continent");
        let text = error.to_string();
        assert!(text.starts_with("time zone \"Berlin\" is not known; the nearest"), "{text}");
    }

    #[test]
    fn a_name_that_is_too_long_is_not_known() {
        let error = "x".repeat(100_000).parse::<Zone>().expect_err("it is too long");
        assert_eq!(error.name.len(), ZONE_BYTES_MAX);
        assert!("".parse::<Zone>().is_err());
    }

    #[test]
    fn a_skipped_time_is_at_the_shift_and_a_repeated_one_is_the_first() {
        let zone: Zone = "Australia/Lord_Howe".parse().expect("it is known");
        let at = |local: &str| {
            let local = local.parse().expect("it is a time");
            let (at, shift) = zone.instant(local).expect("it is in the calendar");
            (at.to_string(), shift)
        };
        // Put forward by half an hour from 02:00, and back to 01:30.
        let skipped = ("2026-10-03T15:30:00Z".to_owned(), Shift::Skipped);
        assert_eq!(at("2026-10-04T02:00:00"), skipped);
        assert_eq!(at("2026-10-04T02:29:59"), skipped);
        assert_eq!(at("2026-10-04T02:30:00"), ("2026-10-03T15:30:00Z".to_owned(), Shift::None));
        let repeated = ("2026-04-04T14:45:00Z".to_owned(), Shift::Repeated);
        assert_eq!(at("2026-04-05T01:45:00"), repeated);
        assert_eq!(at("2026-04-05T02:00:00"), ("2026-04-04T15:30:00Z".to_owned(), Shift::None));
    }

    #[test]
    fn changes_are_counted() {
        let letters: Vec<char> = "kitten".chars().collect();
        assert_eq!(changes(&letters, "sitting"), 3);
        assert_eq!(changes(&letters, ""), 6);
        assert_eq!(changes(&[], "abc"), 3);
    }
}
