//! The one binary of Windlass: `windlass`.
//!
//! This crate parses arguments and prints; what it does is done by the library.

mod audit;
#[cfg(unix)]
mod bench;
mod database;
mod dead;
#[cfg(unix)]
mod demo;
#[cfg(unix)]
mod dev;
mod doctor;
mod duties;
mod leaders;
mod log;
mod migrate;
mod operator;
mod retention;
mod schedules;
#[cfg(unix)]
mod server;
mod signal_run;
#[cfg(unix)]
mod signals;
mod steps;
mod text;
mod top;
mod undo;
mod why;
mod workers;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Durable workflows: DAGs of tasks that survive the processes that work on them.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a web shop's orders on a private PostgreSQL, kill and freeze workers, and
    /// watch.
    #[cfg(unix)]
    Demo(demo::Arguments),

    /// A worker of the demo, which starts it.
    #[cfg(unix)]
    #[command(hide = true)]
    DemoWorker(demo::WorkerArguments),

    /// Run a private PostgreSQL to develop with, until Ctrl-C.
    #[cfg(unix)]
    Dev(dev::Arguments),

    /// Bring the schema of a database up to date.
    Migrate(migrate::Arguments),

    /// Check on a live database what Windlass guarantees.
    Audit(audit::Arguments),

    /// Look at a live database and say what hurts, where it comes from and what mends it.
    Doctor(doctor::Arguments),

    /// Show who does which background duty.
    Leaders(leaders::Arguments),

    /// Show what programs do once in a while, by one process at a time.
    Duties(duties::Arguments),

    /// Show who works, where, and what it is at.
    Workers(workers::Arguments),

    /// Watch queues, workers and leaders: how much waits, how much comes and goes, who works.
    Top(top::Arguments),

    /// Show what the durable functions of a run remember, and what they wait for.
    Steps(steps::Arguments),

    /// Say why a run or a task does not go on, and what would change it.
    Why(why::Arguments),

    /// List tasks that failed for good, and let their runs go on or take them off the list.
    Dead(dead::Arguments),

    /// Show what operators did by hand: who, what, when and to what.
    Log(log::Arguments),

    /// Show and set how long runs that are over are kept.
    Retention(retention::Arguments),

    /// Show, make and steer what starts runs by itself, and explain when it does.
    Schedules(schedules::Arguments),

    /// Undo what a run did, by its steps that say how.
    Undo(undo::Arguments),
    /// Send a signal to a run, or to whoever waits for a key.
    Signal(signal_run::Arguments),

    /// Measure how fast Windlass is here, on a private PostgreSQL or on a server of yours.
    #[cfg(unix)]
    Bench(bench::Arguments),

    /// A worker process of a benchmark, which starts it.
    #[cfg(unix)]
    #[command(hide = true)]
    BenchWorker(bench::WorkerArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.command) {
        Ok(code) => code,
        // Whoever read the output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", text::shown_lines(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        #[cfg(unix)]
        Command::Demo(arguments) => runtime()?.block_on(demo::run(arguments)),
        #[cfg(unix)]
        Command::DemoWorker(arguments) => demo::run_worker(arguments),
        #[cfg(unix)]
        Command::Dev(arguments) => runtime()?.block_on(dev::run(arguments)),
        Command::Migrate(arguments) => runtime()?.block_on(migrate::run(arguments)),
        Command::Audit(arguments) => Ok(runtime()?.block_on(audit::run(arguments))),
        Command::Doctor(arguments) => Ok(runtime()?.block_on(doctor::run(arguments))),
        Command::Leaders(arguments) => {
            runtime()?.block_on(leaders::run(arguments)).map(|()| ExitCode::SUCCESS)
        }
        Command::Duties(arguments) => {
            runtime()?.block_on(duties::run(arguments)).map(|()| ExitCode::SUCCESS)
        }
        Command::Workers(arguments) => {
            runtime()?.block_on(workers::run(arguments)).map(|()| ExitCode::SUCCESS)
        }
        Command::Top(arguments) => {
            runtime()?.block_on(top::run(arguments)).map(|()| ExitCode::SUCCESS)
        }
        Command::Steps(arguments) => {
            runtime()?.block_on(steps::run(arguments)).map(|()| ExitCode::SUCCESS)
        }
        Command::Why(arguments) => {
            runtime()?.block_on(why::run(arguments)).map(|()| ExitCode::SUCCESS)
        }
        Command::Dead(arguments) => {
            runtime()?.block_on(dead::run(arguments)).map(|()| ExitCode::SUCCESS)
        }
        Command::Log(arguments) => {
            runtime()?.block_on(log::run(arguments)).map(|()| ExitCode::SUCCESS)
        }
        Command::Retention(arguments) => {
            runtime()?.block_on(retention::run(arguments)).map(|()| ExitCode::SUCCESS)
        }
        Command::Schedules(arguments) => {
            runtime()?.block_on(schedules::run(arguments)).map(|()| ExitCode::SUCCESS)
        }
        Command::Undo(arguments) => {
            runtime()?.block_on(undo::run(arguments)).map(|()| ExitCode::SUCCESS)
        }
        Command::Signal(arguments) => {
            runtime()?.block_on(signal_run::run(arguments)).map(|()| ExitCode::SUCCESS)
        }
        #[cfg(unix)]
        Command::Bench(arguments) => runtime()?.block_on(bench::run(arguments)),
        #[cfg(unix)]
        Command::BenchWorker(arguments) => {
            let runtime = runtime()?;
            let code = runtime.block_on(bench::run_worker(arguments));
            // Without waiting for the thread that reads commands: nothing more is to come.
            runtime.shutdown_background();
            code
        }
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_broken = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|link| link.downcast_ref().is_some_and(is_broken))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_broken_pipe_is_found_under_its_context() {
        use anyhow::Context;
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        let error = Err::<(), _>(broken).context("printing").unwrap_err();
        assert!(is_broken_pipe(&error));
        assert!(!is_broken_pipe(&anyhow::anyhow!("run failed")));
    }
}
