//! What a long transaction elsewhere in the database costs.

use windlass::store::postgres::PostgresOptions;

use super::ground::Ground;
use super::report::Report;
use super::work::{Backlog, drain};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many tasks to drain each time.
    #[arg(long, default_value_t = 100_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    tasks: u32,

    /// How many tasks the worker runs at once.
    #[arg(long, default_value_t = 2_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    slots: u32,
}

pub(crate) async fn run(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Report> {
    let Arguments { tasks, slots } = *arguments;
    let backlog = Backlog { tasks, drained: tasks, tenants: 1, slots };
    // Once before, so that both find the tables as used as each other.
    drain(ground, "bench-before", backlog).await?;
    let free = drain(ground, "bench-free", backlog).await?;
    let holder = PostgresOptions::new(ground.url()).client().await?;
    // From here on no dead row is removed, in any table.
    let hold = "set idle_in_transaction_session_timeout = 0;
        begin isolation level repeatable read; select count(*) from windlass.settings";
    holder.batch_execute(hold).await?;
    let held = drain(ground, "bench-held", backlog).await?;
    holder.batch_execute("rollback").await?;
    let per_second = |time: std::time::Duration| f64::from(tasks) / time.as_secs_f64();
    let mut report = Report::new("xmin");
    report.add("tasks_per_second", "tasks", per_second(free), "per second");
    let label = "tasks with a transaction held open";
    report.add("held_tasks_per_second", label, per_second(held), "per second");
    report.add("kept", "kept", per_second(held) / per_second(free), "");
    Ok(report)
}
