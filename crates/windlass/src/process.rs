//! The futures of one worker as a process that can be killed or frozen.
//!
//! A worker spawns everything it runs through its [`Gate`]. In production the gate
//! is always open and costs nothing. A test kit can shut it: then none of the
//! worker's futures is polled any more, as if the process had been stopped, until
//! the gate is opened again or the futures are dropped, as if it had been killed.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// What all futures of one worker pass through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Option<Arc<Mutex<Process>>>);

#[derive(Debug, Default)]
struct Process {
    state: ProcessState,
    /// How many more polls until the process dies by itself.
    polls_left: Option<u64>,
    next_id: u64,
    wakers: BTreeMap<u64, Waker>,
}

/// What the operating system lets a process do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProcessState {
    #[default]
    Running,
    #[cfg_attr(not(feature = "testing"), expect(dead_code))]
    Frozen,
    Dead,
}

impl Gate {
    /// A gate that can be shut.
    #[cfg(feature = "testing")]
    pub(crate) fn controlled() -> Self {
        Gate(Some(Arc::default()))
    }

    fn process(&self) -> Option<std::sync::MutexGuard<'_, Process>> {
        self.0.as_ref().map(|process| process.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets the future pass through the gate whenever it is polled. Its output is
    /// `None` if the process died.
    pub(crate) fn wrap<F: Future>(&self, future: F) -> Gated<F> {
        let id = self.process().map_or(0, |mut process| {
            process.next_id += 1;
            process.next_id
        });
        Gated { gate: self.clone(), id, future: Some(Box::pin(future)) }
    }

    /// Freezes, thaws or kills the process. A dead one stays dead.
    #[cfg(feature = "testing")]
    pub(crate) fn set(&self, state: ProcessState) {
        let wakers = self.process().map(|mut process| {
            if process.state != ProcessState::Dead {
                process.state = state;
            }
            std::mem::take(&mut process.wakers)
        });
        wakers.into_iter().flatten().for_each(|(_, waker)| waker.wake());
    }

    /// What the process may do.
    #[cfg(feature = "testing")]
    pub(crate) fn state(&self) -> ProcessState {
        self.process().map_or(ProcessState::Running, |process| process.state)
    }

    /// Kills the process after this many polls of its futures.
    #[cfg(feature = "testing")]
    pub(crate) fn die_after_polls(&self, polls: u64) {
        if let Some(mut process) = self.process() {
            process.polls_left = Some(polls);
        }
    }

    /// Asks whether a future may be polled now; if not, it is woken when it may.
    fn enter(&self, id: u64, context: &Context<'_>) -> ProcessState {
        let Some(mut process) = self.process() else {
            return ProcessState::Running;
        };
        if process.state == ProcessState::Running
            && let Some(left) = &mut process.polls_left
        {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => process.state = ProcessState::Dead,
            }
        }
        match process.state {
            ProcessState::Dead => {
                let others = std::mem::take(&mut process.wakers);
                drop(process);
                others.into_values().for_each(Waker::wake);
                ProcessState::Dead
            }
            state @ (ProcessState::Running | ProcessState::Frozen) => {
                process.wakers.insert(id, context.waker().clone());
                state
            }
        }
    }

    fn leave(&self, id: u64) {
        if let Some(mut process) = self.process() {
            process.wakers.remove(&id);
        }
    }
}

/// A future behind a [`Gate`].
pub(crate) struct Gated<F> {
    gate: Gate,
    id: u64,
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Gated<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match this.gate.enter(this.id, context) {
            ProcessState::Frozen => Poll::Pending,
            ProcessState::Dead => {
                this.future = None;
                Poll::Ready(None)
            }
            ProcessState::Running => {
                let Some(future) = &mut this.future else { return Poll::Ready(None) };
                let output = std::task::ready!(future.as_mut().poll(context));
                this.future = None;
                this.gate.leave(this.id);
                Poll::Ready(Some(output))
            }
        }
    }
}
