//! `windlass dev`: runs a private PostgreSQL, a server and the maintenance jobs, and restarts a program
//! when its files change.

mod program;
mod supervise;
mod watch;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass::embedded::{EmbeddedOptions, default_directory};
use windlass::{Duties, Windlass};
use windlass_server::{Access, ServeError, Server, ServerOptions};

use self::program::Program;
use self::watch::Watch;
use crate::serve;
use crate::server::ServerArguments;
use crate::signals::Signals;
use crate::text::shown;

/// How often the duties look without a hint.
const DUTY_INTERVAL: Duration = Duration::from_secs(1);

/// What `windlass dev` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Directory of the database, kept between runs [default: `windlass` in the user's data
    /// directory]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Address of the server, e.g. 127.0.0.1:7600 or unix:/run/windlass.sock; may be repeated
    /// [default: 127.0.0.1:7600, or a free port if that is taken]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,

    /// Time for the program to end before it is killed
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = crate::text::parse_time)]
    grace: Duration,

    #[command(flatten)]
    server: ServerArguments,

    /// Program to run with DATABASE_URL and WINDLASS_SERVER set; restarted when files in the
    /// working directory change or it crashes
    #[arg(last = true, value_name = "COMMAND")]
    program: Vec<OsString>,
}

/// What this process does beside the database, until it is told to end.
struct Services {
    duties: Duties,
    urls: String,
    serving: JoinHandle<Result<(), ServeError>>,
    ending: CancellationToken,
}

impl Services {
    async fn start(windlass: &Windlass, listen: &[String]) -> anyhow::Result<Self> {
        let server = Server::new(windlass.clone(), ServerOptions::new(Access::insecure_dev()));
        let listener = match serve::bind(&server, listen).await {
            Err(_) if listen.is_empty() => server.bind("127.0.0.1:0").await?,
            listener => listener?,
        };
        let (urls, ending) = (listener.urls(), CancellationToken::new());
        let duties = windlass.duties(DUTY_INTERVAL)?;
        let serving = tokio::spawn(server.serve(listener, ending.clone().cancelled_owned()));
        Ok(Services { duties, urls, serving, ending })
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.ending.cancel();
        self.serving.await??;
        self.duties.stop().await;
        Ok(())
    }
}

/// Starts or joins the server, and serves until a signal comes or PostgreSQL cannot be kept running.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let _telemetry = serve::log_as("windlass-dev")?;
    let mut signals = Signals::new()?;
    let directory = match arguments.data {
        Some(directory) => directory,
        None => default_directory().context("a directory can be named with --data")?,
    };
    let options = arguments.server.apply(EmbeddedOptions::new(directory));
    let mut start = Box::pin(Windlass::embedded_with(options.clone()));
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
    let (socket, url) = (server.socket(), server.url());
    let data = server.directory().to_path_buf();
    let directory = shown(&server.directory().to_string_lossy());
    let how = if server.is_adopted() { "was running already" } else { "was started" };
    let mut out = io::stdout();
    writeln!(out, "PostgreSQL in {directory} {how} (pid {})", server.pid())?;
    writeln!(out, "DATABASE_URL={}", shown(&url))?;
    let services = match Services::start(&windlass, &arguments.listen).await {
        Ok(services) => services,
        Err(error) => {
            windlass.shutdown().await?;
            return Err(error);
        }
    };
    writeln!(out, "WINDLASS_SERVER={}", services.urls)?;
    writeln!(out, "Ready. Press Ctrl-C to stop.")?;
    out.flush()?;
    let work = async {
        if arguments.program.is_empty() {
            signals.next().await;
            return Ok(());
        }
        let variables = [("DATABASE_URL", url), ("WINDLASS_SERVER", services.urls.clone())];
        let program = Program::new(arguments.program, variables, arguments.grace);
        let root = std::env::current_dir().context("the working directory")?;
        program.run(&mut Watch::new(root, data), &mut signals).await
    };
    let worked = tokio::select! {
        biased;
        worked = work => worked,
        // Without a database, nothing is left that could end in order.
        lost = supervise::keep_running(server, &options) => match lost? {},
    };
    services.stop().await?;
    windlass.shutdown().await?;
    let is_used = UnixStream::connect(socket).is_ok();
    let what = if is_used { "is still used by others" } else { "was stopped" };
    writeln!(out, "PostgreSQL in {directory} {what}")?;
    worked.map(|()| ExitCode::SUCCESS)
}
