//! Why a run does not go on: what is read of it, in one snapshot.

use std::sync::Arc;

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::why::{
    CALLS_SHOWN_MAX, COUNT_MAX, Count, Facts, HeldFacts, LaneFacts, LaneHolder, OpenCall,
    PARENTS_MAX, ParentFacts, QueueFacts, RunFacts, SHOWN_MAX, TaskFacts, TaskPlace, WORKERS_MAX,
    WorkerFacts,
};
use windlass_core::{
    Definition, LaneKey, LimitName, Priority, QueueName, RunId, RunState, TaskId, TaskIndex,
    TaskName, TaskState, Tenant, Timestamp, Version, Why, WorkerId, WorkflowName,
};

use super::PostgresStore;
use super::fault::Fault;
use super::handout::payload;
use super::journal::step_of;
use super::leaders::leaders;
use super::names::bucket_of;
use super::pool::{Params, Tx};
use super::statements as sql;
use super::time::At;
use super::undo::trace_of;
use super::work::{corrupt, run_state, task_state};
use crate::store::{Duty, LeaderRecord, StoreError};

/// Where counts stop: one behind the last that is told.
const COUNTED: i64 = COUNT_MAX as i64 + 1;

/// A run that is asked about.
struct Asked {
    id: RunId,
    definition: Arc<Definition>,
}

impl PostgresStore {
    pub(super) async fn why_once(
        &self,
        id: RunId,
        name: Option<&TaskName>,
    ) -> Result<Option<Why>, Fault> {
        let mut read = self.reads.get("why").await?;
        let tx = read.begin();
        let why = self.why_in(&tx, id, name).await;
        drop(tx);
        why.map_err(|fault| read.explain(fault))
    }

    async fn why_in(
        &self,
        tx: &Tx<'_>,
        id: RunId,
        name: Option<&TaskName>,
    ) -> Result<Option<Why>, Fault> {
        let run: Params<'_> = &[id.as_uuid()];
        let asks: [_; 4] = [
            (&sql::SNAPSHOT, &[] as Params<'_>),
            (&sql::WHY_RUN, run),
            (&sql::CLOCK, &[]),
            (&sql::LIST_LEADERS, &[]),
        ];
        let [_, rows, clock, leading] = tx.query_all(asks).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let at = self.now_of(&clock)?;
        let number: i32 = row.get("definition_id");
        let definitions = tx.names().definitions(tx, [number]).await?;
        let definition = definitions.get(&number).cloned();
        let definition = definition.ok_or_else(|| wrong(id, "its definition does not exist"))?;
        let mut run = run_facts(id, row)?;
        let asked = Asked { id, definition };
        let active = match run.state {
            RunState::Running => first_tasks(tx, &sql::WHY_ACTIVE, id).await?,
            RunState::Succeeded => Vec::new(),
            RunState::Failed | RunState::Cancelled => first_tasks(tx, &sql::WHY_FAILED, id).await?,
        };
        if run.state == RunState::Cancelled {
            run.cancelled_for = cancelled_for(tx, id).await?;
        }
        // Whatever goes on has a task that does, once it was let into the queues.
        run.is_staged = run.state == RunState::Running && active.is_empty();
        let has_more_tasks = name.is_none() && active.len() > SHOWN_MAX;
        let indices = match name {
            None => active.into_iter().take(SHOWN_MAX).collect(),
            Some(name) => match asked.definition.index_of(name.as_str()) {
                None => return Ok(None),
                Some(index) => vec![index],
            },
        };
        let tasks = self.task_facts(tx, &asked, &indices).await?;
        let is_ready = tasks.iter().any(|task| task.state == TaskState::Ready);
        let workers = if is_ready { worker_facts(tx, &run).await? } else { Vec::new() };
        let leaders = leaders(&leading)?;
        let duty = |duty: Duty| {
            let leader = leaders.iter().find(|leader| leader.duty == duty);
            leader.map_or_else(|| LeaderRecord::vacant(duty).facts(), LeaderRecord::facts)
        };
        let (promote, reap) = (duty(Duty::PromoteDue), duty(Duty::Reap));
        let facts = Facts { at, run, tasks, has_more_tasks, workers, promote, reap };
        Ok(Some(facts.why()))
    }

    async fn task_facts(
        &self,
        tx: &Tx<'_>,
        asked: &Asked,
        indices: &[TaskIndex],
    ) -> Result<Vec<TaskFacts>, Fault> {
        let numbers: Vec<i32> = indices.iter().map(|index| index.0.cast_signed()).collect();
        let rows = tx.query(&sql::WHY_TASKS, &[asked.id.as_uuid(), &numbers]).await?;
        let mut tasks = Vec::with_capacity(rows.len());
        for row in &rows {
            let index = TaskIndex(row.get::<_, i32>("idx").cast_unsigned());
            let id = TaskId { run: asked.id, index };
            let spec = asked.definition.task(index);
            let state = state_of(row).map_err(|error| corrupt(id, error))?;
            let failure = row.get::<_, Option<&str>>("failure").map(serde_json::from_str);
            tasks.push(TaskFacts {
                index,
                spec: Arc::clone(spec),
                state,
                attempt: row.get::<_, i32>("attempt").cast_unsigned(),
                failure: failure.transpose().map_err(|error| corrupt(id, error))?,
                place: place_of(tx, asked, id, state, row).await?,
            });
        }
        tasks.sort_by_key(|task| task.index);
        Ok(tasks)
    }
}

fn wrong(run: RunId, error: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("run {run}: {error}"))
}

fn run_facts(id: RunId, row: &Row) -> Result<RunFacts, Fault> {
    let version = Version::new(row.get::<_, i32>("version").cast_unsigned());
    let workflow = WorkflowName::new(row.get::<_, &str>("workflow"));
    let tenant = Tenant::new(row.get::<_, &str>("tenant"));
    Ok(RunFacts {
        id,
        workflow: workflow.map_err(|error| wrong(id, error))?,
        version: version.ok_or_else(|| wrong(id, "its version is 0"))?,
        tenant: tenant.map_err(|error| wrong(id, error))?,
        state: run_state(row.get("state")).map_err(|error| wrong(id, error))?,
        ended_at: row.get::<_, Option<At>>("ended_at").map(|at| at.0),
        open_tasks: row.get::<_, i32>("open_tasks").cast_unsigned(),
        cancelled_for: None,
        is_staged: false,
        trace: trace_of(row),
    })
}

/// The reason that was given when a run was cancelled.
async fn cancelled_for(tx: &Tx<'_>, run: RunId) -> Result<Option<String>, Fault> {
    let rows = tx.query(&sql::WHY_CANCELLED, &[run.as_uuid()]).await?;
    let detail = rows.first().and_then(|row| row.get::<_, Option<&str>>("detail"));
    let detail = detail.map(serde_json::from_str::<serde_json::Value>).transpose();
    let detail = detail.map_err(|error| wrong(run, error))?;
    Ok(detail.and_then(|detail| Some(detail.get("reason")?.as_str()?.to_owned())))
}

async fn first_tasks(
    tx: &Tx<'_>,
    statement: &super::pool::Sql,
    run: RunId,
) -> Result<Vec<TaskIndex>, Fault> {
    let most = i64::try_from(SHOWN_MAX + 1).unwrap_or(i64::MAX);
    let rows = tx.query(statement, &[run.as_uuid(), &most]).await?;
    Ok(rows.iter().map(|row| TaskIndex(row.get::<_, i32>("idx").cast_unsigned())).collect())
}

/// The state of a task, from where it is found.
fn state_of(row: &Row) -> Result<TaskState, String> {
    let is_waiting = row.get::<_, Option<bool>>("is_waiting") == Some(true);
    let has = |column| row.get::<_, Option<At>>(column).is_some();
    match row.get::<_, Option<&str>>("state") {
        Some(word) if word != "active" => task_state(word),
        _ if row.get::<_, Option<Uuid>>("worker_id").is_some() => Ok(TaskState::Running),
        _ if row.get::<_, Option<i64>>("tag").is_some() => Ok(TaskState::Ready),
        _ if is_waiting => Ok(TaskState::Waiting),
        _ if has("due") => Ok(TaskState::Scheduled),
        None => Ok(TaskState::Pending),
        Some(_) => Err("it is active and nowhere to be found".to_owned()),
    }
}

async fn place_of(
    tx: &Tx<'_>,
    asked: &Asked,
    id: TaskId,
    state: TaskState,
    row: &Row,
) -> Result<TaskPlace, Fault> {
    match state {
        TaskState::Pending => Ok(TaskPlace::Behind(parents(tx, asked, id, row).await?)),
        TaskState::Scheduled => {
            let until = row.get::<_, At>("due").0;
            Ok(TaskPlace::Until(until, open_calls(tx, id).await?))
        }
        TaskState::Waiting => match lane(tx, asked, id).await? {
            Some(lane) => Ok(TaskPlace::Lane(lane)),
            None => Ok(TaskPlace::Parked(open_calls(tx, id).await?)),
        },
        TaskState::Ready => Ok(TaskPlace::Queue(queue(tx, asked, id, row).await?)),
        TaskState::Running => Ok(TaskPlace::Held(held(tx, id, row).await?)),
        TaskState::Succeeded | TaskState::Failed | TaskState::Cancelled | TaskState::Skipped => {
            Ok(TaskPlace::Ended)
        }
    }
}

async fn parents(tx: &Tx<'_>, asked: &Asked, id: TaskId, row: &Row) -> Result<ParentFacts, Fault> {
    let all = &asked.definition.task(id.index).parents;
    let pending = row.get::<_, Option<i32>>("pending_parents").map(i32::cast_unsigned);
    // While none of its parents has ended it has no row.
    let pending = pending.unwrap_or_else(|| u32::try_from(all.len()).unwrap_or(u32::MAX));
    let looked_at: Vec<i32> =
        all.iter().take(PARENTS_MAX).map(|index| index.0.cast_signed()).collect();
    let most = i64::try_from(SHOWN_MAX).unwrap_or(i64::MAX);
    let rows = tx.query(&sql::WHY_PARENTS, &[id.run.as_uuid(), &looked_at, &most]).await?;
    let name = |row: &Row| {
        let index = TaskIndex(row.get::<_, i32>("idx").cast_unsigned());
        asked.definition.task(index).name.clone()
    };
    Ok(ParentFacts { pending, first: rows.iter().map(name).collect() })
}

async fn queue(tx: &Tx<'_>, asked: &Asked, id: TaskId, row: &Row) -> Result<QueueFacts, Fault> {
    let number: i16 = row.get("priority");
    let priority = Priority::try_from(number).map_err(|error| corrupt(id, error))?;
    let (tenant, tag, seq): (i32, i64, i64) =
        (row.get("tenant_id"), row.get("tag"), row.get("seq"));
    let queue = asked.definition.task(id.index).queue.as_str();
    let params: Params<'_> = &[&queue, &i32::from(number), &tenant, &tag, &seq, &COUNTED];
    let rows = tx.query(&sql::WHY_BEFORE, params).await?;
    let count = |column| {
        let found = rows.first().map_or(0, |row| row.get::<_, i64>(column));
        Count::new(found.unsigned_abs())
    };
    let bucket = bucket_of(row.get("bucket")).map_err(|error| corrupt(id, error))?;
    Ok(QueueFacts { priority, own_before: count("own"), all_before: count("everyone"), bucket })
}

async fn lane(tx: &Tx<'_>, asked: &Asked, id: TaskId) -> Result<Option<LaneFacts>, Fault> {
    let index = id.index.0.cast_signed();
    let most = i64::try_from(SHOWN_MAX).unwrap_or(i64::MAX);
    let rows = tx.query(&sql::WHY_LANE, &[id.run.as_uuid(), &index, &COUNTED, &most]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let key = Some(row.get::<_, &str>("key")).filter(|key| !key.is_empty());
    let holder = |row: &Row| {
        let run = row.get::<_, Option<Uuid>>("run_id").map(RunId::from_uuid)?;
        Some(TaskName::new(row.get::<_, &str>("task")).map(|task| LaneHolder { run, task }))
    };
    let holders: Result<Vec<LaneHolder>, _> = rows.iter().filter_map(holder).collect();
    let limit = LimitName::new(row.get::<_, &str>("limit_name"));
    let limit = limit.map_err(|error| corrupt(id, error))?;
    let known = asked.definition.task(id.index).limits.iter().find(|known| known.name == limit);
    let Some(bound) = known.map(|known| known.bound) else {
        return Err(corrupt(id, "it waits in a lane that its definition does not know"));
    };
    let meter = row.get::<_, Option<&str>>("meter").map(serde_json::from_str);
    Ok(Some(LaneFacts {
        limit,
        key: key.map(LaneKey::new).transpose().map_err(|error| corrupt(id, error))?,
        bound,
        meter: meter.transpose().map_err(|error| corrupt(id, error))?,
        is_out: row.get("is_out"),
        held: row.get::<_, i32>("held").cast_unsigned(),
        before: Count::new(row.get::<_, i64>("waiting_before").unsigned_abs()),
        holders: holders.map_err(|error| corrupt(id, error))?,
    }))
}

async fn open_calls(tx: &Tx<'_>, id: TaskId) -> Result<Vec<OpenCall>, Fault> {
    let index = id.index.0.cast_signed();
    let most = i64::try_from(CALLS_SHOWN_MAX).unwrap_or(i64::MAX);
    let children = i32::try_from(SHOWN_MAX).unwrap_or(i32::MAX);
    let params: Params<'_> = &[id.run.as_uuid(), &index, &most, &COUNTED, &children];
    let rows = tx.query(&sql::WHY_CALLS, params).await?;
    let call = |row: &Row| {
        let first = row.get::<_, Vec<Uuid>>("first_children").into_iter();
        Ok(OpenCall {
            step: step_of(row).map_err(|error| corrupt(id, error))?,
            has_signal: row.get("has_signal"),
            open_children: Count::new(row.get::<_, i64>("open_children").unsigned_abs()),
            first_children: first.map(RunId::from_uuid).collect(),
        })
    };
    rows.iter().map(call).collect()
}

async fn held(tx: &Tx<'_>, id: TaskId, row: &Row) -> Result<HeldFacts, Fault> {
    let index = id.index.0.cast_signed();
    let since = tx.query(&sql::WHY_SINCE, &[id.run.as_uuid(), &index]).await?;
    let time = |column| row.get::<_, Option<At>>(column).map(|at| at.0);
    let lease_until = time("lease_until").unwrap_or(Timestamp::from_micros(0));
    let note = row.get::<_, Option<&str>>("note");
    let progress = note.map(|note| payload(note, || format!("the note of task {id}")));
    Ok(HeldFacts {
        worker: WorkerId::from_uuid(row.get("worker_id")),
        worker_name: row.get::<_, Option<String>>("worker_name").unwrap_or_default(),
        since: since.first().map(|row| row.get::<_, At>("at").0),
        lease_until: time("take_back_at").map_or(lease_until, |at| at.min(lease_until)),
        is_dying: row.get::<_, Option<&str>>("worker_state") != Some("live"),
        progress: progress.transpose()?,
    })
}

async fn worker_facts(tx: &Tx<'_>, run: &RunFacts) -> Result<Vec<WorkerFacts>, Fault> {
    let most = i64::try_from(WORKERS_MAX).unwrap_or(i64::MAX);
    let rows =
        tx.query(&sql::WHY_WORKERS, &[&most, &run.tenant.as_str(), &run.workflow.as_str()]).await?;
    let worker = |row: &Row| {
        // What no name is serves no task.
        let queues = row.get::<_, Vec<String>>("queues").into_iter();
        let names = row.get::<_, Vec<String>>("workflows").into_iter();
        let key = |(name, version): (String, i32)| {
            Some((WorkflowName::new(name).ok()?, Version::new(version.cast_unsigned())?))
        };
        WorkerFacts {
            id: WorkerId::from_uuid(row.get("id")),
            name: row.get("name"),
            is_dying: row.get("is_dying"),
            is_draining: row.get("is_draining"),
            slots: row.get::<_, i32>("slots").cast_unsigned(),
            tasks: row.get::<_, i64>("tasks").unsigned_abs(),
            lease_until: row.get::<_, At>("lease_until").0,
            queues: queues.filter_map(|queue| QueueName::new(queue).ok()).collect(),
            workflows: names.zip(row.get::<_, Vec<i32>>("versions")).filter_map(key).collect(),
        }
    };
    Ok(rows.iter().map(worker).collect())
}
