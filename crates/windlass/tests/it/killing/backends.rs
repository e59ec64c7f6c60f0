//! A worker whose backends are terminated while it works on limited tasks: no key stays blocked.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use windlass::store::postgres::{AuditOptions, PostgresOptions, audit};
use windlass::{Ctx, DutyOptions, Limit, TaskError, Windlass, Workflow};

use super::connect;
use crate::database::TestDatabase;

/// Tells this process that it is the worker, and for which database.
const URL: &str = "WINDLASS_TEST_BACKENDS_URL";

/// The name under which the server sees the connections of the worker.
const WORKER: &str = "limited-worker";

const KEYS: u64 = 20;

/// How long backends are terminated, and how often one is.
const TERMINATING: Duration = Duration::from_secs(30);
const EVERY: Duration = Duration::from_millis(100);

/// The most runs that are open at once, and how many are started at a time.
const OPEN_MAX: i64 = 2_000;
const BATCH: u64 = 100;

/// How long the runs that are left may take once nothing is terminated any more.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Message {
    key: u64,
}

fn limited() -> Workflow<Message> {
    let mut workflow = Workflow::<Message>::builder("limited");
    let task = workflow.task("take").limit(Limit::per("key", 1));
    task.run(async |_: Ctx<Message>| Ok::<_, TaskError>(()));
    workflow.build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "not a test: the worker that another test starts"]
async fn worker() {
    let Ok(url) = std::env::var(URL) else { return };
    // Ends with the test that started it, also if that one is killed.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
    let windlass = Windlass::connect(url.as_str()).await.unwrap();
    let worker = windlass.worker().register(&limited()).slots(50).duties(None);
    worker.spawn().unwrap().ended().await.unwrap();
}

/// The worker process; killed when it is dropped.
struct Worker(Child);

impl Worker {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killing::backends::worker", "--ignored", "--nocapture"]);
        let command = command.env(URL, url).stdin(Stdio::piped());
        Worker(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "long"]
    async fn terminated_backends_block_no_limit_key() {
        let database = TestDatabase::new().await;
        let url = database.url();
        let windlass = Windlass::connect(url.as_str()).await.unwrap();
        let client = connect(&url).await;
        let duties = windlass.duties(DutyOptions::default()).unwrap();
        let separator = if url.contains('?') { '&' } else { '?' };
        let worker = Worker::start(&format!("{url}{separator}application_name={WORKER}"));
        let limited = limited();
        let open = async || -> i64 {
            let sql = "select count(*) from windlass.runs where ended_at is null";
            client.query_one(sql, &[]).await.unwrap().get(0)
        };
        let began = Instant::now();
        let sending = async {
            let mut sent = 0;
            while began.elapsed() < TERMINATING {
                if open().await >= OPEN_MAX {
                    tokio::time::sleep(EVERY).await;
                    continue;
                }
                let messages = (sent..sent + BATCH).map(|n| Message { key: n % KEYS });
                let starts = messages.map(|message| windlass.start(&limited, message));
                for started in windlass.start_all(starts).await.unwrap() {
                    started.unwrap();
                }
                sent += BATCH;
            }
            sent
        };
        let terminating = async {
            let sql = "select pg_terminate_backend(pid) from pg_stat_activity
                where application_name = $1 and state <> 'idle'
                order by random() limit 1";
            let mut terminated = 0;
            while began.elapsed() < TERMINATING {
                terminated += client.query(sql, &[&WORKER]).await.unwrap().len();
                tokio::time::sleep(EVERY).await;
            }
            terminated
        };
        let (sent, terminated) = tokio::join!(sending, terminating);
        let left = open().await;
        let since = Instant::now();
        loop {
            let open = open().await;
            if open == 0 {
                break;
            }
            assert!(since.elapsed() < PATIENCE, "{open} of {left} runs are still open");
            tokio::time::sleep(EVERY).await;
        }
        println!(
            "{sent} runs over {KEYS} keys, {terminated} backends terminated, {left} runs left after \
             {TERMINATING:?} and ended in {:.1} s",
            since.elapsed().as_secs_f64()
        );
        assert!(terminated > 50, "only {terminated} backends were terminated");
        drop((worker, duties));
        let report = audit(&PostgresOptions::new(&url), &AuditOptions::default()).await.unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}
