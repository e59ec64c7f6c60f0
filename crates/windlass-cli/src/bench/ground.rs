//! The database that a benchmark works on: its own, made for it and removed after it.

use std::path::PathBuf;

use anyhow::{Context, bail};
use tokio_postgres::Client;
use windlass::embedded::{EmbeddedOptions, EmbeddedPostgres};
use windlass::store::postgres::{AuditOptions, AuditReport, PostgresOptions, audit};
use windlass::{Windlass, store::postgres::PostgresStore};

use super::meter::Meter;

/// Where a benchmark is to be made.
#[derive(Clone, clap::Args)]
pub(crate) struct GroundArguments {
    /// A server to measure, by the address of a database on it: the benchmark makes a
    /// database of its own beside it and drops it at the end. A private PostgreSQL if not
    /// said.
    #[arg(long, value_name = "URL", env = "WINDLASS_BENCH_URL", hide_env_values = true)]
    database_url: Option<String>,

    /// The directory for the private PostgreSQL, which must be empty or not there, and is
    /// removed at the end: a benchmark is one of the disk below it.
    #[arg(long, value_name = "DIR", conflicts_with = "database_url")]
    data: Option<PathBuf>,
}

impl std::fmt::Debug for GroundArguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The address may hold a password.
        f.debug_struct("GroundArguments").finish_non_exhaustive()
    }
}

/// A fresh database with the schema of Windlass, and nobody else in it.
pub(crate) struct Ground {
    url: String,
    /// A connection of its own, to read counters with and for statements beside the engine.
    pub(crate) client: Client,
    kind: Kind,
}

enum Kind {
    /// A private server, removed when this is dropped.
    Private(EmbeddedPostgres),
    /// A database of this name on a server that is somebody's.
    Database { admin: Client, name: String },
}

impl Ground {
    /// Makes the database.
    pub(crate) async fn prepare(arguments: &GroundArguments) -> anyhow::Result<Ground> {
        let (url, kind) = match &arguments.database_url {
            Some(url) => {
                let admin = PostgresOptions::new(url).client().await?;
                let name = format!("windlass_bench_{}", std::process::id());
                admin.batch_execute(&format!("create database {name}")).await.with_context(
                    || format!("database {name} cannot be made beside that of --database-url"),
                )?;
                (with_database(url, &name), Kind::Database { admin, name })
            }
            None => {
                let directory = match &arguments.data {
                    Some(directory) => directory.clone(),
                    None => {
                        std::env::temp_dir().join(format!("windlass-bench-{}", std::process::id()))
                    }
                };
                let server = EmbeddedOptions::new(directory).temporary(true).start().await?;
                if server.is_adopted() {
                    bail!("a server is running in {:?}; choose another --data", server.directory());
                }
                (server.url(), Kind::Private(server))
            }
        };
        let options = PostgresOptions::new(&url);
        windlass::store::postgres::migrate(&options).await?;
        let client = options.client().await?;
        Ok(Ground { url, client, kind })
    }

    /// How to connect to it.
    pub(crate) fn options(&self) -> PostgresOptions {
        PostgresOptions::new(&self.url)
    }

    /// An engine on it.
    pub(crate) async fn engine(&self) -> anyhow::Result<Windlass> {
        let store = PostgresStore::connect(self.options()).await?;
        Ok(Windlass::with_store(std::sync::Arc::new(store)))
    }

    /// The process of the server, if it is on this machine for sure.
    pub(crate) fn server_pid(&self) -> Option<u32> {
        match &self.kind {
            Kind::Private(server) => Some(server.pid()),
            Kind::Database { .. } => None,
        }
    }

    /// The counters as they are now.
    pub(crate) async fn meter(&self) -> anyhow::Result<Meter> {
        Meter::read(&self.client, self.server_pid()).await
    }

    /// Does now what autovacuum would do in the middle of the measurement.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        Ok(self.client.batch_execute("vacuum analyze").await?)
    }

    /// Checks every guarantee on what the benchmark left.
    pub(crate) async fn audit(&self) -> anyhow::Result<AuditReport> {
        Ok(audit(&self.options(), &AuditOptions::new()).await?)
    }

    /// Removes the database.
    pub(crate) async fn remove(self) -> anyhow::Result<()> {
        drop(self.client);
        match self.kind {
            Kind::Private(server) => Ok(server.stop().await?),
            Kind::Database { admin, name } => {
                let drop = format!("drop database if exists {name} with (force)");
                Ok(admin.batch_execute(&drop).await?)
            }
        }
    }
}

/// The address with another database in it.
fn with_database(url: &str, name: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // Keywords and values: the last one counts.
        return format!("{url} dbname={name}");
    };
    let (before, parameters) = match rest.split_once('?') {
        Some((before, parameters)) => (before, format!("?{parameters}")),
        None => (rest, String::new()),
    };
    let host = before.split('/').next().unwrap_or_default();
    format!("{scheme}://{host}/{name}{parameters}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_of_an_address_is_replaced_and_nothing_else() {
        for (address, expected) in [
            ("postgres://me:secret@host:5432/app", "postgres://me:secret@host:5432/b"),
            ("postgres://host", "postgres://host/b"),
            ("postgres://%2Ftmp/app?sslmode=disable", "postgres://%2Ftmp/b?sslmode=disable"),
            ("host=/tmp dbname=app", "host=/tmp dbname=app dbname=b"),
        ] {
            assert_eq!(with_database(address, "b"), expected);
        }
    }
}
