//! What everyone who watches a list is told, read once for all of them.
//!
//! While anyone watches a list, the store is asked for it once a second, however many watch;
//! while nobody does, it is not asked at all.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use windlass::store::{
    DeadLetter, DeadLetterFilter, QueueList, RunFilter, RunRecord, Store, StoreError, WorkerFilter,
    WorkerRecord,
};

/// How often the store is asked.
const PAUSE: Duration = Duration::from_secs(1);

/// How many of the newest rows of a list are looked at.
pub(super) const NEWEST: usize = 200;

/// How a list is at one moment; none before it was read.
pub(super) type Newest<T> = Option<Arc<T>>;

/// The lists that can be watched.
pub(super) struct Live {
    /// The newest runs, the newest first.
    pub(super) runs: Feed<Vec<RunRecord>>,
    /// What is in the queues.
    pub(super) queues: Feed<QueueList>,
    /// The newest workers that live, the newest first.
    pub(super) workers: Feed<Vec<WorkerRecord>>,
    /// The newest dead letters, the newest first.
    pub(super) letters: Feed<Vec<DeadLetter>>,
}

impl Live {
    pub(super) fn new(store: &Arc<dyn Store>) -> Self {
        Live {
            runs: Feed::new(store, |store| {
                async move {
                    let filter = RunFilter { limit: NEWEST, ..RunFilter::default() };
                    Ok(store.list_runs(filter).await?.runs)
                }
                .boxed()
            }),
            queues: Feed::new(store, |store| async move { store.list_queues().await }.boxed()),
            workers: Feed::new(store, |store| {
                async move {
                    let filter = WorkerFilter { with_dead: false, after: None, limit: NEWEST };
                    Ok(store.list_workers(filter).await?.workers)
                }
                .boxed()
            }),
            letters: Feed::new(store, |store| {
                async move {
                    let all = DeadLetterFilter::default();
                    Ok(store.list_dead_letters(all, None, NEWEST).await?.letters)
                }
                .boxed()
            }),
        }
    }
}

impl Live {
    /// Whether anyone watches any of them.
    pub(super) fn is_watched(&self) -> bool {
        let Live { runs, queues, workers, letters } = self;
        runs.is_watched() || queues.is_watched() || workers.is_watched() || letters.is_watched()
    }
}

/// How a list is read.
type Read<T> = fn(Arc<dyn Store>) -> BoxFuture<'static, Result<T, StoreError>>;

/// Where those come to who watch a list.
pub(super) struct Feed<T> {
    store: Arc<dyn Store>,
    read: Read<T>,
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    newest: watch::Sender<Newest<T>>,
    is_asking: Mutex<bool>,
}

impl<T: Send + Sync + 'static> Feed<T> {
    fn new(store: &Arc<dyn Store>, read: Read<T>) -> Self {
        let shared = Shared { newest: watch::Sender::new(None), is_asking: Mutex::new(false) };
        Feed { store: Arc::clone(store), read, shared: Arc::new(shared) }
    }

    fn is_watched(&self) -> bool {
        self.shared.newest.receiver_count() > 0
    }

    /// Watches from now on; what is known already is news to who begins.
    pub(super) fn subscribe(&self) -> watch::Receiver<Newest<T>> {
        let mut is_asking = self.shared.is_asking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut receiver = self.shared.newest.subscribe();
        if !*is_asking {
            *is_asking = true;
            // What was read for those before is old.
            self.shared.newest.send_replace(None);
            tokio::spawn(ask(Arc::clone(&self.store), self.read, Arc::clone(&self.shared)));
        }
        receiver.mark_changed();
        receiver
    }
}

async fn ask<T>(store: Arc<dyn Store>, read: Read<T>, shared: Arc<Shared<T>>) {
    let mut ticks = tokio::time::interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        {
            let mut is_asking = shared.is_asking.lock().unwrap_or_else(PoisonError::into_inner);
            if shared.newest.receiver_count() == 0 {
                *is_asking = false;
                return;
            }
        }
        match read(Arc::clone(&store)).await {
            Ok(list) => drop(shared.newest.send_replace(Some(Arc::new(list)))),
            // Those who watch keep what they have until the store answers again.
            Err(error) => tracing::debug!(%error, "no news for those who watch a list"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::store::MemoryStore;

    async fn is_asked_once_a_second_for_all_who_watch<T: Send + Sync + 'static>(feed: &Feed<T>) {
        let mut watchers: Vec<_> = (0..100).map(|_| feed.subscribe()).collect();
        let mut looks = 0;
        let minute = tokio::time::sleep(Duration::from_millis(59_500));
        tokio::pin!(minute);
        loop {
            tokio::select! {
                () = &mut minute => break,
                changed = watchers[0].changed() => changed.expect("someone asks"),
            }
            looks += u32::from(watchers[0].borrow_and_update().is_some());
        }
        assert_eq!(looks, 60);
        drop(watchers);
        tokio::time::sleep(2 * PAUSE).await;
        assert!(!*feed.shared.is_asking.lock().unwrap());
        let mut again = feed.subscribe();
        again.wait_for(Option::is_some).await.expect("someone asks again");
    }

    #[tokio::test(start_paused = true)]
    async fn the_store_is_asked_once_a_second_however_many_watch_and_not_if_nobody_does() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let live = Live::new(&store);
        is_asked_once_a_second_for_all_who_watch(&live.runs).await;
        assert!(!*live.queues.shared.is_asking.lock().unwrap(), "nobody watches them");
        is_asked_once_a_second_for_all_who_watch(&live.queues).await;
        is_asked_once_a_second_for_all_who_watch(&live.workers).await;
        is_asked_once_a_second_for_all_who_watch(&live.letters).await;
    }
}
