//! What the store applied and when, noted at the store itself, beyond all faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use windlass::Timestamp;
use windlass::store::{
    Answer, ClaimRequest, Claimed, Heartbeat, Held, Hello, Store, StoreError, Sweep,
};
use windlass_core::{ActionId, ClaimSeq, Fence, RunId, TaskId, TaskIndex, TaskState, WorkerId};

use crate::duties::Served;
use crate::journal::Functions;
use crate::leaders::Terms;
use crate::world::{SiteId, World};

/// What is known of one life of a worker.
#[derive(Debug)]
pub(crate) struct WorkerTruth {
    /// Whose worker it is.
    pub(crate) site: SiteId,
    /// Its lease.
    pub(crate) lease: Duration,
    /// When the store accepted its heartbeats.
    pub(crate) beats: Vec<Timestamp>,
    /// When the store was told that it left.
    pub(crate) left_at: Vec<Timestamp>,
    /// The tasks that claims gave it and that no answer has taken away.
    claims: BTreeMap<(TaskId, Fence), ClaimSeq>,
}

impl WorkerTruth {
    /// The last heartbeat before `at` that the store accepted.
    pub(crate) fn last_beat(&self, at: Timestamp) -> Option<Timestamp> {
        self.beats[..self.beats.partition_point(|beat| *beat < at)].last().copied()
    }
}

/// What the store applied.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// Every worker that joined.
    pub(crate) workers: BTreeMap<WorkerId, WorkerTruth>,
    /// When dead workers were looked for.
    pub(crate) reaps: Vec<Timestamp>,
    /// When due timers were looked for.
    pub(crate) promotes: Vec<Timestamp>,
    /// Which worker a claim gave a task to.
    claimed_by: BTreeMap<(TaskId, Fence), WorkerId>,
    /// How many handlers run at each site.
    open_calls: BTreeMap<SiteId, usize>,
    /// Who led what.
    pub(crate) terms: Terms,
    /// What durable functions did.
    pub(crate) functions: Functions,
    /// How often the steps of tasks were undone, by their names.
    pub(crate) undos: BTreeMap<(TaskId, String), u64>,
    /// The handlers at work in lanes.
    pub(crate) in_lanes: Vec<(String, Held)>,
    /// When dead letters of runs were discarded, and by which action.
    pub(crate) discards: Vec<(Timestamp, ActionId, RunId)>,
    /// How often each time of duties of the program was served.
    pub(crate) duties: Served,
    /// Counts whatever moved a task.
    pub(crate) moves: u64,
}

/// A handler that runs.
pub(crate) struct OpenCall {
    world: Arc<World>,
    site: SiteId,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if let Some(open) = self.world.truth.lock().open_calls.get_mut(&self.site) {
            *open -= 1;
        }
    }
}

impl Truth {
    /// The tasks of settled claims that a worker does not name in its heartbeat.
    fn take_orphans(&mut self, heartbeat: &Heartbeat) -> Vec<(TaskId, Fence)> {
        let Some(worker) = self.workers.get_mut(&heartbeat.worker) else { return Vec::new() };
        let is_orphan = |((task, fence), seq): &(&(TaskId, Fence), &ClaimSeq)| {
            let held = Held { task: *task, fence: *fence };
            **seq <= heartbeat.settled && !heartbeat.held.contains(&held)
        };
        let orphans: Vec<_> = worker.claims.iter().filter(is_orphan).map(|(key, _)| *key).collect();
        for orphan in &orphans {
            worker.claims.remove(orphan);
        }
        orphans
    }
}

impl World {
    /// A worker joined.
    pub(crate) fn note_join(&self, site: SiteId, hello: &Hello) {
        self.truth.lock().workers.entry(hello.worker).or_insert_with(|| WorkerTruth {
            site,
            lease: hello.lease,
            beats: Vec::new(),
            left_at: Vec::new(),
            claims: BTreeMap::new(),
        });
    }

    /// A claim was accepted.
    pub(crate) fn note_claim(&self, request: &ClaimRequest, claimed: &[Claimed]) {
        let mut truth = self.truth.lock();
        truth.moves += u64::from(!claimed.is_empty());
        if let Some(worker) = truth.workers.get_mut(&request.worker) {
            for claim in claimed {
                worker.claims.insert((claim.task, claim.fence), request.seq);
            }
        }
        for claim in claimed {
            truth.claimed_by.insert((claim.task, claim.fence), request.worker);
            truth.functions.claimed(claim.task, claim.fence);
        }
    }

    /// A heartbeat was accepted: what it gave up must have been taken back.
    pub(crate) async fn note_heartbeat(&self, heartbeat: &Heartbeat) {
        let now = self.now();
        let orphans = {
            let mut truth = self.truth.lock();
            if let Some(worker) = truth.workers.get_mut(&heartbeat.worker) {
                worker.beats.push(now);
            }
            truth.take_orphans(heartbeat)
        };
        for (task, fence) in orphans {
            let before = task.index.0.checked_sub(1).map(TaskIndex);
            let found = self.store.list_tasks(task.run, before, 1).await.unwrap_or_default();
            let Some(record) = found.first() else { continue };
            let is_kept = record.state == TaskState::Running
                && record.fence == fence
                && record.worker == Some(heartbeat.worker);
            if is_kept {
                let text = format!(
                    "task {task} fence {fence} stays with worker {} whose heartbeat at {now} \
                     does not name it",
                    heartbeat.worker
                );
                self.violate("G10 lost claims are found", text);
            }
        }
    }

    /// A handler was called. It runs at its worker's site until the answer is
    /// dropped, and there must be a slot for it.
    pub(crate) fn open_call(self: &Arc<World>, task: TaskId, fence: Fence) -> Option<OpenCall> {
        let (site, open) = {
            let mut truth = self.truth.lock();
            let worker = *truth.claimed_by.get(&(task, fence))?;
            let site = truth.workers.get(&worker)?.site;
            let open = truth.open_calls.entry(site).or_default();
            *open += 1;
            (site, *open)
        };
        let slots = self.sites.lock()[site.0].slots;
        if open > slots {
            let text = format!("{open} handlers run at site {} with {slots} slots", site.0);
            self.violate("no more tasks at once than slots", text);
        }
        Some(OpenCall { world: Arc::clone(self), site })
    }

    /// A worker left.
    pub(crate) fn note_leave(&self, worker: WorkerId) {
        let now = self.now();
        let mut truth = self.truth.lock();
        truth.moves += 1;
        if let Some(worker) = truth.workers.get_mut(&worker) {
            worker.left_at.push(now);
        }
    }

    /// Writes of workers were answered.
    pub(crate) fn note_answers(&self, held: &[Held], answers: &[Answer]) {
        let mut truth = self.truth.lock();
        for (held, answer) in held.iter().zip(answers) {
            match answer {
                Answer::Accepted => {
                    truth.moves += 1;
                    for worker in truth.workers.values_mut() {
                        worker.claims.remove(&(held.task, held.fence));
                    }
                }
                Answer::AcceptedAlready | Answer::Refused(_) => {}
            }
        }
    }

    /// Due timers were looked for.
    pub(crate) fn note_promote(&self, sweep: &Sweep) {
        let mut truth = self.truth.lock();
        truth.promotes.push(sweep.at);
        truth.moves += sweep.moved as u64;
    }

    /// Dead workers were looked for.
    pub(crate) fn note_reap(&self, sweep: &Sweep) {
        let mut truth = self.truth.lock();
        truth.reaps.push(sweep.at);
        truth.moves += sweep.moved as u64;
    }

    /// Dead letters were discarded, if it was not asked for again.
    pub(crate) fn note_discard(&self, action: ActionId, runs: &[RunId]) {
        let now = self.now();
        let mut truth = self.truth.lock();
        if truth.discards.iter().all(|(_, known, _)| *known != action) {
            truth.moves += runs.len() as u64;
            truth.discards.extend(runs.iter().map(|run| (now, action, *run)));
        }
    }

    /// No request may find the store in contradiction with itself.
    pub(crate) fn note_error(&self, error: &StoreError) {
        if let StoreError::Corrupt(text) = error {
            self.violate("G8 the store is consistent", text.clone());
        }
    }
}
