//! The states of tasks and runs, and the commands that move them.
//!
//! Both machines are tables. What is not in a table is illegal; there is no
//! other place where a state changes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a task is. The last four are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// Waits for its parents.
    Pending,
    /// Waits for a time: a delay, a sleep or a retry's backoff.
    Scheduled,
    /// Waits for something to happen: a signal, the end of another run, or a slot in a lane.
    Waiting,
    /// Can be claimed.
    Ready,
    /// Is leased to a worker.
    Running,
    /// Ended well; its output is recorded.
    Succeeded,
    /// Ended badly, with no attempt left or with an error that no attempt mends.
    Failed,
    /// Ended because its run was cancelled.
    Cancelled,
    /// Ended without running, by its trigger or its condition.
    Skipped,
}

impl TaskState {
    /// Every state, in the order of a task's life.
    pub const ALL: [TaskState; 9] = [
        TaskState::Pending,
        TaskState::Scheduled,
        TaskState::Waiting,
        TaskState::Ready,
        TaskState::Running,
        TaskState::Succeeded,
        TaskState::Failed,
        TaskState::Cancelled,
        TaskState::Skipped,
    ];

    /// Whether nothing but a retry of the whole run leads out of this state.
    pub const fn is_final(self) -> bool {
        match self {
            TaskState::Pending
            | TaskState::Scheduled
            | TaskState::Waiting
            | TaskState::Ready
            | TaskState::Running => false,
            TaskState::Succeeded
            | TaskState::Failed
            | TaskState::Cancelled
            | TaskState::Skipped => true,
        }
    }

    /// The word that is stored and shown.
    pub const fn word(self) -> &'static str {
        match self {
            TaskState::Pending => "pending",
            TaskState::Scheduled => "scheduled",
            TaskState::Waiting => "waiting",
            TaskState::Ready => "ready",
            TaskState::Running => "running",
            TaskState::Succeeded => "succeeded",
            TaskState::Failed => "failed",
            TaskState::Cancelled => "cancelled",
            TaskState::Skipped => "skipped",
        }
    }

    /// The state that `command` leads to.
    ///
    /// ```
    /// use windlass_core::{TaskCommand, TaskState};
    ///
    /// assert_eq!(TaskState::Ready.apply(TaskCommand::Claim), Ok(TaskState::Running));
    /// let error = TaskState::Succeeded.apply(TaskCommand::Fail).unwrap_err();
    /// assert_eq!(error.to_string(), "a succeeded task cannot fail");
    /// ```
    pub fn apply(self, command: TaskCommand) -> Result<TaskState, IllegalTransition> {
        TASK_TRANSITIONS
            .iter()
            .find(|(from, by, _)| *from == self && *by == command)
            .map(|(_, _, to)| *to)
            .ok_or(IllegalTransition { what: "task", from: self.word(), command: command.word() })
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What can be done to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskCommand {
    /// The parents ended as the trigger wants it.
    Queue,
    /// The parents ended as the trigger wants it, but a time must come first.
    Schedule,
    /// Its turn came, but a lane that it needs is full.
    Block,
    /// The time came: the task can be claimed.
    Promote,
    /// The time came: the task was a sleep and is over.
    Wake,
    /// A worker takes it, with the next fence.
    Claim,
    /// The attempt gave an output.
    Succeed,
    /// The attempt failed and there is no other.
    Fail,
    /// The attempt failed and there is another after the backoff.
    Retry,
    /// The worker hands it back without having run it.
    Release,
    /// The worker hands it back, and nobody shall take it before a time.
    Defer,
    /// The function has nothing to do before a time.
    Sleep,
    /// The function has nothing to do before something happens.
    Await,
    /// It happened.
    Resume,
    /// The function begins afresh, with another input.
    Continue,
    /// The lease ran out and an attempt is left.
    Expire,
    /// The trigger, the condition or a limit says that it does not run.
    Skip,
    /// Its run is cancelled.
    Cancel,
    /// Its run is retried from a failed task, and this one depends on it.
    Reset,
}

impl TaskCommand {
    /// Every command.
    pub const ALL: [TaskCommand; 19] = [
        TaskCommand::Queue,
        TaskCommand::Schedule,
        TaskCommand::Block,
        TaskCommand::Promote,
        TaskCommand::Wake,
        TaskCommand::Claim,
        TaskCommand::Succeed,
        TaskCommand::Fail,
        TaskCommand::Retry,
        TaskCommand::Release,
        TaskCommand::Defer,
        TaskCommand::Sleep,
        TaskCommand::Await,
        TaskCommand::Resume,
        TaskCommand::Continue,
        TaskCommand::Expire,
        TaskCommand::Skip,
        TaskCommand::Cancel,
        TaskCommand::Reset,
    ];

    /// The command as a verb.
    pub const fn word(self) -> &'static str {
        match self {
            TaskCommand::Queue => "queue",
            TaskCommand::Schedule => "schedule",
            TaskCommand::Block => "block",
            TaskCommand::Promote => "promote",
            TaskCommand::Wake => "wake",
            TaskCommand::Claim => "claim",
            TaskCommand::Succeed => "succeed",
            TaskCommand::Fail => "fail",
            TaskCommand::Retry => "retry",
            TaskCommand::Release => "release",
            TaskCommand::Defer => "defer",
            TaskCommand::Sleep => "sleep",
            TaskCommand::Await => "await",
            TaskCommand::Resume => "resume",
            TaskCommand::Continue => "continue",
            TaskCommand::Expire => "expire",
            TaskCommand::Skip => "skip",
            TaskCommand::Cancel => "cancel",
            TaskCommand::Reset => "reset",
        }
    }
}

/// Every legal move of a task: from, by, to.
pub const TASK_TRANSITIONS: &[(TaskState, TaskCommand, TaskState)] = {
    use TaskCommand as Do;
    use TaskState::{
        Cancelled, Failed, Pending, Ready, Running, Scheduled, Skipped, Succeeded, Waiting,
    };
    &[
        (Pending, Do::Queue, Ready),
        (Pending, Do::Schedule, Scheduled),
        (Pending, Do::Block, Waiting),
        (Pending, Do::Skip, Skipped),
        (Pending, Do::Cancel, Cancelled),
        (Scheduled, Do::Block, Waiting),
        (Scheduled, Do::Promote, Ready),
        (Scheduled, Do::Wake, Succeeded),
        (Scheduled, Do::Cancel, Cancelled),
        (Waiting, Do::Promote, Ready),
        (Waiting, Do::Resume, Ready),
        (Waiting, Do::Skip, Skipped),
        (Waiting, Do::Cancel, Cancelled),
        (Ready, Do::Claim, Running),
        (Ready, Do::Fail, Failed),
        (Ready, Do::Cancel, Cancelled),
        (Running, Do::Succeed, Succeeded),
        (Running, Do::Fail, Failed),
        (Running, Do::Skip, Skipped),
        (Running, Do::Retry, Scheduled),
        (Running, Do::Release, Ready),
        (Running, Do::Defer, Scheduled),
        (Running, Do::Sleep, Scheduled),
        (Running, Do::Await, Waiting),
        (Running, Do::Continue, Ready),
        (Running, Do::Expire, Ready),
        (Running, Do::Cancel, Cancelled),
        (Succeeded, Do::Reset, Pending),
        (Failed, Do::Reset, Pending),
        (Cancelled, Do::Reset, Pending),
        (Skipped, Do::Reset, Pending),
    ]
};

/// Where a run is. All but the first are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Has tasks that have not ended.
    Running,
    /// Every task succeeded or was skipped.
    Succeeded,
    /// At least one task failed.
    Failed,
    /// Was cancelled before it ended.
    Cancelled,
}

impl RunState {
    /// Every state.
    pub const ALL: [RunState; 4] =
        [RunState::Running, RunState::Succeeded, RunState::Failed, RunState::Cancelled];

    /// Whether the run has ended.
    pub const fn is_final(self) -> bool {
        match self {
            RunState::Running => false,
            RunState::Succeeded | RunState::Failed | RunState::Cancelled => true,
        }
    }

    /// The word that is stored and shown.
    pub const fn word(self) -> &'static str {
        match self {
            RunState::Running => "running",
            RunState::Succeeded => "succeeded",
            RunState::Failed => "failed",
            RunState::Cancelled => "cancelled",
        }
    }

    /// The state that `command` leads to.
    pub fn apply(self, command: RunCommand) -> Result<RunState, IllegalTransition> {
        RUN_TRANSITIONS
            .iter()
            .find(|(from, by, _)| *from == self && *by == command)
            .map(|(_, _, to)| *to)
            .ok_or(IllegalTransition { what: "run", from: self.word(), command: command.word() })
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What can be done to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunCommand {
    /// The last task ended and none failed.
    Succeed,
    /// The last task ended and one failed.
    Fail,
    /// Someone does not want it any more.
    Cancel,
    /// Someone wants the failed tasks, and what depends on them, once more.
    Retry,
    /// What its steps did is undone by another run; it stays as it ended.
    Undo,
    /// Its function begins afresh, with another input.
    Continue,
}

impl RunCommand {
    /// Every command.
    pub const ALL: [RunCommand; 6] = [
        RunCommand::Succeed,
        RunCommand::Fail,
        RunCommand::Cancel,
        RunCommand::Retry,
        RunCommand::Undo,
        RunCommand::Continue,
    ];

    /// The command as a verb.
    pub const fn word(self) -> &'static str {
        match self {
            RunCommand::Succeed => "succeed",
            RunCommand::Fail => "fail",
            RunCommand::Cancel => "cancel",
            RunCommand::Retry => "retry",
            RunCommand::Undo => "undo",
            RunCommand::Continue => "continue",
        }
    }
}

/// Every legal move of a run: from, by, to.
pub const RUN_TRANSITIONS: &[(RunState, RunCommand, RunState)] = &[
    (RunState::Running, RunCommand::Succeed, RunState::Succeeded),
    (RunState::Running, RunCommand::Fail, RunState::Failed),
    (RunState::Running, RunCommand::Cancel, RunState::Cancelled),
    (RunState::Running, RunCommand::Continue, RunState::Running),
    (RunState::Failed, RunCommand::Retry, RunState::Running),
    (RunState::Succeeded, RunCommand::Undo, RunState::Succeeded),
    (RunState::Failed, RunCommand::Undo, RunState::Failed),
    (RunState::Cancelled, RunCommand::Undo, RunState::Cancelled),
];

/// A command that the state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {from} {what} cannot {command}")]
pub struct IllegalTransition {
    /// `task` or `run`.
    pub what: &'static str,
    /// The word of the state.
    pub from: &'static str,
    /// The word of the command.
    pub command: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table once more, written by state, as the reader of a history thinks of it.
    fn task_expectation(state: TaskState) -> &'static [(TaskCommand, TaskState)] {
        use TaskCommand as Do;
        use TaskState as S;
        match state {
            S::Pending => &[
                (Do::Queue, S::Ready),
                (Do::Schedule, S::Scheduled),
                (Do::Block, S::Waiting),
                (Do::Skip, S::Skipped),
                (Do::Cancel, S::Cancelled),
            ],
            S::Scheduled => &[
                (Do::Block, S::Waiting),
                (Do::Promote, S::Ready),
                (Do::Wake, S::Succeeded),
                (Do::Cancel, S::Cancelled),
            ],
            S::Waiting => &[
                (Do::Promote, S::Ready),
                (Do::Resume, S::Ready),
                (Do::Skip, S::Skipped),
                (Do::Cancel, S::Cancelled),
            ],
            S::Ready => {
                &[(Do::Claim, S::Running), (Do::Fail, S::Failed), (Do::Cancel, S::Cancelled)]
            }
            S::Running => &[
                (Do::Succeed, S::Succeeded),
                (Do::Fail, S::Failed),
                (Do::Retry, S::Scheduled),
                (Do::Release, S::Ready),
                (Do::Defer, S::Scheduled),
                (Do::Sleep, S::Scheduled),
                (Do::Await, S::Waiting),
                (Do::Continue, S::Ready),
                (Do::Expire, S::Ready),
                (Do::Skip, S::Skipped),
                (Do::Cancel, S::Cancelled),
            ],
            S::Succeeded | S::Failed | S::Cancelled | S::Skipped => &[(Do::Reset, S::Pending)],
        }
    }

    #[test]
    fn every_pair_of_task_state_and_command_is_legal_or_refused_as_stated() {
        let mut legal = 0;
        for state in TaskState::ALL {
            for command in TaskCommand::ALL {
                let expected = task_expectation(state)
                    .iter()
                    .find(|(by, _)| *by == command)
                    .map(|(_, to)| *to);
                match state.apply(command) {
                    Ok(to) => {
                        assert_eq!(Some(to), expected, "{state} {command:?}");
                        legal += 1;
                    }
                    Err(error) => {
                        assert_eq!(expected, None, "{state} {command:?}");
                        assert_eq!(error.from, state.word());
                        assert_eq!(error.command, command.word());
                    }
                }
            }
        }
        assert_eq!(legal, TASK_TRANSITIONS.len(), "the table has a row twice");
    }

    #[test]
    fn every_pair_of_run_state_and_command_is_legal_or_refused_as_stated() {
        let expected = |state, command| match (state, command) {
            (RunState::Running, RunCommand::Succeed) => Some(RunState::Succeeded),
            (RunState::Running, RunCommand::Fail) => Some(RunState::Failed),
            (RunState::Running, RunCommand::Cancel) => Some(RunState::Cancelled),
            (RunState::Failed, RunCommand::Retry) => Some(RunState::Running),
            (RunState::Succeeded | RunState::Failed | RunState::Cancelled, RunCommand::Undo) => {
                Some(state)
            }
            (RunState::Running, RunCommand::Continue) => Some(RunState::Running),
            (RunState::Running, RunCommand::Retry | RunCommand::Undo)
            | (RunState::Failed, RunCommand::Succeed | RunCommand::Fail | RunCommand::Cancel)
            | (
                RunState::Succeeded | RunState::Failed | RunState::Cancelled,
                RunCommand::Continue,
            )
            | (
                RunState::Succeeded | RunState::Cancelled,
                RunCommand::Succeed | RunCommand::Fail | RunCommand::Cancel | RunCommand::Retry,
            ) => None,
        };
        for state in RunState::ALL {
            for command in RunCommand::ALL {
                assert_eq!(state.apply(command).ok(), expected(state, command));
            }
        }
    }

    #[test]
    fn only_a_reset_leads_out_of_a_final_task_state() {
        for (from, command, to) in TASK_TRANSITIONS {
            if from.is_final() {
                assert_eq!(*command, TaskCommand::Reset);
                assert_eq!(*to, TaskState::Pending);
            }
        }
    }

    #[test]
    fn words_are_the_serialized_form() {
        for state in TaskState::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
        }
        for state in RunState::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
        }
    }
}
