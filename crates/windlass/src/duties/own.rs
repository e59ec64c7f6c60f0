//! Duties of programs: their handlers, and what those are given.

use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass_core::{DutyName, Term, Timestamp};

use super::TTL_MIN;
use crate::engine::Windlass;
use crate::error::{Error, ErrorKind};
use crate::store::{DutyDeclaration, DutyRecord, PROCESS_DUTIES_MAX, Store};
use crate::task_error::failure_of;
use crate::worker::SETTING_MAX;

/// What a handler is at, until it ends or says why it could not.
pub(super) type HandlerFuture = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// A handler behind one erased type.
pub(super) type Handler = Arc<dyn Fn(DutyCtx) -> HandlerFuture + Send + Sync>;

/// A duty as a program declares it, with its handler.
#[derive(Clone)]
pub(crate) struct OwnDuty {
    name: String,
    every: Duration,
    handler: Handler,
}

impl OwnDuty {
    pub(crate) fn new<F, Fut, E>(name: impl Into<String>, every: Duration, handler: F) -> Self
    where
        F: Fn(DutyCtx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let handler = move |ctx| -> HandlerFuture {
            let run = handler(ctx);
            Box::pin(async move { run.await.map_err(|error| failure_of(&*error.into()).message) })
        };
        OwnDuty { name: name.into(), every, handler: Arc::new(handler) }
    }

    #[cfg(feature = "testing")]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for OwnDuty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OwnDuty { name, every, .. } = self;
        f.debug_struct("OwnDuty").field("name", name).field("every", every).finish_non_exhaustive()
    }
}

/// How a process does the duties of its program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnSettings {
    /// How long after its last sign of life another takes over.
    pub(crate) ttl: Duration,
    /// How long handlers may go on once the process is told to end.
    pub(crate) grace: Duration,
    /// How long after a duty is due it is asked for at the latest, so that processes do not march
    /// in step.
    pub(crate) spread_max: Duration,
    /// Where its id and its pauses come from.
    pub(crate) seed: u64,
}

/// Checks the duties of a program and the settings, and answers what is declared by them.
pub(super) fn declare(
    duties: &[OwnDuty],
    settings: &OwnSettings,
) -> Result<Vec<(DutyDeclaration, Handler)>, Error> {
    let refuse = |text: String| Error::new(ErrorKind::Argument, text);
    if duties.len() > PROCESS_DUTIES_MAX {
        let count = duties.len();
        return Err(refuse(format!(
            "a process has {count} duties, the limit is {PROCESS_DUTIES_MAX}"
        )));
    }
    let OwnSettings { ttl, grace, .. } = settings;
    if *ttl < TTL_MIN {
        return Err(refuse(format!("ttl of duties is {ttl:?}, the least is {TTL_MIN:?}")));
    }
    for (setting, time) in [("ttl", ttl), ("grace", grace)] {
        if *time > SETTING_MAX {
            let text = format!("{setting} of duties is {time:?}, the limit is {SETTING_MAX:?}");
            return Err(refuse(text));
        }
    }
    let mut names = BTreeSet::new();
    let mut declared = Vec::new();
    for OwnDuty { name, every, handler } in duties {
        let name = DutyName::new(name)?;
        if !names.insert(name.clone()) {
            return Err(refuse(format!("duty {name:?} is declared twice")));
        }
        // As it is stored: two that differ by less are one.
        let every = Duration::from_micros(u64::try_from(every.as_micros()).unwrap_or(u64::MAX));
        let declaration = DutyDeclaration { name, every, is_new: true };
        declaration.check().map_err(refuse)?;
        declared.push((declaration, Arc::clone(handler)));
    }
    Ok(declared)
}

impl Windlass {
    /// The duties of programs, by name: how often, when next, who is at them, and how they went.
    /// See [`WorkerBuilder::duty`](crate::WorkerBuilder::duty).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the store does not answer.
    pub async fn program_duties(&self) -> Result<Vec<DutyRecord>, Error> {
        Ok(self.store().list_duties().await?)
    }

    /// Forgets a duty that no program declares any more; answers whether there was one. Its terms
    /// begin anew if one declares it again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for a name that cannot be used, [`ErrorKind::Conflict`] if a
    /// process is at it.
    pub async fn forget_duty(&self, name: &str) -> Result<bool, Error> {
        Ok(self.store().forget_duty(DutyName::new(name)?).await?)
    }
}

/// What the handler of a duty is given. Cheap to clone.
///
/// See [`WorkerBuilder::duty`](crate::WorkerBuilder::duty)(crate::WorkerBuilder::duty).
#[derive(Clone)]
pub struct DutyCtx {
    pub(super) name: DutyName,
    pub(super) term: Term,
    pub(super) nominal: Timestamp,
    pub(super) told: CancellationToken,
    pub(super) store: Arc<dyn Store>,
}

impl DutyCtx {
    /// The name of the duty.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The term: it grows whenever the duty is begun, here or elsewhere, and never goes back until
    /// the duty is forgotten. A write to another system that refuses smaller numbers than the
    /// largest it has seen is safe from a process that was frozen and does not know that it was
    /// replaced.
    pub fn term(&self) -> Term {
        self.term
    }

    /// The time that is served: a whole number of intervals behind the one before it, however late
    /// the duty is begun.
    pub fn nominal(&self) -> Timestamp {
        self.nominal
    }

    /// Waits until the handler should end: its process was told to end, or the store was not heard
    /// of for three quarters of the lease. A handler that then returns an error while its process
    /// ends leaves the same time to another process at once. Cancel safe.
    pub async fn cancelled(&self) {
        self.told.cancelled().await;
    }

    /// Whether the handler should end, see [`cancelled`](DutyCtx::cancelled).
    pub fn is_cancelled(&self) -> bool {
        self.told.is_cancelled()
    }

    /// The engine, to start, find and steer runs.
    pub fn windlass(&self) -> Windlass {
        Windlass::with_store(Arc::clone(&self.store))
    }
}

impl fmt::Debug for DutyCtx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DutyCtx { name, term, nominal, .. } = self;
        let mut shown = f.debug_struct("DutyCtx");
        shown.field("name", name).field("term", term).field("nominal", nominal);
        shown.finish_non_exhaustive()
    }
}
