//! What follows from an end, in the same operation, on every path.

use windlass_core::{Decision, RunState};

use super::bench::{Bench, LEASE, definition, failure, names, seconds, success};
use crate::store::Answer;

/// Decides by the first letter of a task's name: `f` fails, `k` skips itself.
fn by_name(name: &str) -> Decision {
    match name.chars().next() {
        Some('f') => Decision::Fail(failure()),
        Some('k') => Decision::Skip,
        _ => success(),
    }
}

pub(crate) async fn each_trigger_judges_its_parents_as_it_says(bench: &Bench<'_>) {
    // Parents: s succeeds, f fails, k skips itself.
    let table = [
        ("succeeded", [("s,s2", true), ("s,f", false), ("s,k", false), ("f,k", false)]),
        ("finished", [("s,s2", true), ("s,f", true), ("s,k", true), ("f,k", true)]),
        ("failed", [("s,s2", false), ("s,f", true), ("s,k", false), ("f,k", true)]),
        ("unfailed", [("s,s2", true), ("s,f", false), ("s,k", true), ("f,k", false)]),
    ];
    let worker = bench.worker().await;
    for (trigger, cases) in table {
        for (parents, runs) in cases {
            let workflow = format!("{trigger} {parents}");
            let tasks = format!("s s2 f k child<{parents}?{trigger}");
            bench.register(&workflow, &tasks).await;
            let run = bench.start(&workflow).await;
            bench.work(&worker, by_name).await;
            let expected = if runs { "succeeded" } else { "skipped" };
            let state = bench.task(run, "child").await.state;
            assert_eq!(state.word(), expected, "{trigger} of {parents}");
            assert_eq!(bench.run_state(run).await, RunState::Failed, "f fails in each");
        }
    }
}

pub(crate) async fn a_child_waits_for_its_last_parent_even_if_one_failed(bench: &Bench<'_>) {
    bench.register("w", "f a child<f,a any<f,a?failed").await;
    let run = bench.start("w").await;
    let claimed = bench.worker().await.claim(2).await;
    assert_eq!(names(&claimed), ["f", "a"]);
    bench.fail(&claimed[0]).await;
    assert_eq!(bench.states(run).await, "failed running pending pending");
    assert_eq!(bench.run_state(run).await, RunState::Running);
    bench.succeed(&claimed[1]).await;
    assert_eq!(bench.states(run).await, "failed succeeded skipped ready");
}

pub(crate) async fn a_failure_skips_a_long_chain_at_once(bench: &Bench<'_>) {
    let mut tasks = "f".to_owned();
    for i in 0..500 {
        let parent = if i == 0 { "f".to_owned() } else { format!("t{}", i - 1) };
        tasks.push_str(&format!(" t{i}<{parent}"));
    }
    bench.try_register(definition("w", 1, &tasks)).await.expect("it is valid");
    let run = bench.start("w").await;
    bench.fail(&bench.worker().await.claim_one().await).await;
    assert_eq!(bench.run_state(run).await, RunState::Failed);
    assert_eq!(bench.states(run).await, format!("failed{}", " skipped".repeat(500)));
}

pub(crate) async fn a_diamond_with_one_failed_side_ends(bench: &Bench<'_>) {
    bench.register("w", "a f<a b<a join<f,b after<join").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.work(&worker, by_name).await;
    assert_eq!(bench.states(run).await, "succeeded failed succeeded skipped skipped");
    assert_eq!(bench.run_state(run).await, RunState::Failed);
}

pub(crate) async fn a_skipped_sleep_never_wakes(bench: &Bench<'_>) {
    bench.register("w", "f nap~1000<f other").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.work(&worker, by_name).await;
    bench.advance(seconds(10)).await;
    assert_eq!(bench.promote().await, 0);
    assert_eq!(bench.states(run).await, "failed skipped succeeded");
}

pub(crate) async fn a_sleep_can_be_a_consequence_of_a_failure(bench: &Bench<'_>) {
    bench.register("w", "f nap~1000<f?failed mend<nap").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.work(&worker, by_name).await;
    assert_eq!(bench.states(run).await, "failed scheduled pending");
    bench.advance(seconds(1)).await;
    assert_eq!(bench.promote().await, 1);
    bench.work(&worker, by_name).await;
    assert_eq!(bench.states(run).await, "failed succeeded succeeded");
    assert_eq!(bench.run_state(run).await, RunState::Failed, "mending does not undo it");
}

pub(crate) async fn an_on_failure_task_is_skipped_when_nothing_failed(bench: &Bench<'_>) {
    bench.register("w", "!sorry a k b<k").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.work(&worker, by_name).await;
    assert_eq!(bench.states(run).await, "skipped succeeded skipped skipped");
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
    assert_eq!(bench.history(run, "sorry").await, "skipped");
}

pub(crate) async fn an_on_failure_task_runs_after_everything_else_ended(bench: &Bench<'_>) {
    bench.register("w", "!sorry f a b<a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim(10).await;
    assert_eq!(names(&claimed), ["f", "a"]);
    bench.fail(&claimed[0]).await;
    assert_eq!(bench.task(run, "sorry").await.state.word(), "pending");
    assert_eq!(bench.run(run).await.open_tasks, 2);
    bench.succeed(&claimed[1]).await;
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.states(run).await, "ready failed succeeded succeeded");
    assert_eq!(bench.run(run).await.open_tasks, 1);
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.run_state(run).await, RunState::Failed);
}

pub(crate) async fn an_on_failure_task_that_fails_leaves_the_run_failed(bench: &Bench<'_>) {
    bench.register("w", "f !final").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.work(&worker, by_name).await;
    assert_eq!(bench.states(run).await, "failed failed");
    assert_eq!(bench.run_state(run).await, RunState::Failed);
}

pub(crate) async fn an_on_failure_task_runs_when_the_last_worker_was_lost(bench: &Bench<'_>) {
    bench.register("w", "a*1 b<a !sorry").await;
    let run = bench.start("w").await;
    bench.worker().await.claim_one().await;
    bench.advance(LEASE).await;
    assert_eq!(bench.reap().await, 1);
    assert_eq!(bench.states(run).await, "failed skipped ready");
    let sorry = bench.worker().await.claim_one().await;
    assert_eq!(sorry.failures.len(), 1);
    bench.succeed(&sorry).await;
    assert_eq!(bench.run_state(run).await, RunState::Failed);
}

pub(crate) async fn a_run_in_which_all_is_skipped_has_succeeded(bench: &Bench<'_>) {
    bench.register("w", "k a<k b<a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.work(&worker, by_name).await;
    assert_eq!(bench.states(run).await, "skipped skipped skipped");
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
}

pub(crate) async fn a_parent_and_its_sibling_in_one_batch_unblock_a_join_once(bench: &Bench<'_>) {
    bench.register("w", "a f join<a,f?finished").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim(2).await;
    let batch = claimed
        .iter()
        .map(|task| super::bench::completion(task, by_name(task.spec.name.as_str())))
        .collect();
    assert_eq!(bench.store.finish(batch).await, Ok(vec![Answer::Accepted; 2]));
    assert_eq!(names(&worker.claim(10).await), ["join"]);
    assert_eq!(bench.history(run, "join").await, "queued started");
}
