//! Servers that are reached by TLS: whom to believe, and what to show them.
//!
//! The connector is ours and not tonic's, so that files are read again for each connection and
//! errors name the file.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};

use super::options::Authority;
use super::tcp::Place;
use super::trouble::Heard;
use crate::error::{Error, ErrorKind};
use crate::pem::{CertificateFiles, PemError, PemFile, Privacy, authorities_of_machine};

/// What is spoken behind the handshake: gRPC needs it.
const PROTOCOL: &[u8] = b"h2";

/// The port of `https` where an address has none.
const PORT: u16 = 443;

/// Whom connections trust, and what they show.
pub(super) struct Trust {
    authority: Option<Authority>,
    certificate: Option<CertificateFiles>,
    state: Mutex<State>,
}

struct State {
    files: Files,
    config: Arc<ClientConfig>,
    /// Why what the files say now is not used; said once.
    refused: Option<PemError>,
}

/// What the files say.
#[derive(PartialEq, Eq)]
struct Files {
    authority: Option<PemFile>,
    certificate: Option<(PemFile, PemFile)>,
}

impl Trust {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for a file that is not what it should be.
    pub(super) fn new(
        authority: Option<Authority>,
        certificate: Option<CertificateFiles>,
    ) -> Result<Self, Error> {
        let read = || {
            let files = Files::read(authority.as_ref(), certificate.as_ref())?;
            Ok((files.config()?, files))
        };
        let refused = |error: PemError| Error::new(ErrorKind::Argument, error.to_string());
        let (config, files) = read().map_err(refused)?;
        let state = Mutex::new(State { files, config, refused: None });
        Ok(Trust { authority, certificate, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the next connection is made: as the files say now, or as they said when they could last
    /// be used. Blocks while it reads.
    fn config(&self) -> Arc<ClientConfig> {
        let read = Files::read(self.authority.as_ref(), self.certificate.as_ref());
        let mut state = self.state();
        if read.as_ref().is_ok_and(|files| *files == state.files) {
            state.refused = None;
            return Arc::clone(&state.config);
        }
        match read.and_then(|files| Ok((files.config()?, files))) {
            Ok((config, files)) => *state = State { files, config, refused: None },
            Err(error) => {
                if state.refused.as_ref() != Some(&error) {
                    tracing::warn!(%error, "what was read before stays in use");
                    state.refused = Some(error);
                }
            }
        }
        Arc::clone(&state.config)
    }
}

impl Files {
    fn read(
        authority: Option<&Authority>,
        certificate: Option<&CertificateFiles>,
    ) -> Result<Self, PemError> {
        let authority = match authority {
            None => None,
            Some(Authority::File(path)) => Some(PemFile::read(path)?),
            Some(Authority::Given(file)) => Some(file.clone()),
        };
        let certificate = match certificate {
            None => None,
            Some(CertificateFiles { certificate, key }) => {
                let key = PemFile::read_private(key, Privacy::Group)?;
                Some((PemFile::read(certificate)?, key))
            }
        };
        Ok(Files { authority, certificate })
    }

    fn config(&self) -> Result<Arc<ClientConfig>, PemError> {
        let authorities = match &self.authority {
            Some(file) => file.authorities()?,
            None => authorities_of_machine()?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("ring has ciphers for both versions")
            .with_root_certificates(authorities);
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let unfit = |error: rustls::Error| {
                    if let rustls::Error::InconsistentKeys(_) = error {
                        return key.refuse("its key is not that of the certificate");
                    }
                    certificate.refuse(error.to_string())
                };
                let builder =
                    builder.with_client_auth_cert(certificate.certificates()?, key.key()?);
                builder.map_err(unfit)?
            }
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Arc::new(config))
    }
}

/// A connection by TLS to the server at an address, made when it is needed.
pub(super) fn channel(uri: &Uri, endpoint: Endpoint, trust: Arc<Trust>, heard: Heard) -> Channel {
    let place = Place::of(uri, PORT);
    let connect = move |_| {
        let (trust, place, heard) = (Arc::clone(&trust), place.clone(), heard.clone());
        async move {
            heard.begin();
            let stream = connect(trust, &heard, &place).await?;
            io::Result::Ok(TokioIo::new(heard.listen(stream)))
        }
    };
    // tonic would want to encrypt what is encrypted already.
    endpoint.connect_with_connector_lazy(tower::service_fn(connect))
}

async fn connect(
    trust: Arc<Trust>,
    heard: &Heard,
    place: &Place,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let config = tokio::task::spawn_blocking(move || trust.config()).await?;
    let name = ServerName::try_from(place.host.to_string());
    let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let stream = place.connect().await?;
    let config = Arc::new(heard.watch(&config));
    let stream = TlsConnector::from(config).connect(name, stream).await?;
    if stream.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
        let why = "it does not speak HTTP/2 by TLS";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(stream)
}
