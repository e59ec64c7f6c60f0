//! A few words for tests that drive a store by its verbs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use windlass::store::{
    Answer, ClaimRequest, Claimed, Completion, HandlerKey, Hello, NewRun, Store, StoreError,
    WorkerInfo,
};
use windlass_core::definition::TaskDraft;
use windlass_core::{
    ClaimSeq, Decision, Definition, DefinitionDraft, Payload, Priority, QueueName, RunId, TaskKind,
    Tenant, Timestamp, WorkerId,
};

/// The lease of every worker.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A workflow whose tasks are given as `name` or `name < parent parent`.
pub(crate) fn workflow(name: &str, tasks: &[&str]) -> Arc<Definition> {
    let mut draft = DefinitionDraft::new(name);
    for line in tasks {
        let (name, parents) = line.split_once(" < ").unwrap_or((line, ""));
        let task = TaskDraft::new(name, TaskKind::Handler);
        draft = draft.task(parents.split_whitespace().fold(task, TaskDraft::after));
    }
    Arc::new(draft.build().expect("the workflow is right"))
}

/// A run to start, of the default tenant.
pub(crate) fn new_run(workflow: &Definition) -> NewRun {
    let number = u128::from(NEXT.fetch_add(1, Ordering::Relaxed));
    NewRun {
        id: RunId::from_parts(Timestamp::from_micros(0), number),
        workflow: workflow.name().clone(),
        version: workflow.version(),
        tenant: Tenant::default(),
        input: Payload::default(),
        key: None,
        delay: Duration::ZERO,
        priority: Priority::default(),
        metadata: BTreeMap::new(),
    }
}

/// Registers a workflow and starts one run of it.
pub(crate) async fn start(store: &dyn Store, workflow: &Arc<Definition>) -> RunId {
    store.register(Arc::clone(workflow)).await.expect("it can be registered");
    let answers = store.start_runs(vec![new_run(workflow)]).await.expect("the store is there");
    answers.into_iter().next().expect("one answer").expect("it can be started").run
}

/// A worker that has joined.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    handlers: Arc<[HandlerKey]>,
    seq: AtomicU64,
}

impl Worker {
    pub(crate) async fn join(store: &dyn Store, workflow: &Arc<Definition>) -> Self {
        Worker::try_join(store, workflow).await.expect("a new worker can join")
    }

    pub(crate) async fn try_join(
        store: &dyn Store,
        workflow: &Arc<Definition>,
    ) -> Result<Self, StoreError> {
        let id = WorkerId::from_random(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)));
        let hello = Hello {
            worker: id,
            name: format!("worker {id}"),
            slots: 1_000,
            lease: LEASE,
            definitions: vec![Arc::clone(workflow)],
            info: WorkerInfo::default(),
        };
        store.join(hello).await?;
        let (workflow, version) = (workflow.name().clone(), workflow.version());
        let handlers = [HandlerKey { workflow, version }].into();
        Ok(Worker { id, handlers, seq: AtomicU64::new(0) })
    }

    pub(crate) fn request(&self, limit: usize) -> ClaimRequest {
        ClaimRequest {
            worker: self.id,
            seq: ClaimSeq(self.seq.fetch_add(1, Ordering::Relaxed) + 1),
            queues: [QueueName::default()].into(),
            handlers: Arc::clone(&self.handlers),
            limit,
            ending: 0,
            is_poll: false,
            tenant: None,
        }
    }

    pub(crate) async fn claim(&self, store: &dyn Store, limit: usize) -> Vec<Claimed> {
        store.claim(self.request(limit)).await.expect("claiming works")
    }
}

/// A task's success.
pub(crate) fn success(claimed: &Claimed) -> Completion {
    let decision = Decision::Succeed(Payload::default());
    Completion { task: claimed.task, fence: claimed.fence, decision }
}

/// Finishes a task that must be the caller's.
pub(crate) async fn succeed(store: &dyn Store, claimed: &Claimed) {
    let answers = store.finish(vec![success(claimed)]).await.expect("finishing works");
    assert_eq!(answers, [Answer::Accepted]);
}
