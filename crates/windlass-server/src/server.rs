//! A server, from its address to its end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use windlass::Windlass;
use windlass::remote::socket_path;

use crate::connections::{self, Listener};
use crate::identity::Door;
use crate::options::ServerOptions;
use crate::quotas::Quotas;
use crate::{grpc, http};

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

    /// Listens at an address such as `127.0.0.1:7600`, where with port 0 the system chooses, or at
    /// a unix socket such as `unix:/run/windlass.sock`, which only the user of this process may
    /// use. A socket that a server left behind is replaced, and what is not a socket is not.
    ///
    /// # Errors
    ///
    /// [`ServeError::NotLoopback`] for an address that other machines reach while nobody is asked
    /// who they are; [`ServeError::Address`] for one that cannot be used.
    pub async fn bind(&self, address: &str) -> Result<Listener, ServeError> {
        let failed = |error| ServeError::Address { address: address.to_owned(), error };
        let wrong = |error: windlass::Error| {
            failed(io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))
        };
        if let Some(path) = socket_path(address).map_err(wrong)? {
            return Listener::at_socket(path).map_err(failed);
        }
        let resolved: Vec<SocketAddr> =
            tokio::net::lookup_host(address).await.map_err(failed)?.collect();
        for address in &resolved {
            self.check(*address)?;
        }
        TcpListener::bind(resolved.as_slice()).await.map(Listener::from).map_err(failed)
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
        listener: impl Into<Listener>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let listener = listener.into();
        let failed = |error| ServeError::Address { address: "of the listener".to_owned(), error };
        for address in listener.tcp_addresses().map_err(failed)? {
            self.check(address)?;
        }
        let urls = listener.urls();
        let ending = CancellationToken::new();
        let options = self.options.clone();
        let quotas = Arc::new(Quotas::new(Arc::clone(self.windlass.store())));
        let grpc = grpc::router(self.windlass.store(), &quotas, &options, &ending);
        let door = Arc::new(Door::new(options.access.clone(), Arc::clone(self.windlass.store())));
        let parts = http::Parts { door: Arc::clone(&door), quotas, grpc };
        let router = http::router(self.windlass, self.options, parts, ending.clone());
        tracing::info!(%urls, "serving");
        tokio::select! {
            biased;
            () = connections::serve(listener, router, &options, ending, shutdown) => {}
            () = door.keep_fresh() => {}
        }
        tracing::info!(%urls, "served");
        Ok(())
    }

    fn check(&self, address: SocketAddr) -> Result<(), ServeError> {
        let is_safe = address.ip().is_loopback() || self.options.access.asks_for_credentials();
        if is_safe { Ok(()) } else { Err(ServeError::NotLoopback(address)) }
    }
}
