//! Claims: which routes to look at, from where on, and what the worker is told.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use windlass_core::{ClaimSeq, Fence, TaskId, Timestamp, WorkerId};

use super::PostgresStore;
use super::fault::Fault;
use super::floors::{Found, Front, Look};
use super::handout::{Facts, Named, Questions};
use super::history::write_history;
use super::leases::{Life, limit_leases};
use super::names::{
    Names, ROUTES_AFTER_ENOUGH, ROUTES_AFTER_LITTLE, ROUTES_AFTER_NOTHING, Route, RouteKey,
};
use super::order::{Firsts, Standing, firsts_of, in_turn};
use super::party::Party;
use super::pool::{Ask, Params, Tx};
use super::statements as sql;
use super::time::At;
use super::work::task_id;
use super::writes::Writes;
use crate::duties::LOOK_PAUSE_MAX;
use crate::store::declared::Declared;
use crate::store::{ClaimRequest, Claimed, StoreError};

/// How many buckets of keys are merged exactly, by priority and tag: where a worker owns more, so few
/// tasks of each route are looked at that all of them together are about twice what is wanted, and
/// more of them only if that is too little.
const BUCKETS_MERGED_MAX: usize = 64;

/// A task that was taken off its queue and leased.
pub(super) struct Taken {
    pub(super) id: TaskId,
    pub(super) definition: i32,
    pub(super) route: i32,
    pub(super) tenant: i32,
    pub(super) slot: (i64, i64),
    /// Whom it was taken for, if by a claim.
    pub(super) worker: Option<WorkerId>,
    pub(super) fence: Fence,
    pub(super) attempt: u32,
    pub(super) at: Timestamp,
}

impl Taken {
    pub(super) fn of(row: &Row) -> Self {
        Taken {
            id: task_id(row),
            definition: row.get("definition_id"),
            route: row.get("route_id"),
            tenant: row.get("tenant_id"),
            slot: (row.get("tag"), row.get("seq")),
            worker: Some(WorkerId::from_uuid(row.get("worker_id"))),
            fence: Fence(row.get::<_, i64>("fence").cast_unsigned()),
            attempt: row.get::<_, i32>("attempt").cast_unsigned(),
            at: row.get::<_, At>("at").0,
        }
    }
}

/// What a claim can ask before it is known whether the worker may have anything.
pub(super) struct Opening {
    pub(super) routes: Vec<(RouteKey, Route)>,
    /// The levels whose virtual times are of use.
    pub(super) levels: Vec<i32>,
    /// With one route there is nothing to choose. What is taken before it is known whether the
    /// worker may have it stays where it is if not: all of it is rolled back.
    pub(super) early: Option<Grab>,
}

impl Opening {
    /// The statements to send, by their parameters.
    pub(super) fn asks<'a>(&self, levels: Params<'a>, early: Option<Params<'a>>) -> Vec<Ask<'a>> {
        let times = (!self.levels.is_empty()).then_some((&sql::VIRTUAL_TIMES, levels));
        times.into_iter().chain(early.map(|early| (&sql::CLAIM, early))).collect()
    }

    /// What they have brought: virtual times, and tasks.
    pub(super) fn read(
        &self,
        mut rows: Vec<Vec<Row>>,
        took: Duration,
    ) -> (HashMap<i32, i64>, Option<Catch>) {
        let early = self.early.as_ref();
        let catch = early.zip(early.and_then(|_| rows.pop()));
        let catch = catch.map(|(early, rows)| early.catch(&rows, took));
        let times = rows.into_iter().flatten().map(|row| (row.get(0), row.get(1))).collect();
        (times, catch)
    }
}

/// Tasks that were taken for workers, which are told of them once they are their own.
pub(super) struct Handout {
    names: Named,
    workers: Vec<WorkerId>,
    taken: Vec<Taken>,
    questions: Questions,
    /// How many of the last statements answer them.
    count: usize,
    /// Whether whoever takes tasks away may have to look sooner.
    is_to_watch: bool,
}

/// Returns the error of a claim that may have been committed although its result was lost.
pub(super) fn lost(request: &ClaimRequest) -> StoreError {
    let worker = request.worker;
    StoreError::Unavailable(format!(
        "the connection to the database was lost during a claim of worker {worker}: claim again; \
         tasks that it may have leased are returned to the queue"
    ))
}

/// One look at the routes, to take what stands there.
pub(super) struct Grab {
    routes: Vec<i32>,
    floors: Vec<i64>,
    counts: Vec<i64>,
    wanted: Vec<Wanted>,
    firsts: Firsts,
    party: Party,
    now: Option<At>,
}

impl Grab {
    /// The parameters of [`sql::CLAIM`].
    pub(super) fn params(&self) -> [&(dyn ToSql + Sync); 6] {
        let Grab { routes, floors, counts, party: Party { workers, seqs }, now, .. } = self;
        [routes, floors, counts, workers, seqs, now]
    }

    /// What it has brought.
    fn catch(&self, rows: &[Row], took: Duration) -> Catch {
        let taken: Vec<Taken> = rows.iter().map(Taken::of).collect();
        let mut counts: HashMap<i32, usize> = HashMap::new();
        for one in &taken {
            *counts.entry(one.route).or_default() += 1;
        }
        let left = |(route, wanted): (&i32, &Wanted)| {
            let count = counts.get(route).copied().unwrap_or_default();
            Left { is_dry: wanted.is_all || count < wanted.count, first: wanted.first }
        };
        let left = self.routes.iter().zip(&self.wanted).map(left).collect();
        let firsts = self.firsts.clone();
        Catch { floors: self.floors.clone(), took, taken, left, firsts }
    }
}

/// What one look at the routes has brought.
pub(super) struct Catch {
    /// From where on it looked in each route.
    floors: Vec<i64>,
    took: Duration,
    pub(super) taken: Vec<Taken>,
    /// What is left in each route.
    left: Vec<Left>,
    /// Which priorities it began with.
    firsts: Firsts,
}

/// What is left in a route, as far as a look saw.
struct Left {
    /// Whether it is nothing that is not in the hands of others.
    is_dry: bool,
    /// The tag of what stood first in it before anything was taken, if that was looked at.
    first: Option<i64>,
}

/// How many to take of a route.
struct Wanted {
    count: usize,
    /// Whether the route has no more.
    is_all: bool,
    /// The tag of what stands first in it, if that was looked at.
    first: Option<i64>,
}

/// Whether tasks are taken before it is known how many the worker may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Haste {
    Early,
    InOrder,
}

/// What became of a claim.
enum Claiming {
    /// It was answered; `None` if its number has been used.
    Done(Option<Vec<Claimed>>),
    /// More was taken early than the worker has free slots: nothing of it was kept.
    Over,
}

/// What was seen of a route.
#[derive(Clone, Copy, Default)]
struct Seen {
    count: usize,
    /// The tag of what stands first in it.
    first: Option<i64>,
}

/// The first places of routes, and what there is of each.
async fn candidates(
    tx: &Tx<'_>,
    routes: &[i32],
    floors: &[i64],
    most: usize,
) -> Result<(Vec<Row>, HashMap<i32, Seen>), Fault> {
    let each = i64::try_from(most).unwrap_or(i64::MAX);
    let rows = tx.query(&sql::CANDIDATES, &[&routes, &floors, &each]).await?;
    let mut all: HashMap<i32, Seen> = HashMap::new();
    for row in &rows {
        let (route, tag) = (row.get("route_id"), row.get::<_, i64>("tag"));
        let seen = all.entry(route).or_default();
        seen.count += 1;
        seen.first = Some(seen.first.map_or(tag, |first| first.min(tag)));
    }
    Ok((rows, all))
}

impl PostgresStore {
    /// One of the tries of a call.
    pub(super) async fn claim_try(
        &self,
        request: &ClaimRequest,
        tries: &AtomicU32,
    ) -> Result<Vec<Claimed>, Fault> {
        let is_first = tries.fetch_add(1, Ordering::Relaxed) == 0;
        self.see_ring().await?;
        let Some(declared) = self.check_claim(request).await? else {
            self.peeks.forget(request.worker);
            return Err(StoreError::LeaseLost(request.worker).into());
        };
        if is_first && request.is_poll && self.finds_nothing(request).await? {
            return Ok(Vec::new());
        }
        let wanted = ClaimRequest { limit: declared.room_max(request), ..request.clone() };
        let claimed = match self.claim_once(&wanted, &declared, Haste::Early).await? {
            Claiming::Done(claimed) => claimed,
            Claiming::Over => match self.claim_once(&wanted, &declared, Haste::InOrder).await? {
                Claiming::Done(claimed) => claimed,
                Claiming::Over => Some(Vec::new()),
            },
        };
        match claimed {
            Some(claimed) => Ok(claimed),
            None if is_first => Ok(Vec::new()),
            None => {
                // The commit of an earlier try took place. What it took the worker does not
                // know of: it must hear that, and say so in a heartbeat.
                Err(lost(request).into())
            }
        }
    }

    async fn claim_once(
        &self,
        request: &ClaimRequest,
        declared: &Declared,
        haste: Haste,
    ) -> Result<Claiming, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let party = Party::of_one(request)?;
        let mut opening = self.opening(tx.names(), request, &party);
        opening.early = opening.early.filter(|_| haste == Haste::Early);
        let early = opening.early.as_ref().map(Grab::params);
        let levels: Params<'_> = &[&opening.levels];
        let also = opening.asks(levels, early.as_ref().map(|early| early.as_slice()));
        let began = Instant::now();
        let (life, now, rows) = self.lock_worker_and(&tx, request.worker, &also).await?;
        let (times, early) = opening.read(rows, began.elapsed());
        let Some(life) = life.filter(Life::is_live) else {
            self.peeks.forget(request.worker);
            self.declarations.forget(request.worker);
            return Err(StoreError::LeaseLost(request.worker).into());
        };
        if request.seq <= life.last_claim || self.peeks.has(request) {
            return Ok(Claiming::Done(None));
        }
        if life.is_late(now) {
            return Ok(Claiming::Done(Some(Vec::new())));
        }
        let limit = declared.room(request, life.held)?;
        if early.as_ref().is_some_and(|early| early.taken.len() > limit) {
            return Ok(Claiming::Over);
        }
        let request = &ClaimRequest { limit, ..request.clone() };
        let taken = self.take_all(&tx, request, &party, &opening.routes, &times, early).await?;
        let mut writes = Writes::default();
        let handout =
            self.hand_out(&tx, vec![(request.seq, life)], now, taken, &mut writes).await?;
        let rows = tx.commit(writes).await?;
        let claimed = self.handed_out(handout, rows).map(|(_, claimed)| claimed).collect();
        Ok(Claiming::Done(Some(claimed)))
    }

    pub(super) fn opening(&self, names: &Names, request: &ClaimRequest, party: &Party) -> Opening {
        let routes = self.routes_of(names, request);
        if request.tenant.is_some() {
            return Opening { routes, levels: Vec::new(), early: None };
        }
        let levels = self.levels_to_read(&routes);
        let early = match routes.as_slice() {
            [_] if request.limit > 0 => {
                let all = Wanted { count: request.limit, is_all: false, first: None };
                let floors = self.floors_of(&routes, Found::Nothing);
                Some(self.grab(party.clone(), &routes, floors, vec![all], Firsts::new()))
            }
            _ => None,
        };
        Opening { routes, levels, early }
    }

    /// Takes as much as there is and is wanted, also from routes that were not known before.
    pub(super) async fn take_all(
        &self,
        tx: &Tx<'_>,
        request: &ClaimRequest,
        party: &Party,
        routes: &[(RouteKey, Route)],
        times: &HashMap<i32, i64>,
        early: Option<Catch>,
    ) -> Result<Vec<Taken>, Fault> {
        let looks = &[Found::Nothing, Found::TooLittle];
        let mut taken = match &request.tenant {
            None => self.take(tx, request, party, routes, times, early, looks).await?,
            Some(tenant) => self.take_of(tx, request, tenant, party, routes).await?,
        };
        let is_short = taken.len() < request.limit;
        let every = match (taken.is_empty(), is_short) {
            (true, _) => ROUTES_AFTER_NOTHING,
            (false, true) => ROUTES_AFTER_LITTLE,
            (false, false) => ROUTES_AFTER_ENOUGH,
        };
        if tx.names().read_routes(tx, self.pause(every)).await? && is_short {
            let rest = ClaimRequest { limit: request.limit - taken.len(), ..request.clone() };
            let party = party.behind(taken.len());
            self.see_ring_in(tx).await?;
            let mut routes = self.routes_of(tx.names(), request);
            // What has owners is not for whoever comes next.
            routes.retain(|(key, _)| party.is_of_one() || key.bucket.is_none());
            taken.extend(match &request.tenant {
                None => self.take(tx, &rest, &party, &routes, times, None, looks).await?,
                Some(tenant) => self.take_of(tx, &rest, tenant, &party, &routes).await?,
            });
        }
        Ok(taken)
    }

    /// Writes down that tasks which were taken are of workers, and asks what these must know of
    /// them. The last statements.
    pub(super) async fn hand_out(
        &self,
        tx: &Tx<'_>,
        claims: Vec<(ClaimSeq, Life)>,
        now: Timestamp,
        taken: Vec<Taken>,
        writes: &mut Writes<'_>,
    ) -> Result<Handout, Fault> {
        let names = self.names_of(tx, &taken).await?;
        let mut taken_at: HashMap<Option<WorkerId>, Timestamp> = HashMap::new();
        for one in &taken {
            let at = taken_at.entry(one.worker).or_insert(one.at);
            *at = one.at.max(*at);
        }
        let mut workers = Vec::with_capacity(claims.len());
        // Whoever reaps looks at least so often, and sees longer leases in time.
        let mut is_short = false;
        for (seq, mut life) in claims {
            life.last_claim = seq;
            let taken_at = taken_at.get(&Some(life.worker)).copied();
            if let Some(at) = taken_at.filter(|_| !life.holds_tasks()) {
                life.lease_until = at + life.lease;
                is_short |= life.lease < LOOK_PAUSE_MAX;
            }
            life.beat(writes);
            workers.push(life.worker);
        }
        let at = taken_at.values().copied().max().unwrap_or(now);
        write_history(writes, at, &names.started(&taken))?;
        let is_limited = limit_leases(writes, at, &names.limited(&taken));
        let questions = Questions::of(&names, &taken);
        let count = questions.ask(writes);
        let is_to_watch = is_limited || is_short;
        Ok(Handout { names, workers, taken, questions, count, is_to_watch })
    }

    /// What each worker is told, once that is committed.
    pub(super) fn handed_out(
        &self,
        handout: Handout,
        mut rows: Vec<Vec<Row>>,
    ) -> impl Iterator<Item = (Option<WorkerId>, Claimed)> {
        let Handout { names, workers, taken, questions, count, is_to_watch } = handout;
        workers.into_iter().for_each(|worker| self.peeks.forget(worker));
        self.firsts.remember(taken.iter().filter(|one| names.is_first(one)).map(|one| one.id));
        if is_to_watch {
            self.hint_timers();
        }
        let answers = rows.split_off(rows.len().saturating_sub(count));
        let told: Vec<_> = Facts::of(names, &questions, &answers).tell_all(&taken).collect();
        let of = |(one, told): (Taken, Option<Claimed>)| Some((one.worker, told?));
        taken.into_iter().zip(told).filter_map(of)
    }

    /// Takes tasks off their queues and leases them, in the order in which they are to be
    /// handed out.
    ///
    /// Virtual times were read before, and the first look may have been made. Each look begins
    /// where the floor for what it may have found says.
    #[expect(clippy::too_many_arguments, reason = "all of them differ between its callers")]
    pub(super) async fn take(
        &self,
        tx: &Tx<'_>,
        request: &ClaimRequest,
        party: &Party,
        routes: &[(RouteKey, Route)],
        virtual_times: &HashMap<i32, i64>,
        mut early: Option<Catch>,
        looks: &[Found],
    ) -> Result<Vec<Taken>, Fault> {
        if routes.is_empty() || request.limit == 0 {
            return Ok(Vec::new());
        }
        let mut looked: Vec<i64> = Vec::new();
        let mut taken = Vec::new();
        let mut firsts = Firsts::new();
        for found in looks.iter().copied() {
            let early = early.take();
            let floors = match &early {
                Some(catch) => catch.floors.clone(),
                None => self.floors_of(routes, found),
            };
            // The second look is of use where it begins before the first.
            let is_lower = looked.is_empty() || floors.iter().zip(&looked).any(|(a, b)| a < b);
            if taken.len() < request.limit && is_lower {
                let rest = request.limit - taken.len();
                let catch = match early {
                    Some(catch) => catch,
                    None => {
                        let party = party.behind(taken.len());
                        self.take_from(tx, request, party, routes, floors, rest).await?
                    }
                };
                let (floors, took) = (&catch.floors, catch.took);
                let mut lasts: HashMap<i32, (i64, usize)> = HashMap::new();
                for one in &catch.taken {
                    let (last, count) = lasts.entry(one.route).or_insert((one.slot.0, 0));
                    *last = one.slot.0.max(*last);
                    *count += 1;
                }
                for (((_, route), from), left) in routes.iter().zip(floors).zip(&catch.left) {
                    let (last, count) = lasts.get(&route.id).copied().unzip();
                    // What comes stands behind virtual time. Of a route that is dry, nothing is
                    // left up to it: others took it. One whose turn did not come still has
                    // its first.
                    let time = virtual_times.get(&route.level).copied();
                    let first = left.first.zip(time).map(|(first, time)| first.min(time));
                    let at = last.max(time.filter(|_| left.is_dry)).or(first);
                    if left.is_dry || at.is_some() {
                        let look = Look { front: Front::Route(route.id), from: *from, took };
                        let at = at.map_or(*from, |tag| tag.max(*from));
                        self.floors.learn_taken(look, at, left.is_dry, count.unwrap_or(0));
                    }
                }
                taken.extend(catch.taken);
                firsts.extend(catch.firsts);
                looked = catch.floors;
            }
        }
        let key_of: HashMap<i32, &RouteKey> =
            routes.iter().map(|(key, route)| (route.id, key)).collect();
        let standing = taken.into_iter().filter_map(|one| {
            let key = key_of.get(&one.route)?;
            let order = (std::cmp::Reverse(key.priority), one.slot);
            Some(Standing { queue: key.queue.clone(), order, item: one })
        });
        Ok(in_turn(request, standing.collect(), &firsts, request.limit))
    }

    async fn take_from(
        &self,
        tx: &Tx<'_>,
        request: &ClaimRequest,
        party: Party,
        routes: &[(RouteKey, Route)],
        floors: Vec<i64>,
        limit: usize,
    ) -> Result<Catch, Fault> {
        let began = Instant::now();
        let (wanted, firsts) = match routes {
            [_] => (vec![Wanted { count: limit, is_all: false, first: None }], Firsts::new()),
            _ => self.choose(tx, request, routes, &floors, limit).await?,
        };
        let grab = self.grab(party, routes, floors, wanted, firsts);
        let rows = tx.query(&sql::CLAIM, &grab.params()).await?;
        Ok(grab.catch(&rows, began.elapsed()))
    }

    fn floors_of(&self, routes: &[(RouteKey, Route)], found: Found) -> Vec<i64> {
        let floor = |(_, route): &(RouteKey, Route)| self.floors.get(Front::Route(route.id), found);
        routes.iter().map(floor).collect()
    }

    fn grab(
        &self,
        party: Party,
        routes: &[(RouteKey, Route)],
        floors: Vec<i64>,
        wanted: Vec<Wanted>,
        firsts: Firsts,
    ) -> Grab {
        let counts: Vec<i64> =
            wanted.iter().map(|one| i64::try_from(one.count).unwrap_or(i64::MAX)).collect();
        let routes = routes.iter().map(|(_, route)| route.id).collect();
        let now = self.clock.as_ref().map(|clock| At(clock.now()));
        Grab { routes, floors, counts, wanted, firsts, party, now }
    }

    /// The levels whose virtual times are of use: of routes that were dry before, or are to be
    /// swept.
    pub(super) fn levels_to_read(&self, routes: &[(RouteKey, Route)]) -> Vec<i32> {
        let is_wanted =
            |front| self.floors.is_dry(front) || self.floors.get(front, Found::Nothing) == i64::MIN;
        let wanted = routes.iter().filter(|(_, route)| is_wanted(Front::Route(route.id)));
        let levels: BTreeSet<i32> = wanted.map(|(_, route)| route.level).collect();
        levels.into_iter().collect()
    }

    /// How many to take of each route, by looking at what stands first in each.
    async fn choose(
        &self,
        tx: &Tx<'_>,
        request: &ClaimRequest,
        routes: &[(RouteKey, Route)],
        floors: &[i64],
        limit: usize,
    ) -> Result<(Vec<Wanted>, Firsts), Fault> {
        let ids: Vec<i32> = routes.iter().map(|(_, route)| route.id).collect();
        let buckets = routes.iter().filter(|(key, _)| key.bucket.is_some()).count();
        let most = match buckets {
            0..=BUCKETS_MERGED_MAX => limit,
            _ => limit.min(2 * limit / routes.len() + 2),
        };
        let (rows, seen) = candidates(tx, &ids, floors, most).await?;
        let is_cut = |id: &i32| seen.get(id).is_some_and(|seen| seen.count == most);
        let (rows, seen, most) = match rows.len() < limit && ids.iter().any(is_cut) {
            false => (rows, seen, most),
            // Few routes have something, and more of it than was looked at.
            true => {
                let (rows, seen) = candidates(tx, &ids, floors, limit).await?;
                (rows, seen, limit)
            }
        };
        let key_of: HashMap<i32, &RouteKey> =
            routes.iter().map(|(key, route)| (route.id, key)).collect();
        let standing = rows.iter().filter_map(|row| {
            let route: i32 = row.get("route_id");
            let key = key_of.get(&route)?;
            let order = (std::cmp::Reverse(key.priority), (row.get("tag"), row.get("seq")));
            Some(Standing { queue: key.queue.clone(), order, item: route })
        });
        let standing: Vec<Standing<i32>> = standing.collect();
        let firsts = firsts_of(request, &standing);
        let mut counts: HashMap<i32, usize> = HashMap::new();
        for route in in_turn(request, standing, &firsts, limit) {
            *counts.entry(route).or_default() += 1;
        }
        let wanted = |route: &i32| {
            let seen = seen.get(route).copied().unwrap_or_default();
            let count = counts.get(route).copied().unwrap_or_default();
            let is_all = count == seen.count && seen.count < most;
            Wanted { count, is_all, first: seen.first }
        };
        Ok((ids.iter().map(wanted).collect(), firsts))
    }

    /// What the numbers of tasks that were taken stand for.
    pub(super) async fn names_of(&self, tx: &Tx<'_>, taken: &[Taken]) -> Result<Named, Fault> {
        let definitions = taken.iter().map(|one| one.definition);
        let definitions = tx.names().definitions(tx, definitions).await?;
        let tenants: BTreeSet<i32> = taken.iter().map(|one| one.tenant).collect();
        let tenants = tx.names().tenant_names(tx, &tenants).await?;
        Ok(Named { definitions, tenants })
    }
}
