//! What workers answer whoever watches them, and that it is so.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass::store::{Duty, QueueStore as _};
use windlass::{Ctx, RetryPolicy, RunState, TaskError, Windlass, Workflow};

use crate::database::TestDatabase;

const PATIENCE: Duration = Duration::from_secs(30);

/// The samples of a scrape, by what stands before their values.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(sample).collect()
}

async fn scrape(address: SocketAddr) -> BTreeMap<String, f64> {
    tokio::task::spawn_blocking(move || scrape_now(address)).await.unwrap()
}

fn scrape_now(address: SocketAddr) -> BTreeMap<String, f64> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: worker\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    samples(body)
}

/// Fails once, and once for good if it is told to.
fn fragile() -> Workflow<bool> {
    let mut fragile = Workflow::<bool>::builder("fragile");
    let retry = RetryPolicy::fixed(Duration::from_millis(1)).attempts(2);
    fragile.task("work").retry(retry).run(async |ctx: Ctx<bool>| {
        match ctx.attempt() == 1 || *ctx.input() {
            true => Err(TaskError::new("not yet")),
            false => Ok(()),
        }
    });
    fragile.build().unwrap()
}

async fn assert_counted(windlass: &Windlass) -> SocketAddr {
    let fragile = fragile();
    let worker = windlass.worker().register(&fragile).name("mail-1").slots(3);
    let worker = worker.health("127.0.0.1:0").spawn().unwrap();
    let address = worker.health_address().unwrap();
    for fails in [false, false, true] {
        let run = windlass.start(&fragile, fails).await.unwrap();
        assert_eq!(run.wait().await.unwrap().state == RunState::Failed, fails);
    }
    let counted = scrape(address).await;
    let expected = [
        ("windlass_runs_started_total", 3.0),
        ("windlass_attempts_total{outcome=\"succeeded\"}", 2.0),
        ("windlass_attempts_total{outcome=\"failed\"}", 1.0),
        ("windlass_attempts_total{outcome=\"retried\"}", 3.0),
        ("windlass_tasks_claimed_total{queue=\"default\"}", 6.0),
        ("windlass_refusals_total{reason=\"stale_fence\"}", 0.0),
        ("windlass_worker_slots{worker=\"mail-1\"}", 3.0),
        ("windlass_worker_running{worker=\"mail-1\"}", 0.0),
        ("windlass_worker_ready{worker=\"mail-1\"}", 1.0),
        ("windlass_duty_leads{duty=\"promote_due\"}", 1.0),
        ("windlass_duty_items_total{duty=\"promote_due\"}", 3.0),
        ("windlass_timer_lateness_seconds_count", 3.0),
        ("windlass_store_up", 1.0),
    ];
    for (name, value) in expected {
        assert_eq!(counted.get(name), Some(&value), "{name} in {counted:#?}");
    }
    let claims = counted["windlass_batch_size_sum{verb=\"claim\"}"];
    assert_eq!(claims, 6.0);
    drop(worker);
    address
}

#[tokio::test]
async fn a_worker_counts_what_it_does() {
    let windlass = Windlass::memory();
    assert_counted(&windlass).await;
    let text = windlass.metrics().await;
    assert_eq!(samples(&text)["windlass_attempts_total{outcome=\"succeeded\"}"], 2.0);
    assert!(!text.contains("windlass_pool_connections"), "a store in memory has none");
}

#[tokio::test]
async fn what_is_told_of_queues_is_what_sql_counts() {
    let database = TestDatabase::new().await;
    let options = PostgresOptions::new(database.url()).max_connections(7);
    let store = Arc::new(PostgresStore::connect(options).await.unwrap());
    let windlass = Windlass::with_store(Arc::clone(&store) as _);
    let address = assert_counted(&windlass).await;
    let mut slow = Workflow::<()>::builder("slow");
    slow.task("work").queue("mail \"and\" more").run(async |_| Ok::<_, TaskError>(()));
    let slow = slow.build().unwrap();
    for priority in [0, 0, 7] {
        windlass.start(&slow, ()).priority(priority).await.unwrap();
    }
    let client = database.client().await;
    store.roll_up(Duty::Rollup.batch()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let counted = scrape(address).await;
    let sql = "select v.queue, v.priority, count(q.run_id)
        from windlass.levels v left join windlass.ready q on q.level_id = v.id
        group by v.id order by v.queue, v.priority";
    let rows = client.query(sql, &[]).await.unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        let queue = row.get::<_, &str>(0).replace('"', "\\\"");
        let (priority, ready) = (row.get::<_, i16>(1), row.get::<_, i64>(2));
        let labels = format!("{{queue=\"{queue}\",priority=\"{priority}\"}}");
        assert_eq!(counted[&format!("windlass_queue_ready{labels}")], ready as f64, "{labels}");
        let age = counted[&format!("windlass_queue_oldest_age_seconds{labels}")];
        assert_eq!(age > 0.0, ready > 0, "{labels} {age}");
    }
    assert_eq!(counted["windlass_queue_came_total{queue=\"default\",priority=\"0\"}"], 6.0);
    assert_eq!(counted["windlass_queue_went_total{queue=\"default\",priority=\"0\"}"], 6.0);
    assert_eq!(counted["windlass_pool_connections_max"], 7.0);
}

#[tokio::test]
async fn a_scrape_is_answered_also_while_handlers_keep_the_runtime_busy() {
    let windlass = Windlass::memory();
    let address = assert_counted(&windlass).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    // Nothing else runs on this thread meanwhile.
    let counted = scrape_now(address);
    assert_eq!(counted["windlass_store_up"], 0.0);
    assert_eq!(counted["windlass_runs_started_total"], 3.0);
}

#[tokio::test]
async fn a_scrape_is_answered_also_while_the_database_is_away() {
    let database = TestDatabase::new().await;
    let windlass = Windlass::connect(PostgresOptions::new(database.url())).await.unwrap();
    let address = assert_counted(&windlass).await;
    let client = database.client().await;
    client.batch_execute("alter schema windlass rename to gone").await.unwrap();
    let began = Instant::now();
    loop {
        let counted = scrape(address).await;
        if counted["windlass_store_up"] == 0.0 {
            assert!(!counted.keys().any(|name| name.starts_with("windlass_queue")));
            assert_eq!(counted["windlass_runs_started_total"], 3.0);
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{counted:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
