//! A rate, counted.

use std::time::Duration;

use tokio::time::Instant;

/// What is left of a rate. One second of it can be used at once.
#[derive(Debug)]
pub(super) struct Bucket {
    /// Below zero if something larger than a second's was let through.
    tokens: f64,
    /// When that was so; full before the first use.
    at: Option<Instant>,
}

impl Bucket {
    /// A full one.
    pub(super) fn new() -> Self {
        Bucket { tokens: 0.0, at: None }
    }

    /// What there is at a time.
    fn level(&self, rate: f64, now: Instant) -> f64 {
        match self.at {
            None => rate,
            Some(at) => {
                let since = now.saturating_duration_since(at).as_secs_f64();
                (self.tokens + since * rate).min(rate)
            }
        }
    }

    /// Whether so much can be taken; if not, when. What is more than a second's needs a full one,
    /// and is paid for afterwards.
    pub(super) fn check(&self, rate: u32, count: usize, now: Instant) -> Result<(), Duration> {
        let (rate, count) = (f64::from(rate), count as f64);
        let missing = count.min(rate) - self.level(rate, now);
        // Less than a thousandth is an error of arithmetic.
        if missing <= 0.001 { Ok(()) } else { Err(Duration::from_secs_f64(missing / rate)) }
    }

    /// Takes so much.
    pub(super) fn take(&mut self, rate: u32, count: usize, now: Instant) {
        self.tokens = self.level(f64::from(rate), now) - count as f64;
        self.at = Some(now);
    }

    /// Whether nobody has used it for a time in which any fills.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        self.tokens >= 0.0
            && self.at.is_none_or(|at| now.saturating_duration_since(at) > Duration::from_secs(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_of_a_rate_can_be_used_at_once_and_comes_back_by_and_by() {
        let (mut bucket, start) = (Bucket::new(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        for _ in 0..5 {
            assert_eq!(bucket.check(5, 1, start), Ok(()));
            bucket.take(5, 1, start);
        }
        assert_eq!(bucket.check(5, 1, start), Err(Duration::from_millis(200)));
        assert!(bucket.check(5, 1, at(199)).is_err(), "limit and one more");
        assert_eq!(bucket.check(5, 1, at(200)), Ok(()));
        assert_eq!(bucket.check(5, 3, at(200)), Err(Duration::from_millis(400)));
        assert_eq!(bucket.check(5, 5, at(60_000)), Ok(()), "and no more than that");
        bucket.take(5, 5, at(60_000));
        assert!(bucket.check(5, 1, at(60_000)).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_larger_than_a_second_is_let_through_and_paid_for() {
        let (mut bucket, start) = (Bucket::new(), Instant::now());
        assert_eq!(bucket.check(100, 1_000, start), Ok(()));
        bucket.take(100, 1_000, start);
        assert_eq!(bucket.check(100, 1, start), Err(Duration::from_millis(9_010)));
        assert!(!bucket.is_quiet(start + Duration::from_secs(5)));
        assert_eq!(bucket.check(100, 1, start + Duration::from_millis(9_010)), Ok(()));
    }
}
