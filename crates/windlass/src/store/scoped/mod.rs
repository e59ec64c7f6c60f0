//! A store as one tenant sees it.
//!
//! [`ScopedStore`] is given to whoever acts for one tenant, in the place of the store itself: scope
//! is a matter of type, and a new verb does not compile until it is said here what it does for one
//! tenant. What another tenant has does not exist: it is answered by the very words that a missing
//! thing is answered by. What all tenants share can neither be changed nor be seen in sums.
//!
//! This is the first wall. Where the store has a second ([`Store::walled`]), everything is read
//! through it, also what decides whether a run may be changed.
//!
//! It does not say who someone is, nor what a role may do: see the server.

mod ids;
mod link;
mod owned;
mod programs;
mod quotas;
mod scopes;
mod tokens;
mod verbs;

use std::collections::HashSet;
use std::sync::Arc;

use windlass_core::{Definition, RunId, Tenant};

use self::owned::Owned;
pub use self::scopes::{SCOPES_MAX, Scopes};
use super::batch::{BATCH_MAX, check_batch};
use super::{Answer, Refusal, Store, StoreError, find_workflow};

/// A store for one tenant.
///
/// It remembers for a while which runs are the tenant's, so it is made once and kept: see
/// [`Scopes`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use windlass::store::{MemoryStore, RunFilter, ScopedStore, Store, StoreError};
/// use windlass::Tenant;
///
/// let all = Arc::new(MemoryStore::new());
/// let acme = ScopedStore::new(all, Tenant::new("acme")?);
/// let others = RunFilter { tenant: Some(Tenant::new("zenith")?), ..RunFilter::default() };
/// assert!(matches!(acme.list_runs(others).await, Err(StoreError::Forbidden(_))));
/// # Ok(()) }
/// ```
pub struct ScopedStore {
    /// All of it.
    store: Arc<dyn Store>,
    /// What is read goes through this: behind the second wall, if there is one.
    reads: Arc<dyn Store>,
    tenant: Tenant,
    owned: Owned,
    /// Whether the first wall stands: always, but in tests of the second.
    is_guarded: bool,
}

impl ScopedStore {
    /// The part of a store that is a tenant's.
    pub fn new(store: Arc<dyn Store>, tenant: Tenant) -> Self {
        let reads = store.walled(&tenant).unwrap_or_else(|| Arc::clone(&store));
        ScopedStore { store, reads, tenant, owned: Owned::default(), is_guarded: true }
    }

    /// The same with the first wall taken down, to see whether the second holds alone.
    #[cfg(feature = "planted-bugs")]
    pub fn without_predicate(store: Arc<dyn Store>, tenant: Tenant) -> Self {
        ScopedStore { is_guarded: false, ..ScopedStore::new(store, tenant) }
    }

    /// The same without the second wall, to see whether the first holds alone.
    #[cfg(feature = "planted-bugs")]
    pub fn without_wall(store: Arc<dyn Store>, tenant: Tenant) -> Self {
        ScopedStore { reads: Arc::clone(&store), ..ScopedStore::new(store, tenant) }
    }

    /// The same without either, to see that the tests of both can fail.
    #[cfg(feature = "planted-bugs")]
    pub fn without_walls(store: Arc<dyn Store>, tenant: Tenant) -> Self {
        ScopedStore { is_guarded: false, ..ScopedStore::without_wall(store, tenant) }
    }

    /// Whose it is.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Whether something is the tenant's.
    fn is_mine(&self, tenant: &Tenant) -> bool {
        *tenant == self.tenant || !self.is_guarded
    }

    /// Whether a run is the tenant's.
    async fn owns(&self, run: RunId) -> Result<bool, StoreError> {
        Ok(!self.owned_of([run]).await?.is_empty())
    }

    /// Which of these runs are the tenant's. However many they are, few questions are asked.
    async fn owned_of(
        &self,
        runs: impl IntoIterator<Item = RunId>,
    ) -> Result<HashSet<RunId>, StoreError> {
        let all: HashSet<RunId> = runs.into_iter().collect();
        let (mut owned, others): (HashSet<RunId>, HashSet<RunId>) =
            all.into_iter().partition(|run| self.owned.has(*run));
        let others: Vec<RunId> = others.into_iter().collect();
        for some in others.chunks(BATCH_MAX) {
            for (run, tenant) in self.reads.whose(some.to_vec()).await? {
                if self.is_mine(&tenant) {
                    self.owned.remember(run);
                    owned.insert(run);
                }
            }
        }
        Ok(owned)
    }

    /// A run of another tenant is missing.
    async fn check_run(&self, run: RunId) -> Result<(), StoreError> {
        match self.owns(run).await? {
            true => Ok(()),
            false => Err(StoreError::NotFound(format!("run {run}"))),
        }
    }

    /// What is asked for or made must be the tenant's.
    fn check_tenant(&self, said: &Tenant) -> Result<(), StoreError> {
        if *said == self.tenant {
            return Ok(());
        }
        let own = &self.tenant;
        let text = format!("what is tenant {said:?}'s is not for whoever acts for tenant {own:?}");
        Err(StoreError::Forbidden(text))
    }

    /// The tenant to ask for, by what was asked for.
    fn narrowed(&self, said: Option<Tenant>) -> Result<Option<Tenant>, StoreError> {
        said.as_ref().map_or(Ok(()), |said| self.check_tenant(said))?;
        Ok(self.is_guarded.then(|| self.tenant.clone()))
    }

    /// What all tenants share is for whoever acts for all of them.
    fn shared<T>(&self, what: &str) -> Result<T, StoreError> {
        let text = format!(
            "{what} is for whoever acts for all tenants, not for tenant {:?} alone",
            self.tenant
        );
        Err(StoreError::Forbidden(text))
    }

    /// Workflows are no tenant's: one that is registered as it is may be named again.
    async fn check_registered(&self, definition: &Definition) -> Result<(), StoreError> {
        let (name, version) = (definition.name(), definition.version());
        match find_workflow(&*self.store, name, version).await? {
            Some(known) if *known == *definition => Ok(()),
            Some(_) => self.shared(&format!(
                "to register workflow {name:?} version {version}, which is there with other policies \
                 or tasks,"
            )),
            None => self.shared(&format!(
                "to register workflow {name:?} version {version}, which nobody has,"
            )),
        }
    }

    /// Keeps what is about the tenant's runs, and says of each whether it was kept.
    async fn sift<T>(
        &self,
        items: Vec<T>,
        run_of: impl Fn(&T) -> RunId + Send,
    ) -> Result<(Vec<T>, Vec<bool>), StoreError>
    where
        T: Send,
    {
        check_batch(items.len())?;
        let owned = self.owned_of(items.iter().map(&run_of)).await?;
        let places: Vec<bool> = items.iter().map(|item| owned.contains(&run_of(item))).collect();
        let mut is_kept = places.iter();
        let kept = items.into_iter().filter(|_| is_kept.next() == Some(&true)).collect();
        Ok((kept, places))
    }
}

/// The answers to all, by those to what was kept: the rest is not there.
fn spread<A>(places: Vec<bool>, kept: Vec<A>, missing: impl Fn() -> A) -> Vec<A> {
    let mut kept = kept.into_iter();
    let answer = |is_kept: bool| if is_kept { kept.next() } else { Some(missing()) };
    places.into_iter().map_while(answer).collect()
}

/// What is said of a task that is not there.
fn unknown() -> Answer {
    Answer::Refused(Refusal::UnknownTask)
}

impl std::fmt::Debug for ScopedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScopedStore").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}
