//! Limits as people write them down, and what makes no sense of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::name::{LimitName, NAME_BYTES_MAX, NameError};

/// The most slots of a lane.
pub const SLOTS_MAX: u32 = 100_000;

/// The most slots of a lane in which a newcomer takes the place of the oldest.
pub const RIVALS_MAX: u32 = 1_000;

/// The most tokens that a rate gives in its time, and that it saves up.
pub const TOKENS_MAX: u32 = 1_000_000;

/// The longest time that a limit is about: a rate's, a pause, a window. 366 days.
pub const LIMIT_TIME_MAX: Duration = Duration::from_secs(366 * 86_400);

/// The most attempts that a breaker wants to see before it judges.
pub const BREAKER_CALLS_MAX: u32 = 100_000;

/// What becomes of a task whose lane is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// It waits until there is room.
    #[default]
    Wait,
    /// It is skipped.
    Skip,
    /// It waits, and the run that came first of those in the lane is cancelled.
    CancelOldest,
}

impl WhenFull {
    fn is_default(&self) -> bool {
        *self == WhenFull::default()
    }
}

/// Whose tasks share the lanes of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// Each tenant has lanes of its own.
    #[default]
    Tenant,
    /// All tenants share the lanes.
    Everyone,
}

impl LimitScope {
    fn is_default(&self) -> bool {
        *self == LimitScope::default()
    }
}

/// What a limit bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// How many are under way at once.
    Slots(u32),
    /// How many become ready in a time.
    Rate(Rate),
    /// Only the last of those that come soon behind each other goes on.
    Debounce(Debounce),
    /// Nothing is tried for a while where too much has failed.
    Breaker(Breaker),
}

/// How many become ready in a time: a bucket of tokens that fills evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rate {
    /// How many tokens come in that time.
    pub count: u32,
    /// The time.
    pub per: Duration,
    /// How many tokens are saved up at most.
    pub burst: u32,
}

/// Only the last of those that come soon behind each other goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Debounce {
    /// How long nobody else must have come.
    pub quiet: Duration,
    /// How long the first of them is put off at most, by whoever comes behind it.
    pub at_most: Duration,
}

/// Nothing is tried for a while where too much has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Breaker {
    /// How much of a hundred attempts may fail: so many or more are too much.
    pub percent: u32,
    /// How many attempts must have ended within the window before it is judged.
    pub calls: u32,
    /// How long attempts are counted together.
    pub window: Duration,
    /// How long nothing is tried.
    pub pause: Duration,
}

/// A limit as someone wrote it down.
///
/// ```
/// use std::time::Duration;
/// use windlass_core::{Limit, WhenFull};
///
/// // One at a time and in order for each value of the input's field `customer`.
/// let stream = Limit::per("customer", 1);
/// // Twenty at once for each provider, whoever's and in whatever workflow.
/// let provider = Limit::per("payment.provider", 20).named("provider").across_tenants();
/// // One at once of all; who comes meanwhile is skipped.
/// let only = Limit::of(1).when_full(WhenFull::Skip);
/// // A hundred a minute for each provider, evenly, but for ten at once after a pause.
/// let rate = Limit::rate(100, Duration::from_secs(60)).by("provider").burst(10);
/// // Once nobody has touched the document for five seconds, but every minute at least.
/// let save = Limit::debounce(Duration::from_secs(5)).by("document").at_most(Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Its name, if it is to be shared with other tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The field of the input that is the key, behind dots if it lies deeper; one lane for
    /// all if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What it bounds.
    #[serde(flatten)]
    pub bound: Bound,
    /// What becomes of a task that finds no room.
    #[serde(default, skip_serializing_if = "WhenFull::is_default")]
    pub when_full: WhenFull,
    /// Whose tasks share the lanes.
    #[serde(default, skip_serializing_if = "LimitScope::is_default")]
    pub scope: LimitScope,
    /// Whether a task that failed for good keeps its slots until someone sees to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub halts: bool,
    /// Whether tasks with the same key go to the same worker.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_owned: bool,
    /// What was said of it that only limits of another kind have.
    #[serde(skip)]
    misfit: Option<&'static str>,
}

impl Limit {
    fn new(bound: Bound) -> Self {
        let (when_full, scope) = (WhenFull::default(), LimitScope::default());
        Limit {
            name: None,
            field: None,
            bound,
            when_full,
            scope,
            halts: false,
            is_owned: false,
            misfit: None,
        }
    }

    /// At most so many at once for each value of a field of the input, such as `customer` or
    /// `order.customer.id`: [`Limit::of`] so many, [by](Limit::by) the field.
    pub fn per(field: impl Into<String>, slots: u32) -> Self {
        Limit::of(slots).by(field)
    }

    /// At most so many at once of all.
    pub fn of(slots: u32) -> Self {
        Limit::new(Bound::Slots(slots))
    }

    /// So many in a time, evenly: one `per / count` after the other, and each attempt is one.
    pub fn rate(count: u32, per: Duration) -> Self {
        Limit::new(Bound::Rate(Rate { count, per, burst: 1 }))
    }

    /// Only the last of those that come less than `quiet` behind each other: it goes on when
    /// nobody has come for so long, and the runs of those before it are cancelled.
    pub fn debounce(quiet: Duration) -> Self {
        Limit::new(Bound::Debounce(Debounce { quiet, at_most: LIMIT_TIME_MAX }))
    }

    /// Nothing while too much fails: once `percent` of a hundred attempts or more have failed,
    /// of at least ten within a minute, nothing is tried for a minute, then one, and if that
    /// succeeds, all. [`window`](Limit::window), [`calls`](Limit::calls) and
    /// [`pause`](Limit::pause) say otherwise.
    pub fn breaker(percent: u32) -> Self {
        let minute = Duration::from_secs(60);
        Limit::new(Bound::Breaker(Breaker { percent, calls: 10, window: minute, pause: minute }))
    }

    /// Makes it one for each value of a field of the input, such as `customer` or
    /// `order.customer.id`. What has no such field, or something there that is neither text,
    /// number nor truth, is not limited.
    #[must_use]
    pub fn by(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// How many tokens a rate saves up while nobody comes, for as many to begin at once. One if
    /// nothing is said.
    #[must_use]
    pub fn burst(mut self, tokens: u32) -> Self {
        if let Bound::Rate(rate) = &mut self.bound {
            rate.burst = tokens;
        } else {
            self.misfit = Some("has a burst, and is no rate");
        }
        self
    }

    /// How long a debounce puts off the first of those that come behind each other, at most.
    #[must_use]
    pub fn at_most(mut self, time: Duration) -> Self {
        if let Bound::Debounce(debounce) = &mut self.bound {
            debounce.at_most = time;
        } else {
            self.misfit = Some("has a longest wait, and is no debounce");
        }
        self
    }

    /// How long a breaker counts attempts together.
    #[must_use]
    pub fn window(mut self, time: Duration) -> Self {
        if let Bound::Breaker(breaker) = &mut self.bound {
            breaker.window = time;
        } else {
            self.misfit = Some("has a window, and is no breaker");
        }
        self
    }

    /// How many attempts must have ended within the window before a breaker judges.
    #[must_use]
    pub fn calls(mut self, calls: u32) -> Self {
        if let Bound::Breaker(breaker) = &mut self.bound {
            breaker.calls = calls;
        } else {
            self.misfit = Some("has calls, and is no breaker");
        }
        self
    }

    /// How long a breaker lets nothing be tried once too much has failed.
    #[must_use]
    pub fn pause(mut self, time: Duration) -> Self {
        if let Bound::Breaker(breaker) = &mut self.bound {
            breaker.pause = time;
        } else {
            self.misfit = Some("has a pause, and is no breaker");
        }
        self
    }

    /// Gives it a name: all tasks with a limit of this name, of whatever workflow, share its
    /// lanes. Without a name, only tasks of the same name and workflow do.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Lets all tenants share the lanes; otherwise each has lanes of its own.
    #[must_use]
    pub fn across_tenants(mut self) -> Self {
        self.scope = LimitScope::Everyone;
        self
    }

    /// What becomes of a task that finds its lane full; it waits if nothing is said.
    #[must_use]
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Lets a task that failed for good keep its slots, so that nobody behind it goes on before
    /// its run was retried, or its dead letter discarded.
    #[must_use]
    pub fn halt(mut self) -> Self {
        self.halts = true;
        self
    }

    /// Lets tasks with the same key go to the same worker for as long as it lives, so that it may
    /// keep in memory what belongs to the key. Order and limits do not depend on it: while keys
    /// move, because a worker came or went, two workers may have tasks of one key behind each
    /// other, and never more at once than the limit says.
    ///
    /// Only one limit of a task can be owned, and it needs a field: keys are what is owned.
    #[must_use]
    pub fn owned(mut self) -> Self {
        self.is_owned = true;
        self
    }

    pub(crate) fn check(&self, workflow: &str, task: &str) -> Result<LaneLimit, LimitError> {
        let Limit { field, bound, when_full, scope, halts, is_owned, .. } = self.clone();
        let name = self.name.clone().unwrap_or_else(|| {
            let kind = bound.suffix();
            match &field {
                Some(field) => format!("{workflow}/{task}/{field}{kind}"),
                None => format!("{workflow}/{task}{kind}"),
            }
        });
        if let Some(problem) = bound.problem() {
            return Err(LimitError::Bound { name, problem });
        }
        if let Some(field) = &field
            && (field.len() > NAME_BYTES_MAX || field.split('.').any(str::is_empty))
        {
            return Err(LimitError::Field { name, field: field.clone() });
        }
        if let Some(problem) = self.contradiction() {
            return Err(LimitError::Contradiction { name, problem });
        }
        let name = LimitName::new(name).map_err(LimitError::Name)?;
        Ok(LaneLimit { name, field, bound, when_full, scope, halts, is_owned })
    }

    /// What of it does not go together.
    fn contradiction(&self) -> Option<&'static str> {
        if self.misfit.is_some() {
            return self.misfit;
        }
        if self.is_owned && self.field.is_none() {
            return Some("is owned, and has no field whose values could be");
        }
        match (self.bound, self.when_full) {
            (Bound::Slots(slots), WhenFull::CancelOldest) if slots > RIVALS_MAX => {
                Some("has too many slots to cancel the oldest")
            }
            (Bound::Rate(_) | Bound::Breaker(_) | Bound::Debounce(_), WhenFull::CancelOldest) => {
                Some("has no slots, so none that the oldest could give up")
            }
            (Bound::Debounce(_), WhenFull::Skip) => Some("is a debounce, which is never full"),
            (Bound::Rate(_) | Bound::Breaker(_) | Bound::Debounce(_), _) if self.halts => {
                Some("has no slots, so none that a failed task could keep")
            }
            (Bound::Slots(_) | Bound::Rate(_) | Bound::Debounce(_) | Bound::Breaker(_), _) => None,
        }
    }
}

impl Bound {
    /// What tells limits of one field apart that have no names.
    fn suffix(self) -> &'static str {
        match self {
            Bound::Slots(_) => "",
            Bound::Rate(_) => ":rate",
            Bound::Debounce(_) => ":debounce",
            Bound::Breaker(_) => ":breaker",
        }
    }

    /// In which order a task asks: whoever is put off has no slot yet, and nobody takes a token
    /// that is then waited with.
    pub(super) fn rank(self) -> u8 {
        match self {
            Bound::Debounce(_) => 0,
            Bound::Slots(_) => 1,
            Bound::Breaker(_) => 2,
            Bound::Rate(_) => 3,
        }
    }

    fn problem(self) -> Option<String> {
        let number = |what: &str, number: u32, most: u32| {
            let is_wrong = !(1..=most).contains(&number);
            is_wrong.then(|| format!("has {number} {what}, not within 1 to {most}"))
        };
        let time = |what: &str, time: Duration| {
            let is_wrong = time < Duration::from_millis(1) || time > LIMIT_TIME_MAX;
            let most = LIMIT_TIME_MAX.as_secs() / 86_400;
            is_wrong.then(|| format!("has {what} of {time:?}, not within 1ms to {most} days"))
        };
        match self {
            Bound::Slots(slots) => number("slots", slots, SLOTS_MAX),
            Bound::Rate(Rate { count, per, burst }) => number("tokens", count, TOKENS_MAX)
                .or_else(|| number("tokens at once", burst, TOKENS_MAX))
                .or_else(|| time("a time", per)),
            Bound::Debounce(Debounce { quiet, at_most }) => {
                time("a quiet", quiet).or_else(|| time("a longest wait", at_most)).or_else(|| {
                    let text = format!("has a quiet of {quiet:?}, longer than {at_most:?} at most");
                    (at_most < quiet).then_some(text)
                })
            }
            Bound::Breaker(Breaker { percent, calls, window, pause }) => {
                number("percent", percent, 100)
                    .or_else(|| number("calls", calls, BREAKER_CALLS_MAX))
                    .or_else(|| time("a window", window))
                    .or_else(|| time("a pause", pause))
            }
        }
    }
}

/// A limit that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// Its name cannot be used.
    #[error(transparent)]
    Name(NameError),
    /// A number or a time of it is too small or too large.
    #[error("limit {name:?} {problem}")]
    Bound {
        /// The limit.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// Two things that were said of it do not go together.
    #[error("limit {name:?} {problem}")]
    Contradiction {
        /// The limit.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// No field can be called so.
    #[error(
        "limit {name:?} is by {field:?}, which is no field: names between dots, \
         {NAME_BYTES_MAX} bytes at most"
    )]
    Field {
        /// The limit.
        name: String,
        /// What was given.
        field: String,
    },
}

/// A limit of a task that passed every check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneLimit {
    /// Its name: limits of one name share their lanes.
    pub name: LimitName,
    /// The field of the input that is the key.
    pub field: Option<String>,
    /// What it bounds.
    #[serde(flatten)]
    pub bound: Bound,
    /// What becomes of a task that finds no room.
    pub when_full: WhenFull,
    /// Whose tasks share the lanes.
    pub scope: LimitScope,
    /// Whether a task that failed for good keeps its slots.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub halts: bool,
    /// Whether tasks with the same key go to the same worker.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_owned: bool,
}

impl LaneLimit {
    /// The limit as someone would write it down.
    pub fn to_draft(&self) -> Limit {
        let LaneLimit { name, field, bound, when_full, scope, halts, is_owned } = self.clone();
        let name = Some(name.as_str().to_owned());
        Limit { name, field, bound, when_full, scope, halts, is_owned, misfit: None }
    }
}
