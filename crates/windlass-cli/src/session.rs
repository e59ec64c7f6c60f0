//! What a command has to do its work with: the settings, a connection and a way to tell.

use std::io::Write as _;
use std::sync::Arc;

use serde_json::Value;
use windlass::Windlass;
use windlass::remote::RemoteStore;
use windlass::store::Store;
use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass::store::sealed::SealedStore;

use crate::settings::{Settings, Target};

/// What commands are given besides their arguments.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    settings: Settings,
    is_json: bool,
}

impl Session {
    pub(crate) fn new(settings: Settings, is_json: bool) -> Self {
        Session { settings, is_json }
    }

    /// Whether programs read what is told.
    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Connects for a question or two, to whatever the settings say.
    pub(crate) async fn connect(&self) -> anyhow::Result<(Windlass, Arc<dyn Store>)> {
        self.connect_and(false).await
    }

    /// Connects, and listens for hints of what is waited for.
    pub(crate) async fn connect_to_wait(&self) -> anyhow::Result<(Windlass, Arc<dyn Store>)> {
        self.connect_and(true).await
    }

    async fn connect_and(&self, listens: bool) -> anyhow::Result<(Windlass, Arc<dyn Store>)> {
        let store: Arc<dyn Store> = match self.settings.target()? {
            Target::Database(url) => {
                // Through a pooler nothing is heard.
                let listens = listens && !self.settings.is_pooled();
                let options = self.options(url).max_connections(1).listen(listens);
                Arc::new(PostgresStore::connect(options).await?)
            }
            Target::Server(url) => Arc::new(RemoteStore::connect(self.settings.remote(url))?),
        };
        let store = match self.settings.keyring()? {
            Some(keys) => Arc::new(SealedStore::new(store, Arc::new(keys)).for_people()),
            None => store,
        };
        Ok((Windlass::with_store(Arc::clone(&store)), store))
    }

    /// How to connect to the database, for a command that a server cannot serve.
    pub(crate) fn database(&self, command: &str) -> anyhow::Result<PostgresOptions> {
        Ok(self.options(self.settings.database(command)?))
    }

    fn options(&self, url: &str) -> PostgresOptions {
        PostgresOptions::new(url).pooled(self.settings.is_pooled())
    }

    /// Tells what was done or found: a document for programs, or else the text.
    pub(crate) fn tell(
        &self,
        document: impl FnOnce() -> Value,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let text = if self.is_json { crate::text::document(&document())? } else { text() };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(())
    }
}
