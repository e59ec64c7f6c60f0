//! Delays refusals, so that a client cannot keep the server busy by sending what is refused.
//!
//! A refusal is cheap for the client, which may repeat the request at once, and costs the server what it
//! received. Each origin has an allowance of bytes that it may send in vain. Once that is used up,
//! a refusal is answered when the allowance has grown back, while the next requests of the client
//! wait for the answer. Requests that are accepted are never delayed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::connections::Origin;
use crate::problem::Problem;
use crate::room::Room;

/// The bytes that an origin may send in vain at once, and per second.
const BURST_BYTES: u64 = 32 << 20;
const BYTES_PER_SECOND: u64 = 8 << 20;

/// The size from which on a request that was received in vain is costly.
const COSTLY_BYTES_MIN: u64 = 64 << 10;

/// The fewest bytes that a refusal counts as. A request that is refused before its body is read has
/// sent some of it already.
const REQUEST_BYTES_MIN: u64 = 128 << 10;

/// The longest delay. A client that sends more than its allowance in so many requests at once that
/// they would wait for longer is answered after it.
const DELAY_MAX: Duration = Duration::from_secs(10);

/// The refusals that are delayed at a time, and the share of one origin in percent. Those beyond
/// are answered at once.
const DELAYED_MAX: usize = 4_096;
const DELAYED_SHARE: u8 = 50;

/// The number of origins from which on those with their whole allowance are removed.
const ORIGINS_KEPT: usize = 1_024;

/// The allowances of all origins.
pub(crate) struct RefusalDelay {
    /// When the allowance of an origin will be whole again.
    whole_at: Mutex<HashMap<Origin, Instant>>,
    delayed: Arc<Room>,
}

impl RefusalDelay {
    pub(crate) fn new() -> Self {
        let delayed = Room::new(DELAYED_MAX, DELAYED_SHARE, 1);
        RefusalDelay { whole_at: Mutex::default(), delayed }
    }

    /// Waits before a refusal of a request of which this many bytes were received. gRPC methods refuse
    /// without a problem.
    pub(crate) async fn wait(&self, origin: Origin, received: u64, problem: Option<&Problem>) {
        let is_overload = problem.is_some_and(Problem::is_overload);
        if !is_overload && received < COSTLY_BYTES_MIN {
            return;
        }
        let until = self.charge(origin, received.max(REQUEST_BYTES_MIN));
        if until <= Instant::now() {
            return;
        }
        if let Ok(_place) = self.delayed.take(origin, 1) {
            sleep_until(until).await;
        }
    }

    /// Takes bytes from the allowance of an origin. Returns when it has as many.
    fn charge(&self, origin: Origin, bytes: u64) -> Instant {
        let now = Instant::now();
        let mut whole_at = self.whole_at.lock().unwrap_or_else(PoisonError::into_inner);
        // At these sizes only, so that many active origins cost little.
        let is_new = !whole_at.contains_key(&origin);
        if is_new && whole_at.len() >= ORIGINS_KEPT && whole_at.len().is_power_of_two() {
            whole_at.retain(|_, at| *at > now);
        }
        let at = whole_at.entry(origin).or_insert(now);
        let burst = time_of(BURST_BYTES);
        *at = (*at).max(now) + time_of(bytes);
        *at = (*at).min(now + burst + DELAY_MAX);
        *at - burst.min(*at - now)
    }
}

/// The time in which the allowance grows by this many bytes.
fn time_of(bytes: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND as f64)
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn origin(last: u8) -> Origin {
        Origin::Machine([192, 0, 2, last].into())
    }

    /// How long a refusal of a request of this size is delayed.
    async fn delay_of(delay: &RefusalDelay, origin: Origin, received: u64) -> Duration {
        let began = Instant::now();
        delay.wait(origin, received, Some(&Problem::not_found("run"))).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_are_delayed_once_the_allowance_is_used_up() {
        let delay = RefusalDelay::new();
        assert_eq!(delay_of(&delay, origin(1), 32 * MIB).await, Duration::ZERO);
        assert_eq!(delay_of(&delay, origin(1), 8 * MIB).await.as_millis(), 1_000);
        assert_eq!(delay_of(&delay, origin(1), 16 * MIB).await.as_millis(), 2_000);
        assert_eq!(delay_of(&delay, origin(2), 8 * MIB).await, Duration::ZERO, "others are not");
        sleep(Duration::from_secs(2)).await;
        assert_eq!(delay_of(&delay, origin(1), 16 * MIB).await, Duration::ZERO, "it grows back");
        sleep(Duration::from_secs(3_600)).await;
        assert_eq!(delay_of(&delay, origin(1), 32 * MIB).await, Duration::ZERO);
        let again = delay_of(&delay, origin(1), 8 * MIB).await;
        assert_eq!(again.as_millis(), 1_000, "it does not grow beyond what it was");
    }

    #[tokio::test(start_paused = true)]
    async fn small_refusals_are_never_delayed() {
        let delay = RefusalDelay::new();
        for _ in 0..10_000 {
            assert_eq!(delay_of(&delay, origin(1), 1_000).await, Duration::ZERO);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_for_want_of_room_are_delayed_whatever_was_received() {
        let delay = RefusalDelay::new();
        let began = Instant::now();
        let busy = Problem::busy("too many requests are in progress");
        let count = (BURST_BYTES + BYTES_PER_SECOND) / REQUEST_BYTES_MIN;
        for _ in 0..count {
            delay.wait(origin(1), 0, Some(&busy)).await;
        }
        assert_eq!(began.elapsed().as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn no_refusal_is_delayed_for_longer_than_ten_seconds() {
        let delay = RefusalDelay::new();
        assert_eq!(delay_of(&delay, origin(1), 1 << 40).await, DELAY_MAX);
        assert_eq!(delay_of(&delay, origin(1), MIB).await.as_millis(), 125);
    }

    #[tokio::test(start_paused = true)]
    async fn origins_with_their_whole_allowance_are_removed() {
        let delay = RefusalDelay::new();
        for number in 0..ORIGINS_KEPT {
            let address = std::net::Ipv4Addr::from_bits(u32::try_from(number).unwrap());
            delay.wait(Origin::Machine(address.into()), MIB, None).await;
        }
        sleep(Duration::from_secs(1)).await;
        delay.wait(origin(1), MIB, None).await;
        assert_eq!(delay.whole_at.lock().unwrap().len(), 1);
    }
}
