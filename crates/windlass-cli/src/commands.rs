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
    /// Bring the schema of a database up to date.
    Migrate(migrate::Arguments),

    /// Serve the database to workers and programs that have no connection to it.
    #[cfg(unix)]
    Serve(serve::Arguments),

    /// Check on a live database what Windlass guarantees.
    Audit(audit::Arguments),

    /// Look at a live database and say what hurts, where it comes from and what mends it.
    Doctor(doctor::Arguments),

    /// Start a run of a workflow, and wait for its end with --wait.
    Start(Box<start::Arguments>),

    /// List the workflows that can be started.
    Workflows(workflows::Arguments),

    /// List runs, the newest first.
    Runs(runs::Arguments),

    /// Show one run with its tasks, times and failures.
    Run(run::Arguments),

    /// List the tasks of a run.
    Tasks(tasks::Arguments),

    /// Show what happened to a run, and what happens with --follow.
    Events(events::Arguments),

    /// Cancel a run and all its tasks that have not ended.
    Cancel(steer::Cancel),

    /// Let a failed run go on: what failed, and what depends on it, runs again.
    Retry(steer::Retry),

    /// Let the runs of dead letters go on, as `windlass dead redrive`.
    Redrive(dead::Redrive),

    /// Show how much is in the queues.
    Queues,

    /// Show who does which background duty.
    Leaders,

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

    /// Make, list and revoke tokens for those who use a server.
    Tokens(tokens::Arguments),

    /// Show what was changed: by whom, what, when, to what and from where.
    Log(log::Arguments),

    /// Show and set how long runs that are over are kept.
    Retention(retention::Arguments),

    /// Show and set how much tenants may ask of the servers.
    Quotas(quotas::Arguments),

    /// Show, make and steer what starts runs by itself, and explain when it does.
    Schedules(schedules::Arguments),

    /// Undo what a run did, by its steps that say how.
    Undo(undo::Arguments),
    /// Send a signal to a run, or to whoever waits for a key.
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
            Command::Dead(arguments) => dead::run(arguments, session).await?,
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
