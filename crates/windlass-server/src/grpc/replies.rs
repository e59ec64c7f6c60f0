//! What is said to a process with workers.
//!
//! Answers may be large, and whoever reads them slow: they wait within a budget, and what a lease
//! may depend on does not wait behind them.

use std::sync::Arc;
use std::task::Poll;

use futures_util::{Stream, stream};
use prost::Message as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use windlass::remote::MESSAGE_BYTES_MAX;
use windlass::store::StoreError;
use windlass::wire::{Wire as _, split_reply, v1};
use windlass_core::WorkerId;
use windlass_proto::v1::worker_reply::Reply;

/// The most replies of each urgency that wait to be read.
const REPLIES_MAX: usize = 256;

/// The most bytes of them, but for one that is larger alone.
const REPLY_BYTES_MAX: usize = 32 << 20;

/// A reply that waits, and the room that it takes.
type Waiting = (v1::WorkerReply, Option<OwnedSemaphorePermit>);

/// Where replies are said.
pub(super) struct Replies {
    urgent: mpsc::Sender<Waiting>,
    bulk: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
}

impl Replies {
    /// And where they are read.
    pub(super) fn new() -> (Self, impl Stream<Item = v1::WorkerReply>) {
        let (urgent, mut first) = mpsc::channel(REPLIES_MAX);
        let (bulk, mut second) = mpsc::channel(REPLIES_MAX);
        let outbound = stream::poll_fn(move |context| {
            let waiting: Poll<Option<Waiting>> = match first.poll_recv(context) {
                ready @ Poll::Ready(Some(_)) => ready,
                Poll::Ready(None) | Poll::Pending => second.poll_recv(context),
            };
            waiting.map(|waiting| waiting.map(|(reply, _room)| reply))
        });
        let room = Arc::new(Semaphore::new(REPLY_BYTES_MAX));
        (Replies { urgent, bulk, room }, outbound)
    }

    /// For whoever must know whether someone reads still.
    pub(super) fn listener(&self) -> Listener {
        Listener(self.urgent.clone())
    }

    /// When nobody reads any more.
    pub(super) async fn closed(&self) {
        self.urgent.closed().await;
    }

    /// For whoever wakes workers of this stream.
    pub(super) fn hinter(&self) -> Hinter {
        Hinter(self.urgent.clone())
    }

    /// Says something that nobody asked for.
    pub(super) async fn say(&self, reply: Reply) {
        self.send(0, reply, false).await;
    }

    /// Answers a request.
    pub(super) async fn answer(&self, id: u64, reply: Reply, takes_parts: bool) {
        let parts = if takes_parts { split_reply(reply) } else { vec![reply] };
        let last = parts.len() - 1;
        for (place, part) in parts.into_iter().enumerate() {
            self.send(id, part, place < last).await;
        }
    }

    async fn send(&self, id: u64, reply: Reply, has_more: bool) {
        let queue = if is_bulk(&reply) { &self.bulk } else { &self.urgent };
        let mut message = v1::WorkerReply { id, reply: Some(reply), has_more };
        let bytes = message.encoded_len();
        if bytes > MESSAGE_BYTES_MAX {
            let text = format!("the answer has {bytes} bytes, more than {MESSAGE_BYTES_MAX}");
            let error = StoreError::Conflict(text).to_wire();
            message = v1::WorkerReply { id, reply: Some(Reply::Error(error)), has_more: false };
        }
        let room = match std::ptr::eq(queue, &self.bulk) {
            true => {
                let bytes = message.encoded_len().min(REPLY_BYTES_MAX) as u32;
                Arc::clone(&self.room).acquire_many_owned(bytes).await.ok()
            }
            false => None,
        };
        // Who has gone is told nothing.
        let _ = queue.send((message, room)).await;
    }
}

/// Whether a reply may be large.
fn is_bulk(reply: &Reply) -> bool {
    match reply {
        Reply::Tasks(_)
        | Reply::Answers(_)
        | Reply::SignalsTaken(_)
        | Reply::ChildrenStarted(_)
        | Reply::Children(_) => true,
        Reply::Welcome(_)
        | Reply::ChildCount(_)
        | Reply::Beat(_)
        | Reply::Done(_)
        | Reply::Error(_)
        | Reply::Hint(_)
        | Reply::Goodbye(_) => false,
    }
}

/// Whoever reads a stream.
#[derive(Clone)]
pub(super) struct Listener(mpsc::Sender<Waiting>);

impl Listener {
    /// Whether they read still.
    pub(super) fn is_there(&self) -> bool {
        !self.0.is_closed()
    }
}

/// Wakes workers of a stream.
pub(super) struct Hinter(mpsc::Sender<Waiting>);

impl Hinter {
    /// Says that there may be something; whether someone listens.
    pub(super) fn hint(&self, worker: WorkerId) -> bool {
        let reply = Some(Reply::Hint(v1::Hint { worker: worker.to_string() }));
        // One that does not read what it is told is not one that works.
        self.0.try_send((v1::WorkerReply { id: 0, reply, has_more: false }, None)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt as _, StreamExt as _};
    use windlass::wire::PART_BYTES_MAX;

    fn tasks(count: usize, bytes: usize) -> Reply {
        let task = v1::ClaimedTask { input: "x".repeat(bytes), ..Default::default() };
        Reply::Tasks(v1::Tasks { tasks: vec![task; count], ..Default::default() })
    }

    #[tokio::test]
    async fn the_answer_to_a_heartbeat_comes_before_tasks() {
        let (replies, mut outbound) = Replies::new();
        replies.answer(1, tasks(3, PART_BYTES_MAX), true).await;
        replies.answer(2, Reply::Beat(v1::Beat::default()), true).await;
        let read: Vec<_> =
            outbound.by_ref().take(4).map(|one| (one.id, one.has_more)).collect().await;
        assert_eq!(read, [(2, false), (1, true), (1, true), (1, false)]);
    }

    #[tokio::test]
    async fn who_does_not_read_is_sent_no_more_than_there_is_room_for() {
        let (replies, mut outbound) = Replies::new();
        let parts = REPLY_BYTES_MAX / PART_BYTES_MAX;
        let answering = replies.answer(1, tasks(parts + 2, PART_BYTES_MAX), true);
        tokio::pin!(answering);
        assert!(answering.as_mut().now_or_never().is_none(), "it waits for room");
        assert!(outbound.next().await.is_some());
        let mut read = 1;
        while answering.as_mut().now_or_never().is_none() {
            assert!(outbound.next().await.is_some());
            read += 1;
        }
        assert!(read <= 4, "{read} were read before there was room");
    }

    #[tokio::test]
    async fn an_answer_too_large_for_a_message_is_an_error_and_the_next_is_answered() {
        let (replies, mut outbound) = Replies::new();
        replies.answer(1, tasks(1, MESSAGE_BYTES_MAX), true).await;
        replies.answer(2, tasks(80, 1 << 20), false).await;
        replies.answer(3, tasks(1, 1), false).await;
        let replies: Vec<_> = outbound.by_ref().take(3).collect().await;
        for (id, reply) in [1, 2].into_iter().zip(&replies) {
            let Some(Reply::Error(error)) = &reply.reply else { panic!("no error") };
            assert!(reply.id == id && error.message.contains("bytes"), "{error:?}");
        }
        assert!(matches!(replies[2].reply, Some(Reply::Tasks(_))));
    }
}
