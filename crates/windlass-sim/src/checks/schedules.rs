//! Schedules, against the times that they were asked for.

use std::collections::BTreeMap;

use windlass::schedule::{Missed, Overlap};
use windlass::store::{
    FIRES_KEPT, Fire, FireResult, NOMINAL_METADATA, SCHEDULE_METADATA, ScheduleState,
};
use windlass::testing::invariants::Violation;
use windlass::{RunState, Timestamp};
use windlass_core::EventBody;

use super::Evidence;
use crate::seed::{MadeSchedule, RunFile};

const ONCE: &str = "G15 each nominal time starts exactly one run";
const OVERLAP: &str = "G15 runs of a schedule overlap as it is said";

/// The runs of schedules, by the names of those and by nominal times.
fn runs_of<'a>(evidence: &Evidence<'a>) -> BTreeMap<(String, String), Vec<&'a RunFile>> {
    let mut runs: BTreeMap<_, Vec<&RunFile>> = BTreeMap::new();
    for file in evidence.files {
        let text = |key| file.run.metadata.get(key).cloned();
        if let (Some(name), Some(nominal)) = (text(SCHEDULE_METADATA), text(NOMINAL_METADATA)) {
            runs.entry((name, nominal)).or_default().push(file);
        }
    }
    runs
}

impl MadeSchedule {
    /// Whether every nominal time has a run.
    fn is_exact(&self) -> bool {
        let runs_all = match self.plan.missed {
            Missed::All(_) => true,
            Missed::Skip | Missed::Once => false,
        };
        runs_all && self.plan.overlap == Overlap::Allow && self.plan.rest.is_none()
    }

    /// Whether its history is whole.
    fn is_whole(&self) -> bool {
        self.fires.len() < FIRES_KEPT
    }

    /// Whether its history says why a nominal time has no run.
    fn explains(&self, nominal: Timestamp) -> bool {
        let is_it = |fire: &Fire| match &fire.result {
            FireResult::Missed { first, .. } => *first <= nominal && nominal <= fire.nominal,
            FireResult::Overlapped => fire.nominal == nominal,
            // It waits for as long as the schedule rests.
            FireResult::Queued => {
                fire.nominal == nominal && self.record.state == ScheduleState::Paused
            }
            FireResult::Started(_) | FireResult::Refused(_) => false,
        };
        self.fires.iter().any(is_it) || !self.is_whole()
    }
}

/// G15: from when it was made to its end, each multiple of its interval has one run, which is not
/// earlier than that, or a reason in the history why it has none, and no other time has one.
pub(super) fn each_nominal_time_has_one_run(
    evidence: &Evidence<'_>,
    violations: &mut Vec<Violation>,
) {
    let mut violate = |text| violations.push(Violation { promise: ONCE, text });
    let mut runs = runs_of(evidence);
    let rests = evidence.world.rests.lock().clone();
    let triggers = evidence.world.triggers.lock().clone();
    let is_triggered = |file: &RunFile| triggers.contains(&file.run.id);
    for made in evidence.schedules {
        let (plan, record) = (&made.plan, &made.record);
        let step = plan.interval.as_micros() as i64;
        let Some(end) = record.schedule.timing.ends_at else { continue };
        // A pause that is delivered once more, late, begins another rest, of which nobody knows.
        let rested = |nominal: Timestamp| {
            rests.iter().any(|(name, from)| *name == plan.name && *from <= nominal)
        };
        let mut at = (record.created_at.as_micros() / step + 1) * step;
        while at <= end.as_micros() {
            let nominal = Timestamp::from_micros(at);
            let of_it = runs.remove(&(plan.name.clone(), nominal.to_string())).unwrap_or_default();
            // A trigger of the same moment is another run.
            let of_it: Vec<_> = of_it.into_iter().filter(|it| !is_triggered(it)).collect();
            match &of_it[..] {
                [file] if file.run.created_at >= nominal => {}
                [file] => violate(format!(
                    "{} started {} at {}, before {nominal}",
                    plan.name, file.run.id, file.run.created_at
                )),
                [] if !made.is_exact() && (made.explains(nominal) || rested(nominal)) => {}
                [] => {
                    let told = made.fires.iter().map(|fire| (fire.nominal, fire.at, &fire.result));
                    let told: Vec<_> = told.collect();
                    violate(format!("{} has no run for {nominal}: {told:?}", plan.name));
                }
                more => violate(format!("{} has {} runs for {nominal}", plan.name, more.len())),
            }
            at += step;
        }
        let triggered = |(name, _): &(String, String), files: &mut Vec<&RunFile>| {
            *name != plan.name || !files.iter().all(|file| is_triggered(file))
        };
        runs.retain(triggered);
    }
    for (name, nominal) in runs.keys() {
        violate(format!("{name} has a run for {nominal}, which is none of its times"));
    }
}

/// From when until when a run was under way, each time.
fn under_way(file: &RunFile) -> Vec<(Timestamp, Timestamp)> {
    let (mut all, mut since) = (Vec::new(), None);
    for event in &file.events {
        let EventBody::Run(run) = &event.body else { continue };
        match run.to {
            RunState::Running => since = since.or(Some(event.at)),
            RunState::Succeeded | RunState::Failed | RunState::Cancelled => {
                all.extend(since.take().map(|since| (since, event.at)));
            }
        }
    }
    all
}

/// G15: where a policy says so, no time starts a run while another of the schedule is not over,
/// also if that was retried.
pub(super) fn runs_overlap_as_it_is_said(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let runs = runs_of(evidence);
    let triggers = evidence.world.triggers.lock().clone();
    let is_triggered = |file: &RunFile| triggers.contains(&file.run.id);
    let minds = |made: &&MadeSchedule| made.plan.overlap != Overlap::Allow && made.is_whole();
    for made in evidence.schedules.iter().filter(minds) {
        let own = runs.iter().filter(|((name, _), _)| *name == made.plan.name);
        let own: Vec<&RunFile> = own.flat_map(|(_, files)| files.iter().copied()).collect();
        let times: Vec<_> = own.iter().map(|file| (file.run.id, under_way(file))).collect();
        for file in own.iter().filter(|file| !is_triggered(file)) {
            let begun = file.run.created_at;
            let is_inside =
                |(from, until): &(Timestamp, Timestamp)| *from <= begun && begun < *until;
            let others = times.iter().filter(|(id, _)| *id != file.run.id);
            for (id, _) in others.filter(|(_, times)| times.iter().any(is_inside)) {
                let (name, run) = (&made.plan.name, file.run.id);
                let text = format!("{name} started {run} at {begun}, while {id} was not over");
                violations.push(Violation { promise: OVERLAP, text });
            }
        }
    }
}
