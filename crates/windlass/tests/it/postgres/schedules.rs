//! Schedules that only a database can have: ones that cannot be fired, or not be read.

use std::time::Duration;

use futures_util::future::join_all;
use windlass::schedule::{Cadence, Timing};
use windlass::store::{
    NewSchedule, SCHEDULES_MAX, ScheduleFilter, ScheduleKey, ScheduleStore, Store, StoreError,
};
use windlass_core::{Payload, Priority, RunState, ScheduleName, Tenant};

use super::driver::workflow;
use super::{Postgres, postgres};

const TEN: Duration = Duration::from_secs(10);

/// A schedule of workflow `one` that fires every ten seconds.
fn every_ten(name: &str) -> NewSchedule {
    let one = workflow("one", &["a"]);
    NewSchedule {
        key: ScheduleKey {
            tenant: Tenant::new("acme").expect("it is a name"),
            name: ScheduleName::new(name).expect("it is a name"),
        },
        workflow: one.name().clone(),
        version: one.version(),
        input: Payload::default(),
        priority: Priority::default(),
        timing: Timing::new(Cadence::every(TEN).expect("it is a cadence")),
        owner: None,
    }
}

async fn with(names: &[&str]) -> Postgres {
    let test = postgres().await;
    test.store.register(workflow("one", &["a"])).await.expect("it can be registered");
    for name in names {
        test.store.put_schedule(every_ten(name)).await.expect("it makes sense");
    }
    test
}

async fn execute(test: &Postgres, sql: &str) {
    test.database.client().await.batch_execute(sql).await.expect("the test may do that");
}

async fn fires(test: &Postgres, name: &str) -> usize {
    test.store.list_fires(every_ten(name).key, 100).await.expect("reading works").len()
}

#[tokio::test]
async fn nobody_can_guess_the_runs_of_another_ones_schedule() {
    let names: Vec<String> = (0..20).map(|number| format!("schedule {number}")).collect();
    let test = with(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut numbers = Vec::new();
    for name in &names {
        let record = test.store.get_schedule(every_ten(name).key).await.expect("reading works");
        numbers.push(record.expect("it is there").id.0);
    }
    let again = test.store.put_schedule(every_ten(&names[0])).await.expect("it makes sense");
    assert_eq!(again.id.0, numbers[0], "it stays what it is");
    numbers.sort_unstable();
    let gaps = numbers.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.min() > Some(1_000_000), "{numbers:?}");
    assert!(numbers.iter().all(|number| *number <= 1 << 52), "JSON can say them");
}

#[tokio::test]
async fn a_schedule_with_a_small_number_gets_a_random_one_when_it_is_made_again() {
    let test = with(&["new"]).await;
    // As an earlier version made them.
    let copies = "
        insert into windlass.schedules (tenant, name, workflow, version, priority, state, cadence,
            missed, overlap, jitter_micros, grace_micros, created_at, next_at, due_at, input)
        select tenant, 'old ' || n, workflow, version, priority, state, cadence, missed, overlap,
            jitter_micros, grace_micros, created_at, next_at, due_at, input
        from windlass.schedules, generate_series(1, 2) n";
    execute(&test, copies).await;
    let mut numbers = Vec::new();
    for name in ["old 1", "old 2"] {
        let old = test.store.put_schedule(every_ten(name)).await.expect("it makes sense").id.0;
        assert!(old < 10, "{name} has the number {old}");
        test.store.delete_schedule(every_ten(name).key).await.expect("it is there");
        numbers.push(test.store.put_schedule(every_ten(name)).await.expect("it makes sense").id.0);
    }
    assert!(numbers[0].abs_diff(numbers[1]) > 1_000_000, "{numbers:?}");
    assert!(numbers.iter().all(|number| *number > 1_000_000), "{numbers:?}");
}

#[tokio::test]
async fn a_schedule_that_cannot_be_fired_stops_no_other() {
    let test = with(&["a", "bad", "c"]).await;
    let refuse = "alter table windlass.runs add constraint not_this
        check (metadata ->> 'windlass.schedule' <> 'bad')";
    execute(&test, refuse).await;
    test.clock.advance(TEN);
    let sweep = test.store.fire_schedules(100).await.expect("the others fire");
    assert_eq!(sweep.moved, 2);
    let sweep = test.store.fire_schedules(100).await.expect("it is passed over");
    assert_eq!((sweep.moved, sweep.next_at), (0, Some(sweep.at + TEN)), "it is no hurry");
    assert_eq!((fires(&test, "a").await, fires(&test, "bad").await), (1, 0));
    // What is mended soon has missed nothing.
    execute(&test, "alter table windlass.runs drop constraint not_this").await;
    test.clock.advance(3 * TEN);
    test.store.fire_schedules(100).await.expect("firing works");
    assert_eq!((fires(&test, "a").await, fires(&test, "bad").await), (4, 4));
}

#[tokio::test]
async fn many_schedules_that_cannot_be_fired_are_told_of_and_block_nothing() {
    let names: Vec<String> = (0..150).map(|number| format!("bad {number}")).collect();
    let mut all: Vec<&str> = names.iter().map(String::as_str).collect();
    all.push("good");
    let test = with(&all).await;
    let refuse = "alter table windlass.runs add constraint not_these
        check (metadata ->> 'windlass.schedule' = 'good');
        update windlass.schedules set due_at = due_at + interval '1 second' where name = 'good'";
    execute(&test, refuse).await;
    test.clock.advance(TEN + Duration::from_secs(1));
    let mut errors = 0;
    while fires(&test, "good").await == 0 {
        errors += u32::from(test.store.fire_schedules(100).await.is_err());
        assert!(errors < 10, "it gets nowhere");
    }
    assert_eq!(errors, 1, "a sweep of which nothing could be fired has failed");
}

#[tokio::test]
async fn schedules_that_cannot_be_read_are_passed_over_and_listed_as_such() {
    let test = with(&["good"]).await;
    // Half of them are due before it, and of the others a time waits.
    let copies = "
        insert into windlass.schedules (tenant, name, workflow, version, priority, state, cadence,
            missed, overlap, jitter_micros, grace_micros, created_at, next_at, due_at, queued_at,
            input)
        select tenant, 'of tomorrow ' || n, workflow, version, priority, state,
            '{\"moon\": \"full\"}', missed, overlap, jitter_micros, grace_micros, created_at, next_at,
            due_at + n % 2 * interval '1 day', case n % 2 when 1 then created_at end, input
        from windlass.schedules, generate_series(1, 250) n;
        update windlass.schedules set due_at = due_at + interval '1 second' where name = 'good'";
    execute(&test, copies).await;
    test.clock.advance(TEN + Duration::from_secs(1));
    let mut sweeps = 0;
    while fires(&test, "good").await == 0 {
        test.store.fire_schedules(100).await.expect("firing works");
        sweeps += 1;
        assert!(sweeps < 5, "they block it");
    }
    while test.store.fire_schedules(100).await.expect("firing works").next_at
        < Some(test.store.now().await.expect("it is there") + Duration::from_secs(1))
    {
        sweeps += 1;
        assert!(sweeps < 5, "they are looked at again and again");
    }
    let filter = ScheduleFilter { limit: 100, ..ScheduleFilter::default() };
    let (mut filter, mut readable, mut unreadable) = (filter, 0, Vec::new());
    loop {
        let page = test.store.list_schedules(filter.clone()).await.expect("reading works");
        readable += page.schedules.len();
        unreadable.extend(page.unreadable);
        let Some(next) = page.next else { break };
        filter.after = Some(next);
    }
    assert_eq!((readable, unreadable.len()), (1, 250));
    assert!(unreadable[0].name.starts_with("of tomorrow"), "{:?}", unreadable[0]);
    assert!(unreadable[0].problem.contains("moon"), "{:?}", unreadable[0]);
}

#[tokio::test]
async fn who_makes_schedules_at_once_makes_no_more_than_may_be() {
    let test = with(&["first"]).await;
    let fill = format!(
        "insert into windlass.schedules (tenant, name, workflow, version, priority, state, cadence,
            missed, overlap, jitter_micros, grace_micros, created_at, input)
        select 'acme', 'n' || n, 'one', 1, 0, 'paused', '{{}}', 'skip', 'allow', 0, 1000000, now(),
            'null'
        from generate_series(3, {SCHEDULES_MAX}) n"
    );
    execute(&test, &fill).await;
    let names: Vec<String> = (0..8).map(|number| format!("last {number}")).collect();
    let put = |name: &String| test.store.put_schedule(every_ten(name));
    let answers = join_all(names.iter().map(put)).await;
    let made = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(made, 1, "{answers:?}");
    let is_full = |answer: &&Result<_, StoreError>| matches!(answer, Err(StoreError::Conflict(text)) if text.contains("which is the limit"));
    assert_eq!(answers.iter().filter(is_full).count(), 7, "{answers:?}");
    test.store.put_schedule(every_ten("first")).await.expect("it is there already");
}

#[tokio::test]
async fn what_is_locked_is_left_to_the_next_sweep() {
    let test = with(&["a", "b"]).await;
    test.clock.advance(TEN);
    let other = test.database.client().await;
    let lock = "begin; select from windlass.schedules where name = 'a' for update";
    other.batch_execute(lock).await.expect("nobody has it");
    assert_eq!(test.store.fire_schedules(100).await.expect("firing works").moved, 1);
    let pause = "update windlass.schedules set state = 'paused' where name = 'a'; commit";
    other.batch_execute(pause).await.expect("it has it");
    assert_eq!(test.store.fire_schedules(100).await.expect("firing works").moved, 0);
    assert_eq!((fires(&test, "a").await, fires(&test, "b").await), (0, 1));
    let runs = test.store.list_runs(Default::default()).await.expect("reading works").runs;
    assert!(runs.iter().all(|run| run.state == RunState::Running) && runs.len() == 1);
}
