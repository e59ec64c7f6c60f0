//! One stream to a server: what is asked on it, and the answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use prost::Message as _;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::MESSAGE_BYTES_MAX;
use super::doors::Door;
use super::trouble::About;
use crate::store::StoreError;
use crate::wire::v1::worker_reply::Reply;
use crate::wire::v1::worker_request::Request;
use crate::wire::{Wire as _, extend_reply, v1};

/// How many requests of each urgency wait to be written.
const WRITE_QUEUE: usize = 64;

/// How many requests in a row must have led to nothing, and for how long none to anything, until a
/// server is left for another.
const UNABLE_MAX: u32 = 3;
const UNABLE_TIME: Duration = Duration::from_secs(4);

/// One stream.
pub(super) struct Stream {
    pub(super) door: Door,
    /// To whom it is.
    about: About,
    /// What must not wait behind large results: a lease may depend on it.
    urgent: mpsc::Sender<v1::WorkerRequest>,
    bulk: mpsc::Sender<v1::WorkerRequest>,
    waiting: Mutex<HashMap<u64, Waiting>>,
    last_id: AtomicU64,
    /// How many requests in a row the server could not do, or did not answer in time.
    unable: AtomicU32,
    /// When it last could, or was opened.
    able_at: Mutex<Instant>,
    /// Told when nobody waits any more.
    pub(super) done: Notify,
    /// Cancelled when nothing more is asked on it; what was asked is still answered.
    pub(super) parted: CancellationToken,
    /// Cancelled when nothing is answered on it any more.
    pub(super) over: CancellationToken,
}

/// Who waits for an answer, and what has come of it.
struct Waiting {
    asker: oneshot::Sender<Reply>,
    parts: Option<Reply>,
}

impl Stream {
    /// A stream to a server, and what is to be written on it.
    pub(super) fn new(
        door: Door,
        about: About,
        over: CancellationToken,
    ) -> (Self, impl futures_util::Stream<Item = v1::WorkerRequest>) {
        let (urgent, mut first) = mpsc::channel(WRITE_QUEUE);
        let (bulk, mut second) = mpsc::channel(WRITE_QUEUE);
        let outbound =
            futures_util::stream::poll_fn(move |context| match first.poll_recv(context) {
                ready @ Poll::Ready(Some(_)) => ready,
                Poll::Ready(None) | Poll::Pending => second.poll_recv(context),
            });
        let stream = Stream {
            door,
            about,
            urgent,
            bulk,
            waiting: Mutex::default(),
            last_id: AtomicU64::new(0),
            unable: AtomicU32::new(0),
            able_at: Mutex::new(Instant::now()),
            done: Notify::new(),
            parted: CancellationToken::new(),
            over,
        };
        (stream, outbound)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something can be asked on it.
    pub(super) fn is_open(&self) -> bool {
        !self.over.is_cancelled() && !self.parted.is_cancelled() && !self.urgent.is_closed()
    }

    /// Whether all that was asked is answered.
    pub(super) fn is_done(&self) -> bool {
        self.waiting().is_empty()
    }

    /// Whether another server may be of more use.
    pub(super) fn is_unable(&self) -> bool {
        let able_at = *self.able_at.lock().unwrap_or_else(PoisonError::into_inner);
        self.unable.load(Ordering::Relaxed) >= UNABLE_MAX && able_at.elapsed() >= UNABLE_TIME
    }

    pub(super) async fn ask(&self, request: Request) -> Result<Reply, StoreError> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let is_hello = matches!(request, Request::Hello(_));
        let queue = if is_bulk(&request) { &self.bulk } else { &self.urgent };
        let message = v1::WorkerRequest { id, request: Some(request), takes_parts: true };
        let bytes = message.encoded_len();
        if bytes > MESSAGE_BYTES_MAX {
            let text = format!("a message has {bytes} bytes, more than {MESSAGE_BYTES_MAX}");
            return Err(StoreError::Conflict(text));
        }
        let (asker, answered) = oneshot::channel();
        self.waiting().insert(id, Waiting { asker, parts: None });
        // Many introduce themselves at once, and are in no hurry.
        let mut asked = Asked { stream: self, id, is_answered: is_hello };
        // Who asks behind the last answer would wait for nothing.
        if self.over.is_cancelled() || queue.send(message).await.is_err() {
            return Err(broken(&self.about));
        }
        let reply = answered.await.map_err(|_| broken(&self.about))?;
        let Reply::Error(error) = reply else {
            asked.is_answered = true;
            self.unable.store(0, Ordering::Relaxed);
            *self.able_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            return Ok(reply);
        };
        let error = StoreError::from_wire(error).unwrap_or_else(StoreError::from);
        asked.is_answered = !error.is_retryable();
        Err(error)
    }

    /// Hands an answer, or a part of one, to whoever waits for it.
    pub(super) fn answer(&self, id: u64, reply: Reply, has_more: bool) {
        let mut waiting = self.waiting();
        // Whoever does not wait any more need not know.
        let Some(mut asked) = waiting.remove(&id) else { return };
        let reply = match asked.parts.take() {
            None => reply,
            Some(mut before) => match extend_reply(&mut before, reply) {
                Ok(()) => before,
                Err(error) => Reply::Error(StoreError::from(error).to_wire()),
            },
        };
        if has_more && !matches!(reply, Reply::Error(_)) {
            asked.parts = Some(reply);
            waiting.insert(id, asked);
        } else {
            let _ = asked.asker.send(reply);
        }
    }

    /// Tells all who wait that they wait for nothing.
    pub(super) fn end(&self) {
        self.over.cancel();
        self.waiting().clear();
    }
}

/// Whether a request may be large.
fn is_bulk(request: &Request) -> bool {
    match request {
        Request::Hello(_)
        | Request::Results(_)
        | Request::Checkpoints(_)
        | Request::Steps(_)
        | Request::StartChildren(_) => true,
        Request::Claim(_)
        | Request::Releases(_)
        | Request::TakeSignals(_)
        | Request::CountChildren(_)
        | Request::ListChildren(_)
        | Request::ReadUndo(_)
        | Request::Heartbeat(_)
        | Request::Drain(_)
        | Request::Leave(_) => false,
    }
}

/// A request under way. Dropped, nobody waits for its answer any more.
struct Asked<'a> {
    stream: &'a Stream,
    id: u64,
    /// Whether the server did what it could.
    is_answered: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let is_last = {
            let mut waiting = self.stream.waiting();
            waiting.remove(&self.id);
            waiting.is_empty()
        };
        if is_last {
            self.stream.done.notify_one();
        }
        if !self.is_answered {
            self.stream.unable.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The stream to a server is over, whatever was under way.
pub(super) fn broken(about: &About) -> StoreError {
    about.unavailable("the stream to it broke")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::StreamExt as _;

    use super::*;
    use crate::remote::doors::Doors;

    fn door() -> Door {
        let channel = tonic::transport::Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
        Doors::new(vec![(channel, About::unknown())], Default::default()).current().0
    }

    fn claim() -> Request {
        Request::Claim(v1::Claim::default())
    }

    fn tasks(count: usize) -> Reply {
        let tasks = vec![v1::ClaimedTask::default(); count];
        Reply::Tasks(v1::Tasks { tasks, ..Default::default() })
    }

    #[tokio::test]
    async fn a_heartbeat_does_not_wait_behind_results() {
        let (stream, mut outbound) =
            Stream::new(door(), About::unknown(), CancellationToken::new());
        let stream = Arc::new(stream);
        for request in [
            Request::Results(v1::Results::default()),
            Request::Results(v1::Results::default()),
            Request::Heartbeat(v1::Heartbeat::default()),
        ] {
            let stream = Arc::clone(&stream);
            tokio::spawn(async move { stream.ask(request).await });
        }
        while stream.waiting().len() < 3 {
            tokio::task::yield_now().await;
        }
        let first = outbound.next().await.and_then(|message| message.request);
        assert!(matches!(first, Some(Request::Heartbeat(_))), "{first:?}");
    }

    #[tokio::test]
    async fn an_answer_in_parts_is_told_when_all_have_come() {
        let (stream, _outbound) = Stream::new(door(), About::unknown(), CancellationToken::new());
        let asking = stream.ask(claim());
        tokio::pin!(asking);
        assert!(futures_util::poll!(&mut asking).is_pending());
        stream.answer(1, tasks(2), true);
        assert!(futures_util::poll!(&mut asking).is_pending());
        stream.answer(1, tasks(1), false);
        assert_eq!(asking.await, Ok(tasks(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_cannot_do_its_work_is_known_by_what_it_answers() {
        let (stream, _outbound) = Stream::new(door(), About::unknown(), CancellationToken::new());
        let answer = async |id: u64, reply: Option<Reply>| {
            let asking = stream.ask(claim());
            tokio::pin!(asking);
            assert!(futures_util::poll!(&mut asking).is_pending());
            if let Some(reply) = reply {
                stream.answer(id, reply, false);
                let _ = asking.await;
            }
        };
        let gone = || Some(Reply::Error(StoreError::Unavailable("gone".into()).to_wire()));
        let refused = || Some(Reply::Error(StoreError::Conflict("no".into()).to_wire()));
        answer(1, gone()).await;
        answer(2, gone()).await;
        answer(3, Some(tasks(0))).await;
        answer(4, gone()).await;
        answer(5, refused()).await;
        answer(6, None).await;
        assert!(!stream.is_unable(), "two in a row since one was done");
        answer(7, gone()).await;
        assert!(!stream.is_unable(), "it could a moment ago");
        tokio::time::advance(UNABLE_TIME).await;
        assert!(stream.is_unable());
    }

    #[tokio::test]
    async fn what_is_too_large_to_be_said_is_not_said() {
        let (stream, _outbound) = Stream::new(door(), About::unknown(), CancellationToken::new());
        let worker = "x".repeat(MESSAGE_BYTES_MAX);
        let asking = stream.ask(Request::Drain(v1::Drain { worker }));
        assert!(matches!(asking.await, Err(StoreError::Conflict(_))));
        assert!(stream.is_done());
    }
}
