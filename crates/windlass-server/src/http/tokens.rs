//! Who may use the server.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::{Action, NewToken, TokenCursor, TokenFilter};
use windlass::{ErrorKind, Role, Roles, TokenId};

use super::App;
use super::cursor::Cursor;
use super::extract::{Body, Id, Query};
use super::model::page_limit;
use super::model::token::{CreateToken, CreatedToken, TokenBody, TokenPageBody, TokenQuery};
use crate::identity::Identity;
use crate::problem::Problem;
use crate::token;

/// The longest time that a token is made for: a hundred years. One that is to hold longer has no end.
const EXPIRES_MAX: Duration = Duration::from_secs(36_500 * 86_400);

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list_tokens, create_token)).routes(routes!(revoke_token))
}

/// A token, in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "it is what the document says; `Id` reads it")]
struct TokenPath {
    /// The id of the token.
    #[param(pattern = "^[a-z2-7]{16}$")]
    token: String,
}

/// A page of tokens, the newest first. Their secrets are known to nobody but their owners.
#[utoipa::path(get, path = "/v1/tokens", tag = "tokens", params(TokenQuery),
    responses((status = 200, description = "The page.", body = TokenPageBody)),
)]
async fn list_tokens(
    identity: Identity,
    Query(query): Query<TokenQuery>,
) -> Result<Json<TokenPageBody>, Problem> {
    let filter = TokenFilter {
        tenant: identity.looks_at(query.tenant)?,
        after: Cursor::parse(query.cursor.as_deref())?,
        limit: page_limit(query.limit)?,
    };
    let page = identity.store().list_tokens(filter).await?;
    Ok(Json(TokenPageBody {
        tokens: page.tokens.into_iter().map(TokenBody::from).collect(),
        next: page.next.as_ref().map(TokenCursor::to_text),
    }))
}

/// Makes a token. Its text is in the answer and nowhere else.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", request_body = CreateToken,
    responses((status = 201, description = "The token, shown once.", body = CreatedToken)),
)]
async fn create_token(
    identity: Identity,
    Body(body): Body<CreateToken>,
) -> Result<(StatusCode, Json<CreatedToken>), Problem> {
    let roles = Roles::of(body.roles.into_iter().map(Role::from));
    let roles = roles.ok_or_else(|| Problem::field("roles", "there is none"))?;
    let expires_in = body.expires_in_ms.map(Duration::from_millis);
    if expires_in.is_some_and(|time| time.is_zero() || time > EXPIRES_MAX) {
        let why = format!("it is not within 1 and {}", EXPIRES_MAX.as_millis());
        return Err(Problem::field("expires_in_ms", why));
    }
    let expires_at = match expires_in {
        Some(time) => Some(identity.store().now().await? + time),
        None => None,
    };
    let made = token::mint(roles)
        .map_err(|error| Problem::new(ErrorKind::Unavailable, error.to_string()))?;
    let new = NewToken {
        id: made.id(),
        tag: token::tag_of(&made),
        name: body.name,
        roles,
        tenant: body.tenant.or_else(|| identity.tenant().cloned()),
        expires_at,
    };
    token::check_new(&identity, &new)?;
    let detail = token::detail(new.id, &new.name, new.roles);
    let noted = identity.note(Action::CreateToken, new.tenant.clone(), Some(detail)).await?;
    let record = noted.perform(identity.store().create_token(new)).await?.into();
    let token = made.text().expose().to_owned();
    Ok((StatusCode::CREATED, Json(CreatedToken { token, record })))
}

/// Lets a token hold no more: every server refuses it within five seconds, and closes what it has
/// open.
#[utoipa::path(delete, path = "/v1/tokens/{token}", tag = "tokens", params(TokenPath),
    responses((status = 200, description = "The token, which holds no more.", body = TokenBody)),
)]
async fn revoke_token(identity: Identity, Id(id): Id<TokenId>) -> Result<Json<TokenBody>, Problem> {
    let record = token::find(&identity, &**identity.store(), id).await?;
    let detail = token::detail(id, &record.name, record.roles);
    let noted = identity.note(Action::RevokeToken, record.tenant, Some(detail)).await?;
    let record = noted.perform(identity.store().revoke_token(id)).await?;
    identity.forget(id);
    Ok(Json(record.into()))
}
