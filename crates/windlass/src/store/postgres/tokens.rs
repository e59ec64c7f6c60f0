//! Tokens as rows.

use async_trait::async_trait;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use windlass_core::{Operator, Role, Roles, Tenant, TokenId};

use super::PostgresStore;
use super::fault::Fault;
use super::pool::Tx;
use super::repeat::repeat;
use super::statements as sql;
use super::time::At;
use super::writes::Writes;
use crate::store::tokens::{another_token, first_token, no_token, too_many};
use crate::store::{
    NewToken, PAGE_MAX, StoreError, StoredToken, TOKEN_KEPT, TOKENS_MAX, TokenFilter, TokenPage,
    TokenRecord, TokenStore, TokenTag,
};

fn wrong(id: TokenId, error: impl std::fmt::Display) -> Fault {
    StoreError::Corrupt(format!("token {id}: {error}")).into()
}

fn record_of(row: &Row) -> Result<TokenRecord, Fault> {
    let id: TokenId = row.get::<_, &str>("id").parse().map_err(|error| {
        Fault::from(StoreError::Corrupt(format!("a token has an id that is none: {error}")))
    })?;
    let time = |column| row.get::<_, Option<At>>(column).map(|at| at.0);
    let roles: Vec<&str> = row.get("roles");
    let roles = roles.into_iter().map(str::parse).collect::<Result<Vec<Role>, _>>();
    let roles = Roles::of(roles.map_err(|error| wrong(id, error))?);
    let tenant: Option<&str> = row.get("tenant");
    Ok(TokenRecord {
        id,
        name: Operator::new(row.get::<_, &str>("name")).map_err(|error| wrong(id, error))?,
        roles: roles.ok_or_else(|| wrong(id, "it has no role"))?,
        tenant: tenant.map(Tenant::new).transpose().map_err(|error| wrong(id, error))?,
        created_at: row.get::<_, At>("created_at").0,
        expires_at: time("expires_at"),
        last_used_at: time("last_used_at"),
        revoked_at: time("revoked_at"),
    })
}

fn stored_of(row: &Row) -> Result<StoredToken, Fault> {
    let record = record_of(row)?;
    let tag = row.get::<_, &[u8]>("tag").try_into();
    let tag = TokenTag(tag.map_err(|_| wrong(record.id, "its tag is cut"))?);
    Ok(StoredToken { record, tag, at: row.get::<_, At>("at").0 })
}

impl PostgresStore {
    /// Makes a token known; whoever made it before with the same secret is answered the same.
    async fn create_in(&self, tx: &Tx<'_>, token: &NewToken) -> Result<TokenRecord, Fault> {
        let NewToken { id, tag, name, roles, tenant, expires_at } = token;
        let (id_text, name, tag_bytes) = (id.as_str(), name.as_str(), tag.0.as_slice());
        let roles: Vec<&str> = roles.iter().map(Role::word).collect();
        let tenant = tenant.as_ref().map(Tenant::as_str);
        let (expires_at, clock) = (expires_at.map(At), self.test_time());
        let most = i64::try_from(TOKENS_MAX).unwrap_or(i64::MAX);
        let kept = i64::try_from(TOKEN_KEPT.as_micros()).unwrap_or(i64::MAX);
        tx.query(&sql::FORGET_TOKENS, &[&tenant, &clock, &most, &kept]).await?;
        let params: [&(dyn ToSql + Sync); 8] =
            [&id_text, &tag_bytes, &name, &roles, &tenant, &expires_at, &clock, &most];
        tx.query(&sql::CREATE_TOKEN, &params).await?;
        let rows = tx.query(&sql::FIND_TOKENS, &[&[id_text].as_slice(), &clock]).await?;
        let stored = rows.first().map(stored_of).transpose()?;
        match stored.ok_or_else(|| too_many(token.tenant.as_ref()))? {
            stored if stored.tag == *tag => Ok(stored.record),
            _ => Err(another_token(*id).into()),
        }
    }

    async fn create_token_once(&self, token: &NewToken) -> Result<TokenRecord, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let record = self.create_in(&tx, token).await?;
        tx.commit(Writes::default()).await?;
        Ok(record)
    }

    async fn create_first_token_once(&self, token: &NewToken) -> Result<bool, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        tx.query(&sql::LOCK_TOKENS, &[]).await?;
        let rows = tx.query(&sql::COUNT_TOKENS, &[&token.id.as_str()]).await?;
        if rows.first().is_some_and(|row| row.get::<_, i64>(0) > 0) {
            return Ok(false);
        }
        self.create_in(&tx, token).await?;
        self.log_in(&tx, &first_token(token)?).await?;
        tx.commit(Writes::default()).await?;
        Ok(true)
    }

    async fn find_tokens_once(&self, ids: &[TokenId]) -> Result<Vec<StoredToken>, Fault> {
        let ids: Vec<&str> = ids.iter().map(TokenId::as_str).collect();
        let rows = self.read(&sql::FIND_TOKENS, &[&ids, &self.test_time()]).await?;
        rows.iter().map(stored_of).collect()
    }

    async fn list_tokens_once(&self, filter: &TokenFilter) -> Result<TokenPage, Fault> {
        let limit = if filter.limit == 0 { PAGE_MAX } else { filter.limit.min(PAGE_MAX) };
        let tenant = filter.tenant.as_ref().map(Tenant::as_str);
        let after = filter.after.as_ref();
        let (at, id) = (after.map(|it| At(it.created_at)), after.map(|it| it.id.as_str()));
        let most = i64::try_from(limit + 1).unwrap_or(i64::MAX);
        let rows = self.read(&sql::LIST_TOKENS, &[&tenant, &at, &id, &most]).await?;
        let tokens = rows.iter().map(record_of).collect::<Result<_, _>>()?;
        Ok(TokenPage::cut(tokens, limit))
    }

    async fn revoke_token_once(&self, id: TokenId) -> Result<TokenRecord, Fault> {
        let rows = self.read(&sql::REVOKE_TOKEN, &[&id.as_str(), &self.test_time()]).await?;
        rows.first().map(record_of).transpose()?.ok_or_else(|| no_token(id).into())
    }

    async fn touch_tokens_once(&self, ids: &[TokenId]) -> Result<(), Fault> {
        let ids: Vec<&str> = ids.iter().map(TokenId::as_str).collect();
        self.read(&sql::TOUCH_TOKENS, &[&ids, &self.test_time()]).await.map(drop)
    }
}

#[async_trait]
impl TokenStore for PostgresStore {
    async fn create_token(&self, token: NewToken) -> Result<TokenRecord, StoreError> {
        repeat!(self.create_token_once(&token))
    }

    async fn create_first_token(&self, token: NewToken) -> Result<bool, StoreError> {
        repeat!(self.create_first_token_once(&token))
    }

    async fn find_tokens(&self, ids: Vec<TokenId>) -> Result<Vec<StoredToken>, StoreError> {
        repeat!(self.find_tokens_once(&ids))
    }

    async fn list_tokens(&self, filter: TokenFilter) -> Result<TokenPage, StoreError> {
        repeat!(self.list_tokens_once(&filter))
    }

    async fn revoke_token(&self, id: TokenId) -> Result<TokenRecord, StoreError> {
        repeat!(self.revoke_token_once(id))
    }

    async fn touch_tokens(&self, ids: Vec<TokenId>) -> Result<(), StoreError> {
        repeat!(self.touch_tokens_once(&ids))
    }
}
