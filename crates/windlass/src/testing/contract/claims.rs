//! Claiming: what is handed to whom, in which order, with which facts.

use std::collections::BTreeSet;
use std::sync::Arc;

use windlass_core::{Decision, Fence, TaskId, TaskIndex, TaskState, Version};

use super::bench::{
    Bench, LEASE, Worker, completion, definition, failure, json, names, priority, queue,
    retry_after, seconds, success, tenant, workflow_name,
};
use crate::store::{
    Answer, ClaimRequest, Claimed, Finished, HandlerKey, Hello, NewRun, ParentEnd, StoreError,
};

fn ids(claimed: &[Claimed]) -> Vec<TaskId> {
    claimed.iter().map(|task| task.task).collect()
}

pub(crate) async fn the_larger_priority_goes_first(bench: &Bench<'_>) {
    bench.register("w", "low^-5 mid high^5").await;
    bench.start("w").await;
    assert_eq!(names(&bench.worker().await.claim(10).await), ["high", "mid", "low"]);
}

pub(crate) async fn a_tasks_priority_is_relative_to_its_runs(bench: &Bench<'_>) {
    bench.register("w", "low^-5 high^5").await;
    let plain = bench.start("w").await;
    let urgent = bench.start_run(NewRun { priority: priority(7), ..bench.new_run("w") }).await;
    let claimed = bench.worker().await.claim(10).await;
    let order: Vec<_> = claimed.iter().map(|c| (c.task.run, c.spec.name.as_str())).collect();
    assert_eq!(
        order,
        [(urgent, "high"), (plain, "high"), (urgent, "low"), (plain, "low")],
        "12, 5, 2, -5"
    );
}

pub(crate) async fn priorities_beyond_the_limit_are_one_route(bench: &Bench<'_>) {
    bench.register("w", "a^100").await;
    bench.register("v", "b^90").await;
    let with = |workflow, number| NewRun { priority: priority(number), ..bench.new_run(workflow) };
    bench.start_run(with("v", 20)).await;
    bench.start_run(with("w", 100)).await;
    let claimed = bench.worker().await.claim(10).await;
    assert_eq!(names(&claimed), ["b", "a"], "both are at the limit, so the older goes first");
}

pub(crate) async fn a_tenants_tasks_of_one_priority_go_oldest_first(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let mut started = Vec::new();
    for _ in 0..5 {
        started.push(bench.start("w").await);
        bench.advance(seconds(1)).await;
    }
    let claimed = bench.worker().await.claim(10).await;
    assert_eq!(claimed.iter().map(|c| c.task.run).collect::<Vec<_>>(), started);
}

pub(crate) async fn priority_goes_before_fairness_and_fairness_before_age(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "old", 3).await;
    bench.advance(seconds(1)).await;
    bench.start_for("w", "new", 1).await;
    let urgent = NewRun { tenant: tenant("old"), priority: priority(1), ..bench.new_run("w") };
    let urgent = bench.start_run(urgent).await;
    let claimed = bench.worker().await.claim(10).await;
    assert_eq!(claimed[0].task.run, urgent);
    let rest: Vec<_> = claimed[1..].iter().map(|c| c.tenant.as_str()).collect();
    assert_eq!(rest, ["old", "new", "old", "old"]);
}

pub(crate) async fn a_poll_finds_what_there_is_and_uses_its_number(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker().await;
    let poll = || ClaimRequest { is_poll: true, ..worker.request(10) };
    let empty = poll();
    assert!(bench.store.claim(empty.clone()).await.expect("it may ask").is_empty());
    bench.start("w").await;
    let again = bench.store.claim(empty).await.expect("it may ask twice");
    assert!(again.is_empty(), "an answer that was lost is not one with tasks");
    let found = bench.store.claim(poll()).await.expect("it may ask again");
    assert_eq!(names(&found), ["a"]);
    bench.start("w").await;
    bench.advance(LEASE + seconds(1)).await;
    bench.reap().await;
    let dead = bench.store.claim(poll()).await;
    assert!(matches!(dead, Err(StoreError::LeaseLost(_))), "{dead:?}");
}

pub(crate) async fn only_listed_queues_are_served(bench: &Bench<'_>) {
    bench.register("w", "a b@mail c@slow").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    assert_eq!(names(&worker.claim_from("mail", 10).await), ["b"]);
    assert!(worker.claim_from("nowhere", 10).await.is_empty());
    let none = ClaimRequest { queues: Arc::new([]), ..worker.request(10) };
    assert!(bench.store.claim(none).await.expect("an empty list is fine").is_empty());
    let queues = Arc::new([queue("default"), queue("slow")]);
    let both = ClaimRequest { queues, ..worker.request(10) };
    let claimed = bench.store.claim(both).await.expect("two queues can be served");
    assert_eq!(names(&claimed).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(["a", "c"]));
}

pub(crate) async fn each_queue_keeps_its_order_when_several_are_served(bench: &Bench<'_>) {
    bench.register("w", "a@x^1 b@y^2 c@x^3 d@y^4 e@x^5 f@y^-6").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let mut order = Vec::new();
    for _ in 0..3 {
        let queues = Arc::new([queue("x"), queue("y")]);
        let both = ClaimRequest { queues, ..worker.request(2) };
        order.extend(bench.store.claim(both).await.expect("two queues can be served"));
    }
    let of = |name| {
        let is_in = move |task: &&Claimed| task.spec.queue == queue(name);
        order.iter().filter(is_in).map(|task| task.spec.name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!((of("x"), of("y")), (vec!["e", "c", "a"], vec!["d", "b", "f"]));
}

pub(crate) async fn work_without_a_handler_is_left_alone(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.try_register(definition("w", 2, "a")).await.expect("another version");
    bench.register("v", "a").await;
    let version = Version::new(2).expect("two is not zero");
    let next = bench.start_run(NewRun { version, ..bench.new_run("w") }).await;
    let other = bench.start("v").await;
    let mine = bench.start("w").await;
    let worker = bench.worker().await;
    let only = |version| HandlerKey { workflow: workflow_name("w"), version };
    let request = ClaimRequest { handlers: [only(Version::FIRST)].into(), ..worker.request(10) };
    let claimed = bench.store.claim(request).await.expect("claiming works");
    let runs: Vec<_> = claimed.iter().map(|c| c.task.run).collect();
    assert_eq!(runs, [mine], "what stands before it does not block it");
    let request = ClaimRequest { handlers: Arc::new([]), ..worker.request(10) };
    assert!(bench.store.claim(request).await.expect("claiming works").is_empty());
    for run in [next, other] {
        let task = bench.task(run, "a").await;
        assert_eq!((task.state, task.fence, task.attempt), (TaskState::Ready, Fence(0), 0));
    }
    let request = ClaimRequest { handlers: [only(version)].into(), ..worker.request(10) };
    let claimed = bench.store.claim(request).await.expect("claiming works");
    assert_eq!(claimed.iter().map(|c| c.task.run).collect::<Vec<_>>(), [next]);
}

pub(crate) async fn a_claim_gives_no_more_than_its_limit(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "t", 5).await;
    let worker = bench.worker().await;
    assert!(worker.claim(0).await.is_empty());
    assert_eq!(worker.claim(2).await.len(), 2);
    assert_eq!(worker.claim(2).await.len(), 2);
    assert_eq!(worker.claim(2).await.len(), 1);
    assert!(worker.claim(2).await.is_empty());
}

pub(crate) async fn two_claimers_never_share_a_task(bench: &Bench<'_>) {
    bench.register("w", "a b").await;
    bench.start_for("w", "t", 50).await;
    let (one, two) = (bench.worker().await, bench.worker().await);
    let mut seen = BTreeSet::new();
    let mut count = 0;
    loop {
        let (left, right) = tokio::join!(one.claim(7), two.claim(5));
        if left.is_empty() && right.is_empty() {
            break;
        }
        count += left.len() + right.len();
        seen.extend(ids(&left));
        seen.extend(ids(&right));
    }
    assert_eq!((count, seen.len()), (100, 100));
}

pub(crate) async fn fence_and_attempt_grow_by_one_with_each_claim(bench: &Bench<'_>) {
    bench.register("w", "a*3").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    for number in 1..=3 {
        let claimed = worker.claim_one().await;
        assert_eq!((claimed.fence, claimed.attempt), (Fence(number.into()), number));
        let task = bench.task(run, "a").await;
        assert_eq!((task.fence, task.attempt), (Fence(number.into()), number));
        assert_eq!(task.worker, Some(worker.id));
        if number < 3 {
            bench.accept(&claimed, retry_after(seconds(1))).await;
            bench.advance(seconds(1)).await;
            bench.promote().await;
        }
    }
}

pub(crate) async fn a_claim_carries_the_facts_of_run_and_task(bench: &Bench<'_>) {
    bench.register("w", "a@mail^4*2").await;
    let new = NewRun { tenant: tenant("acme"), input: json("[1,2]"), ..bench.new_run("w") };
    let run = bench.start_run(new).await;
    let claimed = bench.worker().await.claim_from("mail", 1).await.remove(0);
    assert_eq!(claimed.task, TaskId { run, index: TaskIndex(0) });
    assert_eq!(claimed.workflow.as_str(), "w");
    assert_eq!(claimed.version, Version::FIRST);
    assert_eq!(claimed.tenant, tenant("acme"));
    assert_eq!(claimed.input, json("[1,2]"));
    assert_eq!(*claimed.spec, **definition("w", 1, "a@mail^4*2").task(TaskIndex(0)));
    assert!(claimed.parents.is_empty() && claimed.failures.is_empty());
}

pub(crate) async fn parents_ends_come_sorted_by_index_with_their_outputs(bench: &Bench<'_>) {
    bench.register("w", "x join<c,b,a?finished a b c").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    // Ended in another order than that of their indices.
    let mut claimed = worker.claim(10).await;
    claimed.sort_by_key(|task| std::cmp::Reverse(task.task.index));
    for task in &claimed {
        let decision = match task.spec.name.as_str() {
            "a" => Decision::Fail(failure()),
            "b" => Decision::Skip,
            name => Decision::Succeed(json(&format!("{name:?}"))),
        };
        bench.accept(task, decision).await;
    }
    let join = worker.claim_one().await;
    assert_eq!(names(std::slice::from_ref(&join)), ["join"]);
    let end = |index, state, output| ParentEnd { index: TaskIndex(index), state, output };
    assert_eq!(
        join.parents,
        [
            end(2, TaskState::Failed, None),
            end(3, TaskState::Skipped, None),
            end(4, TaskState::Succeeded, Some(json(r#""c""#))),
        ]
    );
    assert!(join.failures.is_empty(), "failures are for the on-failure task");
}

pub(crate) async fn a_sleep_succeeds_without_an_output(bench: &Bench<'_>) {
    bench.register("w", "nap~1000 a<nap").await;
    let run = bench.start("w").await;
    bench.advance(seconds(1)).await;
    bench.promote().await;
    let claimed = bench.worker().await.claim_one().await;
    assert_eq!(claimed.parents[0].state, TaskState::Succeeded);
    assert_eq!(claimed.parents[0].output, None);
    assert_eq!(bench.task(run, "nap").await.output, None);
}

pub(crate) async fn an_on_failure_task_is_told_what_failed(bench: &Bench<'_>) {
    bench.register("w", "a b c d<a !sorry").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    for task in worker.claim(10).await {
        let decision = match task.spec.name.as_str() {
            "c" => success(),
            name => Decision::Fail(windlass_core::Failure { message: name.into(), ..failure() }),
        };
        bench.accept(&task, decision).await;
    }
    let sorry = worker.claim_one().await;
    assert_eq!(sorry.spec.name.as_str(), "sorry");
    let mut told: Vec<_> =
        sorry.failures.iter().map(|(name, why)| (name.as_str(), why.message.as_str())).collect();
    told.sort_unstable();
    assert_eq!(told, [("a", "a"), ("b", "b")], "neither what succeeded nor what was skipped");
}

pub(crate) async fn only_ready_tasks_can_be_claimed(bench: &Bench<'_>) {
    bench.register("w", "done run later nap~1000 child<run").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim(3).await;
    bench.succeed(&claimed[0]).await;
    bench.accept(&claimed[2], retry_after(seconds(9))).await;
    assert!(worker.claim(10).await.is_empty());
    assert!(bench.worker().await.claim(10).await.is_empty());
}

pub(crate) async fn a_worker_that_is_not_alive_cannot_claim(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let stranger = bench.stranger();
    let left = bench.worker().await;
    left.leave().await;
    let dead = bench.worker().await;
    dead.claim_one().await;
    bench.advance(LEASE).await;
    assert_eq!(bench.reap().await, 1);
    for worker in [stranger, left, dead] {
        let answer = worker.try_claim(1).await.map(|claimed| claimed.len());
        assert_eq!(answer, Err(StoreError::LeaseLost(worker.id)));
    }
    let task = bench.task(run, "a").await;
    assert_eq!((task.state, task.fence), (TaskState::Ready, Fence(1)));
}

pub(crate) async fn a_worker_whose_lease_ran_out_is_given_nothing(bench: &Bench<'_>) {
    bench.register("w", "a b").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    worker.claim_one().await;
    bench.advance(LEASE + seconds(1)).await;
    // The lease ran out, and nobody has taken the task away yet.
    match worker.try_claim(1).await {
        Ok(claimed) => assert_eq!(claimed.len(), 0),
        Err(error) => assert_eq!(error, StoreError::LeaseLost(worker.id)),
    }
    assert_eq!(bench.reap().await, 1, "the claim did not keep the lease");
}

pub(crate) async fn a_claim_that_comes_twice_gives_nothing_the_second_time(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "t", 3).await;
    let worker = bench.worker().await;
    let request = worker.request(1);
    let first = bench.store.claim(request.clone()).await.expect("claiming works");
    assert_eq!(first.len(), 1);
    let second = bench.store.claim(request.clone()).await.expect("it is not an error");
    assert!(second.is_empty());
    let later = worker.claim(1).await;
    assert_eq!(later.len(), 1, "later claims are not affected");
    let late = bench.store.claim(request).await.expect("it is not an error");
    assert!(late.is_empty(), "nor is it answered behind a later one");
    bench.succeed(&first[0]).await;
    bench.succeed(&later[0]).await;
}

pub(crate) async fn a_claim_that_arrives_after_it_was_given_up_gives_nothing(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let on_its_way = worker.request(1);
    worker.extend(&[]).await;
    let late = bench.store.claim(on_its_way).await.expect("it is not an error");
    assert!(late.is_empty());
    assert_eq!(bench.task(run, "a").await.state, TaskState::Ready);
    worker.claim_one().await;
}

pub(crate) async fn priorities_hold_among_many_workflows(bench: &Bench<'_>) {
    for number in 0..70 {
        let workflow = format!("w{number}");
        bench.register(&workflow, "a").await;
        bench.start(&workflow).await;
    }
    let mut urgent = Vec::new();
    for _ in 0..20 {
        let urgently = NewRun { priority: priority(10), ..bench.new_run("w7") };
        urgent.push(bench.start_run(urgently).await);
    }
    let claimed = bench.worker().await.claim(20).await;
    let claimed: Vec<_> = claimed.iter().map(|one| one.task.run).collect();
    assert_eq!(claimed, urgent);
}

/// Joins a worker with these slots.
async fn worker_with<'a>(bench: &'a Bench<'_>, slots: u32) -> Worker<'a> {
    let worker = bench.stranger();
    let hello = Hello { slots, ..worker.hello(LEASE) };
    bench.store.join(hello).await.expect("a new worker can join");
    worker
}

pub(crate) async fn a_worker_is_given_no_more_tasks_than_it_has_free_slots(bench: &Bench<'_>) {
    // One route, then several: a store may take tasks of one before it knows the free slots.
    for (workflow, tasks) in [("w", "a b c d e f"), ("v", "a^1 b^2 c^3 d^4 e^5 f^6")] {
        bench.register(workflow, tasks).await;
        bench.start(workflow).await;
        let worker = worker_with(bench, 3).await;
        let first = worker.claim(2).await;
        assert_eq!(first.len(), 2);
        assert_eq!(worker.claim(5).await.len(), 1, "what it holds counts");
        let refused = worker.try_claim(1).await.expect_err("all of its slots are taken");
        let StoreError::Conflict(text) = &refused else { panic!("{refused:?}") };
        assert!(text.contains("holds 3 of at most 3 tasks"), "{text}");
        bench.succeed(&first[0]).await;
        let next = worker.claim(5).await;
        assert_eq!(next.len(), 1, "one slot is free again");
        let ending = ClaimRequest { ending: 1, ..worker.request(5) };
        let next = bench.store.claim(ending).await.expect("a task is on its way to the store");
        assert_eq!(next.len(), 1, "one that has ended takes no slot");
        let other = worker_with(bench, 1).await;
        let last = other.claim(5).await;
        assert_eq!(last.len(), 1, "the slots of others are their own");
        bench.release(&last[0], seconds(0)).await;
        assert_eq!(other.claim(5).await.len(), 1, "what it handed back does not count");
        other.leave().await;
        worker.leave().await;
        let all = bench.worker().await;
        bench.work(&all, |_| success()).await;
    }
}

pub(crate) async fn a_finish_frees_a_slot_for_the_claim_it_carries(bench: &Bench<'_>) {
    bench.register("w", "a b<a c<a x").await;
    bench.start("w").await;
    let worker = worker_with(bench, 2).await;
    let held = worker.claim(2).await;
    assert_eq!(names(&held), ["a", "x"]);
    let batch = vec![completion(&held[0], success())];
    let finished = bench.store.finish_and_claim(batch, worker.request(10)).await;
    let Finished { answers, claimed } = finished.expect("finishing works");
    assert_eq!((answers, names(&claimed)), (vec![Answer::Accepted], vec!["b"]));
    let refused = worker.try_claim(1).await;
    assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
}

pub(crate) async fn claims_of_several_workers_keep_the_slots_of_each(bench: &Bench<'_>) {
    bench.register("w", "a b c d e f g h").await;
    bench.start("w").await;
    let (one, two) = (worker_with(bench, 1).await, worker_with(bench, 3).await);
    let full = worker_with(bench, 1).await;
    full.claim_one().await;
    let requests = vec![one.request(5), full.request(5), two.request(5)];
    let mut told = bench.store.claim_many(requests).await;
    assert!(matches!(told.remove(1), Err(StoreError::Conflict(_))));
    let counts: Vec<usize> =
        told.into_iter().map(|told| told.expect("it has free slots").len()).collect();
    assert_eq!(counts, [1, 3]);
}

pub(crate) async fn a_claim_beyond_what_the_worker_joined_with_is_a_conflict(bench: &Bench<'_>) {
    bench.register("v", "a").await;
    bench.register("w", "a").await;
    bench.start("v").await;
    bench.start("w").await;
    let worker = bench.stranger();
    let definitions = vec![definition("w", 1, "a")];
    let hello = Hello { definitions, ..worker.hello(LEASE) };
    bench.store.join(hello).await.expect("a new worker can join");
    let key = |name: &str| HandlerKey { workflow: workflow_name(name), version: Version::FIRST };
    let of = |keys: &[&str]| keys.iter().map(|name| key(name)).collect::<Vec<_>>().into();
    let own =
        |is_poll| ClaimRequest { handlers: of(&["w", "w~undo"]), is_poll, ..worker.request(9) };
    for is_poll in [false, true] {
        let wrong = ClaimRequest { handlers: of(&["w", "v"]), ..own(is_poll) };
        let refused = bench.store.claim(wrong).await;
        let Err(StoreError::Conflict(text)) = &refused else { panic!("{refused:?}") };
        let culprit = "workflow \"v\" version 1";
        assert!(text.contains(culprit) && text.contains("join again with it"), "{text}");
    }
    let claimed = bench.store.claim(own(false)).await.expect("it joined with that");
    assert_eq!(claimed.len(), 1);
    // What is wrong with a claim costs nothing of what was done.
    let next = ClaimRequest { handlers: of(&["v"]), ..own(false) };
    let batch = vec![completion(&claimed[0], success())];
    let finished = bench.store.finish_and_claim(batch, next).await.expect("finishing works");
    assert_eq!((finished.answers, finished.claimed.len()), (vec![Answer::Accepted], 0));
}

pub(crate) async fn a_claim_for_an_unregistered_workflow_is_not_found(bench: &Bench<'_>) {
    bench.register("order", "a").await;
    let worker = bench.worker().await;
    let of = |name: &str, version: u32| {
        let version = Version::new(version).expect("versions begin at 1");
        let handlers = [HandlerKey { workflow: workflow_name(name), version }].into();
        ClaimRequest { handlers, ..worker.request(1) }
    };
    for (name, version, near) in
        [("ordr", 1, "the nearest: \"order\""), ("order", 2, "the registered versions: 1")]
    {
        for is_poll in [false, true] {
            let refused = bench.store.claim(ClaimRequest { is_poll, ..of(name, version) }).await;
            let Err(StoreError::NotFound(text)) = &refused else { panic!("{refused:?}") };
            assert!(text.contains(&format!("workflow {name:?} version {version}")), "{text}");
            assert!(text.contains("register it") && text.contains(near), "{text}");
        }
    }
    let told = bench.store.claim_many(vec![of("ordr", 1), bench.worker().await.request(1)]).await;
    assert!(matches!(told[..], [Err(StoreError::NotFound(_)), Ok(_)]), "{told:?}");
    bench.register("ordr", "a").await;
    bench.start("ordr").await;
    assert_eq!(bench.store.claim(of("ordr", 1)).await.map(|claimed| claimed.len()), Ok(1));
}
