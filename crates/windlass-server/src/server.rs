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
use crate::workers::LiveWorkers;
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
    /// Tokens would cross a network in the clear.
    #[error(
        "address {0} can be reached from other machines, and tokens would go there in the clear; \
         give the server a certificate (--tls-cert, --tls-key), or say that something in front of \
         it speaks TLS (--behind-tls-proxy)"
    )]
    Plaintext(SocketAddr),
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
    /// who they are; [`ServeError::Plaintext`] for one where they would say so in the clear;
    /// [`ServeError::Address`] for one that cannot be used.
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
        let listener = TcpListener::bind(resolved.as_slice()).await.map_err(failed)?;
        Ok(Listener::from(listener).encrypted(self.options.tls.as_ref()))
    }

    /// Serves until `shutdown` is ready: then no more connections are accepted, streams end, what
    /// is held answers, and what is under way is given its time.
    ///
    /// # Errors
    ///
    /// [`ServeError::NotLoopback`] if the listener can be reached from other machines while nobody
    /// is asked who they are, [`ServeError::Plaintext`] if they would say so in the clear.
    pub async fn serve(
        self,
        listener: impl Into<Listener>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let listener = listener.into().encrypted(self.options.tls.as_ref());
        let failed = |error| ServeError::Address { address: "of the listener".to_owned(), error };
        for address in listener.tcp_addresses().map_err(failed)? {
            self.check(address)?;
        }
        let urls = listener.urls();
        let ending = CancellationToken::new();
        let options = self.options.clone();
        let quotas = Arc::new(Quotas::new(Arc::clone(self.windlass.store())));
        let workers = Arc::new(LiveWorkers::new(&options));
        let (grpc, doors) =
            grpc::router(self.windlass.store(), &quotas, &workers, &options, &ending);
        let door = Arc::new(Door::new(options.access.clone(), Arc::clone(self.windlass.store())));
        let parts = http::Parts { door: Arc::clone(&door), quotas, workers, doors, grpc };
        let router = http::router(self.windlass, self.options, parts, ending.clone());
        tracing::info!(%urls, "serving");
        let watch = async {
            match &options.tls {
                Some(tls) => tls.watch().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = connections::serve(listener, router, &options, ending, shutdown) => {}
            () = door.keep_fresh() => {}
            () = watch => {}
        }
        tracing::info!(%urls, "served");
        Ok(())
    }

    fn check(&self, address: SocketAddr) -> Result<(), ServeError> {
        let options = &self.options;
        let is_encrypted = options.tls.is_some() || options.is_behind_tls_proxy;
        check_address(address, options.access.asks_for_credentials(), is_encrypted)
    }
}

/// Refuses an address of other machines unless they must say who they are, and not in the clear.
fn check_address(
    address: SocketAddr,
    asks_for_credentials: bool,
    is_encrypted: bool,
) -> Result<(), ServeError> {
    match (address.ip().to_canonical().is_loopback(), asks_for_credentials, is_encrypted) {
        (true, _, _) | (false, true, true) => Ok(()),
        (false, false, _) => Err(ServeError::NotLoopback(address)),
        (false, true, false) => Err(ServeError::Plaintext(address)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_do_not_cross_a_network_in_the_clear_and_nobody_comes_in_without_one() {
        let check = |address: &str, asks, is_encrypted| {
            check_address(address.parse().unwrap(), asks, is_encrypted).map_err(|it| it.to_string())
        };
        for near in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            for (asks, is_encrypted) in [(false, false), (false, true), (true, false)] {
                assert_eq!(check(near, asks, is_encrypted), Ok(()), "{near}");
            }
        }
        for far in ["0.0.0.0:1", "192.0.2.1:1", "[::]:1", "[2001:db8::1]:1"] {
            assert_eq!(check(far, true, true), Ok(()), "{far}");
            let error = check(far, true, false).unwrap_err();
            assert!(error.contains(far) && error.contains("--behind-tls-proxy"), "{error}");
            for is_encrypted in [false, true] {
                let error = check(far, false, is_encrypted).unwrap_err();
                assert!(error.contains(far) && error.contains("asked who they are"), "{error}");
            }
        }
    }
}
