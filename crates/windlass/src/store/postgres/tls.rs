//! Encrypted connections, by rustls.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::pem::{self, CertificateFiles, PemError, PemFile, Privacy};
use crate::{Error, ErrorKind};

/// What of a server's certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verify {
    /// That it has one.
    Nothing,
    /// That an authority we trust has signed it.
    Authority,
    /// That it is also for the host we asked for.
    AuthorityAndHost,
}

/// How connections are encrypted, if they are.
#[derive(Clone)]
pub(super) struct Tls(pub(super) MakeRustlsConnect);

impl Tls {
    /// Reads the authorities, from a file or those of the machine, and the certificate that is
    /// shown to a server that asks for one, if they are needed.
    pub(super) fn new(
        verify: Verify,
        root: Option<&str>,
        shown: Option<&CertificateFiles>,
        is_used: bool,
    ) -> Result<Tls, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verify = if is_used { verify } else { Verify::Nothing };
        let verifier: Arc<dyn ServerCertVerifier> = match verify {
            Verify::Nothing => Arc::new(AnyHost { authorities: None, provider: provider.clone() }),
            Verify::Authority => {
                let authorities = Some(authorities(root)?);
                Arc::new(AnyHost { authorities, provider: provider.clone() })
            }
            Verify::AuthorityAndHost => {
                let authorities = Arc::new(authorities(root)?);
                WebPkiServerVerifier::builder_with_provider(authorities, provider.clone())
                    .build()
                    .map_err(|error| refuse("sslrootcert", error))?
            }
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refuse("sslmode", error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match shown.filter(|_| is_used) {
            None => builder.with_no_client_auth(),
            Some(CertificateFiles { certificate, key }) => {
                let unfit = |error: PemError| refuse("sslcert", error);
                let certificate = PemFile::read(certificate).map_err(unfit)?;
                let certificates = certificate.certificates().map_err(unfit)?;
                let key = PemFile::read_private(key, Privacy::Owner).and_then(|file| file.key());
                let key = key.map_err(|error| refuse("sslkey", error))?;
                builder
                    .with_client_auth_cert(certificates, key)
                    .map_err(|error| unfit(certificate.refuse(error.to_string())))?
            }
        };
        Ok(Tls(MakeRustlsConnect::new(config)))
    }
}

fn refuse(option: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Argument, format!("{option}: {why}"))
}

fn authorities(root: Option<&str>) -> Result<RootCertStore, Error> {
    let read = match root {
        // The word of libpq for the authorities of the machine.
        None | Some("system") => pem::authorities_of_machine(),
        Some(path) => PemFile::read(Path::new(path)).and_then(|file| file.authorities()),
    };
    read.map_err(|error| refuse("sslrootcert", error))
}

/// Looks at less of a certificate than the usual: not at the host, and without
/// authorities not at who signed it either. `sslmode=require` keeps out those who
/// listen, not those who pretend.
#[derive(Debug)]
struct AnyHost {
    authorities: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyHost {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(authorities) = &self.authorities {
            verify_server_cert_signed_by_trust_anchor(
                &ParsedCertificate::try_from(certificate)?,
                authorities,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
