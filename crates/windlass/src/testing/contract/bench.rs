//! What every case needs: definitions in a few characters, runs, workers and
//! decisions with defaults, and the expectation that a verb just works.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_core::definition::TaskDraft;
use windlass_core::{
    ClaimSeq, Decision, Definition, DefinitionDraft, Event, Failure, FailureCode, IdempotencyKey,
    Payload, Priority, QueueName, RunId, RunState, SignalId, TaskKind, Tenant, Timestamp, Trigger,
    Version, WorkerId, WorkflowName,
};

use super::Subject;
use crate::store::{
    Answer, Checkpoint, ClaimRequest, Claimed, Completion, HandlerKey, Heartbeat, HeartbeatAnswer,
    Held, Hello, Hints, NewRun, PAGE_MAX, Refusal, Release, RunFilter, RunRecord, Signalled,
    Started, Store, StoreError, Sweep, TENANT_METADATA, TakeSignal, Taken, TaskRecord, Which,
    WorkerInfo,
};
use crate::testing::invariants::check_run;

/// The slots of a worker where a case does not care: more than it fills.
pub(crate) const SLOTS: u32 = 1_000;

/// The lease of a worker where a case does not care.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The resolution of every store's clock: how much too early is too early.
pub(crate) const TICK: Duration = Duration::from_micros(1);

/// How long a hint, or a verb whose caller went away, may take. These are the only
/// things that a store may do in real time.
const DEADLINE: Duration = Duration::from_secs(5);

/// A store, and what a case has done to it.
pub(crate) struct Bench<'a> {
    subject: &'a dyn Subject,
    pub(crate) store: Arc<dyn Store>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    ids: u64,
    definitions: BTreeMap<(WorkflowName, Version), Arc<Definition>>,
    runs: BTreeMap<RunId, Arc<Definition>>,
    /// Whether runs of it may be gone.
    has_pruned: bool,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(subject: &'a dyn Subject) -> Self {
        Bench { subject, store: subject.store(), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_id(&self) -> u64 {
        let mut known = self.known();
        known.ids += 1;
        known.ids
    }

    pub(crate) async fn advance(&self, by: Duration) {
        self.subject.advance(by).await;
    }

    /// From now on runs may be gone.
    pub(crate) fn may_prune(&self) {
        self.known().has_pruned = true;
    }

    pub(crate) async fn now(&self) -> Timestamp {
        self.store.now().await.expect("the store knows the time")
    }

    /// Registers version 1 of a workflow written in the notation of [`definition`].
    pub(crate) async fn register(&self, workflow: &str, tasks: &str) {
        let definition = definition(workflow, 1, tasks);
        self.try_register(definition).await.expect("the definition can be registered");
    }

    pub(crate) async fn try_register(&self, definition: Arc<Definition>) -> Result<(), StoreError> {
        self.store.register(definition.clone()).await?;
        let key = (definition.name().clone(), definition.version());
        self.known().definitions.insert(key, definition);
        Ok(())
    }

    /// A run of version 1 of a workflow, for the default tenant and not yet started.
    pub(crate) fn new_run(&self, workflow: &str) -> NewRun {
        NewRun {
            id: self.run_id(),
            workflow: workflow_name(workflow),
            version: Version::FIRST,
            tenant: Tenant::default(),
            input: Payload::default(),
            key: None,
            delay: Duration::ZERO,
            priority: Priority::default(),
            metadata: BTreeMap::new(),
        }
    }

    pub(crate) fn run_id(&self) -> RunId {
        RunId::from_parts(Timestamp::from_micros(0), u128::from(self.next_id()))
    }

    pub(crate) async fn try_start(&self, run: NewRun) -> Result<Started, StoreError> {
        let mut answers = self.start_all(vec![run]).await;
        answers.pop().expect("one start has one answer")
    }

    pub(crate) async fn start_all(&self, runs: Vec<NewRun>) -> Vec<Result<Started, StoreError>> {
        let keys: Vec<_> = runs.iter().map(|run| (run.workflow.clone(), run.version)).collect();
        let answers = self.store.start_runs(runs).await.expect("the batch is within its limit");
        assert_eq!(answers.len(), keys.len(), "each start has an answer");
        let mut known = self.known();
        for (answer, key) in answers.iter().zip(keys) {
            if let Ok(Started { run, is_new: true }) = answer {
                let definition = known.definitions.get(&key).expect("it was registered").clone();
                known.runs.insert(*run, definition);
            }
        }
        drop(known);
        answers
    }

    pub(crate) async fn start_run(&self, run: NewRun) -> RunId {
        let started = self.try_start(run).await.expect("the run can be started");
        assert!(started.is_new, "the run is there already");
        started.run
    }

    pub(crate) async fn start(&self, workflow: &str) -> RunId {
        self.start_run(self.new_run(workflow)).await
    }

    /// Starts `count` runs for a tenant in one batch.
    pub(crate) async fn start_for(&self, workflow: &str, name: &str, count: usize) -> Vec<RunId> {
        let run = || NewRun { tenant: tenant(name), ..self.new_run(workflow) };
        let answers = self.start_all((0..count).map(|_| run()).collect()).await;
        answers.into_iter().map(|answer| answer.expect("the run can be started").run).collect()
    }

    /// Joins a worker with the usual lease.
    pub(crate) async fn worker(&self) -> Worker<'_> {
        self.worker_with_lease(LEASE).await
    }

    pub(crate) async fn worker_with_lease(&self, lease: Duration) -> Worker<'_> {
        let worker = self.stranger();
        self.store.join(worker.hello(lease)).await.expect("a new worker can join");
        worker
    }

    /// Joins a worker that claims for one tenant.
    pub(crate) async fn worker_for(&self, name: &str) -> Worker<'_> {
        let worker = self.stranger();
        let metadata = BTreeMap::from([(TENANT_METADATA.to_owned(), name.to_owned())]);
        let info = WorkerInfo { metadata, ..WorkerInfo::default() };
        let hello = Hello { info, ..worker.hello(LEASE) };
        self.store.join(hello).await.expect("a new worker can join");
        worker
    }

    /// A worker that has not joined.
    pub(crate) fn stranger(&self) -> Worker<'_> {
        let id = WorkerId::from_random(u128::from(self.next_id()));
        Worker { bench: self, id, seq: AtomicU64::new(0) }
    }

    pub(crate) async fn finish(&self, claimed: &Claimed, decision: Decision) -> Answer {
        let completion = completion(claimed, decision);
        let answers = self.store.finish(vec![completion]).await.expect("finishing works");
        assert_eq!(answers.len(), 1, "each completion has an answer");
        answers[0]
    }

    /// Finishes a task that must be the caller's.
    pub(crate) async fn accept(&self, claimed: &Claimed, decision: Decision) {
        let name = &claimed.spec.name;
        assert_eq!(self.finish(claimed, decision).await, Answer::Accepted, "task {name:?}");
    }

    /// Asks for a signal, as a function does.
    pub(crate) async fn ask(&self, take: TakeSignal) -> Taken {
        let mut answers = self.store.take_signals(vec![take]).await.expect("asking works");
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    /// Looks for a signal and takes the oldest, as the result at the place of its call.
    pub(crate) async fn take(&self, take: TakeSignal) -> Result<Option<Payload>, Refusal> {
        let newest = match self.ask(take.clone()).await? {
            Some(Signalled::Newest(newest)) => newest,
            other => return Ok(other.map(|other| panic!("{other:?} without having asked for it"))),
        };
        let which = Which::UpTo(newest, take.call.0);
        match self.ask(TakeSignal { which, ..take }).await? {
            Some(Signalled::Value(value)) => Ok(Some(value)),
            other => panic!("{other:?} instead of one that was there"),
        }
    }

    pub(crate) async fn succeed(&self, claimed: &Claimed) {
        self.accept(claimed, success()).await;
    }

    pub(crate) async fn fail(&self, claimed: &Claimed) {
        self.accept(claimed, Decision::Fail(failure())).await;
    }

    pub(crate) async fn checkpoint(&self, claimed: &Claimed, value: &str) -> Answer {
        let checkpoint = Checkpoint { held: hold(claimed), number: 0, value: json(value) };
        let answers = self.store.checkpoint(vec![checkpoint]).await.expect("keeping works");
        assert_eq!(answers.len(), 1, "each checkpoint has an answer");
        answers[0]
    }

    pub(crate) async fn release(&self, claimed: &Claimed, delay: Duration) -> Answer {
        let release = Release { task: claimed.task, fence: claimed.fence, delay };
        let answers = self.store.release(vec![release]).await.expect("releasing works");
        assert_eq!(answers.len(), 1, "each release has an answer");
        answers[0]
    }

    /// Moves everything that is due now, in batches.
    pub(crate) async fn promote(&self) -> usize {
        let mut moved = 0;
        loop {
            let sweep = self.store.promote_due(100).await.expect("promoting works");
            moved += sweep.moved;
            if sweep.moved == 0 {
                return moved;
            }
        }
    }

    pub(crate) async fn reap(&self) -> usize {
        let mut moved = 0;
        loop {
            let sweep = self.store.reap(100).await.expect("reaping works");
            moved += sweep.moved;
            if sweep.moved == 0 {
                return moved;
            }
        }
    }

    /// What a sweep answers that moved so many and knows when the next is due.
    pub(crate) async fn swept(
        &self,
        moved: usize,
        next_at: Option<Timestamp>,
    ) -> Result<Sweep, StoreError> {
        Ok(Sweep { at: self.now().await, moved, next_at })
    }

    pub(crate) async fn run(&self, run: RunId) -> RunRecord {
        let record = self.store.get_run(run).await.expect("reading works");
        record.unwrap_or_else(|| panic!("run {run} does not exist"))
    }

    pub(crate) async fn run_state(&self, run: RunId) -> RunState {
        self.run(run).await.state
    }

    pub(crate) async fn tasks(&self, run: RunId) -> Vec<TaskRecord> {
        let mut tasks: Vec<TaskRecord> = Vec::new();
        loop {
            let after = tasks.last().map(|task| task.index);
            let page = self.store.list_tasks(run, after, PAGE_MAX).await.expect("reading works");
            let is_last = page.len() < PAGE_MAX;
            tasks.extend(page);
            if is_last {
                return tasks;
            }
        }
    }

    /// The task with this name.
    pub(crate) async fn task(&self, run: RunId, name: &str) -> TaskRecord {
        let task = self.tasks(run).await.into_iter().find(|task| task.name.as_str() == name);
        task.unwrap_or_else(|| panic!("run {run} has no task {name:?}"))
    }

    /// The states of a run's tasks as words, in the order of the definition.
    pub(crate) async fn states(&self, run: RunId) -> String {
        let words: Vec<_> = self.tasks(run).await.iter().map(|task| task.state.word()).collect();
        words.join(" ")
    }

    /// The whole history of a run, page by page.
    pub(crate) async fn events(&self, run: RunId) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        loop {
            let after = events.last().map(|event| event.id);
            let page = self.store.list_events(run, after, PAGE_MAX).await.expect("reading works");
            let is_last = page.len() < PAGE_MAX;
            events.extend(page);
            if is_last {
                return events;
            }
        }
    }

    /// What happened to one task, as words.
    pub(crate) async fn history(&self, run: RunId, name: &str) -> String {
        let events = self.events(run).await;
        let of_task =
            events.iter().filter(|e| e.task().is_some_and(|task| task.name.as_str() == name));
        of_task.map(Event::word).collect::<Vec<_>>().join(" ")
    }

    /// Claims and finishes everything that can be claimed, as `decide` says by name.
    pub(crate) async fn work(&self, worker: &Worker<'_>, decide: impl Fn(&str) -> Decision) {
        loop {
            let claimed = worker.claim(100).await;
            if claimed.is_empty() {
                return;
            }
            for task in &claimed {
                self.accept(task, decide(task.spec.name.as_str())).await;
            }
        }
    }

    /// Every run a case started, with the definition it was started with.
    fn runs(&self) -> Vec<(RunId, Arc<Definition>)> {
        self.known().runs.iter().map(|(run, definition)| (*run, definition.clone())).collect()
    }

    /// The records of all runs, page by page.
    async fn records(&self) -> BTreeMap<RunId, RunRecord> {
        let mut records = BTreeMap::new();
        let mut filter = RunFilter::default();
        loop {
            let page = self.store.list_runs(filter.clone()).await.expect("reading works");
            records.extend(page.runs.into_iter().map(|record| (record.id, record)));
            filter.after = page.next;
            if page.next.is_none() {
                return records;
            }
        }
    }

    /// Holds every run the case started to the promises, whatever the case was about.
    pub(crate) async fn audit(&self) {
        let records = self.records().await;
        for (run, definition) in self.runs() {
            let Some(record) = records.get(&run) else {
                assert!(self.known().has_pruned, "run {run} is not listed");
                continue;
            };
            let (tasks, events) = tokio::join!(self.tasks(run), self.events(run));
            let violations = check_run(&definition, record, &tasks, &events);
            assert!(violations.is_empty(), "promises broken: {violations:#?}");
        }
    }
}

/// A worker that has joined, or is about to.
pub(crate) struct Worker<'a> {
    bench: &'a Bench<'a>,
    pub(crate) id: WorkerId,
    seq: AtomicU64,
}

impl<'a> Worker<'a> {
    pub(crate) fn bench(&self) -> &'a Bench<'a> {
        self.bench
    }

    pub(crate) fn hello(&self, lease: Duration) -> Hello {
        Hello {
            worker: self.id,
            name: format!("worker {}", self.id),
            slots: SLOTS,
            lease,
            definitions: Vec::new(),
            info: WorkerInfo::default(),
        }
    }

    /// Asks for tasks of the default queue and of everything registered.
    pub(crate) fn request(&self, limit: usize) -> ClaimRequest {
        let key = |(workflow, version): &(WorkflowName, Version)| HandlerKey {
            workflow: workflow.clone(),
            version: *version,
        };
        ClaimRequest {
            worker: self.id,
            seq: ClaimSeq(self.seq.fetch_add(1, Ordering::Relaxed) + 1),
            queues: [QueueName::default()].into(),
            handlers: self.bench.known().definitions.keys().map(key).collect(),
            limit,
            ending: 0,
            is_poll: false,
            tenant: None,
        }
    }

    pub(crate) async fn try_claim(&self, limit: usize) -> Result<Vec<Claimed>, StoreError> {
        let claimed = self.bench.store.claim(self.request(limit)).await?;
        assert!(claimed.len() <= limit, "{} tasks for a limit of {limit}", claimed.len());
        Ok(claimed)
    }

    pub(crate) async fn claim(&self, limit: usize) -> Vec<Claimed> {
        self.try_claim(limit).await.expect("a worker that lives can claim")
    }

    /// Claims from one queue only.
    pub(crate) async fn claim_from(&self, name: &str, limit: usize) -> Vec<Claimed> {
        let request = ClaimRequest { queues: [queue(name)].into(), ..self.request(limit) };
        self.bench.store.claim(request).await.expect("a worker that lives can claim")
    }

    pub(crate) async fn claim_one(&self) -> Claimed {
        self.claim(1).await.pop().expect("a task is ready")
    }

    /// A heartbeat that knows the answers of all claims so far.
    pub(crate) fn heartbeat(&self, held: &[&Claimed]) -> Heartbeat {
        Heartbeat {
            worker: self.id,
            settled: ClaimSeq(self.seq.load(Ordering::Relaxed)),
            held: held.iter().map(|claimed| hold(claimed)).collect(),
            progress: Vec::new(),
        }
    }

    pub(crate) async fn extend(&self, held: &[&Claimed]) -> HeartbeatAnswer {
        let answer = self.bench.store.extend(self.heartbeat(held)).await;
        answer.expect("a worker that lives can extend its lease")
    }

    pub(crate) async fn leave(&self) {
        self.bench.store.leave(self.id).await.expect("a worker can leave");
    }
}

/// The answer to whoever looks for a signal.
pub(crate) fn newest(id: u128) -> Taken {
    Ok(Some(Signalled::Newest(SignalId::from_random(id))))
}

/// The answer to whoever takes a signal.
pub(crate) fn got(value: &str) -> Taken {
    Ok(Some(Signalled::Value(json(value))))
}

pub(crate) fn hold(claimed: &Claimed) -> Held {
    Held { task: claimed.task, fence: claimed.fence }
}

pub(crate) fn completion(claimed: &Claimed, decision: Decision) -> Completion {
    Completion { task: claimed.task, fence: claimed.fence, decision }
}

pub(crate) fn json(text: &str) -> Payload {
    Payload::from_json(text).expect("the case wrote JSON")
}

/// The output of a task where a case does not care.
/// A payload of this many bytes.
pub(crate) fn payload_of(bytes: usize) -> Payload {
    json(&format!("\"{}\"", "x".repeat(bytes - 2)))
}

pub(crate) fn success() -> Decision {
    Decision::Succeed(json(r#""done""#))
}

pub(crate) fn failure() -> Failure {
    Failure::new(FailureCode::Error, "it did not work")
}

pub(crate) fn retry_after(delay: Duration) -> Decision {
    Decision::Retry { failure: failure(), delay }
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn tenant(name: &str) -> Tenant {
    Tenant::new(name).expect("the case names a tenant")
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("the case names a queue")
}

pub(crate) fn workflow_name(name: &str) -> WorkflowName {
    WorkflowName::new(name).expect("the case names a workflow")
}

pub(crate) fn key(name: &str) -> Option<IdempotencyKey> {
    Some(IdempotencyKey::new(name).expect("the case names a key"))
}

pub(crate) fn priority(number: i16) -> Priority {
    Priority::new(number).expect("the case gives a priority within the limits")
}

/// The names of claimed tasks, in order.
pub(crate) fn names(claimed: &[Claimed]) -> Vec<&str> {
    claimed.iter().map(|task| task.spec.name.as_str()).collect()
}

/// The tenants of claimed tasks, in order.
pub(crate) fn tenants(claimed: &[Claimed]) -> Vec<&str> {
    claimed.iter().map(|task| task.tenant.as_str()).collect()
}

/// Whether a hint that was not taken comes before the deadline.
pub(crate) async fn is_hinted(hints: &mut Hints) -> bool {
    tokio::time::timeout(DEADLINE, hints.changed()).await.is_ok()
}

/// Whether a question is answered with yes before the deadline. A verb whose caller
/// went away may still be under way in a store that is another process.
pub(crate) async fn is_within_deadline<F: Future<Output = bool>>(ask: impl Fn() -> F) -> bool {
    let until_yes = async {
        while !ask().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, until_yes).await.is_ok()
}

/// Builds a definition from words such as `a b<a c<a,b?finished nap~1000<c !sorry`.
///
/// A word is a task: its name, then `<` its parents, `?` its trigger (`finished`,
/// `failed`, `unfailed`), `~` the milliseconds it sleeps, `@` its queue, `^` its
/// priority, `*` its attempts. A leading `!` makes it the on-failure task.
pub(crate) fn definition(workflow: &str, version: u32, tasks: &str) -> Arc<Definition> {
    let mut draft = DefinitionDraft::new(workflow);
    draft.version = Version::new(version).expect("the case gives a version");
    draft.tasks = tasks.split_whitespace().map(task_draft).collect();
    Arc::new(draft.build().unwrap_or_else(|error| panic!("{error}")))
}

fn task_draft(word: &str) -> TaskDraft {
    const MARKS: [char; 6] = ['<', '?', '~', '@', '^', '*'];
    let (kind, word) = match word.strip_prefix('!') {
        Some(word) => (TaskKind::OnFailure, word),
        None => (TaskKind::Handler, word),
    };
    let mut parts = word.split_inclusive(MARKS);
    let strip = |part: &str| part.trim_end_matches(MARKS).to_owned();
    let first = parts.next().expect("a word is not empty");
    let mut draft = TaskDraft::new(strip(first), kind);
    let mut mark = first.chars().last().filter(|c| MARKS.contains(c));
    for part in parts {
        let value = strip(part);
        let number = || value.parse::<u32>().expect("the case gives a number");
        match mark {
            Some('<') => draft.parents = value.split(',').map(str::to_owned).collect(),
            Some('?') => draft.trigger = trigger(&value),
            Some('~') => draft.kind = TaskKind::Sleep(Duration::from_millis(number().into())),
            Some('@') => draft.queue = value,
            Some('^') => draft.priority = priority(value.parse().expect("a priority")),
            Some('*') => draft.retry = draft.retry.attempts(number()),
            other => panic!("{other:?} in {word:?} is no mark"),
        }
        mark = part.chars().last().filter(|c| MARKS.contains(c));
    }
    draft
}

fn trigger(word: &str) -> Trigger {
    match word {
        "succeeded" => Trigger::AllSucceeded,
        "finished" => Trigger::AllFinished,
        "failed" => Trigger::AnyFailed,
        "unfailed" => Trigger::NoneFailed,
        other => panic!("{other:?} is no trigger"),
    }
}
