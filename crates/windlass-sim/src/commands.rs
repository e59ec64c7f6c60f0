//! The commands: many seeds on all cores, every bug, or one seed in detail.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use windlass::PlantedBug;
use windlass::testing::History;
use windlass::testing::invariants::Violation;

use crate::arguments::Extent;
use crate::faults::FaultCounts;
use crate::seed::{Options, Outcome, simulate};
use crate::world::Shared;

/// Every so many seeds one is simulated twice, to see that nothing but the seed
/// decides.
const TWICE_EVERY: u64 = 100;

/// The most violations that are printed of a seed.
const VIOLATIONS_SHOWN: usize = 10;

/// The first seed of a bug hunt: always the same, so that the table is.
const FIRST_BUG_SEED: u64 = 1;

/// What many seeds came to.
#[derive(Default)]
struct Total {
    seeds: u64,
    runs: usize,
    tasks: usize,
    attempts: usize,
    faults: FaultCounts,
    failed: Option<(u64, Vec<Violation>)>,
}

impl Total {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.runs += outcome.runs;
        self.tasks += outcome.tasks;
        self.attempts += outcome.attempts;
        self.faults.merge(&outcome.faults);
        let is_first = self.failed.as_ref().is_none_or(|(first, _)| seed < *first);
        if !outcome.violations.is_empty() && is_first {
            self.failed = Some((seed, outcome.violations));
        }
    }
}

/// Simulates seeds on all cores until enough, or until one breaks a promise.
pub(crate) fn run(extent: Extent, first_seed: Option<u64>) -> ExitCode {
    let first = first_seed.unwrap_or_else(seed_from_clock);
    println!("seeds from {first} on");
    let began = Instant::now();
    let total = Shared::new(Total::default());
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        while !is_over.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let is_enough = match extent {
                Extent::Seeds(count) => number >= count,
                Extent::Time(time) => began.elapsed() >= time,
            };
            if is_enough {
                return;
            }
            let seed = first.wrapping_add(number);
            let outcome = simulate_checked(seed, number % TWICE_EVERY == 0);
            if !outcome.violations.is_empty() {
                is_over.store(true, Ordering::Relaxed);
            }
            total.lock().add(seed, outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..cores() {
            scope.spawn(work);
        }
    });
    report(&total.lock(), began.elapsed())
}

/// Simulates a seed, and once more if it is to be compared with itself.
fn simulate_checked(seed: u64, is_twice: bool) -> Outcome {
    let options = Options { has_fingerprint: is_twice, ..Options::default() };
    let mut outcome = simulate(seed, options);
    if is_twice && simulate(seed, options).fingerprint != outcome.fingerprint {
        let text = "the same seed gave two histories".to_owned();
        outcome.violations.push(Violation { promise: "the simulation is deterministic", text });
    }
    outcome
}

fn report(total: &Total, time: Duration) -> ExitCode {
    let Total { seeds, runs, tasks, attempts, faults, failed } = total;
    let a_minute = *seeds as f64 * 60.0 / time.as_secs_f64();
    println!("{seeds} seeds in {:.1} s, {a_minute:.0} a minute", time.as_secs_f64());
    println!("{runs} runs, {tasks} tasks, {attempts} attempts");
    println!("faults:\n{faults}");
    let Some((seed, violations)) = failed else {
        println!("every promise was kept");
        return ExitCode::SUCCESS;
    };
    println!("seed {seed} broke promises:");
    print_violations(violations);
    println!("to see it again: cargo xtask simulate --first-seed {seed} --seeds 1");
    println!("to see all of it: cargo run --release --package windlass-sim -- replay {seed}");
    ExitCode::FAILURE
}

fn print_violations(violations: &[Violation]) {
    for violation in violations.iter().take(VIOLATIONS_SHOWN) {
        println!("  {violation}");
    }
    if let Some(more) = violations.len().checked_sub(VIOLATIONS_SHOWN).filter(|more| *more > 0) {
        println!("  and {more} more");
    }
}

/// What a bug hunt came to.
struct Catch {
    bug: PlantedBug,
    /// The number of seeds it took, and what was seen.
    caught: Option<(u64, Violation)>,
}

/// Plants each bug in turn and simulates until it is caught.
pub(crate) fn bugs(seeds: u64) -> ExitCode {
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let catches = Shared::new(Vec::new());
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed) as usize;
            let Some(bug) = PlantedBug::ALL.get(place).copied() else { return };
            let caught = hunt(bug, seeds);
            catches.lock().push((place, Catch { bug, caught }));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..cores() {
            scope.spawn(work);
        }
    });
    let mut catches = std::mem::take(&mut *catches.lock());
    catches.sort_by_key(|(place, _)| *place);
    println!("{:<28}{:>6}  first violation", "bug", "seeds");
    for (_, Catch { bug, caught }) in &catches {
        let name = format!("{bug:?}");
        match caught {
            Some((count, violation)) => println!("{name:<28}{count:>6}  {}", short(violation)),
            None => println!("{name:<28}{:>6}  not caught", "-"),
        }
    }
    let missed = catches.iter().filter(|(_, catch)| catch.caught.is_none()).count();
    let (caught, seconds) = (catches.len() - missed, began.elapsed().as_secs_f64());
    println!("{caught} of {} bugs caught in {seconds:.1} s", catches.len());
    if missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The number of seeds until a bug is caught, and what was seen.
pub(crate) fn hunt(bug: PlantedBug, seeds: u64) -> Option<(u64, Violation)> {
    (0..seeds).find_map(|number| {
        let options = Options { bug: Some(bug), ..Options::default() };
        let outcome = simulate(FIRST_BUG_SEED + number, options);
        outcome.violations.into_iter().next().map(|violation| (number + 1, violation))
    })
}

fn short(violation: &Violation) -> String {
    const WIDTH: usize = 100;
    let text = violation.to_string().replace('\n', " ");
    if text.chars().count() <= WIDTH {
        return text;
    }
    text.chars().take(WIDTH - 1).chain(['…']).collect()
}

/// Simulates one seed and tells everything.
pub(crate) fn replay(seed: u64) -> ExitCode {
    let outcome = simulate(seed, Options { is_traced: true, ..Options::default() });
    if outcome.violations.is_empty() {
        println!("every promise was kept");
        return ExitCode::SUCCESS;
    }
    println!("broken promises:");
    print_violations(&outcome.violations);
    for file in outcome.files {
        let id = file.run.id.to_string();
        if outcome.violations.iter().any(|violation| violation.text.contains(&id)) {
            println!("run {id} of {:?}:\n{}", file.run.workflow, History::new(file.events));
        }
    }
    ExitCode::FAILURE
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn seed_from_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(1, |since| since.as_millis() as u64)
}
