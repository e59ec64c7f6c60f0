//! Reads for people: lists and `why`.
//!
//! Such a read may have to look at every run of a tenant. So it has a time limit of its own, and all
//! of them together use half of the pool's connections: claims, finishes and starts always find
//! the other half.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::fault::Fault;
use super::options::PostgresOptions;
use super::pool::{Connection, Params, Pool, Sql, Tx};
use crate::store::StoreError;

/// The connections of a store that reads for people may use.
pub(super) struct Reads {
    pool: Pool,
    places: Arc<Semaphore>,
    limits: Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    /// How many reads are in progress at most.
    concurrent_max: usize,
    /// How long a statement may take; zero for ever.
    timeout: Duration,
    /// How long a read waits for its turn.
    wait_max: Duration,
}

impl Reads {
    pub(super) fn new(options: &PostgresOptions, pool: &Pool) -> Self {
        let limits = Limits {
            concurrent_max: (options.max_connections / 2).max(1),
            timeout: options.read_timeout_in_effect(),
            wait_max: options.acquire_timeout,
        };
        let places = Arc::new(Semaphore::new(limits.concurrent_max));
        Reads { pool: limited(pool, limits), places, limits }
    }

    /// Returns the same share of the connections, for reads through another pool on them.
    pub(super) fn through(&self, pool: &Pool) -> Self {
        let (places, limits) = (Arc::clone(&self.places), self.limits);
        Reads { pool: limited(pool, limits), places, limits }
    }

    /// Returns a connection once a read may begin. `what` names the read in errors.
    pub(super) async fn get(&self, what: &'static str) -> Result<Read, Fault> {
        let Limits { concurrent_max, timeout, wait_max } = self.limits;
        let place = tokio::time::timeout(wait_max, Arc::clone(&self.places).acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            let why = format!(
                "{what}: {concurrent_max} reads have been in progress for {wait_max:?}, which is \
                 the limit of this store; retry later, or read less often"
            );
            return Err(StoreError::Limited { why, retry_after: wait_max }.into());
        };
        Ok(Read { connection: self.pool.get().await?, what, timeout, _place: place })
    }

    /// Sends one statement.
    pub(super) async fn query(
        &self,
        what: &'static str,
        sql: &Sql,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Fault> {
        let mut read = self.get(what).await?;
        let rows = read.connection.query(sql, params).await;
        rows.map_err(|fault| read.explain(fault))
    }
}

fn limited(pool: &Pool, limits: Limits) -> Pool {
    pool.beginning(&format!("set local statement_timeout = {}", limits.timeout.as_millis()))
}

/// A read in progress.
pub(super) struct Read {
    connection: Connection,
    what: &'static str,
    timeout: Duration,
    _place: OwnedSemaphorePermit,
}

impl Read {
    pub(super) fn begin(&mut self) -> Tx<'_> {
        self.connection.begin()
    }

    /// Turns the time limit of a statement into an answer: to repeat the read would cost as much
    /// again.
    pub(super) fn explain(&self, fault: Fault) -> Fault {
        let is_late = match &fault {
            Fault::Database(error) => error.code() == Some(&SqlState::QUERY_CANCELED),
            Fault::Answer(_)
            | Fault::Unsound { .. }
            | Fault::Unavailable(_)
            | Fault::Unreachable(_)
            | Fault::Unnamed(_) => false,
        };
        if !is_late {
            return fault;
        }
        let Read { what, timeout, .. } = self;
        let why = format!(
            "{what} took longer than {timeout:?}, the time limit for reads: filter by tenant, ask \
             for fewer items, or raise the limit (`PostgresOptions::read_timeout`)"
        );
        StoreError::Limited { why, retry_after: *timeout }.into()
    }
}
