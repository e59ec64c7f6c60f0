//! Inputs and outputs: JSON text that is checked once and shared.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The largest payload, in bytes of JSON text.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// A payload that cannot be stored or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The value has no JSON form.
    #[error("cannot be written as JSON: {0}")]
    Encode(String),
    /// The JSON does not fit the type it is read as.
    #[error("cannot be read as {type_name}: {reason}")]
    Decode {
        /// The type that was asked for.
        type_name: &'static str,
        /// What does not fit, and where.
        reason: String,
    },
    /// The text is not JSON.
    #[error("is not JSON: {0}")]
    Syntax(String),
    /// The text is too long.
    #[error("has {bytes} bytes, the limit is {max}")]
    TooLarge {
        /// The length it has.
        bytes: usize,
        /// The length it may have.
        max: usize,
    },
}

/// A JSON value as text, cheap to clone.
///
/// ```
/// use windlass_core::Payload;
///
/// let payload = Payload::encode(&vec![1, 2, 3])?;
/// assert_eq!(payload.as_str(), "[1,2,3]");
/// assert_eq!(payload.decode::<Vec<u8>>()?, [1, 2, 3]);
/// # Ok::<(), windlass_core::PayloadError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Arc<str>", into = "Arc<str>")]
pub struct Payload(Arc<str>);

impl Payload {
    /// The JSON form of a value.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, PayloadError> {
        let text = serde_json::to_string(value)
            .map_err(|error| PayloadError::Encode(error.to_string()))?;
        check_size(&text)?;
        Ok(Payload(text.into()))
    }

    /// Checks that the text is one JSON value within the limit.
    pub fn from_json(text: impl Into<Arc<str>>) -> Result<Self, PayloadError> {
        let text = text.into();
        check_size(&text)?;
        serde_json::from_str::<serde::de::IgnoredAny>(&text)
            .map_err(|error| PayloadError::Syntax(error.to_string()))?;
        Ok(Payload(text))
    }

    /// The value, read as a type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        serde_json::from_str(&self.0).map_err(|error| PayloadError::Decode {
            type_name: std::any::type_name::<T>(),
            reason: error.to_string(),
        })
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check_size(text: &str) -> Result<(), PayloadError> {
    if text.len() > PAYLOAD_BYTES_MAX {
        let (bytes, max) = (text.len(), PAYLOAD_BYTES_MAX);
        return Err(PayloadError::TooLarge { bytes, max });
    }
    Ok(())
}

impl Default for Payload {
    /// The JSON value `null`.
    fn default() -> Self {
        Payload("null".into())
    }
}

impl TryFrom<Arc<str>> for Payload {
    type Error = PayloadError;

    fn try_from(text: Arc<str>) -> Result<Self, PayloadError> {
        Payload::from_json(text)
    }
}

impl From<Payload> for Arc<str> {
    fn from(payload: Payload) -> Arc<str> {
        payload.0
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_payload_is_accepted_and_one_byte_more_is_not() {
        let quotes = 2;
        let fits = "x".repeat(PAYLOAD_BYTES_MAX - quotes);
        assert!(Payload::encode(&fits).is_ok());
        let error = Payload::encode(&(fits + "x")).unwrap_err();
        assert_eq!(error.to_string(), "has 1048577 bytes, the limit is 1048576");
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_place() {
        let error = Payload::from_json("{\"a\": 1,}").unwrap_err();
        assert_eq!(error.to_string(), "is not JSON: key must be a string at line 1 column 9");
    }

    #[test]
    fn deep_nesting_is_an_error_for_whoever_reads_it_and_not_an_overflow() {
        let deep = "[".repeat(20_000) + &"]".repeat(20_000);
        let payload = Payload::from_json(deep).unwrap();
        assert!(payload.decode::<serde_json::Value>().is_err());
    }

    #[test]
    fn a_value_of_another_type_names_both() {
        let error = Payload::encode("seven").unwrap().decode::<u32>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot be read as u32: invalid type: string \"seven\", expected u32 at line 1 column 7"
        );
    }
}
