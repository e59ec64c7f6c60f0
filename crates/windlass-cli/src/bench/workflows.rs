//! How many whole workflows a second one worker does: chains, and fan-outs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass::Workflow;

use super::ground::Ground;
use super::report::Report;
use super::work::{Counter, chain, fan_out, start};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many chains of three tasks.
    #[arg(long, default_value_t = 20_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    chains: u32,

    /// How many runs that go from one task to a hundred and back to one.
    #[arg(long, default_value_t = 500, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    fan_outs: u32,

    /// How many tasks the worker runs at once.
    #[arg(long, default_value_t = 2_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    slots: u32,
}

pub(crate) async fn run(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Report> {
    let counter = Counter::expecting(3 * u64::from(arguments.chains));
    let chains = chain("bench-chain", 3, &counter);
    let time = drain(arguments, ground, &chains, &counter, arguments.chains).await?;
    let mut report = Report::new("workflows");
    let per_second = f64::from(arguments.chains) / time.as_secs_f64();
    report.add("workflows_per_second", "chains of three tasks", per_second, "per second");
    let counter = Counter::expecting(102 * u64::from(arguments.fan_outs));
    let fan_outs = fan_out("bench-fan-out", 100, &counter);
    let time = drain(arguments, ground, &fan_outs, &counter, arguments.fan_outs).await?;
    let per_second = f64::from(arguments.fan_outs) / time.as_secs_f64();
    report.add("fan_outs_per_second", "fan-outs 1→100→1", per_second, "per second");
    report.add("fan_out_tasks_per_second", "tasks of them", 102.0 * per_second, "per second");
    Ok(report)
}

/// Makes a backlog of runs and lets a worker do it.
async fn drain(
    arguments: &Arguments,
    ground: &Ground,
    workflow: &Workflow<()>,
    counter: &Arc<Counter>,
    runs: u32,
) -> anyhow::Result<Duration> {
    let windlass = ground.engine().await?;
    start(&windlass, workflow, runs as usize, 1).await?;
    ground.settle().await?;
    let draining = ground.progress.phase("draining", counter.wanted());
    draining.follow(counter);
    let began = Instant::now();
    let worker = windlass.worker().register(workflow).slots(arguments.slots as usize).spawn()?;
    counter.reached().await;
    worker.drain().await?;
    Ok(began.elapsed())
}
