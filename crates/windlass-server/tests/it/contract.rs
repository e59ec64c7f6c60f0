//! A store behind a server keeps the contract of stores.

use std::sync::Arc;
use std::time::Duration;

use windlass::clock::VirtualClock;
use windlass::remote::RemoteStore;
use windlass::store::{MemoryStore, Store};
use windlass::testing::contract::Subject;
use windlass_core::Timestamp;

use crate::served::Served;

struct Remote {
    clock: Arc<VirtualClock>,
    remote: Arc<RemoteStore>,
    _served: Served,
}

#[async_trait::async_trait]
impl Subject for Remote {
    fn store(&self) -> Arc<dyn Store> {
        self.remote.clone()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

async fn remote() -> Remote {
    let clock = Arc::new(VirtualClock::new(Timestamp::from_micros(1_750_000_000_000_000)));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(clock.clone()));
    let served = Served::new(Arc::clone(&store)).await;
    let remote = served.store().with_duties(store);
    Remote { clock, remote: Arc::new(remote), _served: served }
}

windlass::store_contract!(remote);
