//! The database that a benchmark works on: its own, made for it and removed after it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use tokio_postgres::Client;
use windlass::embedded::{EmbeddedOptions, EmbeddedPostgres};
use windlass::store::postgres::{AuditOptions, AuditReport, PostgresOptions, audit};
use windlass::{Windlass, store::postgres::PostgresStore};

use super::meter::Meter;
use super::progress::Progress;

/// Where a benchmark is to be made.
#[derive(Clone, clap::Args)]
pub(crate) struct GroundArguments {
    /// A server to measure, by the address of a database on it: the benchmark makes a
    /// database of its own beside it and drops it at the end. A private PostgreSQL if not
    /// said.
    #[arg(
        long,
        value_name = "URL",
        env = "WINDLASS_BENCH_URL",
        hide_env_values = true,
        global = true
    )]
    database_url: Option<String>,

    /// The directory for the private PostgreSQL, which must be empty or not there, and is
    /// removed at the end: a benchmark is one of the disk below it.
    #[arg(long, value_name = "DIR", conflicts_with = "database_url", global = true)]
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
    /// How far it is, for people who watch.
    pub(crate) progress: Progress,
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
    pub(crate) async fn prepare(
        arguments: &GroundArguments,
        is_silent: bool,
    ) -> anyhow::Result<Ground> {
        let progress = Progress { is_silent };
        match &arguments.database_url {
            Some(url) => {
                let admin = PostgresOptions::new(url).client().await?;
                let name = unique("windlass_bench_");
                admin.batch_execute(&format!("create database {name}")).await.with_context(
                    || format!("database {name} cannot be made beside that of --database-url"),
                )?;
                let made = with_database(url, &name);
                match migrated(&made, Some(&name)).await {
                    Ok(client) => {
                        let kind = Kind::Database { admin, name };
                        Ok(Ground { url: made, client, progress, kind })
                    }
                    Err(error) => {
                        drop_database(&admin, &name).await?;
                        Err(error)
                    }
                }
            }
            None => {
                let directory = match &arguments.data {
                    Some(directory) => directory.clone(),
                    None => std::env::temp_dir().join(unique("windlass-bench-")),
                };
                let server = EmbeddedOptions::new(directory).temporary(true).start().await?;
                if server.is_adopted() {
                    bail!("a server is running in {:?}; choose another --data", server.directory());
                }
                let url = server.url();
                let client = migrated(&url, None).await?;
                Ok(Ground { url, client, progress, kind: Kind::Private(server) })
            }
        }
    }

    /// How to connect to it.
    pub(crate) fn options(&self) -> PostgresOptions {
        PostgresOptions::new(&self.url)
    }

    /// The address of the database.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// An engine on it.
    pub(crate) async fn engine(&self) -> anyhow::Result<Windlass> {
        Ok(Windlass::with_store(self.store().await?))
    }

    /// A store on it.
    pub(crate) async fn store(&self) -> anyhow::Result<Arc<PostgresStore>> {
        Ok(Arc::new(PostgresStore::connect(self.options()).await?))
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
            Kind::Database { admin, name } => drop_database(&admin, &name).await,
        }
    }
}

/// A name that nobody has thought of before.
fn unique(prefix: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.map(|now| now.subsec_nanos()).unwrap_or_default();
    format!("{prefix}{}_{nanos:09}", std::process::id())
}

async fn drop_database(admin: &Client, name: &str) -> anyhow::Result<()> {
    let sql = format!("drop database if exists {name} with (force)");
    admin.batch_execute(&sql).await.with_context(|| format!("database {name} is left"))
}

/// Makes the schema in a database, and makes sure that it is the one that was meant.
async fn migrated(url: &str, name: Option<&str>) -> anyhow::Result<Client> {
    let options = PostgresOptions::new(url);
    let client = options.client().await?;
    let row = client.query_one("select current_database()::text", &[]).await?;
    let current: String = row.get(0);
    if name.is_some_and(|name| name != current) {
        bail!("--database-url leads to database {current:?} whatever database it is to name");
    }
    windlass::store::postgres::migrate(&options).await?;
    Ok(client)
}

/// The address with another database in it.
fn with_database(url: &str, name: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // Keywords and values: the last one counts.
        return format!("{url} dbname={name}");
    };
    let (before, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let host = before.split('/').next().unwrap_or_default();
    let others = parameters.split('&').filter(|one| !one.is_empty() && !one.starts_with("dbname="));
    let others: Vec<&str> = others.collect();
    let mark = if others.is_empty() { "" } else { "?" };
    format!("{scheme}://{host}/{name}{mark}{}", others.join("&"))
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
            ("postgres://h/?dbname=app&sslmode=disable", "postgres://h/b?sslmode=disable"),
            ("postgres://h?dbname=app", "postgres://h/b"),
            ("host=/tmp dbname=app", "host=/tmp dbname=app dbname=b"),
        ] {
            assert_eq!(with_database(address, "b"), expected);
        }
    }
}
