//! Whether everyone gets a turn: gaps against their bound, shares against weights.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass::{Ctx, TaskError, Workflow};

use super::ground::Ground;
use super::report::Report;
use super::work::{Counter, chain, start_for};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many tenants have a backlog, one of them a tenfold one.
    #[arg(long, default_value_t = 20, value_parser = crate::text::whole_number::<u32>(2..=1_000))]
    tenants: u32,

    /// How many tasks each of them has.
    #[arg(long, default_value_t = 500, value_parser = crate::text::whole_number::<u32>(10..=u32::MAX))]
    tasks: u32,

    /// How many workers claim.
    #[arg(long, default_value_t = 3, value_parser = crate::text::whole_number::<u32>(1..=50))]
    workers: u32,

    /// How many tasks each of them claims at most: its slots.
    #[arg(long, default_value_t = 10, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    slots: u32,
}

/// The weights of the tenants whose shares are measured.
const WEIGHTS: [u16; 3] = [1, 2, 4];

pub(crate) async fn run(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Report> {
    let turns = equal(arguments, ground).await?;
    let tenants: Vec<String> = (0..arguments.tenants).map(name).collect();
    let gap = worst_gap(backlogged(&turns, &tenants), &tenants);
    let newcomer = turns.iter().position(|turn| turn.tenant == NEWCOMER);
    let began = turns.iter().filter(|turn| turn.is_before_newcomer).count();
    let bound = arguments.tenants * arguments.slots + arguments.workers;
    let mut report = Report::new("fairness");
    report.add("worst_gap", "worst gap between two claims of a tenant", gap as f64, "claims");
    report.add("gap_bound", "bound: tenants × slots + workers", f64::from(bound), "claims");
    if let Some(newcomer) = newcomer {
        // Its own claim, at least, which may have come before its start was answered.
        let waited = (newcomer + 1).saturating_sub(began).max(1);
        report.add("newcomer_gap", "a newcomer waited for", waited as f64, "claims");
    }
    let small = newcomers(ground).await?;
    let bound = 2 * SMALL_SLOTS + 1 + SMALL_SLOTS;
    report.add("small_worker_newcomers", "newcomers beside a small worker", small.len() as f64, "");
    let worst = small.iter().copied().max().unwrap_or_default();
    let late = small.iter().filter(|waited| **waited > bound).count();
    report.add("small_worker_gap", "worst wait of a newcomer there", worst as f64, "claims");
    report.add("small_worker_bound", "bound there, with claims in flight", bound as f64, "claims");
    report.add("small_worker_late", "newcomers beyond the bound there", late as f64, "");
    let error = weighted(arguments, ground).await?;
    let label = "worst error of a share, weights 1, 2 and 4";
    report.add("share_error_percent", label, 100.0 * error, "%");
    Ok(report)
}

/// Who comes when the others are being served.
const NEWCOMER: &str = "newcomer";

fn name(number: u32) -> String {
    format!("tenant-{number}")
}

/// A claim, in the order of claims.
struct Turn {
    tenant: String,
    /// Whether the newcomer had not come yet.
    is_before_newcomer: bool,
}

/// Lets tenants of equal weight wait, one with ten times as much as the others, and a
/// newcomer come in the middle.
async fn equal(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Vec<Turn>> {
    let all = arguments.tasks * (arguments.tenants + 9) + 1;
    let counter = Counter::expecting(u64::from(all));
    let workflow = chain("bench-fairness", 1, &counter);
    let windlass = ground.engine().await?;
    start_for(&windlass, &workflow, &name(0), 10 * arguments.tasks as usize).await?;
    for tenant in 1..arguments.tenants {
        start_for(&windlass, &workflow, &name(tenant), arguments.tasks as usize).await?;
    }
    let workers = crew(arguments, ground, &workflow).await?;
    counter.at_least(u64::from(all / 4)).await;
    start_for(&windlass, &workflow, NEWCOMER, 1).await?;
    // Before its start is committed nobody can claim it, however long that takes.
    let clock = "select extract(epoch from clock_timestamp())::float8";
    let came: f64 = ground.client.query_one(clock, &[]).await?.get(0);
    counter.reached().await;
    for worker in workers {
        worker.drain().await?;
    }
    // The ids of events are in the order in which they were written.
    let sql = "select r.tenant, extract(epoch from e.at)::float8 < $2 from windlass.events e \
               join windlass.runs r on r.id = e.run_id \
               where r.workflow = $1 and e.kind = 'started' order by e.id";
    let rows = ground.client.query(sql, &[&"bench-fairness", &came]).await?;
    Ok(rows.iter().map(|row| Turn { tenant: row.get(0), is_before_newcomer: row.get(1) }).collect())
}

/// A worker with few slots, whose tasks take a while, and the backlog before it.
const SMALL_SLOTS: usize = 10;
const SMALL_TASK: Duration = Duration::from_millis(5);
const SMALL_BACKLOG: usize = 20_000;

/// The number of tenants that come one after the other.
const NEWCOMERS: usize = 100;

/// Lets newcomers come one by one while one small worker is busy with the backlog of another
/// tenant. Returns for how many claims each of them waited.
async fn newcomers(ground: &Ground) -> anyhow::Result<Vec<usize>> {
    const WORKFLOW: &str = "bench-newcomers";
    let mut builder = Workflow::<()>::builder(WORKFLOW);
    builder.task("task").run(async |_: Ctx<()>| {
        tokio::time::sleep(SMALL_TASK).await;
        Ok::<_, TaskError>(())
    });
    let workflow = builder.build()?;
    let windlass = ground.engine().await?;
    start_for(&windlass, &workflow, "backlog", SMALL_BACKLOG).await?;
    let engine = ground.engine().await?;
    let worker = engine.worker().register(&workflow).slots(SMALL_SLOTS).spawn()?;
    let clock = "select extract(epoch from clock_timestamp())::float8";
    let mut came = Vec::new();
    for number in 0..NEWCOMERS {
        let run = windlass.start(&workflow, ()).tenant(format!("newcomer-{number}")).await?;
        came.push(ground.client.query_one(clock, &[]).await?.get::<_, f64>(0));
        run.wait().await?;
    }
    worker.drain().await?;
    let sql = "select r.tenant, extract(epoch from e.at)::float8 from windlass.events e \
               join windlass.runs r on r.id = e.run_id \
               where r.workflow = $1 and e.kind = 'started' order by e.id";
    let rows = ground.client.query(sql, &[&WORKFLOW]).await?;
    let claims: Vec<(String, f64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let waited = |(number, came): (usize, &f64)| {
        let tenant = format!("newcomer-{number}");
        let claim = claims.iter().position(|(of, _)| *of == tenant)?;
        let before = claims[..claim].iter().filter(|(_, at)| at < came).count();
        Some(claim - before + 1)
    };
    let all: Vec<usize> = came.iter().enumerate().filter_map(waited).collect();
    anyhow::ensure!(all.len() == NEWCOMERS, "{} of {NEWCOMERS} newcomers were claimed", all.len());
    Ok(all)
}

async fn crew(
    arguments: &Arguments,
    ground: &Ground,
    workflow: &Workflow<()>,
) -> anyhow::Result<Vec<windlass::WorkerHandle>> {
    let mut workers = Vec::new();
    for _ in 0..arguments.workers {
        let windlass = ground.engine().await?;
        let worker = windlass.worker().register(workflow).slots(arguments.slots as usize);
        workers.push(worker.spawn()?);
    }
    Ok(workers)
}

/// The claims made while every tenant still had a backlog.
fn backlogged<'a>(turns: &'a [Turn], tenants: &[String]) -> &'a [Turn] {
    let last = |tenant: &String| turns.iter().rposition(|turn| turn.tenant == *tenant);
    let end = tenants.iter().filter_map(last).min().map_or(0, |last| last + 1);
    &turns[..end]
}

/// The longest stretch of claims from one of a tenant to its next, or from the beginning to
/// its first.
fn worst_gap(turns: &[Turn], tenants: &[String]) -> usize {
    let mut last: BTreeMap<&str, usize> =
        tenants.iter().map(|tenant| (tenant.as_str(), 0)).collect();
    let mut worst = 0;
    for (number, turn) in turns.iter().enumerate() {
        if let Some(last) = last.get_mut(turn.tenant.as_str()) {
            worst = worst.max(number + 1 - *last);
            *last = number + 1;
        }
    }
    worst
}

/// How far a share of the claims is from what a weight promises, at worst, while all have a
/// backlog.
async fn weighted(arguments: &Arguments, ground: &Ground) -> anyhow::Result<f64> {
    let windlass = ground.engine().await?;
    let tenants: Vec<String> = WEIGHTS.iter().map(|weight| format!("weight-{weight}")).collect();
    for (tenant, weight) in tenants.iter().zip(WEIGHTS) {
        windlass.set_weight(tenant, weight).await?;
    }
    let each = 7 * u64::from(arguments.tasks);
    let counter = Counter::expecting(each * WEIGHTS.len() as u64);
    let workflow = chain("bench-weights", 1, &counter);
    for tenant in &tenants {
        start_for(&windlass, &workflow, tenant, usize::try_from(each)?).await?;
    }
    let workers = crew(arguments, ground, &workflow).await?;
    counter.reached().await;
    for worker in workers {
        worker.drain().await?;
    }
    let sql = "select r.tenant from windlass.events e join windlass.runs r on r.id = e.run_id \
               where r.workflow = $1 and e.kind = 'started' order by e.id";
    let rows = ground.client.query(sql, &[&"bench-weights"]).await?;
    let turn = |row: &tokio_postgres::Row| Turn { tenant: row.get(0), is_before_newcomer: true };
    let turns: Vec<Turn> = rows.iter().map(turn).collect();
    Ok(share_error(backlogged(&turns, &tenants), &tenants))
}

fn share_error(turns: &[Turn], tenants: &[String]) -> f64 {
    let sum: f64 = WEIGHTS.iter().map(|weight| f64::from(*weight)).sum();
    let error = |(tenant, weight): (&String, u16)| {
        let count = turns.iter().filter(|turn| turn.tenant == *tenant).count();
        let expected = turns.len() as f64 * f64::from(weight) / sum;
        (count as f64 / expected - 1.0).abs()
    };
    tenants.iter().zip(WEIGHTS).map(error).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(order: &str) -> Vec<Turn> {
        let turn = |letter: char| Turn { tenant: letter.to_string(), is_before_newcomer: true };
        order.chars().map(turn).collect()
    }

    #[test]
    fn a_gap_is_counted_from_a_claim_to_the_next_and_while_all_have_a_backlog() {
        let tenants = ["a", "b"].map(str::to_owned);
        assert_eq!(worst_gap(&turns("abab"), &tenants), 2);
        assert_eq!(worst_gap(&turns("aaab"), &tenants), 4, "the first one counts");
        let order = turns("ababaaaa");
        assert_eq!(backlogged(&order, &tenants).len(), 4, "b has no more");
    }

    #[test]
    fn shares_are_compared_with_weights() {
        let tenants = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(share_error(&turns("abbcccc"), &tenants), 0.0);
        assert!(share_error(&turns("aabbccc"), &tenants) > 0.9);
    }
}
