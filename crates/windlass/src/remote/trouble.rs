//! What is wrong with a connection to a server, in words that name the server and say what to do.
//!
//! What gRPC says of it is that there is an error of transport. What it was is in the errors below
//! that, some of which are texts by then. That a server does not like the certificate of a client is
//! not even there for sure: the handshake is over for the client by then, and what it says next may
//! meet a closed connection before it has read why. So what is seen of a connection is noted.

use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::{fmt, io};

use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::Status;

use super::options::{
    CA_FILE_VARIABLE, CLIENT_CERT_VARIABLE, CLIENT_KEY_VARIABLE, TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
};
use crate::store::StoreError;
use crate::wire::{ERROR_METADATA, error_of_status};

/// What is said of a server when something goes wrong with it.
#[derive(Clone, Debug)]
pub(super) struct About {
    /// Its address; none if someone else has made the connection.
    url: Option<String>,
    shows_certificate: bool,
    shows_token: bool,
    heard: Heard,
}

impl About {
    /// A server at an address, and what it is shown.
    pub(super) fn new(url: &str, shows_certificate: bool, shows_token: bool) -> Self {
        About { url: Some(url.to_owned()), shows_certificate, shows_token, heard: Heard::default() }
    }

    /// A server at the other end of a connection that is there.
    pub(super) fn unknown() -> Self {
        About { url: None, shows_certificate: false, shows_token: false, heard: Heard::default() }
    }

    /// What is seen of connections to it.
    pub(super) fn heard(&self) -> &Heard {
        &self.heard
    }

    /// What a call came to that was not done.
    pub(super) fn error(&self, status: &Status) -> StoreError {
        let error = error_of_status(status);
        let is_answer = status.metadata().contains_key(ERROR_METADATA);
        if let (StoreError::Unavailable(why), false) = (&error, is_answer) {
            let told = status.source().and_then(|source| self.told(source));
            return self.unavailable(told.as_ref().unwrap_or(why));
        }
        let is_asked = matches!(error, StoreError::Unauthenticated(_));
        if is_asked && !self.shows_token && self.url.is_some() {
            return StoreError::Unauthenticated(format!(
                "{self} asks for a token, and is shown none: put one into a file and give \
                 --token-file <FILE>, or set {TOKEN_FILE_VARIABLE} or {TOKEN_VARIABLE}"
            ));
        }
        error
    }

    /// Something is wrong with the server.
    pub(super) fn unavailable(&self, why: impl fmt::Display) -> StoreError {
        StoreError::Unavailable(format!("{self}: {why}"))
    }

    /// What an error of the connection means.
    fn told(&self, error: &(dyn StdError + 'static)) -> Option<String> {
        let links = links(error);
        let is_refused =
            links.iter().any(|link| link.kind == Some(io::ErrorKind::ConnectionRefused));
        let Seen { is_asked, first, end } = self.heard.seen().clone();
        let end = end.unwrap_or_default();
        let says =
            |part: &str| links.iter().any(|link| link.text.contains(part)) || end.contains(part);
        let is_closed = says("closed") || says("roken pipe") || says("reset");
        // It hung up without a word that was heard.
        let is_left = is_closed && first.is_none();
        let is_encrypted = self.url.as_ref().is_some_and(|url| url.starts_with("https:"));
        let is_plain = self.url.as_ref().is_some_and(|url| url.starts_with("http:"));
        if is_refused && (is_encrypted || is_plain) {
            return Some(
                "nobody listens there: is it started, and is that its address?".to_owned(),
            );
        }
        // Or what came was no HTTP/2 at all, which is not what a server says of a request.
        let is_strange = first == Some(TLS_ALERT) || says("connection error detected");
        if is_plain && (is_left || is_strange) {
            return Some(
                "it answers nothing that is HTTP/2 in the clear: if it speaks TLS, its address \
                 begins with https://"
                    .to_owned(),
            );
        }
        if is_encrypted && says("received corrupt message") {
            return Some("it does not speak TLS: its address may begin with http://".to_owned());
        }
        if is_encrypted
            && (is_asked && is_left || ALERTS_OF_CERTIFICATES.iter().any(|alert| says(alert)))
        {
            let files = format!(
                "--client-cert and --client-key, or {CLIENT_CERT_VARIABLE} and {CLIENT_KEY_VARIABLE}"
            );
            return Some(match self.shows_certificate {
                true => format!(
                    "it refuses the certificate that it is shown ({files}): it must be \
                     one that an authority which the server trusts has signed, and still hold"
                ),
                false => {
                    format!("it asks for a certificate, and is shown none: give one ({files})")
                }
            });
        }
        let last = links.last()?.text.clone();
        if says("UnknownIssuer") {
            return Some(format!(
                "its certificate is signed by nobody who is trusted: give the file of its authority \
                 (--ca-file, or {CA_FILE_VARIABLE}): {last}"
            ));
        }
        Some(last)
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.url {
            Some(url) => write!(f, "server {url}"),
            None => f.write_str("the server"),
        }
    }
}

/// What was seen of the newest connection to a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard(Arc<Mutex<Seen>>);

#[derive(Clone, Debug, Default)]
struct Seen {
    /// The server wanted to see a certificate.
    is_asked: bool,
    /// The first byte that it said, behind the handshake if there is one.
    first: Option<u8>,
    /// How the connection broke.
    end: Option<String>,
}

impl Heard {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was seen of the connection before.
    pub(super) fn begin(&self) {
        *self.seen() = Seen::default();
    }

    /// How to make the next connection so that it is seen whether a certificate is asked for.
    pub(super) fn watch(&self, config: &ClientConfig) -> ClientConfig {
        let mut config = config.clone();
        let certificate = Arc::clone(&config.client_auth_cert_resolver);
        config.client_auth_cert_resolver = Arc::new(Asked { certificate, heard: self.clone() });
        config
    }

    /// Listens to a connection.
    pub(super) fn listen<S>(&self, stream: S) -> Overheard<S> {
        Overheard { stream, heard: self.clone(), has_read: false }
    }
}

/// What is shown to a server that asks for a certificate, and that it does.
#[derive(Debug)]
struct Asked {
    certificate: Arc<dyn ResolvesClientCert>,
    heard: Heard,
}

impl ResolvesClientCert for Asked {
    fn resolve(&self, issuers: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.heard.seen().is_asked = true;
        self.certificate.resolve(issuers, schemes)
    }

    fn has_certs(&self) -> bool {
        self.certificate.has_certs()
    }
}

/// A connection of which it is noted what was heard, and why it broke.
pub(super) struct Overheard<S> {
    stream: S,
    heard: Heard,
    has_read: bool,
}

impl<S: AsyncRead + Unpin> AsyncRead for Overheard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        match &read {
            Poll::Ready(Ok(())) if self.has_read => {}
            Poll::Ready(Ok(())) => {
                let first = buffer.filled().get(before).copied();
                self.has_read = first.is_some();
                self.heard.seen().first = first;
            }
            Poll::Ready(Err(error)) => self.heard.seen().end = Some(error.to_string()),
            Poll::Pending => {}
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Overheard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// How a server that speaks TLS begins to say that it understands nothing. HTTP/2 begins with the
/// length of a frame, which is never as large.
const TLS_ALERT: u8 = 0x15;

/// What a server says that refuses a certificate, or wants to see one.
const ALERTS_OF_CERTIFICATES: [&str; 7] = [
    "fatal alert: CertificateRequired",
    "fatal alert: BadCertificate",
    "fatal alert: UnknownCA",
    "fatal alert: CertificateUnknown",
    "fatal alert: CertificateExpired",
    "fatal alert: UnsupportedCertificate",
    "fatal alert: DecryptError",
];

/// An error below another.
struct Link {
    text: String,
    kind: Option<io::ErrorKind>,
}

/// An error, and all below it.
fn links(error: &(dyn StdError + 'static)) -> Vec<Link> {
    let mut links = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let of_system = error.downcast_ref::<io::Error>();
        links.push(Link { text: error.to_string(), kind: of_system.map(io::Error::kind) });
        // An error of the system does not call the one that it was made of its source.
        let inner = of_system.and_then(io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(url: &str, error: impl Into<Box<dyn StdError + Send + Sync>>) -> String {
        let status = Status::from_error(error.into());
        About::new(url, false, false).error(&status).to_string()
    }

    #[test]
    fn what_is_wrong_with_a_connection_is_told_with_the_server_and_the_remedy() {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let text = told("http://h:1", io::Error::new(io::ErrorKind::ConnectionRefused, refused()));
        assert!(text.contains("server http://h:1: nobody listens there"), "{text}");
        let alert = || io::Error::other("received fatal alert: CertificateRequired");
        let text = told("https://h:1", alert());
        assert!(text.contains("is shown none: give one (--client-cert"), "{text}");
        let shown = About::new("https://h:1", true, false);
        let text = shown.error(&Status::from_error(alert().into())).to_string();
        assert!(text.contains("it refuses the certificate that it is shown"), "{text}");
        let about = About::new("https://h:1", false, false);
        let closed = || Status::from_error(io::Error::other("connection closed").into());
        about.heard().seen().is_asked = true;
        let text = about.error(&closed()).to_string();
        assert!(text.contains("it asks for a certificate, and is shown none"), "{text}");
        about.heard().seen().first = Some(0);
        let text = about.error(&closed()).to_string();
        assert!(text.contains("server https://h:1: connection closed"), "{text}");
        for (first, is_tls) in [(None, true), (Some(TLS_ALERT), true), (Some(0), false)] {
            let about = About::new("http://h:1", false, false);
            about.heard().seen().first = first;
            let text = about.error(&closed()).to_string();
            assert_eq!(text.contains("if it speaks TLS, its address begins"), is_tls, "{text}");
        }
        let text = told("https://h:1", io::Error::other("invalid peer certificate: UnknownIssuer"));
        assert!(text.contains("(--ca-file, or WINDLASS_CA_FILE)"), "{text}");
        let text = told("https://h:1", io::Error::other("something else"));
        assert!(text.contains("server https://h:1: something else"), "{text}");
    }

    #[test]
    fn what_a_server_answers_is_told_as_it_is_but_for_a_token_that_nobody_gave() {
        let refused = Status::unauthenticated("show a token");
        let without = About::new("http://h:1", false, false).error(&refused).to_string();
        assert!(without.contains("--token-file <FILE>, or set WINDLASS_TOKEN_FILE"), "{without}");
        let with = About::new("http://h:1", false, true).error(&refused);
        assert_eq!(with, StoreError::Unauthenticated("show a token".into()));
        let gone = StoreError::Unavailable("the database is gone".into());
        let status = crate::wire::status_of_error(crate::wire::Wire::to_wire(&gone));
        assert_eq!(About::unknown().error(&status), gone);
        let early = About::new("http://h:1", false, true).error(&Status::unavailable("too many"));
        assert!(early.to_string().contains("server http://h:1: "), "{early}");
    }
}
