//! The order in which tasks are handed out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use windlass_core::{Priority, QueueName, first_priority};

use crate::store::ClaimRequest;

/// Something that stands in a route.
pub(super) struct Standing<T> {
    pub(super) queue: QueueName,
    pub(super) order: (Reverse<Priority>, (i64, i64)),
    pub(super) item: T,
}

/// The priorities that a claim begins with in queues, where that is not the largest.
pub(super) type Firsts = BTreeMap<QueueName, Priority>;

/// The priorities that a claim begins with, by what stands in the queues.
pub(super) fn firsts_of<T>(request: &ClaimRequest, standing: &[Standing<T>]) -> Firsts {
    let mut queues: BTreeMap<&QueueName, BTreeSet<Reverse<Priority>>> = BTreeMap::new();
    for one in standing {
        queues.entry(&one.queue).or_default().insert(one.order.0);
    }
    let first = |(queue, priorities): (&QueueName, BTreeSet<Reverse<Priority>>)| {
        let priorities: Vec<Priority> = priorities.into_iter().map(|one| one.0).collect();
        Some((queue.clone(), first_priority(request.seq.0, &priorities)?))
    };
    queues.into_iter().filter_map(first).collect()
}

/// What is taken and in which order: one of each queue in turn, beginning with another one
/// at each claim; within a queue by priority, tag and age.
pub(super) fn in_turn<T>(
    request: &ClaimRequest,
    mut standing: Vec<Standing<T>>,
    firsts: &Firsts,
    limit: usize,
) -> Vec<T> {
    let is_later = |one: &Standing<T>| firsts.get(&one.queue) != Some(&one.order.0.0);
    standing.sort_by_key(|one| (is_later(one), one.order));
    let mut queues: BTreeMap<QueueName, VecDeque<T>> = BTreeMap::new();
    for one in standing {
        queues.entry(one.queue).or_default().push_back(one.item);
    }
    let mut order: Vec<&QueueName> = request.queues.iter().collect();
    let first = request.seq.0 as usize % order.len().max(1);
    order.rotate_left(first);
    let mut taken = Vec::new();
    while taken.len() < limit && !order.is_empty() {
        order.retain(|queue| {
            if taken.len() == limit {
                return true;
            }
            let next = queues.get_mut(*queue).and_then(VecDeque::pop_front);
            let is_there = next.is_some();
            taken.extend(next);
            is_there
        });
    }
    taken
}
