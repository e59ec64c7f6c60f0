//! `windlass undo`: undoes what a run did.

use serde_json::json;
use windlass::store::Action;

use crate::choice::RunChoice;
use crate::operator::{About, OperatorArguments};
use crate::session::Session;

/// What `windlass undo` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    run: RunChoice,

    #[command(flatten)]
    operator: OperatorArguments,
}

/// Starts the run that undoes it, and says which it is.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    let Arguments { run, operator } = arguments;
    let (windlass, _) = session.connect().await?;
    let run = run.resolve(&windlass).await?;
    let tenant = windlass.run(run).get().await?.tenant;
    let noted = operator.note(&windlass, Action::UndoRun, About::run(tenant, run), None).await?;
    let by = noted.settle(windlass.run(run).undo().await).await?;
    let by = by.id();
    session.tell(
        || json!({ "run": run.to_string(), "undone_by": by.to_string() }),
        || format!("run {run} is undone by run {by}\n"),
    )
}
