//! A store whose clients come through a server, and whose workers and duties do not.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass::remote::RemoteStore;
use windlass::store::*;
use windlass_core::*;

/// Clients ask `far`, everyone else `near`, which are the same store.
pub(crate) struct Split {
    pub(crate) near: Arc<MemoryStore>,
    pub(crate) far: RemoteStore,
}

#[async_trait]
impl WorkerLink for Split {
    async fn join(&self, hello: Hello) -> Result<(), StoreError> {
        self.near.join(hello).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        self.near.claim(request).await
    }

    async fn finish(&self, completions: Vec<Completion>) -> Result<Vec<Answer>, StoreError> {
        self.near.finish(completions).await
    }

    async fn finish_and_claim(
        &self,
        completions: Vec<Completion>,
        next: ClaimRequest,
    ) -> Result<Finished, StoreError> {
        self.near.finish_and_claim(completions, next).await
    }

    async fn release(&self, releases: Vec<Release>) -> Result<Vec<Answer>, StoreError> {
        self.near.release(releases).await
    }

    async fn checkpoint(&self, checkpoints: Vec<Checkpoint>) -> Result<Vec<Answer>, StoreError> {
        self.near.checkpoint(checkpoints).await
    }

    async fn record(&self, recordings: Vec<Recording>) -> Result<Vec<Answer>, StoreError> {
        self.near.record(recordings).await
    }

    async fn take_signals(&self, takes: Vec<TakeSignal>) -> Result<Vec<Taken>, StoreError> {
        self.near.take_signals(takes).await
    }

    async fn start_children(&self, starts: Vec<ChildStart>) -> Result<Vec<Born>, StoreError> {
        self.near.start_children(starts).await
    }

    async fn count_children(&self, task: TaskId, call: Call) -> Result<ChildCount, StoreError> {
        self.near.count_children(task, call).await
    }

    async fn list_children(
        &self,
        task: TaskId,
        call: Call,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<Child>, StoreError> {
        self.near.list_children(task, call, after, limit).await
    }

    async fn read_undo(&self, held: Held) -> Result<ToUndo, StoreError> {
        self.near.read_undo(held).await
    }

    async fn extend(&self, heartbeat: Heartbeat) -> Result<HeartbeatAnswer, StoreError> {
        self.near.extend(heartbeat).await
    }

    async fn begin_drain(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.near.begin_drain(worker).await
    }

    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.near.leave(worker).await
    }

    fn work_hints(&self) -> Hints {
        self.near.work_hints()
    }

    fn hears_hints(&self) -> bool {
        self.near.hears_hints()
    }

    fn payload_limit(&self) -> PayloadLimit {
        self.near.payload_limit()
    }
}

#[async_trait]
impl ScheduleStore for Split {
    async fn put_schedule(&self, schedule: NewSchedule) -> Result<ScheduleRecord, StoreError> {
        self.far.put_schedule(schedule).await
    }

    async fn get_schedule(&self, key: ScheduleKey) -> Result<Option<ScheduleRecord>, StoreError> {
        self.far.get_schedule(key).await
    }

    async fn list_schedules(&self, filter: ScheduleFilter) -> Result<SchedulePage, StoreError> {
        self.far.list_schedules(filter).await
    }

    async fn pause_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        self.far.pause_schedule(key).await
    }

    async fn resume_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        self.far.resume_schedule(key).await
    }

    async fn delete_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        self.far.delete_schedule(key).await
    }

    async fn disable_schedules(
        &self,
        owner: ScheduleOwner,
        declared: Vec<ScheduleKey>,
    ) -> Result<Vec<ScheduleKey>, StoreError> {
        self.far.disable_schedules(owner, declared).await
    }

    async fn trigger_schedule(&self, key: ScheduleKey, run: RunId) -> Result<Started, StoreError> {
        self.far.trigger_schedule(key, run).await
    }

    async fn backfill_schedule(
        &self,
        key: ScheduleKey,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Backfilled, StoreError> {
        self.far.backfill_schedule(key, from, until).await
    }

    async fn list_fires(&self, key: ScheduleKey, limit: usize) -> Result<Vec<Fire>, StoreError> {
        self.far.list_fires(key, limit).await
    }

    async fn fire_schedules(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.near.fire_schedules(limit).await
    }
}

#[async_trait]
impl QueueStore for Split {
    async fn roll_up(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.near.roll_up(limit).await
    }

    async fn list_queues(&self) -> Result<QueueList, StoreError> {
        self.far.list_queues().await
    }
}

#[async_trait]
impl DutyStore for Split {
    async fn claim_duties(&self, claim: DutyClaim) -> Result<DutyStanding, StoreError> {
        self.far.claim_duties(claim).await
    }

    async fn renew_duties(
        &self,
        mandates: Vec<DutyMandate>,
        ttl: Duration,
    ) -> Result<Vec<DutyName>, StoreError> {
        self.far.renew_duties(mandates, ttl).await
    }

    async fn end_duty(&self, end: DutyEnd) -> Result<Option<(Timestamp, DutyRecord)>, StoreError> {
        self.far.end_duty(end).await
    }

    async fn list_duties(&self) -> Result<Vec<DutyRecord>, StoreError> {
        self.far.list_duties().await
    }

    async fn forget_duty(&self, name: DutyName) -> Result<bool, StoreError> {
        self.far.forget_duty(name).await
    }
}

#[async_trait]
impl Store for Split {
    async fn register(&self, definition: Arc<Definition>) -> Result<(), StoreError> {
        self.far.register(definition).await
    }

    async fn start_runs(
        &self,
        runs: Vec<NewRun>,
    ) -> Result<Vec<Result<Started, StoreError>>, StoreError> {
        self.far.start_runs(runs).await
    }

    async fn lead(&self, candidacy: Candidacy) -> Result<Standing, StoreError> {
        self.near.lead(candidacy).await
    }

    async fn resign(&self, candidate: CandidateId, tallies: Tallies) -> Result<(), StoreError> {
        self.near.resign(candidate, tallies).await
    }

    async fn sweep(&self, mandate: Mandate, limit: usize) -> Result<Sweep, StoreError> {
        self.near.sweep(mandate, limit).await
    }

    async fn outlook(&self) -> Result<Outlook, StoreError> {
        self.near.outlook().await
    }

    async fn list_leaders(&self) -> Result<Vec<LeaderRecord>, StoreError> {
        self.far.list_leaders().await
    }

    fn leader_hints(&self) -> Hints {
        self.near.leader_hints()
    }

    async fn promote_due(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.near.promote_due(limit).await
    }

    async fn reap(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.near.reap(limit).await
    }

    async fn prune(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.near.prune(limit).await
    }

    async fn set_retention(&self, rule: RetentionRule) -> Result<(), StoreError> {
        self.far.set_retention(rule).await
    }

    async fn clear_retention(
        &self,
        workflow: Option<WorkflowName>,
        state: RunState,
    ) -> Result<bool, StoreError> {
        self.far.clear_retention(workflow, state).await
    }

    async fn list_retention(&self) -> Result<Vec<RetentionRule>, StoreError> {
        self.far.list_retention().await
    }

    async fn get_archived_run(&self, run: RunId) -> Result<Option<ArchivedRun>, StoreError> {
        self.far.get_archived_run(run).await
    }

    async fn cancel_run(&self, run: RunId, reason: Option<String>) -> Result<(), StoreError> {
        self.far.cancel_run(run, reason).await
    }

    async fn retry_run(&self, run: RunId, round: u32) -> Result<u32, StoreError> {
        self.far.retry_run(run, round).await
    }

    async fn undo_run(&self, run: RunId) -> Result<RunId, StoreError> {
        self.far.undo_run(run).await
    }

    async fn list_dead_letters(
        &self,
        filter: DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: usize,
    ) -> Result<DeadLetterPage, StoreError> {
        self.far.list_dead_letters(filter, after, limit).await
    }

    async fn redrive(&self, redrive: Redrive) -> Result<Redriven, StoreError> {
        self.far.redrive(redrive).await
    }

    async fn discard(&self, discard: Discard) -> Result<Discarded, StoreError> {
        self.far.discard(discard).await
    }

    async fn log(&self, entry: NewLogEntry) -> Result<(), StoreError> {
        self.far.log(entry).await
    }

    async fn list_log(&self, filter: LogFilter) -> Result<LogPage, StoreError> {
        self.far.list_log(filter).await
    }

    async fn signal(&self, signal: NewSignal) -> Result<(), StoreError> {
        self.far.signal(signal).await
    }

    async fn signal_key(&self, signal: NewKeySignal) -> Result<(), StoreError> {
        self.far.signal_key(signal).await
    }

    async fn list_steps(
        &self,
        task: TaskId,
        after: Option<Call>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, StoreError> {
        self.far.list_steps(task, after, limit).await
    }

    async fn get_run(&self, run: RunId) -> Result<Option<RunRecord>, StoreError> {
        self.far.get_run(run).await
    }

    async fn list_tasks(
        &self,
        run: RunId,
        after: Option<TaskIndex>,
        limit: usize,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        self.far.list_tasks(run, after, limit).await
    }

    async fn get_task(&self, run: RunId, name: TaskName) -> Result<Option<TaskRecord>, StoreError> {
        self.far.get_task(run, name).await
    }

    async fn list_runs(&self, filter: RunFilter) -> Result<RunPage, StoreError> {
        self.far.list_runs(filter).await
    }

    async fn list_events(
        &self,
        run: RunId,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.far.list_events(run, after, limit).await
    }

    async fn list_workers(&self, filter: WorkerFilter) -> Result<WorkerPage, StoreError> {
        self.far.list_workers(filter).await
    }

    async fn why(&self, run: RunId, task: Option<TaskName>) -> Result<Option<Why>, StoreError> {
        self.far.why(run, task).await
    }

    async fn set_weight(&self, tenant: Tenant, weight: Weight) -> Result<(), StoreError> {
        self.far.set_weight(tenant, weight).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.far.now().await
    }

    fn timer_hints(&self) -> Hints {
        self.near.timer_hints()
    }

    fn run_hints(&self) -> Hints {
        self.far.run_hints()
    }

    fn does_duties(&self) -> bool {
        self.far.does_duties()
    }
}
