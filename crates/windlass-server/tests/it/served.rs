//! A server on loopback.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::service::InterceptorLayer;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Status};
use windlass::remote::RemoteStore;
use windlass::store::Store;
use windlass_server::grpc::{ClientApi, WorkerApi};
use windlass_server::identity::Identity;

/// A server over a store. It ends when this is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) stopping: CancellationToken,
    _stop: DropGuard,
}

impl Served {
    /// A server that lets everyone in.
    pub(crate) async fn new(store: Arc<dyn Store>) -> Self {
        Served::with_identity(store, Some(Identity::everyone())).await
    }

    /// A server at which everyone is this, or nobody.
    pub(crate) async fn with_identity(store: Arc<dyn Store>, identity: Option<Identity>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback is there");
        let address = listener.local_addr().expect("it is bound");
        let stopping = CancellationToken::new();
        let clients = ClientApi::new(Arc::clone(&store), stopping.clone()).into_service();
        let workers = WorkerApi::new(store, stopping.clone()).into_service();
        let name_them = move |mut request: Request<()>| -> Result<Request<()>, Status> {
            if let Some(identity) = identity.clone() {
                request.extensions_mut().insert(identity);
            }
            Ok(request)
        };
        let stopped = stopping.clone().cancelled_owned();
        tokio::spawn(async move {
            let incoming = TcpIncoming::from(listener);
            let mut server = Server::builder().layer(InterceptorLayer::new(name_them));
            let server = server.add_service(clients).add_service(workers);
            server.serve_with_incoming_shutdown(incoming, stopped).await
        });
        Served { address, _stop: stopping.clone().drop_guard(), stopping }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn channel(&self) -> Channel {
        Endpoint::from_shared(self.url()).expect("it is an address").connect_lazy()
    }

    pub(crate) fn store(&self) -> RemoteStore {
        RemoteStore::connect(self.url()).expect("it is an address")
    }
}
