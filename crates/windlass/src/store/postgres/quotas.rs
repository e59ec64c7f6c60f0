//! Quotas, and what they count.

use async_trait::async_trait;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use windlass_core::Tenant;

use super::PostgresStore;
use super::fault::Fault;
use super::repeat::repeat;
use super::statements as sql;
use crate::store::quotas::too_many;
use crate::store::{QUOTAS_MAX, Quota, QuotaStore, StoreError, Usage};

#[async_trait]
impl QuotaStore for PostgresStore {
    async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        quota.check().map_err(StoreError::Conflict)?;
        repeat!(self.set_quota_once(&quota))
    }

    async fn clear_quota(&self, tenant: Option<Tenant>) -> Result<bool, StoreError> {
        repeat!(self.clear_quota_once(tenant.as_ref()))
    }

    async fn list_quotas(&self) -> Result<Vec<Quota>, StoreError> {
        repeat!(self.list_quotas_once())
    }

    async fn get_usage(&self, tenant: Tenant, at_most: u32) -> Result<Usage, StoreError> {
        repeat!(self.get_usage_once(&tenant, at_most))
    }
}

/// The name of a tenant, empty for all.
fn name(tenant: Option<&Tenant>) -> &str {
    tenant.map_or("", Tenant::as_str)
}

/// A number as it is stored; within the limits of a quota it is itself.
fn stored(value: Option<u32>) -> Option<i32> {
    value.map(|value| i32::try_from(value).unwrap_or(i32::MAX))
}

fn quota(row: &Row) -> Result<Quota, Fault> {
    let number = |column| row.get::<_, Option<i32>>(column).map(i32::unsigned_abs);
    let tenant = Some(row.get::<_, &str>("tenant")).filter(|name| !name.is_empty());
    let wrong = |error| StoreError::Corrupt(format!("a quota: {error}"));
    Ok(Quota {
        tenant: tenant.map(Tenant::new).transpose().map_err(wrong)?,
        starts_per_second: number("starts_per_second"),
        backlog_max: number("backlog_max"),
        payload_bytes_max: number("payload_bytes_max"),
        payload_bytes_per_second: number("payload_bytes_per_second"),
        schedules_max: number("schedules_max"),
        tasks_max: number("tasks_max"),
    })
}

impl PostgresStore {
    async fn set_quota_once(&self, quota: &Quota) -> Result<(), Fault> {
        let tenant = name(quota.tenant.as_ref());
        let values = quota.limits().map(|(_, value)| stored(value));
        let most = i64::try_from(QUOTAS_MAX).unwrap_or(i64::MAX);
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&tenant];
        params.extend(values.iter().map(|value| value as &(dyn ToSql + Sync)));
        params.push(&most);
        match self.read(&sql::SET_QUOTA, &params).await?.is_empty() {
            true => Err(too_many().into()),
            false => Ok(()),
        }
    }

    async fn clear_quota_once(&self, tenant: Option<&Tenant>) -> Result<bool, Fault> {
        Ok(!self.read(&sql::CLEAR_QUOTA, &[&name(tenant)]).await?.is_empty())
    }

    async fn list_quotas_once(&self) -> Result<Vec<Quota>, Fault> {
        self.read(&sql::LIST_QUOTAS, &[]).await?.iter().map(quota).collect()
    }

    async fn get_usage_once(&self, tenant: &Tenant, at_most: u32) -> Result<Usage, Fault> {
        let rows = self.read(&sql::GET_USAGE, &[&tenant.as_str(), &i64::from(at_most)]).await?;
        let count = |column| {
            let count = rows.first().map_or(0, |row| row.get::<_, i64>(column));
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        Ok(Usage { ready_tasks: count("ready_tasks"), schedules: count("schedules") })
    }
}
