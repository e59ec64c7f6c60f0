//! Windlass through a server: the store of a process that has no database.
//!
//! [`RemoteStore`] says every verb over gRPC. Nothing is decided here, and nothing is kept but
//! what is needed to say it again to the next server.

mod doors;
mod line;
mod link;
mod options;
mod programs;
mod socket;
mod store;
mod stream;
mod tcp;
mod token;
mod tokens;
mod trouble;
mod trust;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Response, Status};
use windlass_core::payload::PAYLOAD_BYTES_MAX;
use windlass_proto::v1::client_service_client::ClientServiceClient;

use self::doors::{Door, Doors, Way};
use self::line::Line;
use self::token::Bearer;
use self::trouble::About;
use self::trust::Trust;
use self::watch::Watch;
use crate::engine::Windlass;
use crate::error::{Error, ErrorKind};
use crate::store::{Store, StoreError};

pub use self::options::{
    CA_FILE_VARIABLE, CLIENT_CERT_VARIABLE, CLIENT_KEY_VARIABLE, PLAINTEXT_TOKEN_VARIABLE,
    RemoteOptions, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE,
};
pub use self::socket::{SOCKET_PATH_BYTES_MAX, socket_path};
pub use self::token::TOKEN_BYTES_MAX;

/// The most bytes of a message, in both directions: the largest payload, and what else is said.
pub const MESSAGE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + (8 << 20);

/// How much of a stream may come before it is read: a batch of tasks at once.
const WINDOW_BYTES: u32 = 1 << 20;

/// How long a connection may take to be there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How often a connection is asked whether it is there still, and how long it may take to say so.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(4);

/// A store behind a server.
pub struct RemoteStore {
    doors: Doors,
    line: Arc<Line>,
    /// Who waits for the end of runs.
    runs: Watch,
    /// Who does the duties, where a test has them done by hand.
    duties: Option<Arc<dyn Store>>,
}

impl RemoteStore {
    /// The store behind the server at this address, such as `https://windlass.example.com:7600` or
    /// `unix:/run/windlass.sock`, or behind several with commas between their addresses: one is
    /// used until it cannot be reached or do anything, then the next. [`RemoteOptions`] say more of
    /// how they are reached. A connection is made with the first verb, and whenever it was lost.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for what is not such an address, for a token or a file that is of no
    /// use, and for a token that would go to another machine in the clear.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn connect(options: impl Into<RemoteOptions>) -> Result<Self, Error> {
        let options = options.into();
        let bearer = options.bearer()?;
        let mut trust = None;
        let channels = options.addresses().map(|url| {
            let about = options.about(url);
            Ok((channel(url, &options, &mut trust, &about)?, about))
        });
        let channels = channels.collect::<Result<Vec<_>, Error>>()?;
        Ok(RemoteStore::among(channels, bearer))
    }

    /// The store behind the server at the other end of a channel.
    pub fn over(channel: Channel) -> Self {
        RemoteStore::among(vec![(channel, About::unknown())], Bearer::default())
    }

    fn among(channels: Vec<(Channel, About)>, bearer: Bearer) -> Self {
        let doors = Doors::new(channels, bearer);
        let line = Line::new(doors.clone());
        RemoteStore { line, doors, runs: Watch::default(), duties: None }
    }

    /// The same with another store for the verbs that a server does not do for anyone: those of
    /// the background duties.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn with_duties(self, store: Arc<dyn Store>) -> Self {
        RemoteStore { duties: Some(store), ..self }
    }

    /// Who does a verb that a server does for nobody.
    fn own(&self, verb: &str) -> Result<&Arc<dyn Store>, StoreError> {
        let text = || format!("the server does the duties; it cannot be asked for {verb:?}");
        self.duties.as_ref().ok_or_else(|| StoreError::Conflict(text()))
    }

    fn client(&self) -> (Door, ClientServiceClient<Way>) {
        let (door, way) = self.doors.current();
        (door, client(way))
    }
}

impl Windlass {
    /// An engine on a server, by its address: for a process that has no database. The server does
    /// the background duties. A connection is made when it is needed.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), windlass::Error> {
    /// use windlass::Windlass;
    /// use windlass::remote::RemoteOptions;
    ///
    /// let near = Windlass::connect_server("http://127.0.0.1:7600")?;
    /// let options = RemoteOptions::new("https://windlass.example.com:7600")
    ///     .token_file("/run/secrets/windlass-token");
    /// let far = Windlass::connect_server(options)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`RemoteStore::connect`].
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn connect_server(options: impl Into<RemoteOptions>) -> Result<Self, Error> {
        let store = RemoteStore::connect(options)?;
        Ok(Windlass::with_store(Arc::new(store)))
    }
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStore").finish_non_exhaustive()
    }
}

fn client(way: Way) -> ClientServiceClient<Way> {
    ClientServiceClient::new(way)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// A connection to the server at an address, made when it is needed. What all connections by TLS
/// share is read for the first of them.
fn channel(
    url: &str,
    options: &RemoteOptions,
    trust: &mut Option<Arc<Trust>>,
    about: &About,
) -> Result<Channel, Error> {
    let endpoint = |uri: Uri| {
        Endpoint::from(uri)
            .connect_timeout(CONNECT_TIMEOUT)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(4 * WINDOW_BYTES)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
    };
    // Nobody looks it up: another connects.
    let elsewhere = || endpoint(Uri::from_static("http://localhost"));
    if let Some(path) = socket_path(url)? {
        return Ok(socket::channel(path, &elsewhere()));
    }
    let uri = address(url)?;
    options.check_plaintext(&uri)?;
    if uri.scheme_str() != Some("https") {
        return Ok(tcp::channel(&uri, &endpoint(uri.clone()), about.heard().clone()));
    }
    let trust = match trust {
        Some(trust) => Arc::clone(trust),
        None => Arc::clone(trust.insert(Arc::new(options.trust()?))),
    };
    // Whom requests are meant for.
    let endpoint = elsewhere().origin(uri.clone());
    Ok(trust::channel(&uri, endpoint, trust, about.heard().clone()))
}

/// The address of a server.
fn address(url: &str) -> Result<Uri, Error> {
    let wrong = |why: &str| {
        let text = format!(
            "the address of a server is https://host:port, http://host:port or \
             unix:/path/to.sock, not {url:?}: {why}"
        );
        Error::new(ErrorKind::Argument, text)
    };
    let uri: Uri = url.parse().map_err(|error| wrong(&format!("{error}")))?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        Some(other) => return Err(wrong(&format!("it begins with {other}://"))),
        None => return Err(wrong("it does not begin with http://")),
    }
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if has_user {
        return Err(wrong("it has a user"));
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(wrong("it has no host"));
    }
    if uri.path() != "/" || uri.query().is_some() {
        return Err(wrong("it has a path"));
    }
    Ok(uri)
}

/// A message that is to be answered in time.
fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_TIMEOUT);
    request
}

/// What a call to one of the servers was answered.
fn answered<T>(
    doors: &Doors,
    door: Door,
    answer: Result<Response<T>, Status>,
) -> Result<T, StoreError> {
    let refused = |status: Status| doors.about(door).error(&status);
    let answer = answer.map(Response::into_inner).map_err(refused);
    if matches!(answer, Err(StoreError::Unavailable(_))) {
        doors.turn_from(door);
    }
    answer
}

/// Asks the server: a store, the name of a call, and the message.
macro_rules! ask {
    ($store:expr, $call:ident, $message:expr) => {{
        let (door, mut client) = $store.client();
        let answer = client.$call($crate::remote::timed($message)).await;
        $crate::remote::answered(&$store.doors, door, answer)
    }};
}
use ask;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_is_refused_with_what_is_wrong_with_it() {
        let cases = [
            ("", "empty"),
            ("localhost:7600", "does not begin with http://"),
            ("postgres://localhost", "begins with postgres://"),
            ("http://", ""),
            ("http://someone@localhost", "has a user"),
            ("http://localhost:7600/v1", "has a path"),
            ("http://localhost:7600/?x", "has a path"),
            ("http://local host", ""),
        ];
        for (url, why) in cases {
            let error = address(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Argument);
            let text = error.to_string();
            assert!(text.contains(&format!("{url:?}")) && text.contains(why), "{text}");
        }
        for url in ["http://localhost:7600", "http://[::1]:7070/", "https://windlass.example.com"] {
            address(url).expect(url);
        }
    }
}
