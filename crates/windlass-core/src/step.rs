//! The memory of a durable function: what each of its calls came to.
//!
//! A function is run again from its beginning whenever it goes on, after a crash as after a
//! sleep. Its calls (steps, sleeps, waits) are counted, and what a call came to is recorded
//! under its number, so that the next time the same call gives the same result at once.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::decide::Failure;
use crate::name::{SignalKey, StepName};
use crate::payload::Payload;
use crate::retry::WAIT_MAX;
use crate::time::Timestamp;

/// The most calls of one function that are remembered.
pub const CALLS_MAX: u32 = 50_000;

/// The latest time that anything may wait for: the last hour of the year 9999 that can be shown
/// in every time zone.
pub const UNTIL_MAX: Timestamp = Timestamp::from_micros(253_402_207_200_000_000);

/// The place of a call among those of its function, from 1, in the order in which the function
/// makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Call(pub u32);

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a function asks for with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Run this, once.
    Step,
    /// Run this, once, and undo it if the run does not succeed.
    Undoable,
    /// Let this time pass.
    Sleep,
    /// What time is it?
    Time,
    /// Wait for a signal.
    Signal,
    /// Start a run, and wait until it has ended.
    Child,
    /// Has the code been changed here?
    Patch,
    /// Which input is it? No call of the function's, but what it began afresh with.
    Input,
}

impl StepKind {
    /// Every kind.
    pub const ALL: [StepKind; 8] = [
        StepKind::Step,
        StepKind::Undoable,
        StepKind::Sleep,
        StepKind::Time,
        StepKind::Signal,
        StepKind::Child,
        StepKind::Patch,
        StepKind::Input,
    ];

    /// The word that is stored and shown.
    pub const fn word(self) -> &'static str {
        match self {
            StepKind::Step => "step",
            StepKind::Undoable => "undoable",
            StepKind::Sleep => "sleep",
            StepKind::Time => "time",
            StepKind::Signal => "signal",
            StepKind::Child => "child",
            StepKind::Patch => "patch",
            StepKind::Input => "input",
        }
    }

    /// Whether a call of the other kind may be in the record for one of this: whether a step can
    /// be undone may change with the code.
    pub fn is_like(self, recorded: StepKind) -> bool {
        let is_work = |kind| matches!(kind, StepKind::Step | StepKind::Undoable);
        self == recorded || is_work(self) && is_work(recorded)
    }
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What is known of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRecord {
    /// Which call it is.
    pub call: Call,
    /// What the function calls it.
    pub name: StepName,
    /// What it asks for.
    pub kind: StepKind,
    /// The key of the signal that it waits for, if it is not one to the run.
    pub key: Option<SignalKey>,
    /// How it stands.
    pub state: StepState,
}

/// How a call stands.
#[derive(Clone, Debug, PartialEq)]
pub enum StepState {
    /// It has no result yet.
    Open {
        /// How many attempts have failed.
        failures: u32,
        /// Why the last one did.
        failure: Option<Failure>,
        /// When it goes on by itself.
        due: Option<Timestamp>,
        /// It goes on when no more than so many of its children run.
        children_max: Option<u32>,
    },
    /// It has a result, which never changes.
    Done {
        /// Its place among the results of the function, in the order in which the function
        /// learned of them.
        number: u32,
        /// The result.
        result: StepResult,
    },
}

impl StepRecord {
    /// What is known of a call once `write` is recorded, `None` if it contradicts what is known
    /// already: the call is another one, or has another result.
    pub fn after(old: Option<&StepRecord>, write: &StepWrite, now: Timestamp) -> Option<Self> {
        // What a function began afresh with is no call, and nobody's to record.
        if write.kind == StepKind::Input || write.call == Call(0) {
            return None;
        }
        let is_other = |old: &StepRecord| {
            (&old.name, old.kind, &old.key) != (&write.name, write.kind, &write.key)
        };
        let has_wrong_key = write.key.is_some() && write.kind != StepKind::Signal;
        if old.is_some_and(is_other) || has_wrong_key {
            return None;
        }
        let state = match &write.change {
            StepChange::Open { failures, failure, wait } => StepState::Open {
                failures: *failures,
                failure: failure.clone(),
                due: wait.due(now),
                children_max: wait.children_max(),
            },
            StepChange::Done { number, result } => {
                StepState::Done { number: *number, result: result.clone() }
            }
        };
        match old.map(|old| &old.state) {
            // It waited once; that it does is told too late.
            Some(StepState::Done { .. }) if matches!(state, StepState::Open { .. }) => old.cloned(),
            Some(done @ StepState::Done { .. }) if *done != state => None,
            // The same wait once more, because the answer was lost: its time has begun. What
            // waits for children has no time, and waits for other numbers of them in turn.
            Some(StepState::Open { failures: known, .. })
                if write.kind != StepKind::Child
                    && matches!(state, StepState::Open { failures, .. } if failures <= *known)
                    && !old.is_some_and(|old| old.is_tried_again(now)) =>
            {
                old.cloned()
            }
            Some(StepState::Done { .. } | StepState::Open { .. }) | None => {
                let StepWrite { call, name, kind, key, .. } = write.clone();
                Some(StepRecord { call, name, kind, key, state })
            }
        }
    }

    /// Whether it is work whose pause is over: it was run since, and may wait anew although that
    /// was not counted.
    fn is_tried_again(&self, now: Timestamp) -> bool {
        let is_work = matches!(self.kind, StepKind::Step | StepKind::Undoable);
        is_work && self.due().is_some_and(|due| due <= now)
    }

    /// What a function knows that begins afresh in a round: its input, before all calls. It takes
    /// the place of that of the run.
    pub fn input(round: u32, value: Payload) -> Self {
        let state = StepState::Done { number: 0, result: StepResult::Value(value) };
        let (name, kind) = (StepName::of_round(round), StepKind::Input);
        StepRecord { call: Call(0), name, kind, key: None, state }
    }

    /// Takes the input that a function began afresh with out of what is known of it, and the
    /// round in which it did.
    pub fn take_input(records: &mut Vec<StepRecord>) -> Option<(u32, Payload)> {
        let place = records.iter().position(|record| record.kind == StepKind::Input)?;
        let StepRecord { name, state, .. } = records.remove(place);
        match state {
            StepState::Done { result: StepResult::Value(value), .. } => Some((name.round(), value)),
            StepState::Done { .. } | StepState::Open { .. } => None,
        }
    }

    /// What is known of calls once all of `writes` are recorded, one after the other; `None` if
    /// one contradicts what is known.
    pub fn after_all<'a>(
        known: impl Fn(Call) -> Option<&'a StepRecord>,
        writes: &[StepWrite],
        now: Timestamp,
    ) -> Option<BTreeMap<Call, StepRecord>> {
        let mut records: BTreeMap<Call, StepRecord> = BTreeMap::new();
        for write in writes {
            let old = records.get(&write.call).or_else(|| known(write.call));
            let record = StepRecord::after(old, write, now)?;
            records.insert(write.call, record);
        }
        Some(records)
    }

    /// The place of its result, if it has one.
    pub fn number(&self) -> Option<u32> {
        match self.state {
            StepState::Done { number, .. } => Some(number),
            StepState::Open { .. } => None,
        }
    }

    /// How many of its children may still run when it goes on, if it waits for some.
    pub fn children_max(&self) -> Option<u32> {
        match self.state {
            StepState::Open { children_max, .. } => children_max,
            StepState::Done { .. } => None,
        }
    }

    /// Whether there is something to undo: a step that says how, and that has a value.
    pub fn is_undoable(&self) -> bool {
        let has_value = match &self.state {
            StepState::Done { result, .. } => matches!(result, StepResult::Value(_)),
            StepState::Open { .. } => false,
        };
        self.kind == StepKind::Undoable && has_value
    }

    /// When it goes on by itself, if it waits.
    pub fn due(&self) -> Option<Timestamp> {
        match self.state {
            StepState::Open { due, .. } => due,
            StepState::Done { .. } => None,
        }
    }

    /// Of the records of a function that failed with `failure`, the place of the result from
    /// which on it is run once more: that of the last call that failed with the same. `None` if
    /// all are kept, since it was no call that it failed with.
    pub fn to_forget<'a>(
        records: impl IntoIterator<Item = &'a StepRecord>,
        failure: &Failure,
    ) -> Option<u32> {
        let failed = |record: &StepRecord| match &record.state {
            StepState::Done { number, result: StepResult::Failed(own) } => {
                let is_why = own.code == failure.code && failure.message.contains(&own.message);
                is_why.then_some(*number)
            }
            StepState::Done { .. } | StepState::Open { .. } => None,
        };
        records.into_iter().filter_map(failed).max()
    }
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResult {
    /// A value.
    Value(Payload),
    /// No attempt is left.
    Failed(Failure),
}

impl StepResult {
    /// The bytes of its value.
    pub fn bytes(&self) -> usize {
        match self {
            StepResult::Value(value) => value.as_str().len(),
            StepResult::Failed(failure) => failure.message.len(),
        }
    }
}

/// Something to be recorded of one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepWrite {
    /// Which call it is.
    pub call: Call,
    /// What the function calls it.
    pub name: StepName,
    /// What it asks for.
    pub kind: StepKind,
    /// The key of the signal that it waits for, if it is not one to the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<SignalKey>,
    /// What became of it.
    pub change: StepChange,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepChange {
    /// It waits.
    Open {
        /// How many attempts have failed.
        failures: u32,
        /// Why the last one did.
        failure: Option<Failure>,
        /// What it waits for.
        wait: Wait,
    },
    /// It has a result.
    Done {
        /// Its place among the results of the function.
        number: u32,
        /// The result.
        result: StepResult,
    },
}

/// How long a call waits by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// This long from now by the store's clock.
    For(Duration),
    /// Until this time.
    Until(Timestamp),
    /// Until something happens.
    Forever,
    /// Until no more than so many of its children run.
    Children(u32),
}

impl Wait {
    /// When it is over.
    pub fn due(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Wait::For(duration) => Some((now + duration.min(WAIT_MAX)).min(UNTIL_MAX)),
            Wait::Until(time) => Some(time.min(UNTIL_MAX)),
            Wait::Forever | Wait::Children(_) => None,
        }
    }

    /// How many of its children may still run when it goes on.
    pub fn children_max(self) -> Option<u32> {
        match self {
            Wait::Children(most) => Some(most),
            Wait::For(_) | Wait::Until(_) | Wait::Forever => None,
        }
    }
}

/// A function has nothing to do until something happens: its worker need not keep it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parking {
    /// What is recorded together with it.
    pub steps: Vec<StepWrite>,
    /// The calls that were recorded earlier and still wait.
    pub waits: Vec<Call>,
    /// Whether it waits for anything but time.
    pub awaits: bool,
}

impl Parking {
    /// When it goes on if nothing happens before. `known` is what was recorded of a call.
    pub fn due<'a>(
        &self,
        now: Timestamp,
        known: impl Fn(Call) -> Option<&'a StepRecord>,
    ) -> Option<Timestamp> {
        let new = self
            .steps
            .iter()
            .filter_map(|step| StepRecord::after(known(step.call), step, now)?.due());
        let old = self.waits.iter().filter_map(|call| known(*call)?.due());
        new.chain(old).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(wait: Wait) -> StepWrite {
        let change = StepChange::Open { failures: 0, failure: None, wait };
        StepWrite {
            call: Call(1),
            name: StepName::new("x").unwrap(),
            kind: StepKind::Sleep,
            key: None,
            change,
        }
    }

    #[test]
    fn words_are_the_serialized_form() {
        for kind in StepKind::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
    }

    #[test]
    fn the_first_wait_that_is_over_lets_a_function_go_on() {
        let now = Timestamp::from_micros(0);
        let at = |seconds| now + Duration::from_secs(seconds);
        let nine = StepRecord::after(None, &open(Wait::Until(at(9))), now);
        let known = |call| nine.as_ref().filter(|nine| nine.call == call);
        let due = |parking: &Parking| parking.due(now, known);
        let mut parking = Parking::default();
        assert_eq!(due(&parking), None);
        let new = |call, wait| StepWrite { call: Call(call), ..open(wait) };
        parking.steps.push(new(2, Wait::Forever));
        assert_eq!(due(&parking), None);
        parking.waits.push(Call(1));
        assert_eq!(due(&parking), Some(at(9)));
        parking.steps.push(new(3, Wait::For(Duration::from_secs(5))));
        parking.steps.push(new(4, Wait::Until(at(7))));
        assert_eq!(due(&parking), Some(at(5)));
    }

    #[test]
    fn a_wait_that_is_told_twice_ends_when_it_was_to_end() {
        let (now, second) = (Timestamp::from_micros(0), Duration::from_secs(1));
        let first = StepRecord::after(None, &open(Wait::For(second)), now).unwrap();
        let again = StepRecord::after(Some(&first), &open(Wait::For(second)), now + second);
        assert_eq!(again.as_ref(), Some(&first));
        let parking = Parking { steps: vec![open(Wait::For(second))], ..Parking::default() };
        assert_eq!(parking.due(now + second, |_| Some(&first)), Some(now + second));
        let mut failed = open(Wait::For(second));
        let StepChange::Open { failures, .. } = &mut failed.change else { unreachable!() };
        *failures = 1;
        let next = StepRecord::after(Some(&first), &failed, now + second).unwrap();
        assert_eq!(next.due(), Some(now + 2 * second));
    }

    #[test]
    fn work_that_was_interrupted_again_pauses_again_and_a_sleep_told_twice_does_not() {
        let at = |seconds| Timestamp::from_micros(0) + Duration::from_secs(seconds);
        let second = |kind| StepWrite { kind, ..open(Wait::For(Duration::from_secs(1))) };
        for (kind, again) in [(StepKind::Step, at(6)), (StepKind::Sleep, at(1))] {
            let write = second(kind);
            let first = StepRecord::after(None, &write, at(0)).unwrap();
            let repeated = StepRecord::after(Some(&first), &write, at(0)).unwrap();
            assert_eq!(repeated.due(), Some(at(1)), "the answer was lost: {kind}");
            let later = StepRecord::after(Some(&first), &write, at(5)).unwrap();
            assert_eq!(later.due(), Some(again), "{kind}");
        }
    }

    #[test]
    fn a_call_keeps_its_key_and_only_a_signal_has_one() {
        let now = Timestamp::from_micros(0);
        let key = |key: &str| Some(SignalKey::new(key).unwrap());
        let wait = StepWrite { key: key("k"), kind: StepKind::Signal, ..open(Wait::Forever) };
        let first = StepRecord::after(None, &wait, now).unwrap();
        assert_eq!(first.key, key("k"));
        let other = StepWrite { key: key("other"), ..wait.clone() };
        assert_eq!(StepRecord::after(Some(&first), &other, now), None);
        let to_run = StepWrite { key: None, ..wait.clone() };
        assert_eq!(StepRecord::after(Some(&first), &to_run, now), None);
        let sleep = StepWrite { kind: StepKind::Sleep, ..wait };
        assert_eq!(StepRecord::after(None, &sleep, now), None);
    }

    #[test]
    fn nobody_records_the_input_of_a_function() {
        let input = StepWrite { call: Call(0), kind: StepKind::Input, ..open(Wait::Forever) };
        assert_eq!(StepRecord::after(None, &input, Timestamp::from_micros(0)), None);
    }

    #[test]
    fn nothing_waits_beyond_the_year_9999() {
        assert_eq!(UNTIL_MAX.to_string(), "9999-12-30T22:00:00Z");
        let now = Timestamp::from_micros(0);
        assert_eq!(Wait::Until(Timestamp::MAX).due(now), Some(UNTIL_MAX));
        assert_eq!(Wait::For(Duration::MAX).due(UNTIL_MAX), Some(UNTIL_MAX));
    }

    #[test]
    fn a_recorded_result_is_never_replaced_by_another() {
        let now = Timestamp::from_micros(0);
        let done = |number, value: &str| {
            let value = Payload::encode(&value).unwrap();
            let change = StepChange::Done { number, result: StepResult::Value(value) };
            StepWrite { change, ..open(Wait::Forever) }
        };
        let first = StepRecord::after(None, &done(1, "a"), now).unwrap();
        assert_eq!(StepRecord::after(Some(&first), &done(1, "a"), now), Some(first.clone()));
        assert_eq!(StepRecord::after(Some(&first), &done(1, "b"), now), None);
        assert_eq!(StepRecord::after(Some(&first), &done(2, "a"), now), None);
    }

    #[test]
    fn only_an_undoable_step_that_returned_a_value_is_undone() {
        let record = |kind, result| {
            let change = StepChange::Done { number: 1, result };
            let write = StepWrite { kind, change, ..open(Wait::Forever) };
            StepRecord::after(None, &write, Timestamp::from_micros(0)).unwrap()
        };
        let value = || StepResult::Value(Payload::encode(&1).unwrap());
        let failed = StepResult::Failed(Failure::new(crate::FailureCode::Error, "no"));
        assert!(record(StepKind::Undoable, value()).is_undoable());
        assert!(!record(StepKind::Undoable, failed).is_undoable());
        assert!(!record(StepKind::Step, value()).is_undoable());
    }

    #[test]
    fn of_several_failed_steps_with_the_failure_of_the_task_the_last_is_forgotten() {
        let failure = Failure::new(crate::FailureCode::Error, "no");
        let record = |call: u32, number| {
            let change = StepChange::Done { number, result: StepResult::Failed(failure.clone()) };
            let write = StepWrite { call: Call(call), change, ..open(Wait::Forever) };
            StepRecord::after(None, &write, Timestamp::from_micros(0)).unwrap()
        };
        let records = [record(1, 3), record(2, 8), record(3, 5)];
        assert_eq!(StepRecord::to_forget(&records, &failure), Some(8));
    }

    #[test]
    fn a_pause_of_work_is_over_at_its_time() {
        let at = |seconds| Timestamp::from_micros(0) + Duration::from_secs(seconds);
        let write = StepWrite { kind: StepKind::Step, ..open(Wait::For(Duration::from_secs(1))) };
        let first = StepRecord::after(None, &write, at(0)).unwrap();
        let again = StepRecord::after(Some(&first), &write, at(1)).unwrap();
        assert_eq!((first.due(), again.due()), (Some(at(1)), Some(at(2))));
    }

    #[test]
    fn a_wait_for_children_may_become_one_for_another_number_of_them() {
        let now = Timestamp::from_micros(0);
        let write = |most| StepWrite { kind: StepKind::Child, ..open(Wait::Children(most)) };
        let first = StepRecord::after(None, &write(3), now).unwrap();
        let next = StepRecord::after(Some(&first), &write(1), now).unwrap();
        assert_eq!((first.children_max(), next.children_max()), (Some(3), Some(1)));
    }
}
