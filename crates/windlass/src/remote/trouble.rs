//! What is wrong with a connection to a server, in words that name the server and say what to do.
//!
//! What gRPC says of it is that there is an error of transport. What it was is in the errors below
//! that, some of which are texts by then.

use std::error::Error as StdError;
use std::{fmt, io};

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
}

impl About {
    /// A server at an address, and what it is shown.
    pub(super) fn new(url: &str, shows_certificate: bool, shows_token: bool) -> Self {
        About { url: Some(url.to_owned()), shows_certificate, shows_token }
    }

    /// A server at the other end of a connection that is there.
    pub(super) fn unknown() -> Self {
        About { url: None, shows_certificate: false, shows_token: false }
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
        let says = |part: &str| links.iter().any(|link| link.text.contains(part));
        let is_encrypted = self.url.as_ref().is_some_and(|url| url.starts_with("https:"));
        let is_plain = self.url.as_ref().is_some_and(|url| url.starts_with("http:"));
        if is_refused && (is_encrypted || is_plain) {
            return Some(
                "nobody listens there: is it started, and is that its address?".to_owned(),
            );
        }
        if is_plain && (says("http2 error") || says("h2 protocol error")) {
            return Some(
                "it does not speak HTTP/2 in the clear: if it speaks TLS, its address begins with \
                 https://"
                    .to_owned(),
            );
        }
        if is_encrypted && says("received corrupt message") {
            return Some("it does not speak TLS: its address may begin with http://".to_owned());
        }
        if is_encrypted && ALERTS_OF_CERTIFICATES.iter().any(|alert| says(alert)) {
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
