//! A rolling upgrade, and back: programs of the version before and of this one on one database,
//! under load. `cargo xtask upgrade` builds the version before and says where it is.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio_postgres::{Client, NoTls};
use windlass::embedded::EmbeddedOptions;
use windlass::{Ctx, RunId, TaskError, Windlass, Workflow};

use super::place::Place;
use super::{assert_line, text};

/// Where the program of the version before is.
const PREVIOUS: &str = "WINDLASS_TEST_PREVIOUS";

/// How long something may take on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// How many runs must end before the next thing happens.
const STRIDE: i64 = 100;

/// The pause between two starts.
const START_EVERY: Duration = Duration::from_millis(4);

/// A program of one of the two versions.
#[derive(Clone)]
struct Version {
    /// Of its log, and in what is said of it.
    name: &'static str,
    program: PathBuf,
    /// Where the logs of its processes go.
    logs: PathBuf,
}

impl Version {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("XDG_CONFIG_HOME", "/nowhere").env("WINDLASS_LOG", "warn");
        for name in ["DATABASE_URL", "WINDLASS_SERVER", "WINDLASS_PROFILE"] {
            command.env_remove(name);
        }
        command
    }

    /// A command that ends well; answers what it says.
    #[track_caller]
    fn told(&self, url: &str, arguments: &[&str]) -> String {
        let output = self.command(arguments).env("DATABASE_URL", url).output();
        let output = output.expect("the program is there");
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{} {arguments:?}:\n{out}\n{error}", self.name);
        out
    }

    fn spawn(&self, mut command: Command, what: &str) -> Child {
        let log = self.logs.join(format!("{}-{what}.log", self.name));
        let log = File::options().append(true).create(true).open(log).expect("it can be written");
        command.stdout(Stdio::null()).stderr(log).spawn().expect("the program is there")
    }

    fn server(&self, url: &str, address: &str) -> Server {
        let mut command = self.command(&["serve", "--insecure-dev", "--listen", address]);
        command.env("DATABASE_URL", url).stdin(Stdio::null());
        Server(self.spawn(command, "server"))
    }

    /// A worker whose tasks keep checkpoints, on servers.
    fn worker(&self, servers: &str) -> Worker {
        // Long enough for a busy machine: who loses its lease runs something twice.
        let arguments = ["bench-worker", "--task", "checkpoints", "--slots", "8"];
        let mut command = self.command(&[&arguments[..], &["--lease-ms", "30000"]].concat());
        command.env("WINDLASS_BENCH_WORKER_URL", servers).stdin(Stdio::piped());
        let mut child = self.spawn(command, "worker");
        let mut commands = child.stdin.take().expect("its input is a pipe");
        commands.write_all(b"go\n").expect("it reads");
        Worker { child, commands: Some(commands) }
    }
}

/// Waits for the end of a process that was told to end, which must be a good one.
fn wait(child: &mut Child) {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            assert!(status.success(), "{status}");
            return;
        }
        assert!(began.elapsed() < WAIT_MAX, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(child: &mut Child) {
    // One that has ended by itself is found by what it did not do.
    let _ = child.kill();
    let _ = child.wait();
}

struct Server(Child);

impl Server {
    fn end(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).expect("it lives");
        wait(&mut self.0);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        kill(&mut self.0);
    }
}

struct Worker {
    child: Child,
    commands: Option<ChildStdin>,
}

impl Worker {
    /// Lets it finish what it has begun.
    fn drain(mut self) {
        self.commands = None;
        wait(&mut self.child);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}

/// Whoever starts runs: a program of this version, on the servers of both.
struct Load {
    is_over: Arc<AtomicBool>,
    starts: tokio::task::JoinHandle<Vec<RunId>>,
}

impl Load {
    fn begin(servers: &str) -> Load {
        let far = Windlass::connect_server(servers).expect("they are addresses");
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let starts = tokio::spawn(async move {
            let workflow = checkpoints();
            let mut runs = Vec::new();
            while !over.load(Ordering::Relaxed) {
                // One without an answer is repeated under the same key, wherever it got to.
                let key = format!("run-{}", runs.len());
                match far.start(&workflow, ()).key(key.as_str()).await {
                    Ok(run) => runs.push(run.id()),
                    Err(error) if error.is_retryable() => {}
                    Err(error) => panic!("{error}"),
                }
                tokio::time::sleep(START_EVERY).await;
            }
            runs
        });
        Load { is_over, starts }
    }

    async fn end(self) -> Vec<RunId> {
        self.is_over.store(true, Ordering::Relaxed);
        self.starts.await.expect("all were started")
    }
}

/// The workflow of `bench-worker`, whose handler is elsewhere.
fn checkpoints() -> Workflow<()> {
    let mut checkpoints = Workflow::<()>::builder("bench-checkpoints");
    checkpoints.task("task-0").run(async |_: Ctx<()>| Ok::<_, TaskError>(()));
    checkpoints.build().expect("the workflow is right")
}

/// Looks at the database itself.
struct Witness(Client);

impl Witness {
    async fn new(url: &str) -> Witness {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it is there");
        tokio::spawn(connection);
        Witness(client)
    }

    async fn number(&self, sql: &str) -> i64 {
        self.0.query_one(sql, &[]).await.expect(sql).get(0)
    }

    async fn succeeded(&self) -> i64 {
        self.number("select count(*) from windlass.runs where state = 'succeeded'").await
    }

    /// Waits until so many runs have succeeded.
    async fn until(&self, count: i64, when: &str) {
        let began = Instant::now();
        loop {
            let ended = self.succeeded().await;
            if ended >= count {
                return;
            }
            assert!(began.elapsed() < WAIT_MAX, "{when}: {ended} of {count} runs have ended");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until whoever is at work now has got on.
    async fn progress(&self, when: &str) {
        self.until(self.succeeded().await + STRIDE, when).await;
    }

    /// Writes down from now on how checkpoints are kept.
    async fn watch_checkpoints(&self) {
        let sql = "create table public.kept (number integer, is_numbered boolean);
            create function public.note() returns trigger language plpgsql as $$ begin
                insert into public.kept values (new.number, new.number_fence = new.fence);
                return new;
            end $$;
            create trigger note after insert or update on windlass.checkpoints
                for each row execute function public.note()";
        self.0.batch_execute(sql).await.expect("the test may do that");
    }

    /// How checkpoints are kept by those who are at work now, and by nobody else.
    async fn kept(&self, when: &str) -> Vec<(i32, bool)> {
        self.0.batch_execute("truncate public.kept").await.expect("it is ours");
        self.progress(when).await;
        let sql = "select distinct number, is_numbered from public.kept order by 1, 2";
        let rows = self.0.query(sql, &[]).await.expect("it is ours");
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }
}

/// What stands in the logs of all processes.
fn logged(logs: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for file in std::fs::read_dir(logs).expect("it is there") {
        let path = file.expect("it can be listed").path();
        let log = std::fs::read_to_string(&path).expect("it can be read");
        let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
        lines.extend(log.lines().map(|line| format!("{name}: {line}")));
    }
    lines
}

/// An address that nobody listens at.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("loopback is there");
    listener.local_addr().expect("it is bound").to_string()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the program of the version before: cargo xtask upgrade"]
async fn programs_of_two_versions_work_side_by_side_there_and_back() {
    let previous = std::env::var_os(PREVIOUS).expect("cargo xtask upgrade says where it is");
    let place = Place::new();
    let logs = place.directory().with_extension("logs");
    std::fs::create_dir(&logs).expect("the place is new");
    let version = |name, program| Version { name, program, logs: logs.clone() };
    let old = version("old", PathBuf::from(previous));
    let new = version("new", PathBuf::from(env!("CARGO_BIN_EXE_windlass")));
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let postgres = options.start().await.expect("PostgreSQL is installed");
    let url = postgres.url();

    // Everything is of the version before, and under load.
    old.told(&url, &["migrate"]);
    let refused = new.command(&["serve", "--insecure-dev"]).env("DATABASE_URL", &url).output();
    let refused = refused.expect("the program is there");
    assert_line(&text(&refused.stderr), &["`windlass migrate`", "[WL-0010]"]);
    let witness = Witness::new(&url).await;
    let addresses = [free_address(), free_address()];
    let [at_old, at_new] = addresses.each_ref().map(|address| format!("http://{address}"));
    let both = format!("{at_old},{at_new}");
    let old_server = old.server(&url, &addresses[0]);
    let old_worker = old.worker(&both);
    let load = Load::begin(&both);
    witness.progress("the version before alone").await;

    // The schema first, while all of them work.
    assert_line(&new.told(&url, &["migrate"]), &["applied 0003_checkpoint_numbers"]);
    witness.watch_checkpoints().await;
    let kept = witness.kept("the version before on the new schema").await;
    assert_eq!(kept, [(0, false)], "it knows of no numbers");

    // A server beside the old one, and workers across.
    let new_server = new.server(&url, &addresses[1]);
    let across = new.worker(&at_old);
    old_worker.drain();
    let kept = witness.kept("a new worker on an old server").await;
    assert_eq!(kept, [(0, false)], "the server does not know what the worker says of numbers");
    let other = old.worker(&at_new);
    across.drain();
    let kept = witness.kept("an old worker on a new server").await;
    assert_eq!(kept, [(0, true)], "the worker does not count");

    // All at once, then without the old ones.
    let new_worker = new.worker(&both);
    let old_worker = old.worker(&both);
    witness.progress("everyone").await;
    old_server.end();
    witness.progress("without the old server").await;
    old_worker.drain();
    other.drain();
    let kept = witness.kept("the new version alone").await;
    assert_eq!(kept, [(1, true), (2, true), (3, true)]);

    // And back.
    assert_line(&old.told(&url, &["migrate"]), &["newer than this program", "nothing to do"]);
    let old_server = old.server(&url, &addresses[0]);
    let old_worker = old.worker(&both);
    witness.progress("an old server on the new schema").await;
    new_server.end();
    new_worker.drain();
    let kept = witness.kept("the version before alone once more").await;
    assert!(kept.iter().all(|(_, is_numbered)| !is_numbered), "{kept:?}");

    let runs = load.end().await;
    let started = i64::try_from(runs.len()).expect("a count");
    witness.until(started, "all that were started").await;
    old_worker.drain();
    old_server.end();
    let distinct = runs.iter().collect::<std::collections::HashSet<_>>().len();
    assert_eq!(distinct, runs.len(), "each start made one run");
    let all = witness.number("select count(*) from windlass.runs").await;
    // The last start may have been made without its answer.
    assert!((started..=started + 1).contains(&all), "{all} runs of {started} starts");
    let again = witness.number("select count(*) from windlass.task_rows where attempt > 1").await;
    assert_eq!(again, 0, "no task was run twice");
    for version in [&old, &new] {
        let audited = version.told(&url, &["audit"]);
        assert_line(&audited, &[" 0 violated"]);
    }
    let errors: Vec<String> =
        logged(&logs).into_iter().filter(|line| line.contains("ERROR")).collect();
    assert_eq!(errors, [""; 0]);
}
