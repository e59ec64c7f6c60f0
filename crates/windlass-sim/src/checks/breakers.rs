//! What a breaker lets be tried, by how attempts ended.

use std::collections::BTreeSet;

use windlass::Timestamp;
use windlass_core::{TaskEvent, TaskEventKind, TaskId, TaskState, lane};

const OPEN: &str = "G5 nothing is tried while a breaker is open";
const PROBE: &str = "G5 one tries alone whether a breaker may close";
const CLOSED: &str = "G5 nobody waits for a breaker that is closed";

/// What a breaker is by what was seen.
enum State {
    /// So many attempts have ended until then, and so many of them failed.
    Counting { until: Timestamp, calls: u32, failures: u32 },
    /// Nothing is tried until then. Behind the other time it may have been forgotten.
    Open { until: Timestamp, forget: Timestamp },
    /// One tries.
    Probing { probe: TaskId, forget: Timestamp },
    /// It was forgotten, or not.
    Unknown,
}

/// A breaker, and who is in its lane.
pub(super) struct Breaker {
    settings: lane::Breaker,
    state: State,
    inside: BTreeSet<TaskId>,
}

impl Breaker {
    pub(super) fn new(settings: lane::Breaker) -> Self {
        Breaker { settings, state: State::closed(), inside: BTreeSet::new() }
    }

    /// Follows an event of a task that has no other limit: `begins` if it becomes ready for an
    /// attempt, `is_blocked` if it is to wait. Answers what is wrong with it.
    pub(super) fn follow(
        &mut self,
        at: Timestamp,
        task: TaskId,
        event: &TaskEvent,
        begins: bool,
        is_blocked: bool,
    ) -> Option<(&'static str, String)> {
        let mut wrong = None;
        if begins {
            let is_alone = self.inside.iter().all(|other| *other == task);
            match self.state {
                State::Open { until, .. } if at < until => {
                    wrong = Some((OPEN, format!("task {task} goes on before {until}")));
                }
                State::Open { forget, .. } if at >= forget && is_alone => {
                    self.state = State::Unknown;
                }
                State::Open { forget, .. } => self.state = State::Probing { probe: task, forget },
                State::Probing { probe, .. } if probe != task => {
                    wrong = Some((PROBE, format!("task {task} goes on while {probe} tries")));
                }
                State::Probing { .. } | State::Counting { .. } | State::Unknown => {}
            }
        }
        if is_blocked && matches!(self.state, State::Counting { .. }) {
            wrong = Some((CLOSED, format!("task {task} waits")));
        }
        if begins || is_blocked {
            self.inside.insert(task);
        }
        let is_failure = match event.kind {
            TaskEventKind::Succeeded => Some(false),
            TaskEventKind::Failed { .. } | TaskEventKind::Retrying { .. } => Some(true),
            TaskEventKind::Queued
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
            | TaskEventKind::Skipped
            | TaskEventKind::Cancelled
            | TaskEventKind::Reset => None,
        };
        if let Some(is_failure) = is_failure.filter(|_| event.from == TaskState::Running) {
            self.count(at, task, is_failure);
        }
        if event.to.is_final() || matches!(event.kind, TaskEventKind::Retrying { .. }) {
            self.inside.remove(&task);
            if let State::Probing { probe, forget } = self.state
                && probe == task
            {
                self.state = State::Open { until: at, forget };
            }
        }
        wrong
    }

    fn count(&mut self, at: Timestamp, task: TaskId, is_failure: bool) {
        let lane::Breaker { percent, calls: least, window, pause } = self.settings;
        let open = State::Open { until: at + pause, forget: at + pause + window };
        let (until, calls, failures) = match self.state {
            State::Counting { until, calls, failures } if at < until => (until, calls, failures),
            State::Counting { .. } => (at + window, 0, 0),
            State::Probing { probe, .. } if probe == task => {
                self.state = if is_failure { open } else { State::closed() };
                return;
            }
            State::Probing { .. } | State::Open { .. } | State::Unknown => return,
        };
        let (calls, failures) = (calls + 1, failures + u32::from(is_failure));
        let is_too_much = failures * 100 >= percent * calls && calls >= least && is_failure;
        self.state = if is_too_much { open } else { State::Counting { until, calls, failures } };
    }
}

impl State {
    fn closed() -> Self {
        State::Counting { until: Timestamp::from_micros(0), calls: 0, failures: 0 }
    }
}
