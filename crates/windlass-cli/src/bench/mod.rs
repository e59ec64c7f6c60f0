//! `windlass bench`: how fast it is here, on this machine and this PostgreSQL.

mod attack;
mod clock;
mod crew;
mod fairness;
mod functions;
mod ground;
mod hostile;
mod idle;
mod latency;
mod limits;
mod meter;
mod progress;
mod quotas;
mod raw;
mod recovery;
mod replay;
mod report;
mod scale;
mod server;
mod sleepers;
mod start;
mod throughput;
mod work;
mod workflows;
mod xmin;

use std::process::ExitCode;

use clap::Subcommand;

pub(crate) use self::attack::{Arguments as AttackArguments, run as run_attack};
pub(crate) use self::crew::{Arguments as WorkerArguments, run as run_worker};
use self::ground::{Ground, GroundArguments};
use self::report::Report;
use crate::signals::Signals;

/// What `windlass bench` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,

    #[command(flatten)]
    ground: GroundArguments,

    /// Print the figures as JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum Benchmark {
    /// Tasks that do nothing, from a backlog, beside the raw SQL of the same rows.
    Throughput(throughput::Arguments),

    /// Whole workflows: chains of three tasks, and fan-outs from one to a hundred to one.
    Workflows(workflows::Arguments),

    /// Durable functions: of three steps that do nothing, beside the raw SQL of the same rows;
    /// asleep until the same moment; behind a thousand steps.
    Functions(functions::Arguments),

    /// Starts: one at a time, many at once, in bulk.
    Start(start::Arguments),

    /// How soon an idle worker begins what is started, and the next task after it.
    Latency(latency::Arguments),

    /// Streams of many keys, one busy stream, and what waits behind full lanes.
    Limits(limits::Arguments),

    /// Whether every tenant gets its turn: gaps against their bound, shares against weights.
    Fairness(fairness::Arguments),

    /// What a long transaction elsewhere in the database costs.
    Xmin(xmin::Arguments),

    /// What a worker costs that has nothing to do.
    Idle(idle::Arguments),

    /// How soon the tasks of a worker that was killed are begun by another.
    Recovery(recovery::Arguments),

    /// More processes, a larger backlog, more tenants.
    Scale(scale::Arguments),

    /// What a server costs: tasks and starts through it, and workers that have nothing to do.
    Server(server::Arguments),

    /// What one tenant far over its quota costs the others.
    Quotas(quotas::Arguments),

    /// Measure what hostile tokens cost another tenant and the server
    Hostile(hostile::Arguments),
}

/// Makes the database, measures, audits, prints and removes the database.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    // Whatever ends it, the database goes.
    let mut signals = Signals::new()?;
    let ground = Ground::prepare(&arguments.ground, arguments.json).await?;
    let measured = tokio::select! {
        biased;
        exit_code = signals.next() => Ok(ExitCode::from(exit_code)),
        measured = measure(&arguments, &ground) => measured,
    };
    let removed = ground.remove().await;
    let exit_code = measured?;
    removed?;
    Ok(exit_code)
}

async fn measure(arguments: &Arguments, ground: &Ground) -> anyhow::Result<ExitCode> {
    let report: Report = match &arguments.benchmark {
        Benchmark::Throughput(arguments) => throughput::run(arguments, ground).await?,
        Benchmark::Workflows(arguments) => workflows::run(arguments, ground).await?,
        Benchmark::Functions(arguments) => functions::run(arguments, ground).await?,
        Benchmark::Start(arguments) => start::run(arguments, ground).await?,
        Benchmark::Latency(arguments) => latency::run(arguments, ground).await?,
        Benchmark::Limits(arguments) => limits::run(arguments, ground).await?,
        Benchmark::Fairness(arguments) => fairness::run(arguments, ground).await?,
        Benchmark::Xmin(arguments) => xmin::run(arguments, ground).await?,
        Benchmark::Idle(arguments) => idle::run(arguments, ground).await?,
        Benchmark::Recovery(arguments) => recovery::run(arguments, ground).await?,
        Benchmark::Scale(arguments) => scale::run(arguments, ground).await?,
        Benchmark::Server(arguments) => server::run(arguments, ground).await?,
        Benchmark::Quotas(arguments) => quotas::run(arguments, ground).await?,
        Benchmark::Hostile(arguments) => hostile::run(arguments, ground).await?,
    };
    let auditing = ground.progress.phase("auditing", 1);
    let audit = ground.audit().await?;
    drop(auditing);
    report.print(&audit, arguments.json)?;
    if !audit.is_clean() {
        eprint!("{}", crate::audit::render(&audit, false));
        return Ok(ExitCode::FAILURE);
    }
    if report.is_missed() {
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
