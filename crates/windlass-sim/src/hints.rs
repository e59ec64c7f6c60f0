//! Hints on their way from the store to each site: some are lost.

use std::sync::Arc;

use windlass::store::{HintSender, Hints, Store, WorkerLink};

use crate::faults::FaultKind;
use crate::world::{Shared, World};

/// The receivers of one kind of hint.
///
/// There is one listener at the store that passes hints on in the order in which
/// the receivers came, or does not.
#[derive(Default)]
pub(crate) struct Relay(Shared<Vec<HintSender>>);

impl Relay {
    /// Hints for one more receiver.
    pub(crate) fn subscribe(&self) -> Hints {
        let sender = HintSender::new();
        let hints = sender.subscribe();
        self.0.lock().push(sender);
        hints
    }

    fn pass_on(&self, world: &World) {
        let mut senders = self.0.lock();
        senders.retain(HintSender::is_heard);
        for sender in senders.iter() {
            if world.loses_hint() {
                world.counts.lock().add(FaultKind::HintLost);
            } else {
                sender.send();
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
    /// A duty was given up.
    pub(crate) leaders: Relay,
}

type Pick = fn(&Relays) -> &Relay;

/// Listens at the store for as long as the simulation lasts.
pub(crate) fn listen(world: &Arc<World>) {
    let kinds: [(Hints, Pick); 4] = [
        (world.store.work_hints(), |relays| &relays.work),
        (world.store.timer_hints(), |relays| &relays.timers),
        (world.store.run_hints(), |relays| &relays.runs),
        (world.store.leader_hints(), |relays| &relays.leaders),
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
