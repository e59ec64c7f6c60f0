//! What a memory store knows, and what its verbs share.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{
    ClaimSeq, DutyName, EventId, Fence, IdempotencyKey, Lanes, PayloadLimit, RunId, RunState,
    TaskId, TaskIndex, TaskState, Tenant, Timestamp, Version, Weight, WorkerId, WorkflowName,
};

use super::children::{Family, Notice};
use super::dead::{DeadLetters, Log};
use super::mailboxes::Mailboxes;
use super::queue::ReadyQueues;
use super::quotas::Quotas;
use super::retention::Retention;
use super::run::Run;
use super::schedules::Schedules;
use super::tokens::Tokens;
use crate::planted::{Planted, PlantedBug};
use crate::store::declared::Declared;
use crate::store::ring::{Member, Ring};
use crate::store::{Duty, DutyRecord, LeaderRecord, WorkerRecord, WorkerState, WorkflowRecord};

/// Everything. Runs are apart from what they share, so that a run and the rest can
/// be changed together.
pub(super) struct State {
    pub(super) definitions: BTreeMap<(WorkflowName, Version), WorkflowRecord>,
    pub(super) runs: HashMap<RunId, Run>,
    pub(super) by_age: BTreeSet<(Timestamp, RunId)>,
    pub(super) keys: HashMap<(Tenant, WorkflowName, IdempotencyKey), RunId>,
    pub(super) leaders: [LeaderRecord; Duty::ALL.len()],
    pub(super) family: Family,
    /// What operators did.
    pub(super) log: Log,
    pub(super) retention: Retention,
    pub(super) quotas: Quotas,
    pub(super) schedules: Schedules,
    pub(super) duties: BTreeMap<DutyName, DutyRecord>,
    pub(super) tokens: Tokens,
    pub(super) shared: Shared,
}

/// When something must have happened: a run have ended, or its task have been claimed.
pub(super) type Deadline = (Timestamp, RunId, Option<TaskIndex>);

/// An attempt that ended, as far as limits want to know.
#[derive(Clone, Copy)]
pub(super) struct AttemptEnd {
    pub(super) task: TaskId,
    pub(super) is_failure: bool,
    /// Whether there is another.
    pub(super) is_retried: bool,
}

/// A run that ended.
pub(super) struct Ended {
    pub(super) run: RunId,
    pub(super) state: RunState,
    /// How long a worker that has not heard of it may still be at work.
    pub(super) delay: Duration,
}

pub(super) struct Shared {
    /// The time of the verb under way.
    pub(super) now: Timestamp,
    pub(super) ready: ReadyQueues,
    pub(super) workers: BTreeMap<WorkerId, Worker>,
    /// All workers that ever were, as people see them.
    pub(super) registry: BTreeMap<WorkerId, WorkerRecord>,
    /// Workers that are no more; their ids are not used again.
    pub(super) dead: HashSet<WorkerId>,
    due: BTreeMap<Due, TaskId>,
    /// When leases with a visibility timeout end; those that ended otherwise stay until then.
    pub(super) take_backs: BTreeSet<(Timestamp, TaskId, Fence)>,
    /// What must have happened until when.
    pub(super) deadlines: BTreeSet<Deadline>,
    /// Who has slots in the lanes of limits, and who waits.
    pub(super) lanes: Lanes,
    /// The same as they were a moment ago, for who must not look there.
    pub(super) lanes_before: (Timestamp, Lanes),
    /// Tasks whose turn came in the verb under way and that need slots.
    pub(super) requests: VecDeque<TaskId>,
    /// Tasks that ended in the verb under way.
    pub(super) vacated: Vec<TaskId>,
    /// Attempts that ended in the verb under way.
    pub(super) attempts: Vec<AttemptEnd>,
    /// Tasks that failed in the verb under way and keep their slots.
    pub(super) halted: Vec<TaskId>,
    /// Tasks whose places in lanes others have.
    pub(super) superseded: BTreeSet<TaskId>,
    /// The runs that the verb under way has noted for that.
    pub(super) noted: BTreeSet<RunId>,
    /// The tasks that failed for good.
    pub(super) letters: DeadLetters,
    /// The runs that ended in the verb under way.
    pub(super) ended: Vec<Ended>,
    /// Signals to keys, and who waits for them.
    pub(super) mailboxes: Mailboxes,
    /// What happened to runs that others must hear of.
    pub(super) notices: VecDeque<Notice>,
    schedules: u64,
    pub(super) weights: HashMap<Tenant, Weight>,
    pub(super) wakes: Wakes,
    last_event: EventId,
    ready_tasks: usize,
    running_tasks: usize,
    pub(super) payload_limit: PayloadLimit,
    pub(super) planted: Planted,
}

/// When a task is due. What is due at the same time is due in the order in which it
/// was scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) at: Timestamp,
    order: u64,
}

/// What goes on in a store, for a test kit that waits until nothing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Tasks that can be claimed.
    pub(crate) ready: usize,
    /// Tasks that are leased.
    pub(crate) running: usize,
    /// When the next scheduled task is due.
    pub(crate) next_due: Option<Timestamp>,
}

/// Which hints the verb under way owes.
#[derive(Default)]
pub(super) struct Wakes {
    /// What can be claimed since.
    pub(super) work: Vec<TaskId>,
    pub(super) timers: bool,
    pub(super) runs: bool,
    pub(super) leaders: bool,
    /// A duty of a program was begun or ended.
    pub(super) duties: bool,
}

pub(super) struct Worker {
    pub(super) lease: Duration,
    pub(super) lease_until: Timestamp,
    /// The newest claim that was answered or given up.
    pub(super) last_claim: ClaimSeq,
    /// The lease ran out, and not all of its tasks have been taken away yet.
    pub(super) is_dead: bool,
    pub(super) tasks: BTreeMap<TaskId, (Fence, ClaimSeq)>,
    pub(super) declared: Arc<Declared>,
}

/// How long after its lease a worker without tasks is remembered. It costs such a
/// worker a second introduction to have been forgotten, and nothing else.
const IDLE_WORKER_KEPT: Duration = Duration::from_secs(60 * 60);

impl Worker {
    pub(super) fn is_forgotten(&self, now: Timestamp) -> bool {
        self.tasks.is_empty() && self.lease_until + IDLE_WORKER_KEPT < now
    }
}

impl State {
    pub(super) fn new(now: Timestamp, planted: Planted) -> Self {
        State {
            definitions: BTreeMap::new(),
            runs: HashMap::new(),
            by_age: BTreeSet::new(),
            keys: HashMap::new(),
            leaders: Duty::ALL.map(LeaderRecord::vacant),
            family: Family::default(),
            log: Log::default(),
            retention: Retention::default(),
            quotas: Quotas::default(),
            schedules: Schedules::default(),
            duties: BTreeMap::new(),
            tokens: Tokens::default(),
            shared: Shared {
                now,
                ready: ReadyQueues::new(planted),
                workers: BTreeMap::new(),
                registry: BTreeMap::new(),
                dead: HashSet::new(),
                due: BTreeMap::new(),
                take_backs: BTreeSet::new(),
                deadlines: BTreeSet::new(),
                lanes: Lanes::whole(),
                lanes_before: (now, Lanes::whole()),
                requests: VecDeque::new(),
                vacated: Vec::new(),
                attempts: Vec::new(),
                halted: Vec::new(),
                superseded: BTreeSet::new(),
                noted: BTreeSet::new(),
                letters: DeadLetters::default(),
                ended: Vec::new(),
                mailboxes: Mailboxes::default(),
                notices: VecDeque::new(),
                schedules: 0,
                weights: HashMap::new(),
                wakes: Wakes::default(),
                last_event: EventId(0),
                ready_tasks: 0,
                running_tasks: 0,
                payload_limit: PayloadLimit::default(),
                planted,
            },
        }
    }
}

impl Shared {
    pub(super) fn next_event_id(&mut self) -> EventId {
        self.last_event = self.last_event.next();
        self.last_event
    }

    /// Counts a task that moved, see [`Activity`].
    pub(super) fn count_move(&mut self, from: TaskState, to: TaskState) {
        self.ready_tasks += usize::from(to == TaskState::Ready);
        self.ready_tasks -= usize::from(from == TaskState::Ready);
        self.running_tasks += usize::from(to == TaskState::Running);
        self.running_tasks -= usize::from(from == TaskState::Running);
    }

    pub(super) fn activity(&self) -> Activity {
        let (ready, running) = (self.ready_tasks, self.running_tasks);
        let notices = (!self.notices.is_empty()).then_some(self.now);
        let next_due = [self.next_due(), notices].into_iter().flatten().min();
        Activity { ready, running, next_due }
    }

    pub(super) fn weight(&self, tenant: &Tenant) -> Weight {
        self.weights.get(tenant).copied().unwrap_or_default()
    }

    pub(super) fn schedule(&mut self, at: Timestamp, task: TaskId) -> Due {
        self.wakes.timers |= self.next_due().is_none_or(|first| at < first);
        let due = self.next_order(at);
        self.due.insert(due, task);
        due
    }

    /// Puts a deadline in the place of another.
    pub(super) fn set_deadline(&mut self, old: &mut Option<Deadline>, new: Option<Deadline>) {
        if let Some(old) = old.take() {
            self.deadlines.remove(&old);
        }
        if let Some(new) = new {
            self.wakes.timers |= self.next_due().is_none_or(|first| new.0 < first);
            self.deadlines.insert(new);
        }
        *old = new;
    }

    /// A due time behind all that were given for the same moment.
    pub(super) fn next_order(&mut self, at: Timestamp) -> Due {
        self.schedules += 1;
        Due { at, order: self.schedules }
    }

    pub(super) fn unschedule(&mut self, due: Due) {
        self.due.remove(&due);
    }

    /// Takes the first task that is due at `horizon`.
    pub(super) fn pop_due(&mut self, horizon: Timestamp) -> Option<TaskId> {
        let first = self.due.first_entry()?;
        if first.key().at > horizon {
            return None;
        }
        Some(first.remove())
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let due = self.due.first_key_value().map(|(due, _)| due.at);
        let deadline = self.deadlines.first().map(|(at, ..)| *at);
        [due, deadline].into_iter().flatten().min()
    }

    /// Whether the worker joined and its lease was not found to have run out.
    pub(super) fn live_worker(&mut self, worker: WorkerId) -> Option<&mut Worker> {
        self.workers.get_mut(&worker).filter(|worker| !worker.is_dead)
    }

    /// The workers that are there: those that were heard of within their lease and do not drain.
    pub(super) fn ring(&self) -> Ring {
        if !self.ready.has_owners {
            return Ring::default();
        }
        let is_there = |id: &WorkerId, record: &WorkerRecord| {
            let worker = self.workers.get(id).filter(|worker| !worker.is_dead);
            let is_heard_of = worker.is_some_and(|worker| worker.lease_until > self.now);
            is_heard_of && record.state == WorkerState::Live
        };
        let there = self.registry.iter().filter(|(id, record)| is_there(id, record));
        let members = there.map(|(id, record)| Member {
            worker: *id,
            queues: record.info.queues.clone(),
            handlers: record.workflows.clone(),
            tenant: record.info.tenant(),
        });
        Ring::new(members.collect())
    }

    /// A claim that gives a worker its first tasks begins its lease. What a worker
    /// has already is kept by heartbeats alone, which name it: a worker that does
    /// not know of a task, because the answer to its claim was lost, must not keep
    /// it by asking for more.
    pub(super) fn begin_lease(&mut self, worker: WorkerId, takes_work: bool) {
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&worker) else { return };
        let is_first = takes_work && worker.tasks.is_empty();
        // Whoever sleeps until the next lease ends must look again.
        self.wakes.timers |= is_first;
        let begins = is_first || self.planted.has(PlantedBug::ClaimsKeepLease);
        if begins && !self.planted.has(PlantedBug::FirstHeartbeatNeverExpires) {
            worker.lease_until = now + worker.lease;
        }
    }

    /// Notes a sign of life.
    pub(super) fn see(&mut self, worker: WorkerId) {
        if let Some(record) = self.registry.get_mut(&worker) {
            record.seen_at = Some(self.now);
        }
    }

    /// Ends a worker's life.
    pub(super) fn bury(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
        self.dead.insert(worker);
        if let Some(record) = self.registry.get_mut(&worker) {
            record.state = WorkerState::Dead;
            record.seen_at = None;
            record.ended_at = Some(self.now);
        }
    }

    /// Forgets that a worker holds a task.
    pub(super) fn unlease(&mut self, worker: WorkerId, task: TaskId) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.tasks.remove(&task);
        }
    }
}
