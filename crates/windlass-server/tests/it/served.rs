//! A server on loopback.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::{Channel, Endpoint};
use windlass::Windlass;
use windlass::remote::RemoteStore;
use windlass::store::Store;
use windlass_server::{Access, Server, ServerOptions};

/// A server over a store. It ends when this is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) stopping: CancellationToken,
    _stop: DropGuard,
}

impl Served {
    /// A server that lets everyone in.
    pub(crate) async fn new(store: Arc<dyn Store>) -> Self {
        Served::with_access(store, Access::insecure_dev()).await
    }

    /// A server that lets these in.
    pub(crate) async fn with_access(store: Arc<dyn Store>, access: Access) -> Self {
        let server = Server::new(Windlass::with_store(store), ServerOptions::new(access));
        let listener = server.bind("127.0.0.1:0").await.expect("loopback is there");
        let address = listener.local_addr().expect("it is bound");
        let stopping = CancellationToken::new();
        tokio::spawn(server.serve(listener, stopping.clone().cancelled_owned()));
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
