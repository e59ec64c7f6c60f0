//! The store as one process sees it: over a link that loses, delays and repeats.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass::store::{
    Answer, Born, Candidacy, Checkpoint, Child, ChildCount, ChildStart, ClaimRequest, Claimed,
    Completion, DeadLetterCursor, DeadLetterFilter, DeadLetterPage, Discard, Discarded, Duty,
    Finished, Heartbeat, HeartbeatAnswer, Held, Hello, Hints, LeaderRecord, LogFilter, LogPage,
    Mandate, NewKeySignal, NewLogEntry, NewRun, NewSignal, Outlook, Recording, Redrive, Redriven,
    Release, RunFilter, RunPage, RunRecord, Standing, Started, Store, StoreError, Sweep,
    TakeSignal, Taken, Tallies, TaskRecord, ToUndo, WorkerFilter, WorkerLink, WorkerPage,
};
use windlass::testing::Process;
use windlass::{Definition, Event, PayloadLimit, PlantedBug, RunId, TaskName, Tenant, Timestamp};
use windlass_core::{
    Call, CandidateId, Decision, EventId, StepRecord, TaskId, TaskIndex, Weight, Why, WorkerId,
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
impl WorkerLink for FaultyStore {
    async fn join(&self, hello: Hello) -> Result<(), StoreError> {
        let request = (self.site, hello);
        self.deliver(Verb::Join, request, |world, (site, hello)| {
            Box::pin(async move {
                world.store.join(hello.clone()).await?;
                world.note_join(site, &hello);
                Ok(())
            })
        })
        .await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        self.judge_claim();
        self.deliver(Verb::Claim, request, |world, request| {
            Box::pin(async move {
                let claimed = world.store.claim(request.clone()).await?;
                world.note_claim(&request, &claimed);
                Ok(claimed)
            })
        })
        .await
    }

    async fn finish(&self, completions: Vec<Completion>) -> Result<Vec<Answer>, StoreError> {
        let answers = self
            .deliver(Verb::Finish, completions.clone(), |world, completions| {
                Box::pin(async move {
                    let held = |c: &Completion| Held { task: c.task, fence: c.fence };
                    let held: Vec<Held> = completions.iter().map(held).collect();
                    let answers = world.store.finish(completions.clone()).await?;
                    world.note_answers(&held, &answers);
                    world.note_parks(&completions, &answers).await;
                    Ok(answers)
                })
            })
            .await?;
        if self.world.bug == Some(PlantedBug::BackoffInMemory) {
            self.remember_retries(&completions, &answers);
        }
        Ok(answers)
    }

    async fn finish_and_claim(
        &self,
        completions: Vec<Completion>,
        next: ClaimRequest,
    ) -> Result<Finished, StoreError> {
        self.judge_claim();
        let request = (completions.clone(), next);
        let finished = self
            .deliver(Verb::Finish, request, |world, (completions, next)| {
                Box::pin(async move {
                    let held = |c: &Completion| Held { task: c.task, fence: c.fence };
                    let held: Vec<Held> = completions.iter().map(held).collect();
                    let finish = world.store.finish_and_claim(completions.clone(), next.clone());
                    let finished = finish.await?;
                    world.note_answers(&held, &finished.answers);
                    world.note_parks(&completions, &finished.answers).await;
                    world.note_claim(&next, &finished.claimed);
                    Ok(finished)
                })
            })
            .await?;
        if self.world.bug == Some(PlantedBug::BackoffInMemory) {
            self.remember_retries(&completions, &finished.answers);
        }
        Ok(finished)
    }

    async fn release(&self, releases: Vec<Release>) -> Result<Vec<Answer>, StoreError> {
        self.deliver(Verb::Release, releases, |world, releases| {
            Box::pin(async move {
                let held = |r: &Release| Held { task: r.task, fence: r.fence };
                let held: Vec<Held> = releases.iter().map(held).collect();
                let answers = world.store.release(releases).await?;
                world.note_answers(&held, &answers);
                Ok(answers)
            })
        })
        .await
    }

    async fn checkpoint(&self, checkpoints: Vec<Checkpoint>) -> Result<Vec<Answer>, StoreError> {
        self.deliver(Verb::Checkpoint, checkpoints, |world, checkpoints| {
            Box::pin(async move { world.store.checkpoint(checkpoints).await })
        })
        .await
    }

    async fn record(&self, recordings: Vec<Recording>) -> Result<Vec<Answer>, StoreError> {
        self.deliver(Verb::Record, recordings, |world, recordings| {
            Box::pin(async move {
                let answers = world.store.record(recordings.clone()).await?;
                world.note_record(&recordings, &answers).await;
                Ok(answers)
            })
        })
        .await
    }

    async fn take_signals(&self, takes: Vec<TakeSignal>) -> Result<Vec<Taken>, StoreError> {
        self.deliver(Verb::Record, takes, |world, takes| {
            Box::pin(async move {
                let answers = world.store.take_signals(takes.clone()).await?;
                world.note_takes(&takes, &answers).await;
                Ok(answers)
            })
        })
        .await
    }

    async fn start_children(&self, starts: Vec<ChildStart>) -> Result<Vec<Born>, StoreError> {
        self.deliver(Verb::Start, starts, |world, starts| {
            Box::pin(async move {
                let answers = world.store.start_children(starts.clone()).await?;
                world.note_children(&starts, &answers);
                Ok(answers)
            })
        })
        .await
    }

    async fn read_undo(&self, held: Held) -> Result<ToUndo, StoreError> {
        self.deliver(Verb::Read, held, |world, held| {
            Box::pin(async move { world.store.read_undo(held).await })
        })
        .await
    }

    async fn count_children(&self, task: TaskId, call: Call) -> Result<ChildCount, StoreError> {
        self.deliver(Verb::Read, (task, call), |world, (task, call)| {
            Box::pin(async move { world.store.count_children(task, call).await })
        })
        .await
    }

    async fn list_children(
        &self,
        task: TaskId,
        call: Call,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<Child>, StoreError> {
        self.deliver(Verb::Read, (task, call, after), move |world, (task, call, after)| {
            Box::pin(async move { world.store.list_children(task, call, after, limit).await })
        })
        .await
    }

    async fn extend(&self, heartbeat: Heartbeat) -> Result<HeartbeatAnswer, StoreError> {
        self.deliver(Verb::Extend, heartbeat, |world, heartbeat| {
            Box::pin(async move {
                let answer = world.store.extend(heartbeat.clone()).await?;
                world.note_heartbeat(&heartbeat).await;
                Ok(answer)
            })
        })
        .await
    }

    async fn begin_drain(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.deliver(Verb::Leave, worker, |world, worker| {
            Box::pin(async move { world.store.begin_drain(worker).await })
        })
        .await
    }

    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.deliver(Verb::Leave, worker, |world, worker| {
            Box::pin(async move {
                world.store.leave(worker).await?;
                world.note_leave(worker);
                Ok(())
            })
        })
        .await
    }

    fn hears_hints(&self) -> bool {
        false
    }

    fn work_hints(&self) -> Hints {
        self.world.relays.work.subscribe()
    }

    fn payload_limit(&self) -> PayloadLimit {
        self.world.store.payload_limit()
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
        };
        self.deliver(verb, (mandate, limit), |world, (mandate, limit)| {
            Box::pin(async move {
                let sweep = world.store.sweep(mandate, limit).await?;
                world.note_mandate(&mandate);
                match mandate.duty {
                    Duty::PromoteDue => world.note_promote(&sweep),
                    Duty::Reap => world.note_reap(&sweep),
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
            Box::pin(async move { world.store.discard(discard).await })
        })
        .await
    }

    async fn log(&self, entry: NewLogEntry) -> Result<(), StoreError> {
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
