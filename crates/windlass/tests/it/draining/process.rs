//! A worker as a process of its own, and what its handlers wait for.
//!
//! Handlers say what they do in the table `public.log` and wait for rows of `public.gates`,
//! so that the test decides when they end.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio_postgres::{Client, NoTls};
use windlass::{Ctx, RetryPolicy, TaskError, Windlass, Workflow};

use super::{PATIENCE, SECOND, ask};

/// Says that this process is a worker, for which database and how.
const URL: &str = "WINDLASS_TEST_DRAIN_URL";
const NAME: &str = "WINDLASS_TEST_DRAIN_NAME";
const GRACE_MS: &str = "WINDLASS_TEST_DRAIN_GRACE_MS";

/// The lease of every worker here: the shortest, so that lost tasks come back soon.
pub(super) const LEASE: Duration = Duration::from_secs(2);

/// The tables that handlers use.
pub(super) const TABLES: &str = "
    create table public.log (seq bigserial, gate text, worker text, attempt integer, what text);
    create table public.gates (gate text primary key)";

/// The workflow `drain`, whose input is the name of the gate it waits for.
pub(super) fn workflow(url: &str, worker: &str) -> Workflow<String> {
    let mut builder = Workflow::<String>::builder("drain");
    let place = (url.to_owned(), worker.to_owned());
    builder.task("work").retry(RetryPolicy::fixed(SECOND).attempts(2)).run(move |ctx| {
        let (url, worker) = place.clone();
        work(ctx, url, worker)
    });
    builder.build().unwrap()
}

async fn work(ctx: Ctx<String>, url: String, worker: String) -> Result<(), TaskError> {
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.map_err(broken)?;
    tokio::spawn(connection);
    let gate = ctx.input().clone();
    let log = Log { client, gate, worker, attempt: ctx.attempt().cast_signed() };
    log.write("begins").await?;
    if log.gate == "block" && ctx.attempt() == 1 {
        // As a handler does that computes, or waits without the runtime.
        loop {
            std::thread::sleep(SECOND);
        }
    }
    if log.gate.starts_with("count") {
        return count(&ctx, &log).await;
    }
    log.gate_opens().await?;
    log.write("ends").await
}

/// Counts until the gate opens, from where the attempt before has come to. A gate named
/// `count-and-give` gives the task back as soon as the worker drains.
async fn count(ctx: &Ctx<String>, log: &Log) -> Result<(), TaskError> {
    let mut number = ctx.last_checkpoint::<u64>()?.unwrap_or(0);
    log.write(&format!("counts from {number}")).await?;
    while !log.is_open().await? {
        if log.gate == "count-and-give" && ctx.is_draining() {
            ctx.checkpoint(&number).await?;
            return Err(TaskError::hand_back());
        }
        if ctx.is_cancelled() {
            ctx.checkpoint(&number).await?;
            return Err(TaskError::new("cancelled"));
        }
        number += 1;
        if number == 5 {
            log.write("has counted").await?;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    log.write("ends").await
}

fn broken(error: tokio_postgres::Error) -> TaskError {
    TaskError::new(error)
}

struct Log {
    client: Client,
    gate: String,
    worker: String,
    attempt: i32,
}

impl Log {
    async fn write(&self, what: &str) -> Result<(), TaskError> {
        let sql = "insert into public.log (gate, worker, attempt, what) values ($1, $2, $3, $4)";
        let values: &[&(dyn tokio_postgres::types::ToSql + Sync)] =
            &[&self.gate, &self.worker, &self.attempt, &what];
        self.client.execute(sql, values).await.map(drop).map_err(broken)
    }

    async fn is_open(&self) -> Result<bool, TaskError> {
        let sql = "select 1 from public.gates where gate = $1";
        let found = self.client.query_opt(sql, &[&self.gate]).await;
        Ok(found.map_err(broken)?.is_some())
    }

    async fn gate_opens(&self) -> Result<(), TaskError> {
        while !self.is_open().await? {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

#[tokio::test]
#[ignore = "not a test: the worker that other tests start"]
async fn worker() {
    let Ok(url) = std::env::var(URL) else { return };
    let name = std::env::var(NAME).unwrap();
    let grace = std::env::var(GRACE_MS).unwrap().parse().unwrap();
    let windlass = Windlass::connect(url.as_str()).await.unwrap();
    let worker = windlass
        .worker()
        .register(&workflow(&url, &name))
        .name(name)
        .slots(2)
        .lease(LEASE)
        .grace(Duration::from_millis(grace))
        .health("127.0.0.1:0")
        .spawn()
        .unwrap();
    println!("address={}", worker.health_address().unwrap());
    match worker.drain_on_signal().await {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}

/// A worker process; killed when it is dropped.
pub(super) struct Worker {
    child: Child,
    pub(super) address: SocketAddr,
    errors: BufReader<ChildStderr>,
}

impl Worker {
    /// Starts one and waits until it is ready.
    pub(super) async fn start(url: &str, name: &str, grace: Duration) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "draining::process::worker", "--ignored", "--nocapture"])
            .env(URL, url)
            .env(NAME, name)
            .env(GRACE_MS, grace.as_millis().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let found = lines.find_map(|line| line.split_once("address=").map(|(_, at)| at.to_owned()));
        let address = found.expect("the worker has begun").parse().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let worker = Worker { child, address, errors };
        let is_ready = || worker.ready().is_some_and(|(status, _)| status == 200);
        super::until("a worker is ready", async || is_ready()).await;
        worker
    }

    /// What its probe says, unless it has ended.
    pub(super) fn ready(&self) -> Option<(u16, String)> {
        ask(self.address, "GET", "/health/ready").ok()
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(super) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end: how it ended, after how long, and what it said.
    pub(super) async fn ended(&mut self) -> (ExitStatus, Duration, String) {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "the worker does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let lines: Vec<_> = self.errors.by_ref().lines().map(Result::unwrap).collect();
        (status, began.elapsed(), lines.join("\n"))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
