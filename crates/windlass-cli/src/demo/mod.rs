//! `windlass demo`: a story of a few seconds that shows what the engine does.
//!
//! Everything that is shown was read from the store, or said by a worker process;
//! nothing here knows how the orders end. The store is a private PostgreSQL that is
//! started for the demo and removed with it. Whatever is killed at whatever moment, the
//! next demo goes on with what is there.

mod faults;
mod ledger;
mod orders;
mod place;
mod report;
mod staff;
mod story;
mod summary;
mod view;
mod worker;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use windlass::embedded::EmbeddedPostgres;
use windlass::store::postgres::{AuditOptions, PostgresOptions, audit};
use windlass::worker::LEASE_MIN;
use windlass::{DutyOptions, Windlass};

use crate::server::ServerArguments;
use crate::signals::Signals;
use crate::text::{Screen, count, seconds, shown};
use ledger::Ledger;
use place::Place;
use staff::Staff;
use story::{Cast, Ending, Plan};
use view::View;

pub(crate) use worker::{Arguments as WorkerArguments, run as run_worker};

/// What `windlass demo` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print one line per event, without colors
    #[arg(long)]
    plain: bool,

    /// Speed factor, from 0.1 to 100
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_speed)]
    speed: f64,

    /// Number of orders, from 4 to 200
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = orders_range())]
    orders: u32,

    /// Directory of the database, removed at the end [default: next to that of `windlass dev`]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Discard the state of an interrupted demo instead of resuming it
    #[arg(long)]
    fresh: bool,

    #[command(flatten)]
    server: ServerArguments,
}

fn orders_range() -> impl Fn(&str) -> Result<u32, String> + Clone {
    crate::text::whole_number::<u32>(4..=200)
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.1..=100.0).contains(&speed) {
        return Err("not within 0.1 to 100".to_owned());
    }
    Ok(speed)
}

/// How fast time passes in the demo.
#[derive(Clone, Copy, Debug)]
struct Pace {
    speed: f64,
}

impl Pace {
    /// A time at this pace; not less than a millisecond, the resolution of timers.
    fn millis(self, millis: u64) -> Duration {
        let time = Duration::from_millis(millis).div_f64(self.speed);
        time.max(Duration::from_millis(1))
    }

    /// How often something that may have changed is looked at.
    fn poll(self) -> Duration {
        self.millis(40).clamp(Duration::from_millis(10), Duration::from_millis(100))
    }
}

/// Runs the demo to its end, or until it is interrupted.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new()?;
    let screen = Screen::detect(arguments.plain);
    let mut place = Place::take(arguments.data.as_deref(), arguments.server.clone())?;
    if arguments.fresh {
        place.forget().await?;
    }
    let began = Instant::now();
    let server = match start_server(&place, &mut signals).await {
        Ok(Start::Up(server)) => server,
        Ok(Start::Interrupted { exit_code }) => {
            place.remove()?;
            place.leave()?;
            return Ok(ExitCode::from(exit_code));
        }
        Err(error) => {
            place.leave_if_empty();
            return Err(error);
        }
    };
    let told = match writeln!(io::stdout(), "{}", describe(&server, began.elapsed())) {
        Ok(()) => tell(&arguments, screen, &server, &place, &mut signals).await,
        Err(error) => Err(error.into()),
    };
    let told = match told {
        Err(error) if !crate::is_broken_pipe(&error) => {
            // Whatever went wrong, the orders are in there; why it did is the news.
            let _ = server.stop().await;
            let directory = place.directory();
            return Err(error.context(format!(
                "the demo in {directory:?} stopped; start it again to go on, or with --fresh to \
                 begin anew"
            )));
        }
        told => told,
    };
    let is_removed = place.stop(server).await?;
    let directory = shown(&place.directory().to_string_lossy());
    place.leave()?;
    let code = told?;
    let line = if is_removed {
        format!("the server was stopped, and {directory} removed")
    } else {
        format!("the server is used by others, to whom {directory} is left")
    };
    writeln!(io::stdout(), "{line}")?;
    Ok(code)
}

/// What became of a start of the server.
enum Start {
    Up(EmbeddedPostgres),
    Interrupted { exit_code: u8 },
}

/// What is said of a server that is up.
fn describe(server: &EmbeddedPostgres, took: Duration) -> String {
    let major = std::fs::read_to_string(server.directory().join("data/PG_VERSION"));
    let major = major.map(|major| shown(major.trim())).unwrap_or_default();
    let (pid, took) = (server.pid(), seconds(took));
    let how = if server.is_adopted() { "runs already" } else { "is up" };
    format!("PostgreSQL {major} {how} (pid {pid}) after {took}")
}

/// Starts the private server.
async fn start_server(place: &Place, signals: &mut Signals) -> anyhow::Result<Start> {
    let directory = shown(&place.directory().to_string_lossy());
    let what = if place.is_left_over { "a demo was cut off in" } else { "a database is made in" };
    // If nobody reads it, that is found out when there is something to clean up.
    let _ = writeln!(io::stdout(), "{what} {directory}; PostgreSQL is started there");
    let mut start = Box::pin(place.server().start());
    let started = tokio::select! {
        biased;
        exit_code = signals.next() => {
            // Half a start cannot be taken back, but it is over soon.
            if let Ok(server) = start.await {
                server.stop().await?;
            }
            return Ok(Start::Interrupted { exit_code });
        }
        started = &mut start => started?,
    };
    place.check_is_alone(&started).await?;
    Ok(Start::Up(started))
}

/// Migrates, tells the story and sums it up.
async fn tell(
    arguments: &Arguments,
    screen: Screen,
    server: &EmbeddedPostgres,
    place: &Place,
    signals: &mut Signals,
) -> anyhow::Result<ExitCode> {
    let url = server.url();
    let options = PostgresOptions::new(&url).migrate(true);
    let windlass = Windlass::connect(options).await?;
    let pace = Pace { speed: arguments.speed };
    let mut ledger = Ledger::default();
    ledger.refresh(&windlass).await?;
    // What a demo did that was cut off was shown then.
    ledger.take_new();
    let plan = Plan::adopt(&ledger, arguments.orders, pace);
    let mut view = View::new(screen, windlass.store().now().await?);
    if place.is_left_over && !ledger.pages.is_empty() {
        let ended = ledger.pages.iter().filter(|page| page.is_closed()).count();
        let (runs, orders) = (ledger.pages.len(), plan.orders);
        let line = format!("found {runs} of {orders} orders, {ended} ended: they go on");
        view.say(windlass.store().now().await?, &line)?;
    }
    // One that was killed led them: this one is not to wait longer than for its workers.
    let options = DutyOptions::from(pace.poll()).name("demo").ttl(LEASE_MIN);
    let duties = windlass.duties(options)?;
    let staff = Staff::new(&windlass, url.clone(), pace)?;
    let cast = Cast { windlass: &windlass, plan: &plan, view: &mut view, ledger, staff };
    let ending = story::tell(cast, signals).await;
    duties.stop().await;
    view.close()?;
    match ending? {
        Ending::Told(told) => {
            let report = audit(&PostgresOptions::new(&url), &AuditOptions::new()).await?;
            let mut out = io::stdout().lock();
            summary::print(&mut out, screen, &plan, &told, &report)?;
            out.flush()?;
            Ok(ExitCode::SUCCESS)
        }
        Ending::Interrupted { exit_code, open_runs } => {
            let runs = count(open_runs, "run");
            let line = format!("interrupted: the workers were drained, {runs} had not ended");
            writeln!(io::stdout(), "{line}")?;
            Ok(ExitCode::from(exit_code))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_outside_its_limits_is_refused() {
        assert_eq!(parse_speed("0.1"), Ok(0.1));
        assert_eq!(parse_speed("100"), Ok(100.0));
        for wrong in ["0", "0.09", "100.1", "-1", "NaN", "inf"] {
            assert_eq!(parse_speed(wrong), Err("not within 0.1 to 100".to_owned()), "{wrong}");
        }
        assert_eq!(parse_speed("fast"), Err("not a number".to_owned()));
    }

    #[test]
    fn no_time_is_shorter_than_a_timer_can_be() {
        assert_eq!(Pace { speed: 2.0 }.millis(90), Duration::from_millis(45));
        assert_eq!(Pace { speed: 100.0 }.millis(90), Duration::from_millis(1));
    }
}
