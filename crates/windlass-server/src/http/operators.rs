//! What people do by hand: the log of it, how long runs are kept, shares of tenants.

use axum::Json;
use axum::http::StatusCode;
use serde_json::json;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::{Action, RetentionRule};
use windlass::{ErrorKind, RunState, Tenant};
use windlass_core::Weight;

use super::App;
use super::cursor::{Cursor as _, Number};
use super::extract::{Body, Name, Query};
use super::model::operator::{
    LogEntryBody, LogPageBody, LogQuery, RetentionBody, RetentionList, RetentionQuery,
    RetentionRow, WeightBody,
};
use crate::identity::Identity;
use crate::notes::About;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_log))
        .routes(routes!(list_retention, set_retention, clear_retention))
        .routes(routes!(set_weight))
}

/// A page of what operators did, the newest first.
#[utoipa::path(get, path = "/v1/log", tag = "operators", params(LogQuery),
    responses((status = 200, description = "The page.", body = LogPageBody)),
)]
async fn list_log(
    identity: Identity,
    Query(query): Query<LogQuery>,
) -> Result<Json<LogPageBody>, Problem> {
    let _turn = identity.begin_list().await?;
    let filter = query.filter()?;
    identity.may_search_by_author(filter.by.as_ref())?;
    let mut page = identity.store().list_log(filter).await?;
    identity.redact(&mut page.entries);
    let entries = page.entries.into_iter().map(LogEntryBody::from).collect();
    Ok(Json(LogPageBody { entries, next: page.next.map(|number| Number(number).to_text()) }))
}

/// How long runs are kept.
#[utoipa::path(get, path = "/v1/retention", tag = "operators",
    responses((status = 200, description = "All rules.", body = RetentionList)),
)]
async fn list_retention(identity: Identity) -> Result<Json<RetentionList>, Problem> {
    let rules = identity.store().list_retention().await?;
    Ok(Json(RetentionList { rules: rules.into_iter().map(RetentionRow::from).collect() }))
}

/// Sets how long runs are kept that ended in a state, in the place of the rule for the same.
#[utoipa::path(put, path = "/v1/retention", tag = "operators", request_body = RetentionBody,
    responses((status = 204, description = "The rule holds.")),
)]
async fn set_retention(
    identity: Identity,
    Body(body): Body<RetentionBody>,
) -> Result<StatusCode, Problem> {
    let rule = RetentionRule::from(body);
    rule.check().map_err(|why| Problem::new(ErrorKind::Argument, why))?;
    let noted = identity.note_retention(&rule).await?;
    noted.perform(identity.store().set_retention(rule)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes a rule of how long runs are kept.
#[utoipa::path(delete, path = "/v1/retention", tag = "operators", params(RetentionQuery),
    responses((status = 204, description = "There is no such rule any more.")),
)]
async fn clear_retention(
    identity: Identity,
    Query(query): Query<RetentionQuery>,
) -> Result<StatusCode, Problem> {
    let state = RunState::from(query.state);
    let detail = json!({ "workflow": &query.workflow, "state": state.word() });
    let noted = identity.note(Action::ClearRetention, About::all(), Some(detail)).await?;
    let what = format!("a rule for runs that are {state}");
    match noted.delete(&what, identity.store().clear_retention(query.workflow, state)).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found(what)),
    }
}

/// A tenant, in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "it is what the document says; `Name` reads it")]
struct TenantPath {
    /// The name of the tenant.
    #[param(min_length = 1, max_length = 200)]
    tenant: String,
}

/// Sets a tenant's share in all queues, for tasks that become ready from now.
#[utoipa::path(put, path = "/v1/tenants/{tenant}/weight", tag = "operators", params(TenantPath),
    request_body = WeightBody,
    responses((status = 204, description = "The share holds.")),
)]
async fn set_weight(
    identity: Identity,
    Name(tenant): Name,
    Body(WeightBody { weight }): Body<WeightBody>,
) -> Result<StatusCode, Problem> {
    let tenant = Tenant::new(&tenant)?;
    let share = Weight::new(weight);
    let wrong = || Problem::field("weight", format_args!("{weight} is not within 1 to 1000"));
    let share = share.ok_or_else(wrong)?;
    let detail = json!({ "weight": weight });
    let noted = identity.note(Action::SetWeight, tenant.clone(), Some(detail)).await?;
    noted.perform(identity.store().set_weight(tenant, share)).await?;
    Ok(StatusCode::NO_CONTENT)
}
