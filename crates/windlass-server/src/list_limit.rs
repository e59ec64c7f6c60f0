//! How many lists a server reads for one token at a time.
//!
//! A list may have to look at every run of a tenant. Without this limit, one token could take all
//! connections that the store has for reads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass::TokenId;
use windlass::store::StoreError;

/// The most lists of one token that are read at a time.
pub(crate) const LISTS_MAX: usize = 4;

/// The time after which a refused client may retry.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The lists in progress, by token.
#[derive(Debug, Default)]
pub(crate) struct ListLimit(Mutex<HashMap<TokenId, usize>>);

impl ListLimit {
    fn counts(&self) -> MutexGuard<'_, HashMap<TokenId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a list of a token for as long as the answer is kept. A caller without a token is on
    /// a server for development, and has no limit.
    ///
    /// # Errors
    ///
    /// `Limited` if [`LISTS_MAX`] lists of the token are in progress.
    pub(crate) fn begin(self: &Arc<Self>, token: Option<TokenId>) -> Result<ListTurn, StoreError> {
        if let Some(token) = token {
            let mut counts = self.counts();
            let count = counts.entry(token).or_default();
            if *count >= LISTS_MAX {
                let why = format!(
                    "token {token} has {LISTS_MAX} lists in progress, which is the limit: wait for \
                     an answer before the next request"
                );
                return Err(StoreError::Limited { why, retry_after: RETRY_AFTER });
            }
            *count += 1;
        }
        Ok(ListTurn { limit: Arc::clone(self), token })
    }
}

/// A list in progress.
#[derive(Debug)]
pub(crate) struct ListTurn {
    limit: Arc<ListLimit>,
    token: Option<TokenId>,
}

impl Drop for ListTurn {
    fn drop(&mut self) {
        let Some(token) = self.token else { return };
        let mut counts = self.limit.counts();
        if let Some(count) = counts.get_mut(&token) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&token);
            }
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
        let turns: Vec<_> = (0..LISTS_MAX).map(|_| limit.begin(one).unwrap()).collect();
        let error = limit.begin(one).unwrap_err();
        assert!(error.to_string().contains("4 lists in progress"), "{error}");
        assert_eq!(error.retry_after(), Some(RETRY_AFTER));
        assert!(limit.begin(other).is_ok() && limit.begin(None).is_ok());
        drop(turns);
        assert!(limit.begin(one).is_ok());
        assert!(limit.counts().is_empty(), "nothing is left behind");
    }
}
