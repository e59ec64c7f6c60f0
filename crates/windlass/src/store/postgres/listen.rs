//! The other end of hints: a connection that listens to what other processes changed.
//!
//! It is a connection of its own, since to listen is to keep a session. It comes back by
//! itself when it was lost, and makes everyone look once it is back: what was said in
//! between is gone. That it hears anything is tried, not assumed: through a pooler in
//! transaction mode `listen` succeeds and nothing ever comes.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{StreamExt, poll_fn};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::AsyncMessage;

use super::address::Target;
use super::fault::Fault;
use super::notify::{Kinds, Origin, Senders, send};
use super::options::PostgresOptions;
use super::pool::{Pool, open};
use crate::backoff::Backoff;

/// How long a listener may take to hear what it said itself.
const ECHO_MAX: Duration = Duration::from_secs(2);

/// How often it is tried whether a listener still hears.
const ECHO_EVERY: Duration = Duration::from_secs(60);

/// What a trial begins with; hints never have it.
const ECHO_MARK: char = '?';

/// Listens for one store.
pub(super) struct Listener {
    target: Target,
    open_max: Duration,
    pool: Pool,
    senders: Arc<Senders>,
    origin: Origin,
    echo: Echo,
    backoff: Backoff,
    /// Whether people were told that nothing is heard.
    is_reported: bool,
}

/// What a trial waits to hear.
#[derive(Debug, Default)]
struct Echo {
    awaited: Mutex<Option<String>>,
    heard: Notify,
}

/// Why a session of the listener ended.
#[derive(Debug, thiserror::Error)]
enum Deaf {
    #[error("{0}")]
    Lost(#[from] Fault),
    #[error("what was sent through the store's own connections was not heard on {0}")]
    Silent(String),
}

impl Listener {
    pub(super) fn new(
        target: Target,
        options: &PostgresOptions,
        pool: Pool,
        senders: Arc<Senders>,
        origin: Origin,
    ) -> Self {
        Listener {
            target,
            open_max: options.open_max(),
            pool,
            senders,
            origin,
            echo: Echo::default(),
            backoff: Backoff::default(),
            is_reported: false,
        }
    }

    /// Listens for ever.
    pub(super) async fn run(mut self) {
        loop {
            let deaf = match self.session().await {
                Err(deaf) => deaf,
                Ok(never) => match never {},
            };
            // Whoever relied on hints is to poll from now on.
            self.senders.hears.store(false, Ordering::Relaxed);
            self.senders.send(Kinds::ALL);
            let pause = match &deaf {
                Deaf::Lost(_) => self.backoff.next_pause(),
                // It will not change by itself soon.
                Deaf::Silent(_) => ECHO_EVERY,
            };
            if self.is_reported {
                tracing::debug!(%deaf, ?pause, "still not listening for changes");
            } else {
                self.is_reported = true;
                tracing::warn!(
                    reason = %deaf,
                    "not listening for changes, which are found by polling instead"
                );
            }
            sleep(pause.mul_f64(0.5 + 0.5 * fastrand::f64())).await;
        }
    }

    /// Connects and listens until that fails.
    async fn session(&mut self) -> Result<std::convert::Infallible, Deaf> {
        let (client, mut driver) = open(&self.target, self.open_max).await?;
        let (senders, echo, origin) = (Arc::clone(&self.senders), &self.echo, self.origin);
        let mut messages = poll_fn(|context| driver.poll_message(context));
        let hear = async {
            while let Some(message) = messages.next().await {
                match message {
                    Ok(AsyncMessage::Notification(it)) => match it.payload() {
                        payload if payload.starts_with(ECHO_MARK) => echo.hear(payload),
                        payload if origin.is_of(payload) => {}
                        payload => senders.send(Kinds::parse(payload)),
                    },
                    Ok(_) => {}
                    Err(error) => return Fault::from(error),
                }
            }
            Fault::Unavailable("the connection was closed".to_owned())
        };
        let listen = async {
            client.batch_execute("listen windlass").await.map_err(Fault::from)?;
            // Listen first, then look.
            senders.send(Kinds::ALL);
            self.backoff.reset();
            loop {
                match is_heard(echo, &self.pool).await {
                    Some(false) => return Err(Deaf::Silent(self.target.name())),
                    Some(true) => senders.hears.store(true, Ordering::Relaxed),
                    None => {}
                }
                if self.is_reported {
                    self.is_reported = false;
                    tracing::info!("listening for changes again");
                }
                sleep(ECHO_EVERY).await;
            }
        };
        tokio::select! {
            biased;
            lost = hear => Err(Deaf::Lost(lost)),
            deaf = listen => deaf,
        }
    }
}

impl Echo {
    fn expect(&self, payload: Option<String>) {
        *self.awaited.lock().unwrap_or_else(PoisonError::into_inner) = payload;
    }

    fn hear(&self, payload: &str) {
        let awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        if awaited.as_deref() == Some(payload) {
            self.heard.notify_one();
        }
    }
}

/// Whether what goes out through the store's own connections is heard here. `None` if it
/// did not go out, which says nothing about the listener.
async fn is_heard(echo: &Echo, pool: &Pool) -> Option<bool> {
    let payload = format!("{ECHO_MARK}{:016x}", fastrand::u64(..));
    echo.expect(Some(payload.clone()));
    let heard = match send(pool, &payload).await {
        Ok(()) => Some(timeout(ECHO_MAX, echo.heard.notified()).await.is_ok()),
        Err(error) => {
            tracing::debug!(%error, "it was not tried whether changes are heard");
            None
        }
    };
    echo.expect(None);
    heard
}
