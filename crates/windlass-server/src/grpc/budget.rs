//! Memory for answers to workers.
//!
//! An answer takes memory from before it is asked for until its last part was read. What one
//! stream, the streams of one origin and all streams together may take is bounded: beyond that,
//! nothing that may bring a large answer is begun.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use crate::connections::Origin;
use crate::options::ServerOptions;

/// The most bytes of answers of one stream, but for one answer that is larger alone.
pub(super) const STREAM_ANSWER_BYTES_MAX: usize = 32 << 20;

/// The memory of a server.
pub(super) struct Budget {
    all: Arc<Semaphore>,
    share: usize,
    /// Of the origins that have streams.
    of: Mutex<HashMap<Origin, Weak<Semaphore>>>,
}

impl Budget {
    /// As the options say.
    pub(super) fn new(options: &ServerOptions) -> Self {
        let most = options.answer_bytes_max.clamp(1, Semaphore::MAX_PERMITS);
        let percent = usize::from(options.address_share_percent.clamp(1, 100));
        let share = most / 100 * percent + most % 100 * percent / 100;
        // However little there is, one stream is told something.
        let share = share.max(most.min(STREAM_ANSWER_BYTES_MAX));
        Budget { all: Arc::new(Semaphore::new(most)), share, of: Mutex::default() }
    }

    /// That of a stream.
    pub(super) fn stream(&self, origin: Origin) -> StreamBudget {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let known = of.get(&origin).and_then(Weak::upgrade);
        let of_origin = known.unwrap_or_else(|| {
            of.retain(|_, others| others.strong_count() > 0);
            let fresh = Arc::new(Semaphore::new(self.share));
            of.insert(origin, Arc::downgrade(&fresh));
            fresh
        });
        let most = STREAM_ANSWER_BYTES_MAX.min(self.share);
        let own = Arc::new(Semaphore::new(most));
        StreamBudget { most, levels: [own, of_origin, Arc::clone(&self.all)] }
    }
}

/// The memory of a stream: its own, that of its origin and that of all. It is taken in this order,
/// so that whoever waits for the next keeps only those waiting who share what it has.
pub(super) struct StreamBudget {
    most: usize,
    levels: [Arc<Semaphore>; 3],
}

impl StreamBudget {
    /// Waits for so much memory, or for all of the stream's if that is less.
    pub(super) async fn take(&self, bytes: usize) -> Memory {
        let bytes = bytes.min(self.most);
        let mut permits = Vec::with_capacity(self.levels.len());
        for level in &self.levels {
            // Closed never.
            permits.extend(Arc::clone(level).acquire_many_owned(bytes as u32).await.ok());
        }
        Memory { bytes, permits }
    }

    /// So much memory if there is, and nobody waits for it.
    pub(super) fn try_take(&self, bytes: usize) -> Option<Memory> {
        let bytes = bytes.min(self.most);
        let take = |level: &Arc<Semaphore>| Arc::clone(level).try_acquire_many_owned(bytes as u32);
        let permits: Result<_, TryAcquireError> = self.levels.iter().map(take).collect();
        permits.ok().map(|permits| Memory { bytes, permits })
    }

    /// Whether there is as much memory as so many bytes need, without waiting.
    pub(super) fn grow(&self, memory: &mut Memory, bytes: usize) -> bool {
        let more = bytes.min(self.most).saturating_sub(memory.bytes);
        let taken = if more == 0 { Some(Memory::default()) } else { self.try_take(more) };
        taken.map(|taken| memory.merge(taken)).is_some()
    }

    /// Memory for an answer that turned out to have so many bytes. What was taken for it before is
    /// given back first if it is not enough: nobody keeps some while waiting for more.
    pub(super) async fn fit(&self, mut memory: Memory, bytes: usize) -> Memory {
        if memory.bytes >= bytes.min(self.most) {
            return memory.split(bytes);
        }
        drop(memory);
        self.take(bytes).await
    }
}

/// Memory that is taken for as long as this is kept.
#[derive(Default)]
pub(super) struct Memory {
    bytes: usize,
    permits: Vec<OwnedSemaphorePermit>,
}

impl Memory {
    /// How much it is.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// More of the same stream's.
    fn merge(&mut self, more: Memory) {
        self.bytes += more.bytes;
        let mut permits = more.permits.into_iter();
        for (own, more) in self.permits.iter_mut().zip(permits.by_ref()) {
            own.merge(more);
        }
        self.permits.extend(permits);
    }

    /// So much of it, or what is left.
    pub(super) fn split(&mut self, bytes: usize) -> Memory {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Memory {
            bytes,
            permits: self.permits.iter_mut().filter_map(|one| one.split(bytes)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Access;
    use futures_util::FutureExt as _;

    fn machine(last: u8) -> Origin {
        Origin::Machine([192, 0, 2, last].into())
    }

    fn budget(streams: usize) -> Budget {
        let mut options = ServerOptions::new(Access::insecure_dev());
        options.answer_bytes_max = streams * STREAM_ANSWER_BYTES_MAX;
        Budget::new(&options)
    }

    #[test]
    fn the_streams_of_one_origin_leave_memory_to_others() {
        let budget = budget(4);
        let own: Vec<_> = (0..3).map(|_| budget.stream(machine(1))).collect();
        let taken: Vec<_> = own.iter().map(|one| one.try_take(usize::MAX)).collect();
        let has: Vec<bool> = taken.iter().map(Option::is_some).collect();
        assert_eq!(has, [true, true, false], "half of it");
        let waiting = own[2].take(1);
        assert!(waiting.now_or_never().is_none());
        let other = budget.stream(machine(2));
        assert!(other.try_take(usize::MAX).is_some());
        drop(taken);
        assert!(own[2].try_take(usize::MAX).is_some());
    }

    #[test]
    fn an_answer_that_is_larger_than_expected_waits_with_nothing_in_its_hands() {
        let budget = budget(1);
        let stream = budget.stream(machine(1));
        let half = STREAM_ANSWER_BYTES_MAX / 2;
        let (first, second) = (stream.try_take(half).unwrap(), stream.try_take(half).unwrap());
        let fits = stream.fit(first, half).now_or_never().expect("it has what it needs");
        let larger = stream.fit(fits, half + 1);
        tokio::pin!(larger);
        assert!(larger.as_mut().now_or_never().is_none());
        // If both kept what they have, neither would ever go on.
        let both = stream.fit(second, half + 1);
        tokio::pin!(both);
        assert!(both.as_mut().now_or_never().is_none());
        drop(larger.now_or_never().expect("there is room"));
        assert!(both.now_or_never().is_some());
    }

    #[test]
    fn memory_grows_at_once_or_not_at_all() {
        let budget = budget(1);
        let stream = budget.stream(machine(1));
        let mut memory = Memory::default();
        assert!(stream.grow(&mut memory, 10) && stream.grow(&mut memory, 5));
        assert_eq!(memory.bytes, 10);
        let other = stream.try_take(STREAM_ANSWER_BYTES_MAX - 20).unwrap();
        assert!(!stream.grow(&mut memory, 21) && stream.grow(&mut memory, 20));
        drop(other);
        assert!(stream.grow(&mut memory, usize::MAX), "one that is larger alone");
        drop(memory);
        assert_eq!(stream.levels[2].available_permits(), STREAM_ANSWER_BYTES_MAX);
    }

    #[test]
    fn parts_give_back_what_they_took_and_origins_are_forgotten() {
        let budget = budget(1);
        let stream = budget.stream(machine(1));
        let mut memory = stream.try_take(10).unwrap();
        let part = memory.split(4);
        drop(memory.split(100));
        assert_eq!(stream.levels[0].available_permits(), STREAM_ANSWER_BYTES_MAX - 4);
        drop((part, memory));
        for level in &stream.levels {
            assert_eq!(level.available_permits(), STREAM_ANSWER_BYTES_MAX);
        }
        drop(stream);
        let _other = budget.stream(machine(2));
        assert_eq!(budget.of.lock().unwrap().len(), 1);
    }
}
