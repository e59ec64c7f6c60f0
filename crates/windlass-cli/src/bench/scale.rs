//! What becomes of the speed with more processes, a larger backlog, more tenants.

use std::time::Duration;

use super::crew::{Force, Way, drain_by};
use super::ground::Ground;
use super::report::Report;
use super::work::{Backlog, drain};
use crate::text::thousands;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many tasks to drain for each figure.
    #[arg(long, default_value_t = 50_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    tasks: u32,

    /// With how many worker processes.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4],
        value_parser = crate::text::whole_number::<u32>(1..=64))]
    processes: Vec<u32>,

    /// How many tasks the backlog has that the large one is compared with.
    #[arg(long, default_value_t = 10_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    small_backlog: u32,

    /// How many tasks the large backlog has.
    #[arg(long, default_value_t = 1_000_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    backlog: u32,

    /// How many tenants it has; the small one has one.
    #[arg(long, default_value_t = 10_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    tenants: u32,

    /// How many tasks a worker runs at once.
    #[arg(long, default_value_t = 2_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    slots: u32,
}

pub(crate) async fn run(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Report> {
    let mut report = Report::new("scale");
    let per_second = |tasks: u32, time: Duration| f64::from(tasks) / time.as_secs_f64();
    for processes in &arguments.processes {
        let force = Force { processes: *processes, workers: 1, slots: arguments.slots };
        let time = drain_by(ground, &Way::database(ground.url()), force, arguments.tasks).await?;
        report.add(
            format!("tasks_per_second_{processes}_processes"),
            format!("tasks, worker processes: {processes}"),
            per_second(arguments.tasks, time),
            "per second",
        );
    }
    let Arguments { slots, small_backlog, .. } = *arguments;
    // Once before, so that both find the tables as used as each other.
    let small = Backlog { tasks: small_backlog, drained: small_backlog, tenants: 1, slots };
    drain(ground, "bench-before", small).await?;
    let small_time = drain(ground, "bench-small", small).await?;
    let drained = arguments.tasks.min(arguments.backlog);
    let large = Backlog { tasks: arguments.backlog, drained, tenants: arguments.tenants, slots };
    let large_time = drain(ground, "bench-large", large).await?;
    let small_rate = per_second(small_backlog, small_time);
    let large_rate = per_second(drained, large_time);
    let label = format!("tasks, of {} and one tenant", thousands(small_backlog.into()));
    report.add("tasks_per_second_small", label, small_rate, "per second");
    let (backlog, tenants) = (arguments.backlog.into(), arguments.tenants.into());
    let label = format!("tasks, of {} and {} tenants", thousands(backlog), thousands(tenants));
    report.add("tasks_per_second_large", label, large_rate, "per second");
    report.add("kept", "kept", large_rate / small_rate, "");
    Ok(report)
}
