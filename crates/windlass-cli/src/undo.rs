//! `windlass undo`: undoes what a run did.

use std::io::Write as _;

use windlass::RunId;
use windlass::store::Action;

use crate::database::DatabaseArguments;
use crate::operator::OperatorArguments;

/// What `windlass undo` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The run, by its id. It must have ended, and have steps that say how they are undone.
    run: RunId,

    #[command(flatten)]
    operator: OperatorArguments,

    #[command(flatten)]
    database: DatabaseArguments,
}

/// Starts the run that undoes it, and says which it is.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { run, operator, database } = arguments;
    let (windlass, _) = database.connect().await?;
    operator.note(&windlass, Action::UndoRun, Some(run), None).await?;
    let by = windlass.run(run).undo().await?;
    writeln!(std::io::stdout(), "run {run} is undone by run {}", by.id())?;
    Ok(())
}
