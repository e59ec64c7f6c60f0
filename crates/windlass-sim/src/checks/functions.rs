//! What durable functions left behind.

use windlass::testing::invariants::Violation;
use windlass::{Event, EventBody, RunEventKind, RunState, Timestamp};

use super::Evidence;

/// Every run that a function started is there.
pub(super) fn children_exist(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let runs = evidence.by_id();
    for (task, run, _) in evidence.world.truth.lock().functions.children() {
        if !runs.contains_key(&run) {
            let text = format!("task {task} started run {run}, which does not exist");
            violations.push(Violation { promise: "G1 nothing acknowledged is lost", text });
        }
    }
}

/// What a cancelled run waited for has ended by the next look of those who promote what is
/// due, who tell the children.
pub(super) fn cancelled_runs_leave_no_child(
    evidence: &Evidence<'_>,
    violations: &mut Vec<Violation>,
) {
    let runs = evidence.by_id();
    let truth = evidence.world.truth.lock();
    let next_look = |after: Timestamp| {
        truth.promotes.get(truth.promotes.partition_point(|at| *at <= after)).copied()
    };
    for (task, child, is_awaited) in truth.functions.children() {
        let (Some(parent), Some(child)) = (runs.get(&task.run), runs.get(&child)) else { continue };
        // What a function had started before it began afresh is not its own any more.
        let is_afresh = |event: &&Event| match &event.body {
            EventBody::Run(event) => matches!(event.kind, RunEventKind::Continued { .. }),
            EventBody::Task(_) => false,
        };
        let afresh = parent.events.iter().rfind(is_afresh);
        if afresh.is_some_and(|event| child.run.created_at <= event.at) {
            continue;
        }
        let cancelled_at = parent.run.ended_at.filter(|_| parent.run.state == RunState::Cancelled);
        let Some(latest) = cancelled_at.filter(|_| is_awaited).and_then(next_look) else {
            continue;
        };
        // Who retries a child of a run that is over wants it, and a run that is retried starts
        // children of its own.
        let is_retry = |event: &&Event| match &event.body {
            EventBody::Run(body) => matches!(body.kind, RunEventKind::Retried { .. }),
            EventBody::Task(_) => false,
        };
        let retried = parent.events.iter().rfind(is_retry).map(|event| event.at);
        let is_over = |at| Some(at) > cancelled_at || retried.is_some_and(|retried| at >= retried);
        let is_wanted = |event: &Event| is_retry(&event) && is_over(event.at);
        if child.events.iter().any(is_wanted) {
            continue;
        }
        if child.run.ended_at.is_none_or(|ended_at| ended_at > latest) {
            let text = format!(
                "run {} was cancelled at {cancelled_at:?}, its child {} ended at {:?}",
                parent.run.id, child.run.id, child.run.ended_at
            );
            violations.push(Violation { promise: "G8 cancelled with its parent", text });
        }
    }
}
