//! The places where a worker can die, and the link that lets it die there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::Notify;
use windlass_core::{
    Call, Decision, PayloadLimit, StepChange, StepResult, StepState, TaskId, WorkerId,
};

use crate::store::{
    Answer, Born, Checkpoint, Child, ChildCount, ChildStart, ClaimRequest, Claimed, Completion,
    Finished, Heartbeat, HeartbeatAnswer, Held, Hello, Hints, Recording, Release, StoreError,
    TakeSignal, Taken, ToUndo, WorkerLink,
};
use crate::testing::Process;
use crate::testing::script::Watch;
use crate::worker::{Point, Probe};

/// The most places of one workflow. The time grows with the square of their number.
pub(super) const PLACES_MAX: usize = 20_000;

/// A place where a worker can die.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrashPlace {
    /// Between two calls to the store.
    Point {
        /// Where.
        point: Point,
        /// The name of the task that it runs.
        task: String,
    },
    /// At a call to the store that changes something.
    Call {
        /// Which one.
        call: LinkCall,
        /// What it is about: names of steps, signals or workflows, if it has any.
        names: Vec<String>,
        /// Whether the store did what it was asked for, and only the answer is lost. If not,
        /// the store never heard of it.
        is_applied: bool,
    },
}

impl fmt::Display for CrashPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CrashPlace::Point { point, task } => write!(f, "at {point:?} of task {task:?}"),
            CrashPlace::Call { call, names, is_applied } => {
                f.write_str(if *is_applied { "after" } else { "before" })?;
                write!(f, " the commit of {}", call.word())?;
                if names.is_empty() { Ok(()) } else { write!(f, " of {}", names.join(", ")) }
            }
        }
    }
}

/// A call of a worker that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkCall {
    /// Tasks are claimed.
    Claim,
    /// Outcomes are told, or that functions wait.
    Finish,
    /// Tasks are handed back.
    Release,
    /// Checkpoints are kept.
    Checkpoint,
    /// Results of steps are recorded.
    Record,
    /// Signals are taken.
    TakeSignals,
    /// Runs are started by functions.
    StartChildren,
}

impl LinkCall {
    fn word(self) -> &'static str {
        match self {
            LinkCall::Claim => "claim",
            LinkCall::Finish => "finish",
            LinkCall::Release => "release",
            LinkCall::Checkpoint => "checkpoint",
            LinkCall::Record => "record",
            LinkCall::TakeSignals => "take_signals",
            LinkCall::StartChildren => "start_children",
        }
    }
}

/// What the workers of one trial come by, and where one of them dies.
#[derive(Default)]
pub(in crate::testing) struct Places {
    inner: Mutex<Inner>,
    died: Notify,
}

#[derive(Default)]
struct Inner {
    seen: Vec<CrashPlace>,
    crash_at: Option<usize>,
    /// Results that the store said to have recorded, by round of the run.
    kept: BTreeMap<(TaskId, u32), BTreeMap<Call, StepResult>>,
    /// The rounds in which tasks were claimed last.
    rounds: BTreeMap<TaskId, u32>,
    lost: Vec<String>,
    #[cfg(test)]
    drops_records: bool,
}

impl Places {
    /// A trial in which the worker dies that comes to the place of this number first.
    pub(super) fn new(crash_at: Option<usize>) -> Self {
        Places { inner: Mutex::new(Inner { crash_at, ..Inner::default() }), died: Notify::new() }
    }

    /// Plants a bug: records are accepted and dropped.
    #[cfg(test)]
    pub(super) fn drop_records(&self) {
        self.inner().drops_records = true;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the worker has died.
    pub(super) async fn died(&self) {
        self.died.notified().await;
    }

    /// The places that workers came by.
    pub(super) fn seen(&self) -> Vec<CrashPlace> {
        self.inner().seen.clone()
    }

    /// The recorded results that a later claim did not have.
    pub(super) fn lost(&self) -> Vec<String> {
        self.inner().lost.clone()
    }

    /// A worker is at a place; `true` if it is dead from now on.
    fn pass(&self, process: &Process, place: CrashPlace) -> bool {
        if process.is_dead() {
            return true;
        }
        let dies = {
            let mut inner = self.inner();
            let number = inner.seen.len();
            // One more than the limit is kept, for the trial to see it.
            if number <= PLACES_MAX {
                inner.seen.push(place);
            }
            inner.crash_at == Some(number)
        };
        if dies {
            process.kill();
            self.died.notify_one();
        }
        dies
    }

    /// Remembers what the store must give back from now on.
    fn note_recorded(&self, recordings: &[Recording], answers: &[Answer]) {
        let inner = &mut *self.inner();
        for (recording, answer) in recordings.iter().zip(answers) {
            match answer {
                Answer::Accepted | Answer::AcceptedAlready => {}
                Answer::Refused(_) => continue,
            }
            let task = recording.held.task;
            let Some(round) = inner.rounds.get(&task) else { continue };
            for step in &recording.steps {
                if let StepChange::Done { result, .. } = &step.change {
                    let kept = inner.kept.entry((task, *round)).or_default();
                    kept.insert(step.call, result.clone());
                }
            }
        }
    }

    /// Compares what a claim gives with what was recorded.
    fn note_claimed(&self, claimed: &[Claimed]) {
        let inner = &mut *self.inner();
        for Claimed { task, round, spec, steps, .. } in claimed {
            inner.rounds.insert(*task, *round);
            for (call, result) in inner.kept.get(&(*task, *round)).into_iter().flatten() {
                let is_there = steps.iter().any(|step| match &step.state {
                    StepState::Done { result: found, .. } => step.call == *call && found == result,
                    StepState::Open { .. } => false,
                });
                if !is_there {
                    let task = &spec.name;
                    inner.lost.push(format!("the recorded result of call {call} of task {task:?}"));
                }
            }
        }
    }

    /// Forgets what was recorded of tasks that have ended.
    fn note_finished(&self, completions: &[Completion]) {
        let inner = &mut *self.inner();
        for Completion { task, decision, .. } in completions {
            match decision {
                Decision::Succeed(_)
                | Decision::Fail(_)
                | Decision::Skip
                | Decision::Continue(_) => {
                    inner.kept.retain(|(kept, _), _| kept != task);
                }
                Decision::Retry { .. } | Decision::Park(_) => {}
            }
        }
    }

    fn is_dropping_records(&self) -> bool {
        #[cfg(test)]
        return self.inner().drops_records;
        #[cfg(not(test))]
        false
    }
}

/// What one worker tells of where it is.
pub(in crate::testing) struct CrashProbe {
    pub(in crate::testing) watch: Watch,
    pub(in crate::testing) places: Arc<Places>,
}

impl Probe for CrashProbe {
    fn reached(&self, point: Point, task: &str) {
        self.watch.reached(point, task);
        let place = CrashPlace::Point { point, task: task.to_owned() };
        self.places.pass(&self.watch.process, place);
    }
}

/// The store as one worker sees it, which may die at every call.
pub(in crate::testing) struct CrashLink {
    pub(in crate::testing) link: Arc<dyn WorkerLink>,
    pub(in crate::testing) process: Process,
    pub(in crate::testing) places: Arc<Places>,
}

impl CrashLink {
    /// Goes on, unless the worker dies here: then it is dropped while it waits.
    async fn pass(&self, call: LinkCall, names: &[String], is_applied: bool) {
        let place = CrashPlace::Call { call, names: names.to_vec(), is_applied };
        if self.places.pass(&self.process, place) {
            std::future::pending::<()>().await;
        }
    }

    /// Makes a call, with a place to die before and after it.
    async fn around<T>(
        &self,
        call: LinkCall,
        names: Vec<String>,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.pass(call, &names, false).await;
        let answer = work.await?;
        self.pass(call, &names, true).await;
        Ok(answer)
    }
}

#[async_trait]
impl WorkerLink for CrashLink {
    async fn join(&self, hello: Hello) -> Result<(), StoreError> {
        self.link.join(hello).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        let claim = async {
            let claimed = self.link.claim(request).await?;
            self.places.note_claimed(&claimed);
            Ok(claimed)
        };
        self.around(LinkCall::Claim, Vec::new(), claim).await
    }

    async fn finish(&self, completions: Vec<Completion>) -> Result<Vec<Answer>, StoreError> {
        let finish = async {
            self.places.note_finished(&completions);
            self.link.finish(completions).await
        };
        self.around(LinkCall::Finish, Vec::new(), finish).await
    }

    async fn finish_and_claim(
        &self,
        completions: Vec<Completion>,
        next: ClaimRequest,
    ) -> Result<Finished, StoreError> {
        let finish = async {
            self.places.note_finished(&completions);
            let finished = self.link.finish_and_claim(completions, next).await?;
            self.places.note_claimed(&finished.claimed);
            Ok(finished)
        };
        self.around(LinkCall::Finish, Vec::new(), finish).await
    }

    async fn release(&self, releases: Vec<Release>) -> Result<Vec<Answer>, StoreError> {
        self.around(LinkCall::Release, Vec::new(), self.link.release(releases)).await
    }

    async fn checkpoint(&self, checkpoints: Vec<Checkpoint>) -> Result<Vec<Answer>, StoreError> {
        self.around(LinkCall::Checkpoint, Vec::new(), self.link.checkpoint(checkpoints)).await
    }

    async fn record(&self, recordings: Vec<Recording>) -> Result<Vec<Answer>, StoreError> {
        let steps = recordings.iter().flat_map(|recording| &recording.steps);
        let names = steps.map(|step| format!("{:?}", step.name.as_str())).collect();
        let record = async {
            if self.places.is_dropping_records() {
                let answers = vec![Answer::Accepted; recordings.len()];
                self.places.note_recorded(&recordings, &answers);
                return Ok(answers);
            }
            let answers = self.link.record(recordings.clone()).await?;
            self.places.note_recorded(&recordings, &answers);
            Ok(answers)
        };
        self.around(LinkCall::Record, names, record).await
    }

    async fn take_signals(&self, takes: Vec<TakeSignal>) -> Result<Vec<Taken>, StoreError> {
        let names = takes.iter().map(|take| format!("{:?}", take.name.as_str())).collect();
        self.around(LinkCall::TakeSignals, names, self.link.take_signals(takes)).await
    }

    async fn start_children(&self, starts: Vec<ChildStart>) -> Result<Vec<Born>, StoreError> {
        let names = starts.iter().map(|start| format!("{:?}", start.run.workflow.as_str()));
        let names = names.collect();
        self.around(LinkCall::StartChildren, names, self.link.start_children(starts)).await
    }

    async fn read_undo(&self, held: Held) -> Result<ToUndo, StoreError> {
        self.link.read_undo(held).await
    }

    async fn count_children(&self, task: TaskId, call: Call) -> Result<ChildCount, StoreError> {
        self.link.count_children(task, call).await
    }

    async fn list_children(
        &self,
        task: TaskId,
        call: Call,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<Child>, StoreError> {
        self.link.list_children(task, call, after, limit).await
    }

    async fn extend(&self, heartbeat: Heartbeat) -> Result<HeartbeatAnswer, StoreError> {
        self.link.extend(heartbeat).await
    }

    async fn begin_drain(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.link.begin_drain(worker).await
    }

    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.link.leave(worker).await
    }

    fn keyring(&self) -> Option<Arc<crate::store::sealed::Keyring>> {
        self.link.keyring()
    }

    fn work_hints(&self) -> Hints {
        self.link.work_hints()
    }

    fn payload_limit(&self) -> PayloadLimit {
        self.link.payload_limit()
    }
}
