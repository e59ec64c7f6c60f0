//! How many durable functions a second one worker does, how long one takes alone, how late many
//! wake that sleep until the same moment, and how long one takes to come back to where it was.

use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass::{Ctx, Function, TaskError};

use super::ground::Ground;
use super::report::Report;
use super::work::{Counter, start};
use super::{raw, replay, sleepers};

/// How many steps each function has.
const STEPS: u32 = 3;

/// How long one function alone may take before the benchmark is given up.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// How many functions go first and are not measured: they open connections and make plans.
const UNMEASURED: u32 = 20;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many functions of three steps to drain.
    #[arg(long, default_value_t = 20_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    functions: u32,

    /// How many functions the worker runs at once.
    #[arg(long, default_value_t = 2_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    slots: u32,

    /// How many functions to run alone, one after the other.
    #[arg(long, default_value_t = 500, value_parser = crate::text::whole_number::<u32>(1..=100_000))]
    runs: u32,

    /// How long to rest between those, in milliseconds.
    #[arg(long, default_value_t = 5)]
    rest_ms: u64,

    #[command(flatten)]
    sleepers: sleepers::Arguments,

    #[command(flatten)]
    replay: replay::Arguments,
}

pub(crate) async fn run(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Report> {
    let mut alone = alone(arguments, ground).await?;
    let per_second = |time: Duration| f64::from(arguments.functions) / time.as_secs_f64();
    let engine = per_second(drain(arguments, ground).await?);
    let raw = per_second(drain_raw(arguments, ground).await?);
    let mut report = Report::new("functions");
    report.add("functions_per_second", "functions of three steps", engine, "per second");
    let steps = f64::from(STEPS) * engine;
    report.add("steps_per_second", "steps of them", steps, "per second");
    report.add("raw_functions_per_second", "the same rows in raw SQL", raw, "per second");
    report.add("ratio", "ratio", engine / raw, "");
    report.add_times("function", "one alone, from its start to its end", &mut alone);
    replay::measure(&arguments.replay, ground, &mut report).await?;
    sleepers::measure(&arguments.sleepers, arguments.slots, ground, &mut report).await?;
    Ok(report)
}

/// A function whose steps do nothing.
fn function(counter: &Arc<Counter>) -> anyhow::Result<Function<(), ()>> {
    let counter = Arc::clone(counter);
    let handler = move |ctx: Ctx<()>| {
        let counter = Arc::clone(&counter);
        async move {
            for _ in 0..STEPS {
                ctx.step("nothing", async || Ok::<_, TaskError>(())).await?;
            }
            counter.add();
            Ok::<_, TaskError>(())
        }
    };
    Ok(Function::new("bench-function", handler)?)
}

/// How long functions take from their start until the one who started them knows of their end.
async fn alone(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Vec<Duration>> {
    let function = function(&Counter::expecting(u64::MAX))?;
    // Two engines, as if two processes: each hears of the other as it would elsewhere.
    let (starter, working) = (ground.engine().await?, ground.engine().await?);
    let worker = working.worker().register(&function).spawn()?;
    let one_by_one = ground.progress.phase("alone", u64::from(arguments.runs));
    let mut times = Vec::new();
    for number in 0..UNMEASURED + arguments.runs {
        let began = Instant::now();
        let run = starter.start(&function, ()).await?;
        run.wait_timeout(WAIT_MAX).await?;
        if number >= UNMEASURED {
            times.push(began.elapsed());
            one_by_one.step();
        }
        tokio::time::sleep(Duration::from_millis(arguments.rest_ms)).await;
    }
    worker.drain().await?;
    Ok(times)
}

/// Makes a backlog.
async fn fill(
    arguments: &Arguments,
    ground: &Ground,
    function: &Function<(), ()>,
) -> anyhow::Result<()> {
    let windlass = ground.engine().await?;
    let _filling = ground.progress.phase("filling", u64::from(arguments.functions));
    start(&windlass, function, arguments.functions as usize, 1).await?;
    ground.settle().await
}

/// Lets the engine drain a backlog.
async fn drain(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Duration> {
    let counter = Counter::expecting(u64::from(arguments.functions));
    let function = function(&counter)?;
    fill(arguments, ground, &function).await?;
    let windlass = ground.engine().await?;
    let draining = ground.progress.phase("draining", counter.wanted());
    draining.follow(&counter);
    let began = Instant::now();
    let worker = windlass.worker().register(&function).slots(arguments.slots as usize).spawn()?;
    counter.reached().await;
    worker.drain().await?;
    Ok(began.elapsed())
}

/// Moves the rows of the same backlog as the engine did.
async fn drain_raw(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Duration> {
    fill(arguments, ground, &function(&Counter::expecting(u64::MAX))?).await?;
    let _draining = ground.progress.phase("raw SQL", u64::from(arguments.functions));
    raw::drain(ground, u64::from(arguments.functions), STEPS).await
}
