//! Workflows that are known: those that runs can be started of.

use axum::Json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::{WORKFLOWS_PAGE_MAX, WorkflowCursor, WorkflowFilter, WorkflowRecord};
use windlass::{Version, WorkflowName};

use super::App;
use super::cursor::Cursor;
use super::extract::Query;
use super::model::workflow::{WorkflowBody, WorkflowPageBody, WorkflowQuery};
use crate::identity::Identity;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list_workflows))
}

/// A page of the workflows that are known, by name and then the newest version first.
#[utoipa::path(get, path = "/v1/workflows", tag = "workflows", params(WorkflowQuery), responses(
    (status = 200, description = "The page.", body = WorkflowPageBody),
))]
async fn list_workflows(
    identity: Identity,
    Query(query): Query<WorkflowQuery>,
) -> Result<Json<WorkflowPageBody>, Problem> {
    let limit = query.limit.map_or(WORKFLOWS_PAGE_MAX, |limit| limit as usize);
    if !(1..=WORKFLOWS_PAGE_MAX).contains(&limit) {
        let why = format!("{limit} is not within 1 to {WORKFLOWS_PAGE_MAX}");
        return Err(Problem::field("limit", why));
    }
    let after = Cursor::parse(query.cursor.as_deref())?;
    let filter = WorkflowFilter { name: query.name, after, limit };
    let page = identity.store().list_workflows(filter).await?;
    Ok(Json(WorkflowPageBody {
        workflows: page.workflows.into_iter().map(WorkflowBody::from).collect(),
        next: page.next.as_ref().map(WorkflowCursor::to_text),
    }))
}

/// A version of a workflow, the newest if none is said.
pub(super) async fn find(
    identity: &Identity,
    name: &WorkflowName,
    version: Option<Version>,
) -> Result<WorkflowRecord, Problem> {
    // The list goes from the newest version to the oldest: behind the next there is this one.
    let behind = version.and_then(|version| Version::new(version.get().checked_add(1)?));
    let after = behind.map(|version| WorkflowCursor { name: name.clone(), version });
    let filter = WorkflowFilter { name: Some(name.clone()), after, limit: 1 };
    let found = identity.store().list_workflows(filter).await?.workflows.pop();
    let is_it =
        |it: &WorkflowRecord| version.is_none_or(|version| it.definition.version() == version);
    if let Some(found) = found.filter(is_it) {
        return Ok(found);
    }
    let what = match version {
        Some(version) => format!("workflow {name:?} version {version}"),
        None => format!("workflow {name:?}"),
    };
    let nearest = nearest(identity, name.as_str()).await?;
    let nearest = nearest.map(|known| format!("; did you mean {known:?}?")).unwrap_or_default();
    let detail = format!("{what} does not exist: no worker has registered it{nearest}");
    Err(Problem::new(windlass::ErrorKind::NotFound, detail))
}

/// Returns the registered name that is most like this one, if one is alike, among the first
/// thousand.
async fn nearest(identity: &Identity, name: &str) -> Result<Option<String>, Problem> {
    let filter = WorkflowFilter { name: None, after: None, limit: WORKFLOWS_PAGE_MAX };
    let page = identity.store().list_workflows(filter).await?;
    let names = page.workflows.iter().map(|it| it.definition.name().as_str());
    let others = names.filter(|known| *known != name);
    Ok(windlass::store::nearest(name, others).first().map(|known| (*known).to_owned()))
}
