//! One lane: who has room in it, and who waits.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::limit::{Bound, WhenFull};
use super::meter::{self, Meter};
use crate::id::TaskId;
use crate::time::Timestamp;

/// Someone who waits in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Its place: lower ones came before.
    pub seq: u64,
    /// The task.
    pub task: TaskId,
    /// What the lane bounds by its definition.
    pub bound: Bound,
}

/// When who waits first is looked at again, because it may have its turn by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// Its place.
    pub seq: u64,
    /// When.
    pub due: Timestamp,
}

/// Who has room in a lane, and who waits.
///
/// Places are given in order and turns in the order of places: whoever stands up to
/// [`served`](Lane::served) had its turn, and whoever stands behind it waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// How many had their turn and are under way.
    pub held: u32,
    /// The last place that had its turn.
    pub served: u64,
    /// The last place that was taken.
    pub last: u64,
    /// The most slots that it has had by the definition of anyone in it; 0 if it has none.
    pub slots: u32,
    /// What else it remembers.
    pub meter: Option<Meter>,
    /// When who waits first is looked at again.
    pub alarm: Option<Alarm>,
    /// Who waits, in the order of their places.
    pub waiting: VecDeque<Waiter>,
    /// Whether others may wait behind those.
    pub has_more: bool,
    /// Who came since then, behind all of them.
    behind: VecDeque<Waiter>,
    /// Who is in it and not about to be cancelled, where newcomers take the place of the oldest.
    pub rivals: BTreeMap<u64, TaskId>,
}

/// What came of entering a lane.
pub(super) struct Entered {
    pub(super) seq: u64,
    /// Whether it may go on.
    pub(super) has_room: bool,
    /// Who has to go for it, and whether that one only waited.
    pub(super) superseded: Vec<(TaskId, bool)>,
}

impl Lane {
    /// A lane as it is stored, before it is known who waits.
    pub fn new(held: u32, served: u64, last: u64, slots: u32) -> Self {
        Lane { held, served, last, slots, ..Lane::default() }
    }

    /// Whether who comes next may go on: there is room, and nobody waits.
    pub(super) fn has_room(&self, bound: Bound, now: Timestamp) -> bool {
        self.waiting.is_empty() && !self.has_more && self.lets(bound, now)
    }

    /// Whether there is room for who is first.
    fn lets(&self, bound: Bound, now: Timestamp) -> bool {
        match bound {
            Bound::Slots(slots) => self.held < slots,
            Bound::Rate(_) | Bound::Debounce(_) | Bound::Breaker(_) => {
                meter::due(self.meter, bound).is_some_and(|due| due <= now)
            }
        }
    }

    /// Takes a place, and goes on if there is room.
    pub(super) fn enter(
        &mut self,
        task: TaskId,
        bound: Bound,
        when_full: WhenFull,
        now: Timestamp,
    ) -> Entered {
        let mut superseded = Vec::new();
        if let Bound::Debounce(debounce) = bound {
            // Whoever came before waited alone.
            self.has_more = false;
            let before = self.waiting.drain(..).chain(self.behind.drain(..));
            superseded.extend(before.map(|waiter| (waiter.task, true)));
            self.meter = Some(meter::put_off(self.meter, debounce, superseded.is_empty(), now));
        }
        let has_room = self.has_room(bound, now);
        // Places of a lane that was empty in between go on behind those of before.
        let at = u64::try_from(now.as_micros()).unwrap_or_default();
        let seq = at.max(self.last + 1);
        self.last = seq;
        if has_room {
            self.pass(seq, bound, now);
        } else {
            let queue = if self.has_more { &mut self.behind } else { &mut self.waiting };
            queue.push_back(Waiter { seq, task, bound });
        }
        if let Bound::Slots(slots) = bound {
            self.slots = self.slots.max(slots);
            if when_full == WhenFull::CancelOldest {
                self.rivals.insert(seq, task);
                superseded.extend(self.oldest(slots));
            }
        }
        Entered { seq, has_room, superseded }
    }

    /// Takes those out who came first, as long as there are more than slots.
    fn oldest(&mut self, slots: u32) -> Vec<(TaskId, bool)> {
        let mut oldest = Vec::new();
        while self.rivals.len() > slots as usize
            && let Some((seq, task)) = self.rivals.pop_first()
        {
            let waited = seq > self.served;
            self.waiting.retain(|waiter| waiter.seq != seq);
            self.behind.retain(|waiter| waiter.seq != seq);
            oldest.push((task, waited));
        }
        oldest
    }

    fn pass(&mut self, seq: u64, bound: Bound, now: Timestamp) {
        self.held += 1;
        self.served = seq;
        self.meter = meter::pass(self.meter, bound, seq, now);
    }

    /// Gives up a place of someone who waits no more, though its turn never came.
    pub(super) fn forget(&mut self, seq: u64) {
        self.rivals.remove(&seq);
    }

    /// Gives up a place, and the room if it has some.
    pub fn leave(&mut self, seq: u64) {
        self.rivals.remove(&seq);
        self.alarm = self.alarm.filter(|alarm| alarm.seq != seq);
        if seq <= self.served {
            self.held = self.held.saturating_sub(1);
            self.meter = meter::leave(self.meter, seq);
        } else {
            self.waiting.retain(|waiter| waiter.seq != seq);
            self.behind.retain(|waiter| waiter.seq != seq);
        }
    }

    /// An attempt of someone who is under way has ended.
    pub(super) fn count(&mut self, seq: u64, bound: Bound, is_failure: bool, now: Timestamp) {
        if let Bound::Breaker(breaker) = bound {
            self.meter = meter::count(self.meter, breaker, seq, is_failure, now);
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

    /// The alarm of who waits first has come.
    pub(super) fn ring(&mut self) {
        self.alarm = None;
    }

    /// Lets the first who waits go on, if there is one and there is room.
    pub(super) fn admit(&mut self, now: Timestamp) -> Option<Waiter> {
        self.next(now)?;
        let first = self.waiting.pop_front()?;
        self.pass(first.seq, first.bound, now);
        Some(first)
    }

    /// Who goes on next, if there is room and someone waits.
    pub(super) fn next(&self, now: Timestamp) -> Option<TaskId> {
        let first = self.waiting.front()?;
        self.lets(first.bound, now).then_some(first.task)
    }

    /// Sets the alarm of who waits first, if only time must pass. Answers it if it is another
    /// than it was.
    pub(super) fn set_alarm(&mut self) -> Option<(TaskId, Timestamp)> {
        let first = self.waiting.front();
        let due = first.and_then(|first| meter::due(self.meter, first.bound));
        let alarm = first.zip(due).map(|(first, due)| (first.task, Alarm { seq: first.seq, due }));
        let is_new = alarm.is_some_and(|(_, alarm)| self.alarm != Some(alarm));
        // Where who waits first is not known, it has the alarm that was set.
        if first.is_some() || !self.has_more {
            self.alarm = alarm.map(|(_, alarm)| alarm);
        }
        alarm.filter(|_| is_new).map(|(task, alarm)| (task, alarm.due))
    }

    /// Whether only time lets those go on who wait here.
    pub(super) fn is_metered(&self) -> bool {
        self.slots == 0
    }

    /// Whether nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.held == 0 && self.waiting.is_empty() && !self.has_more && self.rivals.is_empty()
    }

    /// When it may be forgotten; `None` while someone is in it.
    pub fn forget_at(&self) -> Option<Timestamp> {
        let long_ago = Timestamp::from_micros(0);
        self.is_empty().then(|| self.meter.map_or(long_ago, Meter::forget_at))
    }

    /// Whether there may be room for whoever waits first, who is not known.
    pub fn is_unsettled(&self) -> bool {
        let is_unknown = self.has_more && self.waiting.is_empty();
        let has_alarm = self.alarm.is_some_and(|alarm| alarm.seq > self.served);
        is_unknown && if self.is_metered() { !has_alarm } else { self.held < self.slots }
    }
}
