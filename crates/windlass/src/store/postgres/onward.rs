//! A claim that follows completions in their transaction: what a task made ready begins without
//! another commit.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use windlass_core::{TaskId, Tenant};

use super::PostgresStore;
use super::claim::{Grab, lost};
use super::fault::Fault;
use super::floors::Found;
use super::leases::Life;
use super::names::ROUTES_AFTER_ENOUGH;
use super::party::Party;
use super::pool::{Ask, Params, Tx};
use super::statements as sql;
use super::work::Work;
use super::writes::Writes;
use crate::store::declared::Declared;
use crate::store::{ClaimRequest, Claimed, StoreError};

/// A claim that follows completions in their transaction.
pub(super) struct Next<'a> {
    request: &'a ClaimRequest,
    declared: &'a Declared,
    /// Whether its commit was sent: if the answer is lost, it may have taken place.
    is_sent: AtomicBool,
    /// Whether more was taken early than the worker has free slots: the next try takes tasks once it
    /// knows how many those are.
    is_over: AtomicBool,
}

impl<'a> Next<'a> {
    pub(super) fn new(request: &'a ClaimRequest, declared: &'a Declared) -> Self {
        Next { request, declared, is_sent: AtomicBool::new(false), is_over: AtomicBool::new(false) }
    }

    /// Whether another try may claim what this one could not.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// What the worker must hear if an earlier try may have taken tasks that it does not know
    /// of, and say so in a heartbeat.
    pub(super) fn lost(&self) -> Option<StoreError> {
        self.is_sent.load(Ordering::Relaxed).then(|| lost(self.request))
    }
}

impl PostgresStore {
    /// Finishes what a verb has changed, and claims in its transaction some of what that made
    /// ready. `None` if the worker may not have it, and all is to be rolled back.
    pub(super) async fn conclude_and_claim(
        &self,
        tx: Tx<'_>,
        work: &mut Work,
        next: &Next<'_>,
    ) -> Result<Option<Vec<Claimed>>, Fault> {
        let request = next.request;
        self.settle(&tx, work).await?;
        if work.moves.enqueued.is_empty() {
            self.conclude(tx, work).await?;
            return Ok(Some(Vec::new()));
        }
        // A worker that is never short of tasks may make no other claims.
        tx.names().read_routes(&tx, self.pause(ROUTES_AFTER_ENOUGH)).await?;
        self.see_ring_in(&tx).await?;
        let party = Party::of_one(request)?;
        let mut opening = self.opening(tx.names(), request, &party);
        opening.early = opening.early.filter(|_| !next.is_over());
        let is_served = |task: &TaskId| {
            let run = work.runs.get(&task.run);
            let is_meant = |tenant: &Tenant| run.is_some_and(|run| run.tenant == *tenant);
            let key = run.map(|run| run.route_key(task.index));
            request.tenant.as_ref().is_none_or(is_meant)
                && opening.routes.iter().any(|(route, _)| Some(route) == key.as_ref())
        };
        let writes = work.writes(tx.names())?;
        if !work.moves.enqueued.iter().any(is_served) {
            self.conclude_with(tx, work, writes).await?;
            return Ok(Some(Vec::new()));
        }
        let worker = request.worker.as_uuid();
        let workers = vec![*worker];
        let (lock, pulses): (Params<'_>, Params<'_>) = (&[worker], &[&workers]);
        // A worker that someone has locked is not waited for: its run is locked here, and
        // workers come before runs.
        let mut asks: Vec<Ask<'_>> =
            vec![(&sql::LOCK_FREE_WORKER, lock), (&sql::PULSES, pulses), (&sql::CLOCK, &[])];
        let early = opening.early.as_ref().map(Grab::params);
        let levels: Params<'_> = &[&opening.levels];
        asks.extend(opening.asks(levels, early.as_ref().map(|early| early.as_slice())));
        let began = Instant::now();
        let mut rows = match tx.write(&writes, &asks).await {
            Ok(rows) => rows,
            Err(fault) => return Err(self.stray_row(fault, work).await),
        };
        drop(writes);
        let (times, early) = opening.read(rows.split_off(3), began.elapsed());
        let now = self.now_of(&rows[2])?;
        let life = Life::of(request.worker, &rows[0], &rows[1])?.filter(Life::is_live);
        let is_new = |life: &Life| request.seq > life.last_claim && !self.peeks.has(request);
        let Some(life) = life.filter(|life| is_new(life) && !life.is_late(now)) else {
            return Ok(None);
        };
        let Ok(limit) = next.declared.room(request, life.held) else { return Ok(None) };
        if early.as_ref().is_some_and(|early| early.taken.len() > limit) {
            next.is_over.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        let request = &ClaimRequest { limit, ..request.clone() };
        // What has just become ready stands behind every floor: one look sees it.
        let looks = &[Found::Nothing];
        let routes = &opening.routes;
        let taken = match &request.tenant {
            None => self.take(&tx, request, &party, routes, &times, early, looks).await?,
            Some(tenant) => self.take_of(&tx, request, tenant, &party, routes).await?,
        };
        let are_taken: BTreeSet<TaskId> = taken.iter().map(|one| one.id).collect();
        // Nobody else need hear of them.
        work.moves.enqueued.retain(|task| !are_taken.contains(task));
        let mut writes = Writes::default();
        let handout =
            self.hand_out(&tx, vec![(request.seq, life)], now, taken, &mut writes).await?;
        next.is_sent.store(true, Ordering::Relaxed);
        let rows = self.conclude_with(tx, work, writes).await?;
        Ok(Some(self.handed_out(handout, rows).map(|(_, claimed)| claimed).collect()))
    }
}
