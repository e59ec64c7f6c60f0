//! When a failed attempt is tried again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The most attempts a policy may allow.
pub const ATTEMPTS_MAX: u32 = 10_000;

/// The longest backoff, sleep or delay: a hundred years.
pub const WAIT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// How often, and with which pauses, a task is tried.
///
/// The default is five attempts with pauses of 1, 2, 4 and 8 seconds, each
/// shortened by up to a fifth at random so that tasks that failed together do not
/// come back together. A worker that dies costs an attempt too.
///
/// ```
/// use std::time::Duration;
/// use windlass_core::RetryPolicy;
///
/// let policy = RetryPolicy::exponential().first_delay(Duration::from_secs(2)).attempts(3);
/// let no_jitter = 0.0;
/// assert_eq!(policy.delay_after(1, no_jitter), Some(Duration::from_secs(2)));
/// assert_eq!(policy.delay_after(2, no_jitter), Some(Duration::from_secs(4)));
/// assert_eq!(policy.delay_after(3, no_jitter), None);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// How many attempts there are.
    pub attempts: u32,
    /// The pause after the first one.
    pub first_delay: Duration,
    /// By what each pause is longer than the one before.
    pub factor: f64,
    /// The longest pause.
    pub delay_max: Duration,
    /// The share of a pause that is random.
    pub jitter: f64,
    /// The codes of failures that are not tried again.
    pub non_retryable: Vec<String>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy::exponential()
    }
}

/// A retry policy that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RetryError {
    /// Zero attempts, or too many.
    #[error("attempts is {0}, not within 1 to {ATTEMPTS_MAX}")]
    Attempts(u32),
    /// The pauses would shrink or are not numbers.
    #[error("factor is {0}, not a finite number of at least 1")]
    Factor(f64),
    /// The share of a pause that is random is not a share.
    #[error("jitter is {0}, not within 0 to 1")]
    Jitter(f64),
    /// The first pause is longer than the longest.
    #[error("the first delay is {first:?}, longer than the largest delay of {max:?}")]
    FirstDelay {
        /// The first pause.
        first: Duration,
        /// The longest pause.
        max: Duration,
    },
    /// A pause is longer than anything else may wait.
    #[error("the largest delay is {0:?}, the limit is {WAIT_MAX:?}")]
    DelayMax(Duration),
}

impl RetryPolicy {
    /// Five attempts, 1 s doubling up to 60 s, a fifth of jitter.
    pub fn exponential() -> Self {
        RetryPolicy {
            attempts: 5,
            first_delay: Duration::from_secs(1),
            factor: 2.0,
            delay_max: Duration::from_secs(60),
            jitter: 0.2,
            non_retryable: Vec::new(),
        }
    }

    /// For what may be away for hours: twenty attempts, with a pause of 2 s after the first, doubled
    /// after each up to an hour (the smaller of 2^attempts seconds and an hour), each shortened by
    /// up to a fifth at random. The last attempt is some nine hours after the first.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass_core::RetryPolicy;
    ///
    /// let seconds = |attempt| RetryPolicy::patient().delay_after(attempt, 0.0).map(|it| it.as_secs());
    /// assert_eq!([1, 2, 3, 11, 12, 19].map(seconds), [2, 4, 8, 2048, 3600, 3600].map(Some));
    /// assert_eq!(seconds(20), None);
    /// ```
    pub fn patient() -> Self {
        RetryPolicy {
            attempts: 20,
            first_delay: Duration::from_secs(2),
            delay_max: Duration::from_secs(60 * 60),
            ..RetryPolicy::exponential()
        }
    }

    /// The same pause after each of five attempts, without jitter.
    pub fn fixed(delay: Duration) -> Self {
        RetryPolicy {
            first_delay: delay,
            factor: 1.0,
            delay_max: delay,
            jitter: 0.0,
            ..RetryPolicy::exponential()
        }
    }

    /// One attempt only: a task that fails, or whose worker dies or is drained
    /// before it ends, has failed.
    pub fn none() -> Self {
        RetryPolicy::exponential().attempts(1)
    }

    /// The number of attempts, the first one included.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// The pause after the first attempt.
    #[must_use]
    pub fn first_delay(mut self, delay: Duration) -> Self {
        self.first_delay = delay;
        self
    }

    /// By how much each pause is longer than the one before.
    #[must_use]
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// The longest pause.
    #[must_use]
    pub fn delay_max(mut self, delay: Duration) -> Self {
        self.delay_max = delay;
        self
    }

    /// The share of each pause that is left to chance, from 0 (none) to 1 (all).
    #[must_use]
    pub fn jitter(mut self, share: f64) -> Self {
        self.jitter = share;
        self
    }

    /// Failures with one of these codes are not tried again.
    #[must_use]
    pub fn never_for<C: Into<String>>(mut self, codes: impl IntoIterator<Item = C>) -> Self {
        self.non_retryable.extend(codes.into_iter().map(Into::into));
        self
    }

    /// The number of attempts, the first one included.
    pub fn max_attempts(&self) -> u32 {
        self.attempts
    }

    /// Whether a failure with this code is worth another attempt.
    pub fn retries_code(&self, code: &str) -> bool {
        !self.non_retryable.iter().any(|listed| listed == code)
    }

    /// The pause after the attempt with this number (from 1), `None` if it was the
    /// last. `jitter` is a number from 0 to 1 that says how much of the random
    /// share is taken off.
    pub fn delay_after(&self, attempt: u32, jitter: f64) -> Option<Duration> {
        if attempt >= self.attempts {
            return None;
        }
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let grown = self.first_delay.as_secs_f64() * self.factor.powi(exponent);
        let ceiling = self.delay_max.as_secs_f64();
        let kept = 1.0 - self.jitter * jitter.clamp(0.0, 1.0);
        // An overflow to infinity is cut by the ceiling like any other large number.
        Some(Duration::from_secs_f64(grown.min(ceiling) * kept))
    }

    /// Checks the numbers of the policy.
    pub fn validate(&self) -> Result<(), RetryError> {
        if self.attempts == 0 || self.attempts > ATTEMPTS_MAX {
            return Err(RetryError::Attempts(self.attempts));
        }
        if !self.factor.is_finite() || self.factor < 1.0 {
            return Err(RetryError::Factor(self.factor));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(RetryError::Jitter(self.jitter));
        }
        if self.first_delay > self.delay_max {
            let (first, max) = (self.first_delay, self.delay_max);
            return Err(RetryError::FirstDelay { first, max });
        }
        if self.delay_max > WAIT_MAX {
            return Err(RetryError::DelayMax(self.delay_max));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pauses_grow_by_the_factor_up_to_the_ceiling() {
        let policy = RetryPolicy::exponential()
            .attempts(6)
            .first_delay(Duration::from_millis(100))
            .factor(3.0)
            .delay_max(Duration::from_secs(1));
        let pauses: Vec<_> = (1..=6).map(|attempt| policy.delay_after(attempt, 0.0)).collect();
        let millis = |m| Some(Duration::from_millis(m));
        assert_eq!(
            pauses,
            [millis(100), millis(300), millis(900), millis(1000), millis(1000), None]
        );
    }

    #[test]
    fn a_patient_policy_doubles_its_pauses_up_to_an_hour_with_jitter() {
        let policy = RetryPolicy::patient();
        policy.validate().expect("it makes sense");
        for attempt in 1..20_u32 {
            let longest = Duration::from_secs(2_u64.pow(attempt).min(3_600));
            assert_eq!(policy.delay_after(attempt, 0.0), Some(longest));
            let shortest = policy.delay_after(attempt, 1.0).expect("it is not the last");
            assert_eq!(shortest, longest.mul_f64(0.8));
        }
        assert_eq!(policy.delay_after(20, 0.0), None);
    }

    #[test]
    fn full_jitter_takes_off_the_whole_random_share() {
        let policy = RetryPolicy::exponential().jitter(0.5);
        assert_eq!(policy.delay_after(1, 1.0), Some(Duration::from_millis(500)));
        assert_eq!(policy.delay_after(1, 0.0), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_listed_code_is_not_retried() {
        let policy = RetryPolicy::exponential().never_for(["card_declined"]);
        assert!(!policy.retries_code("card_declined"));
        assert!(policy.retries_code("timeout"));
    }

    #[test]
    fn a_code_that_only_begins_like_a_listed_one_is_retried() {
        let policy = RetryPolicy::exponential().never_for(["card"]);
        assert!(!policy.retries_code("card") && policy.retries_code("card_declined"));
    }

    #[test]
    fn policies_that_make_no_sense_are_refused() {
        let base = RetryPolicy::exponential;
        assert_eq!(base().attempts(0).validate(), Err(RetryError::Attempts(0)));
        assert!(base().attempts(ATTEMPTS_MAX).validate().is_ok());
        assert!(base().attempts(ATTEMPTS_MAX + 1).validate().is_err());
        assert_eq!(base().factor(0.5).validate(), Err(RetryError::Factor(0.5)));
        assert!(base().factor(f64::NAN).validate().is_err());
        assert_eq!(base().jitter(1.5).validate(), Err(RetryError::Jitter(1.5)));
        assert!(base().delay_max(Duration::MAX).validate().is_err());
        let error = base().first_delay(Duration::from_secs(61)).validate().unwrap_err();
        assert_eq!(
            error.to_string(),
            "the first delay is 61s, longer than the largest delay of 60s"
        );
    }

    proptest! {
        #[test]
        fn no_pause_exceeds_the_ceiling_and_the_last_attempt_has_none(
            attempts in 1..200u32,
            attempt in 1..400u32,
            first_ms in 0..100_000u64,
            factor in 1.0..1e6f64,
            more_ms in 0..1_000_000u64,
            share in 0.0..=1.0f64,
            jitter in 0.0..=1.0f64,
        ) {
            let max_ms = first_ms + more_ms;
            let policy = RetryPolicy::exponential()
                .attempts(attempts)
                .first_delay(Duration::from_millis(first_ms))
                .factor(factor)
                .delay_max(Duration::from_millis(max_ms))
                .jitter(share);
            policy.validate().expect("all numbers are within the limits");
            let delay = policy.delay_after(attempt, jitter);
            prop_assert_eq!(delay.is_none(), attempt >= attempts);
            prop_assert!(delay.unwrap_or_default() <= Duration::from_millis(max_ms));
        }
    }
}
