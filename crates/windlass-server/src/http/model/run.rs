//! Runs and their tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass::store::{
    ArchivedRun, METADATA_BYTES_MAX, NewRun, RunFilter, RunRecord, Started, TaskRecord,
};
use windlass::{Priority, RunId, RunState, TaskState, Tenant, Version, WorkflowName};
use windlass_core::{IdempotencyKey, SignalId, SignalKey, StepName};

use super::{FailureBody, IdText, Json, KeyText, NameText, Time, at_most};
use crate::http::cursor::Cursor;
use crate::identity::Identity;
use crate::problem::Problem;

/// A run to start.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartRun {
    /// The workflow, which a worker or a program has made known.
    #[schema(value_type = NameText)]
    pub(crate) workflow: WorkflowName,
    /// The version of the workflow; the newest that is known if nothing is said.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 2_147_483_647)]
    pub(crate) version: Option<Version>,
    /// The input; null if nothing is said.
    #[serde(default)]
    pub(crate) input: Json,
    /// Whose run it is; your own tenant if nothing is said.
    #[serde(default)]
    #[schema(value_type = Option<NameText>)]
    pub(crate) tenant: Option<Tenant>,
    /// Your name for this start: the same key answers the same run.
    #[serde(default)]
    #[schema(value_type = Option<KeyText>)]
    pub(crate) key: Option<IdempotencyKey>,
    /// The id that the run is to have; chosen by the server if nothing is said.
    #[serde(default)]
    #[schema(value_type = Option<IdText>)]
    pub(crate) id: Option<RunId>,
    /// How long its first tasks wait.
    #[serde(default)]
    #[schema(maximum = 3_153_600_000_000u64)]
    pub(crate) delay_ms: u64,
    /// What goes first within a queue: the larger number.
    #[serde(default)]
    #[schema(value_type = i16, minimum = -100, maximum = 100)]
    pub(crate) priority: Priority,
    /// Pairs to find the run again by: up to 64, with 1,024 bytes for each key and value.
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, String>,
}

impl StartRun {
    /// The start of it, with this version, and with an id where none is given.
    pub(crate) fn into_new_run(
        self,
        identity: &Identity,
        limit: windlass::PayloadLimit,
        version: Version,
        id: impl FnOnce() -> RunId,
    ) -> Result<NewRun, Problem> {
        let delay = Duration::from_millis(self.delay_ms);
        if delay > windlass_core::retry::WAIT_MAX {
            let why = format!("{} is over the limit of a hundred years", self.delay_ms);
            return Err(Problem::field("delay_ms", why));
        }
        let mut run = NewRun {
            id: self.id.unwrap_or_else(id),
            workflow: self.workflow,
            version,
            tenant: identity.acts_for(self.tenant)?,
            input: self.input.to_payload("input", limit)?,
            key: self.key,
            delay,
            priority: self.priority,
            metadata: self.metadata,
        };
        identity.sign(&mut run)?;
        run.check(limit).map_err(|why| Problem::new(windlass::ErrorKind::Argument, why))?;
        Ok(run)
    }
}

/// The answer to a start.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StartedRun)]
pub(crate) struct StartedBody {
    /// The run: the new one, or the one that was there.
    #[schema(value_type = IdText)]
    pub(crate) id: RunId,
    /// Whether this start made it.
    pub(crate) is_new: bool,
}

impl From<Started> for StartedBody {
    fn from(started: Started) -> Self {
        StartedBody { id: started.run, is_new: started.is_new }
    }
}

/// Runs to start, each judged alone.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartRuns {
    /// The runs.
    #[schema(min_items = 1, max_items = 1000)]
    #[serde(deserialize_with = "at_most::<1000, _, _>")]
    pub(crate) runs: Vec<StartRun>,
}

/// The answers to starts, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StartedRuns {
    /// What became of each.
    pub(crate) runs: Vec<StartAnswer>,
}

/// What became of one start of several.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StartAnswer {
    /// It is there.
    Started(StartedBody),
    /// It could not be started.
    Problem(crate::problem::ProblemBody),
}

/// A run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Run)]
pub(crate) struct RunBody {
    /// The run.
    #[schema(value_type = IdText)]
    id: RunId,
    /// The workflow.
    #[schema(value_type = String)]
    workflow: WorkflowName,
    /// The version of the workflow.
    #[schema(value_type = u32)]
    version: Version,
    /// Whose run it is.
    #[schema(value_type = String)]
    tenant: Tenant,
    /// Where it is: running, succeeded, failed or cancelled.
    #[schema(value_type = String)]
    state: &'static str,
    /// The input; left out of lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Json>,
    /// The caller's name for the start.
    #[schema(value_type = Option<String>)]
    key: Option<IdempotencyKey>,
    /// The priority.
    #[schema(value_type = i16)]
    priority: Priority,
    /// The caller's metadata.
    metadata: BTreeMap<String, String>,
    /// 1, and one more for every retry.
    round: u32,
    /// How many tasks have not ended.
    open_tasks: u32,
    /// When it was started.
    created_at: Time,
    /// When it ended, if it has.
    ended_at: Option<Time>,
}

impl RunBody {
    /// A run in a list, without its input.
    pub(crate) fn listed(run: RunRecord) -> Self {
        RunBody {
            id: run.id,
            workflow: run.workflow,
            version: run.version,
            tenant: run.tenant,
            state: run.state.word(),
            input: None,
            key: run.key,
            priority: run.priority,
            metadata: run.metadata,
            round: run.round,
            open_tasks: run.open_tasks,
            created_at: run.created_at.into(),
            ended_at: run.ended_at.map(Time),
        }
    }
}

impl From<RunRecord> for RunBody {
    fn from(run: RunRecord) -> Self {
        let input = run.input.as_ref().map(Json::of);
        RunBody { input, ..RunBody::listed(run) }
    }
}

/// A page of runs, the newest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunPage)]
pub(crate) struct RunPageBody {
    /// The runs, without their inputs.
    pub(crate) runs: Vec<RunBody>,
    /// The cursor of the next page; none if this is the last.
    pub(crate) next: Option<String>,
}

/// A state of a run.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RunState)]
pub(crate) enum StateWord {
    /// It goes on.
    Running,
    /// All of it succeeded.
    Succeeded,
    /// A task failed for good.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl From<StateWord> for RunState {
    fn from(word: StateWord) -> RunState {
        match word {
            StateWord::Running => RunState::Running,
            StateWord::Succeeded => RunState::Succeeded,
            StateWord::Failed => RunState::Failed,
            StateWord::Cancelled => RunState::Cancelled,
        }
    }
}

impl From<RunState> for StateWord {
    fn from(state: RunState) -> Self {
        match state {
            RunState::Running => StateWord::Running,
            RunState::Succeeded => StateWord::Succeeded,
            RunState::Failed => StateWord::Failed,
            RunState::Cancelled => StateWord::Cancelled,
        }
    }
}

/// Which runs to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunQuery {
    /// Only runs of this workflow.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    workflow: Option<WorkflowName>,
    /// Only runs of this tenant.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    tenant: Option<Tenant>,
    /// Only runs in this state.
    #[param(inline)]
    state: Option<StateWord>,
    /// Only runs that have a metadata pair with this key and the value of `metadata_value`.
    #[param(max_length = 1024)]
    metadata_key: Option<String>,
    /// The value that belongs to `metadata_key`.
    #[param(max_length = 1024)]
    metadata_value: Option<String>,
    /// Where the previous page ended: its `next`.
    #[param(max_length = 2000)]
    cursor: Option<String>,
    /// The most runs of the page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

impl RunQuery {
    /// The filter that it asks for.
    pub(crate) fn filter(self, identity: &Identity) -> Result<RunFilter, Problem> {
        let metadata = match (self.metadata_key, self.metadata_value) {
            (Some(key), Some(value)) => Some((key, value)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(Problem::field("metadata_value", "missing beside metadata_key"));
            }
            (None, Some(_)) => {
                return Err(Problem::field("metadata_key", "missing beside metadata_value"));
            }
        };
        if let Some((key, value)) = &metadata {
            for (field, text) in [("metadata_key", key), ("metadata_value", value)] {
                if text.contains('\0') || text.len() > METADATA_BYTES_MAX {
                    let why = format!("it has a NUL, or more than {METADATA_BYTES_MAX} bytes");
                    return Err(Problem::field(field, why));
                }
            }
        }
        Ok(RunFilter {
            workflow: self.workflow,
            tenant: identity.looks_at(self.tenant)?,
            state: self.state.map(RunState::from),
            metadata,
            after: Cursor::parse(self.cursor.as_deref())?,
            limit: super::page_limit(self.limit)?,
        })
    }
}

/// Which page of a list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    /// Where the previous page ended: its `next`.
    #[param(max_length = 2000)]
    pub(crate) cursor: Option<String>,
    /// The most rows of the page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub(crate) limit: Option<u32>,
}

/// How long to wait.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitQuery {
    /// How long to wait at most.
    #[param(maximum = 30_000, default = 10_000)]
    pub(crate) timeout_ms: Option<u64>,
}

/// Why a run is cancelled.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CancelRun {
    /// The reason, for the history.
    #[serde(default)]
    #[schema(max_length = 1000)]
    pub(crate) reason: Option<String>,
}

/// Which round of a run failed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryRun {
    /// The round that failed; the present one if nothing is said. With it, the request can be
    /// repeated when its answer was lost.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 2_147_483_647)]
    pub(crate) round: Option<u32>,
}

/// The round that began.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RetriedRun {
    /// Its number.
    pub(crate) round: u32,
}

/// The run that undoes another.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UndoneRun {
    /// Its id.
    #[schema(value_type = IdText)]
    pub(crate) by: RunId,
}

/// A signal to a run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendSignal {
    /// The name that a function waits for.
    #[schema(value_type = NameText)]
    pub(crate) name: StepName,
    /// What it says; null if nothing is said.
    #[serde(default)]
    pub(crate) value: Json,
    /// Its id: sent again with the same, it is sent once.
    #[serde(default)]
    #[schema(value_type = Option<IdText>)]
    pub(crate) id: Option<SignalId>,
}

/// A signal to a key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendKeySignal {
    /// Whose key it is; your own tenant if nothing is said.
    #[serde(default)]
    #[schema(value_type = Option<NameText>)]
    pub(crate) tenant: Option<Tenant>,
    /// The key.
    #[schema(value_type = KeyText)]
    pub(crate) key: SignalKey,
    /// The name that a function waits for.
    #[schema(value_type = NameText)]
    pub(crate) name: StepName,
    /// What it says; null if nothing is said.
    #[serde(default)]
    pub(crate) value: Json,
    /// Its id: sent again with the same, it is sent once.
    #[serde(default)]
    #[schema(value_type = Option<IdText>)]
    pub(crate) id: Option<SignalId>,
    /// How long it is kept if nobody asks for it; 30 days if nothing is said.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 3_153_600_000_000u64)]
    pub(crate) keep_for_ms: Option<u64>,
}

/// A signal that was sent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SentSignal {
    /// Its id.
    #[schema(value_type = IdText)]
    pub(crate) id: SignalId,
}

/// A task of a run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Task)]
pub(crate) struct TaskBody {
    /// Its place in the definition.
    index: u32,
    /// Its name.
    name: String,
    /// Where it is: pending, scheduled, waiting, ready, running, succeeded, failed, cancelled or
    /// skipped.
    #[schema(value_type = String)]
    state: TaskState,
    /// How many attempts of this round were begun.
    attempt: u32,
    /// The fence of its newest claim, 0 before the first.
    fence: String,
    /// How many parents have not ended.
    pending_parents: u32,
    /// When it may go on, while it is scheduled.
    available_at: Option<Time>,
    /// Who has it, while it is running.
    #[schema(value_type = Option<IdText>)]
    worker: Option<windlass::WorkerId>,
    /// Its output, once it succeeded.
    output: Option<Json>,
    /// Why its newest failed attempt failed.
    failure: Option<FailureBody>,
    /// What its handler last said of its progress.
    progress: Option<Json>,
}

impl From<TaskRecord> for TaskBody {
    fn from(task: TaskRecord) -> Self {
        TaskBody {
            index: task.index.0,
            name: task.name.to_string(),
            state: task.state,
            attempt: task.attempt,
            fence: task.fence.to_string(),
            pending_parents: task.pending_parents,
            available_at: task.available_at.map(Time),
            worker: task.worker,
            output: task.output.as_ref().map(Json::of),
            failure: task.failure.as_ref().map(FailureBody::from),
            progress: task.progress.as_ref().map(Json::of),
        }
    }
}

/// A page of tasks, in the order of the definition.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TaskPage)]
pub(crate) struct TaskPageBody {
    /// The tasks.
    pub(crate) tasks: Vec<TaskBody>,
    /// The cursor of the next page; none if this is the last.
    pub(crate) next: Option<String>,
}

/// A run that is gone and was archived.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ArchivedRun)]
pub(crate) struct ArchivedBody {
    /// The run.
    #[schema(value_type = IdText)]
    id: RunId,
    /// The workflow.
    workflow: String,
    /// The version of the workflow.
    #[schema(value_type = u32)]
    version: Version,
    /// Whose run it was.
    tenant: String,
    /// How it ended.
    #[schema(value_type = String)]
    state: &'static str,
    /// When it was started.
    created_at: Time,
    /// When it ended.
    ended_at: Time,
    /// When it was archived.
    archived_at: Time,
    /// What was known of it: its input, key, metadata, round, tasks and history.
    body: Json,
}

impl From<ArchivedRun> for ArchivedBody {
    fn from(run: ArchivedRun) -> Self {
        ArchivedBody {
            id: run.id,
            workflow: run.workflow.to_string(),
            version: run.version,
            tenant: run.tenant.to_string(),
            state: run.state.word(),
            created_at: run.created_at.into(),
            ended_at: run.ended_at.into(),
            archived_at: run.archived_at.into(),
            body: Json::of(&run.body),
        }
    }
}
