//! Whom a certificate is for.

use std::time::SystemTime;

use x509_cert::Certificate;
use x509_cert::attr::AttributeValue;
use x509_cert::der::asn1::{ObjectIdentifier, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::{Decode as _, Tag, Tagged as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// The attribute of a subject that holds its common name.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The most characters of a subject that are told.
const SUBJECT_CHARS_MAX: usize = 200;

/// The certificate by which a client was let in.
///
/// It was signed by an authority of the server's, which vouches for its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerCertificate {
    subject: String,
}

impl PeerCertificate {
    /// Whom it is for: its first alternative name that is a URI, a DNS name or an address of mail,
    /// its common name if it has none of those, and nothing if it has neither. Characters that
    /// steer a terminal are left out.
    pub(crate) fn subject(&self) -> &str {
        &self.subject
    }

    /// Of a certificate that was verified.
    pub(crate) fn read(der: &[u8]) -> Self {
        let found = Certificate::from_der(der).ok().and_then(|it| subject(&it)).unwrap_or_default();
        let subject = found.chars().filter(|it| !it.is_control()).take(SUBJECT_CHARS_MAX).collect();
        PeerCertificate { subject }
    }
}

/// When a certificate ends to be valid, if it can be read.
pub(super) fn ends_at(der: &[u8]) -> Option<SystemTime> {
    let certificate = Certificate::from_der(der).ok()?;
    Some(certificate.tbs_certificate.validity.not_after.to_system_time())
}

fn subject(certificate: &Certificate) -> Option<String> {
    let about = &certificate.tbs_certificate;
    let alternative = about.get::<SubjectAltName>().ok().flatten();
    let names = alternative.map(|(_, SubjectAltName(names))| names).unwrap_or_default();
    let name = names.iter().find_map(|name| match name {
        GeneralName::Rfc822Name(name)
        | GeneralName::DnsName(name)
        | GeneralName::UniformResourceIdentifier(name) => Some(name.to_string()),
        GeneralName::OtherName(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EdiPartyName(_)
        | GeneralName::IpAddress(_)
        | GeneralName::RegisteredId(_) => None,
    });
    let common = || {
        let mut attributes = about.subject.0.iter().flat_map(|attributes| attributes.0.iter());
        let found = attributes.find(|attribute| attribute.oid == COMMON_NAME)?;
        text(&found.value)
    };
    name.or_else(common)
}

fn text(value: &AttributeValue) -> Option<String> {
    let tag = value.tag();
    let text = if tag == Tag::Utf8String {
        Utf8StringRef::try_from(value).ok()?.to_string()
    } else if tag == Tag::PrintableString {
        PrintableStringRef::try_from(value).ok()?.to_string()
    } else {
        TeletexStringRef::try_from(value).ok()?.to_string()
    };
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    fn read(names: Vec<SanType>, common: Option<&str>) -> String {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = names;
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(common) = common {
            params.distinguished_name.push(DnType::OrganizationName, "acme");
            params.distinguished_name.push(DnType::CommonName, common);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        PeerCertificate::read(certificate.der()).subject().to_owned()
    }

    #[test]
    fn a_client_is_called_by_the_first_of_its_names() {
        let uri = || SanType::URI("spiffe://acme/worker".try_into().unwrap());
        let dns = || SanType::DnsName("worker.acme.test".try_into().unwrap());
        let address = || SanType::IpAddress([127, 0, 0, 1].into());
        assert_eq!(read(vec![address(), uri(), dns()], Some("w")), "spiffe://acme/worker");
        assert_eq!(read(vec![dns()], None), "worker.acme.test");
        assert_eq!(read(vec![address()], Some("worker 7")), "worker 7");
        assert_eq!(read(Vec::new(), Some("wörker\u{1b}[2J")), "wörker[2J");
        assert_eq!(read(Vec::new(), Some(&"x".repeat(1_000))).len(), SUBJECT_CHARS_MAX);
        assert_eq!(read(Vec::new(), None), "");
        assert_eq!(PeerCertificate::read(b"no certificate").subject(), "");
    }
}
