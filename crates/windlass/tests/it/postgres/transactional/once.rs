//! What is done once for each key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio_postgres::NoTls;
use windlass::store::Store;
use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass::testing::Process;
use windlass::{
    Ctx, Function, RetryPolicy, RunHandle, RunState, Task, TaskError, Windlass, WorkerBuilder,
    Workflow,
};

use super::PATIENCE;
use crate::database::TestDatabase;
use crate::postgres::driver::{Worker, start, workflow};
use crate::postgres::pooler::Pooler;

const PAUSE: Duration = Duration::from_millis(20);

const INSERT: &str = "insert into payments (key, token) values ($1, $2)";

fn pool(url: &str) -> deadpool_postgres::Pool {
    let config = url.parse().expect("it is an address");
    let manager = deadpool_postgres::Manager::new(config, NoTls);
    deadpool_postgres::Pool::builder(manager).max_size(4).build().expect("it can be made")
}

/// A message, which may come twice.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Message {
    key: String,
}

fn message(key: &str) -> Message {
    Message { key: key.to_owned() }
}

/// How often the work was run, and what happens in it after it has written.
#[derive(Default)]
struct Work {
    count: AtomicU32,
    /// How many more times it fails.
    failures: AtomicU32,
    /// Where each of its runs tells that it is there and waits until it may go on.
    pauses: Vec<(Notify, Notify)>,
    keep: Option<Duration>,
}

impl Work {
    fn pausing(times: usize) -> Arc<Self> {
        let pauses = (0..times).map(|_| Default::default()).collect();
        Arc::new(Work { pauses, ..Work::default() })
    }

    fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// Books a message, and gives the number of this run of the work.
    async fn book(
        self: Arc<Self>,
        ctx: Ctx<Message>,
        pool: deadpool_postgres::Pool,
    ) -> Result<u32, TaskError> {
        let key = ctx.input().key.clone();
        let keep = self.keep;
        let once = ctx.once(key.clone(), &pool, async move |tx| {
            let token = self.count.fetch_add(1, Ordering::SeqCst) + 1;
            tx.execute(INSERT, &[&key, &token.cast_signed()]).await.map_err(TaskError::new)?;
            if let Some((here, further)) = self.pauses.get(token as usize - 1) {
                here.notify_one();
                further.notified().await;
            }
            let one_less = |count: u32| count.checked_sub(1);
            match self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) {
                Ok(_) => Err(TaskError::new("not yet")),
                Err(_) => Ok(token),
            }
        });
        match keep {
            Some(keep) => once.keep(keep).await,
            None => once.await,
        }
    }
}

/// A workflow whose only task books its message.
fn pay(
    pool: &deadpool_postgres::Pool,
    work: &Arc<Work>,
    attempts: u32,
) -> (Workflow<Message>, Task<u32>) {
    let (pool, work) = (pool.clone(), Arc::clone(work));
    let mut builder = Workflow::<Message>::builder("pay");
    let retry = RetryPolicy::fixed(PAUSE).attempts(attempts);
    let book = builder
        .task("book")
        .retry(retry)
        .run(move |ctx: Ctx<Message>| Arc::clone(&work).book(ctx, pool.clone()));
    (builder.build().expect("it is right"), book)
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
        let table = "create table payments (key text, token integer)";
        user.batch_execute(table).await.expect("it can be made");
        let windlass = Windlass::with_store(Arc::clone(&store) as Arc<dyn Store>);
        Shop { windlass, store, user, database }
    }

    fn worker(&self, workflow: &Workflow<Message>) -> WorkerBuilder {
        self.windlass.worker().register(workflow).poll(PAUSE).duties(Some(PAUSE))
    }

    async fn start(&self, workflow: &Workflow<Message>, key: &str) -> RunHandle {
        self.windlass.start(workflow, message(key)).await.expect("it starts")
    }

    /// The tokens of the rows that are there.
    async fn tokens(&self) -> Vec<i32> {
        let sql = "select token from payments order by token";
        let rows = self.user.query(sql, &[]).await.expect("reading works");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Lets the leases of all workers run out and takes the tasks away; answers how many.
    async fn reap(&self) -> usize {
        let sql = "update windlass.pulses set lease_until = now() - interval '1 minute'";
        self.user.execute(sql, &[]).await.expect("the test may do that");
        self.store.reap(100).await.expect("reaping works").moved
    }

    async fn number(&self, sql: &str) -> i64 {
        self.user.query_one(sql, &[]).await.expect("it can be asked").get(0)
    }
}

async fn ended(run: &RunHandle) -> RunState {
    run.wait_timeout(PATIENCE).await.expect("it ends").state
}

async fn output(run: &RunHandle, task: &Task<u32>) -> u32 {
    assert_eq!(ended(run).await, RunState::Succeeded, "{:?}", run.tasks().await);
    run.output(task).await.expect("it succeeded")
}

#[tokio::test]
async fn a_message_that_comes_twice_is_handled_once_and_gives_the_same_twice() {
    let shop = Shop::open().await;
    let work = Arc::new(Work::default());
    let (pay, book) = pay(&pool(&shop.database.url()), &work, 1);
    let worker = shop.worker(&pay).spawn().expect("it starts");
    for (key, token) in [("a", 1), ("a", 1), ("b", 2), ("a", 1)] {
        let run = shop.start(&pay, key).await;
        assert_eq!(output(&run, &book).await, token, "{key}");
    }
    // A key belongs to its tenant.
    let other = shop.windlass.start(&pay, message("a")).tenant("acme").await.expect("it starts");
    assert_eq!(output(&other, &book).await, 3);
    assert_eq!((work.count(), shop.tokens().await), (3, vec![1, 2, 3]));
    worker.drain().await.expect("it drains");
    let together = "select count(*) from payments p join windlass.handled h
        on h.key = p.key and h.value::text = p.token::text and h.xmin = p.xmin
        where h.scope = 'pay/book'";
    assert_eq!(shop.number(together).await, 3, "written by the same transactions");
}

#[tokio::test]
async fn of_two_at_once_one_does_the_work_and_the_other_waits_for_its_result() {
    let shop = Shop::open().await;
    let work = Work::pausing(1);
    let (pay, book) = pay(&pool(&shop.database.url()), &work, 1);
    let worker = shop.worker(&pay).spawn().expect("it starts");
    let first = shop.start(&pay, "a").await;
    work.pauses[0].0.notified().await;
    let second = shop.start(&pay, "a").await;
    super::wait_until_someone_is_blocked(&shop.user).await;
    assert_eq!((work.count(), shop.tokens().await), (1, Vec::new()));
    work.pauses[0].1.notify_one();
    assert_eq!((output(&first, &book).await, output(&second, &book).await), (1, 1));
    assert_eq!((work.count(), shop.tokens().await), (1, vec![1]));
    worker.drain().await.expect("it drains");
}

#[tokio::test]
async fn who_waited_for_work_that_failed_does_it_itself() {
    let shop = Shop::open().await;
    let work = Work { failures: AtomicU32::new(1), ..Work::default() };
    let work = Arc::new(Work { pauses: vec![Default::default()], ..work });
    let (pay, book) = pay(&pool(&shop.database.url()), &work, 1);
    let worker = shop.worker(&pay).spawn().expect("it starts");
    let first = shop.start(&pay, "a").await;
    work.pauses[0].0.notified().await;
    let second = shop.start(&pay, "a").await;
    super::wait_until_someone_is_blocked(&shop.user).await;
    work.pauses[0].1.notify_one();
    assert_eq!(output(&second, &book).await, 2);
    assert_eq!(ended(&first).await, RunState::Failed);
    assert_eq!(shop.tokens().await, [2]);
    worker.drain().await.expect("it drains");
}

#[tokio::test]
async fn an_attempt_that_lost_its_task_handles_nothing() {
    let shop = Shop::open().await;
    let work = Work::pausing(1);
    let (pay, book) = pay(&pool(&shop.database.url()), &work, 5);
    let (frozen, other) = (Process::new(), Process::new());
    let worker = |process: &Process| {
        let worker = shop.worker(&pay).slots(1).lease(Duration::from_secs(3_600));
        worker.duties(None).in_process(process).spawn().expect("it starts")
    };
    let lost = worker(&frozen);
    let run = shop.start(&pay, "a").await;
    work.pauses[0].0.notified().await;
    frozen.freeze();
    assert_eq!(shop.reap().await, 1);
    // The next attempt waits for the transaction of the one that does not know it is lost.
    let next = worker(&other);
    super::wait_until_someone_is_blocked(&shop.user).await;
    frozen.thaw();
    work.pauses[0].1.notify_one();
    assert_eq!(output(&run, &book).await, 2);
    assert_eq!((work.count(), shop.tokens().await), (2, vec![2]));
    lost.drain().await.expect("it drains");
    next.drain().await.expect("it drains");
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_found_and_not_repeated() {
    let shop = Shop::open().await;
    let pooler = Pooler::start(&shop.database.url()).await;
    pooler.lose_commits(1);
    let work = Arc::new(Work::default());
    let (pay, book) = pay(&pool(&pooler.url()), &work, 1);
    let worker = shop.worker(&pay).spawn().expect("it starts");
    let run = shop.start(&pay, "a").await;
    assert_eq!(output(&run, &book).await, 1);
    assert_eq!((work.count(), shop.tokens().await), (1, vec![1]));
    worker.drain().await.expect("it drains");
}

#[tokio::test]
async fn a_key_is_forgotten_when_its_time_is_over_and_then_pruned_in_batches() {
    let shop = Shop::open().await;
    let work = Arc::new(Work { keep: Some(Duration::from_secs(3_600)), ..Work::default() });
    let (pay, book) = pay(&pool(&shop.database.url()), &work, 1);
    let worker = shop.worker(&pay).spawn().expect("it starts");
    for key in ["a", "b", "c"] {
        assert!(output(&shop.start(&pay, key).await, &book).await > 0);
    }
    let kept = "select count(*) from windlass.handled
        where expires_at - handled_at between interval '59 min' and interval '61 min'";
    assert_eq!(shop.number(kept).await, 3);
    let over = "update windlass.handled set expires_at = clock_timestamp() where key <> 'c'";
    shop.user.batch_execute(over).await.expect("the test may do that");
    assert_eq!(output(&shop.start(&pay, "a").await, &book).await, 4, "it is as good as new");
    assert_eq!(output(&shop.start(&pay, "a").await, &book).await, 4);
    assert_eq!(output(&shop.start(&pay, "c").await, &book).await, 3);
    shop.user.batch_execute(over).await.expect("the test may do that");
    assert_eq!(shop.number("select windlass.prune_handled(1)").await, 1);
    assert_eq!(shop.number("select windlass.prune_handled()").await, 1);
    assert_eq!(shop.number("select windlass.prune_handled()").await, 0);
    assert_eq!(shop.number("select count(*) from windlass.handled").await, 1);
    worker.drain().await.expect("it drains");
}

async fn failure(run: &RunHandle) -> String {
    assert_eq!(ended(run).await, RunState::Failed);
    let tasks = run.tasks().await.expect("they are there");
    assert_eq!(tasks[0].attempt, 1, "no attempt mends it");
    tasks[0].failure.as_ref().expect("it failed").to_string()
}

#[tokio::test]
async fn what_cannot_be_done_once_says_why_and_is_not_tried_again() {
    let shop = Shop::open().await;
    let pooled = pool(&shop.database.url());
    let work = Arc::new(Work::default());
    let (pay, _) = pay(&pooled, &work, 5);
    let worker = shop.worker(&pay).spawn().expect("it starts");
    let text = failure(&shop.start(&pay, "").await).await;
    assert!(text.contains("idempotency key is empty"), "{text}");
    worker.drain().await.expect("it drains");

    let forgetful = Arc::new(Work { keep: Some(Duration::ZERO), ..Work::default() });
    let (pay, _) = self::pay(&pooled, &forgetful, 5);
    let worker = shop.worker(&pay).spawn().expect("it starts");
    let text = failure(&shop.start(&pay, "a").await).await;
    assert!(text.contains("is to be kept for 0ns"), "{text}");
    worker.drain().await.expect("it drains");

    let windlass = Windlass::memory();
    let (pay, _) = self::pay(&pooled, &work, 5);
    let worker = windlass.worker().register(&pay).spawn().expect("it starts");
    let run = windlass.start(&pay, message("a")).await.expect("it starts");
    let text = failure(&run).await;
    assert!(text.contains("is not one of the database that run"), "{text}");
    worker.drain().await.expect("it drains");
    assert_eq!((work.count(), forgetful.count()), (0, 0), "the work was not begun");
}

#[tokio::test]
async fn a_function_does_it_inside_a_step() {
    let shop = Shop::open().await;
    let work = Arc::new(Work::default());
    let (pooled, shared) = (pool(&shop.database.url()), Arc::clone(&work));
    let run = async move |ctx: Ctx<Message>, pool: deadpool_postgres::Pool, work: Arc<Work>| {
        let inner = ctx.clone();
        let token = ctx.step("book", async move || work.book(inner, pool).await).await?;
        // It is parked, and replayed.
        ctx.sleep(PAUSE).await?;
        Ok::<_, TaskError>(token)
    };
    let function = Function::<Message, u32>::builder("settle")
        .run(move |ctx| run(ctx, pooled.clone(), Arc::clone(&shared)))
        .expect("it is right");
    let worker = shop.windlass.worker().register(&function).poll(PAUSE).duties(Some(PAUSE));
    let worker = worker.spawn().expect("it starts");
    for _ in 0..2 {
        let run = shop.windlass.start(&function, message("a")).await.expect("it starts");
        assert_eq!(output(&run, function.output()).await, 1);
    }
    assert_eq!((work.count(), shop.tokens().await), (1, vec![1]));
    worker.drain().await.expect("it drains");
}

#[tokio::test]
async fn a_pool_of_sqlx_does_as_well() {
    let shop = Shop::open().await;
    let pool = sqlx::PgPool::connect(&shop.database.url()).await.expect("it is there");
    let mut builder = Workflow::<Message>::builder("pay");
    let book = builder.task("book").run(move |ctx: Ctx<Message>| {
        let pool = pool.clone();
        async move {
            let key = ctx.input().key.clone();
            let once = ctx.once(key.clone(), &pool, async move |mut tx| {
                let insert = sqlx::query(INSERT).bind(key).bind(7_i32);
                insert.execute(&mut *tx).await.map_err(TaskError::new)?;
                Ok::<_, TaskError>(7_u32)
            });
            once.await
        }
    });
    let pay = builder.build().expect("it is right");
    let worker = shop.worker(&pay).spawn().expect("it starts");
    for _ in 0..2 {
        assert_eq!(output(&shop.start(&pay, "a").await, &book).await, 7);
    }
    assert_eq!(shop.tokens().await, [7]);
    worker.drain().await.expect("it drains");
}

#[tokio::test]
async fn whoever_writes_sql_asks_whether_it_is_the_first() {
    let shop = Shop::open().await;
    let order = workflow("order", &["charge"]);
    let run = start(&*shop.store, &order).await;
    let worker = Worker::join(&*shop.store, &order).await;
    worker.claim(&*shop.store, 1).await;
    let once =
        |key: &str, fence: u64| format!("select windlass.once('{run}', 'charge', {fence}, {key})");
    let ask = async |sql: String| {
        shop.user.query_one(&sql, &[]).await.expect("it is held").get::<_, bool>(0)
    };
    shop.user.batch_execute("begin").await.expect("it begins");
    assert!(ask(once("'a'", 1)).await);
    assert!(!ask(once("'a'", 1)).await);
    shop.user.batch_execute("rollback").await.expect("it ends");
    assert!(ask(once("'a'", 1)).await, "what was rolled back is as good as new");
    assert!(!ask(once("'a'", 1)).await);
    let kept = "select count(*) from windlass.handled
        where expires_at - handled_at between interval '29 days' and interval '31 days'";
    assert_eq!(shop.number(kept).await, 1);
    let refused = async |sql: String| super::refusal(&shop.user, &sql).await;
    assert_eq!(refused(once("'b'", 2)).await.0, "WL006");
    let (code, text) = refused(once("''", 1)).await;
    assert_eq!((code.as_str(), text.as_str()), ("WL002", "key is empty [WL-0002]"));
    let (code, text) = refused(once("'b', interval '0'", 1)).await;
    assert_eq!(code, "WL002");
    assert!(text.contains(r#"key "b" is to be kept for"#), "{text}");
    let nowhere = format!("select windlass.once('{run}', 'ship', 1, 'a')");
    assert_eq!(refused(nowhere).await.0, "WL004");
    assert_eq!(shop.reap().await, 1);
    assert_eq!(refused(once("'c'", 1)).await.0, "WL006");
}

#[tokio::test]
async fn a_role_with_the_documented_rights_and_no_others_can_do_it() {
    let shop = Shop::open().await;
    let role = crate::postgres::role::Role::new(&shop.database, "handler").await;
    let grants = format!(
        "grant insert on payments to {0};
         grant usage on schema windlass to {0};
         grant execute on function windlass.begin_once, windlass.end_once to {0}",
        role.name()
    );
    shop.user.batch_execute(&grants).await.expect("the test may do that");
    let work = Arc::new(Work::default());
    let (pay, book) = pay(&pool(&role.url(&shop.database)), &work, 1);
    let worker = shop.worker(&pay).spawn().expect("it starts");
    for _ in 0..2 {
        assert_eq!(output(&shop.start(&pay, "a").await, &book).await, 1);
    }
    worker.drain().await.expect("it drains");
}
