//! Workers at work while something happens between them and their database: nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use tokio_postgres::Client;
use windlass::store::postgres::{
    AuditOptions, DoctorOptions, PostgresOptions, PostgresStore, audit, doctor, migrate,
};
use windlass::store::{RetentionRule, Store};
use windlass::{Ctx, RunState, TaskError, Windlass, WorkerHandle, Workflow};

use super::bouncer::PgBouncer;
use super::pooler::Pooler;
use super::server::Server;
use super::warnings::Warnings;
use crate::database::TestDatabase;

/// The lease of the workers.
const LEASE: Duration = Duration::from_secs(15);

/// How long everything together may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// How many tasks each worker runs at once.
const SLOTS: usize = 4;

/// Two tasks, one after the other, that count how often they ran.
fn pair(ran: &Arc<AtomicUsize>) -> Workflow<()> {
    pair_after(ran, None)
}

/// The same; the first ones all wait until as many as are to meet have begun.
fn pair_after(ran: &Arc<AtomicUsize>, meeting: Option<&Arc<Barrier>>) -> Workflow<()> {
    let handler = |meeting: Option<Arc<Barrier>>| {
        let ran = Arc::clone(ran);
        move |_: Ctx<()>| {
            ran.fetch_add(1, Ordering::Relaxed);
            let meeting = meeting.clone();
            async move {
                match meeting {
                    Some(meeting) => {
                        meeting.wait().await;
                    }
                    None => tokio::time::sleep(Duration::from_millis(2)).await,
                }
                Ok::<_, TaskError>(())
            }
        }
    };
    let mut pair = Workflow::<()>::builder("pair");
    let first = pair.task("first").run(handler(meeting.cloned()));
    pair.task("second").after(&first).run(handler(None));
    pair.build().expect("the workflow is right")
}

/// Some workers, each with a store of its own, and a backlog for them.
struct Load {
    workers: Vec<WorkerHandle>,
    ran: Arc<AtomicUsize>,
    runs: usize,
}

impl Load {
    async fn begin(options: &PostgresOptions, workers: usize, runs: usize) -> Load {
        let ran = Arc::new(AtomicUsize::new(0));
        let workflow = pair(&ran);
        Load::of((&workflow, LEASE), ran, options, workers, runs).await
    }

    async fn of(
        (workflow, lease): (&Workflow<()>, Duration),
        ran: Arc<AtomicUsize>,
        options: &PostgresOptions,
        workers: usize,
        runs: usize,
    ) -> Load {
        let engine = Windlass::connect(options.clone()).await.expect("the database is there");
        let starts: Vec<_> = (0..runs).map(|_| engine.start(workflow, ())).collect();
        for started in engine.start_all(starts).await.expect("the database is there") {
            started.expect("it can be started");
        }
        let mut load = Load { workers: Vec::new(), ran, runs };
        for _ in 0..workers {
            let engine = Windlass::connect(options.clone()).await.expect("there is room");
            let worker = engine.worker().register(workflow).slots(SLOTS).lease(lease).spawn();
            load.workers.push(worker.expect("the worker is set up right"));
        }
        load
    }

    /// Waits until a part of all tasks has run.
    async fn until_done(&self, part: f64) {
        let tasks = (2.0 * part * self.runs as f64) as usize;
        let began = Instant::now();
        while self.ran.load(Ordering::Relaxed) < tasks {
            assert!(
                began.elapsed() < PATIENCE,
                "{} of {tasks} ran",
                self.ran.load(Ordering::Relaxed)
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until every run has succeeded, and checks what is left behind.
    async fn end(self, client: &Client, options: &PostgresOptions) {
        let sql = "select count(*) from windlass.runs where state = 'succeeded'";
        let began = Instant::now();
        loop {
            let row = client.query_one(sql, &[]).await.expect("it can be counted");
            let ended = usize::try_from(row.get::<_, i64>(0)).expect("a count");
            if ended == self.runs {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{ended} of {} runs have ended", self.runs);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for worker in &self.workers {
            worker.begin_drain();
        }
        for worker in self.workers {
            worker.ended().await.expect("it has no reason to give up");
        }
        assert!(self.ran.load(Ordering::Relaxed) >= 2 * self.runs);
        let report = audit(options, &AuditOptions::new()).await.expect("it can be audited");
        assert!(report.is_clean(), "{report:#?}");
    }
}

/// What takes too long for every day; `cargo xtask test` runs it by name.
mod long {
    use super::*;

    /// Every slot of every worker is needed at once: a worker that finds no connection, or
    /// whose claim is lost, keeps all others waiting.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "long"]
    async fn two_hundred_workers_share_a_backlog() {
        const WORKERS: usize = 200;
        // Each store has one connection and a listener, and one store is nobody's worker.
        const SESSIONS_MAX: usize = 2 * (WORKERS + 1);
        let settings = vec![("max_connections", (SESSIONS_MAX + 20).to_string())];
        let server = Server::start_with(settings).await;
        let options = PostgresOptions::new(server.url()).max_connections(1);
        migrate(&options).await.expect("it can be migrated");
        let client = server.client().await;
        let ran = Arc::new(AtomicUsize::new(0));
        let meeting = Arc::new(Barrier::new(WORKERS * SLOTS));
        let workflow = pair_after(&ran, Some(&meeting));
        let runs = WORKERS * SLOTS;
        // So long that nobody is taken for dead on a machine that has other things to do.
        let lease = 4 * LEASE;
        let ran_too = Arc::clone(&ran);
        let load = Load::of((&workflow, lease), ran_too, &options, WORKERS, runs).await;
        load.until_done(1.0).await;
        let sql = "select count(*) from pg_stat_activity where application_name = 'windlass'";
        let sessions: i64 = client.query_one(sql, &[]).await.expect("it can be read").get(0);
        let sessions = usize::try_from(sessions).expect("a count");
        assert!(sessions <= SESSIONS_MAX, "{sessions} sessions");
        load.end(&client, &options).await;
        assert_eq!(ran.load(Ordering::Relaxed), 2 * runs, "nobody was taken for dead");
        let sql = "select count(*) from windlass.task_rows where fence > 1";
        let again: i64 = client.query_one(sql, &[]).await.expect("it can be read").get(0);
        assert_eq!(again, 0, "no claim was lost");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_database_under_load_loses_nothing() {
    let mut server = Server::start().await;
    let options = PostgresOptions::new(server.url());
    migrate(&options).await.expect("it can be migrated");
    let load = Load::begin(&options, 4, 600).await;
    for part in [0.2, 0.5] {
        load.until_done(part).await;
        server.stop().await;
        server.run().await;
    }
    load.end(&server.client().await, &options).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_that_die_or_hear_nothing_keep_nobody_from_working() {
    let database = TestDatabase::new().await;
    let elsewhere = TestDatabase::bare().await;
    let options = PostgresOptions::new(database.url());
    let deaf = PostgresOptions::new(database.url()).listen_url(elsewhere.url());
    let client = database.client().await;
    let load = Load::begin(&options, 2, 300).await;
    let engine = Windlass::connect(deaf).await.expect("the database is there");
    let pair = pair(&load.ran);
    let also = engine.worker().register(&pair).spawn().expect("it is set up right");
    let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                where datname = current_database() and query = 'listen windlass'";
    for part in [0.2, 0.4, 0.6] {
        load.until_done(part).await;
        let killed = client.query_one(kill, &[]).await.expect("it may");
        assert!(killed.get::<_, i64>(0) <= 4, "only those who listen");
    }
    load.end(&client, &options).await;
    // Nobody is left but the one that hears nothing, and nobody of its process starts these.
    let other = Windlass::connect(options).await.expect("the database is there");
    for _ in 0..2 {
        let run = other.start(&pair, ()).await.expect("it can be started");
        // It looks ten times as often; what else wakes it comes later.
        let run = run.wait_timeout(PATIENCE / 9).await.expect("it looks for what nobody tells");
        assert_eq!(run.state, RunState::Succeeded);
    }
    also.drain().await.expect("it has no reason to give up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_a_pooler_loses_are_asked_for_again() {
    let database = TestDatabase::new().await;
    let pooler = Pooler::start(&database.url()).await;
    let options = PostgresOptions::new(pooler.url()).pooled(true).listen_url(database.url());
    let load = Load::begin(&options, 3, 300).await;
    for part in [0.2, 0.4, 0.6] {
        load.until_done(part).await;
        pooler.lose_commits(3);
    }
    let direct = PostgresOptions::new(database.url());
    load.end(&database.client().await, &direct).await;
}

#[tokio::test]
async fn a_real_pooler_loses_nothing_and_is_told_from_a_server() {
    let database = TestDatabase::new().await;
    let Some(bouncer) = PgBouncer::start(&database.url()) else { return };
    let unannounced = Windlass::connect(PostgresOptions::new(bouncer.url())).await;
    let error = unannounced.expect_err("it keeps no settings").to_string();
    assert!(error.contains("`PostgresOptions::pooled`"), "{error}");
    let unannounced = PostgresOptions::new(bouncer.url());
    let report = doctor(&unannounced, &DoctorOptions::new()).await.expect("it can be reached");
    let seen = report.findings().find(|(check, _)| check.id == "server.pooler");
    let (_, seen) = seen.expect("it is seen by the doctor");
    assert!(seen.problem.contains("it drops session settings"), "{seen:?}");

    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let options = PostgresOptions::new(bouncer.url()).pooled(true);
    // A session that the pooler lets listen, and that will never hear anything.
    let deaf = options.clone().listen_url(bouncer.url());
    let load = Load::begin(&deaf, 4, 300).await;
    let client = database.client().await;
    let sessions = "select count(*) from pg_stat_activity where datname = current_database()
                    and backend_type = 'client backend' and pid <> pg_backend_pid()";
    for part in [0.2, 0.4, 0.6] {
        load.until_done(part).await;
        let sessions: i64 = client.query_one(sessions, &[]).await.expect("it can be read").get(0);
        assert!((1..=PgBouncer::SERVERS).contains(&sessions), "{sessions} sessions");
    }
    let began = Instant::now();
    while warnings.texts().iter().all(|text| !text.contains("not listening for changes")) {
        assert!(began.elapsed() < PATIENCE, "{:?}", warnings.texts());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    load.until_done(1.0).await;
    // What another process starts is found by those who hear nothing.
    let other = Windlass::connect(options).await.expect("the pooler is there");
    for _ in 0..2 {
        let run = other.start(&pair(&load.ran), ()).await.expect("it can be started");
        let run = run.wait_timeout(PATIENCE / 9).await.expect("it is looked for");
        assert_eq!(run.state, RunState::Succeeded);
    }
    let direct = PostgresOptions::new(database.url());
    Load { runs: load.runs + 2, ..load }.end(&client, &direct).await;
}

/// As every migration does that lets programs of the version before work on. Each has prepared
/// its statements long ago.
#[tokio::test]
async fn columns_that_are_added_under_load_disturb_nobody() {
    let database = TestDatabase::new().await;
    let options = PostgresOptions::new(database.url());
    let client = database.client().await;
    let sql = "select c.relname::text from pg_class c where c.relkind = 'r'
               and c.relnamespace = 'windlass'::regnamespace order by c.relname";
    let rows = client.query(sql, &[]).await.expect("the catalogs can be read");
    let tables: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert!(tables.iter().any(|table| table == "leases"), "{tables:?}");

    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let mut load = Load::begin(&options, 2, 50).await;
    let pair = pair(&load.ran);
    let starter = Windlass::connect(options.clone()).await.expect("the database is there");
    for table in &tables {
        let sql =
            format!("alter table windlass.{table} add column later integer not null default 7");
        client.batch_execute(&sql).await.expect(&sql);
        let run = starter.start(&pair, ()).await.expect("it can be started");
        load.runs += 1;
        let ended = run.wait_timeout(PATIENCE).await.expect("it ends");
        assert_eq!(ended.state, RunState::Succeeded, "after {table}");
    }
    load.end(&client, &options).await;
    assert_eq!(warnings.texts(), [""; 0]);
}

/// No migration does this while programs of the version before are at work. Should a hand have
/// done it, the statement is prepared again and nobody is told.
#[tokio::test]
async fn a_statement_whose_result_has_another_type_now_is_prepared_again() {
    let database = TestDatabase::new().await;
    let options = PostgresOptions::new(database.url()).max_connections(1);
    let store = PostgresStore::connect(options).await.expect("it is migrated");
    let rule = RetentionRule::new(RunState::Failed, Duration::from_secs(60));
    store.set_retention(rule.clone()).await.expect("it can be set");
    assert_eq!(store.list_retention().await.expect("it is prepared").len(), 1);
    let sql = "alter table windlass.retention alter column workflow type varchar(200)";
    database.client().await.batch_execute(sql).await.expect(sql);
    let rules = store.list_retention().await.expect("it is prepared again");
    assert_eq!(rules, [rule]);
}
