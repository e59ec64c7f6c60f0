//! What starts runs by itself.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::{Action, Backfilled, ScheduleFilter, ScheduleKey};
use windlass::{ScheduleName, Tenant};

use super::cursor::Cursor;
use super::extract::{Body, Name, Query};
use super::model::page_limit;
use super::model::run::StartedBody;
use super::model::schedule::{
    BackfillSchedule, BackfilledBody, FireBody, FireList, FireQuery, PutSchedule, ScheduleBody,
    SchedulePageBody, ScheduleQuery, TenantQuery, UnreadableBody,
};
use super::{App, workflows};
use crate::identity::Identity;
use crate::pages::PageReader;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_schedules))
        .routes(routes!(get_schedule, put_schedule, delete_schedule))
        .routes(routes!(pause_schedule))
        .routes(routes!(resume_schedule))
        .routes(routes!(trigger_schedule))
        .routes(routes!(backfill_schedule))
        .routes(routes!(list_fires))
}

/// A schedule, in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "it is what the document says; `Name` reads it")]
struct SchedulePath {
    /// The name of the schedule.
    #[param(min_length = 1, max_length = 200)]
    schedule: String,
}

fn key(identity: &Identity, tenant: Option<Tenant>, name: &str) -> Result<ScheduleKey, Problem> {
    Ok(ScheduleKey { tenant: identity.acts_for(tenant)?, name: ScheduleName::new(name)? })
}

/// A page of schedules, by tenant and name.
#[utoipa::path(get, path = "/v1/schedules", tag = "schedules", params(ScheduleQuery),
    responses((status = 200, description = "The page.", body = SchedulePageBody)),
)]
async fn list_schedules(
    State(app): State<App>,
    identity: Identity,
    Query(query): Query<ScheduleQuery>,
) -> Result<Json<SchedulePageBody>, Problem> {
    let tenant = identity.looks_at(query.tenant)?;
    let (after, limit) = (Cursor::parse(query.cursor.as_deref())?, page_limit(query.limit)?);
    let _turn = identity.begin_list().await?;
    let (mut schedules, mut unreadable) = (Vec::new(), Vec::new());
    let mut reader = PageReader::new(limit, app.payload_limit(), after);
    while let Some((after, limit)) = reader.next_chunk() {
        let filter = ScheduleFilter { tenant: tenant.clone(), after, limit };
        let page = identity.store().list_schedules(filter).await?;
        reader.add_with_next(&page.schedules, page.next);
        schedules.extend(page.schedules.into_iter().map(ScheduleBody::from));
        unreadable.extend(page.unreadable.into_iter().map(UnreadableBody::from));
    }
    let next = reader.end().as_ref().map(ScheduleKey::to_text);
    Ok(Json(SchedulePageBody { schedules, unreadable, next }))
}

/// One schedule.
#[utoipa::path(get, path = "/v1/schedules/{schedule}", tag = "schedules",
    params(SchedulePath, TenantQuery),
    responses((status = 200, description = "The schedule as it is.", body = ScheduleBody)),
)]
async fn get_schedule(
    identity: Identity,
    Name(name): Name,
    Query(query): Query<TenantQuery>,
) -> Result<Json<ScheduleBody>, Problem> {
    let key = key(&identity, query.tenant, &name)?;
    Ok(Json(identity.find_schedule(&key).await?.into()))
}

/// Makes a schedule, or makes the one of this name another.
#[utoipa::path(put, path = "/v1/schedules/{schedule}", tag = "schedules",
    params(SchedulePath, TenantQuery), request_body = PutSchedule,
    responses((status = 200, description = "The schedule as it is now.", body = ScheduleBody)),
)]
async fn put_schedule(
    State(app): State<App>,
    identity: Identity,
    Name(name): Name,
    Query(query): Query<TenantQuery>,
    Body(body): Body<PutSchedule>,
) -> Result<Json<ScheduleBody>, Problem> {
    let key = key(&identity, query.tenant, &name)?;
    let version = match body.version {
        Some(version) => version,
        None => workflows::find(&identity, &body.workflow, None).await?.definition.version(),
    };
    let mut schedule = body.build(key.clone(), version, app.payload_limit())?;
    identity.own_schedule(&mut schedule).await?;
    let _turn = app.quotas().admit_schedule(&identity, &schedule).await?;
    let noted = identity.note_put(&schedule).await?;
    Ok(Json(noted.perform(identity.store().put_schedule(schedule)).await?.into()))
}

/// Deletes a schedule with its history; its runs stay. One that is not there stays so.
#[utoipa::path(delete, path = "/v1/schedules/{schedule}", tag = "schedules",
    params(SchedulePath, TenantQuery),
    responses((status = 204, description = "It is not there.")),
)]
async fn delete_schedule(
    identity: Identity,
    Name(name): Name,
    Query(query): Query<TenantQuery>,
) -> Result<StatusCode, Problem> {
    let key = key(&identity, query.tenant, &name)?;
    if identity.store().get_schedule(key.clone()).await?.is_some() {
        let noted = identity.note_schedule(Action::DeleteSchedule, &key).await?;
        noted.perform(identity.store().delete_schedule(key)).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Lets a schedule not fire until it is resumed.
#[utoipa::path(post, path = "/v1/schedules/{schedule}/pause", tag = "schedules",
    params(SchedulePath, TenantQuery),
    responses((status = 204, description = "It is paused.")),
)]
async fn pause_schedule(
    identity: Identity,
    Name(name): Name,
    Query(query): Query<TenantQuery>,
) -> Result<StatusCode, Problem> {
    let key = key(&identity, query.tenant, &name)?;
    identity.find_schedule(&key).await?;
    let noted = identity.note_schedule(Action::PauseSchedule, &key).await?;
    noted.perform(identity.store().pause_schedule(key)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets a schedule fire again, from now on.
#[utoipa::path(post, path = "/v1/schedules/{schedule}/resume", tag = "schedules",
    params(SchedulePath, TenantQuery),
    responses((status = 204, description = "It is active.")),
)]
async fn resume_schedule(
    identity: Identity,
    Name(name): Name,
    Query(query): Query<TenantQuery>,
) -> Result<StatusCode, Problem> {
    let key = key(&identity, query.tenant, &name)?;
    identity.find_schedule(&key).await?;
    let noted = identity.note_schedule(Action::ResumeSchedule, &key).await?;
    noted.perform(identity.store().resume_schedule(key)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Starts a run of a schedule now, whatever is under way.
#[utoipa::path(post, path = "/v1/schedules/{schedule}/trigger", tag = "schedules",
    params(SchedulePath, TenantQuery),
    responses((status = 200, description = "The run.", body = StartedBody)),
)]
async fn trigger_schedule(
    State(app): State<App>,
    identity: Identity,
    Name(name): Name,
    Query(query): Query<TenantQuery>,
) -> Result<Json<StartedBody>, Problem> {
    let key = key(&identity, query.tenant, &name)?;
    let schedule = identity.find_schedule(&key).await?.schedule;
    let _admitted = app.quotas().admit_fires(&identity, &schedule, 1).await?;
    let noted = identity.note_schedule(Action::TriggerSchedule, &key).await?;
    let run = app.windlass().new_run_id();
    Ok(Json(noted.perform(identity.store().trigger_schedule(key, run)).await?.into()))
}

/// Starts runs for times that are past and have none.
#[utoipa::path(post, path = "/v1/schedules/{schedule}/backfill", tag = "schedules",
    params(SchedulePath, TenantQuery), request_body = BackfillSchedule,
    responses((status = 200, description = "What it did.", body = BackfilledBody)),
)]
async fn backfill_schedule(
    State(app): State<App>,
    identity: Identity,
    Name(name): Name,
    Query(query): Query<TenantQuery>,
    Body(BackfillSchedule { from, until }): Body<BackfillSchedule>,
) -> Result<Json<BackfilledBody>, Problem> {
    let key = key(&identity, query.tenant, &name)?;
    let (from, until) = (from.0, until.0);
    let record = identity.find_schedule(&key).await?;
    let count = record.past(from, until, identity.store().now().await?)?.len();
    let _admitted = app.quotas().admit_fires(&identity, &record.schedule, count).await?;
    let noted = identity.note_backfill(&key, from, until).await?;
    let Backfilled { started, existing } =
        noted.perform(identity.store().backfill_schedule(key, from, until)).await?;
    Ok(Json(BackfilledBody { started, existing }))
}

/// What became of the times of a schedule, the newest first.
#[utoipa::path(get, path = "/v1/schedules/{schedule}/fires", tag = "schedules",
    params(SchedulePath, FireQuery),
    responses((status = 200, description = "The newest lines of its history.", body = FireList)),
)]
async fn list_fires(
    identity: Identity,
    Name(name): Name,
    Query(query): Query<FireQuery>,
) -> Result<Json<FireList>, Problem> {
    let key = key(&identity, query.tenant, &name)?;
    let max = windlass::store::FIRES_KEPT;
    let limit = page_limit(query.limit)?;
    if limit > max {
        return Err(Problem::field("limit", format_args!("{limit} is over the limit of {max}")));
    }
    identity.find_schedule(&key).await?;
    let fires = identity.store().list_fires(key, limit).await?;
    Ok(Json(FireList { fires: fires.into_iter().map(FireBody::from).collect() }))
}
