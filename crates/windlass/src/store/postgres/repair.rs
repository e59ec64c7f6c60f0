//! Repair of blocked limit keys: slots that tasks hold although they have ended.
//!
//! No verb leaves such a slot behind. Where a bug did, every task that waits for the key waits for
//! ever, and `windlass audit` reports `G5.places`. The repair gives the slots up by the same rule as
//! the end of a task does, so the tasks that wait first get them in the same transaction.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{RunId, RunState, TaskId, TaskState};

use super::PostgresStore;
use super::fault::Fault;
use super::options::PostgresOptions;
use super::repeat::repeat;
use super::statements as sql;
use super::work::{Work, task_id};
use crate::Error;
use crate::store::StoreError;

/// The number of places that are read at a time, and the most tasks repaired in one transaction.
const PAGE: i64 = 200;

/// A slot of a limit that a task holds although it has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleSlot {
    /// The run of the task.
    pub run: RunId,
    /// The name of the task.
    pub task: String,
    /// The tenant of the run.
    pub tenant: String,
    /// The state in which the task ended.
    pub state: String,
    /// The name of the limit.
    pub limit: String,
    /// The key; empty if the limit has none.
    pub key: String,
}

/// Releases the slots that ended tasks still hold, and returns them. A dry run changes nothing.
///
/// Safe on a live database: each run is locked and looked at again before its slots are released.
///
/// # Errors
///
/// `Argument` for an address that cannot be read, `Unavailable` or `Database` if the database
/// cannot be reached, and `Schema` if its schema is of another version.
pub async fn repair(database: &PostgresOptions, is_dry_run: bool) -> Result<Vec<StaleSlot>, Error> {
    let store = PostgresStore::connect(database.clone().listen(false)).await?;
    Ok(store.release_stale_slots(is_dry_run).await?)
}

/// The run, the index of the task and the number of the limit of a place.
type Cursor = (Uuid, i32, i32);

/// A stale slot as it was read, and its place in the order of reading.
struct StalePlace {
    task: TaskId,
    cursor: Cursor,
    slot: StaleSlot,
}

impl StalePlace {
    fn of(row: &Row) -> Self {
        let task = task_id(row);
        let slot = StaleSlot {
            run: task.run,
            task: row.get("task"),
            tenant: row.get("tenant"),
            state: row.get("state"),
            limit: row.get("limit_name"),
            key: row.get("key"),
        };
        let cursor = (row.get("run_id"), row.get("idx"), row.get("limit_id"));
        StalePlace { task, cursor, slot }
    }
}

impl PostgresStore {
    async fn release_stale_slots(&self, is_dry_run: bool) -> Result<Vec<StaleSlot>, StoreError> {
        let mut found = Vec::new();
        let mut after = (Uuid::nil(), -1, -1);
        loop {
            let places = self.stale_places(after).await?;
            let Some(last) = places.last() else { return Ok(found) };
            after = last.cursor;
            let tasks: Vec<TaskId> = places.iter().map(|place| place.task).collect();
            let stale = self.release_slots(&tasks, is_dry_run).await?;
            let places = places.into_iter().filter(|place| stale.contains(&place.task));
            found.extend(places.map(|place| place.slot));
        }
    }

    async fn stale_places(&self, after: Cursor) -> Result<Vec<StalePlace>, StoreError> {
        repeat!(self.stale_places_once(after))
    }

    async fn stale_places_once(&self, after: Cursor) -> Result<Vec<StalePlace>, Fault> {
        let (run, index, limit) = after;
        let rows = self.read(&sql::STALE_PLACES, &[&run, &index, &limit, &PAGE]).await?;
        Ok(rows.iter().map(StalePlace::of).collect())
    }

    async fn release_slots(
        &self,
        tasks: &[TaskId],
        is_dry_run: bool,
    ) -> Result<BTreeSet<TaskId>, StoreError> {
        repeat!(self.release_slots_once(tasks, is_dry_run))
    }

    /// Releases the slots of those tasks that have ended still, and returns them.
    async fn release_slots_once(
        &self,
        tasks: &[TaskId],
        is_dry_run: bool,
    ) -> Result<BTreeSet<TaskId>, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let mut work = self.lock_runs(&tx, tasks.iter().map(|task| task.run)).await?;
        work.load(&tx, tasks.iter().copied()).await?;
        let mut stale: BTreeSet<TaskId> = tasks.iter().copied().collect();
        stale.retain(|task| work.is_stale(*task));
        if !is_dry_run && !stale.is_empty() {
            work.moves.vacated.extend(&stale);
            self.conclude(tx, &mut work).await?;
        }
        Ok(stale)
    }
}

impl Work {
    /// Whether a task has ended and has no reason to keep its slots.
    fn is_stale(&self, id: TaskId) -> bool {
        let (Some(run), Some(task)) = (self.runs.get(&id.run), self.task(id)) else { return false };
        let is_halting = task.state == TaskState::Failed
            && run.definition.task(id.index).halts()
            && run.state != RunState::Cancelled;
        task.state.is_final() && !is_halting
    }
}
