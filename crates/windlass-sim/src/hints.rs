//! Hints on their way from the store to each site: some are lost.

use std::sync::Arc;

use tokio::sync::watch;
use windlass::store::{Hints, Store, WorkerLink};

use crate::faults::FaultKind;
use crate::world::{Shared, World};

/// The receivers of one kind of hint.
///
/// There is one listener at the store that passes hints on in the order in which
/// the receivers came: a watch channel wakes several listeners in an order that
/// tokio leaves to chance, and nothing here may be left to any chance but the
/// seed's.
#[derive(Default)]
pub(crate) struct Relay(Shared<Vec<watch::Sender<u64>>>);

impl Relay {
    /// Hints for one more receiver.
    pub(crate) fn subscribe(&self) -> Hints {
        let (sender, receiver) = watch::channel(0);
        self.0.lock().push(sender);
        Hints::new(receiver)
    }

    fn pass_on(&self, world: &World) {
        let mut senders = self.0.lock();
        senders.retain(|sender| !sender.is_closed());
        for sender in senders.iter() {
            if world.loses_hint() {
                world.counts.lock().add(FaultKind::HintLost);
            } else {
                sender.send_modify(|count| *count += 1);
            }
        }
    }
}

/// The receivers of all kinds of hints.
#[derive(Default)]
pub(crate) struct Relays {
    /// Tasks became ready.
    pub(crate) work: Relay,
    /// Something is due earlier.
    pub(crate) timers: Relay,
    /// A run ended.
    pub(crate) runs: Relay,
}

type Pick = fn(&Relays) -> &Relay;

/// Listens at the store for as long as the simulation lasts.
pub(crate) fn listen(world: &Arc<World>) {
    let kinds: [(Hints, Pick); 3] = [
        (world.store.work_hints(), |relays| &relays.work),
        (world.store.timer_hints(), |relays| &relays.timers),
        (world.store.run_hints(), |relays| &relays.runs),
    ];
    for (mut hints, relay) in kinds {
        let world = Arc::clone(world);
        tokio::spawn(async move {
            loop {
                hints.changed().await;
                relay(&world.relays).pass_on(&world);
            }
        });
    }
}
