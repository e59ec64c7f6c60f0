//! What workers without gRPC ask on behalf of durable functions: for signals, children and what
//! there is to undo.
//!
//! As [`worker_tasks`](super::worker_tasks) does, each maps to one verb of
//! [`WorkerLink`](windlass::store::WorkerLink), and the server keeps nothing in between.

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::{ChildStart, NewRun, RunRecord, StoreError, TakeSignal, WorkflowRecord};
use windlass::{RunId, Version, WorkerId, WorkflowName};

use super::App;
use super::extract::{Body, Id};
use super::model::function::{
    ChildBody, ChildCountBody, ChildrenBody, CountChildren, ListChildren, PLACE_MAX, ReadUndo,
    StartChild, StartChildren, StartedChild, StartedChildren, TakeSignals, TakenSignals, UndoTask,
    UndoTasks, check_call,
};
use super::model::{check_items, page_limit};
use super::token::Token;
use super::workers::WorkerPath;
use super::workflows;
use crate::identity::{Identity, strip_reserved};
use crate::pages::PageReader;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(take_signals))
        .routes(routes!(start_children))
        .routes(routes!(count_children))
        .routes(routes!(list_children))
        .routes(routes!(read_undo))
}

/// Tells functions whether a signal waits for them, or takes it: it becomes the result of the call.
#[utoipa::path(post, path = "/v1/workers/{worker}/take-signals", tag = "workers",
    params(WorkerPath), request_body = TakeSignals,
    responses((status = 200, description = "What each is told.", body = TakenSignals)),
)]
async fn take_signals(
    identity: Identity,
    Id(worker): Id<WorkerId>,
    Body(body): Body<TakeSignals>,
) -> Result<Json<TakenSignals>, Problem> {
    check_items("tasks", body.tasks.len())?;
    let mut takes = Vec::with_capacity(body.tasks.len());
    for task in body.tasks {
        let held = Token::parse(worker, &task.token)?.held();
        let (call, which) = (check_call(task.call)?, task.which()?);
        takes.push(TakeSignal { held, call, name: task.name, key: task.key, which });
    }
    let taken = identity.store().take_signals(takes).await?;
    Ok(Json(TakenSignals { tasks: taken.into_iter().map(Into::into).collect() }))
}

/// Workflows of children, each looked for once.
#[derive(Default)]
struct Known(HashMap<(WorkflowName, Option<Version>), Result<WorkflowRecord, Problem>>);

impl Known {
    async fn find(
        &mut self,
        identity: &Identity,
        child: &StartChild,
    ) -> Result<WorkflowRecord, Problem> {
        let key = (child.workflow.clone(), child.version);
        if let Some(known) = self.0.get(&key) {
            return known.clone();
        }
        let found = workflows::find(identity, &child.workflow, child.version).await;
        self.0.insert(key, found.clone());
        found
    }
}

/// Runs of functions that start children, each looked for once.
#[derive(Default)]
struct Parents(HashMap<RunId, Result<RunRecord, Problem>>);

impl Parents {
    async fn find(&mut self, identity: &Identity, token: &Token) -> Result<RunRecord, Problem> {
        let run = token.held().task.run;
        if let Some(known) = self.0.get(&run) {
            return known.clone();
        }
        let missing = || StoreError::NotFound(format!("run {run}"));
        let found = identity.store().get_run(run).await.and_then(|found| found.ok_or_else(missing));
        let found = found.map_err(Problem::from);
        self.0.insert(run, found.clone());
        found
    }
}

/// The start that a function asks for.
fn child_start(
    app: &App,
    token: &Token,
    parent: &RunRecord,
    child: StartChild,
    workflow: WorkflowRecord,
) -> Result<ChildStart, Problem> {
    let call = check_call(child.call)?;
    if child.place > PLACE_MAX {
        let why = format!("{} is over the limit of {PLACE_MAX}", child.place);
        return Err(Problem::field("place", why));
    }
    let limit = app.payload_limit();
    let mut metadata = child.metadata;
    strip_reserved(&mut metadata);
    let run = NewRun {
        id: token.child(parent.round, call, child.place),
        workflow: child.workflow,
        version: workflow.definition.version(),
        tenant: parent.tenant.clone(),
        input: child.input.to_payload("input", limit)?,
        key: None,
        delay: Duration::ZERO,
        priority: child.priority,
        metadata,
    };
    run.check(limit).map_err(|why| Problem::new(windlass::ErrorKind::Argument, why))?;
    let place = (!child.is_detached).then_some(child.place);
    Ok(ChildStart { held: token.held(), call, place, run, definition: workflow.definition })
}

/// Starts runs for functions, each once however often it is asked for.
#[utoipa::path(post, path = "/v1/workers/{worker}/start-children", tag = "workers",
    params(WorkerPath), request_body = StartChildren,
    responses((status = 200, description = "What became of each.", body = StartedChildren)),
)]
async fn start_children(
    State(app): State<App>,
    identity: Identity,
    Id(worker): Id<WorkerId>,
    Body(body): Body<StartChildren>,
) -> Result<Json<StartedChildren>, Problem> {
    check_items("tasks", body.tasks.len())?;
    let (mut known, mut parents) = (Known::default(), Parents::default());
    let mut refused = Vec::with_capacity(body.tasks.len());
    let mut starts = Vec::with_capacity(body.tasks.len());
    for child in body.tasks {
        let token = Token::parse(worker, &child.token)?;
        let found = known.find(&identity, &child).await;
        let parent = parents.find(&identity, &token).await;
        let both = found.and_then(|workflow| Ok((workflow, parent?)));
        match both
            .and_then(|(workflow, parent)| child_start(&app, &token, &parent, child, workflow))
        {
            Ok(start) => {
                starts.push(start);
                refused.push(None);
            }
            Err(problem) => refused.push(Some(problem)),
        }
    }
    let born = match starts.is_empty() {
        true => Vec::new(),
        false => identity.store().start_children(starts).await?,
    };
    let mut born = born.into_iter();
    let unanswered = || {
        let text = "the store left a start unanswered";
        StartedChild::from(Problem::new(windlass::ErrorKind::Corrupt, text))
    };
    let answer = |refused: Option<Problem>| match refused {
        Some(problem) => problem.into(),
        None => born.next().map_or_else(unanswered, StartedChild::from),
    };
    Ok(Json(StartedChildren { tasks: refused.into_iter().map(answer).collect() }))
}

/// How many children a call of a function has, and how many of them run.
#[utoipa::path(post, path = "/v1/workers/{worker}/count-children", tag = "workers",
    params(WorkerPath), request_body = CountChildren,
    responses((status = 200, description = "How many.", body = ChildCountBody)),
)]
async fn count_children(
    identity: Identity,
    Id(worker): Id<WorkerId>,
    Body(body): Body<CountChildren>,
) -> Result<Json<ChildCountBody>, Problem> {
    let task = Token::parse(worker, &body.token)?.held().task;
    let count = identity.store().count_children(task, check_call(body.call)?).await?;
    Ok(Json(ChildCountBody { started: count.started, open: count.open }))
}

/// The children of a call of a function, with what they came to.
#[utoipa::path(post, path = "/v1/workers/{worker}/list-children", tag = "workers",
    params(WorkerPath), request_body = ListChildren,
    responses((status = 200, description = "The children.", body = ChildrenBody)),
)]
async fn list_children(
    State(app): State<App>,
    identity: Identity,
    Id(worker): Id<WorkerId>,
    Body(body): Body<ListChildren>,
) -> Result<Json<ChildrenBody>, Problem> {
    if let Some(after) = body.after.filter(|after| *after > PLACE_MAX) {
        return Err(Problem::field("after", format_args!("{after} is over {PLACE_MAX}")));
    }
    let task = Token::parse(worker, &body.token)?.held().task;
    let (call, limit) = (check_call(body.call)?, page_limit(body.limit)?);
    let mut children = Vec::new();
    let mut page = PageReader::new(limit, app.payload_limit(), body.after);
    while let Some((after, limit)) = page.next_chunk() {
        let rows = identity.store().list_children(task, call, after, limit).await?;
        page.add(&rows, |child| child.place);
        children.extend(rows.into_iter().map(ChildBody::from));
    }
    Ok(Json(ChildrenBody { children }))
}

/// What a run that undoes another is to undo.
#[utoipa::path(post, path = "/v1/workers/{worker}/read-undo", tag = "workers",
    params(WorkerPath), request_body = ReadUndo,
    responses((status = 200, description = "The tasks.", body = UndoTasks)),
)]
async fn read_undo(
    identity: Identity,
    Id(worker): Id<WorkerId>,
    Body(body): Body<ReadUndo>,
) -> Result<Json<UndoTasks>, Problem> {
    let held = Token::parse(worker, &body.token)?.held();
    let mut claimed = match identity.store().read_undo(held).await? {
        Ok(claimed) => claimed,
        Err(refusal) => return Ok(Json(refusal.into())),
    };
    if let Some(first) = claimed.first() {
        // What comes last in the workflow is undone first.
        let workflow = workflows::find(&identity, &first.workflow, Some(first.version)).await?;
        let order = workflow.definition.sorted();
        claimed.sort_by_key(|task| {
            std::cmp::Reverse(order.iter().position(|index| *index == task.task.index))
        });
    }
    Ok(Json(UndoTasks { tasks: claimed.iter().map(UndoTask::from).collect(), refusal: None }))
}
