//! HTTP/JSON: the same operations as those of the library, for any language.
//!
//! Handlers are thin: they read a request, call a verb of the store and write down what it
//! answered. The document that describes them is made from the same code ([`document`]).

mod cron;
mod cursor;
mod dead;
mod document;
mod duties;
mod extract;
mod gate;
mod lists;
mod live;
mod model;
mod operators;
mod quotas;
mod refusals;
mod rooms;
mod run_control;
mod run_history;
mod runs;
mod schedules;
mod streams;
mod system;
mod token;
mod tokens;
mod worker_functions;
mod worker_tasks;
mod workers;
mod workflows;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass::store::{HandlerKey, RunRecord, Store, find_workflow};
use windlass::{Definition, PayloadLimit, RunId, Tenant, Windlass};

use crate::grpc::WorkerApi;
use crate::identity::{Door, Identity};
use crate::options::ServerOptions;
use crate::problem::{self, Problem};
use crate::quotas::Quotas;
use crate::workers::LiveWorkers;
use live::Live;
use refusals::Refusals;
use rooms::Rooms;

/// The most bytes of a body that has several items, besides one that fills the payload limit.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// What a body may have besides its payload.
const BODY_SLACK_BYTES: usize = 64 << 10;

/// How long it is remembered whether a workflow has keys with owners, and of how many workflows.
const OWNED_MAX_AGE: Duration = Duration::from_secs(60);
const OWNED_MAX: usize = 10_000;

/// What all handlers share.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

struct Shared {
    windlass: Windlass,
    options: ServerOptions,
    door: Arc<Door>,
    /// Lists that are watched: of all tenants, and of one each.
    live: Arc<Live>,
    scoped_live: Mutex<HashMap<Tenant, Arc<Live>>>,
    rooms: Rooms,
    quotas: Arc<Quotas>,
    workers: Arc<LiveWorkers>,
    /// Who waits for tasks.
    doors: Arc<WorkerApi>,
    owned: Mutex<HashMap<HandlerKey, (Instant, bool)>>,
    refusals: Refusals,
    /// How often claims over HTTP have asked the store.
    claim_scans: AtomicU64,
    ending: CancellationToken,
}

impl App {
    fn new(
        windlass: Windlass,
        options: ServerOptions,
        Parts { door, quotas, workers, doors, .. }: Parts,
        ending: CancellationToken,
    ) -> Self {
        let live = Arc::new(Live::new(windlass.store()));
        let limit = windlass.store().payload_limit().get();
        let bytes_max = limit.max(BATCH_BYTES_MAX) + BODY_SLACK_BYTES;
        let rooms = Rooms::new(&options, bytes_max);
        App(Arc::new(Shared {
            windlass,
            options,
            door,
            live,
            scoped_live: Mutex::default(),
            rooms,
            quotas,
            workers,
            doors,
            owned: Mutex::default(),
            refusals: Refusals::default(),
            claim_scans: AtomicU64::new(0),
            ending,
        }))
    }

    /// The engine, for what is about nobody's runs.
    pub(crate) fn windlass(&self) -> &Windlass {
        &self.0.windlass
    }

    /// The engine as this one may use it.
    pub(crate) fn windlass_of(&self, identity: &Identity) -> Windlass {
        match identity.tenant() {
            None => self.0.windlass.clone(),
            Some(_) => self.0.windlass.through(Arc::clone(identity.store())),
        }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.0.windlass.store()
    }

    pub(crate) fn options(&self) -> &ServerOptions {
        &self.0.options
    }

    /// What tenants may ask for.
    pub(crate) fn quotas(&self) -> &Quotas {
        &self.0.quotas
    }

    /// The live workers, and how many there may be.
    pub(crate) fn workers(&self) -> &LiveWorkers {
        &self.0.workers
    }

    /// Who waits for tasks.
    pub(crate) fn doors(&self) -> &WorkerApi {
        &self.0.doors
    }

    /// Whether any of these workflows has tasks whose keys have owners: then one worker cannot
    /// stand in for another. Asks the store once in a while.
    pub(crate) async fn has_owners(&self, handlers: &[HandlerKey]) -> Result<bool, Problem> {
        for handler in handlers {
            let known = self.owned().get(handler).copied();
            let owns = match known.filter(|(at, _)| at.elapsed() < OWNED_MAX_AGE) {
                Some((_, owns)) => owns,
                None => {
                    let HandlerKey { workflow, version } = handler;
                    let found = find_workflow(&**self.store(), workflow, *version).await?;
                    let is_owned =
                        |found: Arc<Definition>| found.tasks().iter().any(|task| task.is_owned());
                    let owns = found.is_some_and(is_owned);
                    let mut owned = self.owned();
                    if owned.len() >= OWNED_MAX {
                        owned.clear();
                    }
                    owned.insert(handler.clone(), (Instant::now(), owns));
                    owns
                }
            };
            if owns {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn owned(&self) -> MutexGuard<'_, HashMap<HandlerKey, (Instant, bool)>> {
        self.0.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn door(&self) -> &Door {
        &self.0.door
    }

    /// The lists that this one may watch.
    fn live(&self, identity: &Identity) -> Arc<Live> {
        let Some(tenant) = identity.tenant() else { return Arc::clone(&self.0.live) };
        let mut scoped = self.0.scoped_live.lock().unwrap_or_else(PoisonError::into_inner);
        // Kept while someone of the tenant watches.
        scoped.retain(|of, live| of == tenant || live.is_watched());
        let new = || Arc::new(Live::new(identity.store()));
        Arc::clone(scoped.entry(tenant.clone()).or_insert_with(new))
    }

    /// Counts a claim that asks the store.
    fn note_claim_scan(&self) {
        self.0.claim_scans.fetch_add(1, Ordering::Relaxed);
    }

    /// How often claims over HTTP have asked the store, for Prometheus.
    fn claim_scans_text(&self) -> String {
        let name = "windlass_server_claim_scans_total";
        let count = self.0.claim_scans.load(Ordering::Relaxed);
        format!(
            "# HELP {name} Scans of the queues for claims over HTTP, held ones included.\n\
             # TYPE {name} counter\n{name} {count}\n"
        )
    }

    fn refusals(&self) -> &Refusals {
        &self.0.refusals
    }

    fn rooms(&self) -> &Rooms {
        &self.0.rooms
    }

    /// Ends when the server does: what is held is to answer, and streams are to close.
    fn ending(&self) -> &CancellationToken {
        &self.0.ending
    }

    pub(crate) fn payload_limit(&self) -> PayloadLimit {
        self.store().payload_limit()
    }

    /// A run that the caller may see. What it may not see does not exist.
    pub(crate) async fn run(&self, identity: &Identity, run: RunId) -> Result<RunRecord, Problem> {
        let record = identity.store().get_run(run).await?;
        record.ok_or_else(|| Problem::not_found(format_args!("run {run}")))
    }
}

/// What a server is made of besides its paths.
pub(crate) struct Parts {
    pub(crate) door: Arc<Door>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) workers: Arc<LiveWorkers>,
    pub(crate) doors: Arc<WorkerApi>,
    pub(crate) grpc: Router,
}

/// All paths of the server and the services of gRPC, behind the gate.
pub(crate) fn router(
    windlass: Windlass,
    options: ServerOptions,
    parts: Parts,
    ending: CancellationToken,
) -> Router {
    let grpc = parts.grpc.clone();
    let app = App::new(windlass, options, parts, ending);
    let (router, document) = document::build();
    router
        .with_state(app.clone())
        .merge(grpc)
        .route("/v1/openapi.json", get(move || document::answer(document.clone())))
        .fallback(problem::no_such_path)
        .method_not_allowed_fallback(problem::no_such_method)
        .layer(axum::middleware::from_fn_with_state(app, gate::pass))
}
