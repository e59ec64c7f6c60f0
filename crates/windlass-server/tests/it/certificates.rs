//! Authorities and certificates of tests, in files that are gone with them.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use windlass_server::TlsOptions;

/// An authority of a test's own.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for these names.
    pub(crate) fn sign(&self, names: &[&str]) -> Signed {
        self.sign_until(names, 4_000)
    }

    /// One that is valid until a year.
    pub(crate) fn sign_until(&self, names: &[&str], year: i32) -> Signed {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        Signed { certificate, key: key.serialize_pem() }
    }
}

/// A directory that is gone with the test.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-tls-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file, with what was there before gone at once.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, fresh) = (self.path(name), self.path("fresh"));
        std::fs::write(&fresh, text).unwrap();
        close(&fresh);
        std::fs::rename(&fresh, &path).unwrap();
        path
    }

    /// Writes a certificate and its key, and answers where a server finds them.
    pub(crate) fn write_server(&self, signed: &Signed) -> TlsOptions {
        let key = self.write("server.key", &signed.key);
        TlsOptions::new(self.write("server.pem", &signed.certificate), key)
    }
}

#[cfg(unix)]
fn close(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;

    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[cfg(not(unix))]
fn close(_: &Path) {}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A client that trusts an authority, shows a certificate if it has one, and speaks these protocols.
pub(crate) fn client(
    authority: &Authority,
    shown: Option<&Signed>,
    protocols: &[&str],
) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    let pem = authority.pem();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match shown {
        None => builder.with_no_client_auth(),
        Some(Signed { certificate, key }) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// Shakes hands with the server at an address by the name `localhost`.
pub(crate) async fn shake(
    connector: &TlsConnector,
    stream: TcpStream,
) -> std::io::Result<TlsStream<TcpStream>> {
    connector.connect(ServerName::try_from("localhost").unwrap(), stream).await
}
