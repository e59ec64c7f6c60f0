//! A nightly report: a DAG, one task of which maps a function over many shops.
//!
//! The DAG says what follows from what. How many shops there are is known only when it
//! runs, so one task starts a run of its own for each and waits for all of them. Each of those
//! is tried, retried and seen on its own, on whichever worker has room.

use anyhow::ensure;
use windlass::{Ctx, Error, Function, RetryPolicy, RunState, Task, TaskError, Windlass, Workflow};

/// The workflow, the function that it maps, and the handle by which its output is read.
pub(crate) struct Report {
    pub(crate) workflow: Workflow<u32>,
    pub(crate) count: Function<u32, u64>,
    pub(crate) mail: Task<String>,
}

/// Counts the sales of one shop.
async fn count(ctx: Ctx<u32>) -> Result<u64, TaskError> {
    let shop = *ctx.input();
    let query = ctx.step("query", async || match shop {
        13 => Err(TaskError::new("the shop is closed").code("closed").permanent()),
        _ => Ok(u64::from(shop) * 10),
    });
    query.await
}

/// The sum of what is known, and how many shops gave nothing.
async fn gather(
    ctx: Ctx<u32>,
    shops: Vec<u32>,
    count: Function<u32, u64>,
) -> Result<(u64, usize), TaskError> {
    // Parked until the last one has ended: the task holds no slot meanwhile. At most eight
    // are under way at once, so that the shops' database is not asked by all.
    let counts = ctx.map(&count, shops).concurrency(8).await?;
    let closed = counts.iter().filter(|count| count.is_err()).count();
    Ok((counts.into_iter().flatten().sum(), closed))
}

pub(crate) fn report() -> Result<Report, Error> {
    let policy = RetryPolicy::exponential().attempts(5);
    let count = Function::<u32, u64>::builder("count").retry(policy).run(count)?;

    let mut report = Workflow::<u32>::builder("nightly-report");
    let shops = report.task("shops").run(async |ctx: Ctx<u32>| {
        let shops: Vec<u32> = (1..=*ctx.input()).collect();
        Ok::<_, TaskError>(shops)
    });
    let mapped = count.clone();
    let total = report
        .task("gather")
        .reads(&shops)
        .run(move |ctx: Ctx<u32>, shops: Vec<u32>| gather(ctx, shops, mapped.clone()));
    let mail =
        report.task("mail").reads(&total).run(async |_: Ctx<u32>, (sold, closed): (u64, usize)| {
            Ok::<_, TaskError>(format!("{sold} sold, {closed} closed"))
        });
    Ok(Report { workflow: report.build()?, count, mail })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Report { workflow, count, mail } = report()?;
    // Where WINDLASS_SERVER or DATABASE_URL says; in memory if neither is set.
    let windlass = Windlass::from_env().await?.unwrap_or_else(Windlass::memory);
    // Whoever maps and what is mapped may be served by different workers; here it is one.
    let worker = windlass.worker().register(&workflow).register(&count).slots(16).spawn()?;

    // Named after its night, a report is made once, however often it is asked for.
    let run = windlass.start(&workflow, 40).key("2026-01-31").await?;
    let again = windlass.start(&workflow, 40).key("2026-01-31").await?;
    ensure!(run.id() == again.id());
    ensure!(run.wait().await?.state == RunState::Succeeded);
    let said = run.output(&mail).await?;
    ensure!(said == "8070 sold, 1 closed", "{said}");
    println!("40 shops: {said}");

    // Nothing to map is fine.
    let run = windlass.start(&workflow, 0).key("2026-02-01").await?;
    run.wait().await?;
    ensure!(run.output(&mail).await? == "0 sold, 0 closed");

    worker.drain().await?;
    Ok(())
}
