//! The ready tasks, in the order in which they are claimed.
//!
//! A queue has a route for each priority, and each route its own virtual time: if
//! the routes shared one, a newcomer in a low route would be tagged behind all that
//! the high route has served and wait behind the low route's whole backlog.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use windlass_core::{
    Bucket, ClaimSeq, Phase, Priority, QueueName, Tag, TaskId, Tenant, Timestamp, Weight,
    first_priority, next_tag,
};

use crate::planted::{Planted, PlantedBug};
use crate::store::{HandlerKey, QUEUES_LISTED_MAX, QueueRecord};

/// Where a task stands in its queue.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) queue: QueueName,
    pub(super) priority: Priority,
    pub(super) tenant: Tenant,
    pub(super) station: Station,
    slot: Slot,
}

/// What a worker needs to be given a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Station {
    pub(super) handler: HandlerKey,
    /// The bucket that it must own, if its key has an owner.
    pub(super) bucket: Option<Bucket>,
}

/// The order within a route: by tag, then by age.
type Slot = (Tag, u64);

#[derive(Default)]
struct Route {
    virtual_time: Tag,
    came: u64,
    went: u64,
    /// Since when tasks are here.
    since: BTreeMap<Slot, Option<Timestamp>>,
    tenants: HashMap<Tenant, BTreeSet<Slot>>,
    ready: BTreeMap<Station, BTreeMap<Slot, (TaskId, Tenant)>>,
}

/// What a task needs to be placed.
pub(super) struct Entry {
    pub(super) task: TaskId,
    pub(super) queue: QueueName,
    pub(super) priority: Priority,
    pub(super) tenant: Tenant,
    pub(super) station: Station,
    pub(super) weight: Weight,
}

/// All queues of a store.
#[derive(Default)]
pub(super) struct ReadyQueues {
    routes: BTreeMap<QueueName, BTreeMap<Reverse<Priority>, Route>>,
    phases: HashMap<Tenant, Phase>,
    age: u64,
    /// The time of the verb under way.
    pub(super) now: Option<Timestamp>,
    /// Whether tasks ever had owners.
    pub(super) has_owners: bool,
    planted: Planted,
}

impl ReadyQueues {
    pub(super) fn new(planted: Planted) -> Self {
        ReadyQueues { planted, ..ReadyQueues::default() }
    }

    /// Gives a task its place, behind those of its tenant.
    pub(super) fn push(&mut self, entry: Entry) -> Place {
        let Entry { task, queue, priority, tenant, station, weight } = entry;
        let phase = self.see(&tenant);
        let route = self.routes.entry(queue.clone()).or_default();
        let route = route.entry(Reverse(priority)).or_default();
        let last = route.tenants.get(&tenant).and_then(|slots| slots.last()).map(|slot| slot.0);
        let virtual_time = if self.planted.has(PlantedBug::TagFromUnclaimedMaximum) {
            let largest = route.tenants.values().filter_map(|slots| slots.last()).max();
            largest.map_or(route.virtual_time, |slot| slot.0)
        } else {
            route.virtual_time
        };
        self.age += 1;
        self.has_owners |= station.bucket.is_some();
        let slot = (next_tag(last, virtual_time, weight, phase), self.age);
        let place = Place { queue, priority, tenant, station, slot };
        self.put_back(task, &place);
        place
    }

    /// The phase of a tenant, a new one if it was not seen before.
    pub(super) fn see(&mut self, tenant: &Tenant) -> Phase {
        let next_phase = Phase(u32::try_from(self.phases.len() + 1).unwrap_or(u32::MAX));
        *self.phases.entry(tenant.clone()).or_insert(next_phase)
    }

    /// Puts a task that was taken back where it stood.
    pub(super) fn put_back(&mut self, task: TaskId, place: &Place) {
        let route = self.routes.entry(place.queue.clone()).or_default();
        let route = route.entry(Reverse(place.priority)).or_default();
        route.came += 1;
        route.since.insert(place.slot, self.now);
        route.tenants.entry(place.tenant.clone()).or_default().insert(place.slot);
        let waiting = (task, place.tenant.clone());
        route.ready.entry(place.station.clone()).or_default().insert(place.slot, waiting);
    }

    /// What is in the queues, the highest priority of each first.
    pub(super) fn list(&self) -> Vec<QueueRecord> {
        let all = self.routes.iter().flat_map(|(queue, routes)| {
            routes.iter().map(move |(Reverse(priority), route)| QueueRecord {
                queue: queue.clone(),
                priority: *priority,
                came: route.came,
                went: route.went,
                changed_at: self.now.unwrap_or(Timestamp::from_micros(0)),
                oldest_at: route.oldest_at(),
            })
        });
        all.take(QUEUES_LISTED_MAX).collect()
    }

    /// How many tasks of a tenant are ready.
    pub(super) fn count_of(&self, tenant: &Tenant) -> usize {
        let routes = self.routes.values().flat_map(BTreeMap::values);
        routes.filter_map(|route| route.tenants.get(tenant)).map(BTreeSet::len).sum()
    }

    /// Takes a task off its queue without having served it.
    pub(super) fn withdraw(&mut self, place: &Place) {
        let routes = self.routes.get_mut(&place.queue);
        if let Some(route) = routes.and_then(|routes| routes.get_mut(&Reverse(place.priority))) {
            route.remove(&place.tenant, &place.station, place.slot);
        }
    }

    /// Tells of each task that stands before a place in its queue, whoever can run it, whether it
    /// is of the same tenant.
    pub(super) fn before(
        &self,
        place: &Place,
        mut tell: impl FnMut(bool) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let levels = self.routes.get(&place.queue).into_iter().flatten();
        for (Reverse(priority), route) in levels.take_while(|(level, _)| level.0 >= place.priority)
        {
            for waiting in route.ready.values() {
                let is_before = |slot: &Slot| *priority > place.priority || *slot < place.slot;
                for (_, (_, tenant)) in waiting.iter().take_while(|(slot, _)| is_before(slot)) {
                    tell(*tenant == place.tenant)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// The priority that the claim with this number begins with in a queue, if it is not the
    /// largest of which the worker can be given something.
    pub(super) fn first(
        &self,
        queue: &QueueName,
        claim: ClaimSeq,
        tenant: Option<&Tenant>,
        mut serves: impl FnMut(&Station) -> bool,
    ) -> Option<Priority> {
        let routes = self.routes.get(queue)?.iter();
        let routes = routes.filter(|(_, route)| match tenant {
            None => route.ready.keys().any(&mut serves),
            Some(tenant) => route.first_of(tenant, &mut serves).is_some(),
        });
        let priorities: Vec<Priority> = routes.map(|(Reverse(priority), _)| *priority).collect();
        first_priority(claim.0, &priorities)
    }

    /// Takes the next task of a queue that the worker can be given, of this priority if there is
    /// one.
    pub(super) fn pop(
        &mut self,
        queue: &QueueName,
        first: Option<Priority>,
        tenant: Option<&Tenant>,
        mut serves: impl FnMut(&Station) -> bool,
    ) -> Option<TaskId> {
        let mut pop = |route: &mut Route| match tenant {
            None => route.pop(&mut serves),
            Some(tenant) => route.pop_of(tenant, &mut serves),
        };
        let routes = self.routes.get_mut(queue)?;
        let favoured = first.and_then(|first| pop(routes.get_mut(&Reverse(first))?));
        favoured.or_else(|| routes.values_mut().find_map(pop))
    }
}

impl Route {
    /// Since when the task is ready that came first.
    fn oldest_at(&self) -> Option<Timestamp> {
        let first = self.since.iter().min_by_key(|((_, age), _)| *age);
        first.and_then(|(_, since)| *since)
    }

    fn pop(&mut self, serves: &mut impl FnMut(&Station) -> bool) -> Option<TaskId> {
        let served = self.ready.iter().filter(|(station, _)| serves(station));
        let first = served.filter_map(|(station, waiting)| {
            let (slot, waiting) = waiting.first_key_value()?;
            Some((*slot, waiting, station))
        });
        let (slot, (task, tenant), station) = first.min_by_key(|(slot, ..)| *slot)?;
        let (task, tenant, station) = (*task, tenant.clone(), station.clone());
        self.virtual_time = self.virtual_time.max(slot.0);
        self.remove(&tenant, &station, slot);
        Some(task)
    }

    /// Where the first task of a tenant stands that the worker can be given.
    fn first_of(
        &self,
        tenant: &Tenant,
        serves: &mut impl FnMut(&Station) -> bool,
    ) -> Option<(Slot, TaskId, Station)> {
        let stations: Vec<_> = self.ready.iter().filter(|(station, _)| serves(station)).collect();
        self.tenants.get(tenant)?.iter().find_map(|slot| {
            stations.iter().find_map(|(station, waiting)| {
                let (task, _) = waiting.get(slot)?;
                Some((*slot, *task, (*station).clone()))
            })
        })
    }

    /// Takes the first task of a tenant, out of turn: virtual time stays where it is.
    fn pop_of(
        &mut self,
        tenant: &Tenant,
        serves: &mut impl FnMut(&Station) -> bool,
    ) -> Option<TaskId> {
        let (slot, task, station) = self.first_of(tenant, serves)?;
        self.remove(tenant, &station, slot);
        Some(task)
    }

    fn remove(&mut self, tenant: &Tenant, station: &Station, slot: Slot) {
        self.went += u64::from(self.since.remove(&slot).is_some());
        if let Some(slots) = self.tenants.get_mut(tenant) {
            slots.remove(&slot);
            if slots.is_empty() {
                self.tenants.remove(tenant);
            }
        }
        if let Some(ready) = self.ready.get_mut(station) {
            ready.remove(&slot);
            if ready.is_empty() {
                self.ready.remove(station);
            }
        }
    }
}
