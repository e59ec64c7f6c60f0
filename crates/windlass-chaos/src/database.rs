//! The database of a test, which crashes and recovers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio_postgres::{Client, NoTls};
use windlass::embedded::{EmbeddedOptions, EmbeddedPostgres};

/// The time between two looks at a database that goes down or comes up, and how often to look.
const POLL: Duration = Duration::from_millis(50);
const POLLS_MAX: usize = 600;

/// A busy backend of a client.
const BUSY_BACKEND: &str = "select pid from pg_stat_activity
    where backend_type = 'client backend' and pid <> pg_backend_pid()
    order by state = 'active' desc, random() limit 1";

/// A durable PostgreSQL.
pub(crate) struct Database {
    directory: PathBuf,
    postgres: EmbeddedPostgres,
}

impl Database {
    /// Starts a new cluster below a directory.
    pub(crate) async fn start(directory: &Path) -> anyhow::Result<Self> {
        let directory = directory.join("database");
        let postgres = start(&directory).await?;
        Ok(Database { directory, postgres })
    }

    pub(crate) fn url(&self) -> String {
        self.postgres.url()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.postgres.socket()
    }

    /// Connects without the proxy.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Kills the postmaster as `kill -9` does, then starts PostgreSQL again.
    pub(crate) async fn kill_postmaster(&mut self) -> anyhow::Result<()> {
        kill(self.postgres.pid())?;
        for _ in 0..POLLS_MAX {
            if !self.postgres.is_running() {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        self.postgres = start(&self.directory).await?;
        Ok(())
    }

    /// Kills a backend as `kill -9` does: PostgreSQL ends all sessions and recovers.
    pub(crate) async fn kill_backend(&mut self) -> anyhow::Result<()> {
        let row = self.client().await?.query_one(BUSY_BACKEND, &[]).await?;
        kill(u32::try_from(row.get::<_, i32>(0))?)?;
        for _ in 0..POLLS_MAX {
            tokio::time::sleep(POLL).await;
            if self.client().await.is_ok() {
                return Ok(());
            }
        }
        anyhow::bail!("PostgreSQL did not recover; its log is {}", self.postgres.log().display())
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.postgres.stop().await.context("PostgreSQL does not stop")
    }
}

async fn start(directory: &Path) -> anyhow::Result<EmbeddedPostgres> {
    let options = EmbeddedOptions::new(directory).setting("max_connections", "200");
    options.start().await.context("PostgreSQL does not start")
}

fn kill(pid: u32) -> anyhow::Result<()> {
    let pid = Pid::from_raw(i32::try_from(pid)?).context("there is no process 0")?;
    kill_process(pid, Signal::KILL).with_context(|| format!("cannot kill process {pid:?}"))
}
