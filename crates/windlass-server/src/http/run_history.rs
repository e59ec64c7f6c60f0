//! What is known of a run: its tasks, what happened, what functions remember, why it stands.

use std::borrow::Cow;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{Object, RefOr};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::TaskRecord;
use windlass::{EventId, RunId, TaskName};
use windlass_core::{Call, TaskId, TaskIndex, Why};

use super::App;
use super::cursor::{Cursor, Number};
use super::extract::{Id, Query, TaskOfRun};
use super::model::event::{EventLine, EventPage};
use super::model::page_limit;
use super::model::run::{PageQuery, TaskBody, TaskPageBody};
use super::model::step::{StepBody, StepPage};
use super::runs::RunPath;
use crate::identity::Identity;
use crate::pages::PageReader;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_tasks))
        .routes(routes!(get_task))
        .routes(routes!(list_steps))
        .routes(routes!(list_events))
        .routes(routes!(why_run))
        .routes(routes!(why_task))
}

/// A run and one of its tasks, in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "it is what the document says; `TaskOfRun` reads it")]
struct TaskPath {
    /// The run.
    #[param(format = Uuid)]
    run: String,
    /// The name of the task.
    #[param(min_length = 1, max_length = 200)]
    task: String,
}

/// Why a run does not go on.
#[derive(Serialize)]
#[serde(transparent)]
struct WhyBody(Why);

fn object() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(
            "How a run stands and why it does not go on; docs/why.md has all reasons.",
        ))
        .build()
}

impl PartialSchema for WhyBody {
    fn schema() -> RefOr<Schema> {
        RefOr::T(Schema::Object(object()))
    }
}

impl ToSchema for WhyBody {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Why")
    }
}

/// The place where a page behind a number begins.
fn number(query: &PageQuery) -> Result<Option<u64>, Problem> {
    let place: Option<Number> = Cursor::parse(query.cursor.as_deref())?;
    Ok(place.map(|Number(number)| number))
}

/// The same where numbers are small.
fn small(query: &PageQuery) -> Result<Option<u32>, Problem> {
    let small = |number: u64| {
        let wrong = |_| Problem::field("cursor", format_args!("{number} is none of this list"));
        i32::try_from(number).map(i32::cast_unsigned).map_err(wrong)
    };
    number(query)?.map(small).transpose()
}

/// The tasks of a run, in the order of the definition.
#[utoipa::path(get, path = "/v1/runs/{run}/tasks", tag = "runs", params(RunPath, PageQuery),
    responses((status = 200, description = "The page.", body = TaskPageBody)),
)]
async fn list_tasks(
    State(app): State<App>,
    identity: Identity,
    Id(run): Id<RunId>,
    Query(query): Query<PageQuery>,
) -> Result<Json<TaskPageBody>, Problem> {
    let limit = page_limit(query.limit)?;
    let after = small(&query)?.map(TaskIndex);
    app.run(&identity, run).await?;
    let _turn = identity.begin_list().await?;
    let mut tasks = Vec::new();
    let mut page = PageReader::new(limit, app.payload_limit(), after);
    while let Some((after, limit)) = page.next_chunk() {
        let rows = identity.store().list_tasks(run, after, limit).await?;
        page.add(&rows, |task| task.index);
        tasks.extend(rows.into_iter().map(TaskBody::from));
    }
    let next = page.end().map(|index| Number(index.0.into()).to_text());
    Ok(Json(TaskPageBody { tasks, next }))
}

async fn find_task(
    app: &App,
    identity: &Identity,
    TaskOfRun(run, name): TaskOfRun,
) -> Result<TaskRecord, Problem> {
    app.run(identity, run).await?;
    let task = match TaskName::new(&name) {
        Ok(name) => identity.store().get_task(run, name).await?,
        Err(_) => None,
    };
    task.ok_or_else(|| Problem::not_found(format_args!("task {name:?} of run {run}")))
}

/// One task of a run.
#[utoipa::path(get, path = "/v1/runs/{run}/tasks/{task}", tag = "runs", params(TaskPath),
    responses((status = 200, description = "The task as it is.", body = TaskBody)),
)]
async fn get_task(
    State(app): State<App>,
    identity: Identity,
    task: TaskOfRun,
) -> Result<Json<TaskBody>, Problem> {
    Ok(Json(find_task(&app, &identity, task).await?.into()))
}

/// What is known of the calls of a task that is a durable function, in their order.
#[utoipa::path(get, path = "/v1/runs/{run}/tasks/{task}/steps", tag = "runs",
    params(TaskPath, PageQuery),
    responses((status = 200, description = "The page.", body = StepPage)),
)]
async fn list_steps(
    State(app): State<App>,
    identity: Identity,
    task: TaskOfRun,
    Query(query): Query<PageQuery>,
) -> Result<Json<StepPage>, Problem> {
    let limit = page_limit(query.limit)?;
    let after = small(&query)?.map(Call);
    let run = task.0;
    let index = find_task(&app, &identity, task).await?.index;
    let _turn = identity.begin_list().await?;
    let mut steps = Vec::new();
    let mut page = PageReader::new(limit, app.payload_limit(), after);
    while let Some((after, limit)) = page.next_chunk() {
        let rows = identity.store().list_steps(TaskId { run, index }, after, limit).await?;
        page.add(&rows, |step| step.call);
        steps.extend(rows.iter().map(StepBody::from));
    }
    let next = page.end().map(|call| Number(call.0.into()).to_text());
    Ok(Json(StepPage { steps, next }))
}

/// What happened to a run, the oldest first.
#[utoipa::path(get, path = "/v1/runs/{run}/events", tag = "runs", params(RunPath, PageQuery),
    responses((status = 200, description = "The page.", body = EventPage)),
)]
async fn list_events(
    State(app): State<App>,
    identity: Identity,
    Id(run): Id<RunId>,
    Query(query): Query<PageQuery>,
) -> Result<Json<EventPage>, Problem> {
    let limit = page_limit(query.limit)?;
    let after = number(&query)?.map(EventId);
    app.run(&identity, run).await?;
    let _turn = identity.begin_list().await?;
    let events = identity.store().list_events(run, after, limit).await?;
    let last = events.last().filter(|_| events.len() == limit);
    let next = last.map(|event| Number(event.id.0).to_text());
    Ok(Json(EventPage { events: events.iter().map(EventLine::from).collect(), next }))
}

/// Why a run does not go on, and what would change it.
#[utoipa::path(get, path = "/v1/runs/{run}/why", tag = "runs", params(RunPath),
    responses((status = 200, description = "How it stands.", body = WhyBody)),
)]
async fn why_run(
    State(app): State<App>,
    identity: Identity,
    Id(run): Id<RunId>,
) -> Result<Json<WhyBody>, Problem> {
    app.run(&identity, run).await?;
    let why = identity.store().why(run, None).await?;
    let missing = || Problem::not_found(format_args!("run {run}"));
    Ok(Json(WhyBody(why.ok_or_else(missing)?)))
}

/// Why one task of a run does not go on.
#[utoipa::path(get, path = "/v1/runs/{run}/tasks/{task}/why", tag = "runs", params(TaskPath),
    responses((status = 200, description = "How it stands.", body = WhyBody)),
)]
async fn why_task(
    State(app): State<App>,
    identity: Identity,
    TaskOfRun(run, name): TaskOfRun,
) -> Result<Json<WhyBody>, Problem> {
    app.run(&identity, run).await?;
    let why = match TaskName::new(&name) {
        Ok(name) => identity.store().why(run, Some(name)).await?,
        Err(_) => None,
    };
    let missing = || Problem::not_found(format_args!("task {name:?} of run {run}"));
    Ok(Json(WhyBody(why.ok_or_else(missing)?)))
}
