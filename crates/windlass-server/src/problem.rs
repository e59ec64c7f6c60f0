//! What a caller is told when something cannot be done: problem details by RFC 9457, with the
//! same `WL-…` codes that the library and the command line show.

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tonic::{Code, Status};
use utoipa::ToSchema;
use windlass::store::StoreError;
use windlass::wire::status_of_error;
use windlass::{Error, ErrorKind};
use windlass_core::PayloadError;
use windlass_proto::v1;

/// The media type of an answer that is a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// When to come again while the server has too much to do, or its database cannot be reached.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// The most characters of a caller's text that a problem repeats.
const DETAIL_CHARS_MAX: usize = 2_000;

/// Something that cannot be done, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    kind: ErrorKind,
    detail: String,
    /// When the same request may succeed, if that is known.
    retry_after: Option<Duration>,
    /// Whether the server itself lacks room or memory for the request.
    is_overload: bool,
}

/// The body of an answer that is a problem (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// Which kind of problem it is, as a reference to its page.
    #[schema(example = "/errors/WL-0004")]
    r#type: String,
    /// The kind in words, the same for all problems of a code.
    title: &'static str,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What is wrong here, with the values that are.
    detail: String,
    /// The code of the error, such as `WL-0004`; each has a page in docs/errors.
    #[schema(pattern = "^WL-[0-9]{4}$")]
    code: &'static str,
    /// Whether the same request may succeed later.
    is_retryable: bool,
}

impl Problem {
    /// A problem of a kind, with the status that the kind has.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Problem::with_status(status_of(kind), kind, detail)
    }

    pub(crate) fn with_status(
        status: StatusCode,
        kind: ErrorKind,
        detail: impl Into<String>,
    ) -> Self {
        let mut detail = detail.into();
        if let Some((end, _)) = detail.char_indices().nth(DETAIL_CHARS_MAX) {
            detail.truncate(end);
            detail.push('…');
        }
        let retry_after = (kind == ErrorKind::Unavailable).then_some(BUSY_PAUSE);
        Problem { status, kind, detail, retry_after, is_overload: false }
    }

    /// A field of a request that makes no sense.
    pub(crate) fn field(field: &str, why: impl std::fmt::Display) -> Self {
        Problem::new(ErrorKind::Argument, format!("{field}: {why}"))
    }

    /// A value that is no payload.
    pub(crate) fn payload(field: &str, error: &PayloadError) -> Self {
        let status = if matches!(error, PayloadError::TooLarge { .. }) {
            StatusCode::PAYLOAD_TOO_LARGE
        } else {
            StatusCode::UNPROCESSABLE_ENTITY
        };
        Problem::with_status(status, ErrorKind::Payload, format!("{field} {error}"))
    }

    /// There is no such thing.
    pub(crate) fn not_found(what: impl std::fmt::Display) -> Self {
        Problem::new(ErrorKind::NotFound, format!("{what} does not exist"))
    }

    /// The caller may not do this.
    pub(crate) fn forbidden(why: impl Into<String>) -> Self {
        Problem::new(ErrorKind::Forbidden, why)
    }

    /// The request does not say who makes it.
    pub(crate) fn unauthenticated(why: impl Into<String>) -> Self {
        Problem::new(ErrorKind::Unauthenticated, why)
    }

    /// The server has too much to do.
    pub(crate) fn busy(what: &str) -> Self {
        let detail = format!("{what}; try again in a second");
        Problem { is_overload: true, ..Problem::new(ErrorKind::Unavailable, detail) }
    }

    /// The same refusal for want of memory as gRPC says it: `RESOURCE_EXHAUSTED`, which clients
    /// may retry.
    pub(crate) fn exhausted(self) -> Self {
        Problem { status: StatusCode::TOO_MANY_REQUESTS, ..self }
    }

    /// Whether the server lacks what it takes to receive more, or the request was too large or slow.
    pub(crate) fn is_overload(&self) -> bool {
        let is_too_much =
            matches!(self.status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT);
        self.is_overload || is_too_much
    }

    /// The HTTP status of the answer.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What is wrong, without the code.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn body(&self) -> ProblemBody {
        let code = self.kind.code();
        ProblemBody {
            r#type: format!("/errors/{code}"),
            title: title_of(self.kind),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            code,
            is_retryable: matches!(
                self.kind,
                ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Limited
            ),
        }
    }

    /// The same for who speaks gRPC: the status that a call ends with.
    pub(crate) fn to_grpc(&self) -> Status {
        // Nothing but the path has been looked at: there is no such service.
        let is_unknown =
            matches!(self.status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED);
        if is_unknown {
            return Status::unimplemented(&self.detail);
        }
        let status = status_of_error(self.to_wire());
        match self.status {
            // The code that gRPC itself uses for a message over its limit.
            StatusCode::PAYLOAD_TOO_LARGE => {
                let metadata = status.metadata().clone();
                Status::with_metadata(Code::ResourceExhausted, status.message(), metadata)
            }
            _ => status,
        }
    }

    /// The same as a message.
    pub(crate) fn to_wire(&self) -> v1::Error {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => v1::ErrorKind::Unauthenticated,
            StatusCode::TOO_MANY_REQUESTS => v1::ErrorKind::Limited,
            StatusCode::NOT_FOUND => v1::ErrorKind::NotFound,
            StatusCode::CONFLICT => v1::ErrorKind::Conflict,
            StatusCode::FORBIDDEN => v1::ErrorKind::Forbidden,
            // A slow network may be faster the next time.
            StatusCode::REQUEST_TIMEOUT => v1::ErrorKind::Unavailable,
            status if status.is_client_error() => v1::ErrorKind::Invalid,
            StatusCode::INTERNAL_SERVER_ERROR => v1::ErrorKind::Corrupt,
            _ => v1::ErrorKind::Unavailable,
        };
        let message = self.detail.clone();
        v1::Error {
            kind: kind.into(),
            code: self.kind.code().to_owned(),
            message,
            worker: String::new(),
            retry_after_ms: self.retry_after.map_or(0, |after| after.as_millis() as u64),
        }
    }
}

/// The status of a kind where nothing else is known.
fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Definition | ErrorKind::Argument | ErrorKind::Payload => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Conflict | ErrorKind::TermOver => StatusCode::CONFLICT,
        ErrorKind::LeaseLost => StatusCode::GONE,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorKind::Limited => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Unavailable
        | ErrorKind::Schema
        | ErrorKind::Database
        | ErrorKind::Interrupted => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        // The kinds may grow; what is not known here is nobody's fault but the server's.
        ErrorKind::Corrupt | _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn title_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Definition => "Invalid workflow",
        ErrorKind::Argument => "Invalid request",
        ErrorKind::Payload => "Invalid payload",
        ErrorKind::NotFound => "Not found",
        ErrorKind::Conflict => "Conflict",
        ErrorKind::LeaseLost => "Lease lost",
        ErrorKind::TermOver => "Term over",
        ErrorKind::Unavailable => "Unavailable",
        ErrorKind::Timeout => "Timeout",
        ErrorKind::Schema => "Schema mismatch",
        ErrorKind::Database => "Database error",
        ErrorKind::Interrupted => "Interrupted",
        ErrorKind::Forbidden => "Permission denied",
        ErrorKind::Unauthenticated => "Unauthenticated",
        ErrorKind::Limited => "Limit reached",
        ErrorKind::Corrupt | _ => "Internal error",
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let suffix = format!(" [{}]", error.code());
        Problem::new(error.kind(), text.strip_suffix(&suffix).unwrap_or(&text))
    }
}

/// An error of the store as clients may know it: which database cannot be reached, and why, is for
/// the log only.
pub(crate) fn without_database(error: StoreError) -> StoreError {
    if let StoreError::Unavailable(why) = &error
        && why.starts_with("database ")
    {
        tracing::warn!("{why}");
        let text = "the database of the server cannot be reached; its log says why";
        return StoreError::Unavailable(text.to_owned());
    }
    error
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let error = without_database(error);
        let limited = error.retry_after();
        let is_lost = matches!(error, StoreError::LeaseLost(_));
        let mut problem = Problem::from(Error::from(error));
        if is_lost {
            problem.detail.push_str("; its tasks went back to their queues: join again");
        }
        Problem { retry_after: limited.or(problem.retry_after), ..problem }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::warn!(
                status = self.status.as_u16(),
                code = self.kind.code(),
                "{}",
                self.detail
            );
        }
        let body = serde_json::to_vec(&self.body()).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(after) = self.retry_after {
            // Whole seconds, and never a moment before there is room.
            headers.insert(
                RETRY_AFTER,
                HeaderValue::from(after.as_millis().div_ceil(1000).max(1) as u64),
            );
        }
        if self.kind == ErrorKind::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// The answer to a path that nothing is at.
pub(crate) async fn no_such_path(uri: Uri) -> Problem {
    Problem::not_found(format_args!("path {:?}", uri.path()))
}

/// The answer to a method that a path does not have.
pub(crate) async fn no_such_method(method: axum::http::Method, uri: Uri) -> Problem {
    let detail = format!("path {:?} has no method {method}", uri.path());
    Problem::with_status(StatusCode::METHOD_NOT_ALLOWED, ErrorKind::Argument, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn every_kind_has_a_status_that_says_whose_fault_it_is() {
        for kind in ErrorKind::ALL {
            let status = Problem::new(kind, "x").status();
            let is_ours = matches!(kind, ErrorKind::Corrupt);
            assert_eq!(status == StatusCode::INTERNAL_SERVER_ERROR, is_ours, "{kind:?}");
            assert!(status.is_client_error() || status.is_server_error(), "{kind:?}");
        }
    }

    #[test]
    fn titles_are_the_headings_of_the_pages_that_explain_the_codes() {
        for kind in ErrorKind::ALL {
            let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
            let page = std::fs::read_to_string(format!("{pages}/{}.md", kind.code())).unwrap();
            let heading = format!("# {}: {}", kind.code(), title_of(kind));
            assert_eq!(page.lines().next(), Some(&*heading));
        }
    }

    #[test]
    fn an_error_of_the_library_keeps_its_code_and_says_it_once() {
        let problem = Problem::from(StoreError::NotFound("run 7".to_owned()));
        let body = problem.body();
        assert_eq!(body.detail, "run 7 does not exist");
        assert_eq!((body.code, body.status), ("WL-0004", 404));
        assert_eq!(body.r#type, "/errors/WL-0004");
    }

    #[test]
    fn clients_are_not_told_where_the_database_is() {
        let text = "database 10.0.0.7:5432/app cannot be reached: connection refused";
        let problem = Problem::from(StoreError::Unavailable(text.to_owned()));
        assert!(problem.detail().contains("its log says why"), "{problem:?}");
        assert!(!problem.detail().contains("10.0.0.7"), "{problem:?}");
        let other = StoreError::Unavailable("all 10 connections were in use for 5s".to_owned());
        assert!(Problem::from(other).detail().contains("all 10 connections"));
    }

    #[test]
    fn who_speaks_grpc_is_told_the_same_by_a_code_that_fits() {
        let with = |status| Problem::with_status(status, ErrorKind::Argument, "why").to_grpc();
        for (status, code) in [
            (StatusCode::UNAUTHORIZED, Code::Unauthenticated),
            (StatusCode::FORBIDDEN, Code::PermissionDenied),
            (StatusCode::MISDIRECTED_REQUEST, Code::InvalidArgument),
            (StatusCode::UNPROCESSABLE_ENTITY, Code::InvalidArgument),
            (StatusCode::NOT_FOUND, Code::Unimplemented),
            (StatusCode::METHOD_NOT_ALLOWED, Code::Unimplemented),
            (StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable),
            (StatusCode::REQUEST_TIMEOUT, Code::Unavailable),
            (StatusCode::PAYLOAD_TOO_LARGE, Code::ResourceExhausted),
            (StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted),
            (StatusCode::GATEWAY_TIMEOUT, Code::Unavailable),
            (StatusCode::INTERNAL_SERVER_ERROR, Code::DataLoss),
        ] {
            assert_eq!((with(status).code(), with(status).message()), (code, "why"), "{status}");
        }
    }

    #[test]
    fn a_long_text_of_the_caller_is_not_repeated_whole() {
        let problem = Problem::field("name", "é".repeat(DETAIL_CHARS_MAX + 1));
        assert_eq!(problem.detail().chars().count(), DETAIL_CHARS_MAX + 1);
        assert!(problem.detail().ends_with('…'));
    }

    #[test]
    fn a_client_that_retries_after_the_given_time_finds_room() {
        for (millis, seconds) in [(1, "1"), (1_000, "1"), (1_001, "2"), (1_900, "2")] {
            let retry_after = Duration::from_millis(millis);
            let limited = StoreError::Limited { why: "no".to_owned(), retry_after };
            let answer = Problem::from(limited).into_response();
            assert_eq!(answer.headers()[RETRY_AFTER], seconds, "{millis} ms");
        }
    }
}
