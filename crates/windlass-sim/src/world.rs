//! What everyone in a simulation shares: the clock, the store, and the notes that
//! the checks are made from.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use windlass::PlantedBug;
use windlass::clock::{Clock, RuntimeClock};
use windlass::store::MemoryStore;
use windlass::testing::invariants::Violation;
use windlass_core::{RunId, Timestamp};

use crate::dice::Dice;
use crate::faults::{Fate, FaultCounts, FaultKind, Verb};
use crate::hints::Relays;
use crate::ledger::{ClientLedger, HandlerLedger};
use crate::scenario::Scenario;
use crate::truth::Truth;

/// 2026-01-01T00:00:00Z, when every simulation begins.
pub(crate) const EPOCH: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// A value that the futures of one simulation share.
#[derive(Default)]
pub(crate) struct Shared<T>(Mutex<T>);

impl<T> Shared<T> {
    /// Shares a value.
    pub(crate) fn new(value: T) -> Self {
        Shared(Mutex::new(value))
    }

    /// The value. Never held across an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // A handler that panics does so without a lock; anything else is reported
        // as a panic of the engine.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where requests come from: a number for the clients, and one for each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SiteId(pub(crate) usize);

impl SiteId {
    /// All clients.
    pub(crate) const CLIENTS: SiteId = SiteId(0);
}

/// How a site that is cut off from the store is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Requests do not arrive.
    Requests,
    /// Requests arrive, answers do not.
    Answers,
}

/// One place that requests come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Site {
    /// No fault is aimed at it. The store may still be down.
    pub(crate) is_calm: bool,
    /// Cut off until a time.
    pub(crate) cut: Option<(Duration, Cut)>,
    /// When its process came to be.
    pub(crate) born_at: Duration,
    /// When its process was told to drain.
    pub(crate) drained_at: Option<Duration>,
    /// The workflows and versions its process knows, as places in the scenario.
    pub(crate) knows: Vec<usize>,
    /// The slots of its worker.
    pub(crate) slots: usize,
}

/// Everything that is shared.
pub(crate) struct World {
    /// What was planned.
    pub(crate) scenario: Scenario,
    /// The store without any faults.
    pub(crate) store: Arc<MemoryStore>,
    /// The bug that everyone has.
    pub(crate) bug: Option<PlantedBug>,
    clock: RuntimeClock,
    born: Instant,
    is_traced: bool,
    dice: Shared<Dice>,
    /// How often each kind of fault was injected.
    pub(crate) counts: Shared<FaultCounts>,
    /// The promises that were seen to be broken while it happened.
    pub(crate) violations: Shared<Vec<Violation>>,
    /// What handlers did.
    pub(crate) handlers: Shared<HandlerLedger>,
    /// What clients were answered.
    pub(crate) clients: Shared<ClientLedger>,
    /// What the store applied.
    pub(crate) truth: Shared<Truth>,
    /// Where requests come from.
    pub(crate) sites: Shared<Vec<Site>>,
    /// From when on schedules may have been paused, by their names.
    pub(crate) rests: Shared<Vec<(String, Timestamp)>>,
    /// The runs that were asked of schedules by hand.
    pub(crate) triggers: Shared<BTreeSet<RunId>>,
    /// Where hints go.
    pub(crate) relays: Relays,
}

impl World {
    /// The world of a scenario, at its beginning.
    pub(crate) fn new(scenario: Scenario, bug: Option<PlantedBug>, is_traced: bool) -> Arc<World> {
        let clock = RuntimeClock::starting_at(EPOCH);
        let store = Arc::new(MemoryStore::with_bug(Arc::new(clock), bug));
        Arc::new(World {
            dice: Shared::new(Dice::new(scenario.seed, "faults")),
            scenario,
            store,
            bug,
            clock,
            born: Instant::now(),
            is_traced,
            counts: Shared::default(),
            violations: Shared::default(),
            handlers: Shared::default(),
            clients: Shared::default(),
            truth: Shared::default(),
            sites: Shared::new(vec![Site::default()]),
            rests: Shared::default(),
            triggers: Shared::default(),
            relays: Relays::default(),
        })
    }

    /// The time by the store's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The time since the simulation began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.born.elapsed()
    }

    /// Whether the faults have stopped.
    pub(crate) fn is_healed(&self) -> bool {
        self.elapsed() >= self.scenario.horizon
    }

    /// Waits, but not longer than faults last; `false` if they have stopped.
    pub(crate) async fn sleep_within_faults(&self, time: Duration) -> bool {
        let until = (self.elapsed() + time).min(self.scenario.horizon);
        tokio::time::sleep_until(self.born + until).await;
        !self.is_healed()
    }

    /// Waits until this time since the beginning.
    pub(crate) async fn sleep_until(&self, at: Duration) {
        tokio::time::sleep_until(self.born + at).await;
    }

    /// Says what happens, if someone wants to know.
    pub(crate) fn trace(&self, text: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{:>9.3}s  {}", self.elapsed().as_secs_f64(), text());
        }
    }

    /// Notes a broken promise.
    pub(crate) fn violate(&self, promise: &'static str, text: String) {
        self.trace(|| format!("VIOLATION {promise}: {text}"));
        self.violations.lock().push(Violation { promise, text });
    }

    /// Counts a fault and says what it was.
    pub(crate) fn fault(&self, kind: FaultKind, text: impl FnOnce() -> String) {
        self.counts.lock().add(kind);
        self.trace(|| format!("{}: {}", kind.words(), text()));
    }

    /// Adds a site.
    pub(crate) fn add_site(&self, site: Site) -> SiteId {
        let mut sites = self.sites.lock();
        sites.push(site);
        SiteId(sites.len() - 1)
    }

    /// Changes a site.
    pub(crate) fn change_site(&self, site: SiteId, change: impl FnOnce(&mut Site)) {
        if let Some(site) = self.sites.lock().get_mut(site.0) {
            change(site);
        }
    }

    /// Whether the store is down now.
    pub(crate) fn is_out(&self) -> bool {
        self.scenario.faults.is_out(self.elapsed())
    }

    /// Whether this hint is lost.
    pub(crate) fn loses_hint(&self) -> bool {
        self.dice.lock().chance(self.scenario.faults.hints_lost)
    }

    /// What happens to a request. Whatever it is, it is over when faults stop.
    pub(crate) fn fate(&self, site: SiteId, verb: Verb) -> Fate {
        let now = self.elapsed();
        let left = self.scenario.horizon.saturating_sub(now);
        let (is_calm, cut) = {
            let sites = self.sites.lock();
            let Site { is_calm, cut, .. } = &sites[site.0];
            (*is_calm, cut.filter(|(until, _)| now < *until).map(|(_, cut)| cut))
        };
        let mut dice = self.dice.lock();
        if is_calm || left.is_zero() {
            return Fate::calm(&mut dice);
        }
        let mut fate = self.scenario.faults.roll(&mut dice, verb);
        drop(dice);
        fate.before = fate.before.min(left);
        fate.after = fate.after.min(left.saturating_sub(fate.before));
        fate.copy_after = fate.copy_after.map(|after| after.min(left));
        self.count_fate(site, verb, &fate);
        match cut {
            Some(Cut::Requests) => fate.is_request_lost = true,
            Some(Cut::Answers) => fate.is_answer_lost = true,
            None => {}
        }
        fate
    }

    fn count_fate(&self, site: SiteId, verb: Verb, fate: &Fate) {
        let what = || format!("{verb:?} of site {}", site.0);
        if fate.is_request_lost {
            self.fault(FaultKind::RequestLost, what);
        } else if fate.is_answer_lost {
            self.fault(FaultKind::AnswerLost, what);
        }
        if let Some(after) = fate.copy_after {
            self.fault(FaultKind::DeliveredTwice, || format!("{} after {after:?}", what()));
        }
        let slowest = fate.before.max(fate.after);
        if slowest >= Duration::from_millis(500) {
            let (before, after) = (fate.before, fate.after);
            self.fault(FaultKind::Slow, || format!("{}, {before:?} + {after:?}", what()));
        }
    }
}
