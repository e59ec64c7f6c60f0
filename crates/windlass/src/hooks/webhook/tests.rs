//! Requests to nowhere, and to a server that a test has.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use windlass_core::Timestamp;

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

fn webhook(url: &str) -> Result<Webhook, String> {
    Webhook::new(url, None, None, false)
}

#[test]
fn a_url_is_taken_apart_or_refused() {
    let taken = |url: &str| {
        let it = webhook(url).unwrap_or_else(|why| panic!("{url}: {why}"));
        (it.is_encrypted, it.host, it.port, it.authority, it.path)
    };
    let text = str::to_owned;
    assert_eq!(
        taken("https://example.com"),
        (true, text("example.com"), 443, text("example.com"), text("/"))
    );
    assert_eq!(
        taken("http://[2606:4700::1]:8080/a?b=c"),
        (false, text("2606:4700::1"), 8080, text("[2606:4700::1]:8080"), text("/a?b=c"))
    );
    assert_eq!(taken("http://[2606:4700::1]/").2, 80);
    let refused = [
        ("example.com", "without http:// or https://"),
        ("/path", "without http:// or https://"),
        ("ftp://example.com", "\"ftp\", not http or https"),
        ("file:///etc/passwd", "a URL"),
        ("gopher://127.0.0.1:6379/x", "\"gopher\", not http or https"),
        ("https://me@example.com/", "a user or a password"),
        ("https://me:you@example.com/", "a user or a password"),
        ("https://1.1.1.1@127.0.0.1/", "a user or a password"),
        ("https://example.com:0/", "a port that is none"),
        ("https://example.com:99999/", "a URL"),
        ("https://exa mple.com/", "a URL that is none"),
        ("https:///path", "a URL"),
    ];
    for (url, wanted) in refused {
        let why = webhook(url).map(drop).expect_err(url);
        assert!(why.contains(wanted), "{url}: {why}");
    }
}

#[tokio::test]
async fn no_spelling_of_an_internal_address_is_connected_to() {
    let hosts = [
        ("127.0.0.1", "127.0.0.1 is loopback"),
        ("localhost", "is loopback"),
        ("2130706433", "127.0.0.1 is loopback"),
        ("0x7f000001", "127.0.0.1 is loopback"),
        ("0x7f.1", "127.0.0.1 is loopback"),
        ("0177.0.0.1", "127.0.0.1 is loopback"),
        ("127.1", "127.0.0.1 is loopback"),
        ("0", "0.0.0.0 is unspecified"),
        ("[::1]", "::1 is loopback"),
        ("[::]", ":: is unspecified"),
        ("[::ffff:127.0.0.1]", "is loopback"),
        ("169.254.169.254", "169.254.169.254 is link-local"),
        ("2852039166", "169.254.169.254 is link-local"),
        ("10.0.0.1", "10.0.0.1 is private"),
    ];
    for (host, wanted) in hosts {
        let webhook = webhook(&format!("http://{host}:9/")).expect("it is a URL");
        let refused = webhook.connect(LIMIT).await.map(drop);
        match refused.expect_err(host) {
            Undelivered::ForGood(why) => assert!(why.contains(wanted), "{host}: {why}"),
            Undelivered::ForNow(why) => panic!("{host} is not refused: {why}"),
        }
    }
}

#[test]
fn one_internal_address_among_others_is_enough_to_refuse_a_host() {
    let webhook = webhook("https://example.com").expect("it is a URL");
    let addresses = |all: &[&str]| -> Vec<SocketAddr> {
        all.iter().map(|address| address.parse().expect("it is an address")).collect()
    };
    webhook.admit(&addresses(&["1.1.1.1:443", "[2606:4700::1]:443"])).expect("both are open");
    let why = webhook.admit(&addresses(&["1.1.1.1:443", "10.0.0.1:443"])).unwrap_err();
    assert_eq!(why, "may not go to \"example.com\": its address 10.0.0.1 is private");
}

#[test]
fn answers_decide_about_another_attempt() {
    let judged = |number: u16| {
        let status = StatusCode::from_u16(number).expect("it is a status");
        match judge(status, "said", "example.com") {
            Ok(()) => "delivered",
            Err(Undelivered::ForNow(_)) => "for now",
            Err(Undelivered::ForGood(_)) => "for good",
        }
    };
    for (wanted, numbers) in [
        ("delivered", &[200, 201, 202, 204, 299][..]),
        ("for good", &[400, 401, 403, 404, 405, 409, 410, 413, 422, 499]),
        ("for now", &[301, 302, 307, 308, 408, 425, 429, 500, 502, 503, 504, 599]),
    ] {
        numbers.iter().for_each(|number| assert_eq!(judged(*number), wanted, "{number}"));
    }
}

#[test]
fn the_signature_is_what_other_programs_compute() {
    // printf '7.1700000000.{"a":1}' | openssl dgst -sha256 -hmac s3cret
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"s3cret");
    let wanted = "v1=690035506e2f30290decfc8cbf2a6fdb95be811bbd47fb77b8c1c54d20a33b77";
    assert_eq!(sign(&key, ["7", "1700000000", "{\"a\":1}"]), wanted);
}

/// An authority of a test's own.
fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let key = KeyPair::generate().expect("a key can be made");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, key).expect("it can be signed")
}

/// A server for `localhost` that answers each request that comes through.
async fn encrypted(issuer: &CertifiedIssuer<'static, KeyPair>) -> u16 {
    let key = KeyPair::generate().expect("a key can be made");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, issuer).expect("it can be signed");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("it is a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("they belong together");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = Vec::new();
            while !request.ends_with(b"{}") {
                stream.read_buf(&mut request).await.expect("there is more");
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(answer).await.expect("it is heard");
            let _ = stream.shutdown().await;
        }
    });
    port
}

#[tokio::test]
async fn a_server_is_believed_if_a_trusted_authority_vouches_for_its_name() {
    let (ours, stranger) = (authority("ours"), authority("a stranger"));
    let port = encrypted(&ours).await;
    let send = async |host: &str, trusted: &CertifiedIssuer<'static, KeyPair>| {
        let url = format!("https://{host}:{port}/");
        let webhook = Webhook::new(&url, None, Some(trusted.pem()), true).expect("it is a URL");
        let sent = webhook
            .send(RunId::from_parts(Timestamp::from_micros(0), 7), "{}".to_owned(), LIMIT)
            .await;
        sent.map_err(|undelivered| match undelivered {
            Undelivered::ForNow(why) | Undelivered::ForGood(why) => why,
        })
    };
    send("localhost", &ours).await.expect("it is the one");
    let why = send("localhost", &stranger).await.expect_err("nobody vouches for it");
    assert!(
        why.contains("got no encryption from localhost") && why.contains("UnknownIssuer"),
        "{why}"
    );
    let why = send("127.0.0.1", &ours).await.expect_err("it has another name");
    assert!(why.contains("not valid for name"), "{why}");
}
