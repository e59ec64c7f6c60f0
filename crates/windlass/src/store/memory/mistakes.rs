//! The planted mistakes that take more than a line, see [`crate::planted`].

use std::sync::Arc;

use windlass_core::lane::{Need, Verdict};
use windlass_core::{Effect, LaneId, Lanes, StepName, TaskId, TaskIndex, TaskState, WorkerId};

use super::run::{Letter, Run};
use super::state::{Ended, Shared, State};
use crate::planted::PlantedBug;
use crate::store::{Answer, Completion, Heartbeat, Held, StoreError, TakeSignal, Taken, Which};

impl State {
    /// Whoever says to hold a task prolongs the lease of its present holder.
    pub(super) fn prolong_holders(&mut self, heartbeat: &Heartbeat) {
        let now = self.shared.now;
        let tasks = heartbeat.held.iter().map(|held| held.task);
        let holder = |id: TaskId| self.runs.get(&id.run)?.tasks[id.index.as_usize()].holder;
        for worker in tasks.filter_map(holder).collect::<Vec<WorkerId>>() {
            if let Some(worker) = self.shared.workers.get_mut(&worker) {
                worker.lease_until = now + worker.lease;
            }
        }
    }

    /// With this bug a write of an older fence passes for one of the present holder.
    pub(super) fn blind(&self, held: Held, bug: PlantedBug) -> Held {
        let run = self.runs.get(&held.task.run).filter(|_| self.shared.planted.has(bug));
        let task = run.and_then(|run| run.tasks.get(held.task.index.as_usize()));
        match task.filter(|task| task.state == TaskState::Running) {
            Some(task) => Held { fence: task.fence, ..held },
            None => held,
        }
    }

    /// Takes a signal off that the function has not got yet.
    pub(super) fn take_off(&mut self, take: &TakeSignal) -> Option<(StepName, Letter)> {
        let Which::UpTo(..) = take.which else { return None };
        if take.key.is_some() {
            return None;
        }
        let run = self.holder(take.held).ok()?;
        let known = run.task(take.held.task.index).steps.get(&take.call);
        if known.is_some_and(|step| step.number().is_some()) {
            return None;
        }
        let place = run.signals.iter().position(|(name, _)| *name == take.name)?;
        Some(run.signals.remove(place))
    }

    /// Records a signal that was taken off.
    pub(super) fn take_later(
        &mut self,
        take: TakeSignal,
        off: Option<(StepName, Letter)>,
    ) -> Taken {
        if let (Some(run), Some(signal)) = (self.runs.get_mut(&take.held.task.run), off) {
            run.signals.insert(0, signal);
        }
        self.take_signal(take)
    }

    /// Finishes tasks, and leaves it to the caller to undo the runs that ended.
    pub(super) fn finish_without_undo(
        &mut self,
        completions: Vec<Completion>,
    ) -> Result<(Vec<Answer>, Vec<Ended>), StoreError> {
        let answers = self.finish_all(completions)?;
        self.settle_lanes();
        let mut ended = std::mem::take(&mut self.shared.ended);
        ended.iter().for_each(|ended| self.note_end(ended));
        ended.retain(|ended| self.is_to_undo(ended));
        Ok((answers, ended))
    }

    /// The pause before a retry is over for the process that held it in memory.
    #[cfg(feature = "planted-bugs")]
    pub(super) fn remember_timer(&mut self, id: TaskId) {
        let Some(run) = self.runs.get_mut(&id.run) else { return };
        let Some(task) = run.tasks.get(id.index.as_usize()) else { return };
        if let (TaskState::Scheduled, Some(until)) = (task.state, task.due.map(|due| due.at)) {
            self.shared.schedule(until, id);
        }
    }

    /// The parents' counters of the children move again for a finish that was
    /// applied before.
    pub(super) fn count_again(&mut self, id: TaskId) {
        let Some(run) = self.runs.get_mut(&id.run) else { return };
        let state = run.tasks[id.index.as_usize()].state;
        let definition = Arc::clone(&run.definition);
        let waits = |child: &TaskIndex| run.progress.parents(*child).pending > 0;
        let can_count = state.is_final() && run.progress.open() > 0;
        if can_count && definition.children(id.index).iter().all(waits) {
            let effects = run.progress.end(&definition, id.index, state);
            // Whatever comes of it is for the simulation to see, not for the caller.
            let _ = run.apply_effects(&mut self.shared, effects, std::time::Duration::ZERO);
        }
    }
}

impl Shared {
    /// A task asks for its slots. With the bug, in lanes as the verb before has seen them.
    pub(super) fn request(&mut self, task: TaskId, needs: Vec<Need>, is_new: bool) -> Verdict {
        if !self.planted.has(PlantedBug::LaneCheckedWithoutLock) {
            let before = self.meters();
            let verdict = self.lanes.request(task, needs, is_new, self.now);
            self.mistake_turns(&before, false);
            return verdict;
        }
        let held = |lanes: &Lanes, id: &LaneId| lanes.lanes.get(id).map_or(0, |lane| lane.held);
        let ids: Vec<LaneId> = needs.iter().map(|need| need.lane.clone()).collect();
        let more =
            |id: &LaneId| held(&self.lanes, id).saturating_sub(held(&self.lanes_before.1, id));
        let more: Vec<u32> = ids.iter().map(more).collect();
        for (id, more) in ids.iter().zip(&more) {
            if let Some(lane) = self.lanes.lanes.get_mut(id) {
                lane.held -= more;
            }
        }
        let verdict = self.lanes.request(task, needs, is_new, self.now);
        for (id, more) in ids.iter().zip(more) {
            if let Some(lane) = self.lanes.lanes.get_mut(id) {
                lane.held += more;
            }
        }
        verdict
    }

    /// With the bug, remembers the lanes for the verbs that come within a moment.
    pub(super) fn remember_lanes(&mut self) {
        let is_old = self.now.since(self.lanes_before.0) >= super::MISTAKE_GAP;
        if is_old && self.planted.has(PlantedBug::LaneCheckedWithoutLock) {
            self.lanes_before = (self.now, self.lanes.clone());
        }
    }

    /// With the bug, gives up the slots of a task before it does so itself.
    pub(super) fn release_twice(&mut self, task: TaskId) {
        if !self.planted.has(PlantedBug::SlotReleasedTwice) {
            return;
        }
        let Some(entrant) = self.lanes.entrants.get(&task) else { return };
        for (need, place) in entrant.needs.iter().zip(&entrant.places) {
            if let Some(lane) = self.lanes.lanes.get_mut(&need.lane) {
                lane.leave(*place);
            }
        }
    }

    /// With the bug, one task in eight has no places that could be found.
    pub(super) fn forgets_places(&self, task: TaskId) -> bool {
        self.planted.has(PlantedBug::LimitForgottenWhileFinishing)
            && task.run.as_uuid().as_u128() % 8 == 3
    }

    /// With the bug, those who wait exchange their places until they are in the order of ids.
    pub(super) fn line_up_by_id(&mut self) {
        if !self.planted.has(PlantedBug::LaneByTaskId) {
            return;
        }
        for (id, lane) in &mut self.lanes.lanes {
            let mut tasks: Vec<TaskId> = lane.waiting.iter().map(|waiter| waiter.task).collect();
            tasks.sort_unstable();
            for (waiter, task) in lane.waiting.iter_mut().zip(tasks) {
                waiter.task = task;
                let Some(entrant) = self.lanes.entrants.get_mut(&task) else { continue };
                let place = entrant.needs.iter().position(|need| need.lane == *id);
                if let Some(place) = place.and_then(|place| entrant.places.get_mut(place)) {
                    *place = waiter.seq;
                }
            }
        }
    }
}

impl Run {
    /// Children become ready although other parents have not ended.
    pub(super) fn unblock_early(&self, ended: TaskIndex, effects: &mut Vec<Effect>) {
        let state = |index: &TaskIndex| self.tasks[index.as_usize()].state;
        let is_pending = |index: &TaskIndex| state(index) == TaskState::Pending;
        effects.retain(|effect| match effect {
            Effect::Unblock(child) => is_pending(child),
            Effect::Skip(_) | Effect::EndRun(_) => true,
        });
        if state(&ended) != TaskState::Succeeded {
            return;
        }
        for child in self.definition.children(ended).iter().filter(|child| is_pending(child)) {
            let early = Effect::Unblock(*child);
            if !effects.contains(&early) && !effects.contains(&Effect::Skip(*child)) {
                effects.push(early);
            }
        }
    }
}
