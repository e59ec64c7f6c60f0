//! Names that come from users, checked once where they enter.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest name of a workflow, task, queue or tenant, in bytes.
pub const NAME_BYTES_MAX: usize = 200;

/// The longest idempotency key, key of signals and lane key, in bytes.
pub const KEY_BYTES_MAX: usize = 400;

/// The longest name of a limit, in bytes: that of a workflow, a task and a field.
pub const LIMIT_NAME_BYTES_MAX: usize = 3 * NAME_BYTES_MAX + 2;

/// A name that cannot be used, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name has no characters.
    #[error("{what} is empty")]
    Empty {
        /// What was to be named.
        what: &'static str,
    },
    /// The name is too long.
    #[error("{what} {start:?}… has {bytes} bytes, the limit is {max}")]
    TooLong {
        /// What was to be named.
        what: &'static str,
        /// How the name begins.
        start: String,
        /// The length it has.
        bytes: usize,
        /// The length it may have.
        max: usize,
    },
    /// The name has a character that no store or terminal can be trusted with.
    #[error("{what} {name:?} has a control character at byte {position}")]
    ControlCharacter {
        /// What was to be named.
        what: &'static str,
        /// The whole name.
        name: String,
        /// Where the character is.
        position: usize,
    },
}

fn check(what: &'static str, name: &str, max: usize) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty { what });
    }
    if name.len() > max {
        let start = name.chars().take(24).collect();
        let bytes = name.len();
        return Err(NameError::TooLong { what, start, bytes, max });
    }
    if let Some(position) = name.find(char::is_control) {
        let name = name.to_owned();
        return Err(NameError::ControlCharacter { what, name, position });
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "Arc<str>", into = "Arc<str>")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the name: not empty, not too long, no control characters.
            pub fn new(name: impl AsRef<str>) -> Result<Self, NameError> {
                let name = name.as_ref();
                check($what, name, $max)?;
                Ok(Self(name.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<Arc<str>> for $name {
            type Error = NameError;

            fn try_from(name: Arc<str>) -> Result<Self, NameError> {
                check($what, &name, $max)?;
                Ok(Self(name))
            }
        }

        impl From<$name> for Arc<str> {
            fn from(name: $name) -> Arc<str> {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

name! {
    /// The name of a workflow.
    WorkflowName, "workflow name", NAME_BYTES_MAX
}
name! {
    /// The name of a task within its workflow.
    TaskName, "task name", NAME_BYTES_MAX
}
name! {
    /// What a durable function calls a step or a signal.
    StepName, "step name", NAME_BYTES_MAX
}
name! {
    /// The name of a route of ready tasks.
    QueueName, "queue name", NAME_BYTES_MAX
}
name! {
    /// What people call a worker.
    WorkerName, "worker name", NAME_BYTES_MAX
}
name! {
    /// Whoever must not be starved by, nor see, the others.
    Tenant, "tenant name", NAME_BYTES_MAX
}
name! {
    /// Who does something to runs by hand, such as `anna@ops-1`.
    Operator, "name of an operator", NAME_BYTES_MAX
}
name! {
    /// The name of a limit on how many tasks are under way at once.
    LimitName, "name of a limit", LIMIT_NAME_BYTES_MAX
}
name! {
    /// What the tasks in one lane of a limit have in common.
    LaneKey, "lane key", KEY_BYTES_MAX
}
name! {
    /// The caller's name for a start: one run per tenant, workflow and key.
    IdempotencyKey, "idempotency key", KEY_BYTES_MAX
}
name! {
    /// What a signal is sent to where nobody knows the run: whoever of a tenant waits for it.
    SignalKey, "signal key", KEY_BYTES_MAX
}
name! {
    /// The name of a schedule among those of its tenant.
    ScheduleName, "schedule name", NAME_BYTES_MAX
}
name! {
    /// Whose code declares a schedule: all workers of one program have the same.
    ScheduleOwner, "owner of schedules", NAME_BYTES_MAX
}
name! {
    /// The name of a duty of a program, in the whole store.
    DutyName, "name of a duty", NAME_BYTES_MAX
}

/// The name of the queue and of the tenant where none was given.
pub const DEFAULT: &str = "default";

impl Default for QueueName {
    fn default() -> Self {
        QueueName(DEFAULT.into())
    }
}

impl Default for Tenant {
    fn default() -> Self {
        Tenant(DEFAULT.into())
    }
}

impl StepName {
    /// What the input that a function began afresh with is called among what it knows.
    pub(crate) fn of_round(round: u32) -> Self {
        StepName(format!("{ROUND}{round}").into())
    }

    /// The round that it was made of, 0 if it was not.
    pub(crate) fn round(&self) -> u32 {
        let number = self.0.strip_prefix(ROUND).and_then(|number| number.parse().ok());
        number.unwrap_or_default()
    }
}

/// How the names of inputs begin.
const ROUND: &str = "round ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_is_accepted_and_one_byte_more_is_not() {
        assert!(TaskName::new("x".repeat(NAME_BYTES_MAX)).is_ok());
        let error = TaskName::new("x".repeat(NAME_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "task name \"xxxxxxxxxxxxxxxxxxxxxxxx\"… has 201 bytes, the limit is 200"
        );
    }

    #[test]
    fn the_longest_key_is_accepted_and_one_byte_more_is_not() {
        assert!(SignalKey::new("x".repeat(KEY_BYTES_MAX)).is_ok());
        let error = SignalKey::new("x".repeat(KEY_BYTES_MAX + 1)).unwrap_err();
        let text = "signal key \"xxxxxxxxxxxxxxxxxxxxxxxx\"… has 401 bytes, the limit is 400";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn empty_names_and_control_characters_are_refused() {
        let empty = QueueName::new("").unwrap_err();
        assert_eq!(empty.to_string(), "queue name is empty");
        let nul = Tenant::new("ac\0me").unwrap_err();
        assert_eq!(nul.to_string(), r#"tenant name "ac\0me" has a control character at byte 2"#);
    }

    #[test]
    fn a_name_from_outside_is_checked_too() {
        assert!(serde_json::from_str::<TaskName>("\"charge\"").is_ok());
        assert!(serde_json::from_str::<TaskName>("\"a\\nb\"").is_err());
    }
}
