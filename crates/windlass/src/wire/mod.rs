//! What is said to a server and by it, as messages of `windlass.v1`.
//!
//! A message is built by anyone, so reading one checks everything that our types promise, and
//! an error names the field. This module does not send anything.

mod dead;
mod definition;
mod duties;
mod errors;
mod events;
mod log;
mod parts;
mod quotas;
mod records;
mod retention;
mod schedules;
mod steps;
#[cfg(test)]
mod tests;
mod tokens;
mod watch;
mod worker;
mod workflows;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use windlass_core::{
    Failure, FailureCode, Fence, Payload, Priority, RunId, RunState, TaskId, TaskIndex, TaskState,
    Tenant, Timestamp, Version,
};
pub use windlass_proto::v1;

pub use errors::{ERROR_METADATA, error_of_status, status_of_error};
pub use events::{read_why, write_why};
pub use parts::{PART_BYTES_MAX, extend_reply, split_reply};
pub use worker::{
    read_answers, read_tasks, read_to_undo, write_answers, write_tasks, write_to_undo,
};

use crate::store::{Held, NewRun, Started};

/// Something that has a form on the wire.
pub trait Wire: Sized {
    /// The message.
    type Message;

    /// What is sent.
    fn to_wire(&self) -> Self::Message;

    /// What was received.
    ///
    /// # Errors
    ///
    /// The field that makes no sense, and why.
    fn from_wire(message: Self::Message) -> Result<Self, WireError>;
}

/// A message that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireError {
    /// Where in the message, from the outside in.
    path: String,
    problem: String,
}

impl WireError {
    /// Something is wrong with a field.
    pub fn new(field: impl Into<String>, problem: impl fmt::Display) -> Self {
        WireError { path: field.into(), problem: problem.to_string() }
    }

    /// The same, seen from the message that has the message in this field.
    #[must_use]
    pub fn within(mut self, field: impl fmt::Display) -> Self {
        self.path = format!("{field}.{}", self.path);
        self
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "field {}: {}", self.path, self.problem)
    }
}

impl std::error::Error for WireError {}

/// A message that must be there.
pub fn required<T>(field: &str, message: Option<T>) -> Result<T, WireError> {
    message.ok_or_else(|| WireError::new(field, "is missing"))
}

/// A message in a field that must be there.
pub fn read<T: Wire>(field: &str, message: Option<T::Message>) -> Result<T, WireError> {
    T::from_wire(required(field, message)?).map_err(|error| error.within(field))
}

/// A message in a field, if there is one.
pub fn read_some<T: Wire>(
    field: &str,
    message: Option<T::Message>,
) -> Result<Option<T>, WireError> {
    let read = |message| T::from_wire(message).map_err(|error| error.within(field));
    message.map(read).transpose()
}

/// Every message of a field.
pub fn read_all<T: Wire>(field: &str, messages: Vec<T::Message>) -> Result<Vec<T>, WireError> {
    let one = |(place, message)| {
        T::from_wire(message).map_err(|error: WireError| error.within(format!("{field}[{place}]")))
    };
    messages.into_iter().enumerate().map(one).collect()
}

/// Every one as a message.
pub fn write_all<T: Wire>(items: &[T]) -> Vec<T::Message> {
    items.iter().map(T::to_wire).collect()
}

/// An id or another thing that is text.
pub fn parse<T: FromStr<Err: fmt::Display>>(field: &str, text: &str) -> Result<T, WireError> {
    text.parse().map_err(|error| WireError::new(field, error))
}

/// A name, which has its own checks.
pub fn name<T, E: fmt::Display>(field: &str, read: Result<T, E>) -> Result<T, WireError> {
    read.map_err(|error| WireError::new(field, error))
}

/// A name in a field, if there is one.
pub fn name_some<T, E: fmt::Display>(
    field: &str,
    text: Option<String>,
    read: impl FnOnce(String) -> Result<T, E>,
) -> Result<Option<T>, WireError> {
    name(field, text.map(read).transpose())
}

/// An id in a field, if there is one.
pub fn parse_some<T: FromStr<Err: fmt::Display>>(
    field: &str,
    text: Option<String>,
) -> Result<Option<T>, WireError> {
    text.map(|text| parse(field, &text)).transpose()
}

/// Every id of a field.
pub fn parse_all<T: FromStr<Err: fmt::Display>>(
    field: &str,
    texts: &[String],
) -> Result<Vec<T>, WireError> {
    let one = |(place, text): (usize, &String)| parse(&format!("{field}[{place}]"), text);
    texts.iter().enumerate().map(one).collect()
}

/// Whose something is, `default` if nothing is said.
pub fn tenant(text: &str) -> Result<Tenant, WireError> {
    if text.is_empty() { Ok(Tenant::default()) } else { name("tenant", Tenant::new(text)) }
}

/// A JSON value, `null` if nothing is said.
pub fn json_or_null(field: &str, text: String) -> Result<Payload, WireError> {
    json(field, if text.is_empty() { "null".to_owned() } else { text })
}

/// How many are asked for at most. More than a page holds is never answered.
pub fn limit(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

/// A count that is as large as numbers of this machine may be.
pub fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A JSON value.
pub fn json(field: &str, text: String) -> Result<Payload, WireError> {
    Payload::from_json(text).map_err(|error| WireError::new(field, error))
}

/// A JSON value, if there is one.
pub fn json_some(field: &str, text: Option<String>) -> Result<Option<Payload>, WireError> {
    text.map(|text| json(field, text)).transpose()
}

/// The JSON text of a value.
pub fn text(payload: &Payload) -> String {
    payload.as_str().to_owned()
}

/// Microseconds of a duration.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A number that a store keeps in 31 bits.
pub fn small(field: &str, number: u32) -> Result<u32, WireError> {
    let most = i32::MAX.cast_unsigned();
    let problem = || WireError::new(field, format!("{number} is over the limit of {most}"));
    (number <= most).then_some(number).ok_or_else(problem)
}

/// A number that a store keeps in 63 bits, and of which there is a next one.
pub fn large(field: &str, number: u64) -> Result<u64, WireError> {
    let most = i64::MAX.cast_unsigned() - 1;
    let problem = || WireError::new(field, format!("{number} is over the limit of {most}"));
    (number <= most).then_some(number).ok_or_else(problem)
}

/// A priority.
pub fn priority(number: i32) -> Result<Priority, WireError> {
    let read = i16::try_from(number).ok().and_then(Priority::new);
    let wrong = || WireError::new("priority", format!("{number} is not within -100 to 100"));
    read.ok_or_else(wrong)
}

/// A version.
pub fn version(number: u32) -> Result<Version, WireError> {
    Version::try_from(number).map_err(|error| WireError::new("version", error))
}

/// A time.
pub fn time(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

impl Wire for TaskId {
    type Message = v1::TaskId;

    fn to_wire(&self) -> v1::TaskId {
        v1::TaskId { run: self.run.to_string(), index: self.index.0 }
    }

    fn from_wire(message: v1::TaskId) -> Result<Self, WireError> {
        Ok(TaskId { run: parse("run", &message.run)?, index: TaskIndex(message.index) })
    }
}

impl Wire for Held {
    type Message = v1::Held;

    fn to_wire(&self) -> v1::Held {
        v1::Held { task: Some(self.task.to_wire()), fence: self.fence.0 }
    }

    fn from_wire(message: v1::Held) -> Result<Self, WireError> {
        Ok(Held { task: read("task", message.task)?, fence: Fence(large("fence", message.fence)?) })
    }
}

impl Wire for Failure {
    type Message = v1::Failure;

    fn to_wire(&self) -> v1::Failure {
        v1::Failure {
            code: self.code.word().to_owned(),
            message: self.message.clone(),
            is_retryable: self.is_retryable,
        }
    }

    fn from_wire(message: v1::Failure) -> Result<Self, WireError> {
        let failure = Failure::new(FailureCode::from(message.code), message.message);
        Ok(Failure { is_retryable: message.is_retryable, ..failure })
    }
}

impl Wire for TaskState {
    type Message = i32;

    fn to_wire(&self) -> i32 {
        let state = match self {
            TaskState::Pending => v1::TaskState::Pending,
            TaskState::Scheduled => v1::TaskState::Scheduled,
            TaskState::Waiting => v1::TaskState::Waiting,
            TaskState::Ready => v1::TaskState::Ready,
            TaskState::Running => v1::TaskState::Running,
            TaskState::Succeeded => v1::TaskState::Succeeded,
            TaskState::Failed => v1::TaskState::Failed,
            TaskState::Skipped => v1::TaskState::Skipped,
            TaskState::Cancelled => v1::TaskState::Cancelled,
        };
        state.into()
    }

    fn from_wire(number: i32) -> Result<Self, WireError> {
        match v1::TaskState::try_from(number) {
            Ok(v1::TaskState::Pending) => Ok(TaskState::Pending),
            Ok(v1::TaskState::Scheduled) => Ok(TaskState::Scheduled),
            Ok(v1::TaskState::Waiting) => Ok(TaskState::Waiting),
            Ok(v1::TaskState::Ready) => Ok(TaskState::Ready),
            Ok(v1::TaskState::Running) => Ok(TaskState::Running),
            Ok(v1::TaskState::Succeeded) => Ok(TaskState::Succeeded),
            Ok(v1::TaskState::Failed) => Ok(TaskState::Failed),
            Ok(v1::TaskState::Skipped) => Ok(TaskState::Skipped),
            Ok(v1::TaskState::Cancelled) => Ok(TaskState::Cancelled),
            Ok(v1::TaskState::Unspecified) | Err(_) => Err(unknown("state", number)),
        }
    }
}

impl Wire for RunState {
    type Message = i32;

    fn to_wire(&self) -> i32 {
        let state = match self {
            RunState::Running => v1::RunState::Running,
            RunState::Succeeded => v1::RunState::Succeeded,
            RunState::Failed => v1::RunState::Failed,
            RunState::Cancelled => v1::RunState::Cancelled,
        };
        state.into()
    }

    fn from_wire(number: i32) -> Result<Self, WireError> {
        match v1::RunState::try_from(number) {
            Ok(v1::RunState::Running) => Ok(RunState::Running),
            Ok(v1::RunState::Succeeded) => Ok(RunState::Succeeded),
            Ok(v1::RunState::Failed) => Ok(RunState::Failed),
            Ok(v1::RunState::Cancelled) => Ok(RunState::Cancelled),
            Ok(v1::RunState::Unspecified) | Err(_) => Err(unknown("state", number)),
        }
    }
}

/// A value of an enum that is not known here.
pub fn unknown(field: &str, number: i32) -> WireError {
    WireError::new(field, format!("{number} is not known"))
}

impl Wire for NewRun {
    type Message = v1::NewRun;

    fn to_wire(&self) -> v1::NewRun {
        v1::NewRun {
            id: self.id.to_string(),
            workflow: self.workflow.as_str().to_owned(),
            version: self.version.get(),
            tenant: self.tenant.as_str().to_owned(),
            input: text(&self.input),
            key: self.key.as_ref().map(|key| key.as_str().to_owned()),
            delay_us: micros(self.delay),
            priority: self.priority.get().into(),
            metadata: self.metadata.clone().into_iter().collect(),
        }
    }

    fn from_wire(message: v1::NewRun) -> Result<Self, WireError> {
        let key = message.key.map(windlass_core::IdempotencyKey::new).transpose();
        Ok(NewRun {
            id: parse("id", &message.id)?,
            workflow: name("workflow", windlass_core::WorkflowName::new(&message.workflow))?,
            version: version(message.version)?,
            tenant: tenant(&message.tenant)?,
            input: json_or_null("input", message.input)?,
            key: name("key", key)?,
            delay: Duration::from_micros(message.delay_us),
            priority: priority(message.priority)?,
            metadata: message.metadata.into_iter().collect(),
        })
    }
}

impl Wire for Started {
    type Message = v1::Started;

    fn to_wire(&self) -> v1::Started {
        v1::Started { run: self.run.to_string(), is_new: self.is_new }
    }

    fn from_wire(message: v1::Started) -> Result<Self, WireError> {
        Ok(Started { run: parse::<RunId>("run", &message.run)?, is_new: message.is_new })
    }
}
