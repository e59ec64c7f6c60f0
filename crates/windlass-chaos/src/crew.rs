//! The worker processes, and the faults that hit them.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use windlass::Windlass;

use crate::ledger::Ledger;
use crate::workload::{Repairs, Workflows};

/// The shortest lease that a slow machine keeps while it is not frozen.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// A frozen worker wakes up when its lease has expired and its tasks have moved on.
const FREEZE: Duration = Duration::from_secs(5);

/// The number of worker processes and the tasks that each executes at once.
const WORKERS: usize = 5;
const SLOTS: usize = 30;

/// The time between two attempts of a worker process to connect while the database is down.
const RECONNECT: Duration = Duration::from_millis(200);

/// The file names in the directory of a test.
const LEDGER: &str = "ledger.jsonl";
const LOG: &str = "workers.log";

/// Returns the path of the ledger.
pub(crate) fn ledger_file(directory: &Path) -> PathBuf {
    directory.join(LEDGER)
}

/// Works until the process is killed. This is the main function of a worker process.
pub(crate) async fn work(url: &str, directory: &Path) -> anyhow::Result<()> {
    // A frozen worker cannot notice that the test has ended, so the kernel kills it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let ledger = Ledger::open(&ledger_file(directory))?;
    let workflows = Workflows::new(ledger, &Repairs::in_directory(directory))?;
    loop {
        let ended = match Windlass::connect(url).await {
            Ok(windlass) => {
                let worker = workflows.register(windlass.worker()).slots(SLOTS).lease(LEASE);
                worker.leader_ttl(LEASE).run_until(std::future::pending()).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            eprintln!("worker {} restarts: {error}", std::process::id());
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

/// A worker process. Dropping it kills it.
struct Worker {
    child: Child,
    is_frozen: bool,
}

impl Worker {
    fn start(url: &str, directory: &Path) -> anyhow::Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(directory.join(LOG))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("worker").arg("--url").arg(url).arg("--directory").arg(directory);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().context("cannot start a worker process")?;
        Ok(Worker { child, is_frozen: false })
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), signal).context("cannot signal a worker")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // On Unix this is SIGKILL. A worker that has ended already needs no kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All worker processes.
pub(crate) struct Crew {
    url: String,
    directory: PathBuf,
    workers: Mutex<Vec<Worker>>,
}

impl Crew {
    /// Starts the worker processes.
    pub(crate) fn start(url: &str, directory: &Path) -> anyhow::Result<Self> {
        let workers = (0..WORKERS).map(|_| Worker::start(url, directory));
        let workers = Mutex::new(workers.collect::<anyhow::Result<_>>()?);
        Ok(Crew { url: url.to_owned(), directory: directory.to_owned(), workers })
    }

    fn workers(&self) -> MutexGuard<'_, Vec<Worker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Picks a random worker that is not frozen.
    fn pick(workers: &[Worker]) -> Option<usize> {
        let awake: Vec<usize> = (0..workers.len()).filter(|it| !workers[*it].is_frozen).collect();
        fastrand::choice(awake)
    }

    /// Kills a worker as `kill -9` does and starts another one.
    pub(crate) fn kill(&self) -> anyhow::Result<()> {
        let mut workers = self.workers();
        let victim = Self::pick(&workers).context("every worker is frozen")?;
        workers[victim] = Worker::start(&self.url, &self.directory)?;
        Ok(())
    }

    /// Stops a worker for longer than its lease and lets it continue.
    pub(crate) async fn freeze(&self) -> anyhow::Result<()> {
        let victim = {
            let mut workers = self.workers();
            let victim = Self::pick(&workers).context("every worker is frozen")?;
            workers[victim].signal(Signal::STOP)?;
            workers[victim].is_frozen = true;
            victim
        };
        tokio::time::sleep(FREEZE).await;
        let mut workers = self.workers();
        workers[victim].is_frozen = false;
        workers[victim].signal(Signal::CONT)
    }
}
