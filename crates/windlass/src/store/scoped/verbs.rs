//! The verbs of clients for one tenant.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_core::why::Reason;
use windlass_core::{
    ActionId, Call, CandidateId, Definition, Event, EventId, RunId, RunState, StepRecord, TaskId,
    TaskIndex, TaskName, Tenant, Timestamp, Weight, Why, WorkflowName,
};

use super::ScopedStore;
use super::ids::bound_action;
use crate::store::{
    ArchivedRun, Candidacy, DeadLetterCursor, DeadLetterFilter, DeadLetterPage, Discard, Discarded,
    Hints, LeaderRecord, LogFilter, LogPage, Mandate, NewKeySignal, NewLogEntry, NewRun, NewSignal,
    Outlook, Redrive, Redriven, RetentionRule, RunFilter, RunPage, RunRecord, Standing, Started,
    Store, StoreError, Sweep, Tallies, TaskRecord, WorkerFilter, WorkerLink, WorkerPage,
    WorkflowFilter, WorkflowPage,
};

impl ScopedStore {
    /// Leaves out what an answer says of others: runs that hold slots, and how much of everyone's
    /// stands before a task.
    async fn only_own(&self, mut why: Why) -> Result<Why, StoreError> {
        let of_tasks = why.tasks.iter_mut().flat_map(|task| &mut task.reasons);
        for reason in why.reasons.iter_mut().chain(of_tasks) {
            if let Reason::Ready { own_before, all_before, .. } = reason {
                *all_before = *own_before;
            }
            if let Reason::Lane { holders, .. } = reason {
                let (kept, _) = self.sift(std::mem::take(holders), |holder| holder.run).await?;
                *holders = kept;
            }
        }
        Ok(why)
    }
}

#[async_trait]
impl Store for ScopedStore {
    async fn register(&self, definition: Arc<Definition>) -> Result<(), StoreError> {
        self.check_registered(&definition).await
    }

    async fn list_workflows(&self, filter: WorkflowFilter) -> Result<WorkflowPage, StoreError> {
        self.store.list_workflows(filter).await
    }

    async fn start_runs(
        &self,
        runs: Vec<NewRun>,
    ) -> Result<Vec<Result<Started, StoreError>>, StoreError> {
        let refused: Vec<Option<StoreError>> =
            runs.iter().map(|run| self.check_tenant(&run.tenant).err()).collect();
        let own = runs.into_iter().zip(&refused).filter(|(_, refused)| refused.is_none());
        let own = own.map(|(run, _)| run).collect();
        let mut started = self.store.start_runs(own).await?.into_iter();
        let answer = |refused: Option<StoreError>| match refused {
            Some(error) => Some(Err(error)),
            None => started.next(),
        };
        Ok(refused.into_iter().map_while(answer).collect())
    }

    async fn lead(&self, _candidacy: Candidacy) -> Result<Standing, StoreError> {
        self.shared("to do background duties")
    }

    async fn resign(&self, _candidate: CandidateId, _tallies: Tallies) -> Result<(), StoreError> {
        self.shared("to do background duties")
    }

    async fn sweep(&self, _mandate: Mandate, _limit: usize) -> Result<Sweep, StoreError> {
        self.shared("to do background duties")
    }

    async fn outlook(&self) -> Result<Outlook, StoreError> {
        self.shared("when background duties are due")
    }

    async fn list_leaders(&self) -> Result<Vec<LeaderRecord>, StoreError> {
        self.shared("who does background duties")
    }

    fn leader_hints(&self) -> Hints {
        self.store.leader_hints()
    }

    async fn promote_due(&self, _limit: usize) -> Result<Sweep, StoreError> {
        self.shared("to do background duties")
    }

    async fn reap(&self, _limit: usize) -> Result<Sweep, StoreError> {
        self.shared("to do background duties")
    }

    async fn prune(&self, _limit: usize) -> Result<Sweep, StoreError> {
        self.shared("to do background duties")
    }

    async fn set_retention(&self, _rule: RetentionRule) -> Result<(), StoreError> {
        self.shared("to set how long runs are kept")
    }

    async fn clear_retention(
        &self,
        _workflow: Option<WorkflowName>,
        _state: RunState,
    ) -> Result<bool, StoreError> {
        self.shared("to set how long runs are kept")
    }

    async fn list_retention(&self) -> Result<Vec<RetentionRule>, StoreError> {
        // As workflows, rules are no tenant's.
        self.store.list_retention().await
    }

    async fn get_archived_run(&self, run: RunId) -> Result<Option<ArchivedRun>, StoreError> {
        let archived = self.reads.get_archived_run(run).await?;
        Ok(archived.filter(|archived| self.is_mine(&archived.tenant)))
    }

    async fn cancel_run(&self, run: RunId, reason: Option<String>) -> Result<(), StoreError> {
        self.check_run(run).await?;
        self.store.cancel_run(run, reason).await
    }

    async fn retry_run(&self, run: RunId, round: u32) -> Result<u32, StoreError> {
        self.check_run(run).await?;
        self.store.retry_run(run, round).await
    }

    async fn undo_run(&self, run: RunId) -> Result<RunId, StoreError> {
        self.check_run(run).await?;
        self.store.undo_run(run).await
    }

    async fn list_dead_letters(
        &self,
        filter: DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: usize,
    ) -> Result<DeadLetterPage, StoreError> {
        let tenant = self.narrowed(filter.tenant)?;
        let filter = DeadLetterFilter { tenant, ..filter };
        self.reads.list_dead_letters(filter, after, limit).await
    }

    async fn redrive(&self, redrive: Redrive) -> Result<Redriven, StoreError> {
        redrive.filter.tenant.as_ref().map_or(Ok(()), |said| self.check_tenant(said))?;
        let tenant = Some(self.tenant.clone());
        let filter = DeadLetterFilter { tenant, ..redrive.filter };
        let id = bound_action(&self.tenant, redrive.id);
        self.store.redrive(Redrive { id, filter, ..redrive }).await
    }

    async fn discard(&self, discard: Discard) -> Result<Discarded, StoreError> {
        discard.filter.tenant.as_ref().map_or(Ok(()), |said| self.check_tenant(said))?;
        let tenant = Some(self.tenant.clone());
        let filter = DeadLetterFilter { tenant, ..discard.filter };
        let id = bound_action(&self.tenant, discard.id);
        self.store.discard(Discard { id, filter, ..discard }).await
    }

    async fn log(&self, entry: NewLogEntry) -> Result<ActionId, StoreError> {
        entry.tenant.as_ref().map_or(Ok(()), |said| self.check_tenant(said))?;
        if let Some(run) = entry.run {
            self.check_run(run).await?;
        }
        let id = bound_action(&self.tenant, entry.id);
        self.store.log(NewLogEntry { id, tenant: Some(self.tenant.clone()), ..entry }).await
    }

    fn keeps_log(&self) -> bool {
        self.store.keeps_log()
    }

    async fn list_log(&self, filter: LogFilter) -> Result<LogPage, StoreError> {
        let tenant = self.narrowed(filter.tenant)?;
        self.reads.list_log(LogFilter { tenant, ..filter }).await
    }

    async fn signal(&self, signal: NewSignal) -> Result<(), StoreError> {
        signal.check(self.payload_limit()).map_err(StoreError::Conflict)?;
        self.check_run(signal.run).await?;
        self.store.signal(signal).await
    }

    async fn signal_key(&self, signal: NewKeySignal) -> Result<(), StoreError> {
        self.check_tenant(&signal.to.tenant)?;
        self.store.signal_key(signal).await
    }

    async fn list_steps(
        &self,
        task: TaskId,
        after: Option<Call>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, StoreError> {
        match self.owns(task.run).await? {
            true => self.reads.list_steps(task, after, limit).await,
            false => Ok(Vec::new()),
        }
    }

    async fn whose(&self, runs: Vec<RunId>) -> Result<Vec<(RunId, Tenant)>, StoreError> {
        let mut whose = self.reads.whose(runs).await?;
        whose.retain(|(_, tenant)| self.is_mine(tenant));
        Ok(whose)
    }

    async fn get_run(&self, run: RunId) -> Result<Option<RunRecord>, StoreError> {
        let record = self.reads.get_run(run).await?;
        Ok(record.filter(|record| self.is_mine(&record.tenant)))
    }

    async fn list_tasks(
        &self,
        run: RunId,
        after: Option<TaskIndex>,
        limit: usize,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        match self.owns(run).await? {
            true => self.reads.list_tasks(run, after, limit).await,
            false => Ok(Vec::new()),
        }
    }

    async fn get_task(&self, run: RunId, name: TaskName) -> Result<Option<TaskRecord>, StoreError> {
        match self.owns(run).await? {
            true => self.reads.get_task(run, name).await,
            false => Ok(None),
        }
    }

    async fn list_runs(&self, filter: RunFilter) -> Result<RunPage, StoreError> {
        let tenant = self.narrowed(filter.tenant)?;
        self.reads.list_runs(RunFilter { tenant, ..filter }).await
    }

    async fn list_events(
        &self,
        run: RunId,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        match self.owns(run).await? {
            true => self.reads.list_events(run, after, limit).await,
            false => Ok(Vec::new()),
        }
    }

    async fn list_workers(&self, _filter: WorkerFilter) -> Result<WorkerPage, StoreError> {
        self.shared("who works")
    }

    async fn why(&self, run: RunId, task: Option<TaskName>) -> Result<Option<Why>, StoreError> {
        if !self.owns(run).await? {
            return Ok(None);
        }
        // It tells of workers and queues, which are nobody's; the run was found behind the wall.
        match self.store.why(run, task).await? {
            Some(why) => Ok(Some(self.only_own(why).await?)),
            None => Ok(None),
        }
    }

    async fn set_weight(&self, _tenant: Tenant, _weight: Weight) -> Result<(), StoreError> {
        self.shared("to set the weight of a tenant")
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.store.now().await
    }

    fn timer_hints(&self) -> Hints {
        self.store.timer_hints()
    }

    fn run_hints(&self) -> Hints {
        // They say that a run ended, and not which.
        self.store.run_hints()
    }

    fn gathers_starts(&self) -> bool {
        self.store.gathers_starts()
    }

    fn does_duties(&self) -> bool {
        false
    }

    fn walled(&self, tenant: &Tenant) -> Option<Arc<dyn Store>> {
        self.store.walled(tenant)
    }
}
