//! What fires now: the one decision of schedules.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::cadence::Cadence;
use super::mix;
use crate::name::{ScheduleName, Tenant};
use crate::retry::WAIT_MAX;
use crate::time::Timestamp;

/// The most nominal times that were missed and run after all.
pub const MISSED_MAX: u32 = 1_000;

/// The longest jitter: a day.
pub const JITTER_MAX: Duration = Duration::from_secs(86_400);

/// How late a nominal time may be served and is not missed, if nothing else is said: longer than
/// it takes another process to do the duty of one that died.
pub const GRACE: Duration = Duration::from_secs(60);

/// The shortest grace: below it, the moments that it takes to serve a time would make it missed.
pub const GRACE_MIN: Duration = Duration::from_secs(1);

/// The most nominal times that one decision looks at; those behind them wait for the next.
pub const LOOK_MAX: usize = 10_000;
const _: () = assert!(LOOK_MAX > MISSED_MAX as usize);

/// What is done with nominal times that nobody served in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// They are skipped.
    #[default]
    Skip,
    /// The last of them runs.
    Once,
    /// The last so many of them run.
    All(u32),
}

/// What is done at a nominal time while a run of the schedule is not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// The next one starts beside it.
    #[default]
    Allow,
    /// The nominal time is skipped.
    Skip,
    /// It waits for that run to end, if none waits already; then it is skipped.
    Queue,
    /// The run that is not over is cancelled.
    CancelRunning,
}

/// What is done at one nominal time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its run starts.
    Start,
    /// It is skipped.
    Skip,
    /// It waits.
    Queue,
    /// What is under way is cancelled, and its run starts.
    CancelAndStart,
}

impl Overlap {
    /// Every policy.
    pub const ALL: [Overlap; 4] =
        [Overlap::Allow, Overlap::Skip, Overlap::Queue, Overlap::CancelRunning];

    /// Its name in stored data and in what people write.
    pub const fn word(self) -> &'static str {
        match self {
            Overlap::Allow => "allow",
            Overlap::Skip => "skip",
            Overlap::Queue => "queue",
            Overlap::CancelRunning => "cancel",
        }
    }

    /// What is done at a nominal time.
    pub fn verdict(self, is_under_way: bool, has_queued: bool) -> Verdict {
        match self {
            Overlap::Allow => Verdict::Start,
            Overlap::Skip if is_under_way => Verdict::Skip,
            // One that waits goes first.
            Overlap::Queue if has_queued => Verdict::Skip,
            Overlap::Queue if is_under_way => Verdict::Queue,
            Overlap::CancelRunning if is_under_way => Verdict::CancelAndStart,
            Overlap::Skip | Overlap::Queue | Overlap::CancelRunning => Verdict::Start,
        }
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Overlap {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Overlap::ALL.into_iter().find(|overlap| overlap.word() == word);
        found.ok_or_else(|| format!("overlap {word:?} is not allow, skip, queue or cancel"))
    }
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missed::Skip => f.pad("skip"),
            Missed::Once => f.pad("once"),
            Missed::All(limit) => write!(f, "all:{limit}"),
        }
    }
}

impl FromStr for Missed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let limit = text.strip_prefix("all:").and_then(|limit| limit.parse().ok());
        match (text, limit) {
            ("skip", _) => Ok(Missed::Skip),
            ("once", _) => Ok(Missed::Once),
            (_, Some(limit)) => Ok(Missed::All(limit)),
            (_, None) => Err(format!("missed {text:?} is not skip, once or all:NUMBER")),
        }
    }
}

/// When a schedule fires, and what it does with times that are late or come too early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The nominal times.
    pub cadence: Cadence,
    /// None before this counts.
    pub starts_at: Option<Timestamp>,
    /// None behind this counts.
    pub ends_at: Option<Timestamp>,
    /// Up to how much later than its nominal time each is served; how much is always the same for
    /// a schedule's tenant and name and a nominal time.
    pub jitter: Duration,
    /// How late a time may be served and is not missed.
    pub grace: Duration,
    /// What is done with those that are.
    pub missed: Missed,
    /// What is done while a run is not over.
    pub overlap: Overlap,
}

/// Why a schedule cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimingError {
    /// It ends before it starts.
    #[error("it ends at {ends_at}, before it starts at {starts_at}")]
    EndsFirst {
        /// When it starts.
        starts_at: Timestamp,
        /// When it ends.
        ends_at: Timestamp,
    },
    /// No nominal time is between its start and its end.
    #[error("{0} never comes between its start and its end")]
    Never(String),
    /// The jitter is over the limit.
    #[error("a jitter of {0:?} is over the limit of {JITTER_MAX:?}")]
    Jitter(Duration),
    /// The grace is over the limit.
    #[error("a grace of {0:?} is over the limit of {WAIT_MAX:?}")]
    Grace(Duration),
    /// The grace is shorter than [`GRACE_MIN`].
    #[error("a grace of {0:?} is shorter than {GRACE_MIN:?}: every time would be missed")]
    GraceShort(Duration),
    /// More missed times are to run than may.
    #[error("{0} missed times are not within 1 to {MISSED_MAX}")]
    Missed(u32),
}

/// From what it follows how much later the times of a schedule are served: those of different
/// schedules, also of one name of different tenants, are served apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitterSeed(u64);

impl JitterSeed {
    /// That of a schedule.
    pub fn of(tenant: &Tenant, name: &ScheduleName) -> Self {
        // No name has a zero byte: where the one ends and the other begins is certain.
        let bytes = tenant.as_str().bytes().chain([0]).chain(name.as_str().bytes());
        JitterSeed(bytes.fold(0, |state, byte| mix(state ^ u64::from(byte))))
    }
}

/// Nominal times that were missed and do not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The first of them.
    pub first: Timestamp,
    /// The last of them.
    pub last: Timestamp,
    /// How many they are.
    pub count: usize,
}

/// What is to be done for a schedule at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// What was missed, before all that fires.
    pub skipped: Option<Skipped>,
    /// What fires, in order.
    pub fires: Vec<Timestamp>,
    /// The first nominal time that is not decided; it may be due as well.
    pub next: Option<Timestamp>,
}

impl Timing {
    /// A cadence with nothing else said.
    pub fn new(cadence: Cadence) -> Self {
        Timing {
            cadence,
            starts_at: None,
            ends_at: None,
            jitter: Duration::ZERO,
            grace: GRACE,
            missed: Missed::default(),
            overlap: Overlap::default(),
        }
    }

    /// Checks what the types do not.
    pub fn check(&self) -> Result<(), TimingError> {
        if let (Some(starts_at), Some(ends_at)) = (self.starts_at, self.ends_at)
            && ends_at < starts_at
        {
            return Err(TimingError::EndsFirst { starts_at, ends_at });
        }
        if self.jitter > JITTER_MAX {
            return Err(TimingError::Jitter(self.jitter));
        }
        if self.grace > WAIT_MAX {
            return Err(TimingError::Grace(self.grace));
        }
        if self.grace < GRACE_MIN {
            return Err(TimingError::GraceShort(self.grace));
        }
        match self.missed {
            Missed::All(limit) if !(1..=MISSED_MAX).contains(&limit) => {
                return Err(TimingError::Missed(limit));
            }
            Missed::All(_) | Missed::Skip | Missed::Once => {}
        }
        if self.next_after(Timestamp::from_micros(0)).is_none() {
            return Err(TimingError::Never(self.cadence.to_string()));
        }
        Ok(())
    }

    /// Whether its nominal times are those of another.
    pub fn has_times_of(&self, other: &Timing) -> bool {
        let times = |timing: &Timing| (timing.starts_at, timing.ends_at);
        self.cadence == other.cadence && times(self) == times(other)
    }

    /// The first nominal time behind this one, within start and end.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let just_before = |at: Timestamp| Timestamp::from_micros(at.as_micros().saturating_sub(1));
        let after = self.starts_at.map_or(after, |at| after.max(just_before(at)));
        let next = self.cadence.next_after(after)?;
        Some(next).filter(|next| self.ends_at.is_none_or(|end| *next <= end))
    }

    /// When a nominal time is served.
    pub fn due_at(&self, seed: JitterSeed, nominal: Timestamp) -> Timestamp {
        let most = u64::try_from(self.jitter.as_micros()).unwrap_or(u64::MAX);
        let number = mix(seed.0 ^ nominal.as_micros().cast_unsigned());
        nominal + Duration::from_micros(number.checked_rem(most.saturating_add(1)).unwrap_or(0))
    }

    /// The nominal times from `next` on that have come by now, however many of an interval, and at
    /// most [`LOOK_MAX`] of a cron expression.
    pub fn come(&self, next: Timestamp, now: Timestamp) -> Option<Skipped> {
        if let Some(skipped) = self.leap(next, now + Duration::from_micros(1), 0) {
            return Some(skipped);
        }
        let times = std::iter::successors(Some(next), |at| self.next_after(*at));
        let times = times.take_while(|at| *at <= now).take(LOOK_MAX);
        let (last, count) = times.fold((None, 0), |(_, count), at| (Some(at), count + 1));
        last.map(|last| Skipped { first: next, last, count })
    }

    /// The nominal times of an interval from `next` on that are before a time, but for the last
    /// `kept` of them: computed, as they may be very many. None of any other cadence.
    fn leap(&self, next: Timestamp, before: Timestamp, kept: usize) -> Option<Skipped> {
        let step = match &self.cadence {
            Cadence::Every { interval, .. } => i64::try_from(interval.as_micros()).ok()?,
            Cadence::Cron { .. } | Cadence::Once(_) => return None,
        };
        let first = next.as_micros();
        let end = self.ends_at.map_or(i64::MAX, |end| end.as_micros().saturating_add(1));
        let span = before.as_micros().min(end).checked_sub(first).filter(|span| *span > 0)?;
        let all = (span - 1) / step + 1;
        let count = all.checked_sub(i64::try_from(kept).ok()?).filter(|count| *count > 0)?;
        let last = Timestamp::from_micros(first + (count - 1) * step);
        Some(Skipped { first: next, last, count: usize::try_from(count).ok()? })
    }

    /// What is to be done at a time for a schedule whose next nominal time is `next`, of which no
    /// more than `limit` fire now.
    pub fn due(&self, seed: JitterSeed, next: Timestamp, now: Timestamp, limit: usize) -> Due {
        let kept = match self.missed {
            Missed::Skip => 0,
            Missed::Once => 1,
            Missed::All(limit) => limit as usize,
        };
        let late = self.jitter + self.grace;
        let late = i64::try_from(late.as_micros()).unwrap_or(i64::MAX);
        let in_time = Timestamp::from_micros(now.as_micros().saturating_sub(late));
        let Some(leapt) = self.leap(next, in_time, kept) else {
            return self.due_near(seed, next, now, limit, kept);
        };
        let Some(next) = self.next_after(leapt.last) else {
            return Due { skipped: Some(leapt), fires: Vec::new(), next: None };
        };
        let near = self.due_near(seed, next, now, limit, kept);
        let skipped = near.skipped.map_or(leapt, |more| Skipped {
            first: leapt.first,
            last: more.last,
            count: leapt.count + more.count,
        });
        Due { skipped: Some(skipped), ..near }
    }

    /// The same by a look at each.
    fn due_near(
        &self,
        seed: JitterSeed,
        next: Timestamp,
        now: Timestamp,
        limit: usize,
        kept: usize,
    ) -> Due {
        let is_due = |at: &Timestamp| self.due_at(seed, *at) <= now;
        let follow = |at: &Timestamp| self.next_after(*at);
        let mut times = std::iter::successors(Some(next), follow).take_while(is_due);
        let mut fires: Vec<Timestamp> = times.by_ref().take(LOOK_MAX).collect();
        let has_more = times.next().is_some();
        let is_missed = |at: &Timestamp| *at + self.jitter + self.grace < now;
        let missed = fires.partition_point(is_missed);
        let late = fires.split_off(missed.saturating_sub(kept));
        let skipped = std::mem::replace(&mut fires, late);
        if has_more && missed == skipped.len() + fires.len() {
            // Which of them are the last is seen when those behind them are looked at.
            fires.truncate(0);
        }
        let undecided = match skipped.last() {
            Some(last) if fires.is_empty() => self.next_after(*last),
            Some(_) | None if fires.len() > limit => Some(fires[limit]),
            Some(_) | None => fires.last().map_or(Some(next), |last| self.next_after(*last)),
        };
        fires.truncate(limit);
        let skipped = skipped.first().zip(skipped.last()).map(|(first, last)| Skipped {
            first: *first,
            last: *last,
            count: skipped.len(),
        });
        Due { skipped, fires, next: undecided }
    }
}

#[cfg(test)]
mod tests;
