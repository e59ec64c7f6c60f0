//! Who owns which keys: a key falls into one of a fixed number of buckets, and each bucket has one
//! owner among the workers that are there.
//!
//! Every worker gets a number for a bucket, and the largest one owns it. So all who know the same
//! workers agree without asking each other, a newcomer takes its share evenly from all others, and
//! one that leaves gives up its own buckets and nobody else's. Nothing here knows who is alive.

use crate::id::WorkerId;
use crate::lane::LaneId;

/// How many buckets there are. What is stored of a key depends on it: it never changes.
pub const BUCKETS: u16 = 1024;

/// One of the buckets that keys fall into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(u16);

impl Bucket {
    /// The bucket of a lane: that of its tenant and key, whatever limit it is of, so that tasks of
    /// several workflows that are about the same thing fall into the same.
    pub fn of(lane: &LaneId) -> Self {
        let tenant = lane.tenant.as_ref().map_or("", |tenant| tenant.as_str());
        let key = lane.key.as_ref().map_or("", |key| key.as_str());
        // Names have no control characters, so this tells them apart.
        let bytes = tenant.bytes().chain([0]).chain(key.bytes());
        let hash = bytes.fold(0, |state, byte| mix(state ^ u64::from(byte)));
        Bucket((hash % u64::from(BUCKETS)) as u16)
    }

    /// The bucket with this number, if there is one.
    pub fn new(number: u16) -> Option<Self> {
        (number < BUCKETS).then_some(Bucket(number))
    }

    /// Its number.
    pub fn get(self) -> u16 {
        self.0
    }

    /// The owner among some workers, in whatever order they are.
    pub fn owner(self, workers: impl IntoIterator<Item = WorkerId>) -> Option<WorkerId> {
        workers.into_iter().max_by_key(|worker| (self.weight(*worker), *worker))
    }

    fn weight(self, worker: WorkerId) -> u64 {
        let id = worker.as_uuid().as_u128();
        [u64::from(self.0), id as u64, (id >> 64) as u64]
            .iter()
            .fold(0, |state, part| mix(state ^ part))
    }
}

/// One round of splitmix64. It must never change: programs of two versions have to agree.
fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
