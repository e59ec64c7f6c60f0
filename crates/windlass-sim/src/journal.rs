//! What the store did for durable functions, noted at the store itself, beyond all faults.

use std::collections::{BTreeMap, BTreeSet};

use windlass::store::{
    Answer, Born, ChildStart, Completion, Held, NewSignal, PAGE_MAX, Recording, RunFilter, Store,
    TakeSignal, Taken,
};
use windlass::{Fence, RunId, RunState, Timestamp};
use windlass_core::{
    Call, Decision, Payload, SignalId, StepChange, StepKind, StepName, StepRecord, StepResult,
    StepState, StepWrite, TaskId, TaskState,
};

use crate::scenario::RESULT_BITS;
use crate::world::World;

const FENCES: &str = "G3 only the newest fence writes";
const STEPS: &str = "G14 a recorded result never changes";
const SIGNALS: &str = "G14 signals are taken once, in their order";
const CHILDREN: &str = "G14 a child is started once";

/// What is known of one function in the present round of its run.
#[derive(Debug, Default)]
pub(crate) struct FunctionNotes {
    /// Attempts up to this fence are of earlier rounds.
    since: Fence,
    /// What attempts learned, in their order: which call, and its result.
    pub(crate) learned: Vec<(u64, u64)>,
    /// When calls that take time were first made.
    pub(crate) begun: BTreeMap<u64, Timestamp>,
    /// The results of steps that were recorded, and by whom.
    recorded: BTreeMap<u64, Fence>,
    /// The record as it was last seen.
    steps: BTreeMap<Call, StepRecord>,
}

/// The signals of one name to a run.
#[derive(Debug, Default)]
struct Signals {
    accepted: Vec<Payload>,
    /// By which calls they were taken: the task, what its round began behind, the call.
    taken: Vec<(TaskId, Fence, Call)>,
}

/// What is known of all functions.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    notes: BTreeMap<TaskId, FunctionNotes>,
    newest: BTreeMap<TaskId, Fence>,
    signals: BTreeMap<(RunId, StepName), Signals>,
    signal_ids: BTreeSet<SignalId>,
    /// The rounds that retries began.
    rounds: BTreeSet<(RunId, u32)>,
    /// The runs that calls started: the round of the task by the fence it began behind.
    children: BTreeMap<(TaskId, Call, Option<u32>), BTreeMap<RunId, Fence>>,
}

impl Functions {
    /// A task was claimed.
    pub(crate) fn claimed(&mut self, task: TaskId, fence: Fence) {
        self.newest.insert(task, fence);
    }

    /// The runs that calls started, with who did, and whether they are waited for.
    pub(crate) fn children(&self) -> impl Iterator<Item = (TaskId, RunId, bool)> {
        let calls = self.children.iter();
        calls.flat_map(|((task, _, place), runs)| {
            runs.keys().map(|run| (*task, *run, place.is_some()))
        })
    }

    fn since(&self, task: TaskId) -> Fence {
        self.notes.get(&task).map_or(Fence(0), |notes| notes.since)
    }
}

impl World {
    /// Looks at the notes of a function, unless the attempt is of an earlier round.
    pub(crate) fn with_function<T>(
        &self,
        task: TaskId,
        fence: Fence,
        look: impl FnOnce(&mut FunctionNotes) -> T,
    ) -> Option<T> {
        let mut truth = self.truth.lock();
        let notes = truth.functions.notes.entry(task).or_default();
        (fence > notes.since).then(|| look(notes))
    }

    /// The work of a step begins: no attempt before has a record of it.
    pub(crate) fn note_work(&self, task: TaskId, fence: Fence, value: u64) {
        let by = self.with_function(task, fence, |notes| notes.recorded.get(&value).copied());
        if let Some(by) = by.flatten().filter(|by| *by <= fence) {
            let text = format!("task {task} fence {fence} runs a step that fence {by} recorded");
            self.violate("G14 a recorded step is not run again", text);
        }
    }

    /// A write under a fence was applied: it is the newest.
    pub(crate) fn note_fence(&self, held: Held) {
        let newest = self.truth.lock().functions.newest.get(&held.task).copied();
        if newest.is_some_and(|newest| newest != held.fence) {
            let Held { task, fence } = held;
            self.violate(FENCES, format!("task {task} takes a write of fence {fence}: {newest:?}"));
        }
    }

    /// Calls were recorded.
    pub(crate) async fn note_record(&self, recordings: &[Recording], answers: &[Answer]) {
        for (recording, answer) in recordings.iter().zip(answers) {
            if !matches!(answer, Answer::Refused(_)) {
                self.truth.lock().moves += 1;
                self.note_fence(recording.held);
                self.note_writes(recording.held, &recording.steps);
                self.note_steps(recording.held.task).await;
            }
        }
    }

    /// Tasks were finished: some of them are parked.
    pub(crate) async fn note_parks(&self, completions: &[Completion], answers: &[Answer]) {
        for (completion, answer) in completions.iter().zip(answers) {
            let held = Held { task: completion.task, fence: completion.fence };
            if *answer != Answer::Accepted {
                continue;
            }
            self.note_fence(held);
            if let Decision::Park(parking) = &completion.decision {
                self.note_writes(held, &parking.steps);
                self.note_steps(held.task).await;
            }
        }
    }

    fn note_writes(&self, held: Held, steps: &[StepWrite]) {
        self.with_function(held.task, held.fence, |notes| {
            for step in steps.iter().filter(|step| step.kind == StepKind::Step) {
                if let StepChange::Done { result: StepResult::Value(value), .. } = &step.change
                    && let Ok(value) = value.decode::<u64>()
                {
                    notes.recorded.entry(value & RESULT_BITS).or_insert(held.fence);
                }
            }
        });
    }

    /// Compares the record of a function with what it was.
    async fn note_steps(&self, task: TaskId) {
        let Ok(steps) = self.store.list_steps(task, None, PAGE_MAX).await else { return };
        let steps: BTreeMap<Call, StepRecord> =
            steps.into_iter().map(|step| (step.call, step)).collect();
        let wrong = {
            let mut truth = self.truth.lock();
            let notes = truth.functions.notes.entry(task).or_default();
            let wrong: Vec<String> = notes
                .steps
                .values()
                .filter_map(|old| contradiction(old, steps.get(&old.call), self.now()))
                .collect();
            notes.steps = steps;
            wrong
        };
        for text in wrong {
            self.violate(STEPS, format!("task {task}: {text}"));
        }
    }

    /// Signals were asked for.
    pub(crate) async fn note_takes(&self, takes: &[TakeSignal], answers: &[Taken]) {
        for (take, answer) in takes.iter().zip(answers) {
            let Ok(Some(value)) = answer else { continue };
            self.note_fence(take.held);
            let wrong = self.take_in_order(take, value);
            if let Some(text) = wrong {
                self.violate(SIGNALS, text);
            }
            self.note_steps(take.held.task).await;
        }
    }

    /// Takes note of a signal that was taken; answers what is wrong with that.
    fn take_in_order(&self, take: &TakeSignal, value: &Payload) -> Option<String> {
        let mut truth = self.truth.lock();
        truth.moves += 1;
        let task = take.held.task;
        let key = (task, truth.functions.since(task), take.call);
        let signals = truth.functions.signals.entry((task.run, take.name.clone())).or_default();
        let place = signals.taken.iter().position(|taken| *taken == key);
        let place = place.unwrap_or_else(|| {
            signals.taken.push(key);
            signals.taken.len() - 1
        });
        let due = signals.accepted.get(place);
        (due != Some(value)).then(|| {
            let name = &take.name;
            format!("call {} of task {task} takes {name:?} {value:?}, its turn: {due:?}", take.call)
        })
    }

    /// A signal was accepted.
    pub(crate) fn note_signal(&self, signal: &NewSignal) {
        let mut truth = self.truth.lock();
        if truth.functions.signal_ids.insert(signal.id) {
            truth.moves += 1;
            let key = (signal.run, signal.name.clone());
            truth.functions.signals.entry(key).or_default().accepted.push(signal.value.clone());
        }
    }

    /// Children were started.
    pub(crate) fn note_children(&self, starts: &[ChildStart], answers: &[Born]) {
        for (start, answer) in starts.iter().zip(answers) {
            let Born::Started(started) = answer else { continue };
            self.note_fence(start.held);
            let wrong = {
                let mut truth = self.truth.lock();
                truth.moves += u64::from(started.is_new);
                let since = truth.functions.since(start.held.task);
                let key = (start.held.task, start.call, start.place);
                let runs = truth.functions.children.entry(key).or_default();
                let earlier = *runs.entry(started.run).or_insert(since);
                let twins = runs.values().filter(|round| **round == since).count();
                (earlier != since || twins > 1).then(|| format!("{key:?} starts {runs:?}"))
            };
            if let Some(text) = wrong {
                self.violate(CHILDREN, text);
            }
        }
    }

    /// A run was retried: its functions begin anew behind the fences they have.
    pub(crate) async fn note_retry(&self, run: RunId, round: u32) {
        let is_new = self.truth.lock().functions.rounds.insert((run, round));
        if !is_new {
            return;
        }
        let tasks = self.store.list_tasks(run, None, PAGE_MAX).await.unwrap_or_default();
        let functions = &mut self.truth.lock().functions;
        for record in tasks {
            let task = TaskId { run, index: record.index };
            let notes = functions.notes.entry(task).or_default();
            // What was slept through before the call that failed is not slept through again.
            let begun = std::mem::take(&mut notes.begun);
            *notes = FunctionNotes { since: record.fence, begun, ..FunctionNotes::default() };
        }
    }

    /// Sends a signal to every function that waits for one, unless there is one that it has
    /// not taken: it must find that by itself.
    pub(crate) async fn prompt(&self) {
        let filter = RunFilter { state: Some(RunState::Running), ..RunFilter::default() };
        let Ok(page) = self.store.list_runs(filter).await else { return };
        for run in page.runs.iter().map(|run| run.id) {
            let tasks = self.store.list_tasks(run, None, PAGE_MAX).await.unwrap_or_default();
            for record in tasks.iter().filter(|task| task.state == TaskState::Waiting) {
                let task = TaskId { run, index: record.index };
                let steps = self.store.list_steps(task, None, PAGE_MAX).await.unwrap_or_default();
                let waits =
                    |step: &&StepRecord| step.kind == StepKind::Signal && step.number().is_none();
                for step in steps.iter().filter(waits) {
                    self.prompt_one(run, &step.name).await;
                }
            }
        }
    }

    async fn prompt_one(&self, run: RunId, name: &StepName) {
        let (place, ids) = {
            let functions = &self.truth.lock().functions;
            let signals = functions.signals.get(&(run, name.clone()));
            let counts = signals.map_or((0, 0), |s| (s.accepted.len(), s.taken.len()));
            if counts.0 > counts.1 {
                return;
            }
            (counts.0, functions.signal_ids.len())
        };
        let Ok(value) = Payload::encode(&(1_000 + place)) else { return };
        let id = SignalId::from_random(ids as u128 + 1);
        let signal = NewSignal { id, run, name: name.clone(), value };
        if self.store.signal(signal.clone()).await.is_ok() {
            self.note_signal(&signal);
        }
    }
}

/// What is wrong with what became of a call, if anything is.
fn contradiction(old: &StepRecord, new: Option<&StepRecord>, now: Timestamp) -> Option<String> {
    let is_wait = matches!(old.kind, StepKind::Sleep | StepKind::Signal);
    let is_right = match (&old.state, new.map(|new| &new.state)) {
        (StepState::Done { .. }, new) => new == Some(&old.state),
        (StepState::Open { due, .. }, Some(StepState::Open { due: later, .. })) => {
            !is_wait || due == later
        }
        (StepState::Open { due, .. }, Some(StepState::Done { result, .. })) => {
            let is_over = due.is_some_and(|due| due <= now);
            let by_time = match old.kind {
                StepKind::Sleep => true,
                StepKind::Signal => matches!(result, StepResult::Failed(_)),
                StepKind::Step
                | StepKind::Undoable
                | StepKind::Time
                | StepKind::Child
                | StepKind::Patch
                | StepKind::Input => false,
            };
            is_over || !by_time
        }
        (StepState::Open { .. }, None) => true,
    };
    (!is_right).then(|| format!("{old:?} became {new:?} at {now}"))
}
