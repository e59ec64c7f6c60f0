//! Who makes a request: the one place where that is decided.
//!
//! Every request passes through [`Access::identify`] once, before anything else looks at it; what
//! handlers are given is an [`Identity`] and never the headers. There are no tokens yet: whoever
//! reaches the server is who the options say, which is why such a server only listens on loopback.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use windlass::{Operator, Tenant};

use crate::problem::Problem;

/// Who may do what at a server.
#[derive(Clone, Debug)]
pub struct Access {
    /// The tenant that everyone is, all of them if none is said.
    tenant: Option<Tenant>,
}

/// What someone may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Admin,
}

/// Who makes a request.
#[derive(Clone, Debug)]
pub struct Identity {
    name: Operator,
    role: Role,
    tenant: Option<Tenant>,
}

impl Access {
    /// Everyone who reaches the server may do everything. For development: such a server only
    /// listens on loopback.
    pub fn insecure_dev() -> Self {
        Access { tenant: None }
    }

    /// The same for one tenant: nobody sees what others have.
    #[must_use]
    pub fn for_tenant(self, tenant: Tenant) -> Self {
        Access { tenant: Some(tenant) }
    }

    /// Whether requests may come from other machines: only if they must say who they are.
    pub fn asks_for_credentials(&self) -> bool {
        false
    }

    /// Who makes this request.
    ///
    /// # Errors
    ///
    /// A problem if the request does not say who makes it, or not so that it can be believed.
    pub fn identify(&self, _request: &Parts) -> Result<Identity, Problem> {
        let name = Operator::new("insecure-dev")?;
        Ok(Identity { name, role: Role::Admin, tenant: self.tenant.clone() })
    }
}

impl Identity {
    /// What it is called in the operators' log.
    pub fn name(&self) -> &Operator {
        &self.name
    }

    /// What it may do.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The only tenant whose things it may see, if it is not all of them.
    pub fn tenant(&self) -> Option<&Tenant> {
        self.tenant.as_ref()
    }

    /// Whose something new is: the tenant that the request names, or its own, or `default`.
    ///
    /// # Errors
    ///
    /// A problem if the request names a tenant that it may not act for.
    pub fn acts_for(&self, named: Option<Tenant>) -> Result<Tenant, Problem> {
        match (named, &self.tenant) {
            (Some(named), Some(own)) if named != *own => {
                let why = format!("tenant {named:?} is not yours, which is {own:?}");
                Err(Problem::forbidden(why))
            }
            (Some(named), _) => Ok(named),
            (None, Some(own)) => Ok(own.clone()),
            (None, None) => Ok(Tenant::default()),
        }
    }

    /// Of which tenant a list is: the one that the request names, or its own, or all.
    ///
    /// # Errors
    ///
    /// A problem if the request names a tenant that it may not look at.
    pub fn looks_at(&self, named: Option<Tenant>) -> Result<Option<Tenant>, Problem> {
        match (named, &self.tenant) {
            (None, own) => Ok(own.clone()),
            (named @ Some(_), _) => self.acts_for(named).map(Some),
        }
    }

    /// Whether it may see what belongs to a tenant. What it may not see does not exist for it.
    pub fn sees(&self, tenant: &Tenant) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
    }

    /// Refuses whoever has one tenant: the request is about what all of them share.
    ///
    /// # Errors
    ///
    /// A problem if it has one tenant.
    pub fn for_all_tenants(&self) -> Result<(), Problem> {
        match &self.tenant {
            None => Ok(()),
            Some(own) => {
                let why = format!("this is about all tenants, and you are {own:?} only");
                Err(Problem::forbidden(why))
            }
        }
    }
}

impl From<windlass_core::NameError> for Problem {
    fn from(error: windlass_core::NameError) -> Self {
        Problem::new(windlass::ErrorKind::Argument, error.to_string())
    }
}

impl<S: Sync> FromRequestParts<S> for Identity {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let identity = parts.extensions.get::<Identity>().cloned();
        identity.ok_or_else(|| Problem::forbidden("nobody said who makes this request"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(tenant: Option<&str>) -> Identity {
        let tenant = tenant.map(|tenant| Tenant::new(tenant).unwrap());
        Identity { name: Operator::new("anna").unwrap(), role: Role::Admin, tenant }
    }

    #[test]
    fn whoever_has_one_tenant_acts_for_no_other() {
        let acme = || Some(Tenant::new("acme").unwrap());
        let own = identity(Some("acme"));
        assert_eq!(own.acts_for(None).unwrap(), acme().unwrap());
        assert_eq!(own.acts_for(acme()).unwrap(), acme().unwrap());
        assert_eq!(own.looks_at(None).unwrap(), acme());
        let other = Tenant::new("other").unwrap();
        assert_eq!(own.acts_for(Some(other.clone())).unwrap_err().status(), 403);
        assert!(own.looks_at(Some(other.clone())).is_err());
        assert!(!own.sees(&other));
        assert!(own.for_all_tenants().is_err());
        let all = identity(None);
        assert_eq!(all.acts_for(None).unwrap(), Tenant::default());
        assert_eq!(all.looks_at(None).unwrap(), None);
        assert!(all.sees(&other) && all.for_all_tenants().is_ok());
    }
}
