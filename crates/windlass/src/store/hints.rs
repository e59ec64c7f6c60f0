//! Hints that something changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Where hints come from. Those who wait are woken in the order in which they began
/// to wait, so that a simulation is repeatable.
#[derive(Debug, Default)]
pub struct HintSender(Arc<Source>);

#[derive(Debug, Default)]
struct Source {
    sent: AtomicU64,
    waiting: Notify,
}

impl HintSender {
    /// A source of hints that nobody listens to yet.
    pub fn new() -> Self {
        HintSender::default()
    }

    /// Hints to everyone who subscribed.
    pub fn send(&self) {
        self.0.sent.fetch_add(1, Ordering::SeqCst);
        self.0.waiting.notify_waiters();
    }

    /// The hints that are sent from now on.
    pub fn subscribe(&self) -> Hints {
        let taken = self.0.sent.load(Ordering::SeqCst);
        Hints { source: Arc::clone(&self.0), taken }
    }

    /// Whether anyone listens.
    pub fn is_heard(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// A stream of hints that something changed.
///
/// A hint may be lost or come for nothing: whoever waits for one also polls. It
/// is taken before looking, so that a change after the look is not missed.
#[derive(Clone, Debug)]
pub struct Hints {
    source: Arc<Source>,
    taken: u64,
}

impl Hints {
    /// Forgets the hints so far: the next [`changed`](Hints::changed) waits for a
    /// later one.
    pub fn take(&mut self) {
        self.taken = self.source.sent.load(Ordering::SeqCst);
    }

    /// How many hints were sent so far, taken or not.
    pub fn sent(&self) -> u64 {
        self.source.sent.load(Ordering::SeqCst)
    }

    /// Waits for a hint that was not taken, and takes it. Cancel safe.
    pub async fn changed(&mut self) {
        loop {
            // Listen first, then look.
            let next = self.source.waiting.notified();
            let sent = self.source.sent.load(Ordering::SeqCst);
            if sent != self.taken {
                self.taken = sent;
                return;
            }
            next.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_hint_between_the_look_and_the_wait_is_not_missed() {
        let sender = HintSender::new();
        let mut hints = sender.subscribe();
        hints.take();
        sender.send();
        sender.send();
        hints.changed().await;
        let soon = Duration::from_secs(1);
        let again = tokio::time::timeout(soon, hints.changed()).await;
        assert!(again.is_err(), "both were taken");
        assert!(sender.is_heard());
        drop(hints);
        assert!(!sender.is_heard());
    }

    #[tokio::test]
    async fn a_hint_wakes_everyone_who_waits() {
        let sender = HintSender::new();
        let wait = |mut hints: Hints| async move { hints.changed().await };
        let waiting = (0..3).map(|_| tokio::spawn(wait(sender.subscribe()))).collect::<Vec<_>>();
        tokio::task::yield_now().await;
        sender.send();
        for one in waiting {
            one.await.expect("it was woken");
        }
    }
}
