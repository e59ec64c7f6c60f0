//! A report over many regions: one task fans out to one per region, and one task
//! joins what they found.
//!
//! It shows reads of a slice of handles, a condition, a trigger that lets a task
//! run although others were skipped, and a task that runs only if another failed.

use std::time::Duration;

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use windlass::store::TaskRecord;
use windlass::{
    Ctx, Failure, RetryPolicy, RunHandle, RunState, Task, TaskError, TaskName, TaskState, Trigger,
    Windlass, Workflow,
};

const REGIONS: [&str; 4] = ["north", "east", "south", "west"];

#[derive(Serialize, Deserialize)]
struct Request {
    /// The orders of each region.
    orders: Vec<u64>,
    /// A report with fewer orders than this is not mailed.
    mail_from: u64,
}

/// The workflow, and the handles by which its outputs are read.
struct Report {
    workflow: Workflow<Request>,
    total: Task<u64>,
    archive: Task<String>,
    alert: Task<String>,
}

fn report() -> Result<Report, windlass::Error> {
    let mut report = Workflow::<Request>::builder("report");

    // One: what everything else waits for.
    let open = report.task("open").run(async |ctx: Ctx<Request>| match ctx.input().orders.len() {
        0 => Err(TaskError::new("there are no regions").code("empty").permanent()),
        regions => Ok(regions),
    });

    // Many: they run side by side, as far as there are slots. The closure captures
    // its region, so its future is a block that moves it.
    let counts: Vec<Task<u64>> = (0..REGIONS.len())
        .map(|region| {
            report
                .task(format!("count-{}", REGIONS[region]))
                .reads(&open)
                .when(move |_, regions| region < *regions)
                .retry(RetryPolicy::fixed(Duration::from_millis(10)).attempts(3))
                .run(move |ctx: Ctx<Request>, _regions: usize| async move {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    Ok::<_, TaskError>(ctx.input().orders[region])
                })
        })
        .collect();

    // One again: a region whose condition was false is missing, which is fine, so it
    // is read as optional; if a region failed, there is no total.
    let maybe_counts: Vec<_> = counts.iter().map(Task::optional).collect();
    let total = report
        .task("total")
        .reads(&maybe_counts)
        .trigger(Trigger::NoneFailed)
        .when(|_, counts| counts.iter().any(Option::is_some))
        .run(async |_, counts: Vec<Option<u64>>| {
            Ok::<_, TaskError>(counts.into_iter().flatten().sum::<u64>())
        });

    // A branch that is taken or not, by the input and by what was computed.
    let mail = report
        .task("mail")
        .reads(&total)
        .when(|ctx, total| *total >= ctx.input().mail_from)
        .run(async |_, total: u64| Ok::<_, TaskError>(format!("{total} orders")));
    let archive = report
        .task("archive")
        .reads((total.optional(), mail.optional()))
        .trigger(Trigger::NoneFailed)
        .when(|_, (total, _)| total.is_some())
        .run(async |_, (total, mail): (Option<u64>, Option<String>)| {
            let fate = if mail.is_some() { "mailed" } else { "kept" };
            Ok::<_, TaskError>(format!("{} orders, {fate}", total.unwrap_or_default()))
        });

    let alert = report.on_failure("alert").run(async |_, failures: Vec<(TaskName, Failure)>| {
        let failed = failures.iter().map(|(task, failure)| format!("{task}: {failure}"));
        Ok::<_, TaskError>(failed.collect::<Vec<_>>().join(", "))
    });
    Ok(Report { workflow: report.build()?, total, archive, alert })
}

async fn skipped(run: &RunHandle) -> Result<Vec<String>, windlass::Error> {
    let is_skipped = |task: &TaskRecord| task.state == TaskState::Skipped;
    let tasks = run.tasks().await?.into_iter().filter(is_skipped);
    Ok(tasks.map(|task| task.name.to_string()).collect())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Report { workflow, total, archive, alert } = report()?;
    // Where WINDLASS_SERVER or DATABASE_URL says; in memory if neither is set.
    let windlass = Windlass::from_env().await?.unwrap_or_else(Windlass::memory);
    let worker = windlass.worker().register(&workflow).spawn()?;

    // All four regions, and enough to mail it.
    let request = Request { orders: vec![3, 1, 4, 1], mail_from: 5 };
    let run = windlass.start(&workflow, request).await?;
    ensure!(run.wait().await?.state == RunState::Succeeded);
    ensure!(run.output(&total).await? == 9);
    println!("four regions: {}", run.output(&archive).await?);

    // Two regions: the tasks of the others are skipped, and so is the mail.
    let request = Request { orders: vec![2, 1], mail_from: 5 };
    let run = windlass.start(&workflow, request).await?;
    ensure!(run.wait().await?.state == RunState::Succeeded);
    let skipped = skipped(&run).await?;
    ensure!(skipped == ["count-south", "count-west", "mail", "alert"], "{skipped:?}");
    println!("two regions: {}; skipped: {}", run.output(&archive).await?, skipped.join(", "));

    // No region: the first task fails for good, and the on-failure task has its turn.
    let request = Request { orders: Vec::new(), mail_from: 5 };
    let run = windlass.start(&workflow, request).await?;
    ensure!(run.wait().await?.state == RunState::Failed);
    println!("no region: {}", run.output(&alert).await?);

    worker.drain().await?;
    Ok(())
}
