//! The verbs of clients and of the background duties.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_core::why::{TaskWhy, Why};
use windlass_core::{
    ActionId, Call, CandidateId, Definition, Event, EventId, RunId, RunState, StepRecord, TaskId,
    TaskIndex, TaskName, Tenant, Timestamp, Weight, WorkflowName,
};

use super::{SealedStore, unanswered};
use crate::store::{
    ArchivedRun, Candidacy, DeadLetterCursor, DeadLetterFilter, DeadLetterPage, Discard, Discarded,
    Hints, LeaderRecord, LogFilter, LogPage, Mandate, NewKeySignal, NewLogEntry, NewRun, NewSignal,
    Outlook, Redrive, Redriven, RetentionRule, RunFilter, RunPage, RunRecord, Standing, Started,
    Store, StoreError, Sweep, Tallies, TaskRecord, WorkerFilter, WorkerPage, WorkflowFilter,
    WorkflowPage, check_batch,
};

impl SealedStore {
    /// Opens what is said of a task.
    async fn open_task_why(&self, run: RunId, task: &mut TaskWhy) -> Result<(), StoreError> {
        let has_note = |reason: &_| {
            matches!(reason, windlass_core::why::Reason::Running { progress: Some(_), .. })
        };
        // A note says which task it is of by its index, which is not told here.
        let id = match task.reasons.iter().any(has_note) {
            true => self.inner.get_task(run, task.name.clone()).await?,
            false => None,
        };
        let id = id.map(|record| TaskId { run, index: record.index });
        task.reasons.iter_mut().for_each(|reason| self.keys.open_reason(run, id, reason));
        Ok(())
    }
}

#[async_trait]
impl Store for SealedStore {
    async fn register(&self, definition: Arc<Definition>) -> Result<(), StoreError> {
        self.learn(&definition);
        self.inner.register(definition).await
    }

    async fn list_workflows(&self, filter: WorkflowFilter) -> Result<WorkflowPage, StoreError> {
        self.inner.list_workflows(filter).await
    }

    async fn start_runs(
        &self,
        runs: Vec<NewRun>,
    ) -> Result<Vec<Result<Started, StoreError>>, StoreError> {
        check_batch(runs.len())?;
        let limit = self.limit();
        let mut fields = Vec::with_capacity(runs.len());
        let mut wrong = Vec::with_capacity(runs.len());
        for run in &runs {
            let (readable, refused) = match self.fields(&run.workflow, run.version).await {
                Ok(fields) => (fields, None),
                Err(StoreError::Conflict(why)) => (Arc::default(), Some(why)),
                Err(error) => return Err(error),
            };
            fields.push(readable);
            wrong.push(refused.or_else(|| run.check(limit).err()));
        }
        let mut sealed = Vec::with_capacity(runs.len());
        for ((run, fields), wrong) in runs.iter().zip(&fields).zip(&wrong) {
            if wrong.is_none() {
                let mut run = run.clone();
                self.keys.seal_start(&mut run, fields);
                sealed.push(run);
            }
        }
        let mut within = self.inner.start_runs(sealed).await?.into_iter();
        let mut answers = Vec::with_capacity(runs.len());
        for ((run, fields), wrong) in runs.iter().zip(&fields).zip(wrong) {
            let answer = match wrong {
                Some(why) => Err(StoreError::Conflict(why)),
                None => match within.next().ok_or_else(unanswered)? {
                    Err(conflict @ StoreError::Conflict(_)) => {
                        self.judge_existing(run, fields).await?.ok_or(conflict)
                    }
                    answer => answer,
                },
            };
            answers.push(answer);
        }
        Ok(answers)
    }

    async fn lead(&self, candidacy: Candidacy) -> Result<Standing, StoreError> {
        self.inner.lead(candidacy).await
    }

    async fn resign(&self, candidate: CandidateId, tallies: Tallies) -> Result<(), StoreError> {
        self.inner.resign(candidate, tallies).await
    }

    async fn sweep(&self, mandate: Mandate, limit: usize) -> Result<Sweep, StoreError> {
        self.inner.sweep(mandate, limit).await
    }

    async fn outlook(&self) -> Result<Outlook, StoreError> {
        self.inner.outlook().await
    }

    async fn list_leaders(&self) -> Result<Vec<LeaderRecord>, StoreError> {
        self.inner.list_leaders().await
    }

    fn leader_hints(&self) -> Hints {
        self.inner.leader_hints()
    }

    async fn promote_due(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.inner.promote_due(limit).await
    }

    async fn reap(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.inner.reap(limit).await
    }

    async fn prune(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.inner.prune(limit).await
    }

    async fn set_retention(&self, rule: RetentionRule) -> Result<(), StoreError> {
        self.inner.set_retention(rule).await
    }

    async fn clear_retention(
        &self,
        workflow: Option<WorkflowName>,
        state: RunState,
    ) -> Result<bool, StoreError> {
        self.inner.clear_retention(workflow, state).await
    }

    async fn list_retention(&self) -> Result<Vec<RetentionRule>, StoreError> {
        self.inner.list_retention().await
    }

    async fn get_archived_run(&self, run: RunId) -> Result<Option<ArchivedRun>, StoreError> {
        let mut archived = self.inner.get_archived_run(run).await?;
        if let Some(archived) = &mut archived {
            self.keys.open_archived(archived);
        }
        Ok(archived)
    }

    async fn cancel_run(&self, run: RunId, reason: Option<String>) -> Result<(), StoreError> {
        let reason = reason.map(|reason| self.keys.seal_reason(run, reason));
        self.inner.cancel_run(run, reason).await
    }

    async fn retry_run(&self, run: RunId, round: u32) -> Result<u32, StoreError> {
        self.inner.retry_run(run, round).await
    }

    async fn undo_run(&self, run: RunId) -> Result<RunId, StoreError> {
        self.inner.undo_run(run).await
    }

    async fn list_dead_letters(
        &self,
        filter: DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: usize,
    ) -> Result<DeadLetterPage, StoreError> {
        let mut page = self.inner.list_dead_letters(filter, after, limit).await?;
        for letter in &mut page.letters {
            self.keys.open_failure(letter.task.run, &mut letter.failure);
        }
        Ok(page)
    }

    async fn redrive(&self, redrive: Redrive) -> Result<Redriven, StoreError> {
        self.inner.redrive(redrive).await
    }

    async fn discard(&self, discard: Discard) -> Result<Discarded, StoreError> {
        self.inner.discard(discard).await
    }

    async fn log(&self, mut entry: NewLogEntry) -> Result<ActionId, StoreError> {
        self.keys.seal_detail(&mut entry);
        self.inner.log(entry).await
    }

    fn keeps_log(&self) -> bool {
        self.inner.keeps_log()
    }

    async fn list_log(&self, filter: LogFilter) -> Result<LogPage, StoreError> {
        let mut page = self.inner.list_log(filter).await?;
        page.entries.iter_mut().for_each(|entry| self.keys.open_log_entry(entry));
        Ok(page)
    }

    async fn signal(&self, mut signal: NewSignal) -> Result<(), StoreError> {
        signal.check(self.limit()).map_err(StoreError::Conflict)?;
        self.keys.seal_signal(&mut signal);
        self.inner.signal(signal).await
    }

    async fn signal_key(&self, mut signal: NewKeySignal) -> Result<(), StoreError> {
        signal.check(self.limit()).map_err(StoreError::Conflict)?;
        self.keys.seal_key_signal(&mut signal);
        self.inner.signal_key(signal).await
    }

    async fn list_steps(
        &self,
        task: TaskId,
        after: Option<Call>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, StoreError> {
        let mut steps = self.inner.list_steps(task, after, limit).await?;
        let tenant = match steps.iter().any(|step| step.key.is_some()) {
            true => self.tenant_of(task.run).await?,
            false => None,
        };
        for step in &mut steps {
            // What cannot be opened stays as it is.
            let _ = self.keys.open_step(task, tenant.as_ref(), step);
        }
        Ok(steps)
    }

    async fn whose(&self, runs: Vec<RunId>) -> Result<Vec<(RunId, Tenant)>, StoreError> {
        self.inner.whose(runs).await
    }

    async fn get_run(&self, run: RunId) -> Result<Option<RunRecord>, StoreError> {
        let mut record = self.inner.get_run(run).await?;
        if let Some(record) = &mut record {
            self.told(self.keys.open_run(record))?;
        }
        Ok(record)
    }

    async fn list_tasks(
        &self,
        run: RunId,
        after: Option<TaskIndex>,
        limit: usize,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        let mut tasks = self.inner.list_tasks(run, after, limit).await?;
        for task in &mut tasks {
            // What cannot be opened stays as it is.
            let _ = self.keys.open_task(run, task);
        }
        Ok(tasks)
    }

    async fn get_task(&self, run: RunId, name: TaskName) -> Result<Option<TaskRecord>, StoreError> {
        let mut task = self.inner.get_task(run, name).await?;
        if let Some(task) = &mut task {
            self.told(self.keys.open_task(run, task))?;
        }
        Ok(task)
    }

    async fn list_runs(&self, filter: RunFilter) -> Result<RunPage, StoreError> {
        // Lists have no payloads.
        self.inner.list_runs(filter).await
    }

    async fn list_events(
        &self,
        run: RunId,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let mut events = self.inner.list_events(run, after, limit).await?;
        events.iter_mut().for_each(|event| self.keys.open_event(event));
        Ok(events)
    }

    async fn list_workers(&self, filter: WorkerFilter) -> Result<WorkerPage, StoreError> {
        self.inner.list_workers(filter).await
    }

    async fn why(&self, run: RunId, task: Option<TaskName>) -> Result<Option<Why>, StoreError> {
        let mut why = self.inner.why(run, task).await?;
        if let Some(why) = &mut why {
            why.reasons.iter_mut().for_each(|reason| self.keys.open_reason(run, None, reason));
            for task in &mut why.tasks {
                self.open_task_why(run, task).await?;
            }
        }
        Ok(why)
    }

    async fn set_weight(&self, tenant: Tenant, weight: Weight) -> Result<(), StoreError> {
        self.inner.set_weight(tenant, weight).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.inner.now().await
    }

    fn timer_hints(&self) -> Hints {
        self.inner.timer_hints()
    }

    fn run_hints(&self) -> Hints {
        self.inner.run_hints()
    }

    fn gathers_starts(&self) -> bool {
        self.inner.gathers_starts()
    }

    fn does_duties(&self) -> bool {
        self.inner.does_duties()
    }

    fn expect_staged(&self) {
        self.inner.expect_staged();
    }

    fn hint_staged(&self) {
        self.inner.hint_staged();
    }
}
