//! Limits: how many tasks with the same key are under way at once, or become ready in a time.
//!
//! A task definition has any number of limits. Each has lanes, one for every key that inputs
//! have. A task takes a place in its lane of each limit before it becomes ready, one limit after
//! the other in an order that is the same for all: by what they bound, then by their names. It keeps its places until it has ended: through
//! retries, backoffs, sleeps and waits. That all who wait take them in one order is why no two
//! tasks can wait for each other. Who finds no room waits in the lane, first come, first served;
//! with one slot that makes a lane a stream whose messages are taken in order.
//!
//! What a lane remembers besides who is in it (tokens, failures) is its [`Meter`]. Who waits
//! first where only time must pass is given an alarm.
//!
//! This module does not know what is stored where, nor who is woken.

mod book;
mod keys;
mod limit;
mod meter;
mod queue;

pub use book::{Admitted, Changes, Entrant, Lanes, PlaceMove, Taken, Verdict};
pub use keys::{LaneError, LaneId, LaneKeys, Need};
pub use limit::{
    BREAKER_CALLS_MAX, Bound, Breaker, Debounce, LIMIT_TIME_MAX, LaneLimit, Limit, LimitError,
    LimitScope, RIVALS_MAX, Rate, SLOTS_MAX, TOKENS_MAX, WhenFull,
};
pub use meter::Meter;
pub use queue::{Alarm, Lane, Waiter};

/// The most limits of a task.
pub const LIMITS_MAX: usize = 8;
