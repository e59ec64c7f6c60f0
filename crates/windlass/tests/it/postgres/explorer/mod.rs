//! Two verbs at once, in every order of their statements.
//!
//! Two sessions stop before each statement; an order is a list of choices which of them
//! goes on. All orders are tried, one after the other, with fresh runs each time. A session
//! that waits for a lock of the other is left out until it goes on.
//!
//! Statements that nobody else can see or disturb follow the one before them without a
//! choice, see [`PRIVATE`]: what a transaction has written is seen by nobody before its
//! commit, and the rows it writes are those that it locked. So an order of all statements
//! has the same outcome as one of these.

mod pairs;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use windlass::clock::{Clock, VirtualClock};
use windlass::store::postgres::{PostgresOptions, PostgresStore, Stepper};
use windlass::store::{PAGE_MAX, Store, WorkerLink};
use windlass::testing::invariants::check_run;
use windlass_core::{Definition, RunId, Timestamp};

use super::driver::{LEASE, Worker, succeed};
use super::found_by_audit;
use crate::database::TestDatabase;

/// What a transaction writes or reads without the other session of a pair seeing or
/// disturbing it: writes to rows that it has locked or made, and reads of what never changes
/// or of what its locks protect. No pair has workers that are forgotten.
const PRIVATE: &[&str] = &[
    "beat",
    "bury_worker",
    "clock",
    "definitions",
    "delete_leases",
    "delete_ready",
    "delete_staged",
    "delete_timers",
    "delete_notes",
    "delete_outputs",
    "ends",
    "enqueue",
    "failures",
    "forgotten_workers",
    "inputs",
    "insert_events",
    "insert_inputs",
    "insert_outputs",
    "insert_tasks",
    "lanes",
    "next_due",
    "next_lease_end",
    "put_back",
    "schedule",
    "set_worker_state",
    "staged_end",
    "tenants_by_id",
    "update_runs",
    "update_tasks",
    "virtual_times",
];

/// The names of the two sessions.
const SESSIONS: [&str; 2] = ["left", "right"];

/// No pair has that many orders; if one does, it is not explored to its end.
const ORDERS_MAX: usize = 3_000;

/// Of every so many orders the runs are brought to their end, which takes longer than the
/// order itself. That they can be is also seen from their rows, by the audit.
const BROUGHT_TO_END_EVERY: usize = 5;

/// How long a session may take for a statement or wait for the other.
const WAIT_MAX: Duration = Duration::from_secs(60);

type Verb = Pin<Box<dyn Future<Output = String> + Send>>;

/// Two verbs that are about to be called, and what they are about.
struct Case {
    left: Verb,
    right: Verb,
    runs: Vec<RunId>,
    definition: Arc<Definition>,
}

impl Case {
    fn new(
        run: RunId,
        definition: &Arc<Definition>,
        left: impl Future<Output = String> + Send + 'static,
        right: impl Future<Output = String> + Send + 'static,
    ) -> Self {
        let definition = Arc::clone(definition);
        Case { left: Box::pin(left), right: Box::pin(right), runs: vec![run], definition }
    }
}

/// Two sessions that go statement by statement, and a third that does not.
struct Explorer {
    stepper: Stepper,
    left: Arc<PostgresStore>,
    right: Arc<PostgresStore>,
    /// For everything before and after.
    plain: Arc<PostgresStore>,
    control: tokio_postgres::Client,
    clock: Arc<VirtualClock>,
    database: TestDatabase,
}

/// What came of one order.
struct Outcome {
    /// At each choice, which session was taken, and of how many.
    choices: Vec<(usize, usize)>,
    trace: Vec<String>,
    answers: [String; 2],
}

impl Explorer {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let stepper = Stepper::new();
        let clock = Arc::new(VirtualClock::new(Timestamp::from_micros(1_750_000_000_000_000)));
        let connect = async |options: PostgresOptions| {
            let store = PostgresStore::connect(options.listen(false)).await;
            Arc::new(store.expect("the database is there").with_clock(clock.clone()))
        };
        let plain = connect(PostgresOptions::new(database.url())).await;
        let mut sessions = Vec::new();
        for name in SESSIONS {
            stepper.set_free(name, true);
            let options = PostgresOptions::new(database.url()).steps(stepper.session(name));
            sessions.push(connect(options).await);
        }
        let control = database.client().await;
        let [left, right] = sessions.try_into().expect("two were made");
        Explorer { stepper, left, right, plain, control, clock, database }
    }

    /// Whether a session waits for a lock that another has.
    async fn is_blocked(&self, session: &str) -> bool {
        let sql = "select exists (select from pg_stat_activity a
            where a.datname = current_database() and a.application_name = $1
            and a.wait_event_type = 'Lock' and cardinality(pg_blocking_pids(a.pid)) > 0)";
        let row = self.control.query_one(sql, &[&session]).await;
        row.expect("the server answers").get(0)
    }

    /// Waits until each session is done, asks for a statement or waits for a lock; answers
    /// which of them ask.
    async fn settle(&self, verbs: &[JoinHandle<String>; 2]) -> Vec<usize> {
        let deadline = Instant::now() + WAIT_MAX;
        let mut asking = Vec::new();
        for (number, session) in SESSIONS.iter().enumerate() {
            loop {
                if verbs[number].is_finished() {
                    break;
                }
                if self.stepper.asks(session).is_some() {
                    asking.push(number);
                    break;
                }
                if self.is_blocked(session).await {
                    break;
                }
                assert!(Instant::now() < deadline, "{session} neither goes on nor waits");
                tokio::task::yield_now().await;
            }
        }
        asking
    }

    /// Runs a case in the order that begins with these choices.
    async fn run(&self, case: Case, prefix: &[usize]) -> Outcome {
        for session in SESSIONS {
            self.stepper.set_free(session, false);
        }
        let verbs = [tokio::spawn(case.left), tokio::spawn(case.right)];
        let (mut choices, mut trace) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let asking = self.settle(&verbs).await;
            let asked = |number: &usize| self.stepper.asks(SESSIONS[*number]);
            let is_private =
                |number: &&usize| asked(number).is_some_and(|it| PRIVATE.contains(&it));
            let number = match asking.iter().find(is_private) {
                Some(number) => *number,
                None if asking.is_empty() => {
                    if verbs.iter().all(JoinHandle::is_finished) {
                        break;
                    }
                    // Both wait for each other: the server ends one of them.
                    assert!(Instant::now() < deadline, "nobody goes on: {trace:?}");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                }
                None => {
                    let wanted = prefix.get(choices.len()).copied().unwrap_or_default();
                    let choice = wanted.min(asking.len() - 1);
                    choices.push((choice, asking.len()));
                    asking[choice]
                }
            };
            let session = SESSIONS[number];
            trace.push(format!("{session} {}", asked(&number).unwrap_or("?")));
            self.stepper.allow(session);
        }
        let [left, right] = verbs;
        let answers = [left.await.expect("no panic"), right.await.expect("no panic")];
        for session in SESSIONS {
            self.stepper.set_free(session, true);
        }
        Outcome { choices, trace, answers }
    }

    /// Tries every order of a pair. Answers how often each pair of answers was given.
    async fn explore<S: Future<Output = Case>>(
        &self,
        set_up: impl Fn() -> S,
    ) -> BTreeMap<[String; 2], usize> {
        let mut prefix = Vec::new();
        let mut answers: BTreeMap<[String; 2], usize> = BTreeMap::new();
        for number in 0..ORDERS_MAX {
            let case = set_up().await;
            let (runs, definition) = (case.runs.clone(), Arc::clone(&case.definition));
            let outcome = self.run(case, &prefix).await;
            for run in runs {
                self.check(run, &definition, &outcome).await;
                if number % BROUGHT_TO_END_EVERY == 0 {
                    self.bring_to_end(run, &definition, &outcome).await;
                } else {
                    // Out of the way of the next; what has ended stays as it is.
                    let _ = self.plain.cancel_run(run, None).await;
                    self.check(run, &definition, &outcome).await;
                }
            }
            *answers.entry(outcome.answers).or_default() += 1;
            // The next order: at the last place where there was another choice.
            let mut choices = outcome.choices;
            while choices.last().is_some_and(|(choice, options)| choice + 1 == *options) {
                choices.pop();
            }
            let Some((last, rest)) = choices.split_last() else {
                println!("{} orders: {answers:?}", answers.values().sum::<usize>());
                let found = found_by_audit(&self.database, self.clock.now()).await;
                assert!(found.is_empty(), "the audit finds {found:#?}");
                return answers;
            };
            prefix = rest.iter().map(|(choice, _)| *choice).chain([last.0 + 1]).collect();
        }
        panic!("more than {ORDERS_MAX} orders");
    }

    /// Holds a run to the promises.
    async fn check(&self, run: RunId, definition: &Definition, outcome: &Outcome) {
        let Some(record) = self.plain.get_run(run).await.expect("reading works") else { return };
        let tasks = self.plain.list_tasks(run, None, PAGE_MAX).await.expect("reading works");
        let events = self.plain.list_events(run, None, PAGE_MAX).await.expect("reading works");
        let violations = check_run(definition, &record, &tasks, &events);
        let Outcome { trace, answers, .. } = outcome;
        assert!(violations.is_empty(), "{violations:#?}\nafter {trace:#?}\nwith {answers:?}");
    }

    /// Every run ends: whatever the two verbs left is claimed, finished, promoted, reaped.
    async fn bring_to_end(&self, run: RunId, definition: &Arc<Definition>, outcome: &Outcome) {
        for _ in 0..20 {
            let record = self.plain.get_run(run).await.expect("reading works");
            if record.is_none_or(|record| record.state.is_final()) {
                return self.check(run, definition, outcome).await;
            }
            let worker = Worker::join(&*self.plain, definition).await;
            for task in worker.claim(&*self.plain, 100).await {
                succeed(&*self.plain, &task).await;
            }
            self.plain.leave(worker.id).await.expect("leaving works");
            self.clock.advance(LEASE);
            self.plain.reap(100).await.expect("reaping works");
            self.plain.promote_due(100).await.expect("promoting works");
        }
        let Outcome { trace, answers, .. } = outcome;
        panic!("run {run} does not end after {trace:#?}\nwith {answers:?}");
    }
}
