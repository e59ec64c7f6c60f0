//! Connections that are lost during any statement of any verb, for every kind of limit.
//!
//! A script calls the verbs that touch limits, one after the other, on a store that stops before
//! each statement: starts, claims, ends and retries of tasks and runs, waits for signals and
//! children, fires of schedules, dead letters, and timeouts. Every [`STRIDE`]th statement has a fault: its backend is terminated, or another
//! connection of the process has an outage, so that everything cached is dropped. The script is
//! repeated, each time beginning with another statement, so that each of them, or with lost
//! connections one in five, has the fault once. Afterwards every run ends and the audit finds
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use windlass::clock::{Clock, VirtualClock};
use windlass::schedule::{Cadence, Overlap, Timing};
use windlass::store::postgres::{PostgresOptions, PostgresStore, Stepper};
use windlass::store::{
    Answer, Born, ChildStart, Claimed, Completion, DeadLetterFilter, Discard, Heartbeat, Held,
    NewRun, NewSchedule, NewSignal, Redrive, Release, RunFilter, ScheduleKey, ScheduleStore, Store,
    StoreError, WorkerLink,
};
use windlass_core::definition::TaskDraft;
use windlass_core::{
    ActionId, Call, ClaimSeq, Decision, Definition, DefinitionDraft, Failure, FailureCode, Limit,
    Operator, Parking, Payload, Priority, RunId, RunState, ScheduleName, SignalId, StepChange,
    StepKind, StepName, StepWrite, TaskKind, Tenant, Timestamp, Version, Wait, WhenFull,
};

use super::driver::{LEASE, Worker, new_run, success};
use super::found_by_audit;
use crate::database::TestDatabase;

/// The session whose statements are counted.
const SESSION: &str = "outages";

/// The distance between two faults, in statements, and how many there are. Most verbs send fewer
/// statements, also if they find nothing cached; those that send more end once there are no more
/// faults.
const STRIDE: usize = 61;
const FAULTS_MAX: usize = 24;

/// The runs that a script and its schedule start, and those of the second version among them.
const RUNS: usize = 10;
const UNSERVED: [usize; 2] = [2, 8];

/// More than a script has, with fires and children.
const RUNS_MAX: usize = 2 * RUNS;

/// No script has that many statements, unless a verb is repeated for ever.
const STATEMENTS_MAX: usize = 3_000;

/// How long the script may take for one statement.
const STATEMENT_MAX: Duration = Duration::from_secs(60);

const SECOND: Duration = Duration::from_secs(1);

/// What happens before the chosen statement.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The server ends the backends of the store.
    Terminated,
    /// Another connection of the process was lost.
    CacheDropped,
}

impl Fault {
    /// Every how many statements the script begins with the fault. A lost connection takes time.
    fn step(self) -> usize {
        match self {
            Fault::Terminated => 5,
            Fault::CacheDropped => 1,
        }
    }
}

/// A store whose statements are counted, and one for everything else.
struct Bench {
    stepper: Stepper,
    store: Arc<PostgresStore>,
    plain: Arc<PostgresStore>,
    control: tokio_postgres::Client,
    clock: Arc<VirtualClock>,
    database: TestDatabase,
}

impl Bench {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let stepper = Stepper::new();
        stepper.set_free(SESSION, true);
        let clock = Arc::new(VirtualClock::new(Timestamp::from_micros(1_750_000_000_000_000)));
        let connect = async |options: PostgresOptions| {
            let store = PostgresStore::connect(options.listen(false)).await;
            Arc::new(store.expect("the database is there").with_clock(clock.clone()))
        };
        let plain = connect(PostgresOptions::new(database.url())).await;
        let steps = stepper.session(SESSION);
        let store = connect(PostgresOptions::new(database.url()).steps(steps)).await;
        let control = database.client().await;
        Bench { stepper, store, plain, control, clock, database }
    }

    /// Runs a script with a fault before statement number `first` and each [`STRIDE`] after it.
    /// Returns how many statements there were.
    async fn run(&self, mut script: JoinHandle<()>, fault: Fault, first: usize) -> usize {
        let mut trace = Vec::new();
        loop {
            let count = trace.len();
            assert!(count < STATEMENTS_MAX, "no progress: {:#?}", trace.split_off(count - 100));
            let asked = tokio::time::timeout(STATEMENT_MAX, self.stepper.asked(SESSION));
            tokio::select! {
                biased;
                ended = &mut script => {
                    ended.expect("the script ends well");
                    return count;
                }
                asked = asked => trace.push(asked.expect("the script goes on")),
            }
            if count % STRIDE == first && count / STRIDE < FAULTS_MAX {
                self.inject(fault).await;
            }
            self.stepper.allow(SESSION);
        }
    }

    async fn inject(&self, fault: Fault) {
        match fault {
            Fault::Terminated => {
                let sql = "select pg_terminate_backend(pid) from pg_stat_activity
                    where datname = current_database() and application_name = $1";
                // Until all of them are gone.
                let rows = async || self.control.query(sql, &[&SESSION]).await;
                while !rows().await.expect("the server answers").is_empty() {}
            }
            Fault::CacheDropped => self.store.forget_cached(),
        }
    }

    /// Ends every run, by whatever it takes.
    async fn bring_to_end(&self, definition: &Arc<Definition>, context: &str) {
        let worker = Worker::join(&*self.plain, definition).await;
        let newest = async |state, limit| {
            let filter = RunFilter { state: Some(state), limit, ..RunFilter::default() };
            self.plain.list_runs(filter).await.expect("reading works").runs
        };
        for _ in 0..20 {
            // A failed one may halt its stream.
            for run in newest(RunState::Failed, RUNS_MAX).await {
                // One that halts nothing cannot be cancelled any more.
                let _ = self.plain.cancel_run(run.id, None).await;
            }
            if newest(RunState::Running, 1).await.is_empty() {
                return;
            }
            for task in worker.claim(&*self.plain, 100).await {
                let answers = self.plain.finish(vec![success(&task)]).await;
                assert_eq!(answers.expect("finishing works"), [Answer::Accepted]);
            }
            self.clock.advance(LEASE / 2);
            heartbeat(&*self.plain, &worker).await;
            self.plain.reap(100).await.expect("reaping works");
            self.plain.promote_due(100).await.expect("promoting works");
        }
        panic!("{context}: runs wait for ever");
    }
}

/// Repeats a call until the database answers it, as workers and clients do.
macro_rules! answered {
    ($call:expr) => {
        loop {
            match $call.await {
                Err(StoreError::Unavailable(_)) => {}
                answer => break answer,
            }
        }
    };
}

async fn heartbeat(store: &dyn Store, worker: &Worker) {
    let (settled, held) = (ClaimSeq(0), Vec::new());
    let heartbeat = Heartbeat { worker: worker.id, settled, held, progress: Vec::new() };
    answered!(store.extend(heartbeat.clone())).expect("it has joined");
}

/// A workflow of one task with these limits, and its second version, which no worker serves: its
/// runs keep what the limits give them until they time out.
fn limited(name: &str, limits: Vec<Limit>) -> [Arc<Definition>; 2] {
    let mut task = TaskDraft::new("a", TaskKind::Handler);
    task.limits = limits;
    let first = DefinitionDraft::new(name).task(task);
    let mut second = first.clone();
    second.version = Version::new(2).expect("it is one");
    second.timeout = Some(4 * SECOND);
    second.tasks[0].claim_timeout = Some(SECOND);
    [first, second].map(|draft| Arc::new(draft.build().expect("the workflow is right")))
}

/// A schedule that has one run at a time.
fn every_second(definition: &Definition, input: Payload) -> NewSchedule {
    let mut timing = Timing::new(Cadence::every(SECOND).expect("it is a cadence"));
    timing.overlap = Overlap::Skip;
    NewSchedule {
        key: ScheduleKey {
            tenant: Tenant::default(),
            name: ScheduleName::new("every second").expect("it is a name"),
        },
        workflow: definition.name().clone(),
        version: definition.version(),
        input,
        priority: Priority::default(),
        timing,
        owner: None,
    }
}

/// A task that waits.
fn parked(task: &Claimed, call: Call, kind: StepKind, wait: Wait) -> Completion {
    let change = StepChange::Open { failures: 0, failure: None, wait };
    let steps = vec![StepWrite { call, name: step(), kind, key: None, change }];
    let decision = Decision::Park(Parking { steps, waits: Vec::new(), awaits: true });
    Completion { decision, ..success(task) }
}

fn step() -> StepName {
    StepName::new("s").expect("it is a name")
}

/// What a worker makes of its tasks, one after the other.
fn decisions() -> impl Iterator<Item = Option<Decision>> {
    let failure = || Failure::new(FailureCode::Error, "it does not work");
    let first = [
        Some(Decision::Succeed(Payload::default())),
        Some(Decision::Retry { failure: failure(), delay: Duration::from_millis(500) }),
        Some(Decision::Fail(failure())),
        // It is handed back.
        None,
    ];
    first.into_iter().chain(std::iter::repeat_with(|| Some(Decision::Succeed(Payload::default()))))
}

fn is_accepted(answer: &Answer) -> bool {
    matches!(answer, Answer::Accepted | Answer::AcceptedAlready)
}

/// Calls every verb that touches limits.
async fn script(
    store: Arc<PostgresStore>,
    clock: Arc<VirtualClock>,
    definition: Arc<Definition>,
    new: Vec<NewRun>,
) {
    let runs: Vec<RunId> = new.iter().map(|run| run.id).collect();
    for run in new {
        let started = answered!(store.start_runs(vec![run.clone()])).expect("starting works");
        assert!(started.iter().all(Result::is_ok), "{started:?}");
    }
    let worker = answered!(Worker::try_join(&*store, &definition)).expect("joining works");
    let mut decisions = decisions();
    let mut turn = async |tasks: Vec<Claimed>| {
        for task in tasks {
            match decisions.next().flatten() {
                Some(decision) => {
                    let completion = Completion { decision, ..success(&task) };
                    answered!(store.finish(vec![completion.clone()])).expect("finishing works");
                }
                None => {
                    let (id, fence) = (task.task, task.fence);
                    let release = Release { task: id, fence, delay: Duration::ZERO };
                    answered!(store.release(vec![release.clone()])).expect("releasing works");
                }
            }
        }
    };
    for _ in 0..4 {
        let tasks = answered!(store.claim(worker.request(100))).expect("claiming works");
        turn(tasks).await;
        clock.advance(SECOND);
        answered!(store.promote_due(100)).expect("promoting works");
        answered!(store.fire_schedules(100)).expect("firing works");
        heartbeat(&*store, &worker).await;
    }
    let by = || Operator::new("anna").expect("a name").into();
    let (filter, after) = (DeadLetterFilter::default(), None);
    let id = ActionId::from_random(u128::from_be_bytes(*runs[0].as_uuid().as_bytes()));
    let redrive = Redrive { id, by: by(), filter, after, limit: 1, pace: None };
    answered!(store.redrive(redrive.clone())).expect("redriving works");
    let fail = |task: &Claimed| {
        let failure = Failure::new(FailureCode::Error, "it never works");
        Completion { decision: Decision::Fail(failure), ..success(task) }
    };
    let tasks = answered!(store.claim(worker.request(1))).expect("claiming works");
    let failed: Vec<Completion> = tasks.iter().map(fail).collect();
    answered!(store.finish(failed.clone())).expect("finishing works");
    for task in &tasks {
        answered!(store.retry_run(task.task.run, task.round)).expect("it has failed");
    }
    for task in answered!(store.claim(worker.request(1))).expect("claiming works") {
        let waits = parked(&task, Call(1), StepKind::Signal, Wait::Forever);
        let answers = answered!(store.finish(vec![waits.clone()])).expect("finishing works");
        assert!(answers.iter().all(is_accepted), "{answers:?}");
        let id = SignalId::from_random(task.task.run.as_uuid().as_u128());
        let signal = NewSignal { id, run: task.task.run, name: step(), value: Payload::default() };
        answered!(store.signal(signal.clone())).expect("signalling works");
    }
    answered!(store.promote_due(100)).expect("promoting works");
    for task in answered!(store.claim(worker.request(1))).expect("claiming works") {
        // Of another key: the parent keeps its slot.
        let input = Payload::from_json("{\"key\":\"child\"}").expect("it is JSON");
        let hash = u128::MAX / 3;
        let run =
            NewRun { id: RunId::of_child(task.task.run, hash), input, ..new_run(&definition) };
        let held = Held { task: task.task, fence: task.fence };
        let (call, place, definition) = (Call(2), Some(0), Arc::clone(&definition));
        let start = ChildStart { held, call, place, run, definition };
        let born = answered!(store.start_children(vec![start.clone()])).expect("starting works");
        assert!(matches!(born[..], [Born::Started(_)]), "{born:?}");
        let waits = parked(&task, call, StepKind::Child, Wait::Children(0));
        let answers = answered!(store.finish(vec![waits.clone()])).expect("finishing works");
        assert!(answers.iter().all(is_accepted), "{answers:?}");
    }
    for _ in 0..2 {
        // The child, and then its parent.
        let tasks = answered!(store.claim(worker.request(1))).expect("claiming works");
        let ends: Vec<Completion> = tasks.iter().map(success).collect();
        answered!(store.finish(ends.clone())).expect("finishing works");
        answered!(store.promote_due(100)).expect("promoting works");
    }
    let tasks = answered!(store.claim(worker.request(1))).expect("claiming works");
    let failed: Vec<Completion> = tasks.iter().map(fail).collect();
    answered!(store.finish_and_claim(failed.clone(), worker.request(1))).expect("finishing works");
    // Not one that timed out: a discard would release a slot that it should not have any more.
    let reason = Some(FailureCode::Error);
    let (filter, after) = (DeadLetterFilter { reason, ..DeadLetterFilter::default() }, None);
    let id = ActionId::from_random(u128::from_be_bytes(*runs[1].as_uuid().as_bytes()));
    let discard = Discard { id, by: by(), filter, after, limit: 1 };
    answered!(store.discard(discard.clone())).expect("discarding works");
    // Ended ones cannot be cancelled.
    for run in &runs[6..8] {
        match answered!(store.cancel_run(*run, None)) {
            Ok(()) | Err(StoreError::Conflict(_)) => {}
            Err(error) => panic!("cancelling does not work: {error}"),
        }
    }
    // Its lease expires with what it holds.
    clock.advance(LEASE * 2);
    answered!(store.reap(100)).expect("reaping works");
    answered!(store.promote_due(100)).expect("promoting works");
}

async fn explore(name: &str, limits: Vec<Limit>, fault: Fault) {
    let bench = Bench::new().await;
    let [definition, unserved] = limited(name, limits);
    for version in [&definition, &unserved] {
        bench.plain.register(Arc::clone(version)).await.expect("it can be registered");
    }
    for first in (0..STRIDE).step_by(fault.step()) {
        let input = Payload::from_json(format!("{{\"key\":{first}}}")).expect("it is JSON");
        let schedule = every_second(&definition, input.clone());
        bench.plain.put_schedule(schedule).await.expect("it makes sense");
        let version = |index| if UNSERVED.contains(&index) { &unserved } else { &definition };
        let new_run = |index| NewRun { input: input.clone(), ..new_run(version(index)) };
        let new: Vec<NewRun> = (0..RUNS).map(new_run).collect();
        bench.stepper.set_free(SESSION, false);
        let (store, clock) = (Arc::clone(&bench.store), Arc::clone(&bench.clock));
        let script = tokio::spawn(script(store, clock, Arc::clone(&definition), new));
        let count = bench.run(script, fault, first).await;
        assert!(count > 50, "the script has only {count} statements");
        // Repeated statements come on top if connections are lost.
        let is_whole = matches!(fault, Fault::Terminated) || count <= STRIDE * FAULTS_MAX;
        assert!(is_whole, "{count} statements, some without a fault");
        bench.stepper.set_free(SESSION, true);
        bench.bring_to_end(&definition, &format!("{fault:?} from statement {first}")).await;
    }
    let found = found_by_audit(&bench.database, bench.clock.now()).await;
    assert!(found.is_empty(), "the audit finds {found:#?}");
}

macro_rules! outages {
    ($($kind:ident: [$($limit:expr),+];)+) => { $(
        mod $kind {
            use super::*;

            mod long {
                use super::*;

                #[tokio::test]
                #[ignore = "long"]
                async fn a_terminated_backend_blocks_no_key() {
                    explore(stringify!($kind), vec![$($limit),+], Fault::Terminated).await;
                }
            }

            #[tokio::test]
            async fn an_outage_of_another_connection_blocks_no_key() {
                explore(stringify!($kind), vec![$($limit),+], Fault::CacheDropped).await;
            }
        }
    )+ };
}

outages! {
    slots: [Limit::per("key", 1)];
    rates: [Limit::rate(1, SECOND).by("key")];
    slots_and_rates: [Limit::per("key", 2), Limit::rate(1, SECOND).by("key")];
    debounces: [Limit::debounce(SECOND).by("key")];
    breakers: [Limit::breaker(50).calls(1).pause(SECOND).by("key")];
    owned: [Limit::per("key", 1).owned()];
    halting: [Limit::per("key", 1).halt()];
    cancelling: [Limit::per("key", 1).when_full(WhenFull::CancelOldest)];
    skipping: [Limit::per("key", 1).when_full(WhenFull::Skip)];
}
