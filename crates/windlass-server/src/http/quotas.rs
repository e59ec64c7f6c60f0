//! How much tenants may ask for: what is set, and by whom.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::ErrorKind;
use windlass::store::{Action, Quota};

use super::App;
use super::extract::{Body, Query};
use super::model::quota::{QuotaBody, QuotaList, QuotaQuery};
use crate::identity::Identity;
use crate::notes::quota_of;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list_quotas, set_quota, clear_quota))
}

/// How much tenants may ask for.
#[utoipa::path(get, path = "/v1/quotas", tag = "operators",
    responses((status = 200, description = "All quotas.", body = QuotaList)),
)]
async fn list_quotas(identity: Identity) -> Result<Json<QuotaList>, Problem> {
    let quotas = identity.store().list_quotas().await?;
    Ok(Json(QuotaList { quotas: quotas.into_iter().map(QuotaBody::from).collect() }))
}

/// Sets how much a tenant may ask for, in the place of the quota that there is.
#[utoipa::path(put, path = "/v1/quotas", tag = "operators", request_body = QuotaBody,
    responses((status = 204, description = "The quota holds.")),
)]
async fn set_quota(
    State(app): State<App>,
    identity: Identity,
    Body(body): Body<QuotaBody>,
) -> Result<StatusCode, Problem> {
    let quota = Quota::from(body);
    quota.check().map_err(|why| Problem::new(ErrorKind::Argument, why))?;
    let noted = identity.note_quota(&quota).await?;
    noted.perform(identity.store().set_quota(quota)).await?;
    app.quotas().forget();
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes a quota.
#[utoipa::path(delete, path = "/v1/quotas", tag = "operators", params(QuotaQuery),
    responses((status = 204, description = "There is no such quota any more.")),
)]
async fn clear_quota(
    State(app): State<App>,
    identity: Identity,
    Query(QuotaQuery { tenant }): Query<QuotaQuery>,
) -> Result<StatusCode, Problem> {
    let noted = identity.note(Action::ClearQuota, tenant.clone(), None).await?;
    let what = quota_of(tenant.as_ref());
    let was_there = noted.delete(&what, identity.store().clear_quota(tenant)).await?;
    app.quotas().forget();
    match was_there {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found(what)),
    }
}
