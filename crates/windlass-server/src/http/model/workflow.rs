//! Workflows that are known.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass::WorkflowName;
use windlass::store::WorkflowRecord;

use super::Time;
use super::definition::DefinitionBody;

/// Which workflows to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkflowQuery {
    /// Only versions of this workflow.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    pub(crate) name: Option<WorkflowName>,
    /// Where the previous page ended: its `next`.
    #[param(max_length = 2000)]
    pub(crate) cursor: Option<String>,
    /// The most versions of the page.
    #[param(minimum = 1, maximum = 100, default = 100)]
    pub(crate) limit: Option<u32>,
}

/// A version of a workflow that is known, so that runs of it can be started.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Workflow)]
pub(crate) struct WorkflowBody {
    /// The definition as it holds for new runs.
    definition: DefinitionBody,
    /// When it was made known as it is.
    registered_at: Time,
}

impl From<WorkflowRecord> for WorkflowBody {
    fn from(record: WorkflowRecord) -> Self {
        let definition = DefinitionBody::from(&*record.definition);
        WorkflowBody { definition, registered_at: record.registered_at.into() }
    }
}

/// A page of workflows, by name and then the newest version first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WorkflowPage)]
pub(crate) struct WorkflowPageBody {
    /// The workflows.
    pub(crate) workflows: Vec<WorkflowBody>,
    /// The cursor of the next page; none if this is the last.
    pub(crate) next: Option<String>,
}
