//! What every request passes before anyone looks at what it wants.
//!
//! In this order: is it meant for this server (`Host`), does it come from a web page of someone
//! else's (`Origin`), is there room for it, who makes it, and may that one. Nothing behind this asks again.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt as _;
use windlass::ErrorKind;

use super::App;
use super::rooms::{Received, Slot, origin_of};
use crate::grpc;
use crate::identity::Identity;
use crate::passes;
use crate::problem::Problem;
use crate::rights::{self, Need, Reach, Right};

/// How long a call of gRPC may take: one that waits for a run does so for a minute, and whoever
/// does not send what it began to say must not keep its place.
const GRPC_TIME_MAX: Duration = Duration::from_secs(90);

/// Whether a method of gRPC has refused the request: the status of a success comes behind its answer.
fn is_grpc_refusal(headers: &HeaderMap) -> bool {
    headers.get("grpc-status").is_some_and(|status| status != "0")
}

/// The gate.
pub(super) async fn pass(State(app): State<App>, request: Request, next: Next) -> Response {
    let is_grpc = is_grpc(request.headers());
    let origin = origin_of(request.extensions());
    let received = Received::default();
    let response = match admit(&app, request).await {
        Ok(request) => {
            // Whoever reads the body forgets the rest of the request.
            let slot = request.extensions().get::<Slot>().cloned();
            let request = received.count(request);
            let response = answer(&app, request, next, is_grpc).await;
            match slot {
                // A refused request needs no place while its refusal is delayed.
                Some(slot) if response.extensions().get::<Problem>().is_some() => {
                    slot.give_up();
                    response
                }
                // The head of a stream is where it begins.
                Some(slot) if is_grpc => response.map(|body| slot.during(body)),
                Some(_) | None => response,
            }
        }
        Err(problem) => problem.into_response(),
    };
    let response = app.rooms().charge(origin, response).unwrap_or_else(IntoResponse::into_response);
    let problem = response.extensions().get::<Problem>();
    if problem.is_some() || is_grpc_refusal(response.headers()) {
        app.rooms().refusals().wait(origin, received.bytes(), problem).await;
    }
    // gRPC clients expect a status, not problem details.
    let mut response = match response.extensions().get::<Problem>() {
        Some(problem) if is_grpc => problem.to_grpc().into_http(),
        Some(_) | None => response,
    };
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn answer(app: &App, request: Request, next: Next, is_grpc: bool) -> Response {
    // A call of gRPC may wait for a run; a stream is answered when it begins.
    let limit = if is_grpc { GRPC_TIME_MAX } else { app.options().request_time_max };
    let identity = request.extensions().get::<Identity>().cloned();
    let over = identity.as_ref().map(Identity::over).unwrap_or_default();
    let answering = async {
        if !is_grpc {
            return Ok(next.run(request).await);
        }
        let origin = origin_of(request.extensions());
        let is_stream = grpc::is_stream(request.uri().path());
        let (request, charge) = grpc::receive(request, app.rooms().bodies(), origin).await?;
        let response = next.run(request).await;
        drop(charge);
        if is_stream {
            return Ok(response);
        }
        // The size of an answer is known only once it is encoded.
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| {
            Problem::new(ErrorKind::Corrupt, format!("the answer cannot be encoded: {error}"))
        })?;
        Ok(Response::from_parts(parts, Body::new(body)))
    };
    let answered = tokio::select! {
        biased;
        () = over.cancelled() => return passes::is_over().into_response(),
        answered = tokio::time::timeout(limit, answering) => answered,
    };
    match answered {
        Ok(response) => response.unwrap_or_else(|problem: Problem| problem.into_response()),
        Err(_) => {
            let detail = format!("the request has not been answered within {limit:?}");
            Problem::new(ErrorKind::Timeout, detail).into_response()
        }
    }
}

async fn admit(app: &App, request: Request) -> Result<Request, Problem> {
    let (mut parts, body) = request.into_parts();
    match identify(app, &mut parts).await {
        Ok(identity) => {
            parts.extensions.insert(identity);
            Ok(Request::from_parts(parts, body))
        }
        Err(problem) => {
            app.refusals().note(&parts, &problem);
            Err(problem)
        }
    }
}

async fn identify(app: &App, parts: &mut Parts) -> Result<Identity, Problem> {
    let host = host_of(&parts.uri, &parts.headers)?;
    check_host(host, &app.options().host_names)?;
    check_origin(&parts.method, &parts.headers, host)?;
    // Whoever asks whether the server lives must be told so however much it has to do.
    if parts.uri.path() != "/healthz" {
        let place = app.rooms().place(parts, is_grpc(&parts.headers))?;
        parts.extensions.insert(Slot::new(place));
    }
    app.door().identify(parts, need_of(parts)?).await
}

/// What a request needs. What is not listed is nobody's; a path that is none is for everyone to
/// be told so.
fn need_of(parts: &Parts) -> Result<Need, Problem> {
    let (method, path) = (&parts.method, parts.uri.path());
    let need = match parts.extensions.get::<MatchedPath>() {
        _ if is_grpc(&parts.headers) => rights::of_grpc(path),
        Some(matched) => rights::of_http(method, matched.as_str()),
        None => return Ok(Need { right: Right::Measure, reach: Reach::Tenant }),
    };
    need.ok_or_else(|| match parts.extensions.get::<MatchedPath>() {
        // Another method than those that the path has.
        Some(_) => Problem::with_status(
            StatusCode::METHOD_NOT_ALLOWED,
            ErrorKind::Argument,
            format!("path {path:?} has no method {method}"),
        ),
        None => Problem::not_found(format_args!("path {path:?}")),
    })
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(|kind| kind.as_bytes());
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// Whom a request is meant for.
fn host_of<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, Problem> {
    let wrong =
        |detail: &str| Problem::with_status(StatusCode::BAD_REQUEST, ErrorKind::Argument, detail);
    if headers.get_all(HOST).iter().count() > 1 {
        return Err(wrong("the request has more than one Host"));
    }
    let header = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = uri.authority().map(|authority| authority.as_str()).or(header);
    host.ok_or_else(|| wrong("the request has no Host"))
}

/// Refuses what is meant for another name: a web page whose name was let point to this machine
/// must not be believed to be of this machine.
fn check_host(host: &str, names: &[String]) -> Result<(), Problem> {
    let name = without_port(host);
    let is_ours = ["localhost", "127.0.0.1", "[::1]"].contains(&name.to_ascii_lowercase().as_str())
        || names.iter().any(|own| own.eq_ignore_ascii_case(name));
    if is_ours {
        return Ok(());
    }
    let detail = format!(
        "Host {host:?} is not a name of this server; to accept it, start the server with \
         --host-name {name}"
    );
    Err(Problem::with_status(StatusCode::MISDIRECTED_REQUEST, ErrorKind::Argument, detail))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    }
}

/// Refuses what the page of another server wants to change here by a browser.
fn check_origin(method: &Method, headers: &HeaderMap, host: &str) -> Result<(), Problem> {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
    if matches!(site, Some("cross-site" | "same-site")) {
        return Err(Problem::forbidden("a page of another server may not change anything here"));
    }
    for origin in headers.get_all(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let own = origin.split_once("://").map(|(_, authority)| authority);
        if !own.is_some_and(|own| own.eq_ignore_ascii_case(host)) {
            let why = format!("a page of {origin:?} may not change anything at {host:?}");
            return Err(Problem::forbidden(why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grpc_status_before_the_answer_is_a_refusal_unless_it_is_0() {
        let headers = |status: &'static str| {
            HeaderMap::from_iter([(
                "grpc-status".parse().unwrap(),
                HeaderValue::from_static(status),
            )])
        };
        assert!(is_grpc_refusal(&headers("5")));
        assert!(!is_grpc_refusal(&headers("0")));
        assert!(!is_grpc_refusal(&HeaderMap::new()), "its status comes behind the answer");
    }

    #[test]
    fn only_names_of_this_server_are_believed() {
        let names = ["windlass.test".to_owned()];
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:1", "windlass.test:5"] {
            assert_eq!(check_host(host, &names), Ok(()), "{host}");
        }
        for host in ["", "evil.test", "localhost.evil.test:80", "127.0.0.1.nip.io", "::1", "[::2]"]
        {
            assert_eq!(check_host(host, &names).unwrap_err().status(), 421, "{host}");
        }
    }

    #[test]
    fn pages_of_others_change_nothing() {
        let from = |origin: &'static str| {
            HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static(origin))])
        };
        let check = |method, headers: &HeaderMap| check_origin(&method, headers, "localhost:80");
        assert!(check(Method::POST, &HeaderMap::new()).is_ok());
        assert!(check(Method::POST, &from("http://localhost:80")).is_ok());
        assert!(check(Method::GET, &from("http://evil.test")).is_ok());
        for origin in ["http://evil.test", "null", "http://localhost:81", "localhost:80"] {
            assert_eq!(check(Method::POST, &from(origin)).unwrap_err().status(), 403, "{origin}");
        }
        let site = HeaderMap::from_iter([(
            "sec-fetch-site".parse().unwrap(),
            HeaderValue::from_static("cross-site"),
        )]);
        assert!(check(Method::DELETE, &site).is_err());
    }

    #[test]
    fn pages_of_other_servers_of_the_site_change_nothing() {
        for (site, is_refused) in
            [("cross-site", true), ("same-site", true), ("same-origin", false), ("none", false)]
        {
            let name = "sec-fetch-site".parse().unwrap();
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(site))]);
            let checked = check_origin(&Method::POST, &headers, "localhost:80");
            assert_eq!(checked.is_err(), is_refused, "{site}");
        }
    }
}
