//! `windlass workflows`: which workflows there are to start.

use serde_json::{Value, json};
use windlass::store::{StoreError, WorkflowCursor, WorkflowFilter, WorkflowRecord, nearest};
use windlass::{Timestamp, Version, Windlass, WorkflowName};

use crate::session::Session;
use crate::text::{ago, listing, shown};

/// What `windlass workflows` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only versions of this workflow
    name: Option<String>,

    /// Maximum number of versions
    #[arg(long, value_name = "N", default_value = "100", value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    limit: u32,
}

/// Prints the workflows, by name and then the newest version first.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    let name = arguments.name.map(WorkflowName::new).transpose().map_err(windlass::Error::from)?;
    let (windlass, store) = session.connect().await?;
    let (all, has_more) = read(&windlass, name.clone(), arguments.limit as usize).await?;
    if all.is_empty()
        && let Some(name) = &name
    {
        return Err(unknown(&windlass, name).await?);
    }
    let now = store.now().await?;
    let more = if has_more { "and more, see --limit\n" } else { "" };
    session.tell(|| all.iter().map(json).collect(), || table(&all, now) + more)
}

/// The first workflows, and whether there are more.
pub(crate) async fn read(
    windlass: &Windlass,
    name: Option<WorkflowName>,
    most: usize,
) -> anyhow::Result<(Vec<WorkflowRecord>, bool)> {
    let mut filter = WorkflowFilter { name, ..WorkflowFilter::default() };
    let mut all = Vec::new();
    loop {
        filter.limit = most - all.len();
        let page = windlass.workflows(filter.clone()).await?;
        all.extend(page.workflows);
        match page.next {
            Some(next) if all.len() < most => filter.after = Some(next),
            next => return Ok((all, next.is_some())),
        }
    }
}

/// How many workflows are looked at for names like one that is not there.
const LOOKED_AT_MAX: usize = 1_000;

/// The number of versions that the error names if another one was asked for.
const VERSIONS_NAMED: usize = 10;

/// Finds a version of a workflow, or the newest.
///
/// # Errors
///
/// `NotFound` if it is not registered, with the versions or the name that are.
pub(crate) async fn find(
    windlass: &Windlass,
    name: &str,
    wanted: Option<u32>,
) -> anyhow::Result<WorkflowRecord> {
    let name = WorkflowName::new(name).map_err(windlass::Error::from)?;
    // The list is ordered from the newest version to the oldest: after the next one there is this one.
    let next = wanted.and_then(|version| Version::new(version.checked_add(1)?));
    let after = next.map(|version| WorkflowCursor { name: name.clone(), version });
    let filter = WorkflowFilter { name: Some(name.clone()), after, limit: 1 };
    let found = windlass.workflows(filter).await?.workflows.pop();
    let is_wanted =
        |it: &WorkflowRecord| wanted.is_none_or(|version| it.definition.version().get() == version);
    if let Some(found) = found.filter(is_wanted) {
        return Ok(found);
    }
    let (versions, _) = read(windlass, Some(name.clone()), VERSIONS_NAMED).await?;
    let Some(wanted) = wanted.filter(|_| !versions.is_empty()) else {
        return Err(unknown(windlass, &name).await?);
    };
    let versions = versions.iter().map(|it| it.definition.version().to_string());
    let versions = versions.collect::<Vec<_>>().join(", ");
    let what = format!("version {wanted} of workflow {:?} (there is {versions})", name.as_str());
    Err(windlass::Error::from(StoreError::NotFound(what)).into())
}

/// The error that there is no such workflow, with the names that are nearest.
pub(crate) async fn unknown(
    windlass: &Windlass,
    name: &WorkflowName,
) -> anyhow::Result<anyhow::Error> {
    let (all, _) = read(windlass, None, LOOKED_AT_MAX).await?;
    let what = format!("workflow {:?}", name.as_str());
    let names = all.iter().map(|it| it.definition.name().as_str());
    let near: Vec<String> =
        nearest(name.as_str(), names).iter().map(|name| format!("{name:?}")).collect();
    let what = match near.as_slice() {
        [] if all.is_empty() => {
            format!("{what} (there are no workflows: a worker registers them)")
        }
        [] => format!("{what} (see windlass workflows)"),
        near => format!("{what} (the nearest: {})", near.join(", ")),
    };
    Ok(windlass::Error::from(windlass::store::StoreError::NotFound(what)).into())
}

fn json(workflow: &WorkflowRecord) -> Value {
    let definition = &workflow.definition;
    let tasks = definition.tasks().iter().map(|task| task.name.to_string());
    json!({
        "name": definition.name(),
        "version": definition.version(),
        "tasks": tasks.collect::<Vec<_>>(),
        "registered_at": workflow.registered_at.to_string(),
    })
}

fn table(workflows: &[WorkflowRecord], now: Timestamp) -> String {
    if workflows.is_empty() {
        return "no workflows: a worker registers those that it has handlers for\n".to_owned();
    }
    let header = ["workflow", "version", "tasks", "registered"];
    let row = |workflow: &WorkflowRecord| {
        let definition = &workflow.definition;
        vec![
            shown(definition.name().as_str()),
            definition.version().to_string(),
            definition.tasks().len().to_string(),
            ago(Some(workflow.registered_at), now),
        ]
    };
    listing(&header, &[1, 2], workflows.iter().map(row))
}
