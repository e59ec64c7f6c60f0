//! The moves that a history may show, made from the tables that the engine moves by.

use uuid::Uuid;
use windlass_core::decide::{Failure, FailureCode};
use windlass_core::state::{RUN_TRANSITIONS, TASK_TRANSITIONS};
use windlass_core::{
    LimitName, RunCommand, RunEventKind, RunId, RunState, TaskCommand, TaskEventKind, TaskState,
    Timestamp, WorkerId,
};

/// The rows (kind, from, to) of a `values` list for the events of tasks.
pub(super) fn task_edges() -> String {
    let mut edges = Vec::new();
    for (from, command, to) in TASK_TRANSITIONS {
        for kind in task_events(*command) {
            let is_expiry = matches!(kind, TaskEventKind::LeaseExpired { .. });
            if is_expiry && *from != TaskState::Running {
                continue;
            }
            edges.push(format!("('{}', '{from}', '{to}')", kind.word()));
        }
    }
    edges.join(",\n")
}

/// The rows (kind, from, to) of a `values` list for the events of runs.
pub(super) fn run_edges() -> String {
    let started = RunEventKind::Started;
    let mut edges = vec![format!("('{}', null, '{}')", started.word(), RunState::Running)];
    for (from, command, to) in RUN_TRANSITIONS {
        edges.push(format!("('{}', '{from}', '{to}')", run_event(*command).word()));
    }
    edges.join(",\n")
}

/// The words of the final states of tasks, for an `in` list.
pub(super) fn final_states() -> String {
    let words = TaskState::ALL.iter().filter(|state| state.is_final());
    words.map(|state| format!("'{state}'")).collect::<Vec<_>>().join(", ")
}

/// The events that can be the record of a command. What is inside of them does not matter.
fn task_events(command: TaskCommand) -> Vec<TaskEventKind> {
    let (until, worker) = (Timestamp::MAX, WorkerId::from_random(0));
    let failure = Failure::new(FailureCode::Error, "");
    let expired = TaskEventKind::LeaseExpired { worker, lease_until: until, failure: None };
    match command {
        TaskCommand::Queue | TaskCommand::Promote => vec![TaskEventKind::Queued],
        TaskCommand::Schedule => {
            vec![TaskEventKind::Delayed { until }, TaskEventKind::Sleeping { until }]
        }
        TaskCommand::Block => {
            let limit = LimitName::new("limit").expect("it is a name");
            vec![TaskEventKind::Blocked { limit, key: None }]
        }
        TaskCommand::Wake => vec![TaskEventKind::Woken],
        TaskCommand::Claim => vec![TaskEventKind::Started { worker }],
        TaskCommand::Succeed => vec![TaskEventKind::Succeeded],
        TaskCommand::Fail => vec![TaskEventKind::Failed { failure }, expired],
        TaskCommand::Retry => vec![TaskEventKind::Retrying { failure, until }],
        TaskCommand::Release | TaskCommand::Defer => {
            vec![TaskEventKind::Released { until: None }]
        }
        TaskCommand::Sleep | TaskCommand::Await => vec![TaskEventKind::Parked { until: None }],
        TaskCommand::Resume => vec![TaskEventKind::Resumed],
        TaskCommand::Continue => vec![TaskEventKind::Continued],
        TaskCommand::Expire => vec![expired],
        TaskCommand::Skip => vec![TaskEventKind::Skipped],
        TaskCommand::Cancel => vec![TaskEventKind::Cancelled],
        TaskCommand::Reset => vec![TaskEventKind::Reset],
    }
}

fn run_event(command: RunCommand) -> RunEventKind {
    match command {
        RunCommand::Succeed | RunCommand::Fail => RunEventKind::Ended,
        RunCommand::Cancel => RunEventKind::Cancelled { reason: None },
        RunCommand::Retry => RunEventKind::Retried { round: 0 },
        RunCommand::Continue => RunEventKind::Continued { round: 0 },
        RunCommand::Undo => RunEventKind::Undoing { by: RunId::from_uuid(Uuid::nil()) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transition_is_an_edge_and_nothing_else_is() {
        let edges = task_edges();
        assert!(edges.contains("('released', 'running', 'scheduled')"), "{edges}");
        assert!(edges.contains("('lease_expired', 'running', 'failed')"), "{edges}");
        assert!(!edges.contains("('succeeded', 'ready'"), "{edges}");
        // Two commands have two kinds of events each, and `schedule` and `fail` are one
        // transition each.
        assert_eq!(edges.lines().count(), TASK_TRANSITIONS.len() + 2, "{edges}");
        assert_eq!(run_edges().lines().count(), RUN_TRANSITIONS.len() + 1);
    }

    #[test]
    fn the_final_states_are_those_of_the_core() {
        assert_eq!(final_states(), "'succeeded', 'failed', 'cancelled', 'skipped'");
    }
}
