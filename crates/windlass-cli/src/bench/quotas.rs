//! What one tenant far over its quota costs the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use windlass::store::Quota;
use windlass::{ErrorKind, Tenant, Workflow};

use super::ground::Ground;
use super::report::Report;
use super::server::Serving;
use super::work::{Counter, chain};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many starts per second each of four tenants makes, and the quota of the fifth.
    #[arg(long, default_value_t = 50, value_parser = crate::text::whole_number::<u32>(1..=10_000))]
    rate: u32,

    /// How many times its quota the fifth asks for.
    #[arg(long, default_value_t = 10, value_parser = crate::text::whole_number::<u32>(2..=1_000))]
    times: u32,

    /// How long each round takes, in seconds.
    #[arg(long, default_value_t = 10, value_parser = crate::text::whole_number::<u64>(1..=3_600))]
    seconds: u64,

    /// How many rounds with the fifth, and as many without.
    #[arg(long, default_value_t = 3, value_parser = crate::text::whole_number::<u32>(1..=100))]
    rounds: u32,
}

/// How many tenants keep to a fixed rate.
const OTHERS: usize = 4;

/// Who is over its quota.
const FLOOD: &str = "flood";

/// What became of the starts of the one that is over its quota.
#[derive(Default)]
struct Flood {
    started: AtomicU64,
    refused: AtomicU64,
}

pub(crate) async fn run(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Report> {
    let mut server = Serving::start(ground).await?;
    let workflow = chain("bench-quotas", 1, &Counter::expecting(u64::MAX));
    let engine = ground.engine().await?;
    let tenant = Some(Tenant::new(FLOOD)?);
    let starts_per_second = Some(arguments.rate);
    engine.set_quota(Quota { starts_per_second, ..Quota::of(tenant) }).await?;
    let worker = engine.worker().register(&workflow).slots(200).spawn()?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let flood = Arc::new(Flood::default());
    // Once before, so that all find the connections and tables warm.
    round(arguments, &server, &workflow, None).await?;
    let rounds = ground.progress.phase("rounds", u64::from(2 * arguments.rounds));
    for _ in 0..arguments.rounds {
        alone.extend(round(arguments, &server, &workflow, None).await?);
        rounds.step();
        beside.extend(round(arguments, &server, &workflow, Some(&flood)).await?);
        rounds.step();
    }
    drop(rounds);
    worker.drain().await?;
    server.child.start_kill()?;
    server.child.wait().await?;
    let time = (arguments.seconds * u64::from(arguments.rounds)) as f64;
    let each = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / time;
    let mut report = Report::new("quotas");
    report.add("quota", "quota of the one", f64::from(arguments.rate), "per second");
    report.add("flood_started", "of its starts let in", each(&flood.started), "per second");
    report.add("flood_refused", "of its starts refused", each(&flood.refused), "per second");
    report.add_times("alone", "start of the others, without it", &mut alone);
    report.add_times("beside", "start of the others, beside it", &mut beside);
    let p99 = |times: &[Duration]| times[(times.len() * 99 / 100).min(times.len() - 1)];
    let ratio = p99(&beside).as_secs_f64() / p99(&alone).as_secs_f64();
    report.add("p99_ratio", "p99 of the others, beside it to without it", ratio, "");
    Ok(report)
}

/// How long the starts of the others take, each from when it was due.
async fn round(
    arguments: &Arguments,
    server: &Serving,
    workflow: &Workflow<()>,
    flood: Option<&Arc<Flood>>,
) -> anyhow::Result<Vec<Duration>> {
    let mut others = JoinSet::new();
    for number in 0..OTHERS {
        // Each with a connection of its own, as processes have.
        let windlass = server.engine()?;
        let (workflow, arguments) = (workflow.clone(), arguments.clone());
        let tenant = format!("tenant-{number}");
        others.spawn(async move {
            let rate = arguments.rate;
            let starts = at_a_rate(rate, arguments.seconds, |due| {
                let start = windlass.start(&workflow, ()).tenant(&tenant);
                async move {
                    start.await?;
                    Ok::<_, windlass::Error>(due.elapsed())
                }
            });
            starts.await.into_iter().collect::<Result<Vec<Duration>, _>>()
        });
    }
    let flooding = flood.map(|flood| {
        let windlass = server.engine();
        let (workflow, arguments) = (workflow.clone(), arguments.clone());
        let flood = Arc::clone(flood);
        tokio::spawn(async move {
            let windlass = windlass?;
            let rate = arguments.rate.saturating_mul(arguments.times);
            at_a_rate(rate, arguments.seconds, |_| {
                let (start, flood) = (windlass.start(&workflow, ()).tenant(FLOOD), flood.clone());
                async move {
                    match start.await {
                        Ok(_) => flood.started.fetch_add(1, Ordering::Relaxed),
                        Err(error) if error.kind() == ErrorKind::Limited => {
                            flood.refused.fetch_add(1, Ordering::Relaxed)
                        }
                        Err(_) => 0,
                    }
                }
            })
            .await;
            Ok::<_, windlass::Error>(())
        })
    });
    let mut times = Vec::new();
    while let Some(other) = others.join_next().await {
        times.extend(other??);
    }
    if let Some(flooding) = flooding {
        flooding.await??;
    }
    Ok(times)
}

/// Does something so many times in a second, whether or not what was begun before is done.
async fn at_a_rate<F: Future<Output: Send + 'static> + Send + 'static>(
    rate: u32,
    seconds: u64,
    begin: impl Fn(Instant) -> F,
) -> Vec<F::Output> {
    let mut under_way = JoinSet::new();
    let began = Instant::now();
    for number in 0..u64::from(rate) * seconds {
        let due = began + Duration::from_secs_f64(number as f64 / f64::from(rate));
        tokio::time::sleep_until(due.into()).await;
        under_way.spawn(begin(due));
    }
    under_way.join_all().await
}
