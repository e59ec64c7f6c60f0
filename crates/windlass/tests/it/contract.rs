//! The memory store keeps the contract of stores.

use std::sync::Arc;
use std::time::Duration;

use windlass::clock::VirtualClock;
use windlass::store::{MemoryStore, Store};
use windlass::testing::contract::Subject;
use windlass_core::Timestamp;

struct Memory {
    clock: Arc<VirtualClock>,
    store: Arc<MemoryStore>,
}

#[async_trait::async_trait]
impl Subject for Memory {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

async fn memory() -> Memory {
    let clock = Arc::new(VirtualClock::new(Timestamp::from_micros(1_750_000_000_000_000)));
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    Memory { clock, store }
}

windlass::store_contract!(memory);
windlass::scoped_contract!(memory);
