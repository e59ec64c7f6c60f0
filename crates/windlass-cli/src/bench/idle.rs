//! What a worker costs that has nothing to do.

use std::time::Duration;

use super::ground::Ground;
use super::meter::Spent;
use super::report::Report;
use super::work::{Counter, chain};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How long to watch, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,

    /// How many idle workers, each with an engine of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=50))]
    workers: u32,
}

/// How long workers are there that only join and leave: what that costs is no idling, and is
/// subtracted.
const JOINING: Duration = Duration::from_secs(2);

pub(crate) async fn run(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Report> {
    let time = Duration::from_secs(arguments.seconds);
    let joining = watch(arguments, ground, JOINING).await?;
    let both = watch(arguments, ground, JOINING + time).await?;
    let each = time.as_secs_f64() * f64::from(arguments.workers);
    let mut report = Report::new("idle");
    let transactions = (both.transactions - joining.transactions) / each;
    let label = "transactions of an idle worker";
    report.add("transactions_per_second", label, transactions.max(0.0), "per second");
    let wal = (both.wal_bytes - joining.wal_bytes) / each;
    report.add("wal_bytes_per_second", "WAL of an idle worker", wal.max(0.0), "bytes per second");
    Ok(report)
}

/// What workers cost that are there for a time.
async fn watch(arguments: &Arguments, ground: &Ground, time: Duration) -> anyhow::Result<Spent> {
    let workflow = chain("bench-idle", 1, &Counter::expecting(u64::MAX));
    let before = ground.meter().await?;
    let mut workers = Vec::new();
    for _ in 0..arguments.workers {
        let windlass = ground.engine().await?;
        workers.push((windlass.worker().register(&workflow).spawn()?, windlass));
    }
    tokio::time::sleep(time).await;
    for (worker, windlass) in workers {
        worker.drain().await?;
        drop(windlass);
    }
    Ok(ground.meter().await?.since(&before, time))
}
