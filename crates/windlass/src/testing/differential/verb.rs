//! What both stores are asked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{
    Call, CandidateId, Decision, Definition, Fence, RunId, TaskId, TaskIndex, TaskName, Tenant,
    Weight, WorkerId,
};

use super::Side;
use super::reply::Reply;
use crate::store::{
    Candidacy, Checkpoint, ChildStart, ClaimRequest, Completion, DeadLetterCursor,
    DeadLetterFilter, Discard, Heartbeat, Held, Hello, Mandate, NewKeySignal, NewRun, NewSignal,
    Recording, Redrive, Release, RunFilter, TakeSignal, Tallies,
};

/// One step: a verb of the store with its arguments, or a while that passes.
#[derive(Clone)]
pub(super) enum Verb {
    Advance(Duration),
    Register(Arc<Definition>),
    SetWeight(Tenant, Weight),
    StartRuns(Vec<NewRun>),
    CancelRun(RunId, Option<String>),
    RetryRun(RunId, u32),
    Redrive(Redrive),
    Discard(Discard),
    ListDead(DeadLetterFilter, Option<DeadLetterCursor>, usize),
    Join(Hello),
    Claim(ClaimRequest),
    Finish(Vec<Completion>),
    Release(Vec<Release>),
    Checkpoint(Vec<Checkpoint>),
    Record(Vec<Recording>),
    TakeSignals(Vec<TakeSignal>),
    Signal(NewSignal),
    SignalKey(NewKeySignal),
    UndoRun(RunId),
    ReadUndo(Held),
    StartChildren(Vec<ChildStart>),
    ListSteps(TaskId, Option<Call>, usize),
    Extend(Heartbeat),
    Leave(WorkerId),
    PromoteDue(usize),
    Reap(usize),
    Lead(Candidacy),
    Resign(CandidateId, Tallies),
    Sweep(Mandate, usize),
    ListRuns(RunFilter),
    ListTasks(RunId, Option<TaskIndex>, usize),
    GetTask(RunId, TaskName),
}

impl Verb {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Verb::Advance(_) => "advance",
            Verb::Register(_) => "register",
            Verb::SetWeight(..) => "set_weight",
            Verb::StartRuns(_) => "start_runs",
            Verb::CancelRun(..) => "cancel_run",
            Verb::RetryRun(..) => "retry_run",
            Verb::Redrive(_) => "redrive",
            Verb::Discard(_) => "discard",
            Verb::ListDead(..) => "list_dead_letters",
            Verb::Join(_) => "join",
            Verb::Claim(_) => "claim",
            Verb::Finish(_) => "finish",
            Verb::Release(_) => "release",
            Verb::Checkpoint(_) => "checkpoint",
            Verb::Record(_) => "record",
            Verb::TakeSignals(_) => "take_signals",
            Verb::Signal(_) => "signal",
            Verb::SignalKey(_) => "signal_key",
            Verb::UndoRun(_) => "undo_run",
            Verb::ReadUndo(_) => "read_undo",
            Verb::StartChildren(_) => "start_children",
            Verb::ListSteps(..) => "list_steps",
            Verb::Extend(_) => "extend",
            Verb::Leave(_) => "leave",
            Verb::PromoteDue(_) => "promote_due",
            Verb::Reap(_) => "reap",
            Verb::Lead(_) => "lead",
            Verb::Resign(..) => "resign",
            Verb::Sweep(..) => "sweep",
            Verb::ListRuns(_) => "list_runs",
            Verb::ListTasks(..) => "list_tasks",
            Verb::GetTask(..) => "get_task",
        }
    }

    /// The runs that the request names and may change.
    pub(super) fn runs(&self) -> Vec<RunId> {
        match self {
            Verb::CancelRun(run, _) | Verb::RetryRun(run, _) | Verb::UndoRun(run) => vec![*run],
            Verb::StartRuns(runs) => runs.iter().map(|new| new.id).collect(),
            Verb::Finish(batch) => batch.iter().map(|completion| completion.task.run).collect(),
            Verb::Release(batch) => batch.iter().map(|release| release.task.run).collect(),
            Verb::Checkpoint(batch) => batch.iter().map(|one| one.held.task.run).collect(),
            Verb::Record(batch) => batch.iter().map(|one| one.held.task.run).collect(),
            Verb::TakeSignals(batch) => batch.iter().map(|one| one.held.task.run).collect(),
            Verb::Signal(signal) => vec![signal.run],
            Verb::StartChildren(batch) => {
                batch.iter().flat_map(|one| [one.held.task.run, one.run.id]).collect()
            }
            Verb::Extend(heartbeat) => heartbeat.held.iter().map(|held| held.task.run).collect(),
            Verb::Advance(_)
            | Verb::Register(_)
            | Verb::SetWeight(..)
            | Verb::Join(_)
            | Verb::Claim(_)
            | Verb::Leave(_)
            | Verb::PromoteDue(_)
            | Verb::Reap(_)
            | Verb::Lead(_)
            | Verb::Resign(..)
            | Verb::Sweep(..)
            | Verb::Redrive(_)
            | Verb::Discard(_)
            | Verb::ListDead(..)
            | Verb::ListRuns(_)
            | Verb::ListTasks(..)
            | Verb::GetTask(..)
            | Verb::SignalKey(_)
            | Verb::ReadUndo(_)
            | Verb::ListSteps(..) => Vec::new(),
        }
    }

    /// Asks one of the stores.
    pub(super) async fn call(&self, side: &Side<'_>) -> Reply {
        let store = &side.store;
        match self.clone() {
            Verb::Advance(by) => {
                side.subject.advance(by).await;
                Reply::Now(store.now().await)
            }
            Verb::Register(definition) => Reply::Done(store.register(definition).await),
            Verb::SetWeight(tenant, weight) => Reply::Done(store.set_weight(tenant, weight).await),
            Verb::StartRuns(runs) => Reply::Started(store.start_runs(runs).await),
            Verb::CancelRun(run, reason) => Reply::Done(store.cancel_run(run, reason).await),
            Verb::RetryRun(run, round) => Reply::Round(store.retry_run(run, round).await),
            Verb::Redrive(redrive) => Reply::Redriven(store.redrive(redrive).await),
            Verb::Discard(discard) => Reply::Discarded(store.discard(discard).await),
            Verb::ListDead(filter, after, limit) => {
                Reply::Dead(store.list_dead_letters(filter, after, limit).await)
            }
            Verb::Join(hello) => Reply::Done(store.join(hello).await),
            Verb::Claim(request) => Reply::claimed(store.claim(request).await),
            Verb::Finish(completions) => Reply::Answers(store.finish(completions).await),
            Verb::Release(releases) => Reply::Answers(store.release(releases).await),
            Verb::Checkpoint(batch) => Reply::Answers(store.checkpoint(batch).await),
            Verb::Record(batch) => Reply::Answers(store.record(batch).await),
            Verb::TakeSignals(batch) => Reply::Taken(store.take_signals(batch).await),
            Verb::Signal(signal) => Reply::Done(store.signal(signal).await),
            Verb::SignalKey(signal) => Reply::Done(store.signal_key(signal).await),
            Verb::UndoRun(run) => Reply::Undoing(store.undo_run(run).await),
            Verb::ReadUndo(held) => Reply::to_undo(store.read_undo(held).await),
            Verb::StartChildren(batch) => Reply::Born(store.start_children(batch).await),
            Verb::ListSteps(task, after, limit) => {
                Reply::Steps(store.list_steps(task, after, limit).await)
            }
            Verb::Extend(heartbeat) => Reply::Heartbeat(store.extend(heartbeat).await),
            Verb::Leave(worker) => Reply::Done(store.leave(worker).await),
            Verb::PromoteDue(limit) => Reply::Swept(store.promote_due(limit).await),
            Verb::Reap(limit) => Reply::Swept(store.reap(limit).await),
            Verb::Lead(candidacy) => Reply::Standing(store.lead(candidacy).await),
            Verb::Resign(candidate, tallies) => Reply::Done(store.resign(candidate, tallies).await),
            Verb::Sweep(mandate, limit) => Reply::Swept(store.sweep(mandate, limit).await),
            Verb::ListRuns(filter) => Reply::Page(store.list_runs(filter).await),
            Verb::ListTasks(run, after, limit) => {
                Reply::Tasks(store.list_tasks(run, after, limit).await)
            }
            Verb::GetTask(run, name) => Reply::Task(store.get_task(run, name).await),
        }
    }
}

/// The last eight digits of an id, by which it is found in the rest of a report.
pub(super) fn short(id: impl fmt::Display) -> String {
    let text = id.to_string();
    text[text.len() - 8..].to_owned()
}

pub(super) fn short_task(task: TaskId, fence: Fence) -> String {
    format!("{}/{}#{fence}", short(task.run), task.index.0)
}

fn list<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    items.iter().map(show).collect::<Vec<_>>().join(", ")
}

fn show_start(new: &NewRun) -> String {
    let mut text = format!("{} {}:{} of {}", short(new.id), new.workflow, new.version, new.tenant);
    text += &format!(" input {:?}", new.input);
    if let Some(key) = &new.key {
        text += &format!(" key {key}");
    }
    if !new.delay.is_zero() {
        text += &format!(" in {:?}", new.delay);
    }
    if new.priority.get() != 0 {
        text += &format!(" priority {}", new.priority.get());
    }
    if !new.metadata.is_empty() {
        text += &format!(" with {} metadata pairs", new.metadata.len());
    }
    text
}

fn show_completion(completion: &Completion) -> String {
    let task = short_task(completion.task, completion.fence);
    match &completion.decision {
        Decision::Succeed(output) => format!("{task} succeed {output:?}"),
        Decision::Fail(failure) => format!("{task} fail {failure}"),
        Decision::Retry { failure, delay } => format!("{task} retry in {delay:?} {failure}"),
        Decision::Skip => format!("{task} skip"),
        Decision::Park(parking) => format!("{task} park {parking:?}"),
        Decision::Continue(input) => format!("{task} continue with {input:?}"),
    }
}

fn show_definition(definition: &Arc<Definition>) -> String {
    let (name, version) = (definition.name(), definition.version());
    let tasks = list(definition.tasks(), |task| {
        let (queue, priority) = (&task.queue, task.priority.get());
        let attempts = task.retry.max_attempts();
        format!("{} {:?} *{attempts} @{queue} ^{priority}", task.name, task.kind)
    });
    format!("{name}:{version} ({tasks})")
}

fn show_heartbeat(heartbeat: &Heartbeat) -> String {
    let held = list(&heartbeat.held, |held| short_task(held.task, held.fence));
    let notes = list(&heartbeat.progress, |note| {
        format!("{} {:?}", short_task(note.held.task, note.held.fence), note.note)
    });
    let (worker, settled) = (short(heartbeat.worker), heartbeat.settled);
    format!("{worker} settled {settled} holds [{held}] notes [{notes}]")
}

fn show_claim(request: &ClaimRequest) -> String {
    let queues = list(&request.queues, ToString::to_string);
    let handlers = list(&request.handlers, |key| format!("{}:{}", key.workflow, key.version));
    let (worker, seq, limit) = (short(request.worker), request.seq, request.limit);
    format!("{worker} claim {seq} up to {limit} from [{queues}] for [{handlers}]")
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.name())?;
        match self {
            Verb::Advance(by) => write!(f, "{by:?}"),
            Verb::Register(definition) => f.write_str(&show_definition(definition)),
            Verb::SetWeight(tenant, weight) => write!(f, "{tenant} {}", weight.get()),
            Verb::StartRuns(runs) => write!(f, "[{}]", list(runs, show_start)),
            Verb::CancelRun(run, reason) => {
                let reason = reason.as_deref().map(|reason| reason.get(..40).unwrap_or(reason));
                write!(f, "{} {reason:?}", short(run))
            }
            Verb::RetryRun(run, round) => write!(f, "{} round {round}", short(run)),
            Verb::Redrive(redrive) => write!(f, "{redrive:?}"),
            Verb::Discard(discard) => write!(f, "{discard:?}"),
            Verb::ListDead(filter, after, limit) => {
                write!(f, "{filter:?} after {after:?} up to {limit}")
            }
            Verb::Join(hello) => {
                let definitions = list(&hello.definitions, show_definition);
                let (worker, lease) = (short(hello.worker), hello.lease);
                write!(f, "{worker} lease {lease:?} with [{definitions}]")
            }
            Verb::Claim(request) => f.write_str(&show_claim(request)),
            Verb::Finish(batch) => write!(f, "[{}]", list(batch, show_completion)),
            Verb::Release(batch) => {
                let show = |release: &Release| {
                    let task = short_task(release.task, release.fence);
                    format!("{task} for {:?}", release.delay)
                };
                write!(f, "[{}]", list(batch, show))
            }
            Verb::Checkpoint(batch) => {
                let show = |one: &Checkpoint| {
                    let task = short_task(one.held.task, one.held.fence);
                    format!("{task} number {} {:?}", one.number, one.value)
                };
                write!(f, "[{}]", list(batch, show))
            }
            Verb::Record(batch) => {
                let show = |one: &Recording| {
                    format!("{} {:?}", short_task(one.held.task, one.held.fence), one.steps)
                };
                write!(f, "[{}]", list(batch, show))
            }
            Verb::TakeSignals(batch) => {
                let show = |one: &TakeSignal| {
                    let task = short_task(one.held.task, one.held.fence);
                    format!("{task} call {} {:?} {:?}", one.call, one.name, one.which)
                };
                write!(f, "[{}]", list(batch, show))
            }
            Verb::Signal(signal) => {
                let NewSignal { id, run, name, value } = signal;
                write!(f, "{} to {} {name:?} {value:?}", short(id), short(run))
            }
            Verb::SignalKey(signal) => {
                let NewKeySignal { id, to, value, keep_for } = signal;
                write!(f, "{} to {to:?} {value:?} for {keep_for:?}", short(id))
            }
            Verb::UndoRun(run) => f.write_str(&short(run)),
            Verb::ReadUndo(held) => f.write_str(&short_task(held.task, held.fence)),
            Verb::StartChildren(batch) => {
                let show = |one: &ChildStart| {
                    let task = short_task(one.held.task, one.held.fence);
                    format!("{task} call {} at {:?} {}", one.call, one.place, show_start(&one.run))
                };
                write!(f, "[{}]", list(batch, show))
            }
            Verb::ListSteps(task, after, limit) => {
                write!(f, "{}/{} after {after:?} up to {limit}", short(task.run), task.index.0)
            }
            Verb::Extend(heartbeat) => f.write_str(&show_heartbeat(heartbeat)),
            Verb::Leave(worker) => f.write_str(&short(worker)),
            Verb::PromoteDue(limit) | Verb::Reap(limit) => write!(f, "up to {limit}"),
            Verb::Lead(candidacy) => {
                write!(f, "{} for {:?}", short(candidacy.candidate), candidacy.ttl)
            }
            Verb::Resign(candidate, _) => f.write_str(&short(candidate)),
            Verb::Sweep(mandate, limit) => {
                let Mandate { duty, candidate, term } = mandate;
                write!(f, "{duty} by {} in term {term} up to {limit}", short(candidate))
            }
            Verb::ListRuns(filter) => write!(f, "{filter:?}"),
            Verb::ListTasks(run, after, limit) => {
                write!(f, "{} after {after:?} up to {limit}", short(run))
            }
            Verb::GetTask(run, name) => write!(f, "{} {name:?}", short(run)),
        }
    }
}
