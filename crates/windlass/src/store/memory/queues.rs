//! What is in the queues: they know it themselves, and there is nothing to add up.

use async_trait::async_trait;

use super::MemoryStore;
use super::state::State;
use crate::store::{QueueList, QueueStore, StoreError, Sweep};

impl State {
    /// The sweep of a duty that has nothing to do here.
    pub(super) fn nothing_due(&self) -> Sweep {
        Sweep { at: self.shared.now, moved: 0, next_at: None }
    }
}

#[async_trait]
impl QueueStore for MemoryStore {
    async fn roll_up(&self, _limit: usize) -> Result<Sweep, StoreError> {
        Ok(self.transact(|state| state.nothing_due()))
    }

    async fn list_queues(&self) -> Result<QueueList, StoreError> {
        Ok(self.transact(|state| {
            let at = state.shared.now;
            QueueList { at, counted_at: Some(at), queues: state.shared.ready.list() }
        }))
    }
}
