//! Who does the background duties, with real processes and real time.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass::store::postgres::{LeaderElection, PostgresOptions, PostgresStore};
use windlass::store::{Candidacy, Duty, LeaderRecord, Mandate, NewRun, Store, StoreError, Tallies};
use windlass::{CandidateId, Duties, DutyOptions, ErrorKind, TaskState, Term, Windlass};

use super::driver::{new_run, workflow};
use super::pooler::Pooler;
use crate::database::TestDatabase;

/// The address of the database, for the processes that tests start.
const URL: &str = "WINDLASS_TEST_LEADER_URL";

/// What such a process is called.
const NAME: &str = "WINDLASS_TEST_LEADER_NAME";

/// Whether such a process is elected by a lock.
const BY_LOCK: &str = "WINDLASS_TEST_LEADER_BY_LOCK";

/// The time to live of their terms, the shortest.
const TTL: Duration = Duration::from_secs(2);

/// How much longer than promised things may take on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

/// Another process that does the duties until it is killed.
struct Process {
    name: &'static str,
    child: Child,
}

impl Process {
    fn spawn(database: &TestDatabase, name: &'static str, election: LeaderElection) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this is a program"));
        match election {
            LeaderElection::LeaseRow => {}
            LeaderElection::AdvisoryLock => {
                command.env(BY_LOCK, "1");
            }
        }
        let child = command
            .args(["--exact", "postgres::leaders::process", "--ignored", "--nocapture"])
            .env(URL, database.url())
            .env(NAME, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("this program can be started");
        Process { name, child }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
#[ignore = "not a test: the process that other tests start and kill"]
async fn process() {
    let (Ok(url), Ok(name)) = (std::env::var(URL), std::env::var(NAME)) else { return };
    let election = match std::env::var_os(BY_LOCK) {
        Some(_) => LeaderElection::AdvisoryLock,
        None => LeaderElection::LeaseRow,
    };
    let options = PostgresOptions::new(url).election(election);
    let windlass = Windlass::connect(options).await.expect("the database is there");
    let options = DutyOptions::default().name(name).ttl(TTL);
    let _duties = windlass.duties(options).expect("the settings are within their limits");
    // Ends with its parent, should that die without killing it.
    let read = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    let _ = read.await;
}

async fn connect(database: &TestDatabase, listens: bool) -> Arc<PostgresStore> {
    let options = PostgresOptions::new(database.url()).listen(listens);
    Arc::new(PostgresStore::connect(options).await.expect("the database is there"))
}

/// Waits until the leaders are as they should be.
async fn until(store: &PostgresStore, what: &str, is_so: impl Fn(&LeaderRecord) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let leaders = store.list_leaders().await.expect("reading works");
        if leaders.iter().all(&is_so) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {leaders:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn name(leader: &LeaderRecord) -> &str {
    let held = leader.holder.as_ref().filter(|holder| !holder.is_given_up);
    held.map_or("", |holder| &holder.name)
}

/// Starts a run with a delay and waits until it was promoted; answers how late that was.
async fn lateness(store: &PostgresStore) -> Duration {
    let one = workflow("one", &["a"]);
    store.register(one.clone()).await.expect("it can be registered");
    let new = NewRun { delay: Duration::from_millis(700), ..new_run(&one) };
    let run = new.id;
    store.start_runs(vec![new]).await.expect("the store is there");
    let due = Instant::now() + Duration::from_millis(700);
    loop {
        let tasks = store.list_tasks(run, None, 1).await.expect("reading works");
        if tasks[0].state == TaskState::Ready {
            return Instant::now().saturating_duration_since(due);
        }
        assert!(due.elapsed() < 2 * SLACK, "the timer does not fire");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_leader_that_is_killed_is_replaced_within_its_time_to_live() {
    kill_leaders(LeaderElection::LeaseRow).await;
}

#[tokio::test]
async fn a_leader_by_lock_that_is_killed_is_replaced_within_its_time_to_live() {
    kill_leaders(LeaderElection::AdvisoryLock).await;
}

async fn kill_leaders(election: LeaderElection) {
    let database = TestDatabase::new().await;
    let store = connect(&database, false).await;
    let mut names = ["three", "four"].into_iter();
    let hire = |name| Process::spawn(&database, name, election);
    let mut processes = vec![hire("one"), hire("two")];
    until(&store, "someone leads", |leader| !name(leader).is_empty()).await;
    for term in 2..4 {
        let leaders = store.list_leaders().await.expect("reading works");
        let led = name(&leaders[0]).to_owned();
        let place = processes.iter().position(|one| one.name == led).expect("it is one of them");
        drop(processes.remove(place));
        let killed_at = Instant::now();
        processes.extend(names.next().map(hire));
        until(&store, "another leads", |leader| !["", &led].contains(&name(leader))).await;
        let took = killed_at.elapsed();
        println!("taken over {took:?} after the kill");
        assert!(took < TTL + SLACK, "{took:?}");
        let leaders = store.list_leaders().await.expect("reading works");
        // The other duty may have been led by another process all the time.
        assert!(leaders[0].term.0 >= term, "{leaders:#?}");
    }
    let late = lateness(&store).await;
    assert!(late < SLACK, "the new leader is {late:?} late");
}

async fn duties(database: &TestDatabase, name: &str, listens: bool) -> Duties {
    let store: Arc<dyn Store> = connect(database, listens).await;
    let options = DutyOptions::default().name(name);
    Windlass::with_store(store).duties(options).expect("the settings are within their limits")
}

#[tokio::test]
async fn a_process_that_ends_hands_its_duties_over_at_once() {
    let database = TestDatabase::new().await;
    let store = connect(&database, true).await;
    let mut hints = store.leader_hints();
    hints.changed().await;
    let first = duties(&database, "first", true).await;
    until(&store, "the first leads", |leader| name(leader) == "first").await;
    let second = duties(&database, "second", true).await;
    // It listens before it waits; what it hears first is that it does.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let ended_at = Instant::now();
    first.stop().await;
    until(&store, "the second leads", |leader| name(leader) == "second").await;
    let took = ended_at.elapsed();
    println!("handed over within {took:?}");
    assert!(took < SLACK, "{took:?}, as if nobody had heard of it");
    for leader in store.list_leaders().await.expect("reading works") {
        assert_eq!(leader.term.0, 2);
        // What takes long is not done at once.
        let is_later = matches!(leader.duty, Duty::Rollup | Duty::Audit);
        assert!(leader.runs > 0 || is_later, "{leader:#?}");
    }
    second.stop().await;
    until(&store, "nobody leads", |leader| name(leader).is_empty()).await;
}

#[tokio::test]
async fn a_leader_that_sleeps_is_told_of_an_earlier_timer() {
    let database = TestDatabase::new().await;
    let store = connect(&database, true).await;
    let duties = duties(&database, "calm", true).await;
    until(&store, "someone leads", |leader| !name(leader).is_empty()).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let late = lateness(&store).await;
    println!("{late:?} late");
    assert!(late < Duration::from_secs(1), "{late:?}");
    duties.stop().await;
    let leaders = store.list_leaders().await.expect("reading works");
    let promoted = leaders.iter().find(|leader| leader.duty == Duty::PromoteDue);
    assert!(promoted.is_some_and(|leader| leader.items == 1), "{leaders:#?}");
}

/// A leader that renews its term and does nothing else: too slow for what there is to do.
#[tokio::test]
async fn others_do_what_is_due_for_a_leader_that_is_behind() {
    let database = TestDatabase::new().await;
    let store = connect(&database, false).await;
    let candidate = CandidateId::from_random(1);
    let lead = async || {
        let (name, ttl) = ("slow".to_owned(), TTL);
        let candidacy = Candidacy { candidate, name, ttl, rotation: None, tallies: Tallies::new() };
        store.lead(candidacy).await.expect("the store is there").leaders
    };
    lead().await;
    let options = DutyOptions::default().name("idle").ttl(TTL);
    let idle = connect(&database, false).await as Arc<dyn Store>;
    let idle = Windlass::with_store(idle);
    let duties = idle.duties(options).expect("the settings are within their limits");
    let one = workflow("one", &["a"]);
    store.register(one.clone()).await.expect("it can be registered");
    let delay = Duration::from_millis(1);
    let new = || NewRun { delay, ..new_run(&one) };
    let more = 2 * Duty::PromoteDue.batch() + 1;
    store.start_runs((0..more).map(|_| new()).collect()).await.expect("the store is there");
    let count = "select count(*) from windlass.ready";
    let client = database.client().await;
    let began = Instant::now();
    loop {
        assert!(lead().await.iter().all(|leader| leader.is_led_by(candidate)), "it leads");
        let ready: i64 = client.query_one(count, &[]).await.expect("it is there").get(0);
        if ready == more as i64 {
            break;
        }
        assert!(began.elapsed() < 6 * SLACK, "{ready} of {more} became ready");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let text = idle.metrics().await;
    let helped = "windlass_duty_helped_total{duty=\"promote_due\"} 3";
    assert!(text.contains(helped), "{text}");
    duties.stop().await;
}

#[tokio::test]
async fn a_leader_that_hears_nothing_looks_every_second() {
    let database = TestDatabase::new().await;
    let store = connect(&database, false).await;
    let duties = duties(&database, "deaf", false).await;
    until(&store, "someone leads", |leader| !name(leader).is_empty()).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let late = lateness(&store).await;
    println!("{late:?} late");
    assert!(late < Duration::from_secs(2), "{late:?}");
    duties.stop().await;
}

fn candidacy(number: u128) -> Candidacy {
    let candidate = CandidateId::from_random(number);
    let name = format!("{number}");
    Candidacy { candidate, name, ttl: TTL, rotation: None, tallies: Tallies::new() }
}

/// The terms that a candidate has after it asked for all.
async fn terms(store: &PostgresStore, number: u128) -> Vec<u64> {
    let standing = store.lead(candidacy(number)).await.expect("campaigning works");
    let led = |leader: &&LeaderRecord| leader.is_led_by(CandidateId::from_random(number));
    standing.leaders.iter().filter(led).map(|leader| leader.term.0).collect()
}

/// Ends the session that has the locks of all duties.
async fn cut_session_with_locks(client: &tokio_postgres::Client) {
    let cut = "select count(pg_terminate_backend(pid)) from pg_locks
        where locktype = 'advisory' and classid = 1464421958 and granted
            and database = (select oid from pg_database where datname = current_database())";
    let cut: i64 = client.query_one(cut, &[]).await.expect("the test may do that").get(0);
    assert_eq!(cut, Duty::ALL.len() as i64, "all locks of one session");
}

#[tokio::test]
async fn a_lock_decides_whatever_the_times_in_the_rows_and_goes_with_its_connection() {
    let database = TestDatabase::new().await;
    let connect = async || {
        let options = PostgresOptions::new(database.url()).election(LeaderElection::AdvisoryLock);
        PostgresStore::connect(options).await.expect("the database is there")
    };
    let (here, there) = (connect().await, connect().await);
    assert_eq!(terms(&here, 1).await, [1; Duty::ALL.len()]);
    assert_eq!(terms(&here, 1).await, [1; Duty::ALL.len()], "it keeps them");
    assert!(terms(&there, 2).await.is_empty());
    assert!(terms(&here, 3).await.is_empty(), "nor has another one of the same process a right");
    let client = database.client().await;
    let past = "update windlass.leaders set since = now() - interval '1 h',
        renewed_at = now() - interval '1 h', until = now() - interval '1 h'";
    client.batch_execute(past).await.expect("it can be written");
    assert!(terms(&there, 2).await.is_empty(), "the lock is another's");
    cut_session_with_locks(&client).await;
    let deadline = Instant::now() + SLACK;
    while terms(&there, 2).await != [2; Duty::ALL.len()] {
        assert!(Instant::now() < deadline, "the locks are still held");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for duty in Duty::ALL {
        let mandate = Mandate { duty, candidate: CandidateId::from_random(1), term: Term(1) };
        let answer = here.sweep(mandate, 10).await;
        assert_eq!(answer, Err(StoreError::TermOver { duty, term: Term(1) }));
    }
    assert!(terms(&here, 1).await.is_empty());
    there.resign(CandidateId::from_random(2), Tallies::new()).await.expect("resigning works");
    let deadline = Instant::now() + SLACK;
    while terms(&here, 1).await != [3; Duty::ALL.len()] {
        assert!(Instant::now() < deadline, "the locks are still held");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_leader_by_lock_that_lost_its_session_begins_another_term() {
    let database = TestDatabase::new().await;
    let options = PostgresOptions::new(database.url()).election(LeaderElection::AdvisoryLock);
    let store = PostgresStore::connect(options).await.expect("the database is there");
    assert_eq!(terms(&store, 1).await, [1; Duty::ALL.len()]);
    cut_session_with_locks(&database.client().await).await;
    let deadline = Instant::now() + SLACK;
    // Another process could have led while it had no lock.
    while terms(&store, 1).await != [2; Duty::ALL.len()] {
        assert!(Instant::now() < deadline, "its term goes on without the lock");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_leader_by_lock_that_is_silent_for_its_time_to_live_loses_its_session() {
    let database = TestDatabase::new().await;
    let options = || PostgresOptions::new(database.url()).election(LeaderElection::AdvisoryLock);
    let frozen = PostgresStore::connect(options()).await.expect("the database is there");
    let other = PostgresStore::connect(options()).await.expect("the database is there");
    assert_eq!(terms(&frozen, 1).await, [1; Duty::ALL.len()]);
    let since = Instant::now();
    while terms(&other, 2).await != [2; Duty::ALL.len()] {
        assert!(since.elapsed() < TTL + SLACK, "a frozen leader keeps its lock for ever");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(since.elapsed() >= TTL / 2, "{:?}", since.elapsed());
}

#[tokio::test]
async fn leaders_that_rotate_take_turns() {
    take_turns(LeaderElection::LeaseRow).await;
}

#[tokio::test]
async fn leaders_by_lock_that_rotate_take_turns() {
    take_turns(LeaderElection::AdvisoryLock).await;
}

async fn take_turns(election: LeaderElection) {
    let database = TestDatabase::new().await;
    let store = connect(&database, false).await;
    let hire = async |name: &str| {
        let options = PostgresOptions::new(database.url()).election(election);
        let windlass = Windlass::connect(options).await.expect("the database is there");
        let options = DutyOptions::default().name(name).ttl(TTL).rotation(TTL);
        windlass.duties(options).expect("the settings are within their limits")
    };
    let first = hire("first").await;
    until(&store, "the first leads", |leader| name(leader) == "first").await;
    // Alone it goes on after its time, whatever the number of its term.
    let since = Instant::now();
    while since.elapsed() < 2 * TTL {
        let leaders = store.list_leaders().await.expect("reading works");
        assert!(leaders.iter().all(|leader| name(leader) == "first"), "{leaders:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let late = lateness(&store).await;
    assert!(late < Duration::from_secs(2), "{late:?}, as if nobody led");
    let second = hire("second").await;
    for turn in ["second", "first", "second"] {
        let since = Instant::now();
        until(&store, "it is its turn", |leader| name(leader) == turn).await;
        println!("{turn} leads after {:?}", since.elapsed());
        let late = lateness(&store).await;
        assert!(late < Duration::from_secs(2), "{late:?}, as if nobody led");
    }
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_leader_by_lock_leaves_its_locks_to_others_when_its_time_is_over() {
    let database = TestDatabase::new().await;
    let options = || PostgresOptions::new(database.url()).election(LeaderElection::AdvisoryLock);
    let here = PostgresStore::connect(options()).await.expect("the database is there");
    let there = PostgresStore::connect(options()).await.expect("the database is there");
    let lead = async |store: &PostgresStore, number: u128| {
        let rotating = Candidacy { rotation: Some(TTL), ..candidacy(number) };
        let standing = store.lead(rotating).await.expect("campaigning works");
        let led = |leader: &&LeaderRecord| leader.is_led_by(CandidateId::from_random(number));
        standing.leaders.iter().filter(led).map(|leader| leader.term.0).collect::<Vec<_>>()
    };
    assert_eq!(lead(&here, 1).await, [1; Duty::ALL.len()]);
    assert!(lead(&there, 2).await.is_empty());
    let client = database.client().await;
    let past = "update windlass.leaders set since = since - interval '1 h'";
    client.batch_execute(past).await.expect("it can be written");
    assert_eq!(lead(&here, 1).await, [1; Duty::ALL.len()], "nobody has asked yet");
    assert_eq!(lead(&here, 1).await, [1; Duty::ALL.len()], "it goes on in its term");
    assert_eq!(lead(&there, 2).await, [2; Duty::ALL.len()]);
    assert!(lead(&here, 1).await.is_empty());
}

#[tokio::test]
async fn an_election_by_lock_does_not_wait_for_ever_for_a_database_that_is_cut_off() {
    let database = TestDatabase::new().await;
    // The session of the locks alone goes through it.
    let pooler = Pooler::start(&database.url()).await;
    pooler.ignore_options();
    let options = PostgresOptions::new(database.url())
        .listen(false)
        .listen_url(pooler.url())
        .connect_timeout(Duration::from_millis(100))
        .election(LeaderElection::AdvisoryLock);
    let store = PostgresStore::connect(options).await.expect("the database is there");
    assert_eq!(terms(&store, 1).await, [1; Duty::ALL.len()]);
    pooler.freeze(true);
    let began = Instant::now();
    let answer = tokio::time::timeout(TTL + 2 * SLACK, store.lead(candidacy(1))).await;
    let error = answer.expect("it gives up").expect_err("nothing is passed on");
    assert!(error.is_retryable(), "{error}");
    assert!(began.elapsed() >= TTL, "{:?}: it could have been late only", began.elapsed());
}

#[tokio::test]
async fn an_election_by_lock_needs_an_address_that_is_not_a_poolers() {
    let options = PostgresOptions::new("postgres://u@h/d")
        .pooled(true)
        .election(LeaderElection::AdvisoryLock);
    let error = PostgresStore::connect(options).await.expect_err("it could not be kept");
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert!(error.to_string().contains("listen_url"), "{error}");
}
