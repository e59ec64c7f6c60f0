//! How much HTTP may ask of one connection.

use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;

use crate::options::ServerOptions;

/// The most bytes of the head of a request, and of what is read at once. Also of heads that come
/// in many pieces: what is beyond is not kept.
const HEAD_BYTES_MAX: u32 = 64 << 10;

/// The most requests at once on one connection of HTTP/2. A process needs one stream for its
/// workers and a few for its calls.
const STREAMS_MAX: u32 = 128;

/// The most requests that a client takes back before anyone has seen them. Who asks and takes back
/// as fast as it can write costs work and is not held by the limit above: it is hung up on.
const UNSEEN_RESETS_MAX: usize = 20;

/// The most streams of one connection that the server ends for mistakes of the client, such as being
/// beyond the limit above. That one is not known to a client whose first requests are on their way
/// before it was told, and it may have hundreds; whoever goes on is hung up on.
const FAULTY_STREAMS_MAX: usize = 1_024;

/// How much one stream of HTTP/2 may send before it is read: a batch of results at once.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// How much all streams of a connection may send before it is read, which is what the server has
/// in memory of it.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// The most bytes of a frame, the least that HTTP/2 allows: others have their turn between two.
const FRAME_BYTES_MAX: u32 = 16 << 10;

/// How much of an answer waits in memory until the client takes it, for each stream.
const SEND_BYTES_MAX: usize = 256 << 10;

/// What connections are served with.
pub(super) fn builder(options: &ServerOptions) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_time_max)
        .max_buf_size(HEAD_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_pending_accept_reset_streams(UNSEEN_RESETS_MAX)
        .max_local_error_reset_streams(FAULTY_STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_send_buf_size(SEND_BYTES_MAX)
        .keep_alive_interval(options.ping_time_max)
        .keep_alive_timeout(options.ping_time_max);
    builder
}
