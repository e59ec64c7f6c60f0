//! `windlass dev`: a private PostgreSQL to develop with, and the background duties.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use windlass::Windlass;
use windlass::embedded::{EmbeddedOptions, default_directory};
use windlass::telemetry::{LOG_VARIABLE, Telemetry, TelemetryGuard};

use crate::server::ServerArguments;
use crate::signals::Signals;
use crate::text::shown;

/// How often the duties look without a hint.
const DUTY_INTERVAL: Duration = Duration::from_secs(1);

/// What `windlass dev` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The directory of the database, which is kept; `windlass` in the user's data
    /// directory if not said.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    #[command(flatten)]
    server: ServerArguments,
}

/// Starts or joins the server, and does the duties until it is told to end.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let _telemetry = listen()?;
    let mut signals = Signals::new()?;
    let directory = match arguments.data {
        Some(directory) => directory,
        None => default_directory().context("a directory can be named with --data")?,
    };
    let options = arguments.server.apply(EmbeddedOptions::new(directory));
    let mut start = Box::pin(Windlass::embedded_with(options));
    let windlass = tokio::select! {
        biased;
        exit_code = signals.next() => {
            // Half a start cannot be taken back, but it is over soon.
            if let Ok(windlass) = start.await {
                windlass.shutdown().await?;
            }
            return Ok(ExitCode::from(exit_code));
        }
        started = &mut start => started?,
    };
    let server = windlass.server().context("the engine has no server of its own")?;
    let socket = server.socket();
    let directory = shown(&server.directory().to_string_lossy());
    let how = if server.is_adopted() { "was running already" } else { "was started" };
    let mut out = io::stdout();
    writeln!(out, "PostgreSQL in {directory} {how} (pid {})", server.pid())?;
    writeln!(out, "DATABASE_URL={}", shown(&server.url()))?;
    writeln!(out, "timers and leases are watched until Ctrl-C")?;
    out.flush()?;
    let duties = windlass.duties(DUTY_INTERVAL)?;
    signals.next().await;
    duties.stop().await;
    windlass.shutdown().await?;
    let is_used = UnixStream::connect(socket).is_ok();
    let what = if is_used { "is still used by others" } else { "was stopped" };
    writeln!(out, "PostgreSQL in {directory} {what}")?;
    Ok(ExitCode::SUCCESS)
}

/// Logs to standard error what people should see, or what the environment asks for.
fn listen() -> anyhow::Result<TelemetryGuard> {
    let telemetry = Telemetry::from_env()?.service("windlass-dev");
    let telemetry = match std::env::var_os(LOG_VARIABLE) {
        Some(_) => telemetry,
        None => telemetry.log_levels("warn")?,
    };
    Ok(telemetry.install()?)
}
