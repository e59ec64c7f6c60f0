//! `windlass serve`: one door for workers in any language, for people and for programs.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use windlass::Windlass;
use windlass::telemetry::{LOG_VARIABLE, Telemetry, TelemetryGuard};
use windlass_server::{Access, Listener, ServeError, Server, ServerOptions};

use crate::failure::usage;
use crate::session::Session;
use crate::signals::Signals;

/// Where a server listens if nothing is said.
pub(crate) const ADDRESS: &str = "127.0.0.1:7600";

/// How often the duties look without a hint.
const DUTY_INTERVAL: Duration = Duration::from_secs(1);

/// What `windlass serve` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The address to listen at, where with port 0 the system chooses, or a unix socket such as
    /// unix:/run/windlass.sock; can be said several times.
    #[arg(long, value_name = "ADDRESS", default_value = ADDRESS)]
    listen: Vec<String>,

    /// Let everyone in who can reach the address, which must be one of this machine's own: there
    /// are no tokens yet.
    #[arg(long)]
    insecure_dev: bool,

    /// A name by which the server is called, besides localhost and loopback addresses.
    #[arg(long, value_name = "NAME")]
    host_name: Vec<String>,

    /// The most connections to the database.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..))]
    connections: u16,

    /// The role of the database behind which what one tenant reads is read, so that PostgreSQL itself
    /// shows it no others' rows; `windlass migrate --grants` makes it. Without, there is no such
    /// second wall.
    #[arg(long, value_name = "ROLE")]
    api_role: Option<String>,

    /// Leave the background duties to other processes.
    #[arg(long)]
    no_duties: bool,
}

/// Serves until it is told to end.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<ExitCode> {
    if !arguments.insecure_dev {
        return Err(usage(
            "windlass serve would let everyone in, since there are no tokens yet: say \
             --insecure-dev if that is meant",
        ));
    }
    let _telemetry = log_as("windlass-server")?;
    let mut signals = Signals::new()?;
    let mut options = session.database("serve")?.max_connections(arguments.connections.into());
    if let Some(role) = arguments.api_role {
        options = options.api_role(role);
    }
    let windlass = Windlass::connect(options).await?;
    let mut options = ServerOptions::new(Access::insecure_dev());
    options.host_names = arguments.host_name;
    let server = Server::new(windlass.clone(), options);
    let listener = bind(&server, &arguments.listen).await?;
    let duties = match arguments.no_duties {
        true => None,
        false => Some(windlass.duties(DUTY_INTERVAL)?),
    };
    let mut out = io::stdout();
    writeln!(out, "WINDLASS_SERVER={}", listener.urls())?;
    out.flush()?;
    let shutdown = async {
        signals.next().await;
    };
    server.serve(listener, shutdown).await?;
    if let Some(duties) = duties {
        duties.stop().await;
    }
    Ok(ExitCode::SUCCESS)
}

/// Listens at all of these addresses, or at [`ADDRESS`] if there are none.
pub(crate) async fn bind(server: &Server, addresses: &[String]) -> Result<Listener, ServeError> {
    let mut addresses = addresses.iter().map(String::as_str);
    let mut listener = server.bind(addresses.next().unwrap_or(ADDRESS)).await?;
    for address in addresses {
        listener = listener.and(server.bind(address).await?);
    }
    Ok(listener)
}

/// Logs to standard error what people should see, or what the environment asks for.
pub(crate) fn log_as(service: &str) -> anyhow::Result<TelemetryGuard> {
    let telemetry = Telemetry::from_env()?.service(service);
    let telemetry = match std::env::var_os(LOG_VARIABLE) {
        Some(_) => telemetry,
        None => telemetry.log_levels("warn")?,
    };
    Ok(telemetry.install()?)
}
