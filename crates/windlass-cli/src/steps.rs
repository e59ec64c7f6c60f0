//! `windlass steps`: what the durable functions of a run remember, and what they wait for.

use std::io::Write as _;

use serde_json::{Value, json};
use windlass::Timestamp;
use windlass::function::{StepKind, StepRecord, StepResult, StepState};

use crate::choice::RunChoice;
use crate::session::Session;
use crate::text::{age, listing, readable, shown, terminal_width, thousands};

/// How wide a line is made if it does not go to a terminal.
const COLUMNS_ELSEWHERE: usize = 200;

/// How much of a result is shown, however narrow the terminal is.
const RESULT_CHARS_MIN: usize = 20;

/// The space between two columns of a table.
const GAP: usize = 2;

/// What `windlass steps` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    run: RunChoice,

    /// Only steps of this task
    #[arg(long, value_name = "NAME")]
    task: Option<String>,

    /// Maximum number of steps of each task, the last ones
    #[arg(long, value_name = "N", default_value = "100", value_parser = crate::text::whole_number::<u32>(1..=u32::MAX), conflicts_with = "json")]
    limit: u32,
}

/// The calls of one task.
struct Calls {
    task: String,
    steps: Vec<StepRecord>,
}

/// Prints the calls of the functions of a run, in the order in which they are made.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    let (windlass, store) = session.connect().await?;
    let run = windlass.run(arguments.run.resolve(&windlass).await?);
    // Of a run that does not exist no task is missing.
    run.get().await?;
    let names = match arguments.task {
        Some(task) => vec![task],
        None => run.tasks().await?.iter().map(|task| task.name.to_string()).collect(),
    };
    let mut calls = Vec::new();
    for task in names {
        let steps = run.steps(&task).await?;
        if !steps.is_empty() {
            calls.push(Calls { task, steps });
        }
    }
    let text = if session.is_json() {
        let all = calls.iter().flat_map(|it| it.steps.iter().map(|step| json(&it.task, step)));
        crate::text::document(&all.collect::<Result<Vec<Value>, _>>()?)?
    } else {
        let columns = terminal_width().map_or(COLUMNS_ELSEWHERE, usize::from);
        let limit = arguments.limit as usize;
        tables(&calls, Shape { limit, columns, now: store.now().await? })
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// How a call stands, in a word.
fn word(state: &StepState) -> &'static str {
    match state {
        StepState::Open { .. } => "waits",
        StepState::Done { result: StepResult::Value(_), .. } => "done",
        StepState::Done { result: StepResult::Failed(_), .. } => "failed",
    }
}

fn json(task: &str, step: &StepRecord) -> anyhow::Result<Value> {
    let mut object = json!({
        "task": task,
        "call": step.call.0,
        "kind": step.kind.word(),
        "name": step.name.as_str(),
        "key": step.key.as_ref().map(|key| key.as_str()),
        "state": word(&step.state),
        "number": step.number(),
        "value": null,
        "failures": null,
        "failure": null,
        "due": step.due().map(|due| due.to_string()),
        "children_max": step.children_max(),
    });
    let failure = match &step.state {
        StepState::Open { failures, failure, .. } => {
            object["failures"] = (*failures).into();
            failure.as_ref()
        }
        StepState::Done { result: StepResult::Value(value), .. } => {
            object["value"] = value.decode()?;
            None
        }
        StepState::Done { result: StepResult::Failed(failure), .. } => Some(failure),
    };
    if let Some(failure) = failure {
        object["failure"] = json!({ "code": failure.code.word(), "message": failure.message });
    }
    Ok(object)
}

/// How tables are made.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// The most calls of a task.
    limit: usize,
    /// The most characters of a line.
    columns: usize,
    now: Timestamp,
}

/// A table for each task, under its name if there are several.
fn tables(calls: &[Calls], shape: Shape) -> String {
    if calls.is_empty() {
        return "no steps\n".to_owned();
    }
    let table = |it: &Calls| match calls.len() {
        1 => table(&it.steps, shape),
        _ => format!("task {}\n{}", shown(&it.task), table(&it.steps, shape)),
    };
    calls.iter().map(table).collect::<Vec<_>>().join("\n")
}

fn table(steps: &[StepRecord], shape: Shape) -> String {
    let left_out = steps.len().saturating_sub(shape.limit);
    let row = |step: &StepRecord| {
        vec![
            step.call.to_string(),
            step.kind.to_string(),
            shown(step.name.as_str()),
            word(&step.state).to_owned(),
            shown(&result(step, shape.now)),
        ]
    };
    let mut rows: Vec<Vec<String>> = steps[left_out..].iter().map(row).collect();
    let header = ["call", "kind", "name", "state", "result"];
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].len()]).max().unwrap_or_default() + GAP
    };
    let others: usize = (0..header.len() - 1).map(width).sum();
    let room = shape.columns.saturating_sub(others + GAP).max(RESULT_CHARS_MIN);
    for row in &mut rows {
        if let Some(result) = row.last_mut() {
            *result = cut(std::mem::take(result), room);
        }
    }
    let before = match left_out {
        0 => String::new(),
        many => format!("{} earlier, see --limit\n", thousands(many as u64)),
    };
    before + &listing(&header, &[0], rows.into_iter())
}

/// What a call came to, or what it waits for.
fn result(step: &StepRecord, now: Timestamp) -> String {
    match &step.state {
        StepState::Done { result: StepResult::Value(value), .. } => readable(value.as_str()),
        StepState::Done { result: StepResult::Failed(failure), .. } => {
            format!("{}: {}", failure.code.word(), readable(&failure.message))
        }
        StepState::Open { failures, failure, due, children_max } => {
            let mut parts = Vec::new();
            match (step.kind, children_max) {
                (StepKind::Signal, _) => parts.push(match &step.key {
                    Some(key) => format!("for its signal to key {}", key.as_str()),
                    None => "for its signal".to_owned(),
                }),
                (StepKind::Child, None | Some(0)) => parts.push("for its runs".to_owned()),
                (StepKind::Child, Some(most)) => {
                    parts.push(format!("until at most {most} of its runs are left"));
                }
                (
                    StepKind::Step
                    | StepKind::Undoable
                    | StepKind::Sleep
                    | StepKind::Time
                    | StepKind::Patch
                    | StepKind::Input,
                    _,
                ) => {}
            }
            match due {
                Some(due) if *due > now => {
                    parts.push(format!("until {due}, for {}", age(due.since(now))));
                }
                Some(due) => parts.push(format!("until {due}, which has passed")),
                None => {}
            }
            if *failures > 0 {
                let often = match failures {
                    1 => "once".to_owned(),
                    many => format!("{many} times"),
                };
                let why = failure.as_ref().map_or_else(String::new, |it| format!(": {it}"));
                parts.push(format!("failed {often}{why}"));
            }
            parts.join("; ")
        }
    }
}

/// The text, or as much of it as fits.
fn cut(text: String, room: usize) -> String {
    if text.chars().count() <= room {
        return text;
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;
    use windlass::function::Call;
    use windlass::{Failure, FailureCode};

    const NOW: Timestamp = Timestamp::from_micros(1_750_000_000_000_000);

    fn step(call: u32, kind: StepKind, name: &str, state: StepState) -> StepRecord {
        let name = Arc::<str>::from(name).try_into().unwrap();
        StepRecord { call: Call(call), name, kind, key: None, state }
    }

    fn done(json: &str) -> StepState {
        let value = Arc::<str>::from(json).try_into().unwrap();
        StepState::Done { number: 1, result: StepResult::Value(value) }
    }

    fn open(failures: u32, due: Option<Timestamp>) -> StepState {
        let failure = Failure::new(FailureCode::Error, "away\u{1b}[2J");
        let failure = (failures > 0).then_some(failure);
        StepState::Open { failures, failure, due, children_max: None }
    }

    fn shape(limit: usize, columns: usize) -> Shape {
        Shape { limit, columns, now: NOW }
    }

    #[test]
    fn the_table_says_what_each_call_came_to_or_waits_for() {
        let soon = Some(NOW + Duration::from_secs(125));
        let failed = StepResult::Failed(Failure::new(FailureCode::Timeout, "too slow"));
        let children = |most| StepState::Open {
            failures: 0,
            failure: None,
            due: None,
            children_max: Some(most),
        };
        let key = Some(Arc::<str>::from("pay_1").try_into().unwrap());
        let steps = [
            step(1, StepKind::Step, "charge", done(r#"{"id":7}"#)),
            step(2, StepKind::Step, "mail", StepState::Done { number: 2, result: failed }),
            step(3, StepKind::Step, "ship", open(2, soon)),
            step(4, StepKind::Sleep, "sleep", open(0, Some(NOW))),
            step(5, StepKind::Signal, "paid", open(0, soon)),
            step(6, StepKind::Signal, "paid", open(0, None)),
            step(7, StepKind::Child, "parts", children(3)),
            step(8, StepKind::Child, "parts", children(0)),
            StepRecord { key, ..step(9, StepKind::Signal, "paid", open(0, None)) },
        ];
        let text = table(&steps, shape(100, 120));
        let lines: Vec<String> =
            text.lines().map(|it| it.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "call kind name state result",
            r#"1 step charge done {"id":7}"#,
            "2 step mail failed timeout: too slow",
            r"3 step ship waits until 2025-06-15T15:08:45Z, for 2m 5s; failed 2 times: error: away\u{1b}[2J",
            "4 sleep sleep waits until 2025-06-15T15:06:40Z, which has passed",
            "5 signal paid waits for its signal; until 2025-06-15T15:08:45Z, for 2m 5s",
            "6 signal paid waits for its signal",
            "7 child parts waits until at most 3 of its runs are left",
            "8 child parts waits for its runs",
            "9 signal paid waits for its signal to key pay_1",
        ];
        assert_eq!(lines, expected, "{text}");
    }

    #[test]
    fn results_are_cut_to_the_line_and_the_last_calls_are_shown() {
        let long = format!("\"{}\"", "é".repeat(1_000));
        let steps: Vec<_> =
            (1..=1_005).map(|call| step(call, StepKind::Step, "x", done(&long))).collect();
        let text = table(&steps, shape(3, 80));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "1,002 earlier, see --limit");
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[2].starts_with("1003 ") && lines[2].ends_with("é…"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
        assert!(lines[2].chars().count() > 70, "{text}");
    }

    #[test]
    fn functions_of_several_tasks_are_told_apart() {
        let calls = |task: &str| Calls {
            task: task.to_owned(),
            steps: vec![step(1, StepKind::Time, "time", done("5"))],
        };
        assert_eq!(tables(&[], shape(1, 80)), "no steps\n");
        assert!(!tables(&[calls("a")], shape(1, 80)).contains("task"));
        let text = tables(&[calls("a"), calls("b\n")], shape(1, 80));
        assert!(text.starts_with("task a\n") && text.contains("\n\ntask b\\n\n"), "{text}");
    }

    #[test]
    fn programs_are_told_everything() {
        let value = json("t", &step(3, StepKind::Step, "ship", open(2, Some(NOW)))).unwrap();
        assert_eq!(value["state"], "waits");
        assert_eq!(value["failures"], 2);
        assert_eq!(value["failure"]["message"], "away\u{1b}[2J");
        assert_eq!(value["due"], "2025-06-15T15:06:40Z");
        let value = json("t", &step(4, StepKind::Step, "ship", done("[1]"))).unwrap();
        assert_eq!(value["value"], json!([1]));
        assert_eq!(value["number"], 1);
    }
}
