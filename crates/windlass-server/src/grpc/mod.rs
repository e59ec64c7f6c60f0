//! gRPC: the door for workers and programs.
//!
//! Thin over a store: messages are read and checked, verbs are said to the store, answers are
//! written. What many workers say is said to the store together ([`gather`]), and workers that
//! have nothing to do are watched for ([`idle`]) instead of asking again and again.

mod budget;
mod client;
mod gather;
mod health;
mod idle;
mod inbound;
mod replies;
mod sizes;
mod weight;
mod worker;

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use futures_util::{Stream, StreamExt as _, stream};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Request, Status};
use tonic_health::pb::health_server::HealthServer;
use windlass::store::{Store, StoreError};
use windlass::wire::{Wire as _, WireError};
use windlass_proto::v1;

pub(crate) use self::idle::{Kind, Wake};
pub(crate) use self::inbound::receive;
pub(crate) use self::worker::WorkerApi;

use self::client::ClientApi;
use self::health::HealthApi;
use crate::identity::Identity;
use crate::options::ServerOptions;
use crate::passes;
use crate::problem::{Problem, without_database};
use crate::quotas::{Excess, Quotas};
use crate::workers::LiveWorkers;

/// The services of a store, until `ending`. Each request must have an [`Identity`] among its
/// extensions.
pub(crate) fn router(
    store: &Arc<dyn Store>,
    quotas: &Arc<Quotas>,
    live: &Arc<LiveWorkers>,
    options: &ServerOptions,
    ending: &CancellationToken,
) -> (Router, Arc<WorkerApi>) {
    let clients = ClientApi::new(Arc::clone(quotas), ending.clone());
    let workers = WorkerApi::new(Arc::clone(store), Arc::clone(live), options, ending.clone());
    let workers = Arc::new(workers);
    let service = WorkerApi::service(Arc::clone(&workers));
    let router = Routes::new(clients.into_service()).add_service(service);
    let health = HealthApi::new(Arc::clone(store), ending.clone());
    let router = router.add_service(HealthServer::new(health)).into_axum_router();
    (router, workers)
}

/// The methods whose answers do not end by themselves: each takes a place for as long as whoever
/// called it stays.
const STREAMS: [&str; 2] =
    ["/windlass.v1.WorkerService/Work", "/windlass.v1.ClientService/WatchRuns"];

/// Whether a path is that of a stream.
pub(crate) fn is_stream(path: &str) -> bool {
    STREAMS.contains(&path)
}

/// Who makes a call: whom the layer before this one recognised.
fn admit<T>(request: &Request<T>) -> Result<Identity, Status> {
    let Some(identity) = request.extensions().get::<Identity>() else {
        return Err(Status::unauthenticated("the request does not say who makes it"));
    };
    Ok(identity.clone())
}

/// A stream that ends when the token of whoever reads it holds no more.
fn until_over<T: Send + 'static>(
    identity: Identity,
    outbound: impl Stream<Item = Result<T, Status>> + Send + 'static,
) -> Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>> {
    let over = identity.over();
    let end = stream::once(async move {
        // Kept until here: a token that has something open is looked up again and again.
        let is_over = identity.over().is_cancelled();
        is_over.then(|| Err(passes::is_over().to_grpc()))
    });
    let outbound = outbound.take_until(over.cancelled_owned());
    Box::pin(outbound.chain(end.filter_map(std::future::ready)))
}

/// Why something is not done.
struct Refused(v1::Error);

impl From<WireError> for Refused {
    fn from(error: WireError) -> Self {
        Refused(error.into())
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Refused(problem.to_wire())
    }
}

impl From<Excess> for Refused {
    fn from(excess: Excess) -> Self {
        StoreError::from(excess).into()
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Refused(without_database(error).to_wire())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::DescriptorPool;

    #[test]
    fn every_method_that_streams_has_its_place_among_the_streams() {
        let pool = DescriptorPool::decode(v1::DESCRIPTORS).expect("our descriptors");
        let mut streams = 0;
        for service in pool.services() {
            for method in service.methods() {
                let path = format!("/{}/{}", service.full_name(), method.name());
                assert_eq!(is_stream(&path), method.is_server_streaming(), "{path}");
                streams += usize::from(method.is_server_streaming());
            }
        }
        assert_eq!(streams, STREAMS.len());
    }
}
