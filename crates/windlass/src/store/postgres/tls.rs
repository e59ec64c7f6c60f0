//! Encrypted connections, by rustls.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

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
    /// Reads the authorities, from a file or those of the machine, if they are needed.
    pub(super) fn new(verify: Verify, root: Option<&str>, is_used: bool) -> Result<Tls, Error> {
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
                    .map_err(|error| refuse(root, &error.to_string()))?
            }
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refuse(root, &error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Tls(MakeRustlsConnect::new(config)))
    }
}

fn refuse(root: Option<&str>, why: &str) -> Error {
    let text = match root {
        Some(path) => format!("sslrootcert {path:?} cannot be used: {why}"),
        None => format!("the authorities that this machine trusts cannot be used: {why}"),
    };
    Error::new(ErrorKind::Argument, text)
}

fn authorities(root: Option<&str>) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    match root {
        // The word of libpq for the authorities of the machine.
        None | Some("system") => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            if let (true, Some(error)) = (store.is_empty(), found.errors.first()) {
                return Err(refuse(None, &error.to_string()));
            }
        }
        Some(path) => {
            let certificates = CertificateDer::pem_file_iter(path)
                .map_err(|error| refuse(root, &error.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| refuse(root, &error.to_string()))?;
                store.add(certificate).map_err(|error| refuse(root, &error.to_string()))?;
            }
        }
    }
    if store.is_empty() {
        return Err(refuse(root, "there are none"));
    }
    Ok(store)
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
