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
    // What is behind a `#` is no part of the host.
    assert_eq!(taken("https://example.com#@127.0.0.1:9/").1, "example.com");
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
        ("https://example.com:+80/", "a URL"),
        ("https://1.2.3.4.5/", "neither address nor name"),
        ("https://127.0.0.256/", "neither address nor name"),
        ("https://[fe80::1%25eth0]/", "a URL"),
        ("https://[127.0.0.1]/", "a URL"),
        ("https://127.0.0.1%2e/", "a URL"),
        ("https://\u{ff11}\u{ff12}\u{ff17}.0.0.1/", "a URL that is none"),
        ("https://example.com\\@127.0.0.1/", "a URL"),
        ("https://example.com\r\nHost: x/", "a URL that is none"),
    ];
    for (url, wanted) in refused {
        let why = webhook(url).map(drop).expect_err(url);
        assert!(why.contains(wanted), "{url}: {why}");
    }
}

/// The SSRF list: every host that must not be reached, and why it is not. `-` stands for a host that
/// is refused by its name, so that no resolver is asked.
const SSRF: &[(&str, &str)] = &[
    // Loopback, in the spellings of IPv4.
    ("127.0.0.1", "127.0.0.1 is loopback"),
    ("127.0.0.1.", "127.0.0.1 is loopback"),
    ("127.255.255.254", "is loopback"),
    ("2130706433", "127.0.0.1 is loopback"),
    ("017700000001", "127.0.0.1 is loopback"),
    ("0x7f000001", "127.0.0.1 is loopback"),
    ("0x7f.1", "127.0.0.1 is loopback"),
    ("0x7F.0X0.0x0.0x1", "127.0.0.1 is loopback"),
    ("0177.0.0.1", "127.0.0.1 is loopback"),
    ("0177.0000.0000.0001", "127.0.0.1 is loopback"),
    ("127.1", "127.0.0.1 is loopback"),
    ("127.0.1", "127.0.0.1 is loopback"),
    ("0", "0.0.0.0 is unspecified"),
    ("0x0", "0.0.0.0 is unspecified"),
    ("0.0.0.0", "0.0.0.0 is unspecified"),
    ("4294967295", "255.255.255.255 is reserved"),
    // Private nets.
    ("10.0.0.1", "10.0.0.1 is private"),
    ("012.1", "10.0.0.1 is private"),
    ("172.16.0.1", "is private"),
    ("0xc0a80001", "192.168.0.1 is private"),
    ("192.168.257", "192.168.1.1 is private"),
    ("100.64.0.1", "is shared by a provider"),
    // Metadata of clouds.
    ("169.254.169.254", "is the metadata of a cloud"),
    ("2852039166", "169.254.169.254 is the metadata of a cloud"),
    ("0xa9fea9fe", "169.254.169.254 is the metadata of a cloud"),
    ("0251.0376.0251.0376", "169.254.169.254 is the metadata of a cloud"),
    ("169.254.43518", "169.254.169.254 is the metadata of a cloud"),
    ("169.254.170.2", "is the metadata of a cloud"),
    ("100.100.100.200", "is the metadata of a cloud"),
    ("168.63.129.16", "is the metadata of a cloud"),
    ("192.0.0.192", "is the metadata of a cloud"),
    ("[fd00:ec2::254]", "is the metadata of a cloud"),
    ("[fd20:ce::254]", "is the metadata of a cloud"),
    ("[fe80::a9fe:a9fe]", "is the metadata of a cloud"),
    ("[::ffff:169.254.169.254]", "is the metadata of a cloud"),
    ("[::ffff:a9fe:a9fe]", "is the metadata of a cloud"),
    ("[64:ff9b::169.254.169.254]", "is the metadata of a cloud"),
    ("[2002:a9fe:a9fe::]", "is the metadata of a cloud"),
    // IPv6, and IPv4 within it.
    ("[::1]", "::1 is loopback"),
    ("[0:0:0:0:0:0:0:1]", "::1 is loopback"),
    ("[0000::0001]", "::1 is loopback"),
    ("[::]", ":: is unspecified"),
    ("[::ffff:127.0.0.1]", "is loopback"),
    ("[::ffff:7f00:1]", "is loopback"),
    ("[::ffff:0:127.0.0.1]", "is loopback"),
    ("[::127.0.0.1]", "is reserved"),
    ("[64:ff9b::7f00:1]", "is loopback"),
    ("[64:ff9b:1::7f00:1]", "is reserved"),
    ("[2002:7f00:1::]", "is loopback"),
    ("[2002:c0a8:1::1]", "is private"),
    ("[2001:0:7f00:1::]", "is reserved"),
    ("[2606:4700::5efe:10.0.0.1]", "is private"),
    ("[fc00::1]", "is private"),
    ("[fe80::1]", "is link-local"),
    ("[fec0::1]", "is reserved"),
    ("[ff02::1]", "is multicast"),
    // Names.
    ("localhost", "-"),
    ("LOCALHOST.", "-"),
    ("a.localhost", "-"),
    ("localhost.localdomain", "-"),
    ("metadata", "-"),
    ("instance-data", "-"),
    ("metadata.google.internal", "-"),
    ("Metadata.Google.Internal.", "-"),
    ("kubernetes", "-"),
    ("printer.local", "-"),
    ("router.home.arpa", "-"),
];

fn why(undelivered: Undelivered) -> String {
    match undelivered {
        Undelivered::ForGood(why) => why,
        Undelivered::ForNow(why) => panic!("it is tried again: {why}"),
    }
}

#[tokio::test]
async fn no_host_of_the_ssrf_list_is_connected_to_nor_asked_for() {
    for (host, wanted) in SSRF {
        for scheme in ["http", "https"] {
            let webhook = webhook(&format!("{scheme}://{host}:9/")).expect("it is a URL");
            let found = async {
                match webhook.said {
                    Host::Address(_) => webhook.resolve().await,
                    Host::Inside | Host::Name => panic!("{host} is asked for"),
                }
            };
            let why = why(webhook.connect(found, LIMIT).await.map(drop).expect_err(host));
            let wanted = if *wanted == "-" { "it is a name of the inside" } else { wanted };
            assert!(why.starts_with("may not go to ") && why.ends_with(wanted), "{host}: {why}");
        }
    }
}

#[tokio::test]
async fn the_metadata_of_a_cloud_is_refused_to_those_that_may_go_to_the_inside() {
    for (host, wanted) in SSRF.iter().filter(|(_, why)| why.ends_with("a cloud")) {
        let url = format!("http://{host}:9/");
        let webhook = Webhook::new(&url, None, None, true).expect("it is a URL");
        let refused = webhook.connect(webhook.resolve(), LIMIT).await.map(drop);
        let why = why(refused.expect_err(host));
        assert!(why.ends_with(wanted), "{host}: {why}");
    }
}

/// A server that notes what it is sent and answers with success.
async fn noting() -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    let (note, noted) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"{}") {
                stream.read_buf(&mut request).await.expect("there is more");
            }
            note.send(String::from_utf8_lossy(&request).into_owned()).expect("the test is there");
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(answer).await.expect("it is heard");
        }
    });
    (address, noted)
}

/// What a resolver answers, one answer for each question.
struct Resolver {
    answers: std::sync::Mutex<Vec<Vec<SocketAddr>>>,
    asked: std::sync::atomic::AtomicUsize,
}

impl Resolver {
    fn answering(answers: &[&[SocketAddr]]) -> Self {
        let answers = answers.iter().rev().map(|addresses| addresses.to_vec()).collect();
        Resolver { answers: std::sync::Mutex::new(answers), asked: 0.into() }
    }

    async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        self.asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let answer = self.answers.lock().expect("no test has failed with it").pop();
        Ok(answer.expect("it has an answer"))
    }
}

#[tokio::test]
async fn a_name_that_means_another_address_later_is_reached_where_it_was_judged() {
    let ((first, mut at_first), (second, mut at_second)) = (noting().await, noting().await);
    let url = format!("http://rebind.example:{}/", second.port());
    let webhook = Webhook::new(&url, None, None, true).expect("it is a URL");
    let resolver = Resolver::answering(&[&[first], &[second]]);
    let id = RunId::from_parts(Timestamp::from_micros(0), 7);
    let sent = webhook.send_to(resolver.resolve(), id, "{}".to_owned(), LIMIT).await;
    sent.expect("it is delivered");
    let request = at_first.try_recv().expect("it came here");
    let host = format!("host: rebind.example:{}\r\n", second.port());
    assert!(request.to_ascii_lowercase().contains(&host), "{request}");
    assert!(at_second.try_recv().is_err(), "nobody went to where the name points by now");
    assert_eq!(resolver.asked.into_inner(), 1);
}

#[tokio::test]
async fn a_success_is_known_by_its_status_however_slowly_the_rest_comes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}/", listener.local_addr().expect("it has an address"));
    let webhook = Webhook::new(&url, None, None, true).expect("it is a URL");
    let id = RunId::from_parts(Timestamp::from_micros(0), 7);
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("someone comes");
        let answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 10\r\n\r\nfive";
        stream.write_all(answer).await.expect("it is heard");
        // The rest never comes, and the connection stays.
        pending::<Infallible>().await
    };
    tokio::select! {
        sent = timeout(LIMIT, webhook.send(id, "{}".to_owned(), LIMIT)) => {
            sent.expect("it does not wait for the rest").expect("it is delivered");
        }
        never = serve => match never {},
    }
}

#[tokio::test]
async fn a_host_with_an_open_and_an_internal_address_is_not_connected_to() {
    let (inner, mut noted) = noting().await;
    let open: SocketAddr = "192.0.1.1:9".parse().expect("it is an address");
    for addresses in [[open, inner], [inner, open]] {
        let webhook = webhook("http://both.example/").expect("it is a URL");
        let resolver = Resolver::answering(&[&addresses]);
        let id = RunId::from_parts(Timestamp::from_micros(0), 7);
        let sent = webhook.send_to(resolver.resolve(), id, "{}".to_owned(), LIMIT).await;
        let why = why(sent.expect_err("one of them is internal"));
        assert!(why.ends_with("its address 127.0.0.1 is loopback"), "{why}");
    }
    assert!(noted.try_recv().is_err());
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
