//! What durable functions remember, and the signals they wait for.

use std::collections::BTreeSet;

use windlass_core::{
    Call, Parking, Payload, RunCommand, RunEventKind, RunState, SignalKey, StepChange, StepKind,
    StepName, StepRecord, StepResult, StepState, StepWrite, TaskCommand, TaskEventKind, TaskId,
    TaskIndex, TaskState, Timestamp,
};

use super::run::{Letter, Run, Task};
use super::state::{Shared, State};
use crate::planted::{Planted, PlantedBug};
use crate::store::{
    Answer, Mailbox, NewSignal, PAGE_MAX, Recording, Refusal, SIGNALS_MAX, Signalled, StoreError,
    TakeSignal, Taken, Which, wrong_state,
};

impl State {
    pub(super) fn record(&mut self, recording: Recording) -> Answer {
        let is_over = recording.is_over(self.shared.payload_limit);
        let Recording { held, steps } = recording;
        let held = self.blind(held, PlantedBug::RecordWithoutFence);
        let (now, planted) = (self.shared.now, self.shared.planted);
        let run = match self.holder(held) {
            Ok(run) => run,
            Err(refusal) => return Answer::Refused(refusal),
        };
        let task = run.task(held.task.index);
        if is_over || !task.can_write(&steps, now) {
            return Answer::Refused(Refusal::Invalid);
        }
        task.write_steps(&steps, now, planted);
        Answer::Accepted
    }

    pub(super) fn take_signal(&mut self, take: TakeSignal) -> Taken {
        let TakeSignal { held, call, name, key, which } = take;
        let (now, planted) = (self.shared.now, self.shared.planted);
        self.holder(held)?;
        let Some(run) = self.runs.get_mut(&held.task.run) else {
            return Err(Refusal::UnknownTask);
        };
        let known = run.task(held.task.index).steps.get(&call);
        if let Some(StepRecord { state: done @ StepState::Done { .. }, .. }) = known {
            return which.taken_before(done);
        }
        let mailbox = key.clone().map(|key| run.mailbox(key, name.clone()));
        let place = run.signals.iter().position(|(signal, _)| *signal == name);
        let (newest, number) = match which {
            Which::UpTo(newest, number) => (newest, number),
            Which::Newest => {
                let own = run.signals.iter().rfind(|(signal, _)| *signal == name);
                let newest = match &mailbox {
                    Some(mailbox) => self.shared.mailboxes.newest(mailbox, now),
                    None => own.map(|(_, letter)| letter.id),
                };
                return Ok(newest.map(Signalled::Newest));
            }
        };
        let value = match &mailbox {
            Some(mailbox) => self.shared.mailboxes.first(mailbox, newest, now),
            None => {
                let seq = run.signal_ids.get(&newest).copied();
                let first = place.map(|place| &run.signals[place].1);
                first.filter(|first| Some(first.seq) <= seq).map(|first| first.value.clone())
            }
        };
        let Some(value) = value else { return Ok(None) };
        let change = StepChange::Done { number, result: StepResult::Value(value.clone()) };
        let steps = [StepWrite { call, name, kind: StepKind::Signal, key, change }];
        let task = run.task(held.task.index);
        if !task.can_write(&steps, now) {
            return Err(Refusal::Invalid);
        }
        task.write_steps(&steps, now, planted);
        match (mailbox, place) {
            (Some(_), _) if planted.has(PlantedBug::KeySignalTakenTwice) => {}
            (Some(mailbox), _) => self.shared.mailboxes.take(&mailbox, now),
            (None, Some(place)) => drop(run.signals.remove(place)),
            (None, None) => {}
        }
        Ok(Some(Signalled::Value(value)))
    }

    pub(super) fn signal(&mut self, signal: NewSignal) -> Result<(), StoreError> {
        let limit = self.shared.payload_limit;
        let Some(run) = self.runs.get_mut(&signal.run) else {
            return Err(StoreError::NotFound(format!("run {}", signal.run)));
        };
        if run.signal_ids.contains_key(&signal.id) {
            return Ok(());
        }
        if run.state != RunState::Running {
            return Err(wrong_state(run.id, run.state, "running", "signalled"));
        }
        signal.check(limit).map_err(StoreError::Conflict)?;
        if run.signals.len() >= SIGNALS_MAX {
            return Err(too_many_signals(&signal));
        }
        let seq = run.signal_ids.len() as u64;
        run.signal_ids.insert(signal.id, seq);
        run.signals.push((signal.name, Letter { id: signal.id, seq, value: signal.value }));
        run.resume_signalled(&mut self.shared)
    }

    pub(super) fn list_steps(
        &self,
        task: TaskId,
        after: Option<Call>,
        limit: usize,
    ) -> Vec<StepRecord> {
        let run = self.runs.get(&task.run);
        let Some(task) = run.and_then(|run| run.tasks.get(task.index.as_usize())) else {
            return Vec::new();
        };
        // What comes before the first call is the function's input.
        let after = after.unwrap_or(Call(0));
        let behind = task.steps.values().filter(|step| step.call > after);
        behind.take(limit.min(PAGE_MAX)).cloned().collect()
    }
}

/// Nobody takes what is sent to the run.
pub(in crate::store) fn too_many_signals(signal: &NewSignal) -> StoreError {
    let NewSignal { run, name, .. } = signal;
    let text =
        format!("run {run} has {SIGNALS_MAX} signals that nobody took, {name:?} is one more");
    StoreError::Conflict(text)
}

impl Task {
    fn can_write(&self, steps: &[StepWrite], now: Timestamp) -> bool {
        StepRecord::after_all(|call| self.steps.get(&call), steps, now).is_some()
    }

    fn write_steps(&mut self, steps: &[StepWrite], now: Timestamp, planted: Planted) {
        for step in steps {
            let old = self.steps.get(&step.call);
            let is_blind = planted.has(PlantedBug::WaitBegunAnew);
            let old = old.filter(|old| !is_blind || old.number().is_some());
            if let Some(record) = StepRecord::after(old, step, now) {
                self.steps.insert(step.call, record);
            }
        }
    }

    /// The task is reset: a function that failed goes on from the last call that failed,
    /// any other begins anew.
    pub(super) fn forget_steps(&mut self) {
        if self.state != TaskState::Failed {
            self.steps.clear();
        } else if let Some(failure) = &self.failure
            && let Some(first) = StepRecord::to_forget(self.steps.values(), failure)
        {
            self.steps.retain(|_, step| step.number().is_some_and(|number| number < first));
        }
    }
}

impl Run {
    /// Whether a function that holds its task can wait like this.
    pub(super) fn can_park(&self, index: TaskIndex, parking: &Parking, now: Timestamp) -> bool {
        let task = &self.tasks[index.as_usize()];
        let waits = parking.awaits || parking.due(now, |call| task.steps.get(&call)).is_some();
        waits && task.can_write(&parking.steps, now)
    }

    pub(super) fn park(
        &mut self,
        shared: &mut Shared,
        index: TaskIndex,
        parking: Parking,
    ) -> Result<(), StoreError> {
        let task = self.task(index);
        let until = parking.due(shared.now, |call| task.steps.get(&call));
        // What the function does not wait for any more would wake it for nothing.
        let waits = |call: &Call| {
            parking.waits.contains(call) || parking.steps.iter().any(|step| step.call == *call)
        };
        task.steps.retain(|call, step| step.number().is_some() || waits(call));
        task.write_steps(&parking.steps, shared.now, shared.planted);
        task.attempt = 0;
        let command = if parking.awaits { TaskCommand::Await } else { TaskCommand::Sleep };
        self.move_task(shared, index, command, TaskEventKind::Parked { until })?;
        if let Some(until) = until {
            self.schedule(shared, index, until);
        }
        let mailboxes = if parking.awaits { self.awaited_keys(index) } else { BTreeSet::new() };
        let is_there = |mailbox| shared.mailboxes.newest(mailbox, shared.now).is_some();
        let is_there = mailboxes.iter().any(is_there)
            && !shared.planted.has(PlantedBug::KeySignalMissedAtPark);
        shared.mailboxes.wait(self.task_id(index), mailboxes);
        if shared.planted.has(PlantedBug::SignalMissedAtPark) {
            return Ok(());
        }
        if is_there {
            return self.resume(shared, index);
        }
        self.resume_signalled(shared)
    }

    /// Where signals to keys come that a function waits for.
    fn awaited_keys(&self, index: TaskIndex) -> BTreeSet<Mailbox> {
        let open = self.tasks[index.as_usize()].steps.values();
        let open = open.filter(|step| step.number().is_none());
        open.filter_map(|step| Some(self.mailbox(step.key.clone()?, step.name.clone()))).collect()
    }

    pub(super) fn mailbox(&self, key: SignalKey, name: StepName) -> Mailbox {
        Mailbox { tenant: self.tenant.clone(), key, name }
    }

    /// The only task of the run begins afresh with another input.
    pub(super) fn begin_afresh(
        &mut self,
        shared: &mut Shared,
        index: TaskIndex,
        input: Payload,
    ) -> Result<(), StoreError> {
        self.round += 1;
        let round = self.round;
        let task = self.task(index);
        if !shared.planted.has(PlantedBug::StepsKeptWhenContinued) {
            task.steps.clear();
        }
        let input = StepRecord::input(round, input);
        task.steps.insert(input.call, input);
        task.attempt = 0;
        task.checkpoint = None;
        task.failure = None;
        task.note = None;
        self.move_task(shared, index, TaskCommand::Continue, TaskEventKind::Continued)?;
        self.move_run(shared, RunCommand::Continue, RunEventKind::Continued { round })?;
        self.enqueue(shared, index);
        Ok(())
    }

    /// Lets the tasks go on that wait for a signal that is there.
    fn resume_signalled(&mut self, shared: &mut Shared) -> Result<(), StoreError> {
        let waits = |task: &Task| {
            let is_there = |step: &StepRecord| {
                step.kind == StepKind::Signal
                    && step.key.is_none()
                    && step.number().is_none()
                    && self.signals.iter().any(|(name, _)| *name == step.name)
            };
            task.state == TaskState::Waiting && task.steps.values().any(is_there)
        };
        let indices = self.definition.indices();
        let waiting: Vec<TaskIndex> =
            indices.filter(|index| waits(&self.tasks[index.as_usize()])).collect();
        waiting.into_iter().try_for_each(|index| self.resume(shared, index))
    }

    /// What a function waited for has come.
    pub(super) fn resume(
        &mut self,
        shared: &mut Shared,
        index: TaskIndex,
    ) -> Result<(), StoreError> {
        // Its time has come in the same sweep, and it is about to be asked whether it has its slots.
        // And who waits in a lane for its next attempt sees what came once it has its turn.
        let id = self.task_id(index);
        if shared.requests.contains(&id) || shared.lanes.waits(id) {
            return Ok(());
        }
        if let Some(due) = self.task(index).due.take() {
            shared.unschedule(due);
        }
        self.move_task(shared, index, TaskCommand::Resume, TaskEventKind::Resumed)?;
        self.enqueue(shared, index);
        Ok(())
    }
}
