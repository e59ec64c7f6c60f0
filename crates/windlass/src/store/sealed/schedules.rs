//! The verbs of schedules. The input is sealed once, for all runs of the schedule: the store within
//! starts them.

use async_trait::async_trait;
use windlass_core::{RunId, ScheduleOwner, Tenant, Timestamp};

use super::SealedStore;
use crate::store::{
    Backfilled, Fire, NewSchedule, ScheduleFilter, ScheduleKey, SchedulePage, ScheduleRecord,
    ScheduleStore, Started, StoreError, Sweep,
};

#[async_trait]
impl ScheduleStore for SealedStore {
    async fn put_schedule(&self, mut schedule: NewSchedule) -> Result<ScheduleRecord, StoreError> {
        schedule.check(self.limit()).map_err(StoreError::Conflict)?;
        let fields = self.fields(&schedule.workflow, schedule.version).await?;
        self.keys.seal_schedule(&mut schedule, &fields);
        let mut record = self.inner.put_schedule(schedule).await?;
        self.told(self.keys.open_schedule(&mut record))?;
        Ok(record)
    }

    async fn get_schedule(&self, key: ScheduleKey) -> Result<Option<ScheduleRecord>, StoreError> {
        let mut record = self.inner.get_schedule(key).await?;
        if let Some(record) = &mut record {
            self.told(self.keys.open_schedule(record))?;
        }
        Ok(record)
    }

    async fn list_schedules(&self, filter: ScheduleFilter) -> Result<SchedulePage, StoreError> {
        let mut page = self.inner.list_schedules(filter).await?;
        for record in &mut page.schedules {
            // What cannot be opened stays as it is.
            let _ = self.keys.open_schedule(record);
        }
        Ok(page)
    }

    async fn pause_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        self.inner.pause_schedule(key).await
    }

    async fn resume_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        self.inner.resume_schedule(key).await
    }

    async fn delete_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        self.inner.delete_schedule(key).await
    }

    async fn disable_schedules(
        &self,
        owner: ScheduleOwner,
        tenant: Option<Tenant>,
        declared: Vec<ScheduleKey>,
    ) -> Result<Vec<ScheduleKey>, StoreError> {
        self.inner.disable_schedules(owner, tenant, declared).await
    }

    async fn trigger_schedule(&self, key: ScheduleKey, run: RunId) -> Result<Started, StoreError> {
        self.inner.trigger_schedule(key, run).await
    }

    async fn backfill_schedule(
        &self,
        key: ScheduleKey,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Backfilled, StoreError> {
        self.inner.backfill_schedule(key, from, until).await
    }

    async fn list_fires(&self, key: ScheduleKey, limit: usize) -> Result<Vec<Fire>, StoreError> {
        self.inner.list_fires(key, limit).await
    }

    async fn fire_schedules(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.inner.fire_schedules(limit).await
    }
}
