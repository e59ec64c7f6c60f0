//! `windlass retention`: how long runs that are over are kept.

use std::io::Write as _;
use std::time::Duration;

use anyhow::anyhow;
use serde_json::{Value, json};
use windlass::store::{Action, RetentionRule};
use windlass::{RunState, WorkflowName};

use crate::operator::{About, OperatorArguments};
use crate::session::Session;
use crate::text::{age, listing, parse_time, shown};

/// What `windlass retention` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List retention rules (default); runs without a rule are kept forever
    List,

    /// Delete runs that ended in a state after a time
    Set(Set),

    /// Delete a rule.
    Clear(Clear),
}

#[derive(Clone, Debug, clap::Args)]
struct Set {
    /// Final state: succeeded, failed or cancelled
    #[arg(value_parser = parse_state)]
    state: RunState,

    /// Time to keep a run after its end, e.g. 30d
    #[arg(value_parser = parse_time)]
    keep: Duration,

    /// Only runs of this workflow [default: all workflows without a rule]
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,

    /// Time to keep the idempotency key, if longer, e.g. 90d
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    keep_keys: Option<Duration>,

    /// Archive runs before they are deleted
    #[arg(long)]
    archive: bool,

    /// Also delete failed runs that have dead letters
    #[arg(long)]
    with_dead_letters: bool,

    #[command(flatten)]
    operator: OperatorArguments,
}

#[derive(Clone, Debug, clap::Args)]
struct Clear {
    /// Final state: succeeded, failed or cancelled
    #[arg(value_parser = parse_state)]
    state: RunState,

    /// Rule of this workflow [default: the rule for all workflows]
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,

    #[command(flatten)]
    operator: OperatorArguments,
}

fn parse_state(word: &str) -> Result<RunState, String> {
    let state = RunState::ALL.into_iter().find(|state| state.word() == word && state.is_final());
    state.ok_or_else(|| "expected one of succeeded, failed, cancelled".to_owned())
}

/// Does what the command says.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    match arguments.command {
        None | Some(Command::List) => list(session).await,
        Some(Command::Set(arguments)) => set(arguments, session).await,
        Some(Command::Clear(arguments)) => clear(arguments, session).await,
    }
}

async fn list(session: &Session) -> anyhow::Result<()> {
    let (windlass, _) = session.connect().await?;
    let rules = windlass.retention().await?;
    let text = if session.is_json() {
        let rules: Vec<Value> = rules.iter().map(json).collect();
        crate::text::document(&rules)?
    } else {
        table(&rules)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

async fn set(arguments: Set, session: &Session) -> anyhow::Result<()> {
    let Set { state, keep, workflow, keep_keys, archive, with_dead_letters, operator } = arguments;
    let workflow = workflow.map(WorkflowName::new).transpose()?;
    let rule = RetentionRule {
        workflow,
        keep_key_for: keep_keys.unwrap_or_default(),
        archives: archive,
        with_dead_letters,
        ..RetentionRule::new(state, keep)
    };
    let (windlass, _) = session.connect().await?;
    let detail = json(&rule);
    let noted = operator.note(&windlass, Action::SetRetention, About::all(), Some(&detail)).await?;
    noted.settle(windlass.set_retention(rule.clone()).await).await?;
    let whose = whose(rule.workflow.as_ref());
    let text = || format!("{state} runs of {whose} go {} after their end\n", age(keep));
    session.tell(|| detail.clone(), text)
}

async fn clear(arguments: Clear, session: &Session) -> anyhow::Result<()> {
    let Clear { state, workflow, operator } = arguments;
    let workflow = workflow.map(WorkflowName::new).transpose()?;
    let (windlass, _) = session.connect().await?;
    let detail = json!({ "workflow": workflow, "state": state.word() });
    let noted =
        operator.note(&windlass, Action::ClearRetention, About::all(), Some(&detail)).await?;
    let whose = whose(workflow.as_ref());
    let cleared = match windlass.clear_retention(workflow, state).await {
        Ok(false) => Err(anyhow!("there is no rule for {state} runs of {whose}")),
        cleared => cleared.map_err(Into::into),
    };
    noted.settle(cleared).await?;
    let text = || format!("there is no rule any more for {state} runs of {whose}\n");
    session.tell(|| detail.clone(), text)
}

fn whose(workflow: Option<&WorkflowName>) -> String {
    match workflow {
        Some(name) => format!("workflow {}", shown(name.as_str())),
        None => "all workflows without a rule of their own".to_owned(),
    }
}

fn json(rule: &RetentionRule) -> Value {
    json!({
        "workflow": rule.workflow,
        "state": rule.state.word(),
        "keep_seconds": rule.keep_for.as_secs(),
        "keep_key_seconds": rule.keep_key_for.as_secs(),
        "archives": rule.archives,
        "with_dead_letters": rule.with_dead_letters,
    })
}

fn table(rules: &[RetentionRule]) -> String {
    if rules.is_empty() {
        return "all runs are kept\n".to_owned();
    }
    let header = ["workflow", "state", "kept", "key kept", "archived", "with dead letters"];
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let row = |rule: &RetentionRule| {
        vec![
            rule.workflow.as_ref().map_or_else(|| "all".to_owned(), |it| shown(it.as_str())),
            rule.state.to_string(),
            age(rule.keep_for),
            if rule.keep_key_for > rule.keep_for { age(rule.keep_key_for) } else { "-".to_owned() },
            yes(rule.archives),
            yes(rule.with_dead_letters),
        ]
    };
    listing(&header, &[], rules.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_how_long_what_is_kept() {
        let day = Duration::from_secs(86_400);
        let rule = RetentionRule {
            workflow: Some(WorkflowName::new("mail\u{202e}").expect("it is a name")),
            keep_key_for: 90 * day,
            archives: true,
            ..RetentionRule::new(RunState::Succeeded, 30 * day)
        };
        let text = table(std::slice::from_ref(&rule));
        let row: Vec<&str> = text.lines().nth(1).expect("one rule").split_whitespace().collect();
        assert_eq!(row, [r"mail\u{202e}", "succeeded", "30d", "90d", "yes", "no"]);
        assert_eq!(table(&[]), "all runs are kept\n");
        assert_eq!(json(&rule)["keep_seconds"], 30 * 86_400);
        assert!(parse_state("running").is_err());
    }
}
