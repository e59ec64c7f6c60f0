//! What a store is given and what it gives back.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_core::retry::WAIT_MAX;
use windlass_core::trace::TRACEPARENT;
use windlass_core::{
    Failure, Fence, IdempotencyKey, Payload, PayloadLimit, Priority, RunId, RunState, SignalId,
    SignalKey, StepName, TaskIndex, TaskName, TaskState, Tenant, Timestamp, TraceContext, Version,
    WorkerId, WorkflowName,
};

use super::StoreError;

/// The most metadata pairs of a run.
pub const METADATA_PAIRS_MAX: usize = 64;

/// Returns the conflict of a start whose id or key belongs to a run that was started differently.
///
/// `differing` names the parts that differ. It is empty for a run of another tenant: the caller
/// learns nothing of that one.
pub(crate) fn another_start(
    new: &NewRun,
    run: RunId,
    is_named: bool,
    differing: &[&str],
) -> StoreError {
    let by = match &new.key {
        Some(key) if !is_named => format!("idempotency key {key:?}"),
        Some(_) | None => format!("run id {}", new.id),
    };
    let parts = match differing {
        [] => String::new(),
        parts => format!(" (different: {})", parts.join(", ")),
    };
    StoreError::Conflict(format!("{by} was used for run {run} with another start{parts}"))
}

/// Returns the parts of a start that are not the same as those of a run.
pub(crate) fn differing_parts(parts: [(&'static str, bool); 3]) -> Vec<&'static str> {
    parts.into_iter().filter(|(_, is_same)| !is_same).map(|(part, _)| part).collect()
}

/// What the metadata begins with that the engine says of a run. Through a server, nobody else can.
pub const RESERVED_METADATA: &str = "windlass.";

/// The metadata of a run that was started through a server with a token: who did, by which token,
/// and from where.
pub const AUTHOR_METADATA: &str = "windlass.by";

/// The longest key and the longest value of a metadata pair, in bytes.
pub const METADATA_BYTES_MAX: usize = 1_024;

/// A run to start.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRun {
    /// The id it is to have, chosen by the caller.
    pub id: RunId,
    /// The workflow.
    pub workflow: WorkflowName,
    /// The version of the workflow.
    pub version: Version,
    /// Whose run it is.
    pub tenant: Tenant,
    /// The input.
    pub input: Payload,
    /// The caller's name for this start.
    pub key: Option<IdempotencyKey>,
    /// How long the first tasks wait.
    pub delay: Duration,
    /// The priority that its tasks' priorities are relative to.
    pub priority: Priority,
    /// Whatever the caller wants to find again.
    pub metadata: BTreeMap<String, String>,
}

impl NewRun {
    /// Checks what the types do not: the size of the input, and the metadata. The error is a
    /// sentence.
    pub fn check(&self, limit: PayloadLimit) -> Result<(), String> {
        limit.check(&self.input).map_err(|error| format!("input of run {} {error}", self.id))?;
        let pairs = self.metadata.len();
        if pairs > METADATA_PAIRS_MAX {
            let id = self.id;
            return Err(format!(
                "run {id} has {pairs} metadata pairs, the limit is {METADATA_PAIRS_MAX}"
            ));
        }
        for (key, value) in &self.metadata {
            for text in [key, value] {
                let bytes = text.len();
                if bytes > METADATA_BYTES_MAX {
                    let max = METADATA_BYTES_MAX;
                    let start: String = key.chars().take(24).collect();
                    return Err(format!(
                        "metadata {start:?} has {bytes} bytes, the limit is {max}"
                    ));
                }
                if let Some(position) = text.find('\0') {
                    return Err(format!("metadata {key:?} has a NUL at byte {position}"));
                }
            }
        }
        TraceContext::check_metadata(&self.metadata).map_err(|error| error.to_string())
    }

    /// Puts the run into a trace, unless the caller has, or has said so much else that there is
    /// no room.
    pub(crate) fn join_trace(&mut self, trace: Option<&TraceContext>) {
        let has_room = self.metadata.len() + 2 <= METADATA_PAIRS_MAX;
        if let Some(trace) = trace.filter(|_| has_room)
            && !self.metadata.contains_key(TRACEPARENT)
        {
            trace.put_into(&mut self.metadata);
        }
    }
}

/// A signal to send.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSignal {
    /// Its id, chosen by the caller, so that one whose answer was lost can be sent again.
    pub id: SignalId,
    /// The run.
    pub run: RunId,
    /// The name that a function waits for.
    pub name: StepName,
    /// What it says.
    pub value: Payload,
}

impl NewSignal {
    /// Checks what the types do not: the size of what it says. The error is a sentence.
    pub fn check(&self, limit: PayloadLimit) -> Result<(), String> {
        let NewSignal { run, name, .. } = self;
        let wrong = |error| format!("signal {name:?} to run {run} {error}");
        limit.check(&self.value).map_err(wrong)
    }
}

/// Where signals of one name to one key of a tenant wait for whoever asks for them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mailbox {
    /// Whose key it is: those of others are other keys.
    pub tenant: Tenant,
    /// The key.
    pub key: SignalKey,
    /// The name that a function waits for.
    pub name: StepName,
}

/// A signal to send to a key.
#[derive(Clone, Debug, PartialEq)]
pub struct NewKeySignal {
    /// Its id, chosen by the caller, so that one whose answer was lost can be sent again.
    pub id: SignalId,
    /// Where it goes.
    pub to: Mailbox,
    /// What it says.
    pub value: Payload,
    /// How long it is kept if nobody asks for it, and how long it is known that it was sent.
    pub keep_for: Duration,
}

impl NewKeySignal {
    /// Checks what the types do not: the size of what it says, and how long it is kept. The
    /// error is a sentence.
    pub fn check(&self, limit: PayloadLimit) -> Result<(), String> {
        let NewKeySignal { to: Mailbox { key, name, .. }, keep_for, .. } = self;
        let what = format!("signal {name:?} to key {key:?}");
        if keep_for.is_zero() {
            return Err(format!("{what} is to be kept for no time at all"));
        }
        if *keep_for > WAIT_MAX {
            return Err(format!(
                "{what} is to be kept for {keep_for:?}, the limit is {WAIT_MAX:?}"
            ));
        }
        limit.check(&self.value).map_err(|error| format!("{what} {error}"))
    }
}

/// The answer to a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// The run: the new one, or the one that was there.
    pub run: RunId,
    /// Whether this start made it.
    pub is_new: bool,
}

/// A run as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecord {
    /// The run.
    pub id: RunId,
    /// The workflow.
    pub workflow: WorkflowName,
    /// The version of the workflow.
    pub version: Version,
    /// Whose run it is.
    pub tenant: Tenant,
    /// Where it is.
    pub state: RunState,
    /// The input. `None` in lists: [`Store::get_run`](super::Store::get_run) returns it.
    pub input: Option<Payload>,
    /// The caller's name for the start.
    pub key: Option<IdempotencyKey>,
    /// The priority.
    pub priority: Priority,
    /// The caller's metadata.
    pub metadata: BTreeMap<String, String>,
    /// 1, and one more for every retry.
    pub round: u32,
    /// How many tasks have not ended. An on-failure task counts from the moment it
    /// may run.
    pub open_tasks: u32,
    /// When it was started.
    pub created_at: Timestamp,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
}

impl RunRecord {
    /// The trace that the run belongs to, if its starter said so.
    pub fn trace(&self) -> Option<TraceContext> {
        TraceContext::of_metadata(&self.metadata)
    }
}

/// A task as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRecord {
    /// Its place in the definition.
    pub index: TaskIndex,
    /// Its name.
    pub name: TaskName,
    /// Where it is.
    pub state: TaskState,
    /// How many attempts of this round were begun.
    pub attempt: u32,
    /// The fence of its newest claim, 0 before the first.
    pub fence: Fence,
    /// How many parents have not ended.
    pub pending_parents: u32,
    /// When it may go on, while it is scheduled.
    pub available_at: Option<Timestamp>,
    /// Who has it, while it is running.
    pub worker: Option<WorkerId>,
    /// Its output, once it succeeded.
    pub output: Option<Payload>,
    /// Why its newest failed attempt failed.
    pub failure: Option<Failure>,
    /// What its handler last said of its progress.
    pub progress: Option<Payload>,
}

/// Which runs to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs of this workflow.
    pub workflow: Option<WorkflowName>,
    /// Only runs of this tenant.
    pub tenant: Option<Tenant>,
    /// Only runs in this state.
    pub state: Option<RunState>,
    /// Only runs with this metadata pair.
    pub metadata: Option<(String, String)>,
    /// Where the previous page ended.
    pub after: Option<RunCursor>,
    /// The most runs of the page, up to [`PAGE_MAX`](super::PAGE_MAX); 0 is that
    /// limit.
    pub limit: usize,
}

/// A place in a list of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunCursor {
    /// When the last run of the page was started.
    pub created_at: Timestamp,
    /// Its id, for runs started at the same time.
    pub id: RunId,
}

/// A page of runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunPage {
    /// The runs, the newest first.
    pub runs: Vec<RunRecord>,
    /// Where the next page begins, if there is one.
    pub next: Option<RunCursor>,
}
