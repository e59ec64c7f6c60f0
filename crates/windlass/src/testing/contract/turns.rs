//! Claims for one tenant alone.

use std::time::Duration;

use super::bench::{Bench, Worker, completion, names, queue, success, tenant, tenants};
use crate::store::{ClaimRequest, Claimed};

/// Claims for one tenant.
async fn claim_for(worker: &Worker<'_>, name: &str, limit: usize) -> Vec<Claimed> {
    let request = ClaimRequest { tenant: Some(tenant(name)), ..worker.request(limit) };
    worker.bench().store.claim(request).await.expect("a worker that lives can claim")
}

pub(crate) async fn a_claim_for_a_tenant_finds_its_tasks_alone(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "x", 3).await;
    bench.start_for("w", "y", 2).await;
    let worker = bench.worker_for("x").await;
    assert_eq!(tenants(&claim_for(&worker, "y", 9).await), ["y", "y"]);
    assert!(claim_for(&worker, "y", 9).await.is_empty(), "the rest is not for it");
    assert!(claim_for(&worker, "nobody", 9).await.is_empty(), "of whom nothing is known");
    let all = bench.worker().await;
    assert_eq!(tenants(&all.claim(9).await), ["x", "x", "x"], "who claims for all finds it");
}

pub(crate) async fn a_claim_for_a_tenant_is_by_priority_and_age(bench: &Bench<'_>) {
    bench.register("w", "low^-5 mid high^5").await;
    bench.start_for("w", "x", 1).await;
    bench.start_for("w", "y", 2).await;
    let worker = bench.worker_for("x").await;
    let first = claim_for(&worker, "y", 3).await;
    assert_eq!(names(&first), ["high", "high", "mid"]);
    assert_eq!(tenants(&first), ["y"; 3]);
    assert_eq!(names(&claim_for(&worker, "y", 9).await), ["mid", "low", "low"]);
}

pub(crate) async fn a_claim_for_a_tenant_serves_only_its_queues_and_handlers(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.register("v", "b@fast").await;
    bench.start_for("w", "x", 2).await;
    bench.start_for("v", "x", 1).await;
    let worker = bench.worker_for("x").await;
    let x = Some(tenant("x"));
    let fast = ClaimRequest { queues: [queue("fast")].into(), tenant: x, ..worker.request(9) };
    let claimed = bench.store.claim(fast).await.expect("it lives");
    assert_eq!(names(&claimed), ["b"]);
    assert_eq!(names(&claim_for(&worker, "x", 9).await), ["a", "a"]);
}

pub(crate) async fn a_tenant_that_is_served_out_of_turn_delays_nobody(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "x", 20).await;
    bench.start_for("w", "y", 20).await;
    let worker = bench.worker_for("x").await;
    assert_eq!(claim_for(&worker, "x", 20).await.len(), 20);
    // Had that moved the virtual time, this one would stand behind all that is there.
    bench.start_for("w", "z", 1).await;
    let next = bench.worker().await.claim(3).await;
    assert!(tenants(&next).contains(&"z"), "{:?}", tenants(&next));
}

pub(crate) async fn who_comes_after_all_was_served_out_of_turn_is_found(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker_for("x").await;
    for _ in 0..3 {
        bench.start_for("w", "x", 5).await;
        bench.start_for("w", "y", 1).await;
        assert_eq!(claim_for(&worker, "x", 3).await.len(), 3);
        assert_eq!(claim_for(&worker, "x", 9).await.len(), 2);
        assert!(claim_for(&worker, "x", 9).await.is_empty());
        let poll = ClaimRequest { is_poll: true, ..worker.request(9) };
        let poll = ClaimRequest { tenant: Some(tenant("x")), ..poll };
        assert!(bench.store.claim(poll).await.expect("it lives").is_empty());
        bench.start_for("w", "x", 1).await;
        let poll = ClaimRequest { is_poll: true, ..worker.request(9) };
        let poll = ClaimRequest { tenant: Some(tenant("x")), ..poll };
        assert_eq!(bench.store.claim(poll).await.expect("it lives").len(), 1);
    }
}

pub(crate) async fn a_tenants_tasks_are_found_behind_many_that_nobody_serves(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.register("v", "b").await;
    bench.start_for("w", "x", 3_000).await;
    bench.start_for("v", "x", 1).await;
    let worker = bench.worker_for("x").await;
    let only = worker.request(9).handlers.iter().find(|one| one.workflow.as_str() == "v").cloned();
    let only: Vec<_> = only.into_iter().collect();
    let mut found = Vec::new();
    // One claim looks at a bounded number; the next goes on behind it.
    for _ in 0..4 {
        let tenant = Some(tenant("x"));
        let claim = ClaimRequest { handlers: only.clone().into(), tenant, ..worker.request(9) };
        found.extend(bench.store.claim(claim).await.expect("it lives"));
    }
    assert_eq!(names(&found), ["b"]);
    assert_eq!(claim_for(&worker, "x", 5).await.len(), 5, "those in front are there still");
}

pub(crate) async fn claims_for_different_tenants_beside_each_other_find_their_own(
    bench: &Bench<'_>,
) {
    bench.register("w", "a").await;
    bench.start_for("w", "x", 2).await;
    bench.start_for("w", "y", 2).await;
    bench.start_for("w", "z", 2).await;
    let (one, two) = (bench.worker_for("x").await, bench.worker_for("y").await);
    let (two_too, all) = (bench.worker_for("y").await, bench.worker().await);
    let of = |worker: &Worker<'_>, name: &str| ClaimRequest {
        tenant: Some(tenant(name)),
        ..worker.request(1)
    };
    let requests = vec![of(&one, "x"), of(&two, "y"), all.request(0), of(&two_too, "y")];
    let told = bench.store.claim_many(requests).await;
    let told: Vec<Vec<Claimed>> =
        told.into_iter().map(|told| told.expect("a worker that lives can claim")).collect();
    let whose: Vec<_> = told.iter().map(|told| tenants(told)).collect();
    assert_eq!(whose, [vec!["x"], vec!["y"], vec![], vec!["y"]]);
}

pub(crate) async fn a_claim_behind_completions_is_for_its_tenant_alone(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    bench.start_for("w", "x", 1).await;
    bench.start_for("w", "y", 1).await;
    let worker = bench.worker_for("x").await;
    let own = claim_for(&worker, "x", 1).await;
    let done = own.iter().map(|one| completion(one, success()));
    let next = ClaimRequest { tenant: Some(tenant("x")), ..worker.request(9) };
    let finished = bench.store.finish_and_claim(done.collect(), next).await.expect("it lives");
    assert!(tenants(&finished.claimed).iter().all(|whose| *whose == "x"));
    let mut rest = finished.claimed;
    rest.extend(claim_for(&worker, "x", 9).await);
    assert_eq!(names(&rest), ["b"], "in the same operation or in the next");
    assert_eq!(tenants(&bench.worker().await.claim(9).await), ["y"]);
}

pub(crate) async fn what_a_tenant_gives_back_is_found_in_its_place(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "x", 3).await;
    let worker = bench.worker_for("x").await;
    let first = claim_for(&worker, "x", 1).await.remove(0);
    bench.release(&first, Duration::ZERO).await;
    let again = claim_for(&worker, "x", 1).await.remove(0);
    assert_eq!(again.task, first.task);
}
