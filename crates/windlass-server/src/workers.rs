//! Caps the live workers of each token and each tenant.
//!
//! Each server counts the workers that joined through it. A worker counts until it leaves or its
//! stream ends, and then until its lease has expired.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use windlass::{ErrorKind, Tenant, TokenId, WorkerId};

use crate::identity::Identity;
use crate::options::ServerOptions;
use crate::problem::Problem;

/// The shortest and the longest lease of a worker, over HTTP and gRPC.
pub(crate) const LEASE_MIN: Duration = Duration::from_secs(1);
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(86_400);

/// How long a worker counts at least after it was last heard of.
const SILENCE_MIN: Duration = Duration::from_secs(60);

/// The live workers.
#[derive(Debug)]
pub(crate) struct LiveWorkers {
    per_token_max: usize,
    per_tenant_max: usize,
    known: Mutex<HashMap<Key, Live>>,
}

/// A worker: each tenant has its own ids.
type Key = (Option<Tenant>, WorkerId);

#[derive(Debug)]
struct Live {
    token: Option<TokenId>,
    lease: Duration,
    /// When it stops to count, if it has no stream.
    until: Option<Instant>,
}

impl Live {
    fn expiry(&self) -> Option<Instant> {
        Some(Instant::now() + self.lease.max(SILENCE_MIN))
    }
}

impl LiveWorkers {
    pub(crate) fn new(options: &ServerOptions) -> Self {
        LiveWorkers {
            per_token_max: options.workers_per_token_max,
            per_tenant_max: options.workers_per_tenant_max,
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Live>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a worker that is about to join, or refuses it. Joining again counts once. A worker that
    /// did not count before stops to count if the result is dropped before it [joined](Joining::joined).
    pub(crate) fn join(
        &self,
        identity: &Identity,
        worker: WorkerId,
        lease: Duration,
        has_stream: bool,
    ) -> Result<Joining<'_>, Problem> {
        let (token, tenant) = (identity.token(), identity.tenant().cloned());
        let key = (tenant, worker);
        let mut known = self.known();
        let now = Instant::now();
        known.retain(|_, live| live.until.is_none_or(|until| until > now));
        let is_new = !known.contains_key(&key);
        if is_new {
            let of_token = known.values().filter(|live| live.token == token).count();
            let of_tenant = known.keys().filter(|(of, _)| *of == key.0).count();
            if token.is_some() && of_token >= self.per_token_max {
                return Err(refused("token", self.per_token_max, "workers-per-token"));
            }
            if key.0.is_some() && of_tenant >= self.per_tenant_max {
                return Err(refused("tenant", self.per_tenant_max, "workers-per-tenant"));
            }
        }
        let mut live = Live { token, lease, until: None };
        live.until = if has_stream { None } else { live.expiry() };
        let joining = Joining { workers: self, key: is_new.then(|| key.clone()) };
        known.insert(key, live);
        Ok(joining)
    }

    /// A worker without a stream was heard of.
    pub(crate) fn touch(&self, identity: &Identity, worker: WorkerId) {
        if let Some(live) = self.known().get_mut(&(identity.tenant().cloned(), worker))
            && live.until.is_some()
        {
            live.until = live.expiry();
        }
    }

    /// The stream of a worker has ended: it counts until its lease has expired.
    pub(crate) fn detach(&self, identity: &Identity, worker: WorkerId) {
        if let Some(live) = self.known().get_mut(&(identity.tenant().cloned(), worker)) {
            live.until = live.expiry();
        }
    }

    /// A worker has left.
    pub(crate) fn leave(&self, identity: &Identity, worker: WorkerId) {
        self.known().remove(&(identity.tenant().cloned(), worker));
    }
}

/// A worker that counts while it joins.
#[must_use = "it stops to count when this is dropped"]
#[derive(Debug)]
pub(crate) struct Joining<'a> {
    workers: &'a LiveWorkers,
    key: Option<Key>,
}

impl Joining<'_> {
    /// Keeps counting the worker, which has joined.
    pub(crate) fn joined(mut self) {
        self.key = None;
    }
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.workers.known().remove(&key);
        }
    }
}

fn refused(whose: &str, max: usize, option: &str) -> Problem {
    let detail = format!(
        "this {whose} already has {max} live workers, which is the limit: let workers leave, give \
         each more slots, or raise --{option}"
    );
    Problem::new(ErrorKind::Limited, detail)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::http::Request;
    use windlass::store::MemoryStore;

    use super::*;
    use crate::identity::{Access, Door};
    use crate::rights::{Need, Reach, Right};

    #[tokio::test]
    async fn a_worker_counts_from_its_first_join_that_succeeds() {
        let access = Access::insecure_dev().for_tenant(Tenant::new("acme").unwrap());
        let door = Door::new(access.clone(), Arc::new(MemoryStore::new()));
        let request = Request::builder().body(()).unwrap();
        let need = Need { right: Right::Work, reach: Reach::Tenant };
        let identity = door.identify(&request.into_parts().0, need).await.unwrap();
        let mut options = ServerOptions::new(access);
        options.workers_per_tenant_max = 1;
        let workers = LiveWorkers::new(&options);
        let join = |worker: u128| {
            workers.join(&identity, WorkerId::from_random(worker << 64), SILENCE_MIN, true)
        };
        drop(join(1).unwrap());
        join(2).expect("the first one did not join").joined();
        drop(join(2).expect("it may join again"));
        assert!(join(3).is_err(), "the second one still counts");
    }
}
