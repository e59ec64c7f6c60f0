//! Unix sockets: the same server, for processes of its machine.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass::{Ctx, RunState, TaskError, Windlass, Workflow};
use windlass_server::{Access, ServeError, Server, ServerOptions};

use crate::support::soon;

/// A directory that is gone with the test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-sockets-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("nobody else has it");
        Directory(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("unix:{}", self.path(name).display())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options() -> ServerOptions {
    ServerOptions::new(Access::insecure_dev())
}

/// A server at a socket and at an address of TCP; answers the addresses of both.
async fn start(
    url: &str,
    options: ServerOptions,
) -> (String, CancellationToken, JoinHandle<Result<(), ServeError>>) {
    let server = Server::new(Windlass::memory(), options);
    let listener = server.bind(url).await.expect("nobody listens at it");
    let listener = listener.and(server.bind("127.0.0.1:0").await.expect("it is loopback"));
    let (urls, ending) = (listener.urls(), CancellationToken::new());
    let serving = tokio::spawn(server.serve(listener, ending.clone().cancelled_owned()));
    (urls, ending, serving)
}

/// What is answered to a request of HTTP/1 on a connection that ends with it.
async fn ask(mut stream: UnixStream, host: &str) -> String {
    let head = format!("GET /v1/runs HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("it listens");
    let mut said = String::new();
    soon("it answers", stream.read_to_string(&mut said)).await.expect("it is text");
    said
}

#[tokio::test]
async fn grpc_and_http_share_a_socket_beside_an_address_of_tcp() {
    let directory = Directory::new();
    let (url, path) = (directory.url("a.sock"), directory.path("a.sock"));
    let (urls, ending, serving) = start(&url, options()).await;
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let mut greet = Workflow::<String>::builder("greet");
    let hello = greet.task("hello").run(async |ctx: Ctx<String>| {
        let name = ctx.input();
        Ok::<_, TaskError>(format!("hello {name}"))
    });
    let greet = greet.build().unwrap();
    let near = Windlass::connect_server(&url).unwrap();
    let worker = near.worker().register(&greet).spawn().unwrap();
    let (first, tcp) = urls.split_once(',').expect("there are two");
    assert_eq!(first, url);
    let far = Windlass::connect_server(tcp).unwrap();
    let run = far.start(&greet, "sailor".to_owned()).await.unwrap();
    let ended = soon("a worker at the socket runs it", run.wait()).await.unwrap();
    assert_eq!(ended.state, RunState::Succeeded);
    assert_eq!(near.run(run.id()).output(&hello).await.unwrap(), "hello sailor");
    soon("it drains", worker.drain()).await.unwrap();

    let said = ask(UnixStream::connect(&path).await.unwrap(), "localhost").await;
    assert!(said.starts_with("HTTP/1.1 200") && said.contains("greet"), "{said}");
    let said = ask(UnixStream::connect(&path).await.unwrap(), "evil.test").await;
    assert!(said.starts_with("HTTP/1.1 421"), "{said}");

    ending.cancel();
    soon("it ends", serving).await.unwrap().unwrap();
    assert!(!path.exists(), "the socket went with its server");
}

#[tokio::test]
async fn whoever_says_nothing_at_a_socket_or_takes_too_many_places_is_dropped() {
    let directory = Directory::new();
    let url = directory.url("a.sock");
    let mut options = options();
    options.head_time_max = Duration::from_secs(600);
    options.connections_per_address_max = 4;
    let (_, _ending, _serving) = start(&url, options.clone()).await;
    let connect = async |name: &str| UnixStream::connect(directory.path(name)).await.unwrap();
    let mut flood = Vec::new();
    for _ in 0..20 {
        flood.push(connect("a.sock").await);
    }
    let mut said = Vec::new();
    let _ = soon("the first gives way", flood[0].read_to_end(&mut said)).await;
    assert!(ask(connect("a.sock").await, "localhost").await.starts_with("HTTP/1.1 200"));

    options.head_time_max = Duration::from_millis(100);
    let (_, _ending, _serving) = start(&directory.url("b.sock"), options).await;
    let mut silent = connect("b.sock").await;
    silent.write_all(b"PRI * HT").await.unwrap();
    let _ = soon("it is dropped", silent.read_to_end(&mut said)).await;
    assert!(said.is_empty(), "{said:?}");
}

#[tokio::test]
async fn a_socket_that_does_not_answer_is_named_and_the_next_server_is_used() {
    let directory = Directory::new();
    std::fs::write(directory.path("file"), "dear").unwrap();
    drop(std::os::unix::net::UnixListener::bind(directory.path("stale")).unwrap());
    for (name, why) in [
        ("missing", "it is not there"),
        ("file", "it is not a socket"),
        ("stale", "no server listens at it"),
        ("file/a", "Not a directory"),
    ] {
        let far = Windlass::connect_server(directory.url(name)).unwrap();
        let error = far.store().list_runs(Default::default()).await.unwrap_err().to_string();
        let url = directory.url(name);
        assert!(error.contains(&format!("server {url}: {why}")), "{error}");
    }
    let (_, _ending, _serving) = start(&directory.url("b.sock"), options()).await;
    let both = format!("{},{}", directory.url("missing"), directory.url("b.sock"));
    let far = Windlass::connect_server(both).unwrap();
    let found = async { while far.store().list_runs(Default::default()).await.is_err() {} };
    soon("the next server is used", found).await;
}

#[tokio::test]
async fn an_address_that_cannot_be_listened_at_is_named_with_why() {
    let directory = Directory::new();
    std::fs::write(directory.path("file"), "dear").unwrap();
    let long = format!("unix:/{}", "x".repeat(200));
    let server = Server::new(Windlass::memory(), options());
    let (_, _ending, _serving) = start(&directory.url("taken"), options()).await;
    for (address, why) in [
        (directory.url("file"), "not a socket"),
        (directory.url("taken"), "another process listens at it"),
        (directory.url("none/a"), "No such file"),
        (long, "its path has 201 bytes, and at most"),
        ("unix:here".to_owned(), "does not begin with /"),
    ] {
        let error = server.bind(&address).await.expect_err(&address).to_string();
        assert!(error.contains(&format!("address {address:?}")) && error.contains(why), "{error}");
    }
    assert_eq!(std::fs::read_to_string(directory.path("file")).unwrap(), "dear");
}
