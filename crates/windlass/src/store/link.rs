//! The verbs of a worker: all it ever says to Windlass.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{
    Call, ClaimSeq, Decision, Definition, Failure, FailureCode, Fence, Payload, PayloadLimit,
    QueueName, RunId, RunState, SignalId, SignalKey, StepChange, StepName, StepRecord, StepResult,
    StepState, StepWrite, TaskId, TaskIndex, TaskName, TaskSpec, TaskState, Tenant, Timestamp,
    TraceContext, Version, WorkerId, WorkflowName,
};

use super::sealed::Keyring;
use super::{Hints, NewRun, Started, StoreError, WorkerInfo};

/// What a worker talks to: a store, or a server that has one.
///
/// A worker joins, then claims, finishes and heartbeats until it leaves. One
/// lease covers all its tasks: it begins with the claim that gives a worker without
/// tasks some, is kept by heartbeats alone, and when it runs out the tasks are taken
/// away and the worker's id is dead for ever. A worker without tasks has nothing to
/// lose and need not say anything. Every write names the fence of the claim it
/// belongs to and is refused when a newer one exists. All verbs may be repeated when
/// their answer was lost.
#[async_trait]
pub trait WorkerLink: Send + Sync + 'static {
    /// Begins a worker's life and makes its workflows known, all or none, as
    /// [`Store::register`](super::Store::register) does. An id that is dead is
    /// answered [`StoreError::LeaseLost`].
    async fn join(&self, hello: Hello) -> Result<(), StoreError>;

    /// Leases ready tasks to a worker: by priority, then fair between tenants,
    /// then oldest first, and only those it has handlers for.
    ///
    /// It is given no more tasks than it has free slots, counted with those it holds already: with
    /// none free, the claim is a [`StoreError::Conflict`]. So is one for a workflow that it did
    /// not join with, unless it joined without any; one for a workflow or version that is
    /// not registered is [`StoreError::NotFound`].
    ///
    /// A claim that comes twice, after a heartbeat that gave up on it, or from a
    /// worker whose lease has run out, is answered with no tasks.
    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError>;

    /// Answers the claims of several workers, in their order, each as [`Self::claim`] does.
    /// For whoever claims for many: a store may look once for those that look for the same.
    async fn claim_many(
        &self,
        requests: Vec<ClaimRequest>,
    ) -> Vec<Result<Vec<Claimed>, StoreError>> {
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            answers.push(self.claim(request).await);
        }
        answers
    }

    /// Applies decisions about running tasks, each with everything that follows
    /// from it for its run. The answers are in the order of the requests; each is
    /// judged alone, and one that cannot be stored does not keep the others back.
    async fn finish(&self, completions: Vec<Completion>) -> Result<Vec<Answer>, StoreError>;

    /// Finishes tasks, and claims in the same operation if that made any ready: what follows a
    /// task in its run begins without another commit. The claim is one like any other, by
    /// priority, fairness and age; where it would have to wait for something, or its number
    /// has been used, nothing is claimed. An error says nothing of either part: whoever hears
    /// of none repeats the completions, and gives the claim up.
    ///
    /// A link that only finishes keeps no promise less.
    async fn finish_and_claim(
        &self,
        completions: Vec<Completion>,
        _next: ClaimRequest,
    ) -> Result<Finished, StoreError> {
        let answers = self.finish(completions).await?;
        Ok(Finished { answers, claimed: Vec::new() })
    }

    /// Hands tasks back that were claimed and not run; the attempt does not count.
    async fn release(&self, releases: Vec<Release>) -> Result<Vec<Answer>, StoreError>;

    /// Keeps values of handlers for the next attempts of their tasks, in the place of the
    /// ones before. Each is there for good when it is answered [`Answer::Accepted`], also
    /// after the lease is lost, and goes when the task ends. The answers are in the order of
    /// the requests, and one that is too large is answered [`Refusal::Invalid`]. Nothing is written
    /// to the history.
    ///
    /// Of two values under one fence the one with the larger [number](Checkpoint::number) counts,
    /// in whichever order they come: a request whose answer was lost may be applied after the one
    /// that followed it. The other is answered [`Answer::Accepted`] as well, as it is kept no less
    /// than one that was replaced at once. Of two without a number the later one counts.
    async fn checkpoint(&self, checkpoints: Vec<Checkpoint>) -> Result<Vec<Answer>, StoreError>;

    /// Records what became of calls of durable functions, each batch of a task whole or not at
    /// all. A result that is recorded never changes: one that contradicts it, or that is too
    /// large, is answered [`Refusal::Invalid`]. The answers are in the order of the requests.
    async fn record(&self, recordings: Vec<Recording>) -> Result<Vec<Answer>, StoreError>;

    /// Tells functions of the worker's of the newest signal of a name that waits for them, or takes
    /// the oldest of those that came no later than the one they were told of: it becomes the
    /// result of the call and is gone. `None` if there is none, or if others took them all. The
    /// answers are in the order of the requests.
    ///
    /// Signals are those to the run, or those to a key of its tenant, which others may ask for
    /// as well: each goes to one of them.
    ///
    /// Looking changes nothing, and nobody comes behind time: once none is left of those up to one
    /// of them, none ever is. So a request that is delivered once more, however late, does nothing
    /// that its function does not know of.
    async fn take_signals(&self, takes: Vec<TakeSignal>) -> Result<Vec<Taken>, StoreError>;

    /// Starts runs that functions of the worker's wait for, as
    /// [`Store::start_runs`](super::Store::start_runs) does, if their tasks are still held.
    /// The ids are those that [`RunId::of_child`] gives, so that a repetition starts nothing
    /// twice. The answers are in the order of the requests.
    async fn start_children(&self, starts: Vec<ChildStart>) -> Result<Vec<Born>, StoreError>;

    /// How many children a call has, and how many of them run.
    async fn count_children(&self, task: TaskId, call: Call) -> Result<ChildCount, StoreError>;

    /// The children of a call behind `after`, in the order of their places, at most `limit` up
    /// to [`PAGE_MAX`](super::PAGE_MAX).
    async fn list_children(
        &self,
        task: TaskId,
        call: Call,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<Child>, StoreError>;

    /// The tasks that a run of the worker's, which undoes another, is to undo: those that have
    /// steps which can be undone, as if they were claimed. Refused if the task is not the
    /// worker's any more.
    async fn read_undo(&self, held: Held) -> Result<ToUndo, StoreError>;

    /// Keeps the lease, and compares what the worker holds with what it should.
    async fn extend(&self, heartbeat: Heartbeat) -> Result<HeartbeatAnswer, StoreError>;

    /// Tells a worker to drain. Its next heartbeat says so, and lists show it as draining. Fails with
    /// `NotFound` if the worker is not alive. The default does nothing: draining is advisory.
    async fn begin_drain(&self, _worker: WorkerId) -> Result<(), StoreError> {
        Ok(())
    }

    /// Ends a worker's life: what it still holds goes back to the queues as if its
    /// lease had run out.
    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError>;

    /// Hints that tasks became ready, for workers whose last claim found none.
    fn work_hints(&self) -> Hints;

    /// Whether hints of other processes are heard here. If not, whoever waits for one polls
    /// more often.
    fn hears_hints(&self) -> bool {
        true
    }

    /// Whether someone else looks for tasks on behalf of workers whose last claim found none, and
    /// hints at them. Whoever waits for a hint then polls seldom.
    fn is_watched(&self) -> bool {
        false
    }

    /// How large an input, an output, a checkpoint or a note on progress may be. A larger
    /// output or checkpoint is answered [`Refusal::Invalid`], a larger note is dropped.
    fn payload_limit(&self) -> PayloadLimit {
        PayloadLimit::default()
    }

    /// The keys with which values are sealed before they leave the process, if they are: what goes
    /// elsewhere than through this link is sealed with them as well, and texts of failures are
    /// not logged. A link around another one answers what that does: otherwise values would go out
    /// readable.
    fn keyring(&self) -> Option<Arc<Keyring>>;
}

/// A worker introduces itself.
#[derive(Clone, Debug)]
pub struct Hello {
    /// Its id, used for this life only.
    pub worker: WorkerId,
    /// What people call it.
    pub name: String,
    /// How many tasks it runs at once.
    pub slots: u32,
    /// How long after its first claim or last heartbeat its tasks are taken away.
    pub lease: Duration,
    /// The workflows it has handlers for.
    pub definitions: Vec<Arc<Definition>>,
    /// What it says of itself, for people. What is over its limits is a
    /// [`StoreError::Conflict`].
    pub info: WorkerInfo,
}

impl Hello {
    /// What it has handlers for.
    pub fn workflows(&self) -> Vec<HandlerKey> {
        let key = |definition: &Arc<Definition>| HandlerKey {
            workflow: definition.name().clone(),
            version: definition.version(),
        };
        self.definitions.iter().map(key).collect()
    }
}

/// A workflow and version a worker has handlers for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandlerKey {
    /// The name of the workflow.
    pub workflow: WorkflowName,
    /// Its version; runs of other versions are left alone.
    pub version: Version,
}

/// A worker asks for tasks.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The worker.
    pub worker: WorkerId,
    /// The number of this claim, larger than that of every earlier one.
    pub seq: ClaimSeq,
    /// The queues it serves.
    pub queues: Arc<[QueueName]>,
    /// What it can run.
    pub handlers: Arc<[HandlerKey]>,
    /// The most tasks it wants. It is given fewer if it has fewer free slots, as it joined with
    /// [`slots`](Hello::slots) and holds tasks.
    pub limit: usize,
    /// How many tasks it holds that have ended in the worker and whose outcome is on its way to the
    /// store. They take no slot.
    pub ending: usize,
    /// Whether it expects none, since the last claim found none and nobody hinted at any. The
    /// store may look first whether there are some.
    pub is_poll: bool,
    /// Only tasks of this tenant; those of all if nothing is said. Such a claim is out of turn: it
    /// does not move the virtual time of its queues, and so makes nobody else wait. A worker that
    /// claims so says it when it joins, see [`TENANT_METADATA`](super::TENANT_METADATA).
    pub tenant: Option<Tenant>,
}

/// A task leased to a worker, with every fact that running it and deciding about
/// it needs.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The task.
    pub task: TaskId,
    /// The fence of this lease.
    pub fence: Fence,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The workflow.
    pub workflow: WorkflowName,
    /// The version of the workflow.
    pub version: Version,
    /// The task's name and policies.
    pub spec: Arc<TaskSpec>,
    /// The tenant of the run.
    pub tenant: Tenant,
    /// The input of the run.
    pub input: Payload,
    /// How the parents ended, sorted by their index.
    pub parents: Vec<ParentEnd>,
    /// For an on-failure task: which tasks of the run failed, and why.
    pub failures: Vec<(TaskName, Failure)>,
    /// The newest checkpoint of earlier attempts.
    pub checkpoint: Option<Payload>,
    /// Why the newest attempt that failed did, if one has.
    pub last_failure: Option<Failure>,
    /// What is known of the calls of a durable function, in their order.
    pub steps: Vec<StepRecord>,
    /// When it was claimed, by the store's clock.
    pub at: Timestamp,
    /// The round of the run.
    pub round: u32,
    /// The round in which the function last began afresh, 0 if it never did.
    pub afresh: u32,
    /// The trace that the run belongs to, if its starter said so.
    pub trace: Option<TraceContext>,
}

/// How a parent of a claimed task ended.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentEnd {
    /// The parent.
    pub index: TaskIndex,
    /// Its state.
    pub state: TaskState,
    /// Its output, if it succeeded.
    pub output: Option<Payload>,
}

/// A decision about a running task.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The task.
    pub task: TaskId,
    /// The fence of the claim that ran it.
    pub fence: Fence,
    /// What is to be done.
    pub decision: Decision,
}

impl Completion {
    /// The bytes of its output.
    pub fn bytes(&self) -> usize {
        match &self.decision {
            Decision::Succeed(output) | Decision::Continue(output) => output.as_str().len(),
            Decision::Park(parking) => parking.steps.iter().map(bytes_of).sum(),
            Decision::Skip | Decision::Fail(_) | Decision::Retry { .. } => 0,
        }
    }

    /// Whether its output is larger than the limit.
    pub(crate) fn is_over(&self, limit: PayloadLimit) -> bool {
        match &self.decision {
            Decision::Succeed(output) | Decision::Continue(output) => limit.check(output).is_err(),
            Decision::Park(parking) => parking.steps.iter().any(|step| is_over(step, limit)),
            Decision::Skip | Decision::Fail(_) | Decision::Retry { .. } => false,
        }
    }
}

/// The answer to [`WorkerLink::finish_and_claim`].
#[derive(Clone, Debug, Default)]
pub struct Finished {
    /// What became of the completions, in their order.
    pub answers: Vec<Answer>,
    /// The tasks that are leased to the worker by the claim.
    pub claimed: Vec<Claimed>,
}

/// A task handed back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The task.
    pub task: TaskId,
    /// The fence of the claim.
    pub fence: Fence,
    /// How long nobody shall claim it.
    pub delay: Duration,
}

/// A value of a handler for the next attempts of its task.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The task, and the fence of the claim that runs it.
    pub held: Held,
    /// Its place among those of the same fence, counted from 1. 0 if those of the fence are not
    /// counted, as by programs that do not know of it: such a one takes the place of whichever is
    /// there.
    pub number: u32,
    /// The value.
    pub value: Payload,
}

/// The largest [number](Checkpoint::number) of a checkpoint.
pub const CHECKPOINT_NUMBER_MAX: u32 = i32::MAX.cast_unsigned();

impl Checkpoint {
    /// Whether it takes the place of one with this number and the same fence.
    pub(crate) fn replaces(&self, number: u32) -> bool {
        self.number == 0 || self.number > number
    }
}

/// What became of calls of one durable function.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The task, and the fence of the claim that runs it.
    pub held: Held,
    /// The calls.
    pub steps: Vec<StepWrite>,
}

impl Recording {
    /// The bytes of its results.
    pub fn bytes(&self) -> usize {
        self.steps.iter().map(bytes_of).sum()
    }

    /// Whether one of its results is larger than the limit.
    pub(crate) fn is_over(&self, limit: PayloadLimit) -> bool {
        self.steps.iter().any(|step| is_over(step, limit))
    }
}

fn bytes_of(step: &StepWrite) -> usize {
    match &step.change {
        StepChange::Done { result, .. } => result.bytes(),
        StepChange::Open { .. } => 0,
    }
}

fn is_over(step: &StepWrite, limit: PayloadLimit) -> bool {
    match &step.change {
        StepChange::Done { result: StepResult::Value(value), .. } => limit.check(value).is_err(),
        StepChange::Done { result: StepResult::Failed(_), .. } | StepChange::Open { .. } => false,
    }
}

/// A function asks for a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeSignal {
    /// The task, and the fence of the claim that runs it.
    pub held: Held,
    /// The call that waits for it.
    pub call: Call,
    /// The name of the signal.
    pub name: StepName,
    /// The key that it is sent to, if it is not the run.
    pub key: Option<SignalKey>,
    /// Which one.
    pub which: Which,
}

/// Which signal a function asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The newest, which stays where it is.
    Newest,
    /// The oldest that came no later than this one, which is to be the result at this place among
    /// those of the function.
    UpTo(SignalId, u32),
}

impl Which {
    /// The answer to a call that has a result: that of the same question before.
    pub(super) fn taken_before(self, known: &StepState) -> Taken {
        match (self, known) {
            (
                Which::UpTo(_, number),
                StepState::Done { number: taken, result: StepResult::Value(value) },
            ) if number == *taken => Ok(Some(Signalled::Value(value.clone()))),
            // It does not know of its result, and must be run again to learn of it.
            (Which::UpTo(..) | Which::Newest, _) => Err(Refusal::Invalid),
        }
    }
}

/// What a function is told that asks for a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signalled {
    /// The newest that waits for it.
    Newest(SignalId),
    /// What the one says that it has taken.
    Value(Payload),
}

/// A function starts a run.
#[derive(Clone, Debug)]
pub struct ChildStart {
    /// The task, and the fence of the claim that runs it.
    pub held: Held,
    /// The call that starts it.
    pub call: Call,
    /// Its place among the children of the call, if the call waits for it and it is cancelled
    /// together with its parent.
    pub place: Option<u32>,
    /// The run.
    pub run: NewRun,
    /// Its workflow, which need not be known to the store.
    pub definition: Arc<Definition>,
}

/// The answer to [`ChildStart`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Born {
    /// It is there: new, or since an earlier call.
    Started(Started),
    /// The task is not the worker's any more.
    Refused(Refusal),
    /// It cannot be started.
    Failed(StoreError),
}

/// The children of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildCount {
    /// How many were started.
    pub started: u32,
    /// How many of them are not known to have ended.
    pub open: u32,
}

/// A child of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// Its place among the children of the call.
    pub place: u32,
    /// The run.
    pub run: RunId,
    /// Where it is.
    pub state: RunState,
    /// What it came to, if it has ended: the output of its only task (`null` if it has more
    /// than one), or why it did not succeed.
    pub result: Option<StepResult>,
}

impl Child {
    /// What a run came to that did not succeed.
    pub(crate) fn failed(run: RunId, state: RunState, failure: Option<Failure>) -> StepResult {
        let other = || {
            let code = FailureCode::Custom(state.word().to_owned());
            Failure::new(code, format!("run {run} was {state}"))
        };
        StepResult::Failed(failure.unwrap_or_else(other).permanent())
    }
}

/// The answer to [`WorkerLink::read_undo`].
pub type ToUndo = Result<Vec<Claimed>, Refusal>;

/// The answer to [`TakeSignal`].
pub type Taken = Result<Option<Signalled>, Refusal>;

/// The answer to a completion, a release, a checkpoint or a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was applied.
    Accepted,
    /// It had been applied before; the answer must have been lost.
    AcceptedAlready,
    /// It was not applied and never will be.
    Refused(Refusal),
}

/// Why a write of a worker was refused, or why a task it held is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The lease went to another claim, or back to the queue.
    LeaseLost,
    /// The run was cancelled.
    RunCancelled,
    /// There is no such task.
    UnknownTask,
    /// The store cannot keep what was sent, or the run contradicts what else is stored of it,
    /// and it would be the same the next time. Only the answer to a completion, a release or a
    /// checkpoint.
    Invalid,
}

/// A worker says that it lives and what it does.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// The worker.
    pub worker: WorkerId,
    /// Up to this claim the worker knows all answers, or has given up on them.
    /// Tasks that were leased to it by these claims and that it does not hold go
    /// back to their queues.
    pub settled: ClaimSeq,
    /// The tasks it holds: those that run, and those whose completion has not been
    /// answered yet.
    pub held: Vec<Held>,
    /// What handlers said of their progress since the last heartbeat.
    pub progress: Vec<ProgressNote>,
}

impl Heartbeat {
    /// Forgets notes that are larger than the limit: the lease must not depend on them.
    pub(crate) fn drop_large_notes(&mut self, limit: PayloadLimit) {
        self.progress.retain(|note| match limit.check(&note.note) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(task = %note.held.task, "a note on progress {error}");
                false
            }
        });
    }
}

/// A task that a worker believes to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// The task.
    pub task: TaskId,
    /// The fence it was claimed with.
    pub fence: Fence,
}

/// A handler's note on how far it is.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgressNote {
    /// The task and fence it belongs to.
    pub held: Held,
    /// The note.
    pub note: Payload,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatAnswer {
    /// The tasks of `held` that are not the worker's any more.
    pub lost: Vec<Lost>,
    /// Whether the worker was drained from outside
    /// ([`begin_drain`](WorkerLink::begin_drain)): it claims nothing more, finishes what it holds
    /// and leaves.
    pub should_drain: bool,
}

/// A task a worker holds no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The task, and the fence that is stale.
    pub held: Held,
    /// Why.
    pub refusal: Refusal,
}
