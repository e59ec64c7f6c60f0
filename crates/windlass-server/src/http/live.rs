//! What everyone who watches a list is told, read once for all of them.
//!
//! While anyone listens, the store is asked once a second for the newest runs and for the queues,
//! however many listen; while nobody does, it is not asked at all.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use windlass::store::{QueueList, RunFilter, RunRecord, Store};

/// How often the store is asked.
const PAUSE: Duration = Duration::from_secs(1);

/// How many of the newest runs are looked at.
pub(super) const NEWEST_RUNS: usize = 200;

/// How the lists are at one moment.
pub(super) struct Snapshot {
    /// The newest runs, the newest first.
    pub(super) runs: Vec<RunRecord>,
    /// What is in the queues.
    pub(super) queues: QueueList,
}

/// The newest snapshot; none before the first.
pub(super) type Newest = Option<Arc<Snapshot>>;

/// Where listeners come to.
pub(super) struct Live {
    store: Arc<dyn Store>,
    shared: Arc<Feed>,
}

struct Feed {
    newest: watch::Sender<Newest>,
    is_asking: Mutex<bool>,
}

impl Live {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let newest = watch::Sender::new(None);
        Live { store, shared: Arc::new(Feed { newest, is_asking: Mutex::new(false) }) }
    }

    /// Listens from now on.
    pub(super) fn subscribe(&self) -> watch::Receiver<Newest> {
        let mut is_asking = self.shared.is_asking.lock().unwrap_or_else(PoisonError::into_inner);
        let receiver = self.shared.newest.subscribe();
        if !*is_asking {
            *is_asking = true;
            // What was read for those before is old.
            self.shared.newest.send_replace(None);
            tokio::spawn(ask(Arc::clone(&self.store), Arc::clone(&self.shared)));
        }
        receiver
    }
}

async fn ask(store: Arc<dyn Store>, feed: Arc<Feed>) {
    let mut ticks = tokio::time::interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        {
            let mut is_asking = feed.is_asking.lock().unwrap_or_else(PoisonError::into_inner);
            if feed.newest.receiver_count() == 0 {
                *is_asking = false;
                return;
            }
        }
        let filter = RunFilter { limit: NEWEST_RUNS, ..RunFilter::default() };
        match tokio::try_join!(store.list_runs(filter), store.list_queues()) {
            Ok((page, queues)) => {
                let snapshot = Snapshot { runs: page.runs, queues };
                feed.newest.send_replace(Some(Arc::new(snapshot)));
            }
            // Listeners keep what they have until the store answers again.
            Err(error) => tracing::debug!(%error, "no news for those who watch lists"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::store::MemoryStore;

    #[tokio::test(start_paused = true)]
    async fn the_store_is_asked_once_a_second_however_many_listen_and_not_if_nobody_does() {
        let live = Live::new(Arc::new(MemoryStore::new()));
        let mut listeners: Vec<_> = (0..100).map(|_| live.subscribe()).collect();
        let mut looks = 0;
        let minute = tokio::time::sleep(Duration::from_millis(59_500));
        tokio::pin!(minute);
        loop {
            tokio::select! {
                () = &mut minute => break,
                changed = listeners[0].changed() => changed.expect("someone asks"),
            }
            looks += u32::from(listeners[0].borrow_and_update().is_some());
        }
        assert_eq!(looks, 60);
        drop(listeners);
        tokio::time::sleep(2 * PAUSE).await;
        assert!(!*live.shared.is_asking.lock().unwrap());
        let mut again = live.subscribe();
        again.wait_for(Option::is_some).await.expect("someone asks again");
    }
}
