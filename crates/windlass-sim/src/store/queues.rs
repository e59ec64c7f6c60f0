//! The verbs of whoever watches queues, over a link with faults.

use async_trait::async_trait;
use windlass::store::{QueueList, QueueStore, StoreError, Sweep};

use super::FaultyStore;
use crate::faults::Verb;

#[async_trait]
impl QueueStore for FaultyStore {
    async fn roll_up(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.deliver(Verb::Read, limit, |world, limit| {
            Box::pin(async move { world.store.roll_up(limit).await })
        })
        .await
    }

    async fn list_queues(&self) -> Result<QueueList, StoreError> {
        self.deliver(Verb::Read, (), |world, ()| {
            Box::pin(async move { world.store.list_queues().await })
        })
        .await
    }
}
