//! Workers, their claims and their leases.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use windlass_core::decide::worker_lost;
use windlass_core::{
    ClaimSeq, Fence, Priority, QueueName, StepRecord, TaskCommand, TaskEventKind, TaskId,
    TaskIndex, TaskKind, TaskState, Timestamp, TraceContext, WorkerId, decide_lease_expired,
};

use super::queue::{Place, Station};
use super::run::Run;
use super::state::{Shared, State, Worker};
use crate::planted::PlantedBug;
use crate::store::declared::{Declared, SEARCHED_MAX, unregistered};
use crate::store::{
    ClaimRequest, Claimed, Heartbeat, HeartbeatAnswer, Held, Hello, Lost, ParentEnd, Refusal,
    StoreError, Sweep, WorkerRecord, WorkerState,
};

impl State {
    pub(super) fn join(&mut self, hello: Hello) -> Result<(), StoreError> {
        let is_dying = self.shared.workers.get(&hello.worker).is_some_and(|worker| worker.is_dead);
        if is_dying || self.shared.dead.contains(&hello.worker) {
            return Err(StoreError::LeaseLost(hello.worker));
        }
        hello.info.check().map_err(StoreError::Conflict)?;
        let workflows = hello.workflows();
        self.register_all(hello.definitions)?;
        let mut lease_until = self.shared.now + hello.lease;
        if self.shared.planted.has(PlantedBug::FirstHeartbeatNeverExpires) {
            lease_until = Timestamp::MAX;
        }
        let (lease, tasks) = (hello.lease, BTreeMap::new());
        let last_claim = ClaimSeq(0);
        let declared = Arc::new(Declared::new(hello.slots, workflows.clone()));
        let worker = Worker { lease, lease_until, last_claim, is_dead: false, tasks, declared };
        self.shared.workers.entry(hello.worker).or_insert(worker);
        let now = self.shared.now;
        self.shared.registry.entry(hello.worker).or_insert_with(|| WorkerRecord {
            id: hello.worker,
            name: hello.name,
            state: WorkerState::Live,
            slots: hello.slots,
            lease: hello.lease,
            workflows,
            info: hello.info,
            joined_at: now,
            seen_at: Some(now),
            ended_at: None,
            tasks: 0,
        });
        Ok(())
    }

    /// Takes tasks off their queues for a claim, one of each queue in turn so that
    /// a busy queue does not starve the others.
    pub(super) fn take_ready(&mut self, request: &ClaimRequest) -> Result<Vec<TaskId>, StoreError> {
        self.check_claim(request)?;
        let now = self.shared.now;
        let is_unbound = self.shared.planted.has(PlantedBug::ClaimsOverSlots);
        let Some(worker) = self.shared.live_worker(request.worker) else {
            return Err(StoreError::LeaseLost(request.worker));
        };
        let is_late = !worker.tasks.is_empty() && worker.lease_until <= now;
        if request.seq <= worker.last_claim || is_late {
            return Ok(Vec::new());
        }
        let limit = match is_unbound {
            true => request.limit,
            false => worker.declared.room(request, worker.tasks.len())?,
        };
        worker.last_claim = request.seq;
        let mut queues: Vec<_> = request.queues.iter().collect();
        let first = request.seq.0 as usize % queues.len().max(1);
        queues.rotate_left(first);
        let ring = self.shared.ring();
        let tenant = request.tenant.as_ref();
        let mut share = ring.share(request.worker, tenant);
        let mut serves = |queue: &QueueName, station: &Station| {
            let Station { handler, bucket } = station;
            let is_mine = |bucket| share.has(queue, handler, bucket);
            request.handlers.contains(handler) && bucket.is_none_or(is_mine)
        };
        let mut firsts: BTreeMap<QueueName, Option<Priority>> = BTreeMap::new();
        for queue in request.queues.iter() {
            let first =
                self.shared.ready.first(queue, request.seq, tenant, |one| serves(queue, one));
            firsts.insert(queue.clone(), first);
        }
        let mut taken = Vec::new();
        while taken.len() < limit && !queues.is_empty() {
            queues.retain(|queue| {
                if taken.len() == limit {
                    return true;
                }
                let first = firsts.get(*queue).copied().flatten();
                let next = self.shared.ready.pop(queue, first, tenant, |one| serves(queue, one));
                taken.extend(next);
                next.is_some()
            });
        }
        Ok(taken)
    }

    /// Checks that the worker of a claim declared what it claims, and that it is registered.
    fn check_claim(&self, request: &ClaimRequest) -> Result<(), StoreError> {
        let worker = self.shared.workers.get(&request.worker).filter(|worker| !worker.is_dead);
        let Some(worker) = worker else { return Ok(()) };
        for key in worker.declared.to_look_up(request) {
            if !self.definitions.contains_key(&(key.workflow.clone(), key.version)) {
                let known = self.definitions.keys().take(SEARCHED_MAX).cloned();
                return Err(unregistered(key, known));
            }
        }
        worker.declared.check(request)
    }

    /// Claims behind completions that made tasks ready, if the worker may.
    pub(super) fn claim_next(&mut self, next: &ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        let ring = self.shared.ring();
        let mut share = ring.share(next.worker, next.tenant.as_ref());
        let is_served = |task: &TaskId| {
            let task = self.runs.get(&task.run).map(|run| &run.tasks[task.index.as_usize()]);
            let place = task.and_then(|task| task.place.as_ref());
            place.is_some_and(
                |Place { queue, tenant, station: Station { handler, bucket }, .. }| {
                    let is_meant = next.tenant.as_ref().is_none_or(|wanted| wanted == tenant);
                    let is_mine = |bucket| share.has(queue, handler, bucket);
                    let serves = next.queues.contains(queue) && next.handlers.contains(handler);
                    is_meant && serves && bucket.is_none_or(is_mine)
                },
            )
        };
        let has_work = self.shared.wakes.work.iter().any(is_served);
        if !has_work || self.shared.live_worker(next.worker).is_none() {
            return Ok(Vec::new());
        }
        // What is wrong with the claim must not cost what was done.
        let taken = match self.take_ready(next) {
            Err(StoreError::Conflict(_) | StoreError::NotFound(_)) => return Ok(Vec::new()),
            taken => taken?,
        };
        // Nobody else need hear of them.
        self.shared.wakes.work.retain(|task| !taken.contains(task));
        self.lease(next, taken)
    }

    /// Leases the tasks that were taken to the worker.
    pub(super) fn lease(
        &mut self,
        request: &ClaimRequest,
        taken: Vec<TaskId>,
    ) -> Result<Vec<Claimed>, StoreError> {
        self.shared.begin_lease(request.worker, !taken.is_empty());
        if !taken.is_empty() {
            self.shared.see(request.worker);
        }
        let mut claimed = Vec::with_capacity(taken.len());
        for id in taken {
            let Some(run) = self.runs.get_mut(&id.run) else {
                return Err(StoreError::Corrupt(format!("task {id} is ready without a run")));
            };
            claimed.push(run.claim(&mut self.shared, id, request)?);
        }
        Ok(claimed)
    }

    pub(super) fn extend(&mut self, heartbeat: Heartbeat) -> Result<HeartbeatAnswer, StoreError> {
        let is_blind = self.shared.planted.has(PlantedBug::HeartbeatWithoutFence);
        if is_blind {
            self.prolong_holders(&heartbeat);
        }
        let now = self.shared.now;
        let Some(worker) = self.shared.live_worker(heartbeat.worker) else {
            if is_blind {
                return Ok(HeartbeatAnswer::default());
            }
            return Err(StoreError::LeaseLost(heartbeat.worker));
        };
        worker.lease_until = now + worker.lease;
        worker.last_claim = worker.last_claim.max(heartbeat.settled);
        let held: BTreeSet<Held> = heartbeat.held.iter().copied().collect();
        let is_orphan = |(task, (fence, seq)): &(&TaskId, &(Fence, _))| {
            *seq <= heartbeat.settled && !held.contains(&Held { task: **task, fence: *fence })
        };
        let orphans: Vec<TaskId> = worker.tasks.iter().filter(is_orphan).map(|(t, _)| *t).collect();
        self.shared.see(heartbeat.worker);
        let lost = |held: &Held| {
            let mine = self.shared.workers.get(&heartbeat.worker);
            let is_mine = mine.and_then(|mine| mine.tasks.get(&held.task));
            if is_mine.is_some_and(|(fence, _)| *fence == held.fence) {
                return None;
            }
            let refusal = self.holder(*held).err().unwrap_or(Refusal::LeaseLost);
            Some(Lost { held: *held, refusal })
        };
        let lost = heartbeat.held.iter().filter_map(lost).collect();
        if !self.shared.planted.has(PlantedBug::LostClaimsForgotten) {
            for task in orphans {
                self.hand_back(task, None)?;
            }
        }
        for note in heartbeat.progress {
            if let Ok(run) = self.holder(note.held)
                && let Some(task) = run.tasks.get_mut(note.held.task.index.as_usize())
            {
                task.note = Some(note.note);
            }
        }
        let record = self.shared.registry.get(&heartbeat.worker);
        let should_drain = record.is_some_and(|record| record.state == WorkerState::Draining);
        Ok(HeartbeatAnswer { lost, should_drain })
    }

    /// The run of a task, if the fence is that of its present lease.
    pub(super) fn holder(&mut self, held: Held) -> Result<&mut Run, Refusal> {
        let Some(run) = self.runs.get_mut(&held.task.run) else {
            return Err(Refusal::UnknownTask);
        };
        let Some(task) = run.tasks.get(held.task.index.as_usize()) else {
            return Err(Refusal::UnknownTask);
        };
        match task.state {
            TaskState::Running if task.fence == held.fence => Ok(run),
            TaskState::Cancelled => Err(Refusal::RunCancelled),
            TaskState::Pending
            | TaskState::Scheduled
            | TaskState::Waiting
            | TaskState::Ready
            | TaskState::Running
            | TaskState::Succeeded
            | TaskState::Failed
            | TaskState::Skipped => Err(Refusal::LeaseLost),
        }
    }

    pub(super) fn begin_drain(&mut self, worker: WorkerId) -> Result<(), StoreError> {
        let is_live = self.shared.live_worker(worker).is_some();
        let record = self.shared.registry.get_mut(&worker).filter(|_| is_live);
        let record = record.ok_or_else(|| StoreError::NotFound(format!("live worker {worker}")))?;
        record.state = WorkerState::Draining;
        Ok(())
    }

    pub(super) fn leave(&mut self, worker: WorkerId) -> Result<(), StoreError> {
        let now = self.shared.now;
        let Some(row) = self.shared.workers.get_mut(&worker) else {
            return Ok(());
        };
        row.lease_until = row.lease_until.min(now);
        row.is_dead = true;
        self.reap_worker(worker, usize::MAX).map(|_| ())
    }

    pub(super) fn reap(&mut self, limit: usize) -> Result<Sweep, StoreError> {
        let now = self.shared.now;
        let idle = self.shared.workers.iter().filter(|(_, worker)| worker.is_forgotten(now));
        for worker in idle.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.shared.bury(worker);
        }
        let expired = |worker: &Worker| {
            worker.is_dead || worker.lease_until <= now && !worker.tasks.is_empty()
        };
        let dead = self.shared.workers.iter().filter(|(_, worker)| expired(worker));
        let dead: Vec<WorkerId> = dead.map(|(id, _)| *id).collect();
        let mut moved = 0;
        for worker in dead {
            moved += self.reap_worker(worker, limit - moved)?;
        }
        moved += self.take_back(limit - moved)?;
        Ok(Sweep { at: now, moved, next_at: self.next_lease_end() })
    }

    /// The first lease that ends by its visibility timeout. What ended otherwise is forgotten.
    fn next_take_back(&mut self) -> Option<(Timestamp, TaskId, WorkerId)> {
        while let Some((at, task, fence)) = self.shared.take_backs.first().copied() {
            if let Ok(run) = self.holder(Held { task, fence })
                && let Some(worker) = run.task(task.index).holder
            {
                return Some((at, task, worker));
            }
            self.shared.take_backs.pop_first();
        }
        None
    }

    /// Takes up to `limit` tasks away whose visibility timeout has passed.
    fn take_back(&mut self, limit: usize) -> Result<usize, StoreError> {
        let mut moved = 0;
        while moved < limit
            && let Some((lease_until, id, worker)) = self.next_take_back()
            && lease_until <= self.shared.now
        {
            self.shared.take_backs.pop_first();
            self.shared.unlease(worker, id);
            let Some(run) = self.runs.get_mut(&id.run) else { continue };
            let kind = TaskEventKind::LeaseExpired { worker, lease_until, failure: None };
            run.expire(&mut self.shared, id, kind)?;
            moved += 1;
        }
        Ok(moved)
    }

    /// Takes up to `limit` tasks away from a dead worker, and forgets it when it
    /// has none left.
    fn reap_worker(&mut self, worker: WorkerId, limit: usize) -> Result<usize, StoreError> {
        let Some(row) = self.shared.workers.get_mut(&worker) else {
            return Ok(0);
        };
        row.is_dead = true;
        let lease_until = row.lease_until;
        let tasks: Vec<TaskId> = row.tasks.keys().take(limit).copied().collect();
        for id in &tasks {
            row.tasks.remove(id);
        }
        if row.tasks.is_empty() {
            self.shared.bury(worker);
        }
        for id in &tasks {
            let Some(run) = self.runs.get_mut(&id.run) else {
                return Err(StoreError::Corrupt(format!("task {id} is leased without a run")));
            };
            let kind = TaskEventKind::LeaseExpired { worker, lease_until, failure: None };
            run.expire(&mut self.shared, *id, kind)?;
        }
        Ok(tasks.len())
    }
}

impl Run {
    fn claim(
        &mut self,
        shared: &mut Shared,
        id: TaskId,
        request: &ClaimRequest,
    ) -> Result<Claimed, StoreError> {
        let task = self.task(id.index);
        task.fence = task.fence.next();
        task.attempt += 1;
        task.note = None;
        task.holder = Some(request.worker);
        let fence = task.fence;
        if let Some(worker) = shared.workers.get_mut(&request.worker) {
            worker.tasks.insert(id, (fence, request.seq));
        }
        let kind = TaskEventKind::Started { worker: request.worker };
        self.move_task(shared, id.index, TaskCommand::Claim, kind)?;
        if let Some(timeout) = self.definition.task(id.index).visibility_timeout {
            shared.take_backs.insert((shared.now + timeout, id, fence));
            // Whoever sleeps until the next lease ends must look again.
            shared.wakes.timers = true;
        }
        Ok(self.claimed(id.index, shared.now))
    }

    /// All that running a task needs.
    pub(super) fn claimed(&self, index: TaskIndex, at: Timestamp) -> Claimed {
        let task = &self.tasks[index.as_usize()];
        let spec = Arc::clone(self.definition.task(index));
        let mut steps: Vec<_> = task.steps.values().cloned().collect();
        let begun = StepRecord::take_input(&mut steps);
        let (afresh, input) = begun.unwrap_or_else(|| (0, self.input.clone()));
        let failures = match spec.kind {
            TaskKind::OnFailure => self.failures(),
            TaskKind::Handler | TaskKind::Sleep(_) => Vec::new(),
        };
        Claimed {
            task: self.task_id(index),
            fence: task.fence,
            attempt: task.attempt,
            workflow: self.definition.name().clone(),
            version: self.definition.version(),
            spec,
            tenant: self.tenant.clone(),
            input,
            parents: self.parent_ends(index),
            failures,
            checkpoint: task.checkpoint.as_ref().map(|kept| kept.value.clone()),
            last_failure: task.failure.clone(),
            steps,
            at,
            round: self.round,
            afresh,
            trace: TraceContext::of_metadata(&self.metadata),
        }
    }

    /// How the parents of a task ended.
    fn parent_ends(&self, index: TaskIndex) -> Vec<ParentEnd> {
        let parent = |index: &TaskIndex| {
            let task = &self.tasks[index.as_usize()];
            ParentEnd { index: *index, state: task.state, output: task.output.clone() }
        };
        self.definition.task(index).parents.iter().map(parent).collect()
    }

    fn failures(&self) -> Vec<(windlass_core::TaskName, windlass_core::Failure)> {
        let tasks = self.definition.tasks().iter().zip(&self.tasks);
        let failed = tasks.filter(|(_, task)| task.state == TaskState::Failed);
        failed.filter_map(|(spec, task)| Some((spec.name.clone(), task.failure.clone()?))).collect()
    }

    /// A lease ran out: back to the queue, or failed if no attempt is left.
    fn expire(
        &mut self,
        shared: &mut Shared,
        id: TaskId,
        kind: TaskEventKind,
    ) -> Result<(), StoreError> {
        let spec = self.definition.task(id.index);
        let (max_attempts, on_worker_lost) = (spec.retry.max_attempts(), spec.on_worker_lost);
        let task = self.task(id.index);
        task.holder = None;
        let mut failed = decide_lease_expired(on_worker_lost, max_attempts, task.attempt);
        if shared.planted.has(PlantedBug::ReapWithoutAttemptLimit) {
            failed = None;
        }
        let TaskEventKind::LeaseExpired { worker, lease_until, .. } = kind else {
            return Err(StoreError::Corrupt(format!("task {id} expired by {kind:?}")));
        };
        let kind = TaskEventKind::LeaseExpired { worker, lease_until, failure: failed.clone() };
        match failed {
            None => {
                let task = self.task(id.index);
                task.failure = Some(worker_lost(max_attempts, task.attempt));
                self.move_task(shared, id.index, TaskCommand::Expire, kind)?;
                self.enqueue(shared, id.index);
                Ok(())
            }
            Some(failure) => {
                self.task(id.index).failure = Some(failure);
                self.end_task(shared, id.index, TaskCommand::Fail, kind)
            }
        }
    }
}
