//! How a drain goes.

use tokio::time::Instant;

/// When a drain must have come to what.
pub(super) struct Drain {
    pub(super) interrupt_at: Instant,
    pub(super) give_up_at: Instant,
    pub(super) end_at: Instant,
}

impl Drain {
    /// When something must happen next.
    pub(super) fn next_at(&self, now: Instant) -> Instant {
        if now < self.interrupt_at { self.interrupt_at } else { self.give_up_at }
    }
}
