//! Tokens in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use windlass_core::{Timestamp, TokenId};

use super::MemoryStore;
use crate::store::tokens::{another_token, first_token, no_token, too_many};
use crate::store::{
    NewToken, PAGE_MAX, StoreError, StoredToken, TOKEN_KEPT, TOKENS_MAX, TokenCursor, TokenFilter,
    TokenPage, TokenRecord, TokenStore, TokenTag,
};

/// All tokens, by their ids.
#[derive(Default)]
pub(super) struct Tokens(BTreeMap<TokenId, (TokenRecord, TokenTag)>);

impl Tokens {
    fn create(&mut self, token: NewToken, now: Timestamp) -> Result<TokenRecord, StoreError> {
        let NewToken { id, tag, name, roles, tenant, expires_at } = token;
        if let Some((record, there)) = self.0.get(&id) {
            return if *there == tag { Ok(record.clone()) } else { Err(another_token(id)) };
        }
        let is_gone = |end: Option<Timestamp>| end.is_some_and(|end| end + TOKEN_KEPT <= now);
        self.0.retain(|_, (it, _)| !is_gone(it.revoked_at) && !is_gone(it.expires_at));
        let of_it = self.0.values().map(|(it, _)| it).filter(|it| it.tenant == tenant);
        let excess = (of_it.clone().count() + 1).saturating_sub(TOKENS_MAX);
        let ended_at = |it: &TokenRecord| {
            let ends = [it.revoked_at, it.expires_at].into_iter().flatten();
            ends.min().filter(|end| *end <= now)
        };
        let mut over: Vec<_> = of_it.filter_map(|it| Some((ended_at(it)?, it.id))).collect();
        over.sort();
        over.truncate(excess);
        if over.len() < excess {
            return Err(too_many(tenant.as_ref()));
        }
        self.0.retain(|id, _| !over.iter().any(|(_, over)| over == id));
        let (last_used_at, revoked_at) = (None, None);
        let created_at = now;
        let record = TokenRecord {
            id,
            name,
            roles,
            tenant,
            created_at,
            expires_at,
            last_used_at,
            revoked_at,
        };
        self.0.insert(id, (record.clone(), tag));
        Ok(record)
    }

    fn list(&self, filter: &TokenFilter) -> TokenPage {
        let limit = if filter.limit == 0 { PAGE_MAX } else { filter.limit.min(PAGE_MAX) };
        let place = |it: &TokenRecord| TokenCursor { created_at: it.created_at, id: it.id };
        let is_asked_for = |it: &&TokenRecord| {
            filter.tenant.as_ref().is_none_or(|tenant| it.tenant.as_ref() == Some(tenant))
                && filter.after.is_none_or(|after| place(it) < after)
        };
        let mut all: Vec<TokenRecord> =
            self.0.values().map(|(it, _)| it).filter(is_asked_for).cloned().collect();
        all.sort_by_key(|it| std::cmp::Reverse(place(it)));
        TokenPage::cut(all, limit)
    }
}

#[async_trait]
impl TokenStore for MemoryStore {
    async fn create_token(&self, token: NewToken) -> Result<TokenRecord, StoreError> {
        self.transact(|state| state.tokens.create(token, state.shared.now))
    }

    async fn create_first_token(&self, token: NewToken) -> Result<bool, StoreError> {
        self.transact(|state| {
            let Tokens(all) = &state.tokens;
            let has_it = all.get(&token.id).is_some_and(|(_, tag)| *tag == token.tag);
            if !all.is_empty() && !has_it {
                return Ok(false);
            }
            state.log(first_token(&token)?)?;
            state.tokens.create(token, state.shared.now).map(|_| true)
        })
    }

    async fn find_tokens(&self, ids: Vec<TokenId>) -> Result<Vec<StoredToken>, StoreError> {
        Ok(self.transact(|state| {
            let (Tokens(all), at) = (&state.tokens, state.shared.now);
            let stored = |(record, tag): &(TokenRecord, TokenTag)| StoredToken {
                record: record.clone(),
                tag: *tag,
                at,
            };
            ids.iter().filter_map(|id| all.get(id)).map(stored).collect()
        }))
    }

    async fn list_tokens(&self, filter: TokenFilter) -> Result<TokenPage, StoreError> {
        Ok(self.transact(|state| state.tokens.list(&filter)))
    }

    async fn revoke_token(&self, id: TokenId) -> Result<TokenRecord, StoreError> {
        self.transact(|state| {
            let now = state.shared.now;
            let (record, _) = state.tokens.0.get_mut(&id).ok_or_else(|| no_token(id))?;
            record.revoked_at.get_or_insert(now);
            Ok(record.clone())
        })
    }

    async fn touch_tokens(&self, ids: Vec<TokenId>) -> Result<(), StoreError> {
        self.transact(|state| {
            for id in ids {
                if let Some((record, _)) = state.tokens.0.get_mut(&id) {
                    record.last_used_at = Some(state.shared.now);
                }
            }
        });
        Ok(())
    }
}
