//! gRPC bodies: charged to the same budget as those of HTTP, received within a time limit, and
//! weighed before they are decoded.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, FuturesUnordered};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use hyper::client::conn::http2;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use serde_json::json;
use tokio::sync::mpsc;
use tonic::Code;
use windlass::Role;
use windlass_proto::v1;
use windlass_server::{Access, ServerOptions};

use crate::support::{TestServer, single, soon};
use crate::tokens::{guarded, token_of};

const MIB: usize = 1 << 20;
const GET_TIME: &str = "/windlass.v1.ClientService/GetTime";
const START_RUNS: &str = "/windlass.v1.ClientService/StartRuns";
const WORK: &str = "/windlass.v1.WorkerService/Work";

type Pieces = stream::BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>;

/// One HTTP/2 connection.
struct Connection {
    sender: http2::SendRequest<StreamBody<Pieces>>,
    address: String,
}

impl Connection {
    async fn new(server: &TestServer) -> Self {
        let stream = TokioIo::new(server.connect().await);
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), stream).await.expect("it is HTTP/2");
        tokio::spawn(connection);
        Connection { sender, address: server.address.to_string() }
    }

    /// Begins a call. Returns where its body is sent and the future status of gRPC.
    async fn call(
        &mut self,
        token: &str,
        path: &str,
    ) -> (mpsc::Sender<Bytes>, impl Future<Output = (Code, String)> + use<>) {
        let (pieces, queue) = mpsc::channel(1);
        let body = stream::unfold(queue, async |mut queue: mpsc::Receiver<Bytes>| {
            queue.recv().await.map(|piece| (Ok(Frame::data(piece)), queue))
        });
        let mut request = Request::post(format!("http://{}{path}", self.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(StreamBody::new(body.boxed())).expect("it is a request");
        soon("there is room for a call", self.sender.ready()).await.expect("it is connected");
        let answer = self.sender.send_request(request);
        let status = async move {
            let answer = answer.await.expect("it is answered");
            assert_eq!(answer.status(), StatusCode::OK);
            let headers = answer.headers().clone();
            let said = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
            let code = match said("grpc-status") {
                Some(code) => code.parse::<i32>().expect("it is a number").into(),
                None => Code::Ok,
            };
            (code, said("grpc-message").unwrap_or_default().replace("%20", " "))
        };
        (pieces, status)
    }
}

/// The header of a message of this many bytes.
fn header(bytes: usize) -> Bytes {
    let length = u32::try_from(bytes).expect("it is short").to_be_bytes();
    Bytes::from([&[0], &length[..]].concat())
}

#[tokio::test]
async fn a_viewer_with_forty_unfinished_calls_of_fifty_mebibytes_is_refused_each() {
    let server = guarded().await;
    let viewer = token_of(&server.windlass, Role::Viewer, Some("acme")).await;
    let mut connection = Connection::new(&server).await;
    for _ in 0..40 {
        let (pieces, status) = connection.call(viewer.expose(), GET_TIME).await;
        pieces.send(header(50 * MIB)).await.expect("it listens");
        let (code, why) = soon("it is refused", status).await;
        assert_eq!(code, Code::ResourceExhausted, "{why}");
        assert!(why.contains("over the limit of 65536"), "{why}");
        // The body is not finished.
        drop(pieces);
    }
}

/// Whether a body of HTTP of this many bytes finds memory.
async fn finds_memory(server: &TestServer, bytes: usize) -> bool {
    let mut body = json!({ "workflow": "w" }).to_string().into_bytes();
    body.resize(bytes, b' ');
    let answer = server.raw(hyper::Method::POST, "/v1/runs", body).await;
    match answer.status.as_u16() {
        201 => true,
        503 => false,
        other => panic!("{other}: {}", answer.text),
    }
}

#[tokio::test]
async fn unfinished_calls_share_one_budget_with_http_and_those_beyond_it_are_refused() {
    let mut options = ServerOptions::new(Access::insecure_dev());
    // One address may have all of it, which is less than the forty calls send.
    (options.body_bytes_max, options.address_share_percent) = (20 * MIB, 100);
    let server = TestServer::with(options).await;
    server.worker(single("w")).await;
    let mut connection = Connection::new(&server).await;
    let piece = Bytes::from(vec![0; MIB]);
    let (mut open, mut refused) = (Vec::new(), FuturesUnordered::new());
    for _ in 0..40 {
        let (pieces, status) = connection.call("", START_RUNS).await;
        let piece = piece.clone();
        let sent = tokio::spawn(async move {
            // One that is refused is not read to its end.
            let _ = pieces.send(header(50 * MIB)).await;
            let _ = pieces.send(piece).await;
            pieces
        });
        open.push(sent);
        refused.push(status);
    }
    // Of forty calls of a mebibyte each, nineteen fit with their headers.
    for _ in 0..21 {
        let (code, why) = soon("it is refused", refused.next()).await.expect("there are more");
        assert_eq!(code, Code::ResourceExhausted, "{why}");
        assert!(why.contains("too many bytes of bodies"), "{why}");
    }
    assert!(finds_memory(&server, MIB / 2).await, "a mebibyte is left, less nineteen headers");
    assert!(!finds_memory(&server, MIB).await, "HTTP has the same budget");
    drop((open, refused, connection));
    let freed = async { while !finds_memory(&server, 10 * MIB).await {} };
    soon("what is given up is free again", freed).await;
}

#[tokio::test]
async fn a_body_or_a_message_that_drips_is_ended_by_the_time_limit() {
    let mut options = ServerOptions::new(Access::insecure_dev());
    options.body_time_max = Duration::from_millis(300);
    let server = TestServer::with(options).await;
    for path in [GET_TIME, START_RUNS, WORK] {
        let mut connection = Connection::new(&server).await;
        let (pieces, status) = connection.call("", path).await;
        let dripping = tokio::spawn(async move {
            let _ = pieces.send(header(1_000)).await;
            while pieces.send(Bytes::from_static(b"x")).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        if path == WORK {
            // The head of a stream comes first; its end is seen by the sender.
            soon("the stream is begun", status).await;
        } else {
            let (code, why) = soon("it is refused", status).await;
            assert_eq!(code, Code::Unavailable, "{path}: {why}");
            assert!(why.contains("not received within 300ms"), "{path}: {why}");
        }
        soon("nothing more is read", dripping).await.expect("it does not panic");
    }
}

#[tokio::test]
async fn a_stream_of_workers_waits_for_its_messages_as_long_as_they_take_to_come_whole() {
    let mut options = ServerOptions::new(Access::insecure_dev());
    options.body_time_max = Duration::from_millis(300);
    let server = TestServer::with(options).await;
    let mut connection = Connection::new(&server).await;
    let (pieces, status) = connection.call("", WORK).await;
    pieces.send(Bytes::new()).await.expect("it listens");
    let (code, _) = soon("the stream is begun", status).await;
    assert_eq!(code, Code::Ok);
    // Between two messages a stream may be silent for as long as it likes.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let message = v1::WorkerRequest { id: 1, ..Default::default() }.encode_to_vec();
    pieces.send(header(message.len())).await.expect("it is read");
    pieces.send(message.into()).await.expect("it is read");
    pieces.send(header(4)).await.expect("it is read still");
}

#[tokio::test]
async fn empty_elements_are_refused_before_they_are_decoded() {
    let server = TestServer::start().await;
    let mut connection = Connection::new(&server).await;
    // Field 1, no bytes: a run, 4 million times.
    let body = Bytes::from([0x0a, 0].repeat(4 * MIB));
    let (pieces, status) = connection.call("", START_RUNS).await;
    pieces.send(header(body.len())).await.expect("it listens");
    for piece in body.chunks(64 << 10) {
        pieces.send(Bytes::copy_from_slice(piece)).await.expect("it is read");
    }
    drop(pieces);
    let (code, why) = soon("it is refused", status).await;
    assert_eq!(code, Code::ResourceExhausted, "{why}");
    assert!(why.contains("split the batch"), "{why}");
}
