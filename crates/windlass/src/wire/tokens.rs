//! Tokens as messages. Their secrets have no form on the wire.

use windlass_core::{Operator, Role, Roles, Tenant};

use super::{
    Wire, WireError, limit, name, name_some, parse, read_all, read_some, time, unknown, v1,
    write_all,
};
use crate::store::{NewToken, TokenCursor, TokenFilter, TokenPage, TokenRecord, TokenTag};

impl Wire for Role {
    type Message = i32;

    fn to_wire(&self) -> i32 {
        let role = match self {
            Role::Metrics => v1::Role::Metrics,
            Role::Viewer => v1::Role::Viewer,
            Role::Worker => v1::Role::Worker,
            Role::Operator => v1::Role::Operator,
            Role::Admin => v1::Role::Admin,
        };
        role.into()
    }

    fn from_wire(number: i32) -> Result<Self, WireError> {
        match v1::Role::try_from(number) {
            Ok(v1::Role::Metrics) => Ok(Role::Metrics),
            Ok(v1::Role::Viewer) => Ok(Role::Viewer),
            Ok(v1::Role::Worker) => Ok(Role::Worker),
            Ok(v1::Role::Operator) => Ok(Role::Operator),
            Ok(v1::Role::Admin) => Ok(Role::Admin),
            Ok(v1::Role::Unspecified) | Err(_) => Err(unknown("role", number)),
        }
    }
}

fn roles(numbers: Vec<i32>) -> Result<Roles, WireError> {
    let roles: Vec<Role> = read_all("roles", numbers)?;
    Roles::of(roles).ok_or_else(|| WireError::new("roles", "there is none"))
}

impl Wire for NewToken {
    type Message = v1::NewToken;

    fn to_wire(&self) -> v1::NewToken {
        v1::NewToken {
            id: self.id.to_string(),
            tag: self.tag.0.to_vec().into(),
            name: self.name.to_string(),
            roles: self.roles.iter().map(|role| role.to_wire()).collect(),
            tenant: self.tenant.as_ref().map(ToString::to_string),
            expires_at_us: self.expires_at.map(|at| at.as_micros()),
        }
    }

    fn from_wire(message: v1::NewToken) -> Result<Self, WireError> {
        let tag = <[u8; 32]>::try_from(message.tag.as_ref());
        let tag = tag.map_err(|_| {
            WireError::new("tag", format!("it has {} bytes, not 32", message.tag.len()))
        })?;
        Ok(NewToken {
            id: parse("id", &message.id)?,
            tag: TokenTag(tag),
            name: name("name", Operator::new(&message.name))?,
            roles: roles(message.roles)?,
            tenant: name_some("tenant", message.tenant, Tenant::new)?,
            expires_at: message.expires_at_us.map(time),
        })
    }
}

impl Wire for TokenRecord {
    type Message = v1::TokenRecord;

    fn to_wire(&self) -> v1::TokenRecord {
        v1::TokenRecord {
            id: self.id.to_string(),
            name: self.name.to_string(),
            roles: self.roles.iter().map(|role| role.to_wire()).collect(),
            tenant: self.tenant.as_ref().map(ToString::to_string),
            created_at_us: self.created_at.as_micros(),
            expires_at_us: self.expires_at.map(|at| at.as_micros()),
            last_used_at_us: self.last_used_at.map(|at| at.as_micros()),
            revoked_at_us: self.revoked_at.map(|at| at.as_micros()),
        }
    }

    fn from_wire(message: v1::TokenRecord) -> Result<Self, WireError> {
        Ok(TokenRecord {
            id: parse("id", &message.id)?,
            name: name("name", Operator::new(&message.name))?,
            roles: roles(message.roles)?,
            tenant: name_some("tenant", message.tenant, Tenant::new)?,
            created_at: time(message.created_at_us),
            expires_at: message.expires_at_us.map(time),
            last_used_at: message.last_used_at_us.map(time),
            revoked_at: message.revoked_at_us.map(time),
        })
    }
}

impl Wire for TokenCursor {
    type Message = v1::TokenCursor;

    fn to_wire(&self) -> v1::TokenCursor {
        v1::TokenCursor { created_at_us: self.created_at.as_micros(), id: self.id.to_string() }
    }

    fn from_wire(message: v1::TokenCursor) -> Result<Self, WireError> {
        Ok(TokenCursor { created_at: time(message.created_at_us), id: parse("id", &message.id)? })
    }
}

impl Wire for TokenFilter {
    type Message = v1::ListTokensRequest;

    fn to_wire(&self) -> v1::ListTokensRequest {
        v1::ListTokensRequest {
            tenant: self.tenant.as_ref().map(ToString::to_string),
            after: self.after.as_ref().map(Wire::to_wire),
            limit: limit(self.limit),
        }
    }

    fn from_wire(message: v1::ListTokensRequest) -> Result<Self, WireError> {
        Ok(TokenFilter {
            tenant: name_some("tenant", message.tenant, Tenant::new)?,
            after: read_some("after", message.after)?,
            limit: message.limit as usize,
        })
    }
}

impl Wire for TokenPage {
    type Message = v1::TokenPage;

    fn to_wire(&self) -> v1::TokenPage {
        v1::TokenPage {
            tokens: write_all(&self.tokens),
            next: self.next.as_ref().map(Wire::to_wire),
        }
    }

    fn from_wire(message: v1::TokenPage) -> Result<Self, WireError> {
        Ok(TokenPage {
            tokens: read_all("tokens", message.tokens)?,
            next: read_some("next", message.next)?,
        })
    }
}
