//! Who asks for metrics, and what it costs the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Metrics, Text, WorkerGauges};
use crate::engine::Windlass;
use crate::error::Error;
use crate::store::{QueueList, Store};

/// How long the store may take to say what is in the queues.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// For how long what the store said is told to others who ask: whoever reaches the endpoint can
/// ask as often as it likes.
const KEPT: Duration = Duration::from_secs(1);

impl Windlass {
    /// What this engine and its workers have done, and what is in the queues, in the text format of
    /// Prometheus: for programs that have an HTTP server of their own. Workers answer it by
    /// themselves with the feature `health` (`WorkerBuilder::health`).
    ///
    /// Costs the store one small statement. If that fails, `windlass_store_up` is 0 and what is
    /// in the queues is left out.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let windlass = windlass::Windlass::memory();
    /// let text = windlass.metrics().await;
    /// assert!(text.contains("windlass_store_up 1"));
    /// # }
    /// ```
    pub async fn metrics(&self) -> String {
        let scraper = Scraper::new(Arc::clone(self.store()), Arc::clone(self.counted()));
        scraper.text(None).await
    }

    /// What is in the queues, as of the last rollup: at most some ten seconds ago while anybody
    /// does the background duties.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the store does not answer.
    pub async fn queues(&self) -> Result<QueueList, Error> {
        Ok(self.store().list_queues().await?)
    }
}

/// Answers with what was counted and with what the store says.
pub(crate) struct Scraper {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    /// The runtime of the store: whoever asks may be on another.
    runtime: Handle,
    last: Mutex<Option<(Instant, Option<QueueList>)>>,
}

impl Scraper {
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub(crate) fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Self {
        Scraper { store, metrics, runtime: Handle::current(), last: Mutex::default() }
    }

    pub(crate) async fn text(&self, worker: Option<&WorkerGauges>) -> String {
        let queues = self.queues().await;
        let mut text = Text::default();
        self.metrics.write(&mut text);
        if let Some(worker) = worker {
            text.worker(worker);
        }
        text.store(queues.is_some(), self.store.connections());
        if let Some(queues) = queues {
            text.queues(&queues);
        }
        text.into_string()
    }

    async fn queues(&self) -> Option<QueueList> {
        let mut last = self.last.lock().await;
        if let Some((at, queues)) = &*last
            && at.elapsed() < KEPT
        {
            return queues.clone();
        }
        let store = Arc::clone(&self.store);
        let mut look = self.runtime.spawn(async move { store.list_queues().await });
        let queues = match tokio::time::timeout(ANSWER_MAX, &mut look).await {
            Ok(Ok(Ok(queues))) => Some(queues),
            Ok(Ok(Err(error))) => {
                tracing::debug!(%error, "the queues could not be looked at");
                None
            }
            // Its runtime ends.
            Ok(Err(_)) => None,
            // Handlers may keep the runtime busy as well as the store may be away.
            Err(_) => {
                look.abort();
                None
            }
        };
        *last = Some((Instant::now(), queues.clone()));
        queues
    }
}
