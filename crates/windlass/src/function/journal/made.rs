//! One call of a function, from the moment at which it is made.

use std::sync::{Arc, MutexGuard};
use std::task::Poll;

use tokio::time::Instant;
use windlass_core::step::CALLS_MAX;
use windlass_core::{
    Call, Failure, NameError, Payload, SignalKey, StepChange, StepKind, StepName, StepResult,
    StepState, StepWrite, Timestamp, Wait,
};

use super::{LOOK_PAUSE, Over, Slot, State, Stop, Waiting, described, diverged, never};
use crate::context::Attempt;

/// Why a call cannot be made.
#[derive(Clone, Debug, thiserror::Error)]
pub(in crate::function) enum CallError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("the function made {CALLS_MAX} calls, which is the limit")]
    TooMany,
    #[error("{0} {1:?} is called by a batch handler, which has no steps")]
    Batched(StepKind, StepName),
    #[error("{0} {1:?} is called within a step; call it behind or beside the step")]
    Nested(StepKind, StepName),
}

/// A call of a function, for as long as the function waits for it.
#[derive(Debug)]
pub(in crate::function) struct Made {
    pub(in crate::function) attempt: Arc<Attempt>,
    pub(in crate::function) call: Call,
    pub(in crate::function) name: StepName,
    kind: StepKind,
    /// The key of the signal that it waits for.
    key: Option<SignalKey>,
    /// What was known of it.
    known: Option<StepState>,
}

impl Made {
    /// Makes the next call of a function.
    pub(in crate::function) fn new(
        attempt: &Arc<Attempt>,
        kind: StepKind,
        name: &str,
    ) -> Result<Self, CallError> {
        let name = StepName::new(name)?;
        if attempt.is_batched() {
            return Err(CallError::Batched(kind, name));
        }
        let mut state = attempt.journal.state();
        if state.scope.is_some() {
            return Err(CallError::Nested(kind, name));
        }
        if state.calls == CALLS_MAX {
            return Err(CallError::TooMany);
        }
        state.calls += 1;
        let call = Call(state.calls);
        let mut slot = Slot::default();
        let known = state.known.get(&call).cloned();
        if let Some(known) = &known {
            if known.name != name || !kind.is_like(known.kind) {
                let failure = diverged(attempt, known, &described(kind, &name, None));
                state.stop.get_or_insert(Stop::Failed(failure));
            } else if let StepState::Done { result, .. } = &known.state {
                slot.result = Some(result.clone());
            }
        }
        state.slots.insert(call, slot);
        if state.is_replayed() {
            state.slots.values_mut().for_each(Slot::wake);
        }
        drop(state);
        // What is recorded of it goes on under the kind that it began with.
        let kind = known.as_ref().map_or(kind, |known| known.kind);
        let known = known.map(|known| known.state);
        Ok(Made { attempt: Arc::clone(attempt), call, name, kind, key: None, known })
    }

    /// Makes it a wait for a signal to a key.
    pub(in crate::function) fn of_key(mut self, key: &str) -> Result<Self, CallError> {
        self.key = Some(SignalKey::new(key)?);
        Ok(self)
    }

    /// The key of the signal that it waits for, if it is not one to the run. Code that asks for
    /// another key than its record ends here.
    pub(in crate::function) async fn key(&self) -> Option<SignalKey> {
        let failure = {
            let state = self.state();
            let known = state.known.get(&self.call).filter(|known| known.key != self.key);
            let instead = described(self.kind, &self.name, self.key.as_ref());
            known.map(|known| diverged(&self.attempt, known, &instead))
        };
        match failure {
            Some(failure) => self.fail(failure).await,
            None => self.key.clone(),
        }
    }

    /// Makes a call that asks whether the code was changed here, unless the record goes on as if
    /// it was not.
    pub(in crate::function) fn patch(
        attempt: &Arc<Attempt>,
        name: &str,
    ) -> Result<Option<Self>, CallError> {
        let patch = StepName::new(name)?;
        let is_old = {
            let mut state = attempt.journal.state();
            let mut rest = state.known.range(Call(state.calls + 1)..);
            let is_old = rest.next().is_some_and(|(call, known)| {
                let is_here = call.0 == state.calls + 1 && known.kind == StepKind::Patch;
                !is_here || known.name != patch
            });
            // What was answered once is answered again: in a loop, say.
            *state.patches.entry(patch).or_insert(is_old)
        };
        if is_old {
            return Ok(None);
        }
        let made = Made::new(attempt, StepKind::Patch, name)?;
        if !made.is_done() {
            made.state().patching.insert(made.call);
        }
        Ok(Some(made))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.attempt.journal.state()
    }

    /// Whether it has its result.
    pub(in crate::function) fn is_done(&self) -> bool {
        matches!(self.known, Some(StepState::Done { .. }))
    }

    /// Says that the function knows how it is undone.
    pub(in crate::function) fn make_undoable(&mut self) {
        if self.known.is_none() {
            self.kind = StepKind::Undoable;
        }
    }

    /// The place of its result and the result, if there is something to undo.
    pub(in crate::function) fn undoable(&self) -> Option<(u32, Payload)> {
        match &self.known {
            Some(StepState::Done { number, result: StepResult::Value(value) })
                if self.kind == StepKind::Undoable =>
            {
                Some((*number, value.clone()))
            }
            Some(StepState::Done { .. } | StepState::Open { .. }) | None => None,
        }
    }

    /// Whether it was recorded that it waits.
    pub(in crate::function) fn is_open(&self) -> bool {
        matches!(self.known, Some(StepState::Open { .. }))
    }

    /// How many attempts have failed, and when it goes on, if it waits.
    pub(in crate::function) fn open(&self) -> (u32, Option<Timestamp>) {
        match &self.known {
            Some(StepState::Open { failures, due, .. }) => (*failures, *due),
            Some(StepState::Done { .. }) | None => (0, None),
        }
    }

    /// Waits until all calls that have a record were made. A worker that drains begins nothing
    /// any more.
    pub(in crate::function) async fn gate(&self) {
        std::future::poll_fn(|context| {
            let is_draining = self.attempt.is_draining();
            let mut state = self.state();
            let may_pass = state.patching.iter().all(|call| *call == self.call);
            let may_begin = state.undos.is_none() && !is_draining;
            let is_open = state.stop.is_none() && state.is_replayed() && may_begin && may_pass;
            let Some(slot) = state.slots.get_mut(&self.call) else { return Poll::Pending };
            slot.is_gated = !is_open;
            if is_open {
                return Poll::Ready(());
            }
            slot.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Says that it is at work until this is dropped.
    pub(in crate::function) fn work(&self) -> Busy {
        self.state().busy += 1;
        Busy { attempt: Arc::clone(&self.attempt) }
    }

    /// What it asks for.
    #[cfg(feature = "postgres")]
    pub(in crate::function) fn kind(&self) -> StepKind {
        self.kind
    }

    /// What is recorded of it.
    pub(in crate::function) fn write(&self, change: StepChange) -> StepWrite {
        let (name, key) = (self.name.clone(), self.key.clone());
        StepWrite { call: self.call, name, kind: self.kind, key, change }
    }

    /// Waits until it is over, if the function is not parked before. `change` is what is to be
    /// recorded; if nothing is, it was before. What waits for more than time looks once in a
    /// while whether it has come.
    pub(in crate::function) async fn wait(&self, change: Option<StepChange>, awaits: bool) -> Over {
        let due = match (&change, self.open()) {
            (Some(StepChange::Open { wait: Wait::Until(time), .. }), _) => Some(*time),
            (Some(StepChange::Open { .. } | StepChange::Done { .. }), _) => None,
            (None, (_, due)) => due,
        };
        let ends_at = due.and_then(|due| self.attempt.instant_of(due));
        let write = change.map(|change| self.write(change));
        let look_at = awaits.then(|| Instant::now() + LOOK_PAUSE);
        let mut new =
            Some(Waiting { write, awaits, ends_here: true, ends_at, look_at, over: None });
        std::future::poll_fn(|context| {
            let mut state = self.state();
            if new.is_some() {
                state.wake_driver();
            }
            let Some(slot) = state.slots.get_mut(&self.call) else { return Poll::Pending };
            if let Some(mut new) = new.take() {
                new.ends_at = new.ends_at.or(slot.ends_at.take());
                slot.waiting = Some(new);
            }
            if let Some(over) = slot.waiting.as_ref().and_then(|waiting| waiting.over) {
                slot.ends_at = slot.waiting.take().and_then(|waiting| waiting.ends_at);
                return Poll::Ready(over);
            }
            slot.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Waits until the function is parked, however long other calls are at work.
    pub(in crate::function) async fn wait_parked(&self, change: StepChange) -> ! {
        let write = Some(self.write(change));
        let waiting = Waiting {
            write,
            awaits: false,
            ends_here: false,
            ends_at: None,
            look_at: None,
            over: None,
        };
        if let Some(slot) = self.state().slots.get_mut(&self.call) {
            slot.waiting = Some(waiting);
        }
        never().await
    }

    /// The place of its result, which nobody knows of before [`Made::answer`].
    pub(in crate::function) fn number(&self) -> u32 {
        let mut state = self.state();
        let number = state.next_number;
        state.next_number += 1;
        state.in_flight.insert(number);
        if let Some(slot) = state.slots.get_mut(&self.call) {
            slot.number = Some(number);
        }
        number
    }

    /// The store knows its result, or there is none.
    pub(in crate::function) fn answer(&self, number: u32, result: Option<StepResult>) {
        let mut state = self.state();
        state.in_flight.remove(&number);
        state.wake_driver();
        if let Some(slot) = state.slots.get_mut(&self.call) {
            slot.number = None;
        }
        let Some(result) = result else { return };
        state.results.insert(number, self.call);
        state.patching.remove(&self.call);
        let is_replayed = state.is_replayed();
        if is_replayed {
            state.slots.values_mut().filter(|slot| slot.is_gated).for_each(Slot::wake);
        }
        if let Some(slot) = state.slots.get_mut(&self.call) {
            slot.result = Some(result);
        }
    }

    /// Records its result.
    pub(in crate::function) async fn finish(&self, result: StepResult) {
        let number = self.number();
        let write = self.write(StepChange::Done { number, result: result.clone() });
        self.attempt.record(vec![write]).await;
        self.answer(number, Some(result));
    }

    /// Its result, once it is the function's turn to know it.
    pub(in crate::function) async fn result(&self) -> StepResult {
        std::future::poll_fn(|context| {
            let mut state = self.state();
            let is_stopped = state.stop.is_some();
            let Some(slot) = state.slots.get_mut(&self.call) else { return Poll::Pending };
            match slot.result.take_if(|_| slot.is_released && !is_stopped) {
                Some(result) => Poll::Ready(result),
                None => {
                    slot.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Ends the attempt with a failure.
    pub(in crate::function) async fn fail(&self, failure: Failure) -> ! {
        self.attempt.journal.fail(failure);
        never().await
    }

    /// Gives the task back.
    pub(in crate::function) async fn hand_back(&self) -> ! {
        {
            let mut state = self.state();
            state.stop.get_or_insert(Stop::HandBack);
            state.wake_driver();
        }
        never().await
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let mut state = self.state();
        // Nobody waits for a result that is still on its way.
        if let Some(number) = state.slots.remove(&self.call).and_then(|slot| slot.number) {
            state.in_flight.remove(&number);
        }
        state.patching.remove(&self.call);
        state.wake_driver();
    }
}

/// A call at work.
#[derive(Debug)]
pub(in crate::function) struct Busy {
    attempt: Arc<Attempt>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.attempt.journal.state();
        state.busy -= 1;
        state.wake_driver();
    }
}
