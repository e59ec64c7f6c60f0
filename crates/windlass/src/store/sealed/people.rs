//! Tokens and quotas: nothing of theirs is a value of anyone's.

use async_trait::async_trait;
use windlass_core::{Tenant, TokenId};

use super::SealedStore;
use crate::store::{
    NewToken, Quota, QuotaStore, StoreError, StoredToken, TokenFilter, TokenPage, TokenRecord,
    TokenStore, Usage,
};

#[async_trait]
impl TokenStore for SealedStore {
    async fn create_token(&self, token: NewToken) -> Result<TokenRecord, StoreError> {
        self.inner.create_token(token).await
    }

    async fn create_first_token(&self, token: NewToken) -> Result<bool, StoreError> {
        self.inner.create_first_token(token).await
    }

    async fn find_tokens(&self, ids: Vec<TokenId>) -> Result<Vec<StoredToken>, StoreError> {
        self.inner.find_tokens(ids).await
    }

    async fn list_tokens(&self, filter: TokenFilter) -> Result<TokenPage, StoreError> {
        self.inner.list_tokens(filter).await
    }

    async fn revoke_token(&self, id: TokenId) -> Result<TokenRecord, StoreError> {
        self.inner.revoke_token(id).await
    }

    async fn touch_tokens(&self, ids: Vec<TokenId>) -> Result<(), StoreError> {
        self.inner.touch_tokens(ids).await
    }
}

#[async_trait]
impl QuotaStore for SealedStore {
    async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        self.inner.set_quota(quota).await
    }

    async fn clear_quota(&self, tenant: Option<Tenant>) -> Result<bool, StoreError> {
        self.inner.clear_quota(tenant).await
    }

    async fn list_quotas(&self) -> Result<Vec<Quota>, StoreError> {
        self.inner.list_quotas().await
    }

    async fn get_usage(&self, tenant: Tenant, at_most: u32) -> Result<Usage, StoreError> {
        self.inner.get_usage(tenant, at_most).await
    }
}
