//! The store that lasts: PostgreSQL.
//!
//! Each verb is one transaction at READ COMMITTED: it locks the runs it concerns, loads the
//! tasks it needs, lets the rules of [`windlass_core`] say what follows, and writes the
//! result in a few statements, whatever the size of the batch. Every statement is a file in
//! `sql/` that says what it locks; the tables are explained in `migrations/`.
//!
//! A verb that the database interrupted is repeated: all of them can be.

mod address;
mod audit;
mod check;
mod checkpoint;
mod children;
mod claim;
mod control;
mod dead;
mod deadlines;
mod declared;
mod doctor;
mod duties;
mod election;
mod fault;
pub(crate) mod fenced;
mod finish;
mod firsts;
mod floors;
mod flush;
mod handout;
mod history;
mod journal;
mod keys;
mod lanes;
mod leaders;
mod leases;
mod listen;
mod log;
mod migrate;
mod names;
mod notify;
mod onward;
mod options;
mod order;
mod parking;
mod party;
mod peek;
mod plan;
mod pool;
mod queries;
mod queues;
mod quotas;
mod reads;
mod repair;
mod repeat;
mod retention;
mod ring;
mod roles;
mod run;
mod schedules;
mod settings;
mod split;
mod start;
mod statements;
#[cfg(feature = "testing")]
mod step;
mod time;
mod timers;
mod tls;
mod tokens;
pub(crate) mod transactional;
mod turn;
mod undo;
mod unsound;
mod wall;
mod why;
mod work;
mod worker;
mod workers;
mod workflows;
mod writes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::Row;
use windlass_core::{
    ActionId, Call, CandidateId, Definition, Event, EventId, PayloadLimit, RunId, RunState,
    StepRecord, TaskId, TaskIndex, TaskName, Tenant, Timestamp, Weight, Why, WorkflowName,
};

use self::address::Target;
pub use self::audit::{
    AuditOptions, AuditReport, CheckResult, EXAMPLE_CHARS_MAX, EXAMPLES_MAX, Severity, Verdict,
    audit,
};
use self::declared::Declarations;
pub use self::doctor::{
    DoctorOptions, DoctorReport, Examined, FINDINGS_MAX, Finding, FindingSeverity, doctor,
};
use self::election::Election;
use self::fault::{Fault, Remedy};
use self::firsts::Firsts;
use self::floors::{Floors, Front};
use self::notify::{Kinds, Notifier};
use self::peek::Peeks;
use self::pool::{Ask, Params, Pool, Sql, Tx};
use self::reads::Reads;
use self::repeat::{repeat, without_unsound};
use self::retention::Pass;
use self::ring::LastRing;
use self::schedules::Unfired;
use self::time::At;
use self::timers::StagedWatch;
use self::unsound::Unsound;
use self::wall::Wall;
use self::work::Work;
use self::writes::Writes;
use super::{
    ArchivedRun, Candidacy, DeadLetterCursor, DeadLetterFilter, DeadLetterPage, Discard, Discarded,
    Duty, Hints, LeaderRecord, LogFilter, LogPage, Mandate, NewKeySignal, NewLogEntry, NewRun,
    NewSignal, Outlook, Redrive, Redriven, RetentionRule, RunFilter, RunPage, RunRecord, Standing,
    Started, Store, StoreError, Sweep, Tallies, TaskRecord, WorkerFilter, WorkerPage,
    WorkflowFilter, WorkflowPage, check_batch,
};
use crate::Error;
use crate::clock::Clock;

pub use self::fenced::{Transaction, TransactionPool};
pub use self::migrate::{Migrated, migrate, plan};
pub use self::options::{CONNECTIONS_MAX, LeaderElection, PostgresOptions};
pub use self::plan::{LockMode, Plan, PlannedMigration, PlannedStatement, TableLock};
pub use self::repair::{StaleSlot, repair};
pub use self::roles::{Roles, WALLED_TABLES, grants};
#[cfg(feature = "testing")]
pub use self::step::{Stepper, Steps};
pub use self::transactional::StartExecutor;

/// How soon a sweep that had to leave out a locked run comes again.
const BUSY_RUN_PAUSE: Duration = Duration::from_millis(50);

/// How soon a sweep comes again while runs are left out that contradict themselves.
const UNSOUND_RUN_PAUSE: Duration = Duration::from_secs(1);

/// A store in a PostgreSQL database.
pub struct PostgresStore {
    pool: Pool,
    /// The connections for lists and `why`.
    reads: Reads,
    ring: LastRing,
    floors: Floors,
    peeks: Peeks,
    declarations: Declarations,
    firsts: Firsts,
    unsound: Unsound,
    staged_watch: StagedWatch,
    /// How many sweeps in a row have left out runs whose lanes others had.
    passed_over: AtomicU32,
    /// Where the deletion of old runs is.
    pass: Pass,
    /// Runs that cannot be deleted.
    undeletable: Unsound,
    /// Schedules that cannot be fired.
    unfired: Unfired,
    /// Whether transactions may be prepared for a two-phase commit, in which case nobody is
    /// told of the runs that were started inside of one.
    may_prepare: AtomicBool,
    payload_limit: PayloadLimit,
    election: Box<dyn Election>,
    /// Where to check the promises.
    target: Target,
    /// In tests, the clock that stands for the database's.
    clock: Option<Arc<dyn Clock>>,
    notifier: Notifier,
    /// The second wall between tenants, if there is one.
    wall: Option<Wall>,
}

impl PostgresStore {
    /// Connects to a database, and checks that it is one to work with: reachable, new
    /// enough, and with the schema of this version.
    ///
    /// # Errors
    ///
    /// `Argument` if the address cannot be understood, `Unavailable` if nobody answers there,
    /// `Database` if the server is too old or does not let us in, and `Schema` if the schema
    /// is missing or of another version.
    pub async fn connect(options: PostgresOptions) -> Result<Self, Error> {
        let election = election::of(&options)?;
        if options.migrates {
            migrate(&options).await?;
        }
        let pool = Pool::connect(&options).await?;
        let wall = match &options.api_role {
            Some(role) => Some(Wall::connect(&options, &pool, role).await?),
            None => None,
        };
        let payload_limit = settings::payload_limit(&options, &pool).await?;
        let notifier = Notifier::start(&options, &pool)?;
        Ok(PostgresStore {
            reads: Reads::new(&options, &pool),
            pool,
            ring: LastRing::default(),
            floors: Floors::default(),
            peeks: Peeks::default(),
            declarations: Declarations::default(),
            firsts: Firsts::default(),
            unsound: Unsound::default(),
            staged_watch: StagedWatch::default(),
            passed_over: AtomicU32::new(0),
            pass: Pass::default(),
            undeletable: Unsound::default(),
            unfired: Unfired::default(),
            may_prepare: AtomicBool::new(false),
            payload_limit,
            election,
            target: options.target()?,
            clock: None,
            notifier,
            wall,
        })
    }

    /// How many statements this store has sent, those that begin and end transactions among
    /// them; those of its listener are not.
    pub fn statements(&self) -> u64 {
        self.pool.statements()
    }

    /// The same store on a clock of a test's.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self.floors = Floors::restless();
        self
    }

    fn learn_from(&self, fault: &Fault) {
        if fault.remedy() == Remedy::Outage {
            self.forget_cached();
        }
    }

    /// Drops the cached names and watermarks: after an outage, the address may lead to another
    /// server, or to the same one with older data. Transactions in progress keep their names.
    ///
    /// Public for tests, which call it at any moment.
    #[doc(hidden)]
    pub fn forget_cached(&self) {
        self.pool.names().renew();
        self.floors.forget();
    }

    /// Forgets what this store has learnt from earlier calls, but for names: a test repeats a
    /// call, and it is to send the same statements.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn forget_learned(&self) {
        self.floors.forget();
        self.passed_over.store(0, std::sync::atomic::Ordering::Relaxed);
    }

    /// Lets the next sweep wait for limit keys that others have locked, as it does once it has
    /// passed over some of them many times.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn lose_patience(&self) {
        self.passed_over.store(u32::MAX, std::sync::atomic::Ordering::Relaxed);
    }

    /// What is about runs that do not contradict themselves.
    fn sound<T>(&self, items: Vec<T>, run_of: impl Fn(&T) -> RunId) -> Vec<T> {
        items.into_iter().filter(|item| !self.unsound.has(run_of(item))).collect()
    }

    /// How soon a sweep that had to leave out runs comes again: those that others have locked
    /// are free soon, those that contradict themselves are not.
    fn busy_pause(&self) -> Duration {
        if self.unsound.is_any() { UNSOUND_RUN_PAUSE } else { BUSY_RUN_PAUSE }
    }

    /// Returns how long something cached is used without another look. On the clock of a test
    /// nothing is: which statements a verb sends must not depend on the time they take.
    fn pause(&self, pause: Duration) -> Duration {
        if self.clock.is_some() { Duration::ZERO } else { pause }
    }

    /// The time, after whatever the transaction has waited for.
    async fn now_in(&self, tx: &Tx<'_>) -> Result<Timestamp, Fault> {
        self.now_of(&tx.query(&statements::CLOCK, &[]).await?)
    }

    /// The time that [`statements::CLOCK`] answered, or that of a test's clock.
    fn now_of(&self, rows: &[Row]) -> Result<Timestamp, Fault> {
        if let Some(clock) = &self.clock {
            return Ok(clock.now());
        }
        let now: Option<At> = rows.first().map(|row| row.get(0));
        now.map(|now| now.0).ok_or_else(|| Fault::Unavailable("no time of day".to_owned()))
    }

    /// Locks runs, waiting for those that others have, and reads the time once it has them.
    /// Those that do not exist are left out.
    async fn lock_runs(
        &self,
        tx: &Tx<'_>,
        runs: impl IntoIterator<Item = RunId>,
    ) -> Result<Work, Fault> {
        let ids = work::sorted_ids(runs);
        Ok(self.lock_runs_and(tx, (&statements::LOCK_RUNS, &[&ids]), &[]).await?.0)
    }

    /// Locks runs by a statement, reads the time once it has them, and asks something else at
    /// once.
    async fn lock_runs_and(
        &self,
        tx: &Tx<'_>,
        lock: Ask<'_>,
        also: &[Ask<'_>],
    ) -> Result<(Work, Vec<Vec<Row>>), Fault> {
        let mut asks = vec![lock, (&statements::CLOCK, &[])];
        asks.extend(also);
        let mut rows = tx.query_each(&asks).await?;
        let others = rows.split_off(2);
        let now = self.now_of(&rows[1])?;
        Ok((Work::of(tx, now, &rows[0]).await?, others))
    }

    /// One statement that changes nothing.
    async fn read(&self, sql: &Sql, params: Params<'_>) -> Result<Vec<Row>, Fault> {
        self.pool.get().await?.query(sql, params).await
    }

    /// Does what follows from what a verb has changed for others: for those who wait for slots
    /// in lanes, and for runs whose steps are to be undone.
    async fn settle(&self, tx: &Tx<'_>, work: &mut Work) -> Result<(), Fault> {
        self.settle_lanes(tx, work).await?;
        self.undo_ended(tx, work).await
    }

    /// Writes what a verb changed, commits, and tells whoever waits.
    async fn conclude(&self, tx: Tx<'_>, work: &mut Work) -> Result<(), Fault> {
        self.settle(&tx, work).await?;
        let writes = work.writes(tx.names())?;
        self.conclude_with(tx, work, writes).await.map(drop)
    }

    /// Does the same with what else is to be written, and answers the rows of each.
    async fn conclude_with(
        &self,
        tx: Tx<'_>,
        work: &Work,
        writes: Writes<'_>,
    ) -> Result<Vec<Vec<Row>>, Fault> {
        let kinds = kinds_of(work);
        let news = self.notifier.news(kinds);
        let committed = tx.commit_and_tell(writes, news.as_deref()).await;
        let rows = match committed {
            Ok(rows) => rows,
            Err(fault) => return Err(self.stray_row(fault, work).await),
        };
        for id in &work.moves.put_back {
            if let Some(place) = work.task(*id).and_then(|task| task.place) {
                self.floors.lower(Front::Route(place.route), place.tag);
            }
        }
        match news {
            Some(_) => self.notifier.notify_here(kinds),
            None => self.notifier.notify(kinds),
        }
        Ok(rows)
    }

    fn hint_timers(&self) {
        self.notifier.notify(Kinds::TIMERS);
    }

    async fn set_weight_once(&self, tenant: &Tenant, weight: Weight) -> Result<(), Fault> {
        let weight = weight.get().cast_signed();
        self.read(&statements::SET_WEIGHT, &[&tenant.as_str(), &weight]).await?;
        Ok(())
    }

    async fn now_once(&self) -> Result<Timestamp, Fault> {
        self.now_of(&self.read(&statements::CLOCK, &[]).await?)
    }
}

/// What others may want to hear of the changes of a verb.
fn kinds_of(work: &Work) -> Kinds {
    let mut kinds = Kinds::NONE;
    if !work.moves.enqueued.is_empty() || !work.moves.put_back.is_empty() {
        kinds = kinds | Kinds::WORK;
    }
    let is_due = !work.moves.scheduled.is_empty() || work.has_unsettled_lanes();
    if is_due || work.has_notes() || work.has_deadlines() {
        kinds = kinds | Kinds::TIMERS;
    }
    if work.moves.has_ended_runs {
        kinds = kinds | Kinds::RUNS;
    }
    kinds
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn register(&self, definition: Arc<Definition>) -> Result<(), StoreError> {
        repeat!(self.register_once(&definition))
    }

    async fn start_runs(
        &self,
        runs: Vec<NewRun>,
    ) -> Result<Vec<Result<Started, StoreError>>, StoreError> {
        check_batch(runs.len())?;
        repeat!(self.start_once(&runs), runs.len())
    }

    async fn lead(&self, candidacy: Candidacy) -> Result<Standing, StoreError> {
        repeat!(self.lead_once(&candidacy))
    }

    async fn resign(&self, candidate: CandidateId, tallies: Tallies) -> Result<(), StoreError> {
        repeat!(self.resign_once(candidate, &tallies))
    }

    async fn sweep(&self, mandate: Mandate, limit: usize) -> Result<Sweep, StoreError> {
        match mandate.duty {
            Duty::PromoteDue => {
                without_unsound!(self, repeat!(self.promote_once(Some(&mandate), limit)))
            }
            Duty::Reap => without_unsound!(self, repeat!(self.reap_once(Some(&mandate), limit))),
            Duty::Prune => repeat!(self.prune_once(Some(&mandate), limit)),
            Duty::Schedules => {
                without_unsound!(self, repeat!(self.fire_once(Some(&mandate), limit)))
            }
            Duty::Rollup => repeat!(self.roll_up_once(Some(&mandate), limit)),
            Duty::Audit => self.audit_sample(mandate, limit).await,
        }
    }

    async fn outlook(&self) -> Result<Outlook, StoreError> {
        repeat!(self.outlook_once())
    }

    async fn list_leaders(&self) -> Result<Vec<LeaderRecord>, StoreError> {
        repeat!(self.list_leaders_once())
    }

    fn leader_hints(&self) -> Hints {
        self.notifier.leaders()
    }

    async fn promote_due(&self, limit: usize) -> Result<Sweep, StoreError> {
        without_unsound!(self, repeat!(self.promote_once(None, limit)))
    }

    async fn reap(&self, limit: usize) -> Result<Sweep, StoreError> {
        without_unsound!(self, repeat!(self.reap_once(None, limit)))
    }

    async fn prune(&self, limit: usize) -> Result<Sweep, StoreError> {
        repeat!(self.prune_once(None, limit))
    }

    async fn set_retention(&self, rule: RetentionRule) -> Result<(), StoreError> {
        repeat!(self.set_retention_once(&rule))
    }

    async fn clear_retention(
        &self,
        workflow: Option<WorkflowName>,
        state: RunState,
    ) -> Result<bool, StoreError> {
        repeat!(self.clear_retention_once(workflow.as_ref(), state))
    }

    async fn list_retention(&self) -> Result<Vec<RetentionRule>, StoreError> {
        repeat!(self.list_retention_once())
    }

    async fn get_archived_run(&self, run: RunId) -> Result<Option<ArchivedRun>, StoreError> {
        repeat!(self.get_archived_run_once(run))
    }

    async fn cancel_run(&self, run: RunId, reason: Option<String>) -> Result<(), StoreError> {
        repeat!(self.cancel_once(run, reason.as_deref()))
    }

    async fn retry_run(&self, run: RunId, round: u32) -> Result<u32, StoreError> {
        repeat!(self.retry_once(run, round))
    }

    async fn undo_run(&self, run: RunId) -> Result<RunId, StoreError> {
        repeat!(self.undo_once(run))
    }

    async fn list_dead_letters(
        &self,
        filter: DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: usize,
    ) -> Result<DeadLetterPage, StoreError> {
        repeat!(self.list_dead_letters_once(&filter, after, limit))
    }

    async fn redrive(&self, redrive: Redrive) -> Result<Redriven, StoreError> {
        without_unsound!(self, repeat!(self.redrive_once(&redrive)))
    }

    async fn discard(&self, discard: Discard) -> Result<Discarded, StoreError> {
        repeat!(self.discard_once(&discard))
    }

    async fn log(&self, entry: NewLogEntry) -> Result<ActionId, StoreError> {
        repeat!(self.log_once(&entry))
    }

    async fn list_log(&self, filter: LogFilter) -> Result<LogPage, StoreError> {
        repeat!(self.list_log_once(&filter))
    }

    async fn signal(&self, signal: NewSignal) -> Result<(), StoreError> {
        repeat!(self.signal_once(&signal))
    }

    async fn signal_key(&self, signal: NewKeySignal) -> Result<(), StoreError> {
        repeat!(self.signal_key_once(&signal))
    }

    async fn list_steps(
        &self,
        task: TaskId,
        after: Option<Call>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, StoreError> {
        repeat!(self.list_steps_once(task, after, limit))
    }

    async fn whose(&self, runs: Vec<RunId>) -> Result<Vec<(RunId, Tenant)>, StoreError> {
        repeat!(self.whose_once(&runs))
    }

    async fn get_run(&self, run: RunId) -> Result<Option<RunRecord>, StoreError> {
        repeat!(self.get_run_once(run))
    }

    async fn list_tasks(
        &self,
        run: RunId,
        after: Option<TaskIndex>,
        limit: usize,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        repeat!(self.list_tasks_once(run, after, limit))
    }

    async fn get_task(&self, run: RunId, name: TaskName) -> Result<Option<TaskRecord>, StoreError> {
        repeat!(self.get_task_once(run, &name))
    }

    async fn list_runs(&self, filter: RunFilter) -> Result<RunPage, StoreError> {
        repeat!(self.list_runs_once(&filter))
    }

    async fn list_events(
        &self,
        run: RunId,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        repeat!(self.list_events_once(run, after, limit))
    }

    async fn list_workflows(&self, filter: WorkflowFilter) -> Result<WorkflowPage, StoreError> {
        repeat!(self.list_workflows_once(&filter))
    }

    async fn list_workers(&self, filter: WorkerFilter) -> Result<WorkerPage, StoreError> {
        repeat!(self.list_workers_once(&filter))
    }

    async fn why(&self, run: RunId, task: Option<TaskName>) -> Result<Option<Why>, StoreError> {
        repeat!(self.why_once(run, task.as_ref()))
    }

    async fn set_weight(&self, tenant: Tenant, weight: Weight) -> Result<(), StoreError> {
        repeat!(self.set_weight_once(&tenant, weight))
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        repeat!(self.now_once())
    }

    fn timer_hints(&self) -> Hints {
        self.notifier.timers()
    }

    fn run_hints(&self) -> Hints {
        self.notifier.runs()
    }

    fn gathers_starts(&self) -> bool {
        true
    }

    fn expect_staged(&self) {
        if self.staged_watch.expect() {
            self.notifier.notify_here(Kinds::TIMERS);
        }
    }

    fn hint_staged(&self) {
        self.staged_watch.expect();
        self.hint_timers();
    }

    fn walled(&self, tenant: &Tenant) -> Option<Arc<dyn Store>> {
        let wall = self.wall.as_ref()?;
        Some(Arc::new(self.behind(wall, tenant)))
    }
}
