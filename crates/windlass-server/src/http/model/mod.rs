//! What requests and answers look like: types of their own, so that what is stored can change
//! without what is said.
//!
//! Ids and numbers that may be beyond what JavaScript counts exactly are strings. Times are
//! RFC 3339, durations are milliseconds with `_ms` at the end of their name.

pub(crate) mod claim;
pub(crate) mod dead;
pub(crate) mod definition;
pub(crate) mod duty;
pub(crate) mod event;
pub(crate) mod function;
pub(crate) mod limit;
pub(crate) mod operator;
pub(crate) mod queue;
pub(crate) mod quota;
mod reserved;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod step;
pub(crate) mod token;
pub(crate) mod worker;
pub(crate) mod workflow;

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type};
use utoipa::openapi::{Object, RefOr};
use utoipa::{PartialSchema, ToSchema};
use windlass::{Payload, PayloadLimit, Timestamp};
use windlass_core::PayloadError;

use crate::problem::Problem;

/// The most items of one request that has several.
pub(crate) const ITEMS_MAX: usize = 1_000;

/// The most rows of a page, and how many it has if nothing is said.
pub(crate) const PAGE_MAX: usize = 1_000;
pub(crate) const PAGE_DEFAULT: usize = 100;

/// How many rows a page is to have.
pub(crate) fn page_limit(limit: Option<u32>) -> Result<usize, Problem> {
    match limit {
        None => Ok(PAGE_DEFAULT),
        Some(limit) if (1..=PAGE_MAX).contains(&(limit as usize)) => Ok(limit as usize),
        Some(limit) => {
            Err(Problem::field("limit", format_args!("{limit} is not within 1 to {PAGE_MAX}")))
        }
    }
}

/// Refuses a request with too many items, or none.
pub(crate) fn check_items(field: &str, count: usize) -> Result<(), Problem> {
    if (1..=ITEMS_MAX).contains(&count) {
        return Ok(());
    }
    Err(Problem::field(field, format_args!("{count} items are not within 1 to {ITEMS_MAX}")))
}

/// Reads a list of at most `MAX` items. The limit holds while the list is read: an item takes many
/// times as much memory as it has bytes.
pub(crate) fn at_most<'de, const MAX: usize, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    read_list(deserializer, MAX, |_| 1)
}

/// Reads a list until its items count more than `max` together.
pub(crate) fn read_list<'de, T, D>(
    deserializer: D,
    max: usize,
    count: fn(&T) -> usize,
) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct List<T>(usize, fn(&T) -> usize);

    impl<'de, T: Deserialize<'de>> de::Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "a list of at most {} items", self.0)
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let (mut list, mut total) = (Vec::new(), 0);
            while let Some(item) = items.next_element()? {
                total += (self.1)(&item);
                if total > self.0 {
                    let why = format_args!("more than {} items; split the request", self.0);
                    return Err(de::Error::custom(why));
                }
                list.push(item);
            }
            Ok(list)
        }
    }

    deserializer.deserialize_seq(List(max, count))
}

/// A duration in milliseconds; what is beyond the number stays beyond every limit.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Any JSON value, kept as the text it came as.
#[derive(Clone, Debug)]
pub(crate) struct Json(Box<RawValue>);

impl Json {
    /// The value as a payload.
    pub(crate) fn to_payload(&self, field: &str, limit: PayloadLimit) -> Result<Payload, Problem> {
        let wrong = |error: PayloadError| Problem::payload(field, &error);
        let payload = Payload::from_json(self.0.get()).map_err(wrong)?;
        limit.check(&payload).map_err(wrong)?;
        reserved::check(payload.as_str()).map_err(|why| {
            Problem::new(windlass::ErrorKind::Payload, format!("{field} cannot be kept: {why}"))
        })?;
        Ok(payload)
    }

    /// A payload as a value. Line breaks and tabs between its parts become spaces, so that it
    /// stays one line where lines count.
    pub(crate) fn of(payload: &Payload) -> Self {
        let text = payload.as_str();
        let text = match text.contains(['\n', '\r']) {
            true => text.replace(['\n', '\r'], " "),
            false => text.to_owned(),
        };
        let raw = RawValue::from_string(text);
        Json(raw.unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }
}

impl Default for Json {
    fn default() -> Self {
        Json(RawValue::NULL.to_owned())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Json)
    }
}

/// A type with a schema that is written by hand.
macro_rules! schema {
    ($name:ident, $schema:expr) => {
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                RefOr::T(Schema::Object($schema))
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($name))
            }
        }
    };
}

fn any() -> Object {
    ObjectBuilder::new()
        .schema_type(SchemaType::AnyValue)
        .description(Some(
            "Any JSON value, nested no deeper than 120 and within the server's payload limit.",
        ))
        .build()
}

schema!(Json, any());

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Timestamp);

/// The times that a request may name: the years 1 to 9999, which all stores have.
const TIME_MIN: Timestamp = Timestamp::from_micros(-62_135_596_800_000_000);
const TIME_MAX: Timestamp = windlass_core::step::UNTIL_MAX;

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let time: Timestamp = text.parse().map_err(de::Error::custom)?;
        if !(TIME_MIN..=TIME_MAX).contains(&time) {
            return Err(de::Error::custom(format_args!(
                "{text:?} is not within the years 1 to 9999"
            )));
        }
        Ok(Time(time))
    }
}

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Self {
        Time(time)
    }
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

schema!(
    Time,
    text()
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
        .description(Some("A time by RFC 3339, such as 2026-03-29T02:30:00Z."))
        .build()
);

/// What has no control characters.
pub(crate) const PRINTABLE: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";

/// The schema of a name; the domain's own types check it.
pub(crate) struct NameText;

schema!(
    NameText,
    text()
        .min_length(Some(1))
        .max_length(Some(200))
        .pattern(Some(PRINTABLE))
        .description(Some("A name: 1 to 200 bytes of UTF-8 without control characters."))
        .build()
);

/// The schema of a key; the domain's own types check it.
pub(crate) struct KeyText;

schema!(
    KeyText,
    text()
        .min_length(Some(1))
        .max_length(Some(400))
        .pattern(Some(PRINTABLE))
        .description(Some("A key: 1 to 400 bytes of UTF-8 without control characters."))
        .build()
);

/// The schema of an id.
pub(crate) struct IdText;

schema!(
    IdText,
    text()
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Uuid)))
        .description(Some("An id, as a UUID."))
        .build()
);

fn number(min: usize, max: usize) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(min)).maximum(Some(max))
}

/// How many of the times of a schedule that nobody served run.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct MissedCount(pub(crate) u32);

schema!(MissedCount, number(1, 1_000).description(Some("How many run.")).build());

/// A time in milliseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct WaitMs(pub(crate) u64);

schema!(
    WaitMs,
    number(0, 3_153_600_000_000).description(Some("Milliseconds, up to a hundred years.")).build()
);

/// How many children of a call may still run.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct ChildrenMax(pub(crate) u32);

schema!(ChildrenMax, number(0, 2_147_483_647).description(Some("How many.")).build());

/// Why an attempt failed.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Failure)]
pub(crate) struct FailureBody {
    /// What kind of failure it is; retry policies branch on it.
    code: String,
    /// What a person reads.
    message: String,
    /// Whether another attempt could end otherwise.
    is_retryable: bool,
}

impl From<&windlass::Failure> for FailureBody {
    fn from(failure: &windlass::Failure) -> Self {
        let windlass::Failure { code, message, is_retryable } = failure.clone();
        FailureBody { code: code.word().to_owned(), message, is_retryable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_text_and_one_that_nobody_could_read_is_refused() {
        let limit = PayloadLimit::default();
        let read = |text: &str| serde_json::from_str::<Json>(text).unwrap().to_payload("x", limit);
        let text = r#"{"b":1.0, "a":"\u0000é"}"#;
        assert_eq!(read(text).unwrap().as_str(), text);
        let deep = "[".repeat(20_000) + &"]".repeat(20_000);
        assert_eq!(read(&deep).unwrap_err().detail(), "x is nested 20000 deep, the limit is 120");
        assert_eq!(read(r#""\ud800""#).unwrap_err().status(), 422);
    }

    #[test]
    fn a_payload_of_several_lines_is_shown_in_one() {
        let payload = Payload::from_json("{\r\n\t\"a\": \"\\n\"\n}").unwrap();
        let text = serde_json::to_string(&Json::of(&payload)).unwrap();
        assert_eq!(text, "{  \t\"a\": \"\\n\" }");
    }

    #[test]
    fn times_are_those_that_every_store_has() {
        let read = |text: &str| serde_json::from_str::<Time>(&format!("{text:?}"));
        assert!(read("0001-01-01T00:00:00Z").is_ok());
        assert!(read("-000001-01-01T00:00:00Z").is_err());
        assert!(read("9999-12-31T23:59:59Z").is_err());
        assert!(read("tomorrow").is_err());
    }

    #[test]
    fn pages_and_batches_have_limits() {
        assert_eq!(page_limit(None), Ok(PAGE_DEFAULT));
        assert_eq!(page_limit(Some(1_000)), Ok(1_000));
        assert!(page_limit(Some(0)).is_err() && page_limit(Some(1_001)).is_err());
        assert!(check_items("x", 0).is_err() && check_items("x", 1_000).is_ok());
        assert!(check_items("x", 1_001).is_err());
    }
}
