//! Pairs of verbs that meet in a lane.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use windlass::store::{Claimed, NewRun, Store, WorkerLink};
use windlass_core::definition::TaskDraft;
use windlass_core::{
    Definition, DefinitionDraft, Limit, Payload, RunId, TaskKind, Trigger, WhenFull,
};

use super::super::driver::{Worker, new_run, success};
use super::pairs::{pair, said};
use super::{Case, Explorer};

/// A workflow of one task, of which so many are under way at once for each key.
fn limited(slots: u32) -> Arc<Definition> {
    let mut task = TaskDraft::new("a", TaskKind::Handler);
    task.limits = vec![Limit::per("key", slots)];
    let draft = DefinitionDraft::new(format!("limited-{slots}")).task(task);
    Arc::new(draft.build().expect("the workflow is right"))
}

/// A key that no other order of the pair has.
pub(super) fn fresh_key() -> Payload {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Payload::from_json(format!("{{\"key\":{number}}}")).expect("it is JSON")
}

/// Runs in one lane, the first of which are claimed.
async fn in_a_lane(
    explorer: &Explorer,
    definition: &Arc<Definition>,
    count: usize,
) -> (Payload, Vec<RunId>, Vec<Claimed>) {
    let (store, key) = (&*explorer.plain, fresh_key());
    store.register(Arc::clone(definition)).await.expect("it can be registered");
    let mut runs = Vec::new();
    for _ in 0..count {
        let run = NewRun { input: key.clone(), ..new_run(definition) };
        runs.push(run.id);
        let started = store.start_runs(vec![run]).await.expect("the store is there");
        assert!(started.iter().all(Result::is_ok), "{started:?}");
    }
    let worker = Worker::join(store, definition).await;
    let tasks = worker.claim(store, 100).await;
    (key, runs, tasks)
}

/// The states of the tasks of runs.
pub(super) async fn states(store: Arc<dyn Store>, runs: Vec<RunId>) -> String {
    let mut words = Vec::new();
    for run in runs {
        let tasks = store.list_tasks(run, None, 1).await.expect("reading works");
        words.push(tasks.first().map_or("none", |task| task.state.word()));
    }
    words.join(" ")
}

pair! {
    /// Two slots are free at once: each goes to another of those who wait.
    finish_and_finish_in_a_lane,
    |explorer| {
        let two = limited(2);
        let (_, runs, tasks) = in_a_lane(&explorer, &two, 4).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let [a, b] = [success(&tasks[0]), success(&tasks[1])];
        let after = states(explorer.plain.clone(), runs.clone());
        let case = Case::new(
            runs[0],
            &two,
            async move { said(left.finish(vec![a]).await) },
            async move { said(right.finish(vec![b]).await) },
        );
        Case { runs, ..case }.with_aftermath(after)
    },
    ["[Accepted] | [Accepted], then succeeded succeeded ready ready"]
}

pair! {
    /// A slot becomes free while someone comes: that one has it, or comes too early and is let in.
    finish_and_start_in_a_lane,
    |explorer| {
        let one = limited(1);
        let (key, mut runs, tasks) = in_a_lane(&explorer, &one, 1).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let a = success(&tasks[0]);
        let new = NewRun { input: key, ..new_run(&one) };
        runs.push(new.id);
        let after = states(explorer.plain.clone(), runs.clone());
        let case = Case::new(
            runs[0],
            &one,
            async move { said(left.finish(vec![a]).await) },
            async move { said(right.start_runs(vec![new]).await.map(|all| all.len())) },
        );
        Case { runs, ..case }.with_aftermath(after)
    },
    ["[Accepted] | 1, then succeeded ready"]
}

pair! {
    /// Two come to a lane with one slot: one has it.
    start_and_start_in_a_lane,
    |explorer| {
        let one = limited(1);
        let (key, _, _) = in_a_lane(&explorer, &one, 0).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let [a, b] = [(); 2].map(|()| NewRun { input: key.clone(), ..new_run(&one) });
        let runs = vec![a.id, b.id];
        let after_both = states(explorer.plain.clone(), runs.clone());
        let after = async move {
            let states = after_both.await;
            let mut words: Vec<&str> = states.split(' ').collect();
            words.sort_unstable();
            words.join(" ")
        };
        let case = Case::new(
            runs[0],
            &one,
            async move { said(left.start_runs(vec![a]).await.map(|all| all.len())) },
            async move { said(right.start_runs(vec![b]).await.map(|all| all.len())) },
        );
        Case { runs, ..case }.with_aftermath(after)
    },
    ["1 | 1, then ready waiting"]
}

pair! {
    /// Who waits is cancelled while a slot becomes free: the next one has it.
    finish_and_cancel_of_who_waits,
    |explorer| {
        let one = limited(1);
        let (_, runs, tasks) = in_a_lane(&explorer, &one, 3).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let (a, second) = (success(&tasks[0]), runs[1]);
        let after = states(explorer.plain.clone(), runs.clone());
        let case = Case::new(
            runs[0],
            &one,
            async move { said(left.finish(vec![a]).await) },
            async move { said(right.cancel_run(second, None).await) },
        );
        Case { runs, ..case }.with_aftermath(after)
    },
    ["[Accepted] | (), then succeeded cancelled ready"]
}

pair! {
    /// Two who have slots are cancelled and end at once: each slot is given once.
    cancel_and_cancel_in_a_lane,
    |explorer| {
        let two = limited(2);
        let (_, runs, _) = in_a_lane(&explorer, &two, 4).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let (first, second) = (runs[0], runs[1]);
        let after = states(explorer.plain.clone(), runs.clone());
        let case = Case::new(
            runs[0],
            &two,
            async move { said(left.cancel_run(first, None).await) },
            async move { said(right.cancel_run(second, None).await) },
        );
        Case { runs, ..case }.with_aftermath(after)
    },
    ["() | (), then cancelled cancelled ready ready"]
}

/// A workflow whose first task is skipped if there is no slot in one lane, and whose second then
/// wants one in the other.
fn skipping(name: &str, first: &str, then: &str) -> Arc<Definition> {
    let mut skipped = TaskDraft::new("a", TaskKind::Handler);
    let limit = Limit::per("key", 1).named(first);
    skipped.limits = vec![limit.when_full(WhenFull::Skip)];
    let mut child = TaskDraft::new("b", TaskKind::Handler).after("a");
    child.trigger = Trigger::AllFinished;
    child.limits = vec![Limit::per("key", 1).named(then)];
    let draft = DefinitionDraft::new(name).task(skipped).task(child);
    Arc::new(draft.build().expect("the workflow is right"))
}

pair! {
    /// Two tasks are skipped at once, and each lets a child ask for a slot in the lane of the other:
    /// neither waits for the other.
    start_and_start_of_what_is_skipped_in_each_others_lanes,
    |explorer| {
        let (one, other) = (skipping("one", "x", "y"), skipping("other", "y", "x"));
        let (key, runs, _) = in_a_lane(&explorer, &one, 1).await;
        let store = &*explorer.plain;
        store.register(Arc::clone(&other)).await.expect("it can be registered");
        let [first, a, b] = [&other, &one, &other]
            .map(|definition| NewRun { input: key.clone(), ..new_run(definition) });
        let before = vec![runs[0], first.id];
        store.start_runs(vec![first]).await.expect("the store is there");
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let runs = vec![a.id, b.id];
        let plain = explorer.plain.clone();
        let after = {
            let states = states(explorer.plain.clone(), runs.clone());
            async move {
                let states = states.await;
                for run in before {
                    plain.cancel_run(run, None).await.expect("it is under way");
                }
                states
            }
        };
        let case = Case::new(
            runs[0],
            &one,
            async move { said(left.start_runs(vec![a]).await.map(|all| all.len())) },
            async move { said(right.start_runs(vec![b]).await.map(|all| all.len())) },
        );
        // The run of the other workflow is held to the promises by the audit.
        Case { runs: vec![runs[0]], ..case }.with_aftermath(after)
    },
    ["1 | 1, then skipped skipped"]
}
