//! `windlass dead`: tasks that failed for good, and what is to be done about them.

use std::io::Write as _;
use std::time::Duration;

use anyhow::bail;
use serde_json::{Value, json};
use windlass::store::{DeadLetter, DeadLetterFilter, RefusedRun};
use windlass::{FailureCode, RunId, TaskName, Tenant, Timestamp, Windlass, WorkflowName};

use crate::choice::{RunChoice, RunPrefix, newest};
use crate::operator::OperatorArguments;
use crate::session::Session;
use crate::text::{ago, count, listing, parse_time, readable, shown, shown_lines};

/// What `windlass dead` can be told.
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
    /// List dead letters, newest first (default)
    List(List),

    /// Show the dead letters of a run
    Show(Show),

    /// Retry the failed tasks and everything that depends on them
    Redrive(Redrive),

    /// Remove dead letters from the list; their runs stay failed
    Discard(Discard),
}

#[derive(Clone, Debug, clap::Args)]
struct List {
    #[command(flatten)]
    filter: FilterArguments,

    /// Maximum number of dead letters, the newest
    #[arg(long, value_name = "N", default_value = "100", value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    limit: u32,
}

#[derive(Clone, Debug, clap::Args)]
struct Show {
    #[command(flatten)]
    run: RunChoice,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Redrive {
    #[command(flatten)]
    which: Which,

    /// Maximum number of runs per second [default: all at once]
    #[arg(long, value_name = "N", value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    rate: Option<u32>,

    #[command(flatten)]
    operator: OperatorArguments,
}

#[derive(Clone, Debug, clap::Args)]
struct Discard {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    operator: OperatorArguments,
}

/// Which of them a command that changes something is about.
#[derive(Clone, Debug, clap::Args)]
struct Which {
    /// Only dead letters of this run: its id, or a unique prefix of at least 4 characters
    run: Option<RunPrefix>,

    /// Only dead letters of the newest run
    #[arg(long, conflicts_with = "run")]
    last: bool,

    #[command(flatten)]
    filter: FilterArguments,

    /// All dead letters, without a filter; needs --yes
    #[arg(long, requires = "yes", conflicts_with_all = ["run", "last"])]
    all: bool,

    /// Confirm, however many it affects
    #[arg(long)]
    yes: bool,
}

impl Which {
    /// The run that the arguments name, if they do.
    async fn run(&self, windlass: &Windlass) -> anyhow::Result<Option<RunId>> {
        Ok(match &self.run {
            Some(run) => Some(run.resolve(windlass).await?),
            None if self.last => Some(newest(windlass).await?),
            None => None,
        })
    }

    /// The filter, unless it says nothing and not all are meant.
    fn filter(&self, run: Option<RunId>, now: Timestamp) -> anyhow::Result<DeadLetterFilter> {
        let filter = DeadLetterFilter { run, ..self.filter.filter(now)? };
        match (filter == DeadLetterFilter::default(), self.all) {
            (true, false) => bail!("give a run, a filter such as --workflow, or --all"),
            (false, true) => bail!("--all excludes filters: leave out the filter or --all"),
            (true, true) | (false, false) => Ok(filter),
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
struct FilterArguments {
    /// Only dead letters of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,

    /// Only dead letters of this workflow
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,

    /// Only dead letters of this task
    #[arg(long, value_name = "NAME")]
    task: Option<String>,

    /// Only dead letters with this failure code, e.g. error, panic, timeout or lease_expired
    #[arg(long, value_name = "CODE")]
    reason: Option<String>,

    /// Only tasks that failed within this time, e.g. 2h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<Duration>,

    /// Only tasks that failed longer ago than this, e.g. 7d
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    older_than: Option<Duration>,
}

impl FilterArguments {
    fn filter(&self, now: Timestamp) -> anyhow::Result<DeadLetterFilter> {
        let FilterArguments { tenant, workflow, task, reason, since, older_than } = self;
        let before = |time: &Duration| {
            let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
            Timestamp::from_micros(now.as_micros().saturating_sub(micros))
        };
        Ok(DeadLetterFilter {
            run: None,
            tenant: tenant.as_ref().map(Tenant::new).transpose()?,
            workflow: workflow.as_ref().map(WorkflowName::new).transpose()?,
            task: task.as_ref().map(TaskName::new).transpose()?,
            reason: reason.clone().map(FailureCode::from),
            since: since.as_ref().map(before),
            until: older_than.as_ref().map(before),
        })
    }
}

/// Does what the command says.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    match arguments.command {
        None => list(arguments.list, session).await,
        Some(Command::List(arguments)) => list(arguments, session).await,
        Some(Command::Show(arguments)) => show(arguments, session).await,
        Some(Command::Redrive(arguments)) => redrive(arguments, session).await,
        Some(Command::Discard(arguments)) => discard(arguments, session).await,
    }
}

async fn list(arguments: List, session: &Session) -> anyhow::Result<()> {
    let (windlass, store) = session.connect().await?;
    let now = store.now().await.map_err(windlass::Error::from)?;
    let filter = arguments.filter.filter(now)?;
    let most = arguments.limit as usize;
    let (letters, has_more) = read(&windlass, filter, most).await?;
    let text = if session.is_json() {
        let letters: Vec<Value> = letters.iter().map(json).collect();
        crate::text::document(&letters)?
    } else {
        let more = if has_more { "and more, see --limit\n" } else { "" };
        table(&letters, now) + more
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// The newest of a filter, and whether there are more.
async fn read(
    windlass: &Windlass,
    filter: DeadLetterFilter,
    most: usize,
) -> anyhow::Result<(Vec<DeadLetter>, bool)> {
    let dead = windlass.dead_letters(filter);
    let (mut letters, mut after) = (Vec::new(), None);
    loop {
        let page = dead.list(after, most - letters.len()).await?;
        letters.extend(page.letters);
        match page.next {
            Some(next) if letters.len() < most => after = Some(next),
            next => return Ok((letters, next.is_some())),
        }
    }
}

async fn show(arguments: Show, session: &Session) -> anyhow::Result<()> {
    let (windlass, store) = session.connect().await?;
    let run = arguments.run.resolve(&windlass).await?;
    let (letters, _) = read(&windlass, DeadLetterFilter::of_run(run), usize::MAX).await?;
    if letters.is_empty() {
        // What is wrong with the id is better news than that nothing is there.
        let state = windlass.run(run).get().await?.state;
        bail!("run {run} is {state} and has no dead letters");
    }
    let text = if session.is_json() {
        let letters: Vec<Value> = letters.iter().map(json).collect();
        crate::text::document(&letters)?
    } else {
        let now = store.now().await.map_err(windlass::Error::from)?;
        letters.iter().map(|letter| described(letter, now)).collect::<Vec<_>>().join("\n")
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

pub(crate) async fn redrive(arguments: Redrive, session: &Session) -> anyhow::Result<()> {
    let (windlass, store) = session.connect().await?;
    let now = store.now().await.map_err(windlass::Error::from)?;
    let which = &arguments.which;
    let run = which.run(&windlass).await?;
    let dead = windlass.dead_letters(which.filter(run, now)?);
    let mut call = dead.redrive(arguments.operator.name());
    if let Some(rate) = arguments.rate {
        call = call.per_second(rate);
    }
    let summary = call.await?;
    check_found(&windlass, (run, which.all), summary.runs, &summary.examples).await?;
    let runs = usize::try_from(summary.runs).unwrap_or(usize::MAX);
    let mut text = format!("{} redriven", count(runs, "run"));
    if let Some(rate) = arguments.rate.filter(|_| summary.runs > 1) {
        text += &format!(", {rate} of them in a second");
    }
    let refused = Refused { count: summary.refused, examples: &summary.examples };
    session.tell(
        || json!({ "redriven": summary.runs, "refused": refused.json() }),
        || text + "\n" + &refused.text(),
    )
}

/// Takes them off the list.
async fn discard(arguments: Discard, session: &Session) -> anyhow::Result<()> {
    let (windlass, store) = session.connect().await?;
    let now = store.now().await.map_err(windlass::Error::from)?;
    let which = &arguments.which;
    let run = which.run(&windlass).await?;
    let dead = windlass.dead_letters(which.filter(run, now)?);
    let summary = dead.discard(arguments.operator.name()).await?;
    check_found(&windlass, (run, which.all), summary.letters, &summary.examples).await?;
    let letters = usize::try_from(summary.letters).unwrap_or(usize::MAX);
    let refused = Refused { count: summary.refused, examples: &summary.examples };
    session.tell(
        || json!({ "discarded": summary.letters, "refused": refused.json() }),
        || format!("{} discarded\n", count(letters, "dead letter")) + &refused.text(),
    )
}

/// That there was nothing to do is an error, and of one run, that it was refused.
async fn check_found(
    windlass: &Windlass,
    (run, is_all): (Option<RunId>, bool),
    done: u64,
    refused: &[RefusedRun],
) -> anyhow::Result<()> {
    if done > 0 {
        return Ok(());
    }
    match (run, refused.first()) {
        (Some(_), Some(refused)) => bail!("{}", refused.why),
        (Some(run), None) => {
            let state = windlass.run(run).get().await?.state;
            bail!("run {run} is {state} and has no dead letters that match")
        }
        (None, Some(_)) => Ok(()),
        (None, None) if is_all => bail!("there are no dead letters"),
        (None, None) => bail!("no dead letters match"),
    }
}

/// How many of those that were refused are named.
const REFUSED_SHOWN: usize = 20;

/// The runs that were refused.
struct Refused<'a> {
    count: u64,
    examples: &'a [RefusedRun],
}

impl Refused<'_> {
    fn text(&self) -> String {
        if self.count == 0 {
            return String::new();
        }
        let runs = usize::try_from(self.count).unwrap_or(usize::MAX);
        let mut text = format!("{} refused:\n", count(runs, "run"));
        for RefusedRun { why, .. } in self.examples.iter().take(REFUSED_SHOWN) {
            text += &format!("  {}\n", shown(why));
        }
        if runs > REFUSED_SHOWN {
            text += &format!("  and {} more\n", runs - REFUSED_SHOWN);
        }
        text
    }

    fn json(&self) -> Value {
        let one = |it: &RefusedRun| json!({ "run": it.run.to_string(), "why": it.why });
        json!({
            "count": self.count,
            "examples": self.examples.iter().map(one).collect::<Vec<_>>(),
        })
    }
}

fn json(letter: &DeadLetter) -> Value {
    let lanes = letter.lanes.iter();
    let lanes =
        lanes.map(|lane| json!({ "limit": lane.limit, "tenant": lane.tenant, "key": lane.key }));
    json!({
        "run": letter.task.run.to_string(),
        "task": letter.name,
        "round": letter.round,
        "tenant": letter.tenant,
        "workflow": letter.workflow,
        "version": letter.version,
        "queue": letter.queue,
        "reason": letter.failure.code.word(),
        "error": letter.failure.message,
        "attempts": letter.attempts,
        "lanes": lanes.collect::<Vec<_>>(),
        "failed_at": letter.failed_at.to_string(),
    })
}

/// How many characters of an error a line of the table has.
const ERROR_CHARS: usize = 60;

fn table(letters: &[DeadLetter], now: Timestamp) -> String {
    if letters.is_empty() {
        return "no dead letters\n".to_owned();
    }
    let header = ["run", "workflow", "task", "tenant", "reason", "attempts", "failed", "error"];
    let row = |letter: &DeadLetter| {
        let message = readable(&letter.failure.message);
        let message = message.lines().next().unwrap_or_default();
        let error: String = message.chars().take(ERROR_CHARS).collect();
        vec![
            letter.task.run.to_string(),
            shown(letter.workflow.as_str()),
            shown(letter.name.as_str()),
            shown(letter.tenant.as_str()),
            shown(letter.failure.code.word()),
            letter.attempts.to_string(),
            ago(Some(letter.failed_at), now),
            shown(&error),
        ]
    };
    listing(&header, &[5], letters.iter().map(row))
}

fn described(letter: &DeadLetter, now: Timestamp) -> String {
    let lane = |lane: &windlass::store::LaneId| match &lane.key {
        Some(key) => format!("{} {}", shown(lane.limit.as_str()), shown(key.as_str())),
        None => shown(lane.limit.as_str()),
    };
    let lanes: Vec<String> = letter.lanes.iter().map(lane).collect();
    let mut text = String::new();
    let mut line = |word: &str, value: String| text += &format!("{word:<9} {value}\n");
    line("run", letter.task.run.to_string());
    line("task", shown(letter.name.as_str()));
    line("workflow", format!("{} {}", shown(letter.workflow.as_str()), letter.version));
    line("tenant", shown(letter.tenant.as_str()));
    line("queue", shown(letter.queue.as_str()));
    if !lanes.is_empty() {
        line("lanes", lanes.join(", "));
    }
    line("round", letter.round.to_string());
    line("attempts", letter.attempts.to_string());
    line("failed", format!("{} ({} ago)", letter.failed_at, ago(Some(letter.failed_at), now)));
    line("reason", shown(letter.failure.code.word()));
    line("error", shown_lines(&letter.failure.message));
    text
}
