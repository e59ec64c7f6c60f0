//! The lanes that a verb of a store has to do with.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::{LaneId, Need};
use super::limit::{Bound, WhenFull};
use super::queue::Lane;
use crate::id::TaskId;
use crate::time::Timestamp;

/// The most tasks that one verb lets go on in a lane where only time must pass: the others are
/// left to the next sweep.
const ADMITTED_MAX: usize = 256;

/// A task that is in lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entrant {
    /// The places that it needs, in the order in which it takes them.
    pub needs: Vec<Need>,
    /// The places that it has taken in the first of their lanes. It waits at most in the last.
    pub places: Vec<u64>,
    /// Whether someone else has its last place, for which it waited: it is about to be cancelled.
    pub is_out: bool,
}

/// What follows for a task that needs places in lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may go on.
    Ready,
    /// It waits in this lane.
    Wait(LaneId),
    /// It waits where it waited before, unless it is among those that [`Lanes::admit`] answers.
    Still,
    /// It is not to run, since this lane is full.
    Skip(LaneId),
}

/// The lanes that a verb of a store has to do with, and who is in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// The lanes.
    pub lanes: BTreeMap<LaneId, Lane>,
    /// Who is in them.
    pub entrants: BTreeMap<TaskId, Entrant>,
    /// Whether a lane that is not here is one in which nobody is; otherwise it is unknown.
    pub is_whole: bool,
    /// The lanes in which there may be room since they were last looked at.
    open: BTreeSet<LaneId>,
    /// How many were let go on in lanes since it was last asked what has changed.
    admitted: BTreeMap<LaneId, usize>,
    /// When lanes in which nobody is may be forgotten.
    fading: BTreeSet<(Timestamp, LaneId)>,
    changes: Changes,
}

/// What has changed in lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The lanes.
    pub lanes: BTreeSet<LaneId>,
    /// The places that were taken and given up.
    pub moves: Vec<PlaceMove>,
    /// Tasks that wait and are not looked at again at the time that was set, but for what
    /// `alarms` say.
    pub silenced: Vec<TaskId>,
    /// When tasks that wait are looked at again.
    pub alarms: Vec<(TaskId, Timestamp)>,
    /// Tasks whose place others have taken, and whether they only waited: their runs are to be
    /// cancelled.
    pub superseded: Vec<(TaskId, LaneId, bool)>,
}

/// Who may go on, and what must be known before more can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Tasks that have all that they need.
    pub ready: Vec<TaskId>,
    /// Who would go on, and where, if all the lanes that it needs were known.
    pub stuck: Vec<(LaneId, TaskId)>,
    /// Lanes in which who waits first is not known.
    pub unsettled: Vec<LaneId>,
}

/// A place in a lane that was taken or given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceMove {
    /// Whose place it is.
    pub task: TaskId,
    /// The lane.
    pub lane: LaneId,
    /// The place, if it was taken.
    pub taken: Option<Taken>,
}

/// A place that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The place.
    pub seq: u64,
    /// What the lane bounds by the task's definition.
    pub bound: Bound,
    /// Whether newcomers take the place of the oldest.
    pub is_rival: bool,
}

impl Lanes {
    /// All lanes there are.
    pub fn whole() -> Self {
        Lanes { is_whole: true, ..Lanes::default() }
    }

    /// A task wants to go on, or the alarm of one that waits has come.
    ///
    /// Whoever is new is skipped if a lane is full that it does not wait for; who comes for
    /// another attempt, or once more, waits.
    pub fn request(
        &mut self,
        task: TaskId,
        needs: Vec<Need>,
        is_new: bool,
        now: Timestamp,
    ) -> Verdict {
        if is_new
            && !self.entrants.contains_key(&task)
            && let Some(lane) = self.first_full(&needs, now)
        {
            return Verdict::Skip(lane);
        }
        let new = Entrant { needs, places: Vec::new(), is_out: false };
        let entrant = self.entrants.entry(task).or_insert(new);
        if entrant.is_out {
            return Verdict::Still;
        }
        if let Some((need, seq)) = entrant.needs.iter().zip(&entrant.places).next_back()
            && let Some(lane) = self.lanes.get_mut(&need.lane)
            && *seq > lane.served
        {
            lane.ring();
            self.changes.lanes.insert(need.lane.clone());
            self.open.insert(need.lane.clone());
            return Verdict::Still;
        }
        self.go_on(task, now)
    }

    /// The first lane that is full of those that a task does not wait for when it comes. Once it
    /// has waited for others, it waits for those too.
    fn first_full(&self, needs: &[Need], now: Timestamp) -> Option<LaneId> {
        let nobody = Lane::default();
        let is_full = |need: &&Need| {
            let lane = self.lanes.get(&need.lane).unwrap_or(&nobody);
            need.when_full == WhenFull::Skip && !lane.has_room(need.bound, now)
        };
        needs.iter().find(is_full).map(|need| need.lane.clone())
    }

    /// A task that has the places it asked for so far asks for the next.
    fn go_on(&mut self, task: TaskId, now: Timestamp) -> Verdict {
        while let Some(entrant) = self.entrants.get_mut(&task)
            && let Some(need) = entrant.needs.get(entrant.places.len()).cloned()
        {
            let Need { lane: id, bound, when_full } = need;
            let lane = self.lanes.entry(id.clone()).or_default();
            let entered = lane.enter(task, bound, when_full, now);
            entrant.places.push(entered.seq);
            self.changes.lanes.insert(id.clone());
            let is_rival = when_full == WhenFull::CancelOldest;
            let taken = Some(Taken { seq: entered.seq, bound, is_rival });
            self.changes.moves.push(PlaceMove { task, lane: id.clone(), taken });
            for (other, waited) in entered.superseded {
                self.supersede(other, id.clone(), waited);
            }
            if !entered.has_room {
                return Verdict::Wait(id);
            }
        }
        Verdict::Ready
    }

    fn supersede(&mut self, task: TaskId, lane: LaneId, waited: bool) {
        if let Some(entrant) = self.entrants.get_mut(&task) {
            entrant.is_out |= waited;
        }
        self.changes.silenced.extend(waited.then_some(task));
        self.changes.superseded.push((task, lane, waited));
    }

    /// Another attempt of a task comes: what is given for one attempt is given up.
    pub fn end_attempt(&mut self, task: TaskId) {
        let Some(entrant) = self.entrants.get_mut(&task) else { return };
        // They are the last that it asks for.
        let kept = entrant.needs.iter().take_while(|need| need.is_for_all_attempts());
        let kept = kept.count().min(entrant.places.len());
        let given_up: Vec<(LaneId, u64)> = entrant
            .needs
            .iter()
            .map(|need| need.lane.clone())
            .zip(entrant.places.iter().copied())
            .skip(kept)
            .collect();
        entrant.places.truncate(kept);
        for (lane, seq) in given_up {
            self.leave(task, lane, seq, false);
        }
    }

    /// An attempt of a task has ended, well or not.
    pub fn report(&mut self, task: TaskId, is_failure: bool, now: Timestamp) {
        let Some(entrant) = self.entrants.get(&task) else { return };
        for (need, seq) in entrant.needs.iter().zip(&entrant.places) {
            if let (Bound::Breaker(_), Some(lane)) = (need.bound, self.lanes.get_mut(&need.lane)) {
                lane.count(*seq, need.bound, is_failure, now);
                self.open.insert(need.lane.clone());
                self.changes.lanes.insert(need.lane.clone());
            }
        }
    }

    /// A task gives up all its places.
    pub fn vacate(&mut self, task: TaskId) {
        let Some(entrant) = self.entrants.remove(&task) else { return };
        let count = entrant.places.len();
        for (place, (need, seq)) in entrant.needs.into_iter().zip(entrant.places).enumerate() {
            self.leave(task, need.lane, seq, entrant.is_out && place + 1 == count);
        }
    }

    fn leave(&mut self, task: TaskId, id: LaneId, seq: u64, is_out: bool) {
        match self.lanes.get_mut(&id) {
            Some(lane) if is_out => lane.forget(seq),
            Some(lane) => lane.leave(seq),
            None => {}
        }
        self.open.insert(id.clone());
        self.changes.lanes.insert(id.clone());
        self.changes.moves.push(PlaceMove { task, lane: id, taken: None });
    }

    /// A lane that was looked up.
    pub fn insert(&mut self, id: LaneId, lane: Lane) {
        self.open.insert(id.clone());
        self.lanes.insert(id, lane);
    }

    /// More is known of a lane than when it was last asked who may go on.
    pub fn reopen(&mut self, id: LaneId) {
        self.open.insert(id);
    }

    /// Whether a task waits in a lane.
    pub fn waits(&self, task: TaskId) -> bool {
        let Some(entrant) = self.entrants.get(&task) else { return false };
        let last = entrant.needs.iter().zip(&entrant.places).next_back();
        let is_waiting = last.is_some_and(|(need, seq)| {
            self.lanes.get(&need.lane).is_some_and(|lane| *seq > lane.served)
        });
        entrant.is_out || is_waiting
    }

    /// Whether someone may go on since it was last asked.
    pub fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Lets those go on for whom there is room.
    pub fn admit(&mut self, now: Timestamp) -> Admitted {
        let mut admitted = Admitted::default();
        while let Some(id) = self.open.pop_first() {
            while let Some(lane) = self.lanes.get(&id)
                && let count = self.admitted.get(&id).copied().unwrap_or_default()
                && (count < ADMITTED_MAX || !lane.is_metered())
                && let Some(task) = lane.next(now)
            {
                if !self.missing(task).is_empty() {
                    admitted.stuck.push((id.clone(), task));
                    break;
                }
                let is_metered = lane.is_metered();
                if let Some(lane) = self.lanes.get_mut(&id) {
                    lane.admit(now);
                }
                self.admitted.insert(id.clone(), count + 1);
                self.changes.lanes.insert(id.clone());
                if self.go_on(task, now) == Verdict::Ready {
                    admitted.ready.push(task);
                } else if is_metered {
                    // Its alarm was that of the lane it has left.
                    self.changes.silenced.push(task);
                }
            }
            if self.lanes.get(&id).is_some_and(Lane::is_unsettled) {
                admitted.unsettled.push(id);
            }
        }
        admitted
    }

    /// Brings tasks that have all that they need into the order in which they go on: that of
    /// their last places, whatever the order in which lanes were looked at.
    pub fn line_up(&self, ready: &mut [TaskId]) {
        let place = |task: &TaskId| self.entrants.get(task)?.places.last().copied();
        ready.sort_by_key(|task| (place(task), *task));
    }

    /// The lanes that a task needs and that are not known.
    pub fn missing(&self, task: TaskId) -> BTreeSet<LaneId> {
        let Some(entrant) = self.entrants.get(&task).filter(|_| !self.is_whole) else {
            return BTreeSet::new();
        };
        let lanes = entrant.needs.iter().map(|need| &need.lane);
        lanes.filter(|lane| !self.lanes.contains_key(lane)).cloned().collect()
    }

    /// What has changed since it was last asked.
    pub fn take_changes(&mut self) -> Changes {
        let mut changes = std::mem::take(&mut self.changes);
        self.admitted.clear();
        for id in &changes.lanes {
            let Some(lane) = self.lanes.get_mut(id) else { continue };
            changes.alarms.extend(lane.set_alarm());
            if let Some(at) = lane.forget_at().filter(|_| self.is_whole) {
                self.fading.insert((at, id.clone()));
            }
        }
        changes
    }

    /// Forgets lanes in which nobody is and of which nothing is to be remembered.
    pub fn forget(&mut self, now: Timestamp) {
        while let Some((at, _)) = self.fading.first()
            && *at <= now
            && let Some((_, id)) = self.fading.pop_first()
        {
            let lane = self.lanes.get(&id);
            if lane.and_then(Lane::forget_at).is_some_and(|at| at <= now) {
                self.lanes.remove(&id);
            }
        }
    }
}
