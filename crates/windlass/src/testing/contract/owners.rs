//! Keys that have owners: whose tasks are whose, and what happens when workers come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use windlass_core::why::{Reason, Served};
use windlass_core::{Definition, Limit, QueueName, WorkerId};

use super::bench::{Bench, LEASE, SLOTS, TICK, Worker, tenant};
use super::lanes::limited;
use crate::store::{ClaimRequest, Claimed, Heartbeat, Hello, TENANT_METADATA, WorkerInfo};

/// So many keys that each of a few workers owns some of them, and more than are merged exactly.
const KEYS: usize = 90;

fn owned() -> Arc<Definition> {
    limited("w", 1, &[("a", vec![Limit::per("key", 1).owned()])])
}

/// The workflow is known, and tasks of it wait: one of each key.
async fn fill(bench: &Bench<'_>) {
    bench.try_register(owned()).await.expect("the definition can be registered");
    more(bench).await;
}

async fn more(bench: &Bench<'_>) {
    for key in 0..KEYS {
        bench.start_keyed("w", &key.to_string()).await;
    }
}

/// A worker that says what it serves.
async fn join<'a>(bench: &'a Bench<'a>) -> Worker<'a> {
    let worker = bench.stranger();
    let info = WorkerInfo { queues: vec![QueueName::default()], ..WorkerInfo::default() };
    let hello = Hello { definitions: vec![owned()], info, ..worker.hello(LEASE) };
    bench.store.join(hello).await.expect("a new worker can join");
    worker
}

/// A worker that says what it serves, for one tenant.
async fn join_for<'a>(bench: &'a Bench<'a>, tenant: &str) -> Worker<'a> {
    let worker = bench.stranger();
    let metadata = BTreeMap::from([(TENANT_METADATA.to_owned(), tenant.to_owned())]);
    let info = WorkerInfo { queues: vec![QueueName::default()], metadata, ..WorkerInfo::default() };
    let hello = Hello { definitions: vec![owned()], info, ..worker.hello(LEASE) };
    bench.store.join(hello).await.expect("a new worker can join");
    worker
}

/// Says that a worker is there, although it has nothing to do.
async fn sign(bench: &Bench<'_>, worker: &Worker<'_>) {
    let heartbeat = Heartbeat {
        worker: worker.id,
        settled: windlass_core::ClaimSeq(0),
        held: Vec::new(),
        progress: Vec::new(),
    };
    bench.store.extend(heartbeat).await.expect("it is there");
}

fn key(claimed: &Claimed) -> String {
    claimed.input.as_str().to_owned()
}

/// Lets each worker take all that it is given and end it. Answers who had which key.
async fn work_off(bench: &Bench<'_>, workers: &[&Worker<'_>]) -> BTreeMap<String, WorkerId> {
    let mut owners = BTreeMap::new();
    for worker in workers {
        for claimed in worker.claim(100).await {
            bench.succeed(&claimed).await;
            let before = owners.insert(key(&claimed), worker.id);
            assert_eq!(before, None, "there is one of each key");
        }
    }
    owners
}

pub(crate) async fn tasks_with_one_key_go_to_the_same_worker(bench: &Bench<'_>) {
    fill(bench).await;
    let (one, other) = (join(bench).await, join(bench).await);
    let first = work_off(bench, &[&one, &other]).await;
    assert_eq!(first.len(), KEYS, "each is somebody's");
    let shares: BTreeSet<WorkerId> = first.values().copied().collect();
    assert_eq!(shares.len(), 2, "both have some");
    more(bench).await;
    assert_eq!(work_off(bench, &[&other, &one]).await, first, "whoever asks first");
}

pub(crate) async fn who_asks_with_others_is_given_its_own_keys(bench: &Bench<'_>) {
    fill(bench).await;
    let (one, other) = (join(bench).await, join(bench).await);
    let alone = work_off(bench, &[&one, &other]).await;
    more(bench).await;
    let told = bench.store.claim_many(vec![other.request(100), one.request(100)]).await;
    let mut together = BTreeMap::new();
    for (worker, told) in [&other, &one].into_iter().zip(told) {
        for claimed in told.expect("a worker that lives can claim") {
            together.insert(key(&claimed), worker.id);
        }
    }
    assert_eq!(together, alone);
}

pub(crate) async fn a_newcomer_takes_keys_over_and_nobody_else_does(bench: &Bench<'_>) {
    fill(bench).await;
    let (one, other) = (join(bench).await, join(bench).await);
    let before = work_off(bench, &[&one, &other]).await;
    let newcomer = join(bench).await;
    more(bench).await;
    let after = work_off(bench, &[&one, &other, &newcomer]).await;
    let moved: Vec<_> = after.iter().filter(|(key, owner)| before[*key] != **owner).collect();
    assert!(moved.iter().all(|(_, owner)| **owner == newcomer.id), "{moved:?}");
    assert!((KEYS / 10..KEYS * 6 / 10).contains(&moved.len()), "{} of {KEYS}", moved.len());
}

pub(crate) async fn who_leaves_drains_or_is_not_heard_of_owns_nothing(bench: &Bench<'_>) {
    fill(bench).await;
    let (stays, leaves) = (join(bench).await, join(bench).await);
    let (drains, dies) = (join(bench).await, join(bench).await);
    let before = work_off(bench, &[&stays, &leaves, &drains, &dies]).await;
    assert_eq!(before.len(), KEYS);
    leaves.leave().await;
    bench.store.begin_drain(drains.id).await.expect("saying so works");
    more(bench).await;
    let kept = work_off(bench, &[&stays]).await;
    let is_kept = |key: &String| kept.contains_key(key);
    let dying = before.iter().filter(|(_, owner)| **owner == dies.id);
    assert!(dying.clone().count() > 0 && kept.len() < KEYS, "it lives until its lease is over");
    assert!(before.iter().filter(|(_, owner)| **owner == stays.id).all(|(key, _)| is_kept(key)));
    bench.advance(LEASE - TICK).await;
    sign(bench, &stays).await;
    assert_eq!(work_off(bench, &[&stays]).await.len(), 0);
    bench.advance(TICK).await;
    assert_eq!(work_off(bench, &[&stays]).await.len(), KEYS - kept.len(), "now it has all");
}

pub(crate) async fn a_worker_without_tasks_keeps_its_keys_with_heartbeats(bench: &Bench<'_>) {
    fill(bench).await;
    let (one, other) = (join(bench).await, join(bench).await);
    let before = work_off(bench, &[&one, &other]).await;
    assert!([&one, &other].iter().all(|one| before.values().any(|owner| *owner == one.id)));
    for _ in 0..3 {
        bench.advance(LEASE - TICK).await;
        sign(bench, &one).await;
        sign(bench, &other).await;
    }
    more(bench).await;
    assert_eq!(work_off(bench, &[&one, &other]).await, before);
}

pub(crate) async fn who_does_not_serve_a_workflow_owns_none_of_its_keys(bench: &Bench<'_>) {
    fill(bench).await;
    let one = join(bench).await;
    // It says nothing of what it serves.
    let _other = bench.worker().await;
    assert_eq!(work_off(bench, &[&one]).await.len(), KEYS);
}

pub(crate) async fn limits_and_order_hold_while_keys_move(bench: &Bench<'_>) {
    fill(bench).await;
    more(bench).await;
    let one = join(bench).await;
    let first = one.claim(100).await;
    assert_eq!(first.len(), KEYS, "one of each key is under way");
    let newcomer = join(bench).await;
    assert_eq!(newcomer.claim(100).await.len(), 0, "who has a key's slot keeps it");
    for claimed in &first {
        bench.succeed(claimed).await;
    }
    let second = [newcomer.claim(100).await, one.claim(100).await].concat();
    assert_eq!(second.len(), KEYS);
    let keys: BTreeSet<String> = second.iter().map(key).collect();
    assert_eq!(keys.len(), KEYS, "never two of a key at once");
    let begun: BTreeMap<String, _> = first.iter().map(|one| (key(one), one.task.run)).collect();
    assert!(second.iter().all(|one| begun[&key(one)] < one.task.run), "in the order of coming");
}

pub(crate) async fn what_was_claimed_goes_back_to_whoever_owns_it_then(bench: &Bench<'_>) {
    fill(bench).await;
    let one = join(bench).await;
    let held = one.claim(100).await;
    assert_eq!(held.len(), KEYS);
    let newcomer = join(bench).await;
    bench.advance(LEASE).await;
    sign(bench, &newcomer).await;
    bench.reap().await;
    let again = newcomer.claim(100).await;
    assert_eq!(again.len(), KEYS, "nobody else is there any more");
}

pub(crate) async fn why_a_task_is_not_claimed_names_the_owner_of_its_key(bench: &Bench<'_>) {
    bench.try_register(owned()).await.expect("the definition can be registered");
    let (one, other) = (join(bench).await, join(bench).await);
    let mut told = BTreeMap::new();
    for number in 0..KEYS {
        let run = bench.start_keyed("w", &number.to_string()).await;
        let why = bench.store.why(run, None).await.expect("asking works").expect("it is there");
        let reason = &why.tasks[0].reasons[0];
        let Reason::Ready { served: Served::Owner { worker, free_slots, .. }, .. } = reason else {
            panic!("{reason:?}");
        };
        assert_eq!(*free_slots, u64::from(SLOTS));
        told.insert(run, *worker);
    }
    let mut claimed = BTreeMap::new();
    for worker in [&one, &other] {
        let mine = worker.claim(100).await;
        claimed.extend(mine.iter().map(|claimed| (claimed.task.run, worker.id)));
    }
    assert_eq!(claimed, told);
}

pub(crate) async fn a_claim_gives_what_one_key_has_among_many(bench: &Bench<'_>) {
    let many = limited("w", 1, &[("a", vec![Limit::per("key", 80).owned()])]);
    bench.try_register(many).await.expect("the definition can be registered");
    more(bench).await;
    let worker = bench.worker().await;
    for claimed in worker.claim(100).await {
        bench.succeed(&claimed).await;
    }
    for _ in 0..70 {
        bench.start_keyed("w", "7").await;
    }
    assert_eq!(worker.claim(100).await.len(), 70);
}

pub(crate) async fn a_worker_for_one_tenant_owns_no_keys_of_others(bench: &Bench<'_>) {
    fill(bench).await;
    let (one, other) = (join(bench).await, join_for(bench, "x").await);
    for worker in [&one, &other] {
        sign(bench, worker).await;
    }
    assert_eq!(one.claim(100).await.len(), KEYS, "nobody keeps any of them from it");
    let own = ClaimRequest { tenant: Some(tenant("x")), ..other.request(9) };
    assert!(bench.store.claim(own).await.expect("it lives").is_empty());
}

pub(crate) async fn a_key_of_a_tenant_has_one_owner_of_each_kind(bench: &Bench<'_>) {
    bench.try_register(owned()).await.expect("the definition can be registered");
    let own = [join_for(bench, "x").await, join_for(bench, "x").await];
    let all = [join(bench).await, join(bench).await];
    // Starts one task of each key, and lets two workers take all that they are given.
    let shared = async |workers: [&Worker<'_>; 2], whose: Option<&str>| {
        for key in 0..KEYS {
            bench.start_keyed_for("w", "x", &key.to_string()).await;
        }
        let mut owners = BTreeMap::new();
        for worker in workers {
            let request = ClaimRequest { tenant: whose.map(tenant), ..worker.request(100) };
            for claimed in bench.store.claim(request).await.expect("it lives") {
                bench.succeed(&claimed).await;
                owners.insert(key(&claimed), worker.id);
            }
        }
        assert_eq!(owners.len(), KEYS, "each key has an owner of the two");
        let shares: BTreeSet<WorkerId> = owners.values().copied().collect();
        assert_eq!(shares.len(), 2, "both own some");
        owners
    };
    let of_tenant = shared([&own[0], &own[1]], Some("x")).await;
    let of_all = shared([&all[0], &all[1]], None).await;
    // Whichever asks first.
    assert_eq!(shared([&own[1], &own[0]], Some("x")).await, of_tenant);
    assert_eq!(shared([&all[1], &all[0]], None).await, of_all);
}
