//! Limits of tasks as a worker in any language writes them down.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::{ErrorKind, Limit};
use windlass_core::lane::{Bound, Breaker, Debounce, Rate};
use windlass_core::{LimitScope, WhenFull};

use super::millis;
use crate::problem::Problem;

/// What bounds tasks with the same key. It has one of `slots`, `rate`, `debounce` and `breaker`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = Limit)]
pub(crate) struct LimitBody {
    /// How many may be under way at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100_000)]
    slots: Option<u32>,
    /// How many may begin in a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<RateBody>,
    /// Lets only the last of those go on that come soon behind each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    debounce: Option<DebounceBody>,
    /// Lets nothing be tried for a while where too much has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    breaker: Option<BreakerBody>,
    /// The field of the input that is the key, behind dots if it lies deeper; one lane for all
    /// if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    field: Option<String>,
    /// Its name, if it is to be shared with other tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 600)]
    name: Option<String>,
    /// What becomes of a task that finds no room.
    when_full: FullWord,
    /// Whether all tenants share the lanes.
    is_across_tenants: bool,
    /// Whether a task that failed for good keeps its slots until someone sees to it.
    halts: bool,
    /// Whether tasks with the same key go to the same worker.
    is_owned: bool,
}

/// How many may begin in a time, evenly.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Rate)]
pub(crate) struct RateBody {
    /// How many.
    #[schema(minimum = 1, maximum = 1_000_000)]
    count: u32,
    /// In which time.
    #[schema(minimum = 1, maximum = 31_622_400_000u64)]
    per_ms: u64,
    /// How many may begin at once after a pause; 1 if nothing is said.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000_000)]
    burst: Option<u32>,
}

/// Lets only the last of those go on that come soon behind each other.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Debounce)]
pub(crate) struct DebounceBody {
    /// How long nobody else must have come.
    #[schema(minimum = 1, maximum = 31_622_400_000u64)]
    quiet_ms: u64,
    /// How long the first of them is put off at most; as long as a limit can say if nothing is
    /// said.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 31_622_400_000u64)]
    at_most_ms: Option<u64>,
}

/// Lets nothing be tried for a while where too much has failed.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Breaker)]
pub(crate) struct BreakerBody {
    /// How much of a hundred attempts may fail: so many or more are too much.
    #[schema(minimum = 1, maximum = 100)]
    percent: u32,
    /// How many attempts must have ended within the window before it is judged.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 100_000)]
    calls: Option<u32>,
    /// How long attempts are counted together.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 31_622_400_000u64)]
    window_ms: Option<u64>,
    /// How long nothing is tried.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 31_622_400_000u64)]
    pause_ms: Option<u64>,
}

/// What becomes of a task whose lane is full.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WhenFull)]
pub(crate) enum FullWord {
    /// It waits until there is room.
    #[default]
    Wait,
    /// It is skipped.
    Skip,
    /// It waits, and the run that came first of those in the lane is cancelled.
    CancelOldest,
}

impl LimitBody {
    pub(super) fn build(self, task: &str) -> Result<Limit, Problem> {
        let mut bounds = self.bounds();
        let mut limit = match (bounds.pop(), bounds.is_empty()) {
            (Some(limit), true) => limit,
            (Some(_) | None, _) => {
                let why = format!(
                    "task {task:?}: a limit has exactly one of slots, rate, debounce and breaker"
                );
                return Err(Problem::new(ErrorKind::Definition, why));
            }
        };
        limit.when_full = match self.when_full {
            FullWord::Wait => WhenFull::Wait,
            FullWord::Skip => WhenFull::Skip,
            FullWord::CancelOldest => WhenFull::CancelOldest,
        };
        limit.scope = match self.is_across_tenants {
            true => LimitScope::Everyone,
            false => LimitScope::Tenant,
        };
        limit.field = self.field;
        limit.name = self.name;
        limit.halts = self.halts;
        limit.is_owned = self.is_owned;
        Ok(limit)
    }

    /// A limit for each bound that was said.
    fn bounds(&self) -> Vec<Limit> {
        let ms = Duration::from_millis;
        let rate = self.rate.map(|rate| {
            let limit = Limit::rate(rate.count, ms(rate.per_ms));
            rate.burst.into_iter().fold(limit, Limit::burst)
        });
        let debounce = self.debounce.map(|debounce| {
            let limit = Limit::debounce(ms(debounce.quiet_ms));
            debounce.at_most_ms.map(ms).into_iter().fold(limit, Limit::at_most)
        });
        let breaker = self.breaker.map(|breaker| {
            let limit = Limit::breaker(breaker.percent);
            let limit = breaker.calls.into_iter().fold(limit, Limit::calls);
            let limit = breaker.window_ms.map(ms).into_iter().fold(limit, Limit::window);
            breaker.pause_ms.map(ms).into_iter().fold(limit, Limit::pause)
        });
        [self.slots.map(Limit::of), rate, debounce, breaker].into_iter().flatten().collect()
    }
}

impl From<Limit> for LimitBody {
    fn from(limit: Limit) -> Self {
        let mut body = LimitBody {
            field: limit.field,
            name: limit.name,
            when_full: match limit.when_full {
                WhenFull::Wait => FullWord::Wait,
                WhenFull::Skip => FullWord::Skip,
                WhenFull::CancelOldest => FullWord::CancelOldest,
            },
            is_across_tenants: limit.scope == LimitScope::Everyone,
            halts: limit.halts,
            is_owned: limit.is_owned,
            ..LimitBody::default()
        };
        match limit.bound {
            Bound::Slots(slots) => body.slots = Some(slots),
            Bound::Rate(Rate { count, per, burst }) => {
                body.rate = Some(RateBody { count, per_ms: millis(per), burst: Some(burst) });
            }
            Bound::Debounce(Debounce { quiet, at_most }) => {
                let (quiet_ms, at_most_ms) = (millis(quiet), Some(millis(at_most)));
                body.debounce = Some(DebounceBody { quiet_ms, at_most_ms });
            }
            Bound::Breaker(Breaker { percent, calls, window, pause }) => {
                let (window_ms, pause_ms) = (Some(millis(window)), Some(millis(pause)));
                let calls = Some(calls);
                body.breaker = Some(BreakerBody { percent, calls, window_ms, pause_ms });
            }
        }
        body
    }
}
