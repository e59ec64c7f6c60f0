//! Where a server listens, and who comes.

use std::fmt::Write as _;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::either::Either;

#[cfg(unix)]
use super::socket::Socket;
use crate::tls::{PeerCertificate, Tls};

/// The most bytes that the log says of where a request came from.
const ORIGIN_BYTES_MAX: usize = 200;

/// Who talks to the server, by TCP or by a unix socket.
#[cfg(unix)]
pub(super) type Stream = Either<TcpStream, tokio::net::UnixStream>;
#[cfg(not(unix))]
pub(super) type Stream = Either<TcpStream, TcpStream>;

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// A machine. One that has a network of IPv6 to itself has all its addresses.
    Machine(IpAddr),
    /// A process of this machine, by a socket.
    Socket,
}

impl From<Option<IpAddr>> for Origin {
    fn from(address: Option<IpAddr>) -> Self {
        match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V6(ip)) => {
                let network = u128::from(ip) >> 64 << 64;
                Origin::Machine(if ip.is_loopback() { ip } else { Ipv6Addr::from(network) }.into())
            }
            Some(ip @ IpAddr::V4(_)) => Origin::Machine(ip),
            None => Origin::Socket,
        }
    }
}

/// Where a connection comes from, in the words of the log: its address, and whom the certificate is
/// for that it showed.
#[derive(Clone, Debug)]
pub(crate) struct Whence(Arc<str>);

impl Whence {
    /// By a socket of this machine if there is no address.
    pub(super) fn new(address: Option<IpAddr>, peer: Option<&PeerCertificate>) -> Self {
        let mut text = match address {
            Some(address) => address.to_canonical().to_string(),
            None => "unix".to_owned(),
        };
        if let Some(peer) = peer.filter(|peer| !peer.subject().is_empty()) {
            let _ = write!(text, " as {}", peer.subject());
        }
        text.truncate(text.floor_char_boundary(ORIGIN_BYTES_MAX));
        Whence(text.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Who has come.
pub(super) struct Arrival {
    pub(super) stream: Stream,
    /// Its address; none if it comes by a socket.
    pub(super) address: Option<IpAddr>,
    /// How to shake hands, where that comes first.
    pub(super) tls: Option<Tls>,
}

/// Where a server listens: at one address or at several.
#[derive(Debug)]
pub struct Listener {
    doors: Vec<Door>,
    /// Which of them is looked at first: each in its turn, so that none waits behind a flood.
    first: usize,
}

#[derive(Debug)]
enum Door {
    Tcp(TcpListener, Option<Tls>),
    #[cfg(unix)]
    Socket(Socket),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Listener { doors: vec![Door::Tcp(listener, None)], first: 0 }
    }
}

impl Listener {
    /// Listens at a unix socket.
    #[cfg(unix)]
    pub(crate) fn at_socket(path: PathBuf) -> io::Result<Self> {
        Ok(Listener { doors: vec![Door::Socket(Socket::bind(path)?)], first: 0 })
    }

    #[cfg(not(unix))]
    pub(crate) fn at_socket(_: PathBuf) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// With TLS at the addresses of TCP, if there is some.
    pub(crate) fn encrypted(mut self, tls: Option<&Tls>) -> Self {
        for door in &mut self.doors {
            match door {
                Door::Tcp(_, own) => *own = tls.cloned(),
                #[cfg(unix)]
                Door::Socket(_) => {}
            }
        }
        self
    }

    /// This one and another.
    #[must_use]
    pub fn and(mut self, other: Listener) -> Self {
        self.doors.extend(other.doors);
        self
    }

    /// The first address that is not a socket's.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.tcp_addresses().ok()?.first().copied()
    }

    pub(crate) fn tcp_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let address = |door: &Door| match door {
            Door::Tcp(listener, _) => Some(listener.local_addr()),
            #[cfg(unix)]
            Door::Socket(_) => None,
        };
        self.doors.iter().filter_map(address).collect()
    }

    /// The addresses as clients are told them, such as `http://127.0.0.1:7600`, which begins with
    /// `https` where TLS is spoken, and `unix:/run/windlass.sock`, with commas between them.
    pub fn urls(&self) -> String {
        let url = |door: &Door| match door {
            Door::Tcp(listener, tls) => {
                let scheme = if tls.is_some() { "https" } else { "http" };
                match listener.local_addr() {
                    Ok(address) => format!("{scheme}://{address}"),
                    Err(error) => format!("{scheme}://?{error}"),
                }
            }
            #[cfg(unix)]
            Door::Socket(socket) => socket.url(),
        };
        self.doors.iter().map(url).collect::<Vec<_>>().join(",")
    }

    /// Waits for the next who comes. Dropped, nobody is lost.
    pub(super) async fn accept(&mut self) -> io::Result<Arrival> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Arrival>> {
        let count = self.doors.len();
        for turn in 0..count {
            let place = (self.first + turn) % count;
            let accepted = self.doors[place].poll_accept(context);
            if accepted.is_ready() {
                self.first = place + 1;
                return accepted;
            }
        }
        Poll::Pending
    }
}

impl Door {
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Arrival>> {
        match self {
            Door::Tcp(listener, tls) => {
                listener.poll_accept(context).map_ok(|(stream, address)| {
                    // An answer is written whole: waiting for more of it only delays it.
                    let _ = stream.set_nodelay(true);
                    Arrival {
                        stream: Either::Left(stream),
                        address: Some(address.ip()),
                        tls: tls.clone(),
                    }
                })
            }
            #[cfg(unix)]
            Door::Socket(socket) => socket.poll_accept(context).map_ok(|stream| Arrival {
                stream: Either::Right(stream),
                address: None,
                tls: None,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_machine_are_one_origin() {
        let origin = |text: &str| Origin::from(Some(text.parse::<SocketAddr>().unwrap().ip()));
        assert_eq!(origin("192.0.2.1:1"), origin("192.0.2.1:2"));
        assert_eq!(origin("192.0.2.1:1"), origin("[::ffff:192.0.2.1]:1"));
        assert_ne!(origin("192.0.2.1:1"), origin("192.0.2.2:1"));
        assert_eq!(origin("[2001:db8::1]:1"), origin("[2001:db8::ffff:1]:1"));
        assert_ne!(origin("[2001:db8::1]:1"), origin("[2001:db8:0:1::1]:1"));
    }
}
