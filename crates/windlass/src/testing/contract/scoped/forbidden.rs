//! What all tenants share.

use std::sync::Arc;

use windlass_core::{CandidateId, DutyName, RunState, Term, Weight};

use super::super::bench::{Bench, definition, seconds, tenant};
use super::acme;
use crate::store::{
    Candidacy, Duty, DutyClaim, DutyEnd, DutyMandate, DutyOutcome, DutyStore, Mandate, QueueStore,
    RetentionRule, ScheduleStore, Store, StoreError, Tallies, WorkerFilter,
};

/// Whether it was told that this is for whoever acts for all.
fn is_for_all<T>(answer: Result<T, StoreError>) -> bool {
    let text = "is for whoever acts for all tenants, not for tenant \"acme\" alone";
    matches!(answer, Err(StoreError::Forbidden(told)) if told.ends_with(text))
}

pub(crate) async fn what_all_tenants_share_is_not_for_one(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let scope = acme(bench);
    let candidate = CandidateId::from_random(1);
    let candidacy = Candidacy {
        candidate,
        name: "acme".to_owned(),
        ttl: seconds(9),
        rotation: None,
        tallies: Tallies::new(),
    };
    assert!(is_for_all(scope.lead(candidacy).await));
    assert!(is_for_all(scope.resign(candidate, Tallies::new()).await));
    let mandate = Mandate { duty: Duty::Reap, candidate, term: Term(1) };
    assert!(is_for_all(scope.sweep(mandate, 9).await));
    assert!(is_for_all(scope.outlook().await));
    assert!(is_for_all(scope.list_leaders().await));
    assert!(is_for_all(scope.promote_due(9).await));
    assert!(is_for_all(scope.reap(9).await));
    assert!(is_for_all(scope.prune(9).await));
    assert!(is_for_all(scope.roll_up(9).await));
    assert!(is_for_all(scope.fire_schedules(9).await));
    let rule = RetentionRule::new(RunState::Succeeded, seconds(9));
    assert!(is_for_all(scope.set_retention(rule).await));
    assert!(is_for_all(scope.clear_retention(None, RunState::Succeeded).await));
    assert!(is_for_all(scope.set_weight(tenant("acme"), Weight::default()).await));
    assert!(is_for_all(scope.list_workers(WorkerFilter::default()).await));
    assert!(is_for_all(scope.list_queues().await));
    assert!(scope.connections().is_none() && !scope.does_duties());

    let name = DutyName::new("clean").expect("it is a name");
    let claim =
        DutyClaim { candidate, process: "acme".to_owned(), ttl: seconds(9), duties: Vec::new() };
    assert!(is_for_all(scope.claim_duties(claim).await));
    assert!(is_for_all(scope.renew_duties(Vec::new(), seconds(9)).await));
    let mandate = DutyMandate { name: name.clone(), candidate, term: Term(1) };
    let end = DutyEnd { mandate, took: seconds(1), outcome: DutyOutcome::Succeeded };
    assert!(is_for_all(scope.end_duty(end).await));
    assert!(is_for_all(scope.list_duties().await));
    assert!(is_for_all(scope.forget_duty(name).await));

    // What is registered may be named as it is, and nothing else be made of it.
    assert_eq!(scope.register(definition("w", 1, "a")).await, Ok(()));
    let others = ["a^5", "a b"].map(|tasks| definition("w", 1, tasks));
    for other in others.into_iter().chain([definition("w", 2, "a"), definition("v", 1, "a")]) {
        let answer = scope.register(Arc::clone(&other)).await;
        assert!(is_for_all(answer), "{other:?}");
    }
    let known = bench.store.list_workflows(Default::default()).await.expect("reading works");
    assert_eq!(known.workflows.len(), 1);
}
