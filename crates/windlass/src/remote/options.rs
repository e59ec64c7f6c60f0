//! How a server is reached, and what it is shown.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use tonic::transport::Uri;
use windlass_core::Secret;

use super::token::Bearer;
use super::trouble::About;
use super::trust::Trust;
use crate::error::{Error, ErrorKind};
use crate::pem::{CertificateFiles, PemFile};

/// The variables that say how a server is reached, for programs as for the command line.
pub const TOKEN_VARIABLE: &str = "WINDLASS_TOKEN";
/// The file of a token.
pub const TOKEN_FILE_VARIABLE: &str = "WINDLASS_TOKEN_FILE";
/// The file of the authorities that are trusted.
pub const CA_FILE_VARIABLE: &str = "WINDLASS_CA_FILE";
/// The file of the certificate that is shown.
pub const CLIENT_CERT_VARIABLE: &str = "WINDLASS_CLIENT_CERT_FILE";
/// The file of its key.
pub const CLIENT_KEY_VARIABLE: &str = "WINDLASS_CLIENT_KEY_FILE";
/// Whether a token may cross a network in the clear.
pub const PLAINTEXT_TOKEN_VARIABLE: &str = "WINDLASS_ALLOW_PLAINTEXT_TOKEN";

/// How a server is reached, and what it is shown.
///
/// ```
/// use windlass::remote::RemoteOptions;
///
/// let options = RemoteOptions::new("https://windlass.example.com:7600")
///     .token_file("/run/secrets/windlass-token")
///     .ca_file("/etc/ssl/our-authority.pem");
/// ```
#[derive(Clone)]
pub struct RemoteOptions {
    urls: String,
    token: Option<TokenSource>,
    authority: Option<Authority>,
    certificate: Option<CertificateFiles>,
    allows_plaintext_token: bool,
}

/// Where a token comes from.
#[derive(Clone, Debug)]
pub(super) enum TokenSource {
    Given(Secret),
    File(PathBuf),
}

/// Whom to trust.
#[derive(Clone, Debug)]
pub(super) enum Authority {
    File(PathBuf),
    Given(PemFile),
}

impl<T: Into<String>> From<T> for RemoteOptions {
    /// The options of an address, with nothing else said.
    fn from(urls: T) -> Self {
        RemoteOptions::new(urls)
    }
}

impl RemoteOptions {
    /// The server at an address such as `https://windlass.example.com:7600`,
    /// `http://127.0.0.1:7600` or `unix:/run/windlass.sock`, or one of several with commas between
    /// their addresses. The addresses are looked at when they are used.
    pub fn new(urls: impl Into<String>) -> Self {
        RemoteOptions {
            urls: urls.into(),
            token: None,
            authority: None,
            certificate: None,
            allows_plaintext_token: false,
        }
    }

    /// Says who asks, with every call. Errors, logs and `Debug` do not show it.
    #[must_use]
    pub fn token(mut self, token: impl Into<Secret>) -> Self {
        self.token = Some(TokenSource::Given(token.into()));
        self
    }

    /// The same by a file that holds the token and nothing else. It is read again when it changes:
    /// write the new token, and take the old one's rights away a few seconds later.
    #[must_use]
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token = Some(TokenSource::File(path.into()));
        self
    }

    /// A file of certificates in PEM: a server must have one that they signed. Those of the
    /// authorities that the machine trusts if not said. It is read again for each connection.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.authority = Some(Authority::File(path.into()));
        self
    }

    /// The same as a text.
    #[must_use]
    pub fn ca_pem(mut self, text: &str) -> Self {
        self.authority = Some(Authority::Given(PemFile::given("the authority", text)));
        self
    }

    /// The files of a certificate and its key in PEM that are shown to a server that asks for one.
    /// They are read again for each connection. Only the owner and the group of the key may open
    /// it.
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let (certificate, key) = (certificate.into(), key.into());
        self.certificate = Some(CertificateFiles { certificate, key });
        self
    }

    /// Whether a token may be sent to another machine by `http://`; no if not said. Only for where
    /// something else encrypts what is sent, such as the proxy of a mesh.
    #[must_use]
    pub fn allow_plaintext_token(mut self, allows: bool) -> Self {
        self.allows_plaintext_token = allows;
        self
    }

    /// The server at an address, with what the environment says of how to reach it:
    /// `WINDLASS_TOKEN` or `WINDLASS_TOKEN_FILE`, `WINDLASS_CA_FILE`, `WINDLASS_CLIENT_CERT_FILE`
    /// with `WINDLASS_CLIENT_KEY_FILE`, and `WINDLASS_ALLOW_PLAINTEXT_TOKEN` (`true` or `false`).
    /// What is set to nothing is not set.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if a variable is not UTF-8, if there are two tokens, or a
    /// certificate without its key.
    pub fn from_env(urls: impl Into<String>) -> Result<Self, Error> {
        RemoteOptions::from_variables(urls, |name| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(refuse(format!("the variable {name} is not UTF-8")))
            }
        })
    }

    fn from_variables(
        urls: impl Into<String>,
        variable: impl Fn(&str) -> Result<Option<String>, Error>,
    ) -> Result<Self, Error> {
        let said = |name: &str| -> Result<Option<String>, Error> {
            Ok(variable(name)?.filter(|value| !value.is_empty()))
        };
        let mut options = RemoteOptions::new(urls);
        options = match (said(TOKEN_VARIABLE)?, said(TOKEN_FILE_VARIABLE)?) {
            (Some(_), Some(_)) => {
                let both = format!("{TOKEN_VARIABLE} and {TOKEN_FILE_VARIABLE}");
                return Err(refuse(format!("{both} are both set; leave one of them out")));
            }
            (Some(token), None) => options.token(token),
            (None, Some(file)) => options.token_file(file),
            (None, None) => options,
        };
        if let Some(file) = said(CA_FILE_VARIABLE)? {
            options = options.ca_file(file);
        }
        options = match (said(CLIENT_CERT_VARIABLE)?, said(CLIENT_KEY_VARIABLE)?) {
            (Some(certificate), Some(key)) => options.client_certificate(certificate, key),
            (None, None) => options,
            (Some(_), None) | (None, Some(_)) => {
                let both = format!("{CLIENT_CERT_VARIABLE} and {CLIENT_KEY_VARIABLE}");
                return Err(refuse(format!("only one of {both} is set, and both are needed")));
            }
        };
        match said(PLAINTEXT_TOKEN_VARIABLE)?.as_deref() {
            None | Some("false") => Ok(options),
            Some("true") => Ok(options.allow_plaintext_token(true)),
            Some(other) => {
                let text = format!("{PLAINTEXT_TOKEN_VARIABLE} is {other:?}, not true or false");
                Err(refuse(text))
            }
        }
    }

    /// The addresses.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.urls.split(',')
    }

    /// What is said of the server at an address.
    pub(super) fn about(&self, url: &str) -> About {
        About::new(url, self.certificate.is_some(), self.token.is_some())
    }

    /// What calls carry.
    pub(super) fn bearer(&self) -> Result<Bearer, Error> {
        Bearer::new(self.token.as_ref())
    }

    /// Whom connections trust, and what they show.
    pub(super) fn trust(&self) -> Result<Trust, Error> {
        Trust::new(self.authority.clone(), self.certificate.clone())
    }

    /// Refuses to send a token to another machine in the clear.
    pub(super) fn check_plaintext(&self, uri: &Uri) -> Result<(), Error> {
        let is_clear = uri.scheme_str() != Some("https");
        let is_refused = self.token.is_some() && is_clear && !self.allows_plaintext_token;
        if !is_refused || uri.host().is_some_and(is_loopback) {
            return Ok(());
        }
        let address = uri.to_string();
        Err(refuse(format!(
            "a token is not sent to {address:?} in the clear: use https://, or, if something else \
             encrypts what is sent, allow it with --allow-plaintext-token, \
             {PLAINTEXT_TOKEN_VARIABLE}=true or `RemoteOptions::allow_plaintext_token`"
        )))
    }
}

impl fmt::Debug for RemoteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteOptions")
            .field("urls", &self.urls)
            .field("token", &self.token)
            .field("authority", &self.authority)
            .field("certificate", &self.certificate)
            .field("allows_plaintext_token", &self.allows_plaintext_token)
            .finish()
    }
}

/// Whether a host is this machine by its name alone: nobody is asked.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match address {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

fn refuse(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Argument, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(variables: &[(&str, &str)]) -> Result<RemoteOptions, Error> {
        RemoteOptions::from_variables("https://h", |name| {
            let found = variables.iter().find(|(it, _)| *it == name);
            Ok(found.map(|(_, value)| (*value).to_owned()))
        })
    }

    #[test]
    fn a_token_goes_to_other_machines_only_where_it_is_hidden() {
        let with_token = |url: &str| RemoteOptions::new(url).token("SECRET");
        let check = |options: &RemoteOptions, url: &str| {
            options.check_plaintext(&url.parse().expect("it is an address"))
        };
        let near = ["http://localhost:1", "http://LOCALHOST", "http://127.8.9.1", "http://[::1]:1"];
        for url in near.into_iter().chain(["https://h", "https://192.0.2.1"]) {
            check(&with_token(url), url).expect(url);
        }
        for url in [
            "http://h",
            "http://192.0.2.1:1",
            "http://[2001:db8::1]",
            "http://localhost.example.com",
            "http://127.0.0.1.example.com",
            "http://0.0.0.0",
        ] {
            let error = check(&with_token(url), url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Argument);
            let text = error.to_string();
            assert!(text.contains("in the clear") && !text.contains("SECRET"), "{text}");
            check(&RemoteOptions::new(url), url).expect("there is no token");
            check(&with_token(url).allow_plaintext_token(true), url).expect("it is allowed");
        }
    }

    #[test]
    fn what_the_environment_says_is_complete_or_refused() {
        let all = [
            (TOKEN_FILE_VARIABLE, "/t"),
            (TOKEN_VARIABLE, ""),
            (CA_FILE_VARIABLE, "/ca"),
            (CLIENT_CERT_VARIABLE, "/c"),
            (CLIENT_KEY_VARIABLE, "/k"),
            (PLAINTEXT_TOKEN_VARIABLE, "true"),
        ];
        let shown = format!("{:?}", options(&all).expect("it is complete"));
        for part in ["File(\"/t\")", "\"/ca\"", "\"/c\"", "\"/k\"", "token: true"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        for (variables, why) in [
            (&[(TOKEN_VARIABLE, "SECRET"), (TOKEN_FILE_VARIABLE, "/t")][..], "are both set"),
            (&[(CLIENT_CERT_VARIABLE, "/c")], "both are needed"),
            (&[(CLIENT_KEY_VARIABLE, "/k")], "both are needed"),
            (&[(PLAINTEXT_TOKEN_VARIABLE, "yes")], "not true or false"),
        ] {
            let error = options(variables).expect_err(why).to_string();
            assert!(error.contains(why) && !error.contains("SECRET"), "{error}");
        }
    }

    #[test]
    fn options_do_not_show_the_token() {
        let options = options(&[(TOKEN_VARIABLE, "SECRET")]).expect("it is a token");
        let shown = format!("{options:?} {:?}", options.bearer().expect("it is a token"));
        assert!(!shown.contains("SECRET") && shown.contains("***"), "{shown}");
    }
}
