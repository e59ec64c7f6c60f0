//! What is looked up costs the same, however much has passed: with a snapshot open that
//! keeps every dead row, as a long report or a backup does.
//!
//! `cargo bench --bench flatness` measures it at full size.

use tokio_postgres::Client;
use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass::store::{NewRun, Store, WorkerLink};
use windlass_core::Priority;

use super::driver::{Worker, new_run, start, succeed, success, workflow};
use super::explain::{buffers, explain};
use super::fill::Fill;
use super::plans::prepare_all;
use crate::database::TestDatabase;

/// How many claims are made where each could be a sweep.
const CLAIMS: usize = 20;

/// A database with ready tasks, and a session that has every statement prepared.
struct Bench {
    database: TestDatabase,
    client: Client,
    store: PostgresStore,
    worker: Worker,
    route: i32,
}

impl Bench {
    async fn new(ready: u32) -> Self {
        let database = TestDatabase::new().await;
        let client = database.client().await;
        prepare_all(&client).await;
        let store = connect(&database).await;
        let one = workflow("one", &["a"]);
        start(&store, &one).await;
        let worker = Worker::join(&store, &one).await;
        let fill = Fill { finished: 1, ready, tenants: 50 };
        fill.write(&client).await.expect("it can be filled");
        client.batch_execute("vacuum analyze").await.expect("it can be vacuumed");
        let route = client.query_one("select id from windlass.routes", &[]).await;
        let route = route.expect("there is one route").get(0);
        Bench { database, client, store, worker, route }
    }

    /// Opens a snapshot that keeps all rows until the session is dropped.
    async fn old_snapshot(&self) -> Client {
        let old = self.database.client().await;
        let open = "begin isolation level repeatable read; select from windlass.ready limit 1";
        old.batch_execute(open).await.expect("it can be opened");
        old
    }

    /// How many buffers a call of a prepared statement touches; it is rolled back.
    async fn buffers(&self, call: &str) -> u64 {
        let sql = format!(
            "begin deferrable; explain (analyze, buffers, format json) execute {call}; rollback"
        );
        buffers(&explain(&self.client, &sql).await.expect("it can be explained"))
    }

    async fn number(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.expect("there is one").get(0)
    }

    /// A claim as the store makes it, from virtual time on; `None` for the front. Of three,
    /// the cheapest: whatever else the server does meanwhile makes none cheaper.
    async fn claim(&self, count: usize, from: Option<i64>) -> u64 {
        let (route, worker) = (self.route, self.worker.id);
        let from = from.unwrap_or(i64::MIN);
        let claim = format!(
            "claim('{{{route}}}', '{{{from}}}', '{{{count}}}', '{{{worker}}}', '{{1000000}}', now())"
        );
        let mut least = u64::MAX;
        for _ in 0..3 {
            least = least.min(self.buffers(&claim).await);
        }
        least
    }

    /// Lets tasks pass, in batches of 500.
    async fn pass(&self, count: usize) {
        for _ in 0..count / 500 {
            let claimed = self.worker.claim(&self.store, 500).await;
            assert_eq!(claimed.len(), 500);
            let completions = claimed.iter().map(success).collect();
            self.store.finish(completions).await.expect("finishing works");
        }
    }

    async fn virtual_time(&self) -> i64 {
        self.number("select coalesce(max(tag), 0) from windlass.marks").await
    }
}

async fn connect(database: &TestDatabase) -> PostgresStore {
    let options = PostgresOptions::new(database.url());
    PostgresStore::connect(options).await.expect("the database is there")
}

#[tokio::test]
async fn a_claim_touches_no_more_buffers_after_thousands_of_others() {
    let bench = Bench::new(10_000).await;
    let _old = bench.old_snapshot().await;
    // Until the indexes of leases have their second level.
    bench.pass(2_000).await;
    let before = bench.claim(100, Some(bench.virtual_time().await)).await;
    bench.pass(7_500).await;
    let after = bench.claim(100, Some(bench.virtual_time().await)).await;
    let from_the_front = bench.claim(100, None).await;
    // Whether an insertion goes down an index or straight to its last page differs by one
    // buffer for each task and index.
    let slack = 120;
    assert!(after <= before + slack, "{before} buffers, then {after}");
    assert!(from_the_front > after + slack, "nothing is kept: {from_the_front} buffers");
}

#[tokio::test]
async fn many_small_claims_do_not_make_the_next_one_dearer() {
    let bench = Bench::new(500).await;
    let worker = bench.worker.id;
    let lookups = async || {
        let lock = bench.buffers(&format!("lock_worker('{worker}')")).await;
        (lock, bench.buffers(&format!("pulses('{{{worker}}}')")).await)
    };
    let before = bench.claim(1, Some(0)).await;
    let (lock, pulse) = lookups().await;
    let _old = bench.old_snapshot().await;
    for _ in 0..200 {
        let claimed = bench.worker.claim(&bench.store, 1).await.remove(0);
        succeed(&bench.store, &claimed).await;
    }
    let after = bench.claim(1, Some(bench.virtual_time().await)).await;
    assert!(after <= before + 20, "{before} buffers, then {after}");
    let oldest = bench.number("select oldest_claim from windlass.pulses").await;
    assert_eq!(oldest, 200, "the claims before the last are known to be done with");
    let after = lookups().await;
    assert!(after.0 <= lock + 1, "{lock} buffers to lock a worker, then {}", after.0);
    assert!(after.1 <= pulse + 6, "{pulse} buffers to look at its pulse, then {}", after.1);
}

#[tokio::test]
async fn timers_that_are_past_are_not_looked_at_again() {
    let bench = Bench::new(1).await;
    let _old = bench.old_snapshot().await;
    let pass = "
        insert into windlass.timers (run_id, idx, due, seq, fence, attempt, max_attempts)
        select gen_random_uuid(), 0, now() - n * interval '1 s', n, 0, 0, 3
        from generate_series(10, 3000) n;
        delete from windlass.timers;";
    bench.client.batch_execute(pass).await.expect("they pass");
    for (behind, from_the_front) in [
        ("due_timers(now() - interval '1 s', now(), 100)", "due_timers('-infinity', now(), 100)"),
        ("next_due(now() - interval '1 s')", "next_due('-infinity')"),
    ] {
        let (behind, all) = (bench.buffers(behind).await, bench.buffers(from_the_front).await);
        assert!(behind <= 10, "{behind} buffers behind the timers that are past");
        assert!(all > 10 * behind, "no dead rows were kept: {all} buffers");
    }
}

/// Another process has taken everything, and this one finds its route empty.
#[tokio::test]
async fn a_store_that_finds_nothing_does_not_look_at_dead_rows_each_time() {
    let bench = Bench::new(10_000).await;
    let _old = bench.old_snapshot().await;
    let drain = "
        insert into windlass.marks (level_id, worker_id, tag)
        select level_id, '00000000-0000-0000-0000-000000000000', max(tag)
        from windlass.ready group by level_id;
        delete from windlass.ready;";
    bench.client.batch_execute(drain).await.expect("it can be drained");
    let sweep = bench.claim(100, None).await;
    assert_not_swept_each_time(bench, sweep, async |worker, store| {
        assert_eq!(worker.claim(store, 100).await.len(), 0);
    })
    .await;
}

/// What is more urgent has enough for every claim, and others have worked in the route that
/// is less so.
#[tokio::test]
async fn a_route_whose_turn_does_not_come_is_not_looked_at_from_the_front_each_time() {
    let bench = Bench::new(10_000).await;
    let _old = bench.old_snapshot().await;
    let sql = "
        insert into windlass.marks (level_id, worker_id, tag)
        select level_id, '00000000-0000-0000-0000-000000000000', max(tag) - 1
        from windlass.ready group by level_id;
        delete from windlass.ready where tag < (select max(tag) from windlass.ready);";
    bench.client.batch_execute(sql).await.expect("others can work");
    let sweep = bench.claim(1, None).await;
    let one = workflow("one", &["a"]);
    let urgent = || NewRun { priority: Priority::MAX, ..new_run(&one) };
    let runs = std::iter::repeat_with(urgent).take(CLAIMS).collect();
    bench.store.start_runs(runs).await.expect("they can be started");
    assert_not_swept_each_time(bench, sweep, async |worker, store| {
        assert_eq!(worker.claim(store, 1).await.len(), 1);
    })
    .await;
}

/// Claims with a store that is new and knows no floors.
async fn assert_not_swept_each_time(
    bench: Bench,
    sweep: u64,
    claim: impl AsyncFn(&Worker, &PostgresStore),
) {
    let Bench { database, client, store, worker, .. } = bench;
    drop((client, store));
    let watch = database.client().await;
    let before = blocks(&watch).await;
    let store = connect(&database).await;
    for _ in 0..CLAIMS {
        claim(&worker, &store).await;
    }
    drop(store);
    let touched = blocks(&watch).await - before;
    let each_time = CLAIMS as u64 * sweep;
    assert!(touched < each_time / 2, "{touched} buffers, of {each_time} with {CLAIMS} sweeps");
    assert!(touched > sweep / 2, "the sessions have not told what they touched: {touched}");
}

/// How many buffers of the ready tasks have been touched, once all sessions that did are
/// gone: a session tells at its end.
async fn blocks(watch: &Client) -> u64 {
    let others = "select count(*) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()
            and state <> 'idle in transaction'";
    while watch.query_one(others, &[]).await.expect("it is counted").get::<_, i64>(0) > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let is_late = "select current_setting('server_version_num')::int < 150000";
    if watch.query_one(is_late, &[]).await.expect("it has a version").get(0) {
        // What a session tells goes through another process there.
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    }
    let sql =
        "select (t.heap_blks_hit + t.heap_blks_read + t.idx_blks_hit + t.idx_blks_read)::bigint
        from pg_statio_user_tables t where t.relname = 'ready'";
    let count: i64 = watch.query_one(sql, &[]).await.expect("it is counted").get(0);
    count.unsigned_abs()
}
