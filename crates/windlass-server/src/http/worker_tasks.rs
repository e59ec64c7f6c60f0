//! What workers without gRPC say of tasks: long polls that map one to one to the verbs of
//! [`WorkerLink`](windlass::store::WorkerLink).
//!
//! The server keeps nothing of a worker: what it needs is in each request, so that a worker does
//! not notice when the server is started again, and may talk to any of several.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use tokio::sync::oneshot;
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::WorkerId;
use windlass::store::{
    Checkpoint, ClaimRequest, Claimed, Completion, HandlerKey, Heartbeat, ProgressNote, Recording,
    Release,
};
use windlass_core::{ClaimSeq, decide};

use super::App;
use super::extract::{Body, Id};
use super::model::claim::{
    CLAIM_MAX, CheckpointTasks, ClaimTasks, ClaimedBody, ClaimedTasks, FinishTasks,
    HeartbeatAnswerBody, HeartbeatBody, LostTask, RecordSteps, ReleaseTasks, TaskAnswers,
    WAIT_MS_MAX,
};
use super::model::{ITEMS_MAX, check_items};
use super::rooms::Held;
use super::token::Token;
use super::workers::WorkerPath;
use crate::grpc::{Kind, Wake};
use crate::identity::Identity;
use crate::problem::Problem;

/// How long a held claim waits before it looks again where hints of other processes are not heard.
const POLL_DEAF: Duration = Duration::from_millis(250);

/// The shortest pause between two looks of one claim, whatever is hinted.
const PAUSE_MIN: Duration = Duration::from_millis(2);

/// The most looks of one claim. Each has a number of its own for the store, behind that of the
/// claim; what is beyond would be that of the next claim.
const LOOKS_MAX: u64 = 1 << 16;

/// The most tasks that a worker says it holds.
const HELD_TASKS_MAX: usize = 10_000;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(claim_tasks))
        .routes(routes!(finish_tasks))
        .routes(routes!(release_tasks))
        .routes(routes!(checkpoint_tasks))
        .routes(routes!(record_steps))
        .routes(routes!(heartbeat))
}

/// The number of a look of a claim, for the store.
fn seq(claim: u64, look: u64) -> ClaimSeq {
    ClaimSeq(claim * LOOKS_MAX + look)
}

/// Leases ready tasks to a worker; held until there are some, or for as long as is said.
#[utoipa::path(post, path = "/v1/workers/{worker}/claim", tag = "workers", params(WorkerPath),
    request_body = ClaimTasks,
    responses((status = 200, description = "The tasks.", body = ClaimedTasks)),
)]
async fn claim_tasks(
    State(app): State<App>,
    identity: Identity,
    _held: Held,
    Id(worker): Id<WorkerId>,
    Body(body): Body<ClaimTasks>,
) -> Result<Json<ClaimedTasks>, Problem> {
    check_items("queues", body.queues.len())?;
    check_items("workflows", body.workflows.len())?;
    check_items("limit", body.limit as usize)?;
    for (field, number, max) in
        [("number", body.number, CLAIM_MAX), ("wait_ms", body.wait_ms, WAIT_MS_MAX)]
    {
        if number > max || (field == "number" && number == 0) {
            let why = format!("{number} is not within its limit of {max}");
            return Err(Problem::field(field, why));
        }
    }
    let handlers: Vec<HandlerKey> = body.workflows.into_iter().map(HandlerKey::from).collect();
    let request = ClaimRequest {
        worker,
        seq: seq(body.number, 0),
        queues: body.queues.into(),
        handlers: handlers.into(),
        limit: body.limit as usize,
        ending: 0,
        is_poll: false,
        tenant: None,
    };
    let wait = Duration::from_millis(body.wait_ms);
    let claimed = claim(&app, &identity, request, wait).await?;
    let tasks = claimed.iter().map(|claimed| ClaimedBody::new(worker, claimed)).collect();
    Ok(Json(ClaimedTasks { tasks }))
}

async fn claim(
    app: &App,
    identity: &Identity,
    request: ClaimRequest,
    wait: Duration,
) -> Result<Vec<Claimed>, Problem> {
    let store = identity.store();
    let until = Instant::now() + wait;
    let worker = request.worker;
    app.workers().touch(identity, worker);
    let has_owners = !wait.is_zero() && app.has_owners(&request.handlers).await?;
    let kind = Kind {
        owner: has_owners.then_some(worker),
        queues: Arc::clone(&request.queues),
        handlers: Arc::clone(&request.handlers),
        tenant: None,
    };
    let shared = app.doors().shared_by(identity);
    let idle = &shared.idle;
    let mut is_poll = false;
    for look in 0..LOOKS_MAX {
        let ClaimSeq(first) = request.seq;
        let next = ClaimRequest { seq: ClaimSeq(first + look), is_poll, ..request.clone() };
        // A claim whose number was used before finds nothing, whatever there is.
        let began = idle.begin(&kind, worker, false);
        app.note_claim_scan();
        let claimed = store.claim(next).await?;
        if !claimed.is_empty() {
            idle.found(&kind, claimed.len() >= request.limit);
            return Ok(claimed);
        }
        if Instant::now() >= until || app.ending().is_cancelled() {
            return Ok(claimed);
        }
        // Of the claims that wait for the same, one looks when there may be something, and the
        // next one if it has found something.
        let (wake, woken) = oneshot::channel();
        idle.fall_idle(&kind, worker, began, Wake::Answer(wake));
        let deaf = async {
            match store.hears_hints() {
                true => std::future::pending().await,
                false => tokio::time::sleep(POLL_DEAF).await,
            }
        };
        is_poll = tokio::select! {
            _ = woken => false,
            () = deaf => true,
            () = tokio::time::sleep_until(until) => true,
            () = app.ending().cancelled() => true,
        };
        // After the wait: a hint between a look and the wait for the next would wake it at once.
        tokio::time::sleep(PAUSE_MIN).await;
    }
    Ok(Vec::new())
}

/// Says what came of tasks. Whether one is tried again is decided by its retry policy.
#[utoipa::path(post, path = "/v1/workers/{worker}/finish", tag = "workers", params(WorkerPath),
    request_body = FinishTasks,
    responses((status = 200, description = "What became of each.", body = TaskAnswers)),
)]
async fn finish_tasks(
    State(app): State<App>,
    identity: Identity,
    Id(worker): Id<WorkerId>,
    Body(body): Body<FinishTasks>,
) -> Result<Json<TaskAnswers>, Problem> {
    check_items("tasks", body.tasks.len())?;
    let limit = app.payload_limit();
    let mut completions = Vec::with_capacity(body.tasks.len());
    for task in body.tasks {
        let token = Token::parse(worker, &task.token)?;
        let outcome = task.outcome.build(limit)?;
        let decision = decide(token.retry(), token.attempt(), outcome, fastrand::f64());
        let held = token.held();
        completions.push(Completion { task: held.task, fence: held.fence, decision });
    }
    Ok(Json(identity.store().finish(completions).await?.into()))
}

/// Hands tasks back that were claimed and not run; the attempt does not count.
#[utoipa::path(post, path = "/v1/workers/{worker}/release", tag = "workers", params(WorkerPath),
    request_body = ReleaseTasks,
    responses((status = 200, description = "What became of each.", body = TaskAnswers)),
)]
async fn release_tasks(
    identity: Identity,
    Id(worker): Id<WorkerId>,
    Body(body): Body<ReleaseTasks>,
) -> Result<Json<TaskAnswers>, Problem> {
    check_items("tasks", body.tasks.len())?;
    let mut releases = Vec::with_capacity(body.tasks.len());
    for task in body.tasks {
        let held = Token::parse(worker, &task.token)?.held();
        releases.push(Release { task: held.task, fence: held.fence, delay: task.delay()? });
    }
    Ok(Json(identity.store().release(releases).await?.into()))
}

/// Keeps values for the next attempts of tasks, in the place of those before.
#[utoipa::path(post, path = "/v1/workers/{worker}/checkpoint", tag = "workers",
    params(WorkerPath), request_body = CheckpointTasks,
    responses((status = 200, description = "What became of each.", body = TaskAnswers)),
)]
async fn checkpoint_tasks(
    State(app): State<App>,
    identity: Identity,
    Id(worker): Id<WorkerId>,
    Body(body): Body<CheckpointTasks>,
) -> Result<Json<TaskAnswers>, Problem> {
    check_items("tasks", body.tasks.len())?;
    let limit = app.payload_limit();
    let mut checkpoints = Vec::with_capacity(body.tasks.len());
    for task in body.tasks {
        let held = Token::parse(worker, &task.token)?.held();
        let value = task.value.to_payload("value", limit)?;
        checkpoints.push(Checkpoint { held, number: 0, value });
    }
    Ok(Json(identity.store().checkpoint(checkpoints).await?.into()))
}

/// Records what became of calls of durable functions, those of a task whole or not at all.
#[utoipa::path(post, path = "/v1/workers/{worker}/record", tag = "workers", params(WorkerPath),
    request_body = RecordSteps,
    responses((status = 200, description = "What became of each.", body = TaskAnswers)),
)]
async fn record_steps(
    State(app): State<App>,
    identity: Identity,
    Id(worker): Id<WorkerId>,
    Body(body): Body<RecordSteps>,
) -> Result<Json<TaskAnswers>, Problem> {
    check_items("tasks", body.tasks.len())?;
    let limit = app.payload_limit();
    let mut recordings = Vec::with_capacity(body.tasks.len());
    for task in body.tasks {
        check_items("steps", task.steps.len())?;
        let held = Token::parse(worker, &task.token)?.held();
        let steps = task.steps.into_iter().map(|step| step.build(limit));
        recordings.push(Recording { held, steps: steps.collect::<Result<_, _>>()? });
    }
    Ok(Json(identity.store().record(recordings).await?.into()))
}

/// Keeps the lease of a worker, and compares what it holds with what it should.
#[utoipa::path(post, path = "/v1/workers/{worker}/heartbeat", tag = "workers",
    params(WorkerPath), request_body = HeartbeatBody,
    responses((status = 200, description = "What it has lost.", body = HeartbeatAnswerBody)),
)]
async fn heartbeat(
    State(app): State<App>,
    identity: Identity,
    Id(worker): Id<WorkerId>,
    Body(body): Body<HeartbeatBody>,
) -> Result<Json<HeartbeatAnswerBody>, Problem> {
    for (field, count) in [("held", body.held.len()), ("progress", body.progress.len())] {
        if count > HELD_TASKS_MAX {
            let why = format!("{count} tasks are over the limit of {HELD_TASKS_MAX}");
            return Err(Problem::field(field, why));
        }
    }
    if body.settled > CLAIM_MAX {
        return Err(Problem::field("settled", format_args!("{} is over its limit", body.settled)));
    }
    let parse = |text: &String| Token::parse(worker, text).map(|token| token.held());
    let held = body.held.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let limit = app.payload_limit();
    let mut progress = Vec::with_capacity(body.progress.len().min(ITEMS_MAX));
    for note in body.progress {
        let held = parse(&note.token)?;
        progress.push(ProgressNote { held, note: note.note.to_payload("note", limit)? });
    }
    app.workers().touch(&identity, worker);
    let settled = seq(body.settled, LOOKS_MAX - 1);
    let beat = Heartbeat { worker, settled, held: held.clone(), progress };
    let answer = identity.store().extend(beat).await?;
    let text_of = |lost: &windlass::store::Lost| {
        let place = held.iter().position(|held| *held == lost.held);
        place.and_then(|place| body.held.get(place)).cloned()
    };
    let lost = answer
        .lost
        .iter()
        .filter_map(|lost| Some(LostTask { token: text_of(lost)?, why: lost.refusal.into() }));
    Ok(Json(HeartbeatAnswerBody { lost: lost.collect(), should_drain: answer.should_drain }))
}
