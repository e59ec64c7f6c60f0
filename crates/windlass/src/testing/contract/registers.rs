//! Definitions: what may be registered again, and what runs are made of.

use super::bench::{Bench, definition, names, seconds};
use crate::store::{NewRun, StoreError};
use windlass_core::Version;

pub(crate) async fn the_same_definition_can_be_registered_again(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    let run = bench.start("w").await;
    bench.register("w", "a b<a").await;
    assert_eq!(bench.states(run).await, "ready pending");
}

pub(crate) async fn other_policies_hold_for_runs_started_from_then_on(bench: &Bench<'_>) {
    bench.register("w", "a*1").await;
    let before = bench.start("w").await;
    bench.register("w", "a*4@slow^7").await;
    let after = bench.start("w").await;
    let worker = bench.worker().await;
    let old = worker.claim(10).await;
    assert_eq!(old.iter().map(|task| task.task.run).collect::<Vec<_>>(), [before]);
    assert_eq!(old[0].spec.retry.max_attempts(), 1);
    let new = worker.claim_from("slow", 10).await;
    assert_eq!(new.iter().map(|task| task.task.run).collect::<Vec<_>>(), [after]);
    assert_eq!(new[0].spec.retry.max_attempts(), 4);
    assert_eq!(new[0].spec.priority.get(), 7);
}

pub(crate) async fn another_length_of_a_sleep_holds_for_runs_started_from_then_on(
    bench: &Bench<'_>,
) {
    bench.register("w", "a nap~1000<a").await;
    let before = bench.start("w").await;
    bench.register("w", "a nap~9000<a").await;
    let after = bench.start("w").await;
    for claimed in bench.worker().await.claim(2).await {
        bench.succeed(&claimed).await;
    }
    let now = bench.now().await;
    for (run, length) in [(before, 1), (after, 9)] {
        let due = bench.task(run, "nap").await.available_at;
        assert_eq!(due, Some(now + seconds(length)));
    }
}

pub(crate) async fn another_shape_of_the_same_version_is_a_conflict(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    for other in ["a", "a c<a", "a b", "a b<a c", "a b<a?finished", "a b~5<a", "b a<b"] {
        let answer = bench.store.register(definition("w", 1, other)).await;
        assert!(matches!(answer, Err(StoreError::Conflict(_))), "{other:?}: {answer:?}");
    }
    let run = bench.start("w").await;
    assert_eq!(bench.states(run).await, "ready pending", "the first shape stays");
}

pub(crate) async fn versions_have_shapes_of_their_own(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    bench.try_register(definition("w", 2, "c")).await.expect("another version");
    let first = bench.start("w").await;
    let version = Version::new(2).expect("two is not zero");
    let second = bench.start_run(NewRun { version, ..bench.new_run("w") }).await;
    assert_eq!(bench.run(second).await.version, version);
    assert_eq!(bench.tasks(first).await.len(), 2);
    assert_eq!(bench.tasks(second).await.len(), 1);
    let claimed = bench.worker().await.claim(10).await;
    assert_eq!(names(&claimed), ["a", "c"]);
    assert_eq!(claimed.iter().map(|c| c.version.get()).collect::<Vec<_>>(), [1, 2]);
}

pub(crate) async fn the_largest_version_is_served_as_any_other(bench: &Bench<'_>) {
    let version = Version::MAX;
    let largest = definition("w", version.get(), "a");
    bench.try_register(largest).await.expect("it is within the limits");
    let run = bench.start_run(NewRun { version, ..bench.new_run("w") }).await;
    assert_eq!(bench.run(run).await.version, version);
    assert_eq!(bench.worker().await.claim_one().await.version, version);
}
