//! One lane: who has slots in it, and who waits for them.

use std::collections::VecDeque;

use crate::id::TaskId;
use crate::time::Timestamp;

/// Someone who waits in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Its place: lower ones came before.
    pub seq: u64,
    /// The task.
    pub task: TaskId,
    /// How many slots the lane has by its definition.
    pub slots: u32,
}

/// Who has slots in a lane, and who waits for them.
///
/// Places are given in order and slots in the order of places: whoever stands up to
/// [`served`](Lane::served) has a slot, and whoever stands behind it waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// How many slots are taken.
    pub held: u32,
    /// The last place that was given a slot.
    pub served: u64,
    /// The last place that was taken.
    pub last: u64,
    /// The most slots that it has had by the definition of anyone in it.
    pub slots: u32,
    /// Who waits, in the order of their places.
    pub waiting: VecDeque<Waiter>,
    /// Whether others may wait behind those.
    pub has_more: bool,
    /// Who came since then, behind all of them.
    behind: VecDeque<Waiter>,
}

impl Lane {
    /// A lane as it is stored, before it is known who waits.
    pub fn new(held: u32, served: u64, last: u64, slots: u32) -> Self {
        Lane { held, served, last, slots, ..Lane::default() }
    }

    /// Whether who comes next has a slot: one is free, and nobody waits.
    pub fn has_room(&self, slots: u32) -> bool {
        self.held < slots && self.waiting.is_empty() && !self.has_more
    }

    /// Takes a place, and a slot if there is room. Answers the place, and whether it has a slot.
    pub fn enter(&mut self, task: TaskId, slots: u32, now: Timestamp) -> (u64, bool) {
        let has_slot = self.has_room(slots);
        // Places of a lane that was empty in between go on behind those of before.
        let at = u64::try_from(now.as_micros()).unwrap_or_default();
        let seq = at.max(self.last + 1);
        self.last = seq;
        self.slots = self.slots.max(slots);
        if has_slot {
            self.held += 1;
            self.served = seq;
        } else {
            let queue = if self.has_more { &mut self.behind } else { &mut self.waiting };
            queue.push_back(Waiter { seq, task, slots });
        }
        (seq, has_slot)
    }

    /// Gives up a place, and the slot if it has one.
    pub fn leave(&mut self, seq: u64) {
        if seq <= self.served {
            self.held = self.held.saturating_sub(1);
        } else {
            self.waiting.retain(|waiter| waiter.seq != seq);
            self.behind.retain(|waiter| waiter.seq != seq);
        }
    }

    /// Others are known who wait behind those that were, and whether there are more.
    pub fn extend(&mut self, waiters: impl IntoIterator<Item = Waiter>, has_more: bool) {
        self.waiting.extend(waiters);
        self.has_more = has_more;
        if !has_more {
            self.waiting.append(&mut self.behind);
        }
    }

    /// Gives a slot to the first who waits, if there is one.
    pub fn admit(&mut self) -> Option<Waiter> {
        self.next()?;
        let first = self.waiting.pop_front()?;
        self.held += 1;
        self.served = first.seq;
        Some(first)
    }

    /// Who has the next slot, if one is free and someone waits.
    pub(super) fn next(&self) -> Option<TaskId> {
        let first = self.waiting.front()?;
        (self.held < first.slots).then_some(first.task)
    }

    /// Whether nobody has a slot or waits: there is nothing to remember.
    pub fn is_idle(&self) -> bool {
        self.held == 0 && self.waiting.is_empty() && !self.has_more
    }

    /// Whether a slot may be free for whoever waits first, who is not known.
    pub fn is_unsettled(&self) -> bool {
        self.has_more && self.waiting.is_empty() && self.held < self.slots
    }
}
