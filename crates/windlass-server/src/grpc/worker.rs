//! The stream of a process with workers.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use prost::Message as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status, Streaming};
use windlass::remote::MESSAGE_BYTES_MAX;
use windlass::store::{
    Answer, Checkpoint, ChildStart, ClaimRequest, Claimed, Completion, Finished, Heartbeat, Hello,
    Recording, Store, StoreError, TakeSignal, Taken,
};
use windlass::wire::{
    Wire, WireError, large, name, parse, read, read_all, required, v1, write_all, write_answers,
    write_to_undo,
};
use windlass::worker::SLOTS_MAX;
use windlass_core::{Call, ClaimSeq, QueueName, TaskId, Tenant, WorkerId, WorkerName};
use windlass_proto::v1::worker_reply::Reply;
use windlass_proto::v1::worker_request::Request as Asked;
use windlass_proto::v1::worker_service_server::{WorkerService, WorkerServiceServer};

use super::Refused;
use super::budget::{Budget, Memory};
use super::gather::{Gather, WAYS};
use super::idle::{Idle, Kind, Wake};
use super::inbound::Charges;
use super::replies::{Listener, Replies};
use super::sizes::{Sizes, Told, tell_tasks};
use crate::bodies::Charge;
use crate::connections::Origin;
use crate::identity::{Identity, strip_reserved};
use crate::options::ServerOptions;
use crate::pages::PageReader;
use crate::workers::{LEASE_MAX, LEASE_MIN, LiveWorkers};

/// The most requests of one stream that are under way: who says more is not read until some are
/// answered.
const UNDER_WAY_MAX: usize = 1_024;

/// The most bytes of requests of one stream that are under way, but for one that is larger alone.
const STREAM_BYTES_MAX: usize = 32 << 20;

/// How much memory is taken for an answer that may be large before it is there.
const ANSWER_BYTES_EXPECTED: usize = 64 << 10;

/// The most bytes of tasks in an answer that does not come in parts, but for one task that is larger
/// alone: clients read messages of 4 MiB by default.
const WHOLE_BYTES_MAX: usize = (4 << 20) - (64 << 10);

/// The most workers of one stream.
const WORKERS_MAX: usize = 1_000;

/// How long the answer to a claim may be held back.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// How many results are so many that a claim goes with them even while others are under way: the
/// results of few are better said together with others.
const RESULTS_MANY: usize = 50;

/// The door for workers.
pub(crate) struct WorkerApi {
    /// For those of all tenants.
    shared: Arc<Shared>,
    /// For those of one tenant each, who share nothing with others.
    scoped: Mutex<HashMap<Tenant, Arc<Shared>>>,
}

pub(crate) struct Shared {
    store: Arc<dyn Store>,
    /// Who waits for tasks, over gRPC and over HTTP.
    pub(crate) idle: Arc<Idle>,
    claims: Arc<Gather<Asking, Result<Vec<Claimed>, StoreError>>>,
    finishes: Arc<Gather<Completion, Answer>>,
    recordings: Arc<Gather<Recording, Answer>>,
    checkpoints: Arc<Gather<Checkpoint, Answer>>,
    takes: Arc<Gather<TakeSignal, Taken>>,
    budget: Arc<Budget>,
    live: Arc<LiveWorkers>,
    ending: CancellationToken,
    /// Nobody watches for those who are gone.
    _watching: DropGuard,
}

impl WorkerApi {
    /// A door to a store, until `ending`.
    pub(super) fn new(
        store: Arc<dyn Store>,
        live: Arc<LiveWorkers>,
        options: &ServerOptions,
        ending: CancellationToken,
    ) -> Self {
        let budget = Arc::new(Budget::new(options));
        let shared = Shared::new(store, budget, live, ending);
        WorkerApi { shared, scoped: Mutex::default() }
    }

    /// What those share who may do the same as this one.
    pub(crate) fn shared_by(&self, identity: &Identity) -> Arc<Shared> {
        let Some(tenant) = identity.tenant() else { return Arc::clone(&self.shared) };
        let mut scoped = self.scoped.lock().unwrap_or_else(PoisonError::into_inner);
        // Kept while someone of the tenant is there.
        scoped.retain(|of, shared| of == tenant || Arc::strong_count(shared) > 1);
        let new = || {
            let Shared { budget, live, ending, .. } = &*self.shared;
            let (budget, live) = (Arc::clone(budget), Arc::clone(live));
            Shared::new(Arc::clone(identity.store()), budget, live, ending.clone())
        };
        Arc::clone(scoped.entry(tenant.clone()).or_insert_with(new))
    }

    /// The service, with its limits.
    pub(super) fn service(api: Arc<WorkerApi>) -> WorkerServiceServer<WorkerApi> {
        WorkerServiceServer::from_arc(api)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }
}

impl Shared {
    fn new(
        store: Arc<dyn Store>,
        budget: Arc<Budget>,
        live: Arc<LiveWorkers>,
        ending: CancellationToken,
    ) -> Arc<Self> {
        let idle = Arc::new(Idle::new(store.work_hints()));
        let watching = Arc::clone(&idle).watch();
        let watched = ending.child_token();
        tokio::spawn(watched.clone().run_until_cancelled_owned(watching));
        let (one, two, three, four) = (store.clone(), store.clone(), store.clone(), store.clone());
        let five = Arc::clone(&store);
        Arc::new(Shared {
            store,
            idle,
            claims: Gather::of_alike(
                |one: &Asking, other| one.kind == other.kind,
                move |batch| {
                    let store = Arc::clone(&five);
                    Box::pin(async move { Ok(claim_many(&*store, batch).await) })
                },
            ),
            finishes: Gather::new(move |batch| {
                let store = Arc::clone(&one);
                Box::pin(async move { store.finish(batch).await })
            }),
            recordings: Gather::new(move |batch| {
                let store = Arc::clone(&two);
                Box::pin(async move { store.record(batch).await })
            }),
            checkpoints: Gather::new(move |batch| {
                let store = Arc::clone(&three);
                Box::pin(async move { store.checkpoint(batch).await })
            }),
            takes: Gather::new(move |batch| {
                let store = Arc::clone(&four);
                Box::pin(async move { store.take_signals(batch).await })
            }),
            budget,
            live,
            ending,
            _watching: watched.drop_guard(),
        })
    }
}

#[tonic::async_trait]
impl WorkerService for WorkerApi {
    type WorkStream = Pin<Box<dyn Stream<Item = Result<v1::WorkerReply, Status>> + Send + 'static>>;

    async fn work(
        &self,
        request: Request<Streaming<v1::WorkerRequest>>,
    ) -> Result<Response<Self::WorkStream>, Status> {
        let identity = super::admit(&request)?;
        let origin = request.extensions().get::<Origin>().copied().unwrap_or(Origin::Socket);
        let (replies, outbound) = Replies::new(self.shared.budget.stream(origin));
        let session = Arc::new(Session {
            shared: self.shared_by(&identity),
            identity: identity.clone(),
            replies,
            workers: Mutex::default(),
            sizes: Sizes::default(),
        });
        let charges = request.extensions().get::<Charges>().cloned().unwrap_or_default();
        let fault = Fault::default();
        let reading = session.read(request.into_inner(), charges, Arc::clone(&fault));
        tokio::spawn(identity.over().run_until_cancelled_owned(reading));
        // The client is told why its stream ends.
        let fault = stream::once(async move {
            fault.lock().unwrap_or_else(PoisonError::into_inner).take().map(Err)
        });
        let outbound = outbound.map(Ok).chain(fault.filter_map(std::future::ready));
        Ok(Response::new(super::until_over(identity, outbound)))
    }
}

/// Why a stream ended, if what was received could not be read.
type Fault = Arc<Mutex<Option<Status>>>;

/// One stream, and the workers that talk on it.
struct Session {
    shared: Arc<Shared>,
    identity: Identity,
    replies: Replies,
    workers: Mutex<HashMap<WorkerId, Known>>,
    sizes: Sizes,
}

/// A request that may be under way.
struct Permit {
    request: OwnedSemaphorePermit,
    bytes: OwnedSemaphorePermit,
    /// What the request takes of the server's memory for bodies.
    charge: Option<Charge>,
}

/// A claim that is to be said to the store.
#[derive(Clone)]
struct Asking {
    request: ClaimRequest,
    kind: Kind,
    listener: Listener,
}

/// Claims for many. Nothing is leased to who has gone meanwhile.
async fn claim_many(
    store: &dyn Store,
    mut batch: Vec<Asking>,
) -> Vec<Result<Vec<Claimed>, StoreError>> {
    let here: Vec<bool> = batch.iter().map(|one| one.listener.is_there()).collect();
    let mut places = here.iter();
    batch.retain(|_| places.next().copied().unwrap_or(true));
    let requests = batch.into_iter().map(|one| one.request).collect();
    let mut told = store.claim_many(requests).await.into_iter();
    let answer = |is_here| if is_here { told.next() } else { Some(Ok(Vec::new())) };
    here.into_iter().map_while(answer).collect()
}

/// What is known of a worker on a stream.
#[derive(Clone)]
struct Known {
    kind: Kind,
    /// What its newest claim was for.
    claims: Kind,
    /// Its newest claim.
    seq: ClaimSeq,
}

impl Drop for Session {
    fn drop(&mut self) {
        for (worker, _) in self.workers().iter() {
            self.shared.live.detach(&self.identity, *worker);
        }
    }
}

impl Session {
    fn workers(&self) -> MutexGuard<'_, HashMap<WorkerId, Known>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers what is said on the stream until it ends.
    async fn read(
        self: Arc<Self>,
        mut inbound: Streaming<v1::WorkerRequest>,
        charges: Charges,
        fault: Fault,
    ) {
        let under_way = Arc::new(Semaphore::new(UNDER_WAY_MAX));
        let bytes_under_way = Arc::new(Semaphore::new(STREAM_BYTES_MAX));
        let mut has_parted = false;
        loop {
            // Closed never: it is ours.
            let Ok(permit) = Arc::clone(&under_way).acquire_owned().await else { break };
            let message = tokio::select! {
                message = inbound.message() => message,
                () = self.replies.closed() => break,
                () = self.shared.ending.cancelled(), if !has_parted => {
                    has_parted = true;
                    self.replies.say(Reply::Goodbye(v1::Goodbye {})).await;
                    continue;
                }
            };
            match message {
                Ok(Some(asked)) => {
                    let charge = charges.take();
                    let bytes = asked.encoded_len().min(STREAM_BYTES_MAX) as u32;
                    let bytes = Arc::clone(&bytes_under_way).acquire_many_owned(bytes).await;
                    let Ok(bytes) = bytes else { break };
                    let permit = Permit { request: permit, bytes, charge };
                    let over = self.identity.over();
                    let answer = Arc::clone(&self).answer(asked, permit);
                    tokio::spawn(over.run_until_cancelled_owned(answer));
                }
                Ok(None) => break,
                Err(status) => {
                    tracing::debug!(%status, "a stream of workers broke");
                    *fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
                    break;
                }
            }
        }
        for (worker, Known { claims, .. }) in self.workers().iter() {
            self.shared.idle.forget(claims, *worker);
        }
    }

    async fn answer(self: Arc<Self>, request: v1::WorkerRequest, permit: Permit) {
        let (id, takes_parts) = (request.id, request.takes_parts);
        let bytes_max = if takes_parts { usize::MAX } else { WHOLE_BYTES_MAX };
        let mut memory = match request.request.as_ref().is_some_and(may_bring_much) {
            true => self.replies.budget().take(ANSWER_BYTES_EXPECTED).await,
            false => Memory::default(),
        };
        let reply = match self.reply(request, bytes_max, &mut memory).await {
            Ok(reply) => reply,
            Err(Refused(error)) => Reply::Error(error),
        };
        let Permit { request: _request, bytes, charge } = permit;
        // What was asked is not kept while the answer waits to be read.
        drop((bytes, charge));
        self.replies.answer(id, reply, takes_parts, memory).await;
    }

    /// What is answered, and in `memory` what was taken for it beforehand.
    async fn reply(
        &self,
        request: v1::WorkerRequest,
        bytes_max: usize,
        memory: &mut Memory,
    ) -> Result<Reply, Refused> {
        if request.id == 0 {
            return Err(WireError::new("id", "is 0").into());
        }
        let shared = &self.shared;
        let store = &shared.store;
        Ok(match required("request", request.request)? {
            Asked::Hello(hello) => Reply::Welcome(self.hello(hello).await?),
            Asked::Claim(claim) => Reply::Tasks(self.claim(claim, bytes_max, memory).await?),
            Asked::Results(results) => {
                Reply::Answers(self.finish(results, bytes_max, memory).await?)
            }
            Asked::Releases(releases) => {
                let releases = read_all("releases", releases.releases)?;
                Reply::Answers(write_answers(&store.release(releases).await?))
            }
            Asked::Checkpoints(checkpoints) => {
                let bytes = checkpoints.checkpoints.iter().map(|one| one.value.len()).sum();
                let checkpoints = read_all("checkpoints", checkpoints.checkpoints)?;
                Reply::Answers(write_answers(&shared.checkpoints.tell(checkpoints, bytes).await?))
            }
            Asked::Steps(steps) => {
                let recordings: Vec<Recording> = read_all("recordings", steps.recordings)?;
                let bytes = recordings.iter().map(Recording::bytes).sum();
                Reply::Answers(write_answers(&shared.recordings.tell(recordings, bytes).await?))
            }
            Asked::TakeSignals(takes) => {
                let takes = read_all("takes", takes.takes)?;
                let taken = write_all(&shared.takes.tell(takes, 0).await?);
                Reply::SignalsTaken(v1::SignalsTaken { taken })
            }
            Asked::StartChildren(starts) => {
                let mut starts: Vec<ChildStart> = read_all("starts", starts.starts)?;
                starts.iter_mut().for_each(|start| strip_reserved(&mut start.run.metadata));
                let children = write_all(&store.start_children(starts).await?);
                Reply::ChildrenStarted(v1::ChildrenStarted { children })
            }
            Asked::CountChildren(question) => {
                let task: TaskId = read("task", question.task)?;
                let count = store.count_children(task, Call(question.call)).await?;
                Reply::ChildCount(count.to_wire())
            }
            Asked::ListChildren(question) => {
                let task: TaskId = read("task", question.task)?;
                let (call, limit) = (Call(question.call), question.limit as usize);
                let mut children = Vec::new();
                let page = PageReader::new(limit, store.payload_limit(), question.after);
                // A worker of an earlier version takes a short page for the end of the list.
                let mut page = match question.takes_short_pages {
                    true => page,
                    false => page.without_limit_of_bytes(),
                };
                while let Some((after, limit)) = page.next_chunk() {
                    let rows = store.list_children(task, call, after, limit).await?;
                    children.extend(write_all(&rows));
                    page.add(&rows, |child| child.place);
                }
                Reply::Children(v1::Children { children })
            }
            Asked::ReadUndo(question) => {
                let held = read("held", question.held)?;
                Reply::Tasks(write_to_undo(&store.read_undo(held).await?))
            }
            Asked::Heartbeat(heartbeat) => {
                let heartbeat = Heartbeat::from_wire(heartbeat)?;
                Reply::Beat(store.extend(heartbeat).await?.to_wire())
            }
            Asked::Drain(drain) => {
                store.begin_drain(parse("worker", &drain.worker)?).await?;
                Reply::Done(v1::Done {})
            }
            Asked::Leave(leave) => {
                let worker: WorkerId = parse("worker", &leave.worker)?;
                store.leave(worker).await?;
                shared.live.leave(&self.identity, worker);
                if let Some(Known { claims, .. }) = self.workers().remove(&worker) {
                    shared.idle.forget(&claims, worker);
                }
                Reply::Done(v1::Done {})
            }
        })
    }

    async fn hello(&self, hello: v1::Hello) -> Result<v1::Welcome, Refused> {
        let mut hello = Hello::from_wire(hello)?;
        if hello.info.queues.is_empty() {
            hello.info.queues.push(QueueName::default());
        }
        check_hello(&hello)?;
        let worker = hello.worker;
        if self.workers().len() >= WORKERS_MAX && !self.workers().contains_key(&worker) {
            let why = format!("is one more than the {WORKERS_MAX} that a stream may have");
            return Err(WireError::new("worker", why).into());
        }
        let owns = hello.definitions.iter().any(|one| one.tasks().iter().any(|it| it.is_owned()));
        let kind = Kind {
            owner: owns.then_some(worker),
            queues: hello.info.queues.clone().into(),
            handlers: hello.workflows().into(),
            tenant: None,
        };
        let store = &self.shared.store;
        let joining = self.shared.live.join(&self.identity, worker, hello.lease, true)?;
        let noted = self.identity.note_workflows(&hello.definitions).await?;
        noted.perform(store.join(hello)).await?;
        self.workers().insert(worker, Known { claims: kind.clone(), kind, seq: ClaimSeq(0) });
        joining.joined();
        Ok(v1::Welcome {
            payload_limit: store.payload_limit().get() as u64,
            server_version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    /// What a claim asks the store for, and what kind of worker asks.
    fn claim_request(&self, claim: v1::Claim) -> Result<(ClaimRequest, Kind), Refused> {
        let worker: WorkerId = parse("worker", &claim.worker)?;
        let said = self.workers().get(&worker).map(|known| known.kind.clone());
        let tenant = match claim.tenant.as_str() {
            "" => None,
            tenant => Some(name("tenant", Tenant::new(tenant))?),
        };
        let mut kind = if claim.queues.is_empty() && claim.workflows.is_empty() {
            let unknown = || WireError::new("worker", "has not said hello on this stream");
            said.ok_or_else(unknown)?
        } else {
            let queues = claim.queues.iter().map(QueueName::new).collect::<Result<Vec<_>, _>>();
            Kind {
                owner: said.and_then(|said| said.owner),
                queues: name("queues", queues)?.into(),
                handlers: read_all("workflows", claim.workflows)?.into(),
                tenant: None,
            }
        };
        kind.tenant = tenant;
        let request = ClaimRequest {
            worker,
            seq: ClaimSeq(large("seq", claim.seq)?),
            queues: Arc::clone(&kind.queues),
            handlers: Arc::clone(&kind.handlers),
            limit: claim.limit as usize,
            ending: claim.ending as usize,
            is_poll: claim.is_poll,
            tenant: kind.tenant.clone(),
        };
        Ok((request, kind))
    }

    /// Whether a claim is not one that came before: that is answered with nothing, whatever there
    /// is.
    fn is_next(&self, worker: WorkerId, seq: ClaimSeq, kind: &Kind) -> bool {
        self.workers().get_mut(&worker).is_some_and(|known| {
            if known.claims != *kind {
                self.shared.idle.forget(&known.claims, worker);
                known.claims = kind.clone();
            }
            let is_next = known.seq < seq;
            known.seq = known.seq.max(seq);
            is_next
        })
    }

    async fn claim(
        &self,
        claim: v1::Claim,
        bytes_max: usize,
        memory: &mut Memory,
    ) -> Result<v1::Tasks, Refused> {
        let wait = Duration::from_micros(claim.wait_us).min(WAIT_MAX);
        let (mut request, kind) = self.claim_request(claim)?;
        let (worker, asked) = (request.worker, request.limit);
        let limit = self.sizes.limit(asked);
        request.limit = limit;
        let Shared { idle, claims, ending, .. } = &*self.shared;
        let mut began = idle.begin(&kind, worker, self.is_next(worker, request.seq, &kind));
        // Whoever holds its answer back looks whenever it asks.
        let tasks = if request.is_poll && wait.is_zero() && idle.is_dry(&kind) {
            began = began.blind();
            Vec::new()
        } else {
            // Nothing is leased to a worker that does not read what it was told before.
            *memory = self.replies.budget().take(self.sizes.expected(limit)).await;
            let (kind, listener) = (kind.clone(), self.replies.listener());
            let asking = Asking { request, kind, listener };
            claims.tell(vec![asking], 0).await?.pop().unwrap_or(Ok(Vec::new()))?
        };
        // Who has gone meanwhile has not looked, and is not woken.
        if !self.replies.listener().is_there() {
            return Ok(v1::Tasks::default());
        }
        if limit == 0 {
            return Ok(v1::Tasks::default());
        }
        if !tasks.is_empty() {
            began = began.blind();
            self.note_found(&kind, &tasks, limit);
        } else if !wait.is_zero() {
            *memory = Memory::default();
            let (wake, woken) = oneshot::channel();
            idle.fall_idle(&kind, worker, began, Wake::Answer(wake));
            tokio::select! {
                // Woken or not, the next claim is the worker's.
                _ = tokio::time::timeout(wait, woken) => {}
                () = ending.cancelled() => {}
            }
        }
        if tasks.len() < limit {
            idle.fall_idle(&kind, worker, began, Wake::Hint(self.replies.hinter()));
        }
        let is_short = limit < asked && tasks.len() >= limit;
        Ok(self.tell(&tasks, (worker, is_short), bytes_max, memory).await)
    }

    /// What a worker is told of its tasks. One whose claim was cut short, and not for want of
    /// tasks, is to claim again.
    async fn tell(
        &self,
        tasks: &[Claimed],
        (worker, is_short): (WorkerId, bool),
        bytes_max: usize,
        memory: &mut Memory,
    ) -> v1::Tasks {
        let stream = (&self.sizes, self.replies.budget());
        let store = &self.shared.store;
        let Told { tasks, is_cut } = tell_tasks(store, tasks, stream, bytes_max, memory).await;
        if is_short || is_cut {
            self.replies.hinter().hint(worker);
        }
        tasks
    }

    fn note_found(&self, kind: &Kind, tasks: &[Claimed], limit: usize) {
        if !tasks.is_empty() {
            self.shared.idle.found(kind, tasks.len() >= limit);
        }
    }

    /// Says results to the store: with the claim that follows if the store has time for it,
    /// otherwise with the results of others.
    async fn finish(
        &self,
        results: v1::Results,
        bytes_max: usize,
        memory: &mut Memory,
    ) -> Result<v1::Answers, Refused> {
        let completions: Vec<Completion> = read_all("results", results.results)?;
        let Shared { store, finishes, .. } = &*self.shared;
        // A claim that makes no sense must not cost what was done.
        let next = results.next.and_then(|next| self.claim_request(next).ok());
        // Nor must the memory for tasks that wait to be read: whoever was told of none asks.
        if let Some((mut request, kind)) = next
            && let (worker, asked) = (request.worker, request.limit)
            && let limit = self.sizes.limit(asked)
            && let Some(taken) = self.replies.budget().try_take(self.sizes.expected(limit))
            && let Some(_way) =
                finishes.way(if completions.len() < RESULTS_MANY { 0 } else { WAYS })
        {
            (request.limit, *memory) = (limit, taken);
            let Finished { answers, claimed } =
                store.finish_and_claim(completions, request).await?;
            self.note_found(&kind, &claimed, limit);
            let is_short = limit < asked && claimed.len() >= limit;
            let told = self.tell(&claimed, (worker, is_short), bytes_max, memory).await;
            return Ok(v1::Answers { answers: write_all(&answers), claimed: Some(told) });
        }
        let bytes = completions.iter().map(Completion::bytes).sum();
        Ok(write_answers(&finishes.tell(completions, bytes).await?))
    }
}

/// Whether the answer to a request may be large, other than to a claim, which takes memory for what
/// it asks for.
fn may_bring_much(asked: &Asked) -> bool {
    match asked {
        Asked::TakeSignals(_)
        | Asked::StartChildren(_)
        | Asked::ListChildren(_)
        | Asked::ReadUndo(_) => true,
        Asked::Hello(_)
        | Asked::Claim(_)
        | Asked::Results(_)
        | Asked::Releases(_)
        | Asked::Checkpoints(_)
        | Asked::Steps(_)
        | Asked::CountChildren(_)
        | Asked::Heartbeat(_)
        | Asked::Drain(_)
        | Asked::Leave(_) => false,
    }
}

/// What a worker says of itself must be as it is checked where workers are built.
fn check_hello(hello: &Hello) -> Result<(), WireError> {
    name("name", WorkerName::new(&hello.name))?;
    if hello.slots == 0 || hello.slots as usize > SLOTS_MAX {
        let problem = format!("{} is not within 1 to {SLOTS_MAX}", hello.slots);
        return Err(WireError::new("slots", problem));
    }
    if hello.lease < LEASE_MIN || hello.lease > LEASE_MAX {
        let lease = hello.lease;
        let problem = format!("{lease:?} is not within {LEASE_MIN:?} to {LEASE_MAX:?}");
        return Err(WireError::new("lease_us", problem));
    }
    Ok(())
}
