//! The one binary of Windlass: `windlass`.
//!
//! This crate parses arguments and prints; what it does is done by the library.

mod audit;
mod database;
mod demo;
mod text;

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
    /// Check on a live database what Windlass guarantees.
    Audit(audit::Arguments),
    /// Run a web shop's orders in memory for a few seconds, and watch.
    Demo(demo::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.command) {
        Ok(code) => code,
        // Whoever read the output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", text::shown(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match command {
        Command::Audit(arguments) => Ok(runtime.block_on(audit::run(arguments))),
        Command::Demo(arguments) => runtime.block_on(demo::run(arguments)),
    }
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
