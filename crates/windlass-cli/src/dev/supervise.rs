//! Restarts the private PostgreSQL of `windlass dev` when it dies.

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use anyhow::bail;
use windlass::embedded::{EmbeddedOptions, EmbeddedPostgres};

use crate::text::{seconds, shown};

/// How often the process is checked. A check reads one small file.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// The most attempts to restart a server before `dev` gives up.
const ATTEMPTS_MAX: u32 = 5;

/// The pause after the first failed attempt. It doubles with each one.
const BACKOFF_FIRST: Duration = Duration::from_millis(250);

/// A server that ran for this long resets the number of attempts.
const STEADY_AFTER: Duration = Duration::from_secs(60);

/// Keeps the server running. Returns only with the error that ends `dev`.
pub(super) async fn keep_running(
    server: &EmbeddedPostgres,
    options: &EmbeddedOptions,
) -> anyhow::Result<Infallible> {
    let directory = shown(&server.directory().to_string_lossy());
    let (mut attempts, mut started_at) = (0, Instant::now());
    loop {
        while server.is_running() {
            tokio::time::sleep(CHECK_EVERY).await;
        }
        if started_at.elapsed() >= STEADY_AFTER {
            attempts = 0;
        }
        // A start in an empty directory would create a database without the data of this one.
        if !server.log().exists() {
            bail!("PostgreSQL died because its directory {directory} was removed; run dev again");
        }
        tell(&format!("PostgreSQL in {directory} died: restarting it"))?;
        let pid = loop {
            if attempts == ATTEMPTS_MAX {
                let log = shown(&server.log().to_string_lossy());
                bail!(
                    "PostgreSQL in {directory} keeps dying: restarted {attempts} times; see {log}"
                );
            }
            attempts += 1;
            match options.clone().start().await {
                // The first handle still counts as a user and stops the server at the end.
                Ok(again) => break again.pid(),
                Err(error) if attempts == ATTEMPTS_MAX => {
                    let what = format!(
                        "PostgreSQL in {directory} died and did not restart in {attempts} attempts"
                    );
                    return Err(anyhow::Error::from(error).context(what));
                }
                Err(error) => {
                    let pause = BACKOFF_FIRST * 2_u32.pow(attempts - 1);
                    tracing::warn!(%error, "PostgreSQL did not restart; retry in {}", seconds(pause));
                    tokio::time::sleep(pause).await;
                }
            }
        };
        started_at = Instant::now();
        tell(&format!("PostgreSQL in {directory} is running again (pid {pid})"))?;
    }
}

fn tell(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "dev: {text}")?;
    out.flush()
}
