//! The workloads: which workflows run, how their handlers behave, and how each run must end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::{
    Ctx, Error, Function, Limit, RetryPolicy, Task, TaskError, WhenFull, WorkerBuilder, Workflow,
};

use crate::ledger::{Ledger, Mark};

/// The name of the single task of every limited workflow.
pub(crate) const LIMITED_TASK: &str = "handle";

/// The rate limit of [`Workload::Rated`].
pub(crate) const RATE_PER_SECOND: u32 = 20;
/// The burst of that rate limit.
pub(crate) const RATE_BURST: u32 = 5;

/// The number of child runs that each run of [`Workload::Report`] starts.
pub(crate) const CHILDREN: u64 = 4;

/// The input of every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Item {
    /// The limit key. It also selects the tenant.
    pub(crate) key: u64,
    /// The number of the item within its workload. Items of a key are sent in ascending order.
    pub(crate) number: u64,
}

/// A kind of work with its own workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Workload {
    /// A DAG with fan-out, a durable sleep, retries, permanent failures and a failure handler.
    Order,
    /// A function with steps, a sleep, a signal and compensation.
    Trip,
    /// A function that maps a child function.
    Report,
    /// One task at a time per key, in order.
    Stream,
    /// The same, with keys owned by workers.
    Owned,
    /// Three tasks at a time per key.
    Shared,
    /// A rate limit per key.
    Rated,
    /// A debounce per key.
    Debounced,
    /// A circuit breaker per key.
    Breaker,
    /// A stream that halts at a permanent failure until its run is retried.
    Halting,
    /// Two at a time per key; more are skipped.
    Skipping,
    /// Two at a time per key; the oldest run is cancelled.
    Newest,
}

/// How a run must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It succeeds and its last task returns this number.
    Succeeded(u64),
    /// It succeeds. The output depends on chance and is compared with the ledger.
    SucceededWithTokens,
    /// It fails.
    Failed,
    /// It succeeds with this number, or its only task is skipped.
    SucceededOrSkipped(u64),
    /// It succeeds with this number, or is cancelled because a newer run replaced it.
    SucceededOrCancelled(u64),
}

impl Workload {
    pub(crate) const ALL: [Workload; 12] = [
        Workload::Order,
        Workload::Trip,
        Workload::Report,
        Workload::Stream,
        Workload::Owned,
        Workload::Shared,
        Workload::Rated,
        Workload::Debounced,
        Workload::Breaker,
        Workload::Halting,
        Workload::Skipping,
        Workload::Newest,
    ];

    /// The name of its workflow.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::Order => "order",
            Workload::Trip => "trip",
            Workload::Report => "report",
            Workload::Stream => "stream",
            Workload::Owned => "owned",
            Workload::Shared => "shared",
            Workload::Rated => "rated",
            Workload::Debounced => "debounced",
            Workload::Breaker => "breaker",
            Workload::Halting => "halting",
            Workload::Skipping => "skipping",
            Workload::Newest => "newest",
        }
    }

    /// The number of runs for each thousand tasks of the whole test. A run of [`Workload::Order`]
    /// has eight tasks and one of [`Workload::Report`] five.
    pub(crate) fn runs_per_thousand_tasks(self) -> u64 {
        match self {
            Workload::Order => 55,
            Workload::Trip => 40,
            Workload::Report => 16,
            Workload::Stream => 120,
            Workload::Owned => 70,
            Workload::Shared => 100,
            Workload::Rated => 50,
            Workload::Debounced => 30,
            Workload::Breaker => 40,
            Workload::Halting => 20,
            Workload::Skipping => 30,
            Workload::Newest => 30,
        }
    }

    /// The number of limit keys.
    pub(crate) fn keys(self) -> u64 {
        match self {
            Workload::Order | Workload::Trip | Workload::Report => 50,
            Workload::Stream | Workload::Owned | Workload::Shared => 40,
            Workload::Rated => 10,
            Workload::Debounced | Workload::Breaker => 20,
            Workload::Halting | Workload::Skipping | Workload::Newest => 10,
        }
    }

    /// The number of tasks of one key that may run at once.
    pub(crate) fn slots(self) -> Option<usize> {
        match self {
            Workload::Stream | Workload::Owned | Workload::Halting => Some(1),
            Workload::Skipping | Workload::Newest => Some(2),
            Workload::Shared => Some(3),
            Workload::Order
            | Workload::Trip
            | Workload::Report
            | Workload::Rated
            | Workload::Debounced
            | Workload::Breaker => None,
        }
    }

    /// How the run of an item must end.
    pub(crate) fn ending(self, item: Item) -> Ending {
        let number = item.number;
        match self {
            Workload::Order if is_declined(item) => Ending::Failed,
            Workload::Order => Ending::Succeeded(6 * number + 6),
            Workload::Trip if has_no_flight(item) => Ending::Failed,
            Workload::Trip => Ending::SucceededWithTokens,
            Workload::Report => {
                Ending::Succeeded((0..CHILDREN).map(|n| child(item, n).number).sum())
            }
            Workload::Stream | Workload::Owned | Workload::Shared if is_poison(item) => {
                Ending::Failed
            }
            Workload::Stream
            | Workload::Owned
            | Workload::Shared
            | Workload::Rated
            | Workload::Breaker
            | Workload::Halting => Ending::Succeeded(number),
            Workload::Skipping => Ending::SucceededOrSkipped(number),
            Workload::Debounced | Workload::Newest => Ending::SucceededOrCancelled(number),
        }
    }

    /// The task whose output is the result of a run.
    pub(crate) fn last_task(self) -> &'static str {
        match self {
            Workload::Order => "ship",
            Workload::Trip => "trip",
            Workload::Report => "report",
            Workload::Stream
            | Workload::Owned
            | Workload::Shared
            | Workload::Rated
            | Workload::Debounced
            | Workload::Breaker
            | Workload::Halting
            | Workload::Skipping
            | Workload::Newest => LIMITED_TASK,
        }
    }
}

/// Returns the tenant of an item.
pub(crate) fn tenant(item: Item) -> String {
    format!("tenant-{}", item.key % 5)
}

/// Returns whether the trip waits for the signal `confirmed`.
pub(crate) fn is_confirmed(item: Item) -> bool {
    item.number.is_multiple_of(3)
}

/// Returns whether the last step of a trip fails, so that the steps before it are compensated.
pub(crate) fn has_no_flight(item: Item) -> bool {
    item.number % 5 == 4
}

fn is_declined(item: Item) -> bool {
    item.number % 17 == 5
}

fn is_poison(item: Item) -> bool {
    item.number % 41 == 5
}

/// Returns whether the first attempt fails and is retried.
fn is_flaky(ctx: &Ctx<Item>) -> bool {
    ctx.input().number % 23 == 3 && ctx.attempt() == 1
}

fn child(item: Item, number: u64) -> Item {
    Item { number: CHILDREN * item.number + number, ..item }
}

/// Marks items of [`Workload::Halting`] as repaired, across processes.
#[derive(Clone, Debug)]
pub(crate) struct Repairs(PathBuf);

impl Repairs {
    pub(crate) fn in_directory(directory: &Path) -> Self {
        Repairs(directory.join("repaired"))
    }

    fn file(&self, item: Item) -> PathBuf {
        self.0.with_file_name(format!("repaired-{}", item.number))
    }

    /// Lets the next attempt of an item succeed.
    pub(crate) fn repair(&self, item: Item) -> std::io::Result<()> {
        std::fs::write(self.file(item), "")
    }

    fn is_broken(&self, item: Item) -> bool {
        // Every key has broken items: the keys take turns, and there are ten of them.
        item.number / Workload::Halting.keys() % 10 == 7 && !self.file(item).exists()
    }
}

/// All workflows, with their handlers.
pub(crate) struct Workflows {
    by_workload: BTreeMap<Workload, Workflow<Item>>,
    /// The workflow of the children of [`Workload::Report`].
    count: Workflow<Item>,
    /// The workflow that the schedule starts.
    pub(crate) beat: Workflow<Item>,
}

impl Workflows {
    pub(crate) fn new(ledger: Ledger, repairs: &Repairs) -> Result<Self, Error> {
        let ledger = Arc::new(ledger);
        let count = count(&ledger)?;
        let by_workload = Workload::ALL
            .into_iter()
            .map(|workload| Ok((workload, build(workload, &ledger, repairs, &count)?)));
        let by_workload = by_workload.collect::<Result<_, Error>>()?;
        let mut beat = Workflow::<Item>::builder("beat");
        beat.task("beat").retry(patient()).run(async |_: Ctx<Item>| Ok::<_, TaskError>(()));
        Ok(Workflows { by_workload, count: count.workflow().clone(), beat: beat.build()? })
    }

    /// The workflow of a workload.
    pub(crate) fn of(&self, workload: Workload) -> &Workflow<Item> {
        &self.by_workload[&workload]
    }

    /// Registers all workflows with a worker.
    pub(crate) fn register(&self, worker: WorkerBuilder) -> WorkerBuilder {
        let all = self.by_workload.values().chain([&self.count, &self.beat]);
        all.fold(worker, WorkerBuilder::register)
    }
}

/// Builds the workflow of a workload.
fn build(
    workload: Workload,
    ledger: &Arc<Ledger>,
    repairs: &Repairs,
    count: &Function<Item, u64>,
) -> Result<Workflow<Item>, Error> {
    let second = Duration::from_secs(1);
    let per_key = |slots| Limit::per("key", slots);
    let limit = match workload {
        Workload::Order => return order(ledger),
        Workload::Trip => return trip(ledger),
        Workload::Report => return report(count),
        Workload::Stream => per_key(1),
        Workload::Owned => per_key(1).owned(),
        Workload::Shared => per_key(3),
        Workload::Rated => Limit::rate(RATE_PER_SECOND, second).by("key").burst(RATE_BURST),
        Workload::Debounced => {
            Limit::debounce(Duration::from_millis(300)).by("key").at_most(2 * second)
        }
        Workload::Breaker => {
            Limit::breaker(50).by("key").calls(10).window(5 * second).pause(second)
        }
        Workload::Halting => per_key(1).halt(),
        Workload::Skipping => per_key(2).when_full(WhenFull::Skip),
        Workload::Newest => per_key(2).when_full(WhenFull::CancelOldest),
    };
    one_task(workload, limit, ledger, repairs)
}

/// Attempts are counted when they are claimed, so every kill costs one. No task may run out of them.
fn patient() -> RetryPolicy {
    RetryPolicy::fixed(Duration::from_millis(50)).attempts(1_000)
}

/// The time that a slow attempt takes: a worker that is frozen during one wakes up while the
/// successor is running.
const SLOW: Duration = Duration::from_secs(3);

fn is_slow(item: Item) -> bool {
    item.number % 47 == 11
}

async fn work() {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(0..8))).await;
}

/// Runs an attempt between two notes.
async fn noted(
    ctx: &Ctx<Item>,
    ledger: &Ledger,
    result: Result<u64, TaskError>,
) -> Result<u64, TaskError> {
    ledger.note(ctx, Mark::Begin)?;
    work().await;
    if is_slow(*ctx.input()) {
        tokio::time::sleep(SLOW).await;
    }
    ledger.note(ctx, Mark::End)?;
    if is_flaky(ctx) { Err(TaskError::new("fails at first")) } else { result }
}

fn order(ledger: &Arc<Ledger>) -> Result<Workflow<Item>, Error> {
    let mut order = Workflow::<Item>::builder("order");
    let shared = Arc::clone(ledger);
    let check = order.task("check").retry(patient()).run(move |ctx: Ctx<Item>| {
        let ledger = Arc::clone(&shared);
        async move { noted(&ctx, &ledger, Ok(ctx.input().number)).await }
    });
    let stocks: Vec<Task<u64>> = (0..3)
        .map(|shelf| {
            let shared = Arc::clone(ledger);
            let task = order.task(format!("stock-{shelf}")).reads(&check).retry(patient());
            task.run(move |ctx: Ctx<Item>, number: u64| {
                let ledger = Arc::clone(&shared);
                async move { noted(&ctx, &ledger, Ok(number + shelf)).await }
            })
        })
        .collect();
    let shared = Arc::clone(ledger);
    let charge = order.task("charge").reads(&stocks).retry(patient()).run(
        move |ctx: Ctx<Item>, stocks: Vec<u64>| {
            let ledger = Arc::clone(&shared);
            let declined = || TaskError::new("declined").permanent();
            let is_declined = is_declined(*ctx.input());
            let result = if is_declined { Err(declined()) } else { Ok(stocks.iter().sum()) };
            async move { noted(&ctx, &ledger, result).await }
        },
    );
    let window = order.sleep("window", Duration::from_millis(50)).after(&charge).add();
    let shared = Arc::clone(ledger);
    let ship = order.task("ship").reads(&charge).after(&window).retry(patient());
    ship.run(move |ctx: Ctx<Item>, sum: u64| {
        let ledger = Arc::clone(&shared);
        async move { noted(&ctx, &ledger, Ok(2 * sum)).await }
    });
    let shared = Arc::clone(ledger);
    order.on_failure("refund").retry(patient()).run(move |ctx: Ctx<Item>, _| {
        let ledger = Arc::clone(&shared);
        async move { noted(&ctx, &ledger, Ok(ctx.input().number)).await }
    });
    order.build()
}

/// Executes a step: notes a new token and returns it.
async fn step(ctx: Ctx<Item>, ledger: Arc<Ledger>, name: &'static str) -> Result<u64, TaskError> {
    work().await;
    let token = fastrand::u64(..1 << 50);
    ledger.note(&ctx, Mark::Step { name: name.to_owned(), token })?;
    work().await;
    Ok(token)
}

async fn travel(ctx: Ctx<Item>, ledger: Arc<Ledger>) -> Result<Vec<u64>, TaskError> {
    let undo = |name: &'static str| {
        let (ctx, ledger) = (ctx.clone(), Arc::clone(&ledger));
        move |token: u64| async move { ledger.note(&ctx, Mark::Undo { name: name.to_owned(), token }) }
    };
    let run = |name| step(ctx.clone(), Arc::clone(&ledger), name);
    let car = ctx.step("car", || run("car")).compensate(undo("car")).undo_retry(patient()).await?;
    let hotel = ctx.step("hotel", || run("hotel"));
    let hotel = hotel.compensate(undo("hotel")).undo_retry(patient()).await?;
    ctx.sleep(Duration::from_millis(20)).await?;
    if is_confirmed(*ctx.input()) {
        let number = ctx.signal::<u64>("confirmed").await?;
        if number != ctx.input().number {
            return Err(TaskError::new(format!("received the signal of {number}")).permanent());
        }
    }
    if has_no_flight(*ctx.input()) {
        return Err(TaskError::new("no flight").permanent());
    }
    let flight = ctx.step("flight", || run("flight")).await?;
    Ok(vec![car, hotel, flight])
}

fn trip(ledger: &Arc<Ledger>) -> Result<Workflow<Item>, Error> {
    let ledger = Arc::clone(ledger);
    let builder = Function::<Item, Vec<u64>>::builder("trip").retry(patient());
    let trip = builder.run(move |ctx| travel(ctx, Arc::clone(&ledger)))?;
    Ok(trip.workflow().clone())
}

fn count(ledger: &Arc<Ledger>) -> Result<Function<Item, u64>, Error> {
    let ledger = Arc::clone(ledger);
    let builder = Function::<Item, u64>::builder("count").retry(patient());
    builder.run(move |ctx: Ctx<Item>| {
        let ledger = Arc::clone(&ledger);
        async move {
            step(ctx.clone(), ledger, "count").await?;
            Ok::<_, TaskError>(ctx.input().number)
        }
    })
}

fn report(count: &Function<Item, u64>) -> Result<Workflow<Item>, Error> {
    let count = count.clone();
    let builder = Function::<Item, u64>::builder("report").retry(patient());
    let report = builder.run(move |ctx: Ctx<Item>| {
        let count = count.clone();
        async move {
            let item = *ctx.input();
            let results = ctx.map(&count, (0..CHILDREN).map(|number| child(item, number))).await?;
            results.into_iter().sum::<Result<u64, TaskError>>()
        }
    })?;
    Ok(report.workflow().clone())
}

fn one_task(
    workload: Workload,
    limit: Limit,
    ledger: &Arc<Ledger>,
    repairs: &Repairs,
) -> Result<Workflow<Item>, Error> {
    let mut workflow = Workflow::<Item>::builder(workload.name());
    let (ledger, repairs) = (Arc::clone(ledger), repairs.clone());
    workflow.task(LIMITED_TASK).limit(limit).retry(patient()).run(move |ctx: Ctx<Item>| {
        let (ledger, repairs) = (Arc::clone(&ledger), repairs.clone());
        async move {
            let result = behave(workload, &ctx, &repairs);
            noted(&ctx, &ledger, result).await
        }
    });
    workflow.build()
}

/// The result of an attempt of a limited task.
fn behave(workload: Workload, ctx: &Ctx<Item>, repairs: &Repairs) -> Result<u64, TaskError> {
    let item = *ctx.input();
    let is_failed_attempt = match workload {
        Workload::Stream | Workload::Owned | Workload::Shared => {
            if is_poison(item) {
                return Err(TaskError::new("poison").permanent());
            }
            false
        }
        Workload::Halting if repairs.is_broken(item) => {
            return Err(TaskError::new("needs a repair").permanent());
        }
        // Two of three first attempts fail, so that the breaker opens.
        Workload::Breaker => !item.number.is_multiple_of(3) && ctx.attempt() == 1,
        Workload::Order
        | Workload::Trip
        | Workload::Report
        | Workload::Rated
        | Workload::Debounced
        | Workload::Halting
        | Workload::Skipping
        | Workload::Newest => false,
    };
    if is_failed_attempt { Err(TaskError::new("provider is down")) } else { Ok(item.number) }
}
