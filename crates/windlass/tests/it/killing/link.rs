//! The link of a worker process that kills itself at one place of one trial.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::Notify;
use windlass::store::{
    Answer, Born, Checkpoint, Child, ChildCount, ChildStart, ClaimRequest, Claimed, Completion,
    Heartbeat, HeartbeatAnswer, Held, Hello, Hints, Recording, Release, StoreError, TakeSignal,
    Taken, ToUndo, WorkerLink,
};
use windlass::{PayloadLimit, Tenant, WorkerId};
use windlass_core::{Call, TaskId};

use super::cases::World;

/// What a process says before it dies: when, at which verb, and of what.
pub(super) const DIES: &str = "@dies ";

/// What a process says of each effect on its world: of which trial, and which.
pub(super) const EFFECT: &str = "@effect ";

/// What a process says when the results of its steps are stored.
pub(super) const RECORDED: &str = "@recorded";

/// How long at most the answer to a verb is waited for by who dies meanwhile: about as long as
/// it takes, so that the database is somewhere between nothing and the commit.
const MOMENT_MICROS: u64 = 4_000;

/// Where a process dies, if it is to die.
pub(super) struct Doom {
    /// Whose tasks are counted; with all others the process works as any other.
    pub(super) tenant: Tenant,
    /// How many places it lives through.
    pub(super) places: usize,
}

/// The store as a worker with one slot sees it.
///
/// Of every verb that changes something there are three places: the store has not heard of it;
/// the worker does not wait for what becomes of it; it is applied, and the worker does not see
/// the answer. What else a worker does between two verbs, nobody but itself can know of.
///
/// A claim waits until what was claimed before is finished. Otherwise the next task would run while
/// the finish of the last one is under way, and who dies there would take it along.
pub(super) struct KillingLink {
    link: Arc<dyn WorkerLink>,
    world: World,
    doom: Option<Doom>,
    inner: Mutex<Inner>,
    /// Whoever waits to claim may look again.
    freed: Notify,
}

#[derive(Default)]
struct Inner {
    /// Whose the tasks are that were claimed.
    tenants: BTreeMap<TaskId, Tenant>,
    /// The tasks that it has not finished.
    held: BTreeSet<TaskId>,
    passed: usize,
    /// Whether a claim has been sent since the trial came further. A worker that finds nothing
    /// sends any number of them, of which one is as good a place as the others.
    has_claimed: bool,
}

impl KillingLink {
    pub(super) fn new(link: Arc<dyn WorkerLink>, world: World, doom: Option<Doom>) -> Self {
        KillingLink { link, world, doom, inner: Mutex::default(), freed: Notify::new() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the process dies at the place that it comes to.
    fn is_last(&self) -> bool {
        let mut inner = self.inner();
        inner.passed += 1;
        self.doom.as_ref().is_some_and(|doom| inner.passed > doom.places)
    }

    fn is_counted(&self, tasks: impl IntoIterator<Item = TaskId>) -> bool {
        let Some(doom) = &self.doom else { return false };
        let inner = self.inner();
        tasks.into_iter().any(|task| inner.tenants.get(&task) == Some(&doom.tenant))
    }

    /// The places before a verb and while it is under way.
    async fn approach<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        if self.is_last() {
            die("before", what);
        }
        if self.is_last() {
            let moment = Duration::from_micros(fastrand::u64(..MOMENT_MICROS));
            let _ = tokio::time::timeout(moment, work).await;
            die("during", what);
        }
        work.await
    }

    /// The place behind a verb.
    fn leave_behind(&self, what: &str) {
        if self.is_last() {
            die("after", what);
        }
        self.inner().has_claimed = false;
    }

    /// A verb about these tasks, with its places if they are of the trial.
    async fn around<T>(
        &self,
        tasks: Vec<TaskId>,
        what: String,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        if !self.is_counted(tasks) {
            return work.await;
        }
        let answer = self.approach(&what, work).await?;
        self.leave_behind(&what);
        Ok(answer)
    }

    fn let_go(&self, tasks: &[TaskId]) {
        self.inner().held.retain(|held| !tasks.contains(held));
        self.freed.notify_one();
    }

    /// Tells what the step did that the process has just run.
    fn tell_effects(&self, recordings: &[Recording]) {
        for effect in self.world.drain() {
            // With one slot it is the step of the one function that runs.
            let task = recordings.first().map(|recording| recording.held.task);
            let inner = self.inner();
            let tenant = task.and_then(|task| inner.tenants.get(&task));
            println!("{EFFECT}{} {effect}", tenant.map_or("nobody", Tenant::as_str));
        }
    }
}

/// Ends the process as `kill -9` does, in the middle of this line.
fn die(when: &str, what: &str) -> ! {
    println!("{DIES}{when} {what}");
    let _ = kill_process(getpid(), Signal::KILL);
    unreachable!("nothing is run behind SIGKILL");
}

fn named<'a>(verb: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    format!("{verb} of {}", names.join(", "))
}

#[async_trait]
impl WorkerLink for KillingLink {
    async fn join(&self, hello: Hello) -> Result<(), StoreError> {
        self.link.join(hello).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        while !self.inner().held.is_empty() {
            self.freed.notified().await;
        }
        let is_place = !std::mem::replace(&mut self.inner().has_claimed, true);
        let work = self.link.claim(request);
        let claimed = if is_place { self.approach("claim", work).await? } else { work.await? };
        {
            let inner = &mut *self.inner();
            for Claimed { task, tenant, .. } in &claimed {
                inner.tenants.insert(*task, tenant.clone());
                inner.held.insert(*task);
            }
        }
        if self.is_counted(claimed.iter().map(|claimed| claimed.task)) {
            self.leave_behind("claim");
        }
        Ok(claimed)
    }

    async fn finish(&self, completions: Vec<Completion>) -> Result<Vec<Answer>, StoreError> {
        let tasks: Vec<_> = completions.iter().map(|completion| completion.task).collect();
        let finish = self.link.finish(completions);
        let answers = self.around(tasks.clone(), "finish".to_owned(), finish).await?;
        self.let_go(&tasks);
        Ok(answers)
    }

    async fn release(&self, releases: Vec<Release>) -> Result<Vec<Answer>, StoreError> {
        let tasks: Vec<_> = releases.iter().map(|release| release.task).collect();
        let release = self.link.release(releases);
        let answers = self.around(tasks.clone(), "release".to_owned(), release).await?;
        self.let_go(&tasks);
        Ok(answers)
    }

    async fn checkpoint(&self, checkpoints: Vec<Checkpoint>) -> Result<Vec<Answer>, StoreError> {
        let tasks = checkpoints.iter().map(|checkpoint| checkpoint.held.task).collect();
        self.around(tasks, "checkpoint".to_owned(), self.link.checkpoint(checkpoints)).await
    }

    async fn record(&self, recordings: Vec<Recording>) -> Result<Vec<Answer>, StoreError> {
        self.tell_effects(&recordings);
        let tasks = recordings.iter().map(|recording| recording.held.task).collect();
        let steps = recordings.iter().flat_map(|recording| &recording.steps);
        let what = named("record", steps.map(|step| step.name.as_str()));
        let record = async {
            let answers = self.link.record(recordings).await?;
            println!("{RECORDED}");
            Ok(answers)
        };
        self.around(tasks, what, record).await
    }

    async fn take_signals(&self, takes: Vec<TakeSignal>) -> Result<Vec<Taken>, StoreError> {
        let tasks = takes.iter().map(|take| take.held.task).collect();
        let what = named("take", takes.iter().map(|take| take.name.as_str()));
        self.around(tasks, what, self.link.take_signals(takes)).await
    }

    async fn start_children(&self, starts: Vec<ChildStart>) -> Result<Vec<Born>, StoreError> {
        let tasks = starts.iter().map(|start| start.held.task).collect();
        let what = named("start", starts.iter().map(|start| start.run.workflow.as_str()));
        self.around(tasks, what, self.link.start_children(starts)).await
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

    fn keyring(&self) -> Option<Arc<windlass::Keyring>> {
        self.link.keyring()
    }

    fn work_hints(&self) -> Hints {
        self.link.work_hints()
    }

    fn hears_hints(&self) -> bool {
        self.link.hears_hints()
    }

    fn payload_limit(&self) -> PayloadLimit {
        self.link.payload_limit()
    }
}
