//! The operators' log, retention and weights.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass::store::{Action, LogEntry, LogFilter, RetentionRule};
use windlass::{ActionId, Operator, RunId, RunState, Tenant, WorkflowName};

use super::run::StateWord;
use super::{IdText, Json, NameText, Time, millis};
use crate::http::cursor::{Cursor, Number};
use crate::problem::Problem;

/// Which entries of the log to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogQuery {
    /// Only those about this run.
    #[param(value_type = Option<String>, format = Uuid)]
    run: Option<RunId>,
    /// Only those of this action, such as `redrive` or `cancel_run`.
    #[param(
        max_length = 40,
        pattern = "^(redrive|discard|retry_run|cancel_run|undo_run|set_weight|set_retention|clear_retention|put_schedule|pause_schedule|resume_schedule|trigger_schedule|backfill_schedule|delete_schedule|set_quota|clear_quota)$"
    )]
    action: Option<String>,
    /// Only those of this operator.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    by: Option<Operator>,
    /// Only what was done to this tenant's things.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    tenant: Option<Tenant>,
    /// Where the previous page ended: its `next`.
    #[param(max_length = 2000)]
    cursor: Option<String>,
    /// The most entries of the page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

impl LogQuery {
    /// The filter that it asks for.
    pub(crate) fn filter(self) -> Result<LogFilter, Problem> {
        let action = self.action.map(|word| word.parse::<Action>()).transpose();
        let unknown = |why| {
            let known = Action::ALL.map(Action::word).join(", ");
            Problem::field("action", format_args!("{why}, expected one of {known}"))
        };
        let before: Option<Number> = Cursor::parse(self.cursor.as_deref())?;
        Ok(LogFilter {
            run: self.run,
            action: action.map_err(unknown)?,
            by: self.by,
            tenant: self.tenant,
            before: before.map(|Number(number)| number),
            limit: super::page_limit(self.limit)?,
        })
    }
}

/// A page of the operators' log, the newest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LogPage)]
pub(crate) struct LogPageBody {
    /// The entries.
    pub(crate) entries: Vec<LogEntryBody>,
    /// The cursor of the next page; none if this is the last.
    pub(crate) next: Option<String>,
}

/// An entry of the operators' log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LogEntry)]
pub(crate) struct LogEntryBody {
    /// Its number: later entries have larger ones.
    number: String,
    /// Its id.
    #[schema(value_type = IdText)]
    id: ActionId,
    /// When it was written.
    at: Time,
    /// Who did it: the name of the token, or what whoever has the database said.
    by: String,
    /// The id of the token that was shown to a server.
    token: Option<String>,
    /// Where the request came from: an address or `unix`; none if it came through no server.
    origin: Option<String>,
    /// What.
    #[schema(value_type = String)]
    action: &'static str,
    /// To whose runs, if it is about one tenant.
    tenant: Option<String>,
    /// The runs to which it was done.
    #[schema(value_type = Vec<IdText>)]
    runs: Vec<RunId>,
    /// What else there is to say of it.
    detail: Option<Json>,
}

impl From<LogEntry> for LogEntryBody {
    fn from(entry: LogEntry) -> Self {
        LogEntryBody {
            number: entry.number.to_string(),
            id: entry.id,
            at: entry.at.into(),
            by: entry.by.name.to_string(),
            token: entry.by.token.map(|token| token.to_string()),
            origin: entry.by.origin,
            action: entry.action.word(),
            tenant: entry.tenant.as_ref().map(ToString::to_string),
            runs: entry.runs,
            detail: entry.detail.as_ref().map(Json::of),
        }
    }
}

/// How long runs are kept that ended in one state.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RetentionRule)]
pub(crate) struct RetentionBody {
    /// Of which workflow; of all that have no rule of their own if nothing is said.
    #[serde(default)]
    #[schema(value_type = Option<NameText>)]
    workflow: Option<WorkflowName>,
    /// How they ended.
    state: EndWord,
    /// How long after its end a run goes.
    #[schema(maximum = 3_153_600_000_000u64)]
    keep_for_ms: u64,
    /// How long after the end of a run its key is kept, if that is longer.
    #[serde(default)]
    #[schema(maximum = 3_153_600_000_000u64)]
    keep_key_for_ms: u64,
    /// Whether what was known of a run goes to the archive when it goes.
    #[serde(default)]
    archives: bool,
    /// Whether failed runs go that have dead letters.
    #[serde(default)]
    with_dead_letters: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RunEnd)]
pub(crate) enum EndWord {
    /// All of it succeeded.
    Succeeded,
    /// A task failed for good.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl From<EndWord> for RunState {
    fn from(word: EndWord) -> RunState {
        match word {
            EndWord::Succeeded => RunState::Succeeded,
            EndWord::Failed => RunState::Failed,
            EndWord::Cancelled => RunState::Cancelled,
        }
    }
}

impl From<RetentionBody> for RetentionRule {
    fn from(body: RetentionBody) -> RetentionRule {
        RetentionRule {
            workflow: body.workflow,
            state: body.state.into(),
            keep_for: std::time::Duration::from_millis(body.keep_for_ms),
            keep_key_for: std::time::Duration::from_millis(body.keep_key_for_ms),
            archives: body.archives,
            with_dead_letters: body.with_dead_letters,
        }
    }
}

/// A rule as it is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StoredRetentionRule)]
pub(crate) struct RetentionRow {
    /// Of which workflow; of all that have no rule of their own if none.
    workflow: Option<String>,
    /// How they ended.
    state: StateWord,
    /// How long after its end a run goes.
    keep_for_ms: u64,
    /// How long after the end of a run its key is kept, if that is longer.
    keep_key_for_ms: u64,
    /// Whether what was known of a run goes to the archive when it goes.
    archives: bool,
    /// Whether failed runs go that have dead letters.
    with_dead_letters: bool,
}

impl From<RetentionRule> for RetentionRow {
    fn from(rule: RetentionRule) -> Self {
        RetentionRow {
            workflow: rule.workflow.as_ref().map(ToString::to_string),
            state: rule.state.into(),
            keep_for_ms: millis(rule.keep_for),
            keep_key_for_ms: millis(rule.keep_key_for),
            archives: rule.archives,
            with_dead_letters: rule.with_dead_letters,
        }
    }
}

/// All rules of how long runs are kept.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RetentionList {
    /// First those of all workflows, then by workflow.
    pub(crate) rules: Vec<RetentionRow>,
}

/// Which rule to delete.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetentionQuery {
    /// Of which workflow; the rule of all workflows if nothing is said.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    pub(crate) workflow: Option<WorkflowName>,
    /// How the runs of the rule ended.
    #[param(inline)]
    pub(crate) state: EndWord,
}

/// The share of a tenant.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Weight)]
pub(crate) struct WeightBody {
    /// Its share relative to the others'; 1 is what those have that were given none.
    #[schema(minimum = 1, maximum = 1000)]
    pub(crate) weight: u16,
}
