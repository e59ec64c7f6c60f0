//! The workflows that a store knows.

use std::sync::Arc;

use windlass_core::{Definition, Timestamp, Version, WorkflowName};

use super::{Store, StoreError};

/// The most workflows of one page of a list: a definition may have thousands of tasks, so it is
/// fewer than of other lists.
pub const WORKFLOWS_PAGE_MAX: usize = 100;

/// A version of a workflow that the store knows, so that runs of it can be started.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkflowRecord {
    /// The definition as it holds for new runs, with its name and version.
    pub definition: Arc<Definition>,
    /// When it was registered as it is: with other policies, it is registered anew.
    pub registered_at: Timestamp,
}

/// Which workflows to list.
#[derive(Clone, Debug, Default)]
pub struct WorkflowFilter {
    /// Only versions of this workflow.
    pub name: Option<WorkflowName>,
    /// Behind the end of the previous page.
    pub after: Option<WorkflowCursor>,
    /// How many, up to [`WORKFLOWS_PAGE_MAX`]; 0 for as many.
    pub limit: usize,
}

impl WorkflowFilter {
    /// How many a page has at most.
    pub(crate) fn most(&self) -> usize {
        match self.limit {
            0 => WORKFLOWS_PAGE_MAX,
            limit => limit.min(WORKFLOWS_PAGE_MAX),
        }
    }
}

/// Where a page of workflows ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowCursor {
    /// The name of its last workflow.
    pub name: WorkflowName,
    /// The version of it.
    pub version: Version,
}

/// A version of a workflow as it is registered.
///
/// # Errors
///
/// What the store answers if it cannot be asked.
pub async fn find_workflow(
    store: &dyn Store,
    name: &WorkflowName,
    version: Version,
) -> Result<Option<Arc<Definition>>, StoreError> {
    let next = version.get().checked_add(1).and_then(Version::new);
    let after = next.map(|version| WorkflowCursor { name: name.clone(), version });
    let filter = WorkflowFilter { name: Some(name.clone()), after, limit: 1 };
    let found = store.list_workflows(filter).await?.workflows.into_iter().next();
    let found = found.map(|found| found.definition);
    Ok(found.filter(|found| found.version() == version))
}

/// A page of workflows: by name, and the newest version of each first.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkflowPage {
    /// The workflows.
    pub workflows: Vec<WorkflowRecord>,
    /// Where the next page begins, if there is one.
    pub next: Option<WorkflowCursor>,
}

impl WorkflowPage {
    /// A page of at most `most` out of what was found, which is more if there is another page.
    pub(crate) fn cut(mut workflows: Vec<WorkflowRecord>, most: usize) -> Self {
        let has_more = workflows.len() > most;
        workflows.truncate(most);
        let last = workflows.last().filter(|_| has_more);
        let next = last.map(|last| WorkflowCursor {
            name: last.definition.name().clone(),
            version: last.definition.version(),
        });
        WorkflowPage { workflows, next }
    }
}
