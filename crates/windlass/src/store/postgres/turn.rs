//! Claims for one tenant alone.
//!
//! They look at that tenant's own tasks, by an index that has no others, choose as any claim does,
//! and take what they chose. Nothing of it moves what claims for all go by: neither the floors of
//! routes nor the virtual time of levels, as the tenant is served out of turn.
//!
//! What stands in a level and is not served by whoever asks is passed over, a bounded number at each
//! look; the next look goes on behind it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{TaskId, Tenant};

use super::PostgresStore;
use super::claim::Taken;
use super::fault::Fault;
use super::floors::{Found, Front, Look};
use super::names::{Route, RouteKey};
use super::order::{Standing, firsts_of, in_turn};
use super::party::Party;
use super::pool::{Params, Tx};
use super::statements as sql;
use super::time::At;
use super::work::task_id;
use crate::store::ClaimRequest;

/// The most tasks of a level that one look passes.
const LOOK_MAX: usize = 500;

/// The most looks of one claim: what is left to see is for the next.
const LOOKS_MAX: usize = 4;

/// A ready task of the tenant.
#[derive(Clone, Copy)]
struct Candidate {
    id: TaskId,
    route: i32,
    slot: (i64, i64),
}

/// What is looked at of one level.
struct Level {
    /// Where the first look began.
    from: i64,
    /// Where the next look begins.
    next: i64,
    /// Whether there is more behind the last look.
    is_cut: bool,
    /// Its routes that are served.
    routes: Vec<i32>,
    found: BTreeMap<(i64, i64), Candidate>,
}

impl Level {
    /// What a look has brought, of which there may be more if it is as much as was asked for.
    fn see(&mut self, rows: &[&Row]) {
        self.is_cut = rows.len() >= LOOK_MAX;
        for row in rows {
            let (slot, route) = ((row.get("tag"), row.get("seq")), row.get("route_id"));
            self.next = slot.0;
            if self.routes.contains(&route) {
                self.found.insert(slot, Candidate { id: task_id(row), route, slot });
            }
        }
    }
}

impl PostgresStore {
    /// Takes tasks of one tenant off their queues and leases them, in the order in which they are
    /// to be handed out.
    pub(super) async fn take_of(
        &self,
        tx: &Tx<'_>,
        request: &ClaimRequest,
        tenant: &Tenant,
        party: &Party,
        routes: &[(RouteKey, Route)],
    ) -> Result<Vec<Taken>, Fault> {
        if routes.is_empty() || request.limit == 0 {
            return Ok(Vec::new());
        }
        let Some(number) = tx.names().number_of(tx, tenant).await? else {
            return Ok(Vec::new());
        };
        let mut taken: Vec<Taken> = Vec::new();
        let mut looked: BTreeMap<i32, i64> = BTreeMap::new();
        for found in [Found::Nothing, Found::TooLittle] {
            let began = Instant::now();
            let levels = self.levels_of(routes, number, found);
            // The second look is of use where it begins before the first.
            let is_lower = |(id, level): (&i32, &Level)| {
                looked.get(id).is_none_or(|looked| level.from < *looked)
            };
            if taken.len() >= request.limit || !levels.iter().any(is_lower) {
                continue;
            }
            looked = levels.iter().map(|(id, level)| (*id, level.from)).collect();
            let rest = request.limit - taken.len();
            let (levels, times) = self.look_at_turns(tx, number, levels, rest).await?;
            let chosen = choose(request, routes, &levels, rest);
            let got = self.take_these(tx, number, routes, &chosen, party, taken.len()).await?;
            self.learn_turns(number, &levels, &times, &chosen, began);
            taken.extend(got);
        }
        Ok(taken)
    }

    /// Whether there is surely nothing of a tenant for a worker that expects nothing.
    pub(super) async fn finds_nothing_of(
        &self,
        request: &ClaimRequest,
        tenant: &Tenant,
    ) -> Result<bool, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let routes = self.routes_of(tx.names(), request);
        let (none, floors): (Vec<i32>, Vec<i64>) = (Vec::new(), Vec::new());
        let known = tx.names().route_count();
        let worker = request.worker.as_uuid();
        let rows = tx.query(&sql::PEEK, &[worker, &none, &floors, &known]).await?;
        let Some(row) = rows.first() else { return Ok(false) };
        let Some(number) = tx.names().number_of(&tx, tenant).await? else {
            return Ok(self.is_idle(request, row));
        };
        let levels = self.levels_of(&routes, number, Found::TooLittle);
        let (levels, _) = self.look_at_turns(&tx, number, levels, 1).await?;
        let is_any = levels.values().any(|level| level.is_cut || !level.found.is_empty());
        Ok(!is_any && self.is_idle(request, row))
    }

    /// The levels of routes, and from where on to look in each.
    fn levels_of(
        &self,
        routes: &[(RouteKey, Route)],
        tenant: i32,
        found: Found,
    ) -> BTreeMap<i32, Level> {
        let mut levels: BTreeMap<i32, Level> = BTreeMap::new();
        for (_, Route { id, level }) in routes {
            let from = self.floors.get(Front::Turn { route: *id, tenant }, found);
            let level = levels.entry(*level).or_insert_with(|| Level {
                from,
                next: from,
                is_cut: true,
                routes: Vec::new(),
                found: BTreeMap::new(),
            });
            level.from = level.from.min(from);
            level.next = level.from;
            level.routes.push(*id);
        }
        levels
    }

    /// Looks until each level has shown as much as is wanted, or all it has, or there were enough
    /// looks. Answers also the virtual times of the levels, as they were before.
    async fn look_at_turns(
        &self,
        tx: &Tx<'_>,
        tenant: i32,
        mut levels: BTreeMap<i32, Level>,
        wanted: usize,
    ) -> Result<(BTreeMap<i32, Level>, HashMap<i32, i64>), Fault> {
        let most = i64::try_from(LOOK_MAX).unwrap_or(i64::MAX);
        let mut times = HashMap::new();
        for look in 0..LOOKS_MAX {
            let is_open = |level: &Level| level.is_cut && level.found.len() < wanted;
            let open = levels.iter().filter(|(_, level)| is_open(level));
            let (ids, floors): (Vec<i32>, Vec<i64>) =
                open.map(|(id, level)| (*id, level.next)).unzip();
            if ids.is_empty() {
                break;
            }
            let params: Params<'_> = &[&ids, &floors, &tenant, &most];
            let rows = if look == 0 {
                let read: Params<'_> = &[&ids];
                let [read, rows] = tx
                    .query_all([(&sql::VIRTUAL_TIMES, read), (&sql::CANDIDATES_OF, params)])
                    .await?;
                times = read.iter().map(|row| (row.get(0), row.get(1))).collect();
                rows
            } else {
                tx.query(&sql::CANDIDATES_OF, params).await?
            };
            let mut by_level: HashMap<i32, Vec<&Row>> = HashMap::new();
            for row in &rows {
                by_level.entry(row.get("level_id")).or_default().push(row);
            }
            for id in ids {
                let seen = by_level.remove(&id).unwrap_or_default();
                levels.entry(id).and_modify(|level| level.see(&seen));
            }
        }
        Ok((levels, times))
    }

    /// Takes chosen tasks, but for those that others took meanwhile.
    async fn take_these(
        &self,
        tx: &Tx<'_>,
        tenant: i32,
        routes: &[(RouteKey, Route)],
        chosen: &[Candidate],
        party: &Party,
        before: usize,
    ) -> Result<Vec<Taken>, Fault> {
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        let runs: Vec<Uuid> = chosen.iter().map(|one| *one.id.run.as_uuid()).collect();
        let places: Vec<i32> = chosen.iter().map(|one| one.id.index.0.cast_signed()).collect();
        let served: Vec<i32> = routes.iter().map(|(_, route)| route.id).collect();
        let Party { workers, seqs } = party.behind(before);
        let now = self.clock.as_ref().map(|clock| At(clock.now()));
        let params: Params<'_> = &[&runs, &places, &tenant, &served, &workers, &seqs, &now];
        let rows = tx.query(&sql::CLAIM_OF, params).await?;
        let mut taken: HashMap<TaskId, Taken> =
            rows.iter().map(Taken::of).map(|one| (one.id, one)).collect();
        Ok(chosen.iter().filter_map(|one| taken.remove(&one.id)).collect())
    }

    /// Remembers where the next look begins in each route.
    fn learn_turns(
        &self,
        tenant: i32,
        levels: &BTreeMap<i32, Level>,
        times: &HashMap<i32, i64>,
        chosen: &[Candidate],
        began: Instant,
    ) {
        for (id, level) in levels {
            for route in &level.routes {
                let front = Front::Turn { route: *route, tenant };
                let look = Look { front, from: level.from, took: began.elapsed() };
                let is_left = |one: &&Candidate| {
                    one.route == *route && !chosen.iter().any(|taken| taken.id == one.id)
                };
                match (level.found.values().find(is_left), level.is_cut) {
                    (Some(first), _) => self.floors.learn(look, first.slot.0, false),
                    (None, true) => self.floors.learn_cut(look, level.next),
                    // What comes stands behind virtual time.
                    (None, false) => {
                        let at = times.get(id).copied().unwrap_or(i64::MIN);
                        self.floors.learn(look, at, true);
                    }
                }
            }
        }
    }
}

/// What to take, in the order in which it is handed out.
fn choose(
    request: &ClaimRequest,
    routes: &[(RouteKey, Route)],
    levels: &BTreeMap<i32, Level>,
    limit: usize,
) -> Vec<Candidate> {
    let key_of: HashMap<i32, &RouteKey> =
        routes.iter().map(|(key, route)| (route.id, key)).collect();
    let all = levels.values().flat_map(|level| level.found.values());
    let standing = all.filter_map(|one| {
        let key = key_of.get(&one.route)?;
        let order = (Reverse(key.priority), one.slot);
        Some(Standing { queue: key.queue.clone(), order, item: *one })
    });
    let standing: Vec<Standing<Candidate>> = standing.collect();
    let firsts = firsts_of(request, &standing);
    in_turn(request, standing, &firsts, limit)
}
