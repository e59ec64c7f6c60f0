//! What is to happen to the workers of a test engine, and what did.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::Notify;
use windlass_core::{Call, PayloadLimit, TaskId, WorkerId};

use super::Process;
use crate::store::{
    Answer, Born, Checkpoint, Child, ChildCount, ChildStart, ClaimRequest, Claimed, Completion,
    Heartbeat, HeartbeatAnswer, Held, Hello, Hints, MemoryStore, Recording, Refusal, Release,
    StoreError, TakeSignal, Taken, ToUndo, WorkerLink,
};
use crate::worker::{Point, Probe};

/// A write of a worker that the store refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The task.
    pub task: TaskId,
    /// The fence of the write.
    pub fence: windlass_core::Fence,
    /// Why it was refused.
    pub refusal: Refusal,
}

/// One worker's process, and where something is to happen to it.
pub(super) struct Watch {
    pub(super) process: Process,
    plot: Arc<Plot>,
}

/// What is planned for whichever worker comes to a point first.
#[derive(Default)]
pub(super) struct Plot {
    plan: Mutex<Option<Plan>>,
    happened: Notify,
}

struct Plan {
    point: Point,
    task: String,
    is_crash: bool,
    victim: Option<Process>,
}

impl Plot {
    fn plan(&self) -> MutexGuard<'_, Option<Plan>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a crash or a freeze, in place of what was planned before.
    pub(super) fn set(&self, point: Point, task: &str, is_crash: bool) {
        *self.plan() = Some(Plan { point, task: task.to_owned(), is_crash, victim: None });
    }

    /// Waits until what was planned has happened, and to whom.
    pub(super) async fn victim(&self) -> Process {
        loop {
            let happened = self.happened.notified();
            let victim = self.plan().as_ref().and_then(|plan| plan.victim.clone());
            if let Some(victim) = victim {
                *self.plan() = None;
                return victim;
            }
            happened.await;
        }
    }

    pub(super) fn clear(&self) {
        *self.plan() = None;
    }
}

impl Watch {
    pub(super) fn new(process: Process, plot: Arc<Plot>) -> Self {
        Watch { process, plot }
    }
}

impl Probe for Watch {
    fn reached(&self, point: Point, task: &str) {
        let mut plan = self.plot.plan();
        let Some(plan) = plan.as_mut() else { return };
        if plan.victim.is_some() || plan.point != point || plan.task != task {
            return;
        }
        if plan.is_crash {
            self.process.kill();
        } else {
            self.process.freeze();
        }
        plan.victim = Some(self.process.clone());
        self.plot.happened.notify_waiters();
    }
}

/// The store as workers see it, with a note of every refusal.
pub(super) struct RecordingLink {
    store: Arc<MemoryStore>,
    refused: Mutex<Vec<Refused>>,
}

impl RecordingLink {
    pub(super) fn new(store: Arc<MemoryStore>) -> Self {
        RecordingLink { store, refused: Mutex::default() }
    }

    pub(super) fn refused(&self) -> Vec<Refused> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, held: impl Iterator<Item = Held>, answers: &[Answer]) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        for (Held { task, fence }, answer) in held.zip(answers) {
            match answer {
                Answer::Refused(refusal) => {
                    refused.push(Refused { task, fence, refusal: *refusal });
                }
                Answer::Accepted | Answer::AcceptedAlready => {}
            }
        }
    }
}

#[async_trait]
impl WorkerLink for RecordingLink {
    async fn join(&self, hello: Hello) -> Result<(), StoreError> {
        self.store.join(hello).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        self.store.claim(request).await
    }

    async fn finish(&self, completions: Vec<Completion>) -> Result<Vec<Answer>, StoreError> {
        let held: Vec<_> =
            completions.iter().map(|c| Held { task: c.task, fence: c.fence }).collect();
        let answers = self.store.finish(completions).await?;
        self.note(held.into_iter(), &answers);
        Ok(answers)
    }

    async fn release(&self, releases: Vec<Release>) -> Result<Vec<Answer>, StoreError> {
        let held: Vec<_> = releases.iter().map(|r| Held { task: r.task, fence: r.fence }).collect();
        let answers = self.store.release(releases).await?;
        self.note(held.into_iter(), &answers);
        Ok(answers)
    }

    async fn checkpoint(&self, checkpoints: Vec<Checkpoint>) -> Result<Vec<Answer>, StoreError> {
        let held: Vec<_> = checkpoints.iter().map(|checkpoint| checkpoint.held).collect();
        let answers = self.store.checkpoint(checkpoints).await?;
        self.note(held.into_iter(), &answers);
        Ok(answers)
    }

    async fn record(&self, recordings: Vec<Recording>) -> Result<Vec<Answer>, StoreError> {
        let held: Vec<_> = recordings.iter().map(|recording| recording.held).collect();
        let answers = self.store.record(recordings).await?;
        self.note(held.into_iter(), &answers);
        Ok(answers)
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

    async fn begin_drain(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.store.begin_drain(worker).await
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

    fn payload_limit(&self) -> PayloadLimit {
        self.store.payload_limit()
    }
}
