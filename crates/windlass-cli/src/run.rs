//! `windlass run`: one run, with all there is to know of it.

use serde_json::Value;
use windlass::Timestamp;
use windlass::store::RunRecord;

use crate::choice::RunChoice;
use crate::session::Session;
use crate::text::{age, ago, readable, shown};
use crate::{runs, tasks};

/// What `windlass run` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    run: RunChoice,

    /// Maximum number of tasks
    #[arg(long, value_name = "N", default_value = "100", value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    limit: u32,
}

/// Prints the run with its tasks.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    let (windlass, store) = session.connect().await?;
    let run = arguments.run.resolve(&windlass).await?;
    let run = windlass.run(run).get().await?;
    let tasks = tasks::read(&*store, run.id, None, arguments.limit as usize).await?;
    let now = store.now().await?;
    let document = || {
        let mut document = runs::json(&run);
        let input = run.input.as_ref().and_then(|input| input.decode::<Value>().ok());
        document["input"] = input.unwrap_or_default();
        let Value::Object(tasks) = tasks.json() else { return document };
        for (name, value) in tasks {
            let name = if name == "has_more" { "has_more_tasks".to_owned() } else { name };
            document[name] = value;
        }
        document
    };
    session.tell(document, || format!("{}\n{}", page(&run, now), tasks.table(now)))
}

/// The most characters of an input that are shown.
const INPUT_CHARS: usize = 200;

fn page(run: &RunRecord, now: Timestamp) -> String {
    let mut text = String::new();
    let mut line = |word: &str, value: String| text += &format!("{word:<9} {value}\n");
    line("run", run.id.to_string());
    line("workflow", format!("{} version {}", shown(run.workflow.as_str()), run.version));
    line("tenant", shown(run.tenant.as_str()));
    line(
        "state",
        match run.open_tasks {
            0 => run.state.to_string(),
            open => format!("{}, {open} open", run.state),
        },
    );
    if run.round > 1 {
        line("round", run.round.to_string());
    }
    if let Some(key) = &run.key {
        line("key", shown(key.as_str()));
    }
    if run.priority.get() != 0 {
        line("priority", run.priority.get().to_string());
    }
    line("created", format!("{} ({} ago)", run.created_at, ago(Some(run.created_at), now)));
    if let Some(at) = run.ended_at {
        line("ended", format!("{at} (after {})", age(at.since(run.created_at))));
    }
    for (key, value) in &run.metadata {
        line("metadata", format!("{}={}", shown(key), shown(value)));
    }
    let input = &readable(run.input.as_ref().map_or("", |input| input.as_str()));
    let cut: String = input.chars().take(INPUT_CHARS).collect();
    let more = if cut.len() < input.len() { "… (all of it with --json)" } else { "" };
    line("input", shown(&cut) + more);
    text
}
