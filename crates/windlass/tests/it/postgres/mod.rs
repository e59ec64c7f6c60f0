//! The store in PostgreSQL, on a real server.

use std::sync::Arc;
use std::time::Duration;

use windlass::clock::{Clock, VirtualClock};
use windlass::store::Store;
use windlass::store::postgres::{
    AuditOptions, CheckResult, PostgresOptions, PostgresStore, Roles, Severity, audit,
};
use windlass::testing::contract::Subject;
use windlass_core::Timestamp;

use crate::database::TestDatabase;

mod bouncer;
mod connections;
mod contract;
mod doctor;
mod driver;
mod early;
mod explain;
mod explorer;
mod fill;
mod flatness;
mod held_rows;
mod hints;
mod histories;
mod keys;
mod leaders;
mod load;
mod migrations;
mod mistakes;
mod operator_log;
mod outages;
mod parties;
mod plans;
mod pooled;
mod pooler;
mod reads;
mod retention;
mod role;
mod schedules;
mod sealed;
pub(crate) mod server;
mod tls;
mod transactional;
mod upgrades;
mod views;
mod walls;
mod warnings;
mod why;

/// The most tasks that are audited after a case: the whole of a large run takes seconds.
const AUDITED_TASKS_MAX: i64 = 2_000;

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

    async fn audit(&self) -> Vec<String> {
        let count = "select count(*) from windlass.tasks";
        let tasks = self.database.client().await.query_one(count, &[]).await;
        if tasks.expect("the database is there").get::<_, i64>(0) > AUDITED_TASKS_MAX {
            return Vec::new();
        }
        found_by_audit(&self.database, self.clock.now()).await
    }
}

/// What the audit finds wrong in a database; that things are late in tests is not.
pub(crate) async fn found_by_audit(database: &TestDatabase, now: Timestamp) -> Vec<String> {
    let options = AuditOptions::new().now(now);
    let report = audit(&PostgresOptions::new(database.audited_url()), &options).await;
    let report = report.expect("the database can be audited");
    let is_broken =
        |check: &&CheckResult| check.violations > 0 && check.severity == Severity::Violation;
    report.checks.iter().filter(is_broken).map(|check| format!("{check:?}")).collect()
}

pub(crate) async fn postgres() -> Postgres {
    connected(|options| options).await
}

/// The same with one connection. A verb that changed nothing may be answered before the
/// server has rolled it back; the next one on the same connection comes after that.
pub(crate) async fn postgres_with_one_connection() -> Postgres {
    connected(|options| options.max_connections(1)).await
}

async fn connected(set: impl FnOnce(PostgresOptions) -> PostgresOptions) -> Postgres {
    let database = TestDatabase::granted().await;
    let clock = Arc::new(VirtualClock::new(Timestamp::from_micros(1_750_000_000_000_000)));
    // As it is installed: not as a superuser, and not as the owner of anything.
    let Roles { engine, api, .. } = Roles::default();
    let options = PostgresOptions::new(database.url_as(&engine)).api_role(api);
    let options = set(options);
    let store = PostgresStore::connect(options).await.expect("the database is there");
    let store = Arc::new(store.with_clock(clock.clone()));
    Postgres { clock, store, database }
}
