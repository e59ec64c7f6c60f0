//! The tokens that this server was shown, and whether they hold still.
//!
//! Who shows a token is looked up once; after that, all tokens that are in use are looked up
//! together every two seconds, so that one that was revoked is refused within five, and what it has
//! open is closed. Unknown ids and wrong secrets are answered alike; ids are no secret.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass::store::{Store, StoreError, StoredToken, TokenRecord, TokenTag};
use windlass::{Token, TokenId};

use crate::list_turns::ListTurns;
use crate::problem::Problem;
use crate::token::verifies;

/// How often tokens that are in use are looked up again.
const LOOK_PAUSE: Duration = Duration::from_secs(2);

/// How old what is known of a token may be. With the time a look takes, one that was revoked
/// anywhere is refused everywhere within five seconds.
const KNOWN_MAX_AGE: Duration = Duration::from_secs(4);

/// How long a look may take before it counts for nothing.
const LOOK_TIME_MAX: Duration = Duration::from_secs(1);

/// A token that was not used for so long is forgotten until it is shown again.
const UNUSED_MAX: Duration = Duration::from_secs(60);

/// How often it is written down that a token was used.
const TOUCH_PAUSE: Duration = Duration::from_secs(60);

/// The most tokens that are known at once, those that are none included.
const KNOWN_MAX: usize = 10_000;

/// The most lookups of tokens that are not known, at once: whoever makes ids up must not keep the
/// database from its work.
const LOOKUPS_MAX: usize = 4;

/// What was found of a token.
pub(crate) struct Pass {
    token: StoredToken,
    /// When it was looked up, by our clock.
    looked_at: Instant,
    over: CancellationToken,
    /// As many of these as there are passes of the token, one more for it being known.
    _held: Arc<()>,
}

impl Pass {
    /// The token.
    pub(crate) fn record(&self) -> &TokenRecord {
        &self.token.record
    }

    /// Ends when the token holds no more.
    pub(crate) fn over(&self) -> &CancellationToken {
        &self.over
    }

    fn holds(&self) -> bool {
        let now = self.token.at + self.looked_at.elapsed();
        !self.over.is_cancelled() && self.token.record.holds_at(now)
    }
}

/// What whoever shows a token that does not hold is told, whatever is wrong with it.
pub(crate) fn is_over() -> Problem {
    let why = "the token is not one that holds: it is unknown, revoked or expired";
    Problem::unauthenticated(why)
}

/// What is known of an id.
struct Known {
    pass: Option<Arc<Pass>>,
    held: Arc<()>,
    /// When it was first asked for.
    first_at: Instant,
    looked_at: Instant,
    /// When its secret was last shown, if it was.
    used_at: Option<Instant>,
    touched_at: Option<Instant>,
}

/// The tokens that are known.
pub(crate) struct Passes {
    store: Arc<dyn Store>,
    known: Mutex<HashMap<TokenId, Known>>,
    lookups: Semaphore,
    lists: ListTurns,
}

impl Passes {
    /// Those of a store.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Passes {
            store,
            known: Mutex::default(),
            lookups: Semaphore::new(LOOKUPS_MAX),
            lists: ListTurns::default(),
        }
    }

    /// The turns of those that read lists.
    pub(crate) fn lists(&self) -> &ListTurns {
        &self.lists
    }

    fn known(&self) -> MutexGuard<'_, HashMap<TokenId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose token this is, if it holds.
    pub(crate) async fn admit(&self, token: &Token) -> Result<Arc<Pass>, Problem> {
        let pass = match self.recall(token.id()) {
            Some(pass) => pass,
            None => self.look_up(token.id()).await?,
        };
        let nobody = TokenTag([0; 32]);
        let tag = pass.as_ref().map_or(&nobody, |pass| &pass.token.tag);
        let is_right = verifies(token, tag);
        match pass.filter(|_| is_right) {
            Some(pass) if pass.holds() => {
                self.note_use(token.id());
                Ok(pass)
            }
            refused => {
                let why = if refused.is_some() { "it is over" } else { "it is not one of ours" };
                tracing::info!(token = %token.id(), why, "a token is refused");
                Err(is_over())
            }
        }
    }

    /// What is known of an id, if that is not too old.
    fn recall(&self, id: TokenId) -> Option<Option<Arc<Pass>>> {
        let known = self.known();
        let it = known.get(&id).filter(|it| it.looked_at.elapsed() <= KNOWN_MAX_AGE)?;
        Some(it.pass.clone())
    }

    /// Notes that whoever has the secret has shown it: the id alone is known to many.
    fn note_use(&self, id: TokenId) {
        if let Some(it) = self.known().get_mut(&id) {
            it.used_at = Some(Instant::now());
        }
    }

    /// Lets a token that was revoked here hold no more, at once.
    pub(crate) fn forget(&self, id: TokenId) {
        if let Some(pass) = self.known().remove(&id).and_then(|it| it.pass) {
            pass.over.cancel();
        }
    }

    async fn look_up(&self, id: TokenId) -> Result<Option<Arc<Pass>>, Problem> {
        // Never closed.
        let _turn = self.lookups.acquire().await;
        if let Some(pass) = self.recall(id) {
            return Ok(pass);
        }
        let began = Instant::now();
        let found = self.find(vec![id]).await?.pop();
        Ok(self.note(id, found, began))
    }

    async fn find(&self, ids: Vec<TokenId>) -> Result<Vec<StoredToken>, StoreError> {
        let late = |_| StoreError::Unavailable("tokens cannot be looked up in time".to_owned());
        tokio::time::timeout(LOOK_TIME_MAX, self.store.find_tokens(ids)).await.map_err(late)?
    }

    /// Notes what a look that began then has found.
    fn note(
        &self,
        id: TokenId,
        found: Option<StoredToken>,
        looked_at: Instant,
    ) -> Option<Arc<Pass>> {
        let mut known = self.known();
        if known.len() >= KNOWN_MAX && !known.contains_key(&id) {
            known.retain(|_, it| it.pass.is_some());
        }
        let before = known.get(&id);
        let over = before.and_then(|it| it.pass.as_ref()).map(|pass| pass.over.clone());
        let over = over.unwrap_or_default();
        let held = before.map(|it| Arc::clone(&it.held)).unwrap_or_default();
        let pass = found.map(|token| {
            let (over, held) = (over.clone(), Arc::clone(&held));
            Arc::new(Pass { token, looked_at, over, _held: held })
        });
        if !pass.as_ref().is_some_and(|pass| pass.holds()) {
            over.cancel();
        }
        let used_at = before.and_then(|it| it.used_at);
        let first_at = before.map_or(looked_at, |it| it.first_at);
        let touched_at = before.and_then(|it| it.touched_at);
        if known.len() < KNOWN_MAX || known.contains_key(&id) {
            let it = Known { pass: pass.clone(), held, first_at, looked_at, used_at, touched_at };
            known.insert(id, it);
        }
        pass
    }

    /// Looks all tokens that are in use up again and again.
    pub(crate) async fn keep_fresh(&self) {
        loop {
            tokio::time::sleep(LOOK_PAUSE).await;
            if let Err(error) = self.look_again().await {
                tracing::warn!(%error, "tokens cannot be looked up");
            }
        }
    }

    async fn look_again(&self) -> Result<(), StoreError> {
        let began = Instant::now();
        let ids = self.in_use();
        if ids.is_empty() {
            return Ok(());
        }
        let mut found: HashMap<TokenId, StoredToken> = self
            .find(ids.clone())
            .await?
            .into_iter()
            .map(|token| (token.record.id, token))
            .collect();
        for id in ids {
            self.note(id, found.remove(&id), began);
        }
        let used = self.to_touch();
        if used.is_empty() { Ok(()) } else { self.store.touch_tokens(used).await }
    }

    /// Forgets who was not seen for long and has nothing open; answers the others.
    fn in_use(&self) -> Vec<TokenId> {
        let mut known = self.known();
        known.retain(|_, it| {
            // By someone with the newest pass, or with an older one.
            let is_open = it.pass.as_ref().is_some_and(|pass| Arc::strong_count(pass) > 1)
                || Arc::strong_count(&it.held) > 2;
            let unused_max = if it.pass.is_some() { UNUSED_MAX } else { KNOWN_MAX_AGE };
            let seen_at = it.used_at.unwrap_or(it.first_at);
            is_open || seen_at.elapsed() < unused_max
        });
        known.iter().filter(|(_, it)| it.pass.is_some()).map(|(id, _)| *id).collect()
    }

    /// Those that were used since that was last written down.
    fn to_touch(&self) -> Vec<TokenId> {
        let now = Instant::now();
        let mut known = self.known();
        let is_due = |it: &&mut Known| {
            let Some(used_at) = it.used_at else { return false };
            let is_new = it.touched_at.is_none_or(|at| used_at > at);
            let was_long_ago = it.touched_at.is_none_or(|at| now - at >= TOUCH_PAUSE);
            it.pass.is_some() && is_new && was_long_ago
        };
        let due = known.iter_mut().map(|(id, it)| (*id, it)).filter(|(_, it)| is_due(it));
        due.map(|(id, it)| {
            it.touched_at = Some(now);
            id
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use windlass::store::{MemoryStore, NewToken, TokenStore as _};
    use windlass::{Operator, Role};

    use super::*;
    use crate::token::{mint, tag_of};

    async fn create_token(store: &MemoryStore) -> Token {
        let token = mint(Role::Admin.into()).unwrap();
        let (id, tag, roles) = (token.id(), tag_of(&token), Role::Admin.into());
        let name = Operator::new("anna").unwrap();
        let new = NewToken { id, tag, name, roles, tenant: None, expires_at: None };
        store.create_token(new).await.unwrap();
        token
    }

    const PROMISED: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_token_that_another_server_revokes_is_refused_within_five_seconds() {
        let store = Arc::new(MemoryStore::new());
        let passes = Passes::new(store.clone());
        let token = create_token(&store).await;
        passes.admit(&token).await.unwrap();
        let began = Instant::now();
        store.revoke_token(token.id()).await.unwrap();
        // Nothing looks again by itself, as if the database did not answer that.
        while passes.admit(&token).await.is_ok() {
            assert!(began.elapsed() < PROMISED);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_token_has_open_is_closed_within_five_seconds_of_its_revocation() {
        let store = Arc::new(MemoryStore::new());
        let passes = Passes::new(store.clone());
        let token = create_token(&store).await;
        let pass = passes.admit(&token).await.unwrap();
        store.revoke_token(token.id()).await.unwrap();
        // One look may have begun before, and this one may take its time as well.
        let time_max = PROMISED - 2 * LOOK_TIME_MAX;
        tokio::select! {
            () = passes.keep_fresh() => {}
            closed = tokio::time::timeout(time_max, pass.over().cancelled()) => closed.unwrap(),
        }
    }

    #[tokio::test]
    async fn only_who_has_the_secret_uses_a_token_and_one_that_is_forgotten_is_over() {
        let store = Arc::new(MemoryStore::new());
        let passes = Passes::new(store.clone());
        let token = create_token(&store).await;
        let id = token.id();
        let last_used = async || {
            passes.look_again().await.unwrap();
            store.find_tokens(vec![id]).await.unwrap()[0].record.last_used_at
        };
        let forged = Token::new(Role::Admin, id, &[7; 32]);
        for _ in 0..2 {
            assert!(passes.admit(&forged).await.is_err());
            assert_eq!(last_used().await, None, "the id alone is known to many");
        }
        let pass = passes.admit(&token).await.unwrap();
        assert!(last_used().await.is_some());
        store.revoke_token(id).await.unwrap();
        passes.forget(id);
        assert!(pass.over().is_cancelled() && passes.admit(&token).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_expires_between_two_lookups_is_refused() {
        let store = Arc::new(MemoryStore::new());
        let passes = Passes::new(store.clone());
        let token = mint(Role::Viewer.into()).unwrap();
        let (id, tag, roles) = (token.id(), tag_of(&token), Role::Viewer.into());
        let name = Operator::new("anna").unwrap();
        let expires_at = Some(store.now().await.unwrap() + LOOK_PAUSE);
        store
            .create_token(NewToken { id, tag, name, roles, tenant: None, expires_at })
            .await
            .unwrap();
        assert!(passes.admit(&token).await.is_ok());
        tokio::time::advance(LOOK_PAUSE).await;
        assert!(passes.recall(id).is_some(), "it has not been looked up again");
        assert!(passes.admit(&token).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_with_something_open_is_looked_up_however_long_it_was_not_shown() {
        let store = Arc::new(MemoryStore::new());
        let passes = Passes::new(store.clone());
        let token = mint(Role::Viewer.into()).unwrap();
        let (id, tag, roles) = (token.id(), tag_of(&token), Role::Viewer.into());
        let name = Operator::new("anna").unwrap();
        store
            .create_token(NewToken { id, tag, name, roles, tenant: None, expires_at: None })
            .await
            .unwrap();
        let open = passes.admit(&token).await.unwrap();
        tokio::time::advance(2 * UNUSED_MAX).await;
        passes.look_again().await.unwrap();
        store.revoke_token(id).await.unwrap();
        passes.look_again().await.unwrap();
        assert!(open.over().is_cancelled());
    }
}
