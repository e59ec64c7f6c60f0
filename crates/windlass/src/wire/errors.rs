//! Errors as messages, and as statuses of gRPC.

use std::time::Duration;

use prost::Message as _;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use windlass_core::WorkerId;

use super::{Wire, WireError, parse, v1};
use crate::error::ErrorKind;
use crate::store::StoreError;

/// The metadata of a status that says what went wrong: a [`v1::Error`].
pub const ERROR_METADATA: &str = "windlass-error-bin";

/// How the message about something that does not exist ends. [`StoreError::NotFound`] has only what
/// it is; servers of earlier versions say no more either.
const MISSING: &str = " does not exist";

fn without_verb(text: &str) -> String {
    text.strip_suffix(MISSING).unwrap_or(text).to_owned()
}

impl Wire for StoreError {
    type Message = v1::Error;

    fn to_wire(&self) -> v1::Error {
        let message = |kind: v1::ErrorKind, code: ErrorKind, message: &str| v1::Error {
            kind: kind.into(),
            code: code.code().to_owned(),
            message: message.to_owned(),
            worker: String::new(),
            retry_after_ms: 0,
        };
        match self {
            StoreError::NotFound(what) => {
                let text = format!("{what}{MISSING}");
                message(v1::ErrorKind::NotFound, ErrorKind::NotFound, &text)
            }
            StoreError::Conflict(why) => message(v1::ErrorKind::Conflict, ErrorKind::Conflict, why),
            StoreError::LeaseLost(worker) => {
                let text = self.to_string();
                let error = message(v1::ErrorKind::LeaseLost, ErrorKind::LeaseLost, &text);
                v1::Error { worker: worker.to_string(), ..error }
            }
            // Nobody leads a duty through a server.
            StoreError::TermOver { .. } => {
                message(v1::ErrorKind::Conflict, ErrorKind::TermOver, &self.to_string())
            }
            StoreError::Forbidden(why) => {
                message(v1::ErrorKind::Forbidden, ErrorKind::Forbidden, why)
            }
            StoreError::Unauthenticated(why) => {
                message(v1::ErrorKind::Unauthenticated, ErrorKind::Unauthenticated, why)
            }
            StoreError::Limited { why, retry_after } => {
                let error = message(v1::ErrorKind::Limited, ErrorKind::Limited, why);
                let retry_after_ms = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
                v1::Error { retry_after_ms, ..error }
            }
            // A server has no keys, and seals nothing.
            StoreError::Unreadable(why) => {
                message(v1::ErrorKind::Conflict, ErrorKind::Payload, why)
            }
            StoreError::Unavailable(why) => {
                message(v1::ErrorKind::Unavailable, ErrorKind::Unavailable, why)
            }
            StoreError::Corrupt(what) => message(v1::ErrorKind::Corrupt, ErrorKind::Corrupt, what),
        }
    }

    fn from_wire(message: v1::Error) -> Result<Self, WireError> {
        let text = message.message;
        Ok(match v1::ErrorKind::try_from(message.kind) {
            Ok(v1::ErrorKind::NotFound) => StoreError::NotFound(without_verb(&text)),
            Ok(v1::ErrorKind::LeaseLost) => {
                StoreError::LeaseLost(parse::<WorkerId>("worker", &message.worker)?)
            }
            Ok(v1::ErrorKind::Unavailable) => StoreError::Unavailable(text),
            Ok(v1::ErrorKind::Corrupt) => StoreError::Corrupt(text),
            Ok(v1::ErrorKind::Forbidden) => StoreError::Forbidden(text),
            Ok(v1::ErrorKind::Unauthenticated) => StoreError::Unauthenticated(text),
            Ok(v1::ErrorKind::Limited) => {
                let retry_after = Duration::from_millis(message.retry_after_ms);
                StoreError::Limited { why: text, retry_after }
            }
            // Whatever it is, asking again does not help.
            Ok(v1::ErrorKind::Conflict | v1::ErrorKind::Invalid | v1::ErrorKind::Unspecified)
            | Err(_) => StoreError::Conflict(text),
        })
    }
}

impl From<WireError> for StoreError {
    fn from(error: WireError) -> Self {
        StoreError::Conflict(error.to_string())
    }
}

/// A request that makes no sense, as a message.
impl From<WireError> for v1::Error {
    fn from(error: WireError) -> Self {
        v1::Error {
            kind: v1::ErrorKind::Invalid.into(),
            code: ErrorKind::Argument.code().to_owned(),
            message: error.to_string(),
            worker: String::new(),
            retry_after_ms: 0,
        }
    }
}

/// The most characters of a message in a status: with its headers a status must fit into the 16 KiB
/// that clients read of them, and a character may take twelve bytes in one and six in the other.
const STATUS_CHARS_MAX: usize = 500;

/// The status that a call ends with.
pub fn status_of_error(mut error: v1::Error) -> Status {
    if let Some((cut, _)) = error.message.char_indices().nth(STATUS_CHARS_MAX) {
        error.message.truncate(cut);
    }
    let code = match v1::ErrorKind::try_from(error.kind) {
        Ok(v1::ErrorKind::Invalid) => Code::InvalidArgument,
        Ok(v1::ErrorKind::NotFound) => Code::NotFound,
        Ok(v1::ErrorKind::Conflict) => Code::FailedPrecondition,
        Ok(v1::ErrorKind::LeaseLost) => Code::Aborted,
        Ok(v1::ErrorKind::Unavailable) => Code::Unavailable,
        Ok(v1::ErrorKind::Corrupt) => Code::DataLoss,
        Ok(v1::ErrorKind::Forbidden) => Code::PermissionDenied,
        Ok(v1::ErrorKind::Unauthenticated) => Code::Unauthenticated,
        Ok(v1::ErrorKind::Limited) => Code::ResourceExhausted,
        Ok(v1::ErrorKind::Unspecified) | Err(_) => Code::Unknown,
    };
    let mut status = Status::new(code, error.message.clone());
    let bytes = MetadataValue::from_bytes(&error.encode_to_vec());
    status.metadata_mut().insert_bin(ERROR_METADATA, bytes);
    status
}

/// What a call ended with, for a store.
pub fn error_of_status(status: &Status) -> StoreError {
    let bytes = status.metadata().get_bin(ERROR_METADATA).and_then(|it| it.to_bytes().ok());
    if let Some(Ok(error)) = bytes.map(v1::Error::decode) {
        return StoreError::from_wire(error).unwrap_or_else(StoreError::from);
    }
    match status.code() {
        Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::Unimplemented
        | Code::OutOfRange
        | Code::AlreadyExists => StoreError::Conflict(status.message().to_owned()),
        Code::NotFound => StoreError::NotFound(without_verb(status.message())),
        Code::PermissionDenied => StoreError::Forbidden(status.message().to_owned()),
        Code::Unauthenticated => StoreError::Unauthenticated(status.message().to_owned()),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => {
            StoreError::Unavailable(format!("{}: {}", status.code(), status.message()))
        }
    }
}
