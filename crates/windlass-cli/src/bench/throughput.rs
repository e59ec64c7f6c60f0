//! How many tasks a second one worker drains from a backlog.

use std::time::Instant;

use windlass::Workflow;

use super::ground::Ground;
use super::meter::Spent;
use super::raw;
use super::report::Report;
use super::work::{Counter, chain, start};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many tasks to drain.
    #[arg(long, default_value_t = 100_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    tasks: u32,

    /// How many tasks the worker runs at once.
    #[arg(long, default_value_t = 2_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    slots: u32,

    /// How many tenants they belong to.
    #[arg(long, default_value_t = 1, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    tenants: u32,
}

pub(crate) async fn run(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Report> {
    let engine = drain(arguments, ground).await?;
    let raw = drain_raw(arguments, ground).await?;
    let tasks = f64::from(arguments.tasks);
    let per_second = |spent: &Spent| tasks / spent.time.as_secs_f64();
    let mut report = Report::new("throughput");
    report.add("tasks_per_second", "tasks", per_second(&engine), "per second");
    report.add("raw_tasks_per_second", "the same rows in raw SQL", per_second(&raw), "per second");
    report.add("ratio", "ratio", per_second(&engine) / per_second(&raw), "");
    for (prefix, label, spent) in [("", "", &engine), ("raw_", "raw: ", &raw)] {
        let each = spent.transactions / tasks;
        report.add(
            format!("{prefix}transactions_per_task"),
            format!("{label}transactions"),
            each,
            "per task",
        );
        let each = spent.wal_bytes / tasks;
        report.add(
            format!("{prefix}wal_bytes_per_task"),
            format!("{label}WAL"),
            each,
            "bytes per task",
        );
        if let Some(cpu) = spent.cpu {
            let micros = cpu.as_secs_f64() * 1e6 / tasks;
            report.add(
                format!("{prefix}server_cpu_us_per_task"),
                format!("{label}processor time of PostgreSQL"),
                micros,
                "µs per task",
            );
        }
    }
    Ok(report)
}

/// Makes a backlog.
async fn fill(
    arguments: &Arguments,
    ground: &Ground,
    workflow: &Workflow<()>,
) -> anyhow::Result<()> {
    let windlass = ground.engine().await?;
    let _filling = ground.progress.phase("filling", u64::from(arguments.tasks));
    start(&windlass, workflow, arguments.tasks as usize, arguments.tenants as usize).await?;
    drop(windlass);
    ground.settle().await
}

/// Lets the engine drain a backlog.
async fn drain(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Spent> {
    let counter = Counter::expecting(u64::from(arguments.tasks));
    let workflow = chain("bench-noop", 1, &counter);
    fill(arguments, ground, &workflow).await?;
    let before = ground.meter().await?;
    let windlass = ground.engine().await?;
    let draining = ground.progress.phase("draining", u64::from(arguments.tasks));
    draining.follow(&counter);
    let began = Instant::now();
    let worker = windlass.worker().register(&workflow).slots(arguments.slots as usize).spawn()?;
    counter.reached().await;
    worker.drain().await?;
    let time = began.elapsed();
    drop(windlass);
    Ok(ground.meter().await?.since(&before, time))
}

/// Moves the rows of the same backlog as the engine did.
async fn drain_raw(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Spent> {
    fill(arguments, ground, &chain("bench-noop", 1, &Counter::expecting(u64::MAX))).await?;
    let before = ground.meter().await?;
    let _draining = ground.progress.phase("raw SQL", u64::from(arguments.tasks));
    let time = raw::drain(ground, u64::from(arguments.tasks), 0).await?;
    Ok(ground.meter().await?.since(&before, time))
}
