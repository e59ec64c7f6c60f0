//! The verbs of quotas, over a link with faults.

use async_trait::async_trait;
use windlass::Tenant;
use windlass::store::{Quota, QuotaStore, StoreError, Usage};

use super::FaultyStore;
use crate::faults::Verb;

#[async_trait]
impl QuotaStore for FaultyStore {
    async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        self.deliver(Verb::Read, quota, |world, quota| {
            Box::pin(async move { world.store.set_quota(quota).await })
        })
        .await
    }

    async fn clear_quota(&self, tenant: Option<Tenant>) -> Result<bool, StoreError> {
        self.deliver(Verb::Read, tenant, |world, tenant| {
            Box::pin(async move { world.store.clear_quota(tenant).await })
        })
        .await
    }

    async fn list_quotas(&self) -> Result<Vec<Quota>, StoreError> {
        self.deliver(Verb::Read, (), |world, ()| {
            Box::pin(async move { world.store.list_quotas().await })
        })
        .await
    }

    async fn get_usage(&self, tenant: Tenant, at_most: u32) -> Result<Usage, StoreError> {
        self.deliver(Verb::Read, (tenant, at_most), |world, (tenant, at_most)| {
            Box::pin(async move { world.store.get_usage(tenant, at_most).await })
        })
        .await
    }
}
