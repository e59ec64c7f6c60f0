//! What many handlers tell the store, in few operations.
//!
//! What comes alone leaves at once. What comes while it is under way gathers, and leaves
//! together with the next operation: one commit serves all handlers of a worker. This module
//! does not judge: the store does, by the fence.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::call::limited;
use crate::process::Gate;
use crate::store::{
    Answer, Checkpoint, Recording, StoreError, TakeSignal, Taken, WorkerLink, batch_len,
};

/// The most parcels of one operation.
const GATHER_MAX: usize = 1_000;

/// Something that handlers tell the store.
pub(crate) trait Parcel: Clone + Send + Sync + 'static {
    /// What the store answers.
    type Answer: Clone + Send + 'static;

    /// What it is called in messages.
    const WHAT: &str;

    /// How much there is to send.
    fn bytes(&self) -> usize;

    /// Sends many.
    fn send(
        link: Arc<dyn WorkerLink>,
        batch: Vec<Self>,
    ) -> impl Future<Output = Result<Vec<Self::Answer>, StoreError>> + Send;
}

impl Parcel for Checkpoint {
    type Answer = Answer;

    const WHAT: &str = "checkpoint";

    fn bytes(&self) -> usize {
        self.value.as_str().len()
    }

    async fn send(
        link: Arc<dyn WorkerLink>,
        batch: Vec<Self>,
    ) -> Result<Vec<Self::Answer>, StoreError> {
        link.checkpoint(batch).await
    }
}

impl Parcel for Recording {
    type Answer = Answer;

    const WHAT: &str = "record";

    fn bytes(&self) -> usize {
        Recording::bytes(self)
    }

    async fn send(
        link: Arc<dyn WorkerLink>,
        batch: Vec<Self>,
    ) -> Result<Vec<Self::Answer>, StoreError> {
        link.record(batch).await
    }
}

impl Parcel for TakeSignal {
    type Answer = Taken;

    const WHAT: &str = "question for a signal";

    fn bytes(&self) -> usize {
        0
    }

    async fn send(
        link: Arc<dyn WorkerLink>,
        batch: Vec<Self>,
    ) -> Result<Vec<Self::Answer>, StoreError> {
        link.take_signals(batch).await
    }
}

/// Everything that handlers of one worker tell the store.
#[derive(Debug)]
pub(crate) struct Gathers {
    pub(crate) checkpoints: Arc<Gather<Checkpoint>>,
    pub(crate) recordings: Arc<Gather<Recording>>,
    pub(crate) takes: Arc<Gather<TakeSignal>>,
}

impl Gathers {
    /// What the worker talks to.
    pub(crate) fn link(&self) -> Arc<dyn WorkerLink> {
        Arc::clone(&self.takes.link)
    }

    /// A call that is given up after the time that operations may take.
    pub(crate) async fn limited<T: 'static>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        limited(self.takes.limit, call).await
    }
}

impl Gathers {
    pub(super) fn new(link: &Arc<dyn WorkerLink>, gate: &Gate, limit: Duration) -> Arc<Self> {
        Arc::new(Gathers {
            checkpoints: Gather::new(Arc::clone(link), gate.clone(), limit),
            recordings: Gather::new(Arc::clone(link), gate.clone(), limit),
            takes: Gather::new(Arc::clone(link), gate.clone(), limit),
        })
    }
}

type Told<P> = Result<<P as Parcel>::Answer, StoreError>;

/// Parcels, and who waits for their answers.
type Batch<P> = (Vec<P>, Vec<oneshot::Sender<Told<P>>>);

/// Gathers the parcels of one kind of one worker's handlers.
pub(crate) struct Gather<P: Parcel> {
    link: Arc<dyn WorkerLink>,
    gate: Gate,
    /// How long one operation may take.
    limit: Duration,
    waiting: Mutex<Waiting<P>>,
}

struct Waiting<P: Parcel> {
    parcels: Vec<(P, oneshot::Sender<Told<P>>)>,
    is_busy: bool,
}

impl<P: Parcel> Gather<P> {
    fn new(link: Arc<dyn WorkerLink>, gate: Gate, limit: Duration) -> Arc<Self> {
        let waiting = Mutex::new(Waiting { parcels: Vec::new(), is_busy: false });
        Arc::new(Gather { link, gate, limit, waiting })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<P>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the store, together with others that come meanwhile. If this is dropped before
    /// the operation begins, nothing is told.
    pub(crate) async fn tell(self: &Arc<Self>, parcel: P) -> Told<P> {
        let (answer, answered) = oneshot::channel();
        let was_busy = {
            let mut waiting = self.waiting();
            waiting.parcels.push((parcel, answer));
            std::mem::replace(&mut waiting.is_busy, true)
        };
        if !was_busy {
            let busy = Busy { gather: Arc::clone(self), has_left: false };
            tokio::spawn(self.gate.wrap(busy.work()));
        }
        // Nobody answers only if the process or its runtime ends.
        answered.await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable(format!("the worker gave the {} up", P::WHAT)))
        })
    }
}

impl<P: Parcel> std::fmt::Debug for Gather<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gather").finish_non_exhaustive()
    }
}

/// The one who works for all. Dropped in the middle, it leaves whoever waits without an
/// answer, and the place to the next.
struct Busy<P: Parcel> {
    gather: Arc<Gather<P>>,
    /// Whether it gave up the place by itself, which may be another's by now.
    has_left: bool,
}

impl<P: Parcel> Busy<P> {
    async fn work(mut self) {
        while let Some((batch, senders)) = self.next_batch() {
            let count = batch.len();
            let call = P::send(Arc::clone(&self.gather.link), batch);
            let answers = match limited(self.gather.limit, call).await {
                Ok(answers) if answers.len() == count => answers.into_iter().map(Ok).collect(),
                Ok(answers) => {
                    let text = format!("{} answers to {count}", answers.len());
                    vec![Err(StoreError::Unavailable(text)); count]
                }
                Err(error) => vec![Err(error); count],
            };
            for (sender, answer) in senders.into_iter().zip(answers) {
                // Whoever does not wait any more need not know.
                let _ = sender.send(answer);
            }
        }
    }

    /// What is to be told next; if there is nothing, the place is free.
    fn next_batch(&mut self) -> Option<Batch<P>> {
        let mut waiting = self.gather.waiting();
        waiting.parcels.retain(|(_, answer)| !answer.is_closed());
        if waiting.parcels.is_empty() {
            waiting.is_busy = false;
            self.has_left = true;
            return None;
        }
        let count = batch_len(waiting.parcels.iter().map(|(one, _)| one.bytes()), GATHER_MAX);
        Some(waiting.parcels.drain(..count).unzip())
    }
}

impl<P: Parcel> Drop for Busy<P> {
    fn drop(&mut self) {
        if !self.has_left {
            let mut waiting = self.gather.waiting();
            waiting.parcels.clear();
            waiting.is_busy = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use windlass_core::{Call, Fence, Payload, RunId, TaskId, TaskIndex, Timestamp, WorkerId};

    use crate::store::{
        Born, Child, ChildCount, ChildStart, ClaimRequest, Claimed, Completion, Heartbeat,
        HeartbeatAnswer, Held, Hello, Hints, MemoryStore, Refusal, Release, ToUndo,
    };

    /// A store that counts its operations, and takes its time for each.
    struct Slow {
        store: MemoryStore,
        operations: AtomicUsize,
    }

    #[async_trait]
    impl WorkerLink for Slow {
        async fn join(&self, hello: Hello) -> Result<(), StoreError> {
            self.store.join(hello).await
        }

        async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
            self.store.claim(request).await
        }

        async fn finish(&self, completions: Vec<Completion>) -> Result<Vec<Answer>, StoreError> {
            self.store.finish(completions).await
        }

        async fn release(&self, releases: Vec<Release>) -> Result<Vec<Answer>, StoreError> {
            self.store.release(releases).await
        }

        async fn checkpoint(&self, batch: Vec<Checkpoint>) -> Result<Vec<Answer>, StoreError> {
            self.operations.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.store.checkpoint(batch).await
        }

        async fn record(&self, recordings: Vec<Recording>) -> Result<Vec<Answer>, StoreError> {
            self.store.record(recordings).await
        }

        async fn take_signals(&self, takes: Vec<TakeSignal>) -> Result<Vec<Taken>, StoreError> {
            self.store.take_signals(takes).await
        }

        async fn start_children(&self, starts: Vec<ChildStart>) -> Result<Vec<Born>, StoreError> {
            self.store.start_children(starts).await
        }

        async fn read_undo(&self, held: Held) -> Result<ToUndo, StoreError> {
            self.store.read_undo(held).await
        }

        async fn count_children(&self, task: TaskId, call: Call) -> Result<ChildCount, StoreError> {
            self.store.count_children(task, call).await
        }

        async fn list_children(
            &self,
            task: TaskId,
            call: Call,
            after: Option<u32>,
            limit: usize,
        ) -> Result<Vec<Child>, StoreError> {
            self.store.list_children(task, call, after, limit).await
        }

        async fn extend(&self, heartbeat: Heartbeat) -> Result<HeartbeatAnswer, StoreError> {
            self.store.extend(heartbeat).await
        }

        async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
            self.store.leave(worker).await
        }

        fn keyring(&self) -> Option<Arc<crate::store::sealed::Keyring>> {
            self.store.keyring()
        }

        fn work_hints(&self) -> Hints {
            self.store.work_hints()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn checkpoints_that_come_during_one_share_the_next() {
        let link = Arc::new(Slow { store: MemoryStore::new(), operations: AtomicUsize::new(0) });
        let checkpoints = Gather::new(link.clone(), Gate::default(), Duration::from_secs(1));
        let keep = |number: u32| {
            let run = RunId::from_parts(Timestamp::from_micros(0), u128::from(number));
            let task = TaskId { run, index: TaskIndex(0) };
            let held = Held { task, fence: Fence(1) };
            let value = Payload::encode(&number).unwrap();
            let checkpoints = Arc::clone(&checkpoints);
            tokio::spawn(
                async move { checkpoints.tell(Checkpoint { held, number: 0, value }).await },
            )
        };
        let first = keep(0);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert_eq!(link.operations.load(Ordering::Relaxed), 1, "one that comes alone leaves");
        let rest: Vec<_> = (1..=100).map(keep).collect();
        for kept in rest.into_iter().chain([first]) {
            assert_eq!(kept.await.unwrap(), Ok(Answer::Refused(Refusal::UnknownTask)));
        }
        assert_eq!(link.operations.load(Ordering::Relaxed), 2);
        assert!(!checkpoints.waiting().is_busy);
    }
}
