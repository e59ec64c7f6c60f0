//! A store behind a server keeps the contract of stores, as far as clients ask it.

use std::sync::Arc;
use std::time::Duration;

use windlass::clock::VirtualClock;
use windlass::store::{MemoryStore, Store};
use windlass::testing::contract::Subject;
use windlass_core::Timestamp;

use crate::served::Served;
use crate::split::Split;

struct Behind {
    clock: Arc<VirtualClock>,
    store: Arc<Split>,
    _served: Served,
}

#[async_trait::async_trait]
impl Subject for Behind {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

async fn behind() -> Behind {
    let clock = Arc::new(VirtualClock::new(Timestamp::from_micros(1_750_000_000_000_000)));
    let near = Arc::new(MemoryStore::with_clock(clock.clone()));
    let served = Served::new(near.clone()).await;
    let store = Arc::new(Split { near, far: served.store() });
    Behind { clock, store, _served: served }
}

windlass::store_contract!(behind);
