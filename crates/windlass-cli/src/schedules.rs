//! `windlass schedules`: what starts runs by itself.

mod explain;
mod show;

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::json;
use windlass::schedule::{Cadence, Missed, Overlap, ScheduleHandle, Timing};
use windlass::store::{Action, NewSchedule, ScheduleFilter, ScheduleKey};
use windlass::{
    Payload, Priority, ScheduleName, Tenant, Timestamp, Version, Windlass, WorkflowName,
};

use crate::operator::OperatorArguments;
use crate::session::Session;
use crate::text::{count, parse_time, shown};
use crate::workflows;

/// What `windlass schedules` can be told.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    list: List,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List schedules with their last and next times (default)
    List(List),

    /// Show a schedule and its recent times
    Show(Show),

    /// Print the next times of a cron expression (needs no database)
    Explain(explain::Arguments),

    /// Create or replace a schedule
    Put(Box<Put>),

    /// Pause a schedule
    Pause(Named),

    /// Resume a schedule; times during the pause are neither missed nor run
    Resume(Named),

    /// Start a run of a schedule now
    Trigger(Named),

    /// Start runs for past times that have none
    Backfill(Backfill),

    /// Delete a schedule and its history; its runs stay
    Delete(Named),
}

#[derive(Clone, Debug, clap::Args)]
struct List {
    /// Only schedules of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
struct Which {
    /// Name of the schedule
    name: String,

    /// Tenant of the schedule
    #[arg(long, value_name = "NAME", default_value = "default")]
    tenant: String,
}

#[derive(Clone, Debug, clap::Args)]
struct Show {
    #[command(flatten)]
    which: Which,
}

#[derive(Clone, Debug, clap::Args)]
struct Named {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    operator: OperatorArguments,
}

#[derive(Clone, Debug, clap::Args)]
struct Backfill {
    #[command(flatten)]
    which: Which,

    /// First time, e.g. 2026-03-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    from: Timestamp,

    /// Last time, inclusive
    #[arg(long, value_name = "TIME")]
    until: Timestamp,

    #[command(flatten)]
    operator: OperatorArguments,
}

#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("when").required(true).args(["cron", "every", "once"]))]
struct Put {
    #[command(flatten)]
    which: Which,

    /// Workflow to start; a worker must have registered it
    #[arg(long, value_name = "NAME")]
    workflow: String,

    /// Version of the workflow [default: the newest]
    #[arg(long, value_name = "N", value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    workflow_version: Option<u32>,

    /// Input of its runs, as JSON
    #[arg(long, value_name = "JSON", default_value = "null")]
    input: String,

    /// Cron expression of five fields, or six with seconds first
    #[arg(long, value_name = "CRON")]
    cron: Option<String>,

    /// Time zone of the cron expression, e.g. Europe/Berlin
    #[arg(long, alias = "tz", value_name = "ZONE", requires = "cron", default_value = "UTC")]
    zone: String,

    /// Interval, e.g. 15m: fires at every multiple since 1970
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    every: Option<Duration>,

    /// Start of the first interval [default: 1970-01-01T00:00:00Z]
    #[arg(long, value_name = "TIME", requires = "every")]
    anchor: Option<Timestamp>,

    /// Fire once, at this time
    #[arg(long, value_name = "TIME")]
    once: Option<Timestamp>,

    /// Missed times: skip, once, or all:N for at most N of them
    #[arg(long, value_name = "WHAT", default_value = "skip")]
    missed: Missed,

    /// If the previous run has not ended: allow, skip, queue or cancel
    #[arg(long, value_name = "WHAT", default_value = "allow")]
    overlap: Overlap,

    /// Maximum random delay of each time
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "0s")]
    jitter: Duration,

    /// Maximum lateness before a time counts as missed
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "60s")]
    grace: Duration,

    /// Ignore times before this one
    #[arg(long, value_name = "TIME")]
    start: Option<Timestamp>,

    /// Ignore times after this one
    #[arg(long, value_name = "TIME")]
    end: Option<Timestamp>,

    /// Priority of its runs, from -100 to 100
    #[arg(long, value_name = "N", default_value = "0", allow_hyphen_values = true, value_parser = crate::text::whole_number::<i16>(-100..=100))]
    priority: i16,

    /// Replace a schedule that a program declares, until its next worker starts
    #[arg(long)]
    take_over: bool,

    #[command(flatten)]
    operator: OperatorArguments,
}

/// Does what the command says.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    match arguments.command {
        None => list(arguments.list, session).await,
        Some(Command::List(arguments)) => list(arguments, session).await,
        Some(Command::Show(arguments)) => show(arguments, session).await,
        Some(Command::Explain(arguments)) => explain::run(arguments, session),
        Some(Command::Put(arguments)) => put(*arguments, session).await,
        Some(Command::Pause(named)) => pause(named, session).await,
        Some(Command::Resume(named)) => resume(named, session).await,
        Some(Command::Trigger(named)) => trigger(named, session).await,
        Some(Command::Backfill(arguments)) => backfill(arguments, session).await,
        Some(Command::Delete(named)) => delete(named, session).await,
    }
}

async fn list(arguments: List, session: &Session) -> anyhow::Result<()> {
    let (windlass, _) = session.connect().await?;
    let tenant = arguments.tenant.map(Tenant::new).transpose()?;
    let mut filter = ScheduleFilter { tenant, ..ScheduleFilter::default() };
    let (mut all, mut unreadable) = (Vec::new(), Vec::new());
    loop {
        let page = windlass.schedules(filter.clone()).await?;
        all.extend(page.schedules);
        unreadable.extend(page.unreadable);
        let Some(next) = page.next else { break };
        filter.after = Some(next);
    }
    let text = if session.is_json() {
        let all = all.iter().map(show::json).chain(unreadable.iter().map(show::unreadable_json));
        crate::text::document(&all.collect::<Vec<_>>())?
    } else {
        show::table(&all, &unreadable)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

async fn show(arguments: Show, session: &Session) -> anyhow::Result<()> {
    let (windlass, _) = session.connect().await?;
    let schedule = arguments.which.of(&windlass)?;
    let Some(record) = schedule.get().await? else {
        bail!(
            "schedule {} of tenant {} does not exist",
            shown(&arguments.which.name),
            shown(&arguments.which.tenant)
        );
    };
    let fires = schedule.fires(windlass::store::FIRES_KEPT).await?;
    let text = if session.is_json() {
        let mut value = show::json(&record);
        value["fires"] = fires.iter().map(show::fire_json).collect();
        crate::text::document(&value)?
    } else {
        show::page(&record, &fires)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

impl Which {
    fn of(&self, windlass: &Windlass) -> Result<ScheduleHandle, windlass::Error> {
        windlass.scheduled(&self.tenant, &self.name)
    }

    /// Whose it is.
    fn owner(&self) -> anyhow::Result<Option<Tenant>> {
        Ok(Some(Tenant::new(&self.tenant)?))
    }

    fn detail(&self) -> serde_json::Value {
        json!({ "tenant": self.tenant, "schedule": self.name })
    }

    /// Tells what has become of it.
    fn tell(&self, session: &Session, what: &str) -> anyhow::Result<()> {
        let text = || format!("schedule {} {what}\n", shown(&self.name));
        session.tell(|| self.detail(), text)
    }
}

impl Put {
    fn cadence(&self) -> Result<Cadence, windlass::Error> {
        Ok(match (&self.cron, self.every, self.once) {
            (Some(cron), _, _) => Cadence::cron(cron, &self.zone)?,
            (None, Some(every), _) => {
                let anchor = self.anchor.unwrap_or(Timestamp::from_micros(0));
                Cadence::every_from(every, anchor)?
            }
            (None, None, at) => Cadence::Once(at.unwrap_or(Timestamp::from_micros(0))),
        })
    }

    /// The schedule, of version 1 of its workflow.
    fn schedule(&self) -> anyhow::Result<NewSchedule> {
        let priority = Priority::new(self.priority)
            .with_context(|| format!("priority {} is not within -100 to 100", self.priority))?;
        let input = Payload::from_json(self.input.as_str())
            .map_err(|error| anyhow::anyhow!("the input {error}"))?;
        Ok(NewSchedule {
            key: ScheduleKey {
                tenant: Tenant::new(&self.which.tenant)?,
                name: ScheduleName::new(&self.which.name)?,
            },
            workflow: WorkflowName::new(&self.workflow)?,
            version: Version::FIRST,
            input,
            priority,
            timing: Timing {
                starts_at: self.start,
                ends_at: self.end,
                jitter: self.jitter,
                grace: self.grace,
                missed: self.missed,
                overlap: self.overlap,
                ..Timing::new(self.cadence()?)
            },
            owner: None,
        })
    }
}

async fn put(put: Put, session: &Session) -> anyhow::Result<()> {
    let mut schedule = put.schedule()?;
    let (windlass, store) = session.connect().await?;
    let found = put.which.of(&windlass)?.get().await?;
    if let Some(owner) = found.and_then(|found| found.schedule.owner).filter(|_| !put.take_over) {
        bail!(
            "schedule {} is declared by {}: change it there, or give --take-over",
            shown(&put.which.name),
            shown(owner.as_str())
        );
    }
    let workflow = workflows::find(&windlass, &put.workflow, put.workflow_version).await?;
    schedule.version = workflow.definition.version();
    let tenant = Some(schedule.key.tenant.clone());
    let mut detail = put.which.detail();
    detail["workflow"] = schedule.workflow.as_str().into();
    detail["version"] = schedule.version.get().into();
    detail["cadence"] = schedule.timing.cadence.to_string().into();
    let noted = put.operator.note(&windlass, Action::PutSchedule, tenant, Some(&detail)).await?;
    let record = store.put_schedule(schedule).await.map_err(windlass::Error::from);
    let record = noted.settle(record).await?;
    let next = record.next_at.map_or("never".to_owned(), |at| format!("next at {at}"));
    let text = || format!("schedule {} fires {next}\n", shown(&put.which.name));
    session.tell(|| show::json(&record), text)
}

async fn pause(named: Named, session: &Session) -> anyhow::Result<()> {
    let (windlass, _) = session.connect().await?;
    let (tenant, detail) = (named.which.owner()?, named.which.detail());
    let noted =
        named.operator.note(&windlass, Action::PauseSchedule, tenant, Some(&detail)).await?;
    noted.settle(named.which.of(&windlass)?.pause().await).await?;
    named.which.tell(session, "is paused")
}

async fn resume(named: Named, session: &Session) -> anyhow::Result<()> {
    let (windlass, _) = session.connect().await?;
    let (tenant, detail) = (named.which.owner()?, named.which.detail());
    let noted =
        named.operator.note(&windlass, Action::ResumeSchedule, tenant, Some(&detail)).await?;
    noted.settle(named.which.of(&windlass)?.resume().await).await?;
    named.which.tell(session, "is resumed")
}

async fn trigger(named: Named, session: &Session) -> anyhow::Result<()> {
    let (windlass, _) = session.connect().await?;
    let (tenant, detail) = (named.which.owner()?, named.which.detail());
    let noted =
        named.operator.note(&windlass, Action::TriggerSchedule, tenant, Some(&detail)).await?;
    let run = noted.settle(named.which.of(&windlass)?.trigger().await).await?;
    let run = run.id();
    session.tell(|| json!({ "run": run.to_string() }), || format!("{run}\n"))
}

async fn backfill(arguments: Backfill, session: &Session) -> anyhow::Result<()> {
    let Backfill { which, from, until, operator } = arguments;
    let (windlass, _) = session.connect().await?;
    let (tenant, mut detail) = (which.owner()?, which.detail());
    detail["from"] = from.to_string().into();
    detail["until"] = until.to_string().into();
    let noted = operator.note(&windlass, Action::BackfillSchedule, tenant, Some(&detail)).await?;
    let done = noted.settle(which.of(&windlass)?.backfill(from, until).await).await?;
    let document = || json!({ "started": done.started, "existing": done.existing });
    let (started, existing) = (count(done.started, "run"), count(done.existing, "nominal time"));
    session.tell(document, || format!("started {started}; {existing} had one already\n"))
}

async fn delete(named: Named, session: &Session) -> anyhow::Result<()> {
    let (windlass, _) = session.connect().await?;
    let schedule = named.which.of(&windlass)?;
    // One that cannot be read is there as well.
    if matches!(schedule.get().await, Ok(None)) {
        bail!("schedule {} does not exist", shown(&named.which.name));
    }
    let (tenant, detail) = (named.which.owner()?, named.which.detail());
    let noted =
        named.operator.note(&windlass, Action::DeleteSchedule, tenant, Some(&detail)).await?;
    noted.settle(schedule.delete().await).await?;
    named.which.tell(session, "is deleted")
}
