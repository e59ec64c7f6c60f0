//! Schedules as programs declare and see them.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::time::Duration;

use windlass::schedule::{Cadence, Missed, Schedule};
use windlass::store::{RunFilter, SCHEDULE_METADATA, ScheduleState};
use windlass::testing::TestEngine;
use windlass::{Ctx, ErrorKind, RunState, TaskError, Windlass, Workflow};

const MINUTE: Duration = Duration::from_secs(60);

fn report() -> Workflow<u32> {
    let mut report = Workflow::<u32>::builder("report");
    report.task("write").run(async |ctx: Ctx<u32>| Ok::<_, TaskError>(*ctx.input()));
    report.build().unwrap()
}

fn every_minute(name: &str) -> Schedule {
    Schedule::new(name, &report(), 7, Cadence::every(MINUTE).unwrap())
}

#[tokio::test]
async fn a_schedule_starts_runs_that_workers_finish() {
    let test = TestEngine::new().register(&report());
    let schedule = every_minute("s").missed(Missed::All(10)).ends_at(test.now() + 3 * MINUTE);
    test.windlass().schedule(schedule).await.unwrap();
    test.advance(5 * MINUTE).await;
    let metadata = Some((SCHEDULE_METADATA.to_owned(), "s".to_owned()));
    let filter = RunFilter { metadata, ..RunFilter::default() };
    let runs = test.windlass().list(filter).await.unwrap().runs;
    assert_eq!(runs.len(), 3);
    assert!(runs.iter().all(|run| run.state == RunState::Succeeded), "{runs:?}");
}

/// Waits until a schedule is in a state.
async fn until(windlass: &Windlass, name: &str, state: ScheduleState) {
    let look = async {
        loop {
            let record = windlass.scheduled("default", name).unwrap().get().await.unwrap();
            if record.is_some_and(|record| record.state == state) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(MINUTE, look).await.expect("it comes to that");
}

#[tokio::test]
async fn what_a_program_declares_is_made_and_what_it_declares_no_more_is_disabled() {
    let windlass = Windlass::memory();
    let report = report();
    let by_hand = windlass.schedule(every_minute("by-hand")).await.unwrap();
    let worker = windlass.worker().register(&report);
    let first = worker.schedules("app", [every_minute("a"), every_minute("b")]).spawn().unwrap();
    until(&windlass, "a", ScheduleState::Active).await;
    until(&windlass, "b", ScheduleState::Active).await;
    first.drain().await.unwrap();
    let worker = windlass.worker().register(&report);
    let second = worker.schedules("app", [every_minute("a")]).spawn().unwrap();
    until(&windlass, "b", ScheduleState::Disabled).await;
    until(&windlass, "a", ScheduleState::Active).await;
    second.drain().await.unwrap();
    let still = windlass.scheduled("default", "by-hand").unwrap().get().await.unwrap().unwrap();
    assert_eq!((still.state, still.next_at), (ScheduleState::Active, by_hand.next_at));
}

#[tokio::test]
async fn a_declaration_that_is_refused_stops_none_behind_it_and_disables_nothing() {
    let windlass = Windlass::memory();
    let report = report();
    let worker = windlass.worker().register(&report);
    let first = worker.schedules("app", [every_minute("b"), every_minute("d")]).spawn().unwrap();
    until(&windlass, "b", ScheduleState::Active).await;
    until(&windlass, "d", ScheduleState::Active).await;
    first.drain().await.unwrap();
    let worker = windlass.worker().register(&report);
    let bad = every_minute("b").missed(Missed::All(0));
    let all = [every_minute("a"), bad, every_minute("c")];
    let second = worker.schedules("app", all).spawn().unwrap();
    until(&windlass, "d", ScheduleState::Disabled).await;
    until(&windlass, "a", ScheduleState::Active).await;
    until(&windlass, "c", ScheduleState::Active).await;
    let kept = windlass.scheduled("default", "b").unwrap().get().await.unwrap().unwrap();
    assert_eq!((kept.state, kept.schedule.timing.missed), (ScheduleState::Active, Missed::Skip));
    second.drain().await.unwrap();
}

#[tokio::test]
async fn a_schedule_that_is_declared_twice_is_refused() {
    let windlass = Windlass::memory();
    let worker = || windlass.worker().register(&report());
    let twice = [every_minute("a"), every_minute("b"), every_minute("a").priority(1)];
    let error = worker().schedules("app", twice).spawn().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    let text = "\"app\" declares schedule \"a\" of tenant \"default\" twice";
    assert!(error.to_string().contains(text), "{error}");
    let apart = [every_minute("a"), every_minute("a").tenant("acme")];
    worker().schedules("app", apart).spawn().unwrap().drain().await.unwrap();
}

#[tokio::test]
async fn schedules_that_cannot_be_are_refused_before_they_are_stored() {
    let windlass = Windlass::memory();
    let kind = |error: windlass::Error| error.kind();
    let error = windlass.schedule(every_minute("")).await.unwrap_err();
    assert_eq!(kind(error), ErrorKind::Argument);
    let error = windlass.schedule(every_minute("s").priority(101)).await.unwrap_err();
    assert_eq!(kind(error), ErrorKind::Argument);
    let error = windlass.schedule(every_minute("s").missed(Missed::All(0))).await.unwrap_err();
    assert_eq!(kind(error), ErrorKind::Conflict);
    let error: windlass::Error = Cadence::cron("0 25 * * *", "UTC").unwrap_err().into();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Argument, "WL-0002"));
    let unnamed = windlass.worker().register(&report()).schedules("", []).spawn();
    assert_eq!(kind(unnamed.unwrap_err()), ErrorKind::Argument);
}
