//! TLS: who is believed, who is let in, and certificates that change while a server serves.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use windlass::remote::{RemoteOptions, RemoteStore};
use windlass::store::QueueStore as _;
use windlass::{Ctx, RunState, TaskError, Windlass, Workflow};
use windlass_server::{Access, ServerOptions, Tls, TlsOptions};

use crate::certificates::{Authority, Directory, client, shake};
use crate::support::{TestServer, soon};

const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// A server with the certificate of these files, and the handle to read them again.
async fn start(files: TlsOptions) -> (TestServer, Tls) {
    start_with(files, |_| {}).await
}

async fn start_with(
    files: TlsOptions,
    change: impl FnOnce(&mut ServerOptions),
) -> (TestServer, Tls) {
    let tls = Tls::load(files).expect("the files are right");
    let mut options = ServerOptions::new(Access::insecure_dev());
    options.tls = Some(tls.clone());
    change(&mut options);
    (TestServer::with(options).await, tls)
}

fn url(server: &TestServer) -> String {
    format!("https://localhost:{}", server.address.port())
}

/// What is answered to a request of HTTP/1 by TLS; nothing if the server hangs up.
async fn ask(connector: &TlsConnector, server: &TestServer) -> String {
    let mut said = Vec::new();
    let asking = async {
        let Ok(mut stream) = shake(connector, server.connect().await).await else { return };
        let head = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        if stream.write_all(head.as_bytes()).await.is_ok() {
            // How it ends is told by what came.
            let _ = stream.read_to_end(&mut said).await;
        }
    };
    soon("it is answered or hung up on", asking).await;
    String::from_utf8_lossy(&said).into_owned()
}

/// The certificate that new connections are shown.
async fn shown(connector: &TlsConnector, server: &TestServer) -> CertificateDer<'static> {
    let stream = soon("hands are shaken", shake(connector, server.connect().await)).await;
    let stream = stream.expect("it is believed");
    stream.get_ref().1.peer_certificates().expect("it has one")[0].clone().into_owned()
}

fn greet() -> Workflow<String> {
    let mut greet = Workflow::<String>::builder("greet");
    greet.task("hello").run(async |ctx: Ctx<String>| {
        let name = ctx.input();
        Ok::<_, TaskError>(format!("hello {name}"))
    });
    greet.build().unwrap()
}

#[tokio::test]
async fn grpc_and_http_share_an_address_by_tls() {
    let (authority, directory) = (Authority::new("ours"), Directory::new());
    let (server, _) = start(directory.write_server(&authority.sign(&NAMES))).await;
    let root = directory.write("root.pem", &authority.pem());
    let far = Windlass::connect_server(RemoteOptions::new(url(&server)).ca_file(root)).unwrap();
    let greet = greet();
    let worker = far.worker().register(&greet).spawn().unwrap();
    let run = far.start(&greet, "sailor".to_owned()).await.unwrap();
    let ended = soon("it is run", run.wait()).await.unwrap();
    assert_eq!(ended.state, RunState::Succeeded);
    soon("it drains", worker.drain()).await.unwrap();
    for protocols in [&["http/1.1"][..], &["h2", "http/1.1"][1..], &[]] {
        let said = ask(&client(&authority, None, protocols), &server).await;
        assert!(said.starts_with("HTTP/1.1 200"), "{protocols:?}: {said}");
    }
    let connector = client(&authority, None, &["h2", "http/1.1"]);
    let stream = shake(&connector, server.connect().await).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let other = client(&authority, None, &["smtp"]);
    assert!(shake(&other, server.connect().await).await.is_err(), "it speaks no such thing");
}

#[tokio::test]
async fn a_server_that_cannot_prove_its_name_is_told_nothing() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("a stranger"));
    let directory = Directory::new();
    let root = directory.write("root.pem", &authority.pem());
    for (signed, why) in [
        (stranger.sign(&NAMES), "UnknownIssuer"),
        (authority.sign(&["elsewhere.test"]), "not valid for name"),
        (authority.sign_until(&NAMES, 2_020), "expired"),
    ] {
        let (server, _) = start(directory.write_server(&signed)).await;
        let options = RemoteOptions::new(url(&server)).ca_file(&root).token("SECRET");
        let store = RemoteStore::connect(options).unwrap();
        let error = soon("it fails", store.list_queues()).await.expect_err(why).to_string();
        let place = format!("server https://localhost:{}: ", server.address.port());
        assert!(error.contains(&place) && error.contains(why), "{error}");
        assert!(!error.contains("SECRET"), "{error}");
    }
    // The machine does not know our authority.
    let (server, _) = start(directory.write_server(&authority.sign(&NAMES))).await;
    let store = RemoteStore::connect(url(&server)).unwrap();
    let error = soon("it fails", store.list_queues()).await.unwrap_err().to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
}

/// The first thing that a client of a version says, with nothing in it that is newer.
fn client_hello(version: [u8; 2]) -> Vec<u8> {
    // Groups, formats of points and signatures of every server with a key of P-256.
    let extensions: &[u8] = &[
        0x00, 0x0a, 0x00, 0x04, 0x00, 0x02, 0x00, 0x17, //
        0x00, 0x0b, 0x00, 0x02, 0x01, 0x00, //
        0x00, 0x0d, 0x00, 0x04, 0x00, 0x02, 0x04, 0x03, //
        0x00, 0x17, 0x00, 0x00,
    ];
    let mut body = version.to_vec();
    body.extend([7; 32]);
    body.push(0);
    // One cipher of 1.2 and one that 1.0 and 1.1 have as well.
    body.extend([0x00, 0x04, 0xc0, 0x2b, 0xc0, 0x09]);
    body.extend([1, 0]);
    body.extend([0, extensions.len() as u8]);
    body.extend(extensions);
    let mut message = vec![1, 0, 0, body.len() as u8];
    message.extend(body);
    let mut record = vec![0x16, 0x03, 0x01, 0, message.len() as u8];
    record.extend(message);
    record
}

/// What a server says to these bytes before it hangs up, or first.
async fn first_said(server: &TestServer, bytes: &[u8]) -> Vec<u8> {
    let mut stream = server.connect().await;
    stream.write_all(bytes).await.unwrap();
    let mut said = vec![0; 7];
    let read = soon("it answers or hangs up", stream.read(&mut said)).await.unwrap_or(0);
    said.truncate(read);
    said
}

#[tokio::test]
async fn versions_before_1_2_and_what_is_not_tls_get_nowhere() {
    let (authority, directory) = (Authority::new("ours"), Directory::new());
    let (server, _) = start(directory.write_server(&authority.sign(&NAMES))).await;
    let said = first_said(&server, &client_hello([3, 3])).await;
    assert_eq!(said[..1], [0x16], "1.2 is answered: {said:?}");
    for old in [[3, 2], [3, 1], [3, 0]] {
        let said = first_said(&server, &client_hello(old)).await;
        // An alert that ends it all: the version is not spoken.
        assert_eq!(said, [0x15, 3, 3, 0, 2, 2, 70], "{old:?}");
    }
    for plain in [
        &b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let said = first_said(&server, plain).await;
        assert!(said.is_empty() || said[0] == 0x15, "{said:?}");
    }
    let clear = RemoteStore::connect(format!("http://{}", server.address)).unwrap();
    soon("it fails", clear.list_queues()).await.unwrap_err();
}

#[tokio::test]
async fn only_who_shows_a_certificate_of_the_authority_for_clients_comes_in() {
    let (authority, clients) = (Authority::new("servers"), Authority::new("clients"));
    let directory = Directory::new();
    let files = directory.write_server(&authority.sign(&NAMES));
    let files = files.client_authority(directory.write("clients.pem", &clients.pem()));
    let (server, _) = start(files).await;
    let own = clients.sign(&["worker.test"]);
    let said = ask(&client(&authority, Some(&own), &[]), &server).await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    for (who, shown) in [
        ("nobody", None),
        ("one of the servers' authority", Some(authority.sign(&["worker.test"]))),
        ("one of a stranger", Some(Authority::new("clients").sign(&["worker.test"]))),
        ("one that has expired", Some(clients.sign_until(&["worker.test"], 2_020))),
    ] {
        assert_eq!(ask(&client(&authority, shown.as_ref(), &[]), &server).await, "", "{who}");
    }
    let root = directory.write("root.pem", &authority.pem());
    let options = || RemoteOptions::new(url(&server)).ca_file(&root);
    let certificate = directory.write("worker.pem", &own.certificate);
    let shows = options().client_certificate(certificate, directory.write("worker.key", &own.key));
    let store = RemoteStore::connect(shows).unwrap();
    soon("it is let in", store.list_queues()).await.unwrap();
    let store = RemoteStore::connect(options()).unwrap();
    soon("it is refused", store.list_queues()).await.unwrap_err();
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_who_comes_next_and_who_is_there_stays() {
    let (authority, directory) = (Authority::new("ours"), Directory::new());
    let files = directory.write_server(&authority.sign(&NAMES));
    let (server, tls) = start(files.look_every(Duration::from_secs(3_600))).await;
    let connector = client(&authority, None, &[]);
    let old = shown(&connector, &server).await;
    let mut stream = shake(&connector, server.connect().await).await.unwrap();
    let mut ask_again = async || {
        let head = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut said = vec![0; 4_096];
        let read = soon("it is answered", stream.read(&mut said)).await.unwrap();
        assert!(said[..read].starts_with(b"HTTP/1.1 200"));
    };
    ask_again().await;
    assert_eq!(tls.reload(), Ok(false), "nothing has changed");

    directory.write_server(&authority.sign(&NAMES));
    assert_eq!(shown(&connector, &server).await, old, "nobody has looked");
    assert_eq!(tls.reload(), Ok(true));
    let new = shown(&connector, &server).await;
    assert_ne!(new, old);
    ask_again().await;

    // Half of what belongs together, and what is none at all.
    let (one, other) = (authority.sign(&NAMES), authority.sign(&NAMES));
    let cases = [
        (
            one.certificate.as_str(),
            other.key.as_str(),
            "server.key\" cannot be used: its key is not",
        ),
        ("", one.key.as_str(), "server.pem\" cannot be used: it is not PEM"),
        (one.certificate.as_str(), "", "server.key\" cannot be used: it is not PEM"),
    ];
    for (certificate, key, why) in cases {
        directory.write("server.pem", certificate);
        directory.write("server.key", key);
        let error = tls.reload().expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(shown(&connector, &server).await, new, "{why}");
    }
    directory.write_server(&one);
    assert_eq!(tls.reload(), Ok(true));
    assert_ne!(shown(&connector, &server).await, new);
    ask_again().await;
}

#[tokio::test]
async fn a_server_looks_at_its_files_by_itself_and_at_whom_it_lets_in() {
    let (authority, directory) = (Authority::new("ours"), Directory::new());
    let clients = [Authority::new("first"), Authority::new("second")];
    let files = directory.write_server(&authority.sign(&NAMES));
    let files = files.client_authority(directory.write("clients.pem", &clients[0].pem()));
    let (server, _) = start(files.look_every(Duration::from_millis(20))).await;
    let [first, second] = clients.each_ref().map(|it| {
        let signed = it.sign(&["worker.test"]);
        client(&authority, Some(&signed), &[])
    });
    assert!(ask(&first, &server).await.starts_with("HTTP/1.1 200"));
    assert_eq!(ask(&second, &server).await, "");
    directory.write("clients.pem", &clients[1].pem());
    let changed = async { while ask(&second, &server).await.is_empty() {} };
    soon("the other authority counts", changed).await;
    assert_eq!(ask(&first, &server).await, "", "what was told earlier opens nothing");
}

#[tokio::test]
async fn handshakes_that_never_end_are_dropped_and_others_do_not_notice() {
    let (authority, directory) = (Authority::new("ours"), Directory::new());
    let files = directory.write_server(&authority.sign(&NAMES));
    let hello = client_hello([3, 3]);
    let beginnings: [&[u8]; 4] = [b"", &hello[..3], &hello[..40], &hello];
    let flood = async |server: &TestServer| {
        let mut streams: Vec<TcpStream> = Vec::new();
        for number in 0..500 {
            let mut stream = server.connect().await;
            // One that gave way already is as good.
            let _ = stream.write_all(beginnings[number % beginnings.len()]).await;
            streams.push(stream);
        }
        streams
    };
    let connector = client(&authority, None, &[]);

    // They take all places, and give way.
    let (server, _) = start_with(files.clone(), |options| {
        options.connections_max = 64;
        options.head_time_max = Duration::from_secs(600);
    })
    .await;
    let mut streams = flood(&server).await;
    for _ in 0..10 {
        assert!(ask(&connector, &server).await.starts_with("HTTP/1.1 200"));
    }
    let mut said = Vec::new();
    // A reset is an end as well.
    let _ = soon("whoever came first gave way", streams[0].read_to_end(&mut said)).await;
    drop(streams);

    // There are places enough, and they are dropped when their time is over.
    let (server, _) = start_with(files, |options| {
        options.head_time_max = Duration::from_millis(300);
    })
    .await;
    let mut streams = flood(&server).await;
    assert!(ask(&connector, &server).await.starts_with("HTTP/1.1 200"));
    for stream in &mut streams {
        let mut said = Vec::new();
        // A reset is an end as well.
        let _ = soon("it is dropped", stream.read_to_end(&mut said)).await;
    }
    assert!(ask(&connector, &server).await.starts_with("HTTP/1.1 200"));
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_name() {
    let (authority, directory) = (Authority::new("ours"), Directory::new());
    let (one, other) = (authority.sign(&NAMES), authority.sign(&NAMES));
    let certificate = directory.write("server.pem", &one.certificate);
    let key = directory.write("server.key", &one.key);
    let (foreign, text) = (directory.write("b.key", &other.key), directory.write("text", "dear"));
    let missing = directory.path("missing");
    for (certificate, key, authority, why) in [
        (&missing, &key, None, "missing\" cannot be used: No such file"),
        (&certificate, &missing, None, "missing\" cannot be used: No such file"),
        (&certificate, &key, Some(&missing), "missing\" cannot be used: No such file"),
        (&text, &key, None, "text\" cannot be used: it is not PEM"),
        (&key, &key, None, "server.key\" cannot be used: there is no certificate in it"),
        (&certificate, &certificate, None, "server.pem\" cannot be used: there is no private key"),
        (&certificate, &foreign, None, "b.key\" cannot be used: its key is not that of the cert"),
        (&certificate, &key, Some(&text), "text\" cannot be used: it is not PEM"),
    ] {
        let mut files = TlsOptions::new(certificate, key);
        if let Some(authority) = authority {
            files = files.client_authority(authority);
        }
        let error = Tls::load(files).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    }
    // It would be of no use, which is for clients to say.
    let expired = authority.sign_until(&NAMES, 2_020);
    Tls::load(directory.write_server(&expired)).expect("it is a certificate");
}

#[test]
#[cfg(unix)]
fn a_key_that_everyone_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;

    let (authority, directory) = (Authority::new("ours"), Directory::new());
    let files = directory.write_server(&authority.sign(&NAMES));
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(directory.path("server.key"), mode).unwrap();
    let error = Tls::load(files).expect_err("everyone may read it").to_string();
    assert!(error.contains("server.key") && error.contains("change that to 0640"), "{error}");
}

#[tokio::test]
async fn a_socket_stays_as_it_is_and_addresses_say_what_is_spoken_there() {
    let (authority, directory) = (Authority::new("ours"), Directory::new());
    let mut options = ServerOptions::new(Access::insecure_dev());
    options.tls = Some(Tls::load(directory.write_server(&authority.sign(&NAMES))).unwrap());
    let server = windlass_server::Server::new(Windlass::memory(), options);
    let listener = server.bind("127.0.0.1:0").await.unwrap();
    assert!(listener.urls().starts_with("https://127.0.0.1:"), "{}", listener.urls());
    if cfg!(unix) {
        let url = format!("unix:{}", directory.path("a.sock").display());
        let listener = listener.and(server.bind(&url).await.unwrap());
        let ending = tokio_util::sync::CancellationToken::new();
        let serving = tokio::spawn(server.serve(listener, ending.clone().cancelled_owned()));
        let store = RemoteStore::connect(url).unwrap();
        soon("it answers", store.list_queues()).await.unwrap();
        drop(store);
        ending.cancel();
        soon("it ends", serving).await.unwrap().unwrap();
    }
}
