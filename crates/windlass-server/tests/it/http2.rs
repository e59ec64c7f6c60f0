//! Clients of gRPC that stall, flood or never read: they are dropped or held back, and a call of
//! someone else is answered meanwhile.

use std::time::Duration;

use futures_util::StreamExt as _;
use hyper::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tonic::transport::{Channel, Endpoint};
use windlass::Role;
use windlass_proto::v1;
use windlass_proto::v1::client_service_client::ClientServiceClient;
use windlass_proto::v1::worker_service_client::WorkerServiceClient;
use windlass_server::token::mint;
use windlass_server::{Access, ServerOptions};

use crate::support::{TestServer, soon};
use crate::tokens::{guarded, token_of};

/// What a connection of HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;

/// The flags of a frame: an answer to one of the same kind, and the end of a head.
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The code of a stream that is not taken.
const REFUSED: u32 = 7;

/// Nothing happens because of time but what a test sets.
fn patient() -> ServerOptions {
    let mut options = ServerOptions::new(Access::insecure_dev());
    let long = Duration::from_secs(600);
    (options.head_time_max, options.write_time_max, options.ping_time_max) = (long, long, long);
    options
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The preface and the settings that follow it.
fn opening() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// The head of a call, each field with its name and its value as they are.
fn head() -> Vec<u8> {
    head_with(&[])
}

/// The same with more fields.
fn head_with(more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/windlass.v1.ClientService/ListRuns"),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let mut head = Vec::new();
    for (name, value) in fields.iter().chain(more) {
        head.push(0);
        for text in [name, value] {
            head.push(u8::try_from(text.len()).expect("it is short"));
            head.extend(text.as_bytes());
        }
    }
    head
}

/// The beginning of a call on a stream.
fn call(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &head())
}

/// Reads a frame: its kind, its stream and what it has.
async fn next_frame(stream: &mut TcpStream) -> Option<(u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    soon("the server says something", stream.read_exact(&mut head)).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let mut payload = vec![0; length];
    soon("the frame goes on", stream.read_exact(&mut payload)).await.ok()?;
    Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
}

/// Waits until the server has closed a connection.
async fn closed(stream: &mut TcpStream, what: &str) {
    // A reset is an end as well.
    let _ = soon(what, stream.read_to_end(&mut Vec::new())).await;
}

async fn channel(server: &TestServer) -> Channel {
    let url = format!("http://{}", server.address);
    let endpoint = Endpoint::from_shared(url).expect("it is an address");
    soon("it is reached", endpoint.connect()).await.expect("it listens")
}

/// A call of someone else, who does nothing wrong.
async fn beside(server: &TestServer) {
    let mut client = ClientServiceClient::new(channel(server).await);
    let listed = client.list_runs(v1::ListRunsRequest { limit: 1, ..Default::default() });
    soon("another's call is answered", listed).await.expect("it is answered well");
}

#[tokio::test]
async fn half_a_preface_and_half_a_frame_are_dropped() {
    let mut options = patient();
    options.head_time_max = Duration::from_millis(200);
    let server = TestServer::with(options).await;
    let whole = call(1);
    let beginnings = [
        PREFACE[..PREFACE.len() / 2].to_vec(),
        [PREFACE, &frame(SETTINGS, 0, 0, &[])[..5]].concat(),
        [&opening()[..], &whole[..whole.len() / 2]].concat(),
        // A head that is never told to its end.
        [opening(), frame(HEADERS, 0, 1, &head())].concat(),
    ];
    let mut streams = Vec::new();
    for beginning in beginnings {
        let mut stream = server.connect().await;
        stream.write_all(&beginning).await.unwrap();
        streams.push(stream);
    }
    beside(&server).await;
    for stream in &mut streams {
        closed(stream, "who stalls is dropped").await;
    }
    beside(&server).await;
}

#[tokio::test]
async fn whoever_was_served_and_then_stalls_is_asked_whether_it_is_there() {
    let mut options = patient();
    options.ping_time_max = Duration::from_millis(200);
    let server = TestServer::with(options).await;
    let mut stream = server.connect().await;
    let message = frame(DATA, 1, 1, &[0; 5]);
    stream.write_all(&[opening(), call(1), message].concat()).await.unwrap();
    // The answer, up to its last frame.
    while !matches!(next_frame(&mut stream).await, Some((HEADERS, 1, _))) {}
    stream.write_all(&call(3)[..20]).await.unwrap();
    beside(&server).await;
    closed(&mut stream, "who does not answer is dropped").await;
}

#[tokio::test]
async fn whoever_gives_no_leave_to_send_its_answers_is_dropped() {
    let mut options = patient();
    options.write_time_max = Duration::from_millis(200);
    let server = TestServer::with(options).await;
    let mut stream = server.connect().await;
    // The window of each stream has no byte.
    let closed_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let message = frame(DATA, 1, 1, &[0; 5]);
    stream.write_all(&[opening(), closed_window, call(1), message].concat()).await.unwrap();
    beside(&server).await;
    closed(&mut stream, "who takes nothing is dropped").await;
    beside(&server).await;
}

#[tokio::test]
async fn whoever_floods_and_reads_nothing_is_not_read_and_dropped() {
    for flood in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, 0, 0, &[])] {
        let mut options = patient();
        options.write_time_max = Duration::from_millis(200);
        let server = TestServer::with(options).await;
        let mut stream = server.connect().await;
        stream.write_all(&opening()).await.unwrap();
        let flood = flood.repeat(1_000);
        let dropped = async { while stream.write_all(&flood).await.is_ok() {} };
        let others = async {
            for _ in 0..5 {
                beside(&server).await;
            }
        };
        soon("it is dropped", async { tokio::join!(dropped, others) }).await;
    }
}

#[tokio::test]
async fn whoever_floods_and_reads_the_answers_keeps_nobody_from_being_served() {
    let server = TestServer::with(patient()).await;
    let mut stream = server.connect().await;
    stream.write_all(&opening()).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let flood = frame(PING, 0, 0, &[0; 8]).repeat(1_000);
    let flooding = async {
        while writing.write_all(&flood).await.is_ok() {}
        panic!("it does nothing that is forbidden");
    };
    let mut bytes = vec![0; 64 << 10];
    let taking = async { while reading.read(&mut bytes).await.is_ok_and(|read| read > 0) {} };
    let others = async {
        for _ in 0..20 {
            beside(&server).await;
        }
    };
    tokio::select! {
        () = others => {}
        () = flooding => {}
        () = taking => panic!("it does nothing that is forbidden"),
    }
}

#[tokio::test]
async fn whoever_asks_for_more_than_anyone_needs_is_hung_up_on() {
    type Attack<'a> = &'a dyn Fn(u32) -> Vec<u8>;
    let taken_back = |stream| [call(stream), frame(RESET, 0, stream, &[0, 0, 0, 8])].concat();
    // A head without an end, in more pieces than the longest needs.
    let endless = |stream| match stream {
        1 => frame(HEADERS, 0, 1, &head()),
        _ => frame(CONTINUATION, 0, 1, &[b"\0\x01x\x7e", &[b'y'; 126][..]].concat()),
    };
    let attacks: [(&str, u32, Attack<'_>); 3] = [
        ("calls that are taken back", 20_000, &taken_back),
        ("calls beyond the limit", 20_000, &call),
        ("an endless head", 200, &endless),
    ];
    for (name, count, attack) in attacks {
        let server = TestServer::with(patient()).await;
        let mut stream = server.connect().await;
        stream.write_all(&opening()).await.unwrap();
        let (mut reading, mut writing) = stream.into_split();
        let flooding = async {
            for number in 0..count {
                if writing.write_all(&attack(1 + 2 * number)).await.is_err() {
                    break;
                }
            }
        };
        // A reset is an end as well.
        let mut told = Vec::new();
        let hung_up = async { drop(reading.read_to_end(&mut told).await) };
        let all = async { tokio::join!(flooding, hung_up, beside(&server)) };
        soon(&format!("{name}: it is hung up on"), all).await;
        beside(&server).await;
    }
}

#[tokio::test]
async fn calls_with_the_tokens_of_nobody_that_are_taken_back_keep_no_token_out() {
    const CALLS: u32 = 20_000;
    let server = guarded().await;
    let viewer = token_of(&server.windlass, Role::Viewer, None).await;
    let mut stream = server.connect().await;
    stream.write_all(&opening()).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let flooding = async {
        for number in 0..CALLS {
            let token = mint(Role::Admin.into()).expect("there is randomness").text();
            let shown = format!("Bearer {}", token.expose());
            let stream = 1 + 2 * number;
            let head = head_with(&[("authorization", &shown)]);
            let begun = frame(HEADERS, END_HEADERS, stream, &head);
            let taken_back = frame(RESET, 0, stream, &[0, 0, 0, 8]);
            if writing.write_all(&[begun, taken_back].concat()).await.is_err() {
                break;
            }
        }
    };
    let mut told = Vec::new();
    // A reset is an end as well.
    let hung_up = async { drop(reading.read_to_end(&mut told).await) };
    let others = async {
        for _ in 0..50 {
            let request = server.request_as(viewer.expose(), Method::GET, "/v1/runs", "");
            server.answer(request).await.ok(200);
        }
    };
    soon("it is hung up on", async { tokio::join!(flooding, hung_up, others) }).await;
}

#[tokio::test]
async fn calls_beyond_those_that_a_connection_may_have_are_refused() {
    const CALLS: u32 = 200;
    let server = TestServer::with(patient()).await;
    let mut stream = server.connect().await;
    stream.write_all(&opening()).await.unwrap();
    // The settings of the server count once they were taken.
    while !matches!(next_frame(&mut stream).await, Some((SETTINGS, ..))) {}
    stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await.unwrap();
    let calls: Vec<u8> = (0..CALLS).flat_map(|number| call(1 + 2 * number)).collect();
    stream.write_all(&calls).await.unwrap();
    beside(&server).await;
    let mut refused = Vec::new();
    stream.write_all(&frame(PING, 0, 0, &[7; 8])).await.unwrap();
    loop {
        match next_frame(&mut stream).await.expect("the others go on") {
            (RESET, stream, code) => {
                assert_eq!(code, REFUSED.to_be_bytes());
                refused.push(stream);
            }
            // What came before was read.
            (PING, _, payload) if payload == [7; 8] => break,
            _ => {}
        }
    }
    let beyond: Vec<u32> = (128..CALLS).map(|number| 1 + 2 * number).collect();
    assert_eq!(refused, beyond);
    beside(&server).await;
}

#[tokio::test]
async fn a_stream_of_workers_whose_answers_nobody_reads_is_not_read_either() {
    // More than are under way, wait to be read and fit into windows and buffers, of which those
    // for answers count most: an answer is short.
    const REQUESTS_MAX: u64 = 20_000;
    let server = TestServer::with(patient()).await;
    let (requests, queue) = mpsc::channel(1);
    let outbound = futures_util::stream::unfold(queue, async |mut queue| {
        queue.recv().await.map(|request| (request, queue))
    });
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    let narrow = endpoint.initial_stream_window_size(65_535).connect().await.unwrap();
    let mut client = WorkerServiceClient::new(narrow);
    let replies = soon("it is opened", client.work(Box::pin(outbound))).await.unwrap();
    let mut replies = replies.into_inner();
    let (count, mut counted) = watch::channel(0_u64);
    let others = async {
        loop {
            beside(&server).await;
            count.send_modify(|count| *count += 1);
        }
    };
    let asking = async {
        for id in 1..REQUESTS_MAX {
            let claim = v1::Claim { worker: "x".repeat(1 << 10), ..Default::default() };
            let request = Some(v1::worker_request::Request::Claim(claim));
            let before = *counted.borrow();
            tokio::select! {
                sent = requests.send(v1::WorkerRequest { id, request, takes_parts: true }) => {
                    sent.expect("it is not dropped");
                }
                // Nothing more was taken while all of these were answered.
                _ = counted.wait_for(|count| *count >= before + 50) => return id - 1,
            }
        }
        panic!("it is read without end");
    };
    let asked = tokio::select! {
        asked = asking => asked,
        () = others => 0,
    };
    // Held back, and not lost.
    drop(requests);
    let mut answered = Vec::new();
    while let Some(reply) = soon("the stream goes on", replies.next()).await {
        answered.push(reply.expect("it is not broken").id);
    }
    answered.sort_unstable();
    assert_eq!(answered, (1..=asked).collect::<Vec<_>>());
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn one_address_with_as_many_streams_as_it_may_have_shuts_nobody_else_out() {
    let mut options = patient();
    options.connections_per_address_max = 3;
    let server = TestServer::with(options).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut client = WorkerServiceClient::new(channel(&server).await);
        let silent = futures_util::stream::pending::<v1::WorkerRequest>();
        held.push(soon("it is opened", client.work(silent)).await.unwrap());
    }
    let mut turned_away = server.connect().await;
    closed(&mut turned_away, "one more is turned away").await;

    // All of 127/8 is this machine, so there are others.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(server.address).await.unwrap();
    other.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut said = [0; 12];
    soon("another is served", other.read_exact(&mut said)).await.unwrap();
    assert_eq!(&said, b"HTTP/1.1 200");

    held.pop();
    let again = async {
        let url = format!("http://{}", server.address);
        while Endpoint::from_shared(url.clone()).unwrap().connect().await.is_err() {}
    };
    soon("who left makes room", again).await;
}
