//! Schedules: when runs start by themselves.
//!
//! A schedule has nominal times, which follow from each other and from nothing else. What fires
//! now, what was missed and what comes next is one pure decision ([`Timing::due`]); a store applies
//! it in the transaction that starts the runs. Each nominal time is decided once: `next` only goes
//! forward, and the id of the run follows from the schedule and the nominal time.

mod cadence;
mod cron;
mod due;
mod zone;

pub use cadence::{Cadence, CadenceError, INTERVAL_MIN};
pub use cron::{CRON_BYTES_MAX, Cron, CronError, CronProblem};
pub use due::{
    Due, GRACE, GRACE_MIN, JITTER_MAX, JitterSeed, LOOK_MAX, MISSED_MAX, Missed, Overlap, Skipped,
    Timing, TimingError, Verdict,
};
pub use zone::{Shift, ZONE_BYTES_MAX, Zone, ZoneError};

use crate::id::{RunId, ScheduleId};
use crate::time::Timestamp;

impl RunId {
    /// The id of the run that a schedule starts for a nominal time: the same whoever computes it.
    pub fn of_fire(schedule: ScheduleId, nominal: Timestamp) -> Self {
        let half = |salt: u64| {
            let parts = [schedule.0, nominal.as_micros().cast_unsigned(), salt];
            u128::from(parts.iter().fold(0, |state, part| mix(state ^ part)))
        };
        RunId::from_parts(nominal, half(1) << 64 | half(2))
    }
}

/// A step of splitmix64: every bit of the number changes every bit of the answer.
fn mix(number: u64) -> u64 {
    let mut number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_of_a_fire_follows_from_schedule_and_nominal_time() {
        let at = Timestamp::from_micros;
        let run = RunId::of_fire(ScheduleId(7), at(1_000_000));
        assert_eq!(run, RunId::of_fire(ScheduleId(7), at(1_000_000)));
        assert_ne!(run, RunId::of_fire(ScheduleId(8), at(1_000_000)));
        assert_ne!(run, RunId::of_fire(ScheduleId(7), at(1_000_001)));
        assert!(!run.may_be_child());
        // Stored data depends on it: it never changes.
        assert_eq!(run.to_string(), RUN);
    }

    const RUN: &str = "00000000-03e8-7fd0-a90c-eab66bc07ebd";
}
