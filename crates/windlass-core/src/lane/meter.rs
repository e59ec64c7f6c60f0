//! What a lane remembers besides who is in it: tokens, a quiet, failures.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limit::{Bound, Breaker, Debounce, Rate};
use crate::time::Timestamp;

/// What a lane remembers besides who is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meter {
    /// When the bucket of a rate is full again.
    Full(Timestamp),
    /// A debounce that waits for quiet.
    Quiet {
        /// When the first came whom others have put off.
        since: Timestamp,
        /// When it is over.
        until: Timestamp,
    },
    /// A breaker that counts attempts.
    Counting {
        /// Until when they are counted together.
        until: Timestamp,
        /// How many have ended.
        calls: u32,
        /// How many of them have failed.
        failures: u32,
    },
    /// A breaker that lets nothing be tried.
    Open {
        /// Until when.
        until: Timestamp,
        /// When it may be forgotten, if nobody has come by then.
        forget: Timestamp,
    },
    /// A breaker that lets one try, and who that is by its place.
    Probing {
        /// The place.
        seq: u64,
        /// When it may be forgotten, once nobody is there.
        forget: Timestamp,
    },
}

impl Rate {
    /// How long one token takes to come. Rounded up: never more come than were said.
    fn interval(self) -> Duration {
        let micros = self.per.as_micros().div_ceil(u128::from(self.count.max(1)));
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// When there is a token for who comes first, if the bucket is full at that time.
    fn due(self, full: Timestamp) -> Timestamp {
        let saved = self.interval().saturating_mul(self.burst.saturating_sub(1));
        let saved = i64::try_from(saved.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(full.as_micros().saturating_sub(saved))
    }
}

impl Bound {
    /// When who is first in a lane may go on, as far as that is a matter of time: `None` if it is
    /// not.
    pub fn due(self, meter: Option<Meter>) -> Option<Timestamp> {
        due(meter, self)
    }
}

impl Rate {
    /// When there is a token for someone before whom so many wait.
    pub fn due_behind(self, meter: Option<Meter>, before: u64) -> Option<Timestamp> {
        let first = Bound::Rate(self).due(meter)?;
        let before = u32::try_from(before).unwrap_or(u32::MAX);
        Some(first + self.interval().saturating_mul(before))
    }
}

impl Meter {
    /// When what it remembers makes no difference any more, if nobody is in the lane. Never, if
    /// someone must be there.
    pub fn forget_at(self) -> Timestamp {
        match self {
            Meter::Full(at) => at,
            Meter::Quiet { until, .. } | Meter::Counting { until, .. } => until,
            Meter::Open { forget, .. } | Meter::Probing { forget, .. } => forget,
        }
    }
}

/// When who is first in a lane may go on, as far as that is a matter of time: `None` if it is not.
pub(super) fn due(meter: Option<Meter>, bound: Bound) -> Option<Timestamp> {
    let long_ago = Timestamp::from_micros(0);
    match (bound, meter) {
        (Bound::Slots(_), _) => None,
        (Bound::Rate(rate), Some(Meter::Full(full))) => Some(rate.due(full)),
        (Bound::Debounce(_), Some(Meter::Quiet { until, .. })) => Some(until),
        (Bound::Breaker(_), Some(Meter::Open { until, .. })) => Some(until),
        (Bound::Breaker(_), Some(Meter::Probing { .. })) => None,
        // What limits of another kind left here says nothing.
        (Bound::Rate(_) | Bound::Debounce(_) | Bound::Breaker(_), _) => Some(long_ago),
    }
}

/// What a lane remembers when someone with this place goes on.
pub(super) fn pass(meter: Option<Meter>, bound: Bound, seq: u64, now: Timestamp) -> Option<Meter> {
    match (bound, meter) {
        (Bound::Slots(_), meter) => meter,
        (Bound::Rate(rate), meter) => {
            let full = if let Some(Meter::Full(full)) = meter { full.max(now) } else { now };
            Some(Meter::Full(full + rate.interval()))
        }
        (Bound::Debounce(_), _) => None,
        (Bound::Breaker(_), Some(Meter::Open { forget, .. })) => {
            Some(Meter::Probing { seq, forget })
        }
        (Bound::Breaker(_), meter) => meter,
    }
}

/// What a debounce remembers when someone comes, who puts off whoever came before.
pub(super) fn put_off(
    meter: Option<Meter>,
    debounce: Debounce,
    is_first: bool,
    now: Timestamp,
) -> Meter {
    // What limits of another kind left here says nothing.
    let began = if let Some(Meter::Quiet { since, .. }) = meter { since } else { now };
    let since = if is_first { now } else { began };
    Meter::Quiet { since, until: (now + debounce.quiet).min(since + debounce.at_most) }
}

/// What a breaker remembers when an attempt has ended of someone with this place.
pub(super) fn count(
    meter: Option<Meter>,
    breaker: Breaker,
    seq: u64,
    is_failure: bool,
    now: Timestamp,
) -> Option<Meter> {
    let open = || {
        let until = now + breaker.pause;
        Some(Meter::Open { until, forget: until + breaker.window })
    };
    let (until, calls, failures) = match meter {
        Some(Meter::Counting { until, calls, failures }) if now < until => (until, calls, failures),
        Some(Meter::Probing { seq: probe, .. }) if probe == seq && is_failure => return open(),
        Some(Meter::Probing { seq: probe, .. }) if probe == seq => return None,
        // Attempts that began before nothing was tried any more say nothing new.
        Some(Meter::Open { .. } | Meter::Probing { .. }) => return meter,
        Some(Meter::Counting { .. } | Meter::Full(_) | Meter::Quiet { .. }) | None => {
            (now + breaker.window, 0, 0)
        }
    };
    let (calls, failures) = (calls + 1, failures + u32::from(is_failure));
    let is_too_much = u64::from(failures) * 100 >= u64::from(breaker.percent) * u64::from(calls);
    if calls >= breaker.calls && is_too_much && is_failure {
        return open();
    }
    Some(Meter::Counting { until, calls, failures })
}

/// What a lane remembers when someone with this place has left without having said anything.
pub(super) fn leave(meter: Option<Meter>, seq: u64) -> Option<Meter> {
    match meter {
        Some(Meter::Probing { seq: probe, forget }) if probe == seq => {
            Some(Meter::Open { until: Timestamp::from_micros(0), forget })
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_probe_closes_a_breaker_or_opens_it_again() {
        let second = Duration::from_secs(1);
        let breaker = Breaker { percent: 50, calls: 2, window: second, pause: second };
        let now = Timestamp::from_micros(0);
        let probing = Some(Meter::Probing { seq: 7, forget: now + second });
        for is_failure in [true, false] {
            assert_eq!(count(probing, breaker, 6, is_failure, now), probing);
        }
        let open = Meter::Open { until: now + second, forget: now + 2 * second };
        assert_eq!(count(probing, breaker, 7, true, now), Some(open));
        assert_eq!(count(probing, breaker, 7, false, now), None);
    }

    #[test]
    fn a_debounce_whose_waiter_left_begins_again_with_the_next() {
        let second = Duration::from_secs(1);
        let debounce = Debounce { quiet: 2 * second, at_most: 3 * second };
        let now = Timestamp::from_micros(0);
        let at = now + 2 * second;
        let before = Some(put_off(None, debounce, true, now));
        let first = put_off(before, debounce, true, at);
        assert_eq!(first, Meter::Quiet { since: at, until: at + 2 * second });
        let second_one = put_off(before, debounce, false, at);
        assert_eq!(second_one, Meter::Quiet { since: now, until: now + 3 * second });
    }

    #[test]
    fn a_breaker_opens_with_a_failure_and_forgets_when_its_window_ends() {
        let second = Duration::from_secs(1);
        let breaker = Breaker { percent: 50, calls: 2, window: second, pause: second };
        let now = Timestamp::from_micros(0);
        let counting =
            |calls, failures| Some(Meter::Counting { until: now + second, calls, failures });
        assert_eq!(count(counting(1, 1), breaker, 2, false, now), counting(2, 1));
        let open = Meter::Open { until: now + second, forget: now + 2 * second };
        assert_eq!(count(counting(2, 1), breaker, 3, true, now), Some(open));
        let end = now + second;
        let next = Meter::Counting { until: end + second, calls: 1, failures: 1 };
        assert_eq!(count(counting(1, 1), breaker, 2, true, end), Some(next));
    }
}
