//! What handlers take out of a request, each with a problem that says where it is wrong.

use std::str::FromStr;

use axum::extract::{FromRequest, FromRequestParts, Path as AxumPath, Request};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use futures_util::StreamExt as _;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::error::Category;
use windlass::ErrorKind;

use super::App;
use super::cursor::from_hex;
use super::rooms::origin_of;
use crate::bodies::{BodyBudget, Charge};
use crate::problem::Problem;

/// The body of a request, as JSON.
pub(crate) struct Body<T>(pub(crate) T);

/// The body of a request that may have none.
pub(crate) struct MaybeBody<T>(pub(crate) T);

/// What stands behind the question mark.
pub(crate) struct Query<T>(pub(crate) T);

/// An id in the path.
pub(crate) struct Id<T>(pub(crate) T);

/// A name in the path, not yet checked.
pub(crate) struct Name(pub(crate) String);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        check_content_type(&request)?;
        let read = read(request, app.rooms().bodies()).await?;
        parse(&read.bytes).map(Body)
    }
}

impl<T: DeserializeOwned + Default> FromRequest<App> for MaybeBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let typed = check_content_type(&request);
        let read = read(request, app.rooms().bodies()).await?;
        if read.bytes.is_empty() {
            return Ok(MaybeBody(T::default()));
        }
        typed?;
        parse(&read.bytes).map(MaybeBody)
    }
}

/// JSON or something that is written as JSON, such as `application/cloudevents+json`. A web page
/// cannot send it to another server unasked.
fn check_content_type(request: &Request) -> Result<(), Problem> {
    let text = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = text.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    let is_json = essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"));
    if is_json {
        return Ok(());
    }
    let detail = format!("Content-Type is {essence:?}, expected application/json");
    Err(Problem::with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorKind::Argument, detail))
}

/// A body, and the memory charged for it.
struct Received {
    bytes: Vec<u8>,
    _charge: Charge,
}

/// Receives the body, if there is memory for it and it arrives in time.
async fn read(request: Request, budget: &BodyBudget) -> Result<Received, Problem> {
    let wrong = |error: axum::Error| {
        let detail = format!("body: the connection broke off: {error}");
        Problem::with_status(StatusCode::BAD_REQUEST, ErrorKind::Argument, detail)
    };
    let length = said_length(&request);
    budget.check(usize::try_from(length).unwrap_or(usize::MAX))?;
    // Nothing is charged for a length that is only announced.
    let mut charge = budget.begin(origin_of(request.extensions()));
    let mut pieces = request.into_body().into_data_stream();
    let mut bytes = Vec::new();
    let receiving = async {
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(wrong)?;
            budget.check(bytes.len() + piece.len())?;
            charge.grow(piece.len())?;
            bytes.extend_from_slice(&piece);
        }
        Ok(Received { bytes, _charge: charge })
    };
    let received = tokio::time::timeout(budget.time_max, receiving).await;
    received.map_err(|_| budget.timed_out())?
}

/// How many bytes a body has by its own word; none if it comes in pieces and does not say.
fn said_length(request: &Request) -> u64 {
    let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    length.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // A list would be taken for the fields in their order, which nobody promises.
    if bytes.trim_ascii_start().starts_with(b"[") {
        let (status, kind) = (StatusCode::UNPROCESSABLE_ENTITY, ErrorKind::Argument);
        return Err(Problem::with_status(status, kind, "body: it is a list, expected an object"));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let (status, why) = match error.classify() {
            Category::Data => (StatusCode::UNPROCESSABLE_ENTITY, with_field::<T>(bytes, &error)),
            // It is JSON: of several forms of a value exactly one may be given.
            Category::Syntax if is_json(bytes) => {
                let path = with_field::<T>(bytes, &error);
                let path = path.split_once(": ").map_or("a value", |(path, _)| path);
                let why = format!("{path}: expected an object with exactly one key");
                (StatusCode::UNPROCESSABLE_ENTITY, why)
            }
            Category::Syntax | Category::Eof | Category::Io => {
                (StatusCode::BAD_REQUEST, error.to_string())
            }
        };
        let why = plain(&why);
        Problem::with_status(status, ErrorKind::Argument, format!("body: {why}"))
    })
}

/// Whether the whole body is JSON.
fn is_json(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// What the reader of numbers calls its types, and what people call them.
const TYPES: [(&str, &str); 9] = [
    ("expected u8", "expected a whole number from 0 to 255"),
    ("expected u16", "expected a whole number from 0 to 65535"),
    ("expected u32", "expected a whole number from 0 to 4294967295"),
    ("expected u64", "expected a whole number from 0 to 18446744073709551615"),
    ("expected i16", "expected a whole number from -32768 to 32767"),
    ("expected i32", "expected a whole number from -2147483648 to 2147483647"),
    ("expected i64", "expected a whole number from -9223372036854775808 to 9223372036854775807"),
    ("expected f64", "expected a number"),
    ("invalid digit found in string", "expected a whole number"),
];

/// The text of an error without words of Rust.
fn plain(text: &str) -> String {
    let mut text = text.to_owned();
    if text.starts_with("priority: ") || text.contains(".priority: ") {
        text = text.replace("expected i16", "expected a whole number from -100 to 100");
    }
    for (from, to) in TYPES {
        text = text.replace(from, to);
    }
    for kind in ["struct ", "enum ", "tuple struct ", "newtype struct ", "variant "] {
        while let Some((before, after)) = text.split_once(&format!("expected {kind}")) {
            let rest =
                after.trim_start_matches(|letter: char| letter.is_alphanumeric() || letter == ':');
            let what = if kind == "enum " { "one of its words or forms" } else { "an object" };
            text = format!("{before}expected {what}{rest}");
        }
    }
    text
}

/// What is wrong with a body that is JSON, by the name of the field. It is read once more for
/// that, as those that are right need not keep count of where they are.
fn with_field<T: DeserializeOwned>(bytes: &[u8], error: &serde_json::Error) -> String {
    let rejection = axum::Json::<T>::from_bytes(bytes).err();
    let text = rejection.map(|rejection| rejection.body_text());
    let named = text.as_deref().and_then(|text| text.split_once(": ")).map(|(_, named)| named);
    named.map_or_else(|| error.to_string(), ToOwned::to_owned)
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        if !is_text(parts.uri.query().unwrap_or_default()) {
            let detail = "query: it is not UTF-8 once its percent signs are read";
            return Err(Problem::with_status(StatusCode::BAD_REQUEST, ErrorKind::Argument, detail));
        }
        match axum::extract::Query::<T>::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(query)) => Ok(Query(query)),
            Err(rejection) => {
                let detail = format!("query: {}", plain(&rejection.body_text()));
                Err(Problem::with_status(StatusCode::BAD_REQUEST, ErrorKind::Argument, detail))
            }
        }
    }
}

/// Whether what a query stands for is text; what reads it takes what is not for something else.
fn is_text(query: &str) -> bool {
    let mut bytes = Vec::with_capacity(query.len());
    let mut rest = query;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        match after.get(..2).and_then(from_hex) {
            Some(byte) => {
                bytes.extend(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(b'%');
                rest = after;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    std::str::from_utf8(&bytes).is_ok()
}

/// The first of the parts of a path that have names.
async fn first<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<String, Problem> {
    let wrong = |text: String| {
        Problem::with_status(StatusCode::BAD_REQUEST, ErrorKind::Argument, format!("path: {text}"))
    };
    let AxumPath(names) = AxumPath::<Vec<(String, String)>>::from_request_parts(parts, state)
        .await
        .map_err(|rejection| wrong(rejection.body_text()))?;
    let first = names.into_iter().next().map(|(_, value)| value);
    first.ok_or_else(|| wrong("it has no part with a name".to_owned()))
}

impl<T: FromStr, S: Send + Sync> FromRequestParts<S> for Id<T>
where
    T::Err: std::fmt::Display,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let text = first(parts, state).await?;
        let wrong = |error: T::Err| {
            let detail = format!("path: {text:?} is not an id: {error}");
            Problem::with_status(StatusCode::BAD_REQUEST, ErrorKind::Argument, detail)
        };
        text.parse().map(Id).map_err(wrong)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        first(parts, state).await.map(Name)
    }
}

/// A run and the name of one of its tasks, in the path.
pub(crate) struct TaskOfRun(pub(crate) windlass::RunId, pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for TaskOfRun {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Id(run) = Id::from_request_parts(parts, state).await?;
        let names = AxumPath::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let second = names.ok().and_then(|AxumPath(names)| names.into_iter().nth(1));
        let task = second.ok_or_else(|| Problem::field("path", "it names no task"))?;
        Ok(TaskOfRun(run, task.1))
    }
}
