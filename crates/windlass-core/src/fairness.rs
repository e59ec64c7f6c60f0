//! Whose turn it is: virtual time.
//!
//! Each ready task of a queue and priority carries a [`Tag`], given when it
//! became ready; tasks are claimed in the order of their tags. A tenant's tags
//! are `1 / weight` apart and stand at its own [`Phase`], so no two tenants of
//! equal weight share a tag, and any stretch of virtual time that holds one task of
//! a tenant holds at most one of each other: that is the bound on how long anyone
//! waits. The queue's virtual time is the largest tag claimed so far: it never goes
//! back, and a tenant that was idle starts there, neither behind the others'
//! backlog nor with credit for the time it was away.

use serde::{Deserialize, Serialize};

use crate::id::Priority;

/// A place in a queue's virtual time.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Tag(pub i64);

/// How far one task of weight 1 moves a tenant's tags. 2^20 leaves room for
/// 8.8 × 10^12 tasks in an `i64`, and divides by every weight with an error below
/// one part in a thousand.
pub const TAG_STRIDE: i64 = 1 << 20;

/// A tenant's share relative to the others', from 1 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Weight(u16);

impl Weight {
    /// The weight of a tenant that was given none.
    pub const ONE: Weight = Weight(1);
    /// The largest weight.
    pub const MAX: Weight = Weight(1000);

    /// The weight with this number, `None` outside 1 to 1000.
    pub const fn new(number: u16) -> Option<Self> {
        if number == 0 || number > Self::MAX.0 {
            return None;
        }
        Some(Weight(number))
    }

    /// The number of the weight.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Weight::ONE
    }
}

impl TryFrom<u16> for Weight {
    type Error = String;

    fn try_from(number: u16) -> Result<Self, Self::Error> {
        Weight::new(number).ok_or_else(|| format!("weight {number} is not within 1 to 1000"))
    }
}

impl From<Weight> for u16 {
    fn from(weight: Weight) -> u16 {
        weight.0
    }
}

/// Where a tenant's tags stand within a stride: its number, from 1, in the order in
/// which tenants were first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Phase(pub u32);

/// The tag of a tenant's next task: the first place of its phase behind the last
/// task it has in the queue, or behind virtual time if it has none there.
///
/// `last` is the largest tag among the tenant's tasks that are still in the
/// queue, `virtual_time` the largest tag the queue has handed out. A tenant
/// without tasks in the queue has no `last`: whatever it had was claimed (then
/// virtual time is past it) or withdrawn (then it does not count).
///
/// ```
/// use windlass_core::{Phase, Tag, Weight, next_tag};
///
/// let first = next_tag(None, Tag(5_000_000), Weight::ONE, Phase(1));
/// let second = next_tag(Some(first), Tag(5_000_000), Weight::ONE, Phase(1));
/// let newcomer = next_tag(None, Tag(5_000_000), Weight::ONE, Phase(2));
/// assert!(Tag(5_000_000) < newcomer && newcomer < second);
/// ```
pub fn next_tag(last: Option<Tag>, virtual_time: Tag, weight: Weight, phase: Phase) -> Tag {
    let start = last.map_or(virtual_time, |last| last.max(virtual_time));
    let spacing = TAG_STRIDE / i64::from(weight.0);
    let ahead = (i64::from(phase.0) - start.0).rem_euclid(spacing);
    Tag(start.0.saturating_add(if ahead == 0 { spacing } else { ahead }))
}

/// Of how many claims of a worker one begins with a lower priority.
pub const AGEING: u64 = 16;

/// The priority that the claim with this number begins with instead of the largest, if it does.
/// `priorities` are those in which something is ready, the largest first.
///
/// Of [`AGEING`] claims of a worker one begins with a lower priority, and they take turns: of how
/// much is ready in the larger ones it does not depend, so nothing waits for ever.
///
/// ```
/// use windlass_core::{Priority, first_priority};
///
/// let priorities = [9, 0, -9].map(|number| Priority::new(number).unwrap());
/// let firsts: Vec<_> = (1..=48).filter_map(|claim| first_priority(claim, &priorities)).collect();
/// assert_eq!(firsts, [priorities[1], priorities[2], priorities[1]]);
/// ```
pub fn first_priority(claim: u64, priorities: &[Priority]) -> Option<Priority> {
    let (turn, lower) = (claim / AGEING, priorities.get(1..)?);
    let place = usize::try_from(turn).unwrap_or_default().checked_rem(lower.len())?;
    lower.get(place).copied().filter(|_| claim % AGEING == AGEING - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A queue that does nothing but hand out tags.
    #[derive(Default)]
    struct Model {
        virtual_time: Tag,
        sequence: u64,
        ready: BTreeSet<(Tag, u64, usize)>,
        last: BTreeMap<usize, Tag>,
    }

    impl Model {
        fn enqueue(&mut self, tenant: usize, weight: Weight) {
            let last = self.last.get(&tenant).copied();
            let phase = Phase(tenant as u32 + 1);
            let last = last.filter(|last| *last > self.virtual_time);
            let tag = next_tag(last, self.virtual_time, weight, phase);
            self.last.insert(tenant, tag);
            self.ready.insert((tag, self.sequence, tenant));
            self.sequence += 1;
        }

        fn claim(&mut self) -> Option<usize> {
            let (tag, _, tenant) = self.ready.pop_first()?;
            self.virtual_time = self.virtual_time.max(tag);
            Some(tenant)
        }
    }

    #[test]
    fn tenants_of_equal_weight_take_turns_whatever_their_backlog() {
        let mut queue = Model::default();
        for _ in 0..10_000 {
            queue.enqueue(0, Weight::ONE);
        }
        for _ in 0..3 {
            queue.enqueue(1, Weight::ONE);
        }
        let order: Vec<_> = (0..8).filter_map(|_| queue.claim()).collect();
        assert_eq!(order, [0, 1, 0, 1, 0, 1, 0, 0]);
    }

    #[test]
    fn a_newcomer_is_served_next_even_behind_a_long_backlog() {
        let mut queue = Model::default();
        for _ in 0..10_000 {
            queue.enqueue(0, Weight::ONE);
        }
        for _ in 0..500 {
            queue.claim();
        }
        queue.enqueue(1, Weight::ONE);
        let order: Vec<_> = (0..2).filter_map(|_| queue.claim()).collect();
        assert!(order.contains(&1), "{order:?}");
    }

    #[test]
    fn between_two_turns_of_a_tenant_each_other_has_one_whatever_the_order_of_arrival() {
        let mut queue = Model::default();
        // In the order of arrival, and with equal tags by age, eight others would come
        // between the two turns of tenant 0.
        for tenant in [0, 1, 2, 3, 4, 1, 2, 3, 4, 0] {
            queue.enqueue(tenant, Weight::ONE);
        }
        let order: Vec<_> = (0..10).filter_map(|_| queue.claim()).collect();
        let places: Vec<_> = (0..10).filter(|place| order[*place] == 0).collect();
        assert_eq!(places[1] - places[0], 5, "{order:?}");
    }

    #[test]
    fn coming_back_at_once_is_no_way_to_be_served_twice() {
        let mut queue = Model::default();
        for _ in 0..10 {
            queue.enqueue(1, Weight::ONE);
        }
        let mut order = Vec::new();
        for _ in 0..8 {
            // Tenant 0 has one task at a time, and the next as soon as it is claimed.
            if !queue.ready.iter().any(|(_, _, tenant)| *tenant == 0) {
                queue.enqueue(0, Weight::ONE);
            }
            order.extend(queue.claim());
        }
        assert_eq!(order.iter().filter(|tenant| **tenant == 0).count(), 4, "{order:?}");
    }

    #[test]
    fn idling_earns_no_credit() {
        let mut queue = Model::default();
        for _ in 0..1_000 {
            queue.enqueue(0, Weight::ONE);
            queue.claim();
        }
        for _ in 0..10 {
            queue.enqueue(0, Weight::ONE);
            queue.enqueue(1, Weight::ONE);
        }
        let first_ten: Vec<_> = (0..10).filter_map(|_| queue.claim()).collect();
        assert_eq!(first_ten.iter().filter(|tenant| **tenant == 1).count(), 5);
    }

    proptest! {
        #[test]
        fn shares_follow_the_weights_within_a_tenth(weights in prop::collection::vec(1..20u16, 2..6)) {
            let mut queue = Model::default();
            for (tenant, weight) in weights.iter().enumerate() {
                for _ in 0..1_000 {
                    queue.enqueue(tenant, Weight::new(*weight).unwrap());
                }
            }
            let mut claims = vec![0u32; weights.len()];
            for _ in 0..1_000 {
                claims[queue.claim().unwrap()] += 1;
            }
            let total: u16 = weights.iter().sum();
            for (tenant, weight) in weights.iter().enumerate() {
                let share = 1_000.0 * f64::from(*weight) / f64::from(total);
                let off = (f64::from(claims[tenant]) - share).abs();
                prop_assert!(off <= (share * 0.1).max(1.0), "{weights:?} {claims:?}");
            }
        }
    }

    #[test]
    fn a_tenant_that_was_idle_starts_at_the_virtual_time_and_not_at_its_last_tag() {
        let (long_ago, now) = (Tag(TAG_STRIDE), Tag(100 * TAG_STRIDE));
        let tag = next_tag(Some(long_ago), now, Weight::ONE, Phase(0));
        assert_eq!(tag, Tag(101 * TAG_STRIDE));
        let ahead = next_tag(Some(now), long_ago, Weight::ONE, Phase(0));
        assert_eq!(ahead, Tag(101 * TAG_STRIDE), "a backlog counts on");
    }
}
