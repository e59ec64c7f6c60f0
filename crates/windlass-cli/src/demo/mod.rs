//! `windlass demo`: a story of a few seconds that shows what the engine does.
//!
//! Everything that is shown was read from the store; nothing here knows how the
//! orders end. The store is in memory, so the demo does not show what happens when
//! a process dies.

mod ledger;
mod orders;
mod story;
mod summary;
mod view;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use windlass::Windlass;

use crate::text::{Screen, count};
use story::{Ending, Plan};
use view::View;

/// The exit code of a program that was interrupted, as shells count it: 128 and the
/// number of the signal.
const INTERRUPTED: u8 = 130;

/// What `windlass demo` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print one line per event, without a live view and without colours.
    #[arg(long)]
    plain: bool,

    /// How many times faster than a few seconds it runs, from 0.1 to 100.
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_speed)]
    speed: f64,

    /// How many orders there are, from 4 to 200; a quarter of them is bolt's.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = orders_range())]
    orders: u32,
}

fn orders_range() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(4..=200)
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
}

/// Runs the demo to its end, or until it is interrupted.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let screen = Screen::detect(arguments.plain);
    let windlass = Windlass::memory();
    let plan = Plan::new(arguments.orders, Pace { speed: arguments.speed });
    let began = windlass.store().now().await?;
    let mut view = View::new(screen, began);
    let ending = story::tell(&windlass, &plan, &mut view).await;
    view.close()?;
    let mut out = io::stdout().lock();
    match ending? {
        Ending::Told(ledger) => {
            summary::print(&mut out, screen, &ledger, &plan)?;
            out.flush()?;
            Ok(ExitCode::SUCCESS)
        }
        Ending::Interrupted { open_runs } => {
            let runs = count(open_runs, "run");
            writeln!(out, "interrupted: the workers were drained, {runs} had not ended")?;
            Ok(ExitCode::from(INTERRUPTED))
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
