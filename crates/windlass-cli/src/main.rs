//! The one binary of Windlass: `windlass`.
//!
//! This crate parses arguments and prints; what it does is done by the library.

mod audit;
#[cfg(unix)]
mod bench;
#[cfg(unix)]
mod certificates;
mod choice;
mod commands;
mod dead;
#[cfg(unix)]
mod demo;
#[cfg(unix)]
mod dev;
mod doctor;
mod duties;
mod events;
mod failure;
mod keys;
mod leaders;
mod log;
mod migrate;
mod operator;
mod queues;
mod quotas;
mod redact;
mod retention;
mod run;
mod runs;
mod schedules;
#[cfg(unix)]
mod serve;
#[cfg(unix)]
mod server;
mod session;
mod settings;
mod signal_run;
#[cfg(unix)]
mod signals;
mod start;
mod steer;
mod steps;
mod table;
mod tasks;
mod text;
mod tokens;
mod top;
mod undo;
mod why;
mod workers;
mod workflows;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::session::Session;
use crate::settings::{GlobalArguments, Settings};

/// Durable workflows on PostgreSQL
#[derive(Debug, Parser)]
#[command(name = "windlass", version, arg_required_else_help = true)]
struct Arguments {
    #[command(flatten)]
    global: GlobalArguments,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run orders on a private PostgreSQL while workers are killed
    #[cfg(unix)]
    Demo(demo::Arguments),

    /// A worker of the demo, which starts it.
    #[cfg(unix)]
    #[command(hide = true)]
    DemoWorker(demo::WorkerArguments),

    /// Run a private PostgreSQL and server for development
    #[cfg(unix)]
    Dev(dev::Arguments),

    #[command(flatten)]
    Connected(commands::Command),

    /// Create keys to encrypt payloads
    Keys(keys::Arguments),

    /// Print a shell completion script
    Completions {
        /// Shell: bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },

    /// Run benchmarks on a private or given PostgreSQL
    #[cfg(unix)]
    Bench(bench::Arguments),

    /// A worker process of a benchmark, which starts it.
    #[cfg(unix)]
    #[command(hide = true)]
    BenchWorker(bench::WorkerArguments),

    /// Hostile clients of a benchmark, which starts them.
    #[cfg(unix)]
    #[command(hide = true)]
    BenchAttack(bench::AttackArguments),
}

impl Command {
    /// Refuses what the command does nothing with.
    fn check(&self, global: &GlobalArguments) -> anyhow::Result<()> {
        match self {
            #[cfg(unix)]
            Command::Demo(_) => global.refuse_target("demo", false),
            #[cfg(unix)]
            Command::Dev(_) => global.refuse_target("dev", false),
            #[cfg(unix)]
            Command::Bench(_) => global.refuse_target("bench", true),
            #[cfg(unix)]
            Command::DemoWorker(_) | Command::BenchWorker(_) | Command::BenchAttack(_) => Ok(()),
            #[cfg(unix)]
            Command::Connected(commands::Command::Serve(_)) => global.refuse_unused("serve"),
            Command::Connected(_) | Command::Keys(_) | Command::Completions { .. } => Ok(()),
        }
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refused(&error),
    };
    let is_json = arguments.global.json;
    match run(arguments) {
        Ok(code) => code,
        // Whoever read the output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            failure::print(&error, is_json);
            failure::exit_code(&error)
        }
    }
}

/// Says what is wrong with the arguments, or the help or version that they ask for.
fn refused(error: &clap::Error) -> ExitCode {
    let is_json = std::env::args_os().any(|argument| argument == "--json");
    if error.use_stderr() && is_json {
        failure::print_misuse(error.to_string().trim());
    } else {
        print_refusal(error);
    }
    ExitCode::from(if error.use_stderr() { failure::MISUSED } else { 0 })
}

/// Prints what is wrong with arguments, with colours unless it quotes a password or what could steer
/// a terminal.
fn print_refusal(error: &clap::Error) {
    let text = error.to_string();
    let safe = redact::scrubbed(&text).lines().map(text::shown).collect::<Vec<_>>().join("\n");
    if safe == text.trim_end_matches('\n') {
        // Nobody is left to be told that it cannot be told.
        let _ = error.print();
    } else {
        eprintln!("{safe}");
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { global, command } = arguments;
    let is_json = global.json;
    let command = match command {
        Some(command) if !global.print_config => command,
        Some(_) | None if global.print_config => {
            let settings = Settings::read(&global)?;
            let document = || settings.json();
            Session::new(settings.clone(), is_json).tell(document, || settings.table())?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(_) | None => return Err(failure::usage("a command is missing, see windlass --help")),
    };
    command.check(&global)?;
    match command {
        #[cfg(unix)]
        Command::Demo(_) | Command::Dev(_) if is_json => {
            Err(failure::usage("windlass demo and windlass dev are for people and have no JSON"))
        }
        #[cfg(unix)]
        Command::Demo(arguments) => runtime()?.block_on(demo::run(arguments)),
        #[cfg(unix)]
        Command::DemoWorker(arguments) => demo::run_worker(arguments),
        #[cfg(unix)]
        Command::Dev(arguments) => runtime()?.block_on(dev::run(arguments)),
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
        #[cfg(unix)]
        Command::BenchAttack(arguments) => {
            let runtime = runtime()?;
            let code = runtime.block_on(bench::run_attack(arguments));
            // Without waiting for the thread that reads commands: nothing more is to come.
            runtime.shutdown_background();
            code
        }
        Command::Keys(arguments) => keys::run(arguments, is_json),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "windlass", &mut script);
            io::stdout().write_all(&script)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Connected(command) => {
            let session = Session::new(Settings::read(&global)?, is_json);
            runtime()?.block_on(command.run(&session))
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
