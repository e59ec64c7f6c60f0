//! Whether the price of a claim stays what it is, whatever the database has been through:
//! `cargo bench -p windlass --features embedded --bench flatness`.
//!
//! The same statements and verbs are measured in a new database, in one with a million
//! finished tasks, a hundred thousand ready ones and a thousand tenants, and in that one
//! after a hundred thousand more tasks have passed while a repeatable-read transaction was
//! open, which keeps every dead row. A private server is made for it, in a directory that is
//! removed afterwards.
//!
//! Statements are measured by `explain (analyze, buffers)` in transactions that are rolled
//! back, verbs by the clock. Smaller sizes, to try it out: `-- 0.01`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};
use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::{PostgresOptions, PostgresStore, migrate};
use windlass::store::{NewRun, Store, WorkerLink};
use windlass_core::{Definition, RunId, Tenant, Timestamp};

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/it/postgres/driver.rs"]
mod driver;
#[path = "../tests/it/postgres/explain.rs"]
mod explain;
#[path = "../tests/it/postgres/fill.rs"]
mod fill;

use driver::{Worker, new_run, start, success, workflow};
use fill::Fill;

/// How many tasks a measured claim takes, and a measured start makes.
const BATCH: usize = 100;

/// How many tasks pass at a time while the old snapshot is held.
const PASSING_BATCH: usize = 500;

/// Each is measured this often; the median counts.
const REPEATS: usize = 21;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let size = std::env::args().skip(1).find_map(|one| one.parse::<f64>().ok()).unwrap_or(1.0);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(size))
}

async fn run(size: f64) -> Result<()> {
    let place = std::env::temp_dir().join(format!("windlass-flatness-{}", std::process::id()));
    let server = EmbeddedOptions::new(&place).temporary(true).start().await?;
    let scaled = |count: f64| (count * size) as u32;

    let mut table = Table::default();
    let fill = Fill { finished: 0, ready: 5_000, tenants: 10 };
    let new = Bench::new(&server.url(), "new", fill).await?;
    new.measure(&mut table).await?;

    let fill = Fill { finished: scaled(1e6), ready: scaled(1e5), tenants: scaled(1e3) };
    println!("filling: {fill:?}");
    let full = Bench::new(&server.url(), "full", fill).await?;
    full.measure(&mut table).await?;

    let old = connect(&full.url).await?;
    old.batch_execute("begin isolation level repeatable read; select from windlass.ready limit 1")
        .await?;
    full.pass(scaled(1e5) as usize).await?;
    full.measure(&mut table).await?;
    old.batch_execute("commit").await?;

    table.print(["new", "full", "old snapshot"]);
    server.stop().await?;
    Ok(())
}

/// A migrated database with a store on it, and a worker that has joined.
struct Bench {
    url: String,
    client: Client,
    store: PostgresStore,
    definition: Arc<Definition>,
    worker: Worker,
    tenants: usize,
    /// How many runs were started.
    started: AtomicUsize,
}

impl Bench {
    async fn new(server: &str, name: &str, fill: Fill) -> Result<Self> {
        let admin = connect(server).await?;
        admin.batch_execute(&format!("create database {name}_tasks")).await?;
        let (server, _) = server.rsplit_once('/').ok_or("the address has no database")?;
        let url = format!("{server}/{name}_tasks");
        let options = PostgresOptions::new(&url);
        migrate(&options).await?;
        let client = connect(&url).await?;
        for (name, value) in explain::planner_settings() {
            client.batch_execute(&format!("set {name} = {value}")).await?;
        }
        for (name, types) in [
            ("claim", "int[], bigint[], bigint[], uuid, bigint, timestamptz"),
            ("due_timers", "timestamptz, timestamptz, bigint"),
            ("next_due", "timestamptz"),
            ("lock_worker", "uuid"),
            ("pulses", "uuid[]"),
            ("virtual_times", "int[]"),
            (
                "enqueue",
                "uuid[], int[], int[], int[], int[], int[], bigint[], int[], int[], bigint[], text[]",
            ),
        ] {
            let text = explain::source(&format!("sql/{name}.sql"));
            client.batch_execute(&format!("prepare {name} ({types}) as {text}")).await?;
        }
        let store = PostgresStore::connect(options).await?;
        let definition = workflow("one", &["a"]);
        start(&store, &definition).await;
        let worker = Worker::join(&store, &definition).await;
        fill.write(&client).await?;
        client.batch_execute("vacuum analyze").await?;
        let (tenants, started) = (fill.tenants as usize, AtomicUsize::new(0));
        Ok(Bench { url, client, store, definition, worker, tenants, started })
    }

    /// Starts runs of a single task, for the tenants in turn. Of ten, `delayed` wait for a
    /// timer.
    async fn start(&self, count: usize, delayed: usize) -> Result<()> {
        let first = self.started.fetch_add(count, Ordering::Relaxed);
        let run = |number: usize| {
            let delay = Duration::from_millis(u64::from(number % 10 < delayed));
            let tenant = Tenant::new(format!("filled {}", 1 + number % self.tenants))?;
            let now = Timestamp::from_micros(1_800_000_000_000_000 + number as i64 * 1_000);
            let id = RunId::from_parts(now, number as u128);
            Ok(NewRun { id, tenant, delay, ..new_run(&self.definition) })
        };
        let runs = (first..first + count).map(run).collect::<Result<_>>()?;
        for answer in self.store.start_runs(runs).await? {
            answer?;
        }
        Ok(())
    }

    async fn claim_and_finish(&self, count: usize) -> Result<(Duration, Duration)> {
        let began = Instant::now();
        let claimed = self.worker.claim(&self.store, count).await;
        let claim = began.elapsed();
        if claimed.len() != count {
            return Err(format!("{} of {count} tasks were there to claim", claimed.len()).into());
        }
        let began = Instant::now();
        self.store.finish(claimed.iter().map(success).collect()).await?;
        Ok((claim, began.elapsed()))
    }

    /// Lets tasks pass: as many are started as are finished. Of ten, one waits for a timer.
    async fn pass(&self, count: usize) -> Result<()> {
        let batches = count.div_ceil(PASSING_BATCH);
        let mut began = Instant::now();
        for batch in 1..=batches {
            self.start(PASSING_BATCH, 1).await?;
            self.store.promote_due(PASSING_BATCH).await?;
            self.claim_and_finish(PASSING_BATCH).await?;
            if batch % batches.div_ceil(10) == 0 {
                let tasks = batches.div_ceil(10) * PASSING_BATCH;
                let rate = tasks as f64 / began.elapsed().as_secs_f64();
                println!("{:>7} passed, {rate:.0} a second", batch * PASSING_BATCH);
                began = Instant::now();
            }
        }
        Ok(())
    }

    async fn measure(&self, table: &mut Table) -> Result<()> {
        let row = self.client.query_one(
            "select l.id, l.level_id, w.last_claim, d.id, clock_timestamp()::text,
                coalesce((select max(m.tag) from windlass.marks m), 0)
             from windlass.routes l, windlass.pulses w, windlass.definitions d",
            &[],
        );
        let row = row.await?;
        let (route, level, last): (i32, i32, i64) = (row.get(0), row.get(1), row.get(2));
        let (definition, now, floor): (i32, &str, i64) = (row.get(3), row.get(4), row.get(5));
        let worker = self.worker.id;
        let front = i64::MIN;
        let claim = |from: i64| {
            format!(
                "claim('{{{route}}}', '{{{from}}}', '{{{BATCH}}}', '{worker}', {last} + 1, now())"
            )
        };
        let list = |value: &dyn Fn(usize) -> String| {
            let values: Vec<String> = (1..=BATCH).map(value).collect();
            format!("'{{{}}}'", values.join(","))
        };
        let same = |value: i32| list(&|_| value.to_string());
        let enqueue = format!(
            "enqueue({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})",
            list(&|n| format!("00000000-0000-0000-0000-{n:012}")),
            same(0),
            same(definition),
            same(route),
            same(level),
            list(&|n| (1 + n % 10).to_string()),
            same(0),
            same(0),
            same(3),
            list(&|_| "null".to_owned()),
            list(&|_| "null".to_owned()),
        );
        let statements = [
            ("claim 100", claim(floor)),
            ("claim 100 without a floor", claim(front)),
            ("enqueue 100", enqueue),
            ("virtual time", format!("virtual_times('{{{level}}}')")),
            ("lock worker", format!("lock_worker('{worker}')")),
            ("its pulse", format!("pulses('{{{worker}}}')")),
            (
                "due timers",
                format!("due_timers(timestamptz '{now}' - interval '1 s', '{now}', 100)"),
            ),
            ("due timers without a floor", format!("due_timers('-infinity', '{now}', 100)")),
            ("next due", format!("next_due(timestamptz '{now}' - interval '1 s')")),
        ];
        for (name, call) in statements {
            table.add(&format!("{name}: buffers, ms"), self.explain(&call).await?);
        }
        let (mut starts, mut claims, mut finishes) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..REPEATS {
            let began = Instant::now();
            self.start(BATCH, 0).await?;
            starts.push(millis(began.elapsed()));
            let (claim, finish) = self.claim_and_finish(BATCH).await?;
            claims.push(millis(claim));
            finishes.push(millis(finish));
        }
        table.add("verb start 100: ms", format!("{:.1}", median(starts)));
        table.add("verb claim 100: ms", format!("{:.1}", median(claims)));
        table.add("verb finish 100: ms", format!("{:.1}", median(finishes)));
        Ok(())
    }

    /// The median of buffers and milliseconds of a prepared statement, rolled back.
    async fn explain(&self, call: &str) -> Result<String> {
        let (mut buffers, mut times) = (Vec::new(), Vec::new());
        for _ in 0..REPEATS {
            let sql = format!(
                "begin deferrable; explain (analyze, buffers, format json) execute {call}; rollback"
            );
            let explained = explain::explain(&self.client, &sql).await?;
            buffers.push(explain::buffers(&explained) as f64);
            times.push(explained["Execution Time"].as_f64().unwrap_or_default());
        }
        Ok(format!("{:.0}, {:.2}", median(buffers), median(times)))
    }
}

/// What was measured, by name.
#[derive(Default)]
struct Table {
    names: Vec<String>,
    rows: BTreeMap<String, Vec<String>>,
}

impl Table {
    fn add(&mut self, name: &str, value: String) {
        if !self.rows.contains_key(name) {
            self.names.push(name.to_owned());
        }
        self.rows.entry(name.to_owned()).or_default().push(value);
    }

    fn print(&self, columns: [&str; 3]) {
        let [first, second, third] = columns;
        println!("{:<40} {first:>16} {second:>16} {third:>16}", "");
        for name in &self.names {
            print!("{name:<40}");
            for value in &self.rows[name] {
                print!(" {value:>16}");
            }
            println!();
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
