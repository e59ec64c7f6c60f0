//! What follows from the outcome of an attempt.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::payload::Payload;
use crate::retry::RetryPolicy;
use crate::step::Parking;

/// The longest message of a failure that is kept, in bytes; the rest is cut off.
pub const MESSAGE_BYTES_MAX: usize = 4_096;

/// What the texts begin with that a client has sealed: nobody else can read them, nor cut them.
pub const SEALED_TEXT: &str = "wl-sealed.";

/// The longest sealed message of a failure that is kept, in bytes: it has room for a message of
/// [`MESSAGE_BYTES_MAX`] and for that of the call which it came of.
pub const SEALED_MESSAGE_BYTES_MAX: usize = 12 << 10;

/// The longest code of a failure that is kept, in bytes; the rest is cut off.
pub const CODE_BYTES_MAX: usize = 100;

/// Why an attempt failed, as it is recorded and shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure it is; retry policies and programs branch on it.
    pub code: FailureCode,
    /// What a person reads.
    pub message: String,
    /// Whether another attempt could end otherwise, by the handler's word.
    pub is_retryable: bool,
}

impl Failure {
    /// A failure worth another attempt.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        let message = message.into();
        let is_sealed = message.starts_with(SEALED_TEXT);
        let most = if is_sealed { SEALED_MESSAGE_BYTES_MAX } else { MESSAGE_BYTES_MAX };
        let message = storable(message, most);
        let code = match code {
            FailureCode::Custom(word) => FailureCode::Custom(storable(word, CODE_BYTES_MAX)),
            FailureCode::Error
            | FailureCode::Panic
            | FailureCode::Timeout
            | FailureCode::LeaseExpired
            | FailureCode::Interrupted
            | FailureCode::Payload
            | FailureCode::Divergence => code,
        };
        Failure { code, message, is_retryable: true }
    }

    /// The same failure, but no attempt will mend it.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.is_retryable = false;
        self
    }
}

/// Text that every store can keep: within the limit, with its end marked if it was
/// cut, and without NUL, which PostgreSQL has no place for.
pub fn storable(text: impl Into<String>, bytes_max: usize) -> String {
    let mut text = text.into();
    if text.contains('\0') {
        text = text.replace('\0', "\u{fffd}");
    }
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max.saturating_sub('…'.len_utf8())));
        text.push('…');
    }
    text
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.word(), self.message)
    }
}

/// The kind of a failure.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum FailureCode {
    /// The handler returned an error without a code.
    Error,
    /// The handler panicked.
    Panic,
    /// The attempt took longer than its timeout.
    Timeout,
    /// The worker's lease ran out: it died, hung or was cut off.
    LeaseExpired,
    /// The worker was drained and the grace period ended before the attempt did.
    Interrupted,
    /// The input or a parent's output does not fit the type the handler reads, or
    /// the output cannot be stored.
    Payload,
    /// The code of a durable function is not the one that wrote its steps.
    Divergence,
    /// A code of the handler's own.
    Custom(String),
}

impl FailureCode {
    /// The word that is stored and shown.
    pub fn word(&self) -> &str {
        match self {
            FailureCode::Error => "error",
            FailureCode::Panic => "panic",
            FailureCode::Timeout => "timeout",
            FailureCode::LeaseExpired => "lease_expired",
            FailureCode::Interrupted => "interrupted",
            FailureCode::Payload => "payload",
            FailureCode::Divergence => "divergence",
            FailureCode::Custom(word) => word,
        }
    }
}

impl From<String> for FailureCode {
    fn from(word: String) -> Self {
        match word.as_str() {
            "error" => FailureCode::Error,
            "panic" => FailureCode::Panic,
            "timeout" => FailureCode::Timeout,
            "lease_expired" => FailureCode::LeaseExpired,
            "interrupted" => FailureCode::Interrupted,
            "payload" => FailureCode::Payload,
            "divergence" => FailureCode::Divergence,
            _ => FailureCode::Custom(word),
        }
    }
}

impl From<FailureCode> for String {
    fn from(code: FailureCode) -> String {
        match code {
            FailureCode::Custom(word) => word,
            FailureCode::Error
            | FailureCode::Panic
            | FailureCode::Timeout
            | FailureCode::LeaseExpired
            | FailureCode::Interrupted
            | FailureCode::Payload
            | FailureCode::Divergence => code.word().to_owned(),
        }
    }
}

/// How an attempt ended, as the worker saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The handler returned a value.
    Returned(Payload),
    /// The handler did not: it returned an error, panicked or took too long.
    Failed(Failure),
    /// The worker ended before the handler did. It is tried again at once, as far
    /// as attempts last.
    Interrupted,
    /// The task's condition was false; the handler was not called.
    ConditionFalse,
    /// The function waits for something and needs no worker until then.
    Parked(Parking),
    /// The function begins afresh with this input, as the same run.
    Continued(Payload),
}

/// What the store is to do about a running task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// Record the output; the task has succeeded.
    Succeed(Payload),
    /// The task has failed for good.
    Fail(Failure),
    /// Try again, this long from now by the store's clock.
    Retry {
        /// Why this attempt failed.
        failure: Failure,
        /// The pause until the next attempt.
        delay: Duration,
    },
    /// The task does not run.
    Skip,
    /// The task waits; it is claimed again when what it waits for has come.
    Park(Parking),
    /// The only task of its run begins afresh with this input: it is claimed again, and what it
    /// knows is forgotten.
    Continue(Payload),
}

impl Decision {
    /// Whether the attempt failed; `None` if it says nothing of that.
    pub fn attempt_failed(&self) -> Option<bool> {
        match self {
            Decision::Succeed(_) => Some(false),
            Decision::Fail(_) | Decision::Retry { .. } => Some(true),
            Decision::Skip | Decision::Park(_) | Decision::Continue(_) => None,
        }
    }
}

/// Decides what follows from the outcome of attempt number `attempt` (from 1).
///
/// `jitter` is a random number from 0 to 1, see [`RetryPolicy::delay_after`].
///
/// ```
/// use windlass_core::{Decision, Failure, FailureCode, Outcome, RetryPolicy, decide};
///
/// let policy = RetryPolicy::exponential().attempts(2);
/// let failure = Failure::new(FailureCode::Error, "connection refused");
/// let first = decide(&policy, 1, Outcome::Failed(failure.clone()), 0.0);
/// assert!(matches!(first, Decision::Retry { .. }));
/// let second = decide(&policy, 2, Outcome::Failed(failure.clone()), 0.0);
/// assert_eq!(second, Decision::Fail(failure));
/// ```
pub fn decide(policy: &RetryPolicy, attempt: u32, outcome: Outcome, jitter: f64) -> Decision {
    match outcome {
        Outcome::Returned(output) => Decision::Succeed(output),
        Outcome::ConditionFalse => Decision::Skip,
        Outcome::Parked(parking) => Decision::Park(parking),
        Outcome::Continued(input) => Decision::Continue(input),
        Outcome::Interrupted => {
            let message = "the worker ended before the attempt did";
            let failure = Failure::new(FailureCode::Interrupted, message);
            retry_or_fail(failure, policy.delay_after(attempt, jitter).map(|_| Duration::ZERO))
        }
        Outcome::Failed(failure) => {
            if !failure.is_retryable || !policy.retries_code(failure.code.word()) {
                return Decision::Fail(failure);
            }
            retry_or_fail(failure, policy.delay_after(attempt, jitter))
        }
    }
}

fn retry_or_fail(failure: Failure, delay: Option<Duration>) -> Decision {
    match delay {
        Some(delay) => Decision::Retry { failure, delay },
        None => Decision::Fail(failure),
    }
}

/// What becomes of a task whose worker was lost while it ran: nobody knows how far it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerLost {
    /// It is tried again at once, as far as attempts last. What else is to be done is up to the
    /// handler of the next attempt, which can ask how the last one ended.
    #[default]
    Retry,
    /// It fails for good, however many attempts are left. For what must not be begun a second
    /// time before a person has looked.
    Fail,
}

impl WorkerLost {
    /// Whether it is what happens if nothing is said.
    pub(crate) fn is_default(&self) -> bool {
        *self == WorkerLost::default()
    }
}

/// What a task ends with that no worker has claimed within this time.
pub fn not_claimed(within: Duration) -> Failure {
    Failure::new(FailureCode::Timeout, format!("was not claimed within {within:?}")).permanent()
}

/// Why a run is cancelled that takes longer than this.
pub fn took_too_long(timeout: Duration) -> String {
    format!("took longer than its timeout of {timeout:?}")
}

/// Why attempt number `attempt` (from 1) ended when its lease ran out.
pub fn worker_lost(max_attempts: u32, attempt: u32) -> Failure {
    let message = format!("the worker of attempt {attempt} of {max_attempts} was lost");
    Failure::new(FailureCode::LeaseExpired, message)
}

/// Decides what follows when the lease of attempt number `attempt` (from 1) ran
/// out: `None` if the task goes back to its queue at once, or the failure it ends
/// with when no attempt is left or none is wanted.
pub fn decide_lease_expired(
    on_worker_lost: WorkerLost,
    max_attempts: u32,
    attempt: u32,
) -> Option<Failure> {
    let failure = worker_lost(max_attempts, attempt);
    match on_worker_lost {
        WorkerLost::Retry if attempt < max_attempts => None,
        WorkerLost::Retry => Some(failure),
        WorkerLost::Fail => Some(failure.permanent()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(failure: Failure) -> Outcome {
        Outcome::Failed(failure)
    }

    #[test]
    fn a_value_succeeds_and_a_false_condition_skips() {
        let policy = RetryPolicy::none();
        let output = Payload::encode(&1).unwrap();
        let decision = decide(&policy, 1, Outcome::Returned(output.clone()), 0.0);
        assert_eq!(decision, Decision::Succeed(output));
        assert_eq!(decide(&policy, 1, Outcome::ConditionFalse, 0.0), Decision::Skip);
    }

    #[test]
    fn permanent_failures_and_listed_codes_fail_at_once() {
        let policy = RetryPolicy::exponential().never_for(["declined", "timeout"]);
        for failure in [
            Failure::new(FailureCode::Error, "no such card").permanent(),
            Failure::new(FailureCode::Custom("declined".into()), "no funds"),
            Failure::new(FailureCode::Timeout, "after 5s"),
        ] {
            let decision = decide(&policy, 1, failed(failure.clone()), 0.0);
            assert_eq!(decision, Decision::Fail(failure));
        }
    }

    #[test]
    fn every_attempt_but_the_last_is_retried_with_the_policys_pause() {
        let policy = RetryPolicy::exponential().attempts(3).jitter(0.0);
        let failure = Failure::new(FailureCode::Panic, "index out of bounds");
        for (attempt, seconds) in [(1, 1), (2, 2)] {
            let delay = Duration::from_secs(seconds);
            let decision = decide(&policy, attempt, failed(failure.clone()), 0.0);
            assert_eq!(decision, Decision::Retry { failure: failure.clone(), delay });
        }
        assert_eq!(decide(&policy, 3, failed(failure.clone()), 0.0), Decision::Fail(failure));
    }

    #[test]
    fn an_interrupted_attempt_is_tried_again_at_once_while_attempts_last() {
        let policy = RetryPolicy::exponential().attempts(2).jitter(0.0);
        let first = decide(&policy, 1, Outcome::Interrupted, 0.0);
        let Decision::Retry { failure, delay: Duration::ZERO } = first else {
            panic!("{first:?}");
        };
        let second = decide(&policy, 2, Outcome::Interrupted, 0.0);
        assert_eq!(second, Decision::Fail(failure.clone()));
        // A handler that says so of itself waits like any other.
        let delay = Duration::from_secs(1);
        let own = decide(&policy, 1, failed(failure.clone()), 0.0);
        assert_eq!(own, Decision::Retry { failure, delay });
    }

    #[test]
    fn a_lost_worker_costs_an_attempt() {
        assert_eq!(decide_lease_expired(WorkerLost::Retry, 2, 1), None);
        let failure = decide_lease_expired(WorkerLost::Retry, 2, 2).expect("no attempt is left");
        assert_eq!(failure.code, FailureCode::LeaseExpired);
        assert_eq!(failure.message, "the worker of attempt 2 of 2 was lost");
    }

    #[test]
    fn a_lost_worker_can_be_the_end_of_a_task() {
        let failure = decide_lease_expired(WorkerLost::Fail, 9, 1).expect("none is wanted");
        assert_eq!((failure.code, failure.is_retryable), (FailureCode::LeaseExpired, false));
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let failure = Failure::new(FailureCode::Error, "é".repeat(MESSAGE_BYTES_MAX));
        assert!(failure.message.len() <= MESSAGE_BYTES_MAX);
        assert!(failure.message.ends_with("é…"));
        let sealed = format!("{SEALED_TEXT}{}", "x".repeat(SEALED_MESSAGE_BYTES_MAX));
        let fits = &sealed[..SEALED_MESSAGE_BYTES_MAX];
        assert_eq!(Failure::new(FailureCode::Error, fits).message, fits);
        assert!(Failure::new(FailureCode::Error, sealed).message.ends_with("x…"));
        let custom = FailureCode::Custom("c".repeat(CODE_BYTES_MAX + 1));
        assert_eq!(Failure::new(custom, "").code.word().len(), CODE_BYTES_MAX);
        assert_eq!(Failure::new(FailureCode::Error, "a\0b").message, "a\u{fffd}b");
    }

    #[test]
    fn codes_survive_their_word() {
        for word in [
            "error",
            "panic",
            "timeout",
            "lease_expired",
            "interrupted",
            "payload",
            "divergence",
            "x",
        ] {
            assert_eq!(FailureCode::from(word.to_owned()).word(), word);
        }
    }
}
