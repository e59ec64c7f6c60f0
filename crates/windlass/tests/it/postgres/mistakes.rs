//! Mistakes that such engines make and that only a database can show. `docs/mistakes.md`
//! lists them all, with their tests.

use std::sync::Arc;
use std::time::Duration;

use windlass::store::postgres::{PostgresOptions, PostgresStore, Stepper};
use windlass::store::{
    Answer, ClaimRequest, Claimed, Completion, Heartbeat, Held, Refusal, Release, Started, Store,
    StoreError, WorkerLink,
};
use windlass_core::definition::TaskDraft;
use windlass_core::{
    ClaimSeq, Decision, DefinitionDraft, Failure, FailureCode, RetryPolicy, RunState, TaskKind,
    TaskState,
};

use super::driver::{LEASE, Worker, new_run, start, succeed, success, workflow};
use super::pooler::Pooler;
use super::{found_by_audit, postgres};
use crate::database::TestDatabase;

/// The commit took place, and its answer was lost twice: the verb is repeated, and must
/// have no second effect.
#[tokio::test]
async fn a_verb_whose_commit_is_answered_late_has_its_effect_once() {
    let database = TestDatabase::new().await;
    let pooler = Pooler::start(&database.url()).await;
    let options = PostgresOptions::new(pooler.url()).pooled(true);
    let store = PostgresStore::connect(options).await.expect("the pooler is there");
    let join = workflow("join", &["a", "b", "c < a b"]);
    start(&store, &join).await;
    let worker = Worker::join(&store, &join).await;
    let mut tasks = worker.claim(&store, 10).await;
    pooler.lose_commits(2);
    let new = new_run(&join);
    let answers = store.start_runs(vec![new.clone()]).await.expect("it is repeated");
    assert_eq!(answers, [Ok(Started { run: new.id, is_new: false })]);
    tasks.truncate(2);
    let request = worker.request(10);
    pooler.lose_commits(1);
    let answer = store.claim(request.clone()).await;
    let Err(StoreError::Unavailable(text)) = answer else { panic!("{answer:?}") };
    assert!(text.contains("claim again") && !text.contains("claim 2"), "{text}");
    let held = tasks.iter().map(|one| Held { task: one.task, fence: one.fence }).collect();
    let beat = Heartbeat { worker: worker.id, settled: request.seq, held, progress: vec![] };
    store.extend(beat).await.expect("the worker lives");
    let again = worker.claim(&store, 10).await;
    assert_eq!(again.iter().map(|one| one.attempt).collect::<Vec<_>>(), [1, 1], "nothing is lost");
    pooler.lose_commits(2);
    let finished = store.finish(tasks.iter().map(success).collect()).await;
    assert_eq!(finished.expect("it is repeated"), [Answer::AcceptedAlready; 2]);
    let run = tasks[0].task.run;
    let tasks = store.list_tasks(run, None, 10).await.expect("reading works");
    assert_eq!(tasks[2].state, TaskState::Ready, "after both of its parents, and once");
    assert_eq!(found_by_audit(&database, store.now().await.unwrap()).await, [""; 0]);
}

/// A worker is cut off in the middle of a finish, with its run locked.
#[tokio::test]
async fn a_run_that_a_dead_worker_keeps_locked_holds_the_reaper_up_with_no_other() {
    let subject = postgres().await;
    let store = subject.store.clone();
    let one = workflow("one", &["a"]);
    let (locked, free) = (start(&*store, &one).await, start(&*store, &one).await);
    let worker = Worker::join(&*store, &one).await;
    assert_eq!(worker.claim(&*store, 2).await.len(), 2);
    let cut_off = subject.database.client().await;
    let lock = format!("begin; select from windlass.runs where id = '{locked}' for update");
    cut_off.batch_execute(&lock).await.expect("it can be locked");
    subject.clock.advance(LEASE);
    let state = async |run| store.list_tasks(run, None, 1).await.expect("reading works")[0].state;
    assert_eq!(store.reap(100).await.expect("reaping works").moved, 1);
    assert_eq!((state(free).await, state(locked).await), (TaskState::Ready, TaskState::Running));
    cut_off.batch_execute("rollback").await.expect("the server ends it");
    assert_eq!(store.reap(100).await.expect("reaping works").moved, 1);
    assert_eq!(state(locked).await, TaskState::Ready);
}

/// Something else than Windlass wrote to the tables of a few runs. Whatever moves many runs
/// at once goes on without them.
#[tokio::test]
async fn runs_that_contradict_themselves_keep_no_other_from_moving() {
    let subject = postgres().await;
    let store = subject.store.clone();
    let sleeper = {
        let sleep = TaskDraft::new("nap", TaskKind::Sleep(Duration::from_secs(1)));
        let last = TaskDraft::new("last", TaskKind::Handler).after("nap");
        Arc::new(DefinitionDraft::new("sleeper").task(sleep).task(last).build().unwrap())
    };
    let one = workflow("one", &["a"]);
    let [bad, good] = [start(&*store, &sleeper).await, start(&*store, &sleeper).await];
    let [bad_reap, good_reap] = [start(&*store, &one).await, start(&*store, &one).await];
    let [unreadable, worked_on] = [start(&*store, &one).await, start(&*store, &one).await];
    let worker = Worker::join(&*store, &one).await;
    assert_eq!(worker.claim(&*store, 2).await.len(), 2);
    let client = subject.database.client().await;
    let meddle = format!(
        "update windlass.runs set tenant = E'\\x01' where id in ('{bad}', '{bad_reap}');
         update windlass.runs set input = (repeat('[', 999) || repeat(']', 999))::json
         where id = '{unreadable}'"
    );
    client.batch_execute(&meddle).await.expect("it can be written to");
    subject.clock.advance(Duration::from_secs(1));
    assert_eq!(store.promote_due(100).await.expect("sweeping works").moved, 1);
    let state = async |run, index: usize| {
        store.list_tasks(run, None, 2).await.expect("reading works")[index].state
    };
    assert_eq!(state(good, 1).await, TaskState::Ready);
    assert_eq!(state(bad, 0).await, TaskState::Scheduled);
    let other = Worker::join(&*store, &one).await;
    let claimed = other.claim(&*store, 10).await;
    assert_eq!(claimed.iter().map(|it| it.task.run).collect::<Vec<_>>(), [worked_on]);
    subject.clock.advance(LEASE);
    assert_eq!(store.reap(100).await.expect("reaping works").moved, 3);
    assert_eq!(state(good_reap, 0).await, TaskState::Ready);
    assert_eq!(state(bad_reap, 0).await, TaskState::Running);
    let leaving = Worker::join(&*store, &one).await;
    assert_eq!(leaving.claim(&*store, 10).await.len(), 2, "the input of the third cannot be read");
    client
        .batch_execute(&format!(
            "update windlass.runs set tenant = E'\\x01' where id = '{unreadable}'"
        ))
        .await
        .expect("it can be written to");
    store.leave(leaving.id).await.expect("it leaves what cannot be moved to the reaper");
}

/// The same when a worker gives back what it did not begin.
#[tokio::test]
async fn a_run_that_contradicts_itself_keeps_no_other_from_being_released() {
    // The first cannot be read, the second has a task that cannot be.
    for meddle in [
        "update windlass.runs set tenant = E'\\x01' where id",
        "insert into windlass.task_rows (run_id, idx, state, fence, attempt, pending_parents,
             failed_parents, skipped_parents)
         select id, 0, 'skipped', 0, 0, 0, 0, 0 from windlass.runs where id",
    ] {
        let subject = postgres().await;
        let store = subject.store.clone();
        let one = workflow("one", &["a"]);
        let [bad, good] = [start(&*store, &one).await, start(&*store, &one).await];
        let worker = Worker::join(&*store, &one).await;
        let claimed = worker.claim(&*store, 2).await;
        assert_eq!(claimed.iter().map(|it| it.task.run).collect::<Vec<_>>(), [bad, good]);
        let client = subject.database.client().await;
        client.batch_execute(&format!("{meddle} = '{bad}'")).await.expect("it can be written to");
        let delay = Duration::ZERO;
        let release = |it: &Claimed| Release { task: it.task, fence: it.fence, delay };
        let releases: Vec<Release> = claimed.iter().map(release).collect();
        let answers = store.release(releases).await.expect("the store is there");
        assert_eq!(answers, [Answer::Refused(Refusal::Invalid), Answer::Accepted], "{meddle}");
        let tasks = store.list_tasks(good, None, 1).await.expect("reading works");
        assert_eq!(tasks[0].state, TaskState::Ready);
    }
}

/// Most tasks are written without a look at whether they have a row; one that has is noticed
/// when it is written.
#[tokio::test]
async fn a_row_that_should_not_be_keeps_no_other_run_from_moving() {
    let subject = postgres().await;
    let store = subject.store.clone();
    let chain = {
        let mut first = TaskDraft::new("first", TaskKind::Handler);
        first.retry = RetryPolicy::exponential().attempts(1);
        let last = TaskDraft::new("last", TaskKind::Handler).after("first");
        Arc::new(DefinitionDraft::new("chain").task(first).task(last).build().unwrap())
    };
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(start(&*store, &chain).await);
    }
    let worker = Worker::join(&*store, &chain).await;
    let claimed = worker.claim(&*store, 4).await;
    let client = subject.database.client().await;
    let meddle = format!(
        "insert into windlass.task_rows (run_id, idx, state, fence, attempt, pending_parents,
             failed_parents, skipped_parents)
         values ('{}', 0, 'active', 0, 0, 0, 0, 0), ('{}', 1, 'pending', 0, 0, 1, 0, 0)",
        runs[0], runs[2]
    );
    client.batch_execute(&meddle).await.expect("it can be written to");
    let answers = store.finish(claimed[..2].iter().map(success).collect()).await;
    let answers = answers.expect("the store is there");
    assert_eq!(answers, [Answer::Refused(Refusal::Invalid), Answer::Accepted]);
    // The others fail with their worker, and the last task of each is skipped.
    client
        .batch_execute("delete from windlass.task_rows where idx = 0 and state = 'active'")
        .await
        .expect("it can be written to");
    subject.clock.advance(LEASE);
    assert_eq!(store.reap(100).await.expect("reaping works").moved, 2);
    let state = async |run| store.get_run(run).await.expect("reading works").unwrap().state;
    assert_eq!(state(runs[0]).await, RunState::Failed);
    assert_eq!(state(runs[2]).await, RunState::Running, "it is left out");
    assert_eq!(state(runs[3]).await, RunState::Failed);
}

/// `now()` stands still in a transaction. A lease that was counted from it would be over
/// sooner than the worker believes.
#[tokio::test]
async fn a_lease_is_counted_from_when_its_transaction_had_what_it_waited_for() {
    const WAIT: Duration = Duration::from_millis(300);
    let database = TestDatabase::new().await;
    let store = PostgresStore::connect(PostgresOptions::new(database.url())).await.unwrap();
    let one = workflow("one", &["a"]);
    start(&store, &one).await;
    let worker = Worker::join(&store, &one).await;
    let other = database.client().await;
    let ends = async |verb: &mut (dyn Future<Output = ()> + Send + Unpin)| {
        other.batch_execute("begin; select from windlass.workers for update").await.unwrap();
        let release = async {
            tokio::time::sleep(WAIT).await;
            other.batch_execute("commit").await.unwrap();
            other.query_one("select clock_timestamp()", &[]).await.unwrap()
        };
        let ((), at) = tokio::join!(verb, release);
        let at: std::time::SystemTime = at.get(0);
        let sql = "select lease_until from windlass.pulses";
        let until: std::time::SystemTime = other.query_one(sql, &[]).await.unwrap().get(0);
        // The clock was read a moment after the commit.
        let slack = WAIT / 2;
        assert!(until + slack >= at + LEASE, "the lease ends at {until:?}, released at {at:?}");
    };
    ends(&mut Box::pin(async {
        assert_eq!(worker.claim(&store, 1).await.len(), 1);
    }))
    .await;
    ends(&mut Box::pin(async {
        let worker = worker.id;
        let beat = Heartbeat { worker, settled: ClaimSeq(0), held: vec![], progress: vec![] };
        store.extend(beat).await.expect("it lives");
    }))
    .await;
}

/// A backoff is a row, not a sleeper in the memory of a worker.
#[tokio::test]
async fn a_backoff_outlives_the_process_that_wrote_it() {
    let subject = postgres().await;
    let one = workflow("one", &["a"]);
    let run = start(&*subject.store, &one).await;
    let worker = Worker::join(&*subject.store, &one).await;
    let claimed = worker.claim(&*subject.store, 1).await.remove(0);
    let failure = Failure::new(FailureCode::Error, "try again");
    let decision = Decision::Retry { failure, delay: Duration::from_secs(60) };
    let completion = Completion { task: claimed.task, fence: claimed.fence, decision };
    let answers = subject.store.finish(vec![completion]).await.expect("finishing works");
    assert_eq!(answers, [Answer::Accepted]);
    let options = PostgresOptions::new(subject.database.url());
    let other = PostgresStore::connect(options).await.expect("the database is there");
    let other = other.with_clock(subject.clock.clone());
    drop(subject.store);
    assert_eq!(other.promote_due(10).await.expect("sweeping works").moved, 0);
    subject.clock.advance(Duration::from_secs(60));
    assert_eq!(other.promote_due(10).await.expect("sweeping works").moved, 1);
    let worker = Worker::join(&other, &one).await;
    let claimed = worker.claim(&other, 1).await.remove(0);
    assert_eq!((claimed.task.run, claimed.attempt), (run, 2));
    succeed(&other, &claimed).await;
}

/// Two batches that name the same runs in different orders would wait for each other. So
/// the first by id is locked first: whoever waits for it holds no other.
#[tokio::test]
async fn a_batch_locks_its_runs_in_the_order_of_their_ids() {
    let subject = postgres().await;
    let store = subject.store.clone();
    let one = workflow("one", &["a"]);
    let mut runs = Vec::new();
    for _ in 0..10 {
        runs.push(start(&*store, &one).await);
    }
    let worker = Worker::join(&*store, &one).await;
    let mut batch: Vec<_> = worker.claim(&*store, 10).await.iter().map(success).collect();
    batch.sort_by_key(|one| std::cmp::Reverse(one.task.run));
    let first = runs.iter().min().expect("there are runs");
    let other = subject.database.client().await;
    let lock = format!("begin; select from windlass.runs where id = '{first}' for update");
    other.batch_execute(&lock).await.expect("it can be locked");
    let finish = tokio::spawn(async move { store.finish(batch).await });
    let is_waiting = "select exists (select from pg_locks l join pg_stat_activity a using (pid)
        where a.datname = current_database() and not l.granted)";
    while !other.query_one(is_waiting, &[]).await.expect("it is seen").get::<_, bool>(0) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let free = "select id from windlass.runs for update skip locked";
    let free = other.query(free, &[]).await.expect("it is seen").len();
    assert_eq!(free, runs.len(), "all but the first by the others, and the first by us");
    other.batch_execute("rollback").await.expect("it ends");
    let answers = finish.await.expect("no panic").expect("finishing works");
    assert_eq!(answers, [Answer::Accepted; 10]);
}

async fn silent(database: &TestDatabase) -> PostgresStore {
    let options = PostgresOptions::new(database.url()).listen(false);
    PostgresStore::connect(options).await.expect("the database is there")
}

/// A number that was given out earlier may be committed later: whoever looks only for larger
/// ones never sees it.
#[tokio::test]
async fn polls_see_a_route_that_was_committed_behind_a_newer_one() {
    let database = TestDatabase::new().await;
    let (starter, there) = (silent(&database).await, silent(&database).await);
    let [y, z, x] = ["y", "z", "x"].map(|name| workflow(name, &["a"]));
    start(&starter, &y).await;
    let worker = Worker::join(&there, &x).await;
    // Another process gives the route of x its number, and has not committed.
    let other = database.client().await;
    let insert = "begin; insert into windlass.routes (level_id, workflow, version)
                  select v.id, 'x', 1 from windlass.levels v";
    other.batch_execute(insert).await.expect("it can be made");
    start(&starter, &z).await;
    assert_eq!(worker.claim(&there, 1).await.len(), 0, "it reads the routes of y and z");
    other.batch_execute("commit").await.expect("it can be committed");
    start(&starter, &x).await;
    // Longer than the routes that were read are taken for all there are.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let poll = ClaimRequest { is_poll: true, ..worker.request(1) };
    assert_eq!(there.claim(poll).await.expect("claiming works").len(), 1);
}

/// Between the look of a reaper and its lock, a task may have been given back and claimed again
/// by the same worker.
#[tokio::test]
async fn a_visibility_timeout_of_an_old_claim_does_not_end_a_new_one() {
    let database = TestDatabase::new().await;
    let plain = silent(&database).await;
    let mut task = TaskDraft::new("a", TaskKind::Handler);
    task.retry = RetryPolicy::none();
    task.visibility_timeout = Some(Duration::from_secs(1));
    let one = Arc::new(DefinitionDraft::new("one").task(task).build().expect("it is right"));
    let run = start(&plain, &one).await;
    let worker = Worker::join(&plain, &one).await;
    let first = worker.claim(&plain, 1).await.remove(0);
    let stepper = Stepper::new();
    let options = PostgresOptions::new(database.url()).listen(false);
    stepper.set_free("reaper", true);
    let reaper = PostgresStore::connect(options.steps(stepper.session("reaper"))).await;
    let reaper = reaper.expect("the database is there");
    stepper.set_free("reaper", false);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let reap = tokio::spawn(async move { reaper.reap(100).await });
    while stepper.asked("reaper").await != "lock_free_runs" {
        stepper.allow("reaper");
    }
    let release = Release { task: first.task, fence: first.fence, delay: Duration::ZERO };
    plain.release(vec![release]).await.expect("it is its own");
    let second = worker.claim(&plain, 1).await.remove(0);
    assert_eq!((second.fence, second.attempt), (first.fence.next(), 1));
    stepper.set_free("reaper", true);
    let sweep = reap.await.expect("it ends").expect("reaping works");
    assert_eq!(sweep.moved, 0);
    let task = &plain.list_tasks(run, None, 10).await.expect("reading works")[0];
    assert_eq!((task.state, task.fence), (TaskState::Running, second.fence));
}
