//! `windlass start`: starts a run, and waits for its end if it is to.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use windlass::store::{RunRecord, TaskRecord};
use windlass::{ErrorKind, Payload, RunHandle, RunId, RunState, TaskState, Tenant};

use crate::failure::usage;
use crate::session::Session;
use crate::text::{count, outputs, parse_pair, parse_time, seconds, shown, shown_lines};
use crate::workflows;

/// The exit code if the run that was waited for failed.
const RUN_FAILED: u8 = 3;

/// The exit code if it was cancelled.
const RUN_CANCELLED: u8 = 4;

/// The exit code if it has not ended in time.
const RUN_NOT_ENDED: u8 = 5;

/// The most bytes of an input that are read: more than any limit of payloads.
const INPUT_BYTES_MAX: u64 = 65 << 20;

/// What `windlass start` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Name of the workflow
    workflow: String,

    /// Version of the workflow [default: the newest]
    #[arg(long = "version", value_name = "N", value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    workflow_version: Option<u32>,

    /// Input, as JSON [default: null]
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    input: Option<String>,

    /// File with the input, as JSON; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "input")]
    input_file: Option<PathBuf>,

    /// Tenant of the run [default: default]
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,

    /// Idempotency key: one run per key, tenant and workflow
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// Delay before the first tasks are ready, e.g. 15m
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    delay: Option<Duration>,

    /// Priority, from -100 to 100
    #[arg(long, value_name = "N", default_value = "0", allow_hyphen_values = true, value_parser = crate::text::whole_number::<i16>(-100..=100))]
    priority: i16,

    /// Metadata to filter by; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    metadata: Vec<(String, String)>,

    /// Run id, a UUID; if the run exists, it is returned
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    id: Option<RunId>,

    /// Wait for the end: exit code 0 if it succeeds, 3 if it fails, 4 if it is cancelled
    #[arg(long)]
    wait: bool,

    /// Maximum time to wait, e.g. 90s; then exit code 5
    #[arg(long, value_name = "TIME", requires = "wait", value_parser = parse_time)]
    timeout: Option<Duration>,
}

fn parse_id(text: &str) -> Result<RunId, String> {
    let example = "01981c2e-7a40-7c1f-9d57-0242ac120002";
    text.parse().map_err(|_| format!("expected a UUID such as {example}"))
}

/// Starts it, and says which run it is.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<ExitCode> {
    let input = input(&arguments)?;
    let (windlass, _) =
        if arguments.wait { session.connect_to_wait().await? } else { session.connect().await? };
    let workflow =
        workflows::find(&windlass, &arguments.workflow, arguments.workflow_version).await?;
    let mut start = windlass.start_known(&workflow, input).priority(arguments.priority);
    let has_tenant = arguments.tenant.is_some();
    if let Some(tenant) = arguments.tenant {
        start = start.tenant(tenant);
    }
    if let Some(key) = arguments.key {
        start = start.key(key);
    }
    if let Some(delay) = arguments.delay {
        start = start.delay(delay);
    }
    if let Some(id) = arguments.id {
        start = start.id(id);
    }
    for (key, value) in arguments.metadata {
        start = start.metadata(key, value);
    }
    let run = start.await.map_err(|error| whose(error, has_tenant))?;
    let id = run.id();
    let mut document = json!({
        "run": id.to_string(),
        "workflow": workflow.definition.name(),
        "version": workflow.definition.version(),
    });
    if !arguments.wait {
        session.tell(|| document, || format!("{id}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !session.is_json() {
        // Whoever gives up waiting knows what for.
        let mut out = std::io::stdout();
        writeln!(out, "{id}")?;
        out.flush()?;
    }
    let end = wait(&run, arguments.timeout).await?;
    let tasks = run.tasks().await?;
    let failures = failures(&tasks);
    document["state"] = end.state.word().into();
    document["ended_at"] = end.ended_at.map(|at| at.to_string()).into();
    document["failures"] = failures.iter().map(Failed::json).collect();
    document["outputs"] = outputs_json(&tasks);
    session.tell(|| document, || told(&end, &tasks, &failures))?;
    Ok(match end.state {
        RunState::Succeeded => ExitCode::SUCCESS,
        RunState::Failed => ExitCode::from(RUN_FAILED),
        RunState::Cancelled => ExitCode::from(RUN_CANCELLED),
        RunState::Running => ExitCode::from(RUN_NOT_ENDED),
    })
}

/// Why it was not started. Whoever acts for one tenant must say which: what is said of nobody is for
/// the default one.
fn whose(error: windlass::Error, has_tenant: bool) -> anyhow::Error {
    let tenant = Tenant::default();
    let is_default = error.to_string().contains(&format!("tenant {tenant:?}"));
    if has_tenant || error.kind() != ErrorKind::Forbidden || !is_default {
        return error.into();
    }
    let text = format!("without --tenant <NAME> it is for tenant {tenant:?}; say yours");
    anyhow::Error::from(error).context(text)
}

/// The run at its end, or when the time is over.
async fn wait(run: &RunHandle, timeout: Option<Duration>) -> Result<RunRecord, windlass::Error> {
    let Some(timeout) = timeout else { return run.wait().await };
    match run.wait_timeout(timeout).await {
        Err(error) if error.kind() == ErrorKind::Timeout => run.get().await,
        ended => ended,
    }
}

/// The input, as it was written.
fn input(arguments: &Arguments) -> anyhow::Result<Payload> {
    let (name, text) = match (&arguments.input, &arguments.input_file) {
        (Some(text), _) => ("--input".to_owned(), text.clone()),
        (None, Some(path)) if path.as_path() == Path::new("-") => {
            ("input on standard input".to_owned(), read(std::io::stdin())?)
        }
        (None, Some(path)) => {
            let name = format!("input file {}", path.display());
            let file = std::fs::File::open(path).with_context(|| name.clone())?;
            let text = read(file).with_context(|| name.clone())?;
            (name, text)
        }
        (None, None) => return Ok(Payload::default()),
    };
    Payload::from_json(text).map_err(|error| usage(format!("{name} {error}")))
}

fn read(from: impl std::io::Read) -> std::io::Result<String> {
    let mut text = String::new();
    from.take(INPUT_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// A task that failed.
struct Failed {
    task: String,
    code: String,
    message: String,
}

impl Failed {
    fn json(&self) -> Value {
        json!({ "task": self.task, "code": self.code, "message": self.message })
    }
}

fn failures(tasks: &[TaskRecord]) -> Vec<Failed> {
    let failed = tasks.iter().filter(|task| task.state == TaskState::Failed);
    let failure = |task: &TaskRecord| {
        let failure = task.failure.clone()?;
        let (code, message) = (failure.code.word().to_owned(), failure.message);
        Some(Failed { task: task.name.to_string(), code, message })
    };
    failed.filter_map(failure).collect()
}

/// The outputs of tasks by their names.
fn outputs_json(tasks: &[TaskRecord]) -> Value {
    let output = |task: &TaskRecord| {
        let output = task.output.as_ref()?.decode().ok()?;
        Some((task.name.to_string(), output))
    };
    Value::Object(tasks.iter().filter_map(output).collect())
}

/// The most outputs that are printed; `windlass tasks` lists the others.
const OUTPUTS_SHOWN: usize = 20;

/// How it ended, as people read it.
fn told(run: &RunRecord, tasks: &[TaskRecord], failures: &[Failed]) -> String {
    let mut text = match run.ended_at {
        Some(at) => format!("{} after {}\n", run.state, seconds(at.since(run.created_at))),
        None => format!("not ended in time: {} open\n", run.open_tasks),
    };
    let all: Vec<(&str, &str)> = tasks
        .iter()
        .filter_map(|task| Some((task.name.as_str(), task.output.as_ref()?.as_str())))
        .collect();
    text += &outputs(all.iter().take(OUTPUTS_SHOWN).copied());
    if all.len() > OUTPUTS_SHOWN {
        let more = all.len() - OUTPUTS_SHOWN;
        text += &format!("{} more, see windlass tasks {}\n", count(more, "output"), run.id);
    }
    for Failed { task, code, message } in failures {
        text +=
            &format!("task {} failed: {}: {}\n", shown(task), shown(code), shown_lines(message));
    }
    text
}
