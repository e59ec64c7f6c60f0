//! Probes over gRPC: the health service needs no token and tells the truth.

use std::sync::Arc;

use tonic::Code;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use windlass::store::{MemoryStore, Store};
use windlass_server::Access;

use crate::served::Served;

async fn status_of(served: &Served, service: &str) -> Result<i32, Code> {
    let mut client = HealthClient::new(served.channel());
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer = client.check(request).await.map_err(|status| status.code())?;
    Ok(answer.into_inner().status)
}

#[tokio::test]
async fn a_probe_without_a_token_learns_whether_the_server_serves() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let served = Served::with_access(store, Access::tokens()).await;
    for service in ["", "windlass.v1.ClientService", "windlass.v1.WorkerService"] {
        let status = status_of(&served, service).await;
        assert_eq!(status, Ok(ServingStatus::Serving as i32), "{service:?}");
    }
    assert_eq!(status_of(&served, "another.Service").await, Err(Code::NotFound));
    let mut client = HealthClient::new(served.channel());
    let watched = client.watch(HealthCheckRequest::default()).await;
    assert_eq!(watched.expect_err("it is not supported").code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_server_whose_store_is_unreachable_does_not_serve() {
    let upstream = Served::new(Arc::new(MemoryStore::new())).await;
    let served = Served::new(Arc::new(upstream.store())).await;
    assert_eq!(status_of(&served, "").await, Ok(ServingStatus::Serving as i32));
    drop(upstream);
    // The server upstream ends by itself soon after it was dropped.
    let ended =
        async { while status_of(&served, "").await != Ok(ServingStatus::NotServing as i32) {} };
    crate::support::soon("the probe says so", ended).await;
}
