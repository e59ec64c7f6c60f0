//! When a schedule fires: by a cron expression, by an interval, or once.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cron::{Cron, CronError};
use super::zone::{Shift, Zone, ZoneError};
use crate::retry::WAIT_MAX;
use crate::time::Timestamp;

/// The shortest interval: below it, a queue of its own is the better tool.
pub const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The times at which a schedule fires, each of which is a *nominal* time.
///
/// The next one follows from the one before, never from when that was served: there is no drift.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub enum Cadence {
    /// When the clocks of a zone show what a cron expression names. A time that they skip comes
    /// at the shift, once however many were skipped; one that they show twice comes the first time.
    Cron {
        /// The expression.
        cron: Cron,
        /// The zone.
        zone: Zone,
    },
    /// At every multiple of an interval from an anchor on, before it as well.
    Every {
        /// The interval.
        interval: Duration,
        /// A time from which the multiples are counted.
        anchor: Timestamp,
    },
    /// Once, at this time.
    Once(Timestamp),
}

/// Why times cannot be those of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CadenceError {
    /// The cron expression is none.
    #[error(transparent)]
    Cron(#[from] CronError),
    /// The zone is not known.
    #[error(transparent)]
    Zone(#[from] ZoneError),
    /// The interval is shorter than [`INTERVAL_MIN`].
    #[error("an interval of {0:?} is shorter than {INTERVAL_MIN:?}")]
    TooShort(Duration),
    /// The interval is longer than [`WAIT_MAX`].
    #[error("an interval of {0:?} is longer than {WAIT_MAX:?}")]
    TooLong(Duration),
    /// The interval has a part that no clock shows.
    #[error("an interval of {0:?} is not of whole microseconds")]
    TooFine(Duration),
    /// Neither a cron expression, nor an interval, nor a time.
    #[error("a cadence is a cron expression, an interval or a time, and exactly one of them")]
    NotOne,
}

impl Cadence {
    /// When the clocks of a zone show what a cron expression names.
    ///
    /// ```
    /// use windlass_core::schedule::Cadence;
    /// use windlass_core::Timestamp;
    ///
    /// let nightly = Cadence::cron("0 2 * * *", "Europe/Berlin").unwrap();
    /// let first = nightly.next_after(Timestamp::from_micros(0)).unwrap();
    /// assert_eq!(first.to_string(), "1970-01-01T01:00:00Z");
    /// ```
    pub fn cron(expression: &str, zone: &str) -> Result<Self, CadenceError> {
        Ok(Cadence::Cron { cron: expression.parse()?, zone: zone.parse()? })
    }

    /// At every multiple of an interval since 1970, in universal time.
    pub fn every(interval: Duration) -> Result<Self, CadenceError> {
        Cadence::every_from(interval, Timestamp::from_micros(0))
    }

    /// At every multiple of an interval from an anchor on.
    pub fn every_from(interval: Duration, anchor: Timestamp) -> Result<Self, CadenceError> {
        if interval < INTERVAL_MIN {
            return Err(CadenceError::TooShort(interval));
        }
        if interval > WAIT_MAX {
            return Err(CadenceError::TooLong(interval));
        }
        if !interval.subsec_nanos().is_multiple_of(1_000) {
            return Err(CadenceError::TooFine(interval));
        }
        Ok(Cadence::Every { interval, anchor })
    }

    /// The first nominal time behind this one, if there is one.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        self.next_shifted(after).map(|(at, _)| at)
    }

    /// The first nominal time behind this one, and what the clocks do with it.
    pub fn next_shifted(&self, after: Timestamp) -> Option<(Timestamp, Shift)> {
        match self {
            Cadence::Cron { cron, zone } => next_of_cron(cron, zone, after),
            Cadence::Every { interval, anchor } => {
                let step = i128::try_from(interval.as_micros()).ok()?;
                let anchor = i128::from(anchor.as_micros());
                let passed = i128::from(after.as_micros()) - anchor;
                let next = anchor + (passed.div_euclid(step) + 1) * step;
                let next = i64::try_from(next).ok()?;
                Some((Timestamp::from_micros(next), Shift::None))
            }
            Cadence::Once(at) => (*at > after).then_some((*at, Shift::None)),
        }
    }
}

/// Later local times are never earlier: the first that is behind `after` is the next.
fn next_of_cron(cron: &Cron, zone: &Zone, after: Timestamp) -> Option<(Timestamp, Shift)> {
    let mut from = zone.local(after)?.checked_add(jiff::Span::new().seconds(1)).ok()?;
    loop {
        let local = cron.first_from(from)?;
        let (at, shift) = zone.instant(local)?;
        if at > after {
            return Some((at, shift));
        }
        // The clocks show for the second time what was served the first time.
        from = local.checked_add(jiff::Span::new().seconds(1)).ok()?;
    }
}

impl fmt::Display for Cadence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cadence::Cron { cron, zone } => write!(f, "{cron} in {zone}"),
            Cadence::Every { interval, anchor } if anchor.as_micros() == 0 => {
                write!(f, "every {interval:?}")
            }
            Cadence::Every { interval, anchor } => write!(f, "every {interval:?} from {anchor}"),
            Cadence::Once(at) => write!(f, "once at {at}"),
        }
    }
}

/// How a cadence is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every_micros: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    anchor: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    once: Option<Timestamp>,
}

impl From<Cadence> for Stored {
    fn from(cadence: Cadence) -> Self {
        let none = Stored { cron: None, zone: None, every_micros: None, anchor: None, once: None };
        match cadence {
            Cadence::Cron { cron, zone } => Stored {
                cron: Some(cron.as_str().to_owned()),
                zone: Some(zone.name().to_owned()),
                ..none
            },
            Cadence::Every { interval, anchor } => Stored {
                every_micros: u64::try_from(interval.as_micros()).ok(),
                anchor: Some(anchor),
                ..none
            },
            Cadence::Once(at) => Stored { once: Some(at), ..none },
        }
    }
}

impl TryFrom<Stored> for Cadence {
    type Error = CadenceError;

    fn try_from(stored: Stored) -> Result<Self, CadenceError> {
        match stored {
            Stored { cron: Some(cron), zone, every_micros: None, anchor: None, once: None } => {
                Cadence::cron(&cron, zone.as_deref().unwrap_or("UTC"))
            }
            Stored { cron: None, zone: None, every_micros: Some(micros), anchor, once: None } => {
                let anchor = anchor.unwrap_or(Timestamp::from_micros(0));
                Cadence::every_from(Duration::from_micros(micros), anchor)
            }
            Stored { cron: None, zone: None, every_micros: None, anchor: None, once: Some(at) } => {
                Ok(Cadence::Once(at))
            }
            Stored { .. } => Err(CadenceError::NotOne),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let at: jiff::Timestamp = text.parse().expect("it is a time");
        Timestamp::from_micros(at.as_microsecond())
    }

    fn fires(cadence: &Cadence, after: &str, count: usize) -> Vec<String> {
        let next = |at: &Timestamp| cadence.next_after(*at);
        let all = std::iter::successors(cadence.next_after(at(after)), next);
        all.take(count).map(|at| at.to_string()).collect()
    }

    #[test]
    fn a_time_that_is_skipped_comes_once_at_the_shift() {
        // From 02:00 to 03:00 on 29 March 2026.
        let berlin = |cron| Cadence::cron(cron, "Europe/Berlin").expect("it is a cadence");
        let nightly = fires(&berlin("30 2 * * *"), "2026-03-28T00:00:00Z", 3);
        let times = ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
        assert_eq!(nightly, times);
        // Four are skipped, and the shift is a nominal time as well.
        let quarters = fires(&berlin("*/15 * * * *"), "2026-03-29T00:30:00Z", 3);
        let times = ["2026-03-29T00:45:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:15:00Z"];
        assert_eq!(quarters, times);
    }

    #[test]
    fn a_time_that_is_repeated_comes_once() {
        // From 03:00 back to 02:00 on 25 October 2026.
        let berlin = |cron| Cadence::cron(cron, "Europe/Berlin").expect("it is a cadence");
        let nightly = fires(&berlin("30 2 * * *"), "2026-10-24T12:00:00Z", 2);
        assert_eq!(nightly, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
        let halves = fires(&berlin("*/30 * * * *"), "2026-10-25T00:00:00Z", 2);
        assert_eq!(halves, ["2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z"]);
        // From within the hour that the clocks show again, to the second.
        let seconds = berlin("* * * * * *").next_after(at("2026-10-25T01:10:00.5Z"));
        assert_eq!(seconds, Some(at("2026-10-25T02:00:00Z")));
    }

    #[test]
    fn intervals_follow_their_anchor_and_never_drift() {
        let second = Duration::from_secs(1);
        let cadence = Cadence::every_from(90 * second, at("2026-01-01T00:00:10Z"));
        let cadence = cadence.expect("it is a cadence");
        let times = ["2026-01-01T00:00:10Z", "2026-01-01T00:01:40Z", "2026-01-01T00:03:10Z"];
        assert_eq!(fires(&cadence, "2026-01-01T00:00:09.999999Z", 3), times);
        assert_eq!(fires(&cadence, "2025-12-31T23:58:00Z", 1), ["2025-12-31T23:58:40Z"]);
        assert_eq!(cadence.next_after(Timestamp::MAX), None);
    }

    #[test]
    fn once_is_once() {
        let cadence = Cadence::Once(at("2026-01-01T00:00:00Z"));
        assert_eq!(fires(&cadence, "2025-01-01T00:00:00Z", 5), ["2026-01-01T00:00:00Z"]);
        assert_eq!(cadence.next_after(at("2026-01-01T00:00:00Z")), None);
    }

    #[test]
    fn intervals_that_make_no_sense_are_refused() {
        let error = Cadence::every(Duration::from_millis(999)).expect_err("it is too short");
        assert_eq!(error.to_string(), "an interval of 999ms is shorter than 1s");
        assert!(Cadence::every(INTERVAL_MIN).is_ok());
        assert!(Cadence::every(WAIT_MAX).is_ok());
        assert!(Cadence::every(WAIT_MAX + INTERVAL_MIN).is_err());
        assert!(Cadence::every(Duration::new(1, 1)).is_err());
    }

    #[test]
    fn what_is_stored_is_read_back() {
        let all = [
            Cadence::cron("0 2 * * MON-FRI", "Europe/Berlin").expect("it is a cadence"),
            Cadence::every_from(Duration::from_secs(90), at("2026-01-01T00:00:10Z")).expect("too"),
            Cadence::Once(at("2026-01-01T00:00:00Z")),
        ];
        for cadence in all {
            let text = serde_json::to_string(&cadence).expect("it can be written");
            assert_eq!(serde_json::from_str::<Cadence>(&text).expect("it is ours"), cadence);
        }
        assert!(serde_json::from_str::<Cadence>(r#"{"cron":"0 2 * * *","once":1}"#).is_err());
        assert!(serde_json::from_str::<Cadence>("{}").is_err());
    }
}
