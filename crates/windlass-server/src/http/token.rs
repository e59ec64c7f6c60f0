//! What a worker carries from a claim to everything it says of the task.
//!
//! It holds what the server needs to judge an outcome without asking the store: the task, its
//! fence, the number of the attempt and the retry policy. Callers do not read it, and one that
//! they changed is refused; that it is still theirs is for the fence to say.

use serde::{Deserialize, Serialize};
use windlass::store::{Claimed, Held};
use windlass::{Fence, RetryPolicy, RunId, WorkerId};
use windlass_core::{TaskId, TaskIndex};

use super::cursor::{from_hex, to_hex};
use crate::problem::Problem;

/// What a token of this version begins with.
const PREFIX: &str = "t1.";

/// What a token holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    worker: WorkerId,
    run: RunId,
    index: u32,
    fence: u64,
    attempt: u32,
    retry: RetryPolicy,
}

impl Token {
    pub(crate) fn of(worker: WorkerId, claimed: &Claimed) -> Self {
        let Claimed { task, fence, attempt, spec, .. } = claimed;
        let (run, index, fence) = (task.run, task.index.0, fence.0);
        Token { worker, run, index, fence, attempt: *attempt, retry: spec.retry.clone() }
    }

    /// The text of it.
    pub(crate) fn to_text(&self) -> String {
        let body = serde_json::to_vec(self).unwrap_or_default();
        let sum = to_hex(&checksum(&body).to_be_bytes());
        format!("{PREFIX}{sum}{}", to_hex(&body))
    }

    /// The token that a worker sent.
    pub(crate) fn parse(worker: WorkerId, text: &str) -> Result<Self, Problem> {
        let start: String = text.chars().take(24).collect();
        let wrong = |why: &str| Problem::field("token", format_args!("{start:?} {why}"));
        let bytes = text
            .strip_prefix(PREFIX)
            .and_then(from_hex)
            .ok_or_else(|| wrong("is not of this server"))?;
        let (sum, body) = bytes.split_at_checked(4).ok_or_else(|| wrong("is cut off"))?;
        if sum != checksum(body).to_be_bytes() {
            return Err(wrong("was changed on its way"));
        }
        let token: Token = serde_json::from_slice(body).map_err(|_| wrong("cannot be read"))?;
        if token.retry.validate().is_err() || i64::try_from(token.fence).is_err() {
            return Err(wrong("makes no sense"));
        }
        if token.worker != worker {
            return Err(wrong("is another worker's"));
        }
        Ok(token)
    }

    /// The task and the fence that it was claimed with.
    pub(crate) fn held(&self) -> Held {
        let task = TaskId { run: self.run, index: TaskIndex(self.index) };
        Held { task, fence: Fence(self.fence) }
    }

    /// The number of the attempt.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How often the task is tried.
    pub(crate) fn retry(&self) -> &RetryPolicy {
        &self.retry
    }
}

/// FNV-1a: it finds what was cut or mangled on the way. It keeps nobody from forging, which gains
/// a worker nothing that it could not do to its own tasks.
fn checksum(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0x811c_9dc5, |sum: u32, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::Timestamp;

    fn token() -> Token {
        Token {
            worker: WorkerId::from_random(1),
            run: RunId::from_parts(Timestamp::from_micros(0), 3),
            index: 2,
            fence: 7,
            attempt: 1,
            retry: RetryPolicy::exponential().never_for(["é"]),
        }
    }

    #[test]
    fn a_token_survives_its_text() {
        let token = token();
        assert_eq!(Token::parse(token.worker, &token.to_text()), Ok(token));
    }

    #[test]
    fn a_token_that_was_changed_or_is_anothers_is_refused() {
        let (token, text) = (token(), token().to_text());
        let refused = |text: &str| Token::parse(token.worker, text).unwrap_err();
        assert!(refused("").detail().contains("is not of this server"));
        assert!(refused("t1.abc").detail().contains("is not of this server"));
        assert!(refused("t1.").detail().contains("is cut off"));
        assert!(refused(&text[..text.len() - 2]).detail().contains("was changed"));
        for place in PREFIX.len()..text.len() {
            let other = if text.as_bytes()[place] == b'0' { "1" } else { "0" };
            let mut changed = text.clone();
            changed.replace_range(place..=place, other);
            assert!(Token::parse(token.worker, &changed).is_err(), "{place}");
        }
        let other = Token::parse(WorkerId::from_random(2), &text).unwrap_err();
        assert!(other.detail().contains("is another worker's"));
        let mut absurd = token.clone();
        absurd.retry = RetryPolicy::exponential().attempts(0);
        assert!(refused(&absurd.to_text()).detail().contains("makes no sense"));
    }
}
