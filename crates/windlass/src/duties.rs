//! What happens by itself: one closed list of loops with one shutdown.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::backoff::Backoff;
use crate::store::{BATCH_MAX, Hints, Store, StoreError, Sweep};

/// The most tasks that one sweep of a duty moves.
const SWEEP_MAX: usize = 1_000;
const _: () = assert!(SWEEP_MAX <= BATCH_MAX);

/// The longest pause between two sweeps of a duty, whatever its interval is: a lease that is
/// longer is seen before it ends, without a hint that it began.
pub(crate) const SWEEP_PAUSE_MAX: Duration = Duration::from_secs(10);

/// A background duty. Any number of processes may do it at the same time: each
/// sweep is one verb of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Make what is due ready.
    PromoteDue,
    /// Take tasks away from dead workers.
    Reap,
}

impl Duty {
    pub(crate) const ALL: [Duty; 2] = [Duty::PromoteDue, Duty::Reap];

    async fn sweep(self, store: &dyn Store) -> Result<Sweep, StoreError> {
        match self {
            Duty::PromoteDue => store.promote_due(SWEEP_MAX).await,
            Duty::Reap => store.reap(SWEEP_MAX).await,
        }
    }
}

/// The background duties of an engine at work, without a worker. Made by
/// [`Windlass::duties`](crate::Windlass::duties); dropped, it ends them. A sweep that is
/// under way is given up and left to whoever does the duties next.
#[derive(Debug)]
#[must_use = "the duties end when this is dropped"]
pub struct Duties {
    task: JoinHandle<()>,
    stop: DropGuard,
}

impl Duties {
    pub(crate) fn spawn(store: Arc<dyn Store>, interval: Duration) -> Self {
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(run(store, interval, shutdown.clone()));
        Duties { task, stop: shutdown.drop_guard() }
    }

    /// Ends the duties and waits until they have.
    pub async fn stop(self) {
        drop(self.stop);
        if self.task.await.is_err() {
            tracing::error!("a background duty panicked");
        }
    }
}

/// Does every duty until `shutdown`, looking at least once per `interval`.
pub(crate) async fn run(store: Arc<dyn Store>, interval: Duration, shutdown: CancellationToken) {
    let interval = interval.min(SWEEP_PAUSE_MAX);
    let each = |duty| repeat(duty, &*store, store.timer_hints(), interval);
    let [promote, reap] = Duty::ALL.map(each);
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        _ = async { tokio::join!(promote, reap) } => {}
    }
}

/// Does one duty for ever. An error of the store is logged and waited out.
pub(crate) async fn repeat(duty: Duty, store: &dyn Store, mut hints: Hints, interval: Duration) {
    let mut backoff = Backoff::default();
    loop {
        hints.take();
        let pause = match duty.sweep(store).await {
            Ok(sweep) => {
                backoff.reset();
                if sweep.moved > 0 {
                    tracing::debug!(?duty, moved = sweep.moved, "swept");
                }
                // What is due at this very moment may already have been swept.
                sweep.next_at.map_or(interval, |at| at.since(sweep.at).min(interval))
            }
            Err(error) => {
                let pause = backoff.next_pause();
                tracing::warn!(?duty, %error, ?pause, "sweep failed");
                pause
            }
        };
        tokio::select! {
            biased;
            () = hints.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}
