//! Pairs of verbs that meet in the lane of a limit in a time.

use std::sync::Arc;
use std::time::Duration;

use windlass::store::{Claimed, Completion, NewRun, Store, WorkerLink};
use windlass_core::definition::TaskDraft;
use windlass_core::{
    Decision, Definition, DefinitionDraft, Failure, FailureCode, Limit, RunId, TaskKind, WhenFull,
};

use super::super::driver::{LEASE, Worker, new_run, success};
use super::lanes::{fresh_key, states};
use super::pairs::{pair, said};
use super::{Case, Explorer};

const SECOND: Duration = Duration::from_secs(1);

/// A workflow of one task with this limit, by key.
fn limited(name: &str, limit: Limit) -> Arc<Definition> {
    let mut task = TaskDraft::new("a", TaskKind::Handler);
    task.limits = vec![limit.by("key")];
    let draft = DefinitionDraft::new(name).task(task);
    Arc::new(draft.build().expect("the workflow is right"))
}

/// So many runs to start that share a lane which no other order has.
async fn in_a_lane(explorer: &Explorer, definition: &Arc<Definition>, count: usize) -> Vec<NewRun> {
    let register = explorer.plain.register(Arc::clone(definition)).await;
    register.expect("it can be registered");
    let key = fresh_key();
    (0..count).map(|_| NewRun { input: key.clone(), ..new_run(definition) }).collect()
}

async fn start(store: Arc<impl Store + 'static>, run: NewRun) -> String {
    said(store.start_runs(vec![run]).await.map(|all| all.len()))
}

/// Starts a run before the pair begins.
async fn started(explorer: &Explorer, run: &NewRun) -> RunId {
    start(explorer.plain.clone(), run.clone()).await;
    run.id
}

async fn claimed(explorer: &Explorer, definition: &Arc<Definition>) -> Vec<Claimed> {
    let worker = Worker::join(&*explorer.plain, definition).await;
    worker.claim(&*explorer.plain, 100).await
}

fn failed(claimed: &Claimed) -> Completion {
    let decision = Decision::Fail(Failure::new(FailureCode::Error, "it does not work"));
    Completion { decision, ..success(claimed) }
}

/// The states of the tasks of runs, whichever came first.
async fn sorted_states(store: Arc<dyn Store>, runs: Vec<RunId>) -> String {
    let states = states(store, runs).await;
    let mut words: Vec<&str> = states.split(' ').collect();
    words.sort_unstable();
    words.join(" ")
}

pair! {
    /// Two come for the last token: one has it.
    start_and_start_for_the_last_token,
    |explorer| {
        let rate = limited("rate", Limit::rate(1, LEASE));
        let new = in_a_lane(&explorer, &rate, 2).await;
        let runs: Vec<RunId> = new.iter().map(|run| run.id).collect();
        let [a, b] = new.try_into().expect("two were made");
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let after = sorted_states(explorer.plain.clone(), runs.clone());
        let case = Case::new(
            runs[0],
            &rate,
            async move { start(left, a).await },
            async move { start(right, b).await },
        );
        Case { runs, ..case }.with_aftermath(after)
    },
    ["1 | 1, then ready waiting"]
}

pair! {
    /// A token has come for who waits while another comes: it goes to who was first, and only one
    /// has it.
    promote_and_start_for_the_next_token,
    |explorer| {
        let rate = limited("rate", Limit::rate(1, LEASE));
        let new = in_a_lane(&explorer, &rate, 3).await;
        let runs: Vec<RunId> = new.iter().map(|run| run.id).collect();
        started(&explorer, &new[0]).await;
        started(&explorer, &new[1]).await;
        explorer.clock.advance(LEASE);
        let third = new[2].clone();
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let after = states(explorer.plain.clone(), runs.clone());
        let case = Case::new(
            runs[0],
            &rate,
            async move { said(left.promote_due(100).await.map(|_| ())) },
            async move { start(right, third).await },
        );
        Case { runs, ..case }.with_aftermath(after)
    },
    ["() | 1, then ready ready waiting"]
}

pair! {
    /// The same with a sweep that waits for limit keys, since it passed over them for long: it has
    /// locked a timer that the other wants.
    impatient_promote_and_start_for_the_next_token,
    |explorer| {
        let rate = limited("rate", Limit::rate(1, LEASE));
        let new = in_a_lane(&explorer, &rate, 3).await;
        let runs: Vec<RunId> = new.iter().map(|run| run.id).collect();
        started(&explorer, &new[0]).await;
        started(&explorer, &new[1]).await;
        explorer.clock.advance(LEASE);
        let third = new[2].clone();
        explorer.left.lose_patience();
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let after = states(explorer.plain.clone(), runs.clone());
        let case = Case::new(
            runs[0],
            &rate,
            async move { said(left.promote_due(100).await.map(|_| ())) },
            async move { start(right, third).await },
        );
        Case { runs, ..case }.with_aftermath(after)
    },
    [
        "() | 1, after a deadlock, then ready ready waiting",
        "() | 1, then ready ready waiting",
    ]
}

pair! {
    /// Another comes while the quiet for the one before is over: that one goes on and the other
    /// waits, or the other has its place.
    promote_and_start_in_a_debounce,
    |explorer| {
        let quiet = limited("quiet", Limit::debounce(SECOND));
        let new = in_a_lane(&explorer, &quiet, 2).await;
        let runs: Vec<RunId> = new.iter().map(|run| run.id).collect();
        started(&explorer, &new[0]).await;
        explorer.clock.advance(SECOND);
        let second = new[1].clone();
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let after = states(explorer.plain.clone(), runs.clone());
        let case = Case::new(
            runs[0],
            &quiet,
            async move { said(left.promote_due(100).await.map(|_| ())) },
            async move { start(right, second).await },
        );
        Case { runs, ..case }.with_aftermath(after)
    },
    ["() | 1, then ready waiting"]
}

/// A breaker that is open, whose pause is over, and with one that tries.
async fn probing(explorer: &Explorer, breaker: &Arc<Definition>) -> (Vec<NewRun>, Claimed) {
    let new = in_a_lane(explorer, breaker, 3).await;
    started(explorer, &new[0]).await;
    let first = claimed(explorer, breaker).await;
    explorer.plain.finish(vec![failed(&first[0])]).await.expect("finishing works");
    explorer.clock.advance(SECOND);
    started(explorer, &new[1]).await;
    let probe = claimed(explorer, breaker).await.swap_remove(0);
    assert_eq!(probe.task.run, new[1].id);
    (new, probe)
}

fn breaker() -> Arc<Definition> {
    let breaker = Limit::breaker(50).calls(1).pause(SECOND).window(LEASE * 100);
    limited("breaker", breaker)
}

pair! {
    /// The one that tries succeeds while another comes: that one goes on, at once or with the end
    /// of the other.
    finish_of_a_probe_and_start,
    |explorer| {
        let breaker = breaker();
        let (new, probe) = probing(&explorer, &breaker).await;
        let runs: Vec<RunId> = new.iter().map(|run| run.id).collect();
        let third = new[2].clone();
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let after = states(explorer.plain.clone(), runs.clone());
        let done = success(&probe);
        let case = Case::new(
            runs[1],
            &breaker,
            async move { said(left.finish(vec![done]).await) },
            async move { start(right, third).await },
        );
        Case { runs: runs[1..].to_vec(), ..case }.with_aftermath(after)
    },
    ["[Accepted] | 1, then failed succeeded ready"]
}

pair! {
    /// The one that tries fails while another comes: that one waits for the next pause.
    failure_of_a_probe_and_start,
    |explorer| {
        let breaker = breaker();
        let (new, probe) = probing(&explorer, &breaker).await;
        let runs: Vec<RunId> = new.iter().map(|run| run.id).collect();
        let third = new[2].clone();
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let after = states(explorer.plain.clone(), runs.clone());
        let done = failed(&probe);
        let case = Case::new(
            runs[1],
            &breaker,
            async move { said(left.finish(vec![done]).await) },
            async move { start(right, third).await },
        );
        Case { runs: runs[1..].to_vec(), ..case }.with_aftermath(after)
    },
    ["[Accepted] | 1, then failed failed waiting"]
}

pair! {
    /// A newer run comes while the one before it is claimed: whichever is first, the newer one has
    /// the place once the other is cancelled.
    claim_and_start_of_a_newer_run,
    |explorer| {
        let limit = Limit::of(1).when_full(WhenFull::CancelOldest);
        let newest = limited("newest", limit);
        let new = in_a_lane(&explorer, &newest, 2).await;
        let runs: Vec<RunId> = new.iter().map(|run| run.id).collect();
        started(&explorer, &new[0]).await;
        let second = new[1].clone();
        let worker = Worker::join(&*explorer.plain, &newest).await;
        let request = worker.request(1);
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let (plain, later) = (explorer.plain.clone(), runs.clone());
        let after = async move {
            plain.promote_due(100).await.expect("promoting works");
            let states = states(plain.clone(), later).await;
            plain.leave(worker.id).await.expect("leaving works");
            states
        };
        let case = Case::new(
            runs[0],
            &newest,
            async move { said(left.claim(request).await.map(|tasks| tasks.len())) },
            async move { start(right, second).await },
        );
        Case { runs, ..case }.with_claims().with_aftermath(after)
    },
    ["1 | 1, then cancelled ready"]
}
