//! The health service of gRPC (`grpc.health.v1`): the readiness of the server, for probes.
//!
//! `Check` asks the store each time, like `/readyz`, so that its answer is never old. `Watch` is not
//! implemented, which the protocol allows: a client without a token could keep streams open.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use windlass::store::Store;

use crate::readiness;

/// The services that a probe may name; an empty name is the whole server.
const SERVICES: [&str; 3] = ["", "windlass.v1.ClientService", "windlass.v1.WorkerService"];

/// Answers probes.
pub(super) struct HealthApi {
    store: Arc<dyn Store>,
    ending: CancellationToken,
}

impl HealthApi {
    pub(super) fn new(store: Arc<dyn Store>, ending: CancellationToken) -> Self {
        HealthApi { store, ending }
    }
}

#[tonic::async_trait]
impl Health for HealthApi {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        if !SERVICES.contains(&service.as_str()) {
            return Err(Status::not_found(format!("service {service:?} not found")));
        }
        let status = match readiness::check(&*self.store, &self.ending).await {
            Ok(()) => ServingStatus::Serving,
            Err(_) => ServingStatus::NotServing,
        };
        Ok(Response::new(HealthCheckResponse { status: status as i32 }))
    }

    type WatchStream =
        Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send + 'static>>;

    async fn watch(
        &self,
        _request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("Watch is not supported; call Check"))
    }
}
