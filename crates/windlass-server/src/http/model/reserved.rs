//! The one key that a value cannot have.
//!
//! serde_json keeps values as their text by an object with a key of its own. An object of a caller's
//! with that key would be read as something else than it is, by handlers and where limits look for
//! their keys: it is refused.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The key.
const RESERVED: &str = "$serde_json::private::RawValue";

/// Why a JSON text within the limits of payloads cannot be kept, if it cannot.
pub(super) fn check(text: &str) -> Result<(), String> {
    // A letter of the key may be written as an escape, which begins with these two.
    if !text.contains("private") && !text.contains("\\u") {
        return Ok(());
    }
    serde_json::from_str::<Unreserved>(text).map(|_| ()).map_err(|error| error.to_string())
}

/// A value without the key.
struct Unreserved;

impl<'de> Deserialize<'de> for Unreserved {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Unreserved;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Unreserved, E> {
        Ok(Unreserved)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unreserved, E> {
        Ok(Unreserved)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unreserved, E> {
        Ok(Unreserved)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unreserved, E> {
        Ok(Unreserved)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unreserved, E> {
        Ok(Unreserved)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unreserved, E> {
        Ok(Unreserved)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unreserved, A::Error> {
        while items.next_element::<Unreserved>()?.is_some() {}
        Ok(Unreserved)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Unreserved, A::Error> {
        while let Some(key) = entries.next_key::<String>()? {
            if key == RESERVED {
                entries.next_value::<IgnoredAny>()?;
                return Err(A::Error::custom(format_args!("the key {RESERVED:?} is reserved")));
            }
            entries.next_value::<Unreserved>()?;
        }
        Ok(Unreserved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserved_key_is_found_wherever_and_however_it_is_written() {
        for text in [
            r#"{"$serde_json::private::RawValue":"[1]"}"#,
            r#"{"customer":1,"$serde_json::private::RawValue":"[1]"}"#,
            r#"[[{"a":{"\u0024serde_json::privat\u0065::RawValue":null}}]]"#,
        ] {
            assert!(check(text).unwrap_err().contains("is reserved"), "{text}");
        }
        for text in [
            r#"["$serde_json::private::RawValue", "\u0000", 1, -1, 0.5, null, true]"#,
            r#"{"private":"$serde_json::private::RawValue"}"#,
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }
}
