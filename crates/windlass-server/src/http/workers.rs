//! Who works: the registry, and how workers come and go.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::WorkerId;
use windlass::random::secure_bits;
use windlass::store::{Hello, WorkerCursor, WorkerFilter};

use super::App;
use super::cursor::Cursor;
use super::extract::{Body, Id, Query};
use super::model::claim::{JoinWorker, JoinedWorker};
use super::model::page_limit;
use super::model::worker::{WorkerBody, WorkerPageBody, WorkerQuery};
use crate::identity::Identity;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_workers, join_worker))
        .routes(routes!(drain_worker))
        .routes(routes!(leave_worker))
}

/// A worker, in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "it is what the document says; `Id` reads it")]
pub(super) struct WorkerPath {
    /// The worker, as its join answered.
    #[param(format = Uuid)]
    worker: String,
}

/// A page of workers, the newest first.
#[utoipa::path(get, path = "/v1/workers", tag = "workers", params(WorkerQuery),
    responses((status = 200, description = "The page.", body = WorkerPageBody)),
)]
async fn list_workers(
    identity: Identity,
    Query(query): Query<WorkerQuery>,
) -> Result<Json<WorkerPageBody>, Problem> {
    let filter = WorkerFilter {
        with_dead: query.with_dead.unwrap_or(false),
        after: Cursor::parse(query.cursor.as_deref())?,
        limit: page_limit(query.limit)?,
    };
    let page = identity.store().list_workers(filter).await?;
    Ok(Json(WorkerPageBody {
        workers: page.workers.into_iter().map(WorkerBody::from).collect(),
        next: page.next.as_ref().map(WorkerCursor::to_text),
    }))
}

/// Begins a worker's life, and makes its workflows known.
#[utoipa::path(post, path = "/v1/workers", tag = "workers", request_body = JoinWorker,
    responses((status = 201, description = "It has joined.", body = JoinedWorker)),
)]
async fn join_worker(
    State(app): State<App>,
    identity: Identity,
    Body(body): Body<JoinWorker>,
) -> Result<(StatusCode, Json<JoinedWorker>), Problem> {
    let info = body.info()?;
    let definitions = body.workflows.into_iter().map(|workflow| workflow.build());
    let id = WorkerId::from_random(secure_bits());
    let hello = Hello {
        worker: id,
        name: body.name.to_string(),
        slots: body.slots,
        lease: Duration::from_millis(body.lease_ms),
        definitions: definitions.collect::<Result<_, _>>()?,
        info,
    };
    let joining = app.workers().join(&identity, id, hello.lease, false)?;
    let noted = identity.note_workflows(&hello.definitions).await?;
    noted.perform(identity.store().join(hello)).await?;
    joining.joined();
    let lease_ms = body.lease_ms;
    let joined = JoinedWorker { id, lease_ms, heartbeat_ms: lease_ms / 3 };
    Ok((StatusCode::CREATED, Json(joined)))
}

/// Drains a worker: the answer to its next heartbeat says `should_drain`, and it claims nothing more.
#[utoipa::path(post, path = "/v1/workers/{worker}/drain", tag = "workers", params(WorkerPath),
    responses((status = 204, description = "It drains.")),
)]
async fn drain_worker(identity: Identity, Id(worker): Id<WorkerId>) -> Result<StatusCode, Problem> {
    identity.store().begin_drain(worker).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends a worker's life: what it still holds goes back to the queues.
#[utoipa::path(delete, path = "/v1/workers/{worker}", tag = "workers", params(WorkerPath),
    responses((status = 204, description = "It has left.")),
)]
async fn leave_worker(
    State(app): State<App>,
    identity: Identity,
    Id(worker): Id<WorkerId>,
) -> Result<StatusCode, Problem> {
    identity.store().leave(worker).await?;
    app.workers().leave(&identity, worker);
    Ok(StatusCode::NO_CONTENT)
}
