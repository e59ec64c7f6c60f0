//! What runs are started with.

use serde::{Deserialize, Serialize};

/// How many keys there are.
const KEYS: u64 = 3;

/// Inputs that nobody began afresh with are below this; each round that a function begins afresh
/// adds as much once more.
const ROUND: u64 = 1_000_000;

/// A number, from which the key follows: the same in all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub(crate) struct Input(pub(crate) u64);

/// How an input is written.
#[derive(Serialize, Deserialize)]
struct Fields {
    key: u64,
    number: u64,
}

impl Input {
    /// What a function begins afresh with, if it does so that often.
    pub(crate) fn next(self, rounds: u64) -> Option<Input> {
        (self.0 / ROUND < rounds).then_some(Input(self.0 + ROUND))
    }

    /// What a function ends with that begins afresh that often.
    pub(crate) fn last(self, rounds: u64) -> Input {
        self.next(rounds).map_or(self, |next| next.last(rounds))
    }

    /// The value of the field that limits are by.
    pub(crate) fn key(self) -> u64 {
        self.0 % ROUND % KEYS
    }
}

impl From<Input> for Fields {
    fn from(input: Input) -> Self {
        Fields { key: input.key(), number: input.0 }
    }
}

impl From<Fields> for Input {
    fn from(fields: Fields) -> Self {
        Input(fields.number)
    }
}
