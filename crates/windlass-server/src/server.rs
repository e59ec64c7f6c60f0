//! A server, from its address to its end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use windlass::Windlass;

use crate::options::ServerOptions;
use crate::{connections, grpc, http};

/// A server of an engine.
#[derive(Debug)]
pub struct Server {
    windlass: Windlass,
    options: ServerOptions,
}

/// Why a server does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Everyone could do everything from other machines.
    #[error(
        "address {0} can be reached from other machines, and nobody would be asked who they are; \
         use a loopback address such as 127.0.0.1"
    )]
    NotLoopback(SocketAddr),
    /// The address cannot be used.
    #[error("address {address:?} cannot be used: {error}")]
    Address {
        /// The address.
        address: String,
        /// Why not.
        error: io::Error,
    },
}

impl Server {
    /// A server of an engine that does not listen yet.
    pub fn new(windlass: Windlass, options: ServerOptions) -> Self {
        Server { windlass, options }
    }

    /// Listens at an address such as `127.0.0.1:7600`; with port 0 the system chooses.
    ///
    /// # Errors
    ///
    /// [`ServeError::NotLoopback`] for an address that other machines reach while nobody is asked
    /// who they are; [`ServeError::Address`] for one that cannot be used.
    pub async fn bind(&self, address: &str) -> Result<TcpListener, ServeError> {
        let failed = |error| ServeError::Address { address: address.to_owned(), error };
        let resolved: Vec<SocketAddr> =
            tokio::net::lookup_host(address).await.map_err(failed)?.collect();
        for address in &resolved {
            self.check(*address)?;
        }
        TcpListener::bind(resolved.as_slice()).await.map_err(failed)
    }

    /// Serves until `shutdown` is ready: then no more connections are accepted, streams end, what
    /// is held answers, and what is under way is given its time.
    ///
    /// # Errors
    ///
    /// [`ServeError::NotLoopback`] if the listener can be reached from other machines while nobody
    /// is asked who they are.
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let failed = |error| ServeError::Address { address: "of the listener".to_owned(), error };
        let address = listener.local_addr().map_err(failed)?;
        self.check(address)?;
        let ending = CancellationToken::new();
        let options = self.options.clone();
        let grpc = grpc::router(self.windlass.store(), &ending);
        let router = http::router(self.windlass, self.options, grpc, ending.clone());
        tracing::info!(%address, "serving");
        connections::serve(listener, router, &options, ending, shutdown).await;
        tracing::info!(%address, "served");
        Ok(())
    }

    fn check(&self, address: SocketAddr) -> Result<(), ServeError> {
        let is_safe = address.ip().is_loopback() || self.options.access.asks_for_credentials();
        if is_safe { Ok(()) } else { Err(ServeError::NotLoopback(address)) }
    }
}
