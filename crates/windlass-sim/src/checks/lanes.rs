//! Who had slots in lanes, and in which order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use windlass::testing::invariants::Violation;
use windlass::{Fence, Timestamp};
use windlass_core::lane::Need;
use windlass_core::{
    Bound, EventId, LaneId, LaneKeys, TaskEvent, TaskEventKind, TaskId, TaskState,
};

use super::Evidence;
use super::fairness::merged;
use crate::ledger::Call;

const SLOTS: &str = "G5 limits hold";
const FREE: &str = "G5 a free slot goes to who waits";
const ORDER: &str = "G6 order per key";

/// What the walk knows of a lane.
#[derive(Default)]
struct Lane {
    slots: usize,
    /// Whether nobody in it needs slots in other lanes as well.
    is_only: bool,
    /// Who has a slot.
    holders: BTreeSet<TaskId>,
    /// Who waits, in the order of coming.
    waiting: VecDeque<TaskId>,
    /// Who came and was not claimed since, in the order of coming.
    unclaimed: VecDeque<TaskId>,
    /// Who came, in the order of coming, and the fence when it ended for the first time.
    came: Vec<(TaskId, Option<Fence>)>,
}

impl Lane {
    fn is_stream(&self) -> bool {
        self.slots == 1 && self.is_only
    }

    fn come(&mut self, task: TaskId) {
        if !self.unclaimed.contains(&task) {
            self.unclaimed.push_back(task);
        }
        if !self.came.iter().any(|(known, _)| *known == task) {
            self.came.push((task, None));
        }
    }

    fn leave(&mut self, task: TaskId, fence: Fence) {
        self.holders.remove(&task);
        self.waiting.retain(|waiting| *waiting != task);
        self.unclaimed.retain(|waiting| *waiting != task);
        let came = self.came.iter_mut().find(|(known, _)| *known == task);
        if let Some((_, end @ None)) = came {
            *end = Some(fence);
        }
    }
}

/// All lanes of a history, and who needs slots in them.
struct Lanes {
    lanes: BTreeMap<LaneId, Lane>,
    needs: BTreeMap<TaskId, Vec<Need>>,
}

impl Lanes {
    fn of(evidence: &Evidence<'_>) -> Self {
        let mut all = Lanes { lanes: BTreeMap::new(), needs: BTreeMap::new() };
        for file in evidence.files {
            let Some(definition) = evidence.definition(file) else { continue };
            let Ok(keys) = LaneKeys::of(definition, &file.run.input) else { continue };
            for index in definition.indices() {
                let needs = keys.needs(definition, &file.run.tenant, index);
                for need in &needs {
                    let lane = all
                        .lanes
                        .entry(need.lane.clone())
                        .or_insert_with(|| Lane { is_only: true, ..Lane::default() });
                    // Other limits bound what happens in a time.
                    let Bound::Slots(slots) = need.bound else { continue };
                    lane.slots = slots as usize;
                    lane.is_only &= needs.len() == 1;
                }
                if !needs.is_empty() {
                    all.needs.insert(TaskId { run: file.run.id, index }, needs);
                }
            }
        }
        all
    }

    /// Follows an event; answers what is wrong with it.
    fn follow(&mut self, task: TaskId, event: &TaskEvent) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        let Some(needs) = self.needs.get(&task) else { return wrong };
        for need in needs {
            let Some(lane) = self.lanes.get_mut(&need.lane) else { continue };
            if let TaskEventKind::Blocked { limit, key } = &event.kind
                && (limit, key) == (&need.lane.limit, &need.lane.key)
            {
                lane.waiting.push_back(task);
                lane.come(task);
            }
            if event.to == TaskState::Ready && !lane.holders.contains(&task) {
                let first = lane.waiting.front().copied();
                if lane.is_only && first.is_some_and(|first| first != task) {
                    let text =
                        format!("task {task} has a slot in {:?} before {first:?}", need.lane);
                    wrong.push((ORDER, text));
                }
                lane.waiting.retain(|waiting| *waiting != task);
                lane.come(task);
                lane.holders.insert(task);
                if lane.holders.len() > lane.slots {
                    let (holders, id) = (&lane.holders, &need.lane);
                    wrong.push((SLOTS, format!("{holders:?} are under way at once in {id:?}")));
                }
            }
            if matches!(event.kind, TaskEventKind::Started { .. }) {
                let first = lane.unclaimed.front().copied();
                let is_first = first == Some(task) || !lane.unclaimed.contains(&task);
                if lane.is_stream() && !is_first {
                    let text =
                        format!("task {task} is claimed before {first:?} of {:?}", need.lane);
                    wrong.push((ORDER, text));
                }
                lane.unclaimed.retain(|waiting| *waiting != task);
            }
            if event.to.is_final() {
                lane.leave(task, event.fence);
            }
        }
        wrong
    }

    /// Someone who waits although a slot is free.
    fn left_waiting(&self) -> Option<(&LaneId, TaskId)> {
        let mut lanes = self.lanes.iter().filter(|(_, lane)| lane.is_only);
        lanes.find_map(|(id, lane)| {
            let first = lane.waiting.front().filter(|_| lane.holders.len() < lane.slots)?;
            Some((id, *first))
        })
    }
}

/// G5 and G6: no more tasks of a lane are under way than it has slots, whatever happens between
/// two attempts; slots are given in the order of coming, and at once when one is free; and those
/// of a lane with one slot are claimed and run in that order.
pub(super) fn slots_are_kept_and_given_in_order(
    evidence: &Evidence<'_>,
    violations: &mut Vec<Violation>,
) {
    let mut lanes = Lanes::of(evidence);
    let mut violate = |promise, text| violations.push(Violation { promise, text });
    let mut last_at = None;
    let times: BTreeMap<EventId, Timestamp> =
        evidence.task_events().map(|(_, line, _)| (line.id, line.at)).collect();
    let mut running = BTreeMap::new();
    for (id, _, task, event) in merged(evidence) {
        let at = times.get(&id).copied();
        if last_at != at
            && let Some((lane, task)) = lanes.left_waiting()
        {
            violate(FREE, format!("task {task} waits in {lane:?} at {last_at:?}"));
            return;
        }
        last_at = at;
        if event.from == TaskState::Running {
            running.insert((task, event.fence), at);
        }
        for (promise, text) in lanes.follow(task, event) {
            violate(promise, text);
        }
    }
    for (id, lane) in lanes.lanes.iter().filter(|(_, lane)| lane.is_stream()) {
        if let Some(text) = first_calls_in_order(evidence, &lane.came, &running) {
            violate(ORDER, format!("{text} in {id:?}"));
        }
    }
}

/// What is wrong with when handlers were first called of tasks that came in this order, by their
/// own notes. Calls that began when the task had been taken from the worker are left out.
fn first_calls_in_order(
    evidence: &Evidence<'_>,
    came: &[(TaskId, Option<Fence>)],
    running: &BTreeMap<(TaskId, Fence), Option<Timestamp>>,
) -> Option<String> {
    let handlers = evidence.world.handlers.lock();
    let mut latest: Option<(Timestamp, TaskId)> = None;
    for (task, end) in came {
        let is_own = |(fence, call): &(Fence, &Call)| {
            let until = running.get(&(*task, *fence)).copied().flatten();
            until.is_none_or(|until| call.at < until)
        };
        let last = end.unwrap_or(Fence(u64::MAX));
        let Some((_, first)) = handlers.calls_of(*task, last).find(is_own) else { continue };
        if let Some((before, other)) = latest
            && first.at < before
        {
            let at = first.at;
            return Some(format!("task {task} is called at {at}, task {other} at {before}"));
        }
        latest = Some((first.at, *task));
    }
    None
}
