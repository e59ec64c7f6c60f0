//! How long a durable function takes from the claim of another attempt, through all that it
//! remembers, to its next step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::sync::mpsc;
use windlass::{Ctx, Function, RunHandle, TaskError, TaskState, Timestamp};

use super::clock::Clock;
use super::ground::Ground;
use super::report::Report;
use super::work::Counter;

/// How many steps each function remembers.
const STEPS: u32 = 1_000;

/// How long one function may take to its next step before the benchmark is given up.
const WAIT_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Arguments {
    /// How many functions of 1,000 steps go on behind them, one after the other; 0 to leave that
    /// out.
    #[arg(long, default_value_t = 20, value_parser = crate::text::whole_number::<u32>(0..=10_000))]
    replays: u32,
}

pub(crate) async fn measure(
    arguments: &Arguments,
    ground: &Ground,
    report: &mut Report,
) -> anyhow::Result<()> {
    if arguments.replays == 0 {
        return Ok(());
    }
    let mut times = replay(arguments, ground).await?;
    times.sort_unstable();
    let millis = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
    let label = "from a claim through 1,000 steps to the next one";
    let middle = millis(times.get(times.len() / 2));
    report.add("replay_1000_ms", format!("{label}, p50"), middle, "ms");
    let longest = millis(times.last());
    report.add("replay_1000_max_ms", format!("{label}, the longest"), longest, "ms");
    Ok(())
}

/// How long after its claim each function came to its next step, with nothing else at work.
async fn replay(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Vec<Duration>> {
    let remembered = Counter::expecting(arguments.replays.into());
    let (came, mut next_steps) = mpsc::unbounded_channel();
    let function = function(&remembered, came)?;
    let windlass = ground.engine().await?;
    let starts = (0..arguments.replays).map(|_| windlass.start(&function, ()));
    let mut runs = Vec::new();
    for started in windlass.start_all(starts).await? {
        runs.push(started?);
    }
    let slots = arguments.replays as usize;
    let worker = windlass.worker().register(&function).slots(slots).spawn()?;
    let remembering = ground.progress.phase("remembering", arguments.replays.into());
    remembered.reached().await;
    drop(remembering);
    let replaying = ground.progress.phase("replaying", arguments.replays.into());
    let mut times = Vec::new();
    for run in &runs {
        parked(run).await?;
        let clock = Clock::read(&ground.client).await?;
        run.signal("go", &()).await?;
        let at = tokio::time::timeout(WAIT_MAX, next_steps.recv()).await?;
        run.wait_timeout(WAIT_MAX).await?;
        let sql = "
            select (extract(epoch from max(e.at)) * 1e6)::bigint
            from windlass.events e
            where e.run_id = $1 and e.kind = 'started'";
        let claimed = ground.client.query_one(sql, &[run.id().as_uuid()]).await?;
        let claimed = Timestamp::from_micros(claimed.get(0));
        times.extend(at.map(|at| clock.micros_since(claimed, at)));
        replaying.step();
    }
    worker.drain().await?;
    // A claim that is told of after it was used would be a mistake of the measurement.
    let time = |micros| Ok(Duration::from_micros(u64::try_from(micros)?));
    times.into_iter().map(time).collect()
}

/// Waits until a function waits, with nothing of it at work: only then is there another attempt.
async fn parked(run: &RunHandle) -> anyhow::Result<()> {
    let began = Instant::now();
    while run.tasks().await?.iter().any(|task| task.state != TaskState::Waiting) {
        ensure!(began.elapsed() < WAIT_MAX, "run {} did not come to wait", run.id());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// A function of many steps that do nothing, which waits to be told to go on to its last.
fn function(
    remembered: &Arc<Counter>,
    came: mpsc::UnboundedSender<Instant>,
) -> anyhow::Result<Function<(), ()>> {
    let remembered = Arc::clone(remembered);
    let handler = move |ctx: Ctx<()>| {
        let (remembered, came) = (Arc::clone(&remembered), came.clone());
        async move {
            for _ in 0..STEPS {
                ctx.step("remembered", async || Ok::<_, TaskError>(())).await?;
            }
            remembered.add();
            ctx.signal::<()>("go").await?;
            let next = async || {
                let sent = came.send(Instant::now());
                sent.map_err(|_| TaskError::new("the benchmark has ended").permanent())
            };
            ctx.step("next", next).await
        }
    };
    Ok(Function::new("bench-replay", handler)?)
}
