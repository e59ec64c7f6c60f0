//! A server on a store, for a test.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::{Channel, Endpoint, Server};
use windlass::Windlass;
use windlass::remote::RemoteStore;
use windlass::store::{MemoryStore, Store};
use windlass_server::grpc::{ClientApi, WorkerApi};
use windlass_server::identity::Identity;

/// A server that ends with the test.
pub(crate) struct Place {
    pub(crate) store: Arc<dyn Store>,
    endpoint: Endpoint,
    _ending: DropGuard,
}

impl Place {
    /// On a store in memory.
    pub(crate) async fn memory() -> Place {
        Place::on(Arc::new(MemoryStore::new())).await
    }

    /// On a store.
    pub(crate) async fn on(store: Arc<dyn Store>) -> Place {
        let ending = CancellationToken::new();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let api = WorkerApi::new(Arc::clone(&store), ending.clone());
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        let clients = ClientApi::new(Arc::clone(&store), ending.clone());
        let known = |mut request: tonic::Request<()>| {
            request.extensions_mut().insert(Identity::everyone());
            Ok(request)
        };
        let serving = Server::builder()
            .layer(tonic::service::InterceptorLayer::new(known))
            .add_service(api.into_service())
            .add_service(clients.into_service())
            .serve_with_incoming(incoming);
        tokio::spawn(ending.clone().run_until_cancelled_owned(serving));
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        Place { store, endpoint, _ending: ending.drop_guard() }
    }

    /// Connections to it.
    pub(crate) fn channel(&self) -> Channel {
        self.endpoint.connect_lazy()
    }

    /// A store through it.
    pub(crate) fn remote(&self) -> Arc<RemoteStore> {
        Arc::new(RemoteStore::over(self.channel()))
    }

    /// It still does what it is asked for.
    pub(crate) async fn is_well(&self) {
        let windlass = Windlass::with_store(Arc::clone(&self.store));
        windlass.store().now().await.expect("the store lives");
    }
}
