//! HTTP endpoints of a worker: is it alive, is it ready, let it drain.
//!
//! They are served by a thread of their own, so that probes are answered also while handlers
//! keep the runtime busy, and so that a worker whose loop is stuck can be seen to be. This
//! module is no server for anything else: no router, no TLS, no connection that is kept.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, ORIGIN};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::pulse::{Condition, Pulse};
use super::{WorkerBuilder, WorkerHandle};
use crate::error::{Error, ErrorKind};
use crate::metrics::{Scraper, WorkerGauges};

/// The most connections at once. A request is answered in less than a millisecond, so the
/// oldest of so many is one that says nothing; it gives way to the next.
const CONNECTIONS_MAX: usize = 64;

/// How long the head of a request may take to come.
const HEAD_TIME_MAX: Duration = Duration::from_secs(2);

/// How long a connection may live, from its begin to the last byte of the answer.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(5);

/// The most bytes of a request that are kept: its line and its headers. Bodies are not read.
/// It is also the least that hyper allows.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// The pause after a connection could not be accepted, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The type of what Prometheus reads.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

impl WorkerBuilder {
    /// Lets probes ask how the worker is, over HTTP at an address such as `127.0.0.1:8080`;
    /// with port 0 the system chooses, see [`WorkerHandle::health_address`].
    ///
    /// | request | answer |
    /// |---|---|
    /// | `GET /health/live` | 200, or 503 `stuck` if the worker's loop has not turned for three leases and five seconds: restart the process |
    /// | `GET /health/ready` | 200 `ready`, or 503: `joining`, `draining`, `unreachable` (the store, for longer than a lease) or `stuck` |
    /// | `GET /metrics` | what the worker's engine has done and what is in the queues, for Prometheus; see `docs/metrics.md` |
    /// | `POST /admin/drain` | 202: the worker begins to [drain](WorkerHandle::drain), as after a SIGTERM |
    ///
    /// The other answers are JSON, such as
    /// `{"state":"draining","worker":"…","name":"mail-1","running":3}`, with a `reason` where
    /// there is one. A drain is only taken from this machine, unless
    /// [`remote_drain`](WorkerBuilder::remote_drain) is called, and never from a web page (a
    /// request with an `Origin`). There is no TLS and no password: bind the address where only
    /// the probes come.
    ///
    /// Needs the feature `health`.
    pub fn health(mut self, address: impl Into<String>) -> Self {
        let remote_drain = self.health.take().is_some_and(|health| health.remote_drain);
        self.health = Some(HealthOptions { address: Some(address.into()), remote_drain });
        self
    }

    /// Lets `POST /admin/drain` come from other machines as well: everyone who reaches the
    /// address of [`health`](WorkerBuilder::health) can then end the worker.
    pub fn remote_drain(mut self) -> Self {
        let address = self.health.take().and_then(|health| health.address);
        self.health = Some(HealthOptions { address, remote_drain: true });
        self
    }
}

impl WorkerHandle {
    /// Where the worker's [health endpoints](WorkerBuilder::health) are, if it has any.
    pub fn health_address(&self) -> Option<SocketAddr> {
        self.health_address
    }
}

/// What the endpoints of a worker are to be.
#[derive(Clone, Debug)]
pub(super) struct HealthOptions {
    address: Option<String>,
    remote_drain: bool,
}

impl HealthOptions {
    /// Binds the address and answers there from now on.
    pub(super) fn open(
        self,
        pulse: &Arc<Pulse>,
        draining: &CancellationToken,
        (scraper, slots): (Scraper, usize),
    ) -> Result<Endpoints, Error> {
        let Some(text) = self.address else {
            let text = "remote_drain needs the address of health endpoints";
            return Err(Error::new(ErrorKind::Argument, text));
        };
        let failed = |error: io::Error| {
            let text = format!("health address {text:?} cannot be used: {error}");
            Error::new(ErrorKind::Argument, text)
        };
        let listener = TcpListener::bind(&text).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let end = CancellationToken::new();
        let desk = Arc::new(Desk {
            pulse: Arc::clone(pulse),
            draining: draining.clone(),
            remote_drain: self.remote_drain,
            scraper: Some(scraper),
            slots,
        });
        let ended = end.clone();
        let build = || tokio::runtime::Builder::new_current_thread().enable_all().build();
        let serve = move || match build() {
            Ok(runtime) => runtime.block_on(serve(listener, desk, ended)),
            Err(error) => tracing::error!(%address, %error, "no health endpoints"),
        };
        thread::Builder::new().name("windlass-health".to_owned()).spawn(serve).map_err(failed)?;
        tracing::info!(%address, "health endpoints");
        Ok(Endpoints { address, _end: end.drop_guard() })
    }
}

/// Endpoints that answer until this is dropped.
pub(super) struct Endpoints {
    address: SocketAddr,
    _end: DropGuard,
}

impl Endpoints {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(listener: TcpListener, desk: Arc<Desk>, end: CancellationToken) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "no health endpoints"),
    };
    // The oldest first.
    let mut connections: VecDeque<JoinHandle<()>> = VecDeque::with_capacity(CONNECTIONS_MAX);
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    connections.retain(|connection| !connection.is_finished());
                    if connections.len() >= CONNECTIONS_MAX
                        && let Some(oldest) = connections.pop_front()
                    {
                        oldest.abort();
                    }
                    let answering = answer(stream, peer, Arc::clone(&desk));
                    connections.push_back(tokio::spawn(answering));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection to the health endpoints failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = end.cancelled() => {}
        () = accept => {}
    }
}

/// Answers one request, and closes the connection.
async fn answer(stream: TcpStream, peer: SocketAddr, desk: Arc<Desk>) {
    let service = service_fn(|request: Request<Incoming>| {
        let desk = &desk;
        async move {
            let is_scrape = request.uri().path() == "/metrics" && request.method() == Method::GET;
            Ok::<_, Infallible>(match is_scrape {
                true => desk.scrape().await,
                false => desk.answer(&request, peer),
            })
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION_TIME_MAX, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%peer, %error, "not a request for health"),
        Err(_) => tracing::debug!(%peer, "a request for health took too long"),
    }
}

/// Knows the answers.
struct Desk {
    pulse: Arc<Pulse>,
    draining: CancellationToken,
    remote_drain: bool,
    /// None in tests of the other answers.
    scraper: Option<Scraper>,
    slots: usize,
}

/// The body of every answer.
#[derive(Serialize)]
struct Body<'a> {
    state: &'a str,
    /// `None` before the worker has joined.
    worker: Option<String>,
    name: &'a str,
    running: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Desk {
    async fn scrape(&self) -> Response<String> {
        let worker = WorkerGauges {
            name: self.pulse.name().to_owned(),
            slots: self.slots,
            running: self.pulse.running(),
            is_ready: self.condition() == Condition::Ready,
        };
        let text = match &self.scraper {
            Some(scraper) => scraper.text(Some(&worker)).await,
            None => String::new(),
        };
        scraped(text)
    }

    fn answer<B>(&self, request: &Request<B>, peer: SocketAddr) -> Response<String> {
        let (path, method) = (request.uri().path(), request.method());
        let allowed = match path {
            "/health/live" | "/health/ready" | "/metrics" => {
                [Method::GET, Method::HEAD].contains(method)
            }
            "/admin/drain" => method == Method::POST,
            _ => return self.response(StatusCode::NOT_FOUND, Some("there is no such path")),
        };
        if !allowed {
            let reason = "this path does not have this method";
            let mut response = self.response(StatusCode::METHOD_NOT_ALLOWED, Some(reason));
            let allow = if path == "/admin/drain" { "POST" } else { "GET, HEAD" };
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
            return response;
        }
        let condition = self.condition();
        match path {
            "/health/live" => match condition {
                Condition::Stuck(_) => self.response(StatusCode::SERVICE_UNAVAILABLE, None),
                Condition::Joining(_)
                | Condition::Ready
                | Condition::Draining
                | Condition::Unreachable(_) => self.response(StatusCode::OK, None),
            },
            "/health/ready" => match condition {
                Condition::Ready => self.response(StatusCode::OK, None),
                Condition::Joining(_)
                | Condition::Draining
                | Condition::Unreachable(_)
                | Condition::Stuck(_) => self.response(StatusCode::SERVICE_UNAVAILABLE, None),
            },
            // The head of a scrape.
            "/metrics" => scraped(String::new()),
            _ => self.drain(request, peer),
        }
    }

    fn drain<B>(&self, request: &Request<B>, peer: SocketAddr) -> Response<String> {
        if request.headers().contains_key(ORIGIN) {
            return self.response(StatusCode::FORBIDDEN, Some("web pages may not drain a worker"));
        }
        if !self.remote_drain && !peer.ip().to_canonical().is_loopback() {
            let reason = "a drain is only taken from this machine";
            return self.response(StatusCode::FORBIDDEN, Some(reason));
        }
        if !self.draining.is_cancelled() {
            tracing::info!(%peer, "a request: the worker drains");
            self.draining.cancel();
        }
        self.response(StatusCode::ACCEPTED, None)
    }

    fn condition(&self) -> Condition {
        self.pulse.condition(Instant::now(), self.draining.is_cancelled())
    }

    fn response(&self, status: StatusCode, refusal: Option<&str>) -> Response<String> {
        let (state, reason) = match self.condition() {
            Condition::Joining(reason) => ("joining", reason),
            Condition::Ready => ("ready", None),
            Condition::Draining => ("draining", None),
            Condition::Unreachable(reason) => ("unreachable", Some(reason)),
            Condition::Stuck(still) => {
                ("stuck", Some(format!("the worker's loop has not turned for {still:.0?}")))
            }
        };
        let body = Body {
            state,
            worker: self.pulse.worker().map(|worker| worker.to_string()),
            name: self.pulse.name(),
            running: self.pulse.running(),
            reason: refusal.map(str::to_owned).or(reason),
        };
        let mut response = Response::new(serde_json::to_string(&body).unwrap_or_default());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// An answer for Prometheus.
fn scraped(text: String) -> Response<String> {
    let mut response = Response::new(text);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(TEXT_FORMAT));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desk(remote_drain: bool) -> Desk {
        let pulse = Arc::new(Pulse::new("w", Duration::from_secs(2), true));
        Desk { pulse, draining: CancellationToken::new(), remote_drain, scraper: None, slots: 1 }
    }

    fn post() -> Request<()> {
        Request::post("/admin/drain").body(()).unwrap()
    }

    #[test]
    fn only_this_machine_drains_a_worker_unless_it_was_said_otherwise() {
        for (peer, is_near) in [
            ("127.0.0.1:1", true),
            ("127.8.9.1:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("10.0.0.1:1", false),
            ("[::ffff:10.0.0.1]:1", false),
            ("[2001:db8::1]:1", false),
        ] {
            let peer: SocketAddr = peer.parse().unwrap();
            for remote_drain in [false, true] {
                let desk = desk(remote_drain);
                let is_taken = is_near || remote_drain;
                let status = desk.answer(&post(), peer).status();
                assert_eq!(status == StatusCode::ACCEPTED, is_taken, "{peer}: {status}");
                assert_eq!(desk.draining.is_cancelled(), is_taken);
            }
        }
    }

    #[test]
    fn a_web_page_drains_no_worker() {
        let desk = desk(true);
        let mut request = post();
        request.headers_mut().insert(ORIGIN, HeaderValue::from_static("http://localhost:8080"));
        let response = desk.answer(&request, ([127, 0, 0, 1], 1).into());
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert!(!desk.draining.is_cancelled());
    }
}
