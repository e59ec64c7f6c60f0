//! Workers that have nothing to do, and who is woken when there may be something.
//!
//! A worker whose claim finds nothing is put down here with what it can run. When the store
//! hints, or a second has passed, one of each kind is woken, the longest idle first; whoever
//! finds something has the next one woken. So a thousand idle workers cost the store one look
//! per second, and a thousand tasks wake a thousand workers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use windlass::store::{HandlerKey, Hints};
use windlass_core::{QueueName, Tenant, WorkerId};

use super::replies::Hinter;

/// How often one idle worker of each kind looks without a hint, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a worker can run. Workers of one kind can stand in for each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    /// The worker, if what it may run depends on the keys that it owns: nobody stands in for it.
    pub(crate) owner: Option<WorkerId>,
    pub(crate) queues: Arc<[QueueName]>,
    pub(crate) handlers: Arc<[HandlerKey]>,
    /// The tenant whose tasks alone it claims, if that is so.
    pub(crate) tenant: Option<Tenant>,
}

/// How a worker is woken.
pub(crate) enum Wake {
    /// By a hint on its stream.
    Hint(Hinter),
    /// By an answer that was held back.
    Answer(oneshot::Sender<()>),
}

impl Wake {
    /// Wakes it; whether there was someone.
    fn wake(self, worker: WorkerId) -> bool {
        match self {
            Wake::Hint(stream) => stream.hint(worker),
            Wake::Answer(answer) => answer.send(()).is_ok(),
        }
    }
}

#[derive(Default)]
struct Sleepers {
    /// In the order in which they fell idle. One that is not in `wakes` under its number any
    /// more is passed over.
    order: VecDeque<(u64, WorkerId)>,
    wakes: HashMap<WorkerId, (u64, Wake)>,
    /// The newest look that found nothing: when it began, and how many hints there were before.
    dry: Option<(Instant, u64)>,
}

#[derive(Default)]
struct State {
    kinds: BTreeMap<Kind, Sleepers>,
    last_number: u64,
    /// How often the store hinted, or it was time to look.
    looks: u64,
}

/// Who is idle.
pub(crate) struct Idle {
    state: Mutex<State>,
    hints: Hints,
}

/// When someone began to look for tasks: what is hinted at from then on it may have missed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    looks: u64,
    at: Instant,
    hints: u64,
    /// Whether nothing found means that there is nothing.
    sees_all: bool,
}

impl Began {
    /// The store was not asked, or not for all there is.
    pub(crate) fn blind(self) -> Self {
        Began { sees_all: false, ..self }
    }
}

impl Idle {
    /// Of those who wait for hints of a store.
    pub(crate) fn new(hints: Hints) -> Self {
        Idle { state: Mutex::default(), hints }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another of this kind has found nothing a moment ago, and nobody hinted since.
    pub(crate) fn is_dry(&self, kind: &Kind) -> bool {
        let dry = self.state().kinds.get(kind).and_then(|sleepers| sleepers.dry);
        dry.is_some_and(|(at, hints)| at.elapsed() < LOOK_EVERY && hints == self.hints.sent())
    }

    /// A worker is about to look. `sees_all` unless it may find nothing although there is
    /// something.
    pub(crate) fn begin(&self, kind: &Kind, worker: WorkerId, sees_all: bool) -> Began {
        let mut state = self.state();
        if let Some(sleepers) = state.kinds.get_mut(kind) {
            sleepers.wakes.remove(&worker);
        }
        Began { looks: state.looks, at: Instant::now(), hints: self.hints.sent(), sees_all }
    }

    /// A worker has found nothing. It is woken at once if there was a hint since it began.
    pub(crate) fn fall_idle(&self, kind: &Kind, worker: WorkerId, began: Began, wake: Wake) {
        let mut state = self.state();
        if state.looks != began.looks {
            drop(state);
            wake.wake(worker);
            return;
        }
        state.last_number += 1;
        let number = state.last_number;
        let sleepers = state.kinds.entry(kind.clone()).or_default();
        if began.sees_all {
            sleepers.dry = sleepers.dry.max(Some((began.at, began.hints)));
        }
        sleepers.order.push_back((number, worker));
        sleepers.wakes.insert(worker, (number, wake));
        // What is passed over must not be kept for ever.
        if sleepers.order.len() > 2 * sleepers.wakes.len() + 64 {
            let wakes = &sleepers.wakes;
            let is_current = |(number, worker): &(u64, WorkerId)| {
                wakes.get(worker).is_some_and(|(current, _)| current == number)
            };
            sleepers.order.retain(is_current);
        }
    }

    /// A worker of this kind found so much: there may be more for others.
    pub(crate) fn found(&self, kind: &Kind, is_full: bool) {
        let mut state = self.state();
        if let Some(sleepers) = state.kinds.get_mut(kind) {
            wake_next(sleepers);
            if is_full {
                wake_next(sleepers);
            }
        }
    }

    /// There may be something for everyone: wakes one of each kind.
    fn look(&self) {
        let mut state = self.state();
        state.looks += 1;
        state.kinds.retain(|_, sleepers| {
            wake_next(sleepers);
            !sleepers.wakes.is_empty()
        });
    }

    /// A worker is not here any more.
    pub(crate) fn forget(&self, kind: &Kind, worker: WorkerId) {
        if let Some(sleepers) = self.state().kinds.get_mut(kind) {
            sleepers.wakes.remove(&worker);
        }
    }

    /// Watches for tasks on behalf of all who are idle.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut hints = self.hints.clone();
        loop {
            let pause = LOOK_EVERY.mul_f64(1.0 - fastrand::f64() / 4.0);
            // A hint or the time, both are a reason to look.
            let _ = tokio::time::timeout(pause, hints.changed()).await;
            self.look();
        }
    }
}

/// Wakes the one who has been idle the longest and can still be woken.
fn wake_next(sleepers: &mut Sleepers) {
    while let Some((number, worker)) = sleepers.order.pop_front() {
        if sleepers.wakes.get(&worker).is_none_or(|(current, _)| *current != number) {
            continue;
        }
        let woken = sleepers.wakes.remove(&worker).is_some_and(|(_, wake)| wake.wake(worker));
        if woken {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle() -> Idle {
        Idle::new(windlass::store::HintSender::new().subscribe())
    }

    fn kind() -> Kind {
        Kind { owner: None, queues: Arc::new([]), handlers: Arc::new([]), tenant: None }
    }

    fn sleep(idle: &Idle, worker: u128, began: Began) -> oneshot::Receiver<()> {
        let (answer, answered) = oneshot::channel();
        idle.fall_idle(&kind(), WorkerId::from_random(worker), began, Wake::Answer(answer));
        answered
    }

    #[test]
    fn one_of_each_kind_is_woken_and_whoever_finds_something_wakes_the_next() {
        let idle = idle();
        let began = idle.begin(&kind(), WorkerId::from_random(1), true);
        let mut sleeping: Vec<_> = (1..=4).map(|worker| sleep(&idle, worker, began)).collect();
        let mut awake = || {
            let woken = |answer: &mut oneshot::Receiver<()>| answer.try_recv().is_ok();
            sleeping.iter_mut().map(woken).collect::<Vec<_>>()
        };
        assert_eq!(awake(), [false; 4]);
        idle.look();
        assert_eq!(awake(), [true, false, false, false]);
        idle.found(&kind(), true);
        assert_eq!(awake(), [false, true, true, false]);
        idle.found(&kind(), false);
        assert_eq!(awake(), [false, false, false, true]);
    }

    #[test]
    fn a_hint_between_the_look_and_the_sleep_is_not_missed() {
        let idle = idle();
        let began = idle.begin(&kind(), WorkerId::from_random(1), true);
        idle.look();
        assert!(sleep(&idle, 1, began).try_recv().is_ok());
    }

    #[test]
    fn who_is_gone_is_passed_over() {
        let idle = idle();
        let began = idle.begin(&kind(), WorkerId::from_random(1), true);
        drop(sleep(&idle, 1, began));
        let _asked_again = sleep(&idle, 2, began);
        idle.begin(&kind(), WorkerId::from_random(2), true);
        let mut third = sleep(&idle, 3, began);
        idle.look();
        assert!(third.try_recv().is_ok());
    }
}
