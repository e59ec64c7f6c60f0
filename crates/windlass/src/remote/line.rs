//! The stream to a server, and the next one when it breaks.
//!
//! All workers of a process talk on one stream. A request waits for the answer with its number;
//! when the stream breaks, whoever waits is told that the outcome is unknown, and the next
//! request opens another stream, on which every worker first introduces itself again. The same
//! happens when the token has changed: a stream is what it was opened with.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use windlass_core::{PayloadLimit, WorkerId};

use super::MESSAGE_BYTES_MAX;
use super::doors::Doors;
use super::stream::{Stream, broken};
use crate::store::{HintSender, Hints, StoreError};
use crate::wire::v1;
use crate::wire::v1::worker_reply::Reply;
use crate::wire::v1::worker_request::Request;
use crate::wire::v1::worker_service_client::WorkerServiceClient;

/// How long it may take to open a stream and to introduce one worker on it.
const OPEN_TIME: Duration = Duration::from_secs(4);

/// How many workers introduce themselves at once on a stream that was opened for them.
const HELLOS_MAX: usize = 16;

/// How long a stream on which nothing more is asked may take for what was asked before.
const PARTING_TIME: Duration = Duration::from_secs(30);

/// What is said of workers to a server.
pub(crate) struct Line {
    doors: Doors,
    /// Held while a stream is opened, so that one is enough for all who need it.
    opening: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<State>,
    payload_limit: AtomicUsize,
    hints: HintSender,
    /// Cancelled when nobody talks on it any more.
    over: CancellationToken,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

#[derive(Default)]
struct State {
    stream: Option<Arc<Stream>>,
    /// How often the token had changed when it was opened.
    token_version: u64,
    /// What the workers of this process say of themselves.
    workers: HashMap<WorkerId, Arc<v1::Hello>>,
}

impl Line {
    pub(super) fn new(doors: Doors) -> Arc<Self> {
        Arc::new(Line {
            doors,
            opening: Arc::default(),
            state: Mutex::default(),
            payload_limit: AtomicUsize::new(PayloadLimit::default().get()),
            hints: HintSender::new(),
            over: CancellationToken::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hints that tasks became ready.
    pub(crate) fn hints(&self) -> Hints {
        self.hints.subscribe()
    }

    /// The limit that the server keeps.
    pub(crate) fn payload_limit(&self) -> PayloadLimit {
        PayloadLimit::new(self.payload_limit.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Introduces a worker, here and on every later stream.
    pub(crate) async fn join(
        self: &Arc<Self>,
        worker: WorkerId,
        hello: v1::Hello,
    ) -> Result<(), StoreError> {
        let hello = Arc::new(hello);
        let stream = self.stream().await?;
        introduce(self, &stream, &hello).await?;
        self.state().workers.insert(worker, hello);
        Ok(())
    }

    /// Forgets a worker whose life is over.
    pub(crate) fn forget(&self, worker: WorkerId) {
        self.state().workers.remove(&worker);
    }

    /// Asks the server, and waits for its answer.
    pub(crate) async fn ask(self: &Arc<Self>, request: Request) -> Result<Reply, StoreError> {
        let stream = self.stream().await?;
        self.ask_on(&stream, request).await
    }

    /// Asks on a stream, and leaves its server if it can do nothing.
    async fn ask_on(&self, stream: &Arc<Stream>, request: Request) -> Result<Reply, StoreError> {
        let answer = stream.ask(request).await;
        self.leave_unable(stream);
        answer
    }

    /// Leaves a server that can do nothing for another, if there is one.
    fn leave_unable(&self, stream: &Arc<Stream>) {
        if stream.is_unable() && self.doors.has_others() {
            self.part(stream);
        }
    }

    /// The stream that is open.
    fn open_stream(&self) -> Option<Arc<Stream>> {
        let (stream, token_version) = {
            let state = self.state();
            (state.stream.clone()?, state.token_version)
        };
        if token_version != self.doors.token_version() {
            self.leave(&stream);
        }
        // Whoever gave up waiting has not looked.
        self.leave_unable(&stream);
        stream.is_open().then_some(stream)
    }

    /// The stream that is open, or another one.
    async fn stream(self: &Arc<Self>) -> Result<Arc<Stream>, StoreError> {
        if let Some(stream) = self.open_stream() {
            return Ok(stream);
        }
        let alone = Arc::clone(&self.opening).lock_owned().await;
        if let Some(stream) = self.open_stream() {
            return Ok(stream);
        }
        // In a task of its own: whoever gives up waiting leaves the stream to the others.
        let line = Arc::clone(self);
        let opening = tokio::spawn(async move {
            let _alone = alone;
            line.open().await
        });
        opening.await.unwrap_or_else(|_| Err(broken(self.doors.about(self.doors.current().0))))
    }

    /// Opens a stream, on which the workers of this process introduce themselves meanwhile.
    async fn open(self: &Arc<Self>) -> Result<Arc<Stream>, StoreError> {
        // Before it is said: one that changes meanwhile is said on the next stream.
        let token_version = self.doors.token_version();
        let (door, way) = self.doors.current();
        let about = self.doors.about(door).clone();
        let (stream, outbound) = Stream::new(door, about, self.over.child_token());
        let mut client = WorkerServiceClient::new(way)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let inbound = match timeout(OPEN_TIME, client.work(outbound)).await {
            Ok(Ok(inbound)) => inbound.into_inner(),
            Ok(Err(status)) => {
                self.doors.turn_from(door);
                return Err(self.doors.about(door).error(&status));
            }
            Err(_) => {
                self.doors.turn_from(door);
                return Err(self.doors.about(door).unavailable("it does not answer"));
            }
        };
        let stream = Arc::new(stream);
        let hellos = {
            let mut state = self.state();
            state.stream = Some(Arc::clone(&stream));
            state.token_version = token_version;
            state.workers.clone()
        };
        tokio::spawn(read(Arc::downgrade(self), Arc::clone(&stream), inbound));
        let (line, said) = (Arc::clone(self), Arc::clone(&stream));
        tokio::spawn(async move {
            let introducing = futures_util::stream::iter(hellos);
            let each = async |(worker, hello): (WorkerId, Arc<v1::Hello>)| {
                match introduce(&line, &said, &hello).await {
                    // It hears of it with its next heartbeat or claim.
                    Err(StoreError::LeaseLost(_)) => line.forget(worker),
                    // What it claims says all there is to say.
                    Err(error) => tracing::debug!(%worker, %error, "not introduced"),
                    Ok(()) => {}
                }
            };
            introducing.for_each_concurrent(HELLOS_MAX, each).await;
        });
        // Hints that were sent meanwhile are lost.
        self.hints.send();
        Ok(stream)
    }

    /// Says nothing more on a stream; the next one is to another server.
    fn part(&self, stream: &Arc<Stream>) {
        if self.leave(stream) {
            self.doors.turn_from(stream.door);
        }
    }

    /// Says nothing more on a stream; answers whether it was the one that is talked on.
    fn leave(&self, stream: &Arc<Stream>) -> bool {
        stream.parted.cancel();
        let mut state = self.state();
        state.stream.take_if(|open| Arc::ptr_eq(open, stream)).is_some()
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

/// Hands the answers of a stream to those who wait for them, until it ends or nobody is left to
/// wait.
async fn read(line: Weak<Line>, stream: Arc<Stream>, mut inbound: Streaming<v1::WorkerReply>) {
    let mut parted_at = None;
    // What was asked before the parting is still answered.
    while !(parted_at.is_some() && stream.is_done()) {
        let deadline = parted_at.map(|at: Instant| at + PARTING_TIME);
        let message = tokio::select! {
            message = inbound.message() => message,
            () = stream.over.cancelled() => break,
            () = stream.parted.cancelled(), if parted_at.is_none() => {
                parted_at = Some(Instant::now());
                continue;
            }
            () = stream.done.notified(), if parted_at.is_some() => continue,
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => break,
        };
        let reply = match message {
            Ok(Some(reply)) => reply,
            Ok(None) => break,
            Err(status) => {
                tracing::debug!(%status, "the stream to the server broke");
                break;
            }
        };
        let Some(line) = line.upgrade() else { break };
        match reply.reply {
            Some(Reply::Hint(_)) => line.hints.send(),
            Some(Reply::Goodbye(_)) => line.part(&stream),
            Some(answer) => stream.answer(reply.id, answer, reply.has_more),
            // Something newer than this program.
            None => {}
        }
    }
    stream.end();
    if let Some(line) = line.upgrade() {
        line.part(&stream);
        // Whoever waits for a hint must look, which opens another stream.
        line.hints.send();
    }
}

/// Says a worker's hello on a stream.
async fn introduce(line: &Line, stream: &Arc<Stream>, hello: &v1::Hello) -> Result<(), StoreError> {
    let asking = line.ask_on(stream, Request::Hello(hello.clone()));
    match timeout(OPEN_TIME, asking).await {
        Ok(Ok(Reply::Welcome(welcome))) => {
            let limit = usize::try_from(welcome.payload_limit).unwrap_or(usize::MAX);
            line.payload_limit.store(limit, Ordering::Relaxed);
            Ok(())
        }
        Ok(Ok(_)) => Err(mismatch()),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(line.doors.about(stream.door).unavailable("it does not answer")),
    }
}

/// The server answered something else than was asked.
pub(crate) fn mismatch() -> StoreError {
    StoreError::Corrupt("the server gave another answer than was asked for".into())
}
