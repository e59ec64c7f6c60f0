//! What a worker costs that has nothing to do.

use std::sync::Arc;
use std::time::Duration;

use windlass::Windlass;
use windlass::store::postgres::{LeaderElection, PostgresStore};
use windlass::store::{Duty, ScheduleStore as _, Store as _};

use super::ground::Ground;
use super::meter::Spent;
use super::report::Report;
use super::work::{Counter, chain};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How long to watch, in seconds.
    #[arg(long, default_value_t = 10, value_parser = crate::text::whole_number::<u64>(1..=3_600))]
    seconds: u64,

    /// How many idle workers, each with an engine of its own.
    #[arg(long, default_value_t = 1, value_parser = crate::text::whole_number::<u32>(1..=200))]
    workers: u32,

    /// Who does the background duties.
    #[arg(long, value_enum, default_value = "leader")]
    duties: Who,
}

/// Who does the background duties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Who {
    /// One process, by a row that is a lease: as it is if nothing is said.
    Leader,
    /// One process, by an advisory lock.
    Lock,
    /// Every process, each second, for comparison: what others have is passed over.
    Everyone,
}

/// The store of a worker.
async fn connect(ground: &Ground, who: Who) -> anyhow::Result<Arc<PostgresStore>> {
    let election = match who {
        Who::Leader | Who::Everyone => LeaderElection::LeaseRow,
        Who::Lock => LeaderElection::AdvisoryLock,
    };
    Ok(Arc::new(PostgresStore::connect(ground.options().election(election)).await?))
}

/// Does all duties every second, whoever else does.
async fn sweep(store: Arc<PostgresStore>) -> anyhow::Result<()> {
    loop {
        store.promote_due(Duty::PromoteDue.batch()).await?;
        store.reap(Duty::Reap.batch()).await?;
        store.prune(Duty::Prune.batch()).await?;
        store.fire_schedules(Duty::Schedules.batch()).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
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
    let now = both.statements as f64;
    let all = now / time.as_secs_f64();
    add("statements_per_second", "statements of an idle worker", now, 0.0, "per second");
    let (both, joining) = (both.spent, joining.spent);
    let (now, before) = (both.transactions, joining.transactions);
    add("transactions_per_second", "transactions of an idle worker", now, before, "per second");
    let (now, before) = (both.wal_bytes, joining.wal_bytes);
    add("wal_bytes_per_second", "WAL of an idle worker", now, before, "bytes per second");
    report.add("all_statements_per_second", "statements of all workers", all, "per second");
    Ok(report)
}

/// What workers cost.
struct Cost {
    spent: Spent,
    /// Of those that have joined, those that begin and end transactions among them.
    statements: u64,
}

fn statements(stores: &[Arc<PostgresStore>]) -> u64 {
    stores.iter().map(|store| store.statements()).sum()
}

/// What workers cost that are there for a time.
async fn watch(arguments: &Arguments, ground: &Ground, time: Duration) -> anyhow::Result<Cost> {
    let workflow = chain("bench-idle", 1, &Counter::expecting(u64::MAX));
    let before = ground.meter().await?;
    let (mut workers, mut stores) = (Vec::new(), Vec::new());
    let mut sweeps = tokio::task::JoinSet::new();
    for _ in 0..arguments.workers {
        let store = connect(ground, arguments.duties).await?;
        let windlass = Windlass::with_store(Arc::clone(&store) as _);
        let mut worker = windlass.worker().register(&workflow);
        if arguments.duties == Who::Everyone {
            worker = worker.duties(None);
            sweeps.spawn(sweep(Arc::clone(&store)));
        }
        workers.push(worker.spawn()?);
        stores.push(store);
    }
    let watching = ground.progress.phase("watching", time.as_secs());
    let mut joined = 0;
    for second in 0..time.as_secs() {
        if second == JOINING.as_secs() {
            joined = statements(&stores);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        watching.step();
        if let Some(ended) = sweeps.try_join_next() {
            ended??;
        }
    }
    sweeps.shutdown().await;
    let statements = statements(&stores) - joined;
    for worker in workers {
        worker.drain().await?;
    }
    drop(stores);
    Ok(Cost { spent: ground.meter().await?.since(&before, time), statements })
}
