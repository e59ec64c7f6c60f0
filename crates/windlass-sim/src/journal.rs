//! What the store did for durable functions, noted at the store itself, beyond all faults.

use std::collections::{BTreeMap, BTreeSet};

use windlass::store::{
    Answer, Born, ChildStart, Completion, Held, Mailbox, NewKeySignal, NewSignal, PAGE_MAX,
    Recording, RunFilter, Signalled, Store, TakeSignal, Taken,
};
use windlass::{Fence, RunId, RunState, Timestamp};
use windlass_core::{
    Call, Decision, Payload, SignalId, StepChange, StepKind, StepName, StepRecord, StepResult,
    StepState, StepWrite, TaskId, TaskState,
};

use crate::input::Input;
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
    /// What it began afresh with, if it did.
    input: Option<Input>,
}

/// Where signals go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Address {
    Run(RunId, StepName),
    Key(Mailbox),
}

/// How long signals to keys are kept: longer than any simulation.
pub(crate) const KEPT: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);

/// The signals to one address.
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
    signals: BTreeMap<Address, Signals>,
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
            match &completion.decision {
                Decision::Park(parking) => {
                    self.note_writes(held, &parking.steps);
                    self.note_steps(held.task).await;
                }
                Decision::Continue(input) => self.note_afresh(held, input),
                Decision::Succeed(_)
                | Decision::Skip
                | Decision::Fail(_)
                | Decision::Retry { .. } => {}
            }
        }
    }

    /// A function begins afresh: it knows nothing but what it begins with.
    fn note_afresh(&self, held: Held, input: &Payload) {
        let input = input.decode::<Input>().ok();
        let notes = FunctionNotes { since: held.fence, input, ..FunctionNotes::default() };
        self.truth.lock().functions.notes.insert(held.task, notes);
    }

    /// A function is called with what it began afresh with, if it did.
    pub(crate) fn check_input(&self, task: TaskId, fence: Fence, input: Input) {
        let due = self.with_function(task, fence, |notes| notes.input).flatten();
        if due.is_some_and(|due| due != input) {
            let text = format!("task {task} fence {fence} is given {input:?}, not {due:?}");
            self.violate("G14 a function begins afresh with its new input", text);
        }
    }

    fn note_writes(&self, held: Held, steps: &[StepWrite]) {
        self.with_function(held.task, held.fence, |notes| {
            let is_step =
                |step: &&StepWrite| matches!(step.kind, StepKind::Step | StepKind::Undoable);
            for step in steps.iter().filter(is_step) {
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
            let Ok(Some(Signalled::Value(value))) = answer else { continue };
            self.note_fence(take.held);
            let Some(address) = self.address(take).await else { continue };
            let wrong = self.take_in_order(address, take, value);
            if let Some(text) = wrong {
                self.violate(SIGNALS, text);
            }
            self.note_steps(take.held.task).await;
        }
    }

    /// Where a function takes a signal from.
    async fn address(&self, take: &TakeSignal) -> Option<Address> {
        let (run, name) = (take.held.task.run, take.name.clone());
        let Some(key) = take.key.clone() else { return Some(Address::Run(run, name)) };
        let tenant = self.store.get_run(run).await.ok()??.tenant;
        Some(Address::Key(Mailbox { tenant, key, name }))
    }

    /// Takes note of a signal that was taken; answers what is wrong with that.
    fn take_in_order(
        &self,
        address: Address,
        take: &TakeSignal,
        value: &Payload,
    ) -> Option<String> {
        let mut truth = self.truth.lock();
        truth.moves += 1;
        let task = take.held.task;
        let key = (task, truth.functions.since(task), take.call);
        let signals = truth.functions.signals.entry(address).or_default();
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
        let address = Address::Run(signal.run, signal.name.clone());
        self.note_accepted(signal.id, address, &signal.value);
    }

    /// A signal to a key was accepted.
    pub(crate) fn note_key_signal(&self, signal: &NewKeySignal) {
        self.note_accepted(signal.id, Address::Key(signal.to.clone()), &signal.value);
    }

    fn note_accepted(&self, id: SignalId, address: Address, value: &Payload) {
        let mut truth = self.truth.lock();
        if truth.functions.signal_ids.insert(id) {
            truth.moves += 1;
            truth.functions.signals.entry(address).or_default().accepted.push(value.clone());
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
            let (begun, input) = (std::mem::take(&mut notes.begun), notes.input);
            let since = record.fence;
            *notes = FunctionNotes { since, begun, input, ..FunctionNotes::default() };
        }
    }

    /// Sends a signal to every function that waits for one, unless there is one that it has
    /// not taken: it must find that by itself.
    pub(crate) async fn prompt(&self) {
        let filter = RunFilter { state: Some(RunState::Running), ..RunFilter::default() };
        let Ok(page) = self.store.list_runs(filter).await else { return };
        for record in &page.runs {
            let (run, tenant) = (record.id, &record.tenant);
            let tasks = self.store.list_tasks(run, None, PAGE_MAX).await.unwrap_or_default();
            for record in tasks.iter().filter(|task| task.state == TaskState::Waiting) {
                let task = TaskId { run, index: record.index };
                let steps = self.store.list_steps(task, None, PAGE_MAX).await.unwrap_or_default();
                let waits =
                    |step: &&StepRecord| step.kind == StepKind::Signal && step.number().is_none();
                for step in steps.iter().filter(waits) {
                    let name = step.name.clone();
                    let to = match step.key.clone() {
                        Some(key) => Address::Key(Mailbox { tenant: tenant.clone(), key, name }),
                        None => Address::Run(run, name),
                    };
                    self.prompt_one(to).await;
                }
            }
        }
    }

    async fn prompt_one(&self, to: Address) {
        let (place, ids) = {
            let functions = &self.truth.lock().functions;
            let signals = functions.signals.get(&to);
            let counts = signals.map_or((0, 0), |s| (s.accepted.len(), s.taken.len()));
            if counts.0 > counts.1 {
                return;
            }
            (counts.0, functions.signal_ids.len())
        };
        let Ok(value) = Payload::encode(&(1_000 + place)) else { return };
        let id = SignalId::from_random(ids as u128 + 1);
        match to {
            Address::Run(run, name) => {
                let signal = NewSignal { id, run, name, value };
                if self.store.signal(signal.clone()).await.is_ok() {
                    self.note_signal(&signal);
                }
            }
            Address::Key(to) => {
                let signal = NewKeySignal { id, to, value, keep_for: KEPT };
                if self.store.signal_key(signal.clone()).await.is_ok() {
                    self.note_key_signal(&signal);
                }
            }
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
