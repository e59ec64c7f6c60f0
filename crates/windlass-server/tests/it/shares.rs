//! One address that takes all it can get: it has a share of everything, and another is served.

use std::time::Duration;

use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use windlass::TaskState;
use windlass::store::RunFilter;
use windlass_proto::v1;
use windlass_proto::v1::client_service_client::ClientServiceClient;
use windlass_proto::v1::worker_reply::Reply;
use windlass_proto::v1::worker_service_client::WorkerServiceClient;
use windlass_server::{Access, ServerOptions};

use crate::support::{TestServer, single, soon};

const MIB: usize = 1 << 20;

/// Two addresses of this machine, as all of 127/8 are.
const GREEDY: &str = "127.0.0.1:0";
const OTHER: &str = "127.0.0.2:0";

fn options() -> ServerOptions {
    let mut options = ServerOptions::new(Access::insecure_dev());
    let long = Duration::from_secs(600);
    (options.head_time_max, options.write_time_max, options.ping_time_max) = (long, long, long);
    options
}

/// A connection that comes from this address.
async fn connect(server: &TestServer, from: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("there are sockets");
    socket.bind(from.parse().expect("it is an address")).expect("it is of this machine");
    soon("it is reached", socket.connect(server.address)).await.expect("the server listens")
}

/// What is answered to a request that comes from this address.
async fn ask(server: &TestServer, from: &str, request: &str) -> String {
    let mut stream = connect(server, from).await;
    let request = format!("{request}\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it listens");
    let mut said = Vec::new();
    let _ = soon("it is answered", stream.read_to_end(&mut said)).await;
    String::from_utf8_lossy(&said).into_owned()
}

/// A request that is refused for the share of its address.
fn is_beyond_its_share(said: &str, what: &str) -> bool {
    let is_refused = said.starts_with("HTTP/1.1 503") && said.contains("WL-0007");
    is_refused && said.contains("retry-after: 1") && said.contains(what)
}

/// Asks until the answer is as expected.
async fn until(server: &TestServer, from: &str, request: &str, is_so: impl Fn(&str) -> bool) {
    let asking = async { while !is_so(&ask(server, from, request).await) {} };
    soon("the answer", asking).await;
}

async fn channel(server: &TestServer, from: &str) -> Channel {
    channel_on(server, connect(server, from).await).await
}

async fn channel_on(server: &TestServer, stream: TcpStream) -> Channel {
    let url = format!("http://{}", server.address);
    let endpoint = Endpoint::from_shared(url).expect("it is an address");
    let endpoint = endpoint.initial_stream_window_size(65_535);
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: hyper::Uri| {
        let stream = stream.take().ok_or(std::io::ErrorKind::NotConnected);
        async move { stream.map_err(std::io::Error::from) }
    });
    soon("it is reached", endpoint.connect_with_connector(connector)).await.expect("it listens")
}

/// A stream of workers on a connection that can be cut.
async fn open(
    server: &TestServer,
    from: &str,
) -> Result<(tonic::Streaming<v1::WorkerReply>, std::net::TcpStream), Status> {
    let stream = connect(server, from).await.into_std().expect("it is one");
    let cut = stream.try_clone().expect("it can be cut");
    let stream = TcpStream::from_std(stream).expect("it is one");
    let mut client = WorkerServiceClient::new(channel_on(server, stream).await);
    let silent = futures_util::stream::pending::<v1::WorkerRequest>();
    let replies = soon("it is answered", client.work(silent)).await?;
    Ok((replies.into_inner(), cut))
}

async fn list(server: &TestServer, from: &str) -> Result<(), Status> {
    let mut client = ClientServiceClient::new(channel(server, from).await);
    soon("it is answered", client.list_queues(v1::ListQueuesRequest {})).await.map(drop)
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn requests_of_one_address_leave_places_to_others() {
    let mut options = options();
    options.requests_max = 4;
    let server = TestServer::with(options).await;
    let half = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 9\r\n\r\n{";
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut stream = connect(&server, GREEDY).await;
        stream.write_all(half.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    let refused = |said: &str| is_beyond_its_share(said, "too many requests from your address");
    until(&server, GREEDY, "GET /v1/runs HTTP/1.1", refused).await;
    assert!(ask(&server, OTHER, "GET /v1/runs HTTP/1.1").await.starts_with("HTTP/1.1 200"));
    assert!(ask(&server, GREEDY, "GET /healthz HTTP/1.1").await.starts_with("HTTP/1.1 200"));
    drop(slow);
    let served = |said: &str| said.starts_with("HTTP/1.1 200");
    until(&server, GREEDY, "GET /v1/runs HTTP/1.1", served).await;
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn unread_answers_of_one_address_leave_memory_to_others() {
    const INPUT_BYTES: usize = 900_000;
    let server = TestServer::with(options()).await;
    server.worker(single("w")).await;
    let run = server.start_run("w", json!("x".repeat(INPUT_BYTES))).await;
    let mut http2 = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    http2.initial_stream_window_size(1 << 10);
    let stream = TokioIo::new(connect(&server, GREEDY).await);
    let (mut greedy, connection) = http2.handshake(stream).await.expect("it speaks HTTP/2");
    let connection = tokio::spawn(connection);
    let mut unread = Vec::new();
    let refused = loop {
        let request = hyper::Request::get(format!("http://{}/v1/runs/{run}", server.address));
        let request = request.body(Full::<Bytes>::default()).expect("it is a request");
        let answer =
            soon("it is answered", greedy.send_request(request)).await.expect("it listens");
        if !answer.status().is_success() {
            break answer;
        }
        unread.push(answer);
    };
    assert_eq!(refused.status(), 503);
    let text = refused.into_body().collect().await.expect("it comes").to_bytes();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("too many bytes of answers to your address wait to be read"), "{text}");
    let share = 64 * MIB / INPUT_BYTES;
    assert!((share - 5..=share).contains(&unread.len()), "{} of {share}", unread.len());
    let whole = format!("GET /v1/runs/{run} HTTP/1.1");
    assert!(ask(&server, OTHER, &whole).await.starts_with("HTTP/1.1 200"));
    drop((unread, greedy));
    connection.abort();
    until(&server, GREEDY, &whole, |said| said.starts_with("HTTP/1.1 200")).await;
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn held_requests_of_one_address_leave_places_to_others() {
    let mut options = options();
    options.held_max = 4;
    let server = TestServer::with(options).await;
    server.worker(single("w")).await;
    let run = server.start_run("w", Value::Null).await;
    let wait = |time: u32| format!("GET /v1/runs/{run}/wait?timeout_ms={time} HTTP/1.1");
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = connect(&server, GREEDY).await;
        let request = format!("{}\r\nHost: localhost\r\n\r\n", wait(30_000));
        stream.write_all(request.as_bytes()).await.unwrap();
        held.push(stream);
    }
    let refused = |said: &str| is_beyond_its_share(said, "too many requests from your address");
    until(&server, GREEDY, &wait(1), refused).await;
    assert!(ask(&server, OTHER, &wait(1)).await.starts_with("HTTP/1.1 200"));
    drop(held);
    until(&server, GREEDY, &wait(1), |said| said.starts_with("HTTP/1.1 200")).await;
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn bodies_of_one_address_leave_memory_to_others() {
    let mut options = options();
    options.body_bytes_max = 80 * MIB;
    let server = TestServer::with(options).await;
    server.worker(single("w")).await;
    let mut slow = Vec::new();
    // Three times fifteen are more than half.
    for _ in 0..3 {
        let mut stream = connect(&server, GREEDY).await;
        let head = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\n\
                    Content-Type: application/json\r\nContent-Length: 16000000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        // The last is answered before it is whole.
        let _ = stream.write_all(&vec![b' '; 15 * MIB]).await;
        slow.push(stream);
    }
    let mut said = vec![0; 12];
    soon("the last is refused", slow[2].read_exact(&mut said)).await.unwrap();
    assert_eq!(said, b"HTTP/1.1 503");
    let mut other = connect(&server, OTHER).await;
    let start = r#"{"workflow":"w","version":1}"#;
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{start}",
        start.len() + 15 * MIB
    );
    other.write_all(head.as_bytes()).await.unwrap();
    other.write_all(&vec![b' '; 15 * MIB]).await.unwrap();
    soon("another is served", other.read_exact(&mut said)).await.unwrap();
    assert_eq!(said, b"HTTP/1.1 201");
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn calls_of_one_address_leave_places_to_others() {
    let mut options = options();
    options.held_max = 4;
    let server = TestServer::with(options).await;
    server.worker(single("w")).await;
    let run = server.start_run("w", Value::Null).await;
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let mut client = ClientServiceClient::new(channel(&server, GREEDY).await);
        let request = v1::WaitRunRequest { run: run.clone(), ..Default::default() };
        waiting.push(tokio::spawn(async move { client.wait_run(request).await }));
    }
    let refused = async {
        loop {
            if let Err(status) = list(&server, GREEDY).await {
                break status;
            }
        }
    };
    let status = soon("it is refused", refused).await;
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("too many requests from your address"), "{status:?}");
    list(&server, OTHER).await.expect("another is served");
    for call in &waiting {
        call.abort();
    }
    soon("there is room again", async { while list(&server, GREEDY).await.is_err() {} }).await;
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_stream_keeps_its_place_for_as_long_as_it_lives_and_no_call_waits_for_it() {
    let mut options = options();
    (options.streams_max, options.held_max) = (4, 1);
    let server = TestServer::with(options).await;
    let open = async |from| open(&server, from).await;
    let held = [open(GREEDY).await.unwrap(), open(GREEDY).await.unwrap()];
    let status = open(GREEDY).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("too many streams from your address"), "{status:?}");
    let others = [open(OTHER).await.unwrap(), open(OTHER).await.unwrap()];
    let status = open("127.0.0.3:0").await.unwrap_err();
    assert!(status.message().contains("too many streams are under way"), "{status:?}");
    list(&server, GREEDY).await.expect("calls have places of their own");
    held[0].1.shutdown(std::net::Shutdown::Both).unwrap();
    let again = async { while open(GREEDY).await.is_err() {} };
    soon("who left makes room", again).await;
    drop((held, others));
}

/// What a worker says that can run `w`.
fn hello(worker: &str) -> v1::worker_request::Request {
    v1::worker_request::Request::Hello(v1::Hello {
        worker: worker.to_owned(),
        name: "greedy".to_owned(),
        slots: 1_000,
        lease_us: 600_000_000,
        ..Default::default()
    })
}

fn claim(worker: &str) -> v1::worker_request::Request {
    v1::worker_request::Request::Claim(v1::Claim {
        worker: worker.to_owned(),
        seq: 1,
        limit: 10,
        queues: vec!["default".to_owned()],
        workflows: vec![v1::WorkflowVersion { workflow: "w".to_owned(), version: 1 }],
        ..Default::default()
    })
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn whoever_does_not_read_its_tasks_is_leased_no_more_than_there_is_memory_for() {
    const RUNS: usize = 120;
    let server = TestServer::with(options()).await;
    server.worker(single("w")).await;
    for _ in 0..RUNS {
        server.start_run("w", Value::String("x".repeat(MIB - 100))).await;
    }
    let (requests, queue) = mpsc::channel::<v1::WorkerRequest>(1);
    let outbound = futures_util::stream::unfold(queue, async |mut queue| {
        queue.recv().await.map(|request| (request, queue))
    });
    let mut client = WorkerServiceClient::new(channel(&server, GREEDY).await);
    let client = &mut client;
    let replies = soon("it is opened", client.work(Box::pin(outbound))).await.unwrap();
    let mut replies = replies.into_inner();
    let workers: Vec<String> =
        (0..60).map(|place| format!("0190b3a0-0000-7000-8000-0000000000{place:02}")).collect();
    let say = async |id, request| {
        let request = v1::WorkerRequest { id, request: Some(request), takes_parts: true };
        soon("it is taken", requests.send(request)).await.expect("it is not dropped");
    };
    for (id, worker) in (1..).zip(&workers) {
        say(id, hello(worker)).await;
        let welcome = soon("it is answered", replies.next()).await.unwrap().unwrap();
        assert!(matches!(welcome.reply, Some(Reply::Welcome(_))), "{welcome:?}");
    }
    for (id, worker) in (1_000..).zip(&workers) {
        say(id, claim(worker)).await;
    }
    let leased = async || {
        let store = server.windlass.store();
        let filter = RunFilter { limit: 1_000, ..Default::default() };
        let mut leased = 0;
        for run in store.list_runs(filter).await.unwrap().runs {
            let tasks = store.list_tasks(run.id, None, 10).await.unwrap();
            leased += tasks.iter().filter(|task| task.state == TaskState::Running).count();
        }
        leased
    };
    // Nothing more is leased while all of these are answered.
    let (mut last, mut quiet) = (leased().await, 0);
    while quiet < 50 {
        list(&server, OTHER).await.expect("another is served");
        let now = leased().await;
        quiet = if now == last && now > 0 { quiet + 1 } else { 0 };
        last = now;
    }
    // What the stream may have, and what is in the windows of the connection.
    assert!((16..=40).contains(&last), "{last} of {RUNS} are leased");
    let (count, mut counted) = watch::channel(0_usize);
    let reading = async {
        while let Some(reply) = replies.next().await {
            if let Some(Reply::Tasks(tasks)) = reply.expect("it is not broken").reply {
                count.send_modify(|count| *count += tasks.tasks.len());
            }
        }
    };
    tokio::select! {
        () = reading => panic!("it does not end"),
        read = soon("who reads is leased the rest", counted.wait_for(|count| *count == RUNS)) => {
            read.unwrap();
        }
    };
}
