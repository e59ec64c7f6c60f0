//! Quotas are set for tenants, not by them.

use async_trait::async_trait;
use windlass_core::Tenant;

use super::ScopedStore;
use crate::store::{Quota, QuotaStore, StoreError, Usage};

#[async_trait]
impl QuotaStore for ScopedStore {
    async fn set_quota(&self, _quota: Quota) -> Result<(), StoreError> {
        self.shared("to set quotas")
    }

    async fn clear_quota(&self, _tenant: Option<Tenant>) -> Result<bool, StoreError> {
        self.shared("to delete quotas")
    }

    async fn list_quotas(&self) -> Result<Vec<Quota>, StoreError> {
        self.shared("to list quotas")
    }

    async fn get_usage(&self, tenant: Tenant, at_most: u32) -> Result<Usage, StoreError> {
        self.check_tenant(&tenant)?;
        self.store.get_usage(tenant, at_most).await
    }
}
