//! Which of the workers that are there owns what, as this process last saw.
//!
//! Nothing but speed and affinity depends on it: a task is given to one worker by the row that it
//! takes off its queue, and order and limits are kept by lanes. So it may be a little old.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use windlass_core::{Tenant, WorkerId};

use super::PostgresStore;
use super::fault::Fault;
use super::names::{Names, Route, RouteKey};
use super::pool::Tx;
use super::statements as sql;
use super::time::At;
use super::workers::{handlers_of, queues_of};
use crate::store::ClaimRequest;
use crate::store::ring::{Member, Ring};

/// How long a process goes by what it saw.
const RING_KEPT: Duration = Duration::from_secs(1);

/// What was last seen, and when.
#[derive(Default)]
pub(super) struct LastRing(Mutex<Option<(Instant, Arc<Ring>)>>);

impl LastRing {
    fn get(&self) -> Option<(Instant, Arc<Ring>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn learn(&self, ring: Ring) {
        let seen = Some((Instant::now(), Arc::new(ring)));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }
}

impl PostgresStore {
    /// Looks who is there, if tasks have owners and that was not done just now.
    pub(super) async fn see_ring(&self) -> Result<(), Fault> {
        if self.has_old_ring(&self.pool.names().current()) {
            let now = self.clock.as_ref().map(|clock| At(clock.now()));
            self.learn_ring(&self.read(&sql::RING, &[&now]).await?)?;
        }
        Ok(())
    }

    /// The same within a transaction.
    pub(super) async fn see_ring_in(&self, tx: &Tx<'_>) -> Result<(), Fault> {
        if self.has_old_ring(tx.names()) {
            let now = self.clock.as_ref().map(|clock| At(clock.now()));
            self.learn_ring(&tx.query(&sql::RING, &[&now]).await?)?;
        }
        Ok(())
    }

    fn has_old_ring(&self, names: &Names) -> bool {
        let kept = self.pause(RING_KEPT);
        let is_old = || self.ring.get().is_none_or(|(seen, _)| seen.elapsed() >= kept);
        names.has_buckets() && is_old()
    }

    fn learn_ring(&self, rows: &[Row]) -> Result<(), Fault> {
        let member = |row: &Row| {
            let worker = WorkerId::from_uuid(row.get("id"));
            let tenant: Option<&str> = row.get("tenant");
            let tenant = tenant.and_then(|name| Tenant::new(name).ok());
            Ok(Member { worker, queues: queues_of(row)?, handlers: handlers_of(row)?, tenant })
        };
        let members = rows.iter().map(member).collect::<Result<Vec<_>, Fault>>()?;
        self.ring.learn(Ring::new(members));
        Ok(())
    }

    /// Returns whether the result of a claim depends on the worker.
    pub(super) fn has_owners(&self, request: &ClaimRequest) -> bool {
        let routes = self.pool.names().current().serving(&request.queues, &request.handlers);
        routes.iter().any(|(key, _)| key.bucket.is_some())
    }

    /// Returns the routes that a worker serves, without those that other workers own.
    pub(super) fn routes_of(
        &self,
        names: &Names,
        request: &ClaimRequest,
    ) -> Vec<(RouteKey, Route)> {
        let mut routes = names.serving(&request.queues, &request.handlers);
        if routes.iter().all(|(key, _)| key.bucket.is_none()) {
            return routes;
        }
        let ring = self.ring.get().map(|(_, ring)| ring).unwrap_or_default();
        let mut share = ring.share(request.worker, request.tenant.as_ref());
        let mut known = BTreeMap::new();
        routes.retain(|(key, _)| {
            let RouteKey { queue, handler, bucket, .. } = key;
            bucket.is_none_or(|bucket| {
                let known = known.entry((queue.clone(), handler.clone(), bucket));
                *known.or_insert_with(|| share.has(queue, handler, bucket))
            })
        });
        routes
    }
}
