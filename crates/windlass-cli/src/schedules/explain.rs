//! `windlass schedules explain`: when a cron expression fires, and what shifted clocks do to it.

use std::time::{Duration, SystemTime};

use serde_json::json;
use windlass::Timestamp;
use windlass::schedule::{Cadence, Shift, Zone};

use crate::session::Session;
use crate::text::listing;

/// How far ahead shifted clocks are looked for.
const AHEAD: Duration = Duration::from_secs(2 * 366 * 86_400);

/// How many fires are looked at for that.
const LOOK_MAX: usize = 100_000;

/// What `windlass schedules explain` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// Cron expression, e.g. "0 2 * * MON-FRI"
    cron: String,

    /// Time zone, e.g. Europe/Berlin
    #[arg(long, alias = "tz", value_name = "ZONE", default_value = "UTC")]
    zone: String,

    /// Number of times
    #[arg(long, value_name = "N", default_value = "10", value_parser = crate::text::whole_number::<u32>(1..=1000))]
    count: u32,

    /// Start after this time [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
}

pub(super) fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    let from = arguments.from.unwrap_or_else(|| SystemTime::now().into());
    let Arguments { cron, zone, count, .. } = &arguments;
    let text = explain(cron, zone, from, *count as usize)?;
    let cadence = Cadence::cron(cron, zone)?;
    let fires =
        std::iter::successors(cadence.next_shifted(from), |(at, _)| cadence.next_shifted(*at));
    let fire = |(at, shift): (Timestamp, Shift)| {
        let shifted = Some(note(shift)).filter(|note| !note.is_empty());
        json!({ "at": at.to_string(), "shifted": shifted })
    };
    let document = || fires.take(*count as usize).map(fire).collect();
    session.tell(document, || text)
}

fn explain(
    cron: &str,
    zone: &str,
    from: Timestamp,
    count: usize,
) -> Result<String, windlass::Error> {
    let cadence = Cadence::cron(cron, zone)?;
    let zone: Zone = zone.parse().map_err(windlass::schedule::CadenceError::from)?;
    let first = cadence.next_shifted(from);
    let mut all = std::iter::successors(first, |(at, _)| cadence.next_shifted(*at));
    let fires: Vec<(Timestamp, Shift)> = all.by_ref().take(count).collect();
    let row = |(at, shift): &(Timestamp, Shift)| {
        vec![zone.shown(*at), at.to_string(), note(*shift).to_owned()]
    };
    let is_utc = zone.name() == "UTC";
    let header = if is_utc { vec!["UTC"] } else { vec![zone.name(), "UTC", ""] };
    let rows = fires.iter().map(row).map(|mut cells| {
        // In UTC, the second column would repeat the first, and no clock is shifted.
        cells.truncate(header.len());
        cells
    });
    let mut text = listing(&header, &[], rows);
    let is_shifted = |(_, shift): &(Timestamp, Shift)| *shift != Shift::None;
    if !fires.iter().any(is_shifted) {
        let (mut last, mut looked, mut next) = (from, 0, None);
        for fire in all.take(LOOK_MAX).take_while(|(at, _)| *at < from + AHEAD) {
            (last, looked) = (fire.0, looked + 1);
            if is_shifted(&fire) {
                next = Some(fire);
                break;
            }
        }
        text.push_str(&match next {
            Some((at, shift)) => {
                format!("\nshifted clocks matter next at {}: {}\n", zone.shown(at), note(shift))
            }
            None if looked == LOOK_MAX => {
                format!("\nno shifted clocks matter until {}\n", zone.shown(last))
            }
            None => "\nno shifted clocks matter in the next two years\n".to_owned(),
        });
    }
    Ok(text)
}

fn note(shift: Shift) -> &'static str {
    match shift {
        Shift::None => "",
        Shift::Skipped => "the clocks skip it: runs once, at the shift",
        Shift::Repeated => "the clocks show it twice: runs once, the first time",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("it is a time")
    }

    #[test]
    fn fires_are_shown_with_what_shifted_clocks_do() {
        let text = explain("30 2 * * *", "Europe/Berlin", at("2026-03-27T12:00:00Z"), 3);
        let text = text.expect("it is a cron expression");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("Sat 2026-03-28 02:30:00 +01:00"), "{text}");
        assert!(lines[1].contains("2026-03-28T01:30:00Z"), "{text}");
        assert!(lines[2].starts_with("Sun 2026-03-29 03:00:00 +02:00"), "{text}");
        assert!(lines[2].ends_with("the clocks skip it: runs once, at the shift"), "{text}");
        assert!(lines[3].ends_with("2026-03-30T00:30:00Z"), "{text}");
        let text = explain("30 2 * * *", "Europe/Berlin", at("2026-10-24T12:00:00Z"), 1);
        let text = text.expect("it is a cron expression");
        assert!(text.contains("the clocks show it twice: runs once, the first time"), "{text}");
    }

    #[test]
    fn times_in_utc_have_one_column() {
        let text = explain("30 2 * * *", "UTC", at("2026-03-27T12:00:00Z"), 1);
        let text = text.expect("it is a cron expression");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["UTC", "Sat 2026-03-28 02:30:00 +00:00"], "{text}");
    }

    #[test]
    fn the_next_shift_is_named_if_none_of_the_fires_is_shifted() {
        let from = at("2026-01-01T00:00:00Z");
        let text = explain("30 2 * * *", "Europe/Berlin", from, 2).expect("it is one");
        let said = "shifted clocks matter next at Sun 2026-03-29 03:00:00 +02:00";
        assert!(text.contains(said), "{text}");
        let text = explain("0 2 * * MON-FRI", "Europe/Berlin", from, 2).expect("it is one");
        assert!(text.ends_with("no shifted clocks matter in the next two years\n"), "{text}");
        // So many fires are looked at, and these are of a day and a few hours.
        let text = explain("* * * * * *", "Europe/Berlin", from, 2).expect("it is one");
        let said = "no shifted clocks matter until Fri 2026-01-02 04:46:42 +01:00\n";
        assert!(text.ends_with(said), "{text}");
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let wrong = |cron, zone| {
            explain(cron, zone, at("2026-01-01T00:00:00Z"), 1).expect_err("it is wrong").to_string()
        };
        assert!(wrong("0 25 * * *", "UTC").contains("at character 3"));
        assert!(wrong("0 2 * * *", "Europe/Berln").contains("Europe/Berlin"));
        assert!(wrong("0 0 31 2 *", "UTC").contains("never comes"));
    }
}
