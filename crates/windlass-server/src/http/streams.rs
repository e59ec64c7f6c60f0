//! Server-sent events: what happens to a run, as it happens.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Sse;
use axum::response::sse::{Event as SseEvent, KeepAlive};
use futures_util::stream::{self, Stream, StreamExt as _};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::{Event, EventId, RunId};

use super::App;
use super::extract::{Id, Query};
use super::model::PAGE_MAX;
use super::model::event::EventLine;
use super::rooms::Held;
use super::runs::RunPath;
use crate::identity::Identity;
use crate::problem::Problem;

/// How often the history of a run is looked at, without and with a hint that a run ended.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
const HINT_PAUSE: Duration = Duration::from_millis(100);

/// How often a stream that has nothing to say says so.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(stream_events))
}

/// A stream that ends when the server does, or when the token of who reads it holds no more.
pub(super) fn answer<E: Stream<Item = SseEvent> + Send + 'static>(
    app: &App,
    identity: &Identity,
    events: E,
) -> Sse<impl Stream<Item = Result<SseEvent, Infallible>> + Send + 'static + use<E>> {
    let (ending, over) = (app.ending().clone(), identity.over());
    // Kept for as long as the stream: a token that has something open is looked up again.
    let identity = identity.clone();
    let ending = async move {
        tokio::select! {
            () = ending.cancelled_owned() => {}
            () = over.cancelled_owned() => {}
        }
        drop(identity);
    };
    Sse::new(events.take_until(Box::pin(ending)).map(Ok))
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

pub(super) fn event(kind: &str, data: &impl Serialize) -> SseEvent {
    let data = serde_json::to_string(data).unwrap_or_default();
    SseEvent::default().event(kind).data(data)
}

/// An event of a stream, as it is written there.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it is what the document says; the stream is text")]
pub(super) struct StreamedEvent {
    /// What it is: `event`, `end`, `run`, `queues`, `workers` or `letters`.
    event: String,
    /// What it says, as JSON.
    data: String,
    /// The id of an event of a run, to go on behind it.
    id: Option<String>,
}

/// Behind which event a stream begins.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct AfterQuery {
    /// Only events behind the one with this id; the header `Last-Event-ID` says the same.
    #[param(max_length = 19, pattern = "^[0-9]{1,18}$")]
    after: Option<String>,
}

/// The header with which a client goes on where its stream broke off.
struct LastEventId(Option<String>);

impl<S: Sync> FromRequestParts<S> for LastEventId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let value = parts.headers.get("last-event-id");
        let text = value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        Ok(LastEventId(text.filter(|text| !text.is_empty())))
    }
}

fn event_id(text: &str) -> Result<EventId, Problem> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse::<u64>().ok().filter(|number| i64::try_from(*number).is_ok());
    let number = number.filter(|_| is_number);
    number.map(EventId).ok_or_else(|| {
        let detail = format!("Last-Event-ID: {text:?} is not the id of an event");
        Problem::with_status(StatusCode::BAD_REQUEST, windlass::ErrorKind::Argument, detail)
    })
}

/// What happens to a run, as it happens: an `event` for each, with its id, and `end` when the run
/// has ended and everything was told.
#[utoipa::path(get, path = "/v1/runs/{run}/events/stream", tag = "runs",
    params(RunPath, AfterQuery, ("Last-Event-ID" = Option<String>, Header,
        pattern = "^[0-9]{0,18}$", description = "Go on behind the event with this id.")),
    responses((status = 200, description = "The stream.", content_type = "text/event-stream",
        body = StreamedEvent)),
)]
async fn stream_events(
    State(app): State<App>,
    identity: Identity,
    held: Held,
    Id(run): Id<RunId>,
    LastEventId(last): LastEventId,
    Query(query): Query<AfterQuery>,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, Problem> {
    let behind = query.after.as_deref().map(event_id).transpose()?;
    let after = last.as_deref().map(event_id).transpose()?.or(behind);
    app.run(&identity, run).await?;
    let follower =
        Follower { identity: identity.clone(), run, after, told: VecDeque::new(), is_over: false };
    let events = stream::unfold((follower, held), async |(mut follower, held)| {
        let next = follower.next().await?;
        Some((next, (follower, held)))
    });
    Ok(answer(&app, &identity, events))
}

/// Whoever reads the history of a run as it grows.
struct Follower {
    identity: Identity,
    run: RunId,
    after: Option<EventId>,
    told: VecDeque<Event>,
    is_over: bool,
}

impl Follower {
    async fn next(&mut self) -> Option<SseEvent> {
        if self.is_over {
            return None;
        }
        let mut hints = self.identity.store().run_hints();
        loop {
            if let Some(next) = self.told.pop_front() {
                return Some(event("event", &EventLine::from(&next)).id(next.id.to_string()));
            }
            hints.take();
            // A run that had ended before its history was read has nothing more to tell.
            let had_ended = match self.identity.store().get_run(self.run).await {
                Ok(Some(run)) => run.state.is_final(),
                Ok(None) => true,
                Err(_) => false,
            };
            let listed = self.identity.store().list_events(self.run, self.after, PAGE_MAX).await;
            match listed {
                Ok(events) if events.is_empty() && had_ended => {
                    self.is_over = true;
                    return Some(SseEvent::default().event("end").data("{}"));
                }
                Ok(events) if !events.is_empty() => {
                    self.after = events.last().map(|event| event.id);
                    self.told = events.into();
                    continue;
                }
                // One that cannot be read now is read the next time.
                Ok(_) | Err(_) => {}
            }
            tokio::time::sleep(HINT_PAUSE).await;
            tokio::select! {
                () = hints.changed() => {}
                () = tokio::time::sleep(LOOK_PAUSE - HINT_PAUSE) => {}
            }
        }
    }
}
