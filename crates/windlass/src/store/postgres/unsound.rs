//! Runs that contradict themselves, and how sweeps go on without them.
//!
//! A sweep moves many runs at once. One that cannot be read or moved, because something else
//! than Windlass wrote to it, must not keep the others from moving, at the next sweep
//! neither: it is left out for a while.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use windlass_core::RunId;

use super::fault::Fault;
use crate::Error;
use crate::store::StoreError;

/// How long a run is left out before it is tried again, and reported again.
const LEFT_OUT: Duration = Duration::from_secs(60);

/// The runs that are left out.
#[derive(Default)]
pub(super) struct Unsound(Mutex<HashMap<RunId, Instant>>);

impl Unsound {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<RunId, Instant>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a run is to be left out.
    pub(super) fn has(&self, run: RunId) -> bool {
        self.with(|runs| {
            if runs.is_empty() {
                return false;
            }
            runs.retain(|_, since| since.elapsed() < LEFT_OUT);
            runs.contains_key(&run)
        })
    }

    /// Whether any run is left out.
    pub(super) fn is_any(&self) -> bool {
        self.with(|runs| !runs.is_empty())
    }

    /// Leaves out the run that a sweep stopped at. Answers whether the sweep can be repeated
    /// without it.
    pub(super) fn leave_out(&self, fault: &Fault) -> bool {
        let Fault::Unsound { run, error } = fault else { return false };
        let is_new = self.with(|runs| runs.insert(*run, Instant::now()).is_none());
        if is_new {
            tracing::error!(%run, %error, "a run contradicts itself and is left out");
        }
        is_new
    }

    /// Leaves out a run that cannot be deleted.
    pub(super) fn pass_over(&self, run: RunId, fault: Fault) {
        let error = Error::from(StoreError::from(fault));
        if self.with(|runs| runs.insert(run, Instant::now()).is_none()) {
            tracing::error!(%run, %error, "a run cannot be deleted and is passed over");
        }
    }
}

/// Makes a fault of what is wrong with a run.
pub(super) fn of(run: RunId) -> impl Fn(StoreError) -> Fault {
    move |error| match error {
        StoreError::Corrupt(_) => Fault::Unsound { run, error },
        StoreError::NotFound(_)
        | StoreError::Unreadable(_)
        | StoreError::Conflict(_)
        | StoreError::LeaseLost(_)
        | StoreError::Forbidden(_)
        | StoreError::Unauthenticated(_)
        | StoreError::Limited { .. }
        | StoreError::TermOver { .. }
        | StoreError::Unavailable(_) => Fault::Answer(error),
    }
}
