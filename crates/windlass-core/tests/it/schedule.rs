//! Schedules: against a list that was made by another way, and for any times at all.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use windlass_core::schedule::{Cadence, JitterSeed, Missed, Timing};
use windlass_core::{ScheduleName, Tenant, Timestamp};

const LIST: &str = include_str!("../fixtures/fire_times.txt");

fn minute(number: i64) -> Timestamp {
    Timestamp::from_micros(number * 60_000_000)
}

/// The beginning of a year in universal time, in minutes since 1970.
fn year_begins(year: i64) -> i64 {
    let leap_days = (1970..year).filter(|year| year % 4 == 0).count() as i64;
    ((year - 1970) * 365 + leap_days) * 1_440
}

/// The fires of a line: of the first, and of those that follow it by `15*3 75`.
fn fires(first: &str, deltas: &str) -> Vec<i64> {
    let mut fires: Vec<i64> = vec![first.parse().unwrap()];
    for item in deltas.split_whitespace() {
        let (delta, count) = item.split_once('*').unwrap_or((item, "1"));
        let delta: i64 = delta.parse().unwrap();
        for _ in 0..count.parse::<usize>().unwrap() {
            fires.push(fires.last().unwrap() + delta);
        }
    }
    fires
}

#[test]
fn two_years_in_seven_zones_are_those_of_an_independent_list() {
    let mut zones = BTreeSet::new();
    for line in LIST.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(" | ").collect();
        let [zone, year, cron, first, deltas] = fields[..] else { panic!("not a line: {line}") };
        zones.insert(zone);
        let cadence = Cadence::cron(cron, zone).unwrap();
        let year: i64 = year.parse().unwrap();
        let mut at = Timestamp::from_micros(minute(year_begins(year)).as_micros() - 1);
        for (place, fire) in fires(first, deltas).into_iter().enumerate() {
            let next = cadence.next_after(at).unwrap();
            assert_eq!(next, minute(fire), "{cron} in {zone}, fire {place} of the list");
            at = next;
        }
        let behind = cadence.next_after(at).unwrap();
        assert!(behind >= minute(year_begins(year + 2)), "{cron} in {zone}: {behind} is missing");
    }
    assert_eq!(zones.len(), 7);
}

fn cadence() -> impl Strategy<Value = Cadence> {
    let cron = (0..5_usize, 0..4_usize).prop_map(|(cron, zone)| {
        let crons = ["* * * * *", "*/7 * * * *", "30 1,2 * * *", "*/20 * * * * *", "0 0 29 2 *"];
        let zones = ["Europe/Berlin", "Australia/Lord_Howe", "UTC", "America/St_Johns"];
        Cadence::cron(crons[cron], zones[zone]).unwrap()
    });
    let every = (1..100_000_u64, any::<i32>()).prop_map(|(interval, anchor)| {
        let anchor = Timestamp::from_micros(i64::from(anchor));
        Cadence::every_from(Duration::from_secs(interval), anchor).unwrap()
    });
    prop_oneof![cron, every]
}

fn missed() -> impl Strategy<Value = Missed> {
    prop_oneof![Just(Missed::Skip), Just(Missed::Once), (1..20_u32).prop_map(Missed::All)]
}

proptest! {
    /// Times within the years 2025 to 2027, where clocks are shifted.
    #[test]
    fn next_times_are_later_and_nothing_is_between_two_of_them(
        cadence in cadence(),
        seconds in 1_735_000_000_i64..1_830_000_000,
        part in 0.0..1.0_f64,
    ) {
        let after = Timestamp::from_micros(seconds * 1_000_000);
        let next = cadence.next_after(after).unwrap();
        prop_assert!(next > after);
        let between = (next.as_micros() - after.as_micros()) as f64 * part;
        let between = Timestamp::from_micros(after.as_micros() + between as i64);
        if between < next {
            prop_assert_eq!(cadence.next_after(between), Some(next));
        }
    }

    /// Whenever and however often it is asked, also by a clock that goes back.
    #[test]
    fn each_nominal_time_is_decided_exactly_once(
        cadence in cadence(),
        missed in missed(),
        seconds in 1_735_000_000_i64..1_830_000_000,
        jitter in 0..100_u64,
        grace in 1..300_u64,
        limit in 1..10_usize,
        leaps in prop::collection::vec(-600..4_000_i64, 1..30),
    ) {
        let name = ScheduleName::new("nightly").unwrap();
        let seed = JitterSeed::of(&Tenant::new("acme").unwrap(), &name);
        let timing = Timing {
            jitter: Duration::from_secs(jitter),
            grace: Duration::from_secs(grace),
            missed,
            ..Timing::new(cadence)
        };
        let mut now = Timestamp::from_micros(seconds * 1_000_000);
        let mut next = timing.next_after(now).unwrap();
        // What comes next in the list of all times, of which none may be passed over.
        let mut expected = next;
        for leap in leaps {
            now = Timestamp::from_micros(now.as_micros() + leap * 1_000_000);
            let due = timing.due(seed, next, now, limit);
            if let Some(skipped) = due.skipped {
                prop_assert_eq!(skipped.first, expected);
                for _ in 0..skipped.count - 1 {
                    expected = timing.next_after(expected).unwrap();
                }
                prop_assert_eq!(skipped.last, expected);
                prop_assert!(expected + timing.jitter + timing.grace < now, "it was not missed");
                expected = timing.next_after(expected).unwrap();
            }
            prop_assert!(due.fires.len() <= limit);
            for fire in due.fires {
                prop_assert_eq!(fire, expected);
                prop_assert!(timing.due_at(seed, fire) <= now, "it is early");
                expected = timing.next_after(expected).unwrap();
            }
            prop_assert_eq!(due.next, Some(expected));
            next = expected;
        }
    }
}
