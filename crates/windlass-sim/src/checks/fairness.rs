//! Whose turn it was.

use std::collections::{BTreeMap, BTreeSet};

use windlass::testing::invariants::Violation;
use windlass_core::{EventId, Priority, QueueName, TaskEventKind, TaskId, TaskState, Tenant};

use super::Evidence;
use crate::seed::RunFile;

/// A queue and a priority: within it tenants take turns.
type RouteKey = (QueueName, Priority);

/// The ready tasks of a route, and who waits since when.
#[derive(Default)]
struct Route {
    ready: BTreeMap<Tenant, BTreeSet<TaskId>>,
    /// For each tenant with ready tasks: the claims of each other tenant since it
    /// was served last or began to wait.
    passed_by: BTreeMap<Tenant, BTreeMap<Tenant, u64>>,
    /// For each tenant with ready tasks: how many were withdrawn since it had none.
    /// Tasks are given their turns when they become ready, so the turns of
    /// withdrawn ones go by unused before it is that of those behind them.
    unused_turns: BTreeMap<Tenant, u64>,
}

/// What the bound is made of, besides the tenants that compete.
struct Bound {
    weights: BTreeMap<Tenant, u64>,
    /// The largest batch of a claim.
    batch: u64,
    /// How many may claim at the same time.
    claimers: u64,
}

impl Bound {
    /// How often the others may be served before it is a tenant's turn: with K
    /// tenants of equal weight, K·b + c. Tags of other weights do not keep to one
    /// grid, so a stretch may hold one more of them.
    fn for_tenant(&self, tenant: &Tenant, others: &BTreeMap<Tenant, u64>) -> u64 {
        let weight = |tenant: &Tenant| self.weights.get(tenant).copied().unwrap_or(1);
        let mine = weight(tenant);
        let turns = others.keys().map(|other| match weight(other) {
            equal if equal == mine => 1,
            theirs => theirs / mine + 1,
        });
        (1 + turns.sum::<u64>()) * self.batch + self.claimers
    }
}

/// G18: between two turns of a tenant that always has something to do, the others
/// have at most their share of turns.
///
/// A task that was handed back keeps its place: claiming it again is not another
/// turn. The promise is made among tasks that every worker can run.
pub(super) fn turns_are_bounded(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    if evidence.world.scenario.is_rolling {
        return;
    }
    let bound = bound(evidence);
    let mut handed_back: BTreeSet<TaskId> = BTreeSet::new();
    let mut routes: BTreeMap<RouteKey, Route> = BTreeMap::new();
    for (_, file, task, event) in merged(evidence) {
        let Some(definition) = evidence.definition(file) else { continue };
        let spec = definition.task(task.index);
        let key = (spec.queue.clone(), file.run.priority.plus(spec.priority));
        let route = routes.entry(key).or_default();
        let tenant = &file.run.tenant;
        if event.from == TaskState::Ready {
            route.leave(tenant, task, event.to.is_final());
        }
        if event.to == TaskState::Ready {
            route.enter(tenant, task);
            if matches!(event.kind, TaskEventKind::Released { .. }) {
                handed_back.insert(task);
            }
        }
        let is_claim = matches!(event.kind, TaskEventKind::Started { .. });
        let was_handed_back = event.from == TaskState::Ready && handed_back.remove(&task);
        if is_claim && !was_handed_back {
            for (waiting, count, limit) in route.count_claim(tenant, &bound) {
                let queue = &spec.queue;
                let text = format!(
                    "{waiting} waits in queue {queue:?} while others have {count} turns, the \
                     limit is {limit}, until task {task}"
                );
                violations.push(Violation { promise: "G18 fairness is bounded", text });
            }
        }
    }
}

impl Route {
    fn enter(&mut self, tenant: &Tenant, task: TaskId) {
        let tasks = self.ready.entry(tenant.clone()).or_default();
        if tasks.is_empty() {
            self.passed_by.insert(tenant.clone(), BTreeMap::new());
        }
        tasks.insert(task);
    }

    /// A task is claimed or withdrawn; either way its tenant's wait begins anew.
    fn leave(&mut self, tenant: &Tenant, task: TaskId, is_withdrawn: bool) {
        let Some(tasks) = self.ready.get_mut(tenant) else { return };
        tasks.remove(&task);
        if tasks.is_empty() {
            self.ready.remove(tenant);
            self.passed_by.remove(tenant);
            self.unused_turns.remove(tenant);
            return;
        }
        self.passed_by.insert(tenant.clone(), BTreeMap::new());
        *self.unused_turns.entry(tenant.clone()).or_default() += u64::from(is_withdrawn);
    }

    /// Counts a claim of a tenant for all that wait; those that waited too long.
    fn count_claim(&mut self, tenant: &Tenant, bound: &Bound) -> Vec<(Tenant, u64, u64)> {
        let mut late = Vec::new();
        for (waiting, others) in self.passed_by.iter_mut().filter(|(w, _)| *w != tenant) {
            *others.entry(tenant.clone()).or_default() += 1;
            let count: u64 = others.values().sum();
            let unused = self.unused_turns.get(waiting).copied().unwrap_or(0);
            let limit = bound.for_tenant(waiting, others) * (1 + unused);
            // Once is enough, the claims after it are late too.
            if count == limit + 1 {
                late.push((waiting.clone(), count, limit));
            }
        }
        late
    }
}

fn bound(evidence: &Evidence<'_>) -> Bound {
    let tenants = evidence.world.scenario.tenants.iter();
    let weight = |plan: &crate::scenario::TenantPlan| {
        Some((Tenant::new(&plan.name).ok()?, u64::from(plan.weight)))
    };
    let sites = evidence.world.sites.lock();
    Bound {
        weights: tenants.filter_map(weight).collect(),
        batch: sites.iter().map(|site| site.slots as u64).max().unwrap_or(1).max(1),
        claimers: evidence.world.scenario.posts as u64 + 1,
    }
}

/// All events of tasks in the order of the store.
pub(super) fn merged<'a>(
    evidence: &'a Evidence<'_>,
) -> Vec<(EventId, &'a RunFile, TaskId, &'a windlass_core::TaskEvent)> {
    let mut merged: Vec<_> = evidence
        .task_events()
        .map(|(file, line, event)| {
            (line.id, file, TaskId { run: file.run.id, index: event.task }, event)
        })
        .collect();
    merged.sort_unstable_by_key(|(id, ..)| *id);
    merged
}
