//! What a client and some workers know from the answers they got, some of which were
//! lost on the way.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use windlass_core::undo::UNDO_SUFFIX;
use windlass_core::{
    ClaimSeq, Event, EventBody, Payload, RunEventKind, RunId, RunState, Timestamp, Undoing,
    Version, WorkerId, WorkflowName,
};

use super::dice::Dice;
use super::reply::Reply;
use super::verb::Verb;
use crate::store::{
    Answer, Born, Completion, DeadLetterCursor, Duty, HandlerKey, Held, LeaderRecord, Mandate,
    NewKeySignal, NewRun, NewSignal, Recording, RunCursor, Signalled, Started, TakeSignal, Which,
};

/// How many writes are remembered to be repeated.
const PAST_MAX: usize = 60;

/// How many dead workers are remembered to rise again.
const DEAD_MAX: usize = 10;

/// How many mandates are remembered, most of which are over.
const MANDATES_MAX: usize = 8;

/// How many answers in a hundred never reach who asked.
const LOST_PERCENT: u32 = 8;

/// What is known of the two stores, as long as they agree.
#[derive(Default)]
pub(super) struct Known {
    pub(super) now: Option<Timestamp>,
    /// When the newest sweeps said that something is due.
    pub(super) due: BTreeMap<&'static str, Timestamp>,
    /// The versions of workflows that are registered.
    pub(super) registered: Vec<(WorkflowName, Version)>,
    pub(super) runs: Vec<KnownRun>,
    places: BTreeMap<RunId, usize>,
    pub(super) workers: Vec<KnownWorker>,
    /// The workflows that workers joined with, if any.
    declared: BTreeMap<WorkerId, Vec<HandlerKey>>,
    pub(super) dead: VecDeque<WorkerId>,
    /// Tasks that workers believe to hold.
    pub(super) held: Vec<KnownTask>,
    /// What workers believed to hold, the newest at the end.
    pub(super) past: VecDeque<Held>,
    /// Completions that were sent, the newest at the end.
    pub(super) sent: VecDeque<Completion>,
    /// What functions recorded, the newest at the end.
    pub(super) recorded: VecDeque<Recording>,
    /// Signals that were sent, the newest at the end.
    pub(super) signals: VecDeque<NewSignal>,
    /// Those to keys.
    pub(super) key_signals: VecDeque<NewKeySignal>,
    /// Questions for signals that functions were told of, the newest at the end.
    pub(super) told: VecDeque<TakeSignal>,
    /// Whether runs ended or were retried since the last sweep, which others may have to hear of.
    pub(super) has_news: bool,
    /// The mandates that candidates were given, or believe to have, the newest at the end.
    pub(super) mandates: VecDeque<Mandate>,
    /// Where the newest page of runs ended.
    pub(super) cursor: Option<RunCursor>,
    /// Where the newest page or batch of dead letters ended.
    pub(super) dead_cursor: Option<DeadLetterCursor>,
    /// What operators did, the newest at the end.
    pub(super) actions: VecDeque<Verb>,
}

pub(super) struct KnownRun {
    /// How it was started.
    pub(super) new: NewRun,
    pub(super) state: RunState,
    pub(super) round: u32,
}

#[derive(Clone, Copy)]
pub(super) struct KnownWorker {
    pub(super) id: WorkerId,
    /// The number of its newest claim.
    pub(super) seq: ClaimSeq,
}

#[derive(Clone, Copy)]
pub(super) struct KnownTask {
    pub(super) worker: WorkerId,
    pub(super) held: Held,
}

impl Known {
    /// How many runs have not ended.
    pub(super) fn working(&self) -> usize {
        self.runs.iter().filter(|run| run.state == RunState::Running).count()
    }

    /// What is known of a run.
    pub(super) fn run(&self, run: RunId) -> Option<&KnownRun> {
        self.places.get(&run).and_then(|place| self.runs.get(*place))
    }

    pub(super) fn held_by(&self, worker: WorkerId) -> Vec<Held> {
        let mine = self.held.iter().filter(|task| task.worker == worker);
        mine.map(|task| task.held).collect()
    }

    /// Whether a worker may claim the tasks of a workflow.
    pub(super) fn declares(&self, worker: WorkerId, key: &HandlerKey) -> bool {
        let is_own = |own: &HandlerKey| {
            let is_undo = own.workflow.of_undo() == key.workflow.as_str();
            own == key || is_undo && own.version == key.version
        };
        self.declared.get(&worker).is_none_or(|declared| declared.iter().any(is_own))
    }

    pub(super) fn learn(&mut self, verb: &Verb, reply: &Reply, dice: &mut Dice) {
        match (verb, reply) {
            (Verb::Advance(_), Reply::Now(Ok(now))) => self.now = Some(*now),
            (Verb::Register(definition), Reply::Done(Ok(()))) => {
                self.learn_workflow(definition.name(), definition.version());
            }
            (Verb::StartRuns(starts), Reply::Started(Ok(answers))) => {
                for (new, answer) in starts.iter().zip(answers) {
                    if let Ok(Started { is_new: true, .. }) = answer {
                        self.learn_run(new.clone());
                    }
                }
            }
            (Verb::Join(hello), Reply::Done(Ok(()))) => {
                for definition in &hello.definitions {
                    self.learn_workflow(definition.name(), definition.version());
                }
                let id = hello.worker;
                if !self.workers.iter().any(|worker| worker.id == id) {
                    self.workers.push(KnownWorker { id, seq: ClaimSeq(0) });
                    if !hello.definitions.is_empty() {
                        self.declared.insert(id, hello.workflows());
                    }
                }
            }
            (Verb::Claim(request), reply) => {
                if let Some(worker) = self.worker(request.worker) {
                    worker.seq = worker.seq.max(request.seq);
                }
                self.learn_claim(request.worker, reply, dice);
            }
            (Verb::Finish(batch), Reply::Answers(Ok(answers))) => {
                for (completion, answer) in batch.iter().zip(answers) {
                    push(&mut self.sent, completion.clone(), PAST_MAX);
                    let held = Held { task: completion.task, fence: completion.fence };
                    self.learn_answer(held, *answer, dice);
                }
            }
            (Verb::Release(batch), Reply::Answers(Ok(answers))) => {
                for (release, answer) in batch.iter().zip(answers) {
                    let held = Held { task: release.task, fence: release.fence };
                    self.learn_answer(held, *answer, dice);
                }
            }
            (Verb::Extend(heartbeat), Reply::Heartbeat(answer)) => match answer {
                Ok(answer) => answer.lost.iter().for_each(|lost| self.lose(lost.held)),
                Err(_) if reply.is_lease_lost() => self.bury(heartbeat.worker),
                Err(_) => {}
            },
            (Verb::Leave(worker), Reply::Done(Ok(()))) => self.bury(*worker),
            (Verb::Record(batch), Reply::Answers(Ok(_))) => {
                for recording in batch {
                    push(&mut self.recorded, recording.clone(), PAST_MAX);
                }
            }
            (Verb::Signal(signal), Reply::Done(_)) => {
                push(&mut self.signals, signal.clone(), PAST_MAX);
            }
            (Verb::SignalKey(signal), Reply::Done(_)) => {
                push(&mut self.key_signals, signal.clone(), PAST_MAX);
                self.has_news = true;
            }
            (Verb::TakeSignals(batch), Reply::Taken(Ok(answers))) => {
                for (take, answer) in batch.iter().zip(answers) {
                    if let Ok(Some(Signalled::Newest(newest))) = answer {
                        let which = Which::UpTo(*newest, take.call.0);
                        push(&mut self.told, TakeSignal { which, ..take.clone() }, PAST_MAX);
                    }
                }
            }
            (Verb::StartChildren(starts), Reply::Born(Ok(answers))) => {
                for (start, answer) in starts.iter().zip(answers) {
                    let (name, version) = (start.definition.name(), start.definition.version());
                    if let Born::Started(Started { is_new, .. }) = answer {
                        self.learn_workflow(name, version);
                        if *is_new {
                            self.learn_run(start.run.clone());
                        }
                    }
                }
            }
            (Verb::Sweep(mandate, _), Reply::Swept(Ok(_))) => {
                self.has_news &= mandate.duty != Duty::PromoteDue;
            }
            (Verb::PromoteDue(_) | Verb::Reap(_), Reply::Swept(Ok(sweep))) => {
                self.has_news &= matches!(verb, Verb::Reap(_));
                self.due.remove(verb.name());
                self.due.extend(sweep.next_at.map(|next| (verb.name(), next)));
            }
            (Verb::Lead(candidacy), Reply::Standing(Ok(standing))) => {
                let told = |leader: &&LeaderRecord| match leader.duty {
                    Duty::PromoteDue | Duty::Reap => true,
                    Duty::Prune | Duty::Schedules | Duty::Rollup | Duty::Audit => false,
                };
                for leader in standing.leaders.iter().filter(told) {
                    let (duty, term) = (leader.duty, leader.term);
                    let mandate = Mandate { duty, candidate: candidacy.candidate, term };
                    if !self.mandates.contains(&mandate) {
                        push(&mut self.mandates, mandate, MANDATES_MAX);
                    }
                }
            }
            (Verb::ListRuns(_), Reply::Page(Ok(page))) => self.cursor = page.next,
            (Verb::ListDead(..), Reply::Dead(Ok(page))) => self.dead_cursor = page.next,
            (Verb::Redrive(_), Reply::Redriven(Ok(answer))) => {
                self.dead_cursor = answer.next;
                push(&mut self.actions, verb.clone(), PAST_MAX);
            }
            (Verb::Discard(_), Reply::Discarded(Ok(answer))) => {
                self.dead_cursor = answer.next;
                push(&mut self.actions, verb.clone(), PAST_MAX);
            }
            // A refusal teaches nothing, and other pairs do not occur.
            (_, _) => {}
        }
    }

    fn learn_workflow(&mut self, name: &WorkflowName, version: Version) {
        let key = (name.clone(), version);
        if !self.registered.contains(&key) {
            self.registered.push(key);
        }
    }

    fn learn_run(&mut self, new: NewRun) {
        self.places.insert(new.id, self.runs.len());
        self.runs.push(KnownRun { new, state: RunState::Running, round: 1 });
    }

    fn learn_claim(&mut self, worker: WorkerId, reply: &Reply, dice: &mut Dice) {
        if reply.is_lease_lost() {
            return self.bury(worker);
        }
        let Reply::Claimed(Ok(tasks)) = reply else { return };
        let is_lost = dice.chance(LOST_PERCENT);
        for leased in tasks {
            let held = Held { task: leased.0.task, fence: leased.0.fence };
            match is_lost {
                true => push(&mut self.past, held, PAST_MAX),
                false => self.held.push(KnownTask { worker, held }),
            }
        }
    }

    fn learn_answer(&mut self, held: Held, answer: Answer, dice: &mut Dice) {
        match answer {
            // The worker does not hear of it and will send it again.
            Answer::Accepted if dice.chance(LOST_PERCENT) => {}
            Answer::Accepted | Answer::AcceptedAlready | Answer::Refused(_) => self.lose(held),
        }
    }

    /// A worker stops believing that it holds a task.
    fn lose(&mut self, held: Held) {
        let before = self.held.len();
        self.held.retain(|task| task.held != held);
        if self.held.len() < before {
            push(&mut self.past, held, PAST_MAX);
        }
    }

    fn bury(&mut self, worker: WorkerId) {
        if self.worker(worker).is_none() {
            return;
        }
        for held in self.held_by(worker) {
            self.lose(held);
        }
        self.workers.retain(|known| known.id != worker);
        push(&mut self.dead, worker, DEAD_MAX);
    }

    fn worker(&mut self, id: WorkerId) -> Option<&mut KnownWorker> {
        self.workers.iter_mut().find(|worker| worker.id == id)
    }

    /// Learns from an event, and answers the run that began with it, if one did.
    pub(super) fn learn_event(&mut self, event: &Event) -> Option<RunId> {
        let run = self.places.get(&event.run).and_then(|place| self.runs.get_mut(*place))?;
        let EventBody::Run(body) = &event.body else { return None };
        run.state = body.to;
        self.has_news |= body.to.is_final();
        match body.kind {
            RunEventKind::Retried { round } => {
                run.round = round;
                self.has_news = true;
            }
            RunEventKind::Continued { round } => run.round = round,
            RunEventKind::Undoing { by } => {
                let new = undo_of(&run.new, by)?;
                self.learn_run(new);
                return Some(by);
            }
            RunEventKind::Started | RunEventKind::Ended | RunEventKind::Cancelled { .. } => {}
        }
        None
    }
}

/// How the run that undoes another was started.
fn undo_of(new: &NewRun, by: RunId) -> Option<NewRun> {
    Some(NewRun {
        id: by,
        workflow: undo_name(&new.workflow)?,
        input: Payload::encode(&Undoing { run: new.id }).ok()?,
        key: None,
        delay: Duration::ZERO,
        metadata: BTreeMap::new(),
        ..new.clone()
    })
}

/// The name of the workflow that undoes runs of another.
pub(super) fn undo_name(workflow: &WorkflowName) -> Option<WorkflowName> {
    WorkflowName::new(format!("{workflow}{UNDO_SUFFIX}")).ok()
}

/// Adds to a memory that forgets its oldest.
fn push<T>(memory: &mut VecDeque<T>, item: T, max: usize) {
    memory.push_back(item);
    if memory.len() > max {
        memory.pop_front();
    }
}
