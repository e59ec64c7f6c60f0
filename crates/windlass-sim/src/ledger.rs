//! What handlers and clients write down for themselves, independent of the store.

use std::collections::{BTreeMap, BTreeSet};

use windlass::{Error, ErrorKind, RunId};
use windlass_core::{Fence, TaskId, Timestamp};

use crate::scenario::StartPlan;

/// How a handler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandlerEnd {
    /// With this output.
    Returned(u64),
    /// With an error or a panic.
    Failed,
}

/// One call of a handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// How often a handler was called with this task and fence.
    pub(crate) begun: u32,
    /// When it was called first.
    pub(crate) at: Timestamp,
    /// The number of the attempt it was told.
    pub(crate) attempt: u32,
    /// How it ended, if it did.
    pub(crate) end: Option<HandlerEnd>,
}

/// Every call of a handler.
#[derive(Debug, Default)]
pub(crate) struct HandlerLedger {
    calls: BTreeMap<(TaskId, Fence), Call>,
}

impl HandlerLedger {
    /// A handler was called.
    pub(crate) fn begin(&mut self, task: TaskId, fence: Fence, attempt: u32, at: Timestamp) {
        let call = Call { begun: 0, at, attempt, end: None };
        self.calls.entry((task, fence)).or_insert(call).begun += 1;
    }

    /// A handler ended.
    pub(crate) fn end(&mut self, task: TaskId, fence: Fence, end: HandlerEnd) {
        if let Some(call) = self.calls.get_mut(&(task, fence)) {
            call.end = Some(end);
        }
    }

    /// The call with this fence.
    pub(crate) fn get(&self, task: TaskId, fence: Fence) -> Option<&Call> {
        self.calls.get(&(task, fence))
    }

    /// The calls of a task with fences up to this one, the first first.
    pub(crate) fn calls_of(
        &self,
        task: TaskId,
        last: Fence,
    ) -> impl Iterator<Item = (Fence, &Call)> {
        let calls = self.calls.range((task, Fence(0))..=(task, last));
        calls.map(|((_, fence), call)| (*fence, call))
    }

    /// Every call.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (TaskId, Fence, &Call)> {
        self.calls.iter().map(|((task, fence), call)| (*task, *fence, call))
    }

    /// Whether a handler of the task returned this output.
    pub(crate) fn has_returned(&self, task: TaskId, output: u64) -> bool {
        let calls = self.calls.range((task, Fence(0))..=(task, Fence(u64::MAX)));
        calls.into_iter().any(|(_, call)| call.end == Some(HandlerEnd::Returned(output)))
    }
}

/// What a client was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply<T> {
    /// Yes.
    Acknowledged(T),
    /// No, for ever.
    Refused,
    /// Nobody knows.
    Unknown,
}

impl<T> Reply<T> {
    /// The reply that a result is; `None` if it should not have come to that.
    pub(crate) fn of(result: Result<T, Error>) -> Result<Reply<T>, Error> {
        match result {
            Ok(value) => Ok(Reply::Acknowledged(value)),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(Reply::Refused),
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(Reply::Unknown),
            Err(error) => Err(error),
        }
    }
}

/// A start, and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct StartEntry {
    /// What was asked for.
    pub(crate) plan: StartPlan,
    /// The answer.
    pub(crate) reply: Reply<RunId>,
}

/// Everything clients asked for.
#[derive(Debug, Default)]
pub(crate) struct ClientLedger {
    /// Starts that were attempted.
    pub(crate) starts: Vec<StartEntry>,
    /// Runs whose cancellation was acknowledged.
    pub(crate) cancelled: Vec<RunId>,
    /// Runs whose retry was acknowledged, with the round that was to begin.
    pub(crate) retried: Vec<(RunId, u32)>,
    /// Runs that someone wanted undone, whatever the answer was.
    pub(crate) to_undo: BTreeSet<RunId>,
    /// Runs of which it was acknowledged, with the runs that undo them.
    pub(crate) undone: Vec<(RunId, RunId)>,
}
