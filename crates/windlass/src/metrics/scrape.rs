//! Who asks for metrics, and what it costs the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Metrics, Text, WorkerGauges};
use crate::engine::Windlass;
use crate::error::Error;
use crate::store::{QueueList, Store, StoreError};

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
    looks: Mutex<Looks>,
}

/// What is known of the looks at the store.
#[derive(Default)]
struct Looks {
    last: Option<(Instant, Option<QueueList>)>,
    /// The one that nobody has waited for to the end.
    under_way: Option<JoinHandle<Result<QueueList, StoreError>>>,
}

impl Scraper {
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub(crate) fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Self {
        Scraper { store, metrics, runtime: Handle::current(), looks: Mutex::default() }
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

    /// What the store says, or has just said. There is one look at a time, however many ask and
    /// whether they wait for it or not.
    async fn queues(&self) -> Option<QueueList> {
        let mut looks = self.looks.lock().await;
        if let Some((at, queues)) = &looks.last
            && at.elapsed() < KEPT
        {
            return queues.clone();
        }
        let mut look = match looks.under_way.take() {
            Some(look) => look,
            None => {
                let store = Arc::clone(&self.store);
                self.runtime.spawn(async move { store.list_queues().await })
            }
        };
        let answer = tokio::time::timeout(ANSWER_MAX, &mut look).await;
        let queues = match answer {
            Ok(Ok(Ok(queues))) => Some(queues),
            Ok(Ok(Err(error))) => {
                tracing::debug!(%error, "the queues could not be looked at");
                None
            }
            // Its runtime ends.
            Ok(Err(_)) => None,
            // Handlers may keep the runtime busy as well as the store may be away.
            Err(_) => {
                looks.under_way = Some(look);
                None
            }
        };
        looks.last = Some((Instant::now(), queues.clone()));
        queues
    }
}
