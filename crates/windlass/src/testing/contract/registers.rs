//! Definitions: what may be registered again, and what runs are made of.

use super::bench::{Bench, definition, names, seconds, workflow_name};
use crate::store::{
    NewRun, StoreError, WORKFLOWS_PAGE_MAX, WorkflowFilter, WorkflowPage, WorkflowRecord,
};
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

async fn list(bench: &Bench<'_>, filter: WorkflowFilter) -> WorkflowPage {
    bench.store.list_workflows(filter).await.expect("reading works")
}

fn written(workflows: &[WorkflowRecord]) -> Vec<String> {
    let one = |it: &WorkflowRecord| format!("{} {}", it.definition.name(), it.definition.version());
    workflows.iter().map(one).collect()
}

pub(crate) async fn workflows_are_listed_by_name_and_newest_version_first(bench: &Bench<'_>) {
    let empty = list(bench, WorkflowFilter::default()).await;
    assert_eq!(empty, WorkflowPage { workflows: Vec::new(), next: None });
    for (name, version) in [("b", 1), ("a", 2), ("a", 10), ("B", 1), ("a-b", 1), ("a", 1)] {
        bench.try_register(definition(name, version, "t")).await.expect("it is new");
    }
    let sorted = ["B 1", "a 10", "a 2", "a 1", "a-b 1", "b 1"];
    let all = list(bench, WorkflowFilter::default()).await;
    assert_eq!((written(&all.workflows), all.next), (sorted.map(str::to_owned).into(), None));
    let name = Some(workflow_name("a"));
    let named = list(bench, WorkflowFilter { name: name.clone(), ..Default::default() }).await;
    assert_eq!(written(&named.workflows), sorted[1..4]);
    let newest = list(bench, WorkflowFilter { name, limit: 1, ..Default::default() }).await;
    assert_eq!(written(&newest.workflows), ["a 10"]);
    let name = Some(workflow_name("unknown"));
    let none = list(bench, WorkflowFilter { name, ..Default::default() }).await;
    assert_eq!(none, empty);
    for limit in 1..=7 {
        let mut filter = WorkflowFilter { limit, ..Default::default() };
        let mut paged = Vec::new();
        loop {
            let page = list(bench, filter.clone()).await;
            assert!(page.workflows.len() <= limit);
            paged.extend(written(&page.workflows));
            match page.next {
                Some(next) => filter.after = Some(next),
                None => break,
            }
        }
        assert_eq!(paged, sorted, "in pages of {limit}");
    }
    for number in 0..WORKFLOWS_PAGE_MAX {
        bench.register(&format!("c{number}"), "t").await;
    }
    let most = WorkflowFilter { limit: WORKFLOWS_PAGE_MAX + 1, ..Default::default() };
    assert_eq!(list(bench, most).await.workflows.len(), WORKFLOWS_PAGE_MAX);
}

pub(crate) async fn a_workflow_is_listed_as_it_holds_for_new_runs(bench: &Bench<'_>) {
    let first = bench.now().await;
    let one = |tasks, registered_at| {
        let workflow = WorkflowRecord { definition: definition("w", 1, tasks), registered_at };
        WorkflowPage { workflows: vec![workflow], next: None }
    };
    bench.register("w", "a b<a").await;
    assert_eq!(list(bench, WorkflowFilter::default()).await, one("a b<a", first));
    bench.advance(seconds(1)).await;
    bench.register("w", "a b<a").await;
    assert_eq!(list(bench, WorkflowFilter::default()).await, one("a b<a", first));
    bench.register("w", "a*4 b<a").await;
    let second = first + seconds(1);
    assert_eq!(list(bench, WorkflowFilter::default()).await, one("a*4 b<a", second));
}
