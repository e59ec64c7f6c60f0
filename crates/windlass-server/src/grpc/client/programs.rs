//! What programs declare: schedules, and duties of their own.

use std::time::Duration;

use serde_json::json;
use windlass::store::{
    Action, DutyClaim, DutyEnd, DutyMandate, FIRES_KEPT, NewSchedule, PROCESS_DUTIES_MAX,
    SCHEDULES_MAX, ScheduleFilter, ScheduleKey, SchedulePage, StoreError,
};
use windlass::wire::{Wire, WireError, name, name_some, parse, read, read_all, time, write_all};
use windlass::worker::SETTING_MAX;
use windlass_core::{DutyName, ScheduleOwner, Tenant};
use windlass_proto::v1;

use super::pages::{first, shorter};
use super::{Caller, Refused};
use crate::notes::About;
use crate::pages::PageReader;

/// Refuses more than a store would have.
fn check(field: &str, len: usize, max: usize) -> Result<(), WireError> {
    if len > max {
        return Err(WireError::new(field, format!("has {len} items, the limit is {max}")));
    }
    Ok(())
}

/// Refuses a lease that nobody would live to see the end of.
fn check_ttl(ttl_us: u64) -> Result<(), WireError> {
    let ttl = Duration::from_micros(ttl_us);
    if ttl > SETTING_MAX {
        return Err(WireError::new("ttl_us", format!("{ttl:?}, the limit is {SETTING_MAX:?}")));
    }
    Ok(())
}

pub(super) async fn put_schedule(
    caller: &Caller,
    message: v1::Schedule,
) -> Result<v1::ScheduleRecord, Refused> {
    let mut schedule = NewSchedule::from_wire(message)?;
    caller.identity.own_schedule(&mut schedule).await?;
    let _turn = caller.quotas.admit_schedule(&caller.identity, &schedule).await?;
    let noted = caller.identity.note_put(&schedule).await?;
    Ok(noted.perform(caller.store.put_schedule(schedule)).await?.to_wire())
}

pub(super) async fn get_schedule(
    caller: &Caller,
    message: v1::GetScheduleRequest,
) -> Result<v1::GetScheduleReply, Refused> {
    let schedule = caller.store.get_schedule(read("key", message.key)?).await?;
    Ok(v1::GetScheduleReply { schedule: schedule.as_ref().map(Wire::to_wire) })
}

pub(super) async fn list_schedules(
    caller: &Caller,
    message: v1::ListSchedulesRequest,
) -> Result<v1::SchedulePage, Refused> {
    let _turn = caller.identity.begin_list().await?;
    let mut limit = first(message.limit);
    let filter = ScheduleFilter::from_wire(message)?;
    loop {
        let page = read_schedules(caller, &filter, limit).await?.to_wire();
        match shorter(&page, limit) {
            Some(half) => limit = half,
            None => return Ok(page),
        }
    }
}

async fn read_schedules(
    caller: &Caller,
    filter: &ScheduleFilter,
    limit: usize,
) -> Result<SchedulePage, StoreError> {
    let mut whole = SchedulePage::default();
    let (after, payload_limit) = (filter.after.clone(), caller.store.payload_limit());
    let mut reader = PageReader::new(limit, payload_limit, after);
    while let Some((after, limit)) = reader.next_chunk() {
        let filter = ScheduleFilter { after, limit, ..filter.clone() };
        let page = caller.store.list_schedules(filter).await?;
        reader.add_with_next(&page.schedules, page.next);
        whole.schedules.extend(page.schedules);
        whole.unreadable.extend(page.unreadable);
    }
    Ok(SchedulePage { next: reader.end(), ..whole })
}

pub(super) async fn pause_schedule(
    caller: &Caller,
    message: v1::PauseScheduleRequest,
) -> Result<v1::Done, Refused> {
    let key = read("key", message.key)?;
    caller.identity.find_schedule(&key).await?;
    let noted = caller.identity.note_schedule(Action::PauseSchedule, &key).await?;
    noted.perform(caller.store.pause_schedule(key)).await?;
    Ok(v1::Done {})
}

pub(super) async fn resume_schedule(
    caller: &Caller,
    message: v1::ResumeScheduleRequest,
) -> Result<v1::Done, Refused> {
    let key = read("key", message.key)?;
    caller.identity.find_schedule(&key).await?;
    let noted = caller.identity.note_schedule(Action::ResumeSchedule, &key).await?;
    noted.perform(caller.store.resume_schedule(key)).await?;
    Ok(v1::Done {})
}

pub(super) async fn delete_schedule(
    caller: &Caller,
    message: v1::DeleteScheduleRequest,
) -> Result<v1::Done, Refused> {
    let key: ScheduleKey = read("key", message.key)?;
    if caller.store.get_schedule(key.clone()).await?.is_some() {
        let noted = caller.identity.note_schedule(Action::DeleteSchedule, &key).await?;
        noted.perform(caller.store.delete_schedule(key)).await?;
    }
    Ok(v1::Done {})
}

pub(super) async fn disable_schedules(
    caller: &Caller,
    message: v1::DisableSchedulesRequest,
) -> Result<v1::DisableSchedulesReply, Refused> {
    check("declared", message.declared.len(), SCHEDULES_MAX)?;
    let owner = name("owner", ScheduleOwner::new(&message.owner))?;
    let declared: Vec<ScheduleKey> = read_all("declared", message.declared)?;
    let tenant = name_some("tenant", message.tenant, Tenant::new)?;
    let tenant = caller.identity.looks_at(tenant)?;
    let disabled = caller.store.disable_schedules(owner.clone(), tenant.clone(), declared).await?;
    caller.identity.note_disabled(&owner, tenant, &disabled).await?;
    Ok(v1::DisableSchedulesReply { disabled: write_all(&disabled) })
}

pub(super) async fn trigger_schedule(
    caller: &Caller,
    message: v1::TriggerScheduleRequest,
) -> Result<v1::Started, Refused> {
    let (key, run): (ScheduleKey, _) = (read("key", message.key)?, parse("run", &message.run)?);
    let schedule = caller.identity.find_schedule(&key).await?.schedule;
    let _admitted = caller.quotas.admit_fires(&caller.identity, &schedule, 1).await?;
    let noted = caller.identity.note_schedule(Action::TriggerSchedule, &key).await?;
    Ok(noted.perform(caller.store.trigger_schedule(key, run)).await?.to_wire())
}

pub(super) async fn backfill_schedule(
    caller: &Caller,
    message: v1::BackfillScheduleRequest,
) -> Result<v1::BackfillScheduleReply, Refused> {
    let (from, until) = (time(message.from_us), time(message.until_us));
    let key: ScheduleKey = read("key", message.key)?;
    let record = caller.identity.find_schedule(&key).await?;
    let count = record.past(from, until, caller.store.now().await?)?.len();
    let _admitted = caller.quotas.admit_fires(&caller.identity, &record.schedule, count).await?;
    let noted = caller.identity.note_backfill(&key, from, until).await?;
    Ok(noted.perform(caller.store.backfill_schedule(key, from, until)).await?.to_wire())
}

pub(super) async fn list_fires(
    caller: &Caller,
    message: v1::ListFiresRequest,
) -> Result<v1::ListFiresReply, Refused> {
    let limit = message.limit.map_or(FIRES_KEPT, |limit| limit as usize);
    let fires = caller.store.list_fires(read("key", message.key)?, limit).await?;
    Ok(v1::ListFiresReply { fires: write_all(&fires) })
}

pub(super) async fn claim_duties(
    caller: &Caller,
    message: v1::ClaimDutiesRequest,
) -> Result<v1::ClaimDutiesReply, Refused> {
    check_ttl(message.ttl_us)?;
    Ok(caller.store.claim_duties(DutyClaim::from_wire(message)?).await?.to_wire())
}

pub(super) async fn renew_duties(
    caller: &Caller,
    message: v1::RenewDutiesRequest,
) -> Result<v1::RenewDutiesReply, Refused> {
    check("mandates", message.mandates.len(), PROCESS_DUTIES_MAX)?;
    check_ttl(message.ttl_us)?;
    let mandates: Vec<DutyMandate> = read_all("mandates", message.mandates)?;
    let ttl = Duration::from_micros(message.ttl_us);
    let names = caller.store.renew_duties(mandates, ttl).await?;
    Ok(v1::RenewDutiesReply { names: names.iter().map(ToString::to_string).collect() })
}

pub(super) async fn end_duty(
    caller: &Caller,
    message: v1::EndDutyRequest,
) -> Result<v1::EndDutyReply, Refused> {
    let ended = caller.store.end_duty(DutyEnd::from_wire(message)?).await?;
    let ended =
        ended.map(|(at, duty)| v1::DutyEnded { at_us: at.as_micros(), duty: Some(duty.to_wire()) });
    Ok(v1::EndDutyReply { ended })
}

pub(super) async fn list_duties(
    caller: &Caller,
    v1::ListDutiesRequest {}: v1::ListDutiesRequest,
) -> Result<v1::ListDutiesReply, Refused> {
    let duties = caller.store.list_duties().await?;
    Ok(v1::ListDutiesReply { duties: write_all(&duties) })
}

pub(super) async fn forget_duty(
    caller: &Caller,
    message: v1::ForgetDutyRequest,
) -> Result<v1::ForgetDutyReply, Refused> {
    let duty = name("name", DutyName::new(&message.name))?;
    let (what, detail) = (format!("duty {:?}", message.name), json!({ "duty": &duty }));
    let noted = caller.identity.note(Action::ForgetDuty, About::all(), Some(detail)).await?;
    let was_there = noted.delete(what, caller.store.forget_duty(duty)).await?;
    Ok(v1::ForgetDutyReply { was_there })
}
