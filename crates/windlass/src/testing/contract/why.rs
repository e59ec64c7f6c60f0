//! Why a run or a task does not go on.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::why::{Count, LaneHolder, Missing, SILENT_MAX, Served, TimeCause};
use windlass_core::{
    Call, CandidateId, Decision, Limit, Parking, QueueName, Reason, RunId, SignalKey, StepChange,
    StepKind, StepName, StepWrite, TaskName, TaskState, Version, Wait, Why, WorkerId,
};

use super::bench::{
    Bench, LEASE, TICK, Worker, definition, failure, hold, json, names, priority, retry_after,
    seconds, success, tenant,
};
use crate::store::{
    Answer, Candidacy, ChildStart, ClaimRequest, Claimed, HandlerKey, Hello, Mailbox, NewKeySignal,
    NewRun, ProgressNote, Tallies, WorkerInfo,
};

impl Bench<'_> {
    async fn why(&self, run: RunId) -> Why {
        let why = self.store.why(run, None).await.expect("reading works");
        why.unwrap_or_else(|| panic!("run {run} does not exist"))
    }

    async fn reasons(&self, run: RunId, task: &str) -> Vec<Reason> {
        let name = Some(TaskName::new(task).expect("the case names a task"));
        let why = self.store.why(run, name).await.expect("reading works");
        let mut why = why.unwrap_or_else(|| panic!("run {run} has no task {task:?}"));
        assert_eq!(why.tasks.len(), 1, "{why:?}");
        let task = why.tasks.remove(0);
        let record = self.task(run, task.name.as_str()).await;
        assert_eq!((task.state, task.attempt), (record.state, record.attempt));
        task.reasons
    }

    /// The only reason that a task does not go on, besides that nobody does the duties.
    pub(super) async fn reason(&self, run: RunId, task: &str) -> Reason {
        let mut reasons = self.reasons(run, task).await;
        reasons.retain(|reason| !matches!(reason, Reason::NoLeader { .. }));
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        reasons.remove(0)
    }

    /// A worker that says which queues it serves, and which versions of workflow `w` it knows.
    async fn server(&self, queues: &[&str], versions: &[u32], slots: u32) -> Worker<'_> {
        let worker = self.stranger();
        let queues = queues.iter().map(|name| QueueName::new(name).expect("it is a name"));
        let info = WorkerInfo { queues: queues.collect(), ..WorkerInfo::default() };
        let definitions = versions.iter().map(|version| definition("w", *version, "a b<a"));
        let definitions = definitions.collect();
        let hello = Hello { info, definitions, slots, ..worker.hello(LEASE) };
        self.store.join(hello).await.expect("a new worker can join");
        worker
    }

    async fn served(&self, run: RunId) -> Served {
        self.ready(run).await.2
    }

    /// Where the first task of a run stands in the default queue, and who serves it.
    async fn ready(&self, run: RunId) -> (Count, Count, Served) {
        let reason = self.reason(run, "a").await;
        let Reason::Ready { queue, own_before, all_before, served, .. } = reason else {
            panic!("it is not ready: {reason:?}");
        };
        assert_eq!(queue, QueueName::default());
        (own_before, all_before, served)
    }

    async fn lead(&self, ttl: Duration) -> CandidateId {
        let candidate = CandidateId::from_random(7);
        let (name, tallies) = ("leader".to_owned(), Tallies::new());
        let candidacy = Candidacy { candidate, name, ttl, rotation: None, tallies };
        self.store.lead(candidacy).await.expect("it can lead");
        candidate
    }
}

pub(super) fn count(number: u64) -> Count {
    Count::new(number)
}

fn step_name(name: &str) -> StepName {
    StepName::new(name).expect("the case names a step")
}

/// A function parks until these calls have their results.
fn park(calls: Vec<(StepKind, &str, Option<&str>, Wait)>, awaits: bool) -> Decision {
    let write =
        |(number, (kind, name, key, wait)): (usize, (StepKind, &str, Option<&str>, Wait))| {
            let change = StepChange::Open { failures: 0, failure: None, wait };
            let key = key.map(|key| SignalKey::new(key).expect("the case names a key"));
            let call = Call(u32::try_from(number).expect("few calls") + 1);
            StepWrite { call, name: step_name(name), kind, key, change }
        };
    let steps = calls.into_iter().enumerate().map(write).collect();
    Decision::Park(Parking { steps, waits: Vec::new(), awaits })
}

pub(crate) async fn nobody_can_be_asked_about_what_is_not_there(bench: &Bench<'_>) {
    assert_eq!(bench.store.why(bench.run_id(), None).await, Ok(None));
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let nobody = Some(TaskName::new("b").expect("it is a name"));
    assert_eq!(bench.store.why(run, nobody).await, Ok(None));
    let why = bench.why(run).await;
    assert_eq!((why.run, why.at, why.open_tasks), (run, bench.now().await, 1));
    assert!(why.reasons.is_empty() && why.ended_at.is_none());
}

pub(crate) async fn a_task_waits_for_its_parents_by_name(bench: &Bench<'_>) {
    bench.register("w", "a b c<a,b !sorry").await;
    let run = bench.start("w").await;
    let first = ["a", "b"].map(|name| TaskName::new(name).expect("a name"));
    let [_, b] = first.clone();
    assert_eq!(bench.reason(run, "c").await, Reason::Parents { pending: 2, first: first.into() });
    assert_eq!(bench.reason(run, "sorry").await, Reason::RestOfRun { open: 3 });
    let worker = bench.worker().await;
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.reason(run, "c").await, Reason::Parents { pending: 1, first: vec![b] });
    // What waits for others is not told of unless it is asked about.
    let why = bench.why(run).await;
    assert_eq!(why.tasks.iter().map(|task| task.name.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!((why.open_tasks, why.has_more_tasks), (2, false));
}

pub(crate) async fn a_task_waits_for_its_time_and_says_what_for(bench: &Bench<'_>) {
    bench.lead(seconds(10_000)).await;
    bench.register("w", "a nap~60000<a").await;
    let late = NewRun { delay: seconds(60), ..bench.new_run("w") };
    let run = bench.start_run(late).await;
    let until = bench.now().await + seconds(60);
    assert_eq!(bench.reasons(run, "a").await, [Reason::Time { until, cause: TimeCause::Delay }]);
    bench.advance(seconds(60)).await;
    let due = Reason::Due { since: until, cause: TimeCause::Delay };
    assert_eq!(bench.reasons(run, "a").await, [due]);
    bench.promote().await;
    let worker = bench.worker().await;
    bench.accept(&worker.claim_one().await, retry_after(seconds(5))).await;
    let until = bench.now().await + seconds(5);
    let backoff = TimeCause::Backoff { failure: failure() };
    assert_eq!(bench.reasons(run, "a").await, [Reason::Time { until, cause: backoff }]);
    bench.advance(seconds(5)).await;
    bench.promote().await;
    bench.succeed(&worker.claim_one().await).await;
    let until = bench.now().await + seconds(60);
    assert_eq!(bench.reasons(run, "nap").await, [Reason::Time { until, cause: TimeCause::Sleep }]);
}

pub(crate) async fn a_timer_without_a_leader_says_so(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start_run(NewRun { delay: seconds(60), ..bench.new_run("w") }).await;
    let vacancy = |last: Option<&str>, until| Reason::NoLeader {
        duty: "promote_due".to_owned(),
        last: last.map(str::to_owned),
        until,
    };
    assert_eq!(bench.reasons(run, "a").await[1..], [vacancy(None, None)]);
    let candidate = bench.lead(seconds(30)).await;
    let until = bench.now().await + seconds(30);
    assert_eq!(bench.reasons(run, "a").await.len(), 1);
    bench.advance(seconds(30) - TICK).await;
    assert_eq!(bench.reasons(run, "a").await.len(), 1);
    bench.advance(TICK).await;
    assert_eq!(bench.reasons(run, "a").await[1..], [vacancy(Some("leader"), Some(until))]);
    bench.lead(seconds(30)).await;
    bench.store.resign(candidate, Tallies::new()).await.expect("it can resign");
    let until = bench.now().await + seconds(30);
    // The end of a term that was given up is when it was.
    let last = bench.reasons(run, "a").await.pop();
    let Some(Reason::NoLeader { last, until: told, .. }) = last else { panic!("{last:?}") };
    assert_eq!(last.as_deref(), Some("leader"));
    assert!(told.is_some_and(|told| told <= until));
}

pub(crate) async fn a_function_waits_for_signals_times_and_children(bench: &Bench<'_>) {
    bench.lead(seconds(10_000)).await;
    bench.register("w", "a").await;
    bench.register("child", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    let child = |place: u32| {
        let run = NewRun {
            id: RunId::of_child(claimed.task.run, u128::from(place + 1) << 64),
            ..bench.new_run("child")
        };
        let definition = definition("child", 1, "a");
        ChildStart { held: hold(&claimed), call: Call(4), place: Some(place), run, definition }
    };
    let starts = vec![child(0), child(1)];
    let children: Vec<RunId> = starts.iter().map(|start| start.run.id).collect();
    bench.store.start_children(starts).await.expect("starting works");
    let calls = vec![
        (StepKind::Signal, "paid", None, Wait::For(seconds(60))),
        (StepKind::Signal, "paid", Some("pay_1"), Wait::Forever),
        (StepKind::Sleep, "nap", None, Wait::For(seconds(90))),
        (StepKind::Child, "parts", None, Wait::Children(0)),
    ];
    bench.accept(&claimed, park(calls, true)).await;
    let now = bench.now().await;
    let key = SignalKey::new("pay_1").expect("a key");
    let signal = |call, key: Option<SignalKey>, until, has_come| {
        let name = step_name("paid");
        Reason::Signal { call: Call(call), name, key, until, has_come }
    };
    let nap = TimeCause::Call { call: Call(3), name: step_name("nap"), failures: 0, failure: None };
    let parts = |open: u64, first: &[RunId]| Reason::Children {
        call: Call(4),
        name: step_name("parts"),
        open: count(open),
        goes_on_at: 0,
        first: first.to_vec(),
    };
    let expected = [
        signal(1, None, Some(now + seconds(60)), false),
        Reason::Time { until: now + seconds(90), cause: nap.clone() },
        signal(2, Some(key.clone()), None, false),
        parts(2, &children),
    ];
    assert_eq!(bench.reasons(run, "a").await, expected);
    // A child that ended, and a signal that came, are heard of by the next sweep.
    bench.succeed(&worker.claim_one().await).await;
    bench.promote().await;
    assert_eq!(bench.reasons(run, "a").await[3], parts(1, &children[1..]));
    let to = Mailbox { tenant: tenant("default"), key: key.clone(), name: step_name("paid") };
    let id = windlass_core::SignalId::from_random(1);
    let (value, keep_for) = (json("1"), seconds(60));
    let new = NewKeySignal { id, to, value, keep_for };
    bench.store.signal_key(new).await.expect("it can be sent");
    assert_eq!(bench.reasons(run, "a").await[2], signal(2, Some(key), None, true));
    bench.promote().await;
    assert_eq!(bench.task(run, "a").await.state, TaskState::Ready);
}

pub(crate) async fn a_sleeping_function_says_which_call_sleeps(bench: &Bench<'_>) {
    bench.lead(seconds(10_000)).await;
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    let calls = vec![(StepKind::Sleep, "nap", None, Wait::For(seconds(60)))];
    bench.accept(&claimed, park(calls, false)).await;
    let until = bench.now().await + seconds(60);
    let cause =
        TimeCause::Call { call: Call(1), name: step_name("nap"), failures: 0, failure: None };
    let asleep = Reason::Time { until, cause };
    assert_eq!(bench.reasons(run, "a").await, [asleep]);
    // Woken and failed, it pauses: the call that waits is not why.
    bench.advance(seconds(60)).await;
    bench.promote().await;
    bench.accept(&worker.claim_one().await, retry_after(seconds(5))).await;
    let until = bench.now().await + seconds(5);
    let cause = TimeCause::Backoff { failure: failure() };
    assert_eq!(bench.reasons(run, "a").await, [Reason::Time { until, cause }]);
}

pub(crate) async fn a_task_waits_for_a_slot_and_says_who_has_it(bench: &Bench<'_>) {
    let mut draft = definition("w", 1, "a").to_draft();
    draft.tasks[0].limits = vec![Limit::per("key", 2).named("per key")];
    let limited = Arc::new(draft.build().expect("it is a workflow"));
    bench.try_register(limited).await.expect("it can be registered");
    let mut runs = Vec::new();
    for _ in 0..5 {
        let run = NewRun { input: json(r#"{"key":"x"}"#), ..bench.new_run("w") };
        runs.push(bench.start_run(run).await);
    }
    let holder = |run: RunId| LaneHolder { run, task: TaskName::new("a").expect("a name") };
    let lane = |before: u64, holders: &[RunId]| Reason::Lane {
        limit: windlass_core::LimitName::new("per key").expect("a name"),
        key: Some(windlass_core::LaneKey::new("x").expect("a key")),
        slots: 2,
        held: 2,
        before: count(before),
        holders: holders.iter().copied().map(holder).collect(),
    };
    assert_eq!(bench.reasons(runs[2], "a").await, [lane(0, &runs[..2])]);
    assert_eq!(bench.reasons(runs[4], "a").await, [lane(2, &runs[..2])]);
    let worker = bench.worker().await;
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.reasons(runs[4], "a").await, [lane(1, &runs[1..3])]);
    assert!(matches!(bench.reason(runs[2], "a").await, Reason::Ready { .. }));
}

pub(crate) async fn a_ready_task_says_what_stands_before_it(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.register("v", "a@mail").await;
    bench.start("v").await;
    let mine = bench.start_for("w", "me", 3).await;
    let theirs = bench.start_for("w", "you", 2).await;
    let first = NewRun { priority: priority(5), ..bench.new_run("w") };
    let first = bench.start_run(first).await;
    let before = async |run| {
        let (own, all, _) = bench.ready(run).await;
        (own.at_least, all.at_least)
    };
    assert_eq!(before(first).await, (0, 0));
    let last = before(mine[2]).await;
    assert_eq!(last.0, 2);
    assert!(before(mine[0]).await.1 <= 2);
    // As many as are said to stand before it are claimed before it.
    let all = [mine, theirs].concat();
    for run in all {
        let (_, before) = before(run).await;
        let worker = bench.worker().await;
        let claimed = worker.claim(usize::try_from(before).expect("few")).await;
        assert!(claimed.iter().all(|task| task.task.run != run), "it stands behind {before}");
        let next = worker.claim(1).await;
        assert_eq!(next.first().map(|task| task.task.run), Some(run));
        for task in claimed.iter().chain(&next) {
            bench.release(task, Duration::ZERO).await;
        }
        worker.leave().await;
    }
}

pub(crate) async fn what_is_counted_stops_at_its_limit(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start_for("w", "me", 1_000).await;
    let [other, last, beyond] = [
        bench.start_for("w", "you", 1).await,
        bench.start_for("w", "me", 1).await,
        bench.start_for("w", "me", 1).await,
    ];
    let ready = async |runs: &[RunId]| {
        let (own, all, _) = bench.ready(runs[0]).await;
        (own, all)
    };
    let (own, all) = ready(&other).await;
    assert!(own.at_least == 0 && all.at_least <= 1);
    let (own, all) = ready(&last).await;
    assert_eq!((own.at_least, own.is_more), (1_000, false));
    assert_eq!((all.at_least, all.is_more), (1_000, true));
    let (own, _) = ready(&beyond).await;
    assert_eq!((own.at_least, own.is_more), (1_000, true));
}

pub(crate) async fn a_ready_task_says_what_the_live_workers_lack(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    let run = bench.start("w").await;
    let nobody = |missing| Served::Nobody { missing };
    assert_eq!(bench.served(run).await, nobody(Missing::Worker));
    let queue = |name: &str| QueueName::new(name).expect("a name");
    bench.server(&["mail", "slow"], &[1], 1).await;
    let served = vec![queue("mail"), queue("slow")];
    assert_eq!(bench.served(run).await, nobody(Missing::Queue { served }));
    bench.server(&["default"], &[], 1).await;
    assert_eq!(bench.served(run).await, nobody(Missing::Workflow { served: Vec::new() }));
    bench.server(&["default"], &[3, 2], 1).await;
    let served = [2, 3].map(|number| Version::new(number).expect("a version")).to_vec();
    assert_eq!(bench.served(run).await, nobody(Missing::Version { served }));
    let worker = bench.server(&["default"], &[1], 1).await;
    assert_eq!(bench.served(run).await, Served::Free { workers: 1, free_slots: 1 });
    // A worker that was not heard of for long does not count.
    bench.advance(LEASE + SILENT_MAX - TICK).await;
    assert_eq!(bench.served(run).await, Served::Free { workers: 1, free_slots: 1 });
    bench.advance(TICK).await;
    assert_eq!(bench.served(run).await, nobody(Missing::Worker));
    worker.extend(&[]).await;
    assert_eq!(bench.served(run).await, Served::Free { workers: 1, free_slots: 1 });
}

pub(crate) async fn a_ready_task_whose_workers_are_busy_or_end_says_so(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    bench.start("w").await;
    let worker = bench.server(&["default"], &[1], 1).await;
    let claimed = worker.claim_one().await;
    let run = bench.start("w").await;
    assert_eq!(bench.served(run).await, Served::Busy { workers: 1, draining: 0 });
    let other = bench.server(&["default"], &[1], 4).await;
    assert_eq!(bench.served(run).await, Served::Free { workers: 2, free_slots: 4 });
    bench.store.begin_drain(other.id).await.expect("saying so works");
    assert_eq!(bench.served(run).await, Served::Busy { workers: 1, draining: 1 });
    // One that is late is given nothing more.
    bench.succeed(&claimed).await;
    assert_eq!(bench.served(run).await, Served::Free { workers: 1, free_slots: 1 });
    let next = worker.claim_one().await;
    assert_eq!(names(std::slice::from_ref(&next)).len(), 1);
    bench.advance(LEASE).await;
    let waiting = bench.start("w").await;
    assert_eq!(bench.served(waiting).await, Served::Busy { workers: 0, draining: 1 });
}

pub(crate) async fn a_running_task_says_whose_it_is_and_for_how_long(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    bench.advance(seconds(1)).await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    let since = bench.now().await;
    bench.advance(seconds(10)).await;
    let mut heartbeat = worker.heartbeat(&[&claimed]);
    heartbeat.progress = vec![ProgressNote { held: hold(&claimed), note: json(r#"{"done":7}"#) }];
    bench.store.extend(heartbeat).await.expect("it can be extended");
    let running = |id: WorkerId, lease_until| Reason::Running {
        worker: id,
        worker_name: format!("worker {id}"),
        since: Some(since),
        lease_until,
        progress: Some(json(r#"{"done":7}"#)),
    };
    let lease_until = bench.now().await + LEASE;
    assert_eq!(bench.reasons(run, "a").await, [running(worker.id, lease_until)]);
    bench.advance(LEASE - TICK).await;
    assert_eq!(bench.reasons(run, "a").await, [running(worker.id, lease_until)]);
    bench.advance(TICK).await;
    let worker_name = format!("worker {}", worker.id);
    let expired = Reason::LeaseExpired { worker: worker.id, worker_name, since: lease_until };
    let vacancy = Reason::NoLeader { duty: "reap".to_owned(), last: None, until: None };
    assert_eq!(bench.reasons(run, "a").await, [expired.clone(), vacancy]);
    bench.lead(seconds(60)).await;
    assert_eq!(bench.reasons(run, "a").await, [expired]);
    bench.reap().await;
    assert!(matches!(bench.reason(run, "a").await, Reason::Ready { .. }));
}

pub(crate) async fn what_has_ended_says_how(bench: &Bench<'_>) {
    bench.register("w", "a*1 b<a c").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    for claimed in worker.claim(2).await {
        let is_first = claimed.spec.name.as_str() == "a";
        let decision = if is_first { Decision::Fail(failure()) } else { success() };
        bench.accept(&claimed, decision).await;
    }
    let why = bench.why(run).await;
    assert_eq!(
        (why.state, why.ended_at),
        (windlass_core::RunState::Failed, Some(bench.now().await))
    );
    let failed = Reason::Failed { failure: Some(failure()) };
    let [task] = &why.tasks[..] else { panic!("{why:?}") };
    assert_eq!((task.name.as_str(), &task.reasons[..]), ("a", &[failed][..]));
    assert_eq!(bench.reasons(run, "b").await, [Reason::Ended]);
    assert_eq!(bench.reasons(run, "c").await, [Reason::Ended]);
    let done = bench.start("w").await;
    bench.store.cancel_run(done, Some("not wanted".into())).await.expect("it can be cancelled");
    let why = bench.why(done).await;
    assert!(why.tasks.is_empty());
    assert_eq!(why.reasons, [Reason::Cancelled { why: Some("not wanted".to_owned()) }]);
    assert_eq!(bench.reasons(done, "a").await, [Reason::Ended]);
}

pub(crate) async fn of_a_large_run_the_first_tasks_are_told(bench: &Bench<'_>) {
    let tasks: Vec<String> = (0..11).map(|n| format!("t{n}")).collect();
    let all = format!("{} last<{}", tasks.join(" "), tasks.join(","));
    bench.register("w", &all).await;
    let run = bench.start("w").await;
    let why = bench.why(run).await;
    assert_eq!((why.tasks.len(), why.has_more_tasks), (10, true));
    let Reason::Parents { pending, first } = bench.reason(run, "last").await else {
        panic!("it waits for its parents");
    };
    assert_eq!((pending, first.len()), (11, 10));
    bench.succeed(&bench.worker().await.claim_one().await).await;
    let why = bench.why(run).await;
    assert_eq!((why.tasks.len(), why.has_more_tasks), (10, false));
}

/// A worker, and what it told of itself.
struct Told<'a> {
    worker: Worker<'a>,
    queues: Vec<QueueName>,
    handlers: Vec<HandlerKey>,
    slots: usize,
    held: Vec<Claimed>,
    is_draining: bool,
}

impl Told<'_> {
    /// Claims from some queues what it has handlers for, into free slots.
    async fn claim(&self, queues: &[QueueName], limit: usize) -> Vec<Claimed> {
        self.claim_beside(0, queues, limit).await
    }

    /// Does the same while this many of its tasks end, and take no slots.
    async fn claim_beside(
        &self,
        ending: usize,
        queues: &[QueueName],
        limit: usize,
    ) -> Vec<Claimed> {
        let handlers = self.handlers.clone().into();
        let request = self.worker.request(limit);
        let request = ClaimRequest { queues: queues.into(), handlers, ending, ..request };
        self.worker.bench().store.claim(request).await.expect("a worker that lives can claim")
    }
}

/// Numbers that look drawn, and are the same every time.
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }

    fn some<T: Clone>(&mut self, all: &[T]) -> Vec<T> {
        all.iter().filter(|_| self.below(100) < 60).cloned().collect()
    }
}

pub(crate) async fn whoever_is_said_to_serve_a_task_can_claim_it_and_nobody_else_can(
    bench: &Bench<'_>,
) {
    let definitions =
        [definition("w", 1, "a"), definition("w", 2, "a@mail"), definition("v", 1, "a^1")];
    for definition in &definitions {
        bench.try_register(definition.clone()).await.expect("it can be registered");
    }
    let queues = ["default", "mail"].map(|name| QueueName::new(name).expect("a name"));
    let mut drawn = Drawn(7);
    let (mut runs, mut workers) = (Vec::new(), Vec::<Told<'_>>::new());
    let (mut served_by_some, mut served_by_none) = (0, 0);
    for _ in 0..15 {
        let definition = &definitions[drawn.below(3)];
        let (workflow, version) = (definition.name().clone(), definition.version());
        let tenant = tenant(["me", "you"][drawn.below(2)]);
        let run = NewRun { workflow, version, tenant, ..bench.new_run("w") };
        runs.push((bench.start_run(run).await, definition.clone()));
        match drawn.below(6) {
            0 | 1 if workers.len() < 5 => {
                let worker = bench.stranger();
                let definitions = drawn.some(&definitions);
                let info = WorkerInfo { queues: drawn.some(&queues), ..WorkerInfo::default() };
                let slots = 1 + drawn.below(2);
                let hello = Hello {
                    definitions,
                    slots: u32::try_from(slots).expect("few"),
                    info: info.clone(),
                    ..worker.hello(seconds(10_000))
                };
                let handlers = hello.workflows();
                bench.store.join(hello).await.expect("it can join");
                let (held, is_draining) = (Vec::new(), false);
                let queues = info.queues;
                workers.push(Told { worker, queues, handlers, slots, held, is_draining });
            }
            2 if !workers.is_empty() => {
                let worker = drawn.below(workers.len());
                let told = &mut workers[worker];
                if !told.is_draining {
                    let free = told.slots - told.held.len();
                    let claimed = told.claim(&told.queues, free).await;
                    told.held.extend(claimed);
                }
            }
            3 if !workers.is_empty() => {
                let worker = drawn.below(workers.len());
                for held in std::mem::take(&mut workers[worker].held) {
                    bench.succeed(&held).await;
                }
            }
            4 if workers.len() > 2 => {
                let worker = drawn.below(workers.len());
                let told = &mut workers[worker];
                bench.store.begin_drain(told.worker.id).await.expect("saying so works");
                told.is_draining = true;
            }
            _ => {}
        }
        for (run, definition) in &runs {
            if bench.task(*run, "a").await.state != TaskState::Ready {
                continue;
            }
            let reason = bench.reason(*run, "a").await;
            let Reason::Ready { queue, all_before, served, .. } = reason else {
                panic!("it is not ready: {reason:?}");
            };
            let mut has_claimed = false;
            for told in workers.iter().filter(|told| !told.is_draining) {
                if told.held.len() == told.slots {
                    continue;
                }
                // The tasks before it, and it: more than there are slots.
                let limit = usize::try_from(all_before.at_least).expect("few") + 1;
                let mine: Vec<_> = told.queues.iter().filter(|it| **it == queue).cloned().collect();
                // Twice, since one of several claims begins with a lower priority.
                for _ in 0..2 {
                    let claimed = told.claim_beside(limit, &mine, limit).await;
                    has_claimed |= claimed.iter().any(|task| task.task.run == *run);
                    for task in &claimed {
                        assert_eq!(bench.release(task, Duration::ZERO).await, Answer::Accepted);
                    }
                }
            }
            let is_served = matches!(served, Served::Free { .. });
            let name = definition.name();
            assert_eq!(
                is_served,
                has_claimed,
                "{name} version {}: {served:?}",
                definition.version()
            );
            served_by_some += u32::from(is_served);
            served_by_none += u32::from(!is_served);
        }
    }
    assert!(served_by_some > 5 && served_by_none > 5, "{served_by_some} and {served_by_none}");
}
