//! The sequence of a rolling deploy, step by step.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::time::Duration;

use rustix::process::Signal;
use tokio_postgres::Client;
use windlass::store::WorkerFilter;
use windlass::store::postgres::{AuditOptions, PostgresOptions, audit};
use windlass::{RunHandle, RunState, TaskState, Windlass, Workflow};

use super::process::{LEASE, TABLES, Worker, workflow};
use super::{SECOND, ask, until};
use crate::database::TestDatabase;

const GRACE: Duration = Duration::from_secs(15);

/// Lets claims wait in the middle while the lock 42 is held.
const TURNSTILE: &str = "
    create function public.turnstile() returns trigger language plpgsql as
        'begin perform pg_advisory_xact_lock_shared(42); return null; end';
    create trigger turnstile before insert on windlass.leases
        for each statement execute function public.turnstile()";

struct Bench {
    database: TestDatabase,
    windlass: Windlass,
    workflow: Workflow<String>,
    client: Client,
}

impl Bench {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let windlass = Windlass::connect(database.url().as_str()).await.unwrap();
        let client = database.client().await;
        client.batch_execute(TABLES).await.unwrap();
        let workflow = workflow(&database.url(), "nobody");
        Bench { database, windlass, workflow, client }
    }

    async fn worker(&self, name: &str, grace: Duration) -> Worker {
        Worker::start(&self.database.url(), name, grace).await
    }

    async fn start(&self, gate: &str) -> RunHandle {
        self.windlass.start(&self.workflow, gate.to_owned()).await.unwrap()
    }

    async fn open(&self, gate: &str) {
        self.client.execute("insert into public.gates values ($1)", &[&gate]).await.unwrap();
    }

    /// What the handlers of a gate did, such as `a 1 begins`.
    async fn log(&self, gate: &str) -> Vec<String> {
        let sql = "select worker || ' ' || attempt || ' ' || what from public.log
            where gate = $1 order by seq";
        let rows = self.client.query(sql, &[&gate]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn until_begun(&self, gate: &str) {
        until("a handler begins", async || !self.log(gate).await.is_empty()).await;
    }

    /// Waits until a claim hangs in the turnstile.
    async fn until_claim_waits(&self) {
        let sql = "select 1 from pg_locks where locktype = 'advisory' and objid = 42
            and not granted";
        let is_so = async || self.client.query_opt(sql, &[]).await.unwrap().is_some();
        until("a claim waits", is_so).await;
    }

    async fn assert_clean(&self) {
        let database = PostgresOptions::new(self.database.url());
        let report = audit(&database, &AuditOptions::default()).await.unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}

fn is_draining(worker: &Worker) -> bool {
    let is_so = |(status, body): (u16, String)| status == 503 && body.contains("draining");
    worker.ready().is_some_and(is_so)
}

async fn task(run: &RunHandle) -> (TaskState, u32) {
    let task = run.tasks().await.unwrap().remove(0);
    (task.state, task.attempt)
}

async fn words(run: &RunHandle) -> Vec<String> {
    let history = run.history().await.unwrap();
    history.iter().map(|event| event.word().to_owned()).collect()
}

#[tokio::test]
async fn a_worker_drained_by_an_operator_finishes_what_it_runs_and_exits() {
    let bench = Bench::new().await;
    let mut worker = bench.worker("a", GRACE).await;
    let running = bench.start("running").await;
    bench.until_begun("running").await;
    let page = bench.windlass.workers(WorkerFilter::default()).await.unwrap();
    let id = page.workers.iter().find(|one| one.name == "a").unwrap().id;
    bench.windlass.store().begin_drain(id).await.unwrap();
    until("it says that it drains", async || is_draining(&worker)).await;
    let waiting = bench.start("waiting").await;
    bench.open("running").await;
    assert_eq!(running.wait().await.unwrap().state, RunState::Succeeded);
    assert!(worker.ended().await.0.success(), "it exits as after a signal");
    assert_eq!(task(&waiting).await, (TaskState::Ready, 0), "it claimed nothing more");
    bench.assert_clean().await;
}

#[tokio::test]
async fn a_worker_told_to_end_finishes_what_it_runs_and_leaves_the_rest_to_others() {
    let bench = Bench::new().await;
    let mut first = bench.worker("a", GRACE).await;
    let running = bench.start("running").await;
    bench.until_begun("running").await;
    // A claim that is under way when the signal comes, and is answered afterwards.
    bench.client.batch_execute(TURNSTILE).await.unwrap();
    let turnstile = bench.database.client().await;
    turnstile.execute("select pg_advisory_lock(42)", &[]).await.unwrap();
    let claimed = bench.start("claimed").await;
    bench.until_claim_waits().await;

    first.signal(Signal::TERM);
    until("it says that it drains", async || is_draining(&first)).await;
    let (status, _) = ask(first.address, "GET", "/health/live").unwrap();
    assert_eq!(status, 200, "a worker that drains is alive");
    let waiting = bench.start("waiting").await;
    turnstile.execute("select pg_advisory_unlock(42)", &[]).await.unwrap();
    let given_back = async || words(&claimed).await.contains(&"released".to_owned());
    until("it hands back what it has not begun", given_back).await;
    assert_eq!(task(&claimed).await, (TaskState::Ready, 0), "the attempt does not count");

    // Twice its lease: it is kept, and a free slot is not filled.
    tokio::time::sleep(2 * LEASE).await;
    assert!(first.is_running() && is_draining(&first));
    assert_eq!(task(&running).await, (TaskState::Running, 1));
    assert_eq!(words(&waiting).await, ["run_started", "queued"]);
    bench.open("running").await;
    let (exit, time, errors) = first.ended().await;
    assert_eq!(exit.code(), Some(0), "{errors}");
    assert!(time < 5 * SECOND, "{time:?}");
    assert_eq!(running.get().await.unwrap().state, RunState::Succeeded);
    assert_eq!(bench.log("running").await, ["a 1 begins", "a 1 ends"]);

    let mut second = bench.worker("b", GRACE).await;
    for (run, gate) in [(claimed, "claimed"), (waiting, "waiting")] {
        bench.open(gate).await;
        run.wait().await.unwrap();
        assert_eq!(bench.log(gate).await, ["b 1 begins", "b 1 ends"]);
    }
    second.signal(Signal::INT);
    assert_eq!(second.ended().await.0.code(), Some(0));
    bench.assert_clean().await;
}

#[tokio::test]
async fn a_second_signal_ends_a_worker_at_once_and_its_tasks_come_back() {
    let bench = Bench::new().await;
    let mut first = bench.worker("a", GRACE).await;
    let run = bench.start("long").await;
    bench.until_begun("long").await;
    first.signal(Signal::TERM);
    until("it says that it drains", async || is_draining(&first)).await;
    assert!(first.is_running());
    first.signal(Signal::INT);
    let (exit, time, errors) = first.ended().await;
    assert_eq!(exit.code(), Some(1));
    assert!(time < SECOND, "{time:?}");
    let said = "a second signal ended the worker; tasks left to the lease: 1 [WL-0012]";
    assert!(errors.contains(said), "{errors}");
    assert_eq!(task(&run).await, (TaskState::Running, 1));

    let _second = bench.worker("b", GRACE).await;
    bench.open("long").await;
    run.wait().await.unwrap();
    assert_eq!(bench.log("long").await, ["a 1 begins", "b 2 begins", "b 2 ends"]);
    bench.assert_clean().await;
}

#[tokio::test]
async fn a_second_signal_ends_a_worker_whose_only_thread_is_blocked() {
    let bench = Bench::new().await;
    let mut first = bench.worker("a", GRACE).await;
    bench.start("block").await;
    bench.until_begun("block").await;
    first.signal(Signal::TERM);
    until("it says that it drains", async || is_draining(&first)).await;
    first.signal(Signal::TERM);
    let (exit, time, _) = first.ended().await;
    assert_eq!(exit.code(), Some(143));
    assert!(time < 3 * SECOND, "{time:?}");
}

#[tokio::test]
async fn a_drain_by_request_is_no_signal() {
    let bench = Bench::new().await;
    let mut first = bench.worker("a", GRACE).await;
    let run = bench.start("long").await;
    bench.until_begun("long").await;
    assert_eq!(ask(first.address, "POST", "/admin/drain").unwrap().0, 202);
    assert!(is_draining(&first));
    // As Kubernetes does after a hook that has asked for the drain.
    first.signal(Signal::TERM);
    tokio::time::sleep(SECOND).await;
    assert!(first.is_running() && is_draining(&first));
    bench.open("long").await;
    assert_eq!(first.ended().await.0.code(), Some(0));
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    assert_eq!(bench.log("long").await, ["a 1 begins", "a 1 ends"]);
    bench.assert_clean().await;
}

#[tokio::test]
async fn a_task_longer_than_the_grace_period_goes_on_elsewhere() {
    let bench = Bench::new().await;
    let grace = 2 * SECOND;
    let mut first = bench.worker("a", grace).await;
    let run = bench.start("long").await;
    bench.until_begun("long").await;
    first.signal(Signal::TERM);
    let (exit, time, errors) = first.ended().await;
    assert_eq!(exit.code(), Some(0), "{errors}");
    assert!(time <= grace + SECOND / 2, "{time:?}");
    assert_eq!(task(&run).await.1, 1);
    assert!(!words(&run).await.contains(&"lease_expired".to_owned()), "it was handed on");

    let _second = bench.worker("b", GRACE).await;
    bench.open("long").await;
    run.wait().await.unwrap();
    assert_eq!(bench.log("long").await, ["a 1 begins", "b 2 begins", "b 2 ends"]);
    bench.assert_clean().await;
}

/// Where an attempt counted from, by what it wrote as `a 1 counts from 7`.
fn counted_from(line: &str) -> u64 {
    let (_, number) = line.rsplit_once(' ').unwrap();
    number.parse().unwrap()
}

#[tokio::test]
async fn a_task_cancelled_by_the_end_of_the_grace_period_goes_on_from_its_checkpoint() {
    let bench = Bench::new().await;
    let mut first = bench.worker("a", 2 * SECOND).await;
    let run = bench.start("count").await;
    until("it has counted", async || bench.log("count").await.len() == 3).await;
    first.signal(Signal::TERM);
    assert_eq!(first.ended().await.0.code(), Some(0));

    let _second = bench.worker("b", GRACE).await;
    until("the next attempt begins", async || bench.log("count").await.len() >= 5).await;
    bench.open("count").await;
    run.wait().await.unwrap();
    let log = bench.log("count").await;
    assert_eq!(log[..3], ["a 1 begins", "a 1 counts from 0", "a 1 has counted"]);
    assert_eq!(log[3], "b 2 begins", "the attempt that was cancelled counts");
    assert!(counted_from(&log[4]) >= 5, "{log:?}");
    assert_eq!(log.last().unwrap(), "b 2 ends");
    bench.assert_clean().await;
}

#[tokio::test]
async fn a_task_given_back_by_its_handler_goes_on_elsewhere_and_costs_no_attempt() {
    let bench = Bench::new().await;
    let mut first = bench.worker("a", GRACE).await;
    let gate = "count-and-give";
    let run = bench.start(gate).await;
    until("it has counted", async || bench.log(gate).await.len() == 3).await;
    first.signal(Signal::TERM);
    let (exit, time, errors) = first.ended().await;
    assert_eq!(exit.code(), Some(0), "{errors}");
    assert!(time < 3 * SECOND, "it does not wait for the grace period: {time:?}");
    assert_eq!(task(&run).await, (TaskState::Ready, 0));

    let _second = bench.worker("b", GRACE).await;
    until("the next attempt begins", async || bench.log(gate).await.len() >= 5).await;
    bench.open(gate).await;
    run.wait().await.unwrap();
    let log = bench.log(gate).await;
    assert_eq!(log[3], "b 1 begins");
    assert!(counted_from(&log[4]) >= 5, "{log:?}");
    let events = ["run_started", "queued", "started", "released", "started", "succeeded"];
    assert_eq!(words(&run).await[..6], events);
    bench.assert_clean().await;
}
