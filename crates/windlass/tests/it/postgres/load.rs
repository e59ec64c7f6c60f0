//! Workers at work while something happens between them and their database: nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::Client;
use windlass::store::postgres::{AuditOptions, PostgresOptions, audit, migrate};
use windlass::{Ctx, RunState, TaskError, Windlass, WorkerHandle, Workflow};

use super::pooler::Pooler;
use super::server::Server;
use crate::database::TestDatabase;

/// How long everything together may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// Two tasks, one after the other, that count how often they ran.
fn pair(ran: &Arc<AtomicUsize>) -> Workflow<()> {
    let handler = || {
        let ran = Arc::clone(ran);
        move |_: Ctx<()>| {
            ran.fetch_add(1, Ordering::Relaxed);
            async {
                tokio::time::sleep(Duration::from_millis(2)).await;
                Ok::<_, TaskError>(())
            }
        }
    };
    let mut pair = Workflow::<()>::builder("pair");
    let first = pair.task("first").run(handler());
    pair.task("second").after(&first).run(handler());
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
        let engine = Windlass::connect(options.clone()).await.expect("the database is there");
        let starts: Vec<_> = (0..runs).map(|_| engine.start(&workflow, ())).collect();
        for started in engine.start_all(starts).await.expect("the database is there") {
            started.expect("it can be started");
        }
        let mut load = Load { workers: Vec::new(), ran, runs };
        for _ in 0..workers {
            let engine = Windlass::connect(options.clone()).await.expect("there is room");
            let worker = engine.worker().register(&workflow).slots(4).spawn();
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

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "long"]
    async fn two_hundred_workers_share_a_backlog() {
        let settings = vec![("max_connections", "450".to_owned())];
        let server = Server::start_with(settings).await;
        let options = PostgresOptions::new(server.url()).max_connections(1);
        migrate(&options).await.expect("it can be migrated");
        let load = Load::begin(&options, 200, 400).await;
        load.end(&server.client().await, &options).await;
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
