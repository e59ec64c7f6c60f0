//! The database's clock beside ours: history tells times by the former, handlers by the latter.

use std::time::{Duration, Instant};

use tokio_postgres::Client;
use windlass::Timestamp;

/// One moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Not after the database read its clock.
    ours: Instant,
    database: Timestamp,
}

impl Clock {
    /// Reads both, ours first: a moment of the database's is never taken for a later one.
    pub(crate) async fn read(client: &Client) -> anyhow::Result<Clock> {
        let sql = "select (extract(epoch from clock_timestamp()) * 1e6)::bigint";
        let ours = Instant::now();
        let row = client.query_one(sql, &[]).await?;
        Ok(Clock { ours, database: Timestamp::from_micros(row.get(0)) })
    }

    /// A moment of the database's, this long after both were read.
    pub(crate) fn database_after(&self, rest: Duration) -> Timestamp {
        self.database + rest
    }

    /// How long after a moment of the database's one of ours was; negative if it was before. Too
    /// much by as long as it took to read both.
    pub(crate) fn micros_since(&self, earlier: Timestamp, later: Instant) -> i64 {
        let later = later.saturating_duration_since(self.ours);
        let later = i64::try_from(later.as_micros()).unwrap_or(i64::MAX);
        self.database.as_micros().saturating_add(later).saturating_sub(earlier.as_micros())
    }
}
