//! Slots in lanes: never more than there are, first come, first served, and nobody waits for
//! ever.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use uuid::Uuid;
use windlass_core::definition::TaskDraft;
use windlass_core::lane::{Alarm, Lane, Need, Verdict};
use windlass_core::{
    Bound, DefinitionDraft, LaneId, LaneKeys, Lanes, Limit, LimitName, Payload, RunId, TaskId,
    TaskIndex, TaskKind, Tenant, Timestamp, WhenFull,
};

fn task(number: u128) -> TaskId {
    TaskId { run: RunId::from_uuid(Uuid::from_u128(number)), index: TaskIndex(0) }
}

fn lane(limit: u8) -> LaneId {
    let limit = LimitName::new(format!("limit-{limit}")).unwrap();
    LaneId { limit, tenant: None, key: None }
}

/// The lane with a number that is among those is not waited for.
fn needs(limits: &BTreeSet<u8>, skipped: u8) -> Vec<Need> {
    let mut draft = TaskDraft::new("a", TaskKind::Handler);
    let limit = |limit: &u8| {
        let is_skipped = *limit == skipped;
        let when_full = if is_skipped { WhenFull::Skip } else { WhenFull::Wait };
        let limit = Limit::of(u32::from(*limit) + 1).named(format!("limit-{limit}"));
        limit.across_tenants().when_full(when_full)
    };
    draft.limits = limits.iter().map(limit).collect();
    let definition = DefinitionDraft::new("w").task(draft).build().unwrap();
    let keys = LaneKeys::of(&definition, &Payload::default()).unwrap();
    keys.needs(&definition, &Tenant::new("acme").unwrap(), TaskIndex(0))
}

const NOW: Timestamp = Timestamp::from_micros(1_000);

#[derive(Clone, Debug)]
enum Act {
    Come(BTreeSet<u8>, u8),
    /// The one so many places behind the first of those that are ready ends.
    End(usize),
    /// The one so many places behind the first of those that wait gives up.
    GiveUp(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (prop::collection::btree_set(0_u8..4, 1..4), 0_u8..8)
            .prop_map(|(limits, skipped)| Act::Come(limits, skipped)),
        3 => (0_usize..8).prop_map(Act::End),
        1 => (0_usize..8).prop_map(Act::GiveUp),
    ]
}

/// What a store keeps of its lanes, and what must be true of it.
#[derive(Default)]
struct World {
    lanes: Lanes,
    needs: BTreeMap<TaskId, BTreeSet<u8>>,
    ready: Vec<TaskId>,
    waiting: Vec<TaskId>,
}

impl World {
    fn new() -> Self {
        World { lanes: Lanes::whole(), ..World::default() }
    }

    fn come(&mut self, task: TaskId, limits: BTreeSet<u8>, skipped: u8) {
        let verdict = self.lanes.request(task, needs(&limits, skipped), true, NOW);
        if let Verdict::Skip(full) = &verdict {
            assert_eq!(*full, lane(skipped));
            assert!(!self.lanes.entrants.contains_key(&task), "it has places");
            return;
        }
        self.needs.insert(task, limits);
        match verdict {
            Verdict::Ready => self.ready.push(task),
            Verdict::Wait(_) => self.waiting.push(task),
            Verdict::Skip(_) | Verdict::Still => panic!("nobody asked for that"),
        }
    }

    fn leave(&mut self, task: TaskId) {
        self.lanes.vacate(task);
        self.needs.remove(&task);
        let admitted = self.lanes.admit(NOW);
        assert!(admitted.stuck.is_empty() && admitted.unsettled.is_empty(), "all is known");
        for task in admitted.ready {
            let place = self.waiting.iter().position(|one| *one == task).expect("it waited");
            self.ready.push(self.waiting.remove(place));
        }
        let changes = self.lanes.take_changes();
        assert!(changes.alarms.is_empty() && changes.superseded.is_empty(), "{changes:?}");
        self.lanes.forget(NOW);
    }

    fn check(&self) {
        for limit in 0..4_u8 {
            let slots = usize::from(limit) + 1;
            let is_in = |task: &&TaskId| self.needs[task].contains(&limit);
            assert!(self.ready.iter().filter(is_in).count() <= slots, "limit {limit}");
        }
        for (id, lane) in &self.lanes.lanes {
            if let Some(first) = lane.waiting.front() {
                let Bound::Slots(slots) = first.bound else { panic!("all limits have slots") };
                assert!(lane.held >= slots, "{id:?} has room for who waits first");
            }
        }
    }
}

proptest! {
    #[test]
    fn slots_are_never_too_many_and_nobody_waits_for_ever(acts in prop::collection::vec(act(), 1..120)) {
        let mut world = World::new();
        for (number, act) in acts.into_iter().enumerate() {
            match act {
                Act::Come(limits, skipped) => world.come(task(number as u128), limits, skipped),
                Act::End(place) if !world.ready.is_empty() => {
                    let task = world.ready.remove(place % world.ready.len());
                    world.leave(task);
                }
                Act::GiveUp(place) if !world.waiting.is_empty() => {
                    let task = world.waiting.remove(place % world.waiting.len());
                    world.leave(task);
                }
                Act::End(_) | Act::GiveUp(_) => {}
            }
            world.check();
        }
        while let Some(task) = world.ready.pop() {
            world.leave(task);
            world.check();
        }
        prop_assert!(world.waiting.is_empty(), "{:?} wait for each other", world.waiting);
        prop_assert!(world.lanes.lanes.is_empty(), "an empty lane is remembered");
        prop_assert!(world.lanes.entrants.is_empty());
    }

    #[test]
    fn who_comes_first_to_a_lane_has_a_slot_first(ends in prop::collection::vec(any::<bool>(), 1..200)) {
        let mut world = World::new();
        let mut served = Vec::new();
        for (number, end) in ends.into_iter().enumerate() {
            match end && !world.ready.is_empty() {
                true => {
                    let task = world.ready.remove(0);
                    world.leave(task);
                }
                false => world.come(task(number as u128), BTreeSet::from([1]), 9),
            }
            served.extend(world.ready.iter().filter(|one| !served.contains(*one)).copied().collect::<Vec<_>>());
        }
        prop_assert!(served.is_sorted(), "{served:?}");
    }
}

#[test]
fn who_is_skipped_and_who_waits_do_not_wait_for_each_other() {
    let mut world = World::new();
    let both = || BTreeSet::from([0, 1]);
    // All slots of lane 1 but one are taken, and the one of lane 0.
    world.come(task(1), both(), 9);
    world.come(task(2), both(), 9);
    world.come(task(3), both(), 1);
    world.come(task(4), both(), 1);
    for _ in 0..4 {
        let task = world.ready.pop().expect("somebody may go on");
        world.leave(task);
    }
    assert!(world.waiting.is_empty());
}

fn need(limit: u8, when_full: WhenFull) -> Need {
    Need { lane: lane(limit), bound: Bound::Slots(1), when_full }
}

#[test]
fn who_loses_the_place_it_waits_for_gives_up_the_slot_it_has() {
    let mut lanes = Lanes::whole();
    let (slot, newest) = (need(0, WhenFull::Wait), need(1, WhenFull::CancelOldest));
    let mut ask = |one, needs: &[&Need]| {
        lanes.request(task(one), needs.iter().copied().cloned().collect(), true, NOW)
    };
    assert_eq!(ask(1, &[&newest]), Verdict::Ready);
    assert_eq!(ask(2, &[&slot, &newest]), Verdict::Wait(lane(1)));
    assert_eq!(ask(3, &[&newest]), Verdict::Wait(lane(1)));
    assert!(lanes.entrants[&task(2)].is_out, "the third has its place");
    lanes.vacate(task(2));
    assert_eq!(lanes.request(task(4), vec![slot], true, NOW), Verdict::Ready);
}

#[test]
fn places_of_a_lane_that_was_forgotten_go_on_behind_those_of_before() {
    let mut lanes = Lanes::whole();
    let mut place = |one, at| {
        let need = need(0, WhenFull::Wait);
        assert_eq!(lanes.request(task(one), vec![need], true, at), Verdict::Ready);
        let place = lanes.entrants[&task(one)].places[0];
        lanes.vacate(task(one));
        lanes.admit(at);
        lanes.take_changes();
        lanes.forget(at);
        assert!(lanes.lanes.is_empty());
        place
    };
    let first = place(1, NOW);
    assert!(place(2, NOW + std::time::Duration::from_secs(1)) > first);
}

#[test]
fn a_lane_whose_first_waiter_left_is_looked_at_again() {
    let mut lane = Lane::new(1, 4, 9, 0);
    lane.has_more = true;
    lane.alarm = Some(Alarm { seq: 5, due: NOW });
    assert!(!lane.is_unsettled(), "who waits first has an alarm");
    lane.leave(5);
    assert!(lane.is_unsettled());
}

fn keys(limit: Limit, input: &str) -> Result<Vec<LaneId>, String> {
    let mut draft = TaskDraft::new("a", TaskKind::Handler);
    draft.limits = vec![limit];
    let definition = DefinitionDraft::new("w").task(draft).build().unwrap();
    let input = Payload::from_json(input).unwrap();
    let keys = LaneKeys::of(&definition, &input).map_err(|error| error.to_string())?;
    let stored = LaneKeys::from_texts(keys.to_texts()).unwrap();
    assert_eq!(stored, keys, "stored and read back");
    let needs = keys.needs(&definition, &Tenant::new("acme").unwrap(), TaskIndex(0));
    Ok(needs.into_iter().map(|need| need.lane).collect())
}

#[test]
fn a_key_is_a_field_of_the_input() {
    let key = |input: &str| {
        let lanes = keys(Limit::per("order.customer", 1), input).unwrap();
        lanes.first().and_then(|lane| lane.key.as_ref().map(|key| key.to_string()))
    };
    assert_eq!(key(r#"{"order":{"customer":"ada"}}"#).as_deref(), Some("ada"));
    assert_eq!(key(r#"{"order":{"customer":7}}"#).as_deref(), Some("7"));
    assert_eq!(key(r#"{"order":{"customer":true}}"#).as_deref(), Some("true"));
    for input in ["null", "{}", r#"{"order":7}"#, r#"{"order":{"customer":{}}}"#] {
        assert_eq!(key(input), None, "{input}");
    }
    let error = keys(Limit::per("key", 1), r#"{"key":""}"#).unwrap_err();
    assert_eq!(error, r#"limit "w/a/key": the input's field "key": lane key is empty"#);
}

#[test]
fn a_limit_that_makes_no_sense_is_refused_with_its_name() {
    let build = |limits: Vec<Limit>| {
        let mut draft = TaskDraft::new("a", TaskKind::Handler);
        draft.limits = limits;
        DefinitionDraft::new("w").task(draft).build().unwrap_err().to_string()
    };
    let text = build(vec![Limit::per("key", 0)]);
    assert!(text.ends_with(r#"limit "w/a/key" has 0 slots, not within 1 to 100000"#), "{text}");
    let text = build(vec![Limit::per("a..b", 1)]);
    assert!(text.contains(r#"is by "a..b", which is no field"#), "{text}");
    let text = build(vec![Limit::of(1).named("x"), Limit::of(2).named("x")]);
    assert!(text.ends_with(r#"has two limits with the name "x""#), "{text}");
    let many = (0..9).map(|number| Limit::of(1).named(format!("l{number}"))).collect();
    assert!(build(many).ends_with("has 9 limits, the most is 8"));
    let mut nap = TaskDraft::new("nap", TaskKind::Sleep(std::time::Duration::ZERO));
    nap.limits = vec![Limit::of(1)];
    let text = DefinitionDraft::new("w").task(nap).build().unwrap_err().to_string();
    assert!(text.ends_with("it is a sleep, which nothing limits"), "{text}");
}

#[test]
fn a_definition_with_limits_is_the_same_when_it_is_built_again() {
    let mut draft = TaskDraft::new("a", TaskKind::Handler);
    draft.limits =
        vec![Limit::per("z", 2).across_tenants(), Limit::of(1).when_full(WhenFull::Skip)];
    let definition = DefinitionDraft::new("w").task(draft).build().unwrap();
    let json = serde_json::to_string(&definition.to_draft()).unwrap();
    let again: DefinitionDraft = serde_json::from_str(&json).unwrap();
    assert_eq!(again.build().unwrap(), definition);
    let limits = &definition.task(TaskIndex(0)).limits;
    let names: Vec<&str> = limits.iter().map(|limit| limit.name.as_str()).collect();
    assert_eq!(names, ["w/a", "w/a/z"]);
    let keys = LaneKeys::of(&definition, &Payload::from_json(r#"{"z":1}"#).unwrap()).unwrap();
    let needs = keys.needs(&definition, &Tenant::default(), TaskIndex(0));
    assert_eq!(needs[0].when_full, WhenFull::Skip, "who may be skipped is so before it waits");
}
