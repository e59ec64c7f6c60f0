//! When things happened, against when they had to.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass::Timestamp;
use windlass::store::Duty;
use windlass::testing::invariants::Violation;
use windlass_core::decide::took_too_long;
use windlass_core::{EventBody, FailureCode, RunEventKind, TaskEventKind, TaskId, TaskState};

use super::Evidence;
use crate::scenario::{DUTY_INTERVAL_MAX, LEADER_TTL_MAX};
use crate::world::EPOCH;

const RECOVERY: &str = "G10 bounded recovery";
const DEADLINES: &str = "G11 deadlines are kept";

/// The margin of G10 beyond lease and reap interval.
const RECOVERY_MARGIN: Duration = Duration::from_secs(1);

/// The longest pause of a background duty after errors of the store: the first
/// look after an outage may come that late.
const DUTY_BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How long the duties may wait for a new leader: for the end of the old one's time to
/// live, and for the first candidate to ask after that.
const VACANCY_MAX: Duration = LEADER_TTL_MAX.saturating_add(Duration::from_secs(1));

/// The margin of G11 beyond the interval of sweeps.
const LATENESS_MAX: Duration = Duration::from_secs(5);

/// Whether a sweep was done after `from` and before `to`. At the very same time
/// either may have come first.
pub(super) fn was_swept_between(sweeps: &[Timestamp], from: Timestamp, to: Timestamp) -> bool {
    let first = sweeps.partition_point(|at| *at <= from);
    sweeps.get(first).is_some_and(|at| *at < to)
}

/// G10: a task stays with a worker for a lease after its claim or the worker's last
/// heartbeat, whichever is later, and the first look after that takes it away. Once
/// faults have stopped there is such a look in every interval.
pub(super) fn recovery_is_bounded(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let mut violate = |text| violations.push(Violation { promise: RECOVERY, text });
    let truth = evidence.world.truth.lock();
    let mut claimed_at = BTreeMap::new();
    for (file, line, event) in evidence.task_events() {
        let task = TaskId { run: file.run.id, index: event.task };
        if matches!(event.kind, TaskEventKind::Started { .. }) {
            claimed_at.insert(task, line.at);
        }
        let TaskEventKind::LeaseExpired { worker, .. } = &event.kind else { continue };
        let (Some(known), Some(claimed_at)) = (truth.workers.get(worker), claimed_at.get(&task))
        else {
            violate(format!("task {task} expired with worker {worker}, which never had it"));
            continue;
        };
        if known.left_at.contains(&line.at) {
            continue;
        }
        let last_beat = known.last_beat(line.at);
        if let Some(kept) = last_beat.map(|beat| beat + known.lease)
            && line.at < kept
        {
            violate(format!("task {task} expired at {}, the lease lasts until {kept}", line.at));
        }
        let end = last_beat.map_or(*claimed_at, |beat| beat.max(*claimed_at)) + known.lease;
        if was_swept_between(&truth.reaps, end, line.at) {
            let text = "and the store was asked for dead workers before that";
            violate(format!("task {task} expired at {}, the lease ended {end}, {text}", line.at));
        }
        let healed_at = evidence.staffed_at + DUTY_BACKOFF_MAX + VACANCY_MAX;
        let latest = end.max(healed_at) + DUTY_INTERVAL_MAX + RECOVERY_MARGIN;
        if line.at > latest {
            violate(format!("task {task} expired at {}, {latest} is the latest", line.at));
        }
    }
}

/// G10: a task that a worker was given and does not know of comes back, however
/// busy the worker is: its next heartbeat gives it up, and without one the lease
/// ends.
pub(super) fn unheard_claims_come_back(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let truth = evidence.world.truth.lock();
    let handlers = evidence.world.handlers.lock();
    for file in evidence.files.iter().filter(|file| !file.is_undo()) {
        let mut unheard = vec![None; file.tasks.len()];
        for event in &file.events {
            let Some(body) = event.task() else { continue };
            let task = TaskId { run: file.run.id, index: body.task };
            let slot = &mut unheard[body.task.as_usize()];
            if let Some((worker, claimed_at)) = slot.take()
                && let Some(known) = truth.workers.get(&worker)
            {
                let last_beat = known.last_beat(event.at).unwrap_or(claimed_at);
                let latest = claimed_at.max(last_beat) + known.lease;
                if was_swept_between(&truth.reaps, latest, event.at) {
                    let at = event.at;
                    let text = format!(
                        "task {task} was claimed at {claimed_at}, nobody ran it until {at}"
                    );
                    violations.push(Violation { promise: RECOVERY, text });
                }
            }
            if let TaskEventKind::Started { worker } = &body.kind
                && handlers.get(task, body.fence).is_none()
            {
                *slot = Some((*worker, event.at));
            }
        }
    }
}

/// G10 and G11: the background duties go on, whatever happened before: who leads them is
/// heard of, which asks with that whether something is due.
pub(super) fn duties_go_on(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let truth = evidence.world.truth.lock();
    let limit = LEADER_TTL_MAX + DUTY_BACKOFF_MAX + VACANCY_MAX + RECOVERY_MARGIN;
    for duty in Duty::ALL {
        let mut last = evidence.staffed_at;
        let heard = truth.terms.heard(duty).iter().copied();
        for at in heard.chain([evidence.world.now()]) {
            if at.since(last) > limit {
                let text = format!("nobody led {duty} between {last} and {at}");
                violations.push(Violation { promise: "G10 duties are done", text });
            }
            last = last.max(at);
        }
    }
}

/// G11: the first look after a timer's time fires it, and once faults have stopped
/// there is such a look in every interval.
pub(super) fn timers_are_not_late(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let truth = evidence.world.truth.lock();
    for file in evidence.files {
        let mut due = vec![None; file.tasks.len()];
        for event in &file.events {
            let Some(body) = event.task() else { continue };
            let due = &mut due[body.task.as_usize()];
            match &body.kind {
                TaskEventKind::Delayed { until }
                | TaskEventKind::Sleeping { until }
                | TaskEventKind::Retrying { until, .. }
                | TaskEventKind::Parked { until: Some(until) }
                | TaskEventKind::Released { until: Some(until) } => {
                    // What a function waited for may have been due while it was at work.
                    *due = Some((*until).max(event.at));
                }
                TaskEventKind::Queued | TaskEventKind::Blocked { .. } | TaskEventKind::Woken => {
                    let Some(until) = due.take() else { continue };
                    let is_missed = was_swept_between(&truth.promotes, until, event.at);
                    let healed_at = evidence.staffed_at + VACANCY_MAX;
                    let latest = until.max(healed_at) + DUTY_INTERVAL_MAX + LATENESS_MAX;
                    if is_missed || event.at > latest {
                        let (run, name, at) = (file.run.id, &body.name, event.at);
                        let text = format!("task {name} of run {run} was due {until}, came {at}");
                        violations.push(Violation { promise: "G11 timers are not late", text });
                    }
                }
                TaskEventKind::Released { until: None }
                | TaskEventKind::Parked { until: None }
                | TaskEventKind::Resumed
                | TaskEventKind::Continued
                | TaskEventKind::Started { .. }
                | TaskEventKind::Succeeded
                | TaskEventKind::Failed { .. }
                | TaskEventKind::LeaseExpired { .. }
                | TaskEventKind::Skipped
                | TaskEventKind::Cancelled
                | TaskEventKind::Reset => *due = None,
            }
        }
    }
}

/// G11: a run that takes too long is cancelled, and a task that waits too long for a worker
/// fails, by the first look after its time and not before.
pub(super) fn deadlines_are_kept(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let mut violate = |text| violations.push(Violation { promise: DEADLINES, text });
    let truth = evidence.world.truth.lock();
    for file in evidence.files {
        let Some(definition) = evidence.definition(file) else { continue };
        let (mut by, mut claims) = (None, vec![None; file.tasks.len()]);
        let mut retried_at = None;
        for event in &file.events {
            let is_missed =
                |due: Option<Timestamp>| was_swept_before(&truth.promotes, due, event.at);
            match &event.body {
                EventBody::Task(body) => {
                    let (claim_by, name) = (&mut claims[body.task.as_usize()], &body.name);
                    let due = claim_by.take();
                    let is_failed = body.from == TaskState::Ready && body.to == TaskState::Failed;
                    if is_missed(due) || is_failed && due.is_none_or(|due| event.at < due) {
                        let text = format!("task {name} of run {} {body:?}", file.run.id);
                        violate(format!("{text} at {}, to be claimed by {due:?}", event.at));
                    }
                    if body.to == TaskState::Ready {
                        let timeout = definition.task(body.task).claim_timeout;
                        *claim_by = timeout.map(|timeout| event.at + timeout);
                    }
                    // A run that is to go on later has its time from then on.
                    if let TaskEventKind::Delayed { until } = &body.kind
                        && retried_at == Some(event.at)
                    {
                        by = definition.timeout().map(|timeout| *until + timeout);
                    }
                }
                EventBody::Run(body) => {
                    if is_missed(by) {
                        let run = file.run.id;
                        violate(format!("run {run} {body:?} at {}, its time was {by:?}", event.at));
                    }
                    let is_retry = matches!(body.kind, RunEventKind::Retried { .. });
                    retried_at = is_retry.then_some(event.at);
                    match &body.kind {
                        RunEventKind::Started | RunEventKind::Retried { .. } => {
                            by = definition.timeout().map(|timeout| event.at + timeout);
                        }
                        RunEventKind::Cancelled { reason: Some(reason) }
                            if definition.timeout().map(took_too_long).as_ref() == Some(reason) =>
                        {
                            if by.take().is_none_or(|by| event.at < by) {
                                violate(format!("run {} {reason} at {}", file.run.id, event.at));
                            }
                        }
                        RunEventKind::Ended | RunEventKind::Cancelled { .. } => by = None,
                        RunEventKind::Continued { .. } | RunEventKind::Undoing { .. } => {}
                    }
                }
            }
        }
    }
}

/// Whether a sweep came after a time and before another.
fn was_swept_before(sweeps: &[Timestamp], due: Option<Timestamp>, at: Timestamp) -> bool {
    due.is_some_and(|due| was_swept_between(sweeps, due, at))
}

/// G11: the pause before a retry is at least what the policy leaves of it. A worker
/// that ended before the attempt did is no reason to wait.
pub(super) fn retries_keep_their_pause(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    for (file, line, event) in evidence.task_events() {
        let TaskEventKind::Retrying { failure, until } = &event.kind else { continue };
        let Some(definition) = evidence.definition(file) else { continue };
        let least = definition.task(event.task).retry.delay_after(event.attempt, 1.0);
        let is_short = least.is_none_or(|least| until.since(line.at) < least);
        if is_short && failure.code != FailureCode::Interrupted {
            let (run, name, at) = (file.run.id, &event.name, line.at);
            let text = format!("task {name} of run {run} failed {at}, retried {until}: {least:?}");
            violations.push(Violation { promise: "G11 retries keep their pause", text });
        }
    }
}

/// G19: a worker to which nothing is done keeps its lease, while it works and
/// while it drains.
pub(super) fn drained_workers_keep_their_leases(
    evidence: &Evidence<'_>,
    violations: &mut Vec<Violation>,
) {
    let truth = evidence.world.truth.lock();
    let sites = evidence.world.sites.lock();
    let outages = &evidence.world.scenario.faults.outages;
    for (file, line, event) in evidence.task_events() {
        let TaskEventKind::LeaseExpired { worker, .. } = &event.kind else { continue };
        let Some(known) = truth.workers.get(worker) else { continue };
        let site = &sites[known.site.0];
        let at = line.at.since(EPOCH);
        let was_out = outages.iter().any(|(from, to)| *from <= at && site.born_at < *to);
        if site.is_calm && !was_out {
            let (run, name, drained) = (file.run.id, &event.name, site.drained_at);
            let text = format!(
                "task {name} of run {run} expired at {at:?} with worker {worker}, which was told \
                 to drain at {drained:?} and to which nothing else was done"
            );
            violations.push(Violation { promise: "G19 no lease expires by a drain", text });
        }
    }
}
