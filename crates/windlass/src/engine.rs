//! The handle through which programs use Windlass.

mod operators;

use std::collections::{BTreeMap, HashMap};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tracing::Instrument as _;
use windlass_core::retry::WAIT_MAX;
use windlass_core::trace::{TRACEPARENT, TRACESTATE};
use windlass_core::{
    Definition, IdempotencyKey, Payload, Priority, RunId, Tenant, Version, Weight, WorkflowName,
};

use crate::dead::DeadLetters;
use crate::duties::{Duties, DutyOptions};
#[cfg(all(feature = "embedded", feature = "postgres", unix))]
use crate::embedded::{EmbeddedOptions, EmbeddedPostgres};
use crate::error::{Error, ErrorKind};
use crate::metrics::Metrics;
use crate::random::secure_bits;
use crate::run::RunHandle;
use crate::spans;
use crate::starter::Starter;
#[cfg(feature = "postgres")]
use crate::store::postgres::{PostgresOptions, PostgresStore};
use crate::store::{
    BATCH_MAX, DeadLetterFilter, MemoryStore, NewRun, RunFilter, RunPage, Started, Store, batch_len,
};
use crate::worker::WorkerBuilder;
use crate::workflow::Workflow;

/// Starts, finds and steers runs, and makes workers. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use windlass::{Ctx, TaskError, Windlass, Workflow};
///
/// let mut greet = Workflow::<String>::builder("greet");
/// let hello = greet.task("hello").run(async |ctx: Ctx<String>| {
///     Ok::<_, TaskError>(format!("hello, {}", ctx.input()))
/// });
/// let greet = greet.build()?;
///
/// let windlass = Windlass::memory();
/// let worker = windlass.worker().register(&greet).spawn()?;
/// let run = windlass.start(&greet, "sailor".to_owned()).tenant("acme").await?;
/// run.wait().await?;
/// assert_eq!(run.output(&hello).await?, "hello, sailor");
/// worker.drain().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Windlass {
    store: Arc<dyn Store>,
    shared: Arc<Mutex<Shared>>,
    registered: Arc<Mutex<Registered>>,
    pub(crate) starter: Arc<Starter>,
    metrics: Arc<Metrics>,
    /// The private server that this engine started.
    #[cfg(all(feature = "embedded", feature = "postgres", unix))]
    server: Option<Arc<EmbeddedPostgres>>,
}

struct Shared {
    rng: fastrand::Rng,
    /// The newest id that was made here; the next one sorts behind it.
    last_run: Option<RunId>,
}

/// The definitions of this program that its store is known to know, by name and version.
type Registered = HashMap<(WorkflowName, Version), Arc<Definition>>;

impl Windlass {
    /// An engine on a store in memory, gone with the process.
    pub fn memory() -> Self {
        Windlass::with_store(Arc::new(MemoryStore::new()))
    }

    /// An engine on a store.
    pub fn with_store(store: Arc<dyn Store>) -> Self {
        let shared = Shared { rng: fastrand::Rng::new(), last_run: None };
        Windlass {
            store,
            shared: Arc::new(Mutex::new(shared)),
            registered: Arc::default(),
            starter: Arc::default(),
            metrics: Arc::default(),
            #[cfg(all(feature = "embedded", feature = "postgres", unix))]
            server: None,
        }
    }

    /// An engine on a PostgreSQL database whose schema is there; see
    /// [`PostgresOptions::migrate`] for one whose schema is yet to be made.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), windlass::Error> {
    /// use windlass::Windlass;
    ///
    /// let windlass = Windlass::connect("postgres://app@db.example.com/app").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`PostgresStore::connect`].
    #[cfg(feature = "postgres")]
    pub async fn connect(options: impl Into<PostgresOptions>) -> Result<Self, Error> {
        let store = PostgresStore::connect(options.into()).await?;
        Ok(Windlass::with_store(Arc::new(store)))
    }

    /// An engine on a private PostgreSQL in a directory: for development, tests and single
    /// machines. The server is started or joined, and its schema made or brought up to
    /// date. It goes on when the engine is dropped; see
    /// [`shutdown`](Windlass::shutdown).
    ///
    /// # Errors
    ///
    /// As [`EmbeddedOptions::start`] and
    /// [`PostgresStore::connect`].
    #[cfg(all(feature = "embedded", feature = "postgres", unix))]
    pub async fn embedded(directory: impl Into<std::path::PathBuf>) -> Result<Self, Error> {
        Windlass::embedded_with(EmbeddedOptions::new(directory)).await
    }

    /// The same with more to say about the server than its directory.
    ///
    /// # Errors
    ///
    /// As [`embedded`](Windlass::embedded). A server that this call started is stopped.
    #[cfg(all(feature = "embedded", feature = "postgres", unix))]
    pub async fn embedded_with(options: EmbeddedOptions) -> Result<Self, Error> {
        let server = options.start().await?;
        let options = PostgresOptions::new(server.url()).migrate(true);
        match Windlass::connect(options).await {
            Ok(mut windlass) => {
                windlass.server = Some(Arc::new(server));
                Ok(windlass)
            }
            Err(error) => {
                // Why it cannot be used is the news, not that it cannot be stopped either.
                let _ = server.stop().await;
                Err(error)
            }
        }
    }

    /// The same engine on a store around its own.
    pub(crate) fn around(self, wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>) -> Self {
        let store = wrap(Arc::clone(&self.store));
        // What gathers starts belongs to the store, and so does what it was told.
        Windlass { store, registered: Arc::default(), starter: Arc::default(), ..self }
    }

    /// The private server that this engine uses, if it does.
    #[cfg(all(feature = "embedded", feature = "postgres", unix))]
    pub fn server(&self) -> Option<&EmbeddedPostgres> {
        self.server.as_deref()
    }

    /// Stops the private server, unless another clone of this engine or another process
    /// uses it. Workers are to be drained before.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the server does not end in time.
    #[cfg(all(feature = "embedded", feature = "postgres", unix))]
    pub async fn shutdown(self) -> Result<(), Error> {
        let Windlass { store, server, .. } = self;
        drop(store);
        match server.and_then(Arc::into_inner) {
            Some(server) => server.stop().await,
            None => Ok(()),
        }
    }

    /// The store, for what this handle has no verb for.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The same engine on another view of its store, such as that of one tenant. What is counted is
    /// counted together.
    #[must_use]
    pub fn through(&self, store: Arc<dyn Store>) -> Self {
        Windlass { store, registered: Arc::default(), starter: Arc::default(), ..self.clone() }
    }

    /// What was counted of what this engine does.
    pub(crate) fn counted(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Counts a run, if it was started now.
    pub(crate) fn note_start(&self, started: &Started) {
        self.metrics.runs_started.add(u64::from(started.is_new));
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An id for a run that sorts behind all that were made before.
    pub fn new_run_id(&self) -> RunId {
        let mut shared = self.shared();
        let fresh = RunId::from_parts(SystemTime::now().into(), secure_bits());
        let id = shared.last_run.map_or(fresh, |last| fresh.max(last.next()));
        shared.last_run = Some(id);
        id
    }

    /// A start of a workflow with an input; await it, or give it to
    /// [`start_all`](Windlass::start_all) with others.
    ///
    /// If it fails with [`ErrorKind::Unavailable`] nobody knows whether the run was
    /// started. To repeat the start safely, give it a [`key`](Start::key) or an
    /// [`id`](Start::id): without one, the repetition is another run.
    pub fn start<I: Serialize>(&self, workflow: &Workflow<I>, input: I) -> Start {
        let input = self.store.payload_limit().encode(&input).map_err(|error| {
            Error::payload(format_args!("input of workflow {:?}", workflow.name()), error)
        });
        self.start_encoded(workflow.definition(), input)
    }

    /// A start whose input is encoded, or could not be.
    pub(crate) fn start_encoded(
        &self,
        definition: &Arc<Definition>,
        input: Result<Payload, Error>,
    ) -> Start {
        Start {
            windlass: self.clone(),
            definition: Arc::clone(definition),
            is_of_store: false,
            input,
            id: None,
            tenant: None,
            key: None,
            delay: Duration::ZERO,
            priority: 0,
            metadata: BTreeMap::new(),
        }
    }

    /// Starts many runs in few operations, of up to 10,000 each and 16 MiB of inputs. Each
    /// run is judged alone: the answers are in the order of the starts.
    ///
    /// # Errors
    ///
    /// An error of the store that leaves the outcomes unknown, those of earlier
    /// operations included: repeat the starts with the same keys or ids.
    pub async fn start_all(
        &self,
        starts: impl IntoIterator<Item = Start>,
    ) -> Result<Vec<Result<RunHandle, Error>>, Error> {
        let span = spans::start(None);
        let mut answers = Vec::new();
        let mut batch = Vec::new();
        for start in starts {
            let registered = match start.register(self).await {
                Err(error) if error.is_retryable() => return Err(error),
                registered => registered,
            };
            match registered.and_then(|()| span.in_scope(|| start.prepare())) {
                Ok(run) => {
                    answers.push(None);
                    batch.push(run);
                }
                Err(error) => answers.push(Some(Err(error))),
            }
        }
        span.record("runs", batch.len());
        let mut started = Vec::with_capacity(batch.len());
        while !batch.is_empty() {
            let bytes = batch.iter().map(|run: &NewRun| run.input.as_str().len());
            let rest = batch.split_off(batch_len(bytes, BATCH_MAX));
            let starting = self.store.start_runs(std::mem::replace(&mut batch, rest));
            started.extend(starting.instrument(span.clone()).await?);
        }
        let mut started = started.into_iter();
        let answer = |answer: Option<Result<RunHandle, Error>>| match answer {
            Some(refused) => refused,
            None => match started.next() {
                Some(Ok(started)) => {
                    self.note_start(&started);
                    Ok(self.run(started.run))
                }
                Some(Err(error)) => Err(error.into()),
                None => Err(Error::new(ErrorKind::Corrupt, "the store left a start unanswered")),
            },
        };
        Ok(answers.into_iter().map(answer).collect())
    }

    fn registered(&self) -> MutexGuard<'_, Registered> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The definition that this program registered by the name and version of another one.
    #[cfg(feature = "postgres")]
    pub(crate) fn own_definition(&self, of: &Definition) -> Option<Arc<Definition>> {
        self.registered().get(&(of.name().clone(), of.version())).cloned()
    }

    pub(crate) async fn register(&self, definition: &Arc<Definition>) -> Result<(), Error> {
        let key = (definition.name().clone(), definition.version());
        let known = self.registered().get(&key).cloned();
        if !known.is_some_and(|known| Arc::ptr_eq(&known, definition)) {
            self.store.register(Arc::clone(definition)).await?;
            self.registered().insert(key, Arc::clone(definition));
        }
        Ok(())
    }

    /// Lets the runs that were started [inside a transaction](Start::in_transaction) into the
    /// queues right after its commit, when this is called: it says so to whoever does the
    /// background duties, here and in other processes. A start says so itself, except where
    /// transactions may be prepared for a two-phase commit; then the duties find such runs by
    /// looking, at least once per second by default.
    ///
    /// It is a hint: it waits for nothing and cannot fail. Once is enough for any number of
    /// starts, and [`RunHandle::wait`] does it by itself.
    pub fn admit(&self) {
        self.store.hint_staged();
    }

    /// A handle on a run, whether it exists or not.
    pub fn run(&self, id: RunId) -> RunHandle {
        RunHandle::new(Arc::clone(&self.store), id)
    }

    /// A page of runs, the newest first.
    pub async fn list(&self, filter: RunFilter) -> Result<RunPage, Error> {
        Ok(self.store.list_runs(filter).await?)
    }

    /// Sets a tenant's share relative to the others', from 1 to 1000; 1 is what
    /// tenants have that were given none.
    pub async fn set_weight(&self, tenant: &str, weight: u16) -> Result<(), Error> {
        let tenant = Tenant::new(tenant)?;
        let weight = Weight::new(weight).ok_or_else(|| {
            let text = format!("weight {weight} of tenant {tenant:?} is not within 1 to 1000");
            Error::new(ErrorKind::Argument, text)
        })?;
        Ok(self.store.set_weight(tenant, weight).await?)
    }

    /// A worker on this engine's store, to be set up and spawned.
    pub fn worker(&self) -> WorkerBuilder {
        let (store, metrics) = (Arc::clone(&self.store), Arc::clone(&self.metrics));
        WorkerBuilder::new(store, self.shared().rng.u64(..), metrics)
    }

    /// Does the background duties (promote what is due, reap dead workers, prune what is old) until the handle
    /// is dropped, for a process that has no worker, given an interval or
    /// [more](DutyOptions). Workers do them as well, unless they are
    /// [told otherwise](WorkerBuilder::duties). Of all processes that do, one leads each
    /// duty, and another takes over when it ends.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for a setting outside its limits.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn duties(&self, options: impl Into<DutyOptions>) -> Result<Duties, Error> {
        let mut options = options.into();
        options.check()?;
        options.seed = self.shared().rng.u64(..);
        options.metrics = Arc::clone(&self.metrics);
        Ok(Duties::spawn(Arc::clone(&self.store), options))
    }

    /// Tasks that failed for good and that nobody has redriven or discarded: all of them, or those
    /// of a filter. See [`DeadLetters`].
    pub fn dead_letters(&self, filter: DeadLetterFilter) -> DeadLetters {
        DeadLetters::new(Arc::clone(&self.store), filter)
    }
}

impl std::fmt::Debug for Windlass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Windlass").finish_non_exhaustive()
    }
}

/// A start of a run: set it up, then await it.
#[derive(Debug)]
#[must_use = "nothing is started until this is awaited"]
pub struct Start {
    pub(crate) windlass: Windlass,
    pub(crate) definition: Arc<Definition>,
    /// Whether the definition is what the store says, and not what this program has built.
    is_of_store: bool,
    input: Result<Payload, Error>,
    id: Option<RunId>,
    tenant: Option<String>,
    key: Option<String>,
    delay: Duration,
    priority: i16,
    metadata: BTreeMap<String, String>,
}

impl Start {
    /// Whose run it is; `default` if not said.
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// The caller's name for this start: whoever starts the same workflow for the
    /// same tenant with the same key gets the same run. The same key with another
    /// input is a conflict.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The id the run is to have, chosen at random if not said.
    pub fn id(mut self, id: RunId) -> Self {
        self.id = Some(id);
        self
    }

    /// How long its first tasks wait.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// What goes first within a queue, from -100 to 100; 0 if not said.
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// A pair to find the run again by; up to 64 pairs, 1,024 bytes for each key and
    /// value.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// The trace that the run belongs to, as a W3C `traceparent`: attempts of its tasks are part of
    /// it. If nothing is said, it is that of the span in which the run is started, if spans are
    /// exported (see the feature `otlp`). It is kept as the metadata `traceparent`.
    ///
    /// One that makes no sense is refused, with the place where it does not, when the run is
    /// started.
    pub fn trace_parent(self, traceparent: impl Into<String>) -> Self {
        self.metadata(TRACEPARENT, traceparent)
    }

    /// The `tracestate` that came with the [`traceparent`](Start::trace_parent); up to 512 bytes.
    pub fn trace_state(self, tracestate: impl Into<String>) -> Self {
        self.metadata(TRACESTATE, tracestate)
    }

    /// The same start, of a definition that the store says.
    pub(crate) fn of_store(self) -> Self {
        Start { is_of_store: true, ..self }
    }

    /// Whether the definition is what the store says.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_of_store(&self) -> bool {
        self.is_of_store
    }

    /// Makes the workflow known, unless it is the store that knows it.
    pub(crate) async fn register(&self, windlass: &Windlass) -> Result<(), Error> {
        match self.is_of_store {
            // To register it again could bring back policies that others have replaced since, and
            // would pass off what the store says as what this program does.
            true => Ok(()),
            false => windlass.register(&self.definition).await,
        }
    }

    pub(crate) fn prepare(self) -> Result<NewRun, Error> {
        let workflow = self.definition.name();
        let refuse = |text| Error::new(ErrorKind::Argument, text);
        if self.delay > WAIT_MAX {
            let text = format!(
                "delay {:?} of workflow {workflow:?} is over the limit of {WAIT_MAX:?}",
                self.delay
            );
            return Err(refuse(text));
        }
        let priority = Priority::try_from(self.priority).map_err(refuse)?;
        let mut run = NewRun {
            id: self.id.unwrap_or_else(|| self.windlass.new_run_id()),
            workflow: workflow.clone(),
            version: self.definition.version(),
            tenant: self.tenant.map(Tenant::new).transpose()?.unwrap_or_default(),
            input: self.input?,
            key: self.key.map(IdempotencyKey::new).transpose()?,
            delay: self.delay,
            priority,
            metadata: self.metadata,
        };
        run.join_trace(spans::current().as_ref());
        run.check(self.windlass.store.payload_limit()).map_err(refuse)?;
        Ok(run)
    }

    async fn start_one(self, span: &tracing::Span) -> Result<RunHandle, Error> {
        let windlass = self.windlass.clone();
        self.register(&windlass).await?;
        // One with a key, or an id that the caller has chosen, may have to wait for a
        // transaction that has used it: nobody is to wait along.
        let is_alone = self.key.is_some() || self.id.is_some();
        let run = self.prepare()?;
        span.record("run", tracing::field::display(run.id));
        let started = match windlass.store.gathers_starts() && !is_alone {
            true => windlass.starter.start(&windlass.store, run).await?,
            false => windlass.store.start_runs(vec![run]).await?.pop().ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, "the store left a start unanswered")
            })??,
        };
        windlass.note_start(&started);
        Ok(windlass.run(started.run))
    }
}

impl IntoFuture for Start {
    type Output = Result<RunHandle, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let span = spans::start(Some(self.definition.name().as_str()));
            self.start_one(&span).instrument(span.clone()).await
        })
    }
}
