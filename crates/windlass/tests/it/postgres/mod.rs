//! The store in PostgreSQL, on a real server.

use std::sync::Arc;
use std::time::Duration;

use windlass::clock::VirtualClock;
use windlass::store::Store;
use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass::testing::contract::Subject;
use windlass_core::Timestamp;

use crate::database::TestDatabase;

mod contract;
mod driver;
mod explorer;
mod hints;
mod histories;
mod migrations;
mod role;

/// A store in a database of its own, on a clock that stands still.
pub(crate) struct Postgres {
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) store: Arc<PostgresStore>,
    /// Dropped last: the database goes with it.
    pub(crate) database: TestDatabase,
}

#[async_trait::async_trait]
impl Subject for Postgres {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

pub(crate) async fn postgres() -> Postgres {
    let database = TestDatabase::new().await;
    let clock = Arc::new(VirtualClock::new(Timestamp::from_micros(1_750_000_000_000_000)));
    let options = PostgresOptions::new(database.url());
    let store = PostgresStore::connect(options).await.expect("the database is there");
    let store = Arc::new(store.with_clock(clock.clone()));
    Postgres { clock, store, database }
}
