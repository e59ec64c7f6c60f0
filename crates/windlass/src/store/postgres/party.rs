//! Claims of several workers in one transaction.
//!
//! A server claims for all who ask it. One look at the queues and one commit serve all that can run
//! the same; what is found goes to one after the other, so that few tasks are shared by many.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uuid::Uuid;
use windlass_core::{ClaimSeq, WorkerId};

use super::PostgresStore;
use super::claim::lost;
use super::fault::Fault;
use super::leases::Life;
use super::pool::{Ask, Params};
use super::statements as sql;
use super::writes::Writes;
use crate::store::declared::Declared;
use crate::store::{ClaimRequest, Claimed, StoreError};

/// What a claim is answered.
pub(super) type Told = Result<Vec<Claimed>, StoreError>;

/// Whom tasks are taken for: one worker for each task, or the first for all.
#[derive(Clone)]
pub(super) struct Party {
    pub(super) workers: Vec<Uuid>,
    /// The numbers of their claims.
    pub(super) seqs: Vec<i64>,
}

impl Party {
    /// All is for one worker.
    pub(super) fn of_one(request: &ClaimRequest) -> Result<Self, Fault> {
        let seq = i64::try_from(request.seq.0).map_err(|_| {
            let text = format!("claim number {} is over the limit of {}", request.seq.0, i64::MAX);
            StoreError::Conflict(text)
        })?;
        Ok(Party { workers: vec![*request.worker.as_uuid()], seqs: vec![seq] })
    }

    /// A task for each in turn, until each has as many as it wants.
    fn of(requests: &[&ClaimRequest]) -> Result<Self, Fault> {
        let ones = requests.iter().map(|one| Party::of_one(one)).collect::<Result<Vec<_>, _>>()?;
        let most = requests.iter().map(|one| one.limit).max().unwrap_or_default();
        let (mut workers, mut seqs) = (Vec::new(), Vec::new());
        for turn in 0..most {
            for (request, one) in requests.iter().zip(&ones) {
                if turn < request.limit {
                    workers.extend(&one.workers);
                    seqs.extend(&one.seqs);
                }
            }
        }
        Ok(Party { workers, seqs })
    }

    /// Whether all is for one worker.
    pub(super) fn is_of_one(&self) -> bool {
        self.workers.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Whom tasks are for when so many have been taken.
    pub(super) fn behind(&self, count: usize) -> Self {
        let from = if self.workers.len() > count { count } else { 0 };
        Party { workers: self.workers[from..].to_vec(), seqs: self.seqs[from..].to_vec() }
    }
}

/// The most tasks of claims that are answered together: whoever is among them is locked until all
/// that has been read, and its heartbeat waits.
const PARTY_MAX: usize = 500;

/// Claims that can be answered together.
struct Group<'a> {
    /// One of them.
    request: &'a ClaimRequest,
    workers: BTreeSet<WorkerId>,
    limit: usize,
    places: Vec<usize>,
    /// Whether what is found depends on who asks.
    is_owned: bool,
}

impl PostgresStore {
    /// Which of these claims can be answered together, by their places: those of workers that ask
    /// for the same, each of them once.
    pub(super) fn parties(&self, requests: &[ClaimRequest]) -> Vec<Vec<usize>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for (place, request) in requests.iter().enumerate() {
            let (limit, worker) = (request.limit, request.worker);
            let is_alike = |other: &ClaimRequest| {
                other.queues == request.queues
                    && other.handlers == request.handlers
                    && other.tenant == request.tenant
            };
            let alike = groups.iter_mut().filter(|group| is_alike(group.request));
            let fits = |group: &&mut Group<'_>| {
                let is_new = !group.workers.contains(&worker);
                !group.is_owned && is_new && group.limit + limit <= PARTY_MAX
            };
            let mut alike: Vec<&mut Group<'_>> = alike.collect();
            let is_owned = match alike.first() {
                Some(group) => group.is_owned,
                None => self.has_owners(request),
            };
            match alike.iter_mut().map(|group| &mut **group).find(fits) {
                Some(group) => {
                    group.workers.insert(worker);
                    group.limit += limit;
                    group.places.push(place);
                }
                None => {
                    let (workers, places) = (BTreeSet::from([worker]), vec![place]);
                    groups.push(Group { request, workers, limit, places, is_owned });
                }
            }
        }
        groups.into_iter().map(|group| group.places).collect()
    }

    /// Answers the claims of one party, but for those of workers that someone has locked: they are
    /// not waited for while others are locked here.
    pub(super) async fn claim_together(
        &self,
        requests: &[&ClaimRequest],
        tries: &AtomicU32,
    ) -> Result<Vec<Option<Told>>, Fault> {
        let is_first = tries.fetch_add(1, Ordering::Relaxed) == 0;
        self.see_ring().await?;
        let mut allowed: BTreeMap<WorkerId, Arc<Declared>> = BTreeMap::new();
        for request in requests {
            // What is wrong with one is told when it is answered alone.
            match self.check_claim(request).await {
                Ok(declared) => allowed.extend(declared.map(|it| (request.worker, it))),
                Err(Fault::Answer(StoreError::Conflict(_) | StoreError::NotFound(_))) => {}
                Err(fault) => return Err(fault),
            }
        }
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let ids: Vec<Uuid> = requests.iter().map(|one| *one.worker.as_uuid()).collect();
        let Some(first) = requests.first() else { return Ok(Vec::new()) };
        let routes = self.routes_of(tx.names(), first);
        let levels = self.levels_to_read(&routes);
        let (workers, read): (Params<'_>, Params<'_>) = (&[&ids], &[&levels]);
        let asks: [Ask<'_>; 4] = [
            (&sql::LOCK_WORKERS, workers),
            (&sql::PULSES, workers),
            (&sql::CLOCK, &[]),
            (&sql::VIRTUAL_TIMES, read),
        ];
        let [rows, pulses, clock, times] = tx.query_all(asks).await?;
        let now = self.now_of(&clock)?;
        let times: HashMap<i32, i64> = times.iter().map(|row| (row.get(0), row.get(1))).collect();
        let mut lives = Life::of_all(&rows, &pulses)?;
        let mut told: BTreeMap<WorkerId, Told> = BTreeMap::new();
        let mut claims: Vec<(ClaimRequest, Life)> = Vec::new();
        for request in requests.iter().copied() {
            let worker = request.worker;
            let told = &mut told;
            match lives.remove(&worker) {
                // Someone has it, or it does not exist.
                None => continue,
                Some(life) if !life.is_live() => {
                    self.peeks.forget(worker);
                    told.insert(worker, Err(StoreError::LeaseLost(worker)));
                }
                // The commit of an earlier try took place, see `claim_try`.
                Some(life) if request.seq <= life.last_claim && !is_first => {
                    told.insert(worker, Err(lost(request)));
                }
                Some(life)
                    if request.seq <= life.last_claim
                        || self.peeks.has(request)
                        || life.is_late(now) =>
                {
                    told.insert(worker, Ok(Vec::new()));
                }
                Some(life) => match allowed.get(&worker).map(|it| it.room(request, life.held)) {
                    None => continue,
                    Some(Err(refused)) => {
                        told.insert(worker, Err(refused));
                    }
                    Some(Ok(limit)) => {
                        told.insert(worker, Ok(Vec::new()));
                        claims.push((ClaimRequest { limit, ..request.clone() }, life));
                    }
                },
            }
        }
        let claiming: Vec<&ClaimRequest> = claims.iter().map(|(request, _)| request).collect();
        let party = Party::of(&claiming)?;
        let all = ClaimRequest { limit: party.workers.len(), ..(*first).clone() };
        let taken = self.take_all(&tx, &all, &party, &routes, &times, None).await?;
        let with: BTreeSet<WorkerId> = taken.iter().filter_map(|one| one.worker).collect();
        let (given, empty): (Vec<_>, Vec<_>) =
            claims.into_iter().partition(|(request, _)| with.contains(&request.worker));
        let given: Vec<(ClaimSeq, Life)> =
            given.into_iter().map(|(request, life)| (request.seq, life)).collect();
        let mut writes = Writes::default();
        let handout = self.hand_out(&tx, given, now, taken, &mut writes).await?;
        let rows = tx.commit(writes).await?;
        // That they were given nothing is not written down, and is remembered.
        empty.into_iter().for_each(|(request, _)| self.peeks.remember(&request));
        for (worker, claimed) in self.handed_out(handout, rows) {
            if let Some(Ok(told)) = worker.and_then(|worker| told.get_mut(&worker)) {
                told.push(claimed);
            }
        }
        Ok(requests.iter().map(|one| told.remove(&one.worker)).collect())
    }
}
