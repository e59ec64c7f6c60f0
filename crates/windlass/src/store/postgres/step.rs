//! Statement by statement: a test decides when each session sends its next one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Lets sessions that share a database go one statement at a time, in an order that a
/// test chooses.
///
/// A session stops before every statement and before its commit until it is
/// [allowed](Stepper::allow) that one. Beginning a transaction is no step, it has no
/// effect that another session could see.
#[derive(Clone, Debug, Default)]
pub struct Stepper(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    sessions: Mutex<BTreeMap<String, Session>>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Session {
    /// What it waits for being allowed.
    asks: Option<&'static str>,
    /// How many steps it may take.
    permits: usize,
    is_free: bool,
}

impl Stepper {
    /// No sessions yet.
    pub fn new() -> Self {
        Stepper::default()
    }

    /// The steps of a session, for [`PostgresOptions::steps`](super::PostgresOptions::steps).
    /// Its connections are seen under this name as `application_name` in
    /// `pg_stat_activity`.
    pub fn session(&self, name: &str) -> Steps {
        self.sessions().entry(name.to_owned()).or_default();
        Steps { stepper: self.clone(), session: name.to_owned() }
    }

    /// Waits until a session asks for its next statement, and answers its name.
    pub async fn asked(&self, session: &str) -> &'static str {
        loop {
            let changed = self.0.changed.notified();
            if let Some(name) = self.asks(session) {
                return name;
            }
            changed.await;
        }
    }

    /// The statement that a session asks for at this moment.
    pub fn asks(&self, session: &str) -> Option<&'static str> {
        self.sessions().get(session).and_then(|session| session.asks)
    }

    /// Lets a session send one statement: the one it asks for, or its next one.
    pub fn allow(&self, session: &str) {
        let mut sessions = self.sessions();
        let session = sessions.entry(session.to_owned()).or_default();
        session.permits += 1;
        // Who asked goes on, and asks no more: `asked` now waits for the next one.
        session.asks = None;
        drop(sessions);
        self.0.changed.notify_waiters();
    }

    /// Lets a session go on without asking, from now on or not any more.
    pub fn set_free(&self, session: &str, is_free: bool) {
        self.sessions().entry(session.to_owned()).or_default().is_free = is_free;
        self.0.changed.notify_waiters();
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, Session>> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The steps of one session.
#[derive(Clone)]
pub struct Steps {
    stepper: Stepper,
    session: String,
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Steps").field(&self.session).finish()
    }
}

impl Steps {
    pub(super) fn session(&self) -> &str {
        &self.session
    }

    /// Waits until the statement is allowed.
    pub(super) async fn permit(&self, statement: &'static str) {
        let asking = Asking(self);
        loop {
            let changed = self.stepper.0.changed.notified();
            let is_news = {
                let mut sessions = self.stepper.sessions();
                let session = sessions.entry(self.session.clone()).or_default();
                if session.is_free || session.permits > 0 {
                    session.permits = session.permits.saturating_sub(1);
                    break;
                }
                session.asks.replace(statement) != Some(statement)
            };
            if is_news {
                // Also wakes this session, which then asks without telling anyone.
                self.stepper.0.changed.notify_waiters();
            }
            changed.await;
        }
        drop(asking);
    }
}

/// A session that is dropped asks no more.
struct Asking<'a>(&'a Steps);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0.stepper.sessions().get_mut(&self.0.session) {
            session.asks = None;
        }
    }
}
