//! What is in the queues, and who does what by itself.

use axum::Json;
use axum::http::StatusCode;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::DutyName;
use windlass::store::Action;

use super::App;
use super::extract::Name;
use super::model::duty::{DutyBody, DutyList, LeaderBody, LeaderList};
use super::model::queue::QueueListBody;
use crate::identity::Identity;
use crate::notes::About;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_queues))
        .routes(routes!(list_leaders))
        .routes(routes!(list_duties))
        .routes(routes!(forget_duty))
}

/// What is in the queues, as of the last rollup.
#[utoipa::path(get, path = "/v1/queues", tag = "queues",
    responses((status = 200, description = "By queue and priority.", body = QueueListBody)),
)]
async fn list_queues(identity: Identity) -> Result<Json<QueueListBody>, Problem> {
    Ok(Json(identity.store().list_queues().await?.into()))
}

/// Who leads which background duty, and how it goes.
#[utoipa::path(get, path = "/v1/leaders", tag = "operators",
    responses((status = 200, description = "Each duty.", body = LeaderList)),
)]
async fn list_leaders(identity: Identity) -> Result<Json<LeaderList>, Problem> {
    let leaders = identity.store().list_leaders().await?;
    Ok(Json(LeaderList { leaders: leaders.into_iter().map(LeaderBody::from).collect() }))
}

/// The duties of programs, by name.
#[utoipa::path(get, path = "/v1/duties", tag = "operators",
    responses((status = 200, description = "Each duty.", body = DutyList)),
)]
async fn list_duties(identity: Identity) -> Result<Json<DutyList>, Problem> {
    let duties = identity.store().list_duties().await?;
    Ok(Json(DutyList { duties: duties.into_iter().map(DutyBody::from).collect() }))
}

/// A duty of a program, in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "it is what the document says; `Name` reads it")]
struct DutyPath {
    /// The name of the duty.
    #[param(min_length = 1, max_length = 200)]
    duty: String,
}

/// Forgets a duty that no program declares any more.
#[utoipa::path(delete, path = "/v1/duties/{duty}", tag = "operators", params(DutyPath),
    responses((status = 204, description = "It is forgotten.")),
)]
async fn forget_duty(identity: Identity, Name(name): Name) -> Result<StatusCode, Problem> {
    let duty = DutyName::new(&name)?;
    let detail = serde_json::json!({ "duty": &duty });
    let noted = identity.note(Action::ForgetDuty, About::all(), Some(detail)).await?;
    let what = format!("duty {name:?}");
    match noted.delete(&what, identity.store().forget_duty(duty)).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found(what)),
    }
}
