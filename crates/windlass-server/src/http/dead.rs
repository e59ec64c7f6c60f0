//! Tasks that failed for good: look at them, let them go on, take them away.

use axum::Json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::ActionId;
use windlass::random::secure_bits;
use windlass::store::{DeadLetterCursor, Discard, Redrive};

use super::App;
use super::cursor::Cursor;
use super::extract::{Body, Query};
use super::model::dead::{
    DeadLetterQuery, DiscardBody, DiscardedBody, LetterBody, LetterPageBody, RedriveBody,
    RedrivenBody, batch_limit,
};
use super::model::page_limit;
use crate::identity::Identity;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_dead_letters))
        .routes(routes!(redrive_dead_letters))
        .routes(routes!(discard_dead_letters))
}

/// A page of dead letters, the newest first.
#[utoipa::path(get, path = "/v1/dead-letters", tag = "dead letters", params(DeadLetterQuery),
    responses((status = 200, description = "The page.", body = LetterPageBody)),
)]
async fn list_dead_letters(
    identity: Identity,
    Query(query): Query<DeadLetterQuery>,
) -> Result<Json<LetterPageBody>, Problem> {
    let after = Cursor::parse(query.cursor.as_deref())?;
    let limit = page_limit(query.limit)?;
    let _turn = identity.begin_list().await?;
    let page = identity.store().list_dead_letters(query.filter(&identity)?, after, limit).await?;
    Ok(Json(LetterPageBody {
        letters: page.letters.into_iter().map(LetterBody::from).collect(),
        next: page.next.as_ref().map(DeadLetterCursor::to_text),
    }))
}

/// Lets the runs of dead letters go on, the oldest first.
#[utoipa::path(post, path = "/v1/dead-letters/redrive", tag = "dead letters",
    request_body = RedriveBody,
    responses((status = 200, description = "What became of the batch.", body = RedrivenBody)),
)]
async fn redrive_dead_letters(
    identity: Identity,
    Body(body): Body<RedriveBody>,
) -> Result<Json<RedrivenBody>, Problem> {
    let id = body.id.unwrap_or_else(new_action);
    let redrive = Redrive {
        id,
        by: identity.author(),
        after: Cursor::parse(body.cursor.as_deref())?,
        limit: batch_limit(body.limit)?,
        pace: body.pace()?,
        filter: body.filter.filter(&identity)?,
    };
    Ok(Json(RedrivenBody::new(id, identity.store().redrive(redrive).await?)))
}

/// Takes dead letters away, the oldest first; their runs stay failed.
#[utoipa::path(post, path = "/v1/dead-letters/discard", tag = "dead letters",
    request_body = DiscardBody,
    responses((status = 200, description = "What became of the batch.", body = DiscardedBody)),
)]
async fn discard_dead_letters(
    identity: Identity,
    Body(body): Body<DiscardBody>,
) -> Result<Json<DiscardedBody>, Problem> {
    let id = body.id.unwrap_or_else(new_action);
    let discard = Discard {
        id,
        by: identity.author(),
        after: Cursor::parse(body.cursor.as_deref())?,
        limit: batch_limit(body.limit)?,
        filter: body.filter.filter(&identity)?,
    };
    Ok(Json(DiscardedBody::new(id, identity.store().discard(discard).await?)))
}

fn new_action() -> ActionId {
    ActionId::from_random(secure_bits())
}
