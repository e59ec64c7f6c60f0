//! Connections and transactions of users, in which steps of durable functions are recorded.
//!
//! What is asked for is asked on the user's own connection, through functions of the schema:
//! the record of a step is part of the transaction that its work wrote in. This module knows how
//! drivers begin, ask and end; when they do is decided in `function::transaction`.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::PoolError;
use futures_util::FutureExt;
use tokio_postgres::types::{ToSql, Type};

use super::pool::within;
use super::transactional::{Batch, Refused, START_RUNS};

/// How long an answer to what the engine itself asks on a user's connection may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Waits for an answer, but not for ever: a network that is gone closes no connection.
pub(crate) async fn answered<T>(
    answer: impl Future<Output = Result<T, Refused>>,
) -> Result<T, Refused> {
    match within(Some(ANSWER_MAX), answer).await {
        Ok(answer) => answer,
        Err(_) => Err(Refused::lost(format!("the database has not answered for {ANSWER_MAX:?}"))),
    }
}

/// Whether the fence of an attempt is that of the lease.
pub(crate) const LOOK: &str = "select windlass.look_at_fence($1::uuid, $2::integer, $3::bigint)";

/// Records the result of a step.
pub(crate) const RECORD: &str = "select windlass.record_step(
    $1::uuid, $2::integer, $3::bigint, $4::integer, $5::integer, $6, $7, $8)";

/// What became of a transaction that recorded a step.
pub(crate) const FIND: &str =
    "select windlass.find_step($1::uuid, $2::integer, $3::bigint, $4::integer)";

/// Begins what is done once for each key.
pub(crate) const BEGIN_ONCE: &str = "select windlass.begin_once(
    $1::uuid, $2::integer, $3::bigint, $4, $5::bigint * interval '1 microsecond')";

/// Ends what is done once for each key.
pub(crate) const END_ONCE: &str =
    "select windlass.end_once($1::uuid, $2::integer, $3::bigint, $4, $5)";

/// A pool of a driver whose connections a [step](crate::Ctx::transaction) can write on.
///
/// It is implemented for `deadpool_postgres::Pool`, and with the feature `sqlx` for
/// `sqlx::PgPool`. It cannot be implemented elsewhere.
pub trait TransactionPool: sealed::Pool {}

impl<P: sealed::Pool> TransactionPool for P {}

pub(crate) mod sealed {
    use super::{Future, Refused};

    /// Gives connections.
    pub trait Pool: Clone + Send + Sync + 'static {
        /// A connection with an open transaction, which is rolled back when this is dropped.
        type Open: Open;

        fn begin(
            &self,
            statement: &'static str,
        ) -> impl Future<Output = Result<Self::Open, Refused>> + Send;
    }

    /// An open transaction.
    pub trait Open: Send + 'static {
        /// Asks for a text. All parameters are texts, which every driver has, and which the
        /// statement casts.
        fn ask(
            &mut self,
            statement: &'static str,
            params: &[&str],
        ) -> impl Future<Output = Result<String, Refused>> + Send;

        /// If there is no answer, or an error, whether it took place is not known.
        fn commit(self) -> impl Future<Output = Result<(), Refused>> + Send;
    }
}

/// The transaction of a [step](crate::Ctx::transaction), for its work to write in. It is committed
/// when the work has succeeded, together with the result of the step, and rolled back otherwise.
///
/// Of a `deadpool_postgres::Pool` it is a shared reference to a client; of a `sqlx::PgPool` it is
/// a `sqlx::PgConnection`, to be used as `&mut *tx`. Runs can be
/// [started](crate::Start::in_transaction) in it. Whoever ends it by a statement of their own
/// loses what it is for.
pub struct Transaction<P: TransactionPool> {
    /// `None` once it is dropped.
    open: Option<P::Open>,
    home: Home<P>,
}

impl<P: TransactionPool> Transaction<P> {
    pub(crate) fn new(open: P::Open, home: &Home<P>) -> Self {
        Transaction { open: Some(open), home: home.clone() }
    }

    fn open(&self) -> &P::Open {
        self.open.as_ref().expect("it is there until it is dropped")
    }
}

impl<P: TransactionPool> Drop for Transaction<P> {
    fn drop(&mut self) {
        *self.home.slot() = self.open.take();
    }
}

impl<P: TransactionPool> fmt::Debug for Transaction<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

/// Where a transaction comes back to when the work has dropped it.
pub(crate) struct Home<P: TransactionPool>(Arc<Mutex<Option<P::Open>>>);

impl<P: TransactionPool> Home<P> {
    pub(crate) fn new() -> Self {
        Home(Arc::default())
    }

    /// What came back.
    pub(crate) fn take(&self) -> Option<P::Open> {
        self.slot().take()
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<P::Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: TransactionPool> Clone for Home<P> {
    fn clone(&self) -> Self {
        Home(Arc::clone(&self.0))
    }
}

/// A transaction on a connection of a `deadpool_postgres::Pool`.
pub struct OpenClient {
    /// `None` once nothing is to be rolled back.
    client: Option<deadpool_postgres::Client>,
    is_committing: bool,
}

impl OpenClient {
    fn client(&self) -> &deadpool_postgres::Client {
        self.client.as_ref().expect("it is there until it is committed")
    }
}

impl Drop for OpenClient {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        if self.is_committing {
            // Whatever its connection is at, it is of no more use to anybody.
            drop(deadpool_postgres::Object::take(client));
            return;
        }
        // Sent without waiting: whatever comes next on this connection is behind it.
        let _ = client.batch_execute("rollback").now_or_never();
    }
}

impl sealed::Pool for deadpool_postgres::Pool {
    type Open = OpenClient;

    async fn begin(&self, statement: &'static str) -> Result<OpenClient, Refused> {
        let client = self.get().await.map_err(|error| match error {
            PoolError::Backend(error) => Refused::from(error),
            error @ (PoolError::Timeout(_)
            | PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_)) => Refused::lost(error.to_string()),
        })?;
        let open = OpenClient { client: Some(client), is_committing: false };
        open.client().batch_execute(statement).await?;
        Ok(open)
    }
}

impl sealed::Open for OpenClient {
    async fn ask(&mut self, statement: &'static str, params: &[&str]) -> Result<String, Refused> {
        let typed: Vec<(&(dyn ToSql + Sync), Type)> =
            params.iter().map(|param| (param as &(dyn ToSql + Sync), Type::TEXT)).collect();
        let rows = self.client().query_typed(statement, &typed).await?;
        let row = rows.first().ok_or_else(|| Refused::lost("no row".to_owned()))?;
        Ok(row.try_get(0)?)
    }

    async fn commit(mut self) -> Result<(), Refused> {
        self.is_committing = true;
        self.client().batch_execute("commit").await?;
        self.client = None;
        Ok(())
    }
}

impl Deref for Transaction<deadpool_postgres::Pool> {
    type Target = deadpool_postgres::ClientWrapper;

    fn deref(&self) -> &Self::Target {
        self.open().client()
    }
}

impl super::transactional::sealed::Executor for Transaction<deadpool_postgres::Pool> {
    async fn start_runs(&mut self, batch: &Batch<'_>) -> Result<Vec<String>, Refused> {
        let rows = self.query_typed(START_RUNS, &batch.typed()).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }
}

#[cfg(feature = "sqlx")]
mod with_sqlx {
    use std::ops::{Deref, DerefMut};

    use super::{Batch, Refused, Transaction, sealed};

    type Open = sqlx::Transaction<'static, sqlx::Postgres>;

    impl sealed::Pool for sqlx::PgPool {
        type Open = Open;

        async fn begin(&self, statement: &'static str) -> Result<Open, Refused> {
            Ok(self.begin_with(statement).await?)
        }
    }

    impl sealed::Open for Open {
        async fn ask(
            &mut self,
            statement: &'static str,
            params: &[&str],
        ) -> Result<String, Refused> {
            let mut query = sqlx::query_scalar(statement);
            for param in params {
                query = query.bind(*param);
            }
            // Behind a pooler a prepared statement may be somewhere else the next time.
            Ok(query.persistent(false).fetch_one(&mut **self).await?)
        }

        async fn commit(self) -> Result<(), Refused> {
            Ok(sqlx::Transaction::commit(self).await?)
        }
    }

    impl Deref for Transaction<sqlx::PgPool> {
        type Target = sqlx::PgConnection;

        fn deref(&self) -> &Self::Target {
            self.open()
        }
    }

    impl DerefMut for Transaction<sqlx::PgPool> {
        fn deref_mut(&mut self) -> &mut Self::Target {
            self.open.as_mut().expect("it is there until it is dropped")
        }
    }

    impl super::super::transactional::sealed::Executor for Transaction<sqlx::PgPool> {
        async fn start_runs(&mut self, batch: &Batch<'_>) -> Result<Vec<String>, Refused> {
            super::super::transactional::sealed::Executor::start_runs(&mut **self, batch).await
        }
    }
}
