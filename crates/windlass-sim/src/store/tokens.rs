//! The verbs of tokens, over a link with faults.

use async_trait::async_trait;
use windlass::store::{
    NewToken, StoreError, StoredToken, TokenFilter, TokenPage, TokenRecord, TokenStore,
};
use windlass_core::TokenId;

use super::FaultyStore;
use crate::faults::Verb;

#[async_trait]
impl TokenStore for FaultyStore {
    async fn create_token(&self, token: NewToken) -> Result<TokenRecord, StoreError> {
        self.deliver(Verb::Retry, token, |world, token| {
            Box::pin(async move { world.store.create_token(token).await })
        })
        .await
    }

    async fn create_first_token(&self, token: NewToken) -> Result<bool, StoreError> {
        self.deliver(Verb::Retry, token, |world, token| {
            Box::pin(async move { world.store.create_first_token(token).await })
        })
        .await
    }

    async fn find_tokens(&self, ids: Vec<TokenId>) -> Result<Vec<StoredToken>, StoreError> {
        self.deliver(Verb::Read, ids, |world, ids| {
            Box::pin(async move { world.store.find_tokens(ids).await })
        })
        .await
    }

    async fn list_tokens(&self, filter: TokenFilter) -> Result<TokenPage, StoreError> {
        self.deliver(Verb::Read, filter, |world, filter| {
            Box::pin(async move { world.store.list_tokens(filter).await })
        })
        .await
    }

    async fn revoke_token(&self, id: TokenId) -> Result<TokenRecord, StoreError> {
        self.deliver(Verb::Retry, id, |world, id| {
            Box::pin(async move { world.store.revoke_token(id).await })
        })
        .await
    }

    async fn touch_tokens(&self, ids: Vec<TokenId>) -> Result<(), StoreError> {
        self.deliver(Verb::Read, ids, |world, ids| {
            Box::pin(async move { world.store.touch_tokens(ids).await })
        })
        .await
    }
}
