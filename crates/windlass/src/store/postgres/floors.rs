//! Where looking begins.
//!
//! Tasks are taken from the front of routes, timers and staged runs, and leave dead rows
//! there. An old snapshot anywhere in the database keeps those, and a look from the front
//! would take longer and longer. So a look begins behind what was taken, and from the front
//! only now and then: a transaction may commit something in front of what was taken
//! meanwhile.
//!
//! Floors are a process's own knowledge, and never more than a guess: whatever is missed
//! because of one is found by the next sweep from the front.
//!
//! The floor of a route trails what was taken from it. A task gets its tag shortly before its
//! transaction commits, and claims that commit in between pass that tag. A look that begins at the
//! floor of a moment ago still finds the task, at the price of the dead rows in between.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a route in which enough was found is swept from the front nevertheless.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

/// A sweep that took long is repeated after this many times as long: looking at dead rows
/// must not become the work.
const SWEEP_REST: u32 = 20;

/// No sweep rests longer: what stands in front of a floor waits for the next one.
const SWEEP_REST_MAX: Duration = Duration::from_secs(5);

/// Changes of queues are looked for more rarely, and what is missed is added up later.
const CHANGES_REST_MAX: Duration = Duration::from_secs(60);

/// A sweep of timers or staged runs that takes less than it takes to pass some ten thousand
/// dead rows needs no rest.
const CHEAP_LOOK: Duration = Duration::from_millis(5);

/// How far the floor of a route trails: by the time within which most transactions commit, and by
/// no more tasks than are passed in a fraction of a claim's time.
const TRAIL: Duration = Duration::from_millis(50);
const TRAIL_TASKS_MAX: usize = 256;

/// What is taken from the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Front {
    /// The ready tasks of a route, by tag.
    Route(i32),
    /// Those of them that are of one tenant, for claims that are for it alone. What such a claim
    /// sees says nothing of the route as a whole.
    Turn {
        /// The route.
        route: i32,
        /// The tenant.
        tenant: i32,
    },
    /// Timers, by microseconds.
    Timers,
    /// Runs that wait for their admission, by number.
    Staged,
    /// Changes of queues, by number.
    Changes,
}

/// How much a claim has found so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing was looked for yet.
    Nothing,
    /// Less than was asked for: there may be more in front.
    TooLittle,
}

/// The look that a floor is learnt from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) front: Front,
    /// What [`Floors::get`] said.
    pub(super) from: i64,
    pub(super) took: Duration,
}

impl Look {
    /// Whether it took so long that a repetition must wait.
    fn is_dear(self) -> bool {
        self.took >= CHEAP_LOOK
    }

    /// How long the next sweep must wait after this one.
    fn rest(self) -> Duration {
        let rest = self.took * SWEEP_REST;
        match self.front {
            Front::Route(_) | Front::Turn { .. } => rest.min(SWEEP_REST_MAX),
            Front::Changes if self.is_dear() => rest.min(CHANGES_REST_MAX),
            Front::Timers | Front::Staged if self.is_dear() => rest.min(SWEEP_REST_MAX),
            Front::Timers | Front::Staged | Front::Changes => Duration::ZERO,
        }
    }
}

struct Floor {
    at: i64,
    swept_at: Instant,
    /// How long the next sweep must wait at least.
    rest: Duration,
    /// Whether the last look found everything there was.
    is_dry: bool,
    /// Whether the last look ended before it had seen everything: the next goes on from there.
    is_cut: bool,
    /// Where it was before, the oldest first; only of routes.
    trail: VecDeque<Left>,
}

/// A place that a floor has left.
#[derive(Clone, Copy)]
struct Left {
    at: i64,
    left_at: Instant,
    /// How many tasks were taken from there.
    taken: usize,
}

impl Floor {
    /// Drops what is too old or too far behind to begin there.
    fn shorten_trail(&mut self) {
        let mut behind: usize = self.trail.iter().map(|left| left.taken).sum();
        while let Some(first) = self.trail.front()
            && (behind > TRAIL_TASKS_MAX || first.left_at.elapsed() >= TRAIL)
        {
            behind -= first.taken;
            self.trail.pop_front();
        }
    }

    /// Returns where the next look begins.
    fn trailing(&mut self) -> i64 {
        self.shorten_trail();
        self.trail.front().map_or(self.at, |left| left.at.min(self.at))
    }
}

/// The most fronts of single tenants that are remembered before all of them are forgotten.
const TURNS_MAX: usize = 10_000;

/// The floors that this process knows.
#[derive(Default)]
pub(super) struct Floors {
    known: Mutex<HashMap<Front, Floor>>,
    is_restless: bool,
}

impl Floors {
    /// Floors for a clock that jumps. No real time passes between two looks, and none takes any:
    /// which statements a verb sends, and what they find, must not depend on the machine's speed.
    #[cfg(feature = "testing")]
    pub(super) fn restless() -> Floors {
        Floors { is_restless: true, ..Floors::default() }
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<Front, Floor>) -> T) -> T {
        act(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets every floor.
    pub(super) fn forget(&self) {
        self.with(HashMap::clear);
    }

    /// From where on to look; `i64::MIN` for a sweep from the front.
    pub(super) fn get(&self, front: Front, found: Found) -> i64 {
        self.with(|floors| {
            let Some(floor) = floors.get_mut(&front) else { return i64::MIN };
            if floor.is_cut {
                return floor.at;
            }
            let wait = match found {
                // Where nothing was left, one look from the front does for both.
                Found::Nothing if floor.is_dry => floor.rest,
                Found::Nothing => floor.rest.max(SWEEP_EVERY),
                Found::TooLittle => floor.rest,
            };
            let passed = if self.is_restless { Duration::ZERO } else { floor.swept_at.elapsed() };
            if passed < wait { floor.trailing() } else { i64::MIN }
        })
    }

    /// Returns whether a look took so long that it is not to be repeated soon.
    pub(super) fn is_dear(&self, look: Look) -> bool {
        !self.is_restless && look.is_dear()
    }

    /// Whether the last look found everything there was, or there was none: then the dead
    /// rows that others leave are behind no floor yet.
    pub(super) fn is_dry(&self, front: Front) -> bool {
        self.with(|floors| floors.get(&front).is_none_or(|floor| floor.is_dry))
    }

    /// Learns the same of a route from which tasks were taken: for a while the next looks begin
    /// at the floor of before.
    pub(super) fn learn_taken(&self, look: Look, at: i64, is_dry: bool, taken: usize) {
        let before = self.with(|floors| floors.get(&look.front).map(|floor| floor.at));
        self.learn(look, at, is_dry);
        if self.is_restless || taken == 0 {
            return;
        }
        let left = Left { at: before.unwrap_or(i64::MIN), left_at: Instant::now(), taken };
        self.with(|floors| {
            if let Some(floor) = floors.get_mut(&look.front) {
                floor.trail.push_back(left);
                floor.shorten_trail();
            }
        });
    }

    /// Nothing is left before `at`, as far as the look saw; `is_dry` if nothing is left
    /// behind it either.
    pub(super) fn learn(&self, look: Look, at: i64, is_dry: bool) {
        let rest = if self.is_restless { Duration::ZERO } else { look.rest() };
        self.with(|floors| match floors.get_mut(&look.front) {
            Some(floor) if look.from != i64::MIN => {
                (floor.at, floor.is_dry, floor.is_cut) = (at, is_dry, false);
            }
            Some(_) | None => {
                let trail = floors.remove(&look.front).map_or_else(VecDeque::new, |it| it.trail);
                let swept_at = Instant::now();
                let floor = Floor { at, swept_at, rest, is_dry, is_cut: false, trail };
                insert(floors, look.front, floor);
            }
        });
    }

    /// A look ended before it had seen everything, and the next goes on from here. It is as old as
    /// the sweep that it is a part of.
    pub(super) fn learn_cut(&self, look: Look, at: i64) {
        let rest = if self.is_restless { Duration::ZERO } else { look.rest() };
        self.with(|floors| match floors.get_mut(&look.front) {
            Some(floor) => (floor.at, floor.is_dry, floor.is_cut) = (at, false, true),
            None => {
                let (swept_at, trail) = (Instant::now(), VecDeque::new());
                let floor = Floor { at, swept_at, rest, is_dry: false, is_cut: true, trail };
                insert(floors, look.front, floor);
            }
        });
    }

    /// A task was put back at this place.
    pub(super) fn lower(&self, front: Front, at: i64) {
        self.with(|floors| {
            if let Some(floor) = floors.get_mut(&front) {
                floor.at = floor.at.min(at);
            }
            // Whose it is need not be known: a floor that is too low costs a longer look.
            let Front::Route(route) = front else { return };
            let is_of = |one: &Front| matches!(one, Front::Turn { route: of, .. } if *of == route);
            for (_, floor) in floors.iter_mut().filter(|(one, _)| is_of(one)) {
                floor.at = floor.at.min(at);
            }
        });
    }
}

fn insert(floors: &mut HashMap<Front, Floor>, front: Front, floor: Floor) {
    if let Front::Turn { .. } = front {
        let is_turn = |one: &&Front| matches!(one, Front::Turn { .. });
        if floors.len() >= TURNS_MAX && floors.keys().filter(is_turn).count() >= TURNS_MAX {
            floors.retain(|one, _| !is_turn(&one));
        }
    }
    floors.insert(front, floor);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(from: i64, took_ms: u64) -> Look {
        Look { front: Front::Timers, from, took: Duration::from_millis(took_ms) }
    }

    #[test]
    fn the_floor_of_a_route_trails_what_was_taken() {
        let floors = Floors::default();
        let look = |from| Look { front: Front::Route(1), from, took: Duration::ZERO };
        floors.learn_taken(look(i64::MIN), 10, false, 3);
        floors.learn_taken(look(i64::MIN), 20, false, 3);
        floors.learn_taken(look(10), 30, false, TRAIL_TASKS_MAX - 3);
        // The first step is too far behind.
        assert_eq!(floors.get(Front::Route(1), Found::Nothing), 10);
        floors.learn_taken(look(10), 40, false, TRAIL_TASKS_MAX + 1);
        // One claim of many is not looked at again.
        assert_eq!(floors.get(Front::Route(1), Found::Nothing), 40);
    }

    #[test]
    fn the_floor_of_a_route_catches_up() {
        let floors = Floors::default();
        let look = |from| Look { front: Front::Route(1), from, took: Duration::ZERO };
        floors.learn_taken(look(i64::MIN), 10, false, 1);
        floors.learn_taken(look(10), 20, false, 1);
        let left_at = Instant::now().checked_sub(TRAIL).unwrap();
        floors.with(|floors| {
            let floor = floors.get_mut(&Front::Route(1)).unwrap();
            floor.trail.iter_mut().for_each(|left| left.left_at = left_at);
        });
        assert_eq!(floors.get(Front::Route(1), Found::Nothing), 20);
    }

    #[test]
    fn what_is_cheap_is_always_swept() {
        let floors = Floors::default();
        floors.learn(look(i64::MIN, 1), 7, true);
        assert_eq!(floors.get(Front::Timers, Found::TooLittle), i64::MIN);
    }

    #[test]
    fn a_dear_sweep_is_not_repeated_at_once() {
        let floors = Floors::default();
        floors.learn(look(i64::MIN, 60_000), 7, true);
        assert_eq!(floors.get(Front::Timers, Found::TooLittle), 7);
        floors.learn(look(7, 1), 9, false);
        assert_eq!(floors.get(Front::Timers, Found::TooLittle), 9, "the sweep still rests");
        assert!(!floors.is_dry(Front::Timers));
    }

    #[test]
    fn no_sweep_rests_longer_than_seconds() {
        assert_eq!(look(i64::MIN, 60_000).rest(), SWEEP_REST_MAX);
    }

    #[test]
    fn a_route_is_swept_when_too_little_is_found_and_the_last_sweep_was_cheap() {
        let floors = Floors::default();
        let look = Look { front: Front::Route(1), from: i64::MIN, took: Duration::ZERO };
        floors.learn(look, 7, false);
        assert_eq!(floors.get(Front::Route(1), Found::Nothing), 7);
        assert_eq!(floors.get(Front::Route(1), Found::TooLittle), i64::MIN);
        assert_eq!(floors.get(Front::Route(2), Found::Nothing), i64::MIN);
    }

    #[test]
    fn a_look_that_was_cut_goes_on_where_it_ended_and_the_next_begins_in_front() {
        let floors = Floors::default();
        let front = Front::Turn { route: 1, tenant: 2 };
        let look = |from| Look { front, from, took: Duration::ZERO };
        floors.learn_cut(look(i64::MIN), 5);
        assert_eq!(floors.get(front, Found::TooLittle), 5);
        floors.learn(look(5), 9, true);
        assert_eq!(floors.get(front, Found::TooLittle), i64::MIN);
        assert_eq!(floors.get(Front::Turn { route: 1, tenant: 3 }, Found::Nothing), i64::MIN);
        assert_eq!(floors.get(Front::Route(1), Found::Nothing), i64::MIN, "it is everyone's");
    }

    #[test]
    fn fronts_of_single_tenants_are_bounded() {
        let floors = Floors::default();
        let front = |tenant| Front::Turn { route: 1, tenant };
        let look = |front| Look { front, from: i64::MIN, took: Duration::from_secs(60) };
        floors.learn(look(Front::Route(1)), 3, true);
        for tenant in 0..=i32::try_from(TURNS_MAX).unwrap() {
            floors.learn(look(front(tenant)), 3, true);
        }
        assert_eq!(floors.get(front(0), Found::Nothing), i64::MIN, "it was forgotten");
        assert_eq!(floors.get(Front::Route(1), Found::Nothing), 3);
    }

    #[test]
    fn a_task_that_is_put_back_lowers_the_floor() {
        let floors = Floors::default();
        let look = Look { front: Front::Route(1), from: i64::MIN, took: Duration::ZERO };
        floors.learn(look, 7, false);
        floors.lower(Front::Route(1), 3);
        floors.lower(Front::Route(1), 5);
        assert_eq!(floors.get(Front::Route(1), Found::Nothing), 3);
    }
}
