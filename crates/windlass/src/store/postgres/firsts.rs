//! Tasks of which there is nothing to know but their leases, so that to finish them it is not
//! waited for what their runs say.
//!
//! It is a process's own knowledge of what it has claimed, and no more than a guess: a run that
//! says otherwise once it is locked has the verb begin again.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use windlass_core::{Fence, TaskId};

use crate::store::Held;

/// How many are remembered before all are forgotten: workers end what they claim, except for
/// what is taken away from them.
const REMEMBERED_MAX: usize = 100_000;

/// Tasks that this process has claimed for the first time.
#[derive(Default)]
pub(super) struct Firsts(Mutex<HashSet<TaskId>>);

impl Firsts {
    fn all(&self) -> MutexGuard<'_, HashSet<TaskId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// They were claimed, and a first claim of them is all there is to know.
    pub(super) fn remember(&self, tasks: impl IntoIterator<Item = TaskId>) {
        let mut all = self.all();
        if all.len() > REMEMBERED_MAX {
            all.clear();
        }
        all.extend(tasks);
    }

    /// Those of some tasks that are remembered, which they are not any more: whoever repeats a
    /// verb does without.
    pub(super) fn take(&self, held: impl IntoIterator<Item = Held>) -> Vec<Held> {
        let mut all = self.all();
        let is_first = |one: &Held| one.fence == Fence(1) && all.remove(&one.task);
        held.into_iter().filter(is_first).collect()
    }
}
