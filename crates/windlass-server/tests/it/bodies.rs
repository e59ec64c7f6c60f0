//! Bodies, also those that do not say how long they are: they are paid for as they come.

use hyper::body::Bytes;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use windlass_server::{Access, ServerOptions};

use crate::support::{TestServer, single, soon};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

async fn server(body_bytes_max: usize) -> TestServer {
    let mut options = ServerOptions::new(Access::insecure_dev());
    options.body_bytes_max = body_bytes_max;
    let server = TestServer::with(options).await;
    server.worker(single("w")).await;
    server
}

/// A request whose body comes in chunks, of which none has come.
async fn begin(server: &TestServer) -> TcpStream {
    let mut stream = server.connect().await;
    let head = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("it listens");
    stream
}

/// Sends so many bytes of blanks in chunks. The server may have closed before it has read them.
async fn send(stream: &mut TcpStream, bytes: usize) {
    let mut chunk = Vec::from(b"4000\r\n");
    chunk.resize(chunk.len() + 16 * KIB, b' ');
    chunk.extend_from_slice(b"\r\n");
    for _ in 0..bytes.div_ceil(16 * KIB) {
        if stream.write_all(&chunk).await.is_err() {
            return;
        }
    }
}

/// What a client is told whose body was not taken.
async fn told(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    // What was sent and not read resets the connection behind the answer.
    let _ = soon("it is answered", stream.read_to_end(&mut said)).await;
    String::from_utf8_lossy(&said).into_owned()
}

/// Waits until a request with a body of so many bytes has this status.
async fn until(server: &TestServer, bytes: usize, status: u16) {
    let mut body = json!({ "workflow": "w", "version": 1 }).to_string().into_bytes();
    body.resize(bytes, b' ');
    let body = Bytes::from(body);
    let asking = async {
        while server.raw(hyper::Method::POST, "/v1/runs", body.clone()).await.status != status {}
    };
    soon("the status", asking).await;
}

#[tokio::test]
async fn a_flood_of_chunks_is_refused_when_the_memory_for_bodies_is_used_up() {
    let server = server(4 * MIB).await;
    let mut flood = Vec::new();
    for _ in 0..3 {
        let mut stream = begin(&server).await;
        send(&mut stream, MIB + 200 * KIB).await;
        flood.push(stream);
    }
    until(&server, 600 * KIB, 503).await;
    until(&server, 10 * KIB, 201).await;
    let mut last = begin(&server).await;
    send(&mut last, MIB).await;
    let said = told(&mut last).await;
    assert!(said.starts_with("HTTP/1.1 503"), "{said}");
    assert!(said.contains("application/problem+json") && said.contains("WL-0007"), "{said}");
    assert!(said.contains("too many bytes of bodies are being received"), "{said}");
    drop(flood);
    until(&server, 2 * MIB, 201).await;
}

#[tokio::test]
async fn a_body_that_is_announced_and_does_not_come_takes_no_memory() {
    let server = server(4 * MIB).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        let mut stream = server.connect().await;
        let head = format!(
            "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{{",
            4 * MIB
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    let body = Bytes::from(json!({ "workflow": "w", "version": 1 }).to_string());
    for _ in 0..50 {
        let told = server.raw(hyper::Method::POST, "/v1/runs", body.clone()).await;
        assert_eq!(told.status, 201);
    }
}

#[tokio::test]
async fn chunks_beyond_the_limit_of_one_body_are_refused_while_they_come() {
    let server = server(256 * MIB).await;
    let mut stream = begin(&server).await;
    // Its end is never sent.
    send(&mut stream, 16 * MIB + 80 * KIB).await;
    let said = told(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 413"), "{said}");
    assert!(said.contains("application/problem+json") && said.contains("WL-0003"), "{said}");
}

#[tokio::test]
async fn a_body_in_chunks_is_read_to_its_end() {
    let server = server(4 * MIB).await;
    let mut stream = begin(&server).await;
    send(&mut stream, 3 * MIB).await;
    stream.write_all(b"1f\r\n{\"workflow\":\"w\",\"version\":1 }  \r\n0\r\n\r\n").await.unwrap();
    let mut said = [0; 12];
    soon("it is answered", stream.read_exact(&mut said)).await.unwrap();
    assert_eq!(&said, b"HTTP/1.1 201");
}
