//! Buckets and who owns them.

use std::collections::BTreeMap;

use windlass_core::definition::TaskDraft;
use windlass_core::ring::BUCKETS;
use windlass_core::{
    Bucket, DefinitionDraft, LaneId, LaneKey, Limit, LimitName, TaskKind, Tenant, WorkerId,
};

fn workers(count: u128) -> Vec<WorkerId> {
    (1..=count).map(WorkerId::from_random).collect()
}

fn owners(workers: &[WorkerId]) -> Vec<WorkerId> {
    let owner = |number| Bucket::new(number)?.owner(workers.iter().copied());
    (0..BUCKETS).map(|number| owner(number).expect("there are workers")).collect()
}

fn lane(limit: &str, tenant: Option<&str>, key: &str) -> LaneId {
    LaneId {
        limit: LimitName::new(limit).expect("it is a name"),
        tenant: tenant.map(|tenant| Tenant::new(tenant).expect("it is a name")),
        key: Some(LaneKey::new(key).expect("it is a key")),
    }
}

#[test]
fn every_worker_owns_about_its_share() {
    for count in [2, 3, 10, 40] {
        let mut shares: BTreeMap<WorkerId, usize> = BTreeMap::new();
        for owner in owners(&workers(count)) {
            *shares.entry(owner).or_default() += 1;
        }
        let even = usize::from(BUCKETS) / count as usize;
        assert_eq!(shares.len(), count as usize);
        let is_fair = |share: &usize| (even / 3..=even * 2).contains(share);
        assert!(shares.values().all(is_fair), "{count} workers: {shares:?}");
    }
}

#[test]
fn a_newcomer_takes_its_share_and_who_leaves_gives_up_only_its_own() {
    let all = workers(10);
    let (before, after) = (owners(&all[..9]), owners(&all));
    let moved: Vec<_> = before.iter().zip(&after).filter(|(one, other)| one != other).collect();
    assert!(moved.iter().all(|(_, owner)| **owner == all[9]));
    let share = usize::from(BUCKETS) / 10;
    assert!((share / 2..share * 2).contains(&moved.len()), "{} moved", moved.len());
}

#[test]
fn whoever_knows_the_same_workers_agrees() {
    let mut backwards = workers(7);
    backwards.reverse();
    assert_eq!(owners(&workers(7)), owners(&backwards));
    assert_eq!(Bucket::new(3).unwrap().owner([]), None);
    assert_eq!(Bucket::new(BUCKETS), None);
}

#[test]
fn buckets_and_owners_never_change() {
    let lane = lane("w/a/key", Some("acme"), "customer-7");
    let owner = Bucket::of(&lane).owner(workers(5)).unwrap();
    assert_eq!((Bucket::of(&lane).get(), owner), (646, workers(5)[4]));
}

#[test]
fn a_bucket_is_that_of_tenant_and_key_whatever_the_limit() {
    let one = Bucket::of(&lane("one", Some("acme"), "7"));
    assert_eq!(one, Bucket::of(&lane("other", Some("acme"), "7")));
    let others =
        [lane("one", Some("bolt"), "7"), lane("one", None, "7"), lane("one", None, "acme7")];
    assert!(others.iter().any(|other| Bucket::of(other) != one));
}

#[test]
fn a_limit_that_is_owned_has_a_field_and_is_the_only_one() {
    let build = |limits: Vec<Limit>| {
        let mut task = TaskDraft::new("a", TaskKind::Handler);
        task.limits = limits;
        DefinitionDraft::new("w").task(task).build().map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(build(vec![Limit::per("key", 1).owned(), Limit::of(3)]), Ok(()));
    let error = build(vec![Limit::of(1).owned()]).unwrap_err();
    assert!(error.contains("limit \"w/a\" is owned, and has no field"), "{error}");
    let two = vec![Limit::per("one", 1).owned(), Limit::per("other", 1).owned()];
    let error = build(two).unwrap_err();
    assert!(error.contains("task \"a\": has several owned limits"), "{error}");
}
