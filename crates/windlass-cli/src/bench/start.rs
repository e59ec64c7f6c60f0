//! How many runs a second can be started: one at a time, many at once, in bulk.

use std::time::{Duration, Instant};

use windlass::{Windlass, Workflow};

use super::ground::Ground;
use super::report::Report;
use super::work::{Counter, START_BATCH, chain};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many runs to start in bulk; of single starts, a tenth.
    #[arg(long, default_value_t = 100_000, value_parser = crate::text::whole_number::<u32>(10..=u32::MAX))]
    runs: u32,

    /// How many single starts are under way at once.
    #[arg(long, default_value_t = 32, value_parser = crate::text::whole_number::<u32>(1..=1000))]
    concurrent: u32,

    /// How many batches are under way at once in bulk.
    #[arg(long, default_value_t = 2, value_parser = crate::text::whole_number::<u32>(1..=10))]
    batches: u32,
}

pub(crate) async fn run(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Report> {
    let workflow = chain("bench-start", 1, &Counter::expecting(u64::MAX));
    let windlass = ground.engine().await?;
    // What is done once is not measured: registering the workflow, numbering the tenant.
    windlass.start(&workflow, ()).await?;
    let single = arguments.runs.div_ceil(100);
    let one = routes(&windlass, &workflow, 1, single, 1).await?;
    let many = arguments.runs / 10;
    let concurrent = routes(&windlass, &workflow, arguments.concurrent, many, 1).await?;
    let batch = u32::try_from(START_BATCH)?;
    let bulk = routes(&windlass, &workflow, arguments.batches, arguments.runs, batch).await?;
    let per_second = |runs: u32, time: Duration| f64::from(runs) / time.as_secs_f64();
    let mut report = Report::new("start");
    let unit = "per second";
    report.add("starts_per_second", "starts in bulk", per_second(arguments.runs, bulk), unit);
    let label = format!("single starts, {} at once", arguments.concurrent);
    report.add("concurrent_starts_per_second", label, per_second(many, concurrent), unit);
    let label = "single starts, one after the other";
    report.add("single_starts_per_second", label, per_second(single, one), unit);
    Ok(report)
}

/// Starts this many runs, in some routes at once, in each of which one batch follows the
/// other; answers how long it took.
async fn routes(
    windlass: &Windlass,
    workflow: &Workflow<()>,
    routes: u32,
    runs: u32,
    batch: u32,
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for route in 0..routes {
        let (windlass, workflow) = (windlass.clone(), workflow.clone());
        let mut left = runs / routes + u32::from(route < runs % routes);
        tasks.spawn(async move {
            while left > 0 {
                let size = left.min(batch);
                left -= size;
                if size == 1 {
                    windlass.start(&workflow, ()).await?;
                    continue;
                }
                let starts: Vec<_> = (0..size).map(|_| windlass.start(&workflow, ())).collect();
                for started in windlass.start_all(starts).await? {
                    started?;
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(began.elapsed())
}
