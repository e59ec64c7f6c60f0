//! How large a payload may be.

use std::fmt;

use serde::Serialize;

use super::{Payload, PayloadError};

/// The limit on the size of payloads if nothing is said, in bytes of JSON text.
pub const PAYLOAD_BYTES_DEFAULT: usize = 1 << 20;

/// The smallest limit that can be set: there is room for what says why something failed.
pub const PAYLOAD_LIMIT_MIN: usize = 1 << 10;

/// The largest limit that can be set, and the largest payload that there can be. A payload is
/// in memory several times on its way, and a batch has many of them.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// The limit on the size of payloads (inputs, outputs and notes on progress), in bytes of
/// JSON text: 1 MiB if nothing is said, from 1 KiB to 64 MiB.
///
/// ```
/// use windlass_core::PayloadLimit;
///
/// let limit = PayloadLimit::new(2_000).expect("it is within 1024 and 67108864");
/// assert!(limit.encode("short").is_ok());
/// let error = limit.encode(&"x".repeat(2_000)).unwrap_err();
/// assert_eq!(error.to_string(), "has 2002 bytes, the payload_limit is 2000");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadLimit(usize);

impl PayloadLimit {
    /// The limit of this many bytes, `None` outside 1024 to 67108864.
    pub const fn new(bytes: usize) -> Option<Self> {
        if bytes < PAYLOAD_LIMIT_MIN || bytes > PAYLOAD_BYTES_MAX {
            return None;
        }
        Some(PayloadLimit(bytes))
    }

    /// The limit in bytes.
    pub const fn get(self) -> usize {
        self.0
    }

    /// Refuses a payload that is larger.
    pub fn check(self, payload: &Payload) -> Result<(), PayloadError> {
        let (bytes, max) = (payload.as_str().len(), self.0);
        if bytes > max {
            return Err(PayloadError::TooLarge { bytes, max });
        }
        Ok(())
    }

    /// The JSON form of a value, as [`Payload::encode`], within this limit.
    pub fn encode<T: Serialize + ?Sized>(self, value: &T) -> Result<Payload, PayloadError> {
        let payload = Payload::encode(value)?;
        self.check(&payload)?;
        Ok(payload)
    }
}

impl Default for PayloadLimit {
    fn default() -> Self {
        PayloadLimit(PAYLOAD_BYTES_DEFAULT)
    }
}

impl TryFrom<usize> for PayloadLimit {
    type Error = String;

    fn try_from(bytes: usize) -> Result<Self, Self::Error> {
        let text = || {
            format!(
                "payload_limit is {bytes}, not within {PAYLOAD_LIMIT_MIN} to {PAYLOAD_BYTES_MAX}"
            )
        };
        PayloadLimit::new(bytes).ok_or_else(text)
    }
}

impl fmt::Display for PayloadLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_at_the_limit_is_accepted_and_one_byte_more_is_not() {
        let limit = PayloadLimit::default();
        let quotes = 2;
        let fits = "x".repeat(PAYLOAD_BYTES_DEFAULT - quotes);
        assert!(limit.encode(&fits).is_ok());
        let error = limit.encode(&(fits + "x")).unwrap_err();
        assert_eq!(error.to_string(), "has 1048577 bytes, the payload_limit is 1048576");
    }

    #[test]
    fn a_limit_outside_its_limits_is_refused() {
        for bytes in [1_024, PAYLOAD_BYTES_MAX] {
            assert_eq!(PayloadLimit::try_from(bytes).map(PayloadLimit::get), Ok(bytes));
        }
        for bytes in [0, 1_023, PAYLOAD_BYTES_MAX + 1] {
            assert_eq!(
                PayloadLimit::try_from(bytes),
                Err(format!("payload_limit is {bytes}, not within 1024 to 67108864"))
            );
        }
    }
}
