//! How the server is.

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::extract::Name;
use crate::problem::Problem;
use crate::readiness;

/// The type of what Prometheus reads.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(healthz))
        .routes(routes!(readyz))
        .routes(routes!(metrics))
        .routes(routes!(error_page))
}

/// How the server is.
#[derive(Serialize, ToSchema)]
struct Health {
    /// In a word.
    #[schema(value_type = String)]
    state: &'static str,
}

/// Whether the server answers.
#[utoipa::path(get, path = "/healthz", tag = "system",
    responses((status = 200, description = "It does.", body = Health)),
)]
async fn healthz() -> Json<Health> {
    Json(Health { state: "live" })
}

/// Whether requests had better be sent here: the store answers, and the server does not end.
#[utoipa::path(get, path = "/readyz", tag = "system",
    responses((status = 200, description = "They may.", body = Health)),
)]
async fn readyz(State(app): State<App>) -> Result<Json<Health>, Problem> {
    readiness::check(&**app.store(), app.ending()).await?;
    Ok(Json(Health { state: "ready" }))
}

/// An error code, in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "it is what the document says; `Name` reads it")]
struct CodePath {
    /// The code, such as `WL-0004`.
    #[param(pattern = "^WL-[0-9]{4}$")]
    code: String,
}

/// Returns the page of an error code, as Markdown: what the `type` of a problem refers to.
#[utoipa::path(get, path = "/errors/{code}", tag = "system", params(CodePath),
    responses((status = 200, description = "The page.", content_type = "text/markdown",
        body = String)),
)]
async fn error_page(Name(code): Name) -> Result<impl IntoResponse, Problem> {
    let page = PAGES.iter().find(|(of, _)| *of == code);
    let (_, page) = page.ok_or_else(|| Problem::not_found(format_args!("error code {code:?}")))?;
    Ok(([(CONTENT_TYPE, "text/markdown; charset=utf-8")], *page))
}

macro_rules! pages {
    ($($code:literal),* $(,)?) => {
        [$(($code, include_str!(concat!("../../../../docs/errors/", $code, ".md")))),*]
    };
}

/// The pages of docs/errors.
static PAGES: [(&str, &str); 16] = pages![
    "WL-0001", "WL-0002", "WL-0003", "WL-0004", "WL-0005", "WL-0006", "WL-0007", "WL-0008",
    "WL-0009", "WL-0010", "WL-0011", "WL-0012", "WL-0013", "WL-0014", "WL-0015", "WL-0016",
];

/// What was done and what is in the queues, for Prometheus; see docs/metrics.md.
#[utoipa::path(get, path = "/metrics", tag = "system",
    responses((status = 200, description = "The metrics.", content_type = "text/plain",
        body = String)),
)]
async fn metrics(State(app): State<App>) -> impl IntoResponse {
    let text = app.windlass().metrics().await + &app.refusals().text() + &app.claim_scans_text();
    ([(CONTENT_TYPE, TEXT_FORMAT)], text)
}
