//! A complete store in memory: for users' tests, for simulation, for trying
//! Windlass out.
//!
//! It keeps every promise of the [`Store`] trait except that of surviving the
//! process. Each verb takes one lock, so each is one transaction.

mod children;
mod control;
mod dead;
mod duties;
mod finish;
mod lanes;
mod leaders;
mod leases;
pub(super) mod mailboxes;
mod mistakes;
mod mistakes_in_time;
mod queries;
mod queue;
mod queues;
mod quotas;
mod retention;
mod run;
mod schedules;
mod start;
mod state;
pub(super) mod steps;
mod timers;
mod tokens;
mod undo;
mod why;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use windlass_core::{
    ActionId, Call, CandidateId, Definition, Event, EventId, PayloadLimit, RunId, RunState,
    StepRecord, TaskId, TaskIndex, TaskName, Tenant, Timestamp, Weight, Why, WorkerId,
    WorkflowName,
};

pub(crate) use self::state::Activity;
use self::state::{Ended, State, Wakes};
use super::{
    Answer, ArchivedRun, Born, Candidacy, Checkpoint, Child, ChildCount, ChildStart, ClaimRequest,
    Claimed, Completion, DeadLetterCursor, DeadLetterFilter, DeadLetterPage, Discard, Discarded,
    Duty, Finished, Heartbeat, HeartbeatAnswer, Held, Hello, HintSender, Hints, LeaderRecord,
    LogFilter, LogPage, Mandate, NewKeySignal, NewLogEntry, NewRun, NewSignal, Outlook, QueueStore,
    Recording, Redrive, Redriven, Release, RetentionRule, RunFilter, RunPage, RunRecord,
    ScheduleStore, Standing, Started, Store, StoreError, Sweep, TakeSignal, Taken, Tallies,
    TaskRecord, ToUndo, WorkerFilter, WorkerLink, WorkerPage, WorkflowFilter, WorkflowPage,
    check_batch,
};
use crate::clock::{Clock, RuntimeClock};
use crate::planted::{Planted, PlantedBug};

/// The time between the two steps of a planted mistake that splits a verb.
const MISTAKE_GAP: Duration = Duration::from_millis(5);

/// A store in memory.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use windlass::store::{MemoryStore, RunFilter, Store};
///
/// let store = MemoryStore::new();
/// let page = store.list_runs(RunFilter::default()).await?;
/// assert!(page.runs.is_empty());
/// # Ok(()) }
/// ```
pub struct MemoryStore {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    work: HintSender,
    timers: HintSender,
    runs: HintSender,
    leaders: HintSender,
    duties: HintSender,
    activity: watch::Sender<Activity>,
    planted: Planted,
}

impl MemoryStore {
    /// An empty store on the runtime's clock.
    pub fn new() -> Self {
        MemoryStore::with_clock(Arc::new(RuntimeClock::new()))
    }

    /// An empty store on a clock of the caller's.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        MemoryStore::build(clock, Planted::default())
    }

    /// An empty store with a deliberate bug.
    #[cfg(feature = "planted-bugs")]
    pub fn with_bug(clock: Arc<dyn Clock>, bug: Option<PlantedBug>) -> Self {
        MemoryStore::build(clock, Planted::new(bug))
    }

    /// Makes a task due that waits for its next attempt. With the bug
    /// [`BackoffInMemory`](PlantedBug::BackoffInMemory) the store does not do so by
    /// itself, and the process that holds the pause in its memory does.
    #[cfg(feature = "planted-bugs")]
    pub fn remember_timer(&self, task: windlass_core::TaskId) {
        self.transact(|state| state.remember_timer(task));
    }

    /// The same store with another limit on the size of payloads; 1 MiB if not said.
    #[must_use]
    pub fn with_payload_limit(self, limit: PayloadLimit) -> Self {
        self.transact(|state| state.shared.payload_limit = limit);
        self
    }

    fn build(clock: Arc<dyn Clock>, planted: Planted) -> Self {
        let state = State::new(clock.now(), planted);
        MemoryStore {
            activity: watch::Sender::new(state.shared.activity()),
            state: Mutex::new(state),
            clock,
            work: HintSender::new(),
            timers: HintSender::new(),
            runs: HintSender::new(),
            leaders: HintSender::new(),
            duties: HintSender::new(),
            planted,
        }
    }

    /// Runs one verb: under the lock, at one time, with the hints sent after it.
    fn transact<T>(&self, verb: impl FnOnce(&mut State) -> T) -> T {
        let (result, wakes) = {
            // A panic inside a verb is a bug of ours; the data is still the best we have.
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.shared.now = state.shared.now.max(self.clock.now());
            state.shared.ready.now = Some(state.shared.now);
            state.shared.remember_lanes();
            state.shared.noted.clear();
            let result = verb(&mut state);
            state.settle_lanes();
            state.note_ends();
            let activity = state.shared.activity();
            self.activity.send_if_modified(|last| std::mem::replace(last, activity) != activity);
            (result, std::mem::take(&mut state.shared.wakes))
        };
        self.send_hints(wakes);
        result
    }

    /// With this bug, whoever ended runs begins to undo them a little later, if it still can.
    async fn undo_later(&self, ended: Vec<Ended>) {
        if ended.is_empty() {
            return;
        }
        tokio::time::sleep(MISTAKE_GAP).await;
        self.transact(|state| state.undo_ended(&ended));
    }

    /// What goes on in the store, as it changes.
    #[cfg(feature = "testing")]
    pub(crate) fn activity(&self) -> watch::Receiver<Activity> {
        self.activity.subscribe()
    }

    /// Hints that a duty of a program was begun or ended.
    #[cfg(feature = "testing")]
    pub(crate) fn duty_hints(&self) -> Hints {
        self.duties.subscribe()
    }

    fn send_hints(&self, wakes: Wakes) {
        let Wakes { work, timers, runs, leaders, duties } = wakes;
        for (is_owed, sender) in [
            (!work.is_empty(), &self.work),
            (timers, &self.timers),
            (runs, &self.runs),
            (leaders, &self.leaders),
            (duties, &self.duties),
        ] {
            if is_owed {
                sender.send();
            }
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl WorkerLink for MemoryStore {
    async fn join(&self, hello: Hello) -> Result<(), StoreError> {
        self.transact(|state| state.join(hello))
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        check_batch(request.limit)?;
        if self.planted.has(PlantedBug::ClaimInTwoSteps) {
            let taken = self.transact(|state| state.take_ready(&request))?;
            tokio::time::sleep(MISTAKE_GAP).await;
            return self.transact(|state| state.lease(&request, taken));
        }
        self.transact(|state| {
            let taken = state.take_ready(&request)?;
            state.lease(&request, taken)
        })
    }

    async fn finish(&self, completions: Vec<Completion>) -> Result<Vec<Answer>, StoreError> {
        check_batch(completions.len())?;
        if self.planted.has(PlantedBug::UndoInAnotherStep) {
            let (answers, ended) = self.transact(|state| state.finish_without_undo(completions))?;
            self.undo_later(ended).await;
            return Ok(answers);
        }
        self.transact(|state| state.finish_all(completions))
    }

    async fn finish_and_claim(
        &self,
        completions: Vec<Completion>,
        next: ClaimRequest,
    ) -> Result<Finished, StoreError> {
        check_batch(completions.len())?;
        check_batch(next.limit)?;
        if self.planted.has(PlantedBug::UndoInAnotherStep) {
            let answers = self.finish(completions).await?;
            return Ok(Finished { answers, claimed: self.claim(next).await? });
        }
        self.transact(|state| {
            let answers = state.finish_all(completions)?;
            state.settle_lanes();
            Ok(Finished { answers, claimed: state.claim_next(&next)? })
        })
    }

    async fn release(&self, releases: Vec<Release>) -> Result<Vec<Answer>, StoreError> {
        check_batch(releases.len())?;
        self.transact(|state| releases.iter().map(|r| state.release(r)).collect())
    }

    async fn checkpoint(&self, checkpoints: Vec<Checkpoint>) -> Result<Vec<Answer>, StoreError> {
        check_batch(checkpoints.len())?;
        Ok(self.transact(|state| checkpoints.into_iter().map(|c| state.checkpoint(c)).collect()))
    }

    async fn record(&self, recordings: Vec<Recording>) -> Result<Vec<Answer>, StoreError> {
        check_batch(recordings.len())?;
        Ok(self.transact(|state| recordings.into_iter().map(|r| state.record(r)).collect()))
    }

    async fn take_signals(&self, takes: Vec<TakeSignal>) -> Result<Vec<Taken>, StoreError> {
        check_batch(takes.len())?;
        if self.planted.has(PlantedBug::TakeInTwoSteps) {
            let off: Vec<_> = self.transact(|state| {
                takes.into_iter().map(|take| (state.take_off(&take), take)).collect()
            });
            tokio::time::sleep(MISTAKE_GAP).await;
            let later = |state: &mut State| {
                off.into_iter().map(|(off, take)| state.take_later(take, off)).collect()
            };
            return Ok(self.transact(later));
        }
        Ok(self.transact(|state| takes.into_iter().map(|take| state.take_signal(take)).collect()))
    }

    async fn start_children(&self, starts: Vec<ChildStart>) -> Result<Vec<Born>, StoreError> {
        check_batch(starts.len())?;
        Ok(self.transact(|state| starts.into_iter().map(|one| state.start_child(one)).collect()))
    }

    async fn read_undo(&self, held: Held) -> Result<ToUndo, StoreError> {
        self.transact(|state| state.read_undo(held))
    }

    async fn count_children(&self, task: TaskId, call: Call) -> Result<ChildCount, StoreError> {
        Ok(self.transact(|state| state.count_children(task, call)))
    }

    async fn list_children(
        &self,
        task: TaskId,
        call: Call,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<Child>, StoreError> {
        Ok(self.transact(|state| state.list_children(task, call, after, limit)))
    }

    async fn extend(&self, mut heartbeat: Heartbeat) -> Result<HeartbeatAnswer, StoreError> {
        self.transact(|state| {
            heartbeat.drop_large_notes(state.shared.payload_limit);
            state.extend(heartbeat)
        })
    }

    async fn begin_drain(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.transact(|state| state.begin_drain(worker))
    }

    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.transact(|state| state.leave(worker))
    }

    fn keyring(&self) -> Option<Arc<super::sealed::Keyring>> {
        None
    }

    fn work_hints(&self) -> Hints {
        self.work.subscribe()
    }

    fn payload_limit(&self) -> PayloadLimit {
        self.transact(|state| state.shared.payload_limit)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn register(&self, definition: Arc<Definition>) -> Result<(), StoreError> {
        self.transact(|state| state.register_all(vec![definition]))
    }

    async fn start_runs(
        &self,
        runs: Vec<NewRun>,
    ) -> Result<Vec<Result<Started, StoreError>>, StoreError> {
        check_batch(runs.len())?;
        Ok(self.transact(|state| runs.into_iter().map(|run| state.start(run)).collect()))
    }

    async fn lead(&self, candidacy: Candidacy) -> Result<Standing, StoreError> {
        Ok(self.transact(|state| state.lead(&candidacy)))
    }

    async fn resign(&self, candidate: CandidateId, tallies: Tallies) -> Result<(), StoreError> {
        self.transact(|state| state.resign(candidate, &tallies));
        Ok(())
    }

    async fn sweep(&self, mandate: Mandate, limit: usize) -> Result<Sweep, StoreError> {
        let is_split = [PlantedBug::TimerConsumedEffectLost, PlantedBug::FireInTwoSteps];
        if is_split.into_iter().any(|bug| self.planted.has(bug)) {
            self.transact(|state| state.check_mandate(&mandate))?;
            return match mandate.duty {
                Duty::PromoteDue => self.promote_due(limit).await,
                Duty::Reap => self.reap(limit).await,
                Duty::Prune => self.prune(limit).await,
                Duty::Schedules => self.fire_schedules(limit).await,
                Duty::Rollup | Duty::Audit => self.roll_up(limit).await,
            };
        }
        self.transact(|state| {
            state.check_mandate(&mandate)?;
            match mandate.duty {
                Duty::PromoteDue => {
                    let due = state.take_due(limit);
                    state.promote(due, limit)
                }
                Duty::Reap => state.reap(limit),
                Duty::Prune => Ok(state.prune(limit)),
                Duty::Schedules => state.fire_schedules(limit),
                // The queues know what is in them, and the test kit checks the promises.
                Duty::Rollup | Duty::Audit => Ok(state.nothing_due()),
            }
        })
    }

    async fn outlook(&self) -> Result<Outlook, StoreError> {
        Ok(self.transact(|state| state.outlook()))
    }

    async fn list_leaders(&self) -> Result<Vec<LeaderRecord>, StoreError> {
        Ok(self.transact(|state| state.leaders.to_vec()))
    }

    fn leader_hints(&self) -> Hints {
        self.leaders.subscribe()
    }

    async fn promote_due(&self, limit: usize) -> Result<Sweep, StoreError> {
        if self.planted.has(PlantedBug::TimerConsumedEffectLost) {
            let due = self.transact(|state| state.take_due(limit));
            tokio::time::sleep(MISTAKE_GAP).await;
            return self.transact(|state| state.promote(due, limit));
        }
        self.transact(|state| {
            let due = state.take_due(limit);
            state.promote(due, limit)
        })
    }

    async fn reap(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.transact(|state| state.reap(limit))
    }

    async fn prune(&self, limit: usize) -> Result<Sweep, StoreError> {
        Ok(self.transact(|state| state.prune(limit)))
    }

    async fn set_retention(&self, rule: RetentionRule) -> Result<(), StoreError> {
        self.transact(|state| {
            state.shared.wakes.timers = true;
            state.retention.set(rule)
        })
    }

    async fn clear_retention(
        &self,
        workflow: Option<WorkflowName>,
        state: RunState,
    ) -> Result<bool, StoreError> {
        Ok(self.transact(|all| all.retention.clear(workflow.as_ref(), state)))
    }

    async fn list_retention(&self) -> Result<Vec<RetentionRule>, StoreError> {
        Ok(self.transact(|state| state.retention.rules()))
    }

    async fn get_archived_run(&self, run: RunId) -> Result<Option<ArchivedRun>, StoreError> {
        Ok(self.transact(|state| state.retention.archived(run)))
    }

    async fn cancel_run(&self, run: RunId, reason: Option<String>) -> Result<(), StoreError> {
        self.transact(|state| state.cancel_run(run, reason))
    }

    async fn retry_run(&self, run: RunId, round: u32) -> Result<u32, StoreError> {
        self.transact(|state| state.retry_run(run, round))
    }

    async fn undo_run(&self, run: RunId) -> Result<RunId, StoreError> {
        self.transact(|state| state.undo_run(run))
    }

    async fn list_dead_letters(
        &self,
        filter: DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: usize,
    ) -> Result<DeadLetterPage, StoreError> {
        Ok(self.transact(|state| state.shared.letters.list(&filter, after, limit)))
    }

    async fn redrive(&self, redrive: Redrive) -> Result<Redriven, StoreError> {
        self.transact(|state| state.redrive(redrive))
    }

    async fn discard(&self, discard: Discard) -> Result<Discarded, StoreError> {
        self.transact(|state| state.discard(discard))
    }

    async fn log(&self, entry: NewLogEntry) -> Result<ActionId, StoreError> {
        let id = entry.id;
        self.transact(|state| state.log(entry)).map(|()| id)
    }

    async fn list_log(&self, filter: LogFilter) -> Result<LogPage, StoreError> {
        Ok(self.transact(|state| state.log.list(&filter)))
    }

    async fn signal(&self, signal: NewSignal) -> Result<(), StoreError> {
        self.transact(|state| state.signal(signal))
    }

    async fn signal_key(&self, signal: NewKeySignal) -> Result<(), StoreError> {
        self.transact(|state| state.signal_key(signal))
    }

    async fn list_steps(
        &self,
        task: TaskId,
        after: Option<Call>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, StoreError> {
        Ok(self.transact(|state| state.list_steps(task, after, limit)))
    }

    async fn get_run(&self, run: RunId) -> Result<Option<RunRecord>, StoreError> {
        Ok(self.transact(|state| state.get_run(run)))
    }

    async fn list_tasks(
        &self,
        run: RunId,
        after: Option<TaskIndex>,
        limit: usize,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        Ok(self.transact(|state| state.list_tasks(run, after, limit)))
    }

    async fn get_task(&self, run: RunId, name: TaskName) -> Result<Option<TaskRecord>, StoreError> {
        Ok(self.transact(|state| state.get_task(run, &name)))
    }

    async fn list_runs(&self, filter: RunFilter) -> Result<RunPage, StoreError> {
        Ok(self.transact(|state| state.list_runs(&filter)))
    }

    async fn list_events(
        &self,
        run: RunId,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        Ok(self.transact(|state| state.list_events(run, after, limit)))
    }

    async fn list_workflows(&self, filter: WorkflowFilter) -> Result<WorkflowPage, StoreError> {
        Ok(self.transact(|state| state.list_workflows(&filter)))
    }

    async fn list_workers(&self, filter: WorkerFilter) -> Result<WorkerPage, StoreError> {
        Ok(self.transact(|state| state.list_workers(&filter)))
    }

    async fn why(&self, run: RunId, task: Option<TaskName>) -> Result<Option<Why>, StoreError> {
        self.transact(|state| state.why(run, task.as_ref()))
    }

    async fn set_weight(&self, tenant: Tenant, weight: Weight) -> Result<(), StoreError> {
        self.transact(|state| {
            state.shared.ready.see(&tenant);
            state.shared.weights.insert(tenant, weight)
        });
        Ok(())
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.transact(|state| state.shared.now))
    }

    fn timer_hints(&self) -> Hints {
        self.timers.subscribe()
    }

    fn run_hints(&self) -> Hints {
        self.runs.subscribe()
    }
}
