//! Schedules, against the times that they were asked for.

use std::collections::BTreeMap;

use windlass::Timestamp;
use windlass::store::{NOMINAL_METADATA, SCHEDULE_METADATA};
use windlass::testing::invariants::Violation;

use super::Evidence;

const ONCE: &str = "G15 each nominal time starts exactly one run";

/// G15: from when it was made to its end, each multiple of its interval has one run, which is not
/// earlier than that, and no other time has one.
pub(super) fn each_nominal_time_has_one_run(
    evidence: &Evidence<'_>,
    violations: &mut Vec<Violation>,
) {
    let mut violate = |text| violations.push(Violation { promise: ONCE, text });
    let mut runs: BTreeMap<(String, String), Vec<&crate::seed::RunFile>> = BTreeMap::new();
    for file in evidence.files {
        let text = |key| file.run.metadata.get(key).cloned();
        if let (Some(name), Some(nominal)) = (text(SCHEDULE_METADATA), text(NOMINAL_METADATA)) {
            runs.entry((name, nominal)).or_default().push(file);
        }
    }
    for (plan, record) in evidence.schedules {
        let step = plan.interval.as_micros() as i64;
        let made = record.created_at.as_micros();
        let Some(end) = record.schedule.timing.ends_at else { continue };
        let mut at = (made / step + 1) * step;
        while at <= end.as_micros() {
            let nominal = Timestamp::from_micros(at);
            let of_it = runs.remove(&(plan.name.clone(), nominal.to_string()));
            match of_it.as_deref() {
                Some([file]) if file.run.created_at >= nominal => {}
                Some([file]) => violate(format!(
                    "{} started {} at {}, before {nominal}",
                    plan.name, file.run.id, file.run.created_at
                )),
                Some(more) => {
                    violate(format!("{} has {} runs for {nominal}", plan.name, more.len()));
                }
                None => violate(format!("{} has no run for {nominal}", plan.name)),
            }
            at += step;
        }
    }
    for (name, nominal) in runs.keys() {
        violate(format!("{name} has a run for {nominal}, which is none of its times"));
    }
}
