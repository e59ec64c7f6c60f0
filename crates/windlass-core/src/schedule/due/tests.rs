use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn seed_of(tenant: &str, name: &str) -> JitterSeed {
    let tenant = Tenant::new(tenant).expect("it is a name");
    JitterSeed::of(&tenant, &ScheduleName::new(name).expect("it is a name"))
}

fn seed() -> JitterSeed {
    seed_of("acme", "nightly")
}

/// Every ten seconds, missed after a minute.
fn timing(missed: Missed) -> Timing {
    Timing { missed, ..Timing::new(Cadence::every(10 * SECOND).expect("it is a cadence")) }
}

fn seconds(times: &[Timestamp]) -> Vec<i64> {
    times.iter().map(|at| at.as_micros() / 1_000_000).collect()
}

#[test]
fn nothing_fires_before_its_time_and_what_is_late_within_the_grace_does() {
    let timing = timing(Missed::Skip);
    let early = timing.due(seed(), at(100), Timestamp::from_micros(99_999_999), 100);
    assert_eq!(early, Due { skipped: None, fires: vec![], next: Some(at(100)) });
    let due = timing.due(seed(), at(100), at(160), 100);
    assert_eq!(seconds(&due.fires), [100, 110, 120, 130, 140, 150, 160]);
    assert_eq!((due.skipped, due.next), (None, Some(at(170))));
}

#[test]
fn what_was_missed_is_skipped_or_runs_once_or_up_to_a_limit() {
    let due = |missed| timing(missed).due(seed(), at(100), at(205), 100);
    let skipped = |due: &Due| due.skipped.map(|it| (it.first, it.last, it.count));
    let skip = due(Missed::Skip);
    assert_eq!(seconds(&skip.fires), [150, 160, 170, 180, 190, 200]);
    assert_eq!(skipped(&skip), Some((at(100), at(140), 5)));
    let once = due(Missed::Once);
    assert_eq!(seconds(&once.fires), [140, 150, 160, 170, 180, 190, 200]);
    assert_eq!(skipped(&once), Some((at(100), at(130), 4)));
    let three = due(Missed::All(3));
    assert_eq!(seconds(&three.fires), [120, 130, 140, 150, 160, 170, 180, 190, 200]);
    assert_eq!(skipped(&three), Some((at(100), at(110), 2)));
    let all = due(Missed::All(1_000));
    assert_eq!((all.fires.len(), all.skipped), (11, None));
    for due in [skip, once, three, all] {
        assert_eq!(due.next, Some(at(210)));
    }
}

#[test]
fn what_is_over_the_limit_stays_next() {
    let due = timing(Missed::All(1_000)).due(seed(), at(100), at(205), 4);
    assert_eq!(seconds(&due.fires), [100, 110, 120, 130]);
    assert_eq!(due.next, Some(at(140)));
    let none = timing(Missed::Skip).due(seed(), at(100), at(205), 0);
    assert_eq!((none.fires, none.next), (vec![], Some(at(150))));
}

#[test]
fn a_backlog_longer_than_one_look_is_served_by_several() {
    let minutes = Cadence::cron("* * * * *", "UTC").expect("it is a cadence");
    for (missed, count) in [(Missed::Skip, 1), (Missed::Once, 2), (Missed::All(500), 501)] {
        let timing = Timing { missed, ..Timing::new(minutes.clone()) };
        let now = at(60 * 25_000 + 5);
        let (mut next, mut fires, mut skipped, mut looks) = (at(60), Vec::new(), 0, 0);
        while next <= now {
            let due = timing.due(seed(), next, now, 1_000);
            skipped += due.skipped.map_or(0, |it| it.count);
            fires.extend(due.fires);
            next = due.next.expect("it goes on for ever");
            looks += 1;
            assert!(looks < 10, "it gets nowhere");
        }
        assert_eq!((fires.len(), skipped + fires.len()), (count, 25_000), "{missed}");
        assert_eq!(fires.last(), Some(&at(60 * 25_000)), "{missed}");
    }
}

#[test]
fn start_and_end_are_themselves_within() {
    let timing =
        Timing { starts_at: Some(at(100)), ends_at: Some(at(120)), ..timing(Missed::Skip) };
    assert_eq!(timing.next_after(at(0)), Some(at(100)));
    assert_eq!(timing.next_after(at(110)), Some(at(120)));
    assert_eq!(timing.next_after(at(120)), None);
    let due = timing.due(seed(), at(100), at(130), 100);
    assert_eq!((seconds(&due.fires), due.next), (vec![100, 110, 120], None));
}

#[test]
fn jitter_is_the_same_for_everyone_and_within_its_bound() {
    let timing = Timing { jitter: 5 * SECOND, ..timing(Missed::Skip) };
    let late = |seed, nominal: i64| timing.due_at(seed, at(nominal)).since(at(nominal));
    let all: Vec<Duration> = (0..1_000).map(|number| late(seed(), number * 10)).collect();
    assert!(all.iter().all(|late| *late <= 5 * SECOND));
    assert!(all.iter().any(|late| *late > 4 * SECOND), "it uses its time");
    assert!(all.iter().any(|late| *late < SECOND));
    assert_eq!(late(seed(), 70), late(seed(), 70));
    assert_ne!(late(seed(), 70), late(seed_of("acme", "other"), 70));
    assert_ne!(late(seed(), 70), late(seed_of("other", "nightly"), 70), "tenants are apart");
    assert_ne!(seed_of("ab", "c"), seed_of("a", "bc"));
    assert_eq!(Timing { jitter: Duration::ZERO, ..timing }.due_at(seed(), at(70)), at(70));
}

#[test]
fn a_backlog_of_years_of_an_interval_is_one_decision() {
    let year = 366 * 86_400;
    let every_second = Cadence::every(SECOND).expect("it is a cadence");
    for (missed, kept) in [(Missed::Skip, 0), (Missed::Once, 1), (Missed::All(500), 500)] {
        let timing = Timing { missed, ..Timing::new(every_second.clone()) };
        let due = timing.due(seed(), at(10), at(30 * year), 1_000);
        let skipped = due.skipped.expect("most are missed");
        assert_eq!(skipped.first, at(10));
        assert_eq!(due.fires.len(), kept + 61, "those within the grace, and those that are kept");
        assert_eq!(due.fires.first(), timing.next_after(skipped.last).as_ref());
        assert_eq!(
            skipped.count + due.fires.len(),
            usize::try_from(30 * year - 9).expect("it fits")
        );
        assert_eq!(due.next, Some(at(30 * year + 1)));
    }
    let ends_at = Some(at(20));
    let timing = Timing { ends_at, ..Timing::new(every_second) };
    let due = timing.due(seed(), at(10), at(30 * year), 1_000);
    let skipped = Skipped { first: at(10), last: at(20), count: 11 };
    assert_eq!(due, Due { skipped: Some(skipped), fires: vec![], next: None });
    assert_eq!(timing.come(at(10), at(30 * year)), Some(skipped));
}

#[test]
fn what_has_come_is_counted_up_to_now() {
    let minutes = Cadence::cron("* * * * *", "UTC").expect("it is a cadence");
    for timing in [timing(Missed::Skip), Timing::new(minutes)] {
        assert_eq!(timing.come(at(60), Timestamp::from_micros(59_999_999)), None);
        let one = Skipped { first: at(60), last: at(60), count: 1 };
        assert_eq!(timing.come(at(60), at(60)), Some(one));
        let last = timing.next_after(at(130)).expect("it goes on for ever");
        let come = timing.come(at(60), last).expect("some have");
        assert_eq!((come.first, come.last), (at(60), last));
    }
}

#[test]
fn schedules_that_make_no_sense_are_refused() {
    let wrong = |timing: Timing| timing.check().expect_err("it makes no sense").to_string();
    let good = timing(Missed::All(MISSED_MAX));
    assert_eq!(good.check(), Ok(()));
    let backwards = Timing { starts_at: Some(at(20)), ends_at: Some(at(10)), ..good.clone() };
    let text = "it ends at 1970-01-01T00:00:10Z, before it starts at 1970-01-01T00:00:20Z";
    assert_eq!(wrong(backwards), text);
    let between = Timing { starts_at: Some(at(11)), ends_at: Some(at(19)), ..good.clone() };
    assert_eq!(wrong(between), "every 10s never comes between its start and its end");
    assert!(Timing { jitter: JITTER_MAX, ..good.clone() }.check().is_ok());
    assert!(Timing { jitter: JITTER_MAX + SECOND, ..good.clone() }.check().is_err());
    assert!(Timing { grace: WAIT_MAX + SECOND, ..good.clone() }.check().is_err());
    assert!(Timing { grace: GRACE_MIN, ..good.clone() }.check().is_ok());
    let short = Timing { grace: Duration::ZERO, ..good };
    assert_eq!(wrong(short), "a grace of 0ns is shorter than 1s: every time would be missed");
    assert!(timing(Missed::All(MISSED_MAX + 1)).check().is_err());
    assert!(timing(Missed::All(0)).check().is_err());
}

#[test]
fn overlap_says_what_is_done_while_a_run_is_not_over() {
    for overlap in Overlap::ALL {
        assert_eq!(overlap.verdict(false, false), Verdict::Start);
        assert_eq!(overlap.word().parse(), Ok(overlap));
    }
    assert_eq!(Overlap::Allow.verdict(true, false), Verdict::Start);
    assert_eq!(Overlap::Skip.verdict(true, false), Verdict::Skip);
    assert_eq!(Overlap::Queue.verdict(true, false), Verdict::Queue);
    assert_eq!(Overlap::Queue.verdict(true, true), Verdict::Skip);
    assert_eq!(Overlap::Queue.verdict(false, true), Verdict::Skip);
    assert_eq!(Overlap::CancelRunning.verdict(true, false), Verdict::CancelAndStart);
}

#[test]
fn policies_are_written_and_read_back() {
    for missed in [Missed::Skip, Missed::Once, Missed::All(7)] {
        assert_eq!(missed.to_string().parse(), Ok(missed));
    }
    assert!("all".parse::<Missed>().is_err());
    assert!("all:x".parse::<Missed>().is_err());
    assert!("never".parse::<Overlap>().is_err());
}
