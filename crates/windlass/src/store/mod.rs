//! Where runs live.
//!
//! A store is verbs, not rows: each operation is one transaction that leaves
//! everything consistent, and each can be repeated after an answer was lost.
//! [`WorkerLink`] holds the verbs a worker needs; a remote worker has only those.
//! [`Store`] adds the verbs of clients and of the background duties.
//!
//! This module does not decide anything: what follows from an outcome is computed
//! in `windlass-core` and applied here.

mod batch;
pub(crate) mod dead;
mod declared;
pub(crate) mod duties;
mod hints;
mod leaders;
mod link;
pub(crate) mod log;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
mod queues;
pub(crate) mod quotas;
mod records;
pub(crate) mod retention;
mod ring;
pub(crate) mod schedules;
#[cfg(feature = "scoped")]
mod scoped;
pub mod sealed;
pub(crate) mod tokens;
pub(crate) mod undo;
mod workers;
mod workflows;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{
    ActionId, Call, CandidateId, Definition, Event, EventId, RunId, RunState, StepRecord, TaskId,
    TaskIndex, TaskName, Tenant, Timestamp, Weight, Why, WorkflowName,
};

pub use batch::BATCH_MAX;
pub(crate) use batch::{BATCH_BYTES_MAX, batch_len, check_batch, fitting};
#[doc(hidden)]
pub use windlass_core::nearest::nearest;

pub use dead::{
    DeadLetter, DeadLetterCursor, DeadLetterFilter, DeadLetterPage, Discard, Discarded, Pace,
    REDRIVE_MAX, REDRIVE_TASKS_MAX, Redrive, Redriven, RefusedRun,
};
pub use duties::{
    DUTIES_MAX, DutyClaim, DutyDeclaration, DutyEnd, DutyHolder, DutyMandate, DutyOutcome,
    DutyRecord, DutyStanding, DutyStore, EVERY_MIN, PROCESS_DUTIES_MAX,
};
pub use hints::{HintSender, Hints};
pub use leaders::{
    Candidacy, Duty, ERROR_CHARS_MAX, Holder, LeaderRecord, Mandate, Outlook, Standing, Tallies,
    Tally,
};
pub use link::{
    Answer, Born, CHECKPOINT_NUMBER_MAX, Checkpoint, Child, ChildCount, ChildStart, ClaimRequest,
    Claimed, Completion, Finished, HandlerKey, Heartbeat, HeartbeatAnswer, Held, Hello, Lost,
    ParentEnd, ProgressNote, Recording, Refusal, Release, Signalled, TakeSignal, Taken, ToUndo,
    Which, WorkerLink,
};
pub use log::{
    Action, Author, LogEntry, LogFilter, LogPage, NewLogEntry, REFUSED, REFUSED_ENTRY, refusal,
};
pub use memory::MemoryStore;
pub use queues::{Connections, QUEUES_LISTED_MAX, QueueList, QueueRecord, QueueStore};
pub use quotas::{QUOTA_MAX, QUOTAS_MAX, Quota, QuotaStore, Usage};
pub use records::{
    AUTHOR_METADATA, METADATA_BYTES_MAX, METADATA_PAIRS_MAX, Mailbox, NewKeySignal, NewRun,
    NewSignal, RESERVED_METADATA, RunCursor, RunFilter, RunPage, RunRecord, Started, TaskRecord,
};

pub use retention::{ArchivedRun, PRUNE_MAX, PRUNE_TASKS_MAX, RETENTION_RULES_MAX, RetentionRule};
pub use schedules::{
    BACKFILL_MAX, Backfilled, FIRES_KEPT, Fire, FireBy, FireResult, NOMINAL_METADATA, NewSchedule,
    SCHEDULE_METADATA, SCHEDULES_MAX, ScheduleFilter, ScheduleKey, SchedulePage, ScheduleRecord,
    ScheduleState, ScheduleStore, UnreadableSchedule,
};
#[cfg(feature = "scoped")]
pub use scoped::{SCOPES_MAX, ScopedStore, Scopes};
pub use tokens::{
    NewToken, StoredToken, TOKEN_KEPT, TOKENS_MAX, TokenCursor, TokenFilter, TokenPage,
    TokenRecord, TokenStore, TokenTag,
};
pub use windlass_core::LaneId;
pub use workers::{
    TENANT_METADATA, WORKER_METADATA_PAIRS_MAX, WORKER_TEXT_BYTES_MAX, WorkerCursor, WorkerFilter,
    WorkerInfo, WorkerPage, WorkerRecord, WorkerState,
};
pub use workflows::{
    WORKFLOWS_PAGE_MAX, WorkflowCursor, WorkflowFilter, WorkflowPage, WorkflowRecord, find_workflow,
};

/// The most signals that wait in a run, or in a [`Mailbox`], for someone to ask for them.
pub const SIGNALS_MAX: usize = 1_000;

/// How long a signal to a key is kept if nobody asks for it and nothing else is said: 30 days.
pub const SIGNAL_KEPT: Duration = Duration::from_secs(30 * 86_400);

/// The most rows of one page of a list.
pub const PAGE_MAX: usize = 1_000;

/// What a store answers when it cannot do what it was asked for.
///
/// The variants are named by what the caller can do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no such thing; asking again does not help.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The thing is in a state that does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// The worker is not, or no longer, known: it must join again.
    #[error("the lease of worker {0} was lost")]
    LeaseLost(windlass_core::WorkerId),
    /// The leader of a duty was replaced: it must not go on.
    #[error("term {term} of the duty {duty} is over")]
    TermOver {
        /// The duty.
        duty: Duty,
        /// The term that is over.
        term: windlass_core::Term,
    },
    /// Whoever asks is known and may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// Whoever asks does not say who they are, or not so that it can be believed.
    #[error("{0}")]
    Unauthenticated(String),
    /// A limit of the tenant's is reached and nothing was done; the same request may be repeated
    /// then.
    #[error("{why}")]
    Limited {
        /// Which limit, and how it stands.
        why: String,
        /// When there may be room again.
        retry_after: Duration,
    },
    /// A value is there and cannot be read here: it was sealed with a key that is not in the
    /// keyring, it was changed since or belongs elsewhere, or it is not sealed and must be.
    #[error("{0}")]
    Unreadable(String),
    /// The outcome is unknown; repeat the same request later.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The stored data contradicts itself.
    #[error("the store is corrupt: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// When there may be room again, if a limit is reached.
    pub fn retry_after(&self) -> Option<Duration> {
        if let StoreError::Limited { retry_after, .. } = self { Some(*retry_after) } else { None }
    }

    /// Whether someone must mend what whoever asks may do: the same request may succeed then.
    pub fn is_refusal(&self) -> bool {
        match self {
            StoreError::Forbidden(_) | StoreError::Unauthenticated(_) => true,
            StoreError::NotFound(_)
            | StoreError::Conflict(_)
            | StoreError::LeaseLost(_)
            | StoreError::TermOver { .. }
            | StoreError::Limited { .. }
            | StoreError::Unreadable(_)
            | StoreError::Unavailable(_)
            | StoreError::Corrupt(_) => false,
        }
    }

    /// Whether a worker goes on asking: the store may come back, and someone may mend the rights of
    /// the worker.
    pub(crate) fn may_pass(&self) -> bool {
        self.is_retryable() || self.is_refusal()
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            StoreError::Unavailable(_) | StoreError::Limited { .. } => true,
            StoreError::NotFound(_)
            | StoreError::Conflict(_)
            | StoreError::Forbidden(_)
            | StoreError::Unauthenticated(_)
            | StoreError::LeaseLost(_)
            | StoreError::TermOver { .. }
            | StoreError::Unreadable(_)
            | StoreError::Corrupt(_) => false,
        }
    }
}

/// What a sweep of a background duty did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The time of the sweep by the store's clock.
    pub at: Timestamp,
    /// How many tasks it moved.
    pub moved: usize,
    /// When the next one is due, if there is one. Now or in the past if the batch
    /// was full and there is more to do.
    pub next_at: Option<Timestamp>,
}

/// The verbs of clients and of the background duties.
///
/// Every verb is atomic, and safe to repeat when its answer was lost.
#[async_trait]
pub trait Store:
    WorkerLink + ScheduleStore + QueueStore + DutyStore + TokenStore + QuotaStore
{
    /// Makes a definition known, so that runs of it can be started.
    ///
    /// A definition of the same name and version may be registered again with
    /// other policies (retry, timeout, queue, priority, the length of a sleep), which
    /// hold for runs
    /// started from then on; with other tasks or edges it is a
    /// [`StoreError::Conflict`].
    async fn register(&self, definition: Arc<Definition>) -> Result<(), StoreError>;

    /// A page of the workflows that were registered, by name and then the newest version first,
    /// each as it holds for new runs.
    async fn list_workflows(&self, filter: WorkflowFilter) -> Result<WorkflowPage, StoreError>;

    /// Starts runs: each with all its tasks, the first ones ready, or not at all.
    ///
    /// The answers are in the order of the requests. A run id or an idempotency
    /// key that is there already answers with the run it names; with another
    /// workflow, tenant or input it is a [`StoreError::Conflict`].
    async fn start_runs(
        &self,
        runs: Vec<NewRun>,
    ) -> Result<Vec<Result<Started, StoreError>>, StoreError>;

    /// Offers to do the background duties: keeps the terms that the candidate has, and
    /// begins the next term of each duty whose leader gave it up or was not heard of for
    /// its time to live. Answers who leads what, and when there is something to do.
    ///
    /// A term grows with every change of hands and never goes back.
    async fn lead(&self, candidacy: Candidacy) -> Result<Standing, StoreError>;

    /// Gives up the duties that the candidate has, for anyone to begin the next term at
    /// once, and [hints](Store::leader_hints) that it did. Not an error if it has none.
    async fn resign(&self, candidate: CandidateId, tallies: Tallies) -> Result<(), StoreError>;

    /// Does a duty once, for at most `limit` tasks, if the mandate is that of its leader;
    /// [`StoreError::TermOver`] if it is not, or not any more, and nothing is changed.
    async fn sweep(&self, mandate: Mandate, limit: usize) -> Result<Sweep, StoreError>;

    /// When there is something to do for the background duties. Changes nothing.
    async fn outlook(&self) -> Result<Outlook, StoreError>;

    /// Who leads what, in the order of [`Duty::ALL`].
    async fn list_leaders(&self) -> Result<Vec<LeaderRecord>, StoreError>;

    /// Hints that a duty was given up.
    fn leader_hints(&self) -> Hints;

    /// Makes scheduled tasks whose time has come ready, and ends sleeps that are
    /// over, at most `limit`: the duty [`Duty::PromoteDue`] by hand, whoever leads it.
    async fn promote_due(&self, limit: usize) -> Result<Sweep, StoreError>;

    /// Takes the tasks of workers whose lease ran out away from them, at most
    /// `limit`: back to their queue, or failed if no attempt is left. The duty
    /// [`Duty::Reap`] by hand, whoever leads it.
    async fn reap(&self, limit: usize) -> Result<Sweep, StoreError>;

    /// Deletes runs that are over and older than their [rules](RetentionRule) say, at most `limit`
    /// up to [`PRUNE_MAX`], and the keys of runs that are gone whose time is over. The duty
    /// [`Duty::Prune`] by hand, whoever leads it.
    async fn prune(&self, limit: usize) -> Result<Sweep, StoreError>;

    /// Sets how long runs are kept that ended in a state, in the place of the rule that there is
    /// for the same. One that makes no sense is a [`StoreError::Conflict`], as is more than
    /// [`RETENTION_RULES_MAX`].
    async fn set_retention(&self, rule: RetentionRule) -> Result<(), StoreError>;

    /// Deletes a rule; answers whether there was one.
    async fn clear_retention(
        &self,
        workflow: Option<WorkflowName>,
        state: RunState,
    ) -> Result<bool, StoreError>;

    /// All rules: first those of all workflows, then by workflow, and by the word of the state.
    async fn list_retention(&self) -> Result<Vec<RetentionRule>, StoreError>;

    /// A run that is gone and was archived.
    async fn get_archived_run(&self, run: RunId) -> Result<Option<ArchivedRun>, StoreError>;

    /// Cancels a run and all its tasks that have not ended.
    ///
    /// A cancelled run stays cancelled (not an error); one that ended otherwise is
    /// a [`StoreError::Conflict`].
    async fn cancel_run(&self, run: RunId, reason: Option<String>) -> Result<(), StoreError>;

    /// Begins a failed run's next round: its failed tasks and what depends on
    /// them run again. Answers the number of the round.
    ///
    /// `round` is the round that failed: repeated after a lost answer, the verb
    /// answers the same round again instead of starting another.
    async fn retry_run(&self, run: RunId, round: u32) -> Result<u32, StoreError>;

    /// Starts the run that undoes the steps of a run that has ended, and answers its id: the same
    /// if it is there already.
    ///
    /// A run that fails or is cancelled is undone without this; one that succeeded, or failed
    /// because its code is not the one that made its steps
    /// ([`keeps_steps`](windlass_core::Failure::keeps_steps)), is not. A run that has not ended, or
    /// that has nothing to undo, is a [`StoreError::Conflict`].
    async fn undo_run(&self, run: RunId) -> Result<RunId, StoreError>;

    /// A page of dead letters behind `after`, the newest first, at most `limit` up to
    /// [`PAGE_MAX`].
    async fn list_dead_letters(
        &self,
        filter: DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: usize,
    ) -> Result<DeadLetterPage, StoreError>;

    /// Lets the runs of dead letters go on, the oldest first, as [`retry_run`](Store::retry_run)
    /// does, at once or at a [pace](Pace), and writes down who did it.
    ///
    /// One that cannot go on, because it is running, or was undone, is refused by itself and
    /// spoils nothing. Repeated with the same id, it answers what it answered before and does
    /// nothing; an id that was used for another action is a [`StoreError::Conflict`].
    async fn redrive(&self, redrive: Redrive) -> Result<Redriven, StoreError>;

    /// Takes dead letters away, the oldest first, leaves their runs failed, and writes down who
    /// did it. Those of a run that goes on are refused.
    ///
    /// Repeated with the same id, it answers what it answered before and does nothing; an id that
    /// was used for another action is a [`StoreError::Conflict`].
    async fn discard(&self, discard: Discard) -> Result<Discarded, StoreError>;

    /// Writes down what an operator does. Repeated with the same id, it is written once. A store
    /// that [keeps the log](Store::keeps_log) by itself writes nothing of it.
    ///
    /// Returns the id of the entry: a store of one tenant derives another one from that of `entry`.
    async fn log(&self, entry: NewLogEntry) -> Result<ActionId, StoreError>;

    /// Whether it writes down by itself who changes what, as a server does: it knows better.
    fn keeps_log(&self) -> bool {
        false
    }

    /// A page of what operators did, the newest first.
    async fn list_log(&self, filter: LogFilter) -> Result<LogPage, StoreError>;

    /// Sends a signal to a run: the function of it that waits for it goes on, and if none does,
    /// it is kept until one asks for it.
    ///
    /// Repeated with the same id, it is sent once. A run that has ended is a
    /// [`StoreError::Conflict`], as is more than [`SIGNALS_MAX`] that nobody asked for.
    async fn signal(&self, signal: NewSignal) -> Result<(), StoreError>;

    /// Sends a signal to a key: of the functions that wait for it, those are let go on that are
    /// not yet, and the first that asks gets it. If none waits, it is kept until one asks for it
    /// or its time is over.
    ///
    /// Functions go on with the next sweep of what is due. Repeated with the same id to the same
    /// key within its time, it is sent once. More than [`SIGNALS_MAX`] that nobody asked for are a
    /// [`StoreError::Conflict`].
    async fn signal_key(&self, signal: NewKeySignal) -> Result<(), StoreError>;

    /// What is known of the calls of a task's function behind `after`, in their order, at most
    /// `limit` up to [`PAGE_MAX`]; none if there is no such task.
    async fn list_steps(
        &self,
        task: TaskId,
        after: Option<Call>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, StoreError>;

    /// One run.
    async fn get_run(&self, run: RunId) -> Result<Option<RunRecord>, StoreError>;

    /// Whose runs are, of those of these that are there.
    async fn whose(&self, runs: Vec<RunId>) -> Result<Vec<(RunId, Tenant)>, StoreError> {
        let mut whose = Vec::with_capacity(runs.len());
        for run in runs {
            whose.extend(self.get_run(run).await?.map(|record| (run, record.tenant)));
        }
        Ok(whose)
    }

    /// The tasks of a run behind `after`, in the order of their indices, at most
    /// `limit` up to [`PAGE_MAX`]; none if there is no such run.
    async fn list_tasks(
        &self,
        run: RunId,
        after: Option<TaskIndex>,
        limit: usize,
    ) -> Result<Vec<TaskRecord>, StoreError>;

    /// One task of a run, by its name.
    async fn get_task(&self, run: RunId, name: TaskName) -> Result<Option<TaskRecord>, StoreError>;

    /// Returns a page of runs, newest first, without their inputs.
    async fn list_runs(&self, filter: RunFilter) -> Result<RunPage, StoreError>;

    /// The events of a run after `after`, the oldest first, at most `limit` up to
    /// [`PAGE_MAX`].
    async fn list_events(
        &self,
        run: RunId,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError>;

    /// A page of workers, the newest first.
    async fn list_workers(&self, filter: WorkerFilter) -> Result<WorkerPage, StoreError>;

    /// Why a run, or one of its tasks, does not go on, and how it stands: none if there is no such
    /// run or task. A look at one moment that changes nothing; counts and lists in it are cut by
    /// the limits of [`windlass_core::why`].
    async fn why(&self, run: RunId, task: Option<TaskName>) -> Result<Option<Why>, StoreError>;

    /// Sets a tenant's share in all queues, for tasks that become ready from now.
    async fn set_weight(&self, tenant: Tenant, weight: Weight) -> Result<(), StoreError>;

    /// The time by the store's clock, which decides about everything that is due.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// Hints that something is due earlier than the last sweep said.
    fn timer_hints(&self) -> Hints;

    /// Hints that a run ended.
    fn run_hints(&self) -> Hints;

    /// Whether many starts cost little more than one, so that single ones which come at the
    /// same time had better go together.
    fn gathers_starts(&self) -> bool {
        false
    }

    /// Whether processes that use the store do the background duties: not where a server does.
    fn does_duties(&self) -> bool {
        true
    }

    /// Says that a transaction of a user's that starts runs is about to be committed: this
    /// process looks soon whether it was. For stores in which there are such transactions.
    fn expect_staged(&self) {}

    /// Hints to all processes that a transaction of a user's that started runs was committed.
    fn hint_staged(&self) {}

    /// This store behind a wall of its own, through which nothing but what is a tenant's can be
    /// read, whatever is asked for: the second wall, behind that of `ScopedStore`. Only for verbs
    /// that read. None if the store has none.
    fn walled(&self, _tenant: &Tenant) -> Option<Arc<dyn Store>> {
        None
    }
}

/// Why a run is cancelled whose place in a lane others have.
pub(crate) const SUPERSEDED: &str = "a newer run has its place in the lane of a limit";

/// Why a run in this state cannot be retried or cancelled.
pub(crate) fn wrong_state(run: RunId, state: RunState, wanted: &str, done: &str) -> StoreError {
    StoreError::Conflict(format!("run {run} is {state}, only a {wanted} run can be {done}"))
}
