//! The store as one process sees it: over a link that loses, delays and repeats.

mod duties;
mod link;
mod queues;
mod quotas;
mod schedules;
mod tokens;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass::store::{
    Answer, ArchivedRun, Candidacy, Completion, DeadLetterCursor, DeadLetterFilter, DeadLetterPage,
    Discard, Discarded, Duty, Hints, LeaderRecord, LogFilter, LogPage, Mandate, NewKeySignal,
    NewLogEntry, NewRun, NewSignal, Outlook, Redrive, Redriven, RetentionRule, RunFilter, RunPage,
    RunRecord, Standing, Started, Store, StoreError, Sweep, Tallies, TaskRecord, WorkerFilter,
    WorkerPage, WorkflowFilter, WorkflowPage,
};
use windlass::testing::Process;
use windlass::{Definition, Event, RunId, RunState, TaskName, Tenant, Timestamp, WorkflowName};
use windlass_core::{
    ActionId, Call, CandidateId, Decision, EventId, StepRecord, TaskId, TaskIndex, Weight, Why,
};

use crate::faults::{FaultKind, Verb};
use crate::world::{SiteId, World};

type Applied<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// The store behind a link with faults.
#[derive(Clone)]
pub(crate) struct FaultyStore {
    world: Arc<World>,
    site: SiteId,
    /// What dies with the process; none for clients.
    process: Option<Process>,
}

impl FaultyStore {
    /// The store as a site sees it.
    pub(crate) fn new(world: Arc<World>, site: SiteId, process: Option<Process>) -> Self {
        FaultyStore { world, site, process }
    }

    fn judge_claim(&self) {
        let drained_at = self.world.sites.lock()[self.site.0].drained_at;
        if let Some(at) = drained_at {
            let text = format!("site {} claims, it was told to drain at {at:?}", self.site.0);
            self.world.violate("G19 no claim after the drain", text);
        }
    }

    /// Takes a request to the store and the answer back. `apply` is what the store
    /// does; it may be done twice, or after whoever asked has died.
    async fn deliver<R, T, F>(&self, verb: Verb, request: R, apply: F) -> Result<T, StoreError>
    where
        R: Clone + Send + 'static,
        T: Send + 'static,
        F: Fn(Arc<World>, R) -> Applied<T> + Copy + Send + 'static,
    {
        let world = &self.world;
        let fate = world.fate(self.site, verb);
        if let Some(after) = fate.copy_after {
            let (world, request) = (Arc::clone(world), request.clone());
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                if !world.is_out()
                    && let Err(error) = apply(Arc::clone(&world), request).await
                {
                    world.note_error(&error);
                }
            });
        }
        pause(fate.before).await;
        if world.is_out() {
            world.fault(FaultKind::Outage, || format!("{verb:?} of site {}", self.site.0));
            pause(Duration::from_millis(20)).await;
            return Err(StoreError::Unavailable("it is down".to_owned()));
        }
        if fate.is_request_lost {
            return Err(StoreError::Unavailable("the request was lost".to_owned()));
        }
        let answer = apply(Arc::clone(world), request).await;
        if let Err(error) = &answer {
            world.note_error(error);
        }
        pause(fate.after).await;
        if fate.is_answer_lost {
            return Err(StoreError::Unavailable("the answer was lost".to_owned()));
        }
        answer
    }

    /// With this bug the pause before a retry is only in the process's memory.
    fn remember_retries(&self, completions: &[Completion], answers: &[Answer]) {
        let Some(process) = &self.process else { return };
        for (completion, answer) in completions.iter().zip(answers) {
            let Decision::Retry { delay, .. } = completion.decision else { continue };
            if matches!(answer, Answer::Refused(_)) {
                continue;
            }
            let (world, task) = (Arc::clone(&self.world), completion.task);
            tokio::spawn(process.wrap(async move {
                tokio::time::sleep(delay).await;
                world.store.remember_timer(task);
            }));
        }
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn register(&self, definition: Arc<Definition>) -> Result<(), StoreError> {
        self.deliver(Verb::Register, definition, |world, definition| {
            Box::pin(async move { world.store.register(definition).await })
        })
        .await
    }

    async fn start_runs(
        &self,
        runs: Vec<NewRun>,
    ) -> Result<Vec<Result<Started, StoreError>>, StoreError> {
        self.deliver(Verb::Start, runs, |world, runs| {
            Box::pin(async move {
                let answers = world.store.start_runs(runs).await?;
                for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
                    world.note_error(error);
                }
                Ok(answers)
            })
        })
        .await
    }

    async fn lead(&self, candidacy: Candidacy) -> Result<Standing, StoreError> {
        self.deliver(Verb::Lead, candidacy, |world, candidacy| {
            Box::pin(async move {
                let standing = world.store.lead(candidacy.clone()).await?;
                world.note_lead(&candidacy, &standing);
                Ok(standing)
            })
        })
        .await
    }

    async fn resign(&self, candidate: CandidateId, tallies: Tallies) -> Result<(), StoreError> {
        self.deliver(Verb::Resign, (candidate, tallies), |world, (candidate, tallies)| {
            Box::pin(async move {
                world.store.resign(candidate, tallies).await?;
                world.note_resign(candidate);
                Ok(())
            })
        })
        .await
    }

    async fn sweep(&self, mandate: Mandate, limit: usize) -> Result<Sweep, StoreError> {
        let verb = match mandate.duty {
            Duty::PromoteDue => Verb::Promote,
            Duty::Reap => Verb::Reap,
            Duty::Prune | Duty::Rollup | Duty::Audit => Verb::Read,
            Duty::Schedules => Verb::Promote,
        };
        self.deliver(verb, (mandate, limit), |world, (mandate, limit)| {
            Box::pin(async move {
                let sweep = world.store.sweep(mandate, limit).await?;
                world.note_mandate(&mandate);
                match mandate.duty {
                    Duty::PromoteDue => world.note_promote(&sweep),
                    Duty::Reap => world.note_reap(&sweep),
                    Duty::Prune | Duty::Schedules | Duty::Rollup | Duty::Audit => {}
                }
                Ok(sweep)
            })
        })
        .await
    }

    async fn outlook(&self) -> Result<Outlook, StoreError> {
        self.deliver(Verb::Read, (), |world, ()| {
            Box::pin(async move { world.store.outlook().await })
        })
        .await
    }

    async fn list_leaders(&self) -> Result<Vec<LeaderRecord>, StoreError> {
        self.deliver(Verb::Read, (), |world, ()| {
            Box::pin(async move { world.store.list_leaders().await })
        })
        .await
    }

    fn leader_hints(&self) -> Hints {
        self.world.relays.leaders.subscribe()
    }

    /// Some are lost, so that nobody may rely on them.
    async fn promote_due(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.deliver(Verb::Promote, limit, |world, limit| {
            Box::pin(async move {
                let sweep = world.store.promote_due(limit).await?;
                world.note_promote(&sweep);
                Ok(sweep)
            })
        })
        .await
    }

    async fn reap(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.deliver(Verb::Reap, limit, |world, limit| {
            Box::pin(async move {
                let sweep = world.store.reap(limit).await?;
                world.note_reap(&sweep);
                Ok(sweep)
            })
        })
        .await
    }

    async fn prune(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.deliver(Verb::Read, limit, |world, limit| {
            Box::pin(async move { world.store.prune(limit).await })
        })
        .await
    }

    async fn set_retention(&self, rule: RetentionRule) -> Result<(), StoreError> {
        self.deliver(Verb::Read, rule, |world, rule| {
            Box::pin(async move { world.store.set_retention(rule).await })
        })
        .await
    }

    async fn clear_retention(
        &self,
        workflow: Option<WorkflowName>,
        state: RunState,
    ) -> Result<bool, StoreError> {
        self.deliver(Verb::Read, (workflow, state), |world, (workflow, state)| {
            Box::pin(async move { world.store.clear_retention(workflow, state).await })
        })
        .await
    }

    async fn list_retention(&self) -> Result<Vec<RetentionRule>, StoreError> {
        self.deliver(Verb::Read, (), |world, ()| {
            Box::pin(async move { world.store.list_retention().await })
        })
        .await
    }

    async fn get_archived_run(&self, run: RunId) -> Result<Option<ArchivedRun>, StoreError> {
        self.deliver(Verb::Read, run, |world, run| {
            Box::pin(async move { world.store.get_archived_run(run).await })
        })
        .await
    }

    async fn cancel_run(&self, run: RunId, reason: Option<String>) -> Result<(), StoreError> {
        self.deliver(Verb::Cancel, (run, reason), |world, (run, reason)| {
            Box::pin(async move { world.store.cancel_run(run, reason).await })
        })
        .await
    }

    async fn undo_run(&self, run: RunId) -> Result<RunId, StoreError> {
        self.deliver(Verb::Retry, run, |world, run| {
            Box::pin(async move { world.store.undo_run(run).await })
        })
        .await
    }

    async fn retry_run(&self, run: RunId, round: u32) -> Result<u32, StoreError> {
        self.deliver(Verb::Retry, (run, round), |world, (run, round)| {
            Box::pin(async move {
                let round = world.store.retry_run(run, round).await?;
                world.note_retry(run, round).await;
                Ok(round)
            })
        })
        .await
    }

    async fn list_dead_letters(
        &self,
        filter: DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: usize,
    ) -> Result<DeadLetterPage, StoreError> {
        self.deliver(Verb::Read, (filter, after), move |world, (filter, after)| {
            Box::pin(async move { world.store.list_dead_letters(filter, after, limit).await })
        })
        .await
    }

    async fn redrive(&self, redrive: Redrive) -> Result<Redriven, StoreError> {
        self.deliver(Verb::Retry, redrive, |world, redrive| {
            Box::pin(async move {
                let redriven = world.store.redrive(redrive).await?;
                for run in &redriven.runs {
                    let record = world.store.get_run(*run).await?;
                    if let Some(record) = record {
                        world.note_retry(*run, record.round).await;
                    }
                }
                Ok(redriven)
            })
        })
        .await
    }

    async fn discard(&self, discard: Discard) -> Result<Discarded, StoreError> {
        self.deliver(Verb::Retry, discard, |world, discard| {
            Box::pin(async move {
                let id = discard.id;
                let discarded = world.store.discard(discard).await?;
                world.note_discard(id, &discarded.runs);
                Ok(discarded)
            })
        })
        .await
    }

    async fn log(&self, entry: NewLogEntry) -> Result<ActionId, StoreError> {
        self.deliver(Verb::Retry, entry, |world, entry| {
            Box::pin(async move { world.store.log(entry).await })
        })
        .await
    }

    async fn list_log(&self, filter: LogFilter) -> Result<LogPage, StoreError> {
        self.deliver(Verb::Read, filter, |world, filter| {
            Box::pin(async move { world.store.list_log(filter).await })
        })
        .await
    }

    async fn signal(&self, signal: NewSignal) -> Result<(), StoreError> {
        self.deliver(Verb::Signal, signal, |world, signal| {
            Box::pin(async move {
                world.store.signal(signal.clone()).await?;
                world.note_signal(&signal);
                Ok(())
            })
        })
        .await
    }

    async fn signal_key(&self, signal: NewKeySignal) -> Result<(), StoreError> {
        self.deliver(Verb::Signal, signal, |world, signal| {
            Box::pin(async move {
                world.store.signal_key(signal.clone()).await?;
                world.note_key_signal(&signal);
                Ok(())
            })
        })
        .await
    }

    async fn list_steps(
        &self,
        task: TaskId,
        after: Option<Call>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, StoreError> {
        self.deliver(Verb::Read, (task, after), move |world, (task, after)| {
            Box::pin(async move { world.store.list_steps(task, after, limit).await })
        })
        .await
    }

    async fn get_run(&self, run: RunId) -> Result<Option<RunRecord>, StoreError> {
        self.deliver(Verb::Read, run, |world, run| {
            Box::pin(async move { world.store.get_run(run).await })
        })
        .await
    }

    async fn list_tasks(
        &self,
        run: RunId,
        after: Option<TaskIndex>,
        limit: usize,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        self.deliver(Verb::Read, (run, after), move |world, (run, after)| {
            Box::pin(async move { world.store.list_tasks(run, after, limit).await })
        })
        .await
    }

    async fn get_task(&self, run: RunId, name: TaskName) -> Result<Option<TaskRecord>, StoreError> {
        self.deliver(Verb::Read, (run, name), |world, (run, name)| {
            Box::pin(async move { world.store.get_task(run, name).await })
        })
        .await
    }

    async fn list_runs(&self, filter: RunFilter) -> Result<RunPage, StoreError> {
        self.deliver(Verb::Read, filter, |world, filter| {
            Box::pin(async move { world.store.list_runs(filter).await })
        })
        .await
    }

    async fn list_events(
        &self,
        run: RunId,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.deliver(Verb::Read, (run, after, limit), |world, (run, after, limit)| {
            Box::pin(async move { world.store.list_events(run, after, limit).await })
        })
        .await
    }

    async fn list_workflows(&self, filter: WorkflowFilter) -> Result<WorkflowPage, StoreError> {
        self.deliver(Verb::Read, filter, |world, filter| {
            Box::pin(async move { world.store.list_workflows(filter).await })
        })
        .await
    }

    async fn list_workers(&self, filter: WorkerFilter) -> Result<WorkerPage, StoreError> {
        self.deliver(Verb::Read, filter, |world, filter| {
            Box::pin(async move { world.store.list_workers(filter).await })
        })
        .await
    }

    async fn why(&self, run: RunId, task: Option<TaskName>) -> Result<Option<Why>, StoreError> {
        self.deliver(Verb::Read, (run, task), |world, (run, task)| {
            Box::pin(async move { world.store.why(run, task).await })
        })
        .await
    }

    async fn set_weight(&self, tenant: Tenant, weight: Weight) -> Result<(), StoreError> {
        self.deliver(Verb::Read, (tenant, weight), |world, (tenant, weight)| {
            Box::pin(async move { world.store.set_weight(tenant, weight).await })
        })
        .await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.deliver(Verb::Read, (), |world, ()| Box::pin(async move { world.store.now().await }))
            .await
    }

    fn timer_hints(&self) -> Hints {
        self.world.relays.timers.subscribe()
    }

    fn run_hints(&self) -> Hints {
        self.world.relays.runs.subscribe()
    }
}
