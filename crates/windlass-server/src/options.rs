//! What a server is told.

use std::time::Duration;

use crate::identity::Access;
use crate::tls::Tls;

/// What a server is told: who may do what, and how much there may be of everything.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Who may do what.
    pub access: Access,
    /// The names by which the server is called, besides `localhost` and loopback addresses.
    /// Requests to other names are refused.
    pub host_names: Vec<String>,
    /// TLS at the addresses of TCP, where nothing else is spoken then. Unix sockets stay as they
    /// are.
    pub tls: Option<Tls>,
    /// Whether something in front of the server, such as a proxy or a mesh, speaks TLS with its
    /// clients. Without that, and without [`tls`](ServerOptions::tls), only loopback addresses are
    /// listened at: tokens do not cross a network in the clear.
    pub is_behind_tls_proxy: bool,
    /// The most connections at once. One that comes beyond takes the place of the one that has
    /// said nothing for the longest time.
    pub connections_max: usize,
    /// The most connections at once of one address, and of all who come by unix sockets: nobody
    /// takes the places of everyone.
    pub connections_per_address_max: usize,
    /// The most requests that are worked on at once; more are answered 503.
    pub requests_max: usize,
    /// The most requests that are held at once, for tasks, for ends of runs and as streams, and as
    /// many calls of gRPC; more are answered 503.
    pub held_max: usize,
    /// The most streams of gRPC at once, of which a process with workers has one or two; more are
    /// answered 503.
    pub streams_max: usize,
    /// The most live workers that joined through this server with one token. Default: 2,000.
    pub workers_per_token_max: usize,
    /// The most live workers of one tenant that joined through this server with tokens of that
    /// tenant. Default: 4,000.
    pub workers_per_tenant_max: usize,
    /// How much of the requests, held requests, calls, streams and memory above and below one
    /// address may take, or all who come by unix sockets, in percent: nobody takes the places of
    /// everyone, and what is beyond is answered 503. 100 if all come through one proxy.
    pub address_share_percent: u8,
    /// The memory for request bodies of HTTP and gRPC together, in bytes. gRPC messages are
    /// charged with what decoding them takes, until their calls are answered. Bodies beyond it
    /// are refused: HTTP answers 503, gRPC `RESOURCE_EXHAUSTED`. Default: 256 MiB.
    pub body_bytes_max: usize,
    /// How long a request body, or one message of a gRPC stream, may take to arrive.
    /// Default: 20 s.
    pub body_time_max: Duration,
    /// The most memory for answers to workers that wait to be read, in bytes. Answers beyond wait
    /// until others were read.
    pub answer_bytes_max: usize,
    /// How long the head of a request may take to come, and how long a connection may say nothing.
    /// With TLS, the handshake and the first head share it.
    pub head_time_max: Duration,
    /// How long the answer to a request may take. Streams are not bound by it.
    pub request_time_max: Duration,
    /// How long a client may take none of what it is sent.
    pub write_time_max: Duration,
    /// How often a connection of HTTP/2 is asked whether anyone is there, and how long the answer
    /// may take.
    pub ping_time_max: Duration,
    /// How long requests that are under way are given when the server ends.
    pub drain_time_max: Duration,
}

impl ServerOptions {
    /// With these rights, and limits that a small machine can bear.
    pub fn new(access: Access) -> Self {
        ServerOptions {
            access,
            host_names: Vec::new(),
            tls: None,
            is_behind_tls_proxy: false,
            connections_max: 4_096,
            connections_per_address_max: 2_048,
            requests_max: 256,
            held_max: 2_048,
            streams_max: 8_192,
            workers_per_token_max: 2_000,
            workers_per_tenant_max: 4_000,
            address_share_percent: 50,
            body_bytes_max: 256 << 20,
            body_time_max: Duration::from_secs(20),
            answer_bytes_max: 256 << 20,
            head_time_max: Duration::from_secs(10),
            request_time_max: Duration::from_secs(60),
            write_time_max: Duration::from_secs(30),
            ping_time_max: Duration::from_secs(20),
            drain_time_max: Duration::from_secs(10),
        }
    }
}
