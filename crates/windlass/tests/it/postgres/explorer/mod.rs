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
//!
//! Nor is it tried whether two statements are swapped that are independent of each other, see
//! [`are_independent`]: a session whose statement was tried first at some place sleeps at the
//! other choice of that place until the other session has done something that matters to it.
//! An order in which only sleepers could go on is one that was tried.

mod dead;
mod deadlines;
mod functions;
mod keys;
mod lanes;
mod leaders;
mod meters;
mod onward;
mod pairs;
mod retention;
mod schedules;
mod undo;
mod why;

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
/// or of what its locks protect. No pair has workers that are forgotten, or signals that have
/// expired.
const PRIVATE: &[&str] = &[
    "advance_schedules",
    "beat",
    "bury_worker",
    "clock",
    "close_fires",
    "count_routes",
    "definitions",
    "delete_dead_letters",
    "delete_deadlines",
    "delete_lanes",
    "delete_leases",
    "delete_key_waiters",
    "delete_ready",
    "delete_staged",
    "delete_timers",
    "delete_notes",
    "delete_places",
    "checkpoint",
    "limit_leases",
    "checkpoints",
    "delete_checkpoints",
    "end_action",
    "ends",
    "enqueue",
    "expire_kept_keys",
    "expire_key_signals",
    "failures",
    "forget_fires",
    "forgotten_workers",
    "inputs",
    "insert_dead_letters",
    "insert_fires",
    "insert_history",
    "insert_history_alike",
    "insert_lanes",
    "insert_places",
    "insert_tasks",
    "keep_keys",
    "lanes",
    "list_retention",
    "needed_runs",
    "insert_tasks_alike",
    "routes",
    "next_due",
    "next_lease_end",
    "next_schedule",
    "open_fires",
    "passed_deadlines",
    "places",
    "prune_handled",
    "put_back",
    "schedule",
    "set_deadlines",
    "set_worker_state",
    "staged_end",
    "states_of_runs",
    "still_dead",
    "take_leases",
    "tenants_by_id",
    "update_runs",
    "update_runs_alike",
    "update_tasks",
    "virtual_times",
];

/// What is private besides where the two sessions act for different workers: each locks the
/// row of its own and looks at what that one holds, which the other neither writes nor waits
/// for. A reaper finds other workers only, as their time is over and that of this one is not.
const PRIVATE_OF_OWN_WORKER: &[&str] = &["lock_worker", "pulses"];

/// What is private besides where neither session claims: the tasks of the runs that a session
/// has locked. Only a claim moves a task without the lock of its run.
const PRIVATE_WITHOUT_CLAIMS: &[&str] = &["load_tasks"];

/// What reads without locking anything, and is followed by no writes but to rows that were
/// locked before: it sees the same whatever the other does, as long as that does not commit.
const READS: &[&str] = &[
    "due_deadlines",
    "due_schedules",
    "overdue_leases",
    "pulses",
    "tenants_by_name",
    "worker_leases",
];

/// What locks rows of one table, and writes nothing before the next choice but to rows that
/// were locked before.
const LOCKS: &[(&str, &str)] = &[
    ("due_timers", "timers"),
    ("expired_workers", "workers"),
    ("lock_due_schedules", "schedules"),
    ("lock_lanes", "lanes"),
    ("lock_schedule", "schedules"),
    ("lock_turns", "turns"),
    ("lock_worker", "workers"),
    ("take_staged", "staged"),
];

/// What locks rows for share, beside others who do.
const SHARES: &[&str] = &["leader_clock"];

/// Whether two statements of different sessions do the same in either order. Those of which
/// nothing is said here are taken to depend on all but reads.
fn are_independent(one: &str, other: &str) -> bool {
    let is_either = |is: &dyn Fn(&str) -> bool| is(one) || is(other);
    if is_either(&|name| name == "commit") {
        // It shows what was written and gives locks back, which matters to all but another.
        return one == other;
    }
    let table = |name: &str| LOCKS.iter().find(|(it, _)| *it == name).map(|(_, table)| *table);
    is_either(&|name| READS.contains(&name))
        || match (table(one), table(other)) {
            (Some(one), Some(other)) => one != other,
            (Some(_), None) => SHARES.contains(&other),
            (None, Some(_)) => SHARES.contains(&one),
            (None, None) => SHARES.contains(&one) && SHARES.contains(&other),
        }
}

/// The names of the two sessions.
const SESSIONS: [&str; 2] = ["left", "right"];

/// No pair has that many orders; if one does, it is not explored to its end.
const ORDERS_MAX: usize = 5_100;

/// Of every so many orders the runs are brought to their end, which takes longer than the
/// order itself. That they can be is also seen from their rows, by the audit.
const BROUGHT_TO_END_EVERY: usize = 5;

/// How long a session may take for a statement or wait for the other.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// How long most statements take. Only after that the server is asked what one waits for,
/// which takes longer than most of them.
const STATEMENT_USUAL: Duration = Duration::from_millis(2);

/// How long two wait for each other at least before it is more than the look at one of them being
/// older than that at the other: half of the time after which the server ends one.
const DEADLOCK_LEAST: Duration = Duration::from_millis(500);

/// What is added to the answers of two that waited for each other.
const DEADLOCKED: &str = ", after a deadlock";

/// Whether a session has ended its transactions.
const IDLE: &str = "select not exists (select from pg_stat_activity a
    where a.datname = current_database() and a.application_name = $1 and a.state <> 'idle')";

/// Whether a session waits for a lock that another has.
const BLOCKED: &str = "select exists (select from pg_stat_activity a
    where a.datname = current_database() and a.application_name = $1
    and a.wait_event_type = 'Lock' and cardinality(pg_blocking_pids(a.pid)) > 0)";

type Verb = Pin<Box<dyn Future<Output = String> + Send>>;

/// Two verbs that are about to be called, and what they are about.
struct Case {
    left: Verb,
    right: Verb,
    runs: Vec<RunId>,
    definition: Arc<Definition>,
    /// Whether no worker concerns both sessions.
    has_own_workers: bool,
    has_claims: bool,
    /// What is asked when both are done; the answer is part of theirs.
    aftermath: Option<Verb>,
}

impl Case {
    fn new(
        run: RunId,
        definition: &Arc<Definition>,
        left: impl Future<Output = String> + Send + 'static,
        right: impl Future<Output = String> + Send + 'static,
    ) -> Self {
        let definition = Arc::clone(definition);
        let (left, right) = (Box::pin(left), Box::pin(right));
        let runs = vec![run];
        Case {
            left,
            right,
            runs,
            definition,
            has_own_workers: false,
            has_claims: false,
            aftermath: None,
        }
    }

    /// The same, with a claim among the two verbs.
    fn with_claims(self) -> Self {
        Case { has_claims: true, ..self }
    }

    /// The same, with something to ask when both are done.
    fn with_aftermath(self, aftermath: impl Future<Output = String> + Send + 'static) -> Self {
        Case { aftermath: Some(Box::pin(aftermath)), ..self }
    }

    /// The same, of sessions that act for different workers or for none.
    fn with_own_workers(self) -> Self {
        Case { has_own_workers: true, ..self }
    }
}

/// A verb that goes statement by statement.
struct Stepped {
    call: JoinHandle<String>,
    answer: Option<String>,
    /// Whether it was seen to wait for the other.
    is_blocked: bool,
}

impl Stepped {
    fn spawn(verb: Verb) -> Self {
        Stepped { call: tokio::spawn(verb), answer: None, is_blocked: false }
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
    /// Whether a session waits for another.
    blocked: tokio_postgres::Statement,
    clock: Arc<VirtualClock>,
    database: TestDatabase,
}

/// A place at which either session can go on.
#[derive(Clone, Debug)]
struct Choice {
    /// Which of the options was taken.
    taken: usize,
    /// The sessions and the statements they ask for.
    options: Vec<(usize, &'static str)>,
}

/// Which of the options are taken.
#[derive(Clone, Copy)]
enum Guide<'a> {
    /// These, then the first ones.
    Choices(&'a [Choice]),
    /// Always those of one session.
    Session(usize),
}

/// What came of one order.
struct Outcome {
    choices: Vec<Choice>,
    trace: Vec<String>,
    answers: [String; 2],
    /// Whether another order had the same outcome.
    is_repetition: bool,
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
        let blocked = control.prepare(BLOCKED).await.expect("the server answers");
        let [left, right] = sessions.try_into().expect("two were made");
        Explorer { stepper, left, right, plain, control, blocked, clock, database }
    }

    /// Whether a session waits for a lock that another has.
    async fn is_blocked(&self, session: &str) -> bool {
        let row = self.control.query_one(&self.blocked, &[&session]).await;
        row.expect("the server answers").get(0)
    }

    /// Waits until a session whose verb has answered has no transaction any more: one that
    /// changed nothing is rolled back after the answer.
    async fn until_idle(&self, session: &str) {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let row = self.control.query_one(IDLE, &[&session]).await;
            if row.expect("the server answers").get(0) {
                return;
            }
            assert!(Instant::now() < deadline, "{session} does not end its transaction");
        }
    }

    /// Waits until each session is done, asks for a statement or waits for a lock; answers
    /// which of them ask.
    async fn settle(&self, verbs: &mut [Stepped; 2]) -> Vec<usize> {
        let deadline = Instant::now() + WAIT_MAX;
        let mut asking = Vec::new();
        // Whoever waited for the other comes last: the other's statement may let it go on.
        let order = if verbs[0].is_blocked { [1, 0] } else { [0, 1] };
        for number in order {
            let (session, verb) = (SESSIONS[number], &mut verbs[number]);
            let mut is_asked = verb.is_blocked;
            verb.is_blocked = false;
            while verb.answer.is_none() && self.stepper.asks(session).is_none() {
                if is_asked && self.is_blocked(session).await {
                    verb.is_blocked = true;
                    break;
                }
                assert!(Instant::now() < deadline, "{session} neither goes on nor waits");
                tokio::select! {
                    biased;
                    answer = &mut verb.call => {
                        verb.answer = Some(answer.expect("no panic"));
                        self.until_idle(session).await;
                    }
                    _ = self.stepper.asked(session) => {}
                    () = tokio::time::sleep(STATEMENT_USUAL) => is_asked = true,
                }
            }
            if verb.answer.is_none() && !verb.is_blocked {
                asking.push(number);
            }
        }
        asking.sort_unstable();
        asking
    }

    /// Runs a case in one order. Choices that were made before are offered as they were, or what
    /// a session does depends on something else than the order.
    async fn run(&self, case: Case, guide: Guide<'_>) -> Outcome {
        for session in SESSIONS {
            self.stepper.set_free(session, false);
        }
        let is_private = |statement: &str| {
            PRIVATE.contains(&statement)
                || case.has_own_workers && PRIVATE_OF_OWN_WORKER.contains(&statement)
                || !case.has_claims && PRIVATE_WITHOUT_CLAIMS.contains(&statement)
        };
        let mut verbs = [Stepped::spawn(case.left), Stepped::spawn(case.right)];
        let (mut choices, mut trace) = (Vec::new(), Vec::new());
        let mut asleep: Option<usize> = None;
        let mut is_repetition = false;
        let (mut is_deadlocked, mut stuck_since) = (false, None);
        let deadline = Instant::now() + WAIT_MAX;
        let mut answers = loop {
            let asking = self.settle(&mut verbs).await;
            let asked = |number: &usize| self.stepper.asks(SESSIONS[*number]);
            let is_free = |number: &&usize| asked(number).is_some_and(is_private);
            let number = match asking.iter().find(is_free) {
                Some(number) => *number,
                None if asking.is_empty() => {
                    if let [Some(left), Some(right)] = verbs.each_ref().map(|it| it.answer.clone())
                    {
                        break [left, right];
                    }
                    // Both wait for each other: the server ends one of them.
                    assert!(Instant::now() < deadline, "nobody goes on: {trace:?}");
                    let since = *stuck_since.get_or_insert_with(Instant::now);
                    is_deadlocked |= since.elapsed() > DEADLOCK_LEAST;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                }
                None => {
                    let awake: Vec<usize> =
                        asking.iter().copied().filter(|number| asleep != Some(*number)).collect();
                    is_repetition |= awake.is_empty();
                    let options = if awake.is_empty() { &asking } else { &awake };
                    let offered = |number: &usize| (*number, asked(number).unwrap_or("?"));
                    let offered: Vec<_> = options.iter().map(offered).collect();
                    // The server decides who is ended in a deadlock, so what follows is not explored.
                    let is_explored = !is_repetition && !is_deadlocked;
                    let choice = match guide {
                        Guide::Choices(before) if choices.len() < before.len() && is_explored => {
                            let Choice { taken, options } = &before[choices.len()];
                            assert_eq!(&offered, options, "other choices than before: {trace:#?}");
                            *taken
                        }
                        Guide::Choices(_) => 0,
                        Guide::Session(it) => {
                            options.iter().position(|one| *one == it).unwrap_or(0)
                        }
                    };
                    if is_explored {
                        choices.push(Choice { taken: choice, options: offered });
                    }
                    let number = options[choice];
                    let (this, other) = (asked(&number), asking.iter().find(|it| **it != number));
                    let is_tried = |other: &&usize| {
                        asleep == Some(**other) || options[..choice].contains(other)
                    };
                    let sleeps = |other: &&usize| {
                        let (this, other) = (this.unwrap_or("?"), asked(other).unwrap_or("?"));
                        are_independent(this, other)
                    };
                    asleep = other.filter(is_tried).filter(sleeps).copied();
                    number
                }
            };
            stuck_since = None;
            let session = SESSIONS[number];
            let statement = asked(&number).unwrap_or("?");
            assert!(case.has_claims || statement != "claim", "a claim that was not announced");
            trace.push(format!("{session} {statement}"));
            self.stepper.allow(session);
        };
        for session in SESSIONS {
            self.stepper.set_free(session, true);
        }
        if is_deadlocked {
            answers[1] += DEADLOCKED;
        }
        Outcome { choices, trace, answers, is_repetition }
    }

    fn forget_learned(&self) {
        self.left.forget_learned();
        self.right.forget_learned();
    }

    /// Tries every order of a pair. Answers how often each pair of answers was given.
    async fn explore<S: Future<Output = Case>>(
        &self,
        set_up: impl Fn() -> S,
    ) -> BTreeMap<[String; 2], usize> {
        let mut prefix: Vec<Choice> = Vec::new();
        let mut answers: BTreeMap<[String; 2], usize> = BTreeMap::new();
        let mut repetitions = 0;
        // Afterwards both sessions know the names that they need.
        for session in 0..SESSIONS.len() {
            self.forget_learned();
            self.try_order(set_up().await, Guide::Session(session), true).await;
        }
        for number in 0..ORDERS_MAX {
            let is_brought_to_end = number % BROUGHT_TO_END_EVERY == 0;
            let guide = Guide::Choices(&prefix);
            self.forget_learned();
            let outcome = self.try_order(set_up().await, guide, is_brought_to_end).await;
            repetitions += usize::from(outcome.is_repetition);
            *answers.entry(outcome.answers).or_default() += 1;
            // The next order: at the last place where there was another choice.
            prefix = outcome.choices;
            while prefix.last().is_some_and(|last| last.taken + 1 == last.options.len()) {
                prefix.pop();
            }
            let Some(last) = prefix.last_mut() else {
                let orders = answers.values().sum::<usize>();
                println!("{orders} orders, {repetitions} of them repetitions: {answers:?}");
                let found = found_by_audit(&self.database, self.clock.now()).await;
                assert!(found.is_empty(), "the audit finds {found:#?}");
                return answers;
            };
            last.taken += 1;
        }
        panic!("more than {ORDERS_MAX} orders");
    }

    /// Runs a case in one order, checks its runs and gets them out of the way of the next.
    async fn try_order(
        &self,
        mut case: Case,
        guide: Guide<'_>,
        is_brought_to_end: bool,
    ) -> Outcome {
        let aftermath = case.aftermath.take();
        let (runs, definition) = (case.runs.clone(), Arc::clone(&case.definition));
        let mut outcome = self.run(case, guide).await;
        if let Some(aftermath) = aftermath {
            let answer = aftermath.await;
            outcome.answers[1] += &format!(", then {answer}");
        }
        for run in runs {
            self.check(run, &definition, &outcome).await;
            if is_brought_to_end {
                self.bring_to_end(run, &definition, &outcome).await;
            } else {
                // What has ended stays as it is.
                let _ = self.plain.cancel_run(run, None).await;
                self.check(run, &definition, &outcome).await;
            }
        }
        // What workers and timers leave behind is the same after each order.
        for _ in 0..2 {
            self.clock.advance(LEASE * 2);
            self.plain.reap(100).await.expect("reaping works");
            self.plain.promote_due(100).await.expect("promoting works");
        }
        outcome
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
