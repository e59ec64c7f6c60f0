//! Who makes a request.

use windlass_core::Tenant;

/// Who makes a request.
#[derive(Clone, Debug)]
pub struct Identity {
    tenant: Option<Tenant>,
}

impl Identity {
    /// Whoever may see everything.
    pub fn everyone() -> Self {
        Identity { tenant: None }
    }

    /// Whoever may see what one tenant has.
    pub fn of_tenant(tenant: Tenant) -> Self {
        Identity { tenant: Some(tenant) }
    }

    /// The only tenant whose things it may see, if it is not all of them.
    pub fn tenant(&self) -> Option<&Tenant> {
        self.tenant.as_ref()
    }
}
