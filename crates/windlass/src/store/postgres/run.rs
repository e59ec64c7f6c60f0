//! One run while a verb has it locked, and the only place where its tasks change their
//! state.
//!
//! Only the tasks that the verb needs are loaded. What was changed is written by
//! [`Work::flush`](super::work::Work).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use windlass_core::decide::worker_lost;
use windlass_core::{
    Call, ClaimSeq, Decision, Definition, Effect, EventBody, Failure, Fence, LaneKeys, ParentTally,
    Payload, Priority, Progress, RunCommand, RunEvent, RunEventKind, RunId, RunState, StepRecord,
    TaskCommand, TaskEvent, TaskEventKind, TaskId, TaskIndex, TaskKind, TaskSpec, TaskState,
    Tenant, Timestamp, Trigger, WorkerId, decide_lease_expired,
};

use uuid::Uuid;

use super::names::RouteKey;
use crate::store::{HandlerKey, Mailbox, Refusal, StoreError};

pub(super) struct Run {
    pub(super) id: RunId,
    pub(super) definition_id: i32,
    pub(super) definition: Arc<Definition>,
    pub(super) tenant: Tenant,
    pub(super) priority: Priority,
    pub(super) state: RunState,
    pub(super) round: u32,
    pub(super) lane_keys: LaneKeys,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) progress: Progress,
    /// The tasks that were loaded.
    pub(super) tasks: BTreeMap<TaskIndex, Task>,
    pub(super) is_changed: bool,
    /// What its row says already, and is to be held to.
    pub(super) ahead: Option<Ahead>,
}

/// What was written of a run before it was decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    state: RunState,
    open: u32,
    failed: u32,
    round: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) state: TaskState,
    pub(super) fence: Fence,
    pub(super) attempt: u32,
    /// The newest write of a worker that was applied.
    pub(super) answered: Option<(Fence, Verb)>,
    /// Who has it while it is running, and by which claim.
    pub(super) holder: Option<(WorkerId, ClaimSeq)>,
    /// Where it stands while ready, and where it stood while running.
    pub(super) place: Option<Place>,
    pub(super) failure: Option<Failure>,
    pub(super) output: Option<Payload>,
    /// Whether an attempt of it may have left a checkpoint.
    pub(super) may_have_checkpoint: bool,
    /// The narrow table that has it in the database.
    pub(super) stored_in: Option<Narrow>,
    /// Whether `task_rows` has it.
    pub(super) has_row: bool,
    /// Whether it is no longer as `task_rows` says, or as having no row there says.
    pub(super) is_changed: bool,
}

/// Whether the success of its only parent, if it has one, is all that a task waits for.
pub(super) fn is_simple(spec: &TaskSpec) -> bool {
    spec.parents.len() <= 1 && spec.trigger == Trigger::AllSucceeded
}

/// The tables of which one has a row of each active task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Narrow {
    Ready,
    Leases,
    Timers,
}

/// A place in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) route: i32,
    pub(super) tag: i64,
    pub(super) seq: i64,
}

/// What a worker did to a task it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Finish,
    Release,
}

impl Verb {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Verb::Finish => "finish",
            Verb::Release => "release",
        }
    }
}

impl Task {
    /// A task that nothing has happened to yet.
    pub(super) fn new() -> Self {
        Task {
            state: TaskState::Pending,
            fence: Fence(0),
            attempt: 0,
            answered: None,
            holder: None,
            place: None,
            failure: None,
            output: None,
            may_have_checkpoint: false,
            stored_in: None,
            has_row: false,
            is_changed: false,
        }
    }

    /// Whether its row must be written: it has one, or there is something to say of it that
    /// its definition and its place do not.
    pub(super) fn is_to_write(&self, parents: ParentTally) -> bool {
        let is_obvious = is_active(self.state)
            && self.failure.is_none()
            && (parents.failed, parents.skipped) == (0, 0);
        self.is_changed && (self.has_row || !is_obvious)
    }

    /// Why a write with this fence is refused, if it is.
    pub(super) fn refusal(&self, fence: Fence) -> Option<Refusal> {
        match self.state {
            TaskState::Running if self.fence == fence => None,
            TaskState::Cancelled => Some(Refusal::RunCancelled),
            TaskState::Pending
            | TaskState::Scheduled
            | TaskState::Waiting
            | TaskState::Ready
            | TaskState::Running
            | TaskState::Succeeded
            | TaskState::Failed
            | TaskState::Skipped => Some(Refusal::LeaseLost),
        }
    }
}

/// What a verb wants written besides the rows of runs and tasks, in its order.
#[derive(Default)]
pub(super) struct Moves {
    pub(super) enqueued: Vec<TaskId>,
    /// Tasks whose turn has come, and that need slots in lanes before they become ready.
    pub(super) requests: VecDeque<TaskId>,
    /// Tasks that have ended and may have slots in lanes.
    pub(super) vacated: Vec<TaskId>,
    /// Tasks in whose lanes slots may be free.
    pub(super) visits: Vec<TaskId>,
    /// Attempts that have ended of tasks whose limits want to know.
    pub(super) attempts: Vec<AttemptEnd>,
    /// Tasks that have failed and keep their slots.
    pub(super) halted: Vec<TaskId>,
    /// Runs that begin, or begin another round.
    pub(super) begun: Vec<RunId>,
    /// How long those of them wait that are given a time.
    pub(super) delays: BTreeMap<RunId, Duration>,
    /// Tasks that have failed for good.
    pub(super) died: Vec<TaskId>,
    /// Tasks that had, and do not count any more.
    pub(super) revived: Vec<TaskId>,
    pub(super) put_back: Vec<TaskId>,
    pub(super) scheduled: Vec<(TaskId, Timestamp)>,
    /// Tasks that begin anew, and what they had failed with: their notes go, and what their
    /// functions know as far as it is not to be used again.
    pub(super) reset: Vec<(TaskId, Option<Failure>)>,
    /// Calls that functions do not wait for any more.
    pub(super) left: Vec<(TaskId, Call)>,
    /// Functions that waited for something to happen, and do not any more.
    pub(super) unparked: Vec<TaskId>,
    /// Calls that wait for signals to keys.
    pub(super) key_waits: Vec<(TaskId, Call, Mailbox)>,
    /// What functions remember.
    pub(super) steps: Vec<(TaskId, StepRecord)>,
    pub(super) events: Vec<(RunId, EventBody)>,
    pub(super) has_ended_runs: bool,
    /// The workers of tasks that were cancelled while they ran.
    pub(super) interrupted: Vec<Uuid>,
}

/// An attempt that ended, as far as limits want to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptEnd {
    pub(super) task: TaskId,
    pub(super) is_failure: bool,
    /// Whether there is another.
    pub(super) is_retried: bool,
}

impl Run {
    pub(super) fn task_id(&self, index: TaskIndex) -> TaskId {
        TaskId { run: self.id, index }
    }

    pub(super) fn task(&mut self, index: TaskIndex) -> Result<&mut Task, StoreError> {
        let id = self.task_id(index);
        let missing = || StoreError::Corrupt(format!("task {id} was not loaded"));
        self.tasks.get_mut(&index).ok_or_else(missing)
    }

    pub(super) fn handler_key(&self) -> HandlerKey {
        HandlerKey { workflow: self.definition.name().clone(), version: self.definition.version() }
    }

    /// The route that a task of this run waits in.
    pub(super) fn route_key(&self, index: TaskIndex) -> RouteKey {
        let spec = self.definition.task(index);
        RouteKey {
            queue: spec.queue.clone(),
            priority: self.priority.plus(spec.priority),
            handler: self.handler_key(),
            bucket: self.lane_keys.bucket(&self.definition, &self.tenant, index),
        }
    }

    /// Whether nothing can have happened to a task of which no parent has ended: there is no
    /// need to look.
    fn is_untouched(&self, index: TaskIndex) -> bool {
        let spec = self.definition.task(index);
        // A retry of the run resets tasks that had begun.
        self.round == 1 && spec.parents.len() == 1 && spec.kind != TaskKind::OnFailure
    }

    /// Takes a task for loaded of which the only parent is about to end, if that is all there
    /// is to know of it.
    pub(super) fn assume(&mut self, index: TaskIndex) -> bool {
        let is_untouched = self.is_untouched(index);
        if is_untouched {
            let tally = ParentTally { pending: 1, failed: 0, skipped: 0, cancelled: 0 };
            self.progress.load(index, tally);
            self.tasks.insert(index, Task::new());
        }
        is_untouched
    }

    /// Whether a task that is leased with this fence has no row: it was never claimed before,
    /// and the success of its only parent, if it has one, was all it waited for.
    pub(super) fn is_first_claim(&self, index: TaskIndex, fence: Fence) -> bool {
        self.round == 1 && fence == Fence(1) && is_simple(self.definition.task(index))
    }

    /// Its row says what [`COUNT_ENDS`](super::statements::COUNT_ENDS) has made of it.
    pub(super) fn count_end_ahead(&mut self) {
        let open = self.progress.open().saturating_sub(1);
        let state = if open == 0 { RunState::Succeeded } else { self.state };
        self.ahead = Some(Ahead { state, open, failed: self.progress.failed(), round: self.round });
    }

    /// Whether it has become what its row says already, if anything was written ahead.
    pub(super) fn is_as_ahead(&self) -> bool {
        let Run { state, round, .. } = *self;
        let open = if state.is_final() { 0 } else { self.progress.open() };
        let is = Ahead { state, open, failed: self.progress.failed(), round };
        self.ahead.is_none_or(|ahead| ahead == is)
    }

    /// Whether its row must be written.
    pub(super) fn is_to_write(&self) -> bool {
        self.is_changed && self.ahead.is_none()
    }

    /// The states of all tasks; all of them have been loaded.
    pub(super) fn states(&self) -> Result<Vec<TaskState>, StoreError> {
        if self.tasks.len() != self.definition.tasks().len() {
            let text = format!(
                "run {} has {} tasks, its definition {}",
                self.id,
                self.tasks.len(),
                self.definition.tasks().len()
            );
            return Err(StoreError::Corrupt(text));
        }
        Ok(self.tasks.values().map(|task| task.state).collect())
    }

    /// Moves a task by the table of transitions and writes it down. The caller has
    /// set the task's fence and attempt to what they are after the move.
    pub(super) fn move_task(
        &mut self,
        moves: &mut Moves,
        index: TaskIndex,
        command: TaskCommand,
        kind: TaskEventKind,
    ) -> Result<(), StoreError> {
        let id = self.task_id(index);
        let spec = Arc::clone(self.definition.task(index));
        let name = spec.name.clone();
        let task = self.task(index)?;
        let from = task.state;
        let to = from.apply(command).map_err(|e| StoreError::Corrupt(format!("task {id}: {e}")))?;
        task.state = to;
        if from == TaskState::Waiting {
            moves.unparked.push(id);
        }
        // Active tasks have one word in `task_rows`; the narrow tables tell them apart.
        task.is_changed |= is_active(from) != is_active(to) || to.is_final();
        if to == TaskState::Failed {
            moves.died.push(id);
        }
        match to == TaskState::Failed && spec.halts() {
            true => moves.halted.push(id),
            false if to.is_final() && !spec.limits.is_empty() => moves.vacated.push(id),
            false => {}
        }
        let (fence, attempt) = (task.fence, task.attempt);
        let event = TaskEvent { task: index, name, kind, from, to, fence, attempt };
        moves.events.push((self.id, EventBody::Task(event)));
        Ok(())
    }

    /// Moves the run by the table of transitions and writes it down.
    pub(super) fn move_run(
        &mut self,
        moves: &mut Moves,
        now: Timestamp,
        command: RunCommand,
        kind: RunEventKind,
    ) -> Result<(), StoreError> {
        let from = self.state;
        let to = from
            .apply(command)
            .map_err(|e| StoreError::Corrupt(format!("run {}: {e}", self.id)))?;
        self.state = to;
        self.ended_at = to.is_final().then_some(now);
        self.is_changed = true;
        moves.has_ended_runs |= to.is_final();
        moves.events.push((self.id, EventBody::Run(RunEvent { kind, from: Some(from), to })));
        Ok(())
    }

    /// Whether a task needs slots in lanes.
    pub(super) fn is_limited(&self, index: TaskIndex) -> bool {
        !self.definition.task(index).limits.is_empty()
    }

    /// A task's parents have ended as it wants: queue it, now or after a time.
    pub(super) fn unblock(
        &mut self,
        moves: &mut Moves,
        now: Timestamp,
        index: TaskIndex,
        delay: Duration,
    ) -> Result<(), StoreError> {
        let id = self.task_id(index);
        let (until, kind) = match self.definition.task(index).kind {
            TaskKind::Sleep(duration) => {
                let until = now + delay + duration;
                (until, TaskEventKind::Sleeping { until })
            }
            TaskKind::Handler | TaskKind::OnFailure
                if delay.is_zero() && self.is_limited(index) =>
            {
                moves.requests.push_back(id);
                return Ok(());
            }
            TaskKind::Handler | TaskKind::OnFailure if delay.is_zero() => {
                self.move_task(moves, index, TaskCommand::Queue, TaskEventKind::Queued)?;
                moves.enqueued.push(id);
                return Ok(());
            }
            TaskKind::Handler | TaskKind::OnFailure => {
                let until = now + delay;
                (until, TaskEventKind::Delayed { until })
            }
        };
        self.move_task(moves, index, TaskCommand::Schedule, kind)?;
        moves.scheduled.push((id, until));
        Ok(())
    }

    pub(super) fn apply_effects(
        &mut self,
        moves: &mut Moves,
        now: Timestamp,
        effects: Vec<Effect>,
        delay: Duration,
    ) -> Result<(), StoreError> {
        for effect in effects {
            match effect {
                Effect::Unblock(index) => self.unblock(moves, now, index, delay)?,
                Effect::Skip(index) => {
                    self.move_task(moves, index, TaskCommand::Skip, TaskEventKind::Skipped)?;
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
                    self.move_run(moves, now, command, RunEventKind::Ended)?;
                }
            }
        }
        Ok(())
    }

    /// Ends a task and does everything that follows from it for the run. The tallies
    /// that this needs have been loaded.
    pub(super) fn end_task(
        &mut self,
        moves: &mut Moves,
        now: Timestamp,
        index: TaskIndex,
        command: TaskCommand,
        kind: TaskEventKind,
    ) -> Result<(), StoreError> {
        self.move_task(moves, index, command, kind)?;
        let state = self.task(index)?.state;
        let definition = Arc::clone(&self.definition);
        let effects = self.progress.end(&definition, index, state);
        self.is_changed = true;
        let mut ended = vec![index];
        ended.extend(effects.iter().filter_map(|effect| match effect {
            Effect::Skip(index) => Some(*index),
            Effect::Unblock(_) | Effect::EndRun(_) => None,
        }));
        for parent in ended {
            for child in definition.children(parent) {
                self.task(*child)?.is_changed = true;
            }
        }
        self.apply_effects(moves, now, effects, Duration::ZERO)
    }

    /// Takes a task away from the worker that had it.
    pub(super) fn give_up_lease(&mut self, index: TaskIndex, verb: Verb) -> Result<(), StoreError> {
        let task = self.task(index)?;
        task.answered = Some((task.fence, verb));
        task.holder = None;
        Ok(())
    }

    /// Puts a task that was not run back where it stood, or off until a time.
    pub(super) fn hand_back(
        &mut self,
        moves: &mut Moves,
        index: TaskIndex,
        until: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        self.give_up_lease(index, Verb::Release)?;
        let id = self.task_id(index);
        self.task(index)?.attempt -= 1;
        let kind = TaskEventKind::Released { until };
        match until {
            Some(until) => {
                self.move_task(moves, index, TaskCommand::Defer, kind)?;
                moves.scheduled.push((id, until));
            }
            None => {
                self.move_task(moves, index, TaskCommand::Release, kind)?;
                moves.put_back.push(id);
            }
        }
        Ok(())
    }

    /// A lease ran out: back to the queue, or failed if no attempt is left.
    pub(super) fn expire(
        &mut self,
        moves: &mut Moves,
        now: Timestamp,
        index: TaskIndex,
        worker: WorkerId,
        lease_until: Timestamp,
    ) -> Result<(), StoreError> {
        let id = self.task_id(index);
        let spec = self.definition.task(index);
        let (max_attempts, on_worker_lost) = (spec.retry.max_attempts(), spec.on_worker_lost);
        let task = self.task(index)?;
        task.holder = None;
        let failed = decide_lease_expired(on_worker_lost, max_attempts, task.attempt);
        let kind = TaskEventKind::LeaseExpired { worker, lease_until, failure: failed.clone() };
        match failed {
            None => {
                task.failure = Some(worker_lost(max_attempts, task.attempt));
                task.is_changed = true;
                self.move_task(moves, index, TaskCommand::Expire, kind)?;
                moves.enqueued.push(id);
                Ok(())
            }
            Some(failure) => {
                task.failure = Some(failure);
                self.end_task(moves, now, index, TaskCommand::Fail, kind)
            }
        }
    }

    /// The state in which a decision ends the task, if it does.
    pub(super) fn ending(&self, index: TaskIndex, decision: &Decision) -> Option<TaskState> {
        match decision {
            Decision::Succeed(_) => Some(TaskState::Succeeded),
            Decision::Skip => Some(TaskState::Skipped),
            Decision::Fail(_) => Some(TaskState::Failed),
            Decision::Park(_) | Decision::Continue(_) => None,
            Decision::Retry { .. } => {
                let max_attempts = self.definition.task(index).retry.max_attempts();
                let is_last = self.tasks.get(&index)?.attempt >= max_attempts;
                is_last.then_some(TaskState::Failed)
            }
        }
    }

    pub(super) fn apply_decision(
        &mut self,
        moves: &mut Moves,
        now: Timestamp,
        index: TaskIndex,
        decision: Decision,
    ) -> Result<(), StoreError> {
        let id = self.task_id(index);
        match decision {
            Decision::Succeed(output) => {
                self.task(index)?.output = Some(output);
                let kind = TaskEventKind::Succeeded;
                self.end_task(moves, now, index, TaskCommand::Succeed, kind)
            }
            Decision::Skip => {
                self.end_task(moves, now, index, TaskCommand::Skip, TaskEventKind::Skipped)
            }
            Decision::Continue(input) => self.begin_afresh(moves, now, index, input),
            Decision::Park(_) => {
                Err(StoreError::Corrupt(format!("task {id} was not judged before it was parked")))
            }
            Decision::Fail(failure) => {
                self.task(index)?.failure = Some(failure.clone());
                let kind = TaskEventKind::Failed { failure };
                self.end_task(moves, now, index, TaskCommand::Fail, kind)
            }
            Decision::Retry { failure, delay } => {
                let max_attempts = self.definition.task(index).retry.max_attempts();
                let task = self.task(index)?;
                if task.attempt >= max_attempts {
                    // Whoever decided knew another policy; the bound is this one.
                    return self.apply_decision(moves, now, index, Decision::Fail(failure));
                }
                task.failure = Some(failure.clone());
                task.is_changed = true;
                let until = now + delay;
                let kind = TaskEventKind::Retrying { failure, until };
                self.move_task(moves, index, TaskCommand::Retry, kind)?;
                moves.scheduled.push((id, until));
                Ok(())
            }
        }
    }

    /// The time of a scheduled task has come.
    pub(super) fn promote(
        &mut self,
        moves: &mut Moves,
        now: Timestamp,
        index: TaskIndex,
    ) -> Result<(), StoreError> {
        match self.definition.task(index).kind {
            TaskKind::Sleep(_) => {
                self.end_task(moves, now, index, TaskCommand::Wake, TaskEventKind::Woken)
            }
            TaskKind::Handler | TaskKind::OnFailure if self.is_limited(index) => {
                moves.requests.push_back(self.task_id(index));
                Ok(())
            }
            TaskKind::Handler | TaskKind::OnFailure => {
                self.move_task(moves, index, TaskCommand::Promote, TaskEventKind::Queued)?;
                moves.enqueued.push(self.task_id(index));
                Ok(())
            }
        }
    }
}

/// Whether a narrow table has tasks in this state.
pub(super) const fn is_active(state: TaskState) -> bool {
    match state {
        TaskState::Scheduled | TaskState::Waiting | TaskState::Ready | TaskState::Running => true,
        TaskState::Pending
        | TaskState::Succeeded
        | TaskState::Failed
        | TaskState::Cancelled
        | TaskState::Skipped => false,
    }
}
