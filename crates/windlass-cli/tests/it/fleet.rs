//! Servers and workers that are killed and started again, under load: nothing is lost.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::{AuditOptions, PostgresOptions, audit};
use windlass::{Ctx, RunState, TaskError, Windlass, Workflow};

use super::place::Place;

/// How long the runs may take that are left when nobody is killed any more.
const END_MAX: Duration = Duration::from_secs(120);

/// How many runs are started.
const RUNS: usize = 1_500;

/// How often someone is killed, and how many times.
const KILL_EVERY: Duration = Duration::from_millis(300);
const KILLS: usize = 16;

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn kill(&mut self) {
        // One that has ended by itself is found by what it did not do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An address that nobody listens at.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("loopback is there");
    listener.local_addr().expect("it is bound").to_string()
}

fn server(url: &str, address: &str) -> Process {
    let mut command = super::command(&["serve", "--insecure-dev", "--listen", address]);
    command.env("DATABASE_URL", url).stdout(Stdio::null());
    Process(command.spawn().expect("the binary was built"))
}

/// A worker that knows the servers and no database.
fn worker(servers: &str) -> Process {
    let arguments = ["bench-worker", "--task", "nothing", "--slots", "8", "--lease-ms", "2000"];
    let mut command: Command = super::command(&arguments);
    command.env("WINDLASS_BENCH_WORKER_URL", servers);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().expect("the binary was built");
    let commands = child.stdin.as_mut().expect("its input is a pipe");
    commands.write_all(b"go\n").expect("it reads");
    Process(child)
}

/// The workflow of `bench-worker`, whose handler is elsewhere.
fn nothing() -> Workflow<()> {
    let mut nothing = Workflow::<()>::builder("bench-noop");
    nothing.task("task-0").run(async |_: Ctx<()>| Ok::<_, TaskError>(()));
    nothing.build().expect("the workflow is right")
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_and_workers_that_are_killed_in_turn_lose_nothing() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let postgres = options.start().await.expect("PostgreSQL is installed");
    let url = postgres.url();
    let options = PostgresOptions::new(&url).migrate(true);
    Windlass::connect(options).await.expect("it is there");
    let addresses = [free_address(), free_address()];
    let mut servers = addresses.clone().map(|address| server(&url, &address));
    let known = addresses.clone().map(|address| format!("http://{address}")).join(",");
    let mut workers = [(); 3].map(|()| worker(&known));

    // Whoever starts runs has no database either, and repeats what was not answered.
    let far = Windlass::connect_server(&known).expect("they are addresses");
    let starts = tokio::spawn(async move {
        let nothing = nothing();
        let mut runs = Vec::with_capacity(RUNS);
        for number in 0..RUNS {
            let key = format!("run-{number}");
            let run = loop {
                match far.start(&nothing, ()).key(key.as_str()).await {
                    Ok(run) => break run.id(),
                    Err(error) if error.is_retryable() => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    Err(error) => panic!("{error}"),
                }
            };
            runs.push(run);
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        runs
    });
    for kill in 0..KILLS {
        tokio::time::sleep(KILL_EVERY).await;
        match kill % 5 {
            place @ 0..=1 => {
                servers[place].kill();
                servers[place] = server(&url, &addresses[place]);
            }
            other => {
                workers[other - 2].kill();
                workers[other - 2] = worker(&known);
            }
        }
    }
    let runs = starts.await.expect("all were started");
    let windlass = Windlass::connect(PostgresOptions::new(&url)).await.expect("it is there");
    let deadline = Instant::now() + END_MAX;
    for run in &runs {
        let left = deadline.saturating_duration_since(Instant::now());
        let record = tokio::time::timeout(left, windlass.run(*run).wait()).await;
        let record = record.expect("every run ends").expect("it is there");
        assert_eq!(record.state, RunState::Succeeded);
    }
    let found = runs.iter().collect::<std::collections::HashSet<_>>().len();
    assert_eq!(found, RUNS, "each start made one run");
    drop((servers, workers));
    let report = audit(&PostgresOptions::new(&url), &AuditOptions::new()).await.expect("it reads");
    assert!(report.is_clean(), "{report:?}");
}
