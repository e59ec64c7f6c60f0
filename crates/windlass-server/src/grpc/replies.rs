//! What is said to a process with workers.
//!
//! Answers may be large, and whoever reads them slow: they wait within a budget, with all of their
//! parts, and what a lease may depend on does not wait behind them.

use std::task::Poll;

use futures_util::{Stream, stream};
use prost::Message as _;
use tokio::sync::mpsc;
use windlass::remote::MESSAGE_BYTES_MAX;
use windlass::store::StoreError;
use windlass::wire::{Wire as _, split_reply, v1};
use windlass_core::WorkerId;
use windlass_proto::v1::worker_reply::Reply;

use super::budget::{Memory, StreamBudget};

/// The most replies of each urgency that wait to be read.
const REPLIES_MAX: usize = 256;

/// A reply that waits, and the memory that it takes.
type Waiting = (v1::WorkerReply, Memory);

/// Where replies are said.
pub(super) struct Replies {
    urgent: mpsc::Sender<Waiting>,
    bulk: mpsc::Sender<Waiting>,
    budget: StreamBudget,
}

impl Replies {
    /// And where they are read.
    pub(super) fn new(budget: StreamBudget) -> (Self, impl Stream<Item = v1::WorkerReply>) {
        let (urgent, mut first) = mpsc::channel(REPLIES_MAX);
        let (bulk, mut second) = mpsc::channel(REPLIES_MAX);
        let outbound = stream::poll_fn(move |context| {
            let waiting: Poll<Option<Waiting>> = match first.poll_recv(context) {
                ready @ Poll::Ready(Some(_)) => ready,
                Poll::Ready(None) | Poll::Pending => second.poll_recv(context),
            };
            waiting.map(|waiting| waiting.map(|(reply, _memory)| reply))
        });
        (Replies { urgent, bulk, budget }, outbound)
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

    /// The memory for answers of this stream.
    pub(super) fn budget(&self) -> &StreamBudget {
        &self.budget
    }

    /// Says something that nobody asked for.
    pub(super) async fn say(&self, reply: Reply) {
        let message = v1::WorkerReply { id: 0, reply: Some(reply), has_more: false };
        // Who has gone is told nothing.
        let _ = self.urgent.send((message, Memory::default())).await;
    }

    /// Answers a request, for whose answer this memory was taken.
    pub(super) async fn answer(&self, id: u64, reply: Reply, takes_parts: bool, memory: Memory) {
        let is_bulk = is_bulk(&reply);
        let parts = if takes_parts { split_reply(reply) } else { vec![reply] };
        let last = parts.len() - 1;
        let message = |(place, part)| message(id, part, place < last);
        let messages: Vec<_> = parts.into_iter().enumerate().map(message).collect();
        let (queue, mut memory) = match is_bulk {
            true => {
                let bytes = messages.iter().map(|one| one.encoded_len()).sum();
                (&self.bulk, self.budget.fit(memory, bytes).await)
            }
            false => (&self.urgent, memory),
        };
        for message in messages {
            let memory = memory.split(message.encoded_len());
            // Who has gone is told nothing.
            let _ = queue.send((message, memory)).await;
        }
    }
}

/// What is said of an answer, or that it cannot be said.
fn message(id: u64, reply: Reply, has_more: bool) -> v1::WorkerReply {
    let message = v1::WorkerReply { id, reply: Some(reply), has_more };
    let bytes = message.encoded_len();
    if bytes <= MESSAGE_BYTES_MAX {
        return message;
    }
    let text = format!("the answer has {bytes} bytes, more than {MESSAGE_BYTES_MAX}");
    let error = StoreError::Conflict(text).to_wire();
    v1::WorkerReply { id, reply: Some(Reply::Error(error)), has_more: false }
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
pub(crate) struct Hinter(mpsc::Sender<Waiting>);

impl Hinter {
    /// Says that there may be something; whether someone listens.
    pub(super) fn hint(&self, worker: WorkerId) -> bool {
        let reply = Some(Reply::Hint(v1::Hint { worker: worker.to_string() }));
        // One that does not read what it is told is not one that works.
        let message = v1::WorkerReply { id: 0, reply, has_more: false };
        self.0.try_send((message, Memory::default())).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::Origin;
    use crate::grpc::budget::{Budget, STREAM_ANSWER_BYTES_MAX};
    use crate::identity::Access;
    use crate::options::ServerOptions;
    use futures_util::{FutureExt as _, StreamExt as _};
    use windlass::wire::PART_BYTES_MAX;

    fn replies() -> (Replies, impl Stream<Item = v1::WorkerReply>) {
        let budget = Budget::new(&ServerOptions::new(Access::insecure_dev()));
        Replies::new(budget.stream(Origin::Socket))
    }

    fn tasks(count: usize, bytes: usize) -> Reply {
        let task = v1::ClaimedTask { input: "x".repeat(bytes), ..Default::default() };
        Reply::Tasks(v1::Tasks { tasks: vec![task; count], ..Default::default() })
    }

    #[tokio::test]
    async fn the_answer_to_a_heartbeat_comes_before_tasks() {
        let (replies, mut outbound) = replies();
        replies.answer(1, tasks(3, PART_BYTES_MAX), true, Memory::default()).await;
        let beat = Reply::Beat(v1::Beat::default());
        replies.answer(2, beat, true, Memory::default()).await;
        let read: Vec<_> =
            outbound.by_ref().take(4).map(|one| (one.id, one.has_more)).collect().await;
        assert_eq!(read, [(2, false), (1, true), (1, true), (1, false)]);
    }

    #[tokio::test]
    async fn who_does_not_read_is_sent_no_more_than_there_is_room_for() {
        let (replies, mut outbound) = replies();
        let parts = STREAM_ANSWER_BYTES_MAX / PART_BYTES_MAX + 2;
        // Its parts are in memory, whether they wait here or there.
        replies.answer(1, tasks(parts, PART_BYTES_MAX), true, Memory::default()).await;
        assert!(replies.budget().try_take(1).is_none(), "all of it is taken");
        let next = replies.answer(2, tasks(1, PART_BYTES_MAX), true, Memory::default());
        tokio::pin!(next);
        assert!(next.as_mut().now_or_never().is_none(), "it waits for room");
        let beat = Reply::Beat(v1::Beat::default());
        assert!(replies.answer(3, beat, true, Memory::default()).now_or_never().is_some());
        assert_eq!(outbound.next().await.map(|one| one.id), Some(3));
        assert!(next.as_mut().now_or_never().is_none(), "there is no room yet");
        assert_eq!(outbound.next().await.map(|one| one.id), Some(1));
        next.now_or_never().expect("there is room");
        let rest: Vec<_> = outbound.by_ref().take(parts).map(|one| one.id).collect().await;
        assert_eq!(rest.last(), Some(&2));
        assert!(replies.budget().try_take(usize::MAX).is_some(), "all is given back");
    }

    #[tokio::test]
    async fn an_answer_too_large_for_a_message_is_an_error_and_the_next_is_answered() {
        let (replies, mut outbound) = replies();
        replies.answer(1, tasks(1, MESSAGE_BYTES_MAX), true, Memory::default()).await;
        replies.answer(2, tasks(80, 1 << 20), false, Memory::default()).await;
        replies.answer(3, tasks(1, 1), false, Memory::default()).await;
        let replies: Vec<_> = outbound.by_ref().take(3).collect().await;
        for (id, reply) in [1, 2].into_iter().zip(&replies) {
            let Some(Reply::Error(error)) = &reply.reply else { panic!("no error") };
            assert!(reply.id == id && error.message.contains("bytes"), "{error:?}");
        }
        assert!(matches!(replies[2].reply, Some(Reply::Tasks(_))));
    }
}
