//! Inputs and outputs: JSON text that is checked once and shared.

mod finite;
mod limit;
mod readable;

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use readable::Readable;

pub use limit::{PAYLOAD_BYTES_DEFAULT, PAYLOAD_BYTES_MAX, PAYLOAD_LIMIT_MIN, PayloadLimit};

/// The deepest nesting of arrays and objects in a payload. What reads JSON stops at
/// a depth of 128, here and elsewhere.
pub const PAYLOAD_DEPTH_MAX: usize = 120;

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
    /// Arrays and objects are nested too deep to be read again.
    #[error("is nested {depth} deep, the limit is {PAYLOAD_DEPTH_MAX}")]
    TooDeep {
        /// How deep it is nested.
        depth: usize,
    },
    /// The text is too long.
    #[error("has {bytes} bytes, the payload_limit is {max}")]
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
    /// The JSON form of a value of any size that can be stored; [`PayloadLimit::encode`] keeps
    /// to the limit that is set. JSON has no number for NaN and infinity: a value that has
    /// one is refused.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, PayloadError> {
        finite::check(value).map_err(|error| PayloadError::Encode(error.to_string()))?;
        let text = serde_json::to_string(value)
            .map_err(|error| PayloadError::Encode(error.to_string()))?;
        check_limits(&text)?;
        Ok(Payload(text.into()))
    }

    /// Checks that the text is one JSON value within the limit that can be read: one with half
    /// of a character, such as `"\ud83d"`, or with a number beyond those of `f64`, such as
    /// `1e999`, is refused.
    pub fn from_json(text: impl Into<Arc<str>>) -> Result<Self, PayloadError> {
        let text = text.into();
        check_limits(&text)?;
        serde_json::from_str::<Readable>(&text)
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

/// How the keys begin by which serde_json marks values of its own.
const RESERVED: &str = "$serde_json::private::";

fn check_limits(text: &str) -> Result<(), PayloadError> {
    if text.len() > PAYLOAD_BYTES_MAX {
        let (bytes, max) = (text.len(), PAYLOAD_BYTES_MAX);
        return Err(PayloadError::TooLarge { bytes, max });
    }
    let depth = depth(text);
    if depth > PAYLOAD_DEPTH_MAX {
        return Err(PayloadError::TooDeep { depth });
    }
    // A key that serde_json, where others turn its features on, takes for a value of its own.
    if text.contains(RESERVED) {
        return Err(PayloadError::Syntax(format!("the key {RESERVED}… is reserved")));
    }
    Ok(())
}

/// How deep the brackets of a JSON text are nested.
fn depth(text: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    let (mut is_string, mut is_escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            b'[' | b'{' if !is_string => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' if !is_string => open = open.saturating_sub(1),
            _ => {}
        }
    }
    deepest
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
    fn no_payload_is_larger_than_the_largest_limit() {
        let quotes = 2;
        let fits = "x".repeat(PAYLOAD_BYTES_MAX - quotes);
        assert!(Payload::encode(&fits).is_ok());
        let error = Payload::encode(&(fits + "x")).unwrap_err();
        assert_eq!(error.to_string(), "has 67108865 bytes, the payload_limit is 67108864");
    }

    #[test]
    fn a_number_that_json_does_not_have_is_refused_with_its_field() {
        #[derive(Serialize)]
        struct Reading {
            celsius: Option<f64>,
        }
        assert!(Payload::encode(&[Reading { celsius: Some(20.5) }]).is_ok());
        assert_eq!(
            Payload::encode(&Reading { celsius: None }).unwrap().as_str(),
            r#"{"celsius":null}"#
        );
        let error = Payload::encode(&[Reading { celsius: Some(f64::NAN) }]).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"cannot be written as JSON: JSON has no number for NaN, in field "celsius""#
        );
        for (value, word) in [(f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
            let error =
                Payload::encode(&std::collections::BTreeMap::from([("a", value)])).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("cannot be written as JSON: JSON has no number for {word}")
            );
        }
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_place() {
        let error = Payload::from_json("{\"a\": 1,}").unwrap_err();
        assert_eq!(error.to_string(), "is not JSON: trailing comma at line 1 column 9");
    }

    #[test]
    fn what_nobody_could_read_is_refused_with_its_place() {
        for (text, complaint) in [
            (r#"{"a": "\ud83d"}"#, "unexpected end of hex escape at line 1 column 14"),
            (r#"["\ude00"]"#, "lone leading surrogate in hex escape at line 1 column 8"),
            (r#"{"\udabc": 1}"#, "unexpected end of hex escape at line 1 column 9"),
            ("[0,\n1e999999]", "number out of range at line 2 column 8"),
            ("-1e309", "number out of range at line 1 column 6"),
        ] {
            let error = Payload::from_json(text).unwrap_err();
            assert_eq!(error.to_string(), format!("is not JSON: {complaint}"), "{text}");
        }
        for text in [
            r#"["\ud83d\ude00 \ud7ff \ue000 \u0000 \\ud83d", true, null, {"a": [-1, 0.5]}]"#,
            "[1e308, 1e-999999, 0e999999, 18446744073709551615, 99999999999999999999]",
        ] {
            assert_eq!(Payload::from_json(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn what_is_nested_too_deep_to_be_read_is_not_written() {
        let nested = |depth: usize| "[".repeat(depth) + r#""]\"]""# + &"]".repeat(depth);
        let deepest = Payload::from_json(nested(PAYLOAD_DEPTH_MAX)).unwrap();
        assert!(deepest.decode::<serde_json::Value>().is_ok());
        let error = Payload::from_json(nested(20_000)).unwrap_err();
        assert_eq!(error.to_string(), "is nested 20000 deep, the limit is 120");
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
