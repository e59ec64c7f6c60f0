//! A sealed store keeps the contract of stores.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::sync::Arc;
use std::time::Duration;

use windlass::Keyring;
use windlass::clock::VirtualClock;
use windlass::store::sealed::SealedStore;
use windlass::store::{MemoryStore, Store};
use windlass::testing::contract::Subject;
use windlass_core::Timestamp;

struct Sealed {
    clock: Arc<VirtualClock>,
    store: Arc<SealedStore>,
}

#[async_trait::async_trait]
impl Subject for Sealed {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

async fn sealed() -> Sealed {
    let clock = Arc::new(VirtualClock::new(Timestamp::from_micros(1_750_000_000_000_000)));
    let keys = Keyring::parse(&Keyring::fresh_line("k1").unwrap()).unwrap().required(true);
    let within = Arc::new(MemoryStore::with_clock(clock.clone()));
    Sealed { clock, store: Arc::new(SealedStore::new(within, Arc::new(keys))) }
}

windlass::store_contract!(sealed);
