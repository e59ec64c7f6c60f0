//! Fairness: whose turn it is, counted in claims.
//!
//! The cases claim and do not finish: a claim is what fairness is measured in.

use std::collections::BTreeMap;

use windlass_core::{Limit, Weight};

use super::bench::{Bench, Worker, names, priority, seconds, tenant, tenants};
use crate::store::{Claimed, NewRun};

fn weight(number: u16) -> Weight {
    Weight::new(number).expect("the case gives a weight within the limits")
}

/// The tenants of the next claims, one at a time.
async fn turns(worker: &Worker<'_>, count: usize) -> Vec<String> {
    let mut order = Vec::new();
    for _ in 0..count {
        order.push(worker.claim_one().await.tenant.to_string());
    }
    order
}

fn shares(claimed: &[Claimed]) -> BTreeMap<&str, usize> {
    let mut shares = BTreeMap::new();
    for name in tenants(claimed) {
        *shares.entry(name).or_default() += 1;
    }
    shares
}

/// Every stretch as long as there are tenants has each of them once.
fn assert_rounds(order: &[impl AsRef<str>], tenants: &[&str]) {
    let order: Vec<&str> = order.iter().map(AsRef::as_ref).collect();
    for round in order.windows(tenants.len()) {
        let mut round = round.to_vec();
        round.sort_unstable();
        assert_eq!(round, tenants, "in {order:?}");
    }
}

pub(crate) async fn tenants_of_equal_weight_take_turns(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    for name in ["x", "y", "z"] {
        bench.start_for("w", name, 4).await;
    }
    let worker = bench.worker().await;
    assert_eq!(turns(&worker, 12).await, ["x", "y", "z"].repeat(4));
}

pub(crate) async fn tenants_take_turns_in_the_order_of_their_first_starts(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let quiet = Limit::debounce(seconds(10));
    bench.register_limited("quiet", quiet).await;
    let late = NewRun { delay: seconds(10), tenant: tenant("x"), ..bench.new_run("w") };
    bench.start_run(late).await;
    bench.start_for("quiet", "y", 1).await;
    bench.start_for("w", "z", 1).await;
    bench.advance(seconds(10)).await;
    bench.promote().await;
    let worker = bench.worker().await;
    assert_eq!(turns(&worker, 3).await, ["x", "y", "z"], "whoever became ready first");
}

pub(crate) async fn turns_are_the_same_in_batches(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    for name in ["x", "y", "z"] {
        bench.start_for("w", name, 4).await;
    }
    let worker = bench.worker().await;
    let mut order = Vec::new();
    for limit in [5, 1, 4, 2] {
        order.extend(worker.claim(limit).await);
    }
    assert_eq!(tenants(&order), ["x", "y", "z"].repeat(4));
}

pub(crate) async fn a_newcomer_does_not_wait_behind_a_backlog(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "old", 200).await;
    let worker = bench.worker().await;
    worker.claim(50).await;
    bench.start_for("w", "new", 1).await;
    let order = turns(&worker, 2).await;
    assert!(order.contains(&"new".to_owned()), "{order:?}");
}

pub(crate) async fn a_newcomer_before_the_first_claim_does_not_wait_either(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "old", 200).await;
    bench.start_for("w", "new", 2).await;
    let worker = bench.worker().await;
    assert_eq!(turns(&worker, 5).await, ["old", "new", "old", "new", "old"]);
}

pub(crate) async fn one_run_of_many_tasks_is_one_tenants_backlog(bench: &Bench<'_>) {
    let tasks: Vec<String> = (0..50).map(|i| format!("t{i}")).collect();
    bench.register("wide", &tasks.join(" ")).await;
    bench.register("w", "a").await;
    bench.start_for("wide", "old", 1).await;
    bench.start_for("w", "new", 1).await;
    let worker = bench.worker().await;
    assert_eq!(turns(&worker, 3).await, ["old", "new", "old"]);
}

pub(crate) async fn children_wait_for_their_turn_like_roots(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    bench.start_for("w", "x", 3).await;
    let worker = bench.worker().await;
    for task in worker.claim(3).await {
        bench.succeed(&task).await;
    }
    bench.start_for("w", "y", 3).await;
    let order = worker.claim(6).await;
    assert_rounds(&tenants(&order), &["x", "y"]);
    let child_of = |tenant: &str| if tenant == "x" { "b" } else { "a" };
    let expected: Vec<&str> = tenants(&order).iter().map(|tenant| child_of(tenant)).collect();
    assert_eq!(names(&order), expected);
}

pub(crate) async fn shares_follow_the_weights(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let weights = [("x", 1), ("y", 2), ("z", 5)];
    for (name, number) in weights {
        bench.store.set_weight(tenant(name), weight(number)).await.expect("weights can be set");
        bench.start_for("w", name, 1_000).await;
    }
    let worker = bench.worker().await;
    let mut claimed = Vec::new();
    while claimed.len() < 1_000 {
        claimed.extend(worker.claim(10).await);
    }
    let shares = shares(&claimed);
    for (name, number) in weights {
        let fair = 1_000.0 * f64::from(number) / 8.0;
        let got = shares.get(name).copied().unwrap_or(0) as f64;
        assert!((got - fair).abs() <= fair / 10.0, "{name} got {got}, its share is {fair}");
    }
}

pub(crate) async fn a_weight_holds_for_tasks_that_become_ready_from_then_on(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "x", 3).await;
    bench.start_for("w", "y", 3).await;
    bench.store.set_weight(tenant("y"), weight(100)).await.expect("weights can be set");
    let worker = bench.worker().await;
    assert_eq!(turns(&worker, 6).await, ["x", "y"].repeat(3), "these were ready before");
    bench.start_for("w", "x", 10).await;
    bench.start_for("w", "y", 10).await;
    let first = worker.claim(10).await;
    assert_eq!(shares(&first), BTreeMap::from([("y", 10)]));
}

pub(crate) async fn idling_earns_no_credit(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker().await;
    for _ in 0..50 {
        bench.start_for("w", "busy", 1).await;
        worker.claim_one().await;
    }
    bench.start_for("w", "busy", 10).await;
    bench.start_for("w", "idle", 10).await;
    assert_rounds(&turns(&worker, 10).await, &["busy", "idle"]);
}

pub(crate) async fn an_empty_queue_does_not_forget_the_time(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker().await;
    bench.start_for("w", "x", 100).await;
    assert_eq!(worker.claim(200).await.len(), 100);
    bench.start_for("w", "y", 5).await;
    bench.start_for("w", "x", 5).await;
    assert_eq!(turns(&worker, 10).await, ["y", "x"].repeat(5));
}

pub(crate) async fn each_priority_has_a_time_of_its_own(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker().await;
    let high = || NewRun { priority: priority(9), tenant: tenant("x"), ..bench.new_run("w") };
    bench.start_for("w", "x", 20).await;
    let answers = bench.start_all((0..100).map(|_| high()).collect()).await;
    let started: Vec<_> = answers.iter().flatten().map(|started| started.run).collect();
    let first = worker.claim(100).await;
    assert!(first.iter().all(|task| started.contains(&task.task.run)), "high goes first");
    bench.start_for("w", "y", 3).await;
    assert_eq!(turns(&worker, 6).await, ["x", "y"].repeat(3));
}

pub(crate) async fn no_priority_waits_for_ever(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker().await;
    let of = |number| NewRun { priority: priority(number), ..bench.new_run("w") };
    for number in [-9, 0] {
        bench.start_all((0..4).map(|_| of(number)).collect()).await;
    }
    bench.start_all((0..100).map(|_| of(9)).collect()).await;
    let mut order = Vec::new();
    for _ in 0..48 {
        let claimed = worker.claim_one().await;
        order.push(bench.run(claimed.task.run).await.priority.get());
    }
    let lower: Vec<i16> = order.iter().copied().filter(|number| *number < 9).collect();
    assert_eq!(lower, [0, -9, 0], "they take turns: {order:?}");
    let claimed = worker.claim(20).await;
    assert_eq!(claimed.len(), 20);
    assert_eq!(bench.run(claimed[0].task.run).await.priority, priority(9), "the larger goes first");
}

pub(crate) async fn each_queue_has_a_time_of_its_own(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.register("busy", "a@busy").await;
    let worker = bench.worker().await;
    bench.start_for("w", "x", 20).await;
    bench.start_for("busy", "x", 100).await;
    assert_eq!(worker.claim_from("busy", 100).await.len(), 100);
    bench.start_for("w", "y", 3).await;
    assert_eq!(turns(&worker, 6).await, ["x", "y"].repeat(3));
}

pub(crate) async fn a_cancelled_backlog_does_not_count_against_its_tenant(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let backlog = bench.start_for("w", "x", 50).await;
    bench.start_for("w", "y", 5).await;
    for run in backlog {
        bench.store.cancel_run(run, None).await.expect("it can be cancelled");
    }
    bench.start_for("w", "x", 5).await;
    let worker = bench.worker().await;
    assert_rounds(&turns(&worker, 10).await, &["x", "y"]);
}

pub(crate) async fn whoever_came_when_each_other_has_one_turn_between_two_of_a_tenant(
    bench: &Bench<'_>,
) {
    bench.register("w", "a").await;
    for name in ["a", "b", "c", "d", "e", "b", "c", "d", "e", "a"] {
        bench.start_for("w", name, 1).await;
    }
    let worker = bench.worker().await;
    assert_rounds(&turns(&worker, 10).await, &["a", "b", "c", "d", "e"]);
}

pub(crate) async fn a_backlogged_tenant_is_served_within_the_bound(bench: &Bench<'_>) {
    const TENANTS: [&str; 4] = ["t0", "t1", "t2", "t3"];
    const BATCH: usize = 5;
    const CLAIMERS: usize = 3;
    let bound = TENANTS.len() * BATCH + CLAIMERS;
    bench.register("w", "a").await;
    for name in TENANTS {
        bench.start_for("w", name, 100).await;
    }
    let workers = [bench.worker().await, bench.worker().await, bench.worker().await];
    let mut order: Vec<String> = Vec::new();
    for _ in 0..20 {
        let [one, two, three] = &workers;
        let (one, two, three) =
            tokio::join!(one.claim(BATCH), two.claim(BATCH), three.claim(BATCH));
        for claimed in [one, two, three] {
            order.extend(claimed.iter().map(|task| task.tenant.to_string()));
        }
    }
    assert_eq!(order.len(), 20 * CLAIMERS * BATCH);
    for window in order.windows(bound) {
        for name in TENANTS {
            assert!(window.iter().any(|got| got == name), "{name} waits longer than {bound}");
        }
    }
    bench.start_for("w", "new", 1).await;
    let mut until_new = 0;
    for worker in workers.iter().cycle() {
        let claimed = worker.claim(BATCH).await;
        if let Some(at) = claimed.iter().position(|task| task.tenant == tenant("new")) {
            until_new += at;
            break;
        }
        until_new += claimed.len();
        assert!(until_new <= bound, "the newcomer waits longer than {bound}");
    }
    assert!(until_new <= bound, "the newcomer waits longer than {bound}");
}

pub(crate) async fn a_newcomer_gains_nothing_from_a_worker_that_left(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "old", 20).await;
    let left = bench.worker().await;
    for claimed in left.claim(10).await {
        bench.succeed(&claimed).await;
    }
    left.leave().await;
    bench.start_for("w", "new", 6).await;
    let claimed = bench.worker().await.claim(6).await;
    let new = tenants(&claimed).into_iter().filter(|tenant| *tenant == "new").count();
    assert_eq!(new, 3, "they take turns from where the first worker was");
}
