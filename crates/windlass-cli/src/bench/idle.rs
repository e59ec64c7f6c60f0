//! What a worker costs that has nothing to do.

use std::sync::Arc;
use std::time::Duration;

use windlass::Windlass;

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
    let mut add = |key: &str, label: &str, both: f64, joining: f64, unit| {
        report.add(key, label, ((both - joining) / each).max(0.0), unit);
    };
    let (now, before) = (both.statements as f64, joining.statements as f64);
    add("statements_per_second", "statements of an idle worker", now, before, "per second");
    let (both, joining) = (both.spent, joining.spent);
    let (now, before) = (both.transactions, joining.transactions);
    add("transactions_per_second", "transactions of an idle worker", now, before, "per second");
    let (now, before) = (both.wal_bytes, joining.wal_bytes);
    add("wal_bytes_per_second", "WAL of an idle worker", now, before, "bytes per second");
    Ok(report)
}

/// What workers cost.
struct Cost {
    spent: Spent,
    /// Those that begin and end transactions among them.
    statements: u64,
}

/// What workers cost that are there for a time.
async fn watch(arguments: &Arguments, ground: &Ground, time: Duration) -> anyhow::Result<Cost> {
    let workflow = chain("bench-idle", 1, &Counter::expecting(u64::MAX));
    let before = ground.meter().await?;
    let (mut workers, mut stores) = (Vec::new(), Vec::new());
    for _ in 0..arguments.workers {
        let store = ground.store().await?;
        let windlass = Windlass::with_store(Arc::clone(&store) as _);
        workers.push(windlass.worker().register(&workflow).spawn()?);
        stores.push(store);
    }
    let watching = ground.progress.phase("watching", time.as_secs());
    for _ in 0..time.as_secs() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        watching.step();
    }
    for worker in workers {
        worker.drain().await?;
    }
    let statements = stores.iter().map(|store| store.statements()).sum();
    drop(stores);
    Ok(Cost { spent: ground.meter().await?.since(&before, time), statements })
}
