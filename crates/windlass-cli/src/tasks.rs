//! `windlass tasks`: the tasks of a run, and when each was at work.

use std::collections::HashMap;

use serde_json::{Value, json};
use windlass::store::{PAGE_MAX, Store, TaskRecord};
use windlass::{EventId, RunId, TaskState, Timestamp};

use crate::choice::RunChoice;
use crate::session::Session;
use crate::text::{age, count, listing, outputs, shown, shown_lines};

/// What `windlass tasks` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    run: RunChoice,

    /// Only tasks in this state, e.g. running or failed
    #[arg(long, value_name = "STATE", value_parser = parse_state)]
    state: Option<TaskState>,

    /// Maximum number of tasks
    #[arg(long, value_name = "N", default_value = "100", value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    limit: u32,
}

fn parse_state(word: &str) -> Result<TaskState, String> {
    let all = TaskState::ALL.map(TaskState::word).join(", ");
    let state = TaskState::ALL.into_iter().find(|state| state.word() == word);
    state.ok_or_else(|| format!("expected one of {all}"))
}

/// Prints the tasks, in the order of the definition.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    let Arguments { run, state, limit } = arguments;
    let (windlass, store) = session.connect().await?;
    let run = run.resolve(&windlass).await?;
    // Of a run that does not exist no task is missing.
    windlass.run(run).get().await?;
    let tasks = read(&*store, run, state, limit as usize).await?;
    let now = store.now().await?;
    session.tell(|| tasks.json(), || tasks.table(now))
}

/// Tasks of a run, with what its events say of them.
pub(crate) struct Tasks {
    tasks: Vec<TaskRecord>,
    has_more: bool,
    times: HashMap<String, Times>,
}

/// When a task was at work.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// When its last attempt began.
    started_at: Option<Timestamp>,
    /// When it ended.
    ended_at: Option<Timestamp>,
}

/// How many events are read for the times of tasks. The times of what happened behind them are not
/// told.
const EVENTS_MAX: usize = 10 * PAGE_MAX;

/// The first tasks of a run in a state.
pub(crate) async fn read(
    store: &dyn Store,
    run: RunId,
    state: Option<TaskState>,
    most: usize,
) -> Result<Tasks, windlass::Error> {
    let (mut tasks, mut after) = (Vec::new(), None);
    let has_more = loop {
        let page = store.list_tasks(run, after, PAGE_MAX).await?;
        let is_last = page.len() < PAGE_MAX;
        after = page.last().map(|task| task.index);
        tasks.extend(page.into_iter().filter(|task| state.is_none_or(|it| it == task.state)));
        if is_last || tasks.len() > most {
            break tasks.len() > most;
        }
    };
    tasks.truncate(most);
    Ok(Tasks { tasks, has_more, times: times(store, run).await? })
}

async fn times(store: &dyn Store, run: RunId) -> Result<HashMap<String, Times>, windlass::Error> {
    let mut times = HashMap::<String, Times>::new();
    let (mut after, mut count) = (None::<EventId>, 0);
    loop {
        let page = store.list_events(run, after, PAGE_MAX).await?;
        for event in &page {
            let Some(task) = event.task() else { continue };
            let known = times.entry(task.name.to_string()).or_default();
            if task.to == TaskState::Running {
                known.started_at = Some(event.at);
            }
            known.ended_at = task.to.is_final().then_some(event.at);
        }
        (after, count) = (page.last().map(|event| event.id), count + page.len());
        if page.len() < PAGE_MAX || count >= EVENTS_MAX {
            return Ok(times);
        }
    }
}

impl Tasks {
    fn times(&self, task: &TaskRecord) -> Times {
        self.times.get(task.name.as_str()).copied().unwrap_or_default()
    }

    /// The tasks for programs.
    pub(crate) fn json(&self) -> Value {
        let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
        let payload =
            |it: &Option<windlass::Payload>| it.as_ref().and_then(|it| it.decode::<Value>().ok());
        let one = |task: &TaskRecord| {
            let times = self.times(task);
            let failure = task.failure.as_ref().map(|failure| {
                json!({
                    "code": failure.code.word(),
                    "message": failure.message,
                    "is_retryable": failure.is_retryable,
                })
            });
            json!({
                "task": task.name,
                "state": task.state.word(),
                "attempt": task.attempt,
                "fence": task.fence.0,
                "pending_parents": task.pending_parents,
                "available_at": time(task.available_at),
                "started_at": time(times.started_at),
                "ended_at": time(times.ended_at),
                "worker": task.worker.map(|worker| worker.to_string()),
                "output": payload(&task.output),
                "failure": failure,
                "progress": payload(&task.progress),
            })
        };
        let tasks: Vec<Value> = self.tasks.iter().map(one).collect();
        json!({ "tasks": tasks, "has_more": self.has_more })
    }

    /// The tasks for people, with their outputs and failures below.
    pub(crate) fn table(&self, now: Timestamp) -> String {
        if self.tasks.is_empty() {
            return "no tasks\n".to_owned();
        }
        let header = ["task", "state", "attempt", "began", "took", "worker"];
        let dash = || "-".to_owned();
        let row = |task: &TaskRecord| {
            let Times { started_at, ended_at } = self.times(task);
            let until = ended_at.or((task.state == TaskState::Running).then_some(now));
            let took = started_at.zip(until).map(|(from, until)| age(until.since(from)));
            vec![
                shown(task.name.as_str()),
                task.state.to_string(),
                task.attempt.to_string(),
                started_at.map_or_else(dash, |at| at.to_string()),
                took.unwrap_or_else(dash),
                task.worker.map_or_else(dash, |worker| worker.to_string()),
            ]
        };
        let mut text = listing(&header, &[2], self.tasks.iter().map(row));
        if self.has_more {
            text +=
                &format!("and more than these {}, see --limit\n", count(self.tasks.len(), "task"));
        }
        text += &outputs(self.tasks.iter().filter_map(|task| {
            let output = task.output.as_ref()?;
            Some((task.name.as_str(), output.as_str()))
        }));
        for task in &self.tasks {
            if let Some(failure) = &task.failure {
                let (name, code) = (shown(task.name.as_str()), shown(failure.code.word()));
                text += &format!("{name}: {code}: {}\n", shown_lines(&failure.message));
            }
        }
        text
    }
}
