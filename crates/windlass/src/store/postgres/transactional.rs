//! Starts inside the transaction of whoever starts.
//!
//! The run is written by the caller's own connection, through the function
//! `windlass.start_runs` of the schema, and exists if and only if the caller commits. The
//! engine lets it into the queues after that. Nothing here commits, and nothing here holds a
//! lock that other starts need, except those of the same key or id.
//!
//! This module does not know what a run consists of: the function does.

use std::fmt;
use std::future::Future;

use tokio_postgres::types::{ToSql, Type};
use windlass_core::RunId;

use crate::engine::{Start, Windlass};
use crate::error::{Error, ErrorKind};
use crate::run::RunHandle;
use crate::store::sealed::{Keyring, fields_of};
use crate::store::{BATCH_MAX, NewRun};

/// The most bytes of inputs in one statement: larger batches are cut, so that neither side
/// holds more than a few times this much.
const STATEMENT_BYTES_MAX: usize = 16 << 20;

pub(super) const START_RUNS: &str = include_str!("sql/start_runs.sql");

/// A connection of a driver that runs can be started on, within its transaction.
///
/// It is implemented for `tokio_postgres::Transaction` and `tokio_postgres::Client` (for
/// whoever begins and commits by statements; otherwise each statement is a transaction of
/// its own), and with the feature `sqlx` for `sqlx::PgConnection` and `sqlx::Transaction`.
/// It cannot be implemented elsewhere. Transactions of `deadpool_postgres` and connections
/// of sqlx's pool dereference to those: `&mut *transaction`.
pub trait StartExecutor: sealed::Executor {}

impl<E: sealed::Executor> StartExecutor for E {}

impl Windlass {
    /// Starts runs inside a transaction: all of them, or none if this fails. They exist if
    /// and only if the transaction is committed; until then nobody else sees them, and
    /// nothing runs. Up to 10,000 starts are one statement.
    ///
    /// The transaction must be one of the database that this engine's store is in.
    /// Workflows that the store does not know yet are registered first, outside of the
    /// transaction: one that sees the state of the database at an earlier time (REPEATABLE
    /// READ, SERIALIZABLE) must be begun after the first start of a workflow.
    ///
    /// Not cancel safe: if it is dropped, the transaction may have the runs or not, and
    /// should be rolled back.
    ///
    /// # Errors
    ///
    /// A start that is wrong in itself ([`ErrorKind::Argument`], [`ErrorKind::Payload`]) is
    /// refused before the transaction is touched. Every error that the database answers has
    /// aborted the transaction, and says so: roll it back, to a savepoint if there is one.
    /// [`ErrorKind::Conflict`] is a key or an id that was used for another start, or a
    /// transaction that can write nothing.
    /// [`ErrorKind::Unavailable`] asks to repeat the whole transaction: a lost connection, a
    /// deadlock, or a start of the same key that a transaction with an older view of the
    /// database cannot see.
    ///
    /// ```no_run
    /// # async fn example(windlass: windlass::Windlass, order: windlass::Workflow<u64>,
    /// #     mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = client.transaction().await?;
    /// transaction.execute("update baskets set is_ordered = true where batch = 7", &[]).await?;
    /// let starts = (0..500).map(|id| windlass.start(&order, id).key(format!("order-{id}")));
    /// let runs = windlass.start_all_in(&mut transaction, starts).await?;
    /// transaction.commit().await?;
    /// windlass.admit();
    /// # Ok(()) }
    /// ```
    pub async fn start_all_in<E: StartExecutor>(
        &self,
        transaction: &mut E,
        starts: impl IntoIterator<Item = Start>,
    ) -> Result<Vec<RunHandle>, Error> {
        let span = crate::spans::start(None);
        let keyring = self.store().keyring();
        let mut runs = Vec::new();
        for start in starts {
            start.register(self).await?;
            let fields = match &keyring {
                Some(keyring) => self.readable_fields(&start, keyring)?,
                None => Vec::new(),
            };
            let mut run = span.in_scope(|| start.prepare())?;
            if let Some(keyring) = &keyring {
                keyring.seal_start(&mut run, &fields);
            }
            runs.push(run);
        }
        span.record("runs", runs.len());
        let mut handles = Vec::with_capacity(runs.len());
        for runs in statements(&runs) {
            let started = transaction.start_runs(&Batch::of(runs)?).await.map_err(Error::from)?;
            if started.len() != runs.len() {
                let text = format!("{} starts had {} answers", runs.len(), started.len());
                return Err(Error::new(ErrorKind::Corrupt, text));
            }
            for id in started {
                let id: RunId = id.parse().map_err(|error| {
                    Error::new(ErrorKind::Corrupt, format!("run id {id:?}: {error}"))
                })?;
                handles.push(self.run(id).staged());
            }
        }
        self.store().expect_staged();
        Ok(handles)
    }

    /// The fields of the input that stay readable. Which those are is not for the store to say.
    fn readable_fields(&self, start: &Start, keyring: &Keyring) -> Result<Vec<String>, Error> {
        let definition = &start.definition;
        match (start.is_of_store(), self.own_definition(definition)) {
            (false, _) => Ok(fields_of(definition)),
            (true, Some(own)) => Ok(fields_of(&own)),
            (true, None) => Ok(keyring.fields_told(definition)?),
        }
    }
}

impl Start {
    /// Starts the run inside a transaction of the caller's: it exists if and only if that is
    /// committed. See [`Windlass::start_all_in`] for what holds.
    ///
    /// The handle is good for waiting once the transaction is committed; before, there is
    /// nothing to see. It begins right after the commit; where transactions may be prepared
    /// for a two-phase commit, whoever does not wait calls [`Windlass::admit`] for that.
    ///
    /// ```no_run
    /// # async fn example(windlass: windlass::Windlass, order: windlass::Workflow<u64>,
    /// #     mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = client.transaction().await?;
    /// transaction.execute("insert into orders (id) values (9182)", &[]).await?;
    /// let start = windlass.start(&order, 9182).tenant("acme").key("order-9182");
    /// let run = start.in_transaction(&mut transaction).await?;
    /// transaction.commit().await?;
    /// run.wait().await?;
    /// # Ok(()) }
    /// ```
    pub async fn in_transaction<E: StartExecutor>(
        self,
        transaction: &mut E,
    ) -> Result<RunHandle, Error> {
        let windlass = self.windlass.clone();
        let run = windlass.start_all_in(transaction, [self]).await?.pop();
        run.ok_or_else(|| Error::new(ErrorKind::Corrupt, "the database left a start unanswered"))
    }
}

/// Cuts runs into what one statement takes.
fn statements(runs: &[NewRun]) -> Vec<&[NewRun]> {
    let mut statements = Vec::new();
    let (mut first, mut bytes) = (0, 0);
    for (position, run) in runs.iter().enumerate() {
        let more = run.input.as_str().len();
        if position - first == BATCH_MAX || (position > first && bytes + more > STATEMENT_BYTES_MAX)
        {
            statements.push(&runs[first..position]);
            (first, bytes) = (position, 0);
        }
        bytes += more;
    }
    if first < runs.len() {
        statements.push(&runs[first..]);
    }
    statements
}

pub(super) mod sealed {
    use super::{Batch, Future, Refused};

    /// Starts a batch and answers the ids of its runs, in their order.
    pub trait Executor: Send {
        fn start_runs(
            &mut self,
            batch: &Batch<'_>,
        ) -> impl Future<Output = Result<Vec<String>, Refused>> + Send;
    }
}

/// Starts as the columns that the statement wants. Texts and numbers only: every driver has
/// arrays of those, and the statement casts them.
pub struct Batch<'a> {
    ids: Vec<String>,
    workflows: Vec<&'a str>,
    versions: Vec<i32>,
    tenants: Vec<&'a str>,
    inputs: Vec<&'a str>,
    keys: Vec<Option<&'a str>>,
    delays: Vec<String>,
    priorities: Vec<i32>,
    metadata: Vec<Option<String>>,
}

impl<'a> Batch<'a> {
    fn of(runs: &'a [NewRun]) -> Result<Self, Error> {
        let mut metadata = Vec::with_capacity(runs.len());
        for run in runs {
            let pairs = (!run.metadata.is_empty()).then(|| serde_json::to_string(&run.metadata));
            metadata.push(pairs.transpose().map_err(|error| {
                Error::new(ErrorKind::Argument, format!("metadata of run {}: {error}", run.id))
            })?);
        }
        Ok(Batch {
            ids: runs.iter().map(|run| run.id.to_string()).collect(),
            workflows: runs.iter().map(|run| run.workflow.as_str()).collect(),
            versions: runs.iter().map(|run| run.version.get().cast_signed()).collect(),
            tenants: runs.iter().map(|run| run.tenant.as_str()).collect(),
            inputs: runs.iter().map(|run| run.input.as_str()).collect(),
            keys: runs.iter().map(|run| run.key.as_ref().map(|key| key.as_str())).collect(),
            // Rounded up: a timer is never early.
            delays: runs.iter().map(|run| interval(run.delay.as_nanos().div_ceil(1_000))).collect(),
            priorities: runs.iter().map(|run| i32::from(run.priority.get())).collect(),
            metadata,
        })
    }

    pub(super) fn typed(&self) -> [(&(dyn ToSql + Sync), Type); 9] {
        [
            (&self.ids, Type::TEXT_ARRAY),
            (&self.workflows, Type::TEXT_ARRAY),
            (&self.versions, Type::INT4_ARRAY),
            (&self.tenants, Type::TEXT_ARRAY),
            (&self.inputs, Type::TEXT_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.delays, Type::TEXT_ARRAY),
            (&self.priorities, Type::INT4_ARRAY),
            (&self.metadata, Type::TEXT_ARRAY),
        ]
    }
}

/// Why the database did not do what it was asked to on a connection of a user's.
pub struct Refused {
    /// None if it is not the database that answered.
    sqlstate: Option<String>,
    message: String,
}

impl Refused {
    /// There was no answer.
    pub(crate) fn lost(message: String) -> Self {
        Refused { sqlstate: None, message }
    }

    /// The SQLSTATE, empty if it is not the database that answered.
    pub(crate) fn state(&self) -> &str {
        self.sqlstate.as_deref().unwrap_or_default()
    }

    /// Whether the database interrupted what was right in itself: it may work when it is done
    /// again.
    pub(crate) fn is_interruption(&self) -> bool {
        let state = self.state();
        let class = state.get(..2).unwrap_or_default();
        matches!(class, "" | "08" | "40" | "53" | "57" | "58") || state == "55P03"
    }

    /// Whether the database has no such schema or function.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.state(), "3F000" | "42883")
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sqlstate {
            Some(state) => write!(f, "{} ({state})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        let Refused { sqlstate, message } = refused;
        let Some(state) = sqlstate else {
            let text = format!("the connection of the transaction failed: {message}");
            return Error::new(ErrorKind::Unavailable, text);
        };
        let kind = match (state.get(..2).unwrap_or_default(), state.as_str()) {
            (_, "WL002") => ErrorKind::Argument,
            (_, "WL003") => ErrorKind::Payload,
            (_, "WL004") => ErrorKind::NotFound,
            // In use for another start; aborted before, or read-only.
            (_, "WL005") | ("25", _) => ErrorKind::Conflict,
            // The schema, its function or a table of it is not there.
            (_, "3F000" | "42883" | "42P01") => ErrorKind::Schema,
            (_, "42501") => ErrorKind::Database,
            // A lock was not to be had in time.
            (_, "55P03") | ("08" | "40" | "53" | "57" | "58", _) => ErrorKind::Unavailable,
            // More than the server takes, such as JSON that is nested without end.
            ("22" | "54", _) => ErrorKind::Payload,
            _ => ErrorKind::Corrupt,
        };
        let message = match message.rsplit_once(" [WL-") {
            Some((message, _)) => message.to_owned(),
            None => format!("{message} ({state})"),
        };
        let advice = if kind == ErrorKind::Schema { "; see `windlass migrate`" } else { "" };
        Error::new(kind, format!("{message}{advice}; the transaction is aborted"))
    }
}

impl From<tokio_postgres::Error> for Refused {
    fn from(error: tokio_postgres::Error) -> Refused {
        match error.as_db_error() {
            Some(answer) => Refused {
                sqlstate: Some(answer.code().code().to_owned()),
                message: answer.message().to_owned(),
            },
            None => Refused { sqlstate: None, message: error.to_string() },
        }
    }
}

impl sealed::Executor for tokio_postgres::Transaction<'_> {
    async fn start_runs(&mut self, batch: &Batch<'_>) -> Result<Vec<String>, Refused> {
        let rows = self.query_typed(START_RUNS, &batch.typed()).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }
}

impl sealed::Executor for tokio_postgres::Client {
    async fn start_runs(&mut self, batch: &Batch<'_>) -> Result<Vec<String>, Refused> {
        let rows = self.query_typed(START_RUNS, &batch.typed()).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }
}

#[cfg(feature = "sqlx")]
impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Refused {
        match error.as_database_error() {
            Some(answer) => Refused {
                sqlstate: answer.code().map(|code| code.into_owned()),
                message: answer.message().to_owned(),
            },
            None => Refused { sqlstate: None, message: error.to_string() },
        }
    }
}

#[cfg(feature = "sqlx")]
impl sealed::Executor for sqlx::PgConnection {
    async fn start_runs(&mut self, batch: &Batch<'_>) -> Result<Vec<String>, Refused> {
        let query = sqlx::query_scalar(START_RUNS)
            .bind(&batch.ids)
            .bind(&batch.workflows)
            .bind(&batch.versions)
            .bind(&batch.tenants)
            .bind(&batch.inputs)
            .bind(&batch.keys)
            .bind(&batch.delays)
            .bind(&batch.priorities)
            .bind(&batch.metadata);
        // Behind a pooler a prepared statement may be somewhere else the next time.
        Ok(query.persistent(false).fetch_all(self).await?)
    }
}

#[cfg(feature = "sqlx")]
impl sealed::Executor for sqlx::Transaction<'_, sqlx::Postgres> {
    async fn start_runs(&mut self, batch: &Batch<'_>) -> Result<Vec<String>, Refused> {
        sealed::Executor::start_runs(&mut **self, batch).await
    }
}

/// So many microseconds, in a form whose numbers PostgreSQL 14 can read.
fn interval(micros: u128) -> String {
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    format!("{}:{:02}:{:02}.{micros:06}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use windlass_core::payload::PAYLOAD_BYTES_DEFAULT;
    use windlass_core::{Payload, Priority, Tenant, Timestamp, Version, WorkflowName};

    use super::*;

    fn runs(count: usize, bytes: usize) -> Vec<NewRun> {
        let input = Payload::encode(&"x".repeat(bytes - 2)).expect("it is within the limit");
        let run = |number| NewRun {
            id: RunId::from_parts(Timestamp::from_micros(0), number),
            workflow: WorkflowName::new("order").expect("a name"),
            version: Version::FIRST,
            tenant: Tenant::default(),
            input: input.clone(),
            key: None,
            delay: Duration::ZERO,
            priority: Priority::default(),
            metadata: BTreeMap::new(),
        };
        (0..count as u128).map(run).collect()
    }

    fn lengths(runs: &[NewRun]) -> Vec<usize> {
        let statements = statements(runs);
        assert_eq!(statements.concat(), runs, "each run is in one statement, in its order");
        statements.iter().map(|statement| statement.len()).collect()
    }

    #[test]
    fn a_statement_has_no_more_runs_and_bytes_than_its_limits() {
        assert_eq!(lengths(&[]), [0; 0]);
        assert_eq!(lengths(&runs(BATCH_MAX, 2)), [BATCH_MAX]);
        assert_eq!(lengths(&runs(2 * BATCH_MAX + 1, 2)), [BATCH_MAX, BATCH_MAX, 1]);
        let most = STATEMENT_BYTES_MAX / PAYLOAD_BYTES_DEFAULT;
        assert_eq!(lengths(&runs(most, PAYLOAD_BYTES_DEFAULT)), [most]);
        assert_eq!(lengths(&runs(most + 1, PAYLOAD_BYTES_DEFAULT)), [most, 1]);
    }

    #[test]
    fn errors_of_the_database_are_told_apart_by_what_the_caller_can_do() {
        let kind = |state: &str| {
            let refused = Refused { sqlstate: Some(state.to_owned()), message: "no".to_owned() };
            Error::from(refused).kind()
        };
        for (states, expected) in [
            (&["40001", "40P01", "55P03", "57P01", "53300", "08006"][..], ErrorKind::Unavailable),
            (&["WL005", "25P02", "25006"], ErrorKind::Conflict),
            (&["WL002"], ErrorKind::Argument),
            (&["WL003", "54001"], ErrorKind::Payload),
            (&["WL004"], ErrorKind::NotFound),
            (&["42883", "3F000"], ErrorKind::Schema),
            (&["42501"], ErrorKind::Database),
            (&["23514", "XX000", ""], ErrorKind::Corrupt),
        ] {
            for state in states {
                assert_eq!(kind(state), expected, "{state}");
            }
        }
        let lost = Refused { sqlstate: None, message: "connection closed".to_owned() };
        let lost = Error::from(lost);
        assert_eq!(lost.kind(), ErrorKind::Unavailable);
        assert_eq!(
            lost.to_string(),
            "the connection of the transaction failed: connection closed [WL-0007]"
        );
    }
}
