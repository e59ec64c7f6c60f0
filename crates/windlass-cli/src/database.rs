//! Which database a command is about.

use std::sync::Arc;

use windlass::Windlass;
use windlass::store::Store;
use windlass::store::postgres::{PostgresOptions, PostgresStore};

/// What commands that need a database are told of it.
#[derive(Clone, clap::Args)]
pub(crate) struct DatabaseArguments {
    /// The address of the database, such as postgres://user@host/name.
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    database_url: String,

    /// The address is that of a pooler such as PgBouncer in transaction mode.
    #[arg(long)]
    pooled: bool,
}

impl DatabaseArguments {
    pub(crate) fn options(&self) -> PostgresOptions {
        PostgresOptions::new(&self.database_url).pooled(self.pooled)
    }

    /// Connects for a question or two: on one connection, without listening for hints.
    pub(crate) async fn connect(&self) -> Result<(Windlass, Arc<PostgresStore>), windlass::Error> {
        let options = self.options().max_connections(1).listen(false);
        let store = Arc::new(PostgresStore::connect(options).await?);
        Ok((Windlass::with_store(Arc::clone(&store) as Arc<dyn Store>), store))
    }
}

impl std::fmt::Debug for DatabaseArguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The address may hold a password.
        f.debug_struct("DatabaseArguments").finish_non_exhaustive()
    }
}
