//! The registry of workers, as people see it.

use std::collections::BTreeMap;

use windlass_core::why::SILENT_MAX;
use windlass_core::{QueueName, WorkerId};

use super::bench::{Bench, LEASE, SLOTS, TICK, definition, seconds};
use crate::store::{
    HandlerKey, Hello, PAGE_MAX, StoreError, WORKER_METADATA_PAIRS_MAX, WORKER_TEXT_BYTES_MAX,
    WorkerFilter, WorkerInfo, WorkerRecord, WorkerState,
};

async fn list(bench: &Bench<'_>, with_dead: bool) -> Vec<WorkerRecord> {
    let filter = WorkerFilter { with_dead, ..WorkerFilter::default() };
    let page = bench.store.list_workers(filter).await.expect("reading works");
    assert_eq!(page.next, None);
    page.workers
}

async fn one(bench: &Bench<'_>, id: WorkerId) -> WorkerRecord {
    let found = list(bench, true).await.into_iter().find(|worker| worker.id == id);
    found.expect("every worker is listed")
}

pub(crate) async fn a_worker_is_listed_as_it_introduced_itself(bench: &Bench<'_>) {
    assert_eq!(list(bench, true).await, []);
    let worker = bench.stranger();
    let queues =
        ["mail", "größer", "default"].map(|name| QueueName::new(name).expect("it is a name"));
    let info = WorkerInfo {
        host: "node-1".to_owned(),
        pid: Some(4_711),
        version: "1.2.3+é".to_owned(),
        queues: queues.to_vec(),
        metadata: BTreeMap::from([("region".to_owned(), "eu \"west\"\n".to_owned())]),
    };
    let definitions = vec![definition("w", 1, "a b"), definition("v", 7, "a")];
    let keys = definitions.iter().map(|definition| HandlerKey {
        workflow: definition.name().clone(),
        version: definition.version(),
    });
    let workflows: Vec<HandlerKey> = keys.collect();
    let hello = Hello { info: info.clone(), definitions, ..worker.hello(LEASE) };
    bench.store.join(hello.clone()).await.expect("it can join");
    let joined_at = bench.now().await;
    let mut listed = list(bench, false).await.remove(0);
    assert!(listed.seen_at.take().is_some());
    let expected = WorkerRecord {
        id: worker.id,
        name: hello.name.clone(),
        state: WorkerState::Live,
        slots: SLOTS,
        lease: LEASE,
        workflows,
        info,
        joined_at,
        seen_at: None,
        ended_at: None,
        tasks: 0,
    };
    assert_eq!(listed, expected);
    // Introduced again, it is the same.
    bench.advance(seconds(1)).await;
    let again = Hello { name: "another".to_owned(), info: WorkerInfo::default(), ..hello };
    bench.store.join(again).await.expect("it can join again");
    let listed = one(bench, worker.id).await;
    assert_eq!((listed.joined_at, &listed.name), (joined_at, &expected.name));
    bench.register("w", "a b").await;
    bench.start("w").await;
    worker.claim(2).await;
    assert_eq!(one(bench, worker.id).await.tasks, 2);
}

pub(crate) async fn a_worker_that_drains_is_listed_so(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    for _ in 0..2 {
        bench.store.begin_drain(worker.id).await.expect("saying so works");
        assert_eq!(one(bench, worker.id).await.state, WorkerState::Draining);
    }
    // It keeps its lease, and its tasks end as any other's.
    worker.extend(&[&claimed]).await;
    bench.succeed(&claimed).await;
    bench.store.leave(worker.id).await.expect("leaving works");
    assert_eq!(one(bench, worker.id).await.state, WorkerState::Dead);
    for ended in [worker.id, bench.stranger().id] {
        let error = StoreError::NotFound(format!("live worker {ended}"));
        assert_eq!(bench.store.begin_drain(ended).await, Err(error));
    }
    assert_eq!(one(bench, worker.id).await.state, WorkerState::Dead);
}

pub(crate) async fn a_worker_that_ended_is_listed_only_if_the_dead_are_asked_for(
    bench: &Bench<'_>,
) {
    let (gone, here) = (bench.worker().await, bench.worker().await);
    bench.advance(seconds(3)).await;
    bench.store.leave(gone.id).await.expect("leaving works");
    let ids: Vec<WorkerId> = list(bench, false).await.iter().map(|worker| worker.id).collect();
    assert_eq!(ids, [here.id]);
    assert_eq!(list(bench, true).await.len(), 2);
    let gone = one(bench, gone.id).await;
    assert_eq!((gone.state, gone.seen_at), (WorkerState::Dead, None));
    assert_eq!(gone.ended_at, Some(bench.now().await));
}

pub(crate) async fn a_worker_that_is_found_dead_is_listed_with_the_time(bench: &Bench<'_>) {
    bench.register("w", "a b c").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    worker.claim(3).await;
    bench.advance(LEASE).await;
    assert_eq!(one(bench, worker.id).await.state, WorkerState::Live, "nobody has looked");
    bench.store.reap(2).await.expect("reaping works");
    let dying = one(bench, worker.id).await;
    assert_eq!((dying.state, dying.tasks, dying.ended_at), (WorkerState::Dying, 1, None));
    bench.advance(seconds(1)).await;
    bench.reap().await;
    let dead = one(bench, worker.id).await;
    assert_eq!((dead.state, dead.tasks), (WorkerState::Dead, 0));
    assert_eq!(dead.ended_at, Some(bench.now().await));
}

pub(crate) async fn an_idle_worker_that_is_not_heard_of_is_not_live(bench: &Bench<'_>) {
    let (silent, heard) = (bench.worker().await, bench.worker().await);
    bench.advance(LEASE + SILENT_MAX - TICK).await;
    assert_eq!(one(bench, silent.id).await.state, WorkerState::Live);
    heard.extend(&[]).await;
    bench.advance(TICK).await;
    assert_eq!(one(bench, silent.id).await.state, WorkerState::Dying);
    assert_eq!(one(bench, heard.id).await.state, WorkerState::Live);
    // It was cut off, and goes on where it was.
    silent.extend(&[]).await;
    assert_eq!(one(bench, silent.id).await.state, WorkerState::Live);
}

pub(crate) async fn a_worker_that_is_drained_from_outside_is_told_with_its_next_heartbeat(
    bench: &Bench<'_>,
) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let (drained, other) = (bench.worker().await, bench.worker().await);
    let held = drained.claim_one().await;
    assert!(!drained.extend(&[&held]).await.should_drain);
    bench.store.begin_drain(drained.id).await.expect("it is there");
    let answer = drained.extend(&[&held]).await;
    assert_eq!((answer.should_drain, answer.lost), (true, Vec::new()), "it keeps what it holds");
    assert!(!other.extend(&[]).await.should_drain, "the other one is not meant");
    bench.succeed(&held).await;
    assert!(drained.extend(&[]).await.should_drain, "until it leaves");
    bench.store.leave(drained.id).await.expect("it can leave");
}

pub(crate) async fn workers_are_listed_newest_first_in_pages(bench: &Bench<'_>) {
    let mut ids = Vec::new();
    for place in 0..7 {
        ids.push(bench.worker().await.id);
        // Some come at the same time.
        if place % 3 == 0 {
            bench.advance(seconds(1)).await;
        }
    }
    let all: Vec<WorkerId> = list(bench, false).await.iter().map(|worker| worker.id).collect();
    let mut sorted = all.clone();
    sorted.sort();
    ids.sort();
    assert_eq!(sorted, ids);
    let ages: Vec<_> = list(bench, false).await.iter().map(|it| (it.joined_at, it.id)).collect();
    assert!(ages.is_sorted_by(|one, next| one > next), "{ages:?}");
    let mut paged = Vec::new();
    let mut filter = WorkerFilter { limit: 3, ..WorkerFilter::default() };
    loop {
        let page = bench.store.list_workers(filter.clone()).await.expect("reading works");
        assert!(page.workers.len() <= 3);
        paged.extend(page.workers.iter().map(|worker| worker.id));
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    assert_eq!(paged, all);
    let most = WorkerFilter { limit: PAGE_MAX + 1, ..WorkerFilter::default() };
    assert_eq!(bench.store.list_workers(most).await.expect("reading works").workers.len(), 7);
}

pub(crate) async fn what_a_worker_says_of_itself_has_limits(bench: &Bench<'_>) {
    let long = "x".repeat(WORKER_TEXT_BYTES_MAX + 1);
    let most = "x".repeat(WORKER_TEXT_BYTES_MAX);
    let pair = |number: usize| (format!("{number}"), String::new());
    let wrong = [
        WorkerInfo { host: long.clone(), ..WorkerInfo::default() },
        WorkerInfo { version: long.clone(), ..WorkerInfo::default() },
        WorkerInfo { version: "a\0b".to_owned(), ..WorkerInfo::default() },
        WorkerInfo { metadata: BTreeMap::from([("a".to_owned(), long)]), ..WorkerInfo::default() },
        WorkerInfo {
            metadata: (0..=WORKER_METADATA_PAIRS_MAX).map(pair).collect(),
            ..WorkerInfo::default()
        },
    ];
    for info in wrong {
        let worker = bench.stranger();
        let answer = bench.store.join(Hello { info, ..worker.hello(LEASE) }).await;
        assert!(matches!(answer, Err(StoreError::Conflict(_))), "{answer:?}");
    }
    assert_eq!(list(bench, true).await, []);
    let info = WorkerInfo {
        host: most.clone(),
        version: most.clone(),
        metadata: (1..WORKER_METADATA_PAIRS_MAX).map(pair).chain([(most.clone(), most)]).collect(),
        // A server adds it where a worker names no queue.
        queues: vec![QueueName::default()],
        ..WorkerInfo::default()
    };
    let worker = bench.stranger();
    let hello = Hello { info: info.clone(), ..worker.hello(LEASE) };
    bench.store.join(hello).await.expect("all is within its limits");
    assert_eq!(one(bench, worker.id).await.info, info);
}

/// The list of cases about workers, handed to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! worker_contract_cases {
    ($to:ident [$($argument:tt)*]) => {
        $crate::$to! {
            [$($argument)*]
            parties {
                what_is_there_is_shared_by_all_who_ask_together
                each_who_asks_is_given_no_more_than_it_asks_for
                who_asks_together_finds_nothing_of_what_it_does_not_serve
                a_worker_that_is_gone_keeps_nothing_from_those_who_ask_with_it
                a_claim_that_comes_twice_is_answered_once_beside_others
                each_of_those_who_asked_together_answers_for_its_own_tasks
                who_found_nothing_beside_others_finds_something_with_its_next_claim
                who_asks_together_is_given_the_larger_priority_first
            }
            turns {
                a_claim_for_a_tenant_finds_its_tasks_alone
                a_claim_for_a_tenant_is_by_priority_and_age
                a_claim_for_a_tenant_serves_only_its_queues_and_handlers
                a_tenant_that_is_served_out_of_turn_delays_nobody
                who_comes_after_all_was_served_out_of_turn_is_found
                a_tenants_tasks_are_found_behind_many_that_nobody_serves
                claims_for_different_tenants_beside_each_other_find_their_own
                a_claim_behind_completions_is_for_its_tenant_alone
                what_a_tenant_gives_back_is_found_in_its_place
            }
            workers {
                a_worker_is_listed_as_it_introduced_itself
                a_worker_that_drains_is_listed_so
                a_worker_that_ended_is_listed_only_if_the_dead_are_asked_for
                a_worker_that_is_found_dead_is_listed_with_the_time
                workers_are_listed_newest_first_in_pages
                an_idle_worker_that_is_not_heard_of_is_not_live
                a_worker_that_is_drained_from_outside_is_told_with_its_next_heartbeat
                what_a_worker_says_of_itself_has_limits
            }
            abandons {
                a_start_given_up_midway_can_be_repeated
                a_claim_given_up_midway_loses_no_task
                a_finish_given_up_midway_can_be_repeated
                a_sweep_given_up_midway_loses_no_timer
                a_reaper_given_up_midway_loses_no_task
            }
        }
    };
}
