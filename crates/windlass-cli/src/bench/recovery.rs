//! How soon the tasks of a worker that was killed are begun by another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use windlass::worker::LEASE_MIN;
use windlass::{Ctx, TaskError, Workflow};

use super::crew::{Crew, Force, Task, Way};
use super::ground::Ground;
use super::report::Report;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How often a worker is killed.
    #[arg(long, default_value_t = 5, value_parser = crate::text::whole_number::<u32>(1..=1_000))]
    kills: u32,

    /// How many tasks it has each time.
    #[arg(long, default_value_t = 20, value_parser = crate::text::whole_number::<u32>(1..=1_000))]
    tasks: u32,

    /// The lease of the workers, in milliseconds.
    #[arg(long, default_value_t = 2_000, value_parser = crate::text::whole_number::<u64>(2_000..=u64::MAX))]
    lease_ms: u64,
}

/// How long after the lease a benchmark waits for tasks before it is given up.
const WAIT_MAX: Duration = Duration::from_secs(30);

pub(crate) async fn run(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Report> {
    let lease = Duration::from_millis(arguments.lease_ms).max(LEASE_MIN);
    let mut times = Vec::new();
    for _ in 0..arguments.kills {
        times.extend(kill(arguments, ground, lease).await?);
    }
    times.sort_unstable();
    let mut report = Report::new("recovery");
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    report.add("lease_ms", "lease of the killed worker", millis(lease), "ms");
    for percent in [50, 99] {
        let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        let time = times.get(at).copied().unwrap_or_default();
        let key = format!("redispatch_p{percent}_ms");
        report.add(key, format!("kill to next attempt, p{percent}"), millis(time), "ms");
    }
    Ok(report)
}

/// Kills a worker in the middle of its tasks; answers how long after that each of them is
/// begun again.
async fn kill(
    arguments: &Arguments,
    ground: &Ground,
    lease: Duration,
) -> anyhow::Result<Vec<Duration>> {
    let (begun, mut begins) = mpsc::unbounded_channel();
    let workflow = noting(begun)?;
    let windlass = ground.engine().await?;
    let starts: Vec<_> = (0..arguments.tasks).map(|_| windlass.start(&workflow, ())).collect();
    for started in windlass.start_all(starts).await? {
        started?;
    }
    let force = Force { processes: 1, workers: 1, slots: arguments.tasks };
    let mut crew =
        Crew::hire(&Way::database(ground.url()), force, Task::Endless, Some(lease)).await?;
    crew.go().await?;
    crew.begun(arguments.tasks as usize).await?;
    let slots = arguments.tasks as usize;
    let worker = windlass.worker().register(&workflow).slots(slots).lease(lease).spawn()?;
    // It is at work, with nothing to do, when the other is killed.
    tokio::time::sleep(Duration::from_millis(500)).await;
    crew.kill().await?;
    let killed = Instant::now();
    let mut times = Vec::new();
    for _ in 0..arguments.tasks {
        let begin = tokio::time::timeout(lease + WAIT_MAX, begins.recv()).await?;
        times.extend(begin.map(|begin| begin.saturating_duration_since(killed)));
    }
    worker.drain().await?;
    Ok(times)
}

/// A workflow whose task says when it is begun.
fn noting(begun: mpsc::UnboundedSender<Instant>) -> anyhow::Result<Workflow<()>> {
    let mut noting = Workflow::<()>::builder(Task::Endless.workflow());
    let begun = Arc::new(begun);
    noting.task("task-0").run(move |_: Ctx<()>| {
        let sent = begun.send(Instant::now());
        async move { sent.map_err(|_| TaskError::new("the benchmark has ended").permanent()) }
    });
    Ok(noting.build()?)
}
