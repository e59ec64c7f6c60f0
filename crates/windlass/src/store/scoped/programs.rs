//! Schedules of one tenant, and what all tenants share: queues and duties of programs.

use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{DutyName, RunId, ScheduleOwner, Tenant, Timestamp};

use super::ScopedStore;
use crate::store::{
    Backfilled, DutyClaim, DutyEnd, DutyMandate, DutyRecord, DutyStanding, DutyStore, Fire,
    NewSchedule, QueueList, QueueStore, ScheduleFilter, ScheduleKey, SchedulePage, ScheduleRecord,
    ScheduleStore, Started, StoreError, Sweep,
};

#[async_trait]
impl ScheduleStore for ScopedStore {
    async fn put_schedule(&self, schedule: NewSchedule) -> Result<ScheduleRecord, StoreError> {
        self.check_tenant(&schedule.key.tenant)?;
        self.store.put_schedule(schedule).await
    }

    async fn get_schedule(&self, key: ScheduleKey) -> Result<Option<ScheduleRecord>, StoreError> {
        match self.is_mine(&key.tenant) {
            true => self.reads.get_schedule(key).await,
            false => Ok(None),
        }
    }

    async fn list_schedules(&self, filter: ScheduleFilter) -> Result<SchedulePage, StoreError> {
        let tenant = self.narrowed(filter.tenant)?;
        self.reads.list_schedules(ScheduleFilter { tenant, ..filter }).await
    }

    async fn pause_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        self.check_schedule(&key)?;
        self.store.pause_schedule(key).await
    }

    async fn resume_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        self.check_schedule(&key)?;
        self.store.resume_schedule(key).await
    }

    async fn delete_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        // One that is not there stays so.
        match key.tenant == self.tenant {
            true => self.store.delete_schedule(key).await,
            false => Ok(()),
        }
    }

    async fn disable_schedules(
        &self,
        owner: ScheduleOwner,
        tenant: Option<Tenant>,
        declared: Vec<ScheduleKey>,
    ) -> Result<Vec<ScheduleKey>, StoreError> {
        tenant.as_ref().map_or(Ok(()), |said| self.check_tenant(said))?;
        // An owner may have schedules of all tenants.
        self.store.disable_schedules(owner, Some(self.tenant.clone()), declared).await
    }

    async fn trigger_schedule(&self, key: ScheduleKey, run: RunId) -> Result<Started, StoreError> {
        self.check_schedule(&key)?;
        self.store.trigger_schedule(key, run).await
    }

    async fn backfill_schedule(
        &self,
        key: ScheduleKey,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Backfilled, StoreError> {
        self.check_schedule(&key)?;
        self.store.backfill_schedule(key, from, until).await
    }

    async fn list_fires(&self, key: ScheduleKey, limit: usize) -> Result<Vec<Fire>, StoreError> {
        if !self.is_mine(&key.tenant) {
            return Err(key.not_found());
        }
        self.reads.list_fires(key, limit).await
    }

    async fn fire_schedules(&self, _limit: usize) -> Result<Sweep, StoreError> {
        self.shared("to fire schedules")
    }
}

impl ScopedStore {
    /// A schedule of another tenant is missing.
    fn check_schedule(&self, key: &ScheduleKey) -> Result<(), StoreError> {
        match key.tenant == self.tenant {
            true => Ok(()),
            false => Err(key.not_found()),
        }
    }
}

#[async_trait]
impl QueueStore for ScopedStore {
    async fn roll_up(&self, _limit: usize) -> Result<Sweep, StoreError> {
        self.shared("to add up what is in the queues")
    }

    async fn list_queues(&self) -> Result<QueueList, StoreError> {
        self.shared("what is in the queues")
    }
}

#[async_trait]
impl DutyStore for ScopedStore {
    async fn claim_duties(&self, _claim: DutyClaim) -> Result<DutyStanding, StoreError> {
        self.shared("to do duties of programs")
    }

    async fn renew_duties(
        &self,
        _mandates: Vec<DutyMandate>,
        _ttl: Duration,
    ) -> Result<Vec<DutyName>, StoreError> {
        self.shared("to do duties of programs")
    }

    async fn end_duty(&self, _end: DutyEnd) -> Result<Option<(Timestamp, DutyRecord)>, StoreError> {
        self.shared("to do duties of programs")
    }

    async fn list_duties(&self) -> Result<Vec<DutyRecord>, StoreError> {
        self.shared("to list duties of programs")
    }

    async fn forget_duty(&self, _name: DutyName) -> Result<bool, StoreError> {
        self.shared("to forget duties of programs")
    }
}
