//! What becomes of nominal times when their schedule is changed between them.

use windlass_core::schedule::{Cadence, Overlap};
use windlass_core::{RunId, RunState, ScheduleOwner};

use super::super::bench::{Bench, TICK, seconds};
use super::key;
use crate::store::{NewSchedule, ScheduleState};

fn owner() -> ScheduleOwner {
    ScheduleOwner::new("app").expect("it is a name")
}

impl Bench<'_> {
    /// A schedule that a program declares.
    async fn declared(&self, name: &str, overlap: Overlap) -> NewSchedule {
        let mut schedule = self.every_ten(name).await;
        schedule.owner = Some(owner());
        schedule.timing.overlap = overlap;
        schedule
    }

    async fn disable_all(&self) {
        self.store.disable_schedules(owner(), None, vec![]).await.expect("the store is there");
    }

    async fn pause(&self, name: &str) {
        self.store.pause_schedule(key(name)).await.expect("it is there");
    }
}

pub(crate) async fn a_pause_outlasts_being_declared_no_more(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let schedule = bench.declared("s", Overlap::Allow).await;
    bench.put(schedule.clone()).await;
    bench.pause("s").await;
    let disabled = bench.store.disable_schedules(owner(), None, vec![]).await;
    assert_eq!(disabled, Ok(vec![]), "it rests already");
    assert_eq!(bench.put(schedule.clone()).await.state, ScheduleState::Paused);
    bench.store.resume_schedule(key("s")).await.expect("it is there");
    bench.disable_all().await;
    bench.pause("s").await;
    assert_eq!(bench.put(schedule).await.state, ScheduleState::Paused);
    bench.advance(seconds(20)).await;
    assert_eq!(bench.fire().await, 0);
}

pub(crate) async fn a_time_that_waits_is_skipped_if_its_schedule_is_disabled(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    let schedule = bench.declared("s", Overlap::Queue).await;
    bench.put(schedule.clone()).await;
    bench.advance(seconds(20)).await;
    bench.fire().await;
    assert_eq!(bench.fires("s", from).await, ["10 started", "20 queued"]);
    bench.disable_all().await;
    assert_eq!(bench.schedule("s").await.queued_at, None);
    assert_eq!(bench.fires("s", from).await, ["10 started", "20 overlapped"]);
    bench.succeed(&bench.worker().await.claim_one().await).await;
    bench.put(schedule).await;
    assert_eq!(bench.fire().await, 0, "what came before is not run");
}

pub(crate) async fn a_time_that_waits_is_skipped_if_none_waits_any_more(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    let mut schedule = bench.declared("s", Overlap::Queue).await;
    let made = bench.put(schedule.clone()).await;
    bench.advance(seconds(20)).await;
    bench.fire().await;
    let again = bench.put(schedule.clone()).await;
    assert_eq!(again.queued_at, Some(from + seconds(20)), "it waits still");
    schedule.timing.overlap = Overlap::CancelRunning;
    assert_eq!(bench.put(schedule).await.queued_at, None);
    bench.advance(seconds(10)).await;
    bench.fire().await;
    let lines = ["10 started", "20 overlapped", "30 started"];
    assert_eq!(bench.fires("s", from).await, lines);
    let state =
        async |second| bench.run_state(RunId::of_fire(made.id, from + seconds(second))).await;
    assert_eq!((state(10).await, state(30).await), (RunState::Cancelled, RunState::Running));
}

pub(crate) async fn what_had_come_when_a_schedule_rests_is_missed_and_said_to_be(
    bench: &Bench<'_>,
) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    let first = from + seconds(10);
    for name in ["paused", "disabled", "changed"] {
        let mut schedule = bench.declared(name, Overlap::Allow).await;
        schedule.timing.jitter = seconds(3_600);
        let due_at = schedule.timing.due_at(schedule.key.jitter_seed(), first);
        assert!(due_at > first + TICK, "it is served later");
        bench.put(schedule).await;
    }
    bench.advance(seconds(10)).await;
    bench.pause("paused").await;
    let mut changed = bench.schedule("changed").await.schedule;
    changed.timing.cadence = Cadence::every_from(seconds(7), from).expect("it is a cadence");
    changed.timing.jitter = seconds(0);
    bench.put(changed).await;
    let declared = vec![key("paused"), key("changed")];
    let disabled = bench.store.disable_schedules(owner(), None, declared).await;
    assert_eq!(disabled, Ok(vec![key("disabled")]));
    for name in ["paused", "disabled", "changed"] {
        assert_eq!(bench.fires(name, from).await, ["10-10 missed 1"], "{name}");
        assert_eq!(bench.schedule(name).await.last_at, Some(first), "{name}");
    }
    bench.pause("paused").await;
    bench.store.resume_schedule(key("paused")).await.expect("it is there");
    assert_eq!(bench.schedule("paused").await.next_at, Some(from + seconds(20)));
    assert_eq!(bench.fires("paused", from).await.len(), 1, "it is said once");
    bench.advance(seconds(4)).await;
    bench.fire().await;
    assert_eq!(bench.fires("changed", from).await, ["10-10 missed 1", "14 started"]);
}

pub(crate) async fn runs_from_before_it_mattered_are_seen(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    let mut schedule = bench.every_ten("s").await;
    bench.put(schedule.clone()).await;
    bench.advance(seconds(10)).await;
    bench.fire().await;
    schedule.timing.overlap = Overlap::Skip;
    bench.put(schedule).await;
    bench.advance(seconds(10)).await;
    bench.fire().await;
    assert_eq!(bench.fires("s", from).await, ["10 started", "20 overlapped"]);
    bench.succeed(&bench.worker().await.claim_one().await).await;
    bench.advance(seconds(10)).await;
    bench.fire().await;
    assert_eq!(bench.fires("s", from).await[2..], ["30 started"]);
}

pub(crate) async fn a_run_that_is_retried_is_under_way_again(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker().await;
    let from = bench.now().await;
    let mut schedule = bench.every_ten("s").await;
    schedule.timing.overlap = Overlap::Skip;
    let made = bench.put(schedule.clone()).await;
    bench.advance(seconds(10)).await;
    bench.fire().await;
    bench.fail(&worker.claim_one().await).await;
    bench.advance(seconds(10)).await;
    bench.fire().await;
    bench.succeed(&worker.claim_one().await).await;
    let first = RunId::of_fire(made.id, from + seconds(10));
    bench.store.retry_run(first, 1).await.expect("it failed");
    bench.advance(seconds(10)).await;
    bench.fire().await;
    let lines = ["10 started", "20 started", "30 overlapped"];
    assert_eq!(bench.fires("s", from).await, lines);
    schedule.timing.overlap = Overlap::CancelRunning;
    bench.put(schedule).await;
    bench.advance(seconds(10)).await;
    bench.fire().await;
    assert_eq!(bench.run_state(first).await, RunState::Cancelled);
}
