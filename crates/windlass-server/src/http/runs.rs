//! Start runs, find them, wait for them.

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::RunCursor;
use windlass::{RunId, Version, WorkflowName};

use super::App;
use super::cursor::Cursor as _;
use super::extract::{Body, Id, Query};
use super::model::check_items;
use super::model::run::{
    ArchivedBody, RunBody, RunPageBody, RunQuery, StartAnswer, StartRun, StartRuns, StartedBody,
    StartedRuns, WaitQuery,
};
use super::rooms::Held;
use super::workflows;
use crate::identity::Identity;
use crate::problem::Problem;

/// How long a wait for the end of a run takes if nothing is said, and at most.
const WAIT_MS_DEFAULT: u64 = 10_000;
const WAIT_MS_MAX: u64 = 30_000;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_runs, start_run))
        .routes(routes!(start_runs))
        .routes(routes!(get_run))
        .routes(routes!(wait_for_run))
        .routes(routes!(get_archived_run))
}

/// A run, in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "it is what the document says; `Id` reads it")]
pub(super) struct RunPath {
    /// The run.
    #[param(format = Uuid)]
    run: String,
}

/// The newest versions of workflows, each looked for once.
#[derive(Default)]
struct Newest(HashMap<WorkflowName, Result<Version, Problem>>);

impl Newest {
    /// The version that a start names, or the newest.
    async fn version_of(
        &mut self,
        identity: &Identity,
        start: &StartRun,
    ) -> Result<Version, Problem> {
        if let Some(version) = start.version {
            return Ok(version);
        }
        if let Some(known) = self.0.get(&start.workflow) {
            return known.clone();
        }
        let found = workflows::find(identity, &start.workflow, None).await;
        let version = found.map(|found| found.definition.version());
        self.0.insert(start.workflow.clone(), version.clone());
        version
    }
}

/// Starts a run of a workflow.
#[utoipa::path(post, path = "/v1/runs", tag = "runs", request_body = StartRun, responses(
    (status = 201, description = "The run was started.", body = StartedBody),
    (status = 200, description = "The run was there already, by its key or id.", body = StartedBody),
))]
async fn start_run(
    State(app): State<App>,
    identity: Identity,
    Body(start): Body<StartRun>,
) -> Result<(StatusCode, Json<StartedBody>), Problem> {
    let is_fresh = start.id.is_none();
    app.quotas().check(&identity.acts_for(start.tenant.clone())?).await?;
    let id = || app.windlass().new_run_id();
    let version = Newest::default().version_of(&identity, &start).await?;
    let run = start.into_new_run(&identity, app.payload_limit(), version, id)?;
    let _admitted = app.quotas().admit_start(&identity, &run).await?;
    let started = app.windlass_of(&identity).start_new(run, is_fresh).await?;
    let status = if started.is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(started.into())))
}

/// Starts many runs, each judged alone.
#[utoipa::path(post, path = "/v1/run-batches", tag = "runs", request_body = StartRuns, responses(
    (status = 200, description = "What became of each start, in their order.", body = StartedRuns),
))]
async fn start_runs(
    State(app): State<App>,
    identity: Identity,
    Body(StartRuns { runs }): Body<StartRuns>,
) -> Result<Json<StartedRuns>, Problem> {
    check_items("runs", runs.len())?;
    let limit = app.payload_limit();
    let mut answers = Vec::with_capacity(runs.len());
    let mut batch = Vec::with_capacity(runs.len());
    let mut newest = Newest::default();
    let mut admitted = Vec::new();
    for start in runs {
        let run = newest.version_of(&identity, &start).await.and_then(|version| {
            start.into_new_run(&identity, limit, version, || app.windlass().new_run_id())
        });
        let run = match run {
            Ok(run) => app.quotas().admit_start(&identity, &run).await.map(|one| (one, run)),
            Err(problem) => {
                answers.push(Some(problem));
                continue;
            }
        };
        match run {
            Ok((one, run)) => {
                answers.push(None);
                admitted.extend(one);
                batch.push(run);
            }
            Err(excess) => answers.push(Some(excess.into())),
        }
    }
    let mut started = app.windlass_of(&identity).start_all_new(batch).await?.into_iter();
    let answer = |refused: Option<Problem>| match refused {
        Some(problem) => StartAnswer::Problem(problem.body()),
        None => match started.next() {
            Some(Ok(started)) => StartAnswer::Started(started.into()),
            Some(Err(error)) => StartAnswer::Problem(Problem::from(error).body()),
            None => {
                let text = "the store left a start unanswered";
                StartAnswer::Problem(Problem::new(windlass::ErrorKind::Corrupt, text).body())
            }
        },
    };
    Ok(Json(StartedRuns { runs: answers.into_iter().map(answer).collect() }))
}

/// A page of runs, the newest first.
#[utoipa::path(get, path = "/v1/runs", tag = "runs", params(RunQuery), responses(
    (status = 200, description = "The page.", body = RunPageBody),
))]
async fn list_runs(
    identity: Identity,
    Query(query): Query<RunQuery>,
) -> Result<Json<RunPageBody>, Problem> {
    let _turn = identity.begin_list().await?;
    let page = identity.store().list_runs(query.filter(&identity)?).await?;
    let runs = page.runs.into_iter().map(RunBody::listed).collect();
    Ok(Json(RunPageBody { runs, next: page.next.as_ref().map(RunCursor::to_text) }))
}

/// One run.
#[utoipa::path(get, path = "/v1/runs/{run}", tag = "runs", params(RunPath), responses(
    (status = 200, description = "The run as it is.", body = RunBody),
))]
async fn get_run(
    State(app): State<App>,
    identity: Identity,
    Id(run): Id<RunId>,
) -> Result<Json<RunBody>, Problem> {
    Ok(Json(app.run(&identity, run).await?.into()))
}

/// Waits until a run has ended, or for as long as is said, and answers how it is then.
#[utoipa::path(get, path = "/v1/runs/{run}/wait", tag = "runs", params(RunPath, WaitQuery), responses(
    (status = 200, description = "The run; its state says whether it has ended.", body = RunBody),
))]
async fn wait_for_run(
    State(app): State<App>,
    identity: Identity,
    _held: Held,
    Id(run): Id<RunId>,
    Query(query): Query<WaitQuery>,
) -> Result<Json<RunBody>, Problem> {
    let time = query.timeout_ms.unwrap_or(WAIT_MS_DEFAULT);
    if time > WAIT_MS_MAX {
        let why = format!("{time} is over the limit of {WAIT_MS_MAX}");
        return Err(Problem::field("timeout_ms", why));
    }
    app.run(&identity, run).await?;
    let waiting = app.windlass_of(&identity).run(run);
    tokio::select! {
        ended = waiting.wait() => Ok(Json(ended?.into())),
        () = tokio::time::sleep(Duration::from_millis(time)) => {
            Ok(Json(app.run(&identity, run).await?.into()))
        }
        () = app.ending().cancelled() => Ok(Json(app.run(&identity, run).await?.into())),
    }
}

/// A run that is gone and was archived.
#[utoipa::path(get, path = "/v1/archived-runs/{run}", tag = "runs", params(RunPath), responses(
    (status = 200, description = "What was known of it.", body = ArchivedBody),
))]
async fn get_archived_run(
    identity: Identity,
    Id(run): Id<RunId>,
) -> Result<Json<ArchivedBody>, Problem> {
    let archived = identity.store().get_archived_run(run).await?;
    let archived = archived.filter(|archived| identity.sees(&archived.tenant));
    let missing = || Problem::not_found(format_args!("archived run {run}"));
    Ok(Json(archived.ok_or_else(missing)?.into()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::http::Request;
    use windlass::store::{MemoryStore, NewToken, TokenStore as _};
    use windlass::{Operator, Role};

    use super::*;
    use crate::identity::{Access, Door};
    use crate::rights::{Need, Reach, Right};
    use crate::token::{mint, tag_of};

    #[tokio::test(start_paused = true)]
    async fn a_token_with_too_many_lists_in_progress_is_told_to_wait() {
        let store = Arc::new(MemoryStore::new());
        let token = mint(Role::Viewer.into()).unwrap();
        let (id, tag, roles) = (token.id(), tag_of(&token), Role::Viewer.into());
        let name = Operator::new("anna").unwrap();
        let new = NewToken { id, tag, name, roles, tenant: None, expires_at: None };
        store.create_token(new).await.unwrap();
        let door = Door::new(Access::tokens(), store);
        let bearer = format!("Bearer {}", token.text().expose());
        let request = Request::builder().header("authorization", bearer).body(()).unwrap();
        let need = Need { right: Right::Read, reach: Reach::Tenant };
        let identity = door.identify(&request.into_parts().0, need).await.unwrap();
        let list = async || list_runs(identity.clone(), Query(RunQuery::default())).await;
        let turns = [identity.begin_list().await.unwrap(), identity.begin_list().await.unwrap()];
        let problem = list().await.expect_err("it is over the limit");
        assert_eq!(problem.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(problem.detail().contains("wait for an answer"), "{}", problem.detail());
        drop(turns);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(list().await.is_ok());
    }
}
