//! Steer runs: cancel, retry, undo, signal.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::random::secure_bits;
use windlass::store::{Action, Mailbox, NewKeySignal, NewSignal, SIGNAL_KEPT};
use windlass::{ErrorKind, RunId, SignalId};

use super::App;
use super::extract::{Body, Id, MaybeBody};
use super::model::run::{
    CancelRun, RetriedRun, RetryRun, SendKeySignal, SendSignal, SentSignal, UndoneRun,
};
use super::runs::RunPath;
use crate::identity::Identity;
use crate::notes::About;
use crate::problem::Problem;

/// The most characters of the reason of a cancel.
const REASON_CHARS_MAX: usize = 1_000;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(cancel_run))
        .routes(routes!(retry_run))
        .routes(routes!(undo_run))
        .routes(routes!(signal_run))
        .routes(routes!(signal_key))
}

/// Cancels a run and all its tasks that have not ended.
#[utoipa::path(post, path = "/v1/runs/{run}/cancel", tag = "runs", params(RunPath),
    request_body = Option<CancelRun>,
    responses((status = 204, description = "It is cancelled, now or since before.")),
)]
async fn cancel_run(
    State(app): State<App>,
    identity: Identity,
    Id(run): Id<RunId>,
    MaybeBody(body): MaybeBody<Option<CancelRun>>,
) -> Result<StatusCode, Problem> {
    let reason = body.unwrap_or_default().reason;
    if let Some(reason) = &reason {
        if reason.chars().count() > REASON_CHARS_MAX {
            let why = format!("it has more than {REASON_CHARS_MAX} characters");
            return Err(Problem::field("reason", why));
        }
        if let Some(place) = reason.find('\0') {
            return Err(Problem::field("reason", format_args!("it has a NUL at byte {place}")));
        }
    }
    let tenant = app.run(&identity, run).await?.tenant;
    let detail = reason.as_ref().map(|reason| serde_json::json!({ "reason": reason }));
    let noted = identity.note(Action::CancelRun, About::run(tenant, run), detail).await?;
    noted.perform(identity.store().cancel_run(run, reason)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets a failed run go on: its failed tasks and what depends on them run again.
#[utoipa::path(post, path = "/v1/runs/{run}/retry", tag = "runs", params(RunPath),
    request_body = Option<RetryRun>,
    responses((status = 200, description = "The round that began.", body = RetriedRun)),
)]
async fn retry_run(
    State(app): State<App>,
    identity: Identity,
    Id(run): Id<RunId>,
    MaybeBody(body): MaybeBody<Option<RetryRun>>,
) -> Result<Json<RetriedRun>, Problem> {
    let record = app.run(&identity, run).await?;
    let round = body.unwrap_or_default().round.unwrap_or(record.round);
    if round == 0 || i32::try_from(round).is_err() {
        return Err(Problem::field("round", format_args!("{round} is not within 1 to 2147483647")));
    }
    let noted = identity.note(Action::RetryRun, About::run(record.tenant, run), None).await?;
    let round = noted.perform(identity.store().retry_run(run, round)).await?;
    Ok(Json(RetriedRun { round }))
}

/// Undoes what a run did: every step that says how, the last one first.
#[utoipa::path(post, path = "/v1/runs/{run}/undo", tag = "runs", params(RunPath),
    responses((status = 200, description = "The run that undoes it.", body = UndoneRun)),
)]
async fn undo_run(
    State(app): State<App>,
    identity: Identity,
    Id(run): Id<RunId>,
) -> Result<Json<UndoneRun>, Problem> {
    let tenant = app.run(&identity, run).await?.tenant;
    let noted = identity.note(Action::UndoRun, About::run(tenant, run), None).await?;
    Ok(Json(UndoneRun { by: noted.perform(identity.store().undo_run(run)).await? }))
}

/// Sends a signal to a run.
#[utoipa::path(post, path = "/v1/runs/{run}/signals", tag = "signals", params(RunPath),
    request_body = SendSignal,
    responses((status = 200, description = "It was sent.", body = SentSignal)),
)]
async fn signal_run(
    State(app): State<App>,
    identity: Identity,
    Id(run): Id<RunId>,
    Body(body): Body<SendSignal>,
) -> Result<Json<SentSignal>, Problem> {
    let value = body.value.to_payload("value", app.payload_limit())?;
    let record = app.run(&identity, run).await?;
    app.quotas().admit_signal(&identity, &record.tenant, &value).await?;
    let id = body.id.unwrap_or_else(new_signal);
    let noted = identity.note_signal(&record, id, &body.name).await?;
    let signal = NewSignal { id, run, name: body.name, value };
    noted.perform(identity.store().signal(signal)).await?;
    Ok(Json(SentSignal { id }))
}

/// Sends a signal to a key: the first function that asks for it gets it.
#[utoipa::path(post, path = "/v1/signals", tag = "signals", request_body = SendKeySignal,
    responses((status = 200, description = "It was sent.", body = SentSignal)),
)]
async fn signal_key(
    State(app): State<App>,
    identity: Identity,
    Body(body): Body<SendKeySignal>,
) -> Result<Json<SentSignal>, Problem> {
    let limit = app.payload_limit();
    let value = body.value.to_payload("value", limit)?;
    let tenant = identity.acts_for(body.tenant)?;
    app.quotas().admit_signal(&identity, &tenant, &value).await?;
    let id = body.id.unwrap_or_else(new_signal);
    let to = Mailbox { tenant, key: body.key, name: body.name };
    let keep_for = body.keep_for_ms.map_or(SIGNAL_KEPT, Duration::from_millis);
    let signal = NewKeySignal { id, to, value, keep_for };
    signal.check(limit).map_err(|why| Problem::new(ErrorKind::Argument, why))?;
    let noted = identity.note_key_signal(&signal).await?;
    noted.perform(identity.store().signal_key(signal)).await?;
    Ok(Json(SentSignal { id }))
}

fn new_signal() -> SignalId {
    SignalId::from_random(secure_bits())
}
