//! Claims of several workers at once, as a server makes them for those who ask it.

use std::collections::BTreeSet;

use windlass_core::{EventBody, TaskEventKind, TaskId, WorkerId};

use super::bench::{Bench, LEASE, Worker, names, queue, seconds, success};
use crate::store::{Answer, ClaimRequest, Claimed, Refusal, StoreError};

async fn workers<'a>(bench: &'a Bench<'a>, count: usize) -> Vec<Worker<'a>> {
    let mut workers = Vec::new();
    for _ in 0..count {
        workers.push(bench.worker().await);
    }
    workers
}

/// All of them claim at once, and live.
async fn claim(bench: &Bench<'_>, requests: Vec<ClaimRequest>) -> Vec<Vec<Claimed>> {
    let count = requests.len();
    let told = bench.store.claim_many(requests).await;
    assert_eq!(told.len(), count, "each is answered");
    told.into_iter().map(|told| told.expect("a worker that lives can claim")).collect()
}

fn counts(told: &[Vec<Claimed>]) -> Vec<usize> {
    told.iter().map(Vec::len).collect()
}

pub(crate) async fn what_is_there_is_shared_by_all_who_ask_together(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "t", 7).await;
    let workers = workers(bench, 3).await;
    let told = claim(bench, workers.iter().map(|one| one.request(10)).collect()).await;
    let ids: BTreeSet<TaskId> = told.iter().flatten().map(|one| one.task).collect();
    assert_eq!((ids.len(), counts(&told).iter().sum()), (7, 7), "each task goes to one of them");
    for (worker, told) in workers.iter().zip(&told) {
        let held: Vec<&Claimed> = told.iter().collect();
        assert_eq!(worker.extend(&held).await.lost, [], "and is its own");
        for task in told {
            let events = bench.events(task.task.run).await;
            let started = events.into_iter().find_map(|event| {
                let EventBody::Task(task) = event.body else { return None };
                let TaskEventKind::Started { worker } = task.kind else { return None };
                Some(worker)
            });
            assert_eq!(started, Some(worker.id), "and its history says so");
            bench.succeed(task).await;
        }
    }
}

pub(crate) async fn each_who_asks_is_given_no_more_than_it_asks_for(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "t", 20).await;
    let workers = workers(bench, 4).await;
    let limits = [1, 0, 5, 2];
    let requests = workers.iter().zip(limits).map(|(one, limit)| one.request(limit)).collect();
    let told = claim(bench, requests).await;
    assert_eq!(counts(&told), limits);
    let rest = claim(bench, vec![workers[1].request(3), workers[0].request(90)]).await;
    assert_eq!(counts(&rest), [3, 9]);
}

pub(crate) async fn who_asks_together_finds_nothing_of_what_it_does_not_serve(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.register("v", "b@fast").await;
    bench.start_for("w", "t", 2).await;
    bench.start_for("v", "t", 2).await;
    let [one, two, three] = workers(bench, 3).await.try_into().ok().expect("three");
    let fast = ClaimRequest { queues: [queue("fast")].into(), ..two.request(9) };
    let slow = ClaimRequest { queues: [queue("slow")].into(), ..three.request(9) };
    let told = claim(bench, vec![one.request(9), fast, slow]).await;
    let told: Vec<_> = told.iter().map(|told| names(told)).collect();
    assert_eq!(told, [vec!["a", "a"], vec!["b", "b"], vec![]]);
}

pub(crate) async fn a_worker_that_is_gone_keeps_nothing_from_those_who_ask_with_it(
    bench: &Bench<'_>,
) {
    bench.register("w", "a").await;
    bench.start_for("w", "t", 4).await;
    let workers = workers(bench, 3).await;
    workers[1].leave().await;
    let stranger = bench.stranger();
    let asking = [&workers[0], &workers[1], &stranger, &workers[2]];
    let requests = asking.iter().map(|one| one.request(2)).collect();
    let told = bench.store.claim_many(requests).await;
    let lost = |id: WorkerId| Err(StoreError::LeaseLost(id));
    let count = |told: &Result<Vec<Claimed>, StoreError>| told.clone().map(|told| told.len());
    let told: Vec<_> = told.iter().map(count).collect();
    assert_eq!(told, [Ok(2), lost(workers[1].id), lost(stranger.id), Ok(2)]);
}

pub(crate) async fn a_claim_that_comes_twice_is_answered_once_beside_others(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "t", 9).await;
    let workers = workers(bench, 2).await;
    let (again, other) = (workers[0].request(2), workers[1].request(2));
    let told = claim(bench, vec![again.clone(), other, again.clone()]).await;
    assert_eq!(counts(&told), [2, 2, 0], "within one batch");
    let told = claim(bench, vec![workers[1].request(2), again]).await;
    assert_eq!(counts(&told), [2, 0], "and in the next");
}

pub(crate) async fn each_of_those_who_asked_together_answers_for_its_own_tasks(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "t", 4).await;
    let workers = workers(bench, 2).await;
    let told = claim(bench, workers.iter().map(|one| one.request(2)).collect()).await;
    bench.advance(LEASE - seconds(1)).await;
    let held: Vec<&Claimed> = told[0].iter().collect();
    workers[0].extend(&held).await;
    bench.advance(seconds(2)).await;
    assert_eq!(bench.reap().await, 2, "those of the one that said nothing");
    for task in &told[0] {
        bench.succeed(task).await;
    }
    let late = bench.finish(&told[1][0], success()).await;
    assert_eq!(late, Answer::Refused(Refusal::LeaseLost));
    assert_eq!(workers[0].claim(9).await.len(), 2, "what it held can be claimed again");
}

pub(crate) async fn who_found_nothing_beside_others_finds_something_with_its_next_claim(
    bench: &Bench<'_>,
) {
    bench.register("w", "a").await;
    bench.start_for("w", "t", 1).await;
    let workers = workers(bench, 2).await;
    let requests: Vec<_> = workers.iter().map(|one| one.request(5)).collect();
    let told = claim(bench, requests.clone()).await;
    assert_eq!(counts(&told).iter().sum::<usize>(), 1);
    bench.start_for("w", "t", 4).await;
    let again = claim(bench, requests).await;
    assert_eq!(counts(&again), [0, 0], "its number is used");
    let next = claim(bench, workers.iter().map(|one| one.request(2)).collect()).await;
    assert_eq!(counts(&next), [2, 2]);
}

pub(crate) async fn who_asks_together_is_given_the_larger_priority_first(bench: &Bench<'_>) {
    bench.register("w", "low^-5 mid high^5").await;
    for _ in 0..2 {
        bench.start("w").await;
    }
    let workers = workers(bench, 2).await;
    let told = claim(bench, workers.iter().map(|one| one.request(2)).collect()).await;
    let mut all: Vec<_> = told.iter().flat_map(|told| names(told)).collect();
    all.sort_unstable();
    assert_eq!(all, ["high", "high", "mid", "mid"]);
}
