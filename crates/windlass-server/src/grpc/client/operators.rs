//! What operators look at and do.

use serde_json::json;
use windlass::store::{
    Action, DeadLetterFilter, Discard, LogFilter, NewLogEntry, PAGE_MAX, Quota, Redrive,
    RetentionRule, WorkerFilter, WorkflowFilter,
};
use windlass::wire::{Wire, WireError, name, name_some, parse, read_some, write_all};
use windlass_core::{RunState, Tenant, Weight, WorkflowName};
use windlass_proto::v1;

use super::pages::{first, shorter};
use super::{Caller, Refused};
use crate::notes::{About, quota_of};

pub(super) async fn list_dead_letters(
    caller: &Caller,
    message: v1::ListDeadLettersRequest,
) -> Result<v1::DeadLetterPage, Refused> {
    let _turn = caller.identity.begin_list().await?;
    let filter: DeadLetterFilter = read_some("filter", message.filter)?.unwrap_or_default();
    let after = read_some("after", message.after)?;
    let mut limit = message.limit.map_or(PAGE_MAX, |limit| limit as usize);
    loop {
        let page = caller.store.list_dead_letters(filter.clone(), after, limit).await?.to_wire();
        match shorter(&page, limit) {
            Some(half) => limit = half,
            None => return Ok(page),
        }
    }
}

pub(super) async fn redrive_dead_letters(
    caller: &Caller,
    message: v1::RedriveRequest,
) -> Result<v1::RedriveReply, Refused> {
    let redrive = Redrive { by: caller.identity.author(), ..Redrive::from_wire(message)? };
    Ok(caller.store.redrive(redrive).await?.to_wire())
}

pub(super) async fn discard_dead_letters(
    caller: &Caller,
    message: v1::DiscardRequest,
) -> Result<v1::DiscardReply, Refused> {
    let discard = Discard { by: caller.identity.author(), ..Discard::from_wire(message)? };
    Ok(caller.store.discard(discard).await?.to_wire())
}

pub(super) fn write_log(message: v1::NewLogEntry) -> Result<v1::Done, Refused> {
    // A server writes down what it does, and nobody else what they say they did.
    NewLogEntry::from_wire(message)?;
    Ok(v1::Done {})
}

pub(super) async fn list_log(
    caller: &Caller,
    message: v1::ListLogRequest,
) -> Result<v1::LogPage, Refused> {
    let _turn = caller.identity.begin_list().await?;
    let mut limit = first(message.limit);
    let filter = LogFilter::from_wire(message)?;
    caller.identity.may_search_by_author(filter.by.as_ref())?;
    loop {
        let filter = LogFilter { limit, ..filter.clone() };
        let mut page = caller.store.list_log(filter).await?;
        caller.identity.redact(&mut page.entries);
        let page = page.to_wire();
        match shorter(&page, limit) {
            Some(half) => limit = half,
            None => return Ok(page),
        }
    }
}

/// How far the ready tasks and schedules of a tenant are counted at most.
const USAGE_MAX: u32 = 100_000;

pub(super) async fn set_retention(
    caller: &Caller,
    message: v1::RetentionRule,
) -> Result<v1::Done, Refused> {
    let rule = RetentionRule::from_wire(message)?;
    let noted = caller.identity.note_retention(&rule).await?;
    noted.perform(caller.store.set_retention(rule)).await?;
    Ok(v1::Done {})
}

pub(super) async fn clear_retention(
    caller: &Caller,
    message: v1::ClearRetentionRequest,
) -> Result<v1::ClearRetentionReply, Refused> {
    let workflow = name_some("workflow", message.workflow, WorkflowName::new)?;
    let state = RunState::from_wire(message.state)?;
    let detail = json!({ "workflow": &workflow, "state": state.word() });
    let noted = caller.identity.note(Action::ClearRetention, About::all(), Some(detail)).await?;
    let what = format!("a rule for runs that are {state}");
    let was_there = noted.delete(what, caller.store.clear_retention(workflow, state)).await?;
    Ok(v1::ClearRetentionReply { was_there })
}

pub(super) async fn list_retention(
    caller: &Caller,
    v1::ListRetentionRequest {}: v1::ListRetentionRequest,
) -> Result<v1::ListRetentionReply, Refused> {
    let rules = caller.store.list_retention().await?;
    Ok(v1::ListRetentionReply { rules: write_all(&rules) })
}

pub(super) async fn get_archived_run(
    caller: &Caller,
    message: v1::GetArchivedRunRequest,
) -> Result<v1::GetArchivedRunReply, Refused> {
    let run = caller.store.get_archived_run(parse("run", &message.run)?).await?;
    Ok(v1::GetArchivedRunReply { run: run.as_ref().map(Wire::to_wire) })
}

pub(super) async fn set_weight(
    caller: &Caller,
    message: v1::SetWeightRequest,
) -> Result<v1::Done, Refused> {
    let tenant = name("tenant", Tenant::new(&message.tenant))?;
    let weight = u16::try_from(message.weight).ok().and_then(Weight::new);
    let wrong = || WireError::new("weight", format!("{} is not within 1 to 1000", message.weight));
    let weight = weight.ok_or_else(wrong)?;
    let detail = json!({ "weight": message.weight });
    let noted = caller.identity.note(Action::SetWeight, tenant.clone(), Some(detail)).await?;
    noted.perform(caller.store.set_weight(tenant, weight)).await?;
    Ok(v1::Done {})
}

pub(super) async fn set_quota(caller: &Caller, message: v1::Quota) -> Result<v1::Done, Refused> {
    let quota = Quota::from_wire(message)?;
    let noted = caller.identity.note_quota(&quota).await?;
    noted.perform(caller.store.set_quota(quota)).await?;
    caller.quotas.forget();
    Ok(v1::Done {})
}

pub(super) async fn clear_quota(
    caller: &Caller,
    message: v1::ClearQuotaRequest,
) -> Result<v1::ClearQuotaReply, Refused> {
    let tenant = name_some("tenant", message.tenant, Tenant::new)?;
    let noted = caller.identity.note(Action::ClearQuota, tenant.clone(), None).await?;
    let what = quota_of(tenant.as_ref());
    let was_there = noted.delete(what, caller.store.clear_quota(tenant)).await?;
    caller.quotas.forget();
    Ok(v1::ClearQuotaReply { was_there })
}

pub(super) async fn list_quotas(
    caller: &Caller,
    v1::ListQuotasRequest {}: v1::ListQuotasRequest,
) -> Result<v1::ListQuotasReply, Refused> {
    Ok(v1::ListQuotasReply { quotas: write_all(&caller.store.list_quotas().await?) })
}

pub(super) async fn get_usage(
    caller: &Caller,
    message: v1::GetUsageRequest,
) -> Result<v1::GetUsageReply, Refused> {
    let tenant = name("tenant", Tenant::new(&message.tenant))?;
    Ok(caller.store.get_usage(tenant, message.at_most.min(USAGE_MAX)).await?.to_wire())
}

pub(super) async fn list_workflows(
    caller: &Caller,
    message: v1::ListWorkflowsRequest,
) -> Result<v1::WorkflowPage, Refused> {
    let filter = WorkflowFilter::from_wire(message)?;
    Ok(caller.store.list_workflows(filter).await?.to_wire())
}

pub(super) async fn list_workers(
    caller: &Caller,
    message: v1::ListWorkersRequest,
) -> Result<v1::WorkerPage, Refused> {
    let mut limit = first(message.limit);
    let filter = WorkerFilter::from_wire(message)?;
    loop {
        let filter = WorkerFilter { limit, ..filter.clone() };
        let page = caller.store.list_workers(filter).await?.to_wire();
        match shorter(&page, limit) {
            Some(half) => limit = half,
            None => return Ok(page),
        }
    }
}

pub(super) async fn list_leaders(
    caller: &Caller,
    v1::ListLeadersRequest {}: v1::ListLeadersRequest,
) -> Result<v1::ListLeadersReply, Refused> {
    let leaders = caller.store.list_leaders().await?;
    Ok(v1::ListLeadersReply { leaders: write_all(&leaders) })
}

pub(super) async fn list_queues(
    caller: &Caller,
    v1::ListQueuesRequest {}: v1::ListQueuesRequest,
) -> Result<v1::QueueList, Refused> {
    Ok(caller.store.list_queues().await?.to_wire())
}

pub(super) async fn get_time(
    caller: &Caller,
    v1::GetTimeRequest {}: v1::GetTimeRequest,
) -> Result<v1::GetTimeReply, Refused> {
    Ok(v1::GetTimeReply { now_us: caller.store.now().await?.as_micros() })
}
