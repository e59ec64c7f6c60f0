//! The verbs of schedules, queues, quotas and duties of programs, said to a server.

use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{DutyName, RunId, ScheduleOwner, Tenant, Timestamp};
use windlass_proto::v1;

use super::{RemoteStore, ask};
use crate::store::{
    Backfilled, DutyClaim, DutyEnd, DutyMandate, DutyRecord, DutyStanding, DutyStore, Fire,
    NewSchedule, QueueList, QueueStore, Quota, QuotaStore, ScheduleFilter, ScheduleKey,
    SchedulePage, ScheduleRecord, ScheduleStore, Started, StoreError, Sweep, Usage,
};
use crate::wire::{Wire, limit as most, micros, name, read, read_all, read_some, time, write_all};

#[async_trait]
impl ScheduleStore for RemoteStore {
    async fn put_schedule(&self, schedule: NewSchedule) -> Result<ScheduleRecord, StoreError> {
        Ok(Wire::from_wire(ask!(self, put_schedule, schedule.to_wire())?)?)
    }

    async fn get_schedule(&self, key: ScheduleKey) -> Result<Option<ScheduleRecord>, StoreError> {
        let request = v1::GetScheduleRequest { key: Some(key.to_wire()) };
        Ok(read_some("schedule", ask!(self, get_schedule, request)?.schedule)?)
    }

    async fn list_schedules(&self, filter: ScheduleFilter) -> Result<SchedulePage, StoreError> {
        Ok(Wire::from_wire(ask!(self, list_schedules, filter.to_wire())?)?)
    }

    async fn pause_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        let request = v1::PauseScheduleRequest { key: Some(key.to_wire()) };
        let v1::Done {} = ask!(self, pause_schedule, request)?;
        Ok(())
    }

    async fn resume_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        let request = v1::ResumeScheduleRequest { key: Some(key.to_wire()) };
        let v1::Done {} = ask!(self, resume_schedule, request)?;
        Ok(())
    }

    async fn delete_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        let request = v1::DeleteScheduleRequest { key: Some(key.to_wire()) };
        let v1::Done {} = ask!(self, delete_schedule, request)?;
        Ok(())
    }

    async fn disable_schedules(
        &self,
        owner: ScheduleOwner,
        tenant: Option<Tenant>,
        declared: Vec<ScheduleKey>,
    ) -> Result<Vec<ScheduleKey>, StoreError> {
        let declared = write_all(&declared);
        let tenant = tenant.map(|tenant| tenant.to_string());
        let request = v1::DisableSchedulesRequest { owner: owner.to_string(), declared, tenant };
        Ok(read_all("disabled", ask!(self, disable_schedules, request)?.disabled)?)
    }

    async fn trigger_schedule(&self, key: ScheduleKey, run: RunId) -> Result<Started, StoreError> {
        let key = Some(key.to_wire());
        let request = v1::TriggerScheduleRequest { key, run: run.to_string() };
        Ok(Wire::from_wire(ask!(self, trigger_schedule, request)?)?)
    }

    async fn backfill_schedule(
        &self,
        key: ScheduleKey,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Backfilled, StoreError> {
        let request = v1::BackfillScheduleRequest {
            key: Some(key.to_wire()),
            from_us: from.as_micros(),
            until_us: until.as_micros(),
        };
        Ok(Wire::from_wire(ask!(self, backfill_schedule, request)?)?)
    }

    async fn list_fires(&self, key: ScheduleKey, limit: usize) -> Result<Vec<Fire>, StoreError> {
        let limit = Some(most(limit));
        let request = v1::ListFiresRequest { key: Some(key.to_wire()), limit };
        Ok(read_all("fires", ask!(self, list_fires, request)?.fires)?)
    }

    async fn fire_schedules(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.own("fire_schedules")?.fire_schedules(limit).await
    }
}

#[async_trait]
impl QueueStore for RemoteStore {
    async fn roll_up(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.own("roll_up")?.roll_up(limit).await
    }

    async fn list_queues(&self) -> Result<QueueList, StoreError> {
        Ok(Wire::from_wire(ask!(self, list_queues, v1::ListQueuesRequest {})?)?)
    }
}

#[async_trait]
impl QuotaStore for RemoteStore {
    async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        let v1::Done {} = ask!(self, set_quota, quota.to_wire())?;
        Ok(())
    }

    async fn clear_quota(&self, tenant: Option<Tenant>) -> Result<bool, StoreError> {
        let request = v1::ClearQuotaRequest { tenant: tenant.map(|tenant| tenant.to_string()) };
        Ok(ask!(self, clear_quota, request)?.was_there)
    }

    async fn list_quotas(&self) -> Result<Vec<Quota>, StoreError> {
        Ok(read_all("quotas", ask!(self, list_quotas, v1::ListQuotasRequest {})?.quotas)?)
    }

    async fn get_usage(&self, tenant: Tenant, at_most: u32) -> Result<Usage, StoreError> {
        let request = v1::GetUsageRequest { tenant: tenant.to_string(), at_most };
        Ok(Wire::from_wire(ask!(self, get_usage, request)?)?)
    }
}

#[async_trait]
impl DutyStore for RemoteStore {
    async fn claim_duties(&self, claim: DutyClaim) -> Result<DutyStanding, StoreError> {
        Ok(Wire::from_wire(ask!(self, claim_duties, claim.to_wire())?)?)
    }

    async fn renew_duties(
        &self,
        mandates: Vec<DutyMandate>,
        ttl: Duration,
    ) -> Result<Vec<DutyName>, StoreError> {
        let request =
            v1::RenewDutiesRequest { mandates: write_all(&mandates), ttl_us: micros(ttl) };
        let names = ask!(self, renew_duties, request)?.names;
        let names = names.iter().map(DutyName::new).collect::<Result<_, _>>();
        Ok(name("names", names)?)
    }

    async fn end_duty(&self, end: DutyEnd) -> Result<Option<(Timestamp, DutyRecord)>, StoreError> {
        let ended = ask!(self, end_duty, end.to_wire())?.ended;
        let read = |ended: v1::DutyEnded| Ok((time(ended.at_us), read("ended.duty", ended.duty)?));
        ended.map(read).transpose()
    }

    async fn list_duties(&self) -> Result<Vec<DutyRecord>, StoreError> {
        let reply = ask!(self, list_duties, v1::ListDutiesRequest {})?;
        Ok(read_all("duties", reply.duties)?)
    }

    async fn forget_duty(&self, name: DutyName) -> Result<bool, StoreError> {
        let request = v1::ForgetDutyRequest { name: name.to_string() };
        Ok(ask!(self, forget_duty, request)?.was_there)
    }
}
