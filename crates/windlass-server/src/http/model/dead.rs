//! Tasks that failed for good, and what is done about them.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass::store::{
    DeadLetter, DeadLetterCursor, DeadLetterFilter, Discarded, Pace, Redriven, RefusedRun,
};
use windlass::{ActionId, RunId, TaskName, Tenant, WorkflowName};

use super::{FailureBody, IdText, NameText, Time};
use crate::http::cursor::Cursor;
use crate::identity::Identity;
use crate::problem::Problem;

/// Which dead letters to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadLetterQuery {
    /// Only those of this run.
    #[param(value_type = Option<String>, format = Uuid)]
    run: Option<RunId>,
    /// Only those of this tenant.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    tenant: Option<Tenant>,
    /// Only those of this workflow.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    workflow: Option<WorkflowName>,
    /// Only those of tasks of this name.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    task: Option<TaskName>,
    /// Only those whose last attempt failed with this code.
    #[param(max_length = 100)]
    reason: Option<String>,
    /// Only those that failed at this time or later.
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<Time>,
    /// Only those that failed before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    until: Option<Time>,
    /// Where the previous page ended: its `next`.
    #[param(max_length = 2000)]
    pub(crate) cursor: Option<String>,
    /// The most dead letters of the page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub(crate) limit: Option<u32>,
}

impl DeadLetterQuery {
    /// The filter that it asks for.
    pub(crate) fn filter(&self, identity: &Identity) -> Result<DeadLetterFilter, Problem> {
        Ok(DeadLetterFilter {
            run: self.run,
            tenant: identity.looks_at(self.tenant.clone())?,
            workflow: self.workflow.clone(),
            task: self.task.clone(),
            reason: reason(self.reason.as_deref())?,
            since: self.since.map(|time| time.0),
            until: self.until.map(|time| time.0),
        })
    }
}

/// A code of a failure that a filter names.
fn reason(word: Option<&str>) -> Result<Option<windlass::FailureCode>, Problem> {
    match word {
        Some(word) if word.contains('\0') => {
            Err(Problem::field("reason", "no code of a failure has a NUL"))
        }
        Some(word) if word.chars().count() > windlass_core::decide::CODE_BYTES_MAX => {
            Err(Problem::field("reason", "no code of a failure is so long"))
        }
        word => Ok(word.map(|word| windlass::FailureCode::from(word.to_owned()))),
    }
}

/// Which dead letters are meant; all of them if nothing is said.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = DeadLetterFilter)]
pub(crate) struct DeadLetterChoice {
    /// Only those of this run.
    #[schema(value_type = Option<IdText>)]
    run: Option<RunId>,
    /// Only those of this tenant.
    #[schema(value_type = Option<NameText>)]
    tenant: Option<Tenant>,
    /// Only those of this workflow.
    #[schema(value_type = Option<NameText>)]
    workflow: Option<WorkflowName>,
    /// Only those of tasks of this name.
    #[schema(value_type = Option<NameText>)]
    task: Option<TaskName>,
    /// Only those whose last attempt failed with this code.
    #[schema(max_length = 100)]
    reason: Option<String>,
    /// Only those that failed at this time or later.
    since: Option<Time>,
    /// Only those that failed before this time.
    until: Option<Time>,
}

impl DeadLetterChoice {
    /// The filter that it asks for.
    pub(crate) fn filter(self, identity: &Identity) -> Result<DeadLetterFilter, Problem> {
        Ok(DeadLetterFilter {
            run: self.run,
            tenant: identity.looks_at(self.tenant)?,
            workflow: self.workflow,
            task: self.task,
            reason: reason(self.reason.as_deref())?,
            since: self.since.map(|time| time.0),
            until: self.until.map(|time| time.0),
        })
    }
}

/// Lets the runs of dead letters go on, the oldest first, up to a hundred.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Redrive)]
pub(crate) struct RedriveBody {
    /// The id of this action: repeated with the same, it answers the same and does nothing.
    #[serde(default)]
    #[schema(value_type = Option<IdText>)]
    pub(crate) id: Option<ActionId>,
    /// Which of them. It must be said, so that nothing is done to all of them by mistake.
    pub(crate) filter: DeadLetterChoice,
    /// Where the previous batch ended: its `next`.
    #[serde(default)]
    #[schema(max_length = 2000)]
    pub(crate) cursor: Option<String>,
    /// The most dead letters of the batch.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 100)]
    pub(crate) limit: Option<u32>,
    /// How many runs begin in a second; all at once if nothing is said.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)]
    pub(crate) per_second: Option<NonZeroU32>,
    /// When the first of them is due, as the batch before has answered.
    #[serde(default)]
    pub(crate) from: Option<Time>,
}

impl RedriveBody {
    /// How fast the runs go on.
    pub(crate) fn pace(&self) -> Result<Option<Pace>, Problem> {
        match (self.per_second, self.from) {
            (Some(per_second), from) => {
                Ok(Some(Pace { per_second, from: from.map(|time| time.0) }))
            }
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Problem::field("per_second", "missing beside from")),
        }
    }
}

/// Takes dead letters away, the oldest first, up to a hundred; their runs stay failed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Discard)]
pub(crate) struct DiscardBody {
    /// The id of this action: repeated with the same, it answers the same and does nothing.
    #[serde(default)]
    #[schema(value_type = Option<IdText>)]
    pub(crate) id: Option<ActionId>,
    /// Which of them. It must be said, so that nothing is done to all of them by mistake.
    pub(crate) filter: DeadLetterChoice,
    /// Where the previous batch ended: its `next`.
    #[serde(default)]
    #[schema(max_length = 2000)]
    pub(crate) cursor: Option<String>,
    /// The most dead letters of the batch.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 100)]
    pub(crate) limit: Option<u32>,
}

/// How many dead letters a batch has.
pub(crate) fn batch_limit(limit: Option<u32>) -> Result<usize, Problem> {
    let max = windlass::store::REDRIVE_MAX;
    match limit {
        None => Ok(max),
        Some(limit) if (1..=max).contains(&(limit as usize)) => Ok(limit as usize),
        Some(limit) => {
            Err(Problem::field("limit", format_args!("{limit} is not within 1 to {max}")))
        }
    }
}

/// A task that failed for good.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeadLetter)]
pub(crate) struct LetterBody {
    /// Its run.
    #[schema(value_type = IdText)]
    run: RunId,
    /// The name of the task.
    task: String,
    /// The place of the task in the definition.
    index: u32,
    /// The round of the run in which it failed.
    round: u32,
    /// Whose run it is.
    tenant: String,
    /// The workflow.
    workflow: String,
    /// The version of the workflow.
    version: u32,
    /// The queue of the task.
    queue: String,
    /// Why its last attempt failed.
    failure: FailureBody,
    /// How many attempts it had.
    attempts: u32,
    /// When it failed.
    failed_at: Time,
}

impl From<DeadLetter> for LetterBody {
    fn from(letter: DeadLetter) -> Self {
        LetterBody {
            run: letter.task.run,
            task: letter.name.to_string(),
            index: letter.task.index.0,
            round: letter.round,
            tenant: letter.tenant.to_string(),
            workflow: letter.workflow.to_string(),
            version: letter.version.get(),
            queue: letter.queue.to_string(),
            failure: FailureBody::from(&letter.failure),
            attempts: letter.attempts,
            failed_at: letter.failed_at.into(),
        }
    }
}

/// A page of dead letters, the newest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeadLetterPage)]
pub(crate) struct LetterPageBody {
    /// The dead letters.
    pub(crate) letters: Vec<LetterBody>,
    /// The cursor of the next page; none if this is the last.
    pub(crate) next: Option<String>,
}

/// A run to which something was not done.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RefusedRun)]
pub(crate) struct RefusedBody {
    /// The run.
    #[schema(value_type = IdText)]
    run: RunId,
    /// Why, in a sentence.
    why: String,
}

fn refused(runs: Vec<RefusedRun>) -> Vec<RefusedBody> {
    runs.into_iter().map(|RefusedRun { run, why }| RefusedBody { run, why }).collect()
}

/// What became of dead letters that were to be redriven.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Redriven)]
pub(crate) struct RedrivenBody {
    /// The id of the action.
    #[schema(value_type = IdText)]
    id: ActionId,
    /// The runs that go on.
    #[schema(value_type = Vec<IdText>)]
    runs: Vec<RunId>,
    /// The runs that do not, and stay where they are.
    refused: Vec<RefusedBody>,
    /// The cursor of the next batch; none if there is none.
    next: Option<String>,
    /// When the first run of the next batch is due, if there is a pace.
    due: Option<Time>,
}

impl RedrivenBody {
    pub(crate) fn new(id: ActionId, redriven: Redriven) -> Self {
        RedrivenBody {
            id,
            runs: redriven.runs,
            refused: refused(redriven.refused),
            next: redriven.next.as_ref().map(DeadLetterCursor::to_text),
            due: redriven.due.map(Time),
        }
    }
}

/// What became of dead letters that were to be discarded.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Discarded)]
pub(crate) struct DiscardedBody {
    /// The id of the action.
    #[schema(value_type = IdText)]
    id: ActionId,
    /// How many are gone.
    letters: usize,
    /// Whose they were.
    #[schema(value_type = Vec<IdText>)]
    runs: Vec<RunId>,
    /// The runs whose dead letters stay.
    refused: Vec<RefusedBody>,
    /// The cursor of the next batch; none if there is none.
    next: Option<String>,
}

impl DiscardedBody {
    pub(crate) fn new(id: ActionId, discarded: Discarded) -> Self {
        DiscardedBody {
            id,
            letters: discarded.letters,
            runs: discarded.runs,
            refused: refused(discarded.refused),
            next: discarded.next.as_ref().map(DeadLetterCursor::to_text),
        }
    }
}
