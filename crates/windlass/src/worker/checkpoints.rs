//! Checkpoints of many handlers, in few operations.
//!
//! One that comes alone leaves at once. Those that come while it is under way gather, and
//! leave together with the next operation: one commit serves all handlers of a worker. This
//! module does not judge: the store does, by the fence.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::call::limited;
use crate::process::Gate;
use crate::store::{Answer, Checkpoint, StoreError, WorkerLink, batch_len};

/// The most checkpoints of one operation.
const GATHER_MAX: usize = 1_000;

type Told = Result<Answer, StoreError>;

/// Gathers the checkpoints of one worker's handlers.
pub(crate) struct Checkpoints {
    link: Arc<dyn WorkerLink>,
    gate: Gate,
    /// How long one operation may take.
    limit: Duration,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    checkpoints: Vec<(Checkpoint, oneshot::Sender<Told>)>,
    is_busy: bool,
}

impl Checkpoints {
    pub(super) fn new(link: Arc<dyn WorkerLink>, gate: Gate, limit: Duration) -> Arc<Self> {
        Arc::new(Checkpoints { link, gate, limit, waiting: Mutex::default() })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a checkpoint, together with others that come meanwhile. If this is dropped before
    /// the operation begins, nothing is kept.
    pub(crate) async fn keep(self: &Arc<Self>, checkpoint: Checkpoint) -> Told {
        let (answer, answered) = oneshot::channel();
        let was_busy = {
            let mut waiting = self.waiting();
            waiting.checkpoints.push((checkpoint, answer));
            std::mem::replace(&mut waiting.is_busy, true)
        };
        if !was_busy {
            let busy = Busy { checkpoints: Arc::clone(self), has_left: false };
            tokio::spawn(self.gate.wrap(busy.work()));
        }
        // Nobody answers only if the process or its runtime ends.
        answered.await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable("the worker gave the checkpoint up".to_owned()))
        })
    }
}

impl std::fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoints").finish_non_exhaustive()
    }
}

/// The one who works for all. Dropped in the middle, it leaves whoever waits without an
/// answer, and the place to the next.
struct Busy {
    checkpoints: Arc<Checkpoints>,
    /// Whether it gave up the place by itself, which may be another's by now.
    has_left: bool,
}

impl Busy {
    async fn work(mut self) {
        while let Some((batch, senders)) = self.next_batch() {
            let count = batch.len();
            let link = Arc::clone(&self.checkpoints.link);
            let call = async move { link.checkpoint(batch).await };
            let answers = match limited(self.checkpoints.limit, call).await {
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

    /// What is to be kept next; if there is nothing, the place is free.
    fn next_batch(&mut self) -> Option<(Vec<Checkpoint>, Vec<oneshot::Sender<Told>>)> {
        let mut waiting = self.checkpoints.waiting();
        waiting.checkpoints.retain(|(_, answer)| !answer.is_closed());
        if waiting.checkpoints.is_empty() {
            waiting.is_busy = false;
            self.has_left = true;
            return None;
        }
        let bytes = waiting.checkpoints.iter().map(|(one, _)| one.value.as_str().len());
        let count = batch_len(bytes, GATHER_MAX);
        Some(waiting.checkpoints.drain(..count).unzip())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if !self.has_left {
            let mut waiting = self.checkpoints.waiting();
            waiting.checkpoints.clear();
            waiting.is_busy = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use windlass_core::{Fence, Payload, RunId, TaskId, TaskIndex, Timestamp, WorkerId};

    use crate::store::{
        ClaimRequest, Claimed, Completion, Heartbeat, HeartbeatAnswer, Held, Hello, Hints,
        MemoryStore, Refusal, Release,
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

        async fn extend(&self, heartbeat: Heartbeat) -> Result<HeartbeatAnswer, StoreError> {
            self.store.extend(heartbeat).await
        }

        async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
            self.store.leave(worker).await
        }

        fn work_hints(&self) -> Hints {
            self.store.work_hints()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn checkpoints_that_come_during_one_share_the_next() {
        let link = Arc::new(Slow { store: MemoryStore::new(), operations: AtomicUsize::new(0) });
        let checkpoints = Checkpoints::new(link.clone(), Gate::default(), Duration::from_secs(1));
        let keep = |number: u32| {
            let run = RunId::from_parts(Timestamp::from_micros(0), u128::from(number));
            let task = TaskId { run, index: TaskIndex(0) };
            let held = Held { task, fence: Fence(1) };
            let value = Payload::encode(&number).unwrap();
            let checkpoints = Arc::clone(&checkpoints);
            tokio::spawn(async move { checkpoints.keep(Checkpoint { held, value }).await })
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
