//! Tasks that failed for good, until someone does something about them.
//!
//! A dead letter is written in the operation in which its task fails, and only then: a task that
//! succeeds costs nothing for it. It is there for as long as its task stays failed and nobody has
//! discarded it. A retry of the run takes it away, and so does a cancel. The tasks that were
//! skipped because of the failure have none of their own.
//!
//! What operators do about dead letters is written down in the [log](super::LogEntry) in the same
//! operation.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_core::{
    ActionId, Failure, FailureCode, LaneId, QueueName, RunId, RunState, TaskId, TaskName, Tenant,
    Timestamp, Version, WorkflowName,
};

use super::log::Author;

/// The most dead letters that one operation redrives or discards.
pub const REDRIVE_MAX: usize = 100;

/// The most tasks of all runs together that one operation redrives, unless one run alone has
/// more: all of them are read and written.
pub const REDRIVE_TASKS_MAX: usize = 10_000;

/// A task that failed for good.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetter {
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: TaskName,
    /// The round of its run in which it failed.
    pub round: u32,
    /// Whose run it is.
    pub tenant: Tenant,
    /// The workflow.
    pub workflow: WorkflowName,
    /// The version of the workflow.
    pub version: Version,
    /// The queue of the task.
    pub queue: QueueName,
    /// Why its last attempt failed; the reason is its code.
    pub failure: Failure,
    /// How many attempts it had.
    pub attempts: u32,
    /// The lanes in which it had slots, or would have had.
    pub lanes: Vec<LaneId>,
    /// When it failed.
    pub failed_at: Timestamp,
}

impl DeadLetter {
    /// Its place in a list.
    pub fn cursor(&self) -> DeadLetterCursor {
        DeadLetterCursor { failed_at: self.failed_at, task: self.task }
    }
}

/// Which dead letters are meant; all of them if nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// Only those of this run.
    pub run: Option<RunId>,
    /// Only those of this tenant.
    pub tenant: Option<Tenant>,
    /// Only those of this workflow.
    pub workflow: Option<WorkflowName>,
    /// Only those of tasks of this name.
    pub task: Option<TaskName>,
    /// Only those whose last attempt failed with this code.
    pub reason: Option<FailureCode>,
    /// Only those that failed at this time or later.
    pub since: Option<Timestamp>,
    /// Only those that failed before this time.
    pub until: Option<Timestamp>,
}

impl DeadLetterFilter {
    /// Those of one run.
    pub fn of_run(run: RunId) -> Self {
        DeadLetterFilter { run: Some(run), ..DeadLetterFilter::default() }
    }

    pub(crate) fn matches(&self, letter: &DeadLetter) -> bool {
        let DeadLetterFilter { run, tenant, workflow, task, reason, since, until } = self;
        run.is_none_or(|run| run == letter.task.run)
            && tenant.as_ref().is_none_or(|tenant| *tenant == letter.tenant)
            && workflow.as_ref().is_none_or(|workflow| *workflow == letter.workflow)
            && task.as_ref().is_none_or(|task| *task == letter.name)
            && reason.as_ref().is_none_or(|reason| *reason == letter.failure.code)
            && since.is_none_or(|since| letter.failed_at >= since)
            && until.is_none_or(|until| letter.failed_at < until)
    }
}

/// A place in a list of dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeadLetterCursor {
    /// When the last one of the page failed.
    pub failed_at: Timestamp,
    /// Its task, for those that failed at the same time.
    pub task: TaskId,
}

/// A page of dead letters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeadLetterPage {
    /// The dead letters, the newest first.
    pub letters: Vec<DeadLetter>,
    /// Where the next page begins, if there is one.
    pub next: Option<DeadLetterCursor>,
}

/// A batch of dead letters whose runs are to go on with their next round, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redrive {
    /// Chosen by whoever asks: repeated with the same id, it answers what it answered before.
    pub id: ActionId,
    /// Who does it.
    pub by: Author,
    /// Which of them.
    pub filter: DeadLetterFilter,
    /// Where the previous batch ended.
    pub after: Option<DeadLetterCursor>,
    /// The most dead letters of the batch, up to [`REDRIVE_MAX`]; 0 is that limit.
    pub limit: usize,
    /// How fast the runs go on; all at once if nothing is said.
    pub pace: Option<Pace>,
}

/// How fast redriven runs go on. Each is given a time at which it is due: nobody need be there
/// meanwhile but who promotes what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How many begin in a second.
    pub per_second: NonZeroU32,
    /// When the first one is due; now if that has passed or nothing is said. A batch that follows
    /// another one goes on with what that [answered](Redriven::due).
    pub from: Option<Timestamp>,
}

impl Pace {
    /// When the first one of a batch is due.
    pub(crate) fn start(self, now: Timestamp) -> Timestamp {
        self.from.map_or(now, |from| from.max(now))
    }

    /// How long after the first one another one is due.
    pub(crate) fn offset(self, place: usize) -> Duration {
        let micros = place as u64 * 1_000_000 / u64::from(self.per_second.get());
        Duration::from_micros(micros)
    }
}

/// What became of a batch of dead letters that were to be redriven.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redriven {
    /// The runs that go on.
    pub runs: Vec<RunId>,
    /// The runs that do not, and stay where they are.
    pub refused: Vec<RefusedRun>,
    /// Where the next batch begins, if there may be one.
    pub next: Option<DeadLetterCursor>,
    /// When the first run of the next batch is due, if there is a pace.
    pub due: Option<Timestamp>,
}

/// A run to which something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRun {
    /// The run.
    pub run: RunId,
    /// Why, in a sentence.
    pub why: String,
}

/// A batch of dead letters that are to go, the oldest first; their runs stay failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discard {
    /// Chosen by whoever asks: repeated with the same id, it answers what it answered before.
    pub id: ActionId,
    /// Who does it.
    pub by: Author,
    /// Which of them.
    pub filter: DeadLetterFilter,
    /// Where the previous batch ended.
    pub after: Option<DeadLetterCursor>,
    /// The most dead letters of the batch, up to [`REDRIVE_MAX`]; 0 is that limit.
    pub limit: usize,
}

/// What became of a batch of dead letters that were to be discarded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discarded {
    /// How many are gone.
    pub letters: usize,
    /// Whose they were.
    pub runs: Vec<RunId>,
    /// The runs whose dead letters stay, and why.
    pub refused: Vec<RefusedRun>,
    /// Where the next batch begins, if there may be one.
    pub next: Option<DeadLetterCursor>,
}

/// How many dead letters a batch has.
pub(crate) fn batch_limit(limit: usize) -> usize {
    match limit {
        0 => REDRIVE_MAX,
        limit => limit.min(REDRIVE_MAX),
    }
}

/// Why the dead letters of a run in this state cannot be discarded, if they cannot.
pub(crate) fn not_discarded(run: RunId, state: RunState) -> Option<String> {
    match state {
        RunState::Failed => None,
        RunState::Running | RunState::Succeeded | RunState::Cancelled => {
            Some(format!("run {run} is {state}, only the dead letters of a failed run can go"))
        }
    }
}

/// What a log entry says of which dead letters were meant.
pub(crate) fn filter_detail(filter: &DeadLetterFilter) -> serde_json::Value {
    let DeadLetterFilter { run, tenant, workflow, task, reason, since, until } = filter;
    let mut said = serde_json::Map::new();
    let mut say = |word: &str, value: Option<String>| {
        said.extend(value.map(|value| (word.to_owned(), serde_json::Value::String(value))));
    };
    say("run", run.map(|run| run.to_string()));
    say("tenant", tenant.as_ref().map(ToString::to_string));
    say("workflow", workflow.as_ref().map(ToString::to_string));
    say("task", task.as_ref().map(ToString::to_string));
    say("reason", reason.as_ref().map(|reason| reason.word().replace('\0', "\u{fffd}")));
    say("since", since.map(|since| since.to_string()));
    say("until", until.map(|until| until.to_string()));
    serde_json::Value::Object(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_at_a_pace_are_due_one_after_the_other() {
        let now = Timestamp::from_micros(5_000_000);
        let earlier = Timestamp::from_micros(1);
        let later = Timestamp::from_micros(9_000_000);
        let pace = |per_second, from| Pace {
            per_second: NonZeroU32::new(per_second).expect("it is not zero"),
            from,
        };
        assert_eq!(pace(3, None).start(now), now);
        assert_eq!(pace(3, Some(earlier)).start(now), now);
        assert_eq!(pace(3, Some(later)).start(now), later);
        let offsets = (0..4).map(|place| pace(3, None).offset(place).as_micros());
        assert_eq!(offsets.collect::<Vec<_>>(), [0, 333_333, 666_666, 1_000_000]);
    }
}
