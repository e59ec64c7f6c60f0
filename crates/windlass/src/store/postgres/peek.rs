//! Claims that expect nothing: one statement that changes nothing, instead of a transaction.
//!
//! That such a claim found nothing is not written down, and is remembered here: its number
//! is used. Whoever asks elsewhere with the same number is another worker.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_postgres::Row;
use windlass_core::{ClaimSeq, WorkerId};

use super::PostgresStore;
use super::fault::Fault;
use super::floors::{Found, Front};
use super::statements as sql;
use crate::store::ClaimRequest;

/// The most claims that are remembered. Without them a claim that comes twice might be given
/// something, which its worker hands back with the next heartbeat.
const PEEKS_MAX: usize = 100_000;

/// The newest claims of workers that found nothing and were not written down.
#[derive(Default)]
pub(super) struct Peeks(Mutex<HashMap<WorkerId, ClaimSeq>>);

impl Peeks {
    fn all(&self) -> MutexGuard<'_, HashMap<WorkerId, ClaimSeq>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a claim has been answered.
    pub(super) fn has(&self, request: &ClaimRequest) -> bool {
        self.all().get(&request.worker).is_some_and(|newest| *newest >= request.seq)
    }

    /// A claim was answered with nothing.
    pub(super) fn remember(&self, request: &ClaimRequest) {
        let mut all = self.all();
        if all.len() >= PEEKS_MAX {
            all.clear();
        }
        all.insert(request.worker, request.seq);
    }

    /// What the store says of a worker from now on is newer.
    pub(super) fn forget(&self, worker: WorkerId) {
        self.all().remove(&worker);
    }
}

impl PostgresStore {
    /// Whether there is surely nothing for a worker that expects nothing.
    pub(super) async fn finds_nothing(&self, request: &ClaimRequest) -> Result<bool, Fault> {
        if let Some(tenant) = &request.tenant {
            return self.finds_nothing_of(request, tenant).await;
        }
        let names = self.pool.names().current();
        let routes = self.routes_of(&names, request);
        let ids: Vec<i32> = routes.iter().map(|(_, route)| route.id).collect();
        let floor = |id: &i32| self.floors.get(Front::Route(*id), Found::Nothing);
        let floors: Vec<i64> = ids.iter().map(floor).collect();
        let known = names.route_count();
        let worker = request.worker.as_uuid();
        let rows = self.read(&sql::PEEK, &[worker, &ids, &floors, &known]).await?;
        let Some(row) = rows.first() else { return Ok(false) };
        Ok(self.is_idle(request, row))
    }

    /// Whether a worker may claim and would find nothing, by what [`sql::PEEK`] says; then it is
    /// remembered that it did.
    pub(super) fn is_idle(&self, request: &ClaimRequest, row: &Row) -> bool {
        let last_claim = ClaimSeq(row.get::<_, i64>("last_claim").cast_unsigned());
        let is_new = last_claim < request.seq && !self.peeks.has(request);
        let may_claim = row.get::<_, bool>("is_live") && is_new;
        let is_any = row.get::<_, bool>("has_tasks") || row.get("has_routes");
        let is_none = may_claim && !is_any;
        if is_none {
            self.peeks.remember(request);
        }
        is_none
    }
}
