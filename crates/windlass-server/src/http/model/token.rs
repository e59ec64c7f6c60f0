//! Tokens, as they are made and listed.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass::store::TokenRecord;
use windlass::{Operator, Role, Tenant};

use super::Time;

/// A role of a token.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Role)]
pub(crate) enum RoleWord {
    /// Reads the metrics of the server, and nothing else.
    Metrics,
    /// Looks, and changes nothing.
    Viewer,
    /// A program: starts runs, sends signals, works on tasks.
    Worker,
    /// A person who looks after runs.
    Operator,
    /// Everything.
    Admin,
}

impl From<RoleWord> for Role {
    fn from(word: RoleWord) -> Self {
        match word {
            RoleWord::Metrics => Role::Metrics,
            RoleWord::Viewer => Role::Viewer,
            RoleWord::Worker => Role::Worker,
            RoleWord::Operator => Role::Operator,
            RoleWord::Admin => Role::Admin,
        }
    }
}

impl From<Role> for RoleWord {
    fn from(role: Role) -> Self {
        match role {
            Role::Metrics => RoleWord::Metrics,
            Role::Viewer => RoleWord::Viewer,
            Role::Worker => RoleWord::Worker,
            Role::Operator => RoleWord::Operator,
            Role::Admin => RoleWord::Admin,
        }
    }
}

/// A token that is to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateToken {
    /// What people call it; what is done with it is logged under this name.
    #[schema(value_type = String, min_length = 1, max_length = 200)]
    pub(crate) name: Operator,
    /// What it may be used for.
    #[schema(min_items = 1, max_items = 5)]
    pub(crate) roles: Vec<RoleWord>,
    /// Whose things it is for; those of all tenants if nothing is said, or of the only tenant of
    /// whoever makes it.
    #[schema(value_type = Option<String>, min_length = 1, max_length = 200)]
    pub(crate) tenant: Option<Tenant>,
    /// After how many milliseconds it holds no more; never if nothing is said.
    #[schema(minimum = 1, maximum = 3_153_600_000_000_u64)]
    pub(crate) expires_in_ms: Option<u64>,
}

/// A token that was made. The text is shown here once, and kept by nobody.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CreatedToken {
    /// The token, for whoever is to use it.
    #[schema(pattern = "^wl_(metrics|viewer|worker|operator|admin)_[a-z2-7]{16}_[a-z2-7]{59}$")]
    pub(crate) token: String,
    /// What lists show of it.
    #[serde(flatten)]
    pub(crate) record: TokenBody,
}

/// A token, as lists show it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Token)]
pub(crate) struct TokenBody {
    /// Its id.
    #[schema(pattern = "^[a-z2-7]{16}$")]
    id: String,
    /// What people call it.
    name: String,
    /// What it may be used for.
    roles: Vec<RoleWord>,
    /// Whose things it is for; those of all tenants if none.
    tenant: Option<String>,
    /// When it was made.
    created_at: Time,
    /// When it holds no more, if ever.
    expires_at: Option<Time>,
    /// When it was last used, to a minute or so.
    last_used_at: Option<Time>,
    /// When it was revoked, if it was.
    revoked_at: Option<Time>,
}

impl From<TokenRecord> for TokenBody {
    fn from(record: TokenRecord) -> Self {
        TokenBody {
            id: record.id.to_string(),
            name: record.name.to_string(),
            roles: record.roles.iter().map(RoleWord::from).collect(),
            tenant: record.tenant.as_ref().map(ToString::to_string),
            created_at: record.created_at.into(),
            expires_at: record.expires_at.map(Time::from),
            last_used_at: record.last_used_at.map(Time::from),
            revoked_at: record.revoked_at.map(Time::from),
        }
    }
}

/// A page of tokens, the newest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TokenPage)]
pub(crate) struct TokenPageBody {
    /// The tokens.
    pub(crate) tokens: Vec<TokenBody>,
    /// The cursor of the next page; none if this is the last.
    pub(crate) next: Option<String>,
}

/// Which tokens to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenQuery {
    /// Only those of this tenant.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    pub(crate) tenant: Option<Tenant>,
    /// Where the previous page ended: its `next`.
    #[param(max_length = 2000)]
    pub(crate) cursor: Option<String>,
    /// The most tokens of the page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub(crate) limit: Option<u32>,
}
