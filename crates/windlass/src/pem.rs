//! Certificates and keys in PEM, read from files, with errors that name the file.
//!
//! What they are good for is decided elsewhere: by the connections to a database and to a server,
//! and by the server.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use windlass_core::Secret;

/// The most bytes of a file of certificates or of a key.
pub const PEM_BYTES_MAX: u64 = 1 << 20;

/// What a file holds, as it was when it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct PemFile {
    /// What people call it.
    name: String,
    bytes: Vec<u8>,
}

/// Who may open the file of a key besides its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privacy {
    /// Anyone: it holds nothing secret.
    Open,
    /// The users of its group.
    Group,
    /// Nobody, or, if it belongs to root, the users of its group who may read it: what libpq asks
    /// for.
    Owner,
}

/// Why a file of certificates or of a key is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} cannot be used: {why}")]
pub struct PemError {
    name: String,
    why: String,
}

impl PemFile {
    /// Reads a file of certificates.
    ///
    /// # Errors
    ///
    /// If it cannot be read or is too large.
    pub fn read(path: &Path) -> Result<Self, PemError> {
        PemFile::read_private(path, Privacy::Open)
    }

    /// Reads a file that no others may read than it is said here.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is too large, or others may open it.
    pub fn read_private(path: &Path, privacy: Privacy) -> Result<Self, PemError> {
        let name = format!("file {path:?}");
        let read = || -> io::Result<Vec<u8>> {
            let file = File::open(path)?;
            let about = file.metadata()?;
            if let Some(why) = too_open(&about, privacy) {
                return Err(io::Error::other(why));
            }
            if about.len() > PEM_BYTES_MAX {
                return Err(io::Error::other(format!("it has more than {PEM_BYTES_MAX} bytes")));
            }
            let mut bytes = Vec::new();
            file.take(PEM_BYTES_MAX).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Ok(PemFile { name, bytes }),
            Err(error) => Err(PemError { name, why: error.to_string() }),
        }
    }

    /// What was given as text, with what people call it.
    pub fn given(name: &str, text: &str) -> Self {
        PemFile { name: name.to_owned(), bytes: text.as_bytes().to_vec() }
    }

    /// An error about it.
    pub fn refuse(&self, why: impl Into<String>) -> PemError {
        PemError { name: self.name.clone(), why: why.into() }
    }

    /// The certificates in it, in their order.
    ///
    /// # Errors
    ///
    /// If there are none, or one cannot be read.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, PemError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let found = found.map_err(|error| self.refuse(error.to_string()))?;
        if found.is_empty() { Err(self.lacks("certificate")) } else { Ok(found) }
    }

    /// The certificates in it, as authorities that are trusted.
    ///
    /// # Errors
    ///
    /// If there are none, or one cannot be read.
    pub fn authorities(&self) -> Result<RootCertStore, PemError> {
        let mut store = RootCertStore::empty();
        for certificate in self.certificates()? {
            store.add(certificate).map_err(|error| self.refuse(error.to_string()))?;
        }
        Ok(store)
    }

    /// The private key in it.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot be read without a password.
    pub fn key(&self) -> Result<PrivateKeyDer<'static>, PemError> {
        let is_locked = self.contains(b"ENCRYPTED PRIVATE KEY") || self.contains(b"Proc-Type: 4,");
        if is_locked {
            return Err(self.refuse("its key has a password, and one without is needed"));
        }
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| {
            if let pem::Error::NoItemsFound = error {
                return self.lacks("private key");
            }
            self.refuse(error.to_string())
        })
    }

    /// All of it, without the space around it: what a file holds that is no PEM, such as a token.
    ///
    /// # Errors
    ///
    /// If it is not UTF-8.
    pub fn text(&self) -> Result<Secret, PemError> {
        let text = std::str::from_utf8(&self.bytes).map_err(|_| self.refuse("it is not UTF-8"))?;
        Ok(Secret::from(text.trim()))
    }

    fn lacks(&self, what: &str) -> PemError {
        match self.contains(b"-----BEGIN ") {
            true => self.refuse(format!("there is no {what} in it")),
            false => self.refuse("it is not PEM"),
        }
    }

    fn contains(&self, text: &[u8]) -> bool {
        self.bytes.windows(text.len()).any(|window| window == text)
    }
}

impl fmt::Debug for PemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may hold a key.
        f.debug_struct("PemFile").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The authorities that this machine trusts.
///
/// # Errors
///
/// If there are none, or none that can be read.
pub fn authorities_of_machine() -> Result<RootCertStore, PemError> {
    let mut store = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    store.add_parsable_certificates(found.certs);
    if !store.is_empty() {
        return Ok(store);
    }
    let why = found.errors.first().map_or_else(|| "there are none".to_owned(), |it| it.to_string());
    Err(PemError { name: "the authorities that this machine trusts".to_owned(), why })
}

/// A certificate with its key, which are two files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The file of the certificate, with those of the authorities between it and one that is
    /// trusted.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
}

/// What is wrong with how open a file is.
#[cfg(unix)]
pub(crate) fn too_open(about: &Metadata, privacy: Privacy) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;

    let forbidden = match privacy {
        Privacy::Open => 0,
        Privacy::Group => 0o007,
        Privacy::Owner if about.uid() == 0 => 0o037,
        Privacy::Owner => 0o077,
    };
    let mode = about.mode() & 0o777;
    let wanted = mode & !forbidden;
    (mode & forbidden != 0)
        .then(|| format!("others may open it (mode {mode:04o}): change that to {wanted:04o}"))
}

#[cfg(not(unix))]
pub(crate) fn too_open(_: &Metadata, _: Privacy) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_name() {
        let file = |text: &str| PemFile::given("file \"a.pem\"", text);
        let begin = "-----BEGIN CERTIFICATE-----\n";
        for (text, why) in [
            ("", "it is not PEM"),
            ("\u{30}\u{2}", "it is not PEM"),
            ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "no certificate"),
            (begin, "section end"),
            (&format!("{begin}!!!!\n-----END CERTIFICATE-----\n"), "base64"),
        ] {
            let error = file(text).certificates().expect_err(text).to_string();
            assert!(error.starts_with("file \"a.pem\" cannot be used: "), "{error}");
            assert!(error.contains(why), "{text:?}: {error}");
        }
        let locked =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let error = file(locked).key().expect_err("it has a password").to_string();
        assert!(error.contains("has a password"), "{error}");
        let certificate = format!("{begin}AAAA\n-----END CERTIFICATE-----\n");
        let error = file(&certificate).key().expect_err("it is none").to_string();
        assert!(error.contains("there is no private key in it"), "{error}");
        assert!(file(&certificate).authorities().is_err(), "it is no certificate");
        let error = PemFile::read(Path::new("/no/file")).expect_err("it is not there").to_string();
        assert!(error.starts_with("file \"/no/file\" cannot be used: No such file"), "{error}");
    }

    #[test]
    fn what_is_in_a_file_is_not_shown() {
        let shown = format!("{:?}", PemFile::given("a key", "SECRET"));
        assert!(!shown.contains("SECRET") && shown.contains("a key"), "{shown}");
    }

    #[test]
    #[cfg(unix)]
    fn a_key_that_others_may_open_is_refused() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

        let path = std::env::temp_dir().join(format!("windlass-pem-{}.key", std::process::id()));
        std::fs::write(&path, "dear").expect("it can be written");
        let is_root = std::fs::metadata(&path).expect("it is there").uid() == 0;
        let read = |mode: u32, privacy| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("it is ours");
            PemFile::read_private(&path, privacy).map(drop)
        };
        assert!(read(0o600, Privacy::Group).is_ok() && read(0o640, Privacy::Group).is_ok());
        let error = read(0o644, Privacy::Group).expect_err("everyone may").to_string();
        assert!(error.contains("(mode 0644): change that to 0640"), "{error}");
        assert!(read(0o644, Privacy::Open).is_ok() && read(0o600, Privacy::Owner).is_ok());
        assert_eq!(read(0o640, Privacy::Owner).is_ok(), is_root);
        assert!(read(0o660, Privacy::Owner).is_err() && read(0o604, Privacy::Owner).is_err());
        std::fs::remove_file(&path).expect("it is ours");
    }
}
