//! The verbs of schedules, over a link with faults.

use async_trait::async_trait;
use windlass::store::{
    Backfilled, Fire, NewSchedule, ScheduleFilter, ScheduleKey, SchedulePage, ScheduleRecord,
    ScheduleStore, Started, StoreError, Sweep,
};
use windlass::{RunId, ScheduleOwner, Tenant, Timestamp};

use super::FaultyStore;
use crate::faults::Verb;

/// Delivers a verb with one argument.
macro_rules! deliver {
    ($self:ident, $kind:ident, $verb:ident, $argument:expr) => {
        $self
            .deliver(Verb::$kind, $argument, |world, argument| {
                Box::pin(async move { world.store.$verb(argument).await })
            })
            .await
    };
}

#[async_trait]
impl ScheduleStore for FaultyStore {
    async fn put_schedule(&self, schedule: NewSchedule) -> Result<ScheduleRecord, StoreError> {
        deliver!(self, Start, put_schedule, schedule)
    }

    async fn get_schedule(&self, key: ScheduleKey) -> Result<Option<ScheduleRecord>, StoreError> {
        deliver!(self, Read, get_schedule, key)
    }

    async fn list_schedules(&self, filter: ScheduleFilter) -> Result<SchedulePage, StoreError> {
        deliver!(self, Read, list_schedules, filter)
    }

    async fn pause_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        deliver!(self, Start, pause_schedule, key)
    }

    async fn resume_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        deliver!(self, Start, resume_schedule, key)
    }

    async fn delete_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        deliver!(self, Start, delete_schedule, key)
    }

    async fn disable_schedules(
        &self,
        owner: ScheduleOwner,
        tenant: Option<Tenant>,
        declared: Vec<ScheduleKey>,
    ) -> Result<Vec<ScheduleKey>, StoreError> {
        self.deliver(Verb::Start, (owner, tenant, declared), |world, (owner, tenant, declared)| {
            Box::pin(async move { world.store.disable_schedules(owner, tenant, declared).await })
        })
        .await
    }

    async fn trigger_schedule(&self, key: ScheduleKey, run: RunId) -> Result<Started, StoreError> {
        self.deliver(Verb::Start, (key, run), |world, (key, run)| {
            Box::pin(async move { world.store.trigger_schedule(key, run).await })
        })
        .await
    }

    async fn backfill_schedule(
        &self,
        key: ScheduleKey,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Backfilled, StoreError> {
        self.deliver(Verb::Start, (key, from, until), |world, (key, from, until)| {
            Box::pin(async move { world.store.backfill_schedule(key, from, until).await })
        })
        .await
    }

    async fn list_fires(&self, key: ScheduleKey, limit: usize) -> Result<Vec<Fire>, StoreError> {
        self.deliver(Verb::Read, (key, limit), |world, (key, limit)| {
            Box::pin(async move { world.store.list_fires(key, limit).await })
        })
        .await
    }

    async fn fire_schedules(&self, limit: usize) -> Result<Sweep, StoreError> {
        deliver!(self, Promote, fire_schedules, limit)
    }
}
