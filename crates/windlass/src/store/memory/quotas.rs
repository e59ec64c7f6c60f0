//! Quotas, and what they count.

use std::collections::BTreeMap;

use async_trait::async_trait;
use windlass_core::Tenant;

use super::MemoryStore;
use crate::store::quotas::too_many;
use crate::store::{QUOTAS_MAX, Quota, QuotaStore, StoreError, Usage};

/// Quotas by whose they are.
pub(super) type Quotas = BTreeMap<Option<Tenant>, Quota>;

#[async_trait]
impl QuotaStore for MemoryStore {
    async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        quota.check().map_err(StoreError::Conflict)?;
        self.transact(|state| {
            if state.quotas.len() >= QUOTAS_MAX && !state.quotas.contains_key(&quota.tenant) {
                return Err(too_many());
            }
            state.quotas.insert(quota.tenant.clone(), quota);
            Ok(())
        })
    }

    async fn clear_quota(&self, tenant: Option<Tenant>) -> Result<bool, StoreError> {
        Ok(self.transact(|state| state.quotas.remove(&tenant).is_some()))
    }

    async fn list_quotas(&self) -> Result<Vec<Quota>, StoreError> {
        Ok(self.transact(|state| state.quotas.values().cloned().collect()))
    }

    async fn get_usage(&self, tenant: Tenant, at_most: u32) -> Result<Usage, StoreError> {
        let cut = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).min(at_most);
        Ok(self.transact(|state| Usage {
            ready_tasks: cut(state.shared.ready.count_of(&tenant)),
            schedules: cut(state.schedules.count_of(&tenant)),
        }))
    }
}
