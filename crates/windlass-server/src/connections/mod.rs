//! Connections: how clients are kept from harming each other.
//!
//! A client that says nothing, says it too slowly or does not take what it is sent is dropped, also
//! while it shakes hands. One that comes when there are as many as there may be takes the place of whoever has said nothing
//! for the longest time; if all are busy, it is turned away. What requests mean is decided
//! elsewhere.

mod crowd;
mod listener;
mod protocol;
#[cfg(unix)]
mod socket;
mod stall;
#[cfg(test)]
#[cfg(unix)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::task::JoinSet;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::options::ServerOptions;
use crate::tls::{PeerCertificate, Tls};
use crowd::{Crowd, Member};
use listener::{Arrival, Stream};
use stall::StallGuard;

pub use listener::Listener;
pub(crate) use listener::{Origin, Whence};

/// The pause after a connection could not be accepted, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `shutdown` is ready, and what is under way then for its time.
pub(crate) async fn serve(
    mut listener: Listener,
    router: Router,
    options: &ServerOptions,
    ending: CancellationToken,
    shutdown: impl Future<Output = ()>,
) {
    let crowd = Arc::new(Crowd::new(options.connections_max, options.connections_per_address_max));
    let builder = Arc::new(protocol::builder(options));
    let mut tasks = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = tasks.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(Arrival { stream, address, tls }) => {
                let Some(member) = crowd.enter(address.into()) else { continue };
                let one = Connection {
                    member,
                    builder: Arc::clone(&builder),
                    router: router.clone(),
                    ending: ending.clone(),
                    head_time_max: options.head_time_max,
                    write_time_max: options.write_time_max,
                };
                tasks.spawn(one.serve(stream, address, tls));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                crowd.make_room(|_| true);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    ending.cancel();
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(options.drain_time_max, all).await.is_err() {
        tracing::warn!(connections = tasks.len(), "requests took too long and are broken off");
        tasks.shutdown().await;
    }
}

/// One connection.
struct Connection {
    member: Arc<Member>,
    builder: Arc<Builder<TokioExecutor>>,
    router: Router,
    ending: CancellationToken,
    head_time_max: Duration,
    write_time_max: Duration,
}

impl Connection {
    async fn serve(self, stream: Stream, address: Option<IpAddr>, tls: Option<Tls>) {
        let Connection { member, builder, router, ending, head_time_max, write_time_max } = self;
        // The first bytes say which HTTP it is, and those of a handshake come before them. Nobody
        // else watches over them.
        let silent = async {
            tokio::time::sleep(head_time_max).await;
            if member.has_begun() {
                std::future::pending::<()>().await;
            }
        };
        let mut silent = pin!(silent);
        let stream = StallGuard::new(stream, write_time_max);
        let (stream, peer) = match tls {
            None => (Either::Left(stream), None),
            Some(tls) => {
                let shaken = tokio::select! {
                    shaken = tls.accept(stream) => shaken,
                    () = &mut silent => return,
                    () = member.displaced() => return,
                    () = ending.cancelled() => return,
                };
                match shaken {
                    Ok(stream) => {
                        let certificates = stream.get_ref().1.peer_certificates();
                        let first = certificates.and_then(|certificates| certificates.first());
                        let peer = first.map(|certificate| PeerCertificate::read(certificate));
                        (Either::Right(stream), peer)
                    }
                    Err(error) => {
                        // Whoever is refused for its certificate may not be told why.
                        let from = Whence::new(address, None);
                        tracing::info!(from = from.as_str(), %error, "no handshake");
                        return;
                    }
                }
            }
        };
        let whence = Whence::new(address, peer.as_ref());
        let service = {
            let member = Arc::clone(&member);
            service_fn(move |mut request: Request<Incoming>| {
                let busy = member.begin();
                let router = router.clone();
                request.extensions_mut().insert(member.origin());
                request.extensions_mut().insert(whence.clone());
                async move {
                    let response = router.oneshot(request.map(Body::new)).await?;
                    Ok::<_, Infallible>(response.map(|body| busy.during(body, write_time_max)))
                }
            })
        };
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let is_ending = tokio::select! {
            _ = connection.as_mut() => false,
            () = &mut silent => false,
            () = member.displaced() => false,
            () = ending.cancelled() => true,
        };
        if is_ending && (member.has_begun() || member.is_busy()) {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
