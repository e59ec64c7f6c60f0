//! An engine for users' tests.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;
use windlass_core::retry::WAIT_MAX;
use windlass_core::{Definition, DutyName, Timestamp, Version, WorkflowName};

use super::crash::{CrashLink, CrashProbe, Places};
use super::script::{Plot, RecordingLink, Refused, Watch};
use super::{History, Process, invariants};
use crate::clock::{Clock, RuntimeClock};
use crate::duties::{DutyCtx, DutyOptions, OwnDuty, OwnSettings, check_own};
use crate::engine::{Start, Windlass};
use crate::run::RunHandle;
use crate::store::memory::Activity;
use crate::store::{DutyRecord, DutyStore as _, MemoryStore, RunFilter, Store, WorkerLink};
use crate::worker::{Point, Probe, SETTING_MAX};
use crate::workflow::{Registration, Workflow};

/// How long a test engine lets virtual time pass without anything happening before
/// it says what is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Polling and sweeping in a test engine are left to hints, which memory does not
/// lose, so that an idle engine has no timers to step through.
const NEVER: Duration = SETTING_MAX;

/// 2026-01-01T00:00:00Z, when every test begins.
const EPOCH: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// A whole engine (store, workers, background duties) on virtual time.
///
/// The clock stands still while anything can happen and jumps when everything
/// waits. A test decides how far: [`run_until_idle`](TestEngine::run_until_idle)
/// lets nothing pass but what handlers take, [`advance`](TestEngine::advance) lets a
/// time pass. Workers are started by themselves; one that is crashed is replaced,
/// as a supervisor would.
///
/// It needs tokio's current-thread runtime, which is what `#[tokio::test]` gives,
/// and pauses its clock. While the clock is paused, real IO in handlers does not
/// keep it from jumping; fake it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use windlass::testing::TestEngine;
/// use windlass::{TaskError, Workflow};
///
/// let mut trial = Workflow::<()>::builder("trial");
/// let week = trial.sleep("week", Duration::from_secs(7 * 86_400)).add();
/// trial.task("ask").after(&week).run(async |_| Ok::<_, TaskError>("how was it?".to_owned()));
/// let trial = trial.build()?;
///
/// let test = TestEngine::new().register(&trial);
/// let run = test.start(&trial, ()).await?;
/// test.advance(Duration::from_secs(7 * 86_400 - 1)).await;
/// test.history(&run).await.assert_task("ask", &[]);
/// test.crash_worker_during("ask").await;
/// test.advance(Duration::from_secs(60)).await;
/// test.history(&run).await.assert_task(
///     "ask",
///     &["queued", "started", "lease_expired", "started", "succeeded"],
/// );
/// test.assert_promises_kept().await;
/// # Ok(()) }
/// ```
pub struct TestEngine {
    windlass: Windlass,
    store: Arc<MemoryStore>,
    link: Arc<RecordingLink>,
    clock: RuntimeClock,
    plot: Arc<Plot>,
    slots: usize,
    lease: Duration,
    wanted: usize,
    registrations: Vec<Registration>,
    duties: Vec<OwnDuty>,
    definitions: HashMap<(WorkflowName, Version), Arc<Definition>>,
    workers: Mutex<Vec<Process>>,
    /// Where a worker is to die by itself.
    places: Option<Arc<Places>>,
    /// How many workers there ever were; each has its own seed, and so its own id.
    hired: AtomicU64,
}

impl TestEngine {
    /// An engine with one worker of ten slots and a lease of 15 seconds.
    ///
    /// # Panics
    ///
    /// Outside tokio's current-thread runtime.
    pub fn new() -> Self {
        pause_clock();
        let clock = RuntimeClock::starting_at(EPOCH);
        let store = Arc::new(MemoryStore::with_clock(Arc::new(clock)));
        TestEngine {
            windlass: Windlass::with_store(Arc::clone(&store) as Arc<dyn Store>),
            link: Arc::new(RecordingLink::new(Arc::clone(&store))),
            store,
            clock,
            plot: Arc::default(),
            slots: 10,
            lease: Duration::from_secs(15),
            wanted: 1,
            registrations: Vec::new(),
            duties: Vec::new(),
            definitions: HashMap::new(),
            workers: Mutex::default(),
            places: None,
            hired: AtomicU64::new(0),
        }
    }

    /// Lets the workers run a workflow.
    #[must_use]
    pub fn register<I>(self, workflow: &Workflow<I>) -> Self {
        self.registration(workflow.registration())
    }

    /// Lets the workers do a duty of the program, as [`WorkerBuilder::duty`] does: by virtual time,
    /// and when it is due rather than a little later. It needs no workflow.
    ///
    /// [`WorkerBuilder::duty`]: crate::WorkerBuilder::duty
    #[must_use]
    pub fn duty<F, Fut, E>(mut self, name: &str, every: Duration, handler: F) -> Self
    where
        F: Fn(DutyCtx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.duties.push(OwnDuty::new(name, every, handler));
        self
    }

    pub(super) fn registration(mut self, registration: Registration) -> Self {
        let definition = &registration.definition;
        let key = (definition.name().clone(), definition.version());
        self.definitions.insert(key, Arc::clone(definition));
        self.registrations.push(registration);
        self
    }

    /// Lets workers note where they come by, and die where they shall.
    pub(super) fn dying_at(mut self, places: Arc<Places>) -> Self {
        self.places = Some(places);
        self
    }

    /// How many workers there are.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.wanted = workers;
        self
    }

    /// How many tasks each worker runs at once; with 1, tasks run one by one in the
    /// order of the queue.
    #[must_use]
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// How long a silent worker keeps its tasks.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The engine as programs see it.
    pub fn windlass(&self) -> &Windlass {
        &self.windlass
    }

    /// The virtual time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A start of a workflow; await it.
    pub fn start<I: Serialize>(&self, workflow: &Workflow<I>, input: I) -> Start {
        self.windlass.start(workflow, input)
    }

    /// Lets everything happen that can happen without waiting for a timer: until
    /// no task is ready, running or due, and no [duty](TestEngine::duty) at work or due. Time passes as far as handlers and leases
    /// of dead workers take it.
    ///
    /// # Panics
    ///
    /// If nothing happens for a day and yet something is ready or running, such as
    /// a task of a workflow that was not registered.
    pub async fn run_until_idle(&self) {
        self.employ();
        let (mut activity, mut duties) = (self.store.activity(), self.store.duty_hints());
        let mut stuck_at = Instant::now() + STUCK_AFTER;
        loop {
            duties.take();
            let now_active = *activity.borrow_and_update();
            let busy_duty = self.busy_duty().await;
            if self.is_idle(now_active) && busy_duty.is_none() {
                return;
            }
            tokio::select! {
                biased;
                _ = activity.changed() => stuck_at = Instant::now() + STUCK_AFTER,
                // A duty that comes again and again does not hide a task that is stuck.
                () = duties.changed() => {}
                () = tokio::time::sleep_until(stuck_at) => {
                    let duty = busy_duty.map(|name| format!(", duty {name:?} is not done"));
                    let duty = duty.unwrap_or_default();
                    panic!("nothing happens, and yet {}{duty}", self.stuck().await);
                }
            }
        }
    }

    /// A duty of the program that a worker is at, or about to be.
    async fn busy_duty(&self) -> Option<DutyName> {
        if self.duties.is_empty() {
            return None;
        }
        let all = self.store.list_duties().await.expect("a store in memory answers");
        let is_its = |it: &&OwnDuty, name: &DutyName| it.name() == name.as_str();
        // One that no worker has asked for yet is due.
        let known = |duty: &&OwnDuty| all.iter().any(|it| is_its(duty, &it.name));
        if let Some(duty) = self.duties.iter().find(|duty| !known(duty)) {
            return DutyName::new(duty.name()).ok();
        }
        let is_busy = |it: &&DutyRecord| it.held_until().is_some() || it.next_at <= self.now();
        let own = all.iter().filter(|it| self.duties.iter().any(|duty| is_its(&duty, &it.name)));
        own.filter(is_busy).map(|it| it.name.clone()).next()
    }

    /// Lets time pass until every run has ended.
    ///
    /// # Panics
    ///
    /// If a run waits for what does not come by itself, such as a signal, or if nothing
    /// happens for a day and yet something is ready or running.
    pub async fn run_until_ended(&self) {
        self.employ();
        let mut activity = self.store.activity();
        loop {
            let Activity { ready, running, next_due } = *activity.borrow_and_update();
            let is_busy = ready > 0 || running > 0;
            if !is_busy && next_due.is_none() {
                for run in self.all_runs().await {
                    let record = run.get().await.expect("a listed run exists");
                    if !record.state.is_final() {
                        panic!("nothing happens any more, and yet {}", self.stuck().await);
                    }
                }
                return;
            }
            // What is due comes, however late: only what could happen at once can be stuck.
            let limit = if is_busy { STUCK_AFTER } else { WAIT_MAX };
            if tokio::time::timeout(limit, activity.changed()).await.is_err() {
                panic!("nothing happens, and yet {}", self.stuck().await);
            }
        }
    }

    fn is_idle(&self, activity: Activity) -> bool {
        let Activity { ready, running, next_due } = activity;
        ready == 0 && running == 0 && next_due.is_none_or(|due| due > self.now())
    }

    /// Lets a time pass, step by step from one thing that is due to the next, and
    /// then lets everything happen that can.
    pub async fn advance(&self, by: Duration) {
        self.pass(by).await;
        self.run_until_idle().await;
    }

    /// Lets a time pass and no more, whatever is ready or running at its end.
    ///
    /// # Panics
    ///
    /// If it is more than the hundred years that anything may wait.
    pub async fn pass(&self, by: Duration) {
        assert!(by <= WAIT_MAX, "{by:?} is more than anything waits for");
        self.employ();
        // Tokio's timers may be a millisecond late, so the last one is not slept.
        let tick = Duration::from_millis(1);
        let until = tokio::time::Instant::now() + by;
        tokio::time::sleep(by.saturating_sub(tick)).await;
        let rest = until.saturating_duration_since(tokio::time::Instant::now());
        tokio::time::advance(rest).await;
    }

    /// Lets the engine run until a worker is at `point` with a task of this name,
    /// and kills it there: everything it was doing is dropped. Another worker
    /// takes its place.
    ///
    /// # Panics
    ///
    /// If no worker comes there within a day.
    pub async fn crash_worker_at(&self, point: Point, task: &str) {
        self.plot.set(point, task, true);
        self.await_victim(point, task).await;
        self.employ();
    }

    /// [`crash_worker_at`](TestEngine::crash_worker_at) while the handler runs.
    pub async fn crash_worker_during(&self, task: &str) {
        self.crash_worker_at(Point::DuringHandler, task).await;
    }

    /// Lets the engine run until a worker is at `point` with a task of this name,
    /// and freezes it there for a time. Longer than its lease, it wakes as a
    /// zombie that believes to hold the task. Another worker is there meanwhile.
    ///
    /// # Panics
    ///
    /// If no worker comes there within a day.
    pub async fn freeze_worker_at(&self, point: Point, task: &str, time: Duration) {
        self.plot.set(point, task, false);
        let frozen = self.await_victim(point, task).await;
        self.employ_one();
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            frozen.thaw();
        });
    }

    /// [`freeze_worker_at`](TestEngine::freeze_worker_at) while the handler runs.
    pub async fn freeze_worker_during(&self, task: &str, time: Duration) {
        self.freeze_worker_at(Point::DuringHandler, task, time).await;
    }

    async fn await_victim(&self, point: Point, task: &str) -> Process {
        self.employ();
        match tokio::time::timeout(STUCK_AFTER, self.plot.victim()).await {
            Ok(victim) => victim,
            Err(_) => {
                self.plot.clear();
                panic!("no worker came to {point:?} of {task:?}; {}", self.stuck().await)
            }
        }
    }

    /// What happened to a run.
    ///
    /// # Panics
    ///
    /// If it cannot be read, which memory does not do.
    pub async fn history(&self, run: &RunHandle) -> History {
        History::new(run.history().await.expect("a store in memory answers"))
    }

    /// The writes of workers that were refused so far: what zombies tried.
    pub fn refused(&self) -> Vec<Refused> {
        self.link.refused()
    }

    /// Asserts that the history of every run of the registered workflows keeps the
    /// promises of [`invariants`].
    ///
    /// # Panics
    ///
    /// With every violation, if there is any.
    pub async fn assert_promises_kept(&self) {
        let mut violations = Vec::new();
        for run in self.all_runs().await {
            let record = run.get().await.expect("a listed run exists");
            let key = (record.workflow.clone(), record.version);
            let Some(definition) = self.definitions.get(&key) else { continue };
            let tasks = run.tasks().await.expect("a store in memory answers");
            let events = run.history().await.expect("a store in memory answers");
            violations.extend(invariants::check_run(definition, &record, &tasks, &events));
        }
        assert!(violations.is_empty(), "promises broken: {violations:#?}");
    }

    pub(super) async fn all_runs(&self) -> Vec<RunHandle> {
        let mut runs = Vec::new();
        let mut filter = RunFilter::default();
        loop {
            let page = self.windlass.list(filter.clone()).await.expect("memory answers");
            runs.extend(page.runs.iter().map(|run| self.windlass.run(run.id)));
            match page.next {
                Some(next) => filter.after = Some(next),
                None => return runs,
            }
        }
    }

    /// What is neither over nor waiting for a time, for the message of a panic.
    async fn stuck(&self) -> String {
        let mut stuck = Vec::new();
        for run in self.all_runs().await {
            let record = run.get().await.expect("a listed run exists");
            for task in run.tasks().await.expect("a store in memory answers") {
                if !task.state.is_final() {
                    let (name, state, workflow) = (&task.name, task.state, &record.workflow);
                    stuck.push(format!("task {name:?} of workflow {workflow:?} is {state}"));
                }
            }
        }
        if stuck.is_empty() { "every task has ended".to_owned() } else { stuck.join(", ") }
    }

    /// Starts workers until there are as many as wanted.
    pub(super) fn employ(&self) {
        let alive = {
            let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
            workers.retain(|process| !process.is_dead());
            workers.len()
        };
        for _ in alive..self.wanted {
            self.employ_one();
        }
    }

    fn employ_one(&self) {
        let process = Process::new();
        let seed = self.hired.fetch_add(1, Ordering::Relaxed);
        self.do_duties(&process, seed);
        if self.registrations.is_empty() {
            self.workers.lock().unwrap_or_else(PoisonError::into_inner).push(process);
            return;
        }
        let watch = Watch::new(process.clone(), Arc::clone(&self.plot));
        let link = Arc::clone(&self.link) as Arc<dyn WorkerLink>;
        let (link, probe): (Arc<dyn WorkerLink>, Arc<dyn Probe>) = match &self.places {
            None => (link, Arc::new(watch)),
            Some(places) => {
                let places = || Arc::clone(places);
                let link = CrashLink { link, process: process.clone(), places: places() };
                (Arc::new(link), Arc::new(CrashProbe { watch, places: places() }))
            }
        };
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut builder = self.windlass.worker();
        for registration in &self.registrations {
            builder = builder.registration(registration.clone());
        }
        let worker = builder
            .name("test")
            .slots(self.slots)
            .lease(self.lease)
            .poll(NEVER)
            .duties(Some(NEVER))
            .unled()
            .through(link)
            .probe(probe)
            .in_process(&process)
            .seeded(seed)
            .spawn();
        // The handle is dropped: the worker goes on until its process is killed.
        worker.expect("the settings of the test engine are within their limits");
        workers.push(process);
    }

    /// Lets a process do the duties of the program until it is killed.
    fn do_duties(&self, process: &Process, seed: u64) {
        let ttl = DutyOptions::ttl_for(self.lease);
        let settings = OwnSettings { ttl, grace: NEVER, spread_max: Duration::ZERO, seed };
        check_own(&self.duties, &settings).expect("the duties are within their limits");
        let store = Arc::clone(&self.store) as Arc<dyn Store>;
        tokio::spawn(process.run_own(store, settings, self.duties.clone()));
    }
}

impl Default for TestEngine {
    fn default() -> Self {
        TestEngine::new()
    }
}

impl Drop for TestEngine {
    fn drop(&mut self) {
        let workers = self.workers.get_mut().unwrap_or_else(PoisonError::into_inner);
        workers.iter().for_each(Process::kill);
    }
}

impl std::fmt::Debug for TestEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestEngine").field("now", &self.now()).finish_non_exhaustive()
    }
}

/// Pauses the runtime's clock, unless the test has done so.
fn pause_clock() {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    assert!(
        matches!(flavor, Ok(RuntimeFlavor::CurrentThread)),
        "a TestEngine needs tokio's current-thread runtime, as in #[tokio::test]"
    );
    // Tokio does not say whether its clock is paused; a clock that stands still
    // while the real one moves is.
    let (real, virtual_time) = (std::time::Instant::now(), tokio::time::Instant::now());
    while real.elapsed() < Duration::from_micros(5) {
        std::hint::spin_loop();
    }
    if tokio::time::Instant::now() != virtual_time {
        tokio::time::pause();
    }
}
