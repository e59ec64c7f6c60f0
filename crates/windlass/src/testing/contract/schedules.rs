//! Schedules: each nominal time is decided once, and as it was asked for.

mod backfills;
mod changes;
mod order;

use std::time::Duration;

use windlass_core::schedule::{Cadence, Missed, Overlap, Timing};
use windlass_core::{
    CandidateId, Payload, Priority, RunId, RunState, ScheduleName, ScheduleOwner, Term, Timestamp,
    Version,
};

use super::bench::{Bench, TICK, is_hinted, json, payload_of, seconds, tenant, workflow_name};
use crate::store::{
    Candidacy, Duty, FIRES_KEPT, Fire, FireBy, FireResult, Mandate, NOMINAL_METADATA, NewSchedule,
    RunFilter, SCHEDULE_METADATA, ScheduleFilter, ScheduleKey, SchedulePage, ScheduleRecord,
    ScheduleState, StoreError, Tallies,
};

pub(crate) use self::backfills::{
    a_backfill_has_a_limit, a_backfill_leaves_alone_what_waits_for_its_turn,
    a_backfill_starts_what_has_no_run, a_run_that_was_pruned_is_no_fault_where_the_rule_is_gone,
    what_is_archived_is_not_backfilled,
};
pub(crate) use self::changes::{
    a_pause_outlasts_being_declared_no_more, a_run_that_is_retried_is_under_way_again,
    a_time_that_waits_is_skipped_if_its_schedule_is_disabled,
    a_time_that_waits_is_skipped_if_none_waits_any_more, runs_from_before_it_mattered_are_seen,
    what_had_come_when_a_schedule_rests_is_missed_and_said_to_be,
};
pub(crate) use self::order::{
    a_run_id_that_another_tenant_took_is_refused, what_is_due_at_once_starts_in_order,
    what_was_missed_for_years_is_one_line,
};

/// The list of cases, handed to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! schedule_contract_cases {
    ($to:ident [$($argument:tt)*]) => {
        $crate::$to! {
            [$($argument)*]
            schedules {
                a_schedule_is_recorded_as_it_was_asked_for
                schedules_are_listed_by_tenant_and_name_in_pages
                a_nominal_time_starts_its_run_when_it_comes_and_never_again
                each_nominal_time_starts_one_run_whoever_leads
                a_schedule_that_is_put_again_keeps_its_place_unless_its_times_change
                times_that_were_missed_are_skipped_or_run_as_it_is_said
                a_time_is_skipped_while_a_run_is_not_over
                one_time_waits_for_a_run_to_end
                a_run_that_is_not_over_is_cancelled
                jitter_lets_a_time_be_served_later
                a_schedule_ends_with_its_last_time
                a_paused_schedule_rests_and_goes_on_from_when_it_is_resumed
                a_trigger_starts_a_run_now_and_once
                a_backfill_starts_what_has_no_run
                a_backfill_has_a_limit
                a_backfill_leaves_alone_what_waits_for_its_turn
                a_schedule_that_was_deleted_and_made_again_starts_other_runs
                what_is_declared_no_more_is_disabled_until_it_is_again
                a_start_that_is_refused_stops_nothing
                a_history_has_a_limit_and_forgets_no_run_that_is_under_way
                a_history_keeps_its_newest_lines
                schedules_that_make_no_sense_are_refused
                whoever_leads_is_told_when_a_schedule_fires
                a_sweep_of_schedules_has_a_limit
                what_is_archived_is_not_backfilled
                a_run_that_was_pruned_is_no_fault_where_the_rule_is_gone
                a_pause_outlasts_being_declared_no_more
                a_time_that_waits_is_skipped_if_its_schedule_is_disabled
                a_time_that_waits_is_skipped_if_none_waits_any_more
                what_had_come_when_a_schedule_rests_is_missed_and_said_to_be
                runs_from_before_it_mattered_are_seen
                a_run_that_is_retried_is_under_way_again
                what_is_due_at_once_starts_in_order
                what_was_missed_for_years_is_one_line
                a_run_id_that_another_tenant_took_is_refused
            }
        }
    };
}

fn key(name: &str) -> ScheduleKey {
    let name = ScheduleName::new(name).expect("it is a name");
    ScheduleKey { tenant: tenant("acme"), name }
}

impl Bench<'_> {
    /// A schedule of workflow `w` that fires every ten seconds from now.
    async fn every_ten(&self, name: &str) -> NewSchedule {
        let cadence = Cadence::every_from(seconds(10), self.now().await).expect("it is a cadence");
        NewSchedule {
            key: key(name),
            workflow: workflow_name("w"),
            version: Version::FIRST,
            input: Payload::default(),
            priority: Priority::default(),
            timing: Timing::new(cadence),
            owner: None,
        }
    }

    /// Puts a schedule of a tenant.
    pub(super) async fn put_for(&self, whose: &str, name: &str) {
        let mut schedule = self.every_ten(name).await;
        schedule.key.tenant = tenant(whose);
        self.put(schedule).await;
    }

    async fn put(&self, schedule: NewSchedule) -> ScheduleRecord {
        self.store.put_schedule(schedule).await.expect("the schedule makes sense")
    }

    async fn schedule(&self, name: &str) -> ScheduleRecord {
        let record = self.store.get_schedule(key(name)).await.expect("reading works");
        record.expect("the schedule is there")
    }

    /// Fires what is due; answers for how many nominal times.
    async fn fire(&self) -> usize {
        self.store.fire_schedules(1_000).await.expect("firing works").moved
    }

    /// The history of a schedule, the oldest line first: seconds since `from` and what happened.
    async fn fires(&self, name: &str, from: Timestamp) -> Vec<String> {
        let line = |fire: &Fire| {
            let at = fire.nominal.since(from).as_secs();
            match &fire.result {
                FireResult::Missed { first, count } => {
                    format!("{}-{at} missed {count}", first.since(from).as_secs())
                }
                FireResult::Started(_)
                | FireResult::Overlapped
                | FireResult::Queued
                | FireResult::Refused(_) => format!("{at} {}", fire.result.word()),
            }
        };
        let fires = self.store.list_fires(key(name), 100).await.expect("reading works");
        fires.iter().rev().map(line).collect()
    }

    /// The runs that a schedule started, the newest first.
    async fn runs_of(&self, name: &str) -> Vec<RunId> {
        let metadata = Some((SCHEDULE_METADATA.to_owned(), name.to_owned()));
        let filter = RunFilter { metadata, ..RunFilter::default() };
        let page = self.store.list_runs(filter).await.expect("reading works");
        page.runs.iter().map(|run| run.id).collect()
    }
}

pub(crate) async fn a_schedule_is_recorded_as_it_was_asked_for(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let now = bench.now().await;
    let mut schedule = bench.every_ten("nightly").await;
    schedule.input = json(r#"{"day":1}"#);
    schedule.priority = super::bench::priority(7);
    schedule.timing.cadence =
        Cadence::cron("0 2 * * MON-FRI", "Europe/Berlin").expect("it is a cadence");
    schedule.timing.starts_at = Some(now + seconds(5));
    schedule.timing.ends_at = Some(now + seconds(10_000_000));
    schedule.timing.jitter = seconds(3);
    schedule.timing.grace = seconds(70);
    schedule.timing.missed = Missed::All(7);
    schedule.timing.overlap = Overlap::Queue;
    schedule.owner = Some(ScheduleOwner::new("app").expect("it is a name"));
    let made = bench.put(schedule.clone()).await;
    assert_eq!(made.schedule, schedule);
    assert_eq!((made.state, made.created_at), (ScheduleState::Active, now));
    assert_eq!(made.next_at, schedule.timing.next_after(now));
    assert_eq!((made.last_at, made.queued_at), (None, None));
    assert_eq!(bench.schedule("nightly").await, made);
    let other = ScheduleKey { tenant: tenant("other"), ..key("nightly") };
    assert_eq!(bench.store.get_schedule(other).await, Ok(None));
}

pub(crate) async fn schedules_are_listed_by_tenant_and_name_in_pages(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    for (whose, name) in [("b", "x"), ("a", "z"), ("a", "B"), ("b", "a"), ("a", "é")] {
        bench.put_for(whose, name).await;
    }
    let list = async |filter: ScheduleFilter| {
        let page = bench.store.list_schedules(filter).await.expect("reading works");
        page.schedules.into_iter().map(|record| record.schedule.key).collect::<Vec<_>>()
    };
    let all = list(ScheduleFilter::default()).await;
    let names: Vec<&str> = all.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(names, ["B", "z", "é", "a", "x"]);
    let own = list(ScheduleFilter { tenant: Some(tenant("b")), ..Default::default() }).await;
    assert_eq!(own, all[3..]);
    let mut after = None;
    for pair in all.chunks(2) {
        let page = list(ScheduleFilter { after, limit: 2, ..Default::default() }).await;
        assert_eq!(page, pair);
        after = page.last().cloned();
    }
    assert_eq!(list(ScheduleFilter { after, limit: 2, ..Default::default() }).await, []);
}

pub(crate) async fn a_nominal_time_starts_its_run_when_it_comes_and_never_again(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let mut schedule = bench.every_ten("s").await;
    schedule.input = json(r#"{"day":1}"#);
    let made = bench.put(schedule).await;
    let nominal = made.next_at.expect("it fires");
    bench.advance(seconds(10) - TICK).await;
    assert_eq!(bench.fire().await, 0, "it is early");
    bench.advance(TICK).await;
    assert_eq!(bench.fire().await, 1);
    assert_eq!(bench.fire().await, 0, "it is served");
    let run = bench.run(RunId::of_fire(made.id, nominal)).await;
    assert_eq!((run.tenant, run.input), (tenant("acme"), Some(json(r#"{"day":1}"#))));
    assert_eq!(run.metadata[SCHEDULE_METADATA], "s");
    assert_eq!(run.metadata[NOMINAL_METADATA], nominal.to_string());
    let record = bench.schedule("s").await;
    assert_eq!((record.last_at, record.next_at), (Some(nominal), Some(nominal + seconds(10))));
    let worker = bench.worker().await;
    bench.succeed(&worker.claim_one().await).await;
    let fires = bench.store.list_fires(key("s"), 10).await.expect("reading works");
    let result = FireResult::Started(run.id);
    assert_eq!(fires, [Fire { nominal, by: FireBy::Time, result, at: nominal }]);
}

pub(crate) async fn each_nominal_time_starts_one_run_whoever_leads(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let begin = bench.now().await;
    let mut schedule = bench.every_ten("s").await;
    schedule.timing.cadence = Cadence::every_from(seconds(1), begin).expect("it is a cadence");
    let id = bench.put(schedule).await.id;
    let mut mandates: Vec<Mandate> = Vec::new();
    for term in 1..=5 {
        let candidate = CandidateId::from_random(term);
        let candidacy = Candidacy {
            candidate,
            name: format!("leader-{term}"),
            ttl: seconds(2),
            rotation: None,
            tallies: Tallies::new(),
        };
        bench.store.lead(candidacy).await.expect("campaigning works");
        let mandate = Mandate { duty: Duty::Schedules, candidate, term: Term(term as u64) };
        for _ in 0..7 {
            bench.advance(Duration::from_millis(300)).await;
            bench.store.sweep(mandate, 100).await.expect("it leads");
            for old in &mandates {
                let answer = bench.store.sweep(*old, 100).await;
                assert!(matches!(answer, Err(StoreError::TermOver { .. })), "{answer:?}");
            }
        }
        mandates.push(mandate);
        // Nobody leads for a while.
        bench.advance(seconds(3)).await;
    }
    bench.fire().await;
    let count = bench.now().await.since(begin).as_secs();
    let nominal = |second| begin + seconds(second);
    let mut wanted: Vec<RunId> =
        (1..=count).map(|second| RunId::of_fire(id, nominal(second))).collect();
    let mut runs = bench.runs_of("s").await;
    runs.sort();
    wanted.sort();
    assert_eq!(runs, wanted);
    let lines = bench.fires("s", begin).await;
    let wanted: Vec<String> = (1..=count).map(|second| format!("{second} started")).collect();
    assert_eq!(lines, wanted);
}

pub(crate) async fn a_schedule_that_is_put_again_keeps_its_place_unless_its_times_change(
    bench: &Bench<'_>,
) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    let mut schedule = bench.every_ten("s").await;
    let made = bench.put(schedule.clone()).await;
    bench.advance(seconds(12)).await;
    // It is due and not served yet.
    schedule.input = json("2");
    let again = bench.put(schedule.clone()).await;
    assert_eq!((again.id, again.next_at), (made.id, made.next_at));
    assert_eq!((again.schedule.input.clone(), again.created_at), (json("2"), made.created_at));
    assert_eq!(bench.fire().await, 1);
    schedule.timing.cadence = Cadence::every_from(seconds(7), from).expect("it is a cadence");
    let changed = bench.put(schedule.clone()).await;
    assert_eq!((changed.id, changed.next_at), (made.id, Some(from + seconds(14))));
    assert_eq!(changed.last_at, Some(from + seconds(10)));
    bench.advance(seconds(2)).await;
    bench.fire().await;
    assert_eq!(bench.fires("s", from).await, ["10 started", "14 started"]);
}

pub(crate) async fn times_that_were_missed_are_skipped_or_run_as_it_is_said(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    for (name, missed) in [("skip", Missed::Skip), ("once", Missed::Once), ("all", Missed::All(2))]
    {
        let mut schedule = bench.every_ten(name).await;
        schedule.timing.missed = missed;
        schedule.timing.grace = seconds(15);
        bench.put(schedule).await;
    }
    bench.advance(seconds(61)).await;
    bench.fire().await;
    let skip = ["10-40 missed 4", "50 started", "60 started"];
    assert_eq!(bench.fires("skip", from).await, skip);
    let once = ["10-30 missed 3", "40 started", "50 started", "60 started"];
    assert_eq!(bench.fires("once", from).await, once);
    let all = ["10-20 missed 2", "30 started", "40 started", "50 started", "60 started"];
    assert_eq!(bench.fires("all", from).await, all);
    for name in ["skip", "once", "all"] {
        assert_eq!(bench.schedule(name).await.next_at, Some(from + seconds(70)));
    }
}

pub(crate) async fn a_time_is_skipped_while_a_run_is_not_over(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker().await;
    let from = bench.now().await;
    let mut schedule = bench.every_ten("s").await;
    schedule.timing.overlap = Overlap::Skip;
    bench.put(schedule).await;
    bench.advance(seconds(20)).await;
    bench.fire().await;
    assert_eq!(bench.fires("s", from).await, ["10 started", "20 overlapped"]);
    bench.succeed(&worker.claim_one().await).await;
    bench.advance(seconds(10)).await;
    bench.fire().await;
    assert_eq!(bench.fires("s", from).await, ["10 started", "20 overlapped", "30 started"]);
}

pub(crate) async fn one_time_waits_for_a_run_to_end(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let worker = bench.worker().await;
    let from = bench.now().await;
    let mut schedule = bench.every_ten("s").await;
    schedule.timing.overlap = Overlap::Queue;
    let made = bench.put(schedule).await;
    bench.advance(seconds(30)).await;
    bench.fire().await;
    assert_eq!(bench.fires("s", from).await, ["10 started", "20 queued", "30 overlapped"]);
    assert_eq!(bench.schedule("s").await.queued_at, Some(from + seconds(20)));
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.fire().await, 1);
    let fires = bench.fires("s", from).await;
    assert_eq!(fires, ["10 started", "30 overlapped", "20 started"]);
    let second = RunId::of_fire(made.id, from + seconds(20));
    assert_eq!(bench.run_state(second).await, RunState::Running);
    assert_eq!(bench.schedule("s").await.queued_at, None);
    assert_eq!(bench.fire().await, 0);
}

pub(crate) async fn a_run_that_is_not_over_is_cancelled(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    let mut schedule = bench.every_ten("s").await;
    schedule.timing.overlap = Overlap::CancelRunning;
    let made = bench.put(schedule).await;
    bench.advance(seconds(10)).await;
    bench.fire().await;
    bench.advance(seconds(20)).await;
    bench.fire().await;
    // Of two that are due at once the last would cancel the other.
    let fires = bench.fires("s", from).await;
    assert_eq!(fires, ["10 started", "20 overlapped", "30 started"]);
    let state =
        async |second| bench.run_state(RunId::of_fire(made.id, from + seconds(second))).await;
    assert_eq!(state(10).await, RunState::Cancelled);
    assert_eq!(state(30).await, RunState::Running);
}

pub(crate) async fn jitter_lets_a_time_be_served_later(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    let mut schedule = bench.every_ten("s").await;
    schedule.timing.jitter = seconds(8);
    let due_at = schedule.timing.due_at(schedule.key.jitter_seed(), from + seconds(10));
    bench.put(schedule).await;
    bench.advance(due_at.since(from) - TICK).await;
    assert_eq!(bench.fire().await, 0);
    bench.advance(TICK).await;
    assert_eq!(bench.fire().await, 1);
    assert_eq!(bench.fires("s", from).await, ["10 started"]);
}

pub(crate) async fn a_schedule_ends_with_its_last_time(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    let mut schedule = bench.every_ten("once").await;
    schedule.timing.cadence = Cadence::Once(from + seconds(5));
    bench.put(schedule).await;
    let mut schedule = bench.every_ten("twice").await;
    schedule.timing.ends_at = Some(from + seconds(29));
    bench.put(schedule).await;
    bench.advance(seconds(45)).await;
    bench.fire().await;
    assert_eq!(bench.fires("once", from).await, ["5 started"]);
    assert_eq!(bench.fires("twice", from).await, ["10 started", "20 started"]);
    assert_eq!(bench.schedule("once").await.next_at, None);
    assert_eq!(bench.schedule("twice").await.next_at, None);
    bench.advance(seconds(1_000)).await;
    assert_eq!(bench.fire().await, 0);
}

pub(crate) async fn a_paused_schedule_rests_and_goes_on_from_when_it_is_resumed(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    bench.put(bench.every_ten("s").await).await;
    bench.store.pause_schedule(key("s")).await.expect("it is there");
    bench.store.pause_schedule(key("s")).await.expect("it stays so");
    bench.advance(seconds(25)).await;
    assert_eq!(bench.fire().await, 0);
    let again = bench.put(bench.schedule("s").await.schedule).await;
    assert_eq!(again.state, ScheduleState::Paused, "who puts it does not resume it");
    bench.store.resume_schedule(key("s")).await.expect("it is there");
    assert_eq!(bench.schedule("s").await.next_at, Some(from + seconds(30)));
    assert_eq!(bench.fire().await, 0);
    bench.advance(seconds(5)).await;
    bench.fire().await;
    bench.store.resume_schedule(key("s")).await.expect("it stays so");
    assert_eq!(bench.fires("s", from).await, ["30 started"]);
    let unknown = bench.store.pause_schedule(key("x")).await;
    assert!(matches!(unknown, Err(StoreError::NotFound(_))), "{unknown:?}");
    let unknown = bench.store.resume_schedule(key("x")).await;
    assert!(matches!(unknown, Err(StoreError::NotFound(_))), "{unknown:?}");
}

pub(crate) async fn a_trigger_starts_a_run_now_and_once(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    let mut schedule = bench.every_ten("s").await;
    schedule.timing.overlap = Overlap::Skip;
    bench.put(schedule).await;
    bench.advance(seconds(10)).await;
    let run = bench.run_id();
    let started = bench.store.trigger_schedule(key("s"), run).await.expect("it is there");
    assert!(started.is_new && started.run == run);
    let again = bench.store.trigger_schedule(key("s"), run).await;
    if let Ok(again) = &again {
        assert!(!again.is_new);
    }
    again.expect("it answers the same");
    // It counts as under way, and the nominal time of the same moment is another.
    bench.fire().await;
    assert_eq!(bench.fires("s", from).await, ["10 started", "10 overlapped"]);
    assert_eq!(bench.runs_of("s").await, [run]);
    bench.store.cancel_run(run, None).await.expect("it runs");
    let unknown = bench.store.trigger_schedule(key("x"), bench.run_id()).await;
    assert!(matches!(unknown, Err(StoreError::NotFound(_))), "{unknown:?}");
}

pub(crate) async fn a_schedule_that_was_deleted_and_made_again_starts_other_runs(
    bench: &Bench<'_>,
) {
    bench.register("w", "a").await;
    let schedule = bench.every_ten("s").await;
    let first = bench.put(schedule.clone()).await;
    bench.advance(seconds(10)).await;
    bench.fire().await;
    assert_eq!(bench.store.delete_schedule(key("s")).await, Ok(()));
    assert_eq!(bench.store.delete_schedule(key("s")).await, Ok(()), "its answer was lost");
    assert_eq!(bench.store.get_schedule(key("s")).await, Ok(None));
    let gone = bench.store.list_fires(key("s"), 10).await;
    assert!(matches!(gone, Err(StoreError::NotFound(_))), "{gone:?}");
    bench.advance(seconds(10)).await;
    assert_eq!(bench.fire().await, 0);
    let second = bench.put(schedule).await;
    assert_ne!(first.id, second.id);
    bench.advance(seconds(10)).await;
    assert_eq!(bench.fire().await, 1);
    assert_eq!(bench.runs_of("s").await.len(), 2);
}

pub(crate) async fn what_is_declared_no_more_is_disabled_until_it_is_again(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    let owner = |name: &str| ScheduleOwner::new(name).expect("it is a name");
    let declared = async |name: &str, by: &str| {
        let mut schedule = bench.every_ten(name).await;
        schedule.timing.cadence = Cadence::every_from(seconds(10), from).expect("it is one");
        schedule.owner = Some(owner(by));
        schedule
    };
    for (name, by) in [("a", "app"), ("b", "app"), ("c", "other")] {
        bench.put(declared(name, by).await).await;
    }
    bench.put(bench.every_ten("d").await).await;
    let disable = || bench.store.disable_schedules(owner("app"), None, vec![key("a")]);
    assert_eq!(disable().await, Ok(vec![key("b")]));
    assert_eq!(disable().await, Ok(vec![]));
    assert_eq!(bench.schedule("b").await.state, ScheduleState::Disabled);
    bench.advance(seconds(15)).await;
    assert_eq!(bench.fire().await, 3);
    let again = bench.put(declared("b", "app").await).await;
    assert_eq!((again.state, again.next_at), (ScheduleState::Active, Some(from + seconds(20))));
}

pub(crate) async fn a_start_that_is_refused_stops_nothing(bench: &Bench<'_>) {
    let limits = vec![windlass_core::Limit::per("customer", 1)];
    let definition = super::lanes::limited("limited", 1, &[("a", limits)]);
    bench.try_register(definition).await.expect("it can be registered");
    bench.register("w", "a").await;
    let from = bench.now().await;
    let mut bad = bench.every_ten("bad").await;
    bad.workflow = workflow_name("limited");
    bad.input = json(&format!(r#"{{"customer":"{}"}}"#, "x".repeat(500)));
    bench.put(bad).await;
    bench.put(bench.every_ten("good").await).await;
    bench.advance(seconds(10)).await;
    assert_eq!(bench.fire().await, 2);
    assert_eq!(bench.fires("bad", from).await, ["10 refused"]);
    assert_eq!(bench.fires("good", from).await, ["10 started"]);
    let fires = bench.store.list_fires(key("bad"), 1).await.expect("reading works");
    let FireResult::Refused(reason) = &fires[0].result else { panic!("{fires:?}") };
    assert!(reason.contains("customer"), "{reason}");
}

pub(crate) async fn a_history_has_a_limit_and_forgets_no_run_that_is_under_way(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let mut schedule = bench.every_ten("s").await;
    schedule.timing.overlap = Overlap::Skip;
    bench.put(schedule).await;
    for _ in 0..2 * FIRES_KEPT {
        bench.advance(seconds(10)).await;
        assert_eq!(bench.fire().await, 1);
    }
    let fires = bench.store.list_fires(key("s"), 10 * FIRES_KEPT).await.expect("reading works");
    assert!(fires.len() <= FIRES_KEPT + 1, "{}", fires.len());
    assert_eq!(bench.runs_of("s").await.len(), 1, "the first one is not over");
}

pub(crate) async fn a_history_keeps_its_newest_lines(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.put(bench.every_ten("s").await).await;
    for _ in 0..FIRES_KEPT + 2 {
        bench.advance(seconds(10)).await;
        assert_eq!(bench.fire().await, 1);
    }
    let fires = bench.store.list_fires(key("s"), 10 * FIRES_KEPT).await.expect("reading works");
    assert_eq!(fires.len(), FIRES_KEPT);
    assert_eq!(fires[0].nominal, bench.now().await);
}

pub(crate) async fn schedules_that_make_no_sense_are_refused(bench: &Bench<'_>) {
    let now = bench.now().await;
    let schedule = bench.every_ten("s").await;
    let unknown = bench.store.put_schedule(schedule.clone()).await;
    let Err(StoreError::NotFound(text)) = &unknown else { panic!("{unknown:?}") };
    assert_eq!(text, "workflow \"w\" version 1");
    bench.register("w", "a").await;
    let refused = async |change: &dyn Fn(&mut NewSchedule)| {
        let mut bad = schedule.clone();
        change(&mut bad);
        match bench.store.put_schedule(bad).await {
            Err(StoreError::Conflict(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    let before = Timestamp::from_micros(now.as_micros() - 1);
    let text = refused(&|bad| bad.timing.cadence = Cadence::Once(before)).await;
    assert!(text.starts_with("schedule \"s\" never fires: once at"), "{text}");
    let text = refused(&|bad| bad.timing.missed = Missed::All(0)).await;
    assert_eq!(text, "schedule \"s\": 0 missed times are not within 1 to 1000");
    let text = refused(&|bad| bad.timing.grace = Duration::ZERO).await;
    assert_eq!(
        text,
        "schedule \"s\": a grace of 0ns is shorter than 1s: every time would be missed"
    );
    let text = refused(&|bad| bad.timing.ends_at = Some(now)).await;
    assert!(text.contains("never fires"), "{text}");
    let large = bench.store.payload_limit().get() + 1;
    let text = refused(&|bad| bad.input = payload_of(large)).await;
    assert!(text.starts_with("input of schedule \"s\""), "{text}");
    let all = bench.store.list_schedules(ScheduleFilter::default()).await;
    assert_eq!(all, Ok(SchedulePage::default()));
}

pub(crate) async fn whoever_leads_is_told_when_a_schedule_fires(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let outlook = async || bench.store.outlook().await.expect("looking works").fire_at;
    assert_eq!(outlook().await, None);
    let from = bench.now().await;
    let mut hints = bench.store.timer_hints();
    hints.take();
    bench.put(bench.every_ten("s").await).await;
    assert!(is_hinted(&mut hints).await);
    assert_eq!(outlook().await, Some(from + seconds(10)));
    bench.advance(seconds(10)).await;
    let sweep = bench.store.fire_schedules(10).await.expect("firing works");
    assert_eq!((sweep.moved, sweep.next_at), (1, Some(from + seconds(20))));
    bench.store.pause_schedule(key("s")).await.expect("it is there");
    assert_eq!(outlook().await, None);
}

pub(crate) async fn a_sweep_of_schedules_has_a_limit(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    bench.put(bench.every_ten("s").await).await;
    bench.advance(seconds(50)).await;
    let fire = async |limit| {
        let sweep = bench.store.fire_schedules(limit).await.expect("firing works");
        (sweep.moved, sweep.next_at.map(|at| at.since(from).as_secs()))
    };
    assert_eq!(fire(0).await.0, 0);
    assert_eq!(fire(3).await, (3, Some(40)));
    assert_eq!(fire(3).await, (2, Some(60)));
}
