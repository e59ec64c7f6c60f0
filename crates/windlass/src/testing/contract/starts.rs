//! Starting runs: whole or not at all, once per id and key, each for itself.

use std::time::Duration;

use windlass_core::{EventBody, RunEventKind, RunState, Version};

use super::bench::{
    Bench, completion, definition, json, key, payload_of, priority, seconds, success, tenant,
    workflow_name,
};
use crate::store::{Answer, BATCH_MAX, METADATA_PAIRS_MAX, NewRun, RunFilter, Started, StoreError};

fn is_conflict<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Conflict(_)))
}

fn is_not_found<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::NotFound(_)))
}

pub(crate) async fn a_new_run_has_all_its_tasks_and_its_roots_are_ready(bench: &Bench<'_>) {
    bench.register("w", "a b c<a,b nap~1000 d<c,nap !sorry").await;
    let run = bench.start("w").await;
    assert_eq!(bench.states(run).await, "ready ready pending scheduled pending pending");
    let tasks = bench.tasks(run).await;
    let pending: Vec<_> = tasks.iter().map(|task| task.pending_parents).collect();
    assert_eq!(pending, [0, 0, 2, 0, 2, 0]);
    assert!(tasks.iter().all(|task| task.attempt == 0 && task.fence.0 == 0));
    assert!(tasks.iter().all(|task| task.failure.is_none() && task.progress.is_none()));
    assert_eq!(bench.run(run).await.open_tasks, 5, "the on-failure task does not count yet");
    assert_eq!(bench.history(run, "a").await, "queued");
    assert_eq!(bench.history(run, "c").await, "");
    assert_eq!(bench.history(run, "nap").await, "sleeping");
}

pub(crate) async fn a_run_is_recorded_as_it_was_asked_for(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.advance(seconds(5)).await;
    let mut new = NewRun {
        tenant: tenant("acme"),
        input: json(r#"{"order":7}"#),
        key: key("order-7"),
        priority: priority(-3),
        ..bench.new_run("w")
    };
    new.metadata.insert("region".into(), "north".into());
    let run = bench.start_run(new.clone()).await;
    assert_eq!(run, new.id);
    let record = bench.run(run).await;
    assert_eq!(record.id, new.id);
    assert_eq!(record.workflow, new.workflow);
    assert_eq!(record.version, new.version);
    assert_eq!(record.tenant, new.tenant);
    assert_eq!(record.input, Some(new.input));
    assert_eq!(record.key, new.key);
    assert_eq!(record.priority, new.priority);
    assert_eq!(record.metadata, new.metadata);
    assert_eq!(record.state, RunState::Running);
    assert_eq!(record.round, 1);
    assert_eq!(record.created_at, bench.now().await);
    assert_eq!(record.ended_at, None);
    let first = &bench.events(run).await[0];
    assert_eq!(first.at, record.created_at);
    let EventBody::Run(event) = &first.body else { panic!("{first:?} comes first") };
    assert_eq!(event.kind, RunEventKind::Started);
}

pub(crate) async fn an_id_that_is_there_answers_with_its_run(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let new = bench.new_run("w");
    let run = bench.start_run(new.clone()).await;
    let again = bench.try_start(new.clone()).await;
    assert_eq!(again, Ok(Started { run, is_new: false }));
    bench.succeed(&bench.worker().await.claim_one().await).await;
    let events = bench.events(run).await;
    let again = bench.try_start(new).await;
    assert_eq!(again, Ok(Started { run, is_new: false }), "also after it ended");
    assert_eq!(bench.events(run).await, events);
}

pub(crate) async fn an_id_with_another_workflow_tenant_or_input_is_a_conflict(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.register("v", "a").await;
    let new = bench.new_run("w");
    let run = bench.start_run(new.clone()).await;
    let record = bench.run(run).await;
    for other in [
        NewRun { workflow: workflow_name("v"), ..new.clone() },
        NewRun { tenant: tenant("other"), ..new.clone() },
        NewRun { input: json("1"), ..new.clone() },
    ] {
        let answer = bench.try_start(other.clone()).await;
        assert!(is_conflict(&answer), "{other:?}: {answer:?}");
    }
    assert_eq!(bench.run(run).await, record);
}

pub(crate) async fn a_key_that_is_there_answers_with_the_run_it_names(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let first = bench.start_run(NewRun { key: key("k"), ..bench.new_run("w") }).await;
    let second = NewRun { key: key("k"), ..bench.new_run("w") };
    let other_id = second.id;
    assert_eq!(bench.try_start(second).await, Ok(Started { run: first, is_new: false }));
    assert_eq!(bench.store.get_run(other_id).await, Ok(None), "nothing was started");
    assert_eq!(bench.worker().await.claim(10).await.len(), 1);
}

pub(crate) async fn a_key_with_another_input_is_a_conflict(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let first = NewRun { key: key("k"), input: json("1"), ..bench.new_run("w") };
    bench.start_run(first).await;
    let other = NewRun { key: key("k"), input: json("2"), ..bench.new_run("w") };
    let other_id = other.id;
    let answer = bench.try_start(other).await;
    assert!(is_conflict(&answer), "{answer:?}");
    assert_eq!(bench.store.get_run(other_id).await, Ok(None));
}

pub(crate) async fn a_key_belongs_to_one_tenant_and_one_workflow(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.register("v", "a").await;
    bench.start_run(NewRun { key: key("k"), ..bench.new_run("w") }).await;
    let of_tenant = NewRun { key: key("k"), tenant: tenant("other"), ..bench.new_run("w") };
    bench.start_run(of_tenant).await;
    bench.start_run(NewRun { key: key("k"), ..bench.new_run("v") }).await;
}

pub(crate) async fn one_key_twice_in_a_batch_is_one_run(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let keyed = || NewRun { key: key("k"), ..bench.new_run("w") };
    let other = NewRun { input: json("2"), ..keyed() };
    let answers = bench.start_all(vec![keyed(), keyed(), other]).await;
    let first = answers[0].clone().expect("the first start makes the run");
    assert!(first.is_new);
    assert_eq!(answers[1], Ok(Started { run: first.run, is_new: false }));
    assert!(is_conflict(&answers[2]), "{answers:?}");
}

pub(crate) async fn one_id_twice_in_a_batch_is_one_run(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let new = bench.new_run("w");
    let run = new.id;
    let answers = bench.start_all(vec![new.clone(), new]).await;
    assert_eq!(answers[0], Ok(Started { run, is_new: true }));
    assert_eq!(answers[1], Ok(Started { run, is_new: false }));
    assert_eq!(bench.worker().await.claim(10).await.len(), 1);
}

pub(crate) async fn an_id_is_free_for_the_next_of_a_batch_if_a_key_answered_for_the_first(
    bench: &Bench<'_>,
) {
    bench.register("w", "a").await;
    let keyed = |text: &str| NewRun { key: key(text), ..bench.new_run("w") };
    let taken = bench.start_run(keyed("taken")).await;
    let named = keyed("taken");
    let id = named.id;
    // Of the two with the key `k`, the one that comes first has it.
    let free = NewRun { key: key("k"), ..named.clone() };
    let late = keyed("k");
    let again = NewRun { key: key("other"), ..named.clone() };
    let answers = bench.start_all(vec![named, free, late, again]).await;
    assert_eq!(answers[0], Ok(Started { run: taken, is_new: false }));
    assert_eq!(answers[1], Ok(Started { run: id, is_new: true }));
    assert_eq!(answers[2], Ok(Started { run: id, is_new: false }));
    assert!(is_conflict(&answers[3]), "{answers:?}");
    assert_eq!(bench.run(id).await.key, key("k"));
    assert_eq!(bench.worker().await.claim(10).await.len(), 2);
}

pub(crate) async fn a_start_that_is_not_found_leaves_its_id_and_key_to_the_next_of_a_batch(
    bench: &Bench<'_>,
) {
    bench.register("w", "a").await;
    let known = NewRun { key: key("k"), ..bench.new_run("w") };
    let id = known.id;
    let version = Version::new(2).expect("two is not zero");
    let unknown = NewRun { version, ..known.clone() };
    let answers = bench.start_all(vec![unknown.clone(), known, unknown]).await;
    assert!(is_not_found(&answers[0]), "{answers:?}");
    assert_eq!(answers[1], Ok(Started { run: id, is_new: true }));
    assert_eq!(answers[2], Ok(Started { run: id, is_new: false }), "its run is there now");
}

pub(crate) async fn starts_that_race_for_a_key_make_one_run(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let start = || bench.try_start(NewRun { key: key("k"), ..bench.new_run("w") });
    let (a, b, c) = tokio::join!(start(), start(), start());
    let answers = [a, b, c].map(|answer| answer.expect("each start is answered"));
    assert_eq!(answers.iter().filter(|answer| answer.is_new).count(), 1, "{answers:?}");
    assert!(answers.iter().all(|answer| answer.run == answers[0].run), "{answers:?}");
}

pub(crate) async fn an_unknown_workflow_or_version_is_not_found(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let unknown = bench.new_run("nobody");
    let id = unknown.id;
    let answer = bench.try_start(unknown).await;
    assert!(is_not_found(&answer), "{answer:?}");
    assert_eq!(bench.store.get_run(id).await, Ok(None));
    let version = Version::new(2).expect("two is not zero");
    let answer = bench.try_start(NewRun { version, ..bench.new_run("w") }).await;
    assert!(is_not_found(&answer), "{answer:?}");
}

pub(crate) async fn a_bad_start_does_not_spoil_its_batch(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let taken = bench.new_run("w");
    bench.start_run(taken.clone()).await;
    let (first, last) = (bench.new_run("w"), bench.new_run("w"));
    let ids = [first.id, last.id];
    let conflict = NewRun { input: json("3"), ..taken };
    let answers = bench.start_all(vec![first, bench.new_run("nobody"), conflict, last]).await;
    assert_eq!(answers[0], Ok(Started { run: ids[0], is_new: true }));
    assert!(is_not_found(&answers[1]), "{answers:?}");
    assert!(is_conflict(&answers[2]), "{answers:?}");
    assert_eq!(answers[3], Ok(Started { run: ids[1], is_new: true }));
    assert_eq!(bench.worker().await.claim(10).await.len(), 3);
}

pub(crate) async fn a_delayed_run_waits_with_its_roots_only(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    let run = bench.start_run(NewRun { delay: seconds(60), ..bench.new_run("w") }).await;
    assert_eq!(bench.states(run).await, "scheduled pending");
    assert_eq!(bench.run(run).await.open_tasks, 2);
    let due = bench.now().await + seconds(60);
    assert_eq!(bench.task(run, "a").await.available_at, Some(due));
    let worker = bench.worker_with_lease(seconds(600)).await;
    assert!(worker.claim(10).await.is_empty());
    bench.advance(seconds(60)).await;
    assert_eq!(bench.promote().await, 1);
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.states(run).await, "succeeded ready", "a child is not delayed");
    assert_eq!(bench.history(run, "a").await, "delayed queued started succeeded");
}

pub(crate) async fn a_repeated_delayed_start_keeps_the_first_time(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let new = NewRun { delay: seconds(60), ..bench.new_run("w") };
    let run = bench.start_run(new.clone()).await;
    let due = bench.task(run, "a").await.available_at;
    bench.advance(seconds(10)).await;
    assert_eq!(bench.try_start(new).await, Ok(Started { run, is_new: false }));
    assert_eq!(bench.task(run, "a").await.available_at, due);
}

pub(crate) async fn metadata_has_a_limit(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let pairs = |count: usize| (0..count).map(|i| (format!("k{i}"), "v".to_owned())).collect();
    let fits = NewRun { metadata: pairs(METADATA_PAIRS_MAX), ..bench.new_run("w") };
    let over = NewRun { metadata: pairs(METADATA_PAIRS_MAX + 1), ..bench.new_run("w") };
    let over_id = over.id;
    let answers = bench.start_all(vec![over, fits]).await;
    assert!(is_conflict(&answers[0]), "{answers:?}");
    assert!(answers[1].is_ok(), "{answers:?}");
    assert_eq!(bench.store.get_run(over_id).await, Ok(None));
}

pub(crate) async fn metadata_may_have_every_character_but_nul(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    for odd in
        ["\u{1}", "a\tb\r\n", "\u{7f}\u{85}\u{9f}", "\u{2028}\u{feff}", "\u{10ffff}", "\"\\u0000"]
    {
        let pair = pair(odd, odd);
        let new = NewRun { metadata: [pair.clone()].into(), ..bench.new_run("w") };
        let run = bench.start_run(new).await;
        assert_eq!(bench.run(run).await.metadata, [pair.clone()].into());
        let filter = RunFilter { metadata: Some(pair), ..RunFilter::default() };
        let found = bench.store.list_runs(filter).await.expect("the store is there").runs;
        assert_eq!(found.iter().map(|run| run.id).collect::<Vec<_>>(), [run], "{odd:?}");
    }
    for (pair, at) in [(pair("a\0", "b"), 1), (pair("a", "b\u{1}\0"), 2)] {
        let new = NewRun { metadata: [pair.clone()].into(), ..bench.new_run("w") };
        let text = format!("metadata {:?} has a NUL at byte {at}", pair.0);
        assert_eq!(bench.try_start(new).await, Err(StoreError::Conflict(text)));
        let filter = RunFilter { metadata: Some(pair), ..RunFilter::default() };
        let found = bench.store.list_runs(filter).await.expect("to look for it is no error");
        assert!(found.runs.is_empty(), "{found:?}");
    }
}

pub(crate) async fn an_input_has_a_limit(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let limit = bench.store.payload_limit().get();
    let fits = NewRun { input: payload_of(limit), ..bench.new_run("w") };
    let over = NewRun { input: payload_of(limit + 1), ..bench.new_run("w") };
    let ids = [fits.id, over.id];
    let answers = bench.start_all(vec![over, fits]).await;
    let text =
        format!("input of run {} has {} bytes, the payload_limit is {limit}", ids[1], limit + 1);
    assert_eq!(answers[0], Err(StoreError::Conflict(text)));
    assert_eq!(answers[1], Ok(Started { run: ids[0], is_new: true }));
    assert_eq!(bench.store.get_run(ids[1]).await, Ok(None));
}

pub(crate) async fn a_batch_of_starts_has_a_limit(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let runs: Vec<_> = (0..=BATCH_MAX).map(|_| bench.new_run("w")).collect();
    let first = runs[0].id;
    let answer = bench.store.start_runs(runs.clone()).await;
    assert!(is_conflict(&answer), "one over the limit");
    assert_eq!(bench.store.get_run(first).await, Ok(None), "nothing was started");
    let answer = bench.store.start_runs(runs[..BATCH_MAX].to_vec()).await;
    assert!(answer.is_ok_and(|started| started.len() == BATCH_MAX && started[0].is_ok()));
}

pub(crate) async fn an_empty_batch_has_an_empty_answer(bench: &Bench<'_>) {
    assert_eq!(bench.store.start_runs(Vec::new()).await, Ok(Vec::new()));
    assert_eq!(bench.store.finish(Vec::new()).await, Ok(Vec::new()));
    assert_eq!(bench.store.release(Vec::new()).await, Ok(Vec::new()));
}

pub(crate) async fn a_run_of_a_large_workflow_starts_whole(bench: &Bench<'_>) {
    let tasks: Vec<String> = (0..1_000).map(|i| format!("t{i}")).collect();
    bench.try_register(definition("wide", 1, &tasks.join(" "))).await.expect("it is valid");
    let run = bench.start("wide").await;
    assert_eq!(bench.run(run).await.open_tasks, 1_000);
    let worker = bench.worker().await;
    loop {
        let claimed = worker.claim(100).await;
        if claimed.is_empty() {
            break;
        }
        let batch: Vec<_> = claimed.iter().map(|task| completion(task, success())).collect();
        let answers = bench.store.finish(batch).await.expect("finishing works");
        assert_eq!(answers, vec![Answer::Accepted; claimed.len()]);
    }
    let record = bench.run(run).await;
    assert_eq!(record.state, RunState::Succeeded);
    assert_eq!(record.ended_at.map(|at| at.since(record.created_at)), Some(Duration::ZERO));
}
