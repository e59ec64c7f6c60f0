//! The registry of workers: what they say of themselves, and how people see them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::Row;
use windlass_core::why::SILENT_MAX;
use windlass_core::{QueueName, Version, WorkerId, WorkflowName};

use super::PostgresStore;
use super::fault::Fault;
use super::pool::Params;
use super::statements as sql;
use super::time::At;
use crate::store::{
    HandlerKey, Hello, PAGE_MAX, StoreError, WorkerCursor, WorkerFilter, WorkerInfo, WorkerPage,
    WorkerRecord, WorkerState,
};

/// What a worker says of itself, as columns.
pub(super) struct Words<'a> {
    pub(super) pid: Option<i64>,
    pub(super) queues: Vec<&'a str>,
    pub(super) workflows: Vec<&'a str>,
    pub(super) versions: Vec<i32>,
    pub(super) metadata: String,
}

impl<'a> Words<'a> {
    pub(super) fn of(hello: &'a Hello) -> Words<'a> {
        let info = &hello.info;
        let definitions = hello.definitions.iter();
        Words {
            pid: info.pid.map(i64::from),
            queues: info.queues.iter().map(QueueName::as_str).collect(),
            workflows: definitions.clone().map(|one| one.name().as_str()).collect(),
            versions: definitions.map(|one| one.version().get().cast_signed()).collect(),
            metadata: serde_json::json!(info.metadata).to_string(),
        }
    }
}

impl PostgresStore {
    pub(super) async fn begin_drain_once(&self, worker: WorkerId) -> Result<(), Fault> {
        let found = self.read(&sql::BEGIN_DRAIN, &[worker.as_uuid()]).await?;
        if found.is_empty() {
            return Err(StoreError::NotFound(format!("live worker {worker}")).into());
        }
        Ok(())
    }

    pub(super) async fn list_workers_once(
        &self,
        filter: &WorkerFilter,
    ) -> Result<WorkerPage, Fault> {
        let limit = match filter.limit {
            0 => PAGE_MAX,
            limit => limit.min(PAGE_MAX),
        };
        let at = filter.after.map(|cursor| At(cursor.joined_at));
        let id = filter.after.map(|cursor| *cursor.id.as_uuid());
        let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
        let silent = i64::try_from(SILENT_MAX.as_micros()).unwrap_or(i64::MAX);
        let time = self.test_time();
        let params: Params<'_> = &[&filter.with_dead, &at, &id, &most, &time, &silent];
        let rows = self.reads.query("the list of workers", &sql::LIST_WORKERS, params).await?;
        let mut workers = rows.iter().map(worker).collect::<Result<Vec<_>, _>>()?;
        let has_more = workers.len() > limit;
        workers.truncate(limit);
        let last = workers.last().filter(|_| has_more);
        let next = last.map(|one| WorkerCursor { joined_at: one.joined_at, id: one.id });
        Ok(WorkerPage { workers, next })
    }
}

/// A row of a worker has something that no worker has.
fn corrupt(row: &Row, what: impl std::fmt::Display) -> StoreError {
    let id = WorkerId::from_uuid(row.get("id"));
    StoreError::Corrupt(format!("worker {id} has {what}"))
}

/// The queues that a worker serves.
pub(super) fn queues_of(row: &Row) -> Result<Vec<QueueName>, StoreError> {
    let queues = row.get::<_, Vec<String>>("queues").into_iter().map(QueueName::new);
    queues.collect::<Result<_, _>>().map_err(|error| corrupt(row, error))
}

/// The workflows that a worker has handlers for.
pub(super) fn handlers_of(row: &Row) -> Result<Vec<HandlerKey>, StoreError> {
    let names = row.get::<_, Vec<String>>("workflows").into_iter();
    let key = |(name, version): (String, i32)| {
        let workflow = WorkflowName::new(name).map_err(|error| corrupt(row, error))?;
        let number = Version::new(version.cast_unsigned());
        let version = number.ok_or_else(|| corrupt(row, format!("the version {version}")))?;
        Ok(HandlerKey { workflow, version })
    };
    names.zip(row.get::<_, Vec<i32>>("versions")).map(key).collect()
}

fn worker(row: &Row) -> Result<WorkerRecord, StoreError> {
    let id = WorkerId::from_uuid(row.get("id"));
    let is_silent: bool = row.get("is_silent");
    let state = match (row.get("state"), row.get("is_draining")) {
        ("live", _) if is_silent => WorkerState::Dying,
        ("live", false) => WorkerState::Live,
        ("live", true) => WorkerState::Draining,
        ("dying", _) => WorkerState::Dying,
        ("dead", _) => WorkerState::Dead,
        (other, _) => return Err(corrupt(row, format!("the state {other:?}"))),
    };
    let queues = queues_of(row)?;
    let metadata: BTreeMap<String, String> =
        serde_json::from_str(row.get("metadata")).map_err(|error| corrupt(row, error))?;
    let pid: Option<i64> = row.get("pid");
    let time = |column| row.get::<_, Option<At>>(column).map(|at| at.0);
    Ok(WorkerRecord {
        id,
        name: row.get("name"),
        state,
        slots: row.get::<_, i32>("slots").cast_unsigned(),
        lease: Duration::from_micros(row.get::<_, i64>("lease_micros").unsigned_abs()),
        workflows: handlers_of(row)?,
        info: WorkerInfo {
            host: row.get("host"),
            pid: pid.and_then(|pid| u32::try_from(pid).ok()),
            version: row.get("version"),
            queues,
            metadata,
        },
        joined_at: row.get::<_, At>("joined_at").0,
        seen_at: time("seen_at"),
        ended_at: time("ended_at"),
        tasks: row.get::<_, i64>("tasks").cast_unsigned(),
    })
}
