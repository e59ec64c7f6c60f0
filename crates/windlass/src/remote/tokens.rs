//! The verbs of tokens, said to a server.

use async_trait::async_trait;
use windlass_core::TokenId;
use windlass_proto::v1;

use super::{RemoteStore, ask};
use crate::store::{
    NewToken, StoreError, StoredToken, TokenFilter, TokenPage, TokenRecord, TokenStore,
};
use crate::wire::Wire;

#[async_trait]
impl TokenStore for RemoteStore {
    async fn create_token(&self, token: NewToken) -> Result<TokenRecord, StoreError> {
        Ok(Wire::from_wire(ask!(self, create_token, token.to_wire())?)?)
    }

    async fn create_first_token(&self, token: NewToken) -> Result<bool, StoreError> {
        self.own("create_first_token")?.create_first_token(token).await
    }

    async fn find_tokens(&self, ids: Vec<TokenId>) -> Result<Vec<StoredToken>, StoreError> {
        self.own("find_tokens")?.find_tokens(ids).await
    }

    async fn list_tokens(&self, filter: TokenFilter) -> Result<TokenPage, StoreError> {
        Ok(Wire::from_wire(ask!(self, list_tokens, filter.to_wire())?)?)
    }

    async fn revoke_token(&self, id: TokenId) -> Result<TokenRecord, StoreError> {
        let request = v1::RevokeTokenRequest { id: id.to_string() };
        Ok(Wire::from_wire(ask!(self, revoke_token, request)?)?)
    }

    async fn touch_tokens(&self, ids: Vec<TokenId>) -> Result<(), StoreError> {
        self.own("touch_tokens")?.touch_tokens(ids).await
    }
}
