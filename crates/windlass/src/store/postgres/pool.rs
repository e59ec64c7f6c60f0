//! Connections, and the transactions that verbs are.
//!
//! Statements that do not need each other's answers are sent one behind the other without
//! waiting: a verb waits for the server two or three times, not once for each of its
//! statements. Those that a verb ends with go together with its commit, and the server
//! answers such a commit with a rollback if one of them failed.
//!
//! A transaction that is not committed is rolled back, also when the future that runs
//! it is dropped in the middle. A connection goes back to the pool only when nothing of
//! its last user is under way on it; one that was given up in the middle of a statement
//! is closed, and the server told to stop working for it.

mod beginning;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use deadpool_postgres::{
    Client, Manager, ManagerConfig, Object, PoolError, QueueMode, RecyclingMethod, Runtime,
    TimeoutType,
};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, MaybeDone, maybe_done};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Socket, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::Target;
use super::fault::{Fault, Remedy, Retries, describe, remedy};
use super::names::{NameCache, Names};
use super::options::PostgresOptions;
use super::tls::Tls;
use super::writes::Writes;
use crate::Error;
use crate::store::Connections;

/// How much longer than the server a client waits for a statement before it takes the
/// connection for dead.
const ANSWER_SLACK: Duration = Duration::from_secs(5);

/// How long a statement may stay unanswered; `None` for ever.
pub(super) fn answer_max(options: &PostgresOptions) -> Option<Duration> {
    let timeout = options.statement_timeout;
    (!timeout.is_zero()).then(|| timeout + ANSWER_SLACK)
}

/// A statement: its name, its text and the types of its parameters.
#[derive(Debug)]
pub(super) struct Sql {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    pub(super) types: &'static [Type],
}

/// Makes a constant of a statement in `sql/`, with the types of its parameters:
/// `sql!(CLAIM, "claim.sql", [UUID, INT8])`.
macro_rules! sql {
    ($constant:ident, $file:literal, [$($type:ident),* $(,)?]) => {
        pub(super) const $constant: $crate::store::postgres::pool::Sql =
            $crate::store::postgres::pool::Sql {
                name: $crate::store::postgres::pool::stem($file),
                text: include_str!(concat!("sql/", $file)),
                types: &[$(::tokio_postgres::types::Type::$type),*],
            };
    };
}
pub(super) use sql;

/// The name of a file without `.sql`.
pub(super) const fn stem(file: &str) -> &str {
    file.split_at(file.len() - ".sql".len()).0
}

/// The parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A statement and its parameters.
pub(super) type Ask<'a> = (&'a Sql, Params<'a>);

/// What keeps plans from flipping. Every hot statement is a few lookups by index, whatever
/// the tables hold; the planner takes a table that was empty when it was last vacuumed for
/// empty still, and would rather read it whole. A generic plan is made once, not for each
/// batch. Tests pin the plans that these settings give.
const PLANNER: [(&str, &str); 5] = [
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    // Only our transactions are: see `Connection::begin`.
    ("default_transaction_deferrable", "off"),
];

/// The connections of a store.
#[derive(Clone)]
pub(super) struct Pool {
    connections: deadpool_postgres::Pool,
    habits: Arc<Habits>,
    names: Arc<NameCache>,
}

/// What all connections of a pool do alike.
struct Habits {
    /// The database, as errors name it.
    database: String,
    /// What begins a transaction, in one message.
    begin: String,
    is_pooled: bool,
    /// Whether each statement is to be in a transaction, because that begins with commands.
    always_begins: bool,
    /// How long a statement may stay unanswered; `None` for ever.
    answer_max: Option<Duration>,
    acquire_timeout: Duration,
    open_max: Duration,
    tls: Tls,
    /// How many statements were sent, those that begin and end transactions among them.
    statements: Arc<AtomicU64>,
    #[cfg(feature = "testing")]
    steps: Option<super::step::Steps>,
}

impl Habits {
    fn new(options: &PostgresOptions, target: &Target) -> Self {
        // Whatever the role's defaults are. Whether it may write is the database's to say: on a
        // standby, to ask for it would be an error of its own, which is not tried again.
        // `deferrable` means nothing at this level, and tells what must not be done outside of a
        // transaction that it is in one.
        let mut begin = "begin isolation level read committed deferrable".to_owned();
        if options.is_pooled {
            for (name, timeout) in options.timeouts() {
                begin.push_str(&format!("; set local {name} = {}", timeout.as_millis()));
            }
            for (name, value) in PLANNER {
                begin.push_str(&format!("; set local {name} = {value}"));
            }
        }
        Habits {
            database: target.name(),
            begin,
            is_pooled: options.is_pooled,
            always_begins: false,
            answer_max: answer_max(options),
            acquire_timeout: options.acquire_timeout,
            open_max: options.open_max(),
            tls: target.tls.clone(),
            statements: Arc::default(),
            #[cfg(feature = "testing")]
            steps: options.steps.clone(),
        }
    }

    /// What to say of a connection that could not be opened.
    fn not_opened(&self, error: tokio_postgres::Error) -> Fault {
        match remedy(&error) {
            Remedy::Outage => self.unreachable(&describe(&error)),
            Remedy::Conflict
            | Remedy::Data
            | Remedy::Schema
            | Remedy::Permission
            | Remedy::Corrupt
            | Remedy::None => Fault::Database(error),
        }
    }

    fn unreachable(&self, why: &str) -> Fault {
        Fault::Unreachable(format!("database {} cannot be reached: {why}", self.database))
    }
}

impl Pool {
    /// Connects, and makes sure that the database is one that can be worked with.
    pub(super) async fn connect(options: &PostgresOptions) -> Result<Pool, Error> {
        let target = options.target()?;
        let pool = Pool::new(options, &target)?;
        super::check::check(&pool, &target).await?;
        Ok(pool)
    }

    /// A pool that has not connected yet.
    pub(super) fn new(options: &PostgresOptions, target: &Target) -> Result<Pool, Error> {
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let tls = target.tls.0.clone();
        let mut target_config = target.config.clone();
        if !options.is_pooled {
            let mut said = target_config.get_options().unwrap_or_default().to_owned();
            for (name, value) in PLANNER {
                said.push_str(&format!(" -c {name}={value}"));
            }
            target_config.options(said);
        }
        let manager = Manager::from_config(target_config, tls, config);
        let connections = deadpool_postgres::Pool::builder(manager)
            .max_size(options.max_connections)
            // Whoever repeats a verb gets the connection on which it was rolled back, and so
            // comes behind that. Also, fewer connections are kept warm.
            .queue_mode(QueueMode::Lifo)
            .wait_timeout(Some(options.acquire_timeout))
            .create_timeout(Some(options.open_max()))
            .runtime(Runtime::Tokio1)
            .build()
            .expect("a runtime is there for the timeouts");
        let habits = Arc::new(Habits::new(options, target));
        Ok(Pool { connections, habits, names: Arc::default() })
    }

    /// How many connections there are.
    pub(super) fn connections(&self) -> Connections {
        let status = self.connections.status();
        Connections {
            most: status.max_size,
            open: status.size,
            idle: status.available,
            waiting: status.waiting,
        }
    }

    /// A connection, to begin a transaction on.
    pub(super) async fn get(&self) -> Result<Connection, Fault> {
        let client = self.connections.get().await.map_err(|error| match error {
            PoolError::Backend(error) => self.habits.not_opened(error),
            PoolError::Timeout(TimeoutType::Wait) => {
                let status = self.connections.status();
                let (max, waited) = (status.max_size, self.habits.acquire_timeout);
                let text = format!("all {max} connections were in use for {waited:?}");
                Fault::Unavailable(text)
            }
            PoolError::Timeout(TimeoutType::Create | TimeoutType::Recycle) => {
                self.habits.unreachable(&late(self.habits.open_max))
            }
            error @ (PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_)) => Fault::Unavailable(error.to_string()),
        })?;
        Ok(Connection {
            client: Some(client),
            habits: Arc::clone(&self.habits),
            names: self.names.current(),
            is_open: AtomicBool::new(false),
            unanswered: AtomicUsize::new(0),
            is_broken: AtomicBool::new(false),
        })
    }

    /// Returns the names that transactions of this pool begin with.
    pub(super) fn names(&self) -> &NameCache {
        &self.names
    }

    /// How many statements were sent so far, those that begin and end transactions among
    /// them.
    pub(super) fn statements(&self) -> u64 {
        self.habits.statements.load(Ordering::Relaxed)
    }

    /// The tries of one call of a verb.
    pub(super) fn retries(&self, verb: &'static str) -> Retries {
        Retries::new(verb)
    }
}

/// A session of its own, outside of the pool: it is driven by whoever has the second part.
pub(super) async fn open(
    target: &Target,
    limit: Duration,
) -> Result<(tokio_postgres::Client, Driver), Fault> {
    let opened = target.config.connect(target.tls.0.clone());
    match tokio::time::timeout(limit, opened).await {
        Ok(opened) => Ok(opened?),
        Err(_) => Err(Fault::Unavailable(late(limit))),
    }
}

/// What moves the messages of a session.
pub(super) type Driver =
    tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

fn late(limit: Duration) -> String {
    format!("no connection was opened within {limit:?}")
}

/// A connection that is this verb's alone.
pub(super) struct Connection {
    /// `None` once it is dropped.
    client: Option<Client>,
    habits: Arc<Habits>,
    names: Arc<Names>,
    /// Whether a transaction is open.
    is_open: AtomicBool,
    /// How many statements were sent and not answered.
    unanswered: AtomicUsize,
    /// Whether an answer said that the connection is of no more use.
    is_broken: AtomicBool,
}

impl Connection {
    /// Begins a transaction, together with its first statements: they are sent without
    /// waiting for the beginning, and so must do no harm alone. Those that write do nothing
    /// unless `transaction_deferrable` is on. Dropped without a commit, it is rolled back.
    pub(super) fn begin(&mut self) -> Tx<'_> {
        Tx { connection: self, has_failed: AtomicBool::new(false) }
    }

    /// Sends one statement that is a transaction of its own.
    pub(super) async fn query(&mut self, sql: &Sql, params: Params<'_>) -> Result<Vec<Row>, Fault> {
        if self.habits.is_pooled {
            // The timeouts come with a transaction.
            let tx = self.begin();
            let rows = tx.query(sql, params).await?;
            tx.commit(Writes::default()).await?;
            return Ok(rows);
        }
        self.step(sql.name).await;
        if self.habits.always_begins {
            let whole = Bounds { begins: true, end: End::Commit(None) };
            let rows = self.exchange(&[(sql, params)], whole).await?;
            return Ok(rows.into_iter().next().unwrap_or_default());
        }
        Ok(self.exchange(&[(sql, params)], Bounds::NONE).await?.pop().unwrap_or_default())
    }

    /// Sends statements one behind the other, waits for the rows of each, and fails with the
    /// first that failed.
    async fn exchange(&self, asks: &[Ask<'_>], bounds: Bounds<'_>) -> Result<Vec<Vec<Row>>, Fault> {
        let ends = match bounds.end {
            End::Open => 0,
            End::Commit(news) => 1 + usize::from(news.is_some()),
        };
        let count = asks.len() + usize::from(bounds.begins) + ends;
        self.habits.statements.fetch_add(count as u64, Ordering::Relaxed);
        // If this future is dropped before the last answer, the count tells.
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        let answers = self.send(asks, bounds).await?;
        self.unanswered.fetch_sub(1, Ordering::Relaxed);
        answers.map_err(|error| {
            if remedy(&error) == Remedy::Outage {
                self.is_broken.store(true, Ordering::Relaxed);
            }
            Fault::Database(error)
        })
    }

    /// Does that, and answers what the server answered. The fault is that it did not.
    async fn send(
        &self,
        asks: &[Ask<'_>],
        bounds: Bounds<'_>,
    ) -> Result<Result<Vec<Vec<Row>>, tokio_postgres::Error>, Fault> {
        let client = self.client();
        let limit = self.habits.answer_max;
        let mut statements = Vec::with_capacity(asks.len());
        for (sql, _) in asks.iter().filter(|_| !self.habits.is_pooled) {
            // Known already, except to a new connection: so none of what follows waits.
            match within(limit, client.prepare_typed_cached(sql.text, sql.types)).await? {
                Ok(statement) => statements.push(statement),
                Err(error) => return Ok(Err(error)),
            }
        }
        let mut sent = Vec::with_capacity(asks.len() + 2);
        if bounds.begins {
            self.is_open.store(true, Ordering::Relaxed);
            sent.push(begun(Box::pin(command(client, &self.habits.begin))));
        }
        for (number, ask) in asks.iter().enumerate() {
            sent.push(begun(Box::pin(query(client, statements.get(number), ask))));
        }
        // What could not even be encoded was not sent: the server must not commit the rest.
        let is_whole = !sent.iter().any(|request| matches!(request, MaybeDone::Done(Err(_))));
        if let (End::Commit(news), true) = (bounds.end, is_whole) {
            sent.push(begun(Box::pin(command(client, "commit"))));
            drop(news.map(|news| begun(Box::pin(command(client, news)))));
        }
        let mut answers = Vec::with_capacity(sent.len());
        for request in &mut sent {
            within(limit, &mut *request).await?;
            answers.extend(Pin::new(request).take_output());
        }
        if let (End::Commit(_), true) = (bounds.end, is_whole) {
            // Or rolled back.
            self.is_open.store(false, Ordering::Relaxed);
        }
        let rows: Result<Vec<Vec<Row>>, _> = answers.into_iter().collect();
        Ok(rows.map(|mut rows| rows.split_off(usize::from(bounds.begins))))
    }

    /// Waits until a test allows the statement. The rollback of the last transaction may still be
    /// on its way; the test goes on once its locks are gone.
    #[cfg(feature = "testing")]
    async fn step(&self, name: &'static str) {
        if let Some(steps) = &self.habits.steps {
            if !self.is_open.load(Ordering::Relaxed) {
                // If the connection is lost, the statement says so.
                let _ = self.client().batch_execute("").await;
            }
            steps.permit(name).await;
        }
    }

    #[cfg(not(feature = "testing"))]
    #[inline(always)]
    async fn step(&self, _: &'static str) {}

    /// Whether each statement waits for a test to allow it.
    fn is_stepped(&self) -> bool {
        #[cfg(feature = "testing")]
        return self.habits.steps.is_some();
        #[cfg(not(feature = "testing"))]
        return false;
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("a connection has its client until it is dropped")
    }
}

/// Waits for an answer, but not for ever: a server that is stuck closes no connection.
pub(super) async fn within<T>(
    limit: Option<Duration>,
    answer: impl Future<Output = T>,
) -> Result<T, Fault> {
    let Some(limit) = limit else {
        return Ok(answer.await);
    };
    let began = Instant::now();
    let mut answer = std::pin::pin!(answer);
    match tokio::time::timeout(limit, &mut answer).await {
        Ok(answer) => Ok(answer),
        // The clock of a test that runs ahead of the network says nothing.
        Err(_) if began.elapsed() < limit => Ok(answer.await),
        Err(_) => Err(Fault::Unavailable(format!("the database has not answered for {limit:?}"))),
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else {
            return;
        };
        let is_unanswered = self.unanswered.load(Ordering::Relaxed) > 0;
        if !(is_unanswered || self.is_broken.load(Ordering::Relaxed)) {
            return;
        }
        // Out of the pool, and closed when it is dropped.
        let client = Object::take(client);
        let token = client.cancel_token();
        drop(client);
        let tls = self.habits.tls.0.clone();
        if let (true, Ok(runtime)) = (is_unanswered, tokio::runtime::Handle::try_current()) {
            // A server does not notice that its client is gone while it works or waits
            // for a lock, and keeps what it has locked.
            runtime.spawn(async move { token.cancel_query(tls).await });
        }
    }
}

/// Whether a transaction begins before statements, and how it goes on after them.
#[derive(Clone, Copy, Debug)]
struct Bounds<'a> {
    begins: bool,
    end: End<'a>,
}

impl Bounds<'_> {
    const NONE: Bounds<'static> = Bounds { begins: false, end: End::Open };
}

/// How a transaction goes on after statements.
#[derive(Clone, Copy, Debug)]
enum End<'a> {
    /// With others.
    Open,
    /// With its commit, and a statement behind that whose answer nobody waits for.
    Commit(Option<&'a str>),
}

/// One verb's transaction, at READ COMMITTED.
pub(super) struct Tx<'a> {
    connection: &'a mut Connection,
    /// Whether a statement failed: the server has rolled back then.
    has_failed: AtomicBool,
}

impl Tx<'_> {
    /// Returns the names of this transaction, which do not change until its end but by additions.
    pub(super) fn names(&self) -> &Arc<Names> {
        &self.connection.names
    }

    /// Begins it before the first statement is even prepared: a pooler that nobody spoke of
    /// may let another session prepare it.
    pub(super) async fn open(&self) -> Result<(), Fault> {
        self.exchange(&[], End::Open).await.map(drop)
    }

    /// Sends a statement and waits for its rows.
    pub(super) async fn query(&self, sql: &Sql, params: Params<'_>) -> Result<Vec<Row>, Fault> {
        let [rows] = self.query_all([(sql, params)]).await?;
        Ok(rows)
    }

    /// Sends statements of which none needs the answer to another, and waits for the rows of
    /// all of them. The server does one after the other.
    pub(super) async fn query_all<const N: usize>(
        &self,
        asks: [Ask<'_>; N],
    ) -> Result<[Vec<Row>; N], Fault> {
        let rows = self.query_each(&asks).await?;
        let short = |rows: Vec<_>| Fault::Unavailable(format!("{} of {N} answers", rows.len()));
        rows.try_into().map_err(short)
    }

    /// Does the same with any number of statements.
    pub(super) async fn query_each(&self, asks: &[Ask<'_>]) -> Result<Vec<Vec<Row>>, Fault> {
        self.exchange(asks, End::Open).await
    }

    /// Sends what is to be written and then asks, and waits for the rows of the questions.
    pub(super) async fn write(
        &self,
        writes: &Writes<'_>,
        asks: &[Ask<'_>],
    ) -> Result<Vec<Vec<Row>>, Fault> {
        let params = writes.params();
        let mut all = writes.asks(&params);
        let count = all.len();
        all.extend(asks);
        let mut rows = self.exchange(&all, End::Open).await?;
        writes.check(&rows)?;
        Ok(rows.split_off(count))
    }

    /// Sends what is to be written and commits. If the answer is lost, whether it took place
    /// is not known. Answers the rows of each.
    pub(super) async fn commit(self, writes: Writes<'_>) -> Result<Vec<Vec<Row>>, Fault> {
        self.commit_and_tell(writes, None).await
    }

    /// Does the same, and sends another statement behind the commit, whose answer nobody waits
    /// for.
    pub(super) async fn commit_and_tell(
        self,
        writes: Writes<'_>,
        news: Option<&str>,
    ) -> Result<Vec<Vec<Row>>, Fault> {
        if self.has_failed.load(Ordering::Relaxed) {
            // The server would answer such a commit with a rollback, and no error.
            let text = "a transaction was to be committed after a statement of it had failed";
            return Err(Fault::Unavailable(text.to_owned()));
        }
        let params = writes.params();
        let asks = writes.asks(&params);
        let is_open = self.connection.is_open.load(Ordering::Relaxed);
        let rows = if !is_open && asks.is_empty() {
            // Nothing was done.
            return Ok(Vec::new());
        } else if is_open && !writes.has_checks() {
            let mut rows = self.exchange(&asks, End::Commit(news)).await?;
            rows.pop();
            rows
        } else {
            let rows = self.exchange(&asks, End::Open).await?;
            writes.check(&rows)?;
            self.exchange(&[], End::Commit(news)).await?;
            rows
        };
        Ok(rows)
    }

    async fn exchange(&self, asks: &[Ask<'_>], end: End<'_>) -> Result<Vec<Vec<Row>>, Fault> {
        let connection = &*self.connection;
        let begins = || !connection.is_open.load(Ordering::Relaxed);
        let bounds = |end| Bounds { begins: begins(), end };
        if !connection.is_stepped() {
            return self.note(connection.exchange(asks, bounds(end)).await);
        }
        let mut rows = Vec::new();
        for ask in asks {
            connection.step(ask.0.name).await;
            let one = connection.exchange(std::slice::from_ref(ask), bounds(End::Open)).await;
            rows.extend(self.note(one)?);
        }
        if let End::Commit(_) = end {
            connection.step("commit").await;
            rows.extend(self.note(connection.exchange(&[], bounds(end)).await)?);
        }
        Ok(rows)
    }

    fn note<T>(&self, answer: Result<T, Fault>) -> Result<T, Fault> {
        if answer.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        answer
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        let connection = &mut self.connection;
        if *connection.is_open.get_mut() && *connection.unanswered.get_mut() == 0 {
            *connection.is_open.get_mut() = false;
            // Sends it without waiting: whatever comes next on this connection is
            // behind it.
            let _ = connection.client().batch_execute("rollback").now_or_never();
        }
    }
}

/// The rows of a statement, or why it failed.
type Rows = Result<Vec<Row>, tokio_postgres::Error>;

/// Begins a request: it is sent when it is polled first.
fn begun(request: BoxFuture<'_, Rows>) -> MaybeDone<BoxFuture<'_, Rows>> {
    let mut request = maybe_done(request);
    let _ = (&mut request).now_or_never();
    request
}

async fn command(client: &Client, text: &str) -> Rows {
    client.batch_execute(text).await.map(|()| Vec::new())
}

/// Sends a statement, by its text if it was not prepared.
async fn query(client: &Client, statement: Option<&Statement>, (sql, params): &Ask<'_>) -> Rows {
    match statement {
        Some(statement) => client.query(statement, params).await,
        None => client.query_typed(sql.text, &typed(sql, params)).await,
    }
}

/// The parameters with their types, for a statement that is not prepared.
fn typed<'a>(sql: &Sql, params: Params<'a>) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    params.iter().copied().zip(sql.types.iter().cloned()).collect()
}
