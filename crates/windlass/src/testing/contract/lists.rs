//! Reading: filters, pages, histories, and hints that something changed.

use std::collections::BTreeSet;
use std::time::Duration;

use windlass_core::{EventId, RunId, RunState, TaskIndex};

use super::bench::{
    Bench, LEASE, Worker, is_hinted, json, retry_after, seconds, tenant, workflow_name,
};
use crate::store::{Hints, NewRun, PAGE_MAX, RunFilter, RunPage, RunRecord};

async fn page(bench: &Bench<'_>, filter: RunFilter) -> RunPage {
    bench.store.list_runs(filter).await.expect("listing works")
}

fn ids(page: &RunPage) -> Vec<RunId> {
    page.runs.iter().map(|run| run.id).collect()
}

/// The runs of all pages of this size, in order.
async fn pages(bench: &Bench<'_>, limit: usize) -> Vec<RunId> {
    let mut found = Vec::new();
    let mut filter = RunFilter { limit, ..RunFilter::default() };
    loop {
        let page = page(bench, filter.clone()).await;
        assert!(page.runs.len() <= limit);
        found.extend(ids(&page));
        filter.after = page.next;
        if filter.after.is_none() {
            return found;
        }
        assert_eq!(page.runs.len(), limit, "a page before the last is full");
    }
}

pub(crate) async fn runs_are_listed_newest_first(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let mut started = Vec::new();
    for _ in 0..4 {
        started.push(bench.start("w").await);
        bench.advance(seconds(1)).await;
    }
    started.reverse();
    let page = page(bench, RunFilter::default()).await;
    assert_eq!(ids(&page), started);
    assert_eq!(page.next, None);
    let alone = RunRecord { input: None, ..bench.run(started[0]).await };
    assert_eq!(page.runs[0], alone, "a list shows what a get shows, but for the input");
}

pub(crate) async fn lists_of_runs_have_no_inputs(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let new = NewRun { tenant: tenant("x"), input: json("[1]"), ..bench.new_run("w") };
    let run = bench.start_run(new).await;
    for tenant in [None, Some(tenant("x"))] {
        let listed = page(bench, RunFilter { tenant, ..RunFilter::default() }).await.runs;
        assert_eq!(listed.iter().map(|run| &run.input).collect::<Vec<_>>(), [&None]);
    }
    assert_eq!(bench.run(run).await.input, Some(json("[1]")), "a run that is read alone has it");
}

pub(crate) async fn runs_of_one_tenant_are_listed_page_by_page(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let mut own = Vec::new();
    for number in 0..9 {
        let whose = if number % 3 == 0 { "x" } else { "y" };
        let run = NewRun { tenant: tenant(whose), ..bench.new_run("w") };
        let id = bench.start_run(run).await;
        if whose == "y" {
            own.push(id);
        }
        // Some of them are of the same time.
        if number % 2 == 0 {
            bench.advance(seconds(1)).await;
        }
    }
    let of = |limit| RunFilter { tenant: Some(tenant("y")), limit, ..RunFilter::default() };
    let all = page(bench, of(0)).await;
    assert_eq!(BTreeSet::from_iter(ids(&all)), BTreeSet::from_iter(own));
    let order = |run: &RunRecord| std::cmp::Reverse((run.created_at, run.id));
    assert!(all.runs.is_sorted_by_key(order), "newest first");
    for limit in 1..=6 {
        let (mut found, mut filter) = (Vec::new(), of(limit));
        loop {
            let page = page(bench, filter.clone()).await;
            found.extend(ids(&page));
            filter.after = page.next;
            if filter.after.is_none() {
                break;
            }
        }
        assert_eq!(found, ids(&all), "in pages of {limit}");
    }
}

pub(crate) async fn runs_can_be_found_by_each_field_and_by_all(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.register("v", "a").await;
    let with = |workflow, name, pair: (&str, &str)| {
        let mut run = NewRun { tenant: tenant(name), ..bench.new_run(workflow) };
        run.metadata.insert(pair.0.into(), pair.1.into());
        run.metadata.insert("all".into(), "same".into());
        run
    };
    let one = bench.start_run(with("w", "x", ("k", "1"))).await;
    let two = bench.start_run(with("w", "y", ("k", "2"))).await;
    let three = bench.start_run(with("v", "x", ("k", "1"))).await;
    let four = bench.start_run(with("v", "y", ("other", "1"))).await;
    bench.store.cancel_run(three, None).await.expect("it can be cancelled");
    let none = RunFilter::default;
    let pair = |key: &str, value: &str| Some((key.to_owned(), value.to_owned()));
    let cases = [
        (none(), vec![one, two, three, four]),
        (RunFilter { workflow: Some(workflow_name("w")), ..none() }, vec![one, two]),
        (RunFilter { workflow: Some(workflow_name("u")), ..none() }, vec![]),
        (RunFilter { tenant: Some(tenant("x")), ..none() }, vec![one, three]),
        (RunFilter { tenant: Some(tenant("z")), ..none() }, vec![]),
        (RunFilter { state: Some(RunState::Running), ..none() }, vec![one, two, four]),
        (RunFilter { state: Some(RunState::Cancelled), ..none() }, vec![three]),
        (RunFilter { state: Some(RunState::Failed), ..none() }, vec![]),
        (RunFilter { metadata: pair("k", "1"), ..none() }, vec![one, three]),
        (RunFilter { metadata: pair("k", "3"), ..none() }, vec![]),
        (RunFilter { metadata: pair("1", "k"), ..none() }, vec![]),
        (RunFilter { metadata: pair("all", "same"), ..none() }, vec![one, two, three, four]),
        (
            RunFilter {
                workflow: Some(workflow_name("v")),
                tenant: Some(tenant("x")),
                state: Some(RunState::Cancelled),
                metadata: pair("k", "1"),
                ..none()
            },
            vec![three],
        ),
        (
            RunFilter {
                workflow: Some(workflow_name("w")),
                state: Some(RunState::Cancelled),
                ..none()
            },
            vec![],
        ),
    ];
    for (filter, expected) in cases {
        let found: BTreeSet<_> = ids(&page(bench, filter.clone()).await).into_iter().collect();
        assert_eq!(found, expected.into_iter().collect(), "{filter:?}");
    }
}

pub(crate) async fn pages_have_neither_gaps_nor_repetitions(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    // Three groups, each started at one time.
    let mut started = BTreeSet::new();
    for _ in 0..3 {
        started.extend(bench.start_for("w", "t", 4).await);
        bench.advance(seconds(1)).await;
    }
    let whole = ids(&page(bench, RunFilter::default()).await);
    assert_eq!(whole.iter().copied().collect::<BTreeSet<_>>(), started);
    for limit in [1, 2, 3, 4, 5, 11, 12, 13] {
        assert_eq!(pages(bench, limit).await, whole, "pages of {limit}");
    }
}

pub(crate) async fn a_run_started_between_two_pages_does_not_shift_them(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let started = bench.start_for("w", "t", 4).await;
    let first = page(bench, RunFilter { limit: 2, ..RunFilter::default() }).await;
    bench.advance(seconds(1)).await;
    bench.start_for("w", "t", 3).await;
    let rest = RunFilter { limit: 10, after: first.next, ..RunFilter::default() };
    let second = page(bench, rest).await;
    let seen: Vec<_> = [ids(&first), ids(&second)].concat();
    assert_eq!(seen.len(), 4);
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), started.into_iter().collect());
}

pub(crate) async fn a_page_has_a_limit(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "t", PAGE_MAX + 1).await;
    for limit in [0, PAGE_MAX, PAGE_MAX + 1, usize::MAX] {
        let page = page(bench, RunFilter { limit, ..RunFilter::default() }).await;
        assert_eq!(page.runs.len(), PAGE_MAX, "limit {limit}");
        let rest = RunFilter { after: page.next, ..RunFilter::default() };
        assert!(page.next.is_some());
        assert_eq!(self::page(bench, rest).await.runs.len(), 1);
    }
}

pub(crate) async fn what_does_not_exist_is_not_there(bench: &Bench<'_>) {
    let unknown = bench.run_id();
    assert_eq!(bench.store.get_run(unknown).await, Ok(None));
    assert_eq!(bench.store.list_tasks(unknown, None, 10).await, Ok(Vec::new()));
    assert_eq!(bench.store.list_events(unknown, None, 10).await, Ok(Vec::new()));
    assert_eq!(page(bench, RunFilter::default()).await, RunPage::default());
}

pub(crate) async fn a_history_is_read_from_any_point_in_pages(bench: &Bench<'_>) {
    bench.register("w", "a b<a c<b").await;
    let run = bench.start("w").await;
    let other = bench.start("w").await;
    let worker = bench.worker().await;
    bench.work(&worker, |_| super::bench::success()).await;
    let all = bench.events(run).await;
    assert!(all.len() > 8, "{all:?}");
    assert_eq!(bench.events(other).await.len(), all.len());
    for (at, event) in all.iter().enumerate() {
        let rest = bench.store.list_events(run, Some(event.id), PAGE_MAX).await;
        assert_eq!(rest.as_deref(), Ok(&all[at + 1..]));
        let next = bench.store.list_events(run, Some(event.id), 2).await;
        assert_eq!(next.as_deref(), Ok(&all[at + 1..all.len().min(at + 3)]));
    }
    let first = bench.store.list_events(run, None, 1).await;
    assert_eq!(first.as_deref(), Ok(&all[..1]));
}

pub(crate) async fn nothing_comes_behind_the_largest_number(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let tasks = bench.store.list_tasks(run, Some(TaskIndex(u32::MAX)), 10).await;
    assert_eq!(tasks, Ok(Vec::new()));
    let events = bench.store.list_events(run, Some(EventId(u64::MAX)), 10).await;
    assert_eq!(events, Ok(Vec::new()));
}

pub(crate) async fn whoever_waits_for_work_is_told_when_a_task_becomes_ready(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    let mut hints = bench.store.work_hints();
    let worker = bench.worker_with_lease(seconds(1_000)).await;

    wait_for_work(&worker, &mut hints).await;
    bench.start("w").await;
    assert!(is_hinted(&mut hints).await, "a start");

    let claimed = worker.claim_one().await;
    wait_for_work(&worker, &mut hints).await;
    assert_eq!(bench.release(&claimed, Duration::ZERO).await, crate::store::Answer::Accepted);
    assert!(is_hinted(&mut hints).await, "a release");

    let claimed = worker.claim_one().await;
    bench.accept(&claimed, retry_after(seconds(1))).await;
    bench.advance(seconds(1)).await;
    wait_for_work(&worker, &mut hints).await;
    bench.promote().await;
    assert!(is_hinted(&mut hints).await, "a timer");

    let mortal = bench.worker().await;
    mortal.claim_one().await;
    bench.advance(LEASE).await;
    wait_for_work(&worker, &mut hints).await;
    bench.reap().await;
    assert!(is_hinted(&mut hints).await, "a lost worker");

    let claimed = worker.claim_one().await;
    wait_for_work(&worker, &mut hints).await;
    bench.succeed(&claimed).await;
    assert!(is_hinted(&mut hints).await, "a parent's end");

    let claimed = worker.claim_one().await;
    bench.fail(&claimed).await;
    wait_for_work(&worker, &mut hints).await;
    assert_eq!(bench.store.retry_run(claimed.task.run, 1).await, Ok(2));
    assert!(is_hinted(&mut hints).await, "a retry of the run");
}

/// Who finds nothing is told of what comes.
async fn wait_for_work(worker: &Worker<'_>, hints: &mut Hints) {
    assert!(worker.claim(10).await.is_empty());
    hints.take();
}

pub(crate) async fn whoever_waits_for_time_is_told_of_an_earlier_timer(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.register("s", "nap~1000").await;
    let mut hints = bench.store.timer_hints();
    bench.store.promote_due(10).await.expect("promoting works");

    hints.take();
    bench.start_run(NewRun { delay: seconds(60), ..bench.new_run("w") }).await;
    assert!(is_hinted(&mut hints).await, "a delayed start");

    bench.store.promote_due(10).await.expect("promoting works");
    hints.take();
    bench.start("s").await;
    assert!(is_hinted(&mut hints).await, "a sleep");

    bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    bench.store.promote_due(10).await.expect("promoting works");
    hints.take();
    bench.accept(&claimed, retry_after(Duration::from_millis(1))).await;
    assert!(is_hinted(&mut hints).await, "a backoff");
}

pub(crate) async fn whoever_waits_for_a_run_is_told_when_it_ends(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let mut hints = bench.store.run_hints();
    let worker = bench.worker().await;
    bench.start("w").await;
    let claimed = worker.claim_one().await;
    hints.take();
    bench.succeed(&claimed).await;
    assert!(is_hinted(&mut hints).await, "a success");

    let run = bench.start("w").await;
    hints.take();
    bench.store.cancel_run(run, None).await.expect("it can be cancelled");
    assert!(is_hinted(&mut hints).await, "a cancel");
}
