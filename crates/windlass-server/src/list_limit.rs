//! Limits the lists that a server reads at a time for one token and for one tenant.
//!
//! A list may have to look at every run of a tenant. Without these limits, the tokens of one tenant
//! could take all connections that the store has for reads, and the processors of the database.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass::store::StoreError;
use windlass::{Tenant, TokenId};

/// The most lists of one token that are read at a time.
pub(crate) const LISTS_MAX: usize = 4;

/// The most lists of the tokens of one tenant that are read at a time.
pub(crate) const LISTS_PER_TENANT_MAX: usize = 8;

/// The time after which a refused client may retry.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The lists in progress.
#[derive(Debug, Default)]
pub(crate) struct ListLimit(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    of_token: HashMap<TokenId, usize>,
    of_tenant: HashMap<Tenant, usize>,
}

impl ListLimit {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a list of a token, and of its tenant if it has one, for as long as the answer is kept.
    /// A caller without a token is on a server for development, and has no limit.
    ///
    /// # Errors
    ///
    /// `Limited` if [`LISTS_MAX`] lists of the token or [`LISTS_PER_TENANT_MAX`] of the tenant are in
    /// progress.
    pub(crate) fn begin(
        self: &Arc<Self>,
        token: Option<TokenId>,
        tenant: Option<&Tenant>,
    ) -> Result<ListTurn, StoreError> {
        let tenant = tenant.filter(|_| token.is_some());
        let mut counts = self.counts();
        if let Some(token) = token
            && counts.of_token.get(&token).is_some_and(|count| *count >= LISTS_MAX)
        {
            return Err(refused(&format!("token {token}"), LISTS_MAX));
        }
        if let Some(tenant) = tenant
            && counts.of_tenant.get(tenant).is_some_and(|count| *count >= LISTS_PER_TENANT_MAX)
        {
            return Err(refused(&format!("tenant {:?}", tenant.as_str()), LISTS_PER_TENANT_MAX));
        }
        if let Some(token) = token {
            *counts.of_token.entry(token).or_default() += 1;
        }
        if let Some(tenant) = tenant {
            *counts.of_tenant.entry(tenant.clone()).or_default() += 1;
        }
        Ok(ListTurn { limit: Arc::clone(self), token, tenant: tenant.cloned() })
    }
}

fn refused(whose: &str, max: usize) -> StoreError {
    let why = format!(
        "{whose} has {max} lists in progress, which is the limit: wait for an answer before the next \
         request"
    );
    StoreError::Limited { why, retry_after: RETRY_AFTER }
}

/// A list in progress.
#[derive(Debug)]
pub(crate) struct ListTurn {
    limit: Arc<ListLimit>,
    token: Option<TokenId>,
    tenant: Option<Tenant>,
}

impl Drop for ListTurn {
    fn drop(&mut self) {
        let mut counts = self.limit.counts();
        if let Some(token) = &self.token {
            count_down(&mut counts.of_token, token);
        }
        if let Some(tenant) = &self.tenant {
            count_down(&mut counts.of_tenant, tenant);
        }
    }
}

fn count_down<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_so_many_lists_at_a_time_and_leaves_the_others_alone() {
        let limit = Arc::new(ListLimit::default());
        let (one, other) = (Some(TokenId::from_random(1)), Some(TokenId::from_random(2 << 64)));
        let turns: Vec<_> = (0..LISTS_MAX).map(|_| limit.begin(one, None).unwrap()).collect();
        let error = limit.begin(one, None).unwrap_err();
        assert!(error.to_string().contains("4 lists in progress"), "{error}");
        assert_eq!(error.retry_after(), Some(RETRY_AFTER));
        assert!(limit.begin(other, None).is_ok() && limit.begin(None, None).is_ok());
        drop(turns);
        assert!(limit.begin(one, None).is_ok());
        assert!(limit.counts().of_token.is_empty(), "nothing is left behind");
    }

    #[test]
    fn the_tokens_of_one_tenant_share_a_limit() {
        let limit = Arc::new(ListLimit::default());
        let (acme, other) = (Tenant::new("acme").unwrap(), Tenant::new("other").unwrap());
        let token = |number: usize| Some(TokenId::from_random((number as u128) << 64));
        let begin = |number, tenant| limit.begin(token(number), Some(tenant));
        let turns: Vec<_> = (0..LISTS_PER_TENANT_MAX).map(|n| begin(n, &acme).unwrap()).collect();
        let error = begin(99, &acme).unwrap_err();
        assert!(error.to_string().contains("tenant \"acme\" has 8 lists"), "{error}");
        assert!(begin(100, &other).is_ok());
        assert!(limit.begin(token(101), None).is_ok(), "a token for all tenants has its own limit");
        drop(turns);
        assert!(begin(99, &acme).is_ok());
        let counts = limit.counts();
        assert!(
            counts.of_token.is_empty() && counts.of_tenant.is_empty(),
            "nothing is left behind"
        );
    }
}
