//! How soon an idle worker begins what is started, and goes on to the next task.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use windlass::{Ctx, TaskError, Workflow};

use super::ground::Ground;
use super::report::Report;

/// How long a start may take before the benchmark is given up.
const WAIT_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many runs to start, one after the other.
    #[arg(long, default_value_t = 500, value_parser = crate::text::whole_number::<u32>(1..=100_000))]
    runs: u32,

    /// How long to rest between them, in milliseconds.
    #[arg(long, default_value_t = 5)]
    rest_ms: u64,
}

/// When the two tasks of the newest run began.
#[derive(Debug, Default)]
struct Times {
    begun: Mutex<[Option<Instant>; 2]>,
    is_over: Notify,
}

impl Times {
    fn begin(&self, task: usize) {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)[task] = Some(Instant::now());
        if task == 1 {
            self.is_over.notify_one();
        }
    }

    fn take(&self) -> Option<[Instant; 2]> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let [first, second] = std::mem::take(&mut *begun);
        Some([first?, second?])
    }
}

pub(crate) async fn run(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Report> {
    let times = Arc::new(Times::default());
    let workflow = pair(&times)?;
    // Two engines, as if two processes: the worker hears of starts as it would elsewhere.
    let (starter, working) = (ground.engine().await?, ground.engine().await?);
    let worker = working.worker().register(&workflow).spawn()?;
    let (mut starts, mut hops) = (Vec::new(), Vec::new());
    // The first ones are not measured: they open connections and make plans.
    for number in 0..arguments.runs + 20 {
        let began = Instant::now();
        starter.start(&workflow, ()).await?;
        tokio::time::timeout(WAIT_MAX, times.is_over.notified()).await?;
        let Some([first, second]) = times.take() else { continue };
        if number >= 20 {
            starts.push(first - began);
            hops.push(second - first);
        }
        tokio::time::sleep(Duration::from_millis(arguments.rest_ms)).await;
    }
    worker.drain().await?;
    let mut commits = commits(arguments, ground).await?;
    let mut report = Report::new("latency");
    for (key, label, times) in [
        ("start", "start to first task", &mut starts),
        ("hop", "task to next task", &mut hops),
        ("commit", "one row in raw SQL, committed", &mut commits),
    ] {
        report.add_times(key, label, times);
    }
    Ok(report)
}

/// How long one insert takes at the same pace, with nothing around it: both a start and a
/// claim end with such a commit, so nothing is faster than two of them.
async fn commits(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Vec<Duration>> {
    ground.client.batch_execute("create table bench_commits (n integer)").await?;
    let insert = ground.client.prepare("insert into bench_commits values (1)").await?;
    let mut times = Vec::new();
    for _ in 0..arguments.runs {
        let began = Instant::now();
        ground.client.execute(&insert, &[]).await?;
        times.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(arguments.rest_ms)).await;
    }
    ground.client.batch_execute("drop table bench_commits").await?;
    Ok(times)
}

/// Two tasks, one after the other, that note when they begin.
fn pair(times: &Arc<Times>) -> anyhow::Result<Workflow<()>> {
    let handler = |task: usize| {
        let times = Arc::clone(times);
        move |_: Ctx<()>| {
            times.begin(task);
            async { Ok::<_, TaskError>(()) }
        }
    };
    let mut pair = Workflow::<()>::builder("bench-latency");
    let first = pair.task("first").run(handler(0));
    pair.task("second").after(&first).run(handler(1));
    Ok(pair.build()?)
}
