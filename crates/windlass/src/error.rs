//! The one error of the public interface.

use std::fmt;

use windlass_core::{DefinitionError, NameError, PayloadError};

use crate::store::StoreError;

/// What went wrong, for programs: branch on [`kind`](Error::kind), show
/// [`code`](Error::code) (each has a page in `docs/errors/`), repeat if
/// [`is_retryable`](Error::is_retryable).
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The kinds of errors a caller may tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A workflow's definition is wrong.
    Definition,
    /// A name, key, priority, weight, delay, piece of metadata or setting of a worker
    /// is outside its limits.
    Argument,
    /// A value has no JSON form, is too large, is not of the type it is read as, or is sealed and
    /// cannot be opened.
    Payload,
    /// There is no such run or workflow.
    NotFound,
    /// The thing exists in a state that does not allow it.
    Conflict,
    /// The worker lost its lease.
    LeaseLost,
    /// The leader of a background duty was replaced.
    TermOver,
    /// The store cannot be reached; the outcome of the request is unknown.
    Unavailable,
    /// The stored data contradicts itself.
    Corrupt,
    /// A run did not end in time.
    Timeout,
    /// The schema of the database is missing, or not of the version this program needs.
    Schema,
    /// The database refuses us: password, right, certificate, or too old a server.
    Database,
    /// The worker was ended before its tasks were.
    Interrupted,
    /// Whoever asks is known to the server and may not do this.
    Forbidden,
    /// The server does not know who asks: no token, or none that it can believe.
    Unauthenticated,
    /// A limit of the tenant's is reached: nothing was done, and there may be room later.
    Limited,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [ErrorKind; 16] = [
        ErrorKind::Definition,
        ErrorKind::Argument,
        ErrorKind::Payload,
        ErrorKind::NotFound,
        ErrorKind::Conflict,
        ErrorKind::LeaseLost,
        ErrorKind::Unavailable,
        ErrorKind::Corrupt,
        ErrorKind::Timeout,
        ErrorKind::Schema,
        ErrorKind::Database,
        ErrorKind::Interrupted,
        ErrorKind::TermOver,
        ErrorKind::Forbidden,
        ErrorKind::Unauthenticated,
        ErrorKind::Limited,
    ];

    /// The code that is shown everywhere, such as `WL-0004`.
    pub const fn code(self) -> &'static str {
        match self {
            ErrorKind::Definition => "WL-0001",
            ErrorKind::Argument => "WL-0002",
            ErrorKind::Payload => "WL-0003",
            ErrorKind::NotFound => "WL-0004",
            ErrorKind::Conflict => "WL-0005",
            ErrorKind::LeaseLost => "WL-0006",
            ErrorKind::Unavailable => "WL-0007",
            ErrorKind::Corrupt => "WL-0008",
            ErrorKind::Timeout => "WL-0009",
            ErrorKind::Schema => "WL-0010",
            ErrorKind::Database => "WL-0011",
            ErrorKind::Interrupted => "WL-0012",
            ErrorKind::TermOver => "WL-0013",
            ErrorKind::Forbidden => "WL-0014",
            ErrorKind::Unauthenticated => "WL-0015",
            ErrorKind::Limited => "WL-0016",
        }
    }

    /// Whether a request that fails so was certainly not carried out. Of the other kinds, the
    /// outcome is unknown.
    pub fn is_definite(self) -> bool {
        match self {
            ErrorKind::Definition
            | ErrorKind::Argument
            | ErrorKind::Payload
            | ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::LeaseLost
            | ErrorKind::TermOver
            | ErrorKind::Schema
            | ErrorKind::Database
            | ErrorKind::Forbidden
            | ErrorKind::Unauthenticated
            | ErrorKind::Limited => true,
            ErrorKind::Unavailable
            | ErrorKind::Corrupt
            | ErrorKind::Timeout
            | ErrorKind::Interrupted => false,
        }
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into() }
    }

    /// What it says, without its code.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Its code, such as `WL-0004`.
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Limited)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.message, self.code())
    }
}

impl std::error::Error for Error {}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let kind = match &error {
            StoreError::NotFound(_) => ErrorKind::NotFound,
            StoreError::Conflict(_) => ErrorKind::Conflict,
            StoreError::LeaseLost(_) => ErrorKind::LeaseLost,
            StoreError::TermOver { .. } => ErrorKind::TermOver,
            StoreError::Forbidden(_) => ErrorKind::Forbidden,
            StoreError::Unauthenticated(_) => ErrorKind::Unauthenticated,
            StoreError::Limited { .. } => ErrorKind::Limited,
            StoreError::Unreadable(_) => ErrorKind::Payload,
            StoreError::Unavailable(_) => ErrorKind::Unavailable,
            StoreError::Corrupt(_) => ErrorKind::Corrupt,
        };
        Error::new(kind, error.to_string())
    }
}

impl From<DefinitionError> for Error {
    fn from(error: DefinitionError) -> Self {
        Error::new(ErrorKind::Definition, error.to_string())
    }
}

impl From<NameError> for Error {
    fn from(error: NameError) -> Self {
        Error::new(ErrorKind::Argument, error.to_string())
    }
}

impl Error {
    pub(crate) fn payload(what: impl fmt::Display, error: PayloadError) -> Self {
        Error::new(ErrorKind::Payload, format!("{what} {error}"))
    }
}
