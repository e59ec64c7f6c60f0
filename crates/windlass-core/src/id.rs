//! Identifiers and small numbers that must not be mistaken for each other.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::Timestamp;

/// A text that is not an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID such as 01981c2e-7a40-7c1f-9d57-0242ac120002: {0}")]
pub struct IdError(uuid::Error);

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps an existing UUID.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID inside.
            pub const fn as_uuid(&self) -> &Uuid {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self).map_err(IdError)
            }
        }
    };
}

uuid_id! {
    /// One execution of a workflow. The caller chooses it, so that a start whose
    /// answer was lost can be repeated without starting twice.
    RunId
}

uuid_id! {
    /// One life of a worker. Never used again: a worker that lost its lease
    /// joins under another id.
    WorkerId
}

uuid_id! {
    /// One process that offers to do the background duties, for as long as it does.
    CandidateId
}

uuid_id! {
    /// One signal. Whoever sends it chooses it, so that it can be sent again.
    SignalId
}

uuid_id! {
    /// Something that an operator does. Whoever does it chooses it, so that it can be asked for
    /// again when the answer was lost.
    ActionId
}

impl RunId {
    /// A version 7 UUID from a time and 80 random bits: ids made later sort later.
    pub fn from_parts(now: Timestamp, random: u128) -> Self {
        let millis = u64::try_from(now.as_micros() / 1_000).unwrap_or(0);
        let bytes = random.to_be_bytes();
        let mut tail = [0; 10];
        tail.copy_from_slice(&bytes[6..]);
        RunId(uuid::Builder::from_unix_timestamp_millis(millis, &tail).into_uuid())
    }
}

impl RunId {
    /// The id of a run that is started by another one: the same whenever it is computed, and
    /// a version 8 UUID, by which it is known. It sorts near its parent.
    pub fn of_child(parent: RunId, hash: u128) -> Self {
        let time = parent.0.as_u128() & !(u128::MAX >> 48);
        let bytes = (time | hash >> 48).to_be_bytes();
        RunId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// Whether it may be the id of a run that another one started. Whoever chooses ids may
    /// choose one that only looks so.
    pub fn may_be_child(self) -> bool {
        self.0.get_version_num() == 8
    }

    /// The id that sorts right behind this one. Whoever makes many ids within a
    /// millisecond keeps their order with it.
    #[must_use]
    pub fn next(self) -> Self {
        RunId(Uuid::from_u128(self.0.as_u128().wrapping_add(1)))
    }
}

impl WorkerId {
    /// A version 4 UUID from 122 of the random bits.
    pub fn from_random(random: u128) -> Self {
        WorkerId(uuid::Builder::from_random_bytes(random.to_be_bytes()).into_uuid())
    }
}

impl SignalId {
    /// A version 4 UUID from 122 of the random bits.
    pub fn from_random(random: u128) -> Self {
        SignalId(uuid::Builder::from_random_bytes(random.to_be_bytes()).into_uuid())
    }
}

impl ActionId {
    /// A version 4 UUID from 122 of the random bits.
    pub fn from_random(random: u128) -> Self {
        ActionId(uuid::Builder::from_random_bytes(random.to_be_bytes()).into_uuid())
    }
}

impl CandidateId {
    /// A version 4 UUID from 122 of the random bits.
    pub fn from_random(random: u128) -> Self {
        CandidateId(uuid::Builder::from_random_bytes(random.to_be_bytes()).into_uuid())
    }
}

/// The place of a task in its workflow's definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskIndex(pub u32);

impl TaskIndex {
    /// The index as a position in a slice.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }

    /// The index of the task at `position` of a slice.
    ///
    /// # Panics
    ///
    /// If the position exceeds `u32`, which
    /// [`TASKS_MAX`](crate::definition::TASKS_MAX) rules out.
    pub fn from_usize(position: usize) -> Self {
        TaskIndex(u32::try_from(position).expect("a workflow has at most TASKS_MAX tasks"))
    }
}

/// A task of a run: the unit that is claimed, leased and retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    /// The run the task belongs to.
    pub run: RunId,
    /// The task's place in the definition.
    pub index: TaskIndex,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.run, self.index.0)
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number that follows.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Grows by one in the operation that makes a task `running`; every write of
    /// a worker carries it, and a write with an older one is refused.
    Fence(u64)
}

number! {
    /// Numbers the claims of one worker. Heartbeats say up to which number the
    /// worker knows the answer, so that tasks of a lost answer are found.
    ClaimSeq(u64)
}

number! {
    /// Numbers those who led a background duty. It grows whenever a duty changes
    /// hands; every write of a leader carries it, and a write with an older one is
    /// refused.
    Term(u64)
}

number! {
    /// The place of an event in the order in which the store committed events.
    EventId(u64)
}

number! {
    /// Numbers the schedules of a store; that of one that was deleted is never used again.
    ScheduleId(u64)
}

/// The version of a workflow's definition, from 1 to 2147483647.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Version(NonZeroU32);

impl Version {
    /// The version of a workflow that never named one.
    pub const FIRST: Version = Version(NonZeroU32::MIN);

    /// The largest version: that of a signed number of 32 bits, as databases have them.
    pub const MAX: Version = match Version::new(i32::MAX.cast_unsigned()) {
        Some(version) => version,
        None => Version::FIRST,
    };

    /// The version with this number, `None` outside 1 to 2147483647.
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(some) if number <= i32::MAX.cast_unsigned() => Some(Version(some)),
            Some(_) | None => None,
        }
    }

    /// The number of the version.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl TryFrom<u32> for Version {
    type Error = String;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        let text = || format!("version {number} is not within 1 to {}", Version::MAX);
        Version::new(number).ok_or_else(text)
    }
}

impl From<Version> for u32 {
    fn from(version: Version) -> u32 {
        version.get()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// What goes first within a queue: the larger number.
///
/// The priority of a task is relative to that of its run; the two are added.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "i16", into = "i16")]
pub struct Priority(i16);

impl Priority {
    /// The largest priority.
    pub const MAX: Priority = Priority(100);
    /// The smallest priority.
    pub const MIN: Priority = Priority(-100);

    /// The priority with this number, `None` outside -100 to 100.
    pub const fn new(number: i16) -> Option<Self> {
        if number < Self::MIN.0 || number > Self::MAX.0 {
            return None;
        }
        Some(Priority(number))
    }

    /// The number of the priority.
    pub const fn get(self) -> i16 {
        self.0
    }

    /// The sum of two priorities, kept within the limits.
    #[must_use]
    pub fn plus(self, other: Priority) -> Priority {
        Priority((self.0 + other.0).clamp(Self::MIN.0, Self::MAX.0))
    }
}

impl TryFrom<i16> for Priority {
    type Error = String;

    fn try_from(number: i16) -> Result<Self, Self::Error> {
        Priority::new(number).ok_or_else(|| format!("priority {number} is not within -100 to 100"))
    }
}

impl From<Priority> for i16 {
    fn from(priority: Priority) -> i16 {
        priority.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_sort_by_the_time_they_were_made() {
        let early = RunId::from_parts(Timestamp::from_micros(1_000_000), u128::MAX);
        let late = RunId::from_parts(Timestamp::from_micros(1_001_000), 0);
        assert!(early < late);
        assert_eq!(early.as_uuid().get_version_num(), 7);
    }

    #[test]
    fn a_version_is_from_one_to_the_largest_signed_number() {
        assert_eq!(Version::new(1), Some(Version::FIRST));
        assert_eq!(Version::MAX.get(), 2_147_483_647);
        assert_eq!(Version::new(0), None);
        assert_eq!(Version::new(2_147_483_648), None);
        assert_eq!(
            serde_json::from_str::<Version>("2147483648").unwrap_err().to_string(),
            "version 2147483648 is not within 1 to 2147483647"
        );
    }

    #[test]
    fn priorities_add_up_within_their_limits() {
        let high = Priority::new(70).expect("within limits");
        assert_eq!(high.plus(high), Priority::MAX);
        assert_eq!(Priority::new(101), None);
        assert_eq!(Priority::new(-101), None);
    }
}
