//! The workflows that are measured, and how they are started and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use windlass::{Ctx, TaskError, Windlass, Workflow};

use super::ground::Ground;

/// How many runs are started at once.
pub(crate) const START_BATCH: usize = 5_000;

/// Counts handlers that ran, and wakes whoever waits for a number of them.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    count: AtomicU64,
    wanted: AtomicU64,
    reached: Notify,
}

impl Counter {
    pub(crate) fn expecting(wanted: u64) -> Arc<Counter> {
        Arc::new(Counter { wanted: AtomicU64::new(wanted), ..Counter::default() })
    }

    /// One more has run.
    pub(crate) fn add(&self) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count >= self.wanted.load(Ordering::Relaxed) {
            self.reached.notify_one();
        }
    }

    /// How many are expected.
    pub(crate) fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// How many have run.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until at least so many have run.
    pub(crate) async fn at_least(&self, count: u64) {
        while self.count() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until as many have run as are expected.
    pub(crate) async fn reached(&self) {
        self.reached.notified().await;
    }
}

/// A workflow of tasks one after the other that do nothing.
pub(crate) fn chain(name: &str, length: usize, counter: &Arc<Counter>) -> Workflow<()> {
    let mut chain = Workflow::<()>::builder(name);
    let mut last = None;
    for index in 0..length {
        let counter = Arc::clone(counter);
        let mut task = chain.task(format!("task-{index}"));
        if let Some(last) = &last {
            task = task.after(last);
        }
        last = Some(task.run(move |_: Ctx<()>| {
            counter.add();
            async { Ok::<_, TaskError>(()) }
        }));
    }
    chain.build().expect("a chain is a valid workflow")
}

/// A workflow from one task to many and back to one, which all do nothing.
pub(crate) fn fan_out(name: &str, width: usize, counter: &Arc<Counter>) -> Workflow<()> {
    let handler = || {
        let counter = Arc::clone(counter);
        move |_: Ctx<()>| {
            counter.add();
            async { Ok::<_, TaskError>(()) }
        }
    };
    let mut fan = Workflow::<()>::builder(name);
    let first = fan.task("first").run(handler());
    let middle: Vec<_> = (0..width)
        .map(|index| fan.task(format!("middle-{index}")).after(&first).run(handler()))
        .collect();
    let last = middle.iter().fold(fan.task("last"), |last, one| last.after(one));
    last.run(handler());
    fan.build().expect("a fan-out is a valid workflow")
}

/// Starts runs of a workflow, of tenants in turn.
pub(crate) async fn start(
    windlass: &Windlass,
    workflow: &Workflow<()>,
    count: usize,
    tenants: usize,
) -> anyhow::Result<()> {
    start_each(windlass, workflow, count, |n| format!("tenant-{}", n % tenants)).await
}

/// Starts runs of a workflow, of one tenant.
pub(crate) async fn start_for(
    windlass: &Windlass,
    workflow: &Workflow<()>,
    tenant: &str,
    count: usize,
) -> anyhow::Result<()> {
    start_each(windlass, workflow, count, |_| tenant.to_owned()).await
}

async fn start_each(
    windlass: &Windlass,
    workflow: &Workflow<()>,
    count: usize,
    tenant: impl Fn(usize) -> String,
) -> anyhow::Result<()> {
    let mut begun = 0;
    while begun < count {
        let end = count.min(begun + START_BATCH);
        let start = |n: usize| windlass.start(workflow, ()).tenant(tenant(n));
        let starts: Vec<_> = (begun..end).map(start).collect();
        for started in windlass.start_all(starts).await? {
            started?;
        }
        begun = end;
    }
    Ok(())
}

/// Tasks that do nothing and wait for a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backlog {
    pub(crate) tasks: u32,
    /// How many of them are done before the worker ends.
    pub(crate) drained: u32,
    pub(crate) tenants: u32,
    /// How many the worker does at once.
    pub(crate) slots: u32,
}

/// Makes a backlog of a workflow of this name, and answers how long one worker takes for it.
pub(crate) async fn drain(
    ground: &Ground,
    name: &'static str,
    backlog: Backlog,
) -> anyhow::Result<Duration> {
    let counter = Counter::expecting(u64::from(backlog.drained));
    let workflow = chain(name, 1, &counter);
    let windlass = ground.engine().await?;
    let filling = ground.progress.phase("filling", u64::from(backlog.tasks));
    start(&windlass, &workflow, backlog.tasks as usize, backlog.tenants as usize).await?;
    drop(filling);
    ground.settle().await?;
    let draining = ground.progress.phase("draining", u64::from(backlog.drained));
    draining.follow(&counter);
    let began = Instant::now();
    let worker = windlass.worker().register(&workflow).slots(backlog.slots as usize).spawn()?;
    counter.reached().await;
    // What is left of the backlog is handed back, which is not what is measured.
    let time = began.elapsed();
    worker.drain().await?;
    Ok(time)
}
