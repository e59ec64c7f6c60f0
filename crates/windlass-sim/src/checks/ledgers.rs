//! What handlers did, against what the histories say.

use std::collections::BTreeSet;

use windlass::testing::invariants::Violation;
use windlass_core::{FailureCode, Fence, TaskEventKind, TaskId, TaskState};

use super::Evidence;
use crate::handlers::condition;
use crate::ledger::HandlerEnd;

const ONCE: &str = "G3 effectively-once completion";
const ATTEMPTS: &str = "G9 attempts are bounded and fair";

/// G3: the end of a task that is recorded under a fence is what the handler did
/// that was called with this fence.
pub(super) fn completions_are_handlers_own(
    evidence: &Evidence<'_>,
    violations: &mut Vec<Violation>,
) {
    let mut violate = |text| violations.push(Violation { promise: ONCE, text });
    let ledger = evidence.world.handlers.lock();
    // What undoes others notes what it does elsewhere.
    for (file, _, event) in evidence.task_events().filter(|(file, ..)| !file.is_undo()) {
        let task = TaskId { run: file.run.id, index: event.task };
        let call = ledger.get(task, event.fence);
        let end = call.and_then(|call| call.end);
        let is_right = match &event.kind {
            TaskEventKind::Succeeded => matches!(end, Some(HandlerEnd::Returned(_))),
            TaskEventKind::Failed { failure } | TaskEventKind::Retrying { failure, .. } => {
                match failure.code {
                    // Nobody claimed it in time.
                    FailureCode::Timeout if event.from == TaskState::Ready => true,
                    // With the error of a call.
                    FailureCode::Timeout | FailureCode::LeaseExpired | FailureCode::Custom(_)
                        if end == Some(HandlerEnd::Failed)
                            && evidence.is_function(file, event.task) =>
                    {
                        true
                    }
                    FailureCode::Error | FailureCode::Panic => end == Some(HandlerEnd::Failed),
                    FailureCode::Timeout | FailureCode::Interrupted => call.is_some(),
                    FailureCode::LeaseExpired
                    | FailureCode::Payload
                    | FailureCode::Divergence
                    | FailureCode::Custom(_) => false,
                }
            }
            TaskEventKind::Skipped if event.from == TaskState::Running => {
                call.is_none() && !condition(evidence.world.scenario.seed, task)
            }
            TaskEventKind::Skipped
            | TaskEventKind::Queued
            | TaskEventKind::Delayed { .. }
            | TaskEventKind::Blocked { .. }
            | TaskEventKind::Sleeping { .. }
            | TaskEventKind::Woken
            | TaskEventKind::Started { .. }
            | TaskEventKind::Released { .. }
            | TaskEventKind::Parked { .. }
            | TaskEventKind::Resumed
            | TaskEventKind::Continued
            | TaskEventKind::LeaseExpired { .. }
            | TaskEventKind::Cancelled
            | TaskEventKind::Reset => true,
        };
        if !is_right {
            let (kind, fence) = (&event.kind, event.fence);
            violate(format!("task {task} under fence {fence}: {kind:?}, its handler: {call:?}"));
        }
    }
    for file in evidence.files.iter().filter(|file| !file.is_undo()) {
        for record in &file.tasks {
            let task = TaskId { run: file.run.id, index: record.index };
            let Some(output) = record.output.as_ref().filter(|output| output.as_str() != "null")
            else {
                continue;
            };
            let end = ledger.get(task, record.fence).and_then(|call| call.end);
            let is_own = match end {
                Some(HandlerEnd::Returned(value)) => output.as_str() == value.to_string(),
                Some(HandlerEnd::Failed) | None => false,
            };
            if !is_own {
                let fence = record.fence;
                violate(format!("task {task} has output {output:?}, fence {fence} gave {end:?}"));
            }
        }
    }
}

/// G3: a fence is handed to one handler, once, and only after it was claimed.
pub(super) fn handlers_are_called_once_per_fence(
    evidence: &Evidence<'_>,
    violations: &mut Vec<Violation>,
) {
    let mut violate = |text| violations.push(Violation { promise: ONCE, text });
    let mut started: BTreeSet<(TaskId, Fence, u32)> = BTreeSet::new();
    for (file, _, event) in evidence.task_events() {
        if matches!(event.kind, TaskEventKind::Started { .. }) {
            let task = TaskId { run: file.run.id, index: event.task };
            started.insert((task, event.fence, event.attempt));
        }
    }
    for (task, fence, call) in evidence.world.handlers.lock().calls() {
        if call.begun > 1 {
            violate(format!(
                "handlers of task {task} were called {} times with fence {fence}",
                call.begun
            ));
        }
        if !started.contains(&(task, fence, call.attempt)) {
            let attempt = call.attempt;
            violate(format!("task {task} fence {fence} attempt {attempt} ran and never started"));
        }
    }
}

/// G9: a hand-back costs no attempt, so what is handed back must not have been run.
pub(super) fn what_is_handed_back_was_not_run(
    evidence: &Evidence<'_>,
    violations: &mut Vec<Violation>,
) {
    let ledger = evidence.world.handlers.lock();
    for (file, _, event) in evidence.task_events() {
        let task = TaskId { run: file.run.id, index: event.task };
        // A function that was not to begin its next call is run again to where it was.
        let is_release = matches!(event.kind, TaskEventKind::Released { .. })
            && !evidence.is_function(file, event.task);
        if is_release && let Some(call) = ledger.get(task, event.fence) {
            let text =
                format!("task {task} fence {} was handed back, and ran: {call:?}", event.fence);
            violations.push(Violation { promise: ATTEMPTS, text });
        }
    }
}

/// G9: a task whose failure was worth another attempt has had all of them.
pub(super) fn attempts_are_used_up_before_a_task_fails(
    evidence: &Evidence<'_>,
    violations: &mut Vec<Violation>,
) {
    for (file, _, event) in evidence.task_events() {
        let failure = match &event.kind {
            TaskEventKind::Failed { failure } => failure,
            TaskEventKind::LeaseExpired { failure: Some(failure), .. } => failure,
            TaskEventKind::LeaseExpired { failure: None, .. }
            | TaskEventKind::Queued
            | TaskEventKind::Delayed { .. }
            | TaskEventKind::Blocked { .. }
            | TaskEventKind::Sleeping { .. }
            | TaskEventKind::Woken
            | TaskEventKind::Started { .. }
            | TaskEventKind::Succeeded
            | TaskEventKind::Retrying { .. }
            | TaskEventKind::Released { .. }
            | TaskEventKind::Parked { .. }
            | TaskEventKind::Resumed
            | TaskEventKind::Continued
            | TaskEventKind::Skipped
            | TaskEventKind::Cancelled
            | TaskEventKind::Reset => continue,
        };
        let Some(definition) = evidence.definition(file) else { continue };
        let policy = &definition.task(event.task).retry;
        let is_final = !failure.is_retryable || !policy.retries_code(failure.code.word());
        if !is_final && event.attempt < policy.max_attempts() {
            let (attempt, max) = (event.attempt, policy.max_attempts());
            let (run, name) = (file.run.id, &event.name);
            let text = format!("task {name} of run {run} failed at attempt {attempt} of {max}");
            violations.push(Violation { promise: ATTEMPTS, text });
        }
    }
}

/// G20: a worker claims only what it has handlers for.
pub(super) fn unknown_work_is_left_alone(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let truth = evidence.world.truth.lock();
    let sites = evidence.world.sites.lock();
    for (file, _, event) in evidence.task_events() {
        let TaskEventKind::Started { worker } = &event.kind else { continue };
        let site = truth.workers.get(worker).map(|worker| &sites[worker.site.0]);
        let is_known = site.is_some_and(|site| {
            let known = |place: &usize| {
                let workflow = evidence.workflows[*place].definition();
                [&**workflow, &evidence.undos[*place]]
            };
            let mut knows = site.knows.iter().flat_map(known);
            knows.any(|w| *w.name() == file.run.workflow && w.version() == file.run.version)
        });
        if !is_known {
            let (workflow, version) = (&file.run.workflow, file.run.version);
            let text = format!("worker {worker} claimed a task of {workflow:?} version {version}");
            violations.push(Violation { promise: "G20 unknown work is left alone", text });
        }
    }
}
