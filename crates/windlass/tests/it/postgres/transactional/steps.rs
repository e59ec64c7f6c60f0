//! Steps whose rows and result are committed together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_postgres::NoTls;
use windlass::store::Store;
use windlass::store::postgres::{AuditOptions, PostgresOptions, PostgresStore, audit};
use windlass::testing::Process;
use windlass::{
    Ctx, Function, RetryPolicy, RunHandle, RunState, TaskError, Windlass, WorkerBuilder,
};

use super::PATIENCE;
use crate::database::TestDatabase;
use crate::postgres::driver::{Worker, start, workflow};
use crate::postgres::pooler::Pooler;

const PAUSE: Duration = Duration::from_millis(20);

/// The table of a user's. `token` tells runs of the work from each other.
const TABLE: &str = "create table reservations (run uuid, token integer, step text)";

const INSERT: &str = "insert into reservations values ($1, $2, 'reserve')";

fn pool(url: &str) -> deadpool_postgres::Pool {
    let config = url.parse().expect("it is an address");
    let manager = deadpool_postgres::Manager::new(config, NoTls);
    deadpool_postgres::Pool::builder(manager).max_size(2).build().expect("it can be made")
}

/// How often the work was run, and what happens in it after it has written.
#[derive(Default)]
struct Work {
    count: AtomicU32,
    /// How many more times it fails.
    failures: AtomicU32,
    /// How many more statements it makes.
    statements: u32,
    /// Where it waits, by its token.
    pauses: Vec<Arc<Pause>>,
}

/// A place where work tells that it is there, and waits until it may go on.
#[derive(Default)]
struct Pause {
    here: Notify,
    further: Notify,
}

impl Work {
    fn count(&self) -> i32 {
        self.count.load(Ordering::SeqCst).cast_signed()
    }

    async fn go_on(&self, token: i32) -> Result<(), TaskError> {
        let place = usize::try_from(token - 1).expect("tokens begin with 1");
        if let Some(pause) = self.pauses.get(place) {
            pause.here.notify_one();
            pause.further.notified().await;
        }
        let one_less = |count: u32| count.checked_sub(1);
        match self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) {
            Ok(_) => Err(TaskError::new("not yet")),
            Err(_) => Ok(()),
        }
    }
}

/// A function that writes a row, gives its token, and is run again behind that.
fn reserve(pool: &deadpool_postgres::Pool, work: &Arc<Work>) -> Function<(), i32> {
    let (pool, work) = (pool.clone(), Arc::clone(work));
    let retry = RetryPolicy::fixed(PAUSE).attempts(50);
    let run = async move |ctx: Ctx<()>, pool: deadpool_postgres::Pool, work: Arc<Work>| {
        let run = *ctx.run_id().as_uuid();
        let step = ctx.transaction("reserve", &pool, async move |tx| {
            let token = work.count.fetch_add(1, Ordering::SeqCst).cast_signed() + 1;
            tx.execute(INSERT, &[&run, &token]).await.map_err(TaskError::new)?;
            for _ in 0..work.statements {
                tx.batch_execute("select 1").await.map_err(TaskError::new)?;
            }
            work.go_on(token).await?;
            Ok::<_, TaskError>(token)
        });
        let token = step.retry(RetryPolicy::fixed(PAUSE).attempts(3)).await?;
        // It is parked, and replayed.
        ctx.sleep(PAUSE).await?;
        Ok::<_, TaskError>(token)
    };
    let function = Function::<(), i32>::builder("reserve").retry(retry);
    function.run(move |ctx| run(ctx, pool.clone(), Arc::clone(&work))).expect("it is right")
}

struct Shop {
    windlass: Windlass,
    store: Arc<PostgresStore>,
    user: tokio_postgres::Client,
    database: TestDatabase,
}

impl Shop {
    async fn open() -> Self {
        let database = TestDatabase::new().await;
        let options = PostgresOptions::new(database.url());
        let store = Arc::new(PostgresStore::connect(options).await.expect("it is there"));
        let user = database.client().await;
        user.batch_execute(TABLE).await.expect("it can be made");
        let windlass = Windlass::with_store(Arc::clone(&store) as Arc<dyn Store>);
        Shop { windlass, store, user, database }
    }

    fn worker<O>(&self, function: &Function<(), O>) -> WorkerBuilder {
        self.windlass.worker().register(function).poll(PAUSE).duties(Some(PAUSE))
    }

    /// Runs a function with one worker to its end.
    async fn run<O>(&self, function: &Function<(), O>) -> RunHandle {
        let worker = self.worker(function).spawn().expect("it starts");
        let run = self.windlass.start(function, ()).await.expect("it starts");
        run.wait_timeout(PATIENCE).await.expect("it ends");
        worker.drain().await.expect("it drains");
        run
    }

    /// The tokens of the rows that are there.
    async fn tokens(&self) -> Vec<i32> {
        let sql = "select token from reservations order by token";
        let rows = self.user.query(sql, &[]).await.expect("reading works");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Whether the rows and the results of all steps were written by the same transactions.
    async fn is_one_transaction(&self) -> bool {
        let sql = "select count(*) filter (where s.xmin = r.xmin) = count(*) and count(*) > 0
            from reservations r
            full join windlass.steps s
                on s.run_id = r.run and s.name = r.step and s.value::text = r.token::text
            where s.kind is distinct from 'sleep'";
        self.user.query_one(sql, &[]).await.expect("reading works").get(0)
    }

    /// Lets the leases of workers run out and takes the tasks away; answers how many.
    async fn reap(&self, workers: &str) -> usize {
        let sql = "update windlass.pulses p set lease_until = now() - interval '1 minute'
            from windlass.workers w where w.id = p.worker_id and w.name like $1";
        self.user.execute(sql, &[&workers]).await.expect("the test may do that");
        self.store.reap(100).await.expect("reaping works").moved
    }

    async fn assert_is_sound(&self) {
        let options = PostgresOptions::new(self.database.audited_url());
        let report = audit(&options, &AuditOptions::default()).await.expect("it can be audited");
        assert!(report.is_clean(), "{report:?}");
    }
}

async fn failure(run: &RunHandle) -> String {
    let record = run.get().await.expect("it is there");
    assert_eq!(record.state, RunState::Failed);
    let tasks = run.tasks().await.expect("they are there");
    tasks[0].failure.as_ref().expect("it failed").to_string()
}

#[tokio::test]
async fn rows_and_result_are_committed_together_and_the_work_is_run_once() {
    let shop = Shop::open().await;
    let work = Arc::new(Work::default());
    let function = reserve(&pool(&shop.database.url()), &work);
    let run = shop.run(&function).await;
    assert_eq!(run.output(function.output()).await.expect("it succeeded"), 1);
    assert_eq!((work.count(), shop.tokens().await), (1, vec![1]));
    assert!(shop.is_one_transaction().await);
    shop.assert_is_sound().await;
}

#[tokio::test]
async fn work_that_fails_is_rolled_back_and_tried_again_by_the_policy_of_the_step() {
    let shop = Shop::open().await;
    let work = Arc::new(Work { failures: AtomicU32::new(2), ..Work::default() });
    let function = reserve(&pool(&shop.database.url()), &work);
    let run = shop.run(&function).await;
    assert_eq!(run.output(function.output()).await.expect("it succeeded"), 3);
    assert_eq!((work.count(), shop.tokens().await), (3, vec![3]));
    assert!(shop.is_one_transaction().await);

    let work = Arc::new(Work { failures: AtomicU32::new(9), ..Work::default() });
    let function = reserve(&pool(&shop.database.url()), &work);
    let run = shop.run(&function).await;
    assert!(failure(&run).await.contains("not yet"));
    assert_eq!((work.count(), shop.tokens().await), (3, vec![3]), "nothing was added");
    shop.assert_is_sound().await;
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_found_and_not_repeated() {
    let shop = Shop::open().await;
    let pooler = Pooler::start(&shop.database.url()).await;
    pooler.lose_commits(1);
    let work = Arc::new(Work::default());
    let function = reserve(&pool(&pooler.url()), &work);
    let run = shop.run(&function).await;
    assert_eq!(run.output(function.output()).await.expect("it succeeded"), 1);
    assert_eq!((work.count(), shop.tokens().await), (1, vec![1]));
    assert!(shop.is_one_transaction().await);
    shop.assert_is_sound().await;
}

#[tokio::test]
async fn a_commit_that_the_database_does_not_survive_costs_no_attempt_of_the_step() {
    let shop = Shop::open().await;
    // The first three commits end their sessions: as often as the step may fail.
    let sql = "create sequence commits;
        create function die() returns trigger language plpgsql as $$
        begin
            if nextval('commits') <= 3 then
                perform pg_terminate_backend(pg_backend_pid());
            end if;
            return null;
        end $$;
        create constraint trigger die after insert on reservations
            deferrable initially deferred for each row execute function die()";
    shop.user.batch_execute(sql).await.expect("it can be made");
    let work = Arc::new(Work::default());
    let function = reserve(&pool(&shop.database.url()), &work);
    let run = shop.run(&function).await;
    assert_eq!(run.output(function.output()).await.expect("it succeeded"), 4);
    assert_eq!((work.count(), shop.tokens().await), (4, vec![4]));
    assert!(shop.is_one_transaction().await);
}

#[tokio::test]
async fn an_attempt_that_lost_its_task_commits_nothing() {
    let shop = Shop::open().await;
    let work = Arc::new(Work { pauses: vec![Default::default(); 2], ..Work::default() });
    let function = reserve(&pool(&shop.database.url()), &work);
    let (frozen, other) = (Process::new(), Process::new());
    let worker = |process: &Process| {
        // It asks for nothing while it is busy, and so is not frozen with a lock of its own.
        let worker = shop.worker(&function).slots(1).lease(Duration::from_secs(3_600));
        worker.duties(None).in_process(process).spawn().expect("it starts")
    };
    let [first, second] = &work.pauses[..] else { panic!("there are two") };
    let lost = worker(&frozen);
    let run = shop.windlass.start(&function, ()).await.expect("it starts");
    first.here.notified().await;
    frozen.freeze();
    assert_eq!(shop.reap("%").await, 1, "what it wrote keeps nobody waiting");
    let next = worker(&other);
    second.here.notified().await;
    frozen.thaw();
    first.further.notify_one();
    let one_has_ended = "select where (select count(*) from pg_stat_activity
        where datname = current_database() and state = 'idle in transaction') = 1";
    super::wait_until_there_is(&shop.user, one_has_ended).await;
    assert!(shop.tokens().await.is_empty(), "it was refused");
    second.further.notify_one();
    let deadline = Instant::now() + PATIENCE;
    while run.get().await.expect("it is there").ended_at.is_none() {
        assert!(Instant::now() < deadline, "it does not end");
        shop.store.promote_due(100).await.expect("promoting works");
        tokio::time::sleep(PAUSE).await;
    }
    assert_eq!(run.output(function.output()).await.expect("it succeeded"), 2);
    assert_eq!((work.count(), shop.tokens().await), (2, vec![2]));
    assert!(shop.is_one_transaction().await);
    lost.drain().await.expect("it drains");
    next.drain().await.expect("it drains");
    shop.assert_is_sound().await;
}

#[tokio::test]
async fn wherever_its_process_dies_rows_and_result_are_both_there_or_neither_is() {
    let shop = Shop::open().await;
    let (mut deaths, mut repeated) = (0, 0);
    for polls in (1..).step_by(2) {
        // So that it dies within the work more often than by chance.
        let work = Arc::new(Work { statements: 20, ..Work::default() });
        let mortal = Process::new();
        mortal.die_after_polls(polls);
        let function = reserve(&pool(&shop.database.url()), &work);
        // Duties are the test's own: to find that their leader died would take its time.
        let worker = shop.worker(&function).duties(None).in_process(&mortal).name("mortal");
        let worker = worker.spawn().expect("it starts");
        let run = shop.windlass.start(&function, ()).await.expect("it starts");
        let has_ended = async || {
            shop.store.promote_due(100).await.expect("promoting works");
            run.get().await.expect("it is there").ended_at.is_some()
        };
        while !mortal.is_dead() && !has_ended().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if mortal.is_dead() {
            deaths += 1;
            drop(worker);
            let function = reserve(&pool(&shop.database.url()), &work);
            let next = shop.worker(&function).duties(None).spawn().expect("it starts");
            let deadline = Instant::now() + PATIENCE;
            while !has_ended().await {
                assert!(Instant::now() < deadline, "it does not end");
                // What it died with may still be on its way.
                shop.reap("mortal").await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            next.drain().await.expect("it drains");
        }
        repeated += u32::from(work.count() > 1);
        let token = run.output(function.output()).await.expect("it succeeded");
        assert_eq!(shop.tokens().await, [token], "after {polls} polls");
        assert!(shop.is_one_transaction().await, "after {polls} polls");
        shop.user.batch_execute("truncate reservations").await.expect("it can be emptied");
        shop.user.batch_execute("delete from windlass.steps").await.expect("it can be emptied");
        if !mortal.is_dead() {
            break;
        }
    }
    println!("{deaths} deaths, of which {repeated} had the work done again");
    assert!(deaths > 10 && repeated > 0, "{deaths} deaths, {repeated} repeated");
}

#[tokio::test]
async fn a_pool_of_another_database_is_refused_before_the_work_is_run() {
    let shop = Shop::open().await;
    let (bare, migrated) = (TestDatabase::bare().await, TestDatabase::new().await);
    let memory = Windlass::memory();
    for (windlass, database) in [
        (&shop.windlass, &bare),
        (&shop.windlass, &migrated),
        (&memory, &shop.database),
        (&memory, &bare),
    ] {
        let work = Arc::new(Work::default());
        let function = reserve(&pool(&database.url()), &work);
        let worker = windlass.worker().register(&function).poll(PAUSE).spawn().expect("it starts");
        let run = windlass.start(&function, ()).await.expect("it starts");
        run.wait_timeout(PATIENCE).await.expect("it ends");
        worker.drain().await.expect("it drains");
        let text = failure(&run).await;
        let expected = format!(
            "the pool of step \"reserve\" is not one of the database that run {} is in",
            run.id()
        );
        assert!(text.contains(&expected), "{text}");
        assert_eq!(work.count(), 0);
    }
}

#[tokio::test]
async fn a_transaction_that_is_kept_beyond_the_work_is_rolled_back() {
    let shop = Shop::open().await;
    let pool = pool(&shop.database.url());
    let function = Function::<(), i32>::builder("keep").run(move |ctx| {
        let pool = pool.clone();
        async move {
            let run = *ctx.run_id().as_uuid();
            let step = ctx.transaction("keep", &pool, async move |tx| {
                tx.execute(INSERT, &[&run, &1]).await.map_err(TaskError::new)?;
                tokio::spawn(async move {
                    tokio::time::sleep(PAUSE).await;
                    drop(tx);
                });
                Ok::<_, TaskError>(1)
            });
            step.await
        }
    });
    let run = shop.run(&function.expect("it is right")).await;
    let text = failure(&run).await;
    assert!(text.contains("the work of step \"keep\" keeps its transaction"), "{text}");
    assert!(shop.tokens().await.is_empty());
}

#[tokio::test]
async fn a_step_that_takes_too_long_is_rolled_back() {
    let shop = Shop::open().await;
    let pool = pool(&shop.database.url());
    let function = Function::<(), i32>::builder("slow").run(move |ctx| {
        let pool = pool.clone();
        async move {
            let run = *ctx.run_id().as_uuid();
            let step = ctx.transaction("slow", &pool, async move |tx| {
                tx.execute(INSERT, &[&run, &1]).await.map_err(TaskError::new)?;
                std::future::pending::<Result<i32, TaskError>>().await
            });
            step.timeout(PAUSE).retry(RetryPolicy::none()).await
        }
    });
    let run = shop.run(&function.expect("it is right")).await;
    assert!(failure(&run).await.contains("took longer than 20ms"));
    assert!(shop.tokens().await.is_empty());
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn with_sqlx_rows_and_result_are_committed_together_too() {
    let shop = Shop::open().await;
    let pool = sqlx::PgPool::connect(&shop.database.url()).await.expect("it is there");
    let work = Arc::new(Work { failures: AtomicU32::new(1), ..Work::default() });
    let counted = Arc::clone(&work);
    let function = Function::<(), i32>::builder("with sqlx").run(move |ctx| {
        let (pool, work) = (pool.clone(), Arc::clone(&counted));
        async move {
            let run = *ctx.run_id().as_uuid();
            let step = ctx.transaction("reserve", &pool, async move |mut tx| {
                let token = work.count.fetch_add(1, Ordering::SeqCst).cast_signed() + 1;
                let sql = "insert into reservations values ($1::uuid, $2, 'reserve')";
                let query = sqlx::query(sql).bind(run.to_string()).bind(token);
                query.execute(&mut *tx).await.map_err(TaskError::new)?;
                work.go_on(token).await?;
                Ok::<_, TaskError>(token)
            });
            step.retry(RetryPolicy::fixed(PAUSE)).await
        }
    });
    let function = function.expect("it is right");
    let run = shop.run(&function).await;
    assert_eq!(run.output(function.output()).await.expect("it succeeded"), 2);
    assert_eq!(shop.tokens().await, [2]);
    assert!(shop.is_one_transaction().await);
}

#[tokio::test]
async fn a_run_is_started_with_the_rows_and_the_result_of_a_step() {
    let shop = Shop::open().await;
    let work = Arc::new(Work::default());
    let child = reserve(&pool(&shop.database.url()), &work);
    let (windlass, other) = (shop.windlass.clone(), child.clone());
    let pool = pool(&shop.database.url());
    let failures = Arc::new(Work { failures: AtomicU32::new(1), ..Work::default() });
    let parent = Function::<(), ()>::builder("parent").run(move |ctx| {
        let (pool, windlass, other) = (pool.clone(), windlass.clone(), other.clone());
        let failures = Arc::clone(&failures);
        async move {
            let step = ctx.transaction("start", &pool, async move |mut tx| {
                let start = windlass.start(&other, ());
                start.in_transaction(&mut tx).await.map_err(TaskError::new)?;
                failures.go_on(1).await
            });
            step.retry(RetryPolicy::fixed(PAUSE)).await
        }
    });
    let parent = parent.expect("it is right");
    let run = shop.run(&parent).await;
    assert_eq!(run.get().await.expect("it is there").state, RunState::Succeeded);
    let sql = "select count(*) from windlass.runs where workflow = 'reserve'";
    let count: i64 = shop.user.query_one(sql, &[]).await.expect("counting works").get(0);
    assert_eq!(count, 1, "that of the try that failed never was");
}

#[tokio::test]
async fn a_fence_is_asserted_by_hand_and_holds_until_the_transaction_ends() {
    let shop = Shop::open().await;
    let order = workflow("order", &["charge"]);
    let run = start(&*shop.store, &order).await;
    let worker = Worker::join(&*shop.store, &order).await;
    let claimed = worker.claim(&*shop.store, 1).await;
    assert_eq!(claimed.len(), 1);
    let assert_fence = |task: &str, fence: u64| {
        format!("select windlass.assert_fence('{run}', '{task}', {fence})")
    };
    let refused = async |sql: String| super::refusal(&shop.user, &sql).await;
    shop.user.batch_execute(&assert_fence("charge", 1)).await.expect("it is held");
    let wrong = format!("task \"charge\" of run {run} is not held under fence 2 [WL-0006]");
    assert_eq!(refused(assert_fence("charge", 2)).await, ("WL006".to_owned(), wrong));
    let wrong = format!("run {run} has no task \"ship\" [WL-0004]");
    assert_eq!(refused(assert_fence("ship", 1)).await, ("WL004".to_owned(), wrong));

    let other = shop.database.client().await;
    let begin = format!("begin; {}", assert_fence("charge", 1));
    other.batch_execute(&begin).await.expect("it is held");
    // The sweep passes over it, and does not wait.
    assert_eq!(shop.reap("%").await, 0);
    other.batch_execute("commit").await.expect("it is committed");
    assert_eq!(shop.reap("%").await, 1);
    assert_eq!(refused(assert_fence("charge", 1)).await.0, "WL006");
    shop.assert_is_sound().await;
}

#[tokio::test]
async fn a_step_does_not_replace_a_call_of_another_kind() {
    let shop = Shop::open().await;
    let order = workflow("order", &["charge"]);
    let run = start(&*shop.store, &order).await;
    let worker = Worker::join(&*shop.store, &order).await;
    worker.claim(&*shop.store, 1).await;
    let open = format!(
        "insert into windlass.steps (run_id, idx, call, kind, name, failures)
         values ('{run}', 0, 1, 'undoable', 'reserve', 0)"
    );
    shop.user.batch_execute(&open).await.expect("it can be written");
    let record = |kind: &str| {
        format!("select windlass.record_step('{run}', 0, 1, 1, 1, '{kind}', 'reserve', '7')")
    };
    let (code, _) = super::refusal(&shop.user, &record("step")).await;
    assert_eq!(code, "WL005");
    shop.user.batch_execute(&record("undoable")).await.expect("it is the same call");
}

#[tokio::test]
async fn whoever_asks_what_became_of_a_transaction_waits_for_its_end() {
    let shop = Shop::open().await;
    let order = workflow("order", &["charge"]);
    let run = start(&*shop.store, &order).await;
    let worker = Worker::join(&*shop.store, &order).await;
    worker.claim(&*shop.store, 1).await;
    let other = shop.database.client().await;
    let pid = super::pid_of(&other).await;
    let find = format!("select windlass.find_step('{run}', 0, 1, 1)");
    for (end, became) in [("rollback", "open"), ("commit", "recorded")] {
        let record =
            format!("select windlass.record_step('{run}', 0, 1, 1, 1, 'step', 'reserve', '7')");
        shop.user.batch_execute(&format!("begin; {record}")).await.expect("it is held");
        let observer = shop.database.client().await;
        let ended = async {
            super::wait_until_blocked(&observer, pid).await;
            shop.user.batch_execute(end).await.expect("it ends");
        };
        let (found, ()) = tokio::join!(other.query_one(&find, &[]), ended);
        assert_eq!(found.expect("it is told").get::<_, String>(0), became);
    }
    let again = format!("select windlass.record_step('{run}', 0, 1, 1, 2, 'step', 'reserve', '8')");
    assert_eq!(super::refusal(&shop.user, &again).await.0, "WL005", "a result never changes");
    let stale = format!("select windlass.record_step('{run}', 0, 2, 2, 2, 'step', 'reserve', '8')");
    assert_eq!(super::refusal(&shop.user, &stale).await.0, "WL006");
    assert_eq!(shop.reap("%").await, 1);
    let row = other.query_one(&find, &[]).await.expect("it is told");
    assert_eq!(row.get::<_, String>(0), "lost");
}

#[tokio::test]
async fn a_role_with_the_documented_rights_and_no_others_can_do_it() {
    let shop = Shop::open().await;
    let role = crate::postgres::role::Role::new(&shop.database, "writer").await;
    let grants = format!(
        "grant insert on reservations to {0};
         grant usage on schema windlass to {0};
         grant execute on function
             windlass.look_at_fence, windlass.record_step, windlass.find_step to {0}",
        role.name()
    );
    shop.user.batch_execute(&grants).await.expect("the test may do that");
    let work = Arc::new(Work::default());
    let pooled = pool(&role.url(&shop.database));
    let function = reserve(&pooled, &work);
    let run = shop.run(&function).await;
    assert_eq!(run.output(function.output()).await.expect("it succeeded"), 1);
    assert!(shop.is_one_transaction().await);
}
