//! How an answer is written as JSON, and read again: times as people read them, and values of
//! users as they are.

/// A time.
pub(super) mod time {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use crate::time::Timestamp;

    pub(in crate::why) fn serialize<S: Serializer>(
        at: &Timestamp,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(at)
    }

    pub(in crate::why) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Timestamp, D::Error> {
        read(&String::deserialize(from)?).map_err(de::Error::custom)
    }

    /// Outside the years that a calendar has, a time is its microseconds.
    pub(super) fn read(text: &str) -> Result<Timestamp, String> {
        match text.strip_suffix("us").and_then(|micros| micros.parse().ok()) {
            Some(micros) => Ok(Timestamp::from_micros(micros)),
            None => text.parse(),
        }
    }
}

/// A time, if there is one.
pub(super) mod time_or_none {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    use crate::time::Timestamp;

    pub(in crate::why) fn serialize<S: Serializer>(
        at: &Option<Timestamp>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        at.map(|at| at.to_string()).serialize(to)
    }

    pub(in crate::why) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| super::time::read(&text)).transpose().map_err(de::Error::custom)
    }
}

/// A value of a user, if there is one.
pub(super) mod json_or_none {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

    use crate::payload::Payload;

    pub(in crate::why) fn serialize<S: Serializer>(
        value: &Option<Payload>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let value = value.as_ref().map(Payload::decode::<serde_json::Value>).transpose();
        value.map_err(ser::Error::custom)?.serialize(to)
    }

    pub(in crate::why) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Payload>, D::Error> {
        let value = Option::<serde_json::Value>::deserialize(from)?;
        value.map(|value| Payload::encode(&value)).transpose().map_err(de::Error::custom)
    }
}
