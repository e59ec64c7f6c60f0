//! One run in memory, and the only place where its tasks change their state.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{
    Call, Definition, Effect, Event, EventBody, Failure, Fence, IdempotencyKey, LaneKeys, Payload,
    Priority, Progress, RunCommand, RunEvent, RunEventKind, RunId, RunState, SignalId, StepName,
    StepRecord, TaskCommand, TaskEvent, TaskEventKind, TaskId, TaskIndex, TaskKind, TaskState,
    Tenant, Timestamp, WorkerId,
};

use super::queue::{Entry, Place, Station};
use super::state::{Deadline, Due, Ended, Shared};
use crate::planted::PlantedBug;
use crate::store::{Checkpoint, HandlerKey, NewRun, RunRecord, StoreError, TaskRecord};

pub(super) struct Run {
    pub(super) id: RunId,
    pub(super) definition: Arc<Definition>,
    pub(super) tenant: Tenant,
    pub(super) input: Payload,
    pub(super) lane_keys: LaneKeys,
    pub(super) key: Option<IdempotencyKey>,
    pub(super) priority: Priority,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) state: RunState,
    pub(super) round: u32,
    pub(super) created_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    /// When it must have ended.
    deadline: Option<Deadline>,
    pub(super) progress: Progress,
    pub(super) tasks: Vec<Task>,
    pub(super) events: Vec<Event>,
    /// Signals that no function has asked for, the oldest first.
    pub(super) signals: Vec<(StepName, Letter)>,
    /// The ids of all signals that came, each with its place among them.
    pub(super) signal_ids: HashMap<SignalId, u64>,
}

/// A signal that waits for the functions of a run.
pub(super) struct Letter {
    pub(super) id: SignalId,
    /// Its place among those that came.
    pub(super) seq: u64,
    pub(super) value: Payload,
}

pub(super) struct Task {
    pub(super) state: TaskState,
    pub(super) attempt: u32,
    pub(super) fence: Fence,
    /// The newest write of a worker that was applied.
    pub(super) answered: Option<(Fence, Verb)>,
    pub(super) due: Option<Due>,
    /// When it must have been claimed.
    claim_by: Option<Deadline>,
    /// Who has it while it is running.
    pub(super) holder: Option<WorkerId>,
    /// Where it stands while ready, and where it stood while running.
    pub(super) place: Option<Place>,
    pub(super) output: Option<Payload>,
    pub(super) failure: Option<Failure>,
    pub(super) note: Option<Payload>,
    /// What earlier attempts left for the next one.
    pub(super) checkpoint: Option<Checkpoint>,
    /// What is known of the calls of its function.
    pub(super) steps: BTreeMap<Call, StepRecord>,
}

/// What a worker did to a task it held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Finish,
    HandBack,
}

impl Task {
    fn new() -> Self {
        Task {
            state: TaskState::Pending,
            attempt: 0,
            fence: Fence(0),
            answered: None,
            due: None,
            claim_by: None,
            holder: None,
            place: None,
            output: None,
            failure: None,
            note: None,
            checkpoint: None,
            steps: BTreeMap::new(),
        }
    }
}

impl Run {
    /// A new run with its first tasks ready, or scheduled if it has a delay.
    pub(super) fn start(
        new: NewRun,
        definition: Arc<Definition>,
        shared: &mut Shared,
    ) -> Result<Run, StoreError> {
        let lane_keys = LaneKeys::of(&definition, &new.input);
        let lane_keys = lane_keys.map_err(|error| StoreError::Conflict(error.to_string()))?;
        let (progress, effects) = Progress::start(&definition);
        let tasks = definition.tasks().iter().map(|_| Task::new()).collect();
        let mut run = Run {
            id: new.id,
            definition,
            tenant: new.tenant,
            input: new.input,
            lane_keys,
            key: new.key,
            priority: new.priority,
            metadata: new.metadata,
            state: RunState::Running,
            round: 1,
            created_at: shared.now,
            ended_at: None,
            deadline: None,
            progress,
            tasks,
            events: Vec::new(),
            signals: Vec::new(),
            signal_ids: HashMap::new(),
        };
        let started = RunEvent { kind: RunEventKind::Started, from: None, to: RunState::Running };
        run.push_event(shared, EventBody::Run(started));
        run.limit(shared, Duration::ZERO);
        for effect in effects {
            run.apply_effect(shared, effect, new.delay)?;
        }
        Ok(run)
    }

    /// After a delay it may take as long as its definition says.
    pub(super) fn limit(&mut self, shared: &mut Shared, delay: Duration) {
        let timeout = self.definition.timeout();
        let deadline = timeout.map(|timeout| (shared.now + delay + timeout, self.id, None));
        shared.set_deadline(&mut self.deadline, deadline);
    }

    pub(super) fn task_id(&self, index: TaskIndex) -> TaskId {
        TaskId { run: self.id, index }
    }

    pub(super) fn task(&mut self, index: TaskIndex) -> &mut Task {
        &mut self.tasks[index.as_usize()]
    }

    pub(super) fn states(&self) -> Vec<TaskState> {
        self.tasks.iter().map(|task| task.state).collect()
    }

    pub(super) fn handler_key(&self) -> HandlerKey {
        HandlerKey { workflow: self.definition.name().clone(), version: self.definition.version() }
    }

    pub(super) fn push_event(&mut self, shared: &mut Shared, body: EventBody) {
        let id = shared.next_event_id();
        self.events.push(Event { id, run: self.id, at: shared.now, body });
    }

    /// Moves a task by the table of transitions and writes it down. The caller has
    /// set the task's fence and attempt to what they are after the move.
    pub(super) fn move_task(
        &mut self,
        shared: &mut Shared,
        index: TaskIndex,
        command: TaskCommand,
        kind: TaskEventKind,
    ) -> Result<(), StoreError> {
        let id = self.task_id(index);
        let spec = Arc::clone(self.definition.task(index));
        let name = spec.name.clone();
        let task = self.task(index);
        let from = task.state;
        let to = from.apply(command).map_err(|e| StoreError::Corrupt(format!("task {id}: {e}")))?;
        task.state = to;
        if !shared.planted.has(PlantedBug::ClaimTimeoutOfClaimed) {
            shared.set_deadline(&mut task.claim_by, None);
        }
        if from == TaskState::Waiting {
            shared.mailboxes.leave(id);
        }
        if to.is_final() {
            task.checkpoint = None;
        }
        let halts = spec.halts() && !shared.planted.has(PlantedBug::HaltedStreamGoesOn);
        let keeps_slots = to == TaskState::Failed && halts
            || to == TaskState::Cancelled && shared.planted.has(PlantedBug::CancelKeepsSlots);
        if to.is_final() && !keeps_slots {
            shared.vacated.push(id);
        }
        if to == TaskState::Failed {
            shared.halted.extend(halts.then_some(id));
            self.bury(shared, index);
        }
        let task = self.task(index);
        shared.count_move(from, to);
        let (fence, attempt) = (task.fence, task.attempt);
        let event = TaskEvent { task: index, name, kind, from, to, fence, attempt };
        self.push_event(shared, EventBody::Task(event));
        Ok(())
    }

    /// Moves the run by the table of transitions and writes it down.
    pub(super) fn move_run(
        &mut self,
        shared: &mut Shared,
        command: RunCommand,
        kind: RunEventKind,
    ) -> Result<(), StoreError> {
        let from = self.state;
        let to = from
            .apply(command)
            .map_err(|e| StoreError::Corrupt(format!("run {}: {e}", self.id)))?;
        self.state = to;
        self.ended_at = to.is_final().then_some(shared.now);
        shared.wakes.runs |= to.is_final();
        if to.is_final() {
            shared.set_deadline(&mut self.deadline, None);
            let delay = Duration::ZERO;
            shared.ended.push(Ended { run: self.id, state: to, delay });
        }
        self.push_event(shared, EventBody::Run(RunEvent { kind, from: Some(from), to }));
        Ok(())
    }

    /// Gives a task a place in its queue; the move is the caller's.
    pub(super) fn enqueue(&mut self, shared: &mut Shared, index: TaskIndex) {
        let spec = self.definition.task(index);
        let bucket = self.lane_keys.bucket(&self.definition, &self.tenant, index);
        let entry = Entry {
            task: self.task_id(index),
            queue: spec.queue.clone(),
            priority: self.priority.plus(spec.priority),
            tenant: self.tenant.clone(),
            station: Station { handler: self.handler_key(), bucket },
            weight: shared.weight(&self.tenant),
        };
        let place = shared.ready.push(entry);
        self.task(index).place = Some(place);
        self.limit_wait(shared, index);
        shared.wakes.work.push(self.task_id(index));
    }

    /// From now on a task may wait for a worker as long as its definition says.
    pub(super) fn limit_wait(&mut self, shared: &mut Shared, index: TaskIndex) {
        let timeout = self.definition.task(index).claim_timeout;
        let claim_by = timeout.map(|timeout| (shared.now + timeout, self.id, Some(index)));
        shared.set_deadline(&mut self.task(index).claim_by, claim_by);
    }

    /// Sets a task's due time; the move is the caller's.
    pub(super) fn schedule(&mut self, shared: &mut Shared, index: TaskIndex, until: Timestamp) {
        let id = self.task_id(index);
        self.task(index).due = Some(shared.schedule(until, id));
    }

    /// A task's turn has come: it becomes ready, or asks for the slots that it needs.
    pub(super) fn queue(
        &mut self,
        shared: &mut Shared,
        index: TaskIndex,
        command: TaskCommand,
    ) -> Result<(), StoreError> {
        if !self.definition.task(index).limits.is_empty() {
            shared.requests.push_back(self.task_id(index));
            return Ok(());
        }
        self.move_task(shared, index, command, TaskEventKind::Queued)?;
        self.enqueue(shared, index);
        Ok(())
    }

    /// A task's parents have ended as it wants: queue it, now or after a time.
    fn unblock(
        &mut self,
        shared: &mut Shared,
        index: TaskIndex,
        delay: Duration,
    ) -> Result<(), StoreError> {
        let until = match self.definition.task(index).kind {
            TaskKind::Sleep(duration) => {
                let until = shared.now + delay + duration;
                let kind = TaskEventKind::Sleeping { until };
                self.move_task(shared, index, TaskCommand::Schedule, kind)?;
                until
            }
            TaskKind::Handler | TaskKind::OnFailure if delay.is_zero() => {
                return self.queue(shared, index, TaskCommand::Queue);
            }
            TaskKind::Handler | TaskKind::OnFailure => {
                let until = shared.now + delay;
                let kind = TaskEventKind::Delayed { until };
                self.move_task(shared, index, TaskCommand::Schedule, kind)?;
                until
            }
        };
        self.schedule(shared, index, until);
        Ok(())
    }

    fn apply_effect(
        &mut self,
        shared: &mut Shared,
        effect: Effect,
        delay: Duration,
    ) -> Result<(), StoreError> {
        match effect {
            Effect::Unblock(index) => self.unblock(shared, index, delay),
            Effect::Skip(index) => {
                self.move_task(shared, index, TaskCommand::Skip, TaskEventKind::Skipped)
            }
            Effect::EndRun(verdict) => {
                let command = match verdict {
                    RunState::Failed => RunCommand::Fail,
                    RunState::Succeeded => RunCommand::Succeed,
                    RunState::Running | RunState::Cancelled => {
                        let text = format!("run {} ended {verdict} by itself", self.id);
                        return Err(StoreError::Corrupt(text));
                    }
                };
                self.move_run(shared, command, RunEventKind::Ended)
            }
        }
    }

    pub(super) fn apply_effects(
        &mut self,
        shared: &mut Shared,
        effects: Vec<Effect>,
        delay: Duration,
    ) -> Result<(), StoreError> {
        effects.into_iter().try_for_each(|effect| self.apply_effect(shared, effect, delay))
    }

    /// Ends a task and does everything that follows from it for the run.
    pub(super) fn end_task(
        &mut self,
        shared: &mut Shared,
        index: TaskIndex,
        command: TaskCommand,
        kind: TaskEventKind,
    ) -> Result<(), StoreError> {
        let is_reaped = matches!(kind, TaskEventKind::LeaseExpired { .. });
        self.move_task(shared, index, command, kind)?;
        let state = self.tasks[index.as_usize()].state;
        if state == TaskState::Failed
            && (shared.planted.has(PlantedBug::FailureWithoutCascade)
                || is_reaped && shared.planted.has(PlantedBug::ReapWithoutCascade))
        {
            return Ok(());
        }
        let definition = Arc::clone(&self.definition);
        let mut effects = self.progress.end(&definition, index, state);
        if shared.planted.has(PlantedBug::ReadyAfterFirstParent) {
            self.unblock_early(index, &mut effects);
        }
        self.apply_effects(shared, effects, Duration::ZERO)
    }

    pub(super) fn record(&self) -> RunRecord {
        RunRecord { input: Some(self.input.clone()), ..self.listed() }
    }

    /// Returns the record as lists have it, without the input.
    pub(super) fn listed(&self) -> RunRecord {
        RunRecord {
            id: self.id,
            workflow: self.definition.name().clone(),
            version: self.definition.version(),
            tenant: self.tenant.clone(),
            state: self.state,
            input: None,
            key: self.key.clone(),
            priority: self.priority,
            metadata: self.metadata.clone(),
            round: self.round,
            open_tasks: if self.state.is_final() { 0 } else { self.progress.open() },
            created_at: self.created_at,
            ended_at: self.ended_at,
        }
    }

    pub(super) fn task_record(&self, index: TaskIndex) -> TaskRecord {
        let task = &self.tasks[index.as_usize()];
        TaskRecord {
            index,
            name: self.definition.task(index).name.clone(),
            state: task.state,
            attempt: task.attempt,
            fence: task.fence,
            pending_parents: self.progress.parents(index).pending,
            available_at: task.due.map(|due| due.at),
            worker: task.holder,
            output: task.output.clone(),
            failure: task.failure.clone(),
            progress: task.note.clone(),
        }
    }
}
