//! `windlass undo`: undoes what a run did.

use std::io::Write as _;
use std::sync::Arc;

use windlass::store::Store;
use windlass::store::postgres::PostgresStore;
use windlass::{RunId, Windlass};

use crate::database::DatabaseArguments;

/// What `windlass undo` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The run, by its id. It must have ended, and have steps that say how they are undone.
    run: RunId,

    #[command(flatten)]
    database: DatabaseArguments,
}

/// Starts the run that undoes it, and says which it is.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { run, database } = arguments;
    let options = database.options().max_connections(1).listen(false);
    let store = Arc::new(PostgresStore::connect(options).await?);
    let windlass = Windlass::with_store(store as Arc<dyn Store>);
    let by = windlass.run(run).undo().await?;
    writeln!(std::io::stdout(), "run {run} is undone by run {}", by.id())?;
    Ok(())
}
