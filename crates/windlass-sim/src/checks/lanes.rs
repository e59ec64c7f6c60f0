//! Who had slots in lanes, and in which order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use windlass::testing::invariants::Violation;
use windlass::{Event, Fence, RunId, Timestamp, WhenFull};
use windlass_core::lane::Need;
use windlass_core::{
    Bound, EventBody, EventId, LaneId, LaneKeys, RunEventKind, TaskEvent, TaskEventKind, TaskId,
    TaskIndex, TaskKind, TaskState,
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
    /// Whether nobody in it needs places in other lanes as well.
    is_only: bool,
    /// Whether newcomers take the places of others.
    has_rivals: bool,
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
    /// Whether its slots are given in the order of coming, and at once.
    fn is_in_order(&self) -> bool {
        self.is_only && !self.has_rivals
    }

    fn is_stream(&self) -> bool {
        self.slots == 1 && self.is_in_order()
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
    /// Tasks that keep their slots when they fail, and for whom they wait; the on-failure task for
    /// all others.
    halting: BTreeMap<TaskId, Option<Vec<TaskIndex>>>,
    /// What a retry of a run has begun anew, as far as it was followed.
    reset: BTreeMap<RunId, BTreeSet<TaskIndex>>,
    /// Those of them that have.
    halted: BTreeMap<TaskId, Fence>,
}

impl Lanes {
    fn of(evidence: &Evidence<'_>) -> Self {
        let mut all = Lanes {
            lanes: BTreeMap::new(),
            needs: BTreeMap::new(),
            halting: BTreeMap::new(),
            reset: BTreeMap::new(),
            halted: BTreeMap::new(),
        };
        for file in evidence.files {
            let Some(definition) = evidence.definition(file) else { continue };
            let Ok(keys) = LaneKeys::of(definition, &file.input) else { continue };
            for index in definition.indices() {
                let mut needs = keys.needs(definition, &file.run.tenant, index);
                let is_one = needs.len() == 1;
                // Other limits bound what happens in a time.
                needs.retain(|need| matches!(need.bound, Bound::Slots(_)));
                let spec = definition.task(index);
                if spec.halts() {
                    let is_last = spec.kind == TaskKind::OnFailure;
                    let parents = (!is_last).then(|| spec.parents.clone());
                    all.halting.insert(TaskId { run: file.run.id, index }, parents);
                }
                for need in &needs {
                    let lane = all
                        .lanes
                        .entry(need.lane.clone())
                        .or_insert_with(|| Lane { is_only: true, ..Lane::default() });
                    let Bound::Slots(slots) = need.bound else { continue };
                    lane.slots = slots as usize;
                    lane.is_only &= is_one;
                    lane.has_rivals |= need.when_full == WhenFull::CancelOldest;
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
        let reset = self.reset.entry(task.run).or_default();
        match event.kind == TaskEventKind::Reset {
            true => drop(reset.insert(task.index)),
            false => reset.clear(),
        }
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
                if lane.is_in_order() && first.is_some_and(|first| first != task) {
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
            if event.to == TaskState::Failed && self.halting.contains_key(&task) {
                self.halted.insert(task, event.fence);
            } else if event.to.is_final() {
                lane.leave(task, event.fence);
            }
        }
        if event.kind == TaskEventKind::Reset
            && let Some(fence) = self.halted.remove(&task)
        {
            let reset = &self.reset[&task.run];
            let parents = self.halting.get(&task).and_then(Option::as_ref);
            // It waits for others once more, who may need its slots.
            let is_behind = parents.is_none_or(|all| all.iter().any(|it| reset.contains(it)));
            for need in needs.iter().filter(|_| is_behind) {
                if let Some(lane) = self.lanes.get_mut(&need.lane) {
                    lane.leave(task, fence);
                }
            }
        }
        wrong
    }

    /// The dead letters of a run are seen to: what it halts goes on.
    fn see_to(&mut self, run: RunId) {
        let tasks: Vec<(TaskId, Fence)> =
            self.halted.iter().filter(|(t, _)| t.run == run).map(|(t, f)| (*t, *f)).collect();
        for (task, fence) in tasks {
            self.halted.remove(&task);
            for need in self.needs.get(&task).into_iter().flatten() {
                if let Some(lane) = self.lanes.get_mut(&need.lane) {
                    lane.leave(task, fence);
                }
            }
        }
    }

    /// Someone who waits although a slot is free.
    fn left_waiting(&self) -> Option<(&LaneId, TaskId)> {
        let mut lanes = self.lanes.iter().filter(|(_, lane)| lane.is_in_order());
        lanes.find_map(|(id, lane)| {
            let first = lane.waiting.front().filter(|_| lane.holders.len() < lane.slots)?;
            Some((id, *first))
        })
    }
}

/// G5 and G6: no more tasks of a lane are under way than it has slots, whatever happens between
/// two attempts, nor while a task that failed halts it; slots are given in the order of coming, and
/// at once when one is free; and those of a lane with one slot are claimed and run in that order.
pub(super) fn slots_are_kept_and_given_in_order(
    evidence: &Evidence<'_>,
    violations: &mut Vec<Violation>,
) {
    let mut lanes = Lanes::of(evidence);
    let mut violate = |promise, text| violations.push(Violation { promise, text });
    let mut last_at = None;
    let times: BTreeMap<EventId, Timestamp> =
        evidence.task_events().map(|(_, line, _)| (line.id, line.at)).collect();
    let (mut running, mut seen_to) = (BTreeMap::new(), BTreeSet::new());
    let mut cancels: VecDeque<(EventId, RunId)> = cancels(evidence).into();
    let mut discards: VecDeque<(Timestamp, RunId)> = {
        let truth = evidence.world.truth.lock();
        truth.discards.iter().map(|(at, _, run)| (*at, *run)).collect()
    };
    for (id, _, task, event) in merged(evidence) {
        let at = times.get(&id).copied();
        while let Some((_, run)) = cancels.pop_front_if(|(cancel, _)| *cancel < id) {
            lanes.see_to(run);
        }
        if last_at != at
            && let Some((lane, task)) = lanes.left_waiting()
        {
            violate(FREE, format!("task {task} waits in {lane:?} at {last_at:?}"));
            return;
        }
        last_at = at;
        // Of what happens at the same time, it is not known what came first.
        while let Some((discard, run)) = discards.pop_front_if(|(discard, _)| at >= Some(*discard))
        {
            lanes.see_to(run);
            seen_to.insert((Some(discard), run));
        }
        if event.from == TaskState::Running {
            running.insert((task, event.fence), at);
        }
        for (promise, text) in lanes.follow(task, event) {
            violate(promise, text);
        }
        // What was discarded at the moment at which it failed was so behind it.
        if event.to == TaskState::Failed && seen_to.contains(&(at, task.run)) {
            lanes.see_to(task.run);
        }
    }
    for (id, lane) in lanes.lanes.iter().filter(|(_, lane)| lane.is_stream()) {
        if let Some(text) = first_calls_in_order(evidence, &lane.came, &running) {
            violate(ORDER, format!("{text} in {id:?}"));
        }
    }
}

/// The runs that were cancelled, in the order of the store.
fn cancels(evidence: &Evidence<'_>) -> Vec<(EventId, RunId)> {
    let events = evidence.files.iter().flat_map(|file| &file.events);
    let cancel = |event: &Event| match &event.body {
        EventBody::Run(body) => {
            matches!(body.kind, RunEventKind::Cancelled { .. }).then_some((event.id, event.run))
        }
        EventBody::Task(_) => None,
    };
    let mut cancels: Vec<(EventId, RunId)> = events.filter_map(cancel).collect();
    cancels.sort_unstable_by_key(|(id, _)| *id);
    cancels
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
