//! Server-sent events: lists that stay up to date.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::Event as SseEvent;
use futures_util::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::RunRecord;
use windlass::{RunId, RunState, Tenant, WorkflowName};

use super::App;
use super::extract::Query;
use super::live::Newest;
use super::model::dead::{LetterBody, LetterPageBody};
use super::model::queue::QueueListBody;
use super::model::run::{RunBody, StateWord};
use super::model::worker::{WorkerBody, WorkerPageBody};
use super::rooms::Held;
use super::streams::{StreamedEvent, answer, event};
use crate::identity::Identity;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(stream_runs))
        .routes(routes!(stream_queues))
        .routes(routes!(stream_workers))
        .routes(routes!(stream_dead_letters))
}

/// Which runs to watch.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct WatchQuery {
    /// Only runs of this workflow.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    workflow: Option<WorkflowName>,
    /// Only runs of this tenant.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    tenant: Option<Tenant>,
    /// Only runs in this state.
    #[param(inline)]
    state: Option<StateWord>,
}

/// What of a run makes it news.
type Print = (RunState, u32, u32);

/// Whoever watches the newest runs.
struct Watcher {
    newest: watch::Receiver<Newest<Vec<RunRecord>>>,
    query: WatchQuery,
    tenant: Option<Tenant>,
    known: HashMap<RunId, Print>,
    told: VecDeque<SseEvent>,
}

impl Watcher {
    fn wants(&self, run: &RunRecord) -> bool {
        let WatchQuery { workflow, state, .. } = &self.query;
        workflow.as_ref().is_none_or(|workflow| *workflow == run.workflow)
            && self.tenant.as_ref().is_none_or(|tenant| *tenant == run.tenant)
            && state.is_none_or(|state| RunState::from(state) == run.state)
    }

    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(next) = self.told.pop_front() {
                return Some(next);
            }
            self.newest.changed().await.ok()?;
            let Some(runs) = self.newest.borrow_and_update().clone() else { continue };
            let mut known = HashMap::new();
            for run in runs.iter().rev() {
                if !self.wants(run) {
                    continue;
                }
                let print = (run.state, run.round, run.open_tasks);
                if self.known.get(&run.id) != Some(&print) {
                    self.told.push_back(event("run", &RunBody::listed(run.clone())));
                }
                known.insert(run.id, print);
            }
            self.known = known;
        }
    }
}

/// The newest 200 runs, and each of them again when it changed: a `run` for each. The store is
/// asked once a second for all who watch.
#[utoipa::path(get, path = "/v1/runs/stream", tag = "runs", params(WatchQuery),
    responses((status = 200, description = "The stream.", content_type = "text/event-stream",
        body = StreamedEvent)),
)]
async fn stream_runs(
    State(app): State<App>,
    identity: Identity,
    held: Held,
    Query(query): Query<WatchQuery>,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, Problem> {
    let tenant = identity.looks_at(query.tenant.clone())?;
    let (known, told) = (HashMap::new(), VecDeque::new());
    let newest = app.live(&identity).runs.subscribe();
    let watcher = Watcher { newest, query, tenant, known, told };
    let events = stream::unfold((watcher, held), async |(mut watcher, held)| {
        let next = watcher.next().await?;
        Some((next, (watcher, held)))
    });
    Ok(answer(&app, &identity, events))
}

/// A list that is told whole when it has changed.
fn whole<T: Send + Sync + 'static, B: Serialize>(
    newest: watch::Receiver<Newest<T>>,
    held: Held,
    kind: &'static str,
    body: impl Fn(&T) -> B + Send + 'static,
) -> impl Stream<Item = SseEvent> + Send + 'static {
    let told = String::new();
    stream::unfold((newest, held, body, told), move |(mut newest, held, body, told)| async move {
        loop {
            newest.changed().await.ok()?;
            let Some(list) = newest.borrow_and_update().clone() else { continue };
            let text = serde_json::to_string(&body(&list)).unwrap_or_default();
            if text != told {
                let event = SseEvent::default().event(kind).data(&text);
                return Some((event, (newest, held, body, text)));
            }
        }
    })
}

/// What is in the queues, whenever that has changed: a `queues` for each look.
#[utoipa::path(get, path = "/v1/queues/stream", tag = "queues",
    responses((status = 200, description = "The stream.", content_type = "text/event-stream",
        body = StreamedEvent)),
)]
async fn stream_queues(
    State(app): State<App>,
    identity: Identity,
    held: Held,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, Problem> {
    let newest = app.live(&identity).queues.subscribe();
    let events = whole(newest, held, "queues", |queues| QueueListBody::from(queues.clone()));
    Ok(answer(&app, &identity, events))
}

/// The newest 200 workers that live, whenever they have changed: a `workers` for each look.
#[utoipa::path(get, path = "/v1/workers/stream", tag = "workers",
    responses((status = 200, description = "The stream.", content_type = "text/event-stream",
        body = StreamedEvent)),
)]
async fn stream_workers(
    State(app): State<App>,
    identity: Identity,
    held: Held,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, Problem> {
    let newest = app.live(&identity).workers.subscribe();
    let events = whole(newest, held, "workers", |workers| WorkerPageBody {
        workers: workers.iter().cloned().map(WorkerBody::from).collect(),
        next: None,
    });
    Ok(answer(&app, &identity, events))
}

/// Which dead letters to watch.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct LetterQuery {
    /// Only those of this workflow.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    workflow: Option<WorkflowName>,
    /// Only those of this tenant.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    tenant: Option<Tenant>,
}

/// Those of the newest 200 dead letters that are asked for, whenever they have changed: a
/// `letters` for each look.
#[utoipa::path(get, path = "/v1/dead-letters/stream", tag = "dead letters", params(LetterQuery),
    responses((status = 200, description = "The stream.", content_type = "text/event-stream",
        body = StreamedEvent)),
)]
async fn stream_dead_letters(
    State(app): State<App>,
    identity: Identity,
    held: Held,
    Query(query): Query<LetterQuery>,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, Problem> {
    let tenant = identity.looks_at(query.tenant)?;
    let newest = app.live(&identity).letters.subscribe();
    let events = whole(newest, held, "letters", move |letters| {
        let wanted = letters.iter().filter(|letter| {
            tenant.as_ref().is_none_or(|tenant| *tenant == letter.tenant)
                && query.workflow.as_ref().is_none_or(|workflow| *workflow == letter.workflow)
        });
        let letters = wanted.cloned().map(LetterBody::from).collect();
        LetterPageBody { letters, next: None }
    });
    Ok(answer(&app, &identity, events))
}
