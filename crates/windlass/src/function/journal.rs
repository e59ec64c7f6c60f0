//! What one attempt of a durable function knows of its calls.
//!
//! The function learns of results one at a time, in the order of their numbers, and only when
//! it cannot go on by itself. So the order in which it makes its calls depends on nothing but
//! the results, whatever it joins and selects, and the next attempt makes the same calls in the
//! same order. A call that has no record yet does nothing before all that have one were made:
//! code that is not the one that wrote the record is found out before it does anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::{
    Call, Failure, FailureCode, Outcome, Parking, SignalKey, StepChange, StepKind, StepName,
    StepRecord, StepResult, StepWrite, Wait,
};

mod made;

pub(super) use made::{CallError, Made};

use super::undo::Undo;
use crate::context::Attempt;
use crate::planted::{Planted, PlantedBug};

/// The memory of one attempt.
#[derive(Debug)]
pub(crate) struct Journal(Mutex<State>);

#[derive(Debug)]
pub(super) struct State {
    /// What was recorded before this attempt.
    pub(super) known: BTreeMap<Call, StepRecord>,
    /// The calls that were made.
    calls: u32,
    /// The place of the next result.
    next_number: u32,
    /// Places of results that the store has not answered for.
    in_flight: BTreeSet<u32>,
    /// Results that the function has not learned of.
    pub(super) results: BTreeMap<u32, Call>,
    /// The calls that the function waits for.
    slots: BTreeMap<Call, Slot>,
    /// How many of them are at work.
    busy: usize,
    /// Why the attempt must not go on.
    stop: Option<Stop>,
    randoms: u64,
    /// The step whose work is being run, and how many random numbers it was given.
    scope: Option<(Call, u64)>,
    /// Changes of the code that are not recorded: nothing else begins before they are.
    patching: BTreeSet<Call>,
    /// What was answered of changes of the code.
    patches: BTreeMap<StepName, bool>,
    /// What undoes its steps, by the places of their results, if the function is run only to
    /// say so.
    pub(super) undos: Option<BTreeMap<u32, Undo>>,
    /// Lets the function go on, whoever made it possible.
    driver: Option<Waker>,
}

/// Why an attempt ends before its function does.
#[derive(Clone, Debug)]
enum Stop {
    /// The task is not this attempt's any more, or the store cannot be reached.
    Lost,
    /// The function gives its task back.
    HandBack,
    Failed(Failure),
}

#[derive(Debug, Default)]
struct Slot {
    waker: Option<Waker>,
    /// Waits until all calls that have a record were made.
    is_gated: bool,
    result: Option<StepResult>,
    is_released: bool,
    waiting: Option<Waiting>,
    /// When its wait ends, if it only looked whether it had come to its end.
    ends_at: Option<Instant>,
    /// The place of a result that the store has not answered for.
    number: Option<u32>,
}

/// What a call waits for while its function has nothing to do.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    /// What is to be recorded of it, `None` if it was.
    write: Option<StepWrite>,
    /// Whether it waits for more than time.
    awaits: bool,
    /// Whether it can end while the function is not parked.
    ends_here: bool,
    /// When it does, by the clock of this process.
    ends_at: Option<Instant>,
    /// When to look whether what it waits for has come, while the function is not parked.
    look_at: Option<Instant>,
    over: Option<Over>,
}

/// Why a wait is over, although the function is not parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Its time has come.
    Due,
    /// It is time to look whether what it waits for has come.
    Look,
}

/// What a function does that cannot go on by itself.
pub(super) enum Rest {
    /// Steps are at work.
    Busy,
    /// It waits, and nothing needs a worker.
    Parked(Parking),
    /// It waits for calls to be made that are in the record.
    Stalled,
    /// It waits for something that is not a call.
    Elsewhere,
}

impl Journal {
    pub(crate) fn new(records: &[StepRecord]) -> Self {
        let numbered = |record: &StepRecord| Some((record.number()?, record.call));
        let results: BTreeMap<u32, Call> = records.iter().filter_map(numbered).collect();
        let next_number = results.last_key_value().map_or(1, |(number, _)| number + 1);
        Journal(Mutex::new(State {
            known: records.iter().map(|record| (record.call, record.clone())).collect(),
            calls: 0,
            next_number,
            in_flight: BTreeSet::new(),
            results,
            slots: BTreeMap::new(),
            busy: 0,
            stop: None,
            randoms: 0,
            scope: None,
            patching: BTreeSet::new(),
            patches: BTreeMap::new(),
            undos: None,
            driver: None,
        }))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the attempt is one of a durable function: it made a call, or an earlier one did.
    pub(super) fn is_used(&self) -> bool {
        let state = self.state();
        state.calls > 0 || !state.known.is_empty()
    }

    /// How far the function is, to see whether it moves.
    pub(super) fn place(&self) -> (u32, usize) {
        let state = self.state();
        (state.calls, state.results.len())
    }

    /// Why the attempt must end, if it must.
    pub(super) fn stopped(&self, attempt: &Attempt) -> Option<Outcome> {
        match self.state().stop.clone()? {
            Stop::Lost => Some(Outcome::Interrupted),
            Stop::HandBack => {
                attempt.hand_back();
                Some(Outcome::Interrupted)
            }
            Stop::Failed(failure) => Some(Outcome::Failed(failure)),
        }
    }

    /// The outcome of a function that ended, which is not what it returned if it left out calls
    /// that it made before.
    pub(super) fn end(&self, attempt: &Attempt, outcome: Outcome) -> Outcome {
        let state = self.state();
        match &outcome {
            Outcome::Returned(_) | Outcome::ConditionFalse | Outcome::Continued(_) => match state
                .next_known()
            {
                Some(known) => Outcome::Failed(diverged(attempt, known, "the end of the function")),
                None => outcome,
            },
            Outcome::Failed(_) | Outcome::Interrupted | Outcome::Parked(_) => outcome,
        }
    }

    /// The function does not make a call that is in the record, but waits for others.
    pub(super) fn give_up(&self, attempt: &Attempt) -> Outcome {
        let state = self.state();
        let stuck = |slot: &Slot| slot.is_gated || slot.result.is_some();
        let gated = state.slots.iter().find(|(_, slot)| stuck(slot));
        let instead = gated.map_or("nothing".to_owned(), |(call, _)| format!("call {call}"));
        match state.next_known() {
            Some(known) => Outcome::Failed(diverged(attempt, known, &instead)),
            None => Outcome::Interrupted,
        }
    }

    /// Lets the function learn of the next result, if there is one.
    pub(super) fn release_next(&self, planted: Planted) -> bool {
        let mut state = self.state();
        loop {
            let by_call = planted.has(PlantedBug::ResultsByCall);
            let first = match by_call {
                true => state.results.iter().min_by_key(|(_, call)| **call),
                false => state.results.first_key_value(),
            };
            let Some((&number, &call)) = first else { return false };
            let is_next = state.in_flight.first().is_none_or(|first| *first > number);
            if !is_next || call.0 > state.calls {
                return false;
            }
            state.results.remove(&number);
            // A call that the function has dropped needs no result.
            if let Some(slot) = state.slots.get_mut(&call) {
                slot.is_released = true;
                slot.wake();
                return true;
            }
        }
    }

    /// What the function does, now that it cannot go on by itself.
    pub(super) fn rest(&self, is_draining: bool) -> Rest {
        let mut state = self.state();
        if state.busy > 0 {
            return Rest::Busy;
        }
        let is_replayed = state.is_replayed();
        let is_stuck = |slot: &Slot| {
            slot.is_gated || !is_replayed && slot.result.is_some() && !slot.is_released
        };
        if state.slots.values().any(is_stuck) {
            if is_draining && is_replayed {
                state.stop = Some(Stop::HandBack);
            }
            return Rest::Stalled;
        }
        let waiting = |(call, slot): (&Call, &Slot)| {
            let waiting = slot.waiting.clone().filter(|waiting| waiting.over.is_none())?;
            Some((*call, waiting))
        };
        let waiting: Vec<(Call, Waiting)> = state.slots.iter().filter_map(waiting).collect();
        if waiting.is_empty() || !state.is_replayed() {
            return Rest::Elsewhere;
        }
        Rest::Parked(Parking {
            waits: waiting
                .iter()
                .filter(|(_, one)| one.write.is_none())
                .map(|(call, _)| *call)
                .collect(),
            awaits: waiting.iter().any(|(_, one)| one.awaits),
            steps: waiting.into_iter().filter_map(|(_, one)| one.write).collect(),
        })
    }

    /// What waits for a time and is not recorded, while other calls are at work.
    pub(super) fn unrecorded(&self) -> Vec<StepWrite> {
        let state = self.state();
        let waiting = state.slots.values().filter_map(|slot| slot.waiting.as_ref());
        waiting.filter_map(|waiting| waiting.write.clone()).collect()
    }

    /// These waits are recorded, and end by this process's clock if the function is not parked
    /// before.
    pub(super) fn recorded(&self, writes: &[StepWrite]) {
        let mut state = self.state();
        for write in writes {
            let slot = state.slots.get_mut(&write.call);
            let Some(waiting) = slot.and_then(|slot| slot.waiting.as_mut()) else { continue };
            let StepChange::Open { wait, .. } = &write.change else { continue };
            waiting.ends_at = match wait {
                // The store's due time lies before this.
                Wait::For(duration) if waiting.ends_here => Instant::now().checked_add(*duration),
                Wait::For(_) | Wait::Until(_) | Wait::Forever | Wait::Children(_) => {
                    waiting.ends_at
                }
            };
            waiting.write = None;
        }
    }

    /// When the first wait is over by this process's clock.
    pub(super) fn next_end(&self) -> Option<Instant> {
        let state = self.state();
        let waiting = state.slots.values().filter_map(|slot| slot.waiting.as_ref());
        // What is not recorded does not end: it could not be told from what never began.
        let open = waiting.filter(|one| one.over.is_none() && one.write.is_none());
        open.flat_map(|waiting| [waiting.ends_at, waiting.look_at]).flatten().min()
    }

    /// Ends the waits that are over by this process's clock.
    pub(super) fn end_waits(&self, now: Instant) {
        for slot in self.state().slots.values_mut() {
            let Some(waiting) = &mut slot.waiting else { continue };
            if waiting.write.is_some() {
                continue;
            }
            let is_at = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            let over = match (is_at(waiting.ends_at), is_at(waiting.look_at)) {
                (true, _) => Over::Due,
                (false, true) => Over::Look,
                (false, false) => continue,
            };
            if waiting.over.is_none() {
                waiting.over = Some(over);
                slot.wake();
            }
        }
    }

    /// The number of the next random value: that of the call, if its work asks, and its place
    /// among those of it.
    pub(super) fn next_random(&self) -> (u32, u64) {
        let mut state = self.state();
        if let Some((call, count)) = &mut state.scope {
            *count += 1;
            return (call.0, *count);
        }
        state.randoms += 1;
        (0, state.randoms)
    }

    /// Runs a part of the work of a step, which asks for random numbers of its own and makes no
    /// calls.
    pub(super) fn within<T>(&self, call: Call, count: &mut u64, part: impl FnOnce() -> T) -> T {
        let outer = self.state().scope.replace((call, *count));
        let given = part();
        let inner = std::mem::replace(&mut self.state().scope, outer);
        *count = inner.map_or(*count, |(_, count)| count);
        given
    }

    /// Who is to be woken when the function can go on.
    pub(super) fn drive(&self, waker: &Waker) {
        self.state().driver = Some(waker.clone());
    }
}

impl State {
    /// The function may be able to go on, or to rest.
    fn wake_driver(&self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    /// Whether all calls that have a record were made.
    pub(super) fn is_replayed(&self) -> bool {
        self.known.last_key_value().is_none_or(|(last, _)| last.0 <= self.calls)
    }

    /// The first call in the record that was not made.
    fn next_known(&self) -> Option<&StepRecord> {
        self.known.range(Call(self.calls + 1)..).next().map(|(_, record)| record)
    }
}

impl Slot {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The failure of a function whose code is not what wrote its record.
fn diverged(attempt: &Attempt, known: &StepRecord, instead: &str) -> Failure {
    let (run, task) = (attempt.claimed.task.run, &attempt.claimed.spec.name);
    let StepRecord { call, name, kind, key, .. } = known;
    let recorded = described(*kind, name, key.as_ref());
    let text = format!(
        "call {call} of task {task:?} of run {run} is {recorded} in its record, and \
         {instead} in the code"
    );
    Failure::new(FailureCode::Divergence, text)
}

/// A call as errors name it.
fn described(kind: StepKind, name: &StepName, key: Option<&SignalKey>) -> String {
    match key {
        Some(key) => format!("{kind} {name:?} to key {key:?}"),
        None => format!("{kind} {name:?}"),
    }
}

impl Journal {
    /// The task is not this attempt's any more.
    pub(crate) fn lose(&self) {
        let mut state = self.state();
        state.stop.get_or_insert(Stop::Lost);
        state.wake_driver();
    }

    /// The attempt has failed.
    pub(crate) fn fail(&self, failure: Failure) {
        let mut state = self.state();
        state.stop.get_or_insert(Stop::Failed(failure));
        state.wake_driver();
    }

    /// The attempt has failed: it would go on with something that cannot be read here.
    pub(crate) async fn end_unread(&self, why: String) -> ! {
        self.fail(Failure::new(FailureCode::Payload, why));
        never().await
    }
}

/// Never ends; the attempt does.
pub(crate) async fn never() -> ! {
    match std::future::pending::<std::convert::Infallible>().await {}
}

/// How often a function that has calls at work looks for what its other calls wait for.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// How long a function may wait for a call that is in its record and that its code does not
/// make, although nothing else is left to wait for.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
