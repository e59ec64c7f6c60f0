//! Clients that are silent, slow or too many: they are dropped, and the others do not notice.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::header::RETRY_AFTER;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use windlass_server::{Access, ServerOptions};

use crate::support::{TestServer, single, soon};

fn options() -> ServerOptions {
    ServerOptions::new(Access::insecure_dev())
}

/// Waits until the server has closed a connection; answers what it said.
async fn closed(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    // A reset is an end as well.
    let _ = soon("the connection is closed", stream.read_to_end(&mut said)).await;
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn clients_that_say_nothing_or_too_slowly_are_dropped_and_others_are_served() {
    let mut options = options();
    options.head_time_max = Duration::from_millis(200);
    let server = TestServer::with(options).await;
    let beginnings: [&[u8]; 5] = [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: local",
        b"PRI * HTTP/2.0\r\n",
        b"\x16\x03\x01",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ];
    let mut streams = Vec::new();
    for beginning in beginnings {
        let mut stream = server.connect().await;
        stream.write_all(beginning).await.unwrap();
        streams.push(stream);
    }
    server.get("/healthz").await.ok(200);
    let last = streams.len() - 1;
    for (place, stream) in streams.iter_mut().enumerate() {
        let said = closed(stream).await;
        let is_served = said.starts_with("HTTP/1.1 200");
        assert_eq!(is_served, place == last, "{said}");
    }
    server.get("/healthz").await.ok(200);
}

#[tokio::test]
async fn a_flood_of_connections_displaces_the_quiet_and_not_the_busy() {
    let mut options = options();
    options.connections_max = 8;
    options.head_time_max = Duration::from_secs(600);
    let server = TestServer::with(options).await;
    server.worker(single("w")).await;
    let run = server.start_run("w", Value::Null).await;
    let path = format!("/v1/runs/{run}/events/stream");
    let request = server.request(Method::GET, &path).body(Default::default()).unwrap();
    let mut events = server.send(request).await.into_body();
    assert!(soon("it begins", events.frame()).await.is_some());
    let mut flood = Vec::new();
    for _ in 0..100 {
        flood.push(server.connect().await);
        if flood.len() % 10 == 0 {
            server.get("/healthz").await.ok(200);
        }
    }
    closed(&mut flood[0]).await;
    server.post(&format!("/v1/runs/{run}/cancel"), json!({})).await.ok(204);
    let mut told = String::new();
    while let Some(frame) = soon("the stream goes on", events.frame()).await {
        let data = frame.expect("it was not displaced").into_data().unwrap();
        told.push_str(std::str::from_utf8(&data).unwrap());
    }
    assert!(told.contains("run_cancelled") && told.contains("event: end"), "{told}");
}

#[tokio::test]
async fn more_requests_than_there_is_room_for_are_told_to_come_again() {
    let mut options = options();
    options.requests_max = 1;
    let server = TestServer::with(options).await;
    let mut slow = server.connect().await;
    let head = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 2\r\n\r\n{";
    slow.write_all(head.as_bytes()).await.unwrap();
    let refused = async {
        loop {
            let answer = server.get("/v1/runs").await;
            if answer.status == 503 {
                break answer;
            }
        }
    };
    let refused = soon("a request is refused", refused).await;
    assert_eq!(refused.headers[RETRY_AFTER], "1");
    refused.problem(503, "WL-0007");
    assert!(refused.json()["is_retryable"].as_bool().unwrap());
    server.get("/healthz").await.ok(200);
    slow.write_all(b"}").await.unwrap();
    let mut said = [0; 12];
    soon("it is answered", slow.read_exact(&mut said)).await.unwrap();
    assert_eq!(&said, b"HTTP/1.1 422");
    server.get("/v1/runs").await.ok(200);
}

#[tokio::test]
async fn held_requests_leave_room_for_others_and_have_a_limit_of_their_own() {
    let mut options = options();
    options.requests_max = 1;
    options.held_max = 1;
    let server = TestServer::with(options).await;
    server.worker(single("w")).await;
    let run = server.start_run("w", Value::Null).await;
    let path = format!("/v1/runs/{run}/events/stream");
    let request = server.request(Method::GET, &path).body(Default::default()).unwrap();
    let mut events = server.send(request).await.into_body();
    assert!(soon("it begins", events.frame()).await.is_some());
    server.get(&path).await.problem(503, "WL-0007");
    drop(events);
    let again = async {
        while server.get(&format!("/v1/runs/{run}/wait?timeout_ms=1")).await.status != 200 {}
    };
    soon("whoever left makes room", again).await;
    let mut waiting = server.connect().await;
    let head =
        format!("GET /v1/runs/{run}/wait?timeout_ms=30000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    waiting.write_all(head.as_bytes()).await.unwrap();
    let held = async { while server.get(&path).await.status != 503 {} };
    soon("it is held", held).await;
    server.get("/v1/runs").await.ok(200);
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_what_it_is_sent_is_dropped() {
    let mut options = options();
    options.write_time_max = Duration::from_millis(200);
    options.head_time_max = Duration::from_secs(600);
    let server = TestServer::with(options).await;
    server.worker(single("w")).await;
    let run = server.start_run("w", json!("x".repeat(1_000_000))).await;
    let mut stream = server.connect().await;
    let request = format!("GET /v1/runs/{run} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.repeat(40).as_bytes()).await.unwrap();
    let dropped = async {
        // What is sent to who has gone is answered by a reset.
        while stream.write_all(b"\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("it is dropped", dropped).await;
    server.get("/healthz").await.ok(200);
}

#[tokio::test]
async fn bodies_share_a_limit_and_one_that_breaks_off_leaves_nothing_behind() {
    let mut options = options();
    options.body_bytes_max = 16_000_000 / 1024 * 1024;
    let server = TestServer::with(options).await;
    server.worker(single("w")).await;
    let mut stream = server.connect().await;
    let head = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 16000000\r\n\r\n{\"workflow\":";
    stream.write_all(head.as_bytes()).await.unwrap();
    // All but the last piece that there is memory for.
    stream.write_all(&vec![b' '; 15_960_000]).await.unwrap();
    let until = async |status: u16| {
        let body = json!({ "workflow": "w", "version": 1 });
        while server.post("/v1/runs", body.clone()).await.status != status {}
    };
    soon("there is no memory", until(503)).await;
    drop(stream);
    soon("there is memory again", until(201)).await;
}
