//! Durable functions whose worker processes are killed wherever they are.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

mod backends;
mod cases;
mod duties;
mod everywhere;
mod link;
mod schedules;
mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, Pool};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;
use windlass::store::postgres::{AuditOptions, PostgresOptions, audit};
use windlass::{Ctx, DutyOptions, Function, RetryPolicy, RunHandle, RunState, TaskError, Windlass};

use crate::database::TestDatabase;

/// Says that this process is a worker, and for which database.
const URL: &str = "WINDLASS_TEST_KILLING_URL";

/// The shortest lease, so that what a killed worker held comes back soon.
const LEASE: Duration = Duration::from_secs(2);

/// How long processes are killed, unless all runs end before.
const KILLING: Duration = Duration::from_secs(2);

/// How long all of it may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many runs there are, and how many processes work on them.
const RUNS: usize = 40;
const WORKERS: usize = 3;

/// How many runs a process has at once: few, so that runs begin as long as there is killing.
const SLOTS: usize = 4;

/// The steps of the function, in the order of its output.
const STEPS: [&str; 5] = ["reserve", "pack", "label", "charge", "ship"];

/// Two steps more are the sleep and the signal.
const CALLS: i32 = 7;

/// What a run comes to: the token of each step, and what the signal said.
type Output = (Vec<i64>, i64);

/// Where steps leave what they have done. A token is another one each time.
const EFFECTS: &str = "create table public.effects (run uuid, step text, token bigint)";

/// The step that leaves what it has done in the transaction that records it.
const ONCE: &str = "charge";

const INSERT: &str = "insert into public.effects values ($1, $2, $3)";

fn order(client: Arc<Client>, pool: Pool) -> Function<(), Output> {
    let builder = Function::<(), Output>::builder("order");
    let builder = builder.retry(RetryPolicy::fixed(Duration::from_millis(10)).attempts(1_000));
    builder.run(move |ctx| run(ctx, Arc::clone(&client), pool.clone())).unwrap()
}

async fn run(ctx: Ctx<()>, client: Arc<Client>, pool: Pool) -> Result<Output, TaskError> {
    let step = |name: &'static str| {
        let (run, client) = (*ctx.run_id().as_uuid(), Arc::clone(&client));
        ctx.step(name, async move || {
            effect(async |token| client.execute(INSERT, &[&run, &name, &token]).await).await
        })
    };
    let reserve = step("reserve").await?;
    let (pack, label) = tokio::join!(step("pack"), step("label"));
    ctx.sleep(Duration::from_millis(50)).await?;
    let run = *ctx.run_id().as_uuid();
    let charge = ctx.transaction(ONCE, &pool, async move |tx| {
        effect(async |token| tx.execute(INSERT, &[&run, &ONCE, &token]).await).await
    });
    let charge = charge.await?;
    let paid = ctx.signal::<i64>("paid").await?;
    let ship = step("ship").await?;
    Ok((vec![reserve, pack?, label?, charge, ship], paid))
}

/// Does something that stays, with a moment before and after it at which to be killed.
async fn effect<W>(write: impl FnOnce(i64) -> W) -> Result<i64, TaskError>
where
    W: Future<Output = Result<u64, tokio_postgres::Error>>,
{
    let pause = || tokio::time::sleep(Duration::from_millis(fastrand::u64(5..20)));
    let token = fastrand::i64(0..1 << 50);
    pause().await;
    write(token).await.map_err(TaskError::new)?;
    pause().await;
    Ok(token)
}

fn pool(url: &str) -> Pool {
    Pool::builder(Manager::new(url.parse().unwrap(), NoTls)).max_size(SLOTS).build().unwrap()
}

async fn connect(url: &str) -> Arc<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    Arc::new(client)
}

#[tokio::test]
#[ignore = "not a test: the worker that another test starts and kills"]
async fn worker() {
    let Ok(url) = std::env::var(URL) else { return };
    // Nobody is left behind by a test that is killed itself.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
    let windlass = Windlass::connect(url.as_str()).await.unwrap();
    let order = order(connect(&url).await, pool(&url));
    let worker = windlass.worker().register(&order).slots(SLOTS).lease(LEASE).duties(None);
    worker.spawn().unwrap().ended().await.unwrap();
}

/// A worker process; killed when it is dropped.
struct Worker(Child);

impl Worker {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killing::worker", "--ignored", "--nocapture"]).env(URL, url);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Worker(command.spawn().unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // By the standard library that is SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills and replaces workers for a while, and lets them end what is left.
async fn kill_until_ended(url: &str, client: &Client, runs: &[RunHandle]) -> usize {
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::start(url)).collect();
    let mut unsignalled: Vec<_> = runs.iter().enumerate().collect();
    let (began, mut kills) = (Instant::now(), 0);
    loop {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(20..250))).await;
        // Some before anybody asks for it, some while somebody waits.
        let many = fastrand::usize(0..=RUNS / 5).min(unsignalled.len());
        for (place, run) in unsignalled.drain(..many) {
            run.signal("paid", &place).await.unwrap();
        }
        let sql = "select count(*) filter (where ended_at is null),
            (select count(*) from windlass.leases) from windlass.runs";
        let row = client.query_one(sql, &[]).await.unwrap();
        let (open, leases): (i64, i64) = (row.get(0), row.get(1));
        if open == 0 {
            return kills;
        }
        assert!(began.elapsed() < PATIENCE, "{open} runs do not end");
        if began.elapsed() < KILLING && leases > 0 {
            workers[fastrand::usize(..WORKERS)] = Worker::start(url);
            kills += 1;
        }
    }
}

/// What windlass.steps says of a run: kind, name, place and value of each call.
async fn recorded(client: &Client, run: Uuid) -> Vec<(String, String, Option<i32>, i64)> {
    let sql = "select kind, name, number, coalesce(value::text, '0')::bigint
        from windlass.steps where run_id = $1 order by call";
    let rows = client.query(sql, &[&run]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_end_right_wherever_their_processes_are_killed() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::seed(seed);
    let database = TestDatabase::new().await;
    let url = database.url();
    let windlass = Windlass::connect(url.as_str()).await.unwrap();
    let client = connect(&url).await;
    client.batch_execute(EFFECTS).await.unwrap();
    // They are not killed: how leaders are replaced is tested elsewhere, and takes its time.
    let duties = windlass.duties(DutyOptions::default()).unwrap();
    let order = order(Arc::clone(&client), pool(&url));
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(windlass.start(&order, ()).await.unwrap());
    }
    let kills = kill_until_ended(&url, &client, &runs).await;

    let mut effects = BTreeMap::<(Uuid, String), BTreeSet<i64>>::new();
    for row in client.query("select run, step, token from public.effects", &[]).await.unwrap() {
        effects.entry((row.get(0), row.get(1))).or_default().insert(row.get(2));
    }
    let mut lost = 0;
    for (place, run) in runs.iter().enumerate() {
        assert_eq!(run.get().await.unwrap().state, RunState::Succeeded, "run {place}");
        let (tokens, paid) = run.output(order.output()).await.unwrap();
        assert_eq!(paid, i64::try_from(place).unwrap());
        let id = *run.id().as_uuid();
        let calls = recorded(&client, id).await;
        let numbers: BTreeSet<_> = calls.iter().filter_map(|call| call.2).collect();
        assert_eq!(numbers, (1..=CALLS).collect(), "each has one result: {calls:?}");
        assert_eq!(calls.len(), numbers.len(), "{calls:?}");
        let steps = calls.iter().filter(|call| call.0 == "step");
        let steps: Vec<_> = steps.map(|call| (call.1.as_str(), call.3)).collect();
        let expected: Vec<_> = STEPS.into_iter().zip(tokens).collect();
        assert_eq!(steps, expected, "the function saw what is recorded");
        for (name, token) in steps {
            let done = effects.get(&(id, name.to_owned()));
            assert!(done.is_some_and(|done| done.contains(&token)), "{name} of run {place}");
            if name == ONCE {
                assert_eq!(done, Some(&BTreeSet::from([token])), "{name} of run {place}");
            }
        }
        let history = run.history().await.unwrap();
        lost += history.iter().filter(|event| event.word() == "lease_expired").count();
    }
    let done: usize = effects.values().map(BTreeSet::len).sum();
    println!(
        "{kills} kills, {lost} functions lost, {done} effects of {} steps",
        RUNS * STEPS.len()
    );
    assert!(kills > 0 && lost > 0, "{kills} kills, {lost} lost");
    drop(duties);
    let report = audit(&PostgresOptions::new(&url), &AuditOptions::default()).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
}
