//! Where a memory store gets the time from.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use windlass_core::Timestamp;

/// A clock that never goes back.
pub trait Clock: Send + Sync + 'static {
    /// The time it is.
    fn now(&self) -> Timestamp;
}

/// The clock of the runtime: real time, or virtual time where the runtime's clock
/// is paused.
///
/// It looks at the calendar once and then counts with tokio's monotonic clock, so
/// it does not jump when someone sets the machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    base: Timestamp,
    start: Instant,
}

impl RuntimeClock {
    /// A clock that shows the calendar's time now.
    pub fn new() -> Self {
        RuntimeClock::starting_at(SystemTime::now().into())
    }

    /// A clock that shows `base` now.
    pub fn starting_at(base: Timestamp) -> Self {
        RuntimeClock { base, start: Instant::now() }
    }
}

impl Default for RuntimeClock {
    fn default() -> Self {
        RuntimeClock::new()
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        self.base + self.start.elapsed()
    }
}

/// A clock that stands still until it is told to go on.
#[derive(Debug)]
pub struct VirtualClock(AtomicI64);

impl VirtualClock {
    /// A clock that shows `start`.
    pub fn new(start: Timestamp) -> Self {
        VirtualClock(AtomicI64::new(start.as_micros()))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let later = self.now() + by;
        self.0.store(later.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}
