//! Numbers for names: tenants, levels, routes, limits and definitions, which never change theirs.
//!
//! A verb that needs the number of a name that has none fails with [`Unnamed`]; the number is
//! assigned in a transaction of its own and the verb is repeated. So no verb holds the lock of a
//! new name until it commits.
//!
//! A transaction uses one [`Names`] from its beginning to its end ([`Tx::names`]). Entries are only
//! added to it, so a number that was found once is found again after any await. An outage does not
//! clear it: [`NameCache::renew`] replaces it for the transactions that begin afterwards.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use windlass_core::{
    Bucket, Definition, DefinitionDraft, LimitName, Priority, QueueName, Tenant, Version,
    WorkflowName,
};

use super::fault::Fault;
use super::pool::{Params, Pool, Tx};
use super::statements as sql;
use super::writes::Writes;
use crate::store::{HandlerKey, StoreError};

/// The number of tenants or definitions at which new transactions begin with an empty cache.
const REMEMBERED_MAX: usize = 100_000;

/// How soon a claim that found nothing looks for routes that others made.
pub(super) const ROUTES_AFTER_NOTHING: Duration = Duration::from_millis(10);

/// How soon one that found too little does.
pub(super) const ROUTES_AFTER_LITTLE: Duration = Duration::from_millis(100);

/// How soon one that found enough does: what stands in others must have its turn.
pub(super) const ROUTES_AFTER_ENOUGH: Duration = Duration::from_secs(1);

/// How long looking for others is put off at least for each that is known: to count them takes longer
/// the more there are.
const ROUTES_AFTER_EACH: Duration = Duration::from_micros(10);

/// What a route is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RouteKey {
    pub(super) queue: QueueName,
    pub(super) priority: Priority,
    pub(super) handler: HandlerKey,
    /// The bucket that a worker must own, if its tasks have owners.
    pub(super) bucket: Option<Bucket>,
}

/// How no bucket is stored.
const NO_BUCKET: i16 = -1;

/// The numbers of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) id: i32,
    pub(super) level: i32,
}

/// Names that have no number yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Unnamed {
    /// In the order in which they were met, which is that of their numbers.
    pub(super) tenants: Vec<Tenant>,
    pub(super) routes: BTreeSet<RouteKey>,
    pub(super) limits: BTreeSet<LimitName>,
}

impl Unnamed {
    pub(super) fn is_empty(&self) -> bool {
        self.tenants.is_empty() && self.routes.is_empty() && self.limits.is_empty()
    }
}

/// The names that the next transaction begins with.
#[derive(Default)]
pub(super) struct NameCache(RwLock<Arc<Names>>);

impl NameCache {
    /// Returns the names for a transaction that begins now.
    pub(super) fn current(&self) -> Arc<Names> {
        let current = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        if current.is_full() { self.renew() } else { current }
    }

    /// Starts over with no names. Transactions that have begun keep theirs.
    pub(super) fn renew(&self) -> Arc<Names> {
        let new = Arc::<Names>::default();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&new);
        new
    }
}

/// The numbers of names that were looked up so far. Entries are never removed.
#[derive(Default)]
pub(super) struct Names(RwLock<Known>);

#[derive(Default)]
struct Known {
    tenants: HashMap<Tenant, i32>,
    tenant_names: HashMap<i32, Tenant>,
    routes: BTreeMap<RouteKey, Route>,
    routes_read: Option<Instant>,
    /// Whether one of them has a bucket.
    has_buckets: bool,
    limits: HashMap<LimitName, i32>,
    definitions: HashMap<i32, Arc<Definition>>,
    /// Versions of workflows that are registered.
    registered: HashSet<HandlerKey>,
}

impl Names {
    fn read<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_full(&self) -> bool {
        self.read(|known| known.tenants.len().max(known.definitions.len()) > REMEMBERED_MAX)
    }

    pub(super) fn tenant(&self, tenant: &Tenant) -> Option<i32> {
        self.read(|known| known.tenants.get(tenant).copied())
    }

    pub(super) fn route(&self, key: &RouteKey) -> Option<Route> {
        self.read(|known| known.routes.get(key).copied())
    }

    pub(super) fn limit(&self, limit: &LimitName) -> Option<i32> {
        self.read(|known| known.limits.get(limit).copied())
    }

    fn remember_limits(&self, rows: &[Row]) -> Result<(), Fault> {
        let named = |row: &Row| {
            let (id, name) = (row.get::<_, i32>("id"), row.get::<_, &str>("name"));
            let name = LimitName::new(name).map_err(|error| corrupt("limit", id, error))?;
            Ok::<_, Fault>((name, id))
        };
        let limits = rows.iter().map(named).collect::<Result<Vec<_>, _>>()?;
        self.write(|known| known.limits.extend(limits));
        Ok(())
    }

    /// The routes that serve some queues and handlers.
    pub(super) fn serving(
        &self,
        queues: &[QueueName],
        handlers: &[HandlerKey],
    ) -> Vec<(RouteKey, Route)> {
        self.read(|known| {
            let serves =
                |key: &RouteKey| queues.contains(&key.queue) && handlers.contains(&key.handler);
            let routes = known.routes.iter().filter(|(key, _)| serves(key));
            routes.map(|(key, route)| (key.clone(), *route)).collect()
        })
    }

    /// Whether this version of a workflow was found to be registered.
    pub(super) fn is_registered(&self, key: &HandlerKey) -> bool {
        self.read(|known| known.registered.contains(key))
    }

    pub(super) fn remember_registered(&self, keys: impl Iterator<Item = HandlerKey>) {
        self.write(|known| known.registered.extend(keys));
    }

    /// Whether there are tasks with owners.
    pub(super) fn has_buckets(&self) -> bool {
        self.read(|known| known.has_buckets)
    }

    /// How many routes are known. Their numbers would not tell whether there are others: a
    /// smaller one may be committed later.
    pub(super) fn route_count(&self) -> i64 {
        self.read(|known| i64::try_from(known.routes.len()).unwrap_or(i64::MAX))
    }

    /// Reads the routes again if there are new ones and they were last read longer than `every`
    /// ago; zero for always. Returns whether there were new ones.
    pub(super) async fn read_routes(&self, tx: &Tx<'_>, every: Duration) -> Result<bool, Fault> {
        let is_fresh = |known: &Known| {
            let count = u32::try_from(known.routes.len()).unwrap_or(u32::MAX);
            let pause = every.max(ROUTES_AFTER_EACH * count);
            !every.is_zero() && known.routes_read.is_some_and(|read| read.elapsed() < pause)
        };
        if self.read(is_fresh) {
            return Ok(false);
        }
        let known = self.route_count();
        let counted = tx.query(&sql::COUNT_ROUTES, &[]).await?;
        if counted.first().is_some_and(|row| row.get::<_, i64>(0) <= known) {
            self.write(|known| known.routes_read = Some(Instant::now()));
            return Ok(false);
        }
        let rows = tx.query(&sql::ROUTES, &[]).await?;
        self.remember_routes(&rows)
    }

    fn remember_routes(&self, rows: &[Row]) -> Result<bool, Fault> {
        let routes = rows.iter().map(route_of).collect::<Result<Vec<_>, _>>()?;
        Ok(self.write(|known| {
            let before = known.routes.len();
            known.has_buckets |= routes.iter().any(|(key, _)| key.bucket.is_some());
            known.routes.extend(routes);
            known.routes_read = Some(Instant::now());
            known.routes.len() > before
        }))
    }

    fn remember_tenants(&self, rows: &[Row]) -> Result<(), Fault> {
        let named = |row: &Row| {
            let (id, name) = (row.get::<_, i32>("id"), row.get::<_, &str>("name"));
            let name = Tenant::new(name).map_err(|error| corrupt("tenant", id, error))?;
            Ok::<_, Fault>((id, name))
        };
        let tenants = rows.iter().map(named).collect::<Result<Vec<_>, _>>()?;
        self.write(|known| {
            for (id, name) in tenants {
                known.tenants.insert(name.clone(), id);
                known.tenant_names.insert(id, name);
            }
        });
        Ok(())
    }

    /// The number of a tenant; none if nothing of it was ever ready.
    pub(super) async fn number_of(
        &self,
        tx: &Tx<'_>,
        tenant: &Tenant,
    ) -> Result<Option<i32>, Fault> {
        if let Some(number) = self.tenant(tenant) {
            return Ok(Some(number));
        }
        let name = vec![tenant.as_str()];
        self.remember_tenants(&tx.query(&sql::TENANTS_BY_NAME, &[&name]).await?)?;
        Ok(self.tenant(tenant))
    }

    /// The names of tenants with these numbers.
    pub(super) async fn tenant_names(
        &self,
        tx: &Tx<'_>,
        ids: &BTreeSet<i32>,
    ) -> Result<HashMap<i32, Tenant>, Fault> {
        let lookup = |known: &Known| {
            let name = |id: &i32| Some((*id, known.tenant_names.get(id)?.clone()));
            ids.iter().filter_map(name).collect::<HashMap<_, _>>()
        };
        let names = self.read(lookup);
        if names.len() == ids.len() {
            return Ok(names);
        }
        let wanted: Vec<i32> = ids.iter().copied().collect();
        self.remember_tenants(&tx.query(&sql::TENANTS_BY_ID, &[&wanted]).await?)?;
        Ok(self.read(lookup))
    }

    /// The definitions with these numbers.
    pub(super) async fn definitions(
        &self,
        tx: &Tx<'_>,
        ids: impl IntoIterator<Item = i32>,
    ) -> Result<HashMap<i32, Arc<Definition>>, Fault> {
        let ids: BTreeSet<i32> = ids.into_iter().collect();
        let (mut found, missing) = self.read(|known| {
            let mut found = HashMap::new();
            let mut missing = Vec::new();
            for id in &ids {
                match known.definitions.get(id) {
                    Some(definition) => {
                        found.insert(*id, Arc::clone(definition));
                    }
                    None => missing.push(*id),
                }
            }
            (found, missing)
        });
        if missing.is_empty() {
            return Ok(found);
        }
        for row in tx.query(&sql::DEFINITIONS, &[&missing]).await? {
            let id: i32 = row.get(0);
            let draft: DefinitionDraft = serde_json::from_str(row.get(1))
                .map_err(|error| corrupt("definition", id, error))?;
            let built = draft.build().map_err(|error| corrupt("definition", id, error))?;
            found.insert(id, Arc::new(built));
        }
        if let Some(id) = missing.iter().find(|id| !found.contains_key(id)) {
            return Err(corrupt("definition", *id, "it does not exist"));
        }
        self.write(|known| {
            known.definitions.extend(found.iter().map(|(id, one)| (*id, Arc::clone(one))));
        });
        Ok(found)
    }
}

impl Pool {
    /// Assigns numbers to names, in a transaction of its own.
    pub(super) async fn assign_numbers(&self, unnamed: &Unnamed) -> Result<(), Fault> {
        let mut connection = self.get().await?;
        let tx = connection.begin();
        let names = Arc::clone(tx.names());
        let mut tenants = Vec::new();
        if !unnamed.tenants.is_empty() {
            let names: Vec<&str> = unnamed.tenants.iter().map(Tenant::as_str).collect();
            let params: Params<'_> = &[&names];
            let all = [(&sql::MAKE_TENANTS, params), (&sql::TENANTS_BY_NAME, params)];
            [_, tenants] = tx.query_all(all).await?;
        }
        let mut routes = Vec::new();
        if !unnamed.routes.is_empty() {
            let keys = || unnamed.routes.iter();
            let queues: Vec<&str> = keys().map(|key| key.queue.as_str()).collect();
            let priorities: Vec<i16> = keys().map(|key| key.priority.get()).collect();
            let workflows: Vec<&str> = keys().map(|key| key.handler.workflow.as_str()).collect();
            let versions: Vec<i32> =
                keys().map(|key| key.handler.version.get().cast_signed()).collect();
            let bucket = |key: &RouteKey| key.bucket.map_or(NO_BUCKET, |it| it.get().cast_signed());
            let buckets: Vec<i16> = keys().map(bucket).collect();
            let levels: Params<'_> = &[&queues, &priorities];
            let params: Params<'_> = &[&queues, &priorities, &workflows, &versions, &buckets];
            let all =
                [(&sql::MAKE_LEVELS, levels), (&sql::MAKE_ROUTES, params), (&sql::ROUTES, &[])];
            [_, _, routes] = tx.query_all(all).await?;
        }
        let mut limits = Vec::new();
        if !unnamed.limits.is_empty() {
            let names: Vec<&str> = unnamed.limits.iter().map(LimitName::as_str).collect();
            let params: Params<'_> = &[&names];
            let all = [(&sql::MAKE_LIMITS, params), (&sql::LIMITS_BY_NAME, params)];
            [_, limits] = tx.query_all(all).await?;
        }
        tx.commit(Writes::default()).await?;
        names.remember_limits(&limits)?;
        names.remember_tenants(&tenants)?;
        names.remember_routes(&routes)?;
        Ok(())
    }
}

fn route_of(row: &Row) -> Result<(RouteKey, Route), Fault> {
    let id: i32 = row.get("id");
    let wrong = |error: String| corrupt("route", id, error);
    let queue = QueueName::new(row.get::<_, &str>("queue")).map_err(|e| wrong(e.to_string()))?;
    let workflow =
        WorkflowName::new(row.get::<_, &str>("workflow")).map_err(|e| wrong(e.to_string()))?;
    let version = row.get::<_, i32>("version").cast_unsigned();
    let version = Version::new(version).ok_or_else(|| wrong("its version is 0".to_owned()))?;
    let priority = Priority::try_from(row.get::<_, i16>("priority")).map_err(wrong)?;
    let handler = HandlerKey { workflow, version };
    let bucket = bucket_of(row.get("bucket")).map_err(wrong)?;
    let key = RouteKey { queue, priority, handler, bucket };
    Ok((key, Route { id, level: row.get("level_id") }))
}

/// The bucket with a number, if it is one.
pub(super) fn bucket_of(number: i16) -> Result<Option<Bucket>, String> {
    if number == NO_BUCKET {
        return Ok(None);
    }
    let bucket = u16::try_from(number).ok().and_then(Bucket::new);
    bucket.map(Some).ok_or_else(|| format!("there is no bucket {number}"))
}

pub(super) fn corrupt(what: &str, id: i32, error: impl std::fmt::Display) -> Fault {
    Fault::Answer(StoreError::Corrupt(format!("{what} {id}: {error}")))
}
