//! `windlass why`: why a run or a task does not go on, and what would change it.

use std::io::Write as _;

use windlass::why::{Reason, TaskWhy, Why};

use crate::choice::{RunPrefix, newest};
use crate::failure::usage;
use crate::session::Session;
use crate::text::{count, shown};

/// What `windlass why` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run id, or a unique prefix of at least 4 characters; left out with --last
    #[arg(value_name = "RUN", required_unless_present = "last")]
    run: Option<String>,

    /// Name of a task [default: all tasks that have not ended]
    task: Option<String>,

    /// Use the newest run
    #[arg(long)]
    last: bool,
}

impl Arguments {
    /// Returns the run, or `None` for the newest, and the task. With `--last`, the only word is the
    /// task.
    fn parse(self) -> anyhow::Result<(Option<RunPrefix>, Option<String>)> {
        match (self.last, self.run, self.task) {
            (true, Some(_), Some(_)) => Err(usage("give a run or --last, not both")),
            (true, task, None) | (true, None, task) => Ok((None, task)),
            (false, run, task) => {
                let run = run.unwrap_or_default();
                let wrong =
                    |why| usage(format!("invalid value '{}' for '<RUN>': {why}", shown(&run)));
                Ok((Some(run.parse().map_err(wrong)?), task))
            }
        }
    }
}

/// Prints why the run or the task is where it is.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    let (run, task) = arguments.parse()?;
    let (windlass, _store) = session.connect().await?;
    let run = match run {
        Some(run) => run.resolve(&windlass).await?,
        None => newest(&windlass).await?,
    };
    let run = windlass.run(run);
    let why = match task {
        Some(task) => run.why_task(&task).await?,
        None => run.why().await?,
    };
    let text = if session.is_json() { crate::text::document(&why)? } else { report(&why) };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn report(why: &Why) -> String {
    let Why { run, workflow, version, tenant, state, open_tasks, .. } = why;
    let mut lines = vec![format!(
        "run {run} of workflow {} version {version} for tenant {} {}",
        shown(workflow.as_str()),
        shown(tenant.as_str()),
        match why.ended_at {
            Some(ended_at) => format!("has {state}, at {ended_at}"),
            None => format!("is {state}, {} open", count(*open_tasks as usize, "task")),
        },
    )];
    lines.extend(why.trace.as_ref().map(|trace| format!("it belongs to trace {trace}")));
    lines.extend(why.reasons.iter().flat_map(|reason| reason_lines(reason, why)));
    for task in &why.tasks {
        let TaskWhy { name, state, attempt, max_attempts, reasons } = task;
        let attempts = match attempt {
            0 => String::new(),
            attempt => format!(", attempt {attempt} of {max_attempts}"),
        };
        lines.push(format!("task {} is {state}{attempts}", shown(name.as_str())));
        lines.extend(reasons.iter().flat_map(|reason| reason_lines(reason, why)));
    }
    if why.has_more_tasks {
        lines.push("there are more tasks like these: ask about one by its name".to_owned());
    }
    lines.join("\n") + "\n"
}

fn reason_lines(reason: &Reason, why: &Why) -> Vec<String> {
    let mut lines = vec![format!("  {}", shown(&reason.text(why.at)))];
    lines.extend(reason.remedy(why.run).map(|remedy| format!("  → {}", shown(&remedy))));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use windlass::why::{Count, Missing, Served};
    use windlass::{Failure, FailureCode, RunId, RunState, TaskState, Timestamp, Version};

    const NOW: Timestamp = Timestamp::from_micros(1_750_000_000_000_000);

    fn name<T: TryFrom<std::sync::Arc<str>>>(text: &str) -> T {
        T::try_from(text.into()).ok().expect("it is a name")
    }

    fn why(state: RunState, task_state: TaskState, reasons: Vec<Reason>) -> Why {
        let run = RunId::from_uuid(uuid::Uuid::nil());
        let ended_at = state.is_final().then_some(NOW);
        let task = TaskWhy {
            name: name("charge"),
            state: task_state,
            attempt: 1,
            max_attempts: 3,
            reasons,
        };
        Why {
            at: NOW,
            run,
            workflow: name("order"),
            version: Version::FIRST,
            tenant: name("acme"),
            state,
            ended_at,
            open_tasks: 1,
            trace: None,
            reasons: Vec::new(),
            tasks: vec![task],
            has_more_tasks: false,
        }
    }

    fn ready() -> Reason {
        let missing = Missing::Version { served: vec![Version::FIRST] };
        Reason::Ready {
            queue: name("mail"),
            priority: Default::default(),
            own_before: Count::new(2),
            all_before: Count::new(1_001),
            served: Served::Nobody { missing },
        }
    }

    #[test]
    fn the_report_says_what_holds_a_task_back_and_what_would_change_it() {
        let text = report(&why(RunState::Running, TaskState::Ready, vec![ready()]));
        let expected = "run 00000000-0000-0000-0000-000000000000 of workflow order version 1 for \
             tenant acme is running, 1 task open\n\
             task charge is ready, attempt 1 of 3\n  \
             it is in queue \"mail\" with priority 0, behind 1000 or more tasks, 2 of them its \
             tenant's; no live worker at the queue has handlers for the version; they have 1\n  \
             → a worker starts that registers this version of the workflow\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_users_wrote_cannot_steer_a_terminal() {
        let failure = Some(Failure::new(FailureCode::Error, "away\u{1b}[2J"));
        let failed = Reason::Failed { failure };
        let text = report(&why(RunState::Failed, TaskState::Failed, vec![failed]));
        assert!(text.contains("it failed: error: away\\u{1b}[2J"), "{text}");
        assert!(text.contains("has failed, at 2025-06-15T15:06:40Z"), "{text}");
    }

    #[test]
    fn the_trace_of_a_run_is_told() {
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let mut why = why(RunState::Running, TaskState::Ready, Vec::new());
        why.trace = windlass::TraceContext::parse(traceparent, None).ok();
        let text = report(&why);
        assert!(text.contains(&format!("\nit belongs to trace {traceparent}\n")), "{text}");
        assert_eq!(serde_json::to_value(&why).expect("it has a JSON form")["trace"], traceparent);
    }

    #[test]
    fn programs_are_told_everything() {
        let value = serde_json::to_value(why(RunState::Running, TaskState::Ready, vec![ready()]));
        let value = value.expect("it has a JSON form");
        assert_eq!(value["at"], "2025-06-15T15:06:40Z");
        let reason = &value["tasks"][0]["reasons"][0];
        assert_eq!(reason["reason"], "ready");
        assert_eq!(reason["all_before"], json!({ "at_least": 1000, "is_more": true }));
        assert_eq!(
            reason["served"],
            json!({ "by": "nobody", "missing": { "missing": "version", "served": [1] } })
        );
    }
}
