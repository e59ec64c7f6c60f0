//! Tokens of one tenant.

use async_trait::async_trait;
use windlass_core::TokenId;

use super::ScopedStore;
use crate::store::tokens::{another_token, no_token};
use crate::store::{
    NewToken, StoreError, StoredToken, TokenFilter, TokenPage, TokenRecord, TokenStore,
};

impl ScopedStore {
    fn is_own_token(&self, token: &TokenRecord) -> bool {
        token.tenant.as_ref().is_some_and(|tenant| *tenant == self.tenant)
    }
}

#[async_trait]
impl TokenStore for ScopedStore {
    async fn create_token(&self, token: NewToken) -> Result<TokenRecord, StoreError> {
        match &token.tenant {
            Some(tenant) => self.check_tenant(tenant)?,
            None => return self.shared("a token for all tenants"),
        }
        let id = token.id;
        let record = self.store.create_token(token).await?;
        // A token of another tenant with this id and secret is taken, like any other id.
        if self.is_own_token(&record) { Ok(record) } else { Err(another_token(id)) }
    }

    async fn create_first_token(&self, _token: NewToken) -> Result<bool, StoreError> {
        self.shared("the first token")
    }

    async fn find_tokens(&self, ids: Vec<TokenId>) -> Result<Vec<StoredToken>, StoreError> {
        let mut found = self.store.find_tokens(ids).await?;
        found.retain(|token| self.is_own_token(&token.record));
        Ok(found)
    }

    async fn list_tokens(&self, filter: TokenFilter) -> Result<TokenPage, StoreError> {
        filter.tenant.as_ref().map_or(Ok(()), |said| self.check_tenant(said))?;
        let tenant = Some(self.tenant.clone());
        self.store.list_tokens(TokenFilter { tenant, ..filter }).await
    }

    async fn revoke_token(&self, id: TokenId) -> Result<TokenRecord, StoreError> {
        match self.find_tokens(vec![id]).await?.is_empty() {
            true => Err(no_token(id)),
            false => self.store.revoke_token(id).await,
        }
    }

    async fn touch_tokens(&self, ids: Vec<TokenId>) -> Result<(), StoreError> {
        let found = self.find_tokens(ids).await?;
        self.store.touch_tokens(found.iter().map(|it| it.record.id).collect()).await
    }
}
