//! Servers that are reached by TCP, in the clear or below TLS.

use std::io;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint, Uri};

use super::trouble::Heard;

/// The port of `http` where an address has none.
const PORT: u16 = 80;

/// Where a server listens.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Without the brackets of an address of IPv6.
    pub(super) host: Arc<str>,
    port: u16,
}

impl Place {
    /// What an address says, with the port where it has none.
    pub(super) fn of(uri: &Uri, port: u16) -> Self {
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').into();
        Place { host, port: uri.port_u16().unwrap_or(port) }
    }

    /// Connects to it.
    pub(super) async fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        // A request is written whole: waiting for more of it only delays it.
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// A connection in the clear to the server at an address, made when it is needed.
pub(super) fn channel(uri: &Uri, endpoint: &Endpoint, heard: Heard) -> Channel {
    let place = Place::of(uri, PORT);
    let connect = move |_| {
        let (place, heard) = (place.clone(), heard.clone());
        async move {
            heard.begin();
            let stream = place.connect().await?;
            io::Result::Ok(TokioIo::new(heard.listen(stream)))
        }
    };
    endpoint.connect_with_connector_lazy(tower::service_fn(connect))
}
