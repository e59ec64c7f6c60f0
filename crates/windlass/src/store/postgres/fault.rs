//! What goes wrong between a verb and the database, sorted by what to do about it.
//!
//! A verb never fails for what passes by itself: a deadlock, a restart, a full pool. It
//! is tried again, a few times within a few seconds; verbs are made to be repeated, so
//! it does not matter whether a commit whose answer was lost took place. Whoever called
//! the verb decides about the longer outage.

use std::error::Error as _;
use std::io;
use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;
use windlass_core::RunId;

use super::names::Unnamed;
use crate::store::StoreError;

/// How often a verb is tried.
const TRIES_MAX: u32 = 5;

/// No try begins later than this after the first: what waited for a timeout of the
/// server is not repeated until all patience is gone.
const TRYING_MAX: Duration = Duration::from_secs(10);

/// The first pause after two transactions got into each other's way. Half of a pause is
/// chance, and each is twice as long as the one before.
const CONFLICT_PAUSE: Duration = Duration::from_millis(10);

/// The first pause after the database was away: four of them last for 0.75 to 1.5 s.
const OUTAGE_PAUSE: Duration = Duration::from_millis(100);

/// Why a verb did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The verb's own answer.
    #[error(transparent)]
    Answer(#[from] StoreError),
    /// A run contradicts itself.
    #[error("{error}")]
    Unsound { run: RunId, error: StoreError },
    /// The database did not answer, or could not yet do what was asked.
    #[error("{0}")]
    Unavailable(String),
    /// No connection could be opened; the text names the database.
    #[error("{0}")]
    Unreachable(String),
    /// Names that have no number yet; the verb is repeated once they have.
    #[error("names have no numbers")]
    Unnamed(Unnamed),
    /// The database answered with an error.
    #[error("{}", describe(.0))]
    Database(#[from] tokio_postgres::Error),
}

/// What to do about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Two transactions got into each other's way: again, soon.
    Conflict,
    /// The database is away, or about to be: again, later, on another connection.
    Outage,
    /// What was sent cannot be stored.
    Data,
    /// The schema is not the one this program was made for.
    Schema,
    /// The role may not do this.
    Permission,
    /// What is stored cannot be read.
    Corrupt,
    /// Something else; nothing is known to help.
    None,
}

impl Fault {
    /// What to do about it.
    pub(super) fn remedy(&self) -> Remedy {
        match self {
            Fault::Answer(_) | Fault::Unsound { .. } | Fault::Unnamed(_) => Remedy::None,
            Fault::Unavailable(_) | Fault::Unreachable(_) => Remedy::Outage,
            Fault::Database(error) => remedy(error),
        }
    }

    /// Whether it may be about one of many that a statement was sent for: nothing is known to help
    /// but to leave that one out.
    pub(super) fn may_be_of_one(&self) -> bool {
        match self {
            Fault::Unsound { .. } | Fault::Answer(StoreError::Corrupt(_)) => true,
            Fault::Answer(
                StoreError::NotFound(_)
                | StoreError::Unreadable(_)
                | StoreError::Conflict(_)
                | StoreError::LeaseLost(_)
                | StoreError::Forbidden(_)
                | StoreError::Unauthenticated(_)
                | StoreError::Limited { .. }
                | StoreError::TermOver { .. }
                | StoreError::Unavailable(_),
            )
            | Fault::Unavailable(_)
            | Fault::Unreachable(_)
            | Fault::Unnamed(_) => false,
            Fault::Database(error) => match remedy(error) {
                Remedy::Data | Remedy::Corrupt | Remedy::None => error.as_db_error().is_some(),
                Remedy::Conflict | Remedy::Outage | Remedy::Schema | Remedy::Permission => false,
            },
        }
    }
}

/// What to do about an error of the driver or of the server.
pub(super) fn remedy(error: &tokio_postgres::Error) -> Remedy {
    let Some(answer) = error.as_db_error() else {
        return remedy_without_answer(error);
    };
    let code = answer.code();
    // A plan that was prepared before a migration. The next connection has none.
    if *code == SqlState::FEATURE_NOT_SUPPORTED && answer.message().contains("cached plan") {
        return Remedy::Outage;
    }
    match code.code() {
        // A statement timeout, a lock timeout.
        "57014" | "55P03" => Remedy::Conflict,
        // A standby, which a failover has made of the primary; a transaction that the
        // server ended because nothing happened in it.
        "25006" | "25P03" => Remedy::Outage,
        "42P01" | "3F000" | "42703" | "42883" => Remedy::Schema,
        "42501" => Remedy::Permission,
        // We said something that the other end does not understand, and would again.
        "08P01" => Remedy::None,
        "XX001" | "XX002" => Remedy::Corrupt,
        code => match &code[..2] {
            // Deadlocks and serialization failures.
            "40" => Remedy::Conflict,
            // Lost connections; no memory, disk or connections left; shutdowns.
            "08" | "53" | "57" | "58" => Remedy::Outage,
            // What breaks a rule, cannot be converted, or is larger than the server takes.
            "22" | "23" | "54" => Remedy::Data,
            _ => Remedy::None,
        },
    }
}

fn remedy_without_answer(error: &tokio_postgres::Error) -> Remedy {
    let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let is_cut = cause.is_some_and(|cause| {
        // A certificate that is not accepted is `InvalidData`.
        !matches!(cause.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
    });
    let is_late = error.to_string() == "timeout waiting for server";
    if error.is_closed() || is_cut || is_late { Remedy::Outage } else { Remedy::None }
}

/// Everything that an error says, except what it quotes from rows: those belong to a
/// tenant, and the error may reach another.
pub(super) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(answer) = error.as_db_error() {
        return format!("{} ({})", answer.message(), answer.code().code());
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> StoreError {
        let remedy = fault.remedy();
        let text = match fault {
            Fault::Answer(error) | Fault::Unsound { error, .. } => return error,
            Fault::Unavailable(text) | Fault::Unreachable(text) => {
                return StoreError::Unavailable(text);
            }
            fault @ Fault::Unnamed(_) => return StoreError::Corrupt(fault.to_string()),
            Fault::Database(error) => describe(&error),
        };
        match remedy {
            Remedy::Conflict | Remedy::Outage | Remedy::None => StoreError::Unavailable(text),
            Remedy::Permission => {
                StoreError::Unavailable(format!("the role lacks a right: {text}"))
            }
            Remedy::Schema => StoreError::Unavailable(format!(
                "the schema is missing or of another version, see `windlass migrate`: {text}"
            )),
            Remedy::Data | Remedy::Corrupt => StoreError::Corrupt(text),
        }
    }
}

/// The tries of one call of a verb.
///
/// ```ignore
/// let mut retries = self.pool.retries("claim");
/// loop {
///     match self.claim_once(&request).await {
///         Err(fault) if retries.again(&fault).await => continue,
///         other => return other.map_err(Into::into),
///     }
/// }
/// ```
#[derive(Debug)]
pub(super) struct Retries {
    verb: &'static str,
    tries: u32,
    began: Instant,
}

impl Retries {
    pub(super) fn new(verb: &'static str) -> Self {
        Retries { verb, tries: 1, began: Instant::now() }
    }

    /// Whether to try once more; if so, after a pause.
    pub(super) async fn again(&mut self, fault: &Fault) -> bool {
        let first = match fault.remedy() {
            Remedy::Conflict => CONFLICT_PAUSE,
            Remedy::Outage => OUTAGE_PAUSE,
            Remedy::Data | Remedy::Schema | Remedy::Permission | Remedy::Corrupt | Remedy::None => {
                return false;
            }
        };
        let pause = first * (1 << (self.tries - 1).min(10));
        let pause = pause.mul_f64(0.5 + 0.5 * fastrand::f64());
        let is_over = self.tries >= TRIES_MAX || self.began.elapsed() + pause >= TRYING_MAX;
        let verb = self.verb;
        if is_over {
            tracing::debug!(verb, tries = self.tries, %fault, "giving up");
            return false;
        }
        tracing::debug!(verb, tries = self.tries, %fault, ?pause, "trying again");
        self.tries += 1;
        tokio::time::sleep(pause).await;
        true
    }
}
