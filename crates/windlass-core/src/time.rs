//! Points in time with the resolution PostgreSQL has: a microsecond.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A point in time, in microseconds since 1970-01-01T00:00:00Z.
///
/// Arithmetic saturates: a due time that is "too far away" stays far away
/// instead of wrapping into the past.
///
/// ```
/// use std::time::Duration;
/// use windlass_core::Timestamp;
///
/// let start = Timestamp::from_micros(0);
/// let due = start + Duration::from_secs(90);
/// assert_eq!(due.to_string(), "1970-01-01T00:01:30Z");
/// assert_eq!(due.since(start), Duration::from_secs(90));
/// assert_eq!(start.since(due), Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The latest representable time; "never" for anything that waits for it.
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// The time `micros` microseconds after the Unix epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Timestamp(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The time that passed since `earlier`, zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        let micros = self.0.saturating_sub(earlier.0);
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, rest: Duration) -> Timestamp {
        let micros = i64::try_from(rest.as_micros()).unwrap_or(i64::MAX);
        Timestamp(self.0.saturating_add(micros))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp(0) + after,
            Err(before) => {
                let micros = i64::try_from(before.duration().as_micros()).unwrap_or(i64::MAX);
                Timestamp(-micros)
            }
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(timestamp) => write!(f, "{timestamp}"),
            // Outside the years -9999 to 9999 there is no calendar form.
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl std::str::FromStr for Timestamp {
    type Err = String;

    /// Reads a time with its distance from universal time, such as `2026-03-29T02:30:00Z`.
    fn from_str(text: &str) -> Result<Self, String> {
        let at: jiff::Timestamp = text
            .parse()
            .map_err(|_| format!("{text:?} is not a time such as 2026-03-29T02:30:00Z"))?;
        Ok(Timestamp(at.as_microsecond()))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_is_too_large_stays_in_the_future() {
        let now = Timestamp::from_micros(1_000_000);
        assert_eq!(now + Duration::MAX, Timestamp::MAX);
        assert_eq!(Timestamp::MAX.to_string(), "9223372036854775807us");
    }

    #[test]
    fn system_times_before_the_epoch_are_negative() {
        let before = UNIX_EPOCH - Duration::from_micros(7);
        assert_eq!(Timestamp::from(before).as_micros(), -7);
    }
}
