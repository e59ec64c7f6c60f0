//! The planted mistakes that take more than a line, see [`crate::planted`].

use std::sync::Arc;

use windlass_core::{Effect, Payload, TaskId, TaskIndex, TaskState, WorkerId};

use super::run::Run;
use super::state::State;
use crate::planted::PlantedBug;
use crate::store::{Heartbeat, Held, TakeSignal, Taken};

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
    pub(super) fn take_off(&mut self, take: &TakeSignal) -> Option<Payload> {
        if take.key.is_some() {
            return None;
        }
        let run = self.holder(take.held).ok()?;
        let known = run.task(take.held.task.index).steps.get(&take.call);
        if known.is_some_and(|step| step.number().is_some()) {
            return None;
        }
        let place = run.signals.iter().position(|(signal, _)| *signal == take.name)?;
        Some(run.signals.remove(place).1)
    }

    /// Records a signal that was taken off.
    pub(super) fn take_later(&mut self, take: TakeSignal, value: Option<Payload>) -> Taken {
        if let (Some(run), Some(value)) = (self.runs.get_mut(&take.held.task.run), value) {
            run.signals.insert(0, (take.name.clone(), value));
        }
        self.take_signal(take)
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
