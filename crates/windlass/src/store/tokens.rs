//! Who may use a server: tokens, without their secrets.
//!
//! What is kept of a secret is a tag that it can be checked against and that it cannot be computed
//! from. Whoever has the database makes tokens; servers only look them up.

use async_trait::async_trait;
use windlass_core::{ActionId, Operator, Payload, Roles, Tenant, Timestamp, TokenId};

use super::{Action, NewLogEntry, StoreError};

/// The most tokens of one tenant, and the most for all tenants: whoever makes as many as it may leaves
/// room to others. Those that were revoked or are over count until there is no room.
pub const TOKENS_MAX: usize = 1_000;

/// How long a token that was revoked or is over is listed at most: 90 days.
pub const TOKEN_KEPT: std::time::Duration = std::time::Duration::from_secs(90 * 86_400);

/// The verbs of whoever gives out tokens, and of servers that are shown them.
#[async_trait]
pub trait TokenStore: Send + Sync {
    /// Makes a token known. Repeated with the same id and tag it answers the token that is there;
    /// an id with another tag is a [`StoreError::Conflict`], as is more than [`TOKENS_MAX`].
    async fn create_token(&self, token: NewToken) -> Result<TokenRecord, StoreError>;

    /// The same, if no token was ever made, written down in the log; answers whether it was.
    async fn create_first_token(&self, token: NewToken) -> Result<bool, StoreError>;

    /// The tokens of these ids that are there, with what their secrets are checked against. Only
    /// for servers: no server tells it to anyone.
    async fn find_tokens(&self, ids: Vec<TokenId>) -> Result<Vec<StoredToken>, StoreError>;

    /// A page of tokens, the newest first.
    async fn list_tokens(&self, filter: TokenFilter) -> Result<TokenPage, StoreError>;

    /// Lets a token hold no more, from now. One that was revoked before stays so;
    /// [`StoreError::NotFound`] if there is none.
    async fn revoke_token(&self, id: TokenId) -> Result<TokenRecord, StoreError>;

    /// Notes that tokens were used now.
    async fn touch_tokens(&self, ids: Vec<TokenId>) -> Result<(), StoreError>;
}

/// A token that is made known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// Its id.
    pub id: TokenId,
    /// What its secret is checked against.
    pub tag: TokenTag,
    /// What people call it; what is done with it is logged under this name.
    pub name: Operator,
    /// What it may be used for.
    pub roles: Roles,
    /// Whose things it is for; those of all tenants if none.
    pub tenant: Option<Tenant>,
    /// When it holds no more, if ever.
    pub expires_at: Option<Timestamp>,
}

/// What a secret is checked against. It is not shown: whoever has it could try secrets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenTag(pub [u8; 32]);

impl std::fmt::Debug for TokenTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(windlass_core::secret::HIDDEN)
    }
}

/// A token, as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    /// Its id.
    pub id: TokenId,
    /// What people call it.
    pub name: Operator,
    /// What it may be used for.
    pub roles: Roles,
    /// Whose things it is for; those of all tenants if none.
    pub tenant: Option<Tenant>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it holds no more, if ever.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to a minute or so; none if never.
    pub last_used_at: Option<Timestamp>,
    /// When it was revoked, if it was.
    pub revoked_at: Option<Timestamp>,
}

impl TokenRecord {
    /// Whether it holds at a time.
    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// A token, as servers know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToken {
    /// What lists show.
    pub record: TokenRecord,
    /// What its secret is checked against.
    pub tag: TokenTag,
    /// The time of the look: whether it holds is a matter of the store's clock.
    pub at: Timestamp,
}

/// Which tokens to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenFilter {
    /// Only those of this tenant.
    pub tenant: Option<Tenant>,
    /// Only those behind this one: where the previous page ended.
    pub after: Option<TokenCursor>,
    /// The most tokens of the page, up to [`PAGE_MAX`](super::PAGE_MAX); 0 is that limit.
    pub limit: usize,
}

/// Where a page of tokens ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenCursor {
    /// When the last token of the page was made.
    pub created_at: Timestamp,
    /// Its id.
    pub id: TokenId,
}

/// A page of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenPage {
    /// The tokens, the newest first.
    pub tokens: Vec<TokenRecord>,
    /// Where the page ended, if there are more.
    pub next: Option<TokenCursor>,
}

impl TokenPage {
    /// A page of at most `limit` of these, which may be one more.
    pub(crate) fn cut(mut tokens: Vec<TokenRecord>, limit: usize) -> Self {
        let has_more = tokens.len() > limit;
        tokens.truncate(limit);
        let last = tokens.last().filter(|_| has_more);
        let next = last.map(|last| TokenCursor { created_at: last.created_at, id: last.id });
        TokenPage { tokens, next }
    }
}

/// An id that another token has.
pub(crate) fn another_token(id: TokenId) -> StoreError {
    StoreError::Conflict(format!("token {id} is there already, with another secret"))
}

/// There are as many tokens of a tenant, or for all, as there may be.
pub(crate) fn too_many(tenant: Option<&Tenant>) -> StoreError {
    let whose = match tenant {
        Some(tenant) => format!("tenant {tenant:?} has"),
        None => "there are, for all tenants,".to_owned(),
    };
    let text = format!("{whose} {TOKENS_MAX} tokens that hold, which is the limit: revoke some");
    StoreError::Conflict(text)
}

/// The line of the log about the first token, which nobody makes who has one.
pub(crate) fn first_token(token: &NewToken) -> Result<NewLogEntry, StoreError> {
    let NewToken { id, name, roles, .. } = token;
    let detail = serde_json::json!({
        "token": id.as_str(), "name": name, "roles": roles.to_string(), "is_first": true,
    });
    let detail =
        Payload::encode(&detail).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let bytes = id.as_str().bytes().take(16).fold(0, |bits, byte| bits << 8 | u128::from(byte));
    Ok(NewLogEntry {
        id: ActionId::from_random(bytes),
        by: name.clone().into(),
        action: Action::CreateToken,
        tenant: token.tenant.clone(),
        run: None,
        detail: Some(detail),
    })
}

/// There is no such token.
pub(crate) fn no_token(id: TokenId) -> StoreError {
    StoreError::NotFound(format!("token {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::Role;

    #[test]
    fn a_token_is_valid_until_the_instant_it_expires() {
        let at = Timestamp::from_micros;
        let record = TokenRecord {
            id: TokenId::from_random(7),
            name: Operator::new("anna").expect("it is a name"),
            roles: Roles::from(Role::Viewer),
            tenant: None,
            created_at: at(0),
            expires_at: Some(at(10)),
            last_used_at: None,
            revoked_at: None,
        };
        assert!(record.holds_at(at(9)));
        assert!(!record.holds_at(at(10)), "expired at this instant");
        assert!(!record.holds_at(at(11)));
    }
}
