//! What a worker carries from a claim to everything it says of the task.
//!
//! It holds what the server needs to judge an outcome without asking the store: the task, its
//! fence, the attempt and the retry policy. Callers do not read it, and one that they changed is
//! refused; that it is still theirs is for the fence to say. Servers of the version before read it
//! and write it as well: it says what they know, and no more.

use serde::{Deserialize, Serialize};
use windlass::store::{Claimed, Held};
use windlass::{Fence, RetryPolicy, RunId, WorkerId};
use windlass_core::{Call, TaskId, TaskIndex};

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
        Token {
            worker,
            run: claimed.task.run,
            index: claimed.task.index.0,
            fence: claimed.fence.0,
            attempt: claimed.attempt,
            retry: claimed.spec.retry.clone(),
        }
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

    /// The id of a child that a call of the function starts, at its place: the same in every
    /// attempt of a round, and another one in the next.
    pub(crate) fn child(&self, round: u32, call: Call, place: u32) -> RunId {
        let run = self.run.as_uuid().as_u128();
        let parts = [self.index, round, call.0, place].map(u64::from);
        let half = |salt: u64| {
            let seed = [run as u64, (run >> 64) as u64].into_iter().chain(parts).chain([salt]);
            u128::from(seed.fold(0, |state, part| mix(state ^ part)))
        };
        RunId::of_child(self.run, half(1) << 64 | half(2))
    }

    /// How often the task is tried.
    pub(crate) fn retry(&self) -> &RetryPolicy {
        &self.retry
    }
}

/// One round of splitmix64. It must never change: a child that is started once more by a newer
/// server must get the same id.
fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a: it finds what was cut or mangled on the way. It keeps nobody from forging, which gains
/// a worker nothing: the store that it is given has no other tenant's tasks, and the fence says which
/// of them are its own.
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
    fn a_token_is_as_the_version_before_wrote_it() {
        let text = token().to_text();
        let body = from_hex(&text[PREFIX.len() + 8..]).unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let fields: Vec<&str> = body.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields.len(), 6);
        for field in ["worker", "run", "index", "fence", "attempt", "retry"] {
            assert!(fields.contains(&field), "{field}");
        }
    }

    #[test]
    fn a_child_has_an_id_of_its_own_that_never_changes() {
        let token = token();
        let child = token.child(4, Call(1), 0);
        assert_eq!(child.to_string(), "00000000-0000-8463-aeb7-c86da7620599");
        assert!(child.may_be_child());
        let other = Token { index: 3, ..token.clone() };
        let retried = Token { attempt: 2, fence: 8, ..token.clone() };
        assert_eq!(retried.child(4, Call(1), 0), child);
        let ids = [token.child(4, Call(2), 0), token.child(4, Call(1), 1), child];
        let ids = [ids[0], ids[1], ids[2], token.child(5, Call(1), 0), other.child(4, Call(1), 0)];
        assert_eq!(std::collections::BTreeSet::from(ids).len(), ids.len());
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
