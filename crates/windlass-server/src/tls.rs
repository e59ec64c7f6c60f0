//! TLS at the server's addresses: its certificate, whom it lets in by theirs, and how both change
//! while it serves.
//!
//! Who makes a request is decided in [`identity`](crate::identity): a client certificate opens the
//! door, and says nothing about what may be done behind it.

mod peer;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use windlass::pem::{PemError, PemFile, Privacy};

pub(crate) use peer::PeerCertificate;

/// What is spoken behind the handshake, the one that is preferred first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// How often the files are looked at if nothing else is said.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Which files TLS is made of.
///
/// ```
/// use windlass_server::TlsOptions;
///
/// let options = TlsOptions::new("/etc/windlass/server.pem", "/etc/windlass/server.key")
///     .client_authority("/etc/windlass/clients.pem");
/// ```
#[derive(Clone, Debug)]
pub struct TlsOptions {
    certificate: PathBuf,
    key: PathBuf,
    client_authority: Option<PathBuf>,
    look_every: Duration,
}

impl TlsOptions {
    /// The file of the certificate, with those of the authorities between it and one that clients
    /// trust, and the file of its key, which only its owner and group may open. Both are PEM.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        TlsOptions {
            certificate: certificate.into(),
            key: key.into(),
            client_authority: None,
            look_every: LOOK_EVERY,
        }
    }

    /// Lets in only clients with a certificate that an authority of this file has signed; everyone
    /// if not said. It does not replace tokens.
    #[must_use]
    pub fn client_authority(mut self, file: impl Into<PathBuf>) -> Self {
        self.client_authority = Some(file.into());
        self
    }

    /// How often a server looks whether the files have changed; every 5 s if not said.
    #[must_use]
    pub fn look_every(mut self, interval: Duration) -> Self {
        self.look_every = interval;
        self
    }
}

/// Why there is no TLS; the file is named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct TlsError(#[from] PemError);

/// The certificate of a server and whom it lets in, as the files said when they were last read.
/// Clones share what was read.
#[derive(Clone)]
pub struct Tls(Arc<Shared>);

struct Shared {
    options: TlsOptions,
    state: Mutex<State>,
}

struct State {
    files: Files,
    config: Arc<ServerConfig>,
    /// Why what the files say now is not used; said once.
    refused: Option<TlsError>,
}

/// What the files say.
#[derive(PartialEq, Eq)]
struct Files {
    certificate: PemFile,
    key: PemFile,
    client_authority: Option<PemFile>,
}

impl Tls {
    /// Reads the files. A certificate that has expired is used, with a warning.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read or is not what it should be, if others may open that
    /// of the key, or if the key is not that of the certificate.
    pub fn load(options: TlsOptions) -> Result<Self, TlsError> {
        let files = Files::read(&options)?;
        let config = files.config()?;
        let state = Mutex::new(State { files, config, refused: None });
        Ok(Tls(Arc::new(Shared { options, state })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the files again; answers whether they have changed. Who connects from now on is shown
    /// the new certificate, and who is connected stays. What cannot be used is logged once, and
    /// what was read before stays in use. Blocks while it reads.
    ///
    /// # Errors
    ///
    /// As [`Tls::load`].
    pub fn reload(&self) -> Result<bool, TlsError> {
        let read = Files::read(&self.0.options);
        let mut state = self.state();
        if read.as_ref().is_ok_and(|files| *files == state.files) {
            state.refused = None;
            return Ok(false);
        }
        let read = read.and_then(|files| Ok((files.config()?, files)));
        match read {
            Ok((config, files)) => {
                *state = State { files, config, refused: None };
                tracing::info!(certificate = ?self.0.options.certificate, "certificate was renewed");
                Ok(true)
            }
            Err(error) => {
                if state.refused.as_ref() != Some(&error) {
                    tracing::error!(%error, "the certificate that was read before stays in use");
                    state.refused = Some(error.clone());
                }
                Err(error)
            }
        }
    }

    /// Looks at the files for as long as it is polled.
    pub(crate) async fn watch(&self) {
        loop {
            tokio::time::sleep(self.0.options.look_every).await;
            let tls = self.clone();
            // What went wrong is in the log.
            let _ = tokio::task::spawn_blocking(move || tls.reload()).await;
        }
    }

    /// Shakes hands on a stream.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> std::io::Result<TlsStream<S>> {
        let config = Arc::clone(&self.state().config);
        TlsAcceptor::from(config).accept(stream).await
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.0.options).finish()
    }
}

impl Files {
    fn read(options: &TlsOptions) -> Result<Self, TlsError> {
        let client_authority =
            options.client_authority.as_deref().map(PemFile::read).transpose()?;
        Ok(Files {
            certificate: PemFile::read(&options.certificate)?,
            key: PemFile::read_private(&options.key, Privacy::Group)?,
            client_authority,
        })
    }

    fn config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let certificates = self.certificate.certificates()?;
        let key = self.key.key()?;
        let provider = Arc::new(ring::default_provider());
        let unfit = |error: rustls::Error| TlsError(self.certificate.refuse(error.to_string()));
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(unfit)?;
        let builder = match &self.client_authority {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let authorities = Arc::new(file.authorities()?);
                let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider);
                let verifier = verifier.build().map_err(|error| file.refuse(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        self.warn_if_expired(&certificates[0]);
        let mut config = builder.with_single_cert(certificates, key).map_err(|error| {
            if let rustls::Error::InconsistentKeys(_) = error {
                return TlsError(self.key.refuse("its key is not that of the certificate"));
            }
            unfit(error)
        })?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        // Nobody comes back by what they were told earlier: an authority that is taken away counts
        // for every connection from then on, and connections last.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    fn warn_if_expired(&self, certificate: &[u8]) {
        if let Some(ended) = peer::ends_at(certificate).filter(|end| *end < SystemTime::now()) {
            let ago = ended.elapsed().unwrap_or_default();
            let certificate = &self.certificate;
            tracing::warn!(?certificate, ?ago, "the certificate has expired: clients refuse it");
        }
    }
}
