//! Limits on what happens in a time: rates, debounces, breakers, and newcomers that take the place
//! of the oldest.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;
use windlass_core::definition::TaskDraft;
use windlass_core::lane::{Changes, Lanes, Need, Verdict};
use windlass_core::{
    Bound, DefinitionDraft, LaneId, Limit, LimitName, RunId, TaskId, TaskIndex, TaskKind,
    Timestamp, WhenFull,
};

const SECOND: Duration = Duration::from_secs(1);

fn task(number: u128) -> TaskId {
    TaskId { run: RunId::from_uuid(Uuid::from_u128(number)), index: TaskIndex(0) }
}

fn lane() -> LaneId {
    LaneId { limit: LimitName::new("limit").unwrap(), tenant: None, key: None }
}

/// One lane, and a clock that goes on by itself.
struct World {
    lanes: Lanes,
    need: Need,
    now: Timestamp,
    /// When those who wait are looked at again.
    alarms: BTreeMap<TaskId, Timestamp>,
    /// Who may go on, and since when, in that order.
    ready: Vec<(TaskId, Timestamp)>,
    /// Who has to go.
    superseded: Vec<(TaskId, bool)>,
}

impl World {
    fn new(limit: &Limit) -> Self {
        let need = Need { lane: lane(), bound: limit.bound, when_full: limit.when_full };
        World {
            lanes: Lanes::whole(),
            need,
            now: Timestamp::from_micros(1_000_000_000),
            alarms: BTreeMap::new(),
            ready: Vec::new(),
            superseded: Vec::new(),
        }
    }

    fn settle(&mut self) {
        let admitted = self.lanes.admit(self.now);
        self.ready.extend(admitted.ready.into_iter().map(|task| (task, self.now)));
        let Changes { alarms, superseded, .. } = self.lanes.take_changes();
        for (task, _, waited) in superseded {
            self.alarms.remove(&task);
            self.superseded.push((task, waited));
        }
        self.alarms.extend(alarms);
    }

    fn ask(&mut self, task: TaskId) -> Verdict {
        let verdict = self.lanes.request(task, vec![self.need.clone()], true, self.now);
        if verdict == Verdict::Ready {
            self.ready.push((task, self.now));
        }
        self.settle();
        verdict
    }

    /// Lets time pass, and alarms ring on their time.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some((task, due)) = self
            .alarms
            .iter()
            .map(|(task, due)| (*task, *due))
            .filter(|(_, due)| *due <= end)
            .min_by_key(|(_, due)| *due)
        {
            self.alarms.remove(&task);
            self.now = self.now.max(due);
            self.ask(task);
        }
        self.now = end;
        self.lanes.forget(end);
    }

    fn end(&mut self, task: TaskId, is_failure: bool) {
        self.lanes.report(task, is_failure, self.now);
        self.lanes.vacate(task);
        self.alarms.remove(&task);
        self.settle();
    }

    fn count_ready(&self) -> usize {
        self.ready.len()
    }
}

proptest! {
    /// The most in any time is what is said of a rate, and nobody waits longer than for the
    /// tokens of those before it.
    #[test]
    fn a_rate_holds_in_any_window_and_lets_all_go_on_in_order(
        count in 1_u32..7,
        burst in 1_u32..5,
        pauses in prop::collection::vec(0_u64..900, 1..60),
        give_up in prop::collection::vec(any::<bool>(), 60),
    ) {
        let per = SECOND;
        let mut world = World::new(&Limit::rate(count, per).burst(burst));
        let mut given_up = Vec::new();
        for (number, pause) in pauses.iter().enumerate() {
            world.pass(Duration::from_millis(*pause));
            let verdict = world.ask(task(number as u128));
            if matches!(verdict, Verdict::Wait(_)) && give_up[number] {
                world.end(task(number as u128), false);
                given_up.push(task(number as u128));
            }
        }
        let due = per * u32::try_from(pauses.len()).unwrap() / count + per;
        world.pass(due);
        prop_assert_eq!(world.count_ready() + given_up.len(), pauses.len(), "somebody waits for ever");
        prop_assert!(world.ready.is_sorted(), "{:?}", world.ready);
        for (place, (_, from)) in world.ready.iter().enumerate() {
            let in_window = world.ready[place..].iter().take_while(|(_, at)| at.since(*from) < per);
            let in_window = in_window.count();
            prop_assert!(in_window < (count + burst) as usize, "{in_window} from {from}");
        }
        for (task, _) in world.ready.clone() {
            world.end(task, false);
        }
        world.pass(per * (burst + 1));
        prop_assert!(world.lanes.lanes.is_empty(), "{:?}", world.lanes.lanes);
        prop_assert!(world.lanes.entrants.is_empty());
    }

    /// Whatever comes when, one of those that came before a quiet goes on, which is the last.
    #[test]
    fn a_debounce_lets_the_last_go_on_and_nobody_else(
        pauses in prop::collection::vec(0_u64..3_000, 1..40),
    ) {
        let (quiet, at_most) = (SECOND, 4 * SECOND);
        let mut world = World::new(&Limit::debounce(quiet).at_most(at_most));
        let mut came = Vec::new();
        for (number, pause) in pauses.iter().enumerate() {
            world.pass(Duration::from_millis(*pause));
            prop_assert!(matches!(world.ask(task(number as u128)), Verdict::Wait(_)));
            came.push(world.now);
        }
        world.pass(at_most);
        prop_assert_eq!(world.ready.last().unwrap().0, task(pauses.len() as u128 - 1));
        prop_assert_eq!(world.count_ready() + world.superseded.len(), pauses.len());
        prop_assert!(world.superseded.iter().all(|(_, waited)| *waited), "nobody was under way");
        let mut first = 0;
        for (one, at) in &world.ready {
            let number = one.run.as_uuid().as_u128() as usize;
            let was_quiet = at.since(came[number]) == quiet;
            let was_long = at.since(came[first]) == at_most;
            prop_assert!(was_quiet || was_long, "{number} at {at}, of {first} on");
            prop_assert!(at.since(came[first]) <= at_most);
            first = number + 1;
        }
    }

    /// Of those in a lane, no more than its slots are not about to be cancelled, and they are the
    /// newest; and no more than its slots are under way.
    #[test]
    fn newcomers_take_the_place_of_the_oldest(
        slots in 1_u32..4,
        acts in prop::collection::vec(0_u8..4, 1..80),
    ) {
        let mut world = World::new(&Limit::of(slots).when_full(WhenFull::CancelOldest));
        let mut inside: Vec<TaskId> = Vec::new();
        for (number, act) in acts.into_iter().enumerate() {
            match act {
                0 | 1 => {
                    world.ask(task(number as u128));
                    inside.push(task(number as u128));
                }
                // A run that was to be cancelled is.
                2 if !world.superseded.is_empty() => {
                    let (one, _) = world.superseded.remove(0);
                    inside.retain(|task| *task != one);
                    world.ready.retain(|(task, _)| *task != one);
                    world.end(one, false);
                }
                3 if !world.ready.is_empty() => {
                    let (one, _) = world.ready.remove(0);
                    inside.retain(|task| *task != one);
                    world.superseded.retain(|(task, _)| *task != one);
                    world.end(one, false);
                }
                _ => {}
            }
            prop_assert!(world.count_ready() <= slots as usize, "more are under way than slots");
            let doomed = |task: &&TaskId| world.superseded.iter().any(|(one, _)| one == *task);
            let living: Vec<TaskId> = inside.iter().filter(|task| !doomed(task)).copied().collect();
            prop_assert!(living.len() <= slots as usize);
            prop_assert!(inside.ends_with(&living), "{living:?} are not the newest of {inside:?}");
        }
        while let Some((one, _)) = world.superseded.pop() {
            world.ready.retain(|(task, _)| *task != one);
            world.end(one, false);
        }
        while let Some((one, _)) = world.ready.pop() {
            world.end(one, false);
        }
        world.pass(SECOND);
        prop_assert!(world.lanes.lanes.is_empty(), "{:?}", world.lanes.lanes);
        prop_assert!(world.lanes.entrants.is_empty());
    }
}

#[test]
fn a_rate_that_skips_takes_those_who_find_a_token() {
    let mut world = World::new(&Limit::rate(1, SECOND).when_full(WhenFull::Skip));
    assert_eq!(world.ask(task(1)), Verdict::Ready);
    assert_eq!(world.ask(task(2)), Verdict::Skip(lane()));
    world.pass(SECOND);
    assert_eq!(world.ask(task(3)), Verdict::Ready);
}

#[test]
fn each_attempt_takes_a_token_and_what_goes_on_otherwise_does_not() {
    let mut world = World::new(&Limit::rate(1, SECOND));
    assert_eq!(world.ask(task(1)), Verdict::Ready);
    assert_eq!(world.ask(task(1)), Verdict::Ready, "it slept");
    world.lanes.end_attempt(task(1));
    assert_eq!(world.ask(task(1)), Verdict::Wait(lane()), "it failed");
    world.pass(SECOND);
    assert_eq!(world.count_ready(), 3);
}

fn breaker() -> Limit {
    Limit::breaker(50).calls(4).window(10 * SECOND).pause(5 * SECOND)
}

#[test]
fn a_breaker_opens_when_too_much_fails_lets_one_try_and_then_all() {
    let mut world = World::new(&breaker());
    for number in 1..=4 {
        assert_eq!(world.ask(task(number)), Verdict::Ready);
    }
    world.end(task(1), false);
    world.end(task(2), true);
    world.end(task(3), false);
    assert_eq!(world.ask(task(5)), Verdict::Ready, "one of three is not too much");
    world.end(task(4), true);
    for number in 6..=9 {
        assert_eq!(world.ask(task(number)), Verdict::Wait(lane()), "two of four are");
    }
    world.end(task(5), false);
    world.ready.clear();
    world.pass(4 * SECOND);
    assert_eq!(world.count_ready(), 0, "what began before says nothing new");
    world.pass(SECOND);
    assert_eq!(world.ready.iter().map(|one| one.0).collect::<Vec<_>>(), [task(6)], "one tries");
    world.end(task(6), true);
    world.pass(4 * SECOND);
    assert_eq!(world.count_ready(), 1, "it failed");
    world.pass(SECOND);
    assert_eq!(world.ready.last().unwrap().0, task(7));
    world.lanes.vacate(task(7));
    world.settle();
    world.pass(Duration::ZERO);
    assert_eq!(
        world.ready.last().unwrap().0,
        task(8),
        "who tried was cancelled: the next one does"
    );
    world.end(task(8), false);
    assert_eq!(world.ready.last().unwrap().0, task(9), "it succeeded");
    assert_eq!(world.ask(task(10)), Verdict::Ready);
}

#[test]
fn a_breaker_counts_what_ends_within_its_window() {
    let mut world = World::new(&breaker());
    for number in 1..=3 {
        world.ask(task(number));
        world.end(task(number), true);
    }
    world.pass(10 * SECOND);
    world.ask(task(4));
    world.end(task(4), true);
    assert_eq!(world.ask(task(5)), Verdict::Ready, "three failed long ago");
}

#[test]
fn many_who_wait_for_a_breaker_go_on_a_part_at_a_time() {
    let mut world = World::new(&breaker().calls(1));
    world.ask(task(0));
    world.end(task(0), true);
    for number in 1..=600 {
        assert!(matches!(world.ask(task(number)), Verdict::Wait(_)));
    }
    world.pass(5 * SECOND);
    world.end(task(1), false);
    assert!(world.count_ready() < 300, "{} at once", world.count_ready());
    world.pass(Duration::ZERO);
    assert_eq!(world.count_ready(), 601);
}

#[test]
fn a_limit_that_contradicts_itself_is_refused() {
    let build = |limit: Limit| {
        let mut draft = TaskDraft::new("a", TaskKind::Handler);
        draft.limits = vec![limit];
        DefinitionDraft::new("w").task(draft).build().unwrap_err().to_string()
    };
    let day = Duration::from_secs(86_400);
    for (limit, problem) in [
        (Limit::rate(0, SECOND), r#"limit "w/a:rate" has 0 tokens, not within 1 to 1000000"#),
        (Limit::rate(1, SECOND).burst(0), "has 0 tokens at once, not within 1 to 1000000"),
        (Limit::rate(1, 400 * day), "has a time of 34560000s, not within 1ms to 366 days"),
        (Limit::rate(1, Duration::ZERO), "has a time of 0ns, not within 1ms to 366 days"),
        (Limit::of(1).burst(2), "has a burst, and is no rate"),
        (Limit::of(1).at_most(SECOND), "has a longest wait, and is no debounce"),
        (Limit::of(1).pause(SECOND), "has a pause, and is no breaker"),
        (Limit::debounce(SECOND).at_most(SECOND / 2), "longer than 500ms at most"),
        (Limit::debounce(SECOND).when_full(WhenFull::Skip), "which is never full"),
        (Limit::rate(1, SECOND).when_full(WhenFull::CancelOldest), "has no slots"),
        (Limit::of(1_001).when_full(WhenFull::CancelOldest), "has too many slots"),
        (Limit::rate(1, SECOND).halt(), "none that a failed task could keep"),
        (Limit::breaker(101), "has 101 percent, not within 1 to 100"),
        (Limit::breaker(50).calls(0), "has 0 calls, not within 1 to 100000"),
        (Limit::breaker(50).window(Duration::ZERO), "has a window of 0ns"),
    ] {
        let text = build(limit);
        assert!(text.contains(problem), "{text}");
    }
}

#[test]
fn limits_of_all_kinds_are_the_same_when_they_are_read_back() {
    let limits = vec![
        Limit::per("key", 2).when_full(WhenFull::CancelOldest),
        Limit::rate(5, SECOND).by("key").burst(2).across_tenants(),
        Limit::debounce(SECOND).by("key"),
        breaker().by("key"),
        Limit::of(1).named("stream").halt(),
    ];
    let text = serde_json::to_string(&limits).unwrap();
    assert!(text.contains(r#"{"field":"key","slots":2,"when_full":"cancel_oldest"}"#), "{text}");
    assert_eq!(serde_json::from_str::<Vec<Limit>>(&text).unwrap(), limits);
    let mut draft = TaskDraft::new("a", TaskKind::Handler);
    draft.limits = limits;
    let definition = DefinitionDraft::new("w").task(draft).build().unwrap();
    let spec = definition.task(TaskIndex(0));
    let text = serde_json::to_string(&**spec).unwrap();
    assert_eq!(serde_json::from_str::<windlass_core::definition::TaskSpec>(&text).unwrap(), **spec);
    assert!(matches!(spec.limits[0].bound, Bound::Slots(1)), "{:?}", spec.limits);
}
