//! How much is in the queues: what statements left in `queue_changes`, added up.

use std::time::Instant;

use async_trait::async_trait;
use windlass_core::{Priority, QueueName};

use super::PostgresStore;
use super::fault::Fault;
use super::floors::{Found, Front, Look};
use super::repeat::repeat;
use super::statements as sql;
use super::time::At;
use super::writes::{Writes, params};
use crate::store::{
    Connections, Mandate, QUEUES_LISTED_MAX, QueueList, QueueRecord, QueueStore, StoreError, Sweep,
};

#[async_trait]
impl QueueStore for PostgresStore {
    async fn roll_up(&self, limit: usize) -> Result<Sweep, StoreError> {
        repeat!(self.roll_up_once(None, limit))
    }

    async fn list_queues(&self) -> Result<QueueList, StoreError> {
        repeat!(self.list_queues_once())
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.pool.connections())
    }
}

impl PostgresStore {
    pub(super) async fn roll_up_once(
        &self,
        mandate: Option<&Mandate>,
        limit: usize,
    ) -> Result<Sweep, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let now = self.now_of_sweep(&tx, mandate).await?;
        let from = self.floors.get(Front::Changes, Found::TooLittle);
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let began = Instant::now();
        let rows = tx.query(&sql::ROLL_UP, &[&from, &most, &At(now)]).await?;
        let took = began.elapsed();
        let row = rows.first();
        let moved: i64 = row.map_or(0, |row| row.get("moved"));
        let last: Option<i64> = row.and_then(|row| row.get("last"));
        let mut writes = Writes::default();
        writes.push(&sql::NOTE_OLDEST, params![]);
        tx.commit(writes).await?;
        let is_dry = moved < most;
        let look = Look { front: Front::Changes, from, took };
        self.floors.learn(look, last.unwrap_or(from), is_dry);
        let moved = usize::try_from(moved).unwrap_or(0);
        Ok(Sweep { at: now, moved, next_at: (!is_dry).then_some(now) })
    }

    async fn list_queues_once(&self) -> Result<QueueList, Fault> {
        let now = self.clock.as_ref().map(|clock| At(clock.now()));
        let most = i64::try_from(QUEUES_LISTED_MAX).unwrap_or(i64::MAX);
        let rows = self.read(&sql::LIST_QUEUES, &[&now, &most]).await?;
        let corrupt = |text: String| StoreError::Corrupt(format!("a queue: {text}"));
        let Some(first) = rows.first() else {
            return Err(corrupt("the duty rollup has no row".to_owned()).into());
        };
        let mut queues = Vec::with_capacity(rows.len());
        for row in &rows {
            let Some(queue) = row.get::<_, Option<&str>>("queue") else { continue };
            let priority = row.get::<_, i16>("priority");
            queues.push(QueueRecord {
                queue: QueueName::new(queue).map_err(|error| corrupt(error.to_string()))?,
                priority: Priority::new(priority)
                    .ok_or_else(|| corrupt(format!("{queue} has priority {priority}")))?,
                came: row.get::<_, i64>("came").cast_unsigned(),
                went: row.get::<_, i64>("went").cast_unsigned(),
                changed_at: row.get::<_, At>("changed_at").0,
                oldest_at: row.get::<_, Option<At>>("oldest_at").map(|at| at.0),
            });
        }
        Ok(QueueList {
            at: first.get::<_, At>("at").0,
            counted_at: first.get::<_, Option<At>>("counted_at").map(|at| at.0),
            queues,
        })
    }
}
