//! Checkpoints: what an attempt leaves for the next one.
//!
//! They cost nothing where there are none: a first claim cannot find one, and a lease says
//! whether its attempt left one, so that a task that ends forgets what there is to forget.

use std::collections::{BTreeMap, HashMap};

use tokio_postgres::Row;
use windlass_core::{Failure, Payload, TaskId};

use super::PostgresStore;
use super::fault::Fault;
use super::run::Task;
use super::statements as sql;
use super::work::{Work, pairs, task_id};
use super::writes::{Writes, params};
use crate::store::{Answer, Checkpoint, Refusal};

impl PostgresStore {
    /// The run is locked, as by every verb that judges a fence: whoever takes the task away
    /// comes before or after, and a lease that is deleted by its place has not moved.
    pub(super) async fn checkpoint_once(
        &self,
        checkpoints: &[Checkpoint],
    ) -> Result<Vec<Answer>, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let runs = checkpoints.iter().map(|one| one.held.task.run);
        let mut work = self.lock_runs(&tx, runs).await?;
        work.load(&tx, checkpoints.iter().map(|one| one.held.task)).await?;
        let mut answers = Vec::with_capacity(checkpoints.len());
        let mut newest: BTreeMap<TaskId, &Checkpoint> = BTreeMap::new();
        for checkpoint in checkpoints {
            let held = checkpoint.held;
            let refusal = match work.task(held.task) {
                Some(task) => task.refusal(held.fence),
                None => Some(Refusal::UnknownTask),
            };
            answers.push(refusal.map_or(Answer::Accepted, Answer::Refused));
            if refusal.is_none() {
                let kept = newest.entry(held.task).or_insert(checkpoint);
                if checkpoint.replaces(kept.number) {
                    *kept = checkpoint;
                }
            }
        }
        if !newest.is_empty() {
            let (runs, indices) = pairs(newest.keys());
            let fences: Vec<i64> =
                newest.values().map(|one| one.held.fence.0.cast_signed()).collect();
            let numbers: Vec<i32> = newest.values().map(|one| number(one)).collect();
            let values: Vec<&str> = newest.values().map(|one| one.value.as_str()).collect();
            let mut writes = Writes::default();
            writes.push(&sql::CHECKPOINT, params![runs, indices, fences, numbers, values]);
            tx.commit(writes).await?;
        }
        Ok(answers)
    }
}

/// The number of a checkpoint as it is stored.
fn number(checkpoint: &Checkpoint) -> i32 {
    i32::try_from(checkpoint.number).unwrap_or(i32::MAX)
}

impl Work {
    /// Forgets the checkpoints of tasks that have ended.
    pub(super) fn write_checkpoints(&self, writes: &mut Writes<'_>) {
        let mut ended = Vec::new();
        for run in self.runs.values() {
            let is_to_go =
                |task: &Task| task.is_changed && task.may_have_checkpoint && task.state.is_final();
            let tasks = run.tasks.iter().filter(|(_, task)| is_to_go(task));
            ended.extend(tasks.map(|(index, _)| TaskId { run: run.id, index: *index }));
        }
        if !ended.is_empty() {
            let (runs, indices) = pairs(&ended);
            writes.push(&sql::DELETE_CHECKPOINTS, params![runs, indices]);
        }
    }
}

/// What earlier attempts of a task have left.
#[derive(Clone, Debug, Default)]
pub(super) struct Left {
    pub(super) checkpoint: Option<Payload>,
    pub(super) failure: Option<Failure>,
}

/// What rows of [`sql::CHECKPOINTS`] say. What cannot be read is left out: an attempt must be able
/// to begin from the beginning.
pub(super) fn read_left(rows: &[Row]) -> HashMap<TaskId, Left> {
    let left = |row: &Row| {
        let id = task_id(row);
        let tell = |error: &dyn std::fmt::Display| {
            tracing::error!(task = %id, %error, "what an attempt left cannot be read");
        };
        let value = row.get::<_, Option<&str>>("value").map(Payload::from_json);
        let failure = row.get::<_, Option<&str>>("failure").map(serde_json::from_str);
        let left = Left {
            checkpoint: value.and_then(|value| value.inspect_err(|error| tell(error)).ok()),
            failure: failure.and_then(|failure| failure.inspect_err(|error| tell(error)).ok()),
        };
        (id, left)
    };
    rows.iter().map(left).collect()
}
