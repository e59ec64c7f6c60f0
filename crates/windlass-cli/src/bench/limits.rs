//! What limits cost: streams of many keys, one busy stream, and what waits behind full lanes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use windlass::{Ctx, Limit, TaskError, Windlass, Workflow};

use super::ground::Ground;
use super::report::Report;
use super::work::{Counter, START_BATCH};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many tasks to drain each time.
    #[arg(long, default_value_t = 100_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    tasks: u32,

    /// How many keys they have, with one slot each.
    #[arg(long, default_value_t = 10_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    keys: u32,

    /// How many tasks one key alone has.
    #[arg(long, default_value_t = 5_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    hot: u32,

    /// How many tasks wait behind a full lane while others are drained.
    #[arg(long, default_value_t = 200_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    waiting: u32,

    /// How many tasks the worker runs at once.
    #[arg(long, default_value_t = 2_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    slots: u32,
}

#[derive(Serialize, Deserialize)]
struct Message {
    key: u32,
}

pub(crate) async fn run(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Report> {
    let Arguments { tasks, keys, hot, waiting, slots } = *arguments;
    let one = || Some(Limit::per("key", 1));
    // Once before, so that all find the tables as used as each other.
    drain(ground, "bench-before", None, Batch { tasks, keys, slots }).await?;
    let free = drain(ground, "bench-free", None, Batch { tasks, keys, slots }).await?;
    let streams = drain(ground, "bench-streams", one(), Batch { tasks, keys, slots }).await?;
    let mine = Some(Limit::per("key", 1).owned());
    let owned = drain(ground, "bench-owned", mine, Batch { tasks, keys, slots }).await?;
    let busy = drain(ground, "bench-busy", one(), Batch { tasks: hot, keys: 1, slots }).await?;
    let windlass = ground.engine().await?;
    let blocked = stream("bench-blocked", Some(Limit::of(1)), &Counter::expecting(u64::MAX));
    let filling = ground.progress.phase("filling", u64::from(waiting));
    start(&windlass, &blocked, Batch { tasks: waiting, keys: 1, slots }).await?;
    drop((filling, windlass));
    let behind = drain(ground, "bench-beside", None, Batch { tasks, keys, slots }).await?;
    let per_second = |tasks: u32, time: Duration| f64::from(tasks) / time.as_secs_f64();
    let (free, streams) = (per_second(tasks, free), per_second(tasks, streams));
    let behind = per_second(tasks, behind);
    let mut report = Report::new("limits");
    report.add("tasks_per_second", "tasks without limits", free, "per second");
    let label = format!("tasks of {keys} keys, one at a time each");
    report.add("stream_tasks_per_second", label, streams, "per second");
    report.add("kept", "kept", streams / free, "");
    let owned = per_second(tasks, owned);
    let label = format!("the same with owners, by one that owns all {keys}");
    report.add("owned_tasks_per_second", label, owned, "per second");
    report.add("owned_kept", "kept with owners", owned / free, "");
    let label = "tasks of one key, one at a time";
    report.add("hot_tasks_per_second", label, per_second(hot, busy), "per second");
    let label = format!("tasks beside {waiting} that wait in a lane");
    report.add("beside_tasks_per_second", label, behind, "per second");
    report.add("beside_kept", "kept beside them", behind / free, "");
    Ok(report)
}

/// Messages to be handled.
#[derive(Clone, Copy)]
struct Batch {
    tasks: u32,
    keys: u32,
    /// How many the worker does at once.
    slots: u32,
}

/// A workflow of one task that does nothing.
fn stream(name: &str, limit: Option<Limit>, counter: &Arc<Counter>) -> Workflow<Message> {
    let mut workflow = Workflow::<Message>::builder(name);
    let counter = Arc::clone(counter);
    let task = limit.into_iter().fold(workflow.task("handle"), |task, limit| task.limit(limit));
    task.run(move |_: Ctx<Message>| {
        counter.add();
        async { Ok::<_, TaskError>(()) }
    });
    workflow.build().expect("one task is a valid workflow")
}

async fn start(
    windlass: &Windlass,
    workflow: &Workflow<Message>,
    batch: Batch,
) -> anyhow::Result<()> {
    let numbers: Vec<u32> = (0..batch.tasks).collect();
    for numbers in numbers.chunks(START_BATCH) {
        let start = |n: &u32| windlass.start(workflow, Message { key: n % batch.keys });
        let starts: Vec<_> = numbers.iter().map(start).collect();
        for started in windlass.start_all(starts).await? {
            started?;
        }
    }
    Ok(())
}

/// Makes a backlog, and answers how long one worker takes for it.
async fn drain(
    ground: &Ground,
    name: &str,
    limit: Option<Limit>,
    batch: Batch,
) -> anyhow::Result<Duration> {
    let counter = Counter::expecting(u64::from(batch.tasks));
    let workflow = stream(name, limit, &counter);
    let windlass = ground.engine().await?;
    let filling = ground.progress.phase("filling", u64::from(batch.tasks));
    start(&windlass, &workflow, batch).await?;
    drop(filling);
    ground.settle().await?;
    let draining = ground.progress.phase("draining", u64::from(batch.tasks));
    draining.follow(&counter);
    let began = Instant::now();
    let worker = windlass.worker().register(&workflow).slots(batch.slots as usize).spawn()?;
    counter.reached().await;
    let time = began.elapsed();
    worker.drain().await?;
    Ok(time)
}
