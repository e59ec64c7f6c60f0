//! The scopes of a store, one for each tenant that someone acts for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use windlass_core::Tenant;

use super::ScopedStore;
use crate::store::Store;

/// The most scopes that are kept before all are forgotten: what a scope remembers is only speed.
pub const SCOPES_MAX: usize = 1_000;

/// Gives out a store for each tenant, the same one each time.
pub struct Scopes {
    store: Arc<dyn Store>,
    known: Mutex<HashMap<Tenant, Arc<ScopedStore>>>,
}

impl Scopes {
    /// The scopes of a store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Scopes { store, known: Mutex::default() }
    }

    /// The part of the store that is a tenant's.
    pub fn of(&self, tenant: &Tenant) -> Arc<ScopedStore> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scope) = known.get(tenant) {
            return Arc::clone(scope);
        }
        if known.len() >= SCOPES_MAX {
            known.clear();
        }
        let scope = Arc::new(ScopedStore::new(Arc::clone(&self.store), tenant.clone()));
        known.insert(tenant.clone(), Arc::clone(&scope));
        scope
    }
}

impl std::fmt::Debug for Scopes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scopes").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn scopes_are_kept_and_bounded() {
        let scopes = Scopes::new(Arc::new(MemoryStore::new()));
        let tenant = |number: usize| Tenant::new(format!("t{number}")).expect("it is a name");
        let first = scopes.of(&tenant(0));
        assert!(Arc::ptr_eq(&first, &scopes.of(&tenant(0))));
        for number in 1..=SCOPES_MAX {
            assert_eq!(scopes.of(&tenant(number)).tenant(), &tenant(number));
        }
        assert!(!Arc::ptr_eq(&first, &scopes.of(&tenant(0))), "it was forgotten");
    }
}
