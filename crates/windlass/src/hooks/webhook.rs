//! A hook that is an HTTP address.
//!
//! The host is resolved once per attempt, all its addresses are judged, and the connection is made
//! to one of those: nobody asks a second time, so that a name cannot mean another address by then.
//! What is connected to comes from one future, which can be awaited once.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use ring::hmac;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use windlass_core::{RunId, Secret};

use super::address::{internal, metadata};
use super::delivery::Undelivered;
use super::host::{self, Host};
use super::notice::cut;

/// The most bytes that are read of an answer.
const ANSWER_BYTES_MAX: usize = 4 * 1024;

/// The most bytes of the head of an answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The most addresses of a host that are tried.
const ADDRESSES_MAX: usize = 4;

pub(super) struct Webhook {
    is_encrypted: bool,
    /// Without the brackets of an address of IPv6.
    host: String,
    /// What the host says before anybody is asked.
    said: Host,
    port: u16,
    /// As the URL has it, for the server.
    authority: String,
    path: String,
    key: Option<hmac::Key>,
    /// Whom to trust, if not those whom the machine does.
    trusted: Option<Vec<CertificateDer<'static>>>,
    allows_internal: bool,
    /// Made when it is first needed: the machine's authorities are files.
    tls: OnceLock<Arc<ClientConfig>>,
}

impl Webhook {
    /// Checks a URL. The errors say nothing of its path, which may be a secret.
    pub(super) fn new(
        url: &str,
        secret: Option<Secret>,
        trusted: Option<String>,
        allows_internal: bool,
    ) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("has a URL that is none: {error}"))?;
        let (is_encrypted, default_port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            Some(scheme) => return Err(format!("has a URL with {scheme:?}, not http or https")),
            None => return Err("has a URL without http:// or https://".to_owned()),
        };
        let Some(authority) = uri.authority().map(ToString::to_string) else {
            return Err("has a URL without a host".to_owned());
        };
        if authority.contains('@') {
            return Err("has a URL with a user or a password in it".to_owned());
        }
        let host = uri.host().unwrap_or_default();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host).to_owned();
        let port = match authority.rsplit_once(':') {
            // Of an address in brackets, or of a host and a port.
            Some((_, port)) if !port.ends_with(']') => port_of(port),
            Some(_) | None => Some(default_port),
        };
        let Some(port) = port else { return Err("has a URL with a port that is none".to_owned()) };
        if host.is_empty() {
            return Err("has a URL without a host".to_owned());
        }
        let said = host::read(&host, bare.is_some())
            .ok_or_else(|| format!("has a URL whose host {host:?} is neither address nor name"))?;
        if secret.as_ref().is_some_and(|secret| secret.expose().is_empty()) {
            return Err("has an empty secret".to_owned());
        }
        let key = |secret: Secret| hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
        let key = secret.map(key);
        let trusted = trusted.map(|pem| certificates(&pem)).transpose()?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let tls = OnceLock::new();
        Ok(Webhook {
            is_encrypted,
            host,
            said,
            port,
            authority,
            path,
            key,
            trusted,
            allows_internal,
            tls,
        })
    }

    /// Makes one attempt, which its caller gives `limit` of time.
    pub(super) async fn send(
        &self,
        id: RunId,
        body: String,
        limit: Duration,
    ) -> Result<(), Undelivered> {
        self.send_to(self.resolve(), id, body, limit).await
    }

    /// The same, to the addresses that the host is found to have.
    async fn send_to(
        &self,
        found: impl Future<Output = io::Result<Vec<SocketAddr>>>,
        id: RunId,
        body: String,
        limit: Duration,
    ) -> Result<(), Undelivered> {
        let request = self.request(id, body).map_err(Undelivered::ForGood)?;
        let stream = self.connect(found, limit).await?;
        let for_now = |what: &str, error: &dyn std::fmt::Display| {
            Undelivered::ForNow(format!("{what} {}: {error}", self.authority))
        };
        let answer = match self.is_encrypted {
            false => exchange(stream, request).await,
            true => {
                let config = self.tls().map_err(|why| for_now("cannot trust", &why))?;
                let name = ServerName::try_from(self.host.clone())
                    .map_err(|error| Undelivered::ForGood(format!("has a wrong host: {error}")))?;
                let stream = TlsConnector::from(config).connect(name, stream).await;
                let stream = stream.map_err(|error| for_now("got no encryption from", &error))?;
                exchange(stream, request).await
            }
        };
        let (status, said) = answer.map_err(|error| for_now("got no answer from", &error))?;
        judge(status, &said, &self.authority)
    }

    fn request(&self, id: RunId, body: String) -> Result<Request<String>, String> {
        let id = id.to_string();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let timestamp = now.as_secs().to_string();
        let mut request = Request::post(self.path.as_str())
            .header(HOST, &self.authority)
            .header(USER_AGENT, concat!("windlass/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json")
            .header("Windlass-Id", &id)
            .header("Windlass-Timestamp", &timestamp);
        if let Some(key) = &self.key {
            request = request.header("Windlass-Signature", sign(key, [&id, &timestamp, &body]));
        }
        request.body(body).map_err(|error| format!("has a request that cannot be sent: {error}"))
    }

    /// The addresses of the host. An address needs no resolver, which may know other spellings.
    async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let Webhook { host, port, .. } = self;
        match self.said {
            Host::Address(address) => Ok(vec![SocketAddr::new(address, *port)]),
            Host::Inside | Host::Name => Ok(lookup_host((host.as_str(), *port)).await?.collect()),
        }
    }

    /// Connects to one of the addresses that the host is found to have, if it may be reached.
    async fn connect(
        &self,
        found: impl Future<Output = io::Result<Vec<SocketAddr>>>,
        limit: Duration,
    ) -> Result<TcpStream, Undelivered> {
        let host = &self.host;
        if self.said == Host::Inside && !self.allows_internal {
            let why = format!("may not go to {host:?}: it is a name of the inside");
            return Err(Undelivered::ForGood(why));
        }
        let addresses = found.await.map_err(|error| {
            Undelivered::ForNow(format!("has a host {host:?} that cannot be resolved: {error}"))
        })?;
        self.admit(&addresses).map_err(Undelivered::ForGood)?;
        let mut last = format!("has a host {host:?} without addresses");
        let tried = addresses.len().clamp(1, ADDRESSES_MAX);
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            let limit = limit / u32::try_from(tried).unwrap_or(1);
            let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer");
            let stream = timeout(limit, TcpStream::connect(address)).await;
            match stream.unwrap_or_else(|_| Err(late())) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = format!("could not connect to {address}: {error}"),
            }
        }
        Err(Undelivered::ForNow(last))
    }

    /// Refuses a host one of whose addresses is not of the open internet. The metadata of a cloud
    /// is refused to those as well that may go to the inside.
    fn admit(&self, addresses: &[SocketAddr]) -> Result<(), String> {
        let refused = addresses.iter().map(SocketAddr::ip).find_map(|address| {
            let what = match self.allows_internal {
                true => metadata(address)?,
                false => internal(address)?,
            };
            let host = &self.host;
            Some(format!("may not go to {host:?}: its address {address} is {what}"))
        });
        refused.map_or(Ok(()), Err)
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        if let Some(config) = self.tls.get() {
            return Ok(Arc::clone(config));
        }
        let mut roots = RootCertStore::empty();
        match &self.trusted {
            Some(trusted) => roots.add_parsable_certificates(trusted.iter().cloned()),
            None => {
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs)
            }
        };
        if roots.is_empty() {
            return Err("this machine trusts no authorities".to_owned());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::clone(self.tls.get_or_init(|| Arc::new(config))))
    }
}

/// A port, which has no sign.
fn port_of(text: &str) -> Option<u16> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten().filter(|port| *port != 0)
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match read {
        Ok(found) if found.is_empty() => Err("has an authority without a certificate".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("has an authority that cannot be read: {error}")),
    }
}

/// `v1=` and the signature of id, timestamp and body, with dots between them, in hexadecimal.
fn sign(key: &hmac::Key, parts: [&str; 3]) -> String {
    let tag = hmac::sign(key, parts.join(".").as_bytes());
    let hex = tag.as_ref().iter().map(|byte| format!("{byte:02x}"));
    hex.fold("v1=".to_owned(), |text, byte| text + &byte)
}

/// Sends a request and reads the answer as far as it is of interest. The connection is driven by
/// the same future, so that nothing is left of it when that is dropped.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<String>,
) -> Result<(StatusCode, String), hyper::Error> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let drive = async {
        // What goes wrong with it is told to whoever waits for the answer.
        let _ = connection.await;
        pending::<Infallible>().await
    };
    let answer = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        // What else is said of a success is of no interest, however slowly it comes.
        let said = match status.is_success() {
            true => String::new(),
            false => beginning(answer.into_body()).await,
        };
        Ok((status, said))
    };
    tokio::select! {
        biased;
        answer = answer => answer,
        never = drive => match never {},
    }
}

/// The beginning of the body of an answer, as far as it came.
async fn beginning(mut body: Incoming) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < ANSWER_BYTES_MAX {
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let Some(Ok(frame)) = frame else { break };
        let Some(data) = frame.data_ref() else { continue };
        bytes.extend(data.iter().take(ANSWER_BYTES_MAX - bytes.len()));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What follows from an answer.
fn judge(status: StatusCode, said: &str, server: &str) -> Result<(), Undelivered> {
    if status.is_success() {
        return Ok(());
    }
    let number = status.as_u16();
    let said = cut(said.trim());
    let why = match status.is_redirection() {
        true => format!("got {number} from {server}, and redirects are not followed"),
        false => format!("got {number} from {server}: {said:?}"),
    };
    // Too late, too early, too often: those may be right another time.
    match status.is_client_error() && ![408, 425, 429].contains(&number) {
        true => Err(Undelivered::ForGood(why)),
        false => Err(Undelivered::ForNow(why)),
    }
}

#[cfg(test)]
mod tests;
