//! The commands that talk to a database or a server.

use std::process::ExitCode;

use clap::Subcommand;

#[cfg(unix)]
use crate::serve;
use crate::session::Session;
use crate::{
    audit, dead, doctor, duties, events, leaders, log, migrate, queues, quotas, retention, run,
    runs, schedules, signal_run, start, steer, steps, tasks, tokens, top, undo, why, workers,
    workflows,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create or upgrade the schema of a database
    Migrate(migrate::Arguments),

    /// Run a server for workers and clients in any language
    #[cfg(unix)]
    Serve(serve::Arguments),

    /// Verify the guarantees on a live database
    Audit(audit::Arguments),

    /// Diagnose a live database and suggest fixes
    Doctor(doctor::Arguments),

    /// Start a run of a workflow
    Start(Box<start::Arguments>),

    /// List registered workflows
    Workflows(workflows::Arguments),

    /// List runs, newest first
    Runs(runs::Arguments),

    /// Show a run with its tasks, outputs and failures
    Run(run::Arguments),

    /// List the tasks of a run with their outputs
    Tasks(tasks::Arguments),

    /// Show the events of a run
    Events(events::Arguments),

    /// Cancel a run and its open tasks
    Cancel(steer::Cancel),

    /// Retry the failed tasks of a run
    Retry(steer::Retry),

    /// Retry dead letters, like `windlass dead redrive`
    Redrive(dead::Redrive),

    /// Show the backlog of each queue
    Queues,

    /// Show which process leads each maintenance job
    Leaders,

    /// Show the periodic jobs of programs
    Duties(duties::Arguments),

    /// List workers with their hosts and tasks
    Workers(workers::Arguments),

    /// Watch queues, workers and maintenance jobs
    Top(top::Arguments),

    /// Show the recorded steps of durable functions
    Steps(steps::Arguments),

    /// Explain why a run or task does not progress
    Why(why::Arguments),

    /// List, retry and discard dead letters
    Dead(Box<dead::Arguments>),

    /// Manage access tokens of servers
    Tokens(tokens::Arguments),

    /// Show the audit log of operator actions
    Log(log::Arguments),

    /// Show and set how long ended runs are kept
    Retention(retention::Arguments),

    /// Show and set quotas of tenants
    Quotas(quotas::Arguments),

    /// Manage schedules
    Schedules(schedules::Arguments),

    /// Undo a run by the compensations of its steps
    Undo(undo::Arguments),
    /// Send a signal to a run or to a key
    Signal(signal_run::Arguments),
}

impl Command {
    /// Does what the command says.
    pub(crate) async fn run(self, session: &Session) -> anyhow::Result<ExitCode> {
        match self {
            Command::Migrate(arguments) => return migrate::run(arguments, session).await,
            #[cfg(unix)]
            Command::Serve(arguments) => return serve::run(arguments, session).await,
            Command::Audit(arguments) => return Ok(audit::run(arguments, session).await),
            Command::Doctor(arguments) => return Ok(doctor::run(arguments, session).await),
            Command::Start(arguments) => return start::run(*arguments, session).await,
            Command::Workflows(arguments) => workflows::run(arguments, session).await?,
            Command::Runs(arguments) => runs::run(arguments, session).await?,
            Command::Run(arguments) => run::run(arguments, session).await?,
            Command::Tasks(arguments) => tasks::run(arguments, session).await?,
            Command::Events(arguments) => events::run(arguments, session).await?,
            Command::Cancel(arguments) => steer::cancel(arguments, session).await?,
            Command::Retry(arguments) => steer::retry(arguments, session).await?,
            Command::Redrive(arguments) => dead::redrive(arguments, session).await?,
            Command::Queues => queues::run(session).await?,
            Command::Leaders => leaders::run(session).await?,
            Command::Duties(arguments) => duties::run(arguments, session).await?,
            Command::Workers(arguments) => workers::run(arguments, session).await?,
            Command::Top(arguments) => top::run(arguments, session).await?,
            Command::Steps(arguments) => steps::run(arguments, session).await?,
            Command::Why(arguments) => why::run(arguments, session).await?,
            Command::Dead(arguments) => dead::run(*arguments, session).await?,
            Command::Tokens(arguments) => tokens::run(arguments, session).await?,
            Command::Log(arguments) => log::run(arguments, session).await?,
            Command::Retention(arguments) => retention::run(arguments, session).await?,
            Command::Quotas(arguments) => quotas::run(arguments, session).await?,
            Command::Schedules(arguments) => schedules::run(arguments, session).await?,
            Command::Undo(arguments) => undo::run(arguments, session).await?,
            Command::Signal(arguments) => signal_run::run(arguments, session).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
