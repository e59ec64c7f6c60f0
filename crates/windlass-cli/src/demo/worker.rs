//! A worker of the demo: a process of its own, so that it can be killed and frozen.
//!
//! It reads one command, `drain`, from its standard input. When that is closed, the
//! demo is dead, and the worker ends at once: what it holds comes back when its lease
//! runs out.

use std::process::ExitCode;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::signal::unix::{SignalKind, signal};
use windlass::Windlass;
use windlass::store::postgres::PostgresOptions;
use windlass::worker::LEASE_MIN;

use super::orders::workflow;
use super::report::LogSender;
use super::{Pace, parse_speed};

/// What a worker is told to do by its standard input.
pub(super) const DRAIN: &str = "drain";

/// How many tasks a worker runs at once. With one, a worker that is frozen is hardly ever
/// in the middle of a transaction for another task.
pub(super) const SLOTS: usize = 1;

/// How many connections a worker has: one to claim or finish, one for its heartbeat, and
/// one for what its handler asks.
const CONNECTIONS: usize = 3;

/// How long a worker may take to drain; its handlers are much shorter.
const GRACE: Duration = Duration::from_secs(30);

/// What `windlass demo-worker` is told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The address of the database.
    #[arg(long)]
    url: String,

    /// What the demo calls it.
    #[arg(long)]
    name: String,

    /// The speed of the demo.
    #[arg(long, value_parser = parse_speed)]
    speed: f64,
}

/// Works until it is told to drain. One thread does it all: when a frozen worker is
/// thawed, its handler returns before the next heartbeat can say that the task is lost.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work(arguments))?;
    // Without waiting for the thread that reads commands: nothing more is to come.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

async fn work(arguments: Arguments) -> anyhow::Result<()> {
    die_with_parent()?;
    // They reach every process of the terminal or of the group; the demo decides what
    // follows.
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let mut signals = signal(kind)?;
        tokio::spawn(async move { while signals.recv().await.is_some() {} });
    }
    tracing::subscriber::set_global_default(LogSender)?;
    // If it is frozen in the middle of a transaction, the others wait for its locks, but
    // not longer than for its task.
    let options = PostgresOptions::new(&arguments.url)
        .max_connections(CONNECTIONS)
        .idle_in_transaction_timeout(LEASE_MIN / 2);
    let windlass = Windlass::connect(options).await?;
    let pace = Pace { speed: arguments.speed };
    let workflow = workflow(pace, &windlass)?;
    let worker = windlass
        .worker()
        .register(&workflow)
        .name(arguments.name)
        .slots(SLOTS)
        .lease(LEASE_MIN)
        .poll(pace.poll())
        .grace(GRACE)
        // The demo does them: a frozen worker must not be in the middle of one.
        .duties(None);
    Ok(worker.run_until(told_to_drain()).await?)
}

async fn told_to_drain() {
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    loop {
        match commands.next_line().await {
            Ok(Some(command)) if command == DRAIN => return,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => std::process::exit(1),
        }
    }
}

/// Lets the kernel end this process with the demo, even if it is frozen then.
#[cfg(target_os = "linux")]
fn die_with_parent() -> std::io::Result<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Nothing to do: a process group that loses its leader is thawed by the kernel, and
/// the closed standard input ends this process.
#[cfg(not(target_os = "linux"))]
fn die_with_parent() -> std::io::Result<()> {
    Ok(())
}
