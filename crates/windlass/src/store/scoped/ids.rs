//! Ids that a caller chooses and that stand for more than itself.
//!
//! Who knows the id of a worker could claim in its name, give its tasks back or end it; and who
//! knows that of an action is told what it answered. Such ids are seen: a task says who has it. So
//! the ids of whoever acts for one tenant are bound to it: what is stored is a hash of the tenant and
//! the id that was chosen. Nobody finds one that gives the id of someone else, and the same one
//! always gives the same, on every server.

use ring::digest::{Context, SHA256};
use windlass_core::{ActionId, Tenant, WorkerId};

/// What keeps ids of one kind from being those of another.
fn bound(kind: &str, tenant: &Tenant, id: u128) -> u128 {
    let mut hash = Context::new(&SHA256);
    for part in ["windlass.scope", kind, tenant.as_str()] {
        // No name has a NUL.
        hash.update(part.as_bytes());
        hash.update(&[0]);
    }
    hash.update(&id.to_be_bytes());
    let digest = hash.finish();
    digest.as_ref().iter().take(16).fold(0, |bits, byte| bits << 8 | u128::from(*byte))
}

/// The id by which a worker of a tenant is known.
pub(super) fn bound_worker(tenant: &Tenant, worker: WorkerId) -> WorkerId {
    WorkerId::from_random(bound("worker", tenant, worker.as_uuid().as_u128()))
}

/// The id by which an action of a tenant is known.
pub(super) fn bound_action(tenant: &Tenant, action: ActionId) -> ActionId {
    ActionId::from_random(bound("action", tenant, action.as_uuid().as_u128()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_bound_to_its_tenant_and_always_the_same() {
        let tenant = |name: &str| Tenant::new(name).expect("it is a name");
        let worker = WorkerId::from_random(7);
        let own = bound_worker(&tenant("a"), worker);
        assert_eq!(own, bound_worker(&tenant("a"), worker));
        assert_ne!(own, worker);
        assert_ne!(own, bound_worker(&tenant("b"), worker));
        assert_ne!(own, bound_worker(&tenant("a"), WorkerId::from_random(8)));
        let action = bound_action(&tenant("a"), ActionId::from_random(7));
        assert_ne!(action.as_uuid(), own.as_uuid(), "of another kind");
    }
}
