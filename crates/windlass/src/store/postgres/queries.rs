//! Reading without changing.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{
    Event, EventBody, EventId, Fence, IdempotencyKey, Payload, Priority, RunEvent, RunId,
    TaskEvent, TaskIndex, TaskName, Tenant, Version, WorkerId, WorkflowName,
};

use super::PostgresStore;
use super::fault::Fault;
use super::handout::payload;
use super::pool::Params;
use super::statements as sql;
use super::time::At;
use super::wall::Wall;
use super::work::{run_state, task_state};
use crate::store::{PAGE_MAX, RunCursor, RunFilter, RunPage, RunRecord, StoreError, TaskRecord};

/// How long to wait for a claim that is under way, at first and at most; it doubles.
const CLAIM_PAUSE: Duration = Duration::from_millis(2);
const CLAIM_PAUSE_MAX: Duration = Duration::from_millis(500);

/// The name of a list of runs, for errors.
const LISTING: &str = "the list of runs";

impl PostgresStore {
    pub(super) async fn get_run_once(&self, id: RunId) -> Result<Option<RunRecord>, Fault> {
        let rows = self.read(&sql::GET_RUN, &[id.as_uuid()]).await?;
        let record = |row: &Row| {
            let input = payload(row.get("input"), || format!("the input of run {id}"))?;
            run_record(row, Some(input))
        };
        rows.first().map(record).transpose()
    }

    pub(super) async fn whose_once(&self, runs: &[RunId]) -> Result<Vec<(RunId, Tenant)>, Fault> {
        let ids: Vec<Uuid> = runs.iter().map(|run| *run.as_uuid()).collect();
        let rows = self.read(&sql::WHOSE_RUNS, &[&ids]).await?;
        let whose = rows.iter().map(|row| {
            let run = RunId::from_uuid(row.get::<_, Uuid>(0));
            let tenant = Tenant::new(row.get::<_, &str>(1));
            let wrong = |error| Fault::from(StoreError::Corrupt(format!("run {run}: {error}")));
            Ok((run, tenant.map_err(wrong)?))
        });
        whose.collect()
    }

    pub(super) async fn list_tasks_once(
        &self,
        run: RunId,
        after: Option<TaskIndex>,
        limit: usize,
    ) -> Result<Vec<TaskRecord>, Fault> {
        let after = after.map_or(-1, |index| i32::try_from(index.0).unwrap_or(i32::MAX));
        let rows = self.read(&sql::LIST_TASKS, &[run.as_uuid(), &after, &page(limit)]).await?;
        rows.iter().map(|row| task_record(run, row)).collect()
    }

    pub(super) async fn get_task_once(
        &self,
        run: RunId,
        name: &TaskName,
    ) -> Result<Option<TaskRecord>, Fault> {
        let rows = self.read(&sql::GET_TASK, &[run.as_uuid(), &name.as_str()]).await?;
        rows.first().map(|row| task_record(run, row)).transpose()
    }

    pub(super) async fn list_runs_once(&self, filter: &RunFilter) -> Result<RunPage, Fault> {
        let limit = match filter.limit {
            0 => PAGE_MAX,
            limit => limit.min(PAGE_MAX),
        };
        // No run has metadata with a NUL, and a text with one cannot even be sent.
        if filter
            .metadata
            .as_ref()
            .is_some_and(|(key, value)| key.contains('\0') || value.contains('\0'))
        {
            return Ok(RunPage { runs: Vec::new(), next: None });
        }
        let workflow = filter.workflow.as_ref().map(WorkflowName::as_str);
        let tenant = filter.tenant.as_ref().map(Tenant::as_str);
        let state = filter.state.map(|state| state.word());
        let key = filter.metadata.as_ref().map(|(key, _)| key.as_str());
        let value = filter.metadata.as_ref().map(|(_, value)| value.as_str());
        let at = filter.after.map(|cursor| At(cursor.created_at));
        let id = filter.after.map(|cursor| *cursor.id.as_uuid());
        let most = page(limit) + 1;
        let all: Params<'_> = &[&workflow, &state, &key, &value, &at, &id, &most];
        let rows = match &tenant {
            None => self.reads.query(LISTING, &sql::LIST_RUNS, all).await?,
            Some(tenant) => {
                let of_tenant = [all, &[tenant]].concat();
                self.reads.query(LISTING, &sql::LIST_RUNS_OF_TENANT, &of_tenant).await?
            }
        };
        let record = |row| run_record(row, None);
        let mut runs = rows.iter().map(record).collect::<Result<Vec<_>, _>>()?;
        let has_more = runs.len() > limit;
        runs.truncate(limit);
        let last = runs.last().filter(|_| has_more);
        let next = last.map(|run| RunCursor { created_at: run.created_at, id: run.id });
        Ok(RunPage { runs, next })
    }

    pub(super) async fn list_events_once(
        &self,
        run: RunId,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<Event>, Fault> {
        let after = after.map_or(0, |id| i64::try_from(id.0).unwrap_or(i64::MAX));
        let mut rows = self.events(run, after, limit).await?;
        let claims: Vec<String> = rows.first().map(|row| row.get("claims")).unwrap_or_default();
        if let (false, Some(last)) = (claims.is_empty(), rows.last().map(number)) {
            self.await_claims(run, claims).await?;
            rows = self.events(run, after, limit).await?;
            rows.retain(|row| number(row) <= last);
        }
        let event = |row: &Row| {
            let id = EventId(number(row).cast_unsigned());
            let body = event_body(row).map_err(|error| {
                StoreError::Corrupt(format!("event {id} of run {run}: {error}"))
            })?;
            Ok(Event { id, run, at: row.get::<_, At>("at").0, body })
        };
        rows.iter().map(event).collect()
    }

    async fn events(&self, run: RunId, after: i64, limit: usize) -> Result<Vec<Row>, Fault> {
        let hold: Params<'_> = &[run.as_uuid()];
        let params: Params<'_> = &[run.as_uuid(), &after, &page(limit)];
        if let Some(side) = self.wall.as_ref().and_then(Wall::side) {
            // Behind the wall nobody may lock: the run is held before it is entered.
            let mut connection = side.pool.get().await?;
            let tx = connection.begin();
            let enter: Params<'_> = &[&side.tenant.as_str(), &side.role.as_str()];
            let asks =
                [(&sql::HOLD_RUN, hold), (&sql::ENTER_WALL, enter), (&sql::LIST_EVENTS, params)];
            let [_, _, rows] = tx.query_all(asks).await?;
            return Ok(rows);
        }
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let [_, rows] = tx.query_all([(&sql::HOLD_RUN, hold), (&sql::LIST_EVENTS, params)]).await?;
        Ok(rows)
    }

    /// Waits until none of these transactions is under way.
    async fn await_claims(&self, run: RunId, claims: Vec<String>) -> Result<(), Fault> {
        let mut pause = CLAIM_PAUSE;
        loop {
            let rows = self.read(&sql::ARE_UNDER_WAY, &[&claims]).await?;
            if !rows.iter().any(|row| row.get(0)) {
                return Ok(());
            }
            if pause > CLAIM_PAUSE_MAX {
                let text = format!("a claim of a task of run {run} does not come to an end");
                return Err(StoreError::Unavailable(text).into());
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }
}

/// The number of an event.
fn number(row: &Row) -> i64 {
    row.get("id")
}

fn page(limit: usize) -> i64 {
    i64::try_from(limit.min(PAGE_MAX)).unwrap_or(i64::MAX)
}

fn run_record(row: &Row, input: Option<Payload>) -> Result<RunRecord, Fault> {
    let id = RunId::from_uuid(row.get("id"));
    let wrong = |error: String| StoreError::Corrupt(format!("run {id}: {error}"));
    let text = |column: &str| row.get::<_, String>(column);
    let metadata = row.get::<_, Option<&str>>("metadata").map(serde_json::from_str);
    let metadata: Option<BTreeMap<String, String>> =
        metadata.transpose().map_err(|error| wrong(error.to_string()))?;
    let key = row.get::<_, Option<&str>>("key").map(IdempotencyKey::new).transpose();
    let version = Version::new(row.get::<_, i32>("version").cast_unsigned());
    Ok(RunRecord {
        id,
        workflow: WorkflowName::new(text("workflow")).map_err(|error| wrong(error.to_string()))?,
        version: version.ok_or_else(|| wrong("its version is 0".to_owned()))?,
        tenant: Tenant::new(text("tenant")).map_err(|error| wrong(error.to_string()))?,
        state: run_state(row.get("state")).map_err(wrong)?,
        input,
        key: key.map_err(|error| wrong(error.to_string()))?,
        priority: Priority::try_from(row.get::<_, i16>("priority")).map_err(wrong)?,
        metadata: metadata.unwrap_or_default(),
        round: row.get::<_, i32>("round").cast_unsigned(),
        open_tasks: row.get::<_, i32>("open_tasks").cast_unsigned(),
        created_at: row.get::<_, At>("created_at").0,
        ended_at: row.get::<_, Option<At>>("ended_at").map(|at| at.0),
    })
}

fn task_record(run: RunId, row: &Row) -> Result<TaskRecord, Fault> {
    let index = TaskIndex(row.get::<_, i32>("idx").cast_unsigned());
    let wrong = |error: String| StoreError::Corrupt(format!("task {run}/{}: {error}", index.0));
    let name =
        TaskName::new(row.get::<_, &str>("name")).map_err(|error| wrong(error.to_string()))?;
    let json = |column: &str| {
        let text: Option<&str> = row.get(column);
        text.map(|text| payload(text, || format!("the {column} of task {run}/{}", index.0)))
            .transpose()
    };
    let state: Option<&str> = row.get("state");
    let state = state.ok_or_else(|| wrong("it is active and nowhere to be found".to_owned()))?;
    let failure = row.get::<_, Option<&str>>("failure").map(serde_json::from_str).transpose();
    Ok(TaskRecord {
        index,
        name,
        state: task_state(state).map_err(wrong)?,
        attempt: row.get::<_, i32>("attempt").cast_unsigned(),
        fence: Fence(row.get::<_, i64>("fence").cast_unsigned()),
        pending_parents: row.get::<_, i32>("pending_parents").cast_unsigned(),
        available_at: row.get::<_, Option<At>>("available_at").map(|at| at.0),
        worker: row.get::<_, Option<uuid::Uuid>>("worker_id").map(WorkerId::from_uuid),
        output: json("output")?,
        failure: failure.map_err(|error: serde_json::Error| wrong(error.to_string()))?,
        progress: json("progress")?,
    })
}

/// An event as it was, from its word and what else its kind says.
fn event_body(row: &Row) -> Result<EventBody, String> {
    let word: &str = row.get("kind");
    let detail: Option<&str> = row.get("detail");
    let detail = detail.map(serde_json::from_str::<Value>).transpose();
    let detail = detail.map_err(|error| error.to_string())?;
    let kind = |word: &str| match detail {
        Some(detail) => Value::Object([(word.to_owned(), detail)].into_iter().collect()),
        None => Value::String(word.to_owned()),
    };
    let from: Option<&str> = row.get("from_state");
    let to: &str = row.get("to_state");
    let Some(index) = row.get::<_, Option<i32>>("idx") else {
        let kind = kind(word.strip_prefix("run_").unwrap_or(word));
        return Ok(EventBody::Run(RunEvent {
            kind: serde_json::from_value(kind).map_err(|error| error.to_string())?,
            from: from.map(run_state).transpose()?,
            to: run_state(to)?,
        }));
    };
    let name: Option<&str> = row.get("name");
    Ok(EventBody::Task(TaskEvent {
        task: TaskIndex(index.cast_unsigned()),
        name: TaskName::new(name.unwrap_or_default()).map_err(|error| error.to_string())?,
        kind: serde_json::from_value(kind(word)).map_err(|error| error.to_string())?,
        from: task_state(from.unwrap_or_default())?,
        to: task_state(to)?,
        fence: Fence(row.get::<_, i64>("fence").cast_unsigned()),
        attempt: row.get::<_, i32>("attempt").cast_unsigned(),
    }))
}
