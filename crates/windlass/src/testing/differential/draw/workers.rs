//! What workers ask: to join, for tasks, to keep their leases, to leave.

use std::time::Duration;

use windlass_core::{ClaimSeq, Fence, QueueName, TaskId, TaskIndex, WorkerId};

use super::super::dice::Dice;
use super::super::known::{Known, KnownWorker};
use super::super::verb::Verb;
use super::any_payload;
use super::workflows::{QUEUES, WORKFLOWS, any_handlers, any_queues, definition, other_shape};
use crate::store::{
    BATCH_MAX, ClaimRequest, HandlerKey, Heartbeat, Held, Hello, ProgressNote, WorkerInfo,
};

/// How many workers are alive before no more join.
const WORKERS_MAX: usize = 6;

/// How many workers are alive before anything else is asked of workers.
const WORKERS_MIN: usize = 2;

pub(super) fn join(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let alive = known.workers.len();
    let worker = match dice.count(0..20) {
        0..2 => dice.pick_any(&known.workers)?.id,
        2..4 => *known.dead.get(dice.count(0..known.dead.len().max(1)))?,
        _ if alive < WORKERS_MAX => dice.worker_id(),
        _ => return None,
    };
    let mut definitions = Vec::new();
    for _ in 0..dice.pick(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 2]) {
        let workflow = dice.pick(&WORKFLOWS);
        let is_other = dice.chance(15);
        let new = if is_other { other_shape(dice, workflow) } else { definition(dice, workflow) };
        definitions.push(new);
    }
    let lease = dice.pick(&[0, 1, 10, 30, 30, 60, 60, 300, 300, 1_800].map(Duration::from_secs));
    let name = format!("worker {}", dice.count(0..9));
    Some(Verb::Join(Hello {
        worker,
        name,
        slots: 40,
        lease,
        definitions,
        info: WorkerInfo { queues: queues_of(worker), ..WorkerInfo::default() },
    }))
}

/// The queues that a worker says it serves: only the answer to why a task waits depends on them.
fn queues_of(worker: WorkerId) -> Vec<QueueName> {
    let bits = worker.as_uuid().as_u128() >> 8;
    let is_served = |place: &usize| bits >> place & 1 == 1;
    let queue = |place: usize| QueueName::new(QUEUES[place]).expect("these are names");
    (0..QUEUES.len()).filter(is_served).map(queue).collect()
}

/// A worker that believes to be alive, nearly always.
fn any_worker(dice: &mut Dice, known: &Known) -> Option<KnownWorker> {
    if known.workers.len() < WORKERS_MIN {
        return None;
    }
    let stray = |id| KnownWorker { id, seq: ClaimSeq(0) };
    match dice.count(0..100) {
        0..2 => Some(stray(dice.worker_id())),
        2..5 => known.dead.get(dice.count(0..known.dead.len().max(1))).copied().map(stray),
        _ => dice.pick_any(&known.workers).copied(),
    }
}

pub(super) fn claim(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let worker = any_worker(dice, known)?;
    let seq = match dice.count(0..100) {
        // The request arrives twice, or behind a later one.
        0..6 => worker.seq.0,
        6..9 => worker.seq.0.saturating_sub(1),
        // Requests in between never arrive.
        9..12 => worker.seq.0 + 3,
        _ => worker.seq.0 + 1,
    };
    let limit = match dice.count(0..100) {
        0 => BATCH_MAX + 1,
        1..60 => dice.count(0..=5),
        _ => dice.count(0..=20),
    };
    let mut handlers = any_handlers(dice);
    if !dice.chance(10) {
        let declares = |key: &&HandlerKey| known.declares(worker.id, key);
        handlers = handlers.iter().filter(declares).cloned().collect();
    }
    Some(Verb::Claim(ClaimRequest {
        worker: worker.id,
        seq: ClaimSeq(seq),
        queues: any_queues(dice),
        handlers,
        limit,
        ending: 0,
        is_poll: limit % 2 == 0,
        tenant: None,
    }))
}

pub(super) fn extend(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let worker = any_worker(dice, known)?;
    let settled = match dice.count(0..20) {
        0..14 => worker.seq.0,
        14..16 => 0,
        16..19 => worker.seq.0.saturating_sub(1),
        _ => worker.seq.0 + 1,
    };
    let mut held = known.held_by(worker.id);
    if dice.chance(15) {
        held = dice.some(&held, 60);
    }
    if dice.chance(25) {
        held.extend(stray(dice, known));
    }
    dice.shuffle(&mut held);
    let percent = dice.pick(&[0, 0, 20, 50]);
    let mut progress = Vec::new();
    for held in dice.some(&held, percent) {
        progress.push(ProgressNote { held, note: any_payload(dice) });
    }
    if dice.chance(5) {
        let note = any_payload(dice);
        progress.extend(stray(dice, known).map(|held| ProgressNote { held, note }));
    }
    let (worker, settled) = (worker.id, ClaimSeq(settled));
    Some(Verb::Extend(Heartbeat { worker, settled, held, progress }))
}

/// A task that is someone else's, or was someone's, or is no task.
pub(super) fn stray(dice: &mut Dice, known: &Known) -> Option<Held> {
    match dice.count(0..10) {
        0..3 => dice.pick_any(&known.held).map(|task| task.held),
        3..8 => known.past.get(dice.count(0..known.past.len().max(1))).copied(),
        8 => {
            let run = dice.run_id();
            Some(Held { task: TaskId { run, index: TaskIndex(0) }, fence: Fence(1) })
        }
        _ => {
            let run = dice.pick_any(&known.runs)?.new.id;
            let index = TaskIndex(dice.pick(&[0, 1, 2, 3, 50, u32::MAX]));
            let fence = Fence(dice.pick(&[0, 1, 2, 9]));
            Some(Held { task: TaskId { run, index }, fence })
        }
    }
}

pub(super) fn leave(dice: &mut Dice, known: &Known) -> Option<Verb> {
    let worker: WorkerId = any_worker(dice, known)?.id;
    Some(Verb::Leave(worker))
}
